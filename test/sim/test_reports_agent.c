/* SPDX-License-Identifier: Apache-2.0 */
/* Failures that others have met in public, replayed through agents and emulated NICs: each comment
 * names the report (owner, repository, number) and says what is right. */
#include "sim/town.h"

#include <string.h>

enum { LONG_NS = 3 * TOWN_MS };

static struct ry_nic_fault fault(enum ry_nic_fault_kind kind, uint64_t for_ns)
{
    return (struct ry_nic_fault){.kind = kind, .rail = 0, .p = 1.0, .for_ns = for_ns, .seed = 1};
}

static bool acknowledged(struct town *t)
{
    const struct ry_channel *ch = town_channel(t, 0, 1);
    const struct ry_ring *r = &ch->ring[ry_state_active(ch->state)];

    return ch->moves && ry_state_of(ch->state) == RY_CH_GOOD &&
           ry_packed_seq(r->cons) == ry_packed_seq(r->ready_head);
}

/* What a NIC's own fetch-and-add does under the same faults: it counts twice. */
static uint64_t by_the_nic(struct town *t, uint64_t *count)
{
    struct ry_mesh *m = town_mesh(t, 0);
    struct ry_req q = {.opcode = RY_OP_ATOMIC_FA, .bytes = 8, .operand = {1}};
    uint64_t end;

    q.raddr = ry_mesh_raddr(m, 1, count);
    q.laddr = ry_proof_req(town_channel(t, 0, 1)).laddr;
    if (ry_mesh_post(m, 1, 0, &q, 1, 0, &end) != RY_OK || !town_until(t, acknowledged, LONG_NS))
        return 0;
    return *(uint64_t *)town_at(t, 1, count);
}

/* deepseek-ai/DeepEP#530: the ACK of an atomic is
 * lost, the atomic is sent again. Right: it is applied exactly once, and its result is the one of
 * the first time; also where the answer has to wait, and the target looks at the request again and
 * again. */
static bool deepep_530(struct town *t)
{
    static struct town control;
    uint64_t *count, old = 1, twice;

    if (!town_open(&control, &(struct town_setting){0}))
        return false;
    town_fault(&control, 0, fault(RY_FAULT_ACK_DROP, 100 * TOWN_US));
    twice = by_the_nic(&control, town_alloc(&control, 8));
    town_close(&control);
    if (twice != 2 || !town_open(t, &(struct town_setting){.depth = 16}))
        return false;
    count = town_alloc(t, 8);
    town_mute(t, 1, 0, 300 * TOWN_US);
    town_fault(t, 0, fault(RY_FAULT_ACK_DROP, 100 * TOWN_US));
    return ry_amo_fetch_add(town_ctx(t, 0), count, 1, 1, &old) == RY_OK && old == 0 &&
           town_channel(t, 0, 1)->moves > 0 && *(uint64_t *)town_at(t, 1, count) == 1;
}

/* deepseek-ai/DeepEP#509: a drain that waits for
 * nothing. Right: quiet comes back when everything is in the peer's memory, and not before. */
static bool deepep_509(struct town *t)
{
    uint64_t *word;

    if (!town_open(t, &(struct town_setting){
                          .chaos = {.visible_delay_ns_max = 50 * TOWN_US, .reorder_p = 0xffff}}))
        return false;
    word = town_alloc(t, 4096);
    for (uint64_t k = 1; k <= 20; k++) {
        memset(word, (int)k, 4096);
        if (ry_put_nbi(town_ctx(t, 0), word, word, 4096, 1) || ry_quiet(town_ctx(t, 0)) ||
            memcmp(word, town_at(t, 1, word), 4096))
            return false;
    }
    return true;
}

/* deepseek-ai/DeepEP#509 again: a teardown that never ends. Right: with no path left everything
 * that waits ends, with an error, when its time is over, and closing needs nobody. */
static bool deepep_509_teardown(struct town *t)
{
    ry_signal *sig;
    int rc;

    if (!town_open(t, &(struct town_setting){0}))
        return false;
    sig = town_alloc(t, sizeof(*sig));
    for (uint32_t r = 0; r < 2; r++) {
        struct ry_nic_fault cut = fault(RY_FAULT_DROP, 0);

        cut.rail = r;
        town_fault(t, 0, cut);
    }
    if (ry_put_signal_nbi(town_ctx(t, 0), NULL, NULL, 0, sig, 1, 1) != RY_OK)
        return false;
    rc = ry_quiet(town_ctx(t, 0));
    if (rc == RY_OK || ry_signal_wait(town_ctx(t, 1), town_at(t, 1, sig), 1, 0, 0) == RY_OK)
        return false;
    town_close(t);
    return rc == RY_ERR_UNREACHABLE;
}

/* kvcache-ai/Mooncake#3596: one of eight rails
 * flaps, is taken back each time, and all is slow for 25 minutes. Right: a pair that fails again
 * soon after its return is held back twice as long each time, up to a bound; one that was good for
 * long begins anew. */
static bool mooncake_3596(struct town *t)
{
    static struct ry_mesh m;
    static struct ry_peer p;
    struct ry_pair *pair = &p.pair[0][0];
    uint64_t now = 1000000000, last = 0;

    (void)t;
    m.cfg.recovery_ns = 100;
    m.cfg.recovery_ns_max = 30000;
    for (int i = 0; i < 12; i++) {
        uint64_t hold;

        pair->good_since_ns = now;
        now += 10; /* good for a moment */
        ry_agent_pair_failed(&m, &p, 0, 0, now);
        hold = pair->not_before_ns - now;
        if (i && hold != (2 * last < 30000 ? 2 * last : 30000))
            return false;
        last = hold;
        now = pair->not_before_ns;
    }
    if (last != 30000)
        return false;
    pair->good_since_ns = now;
    now += 1000 * 30000ull;
    last = 50;
    for (int i = 0; i < 4; i++) { /* after a long good time, and then never good again */
        for (int channel = 0; channel < 8; channel++) /* one failure, whoever used the pair */
            ry_agent_pair_failed(&m, &p, 0, 0, now);
        if (pair->not_before_ns - now != 2 * last)
            return false;
        last *= 2;
        now = pair->not_before_ns;
    }
    return true;
}

/* The same from outside: a cable that flaps for 40 ms costs a few switches, not one a flap. */
static bool mooncake_3596_flaps(struct town *t)
{
    enum { FLAPS = 80 };
    uint64_t value = 0;
    ry_signal *sig;

    if (!town_open(t, &(struct town_setting){0}))
        return false;
    sig = town_alloc(t, sizeof(*sig));
    for (uint32_t i = 0; i < FLAPS; i++) {
        town_fault(t, 0, fault(RY_FAULT_PORT_DOWN, 50 * TOWN_US));
        for (uint32_t k = 0; k < 10; k++) {
            if (ry_put_signal_nbi(town_ctx(t, 0), NULL, NULL, 0, sig, ++value, 1) != RY_OK)
                return false;
            town_run(t, 50 * TOWN_US);
        }
    }
    return ry_quiet(town_ctx(t, 0)) == RY_OK &&
           ry_signal_read(town_ctx(t, 1), town_at(t, 1, sig)) == value &&
           town_channel(t, 0, 1)->moves - town_channel(t, 0, 1)->moves_planned < FLAPS / 2;
}

int main(void)
{
    static const struct town_schedule all[] = {
        {"DeepEP 530", RY_MUT_AMO_REPLAYED, deepep_530},
        {"DeepEP 509", RY_MUT_QUIET_WRONG_COUNTER, deepep_509},
        {"DeepEP 509, teardown", RY_MUT_NO_GIVE_UP, deepep_509_teardown},
        {"Mooncake 3596", RY_MUT_NO_HOLD_BACK, mooncake_3596},
        {"Mooncake 3596, flaps", RY_MUT_NO_HOLD_BACK, mooncake_3596_flaps},
    };

    return town_run_all("report", all, sizeof(all) / sizeof(all[0]));
}
