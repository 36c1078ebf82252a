/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules of fences, agreement, silence and returns, through agents and emulated NICs. The number
 * in a name is the schedule's in doc/proof.md. */
#include "sim/town.h"

#include <string.h>

enum { WORDS = 8, BYTES = WORDS * 8, LONG_NS = 3 * TOWN_MS };

/* What PE 0 sends and PE 1 gets. */
static struct area {
    uint64_t src[2][WORDS], dst[WORDS];
    ry_signal *sig;
    uint64_t *sig_word;
} * here, *there;
static ry_signal *sig;

static bool begin(struct town *t, struct town_setting set)
{
    if (!town_open(t, &set))
        return false;
    here = town_alloc(t, sizeof(*here));
    there = town_at(t, 1, here);
    sig = town_alloc(t, sizeof(*sig));
    for (uint32_t i = 0; i < WORDS; i++) {
        here->src[0][i] = 0x500 + i;
        here->src[1][i] = 0x900 + i;
    }
    return true;
}

static int put(struct town *t, uint32_t which, uint64_t value)
{
    return ry_put_signal_nbi(town_ctx(t, 0), here->dst, here->src[which], BYTES, sig, value, 1);
}

static bool arrived(struct town *t, uint64_t value)
{
    return ry_signal_read(town_ctx(t, 1), town_at(t, 1, sig)) == value;
}
static bool first_arrived(struct town *t) { return arrived(t, 5); }

static bool holds(uint32_t which) { return memcmp(there->dst, here->src[which], BYTES) == 0; }

static bool moved(struct town *t) { return town_channel(t, 0, 1)->moves > 0; }

static struct ry_nic_fault fault(enum ry_nic_fault_kind kind, uint64_t for_ns)
{
    return (struct ry_nic_fault){.kind = kind, .rail = 0, .p = 1.0, .for_ns = for_ns, .seed = 1};
}

/* After a first message that rail 0 has left somewhere on the way: all is proven, the buffer is
 * written again, and whatever still comes of the first one must not come. */
static bool second_stands(struct town *t)
{
    if (ry_quiet(town_ctx(t, 0)) != RY_OK || !first_arrived(t) || !holds(0))
        return false;
    if (put(t, 1, 9) != RY_OK || ry_quiet(town_ctx(t, 0)) != RY_OK || !arrived(t, 9))
        return false;
    town_run(t, LONG_NS);
    return holds(1);
}

/* Puts 5 and 9 go to one place; 5 was replayed, and its ghost comes behind 9. */
static bool s13_ghost_of_a_replayed_put(struct town *t)
{
    struct ry_nic_fault ghost = fault(RY_FAULT_GHOST, 100 * TOWN_US);

    if (!begin(t, (struct town_setting){0}))
        return false;
    ghost.delay_ns = 700 * TOWN_US;
    town_fault(t, 0, ghost);
    return put(t, 0, 5) == RY_OK && second_stands(t) && moved(t);
}

/* The same while the receiver's agent is slow: quiet waits for it. */
static void wake_1_late(struct town *t)
{
    if (t->now > TOWN_MS + 300 * TOWN_US)
        t->pe[1].agent_stopped = false;
}
static bool s13_slow_agent(struct town *t)
{
    struct ry_nic_fault ghost = fault(RY_FAULT_GHOST, 100 * TOWN_US);

    if (!begin(t, (struct town_setting){0}))
        return false;
    t->pe[1].agent_stopped = true;
    t->each = wake_1_late;
    ghost.delay_ns = 200 * TOWN_US;
    town_fault(t, 0, ghost);
    return put(t, 0, 5) == RY_OK && second_stands(t) && moved(t);
}

/* A get is replayed and read; the old path's answer comes behind it. The agent has condemned the
 * path, and sleeps before it ends the queue pair. */
static void condemn_and_sleep(struct town *t)
{
    struct ry_out_slot *o = &town_out(t, 0, 1, 0)->slot[0];

    t->pe[0].agent_stopped = t->now < TOWN_MS + 500 * TOWN_US;
    if (t->now < TOWN_MS + 50 * TOWN_US || o->condemned || o->epoch != 1)
        return;
    o->condemned = true;
    o->host.condemn_epoch = o->epoch;
}
static bool s21_late_answer_of_a_get(struct town *t)
{
    uint64_t *got;

    if (!begin(t, (struct town_setting){0}))
        return false;
    got = town_alloc(t, BYTES);
    memcpy(there->dst, here->src[0], BYTES);
    t->each = condemn_and_sleep;
    town_fault(t, 0, fault(RY_FAULT_STALL, 200 * TOWN_US));
    if (ry_get(town_ctx(t, 0), got, here->dst, BYTES, 1) != RY_OK ||
        memcmp(got, here->src[0], BYTES))
        return false;
    memset(got, 0xee, BYTES);
    town_run(t, LONG_NS);
    for (uint32_t i = 0; i < WORDS; i++)
        if (got[i] != 0xeeeeeeeeeeeeeeeeull)
            return false;
    return moved(t);
}

/* A fetch-add has run, its acknowledgement is lost, so it is sent again by another path; its answer
 * cannot go for a while. It runs once, and so does every one until the window has come round twice.
 */
static bool s22_atomic_runs_once(struct town *t)
{
    uint64_t *count, old = 1;

    if (!begin(t, (struct town_setting){.depth = 16}))
        return false;
    count = town_alloc(t, 8);
    town_mute(t, 1, 0, 300 * TOWN_US);
    town_fault(t, 0, fault(RY_FAULT_ACK_DROP, 100 * TOWN_US));
    if (ry_amo_fetch_add(town_ctx(t, 0), count, 1, 1, &old) != RY_OK || old != 0 || !moved(t))
        return false;
    for (uint64_t k = 1; k < 3 * RY_AMO_WINDOW; k++)
        if (ry_amo_fetch_add(town_ctx(t, 0), count, 1, 1, &old) != RY_OK || old != k)
            return false;
    return *(uint64_t *)town_at(t, 1, count) == 3 * RY_AMO_WINDOW;
}

/* Both directions have queue pairs of their own: a fence of one leaves the other as it is. */
static bool other_way_arrived(struct town *t) { return ry_signal_read(town_ctx(t, 0), sig) == 1; }
static bool s24_fence_of_one_direction(struct town *t)
{
    struct ry_nic_fault error = fault(RY_FAULT_CQE_ERROR, 0);

    if (!begin(t, (struct town_setting){0}))
        return false;
    error.syndrome = RY_SYN_RETRY_EXC;
    town_fault(t, 0, error); /* at PE 0's end alone */
    if (put(t, 0, 5) != RY_OK || !town_until(t, moved, LONG_NS))
        return false;
    for (uint32_t i = 0; i < 40; i++) { /* PE 1 sends while PE 0's path is fenced and rebuilt */
        if (ry_put_signal_nbi(town_ctx(t, 1), NULL, NULL, 0, town_at(t, 1, sig), 1, 0) != RY_OK)
            return false;
        town_run(t, 5 * TOWN_US);
    }
    return town_until(t, other_way_arrived, LONG_NS) && ry_quiet(town_ctx(t, 0)) == RY_OK &&
           town_channel(t, 1, 0)->moves == 0;
}

/* Completions just stop: no error, no event. */
static bool s31_silence(struct town *t)
{
    if (!begin(t, (struct town_setting){0}))
        return false;
    town_fault(t, 0, fault(RY_FAULT_STALL, 0));
    return put(t, 0, 5) == RY_OK && town_until(t, first_arrived, LONG_NS) && moved(t) && holds(0);
}

/* What the receiver's NIC holds back for longer than all of the failover takes. */
static struct town_setting slow_memory(uint32_t us)
{
    return (struct town_setting){
        .chaos = {.visible_delay_ns_max = us * TOWN_US, .reorder_p = 0xffff}};
}

/* The responder still copies while its queue pair is taken to RESET. */
static bool s32_copy_behind_the_fence(struct town *t)
{
    if (!begin(t, slow_memory(400)) || put(t, 0, 5) != RY_OK)
        return false;
    town_run(t, 3 * TOWN_US); /* acknowledged, and not in memory */
    town_fault(t, 0, fault(RY_FAULT_PORT_DOWN, TOWN_MS));
    return second_stands(t) && moved(t);
}

/* A rebuilt path has another number: packets of its last life reach nobody. */
static uint32_t qpns[64];
static uint32_t n_qpns;
static bool new_qpn(struct town *t, uint32_t from, uint32_t to, const struct ry_msg *msg)
{
    (void)t, (void)from, (void)to;
    if ((msg->type != RY_MSG_ARM && msg->type != RY_MSG_ARMED) || n_qpns == 64)
        return true;
    for (uint32_t i = 0; i < n_qpns; i++)
        if (qpns[i] == msg->addr.qpn)
            return true;
    qpns[n_qpns++] = msg->addr.qpn;
    return true;
}
static bool back_home(struct town *t)
{
    return moved(t) && ry_state_of(town_channel(t, 0, 1)->state) == RY_CH_GOOD &&
           town_active(t, 0, 1)->rail == 0;
}
static bool s33_packets_of_the_last_life(struct town *t)
{
    struct ry_nic_fault ghost = fault(RY_FAULT_GHOST, 100 * TOWN_US);
    uint32_t old, old_far;

    n_qpns = 0;
    if (!begin(t, (struct town_setting){0}))
        return false;
    t->hear = new_qpn;
    old = town_active(t, 0, 1)->addr.qpn;
    old_far = town_mesh(t, 1)->peers[0].in[0].addr.qpn;
    ghost.delay_ns = 2 * TOWN_MS;
    town_fault(t, 0, ghost);
    if (put(t, 0, 5) != RY_OK || ry_quiet(town_ctx(t, 0)) != RY_OK)
        return false;
    if (!town_until(t, back_home, 1500 * TOWN_US)) /* the rebuilt path is in use */
        return false;
    for (uint32_t i = 0; i < n_qpns; i++)
        if (qpns[i] == old || qpns[i] == old_far)
            return false;
    return n_qpns >= 2 && second_stands(t);
}

/* One rail only, and a NIC that answers no command: the fence goes down the ladder. */
static int hung(struct ry_nic_qp *qp)
{
    (void)qp;
    return 0;
}
static bool s34_no_fence_to_be_had(struct town *t)
{
    struct ry_nic_fault ghost = fault(RY_FAULT_GHOST, 100 * TOWN_US);

    if (!begin(t, (struct town_setting){.rails = 1}))
        return false;
    t->pe[1].ops.qp_fence_poll = hung;
    ghost.delay_ns = 700 * TOWN_US;
    town_fault(t, 0, ghost);
    return put(t, 0, 5) == RY_OK && second_stands(t) && moved(t);
}

/* And an agent that is stopped: an error in the end, and never "you may write it again". */
static bool s34_no_agent(struct town *t)
{
    if (!begin(t, (struct town_setting){0}))
        return false;
    t->pe[1].agent_stopped = true;
    town_fault(t, 0, fault(RY_FAULT_STALL, TOWN_MS));
    if (put(t, 0, 5) != RY_OK || !town_until(t, first_arrived, LONG_NS))
        return false;
    return ry_quiet(town_ctx(t, 0)) != RY_OK;
}

/* The cable is pulled at the receiver, whose NIC holds data: RESET flushes through it all the same.
 */
static bool s35_flush_with_the_port_down(struct town *t)
{
    if (!begin(t, slow_memory(400)) || put(t, 0, 5) != RY_OK)
        return false;
    town_run(t, 3 * TOWN_US);
    town_fault(t, 1, fault(RY_FAULT_PORT_DOWN, 0));
    return second_stands(t) && moved(t);
}

/* Everything that was ever said of a life, once more in the next. */
static struct ry_msg said[256];
static uint32_t said_by[256], n_said;
static bool keep(struct town *t, uint32_t from, uint32_t to, const struct ry_msg *msg)
{
    (void)t, (void)to;
    if (n_said < 256) {
        said_by[n_said] = from;
        said[n_said++] = *msg;
    }
    return true;
}
static bool s36_old_news(struct town *t)
{
    uint64_t moves, epoch;
    struct ry_out_slot *o;

    n_said = 0;
    if (!begin(t, (struct town_setting){0}))
        return false;
    t->hear = keep;
    for (int i = 0; i < 2; i++) { /* two failures of the home path, each with its rebuild */
        town_fault(t, 0, fault(RY_FAULT_PORT_DOWN, 200 * TOWN_US));
        if (put(t, 0, 5) != RY_OK || !town_until(t, moved, LONG_NS))
            return false;
        town_run(t, LONG_NS);
        if (!back_home(t))
            return false;
    }
    t->hear = NULL;
    moves = town_channel(t, 0, 1)->moves;
    o = town_active(t, 0, 1);
    epoch = o->epoch;
    for (uint32_t i = 0; i < n_said; i++) {
        if (said[i].epoch == epoch && said[i].slot == (uint32_t)(o - town_out(t, 0, 1, 0)->slot))
            continue; /* that is news of today */
        said[i].to_incarnation = said[i].incarnation = 0;
        town_say(t, said_by[i], !said_by[i], &said[i]);
        town_run(t, 2 * TOWN_US);
    }
    town_run(t, LONG_NS);
    return put(t, 1, 9) == RY_OK && ry_quiet(town_ctx(t, 0)) == RY_OK && arrived(t, 9) &&
           town_channel(t, 0, 1)->moves == moves && n_said > 8;
}

/* A message of another incarnation is no news, not even an epoch 1 of a later one. */
static bool s36_another_incarnation(struct town *t)
{
    struct ry_msg failed = {.type = RY_MSG_FAILED, .version = RY_CTL_VERSION, .epoch = 1};
    const struct ry_in_slot *in;

    if (!begin(t, (struct town_setting){0}))
        return false;
    in = &town_mesh(t, 1)->peers[0].in[0];
    for (uint32_t i = 0; i < 2; i++) {
        failed.incarnation = !i;
        failed.to_incarnation = i;
        town_say(t, 0, 1, &failed);
        if (in->state != RY_IN_READY)
            return false;
    }
    failed.to_incarnation = 0;
    town_say(t, 0, 1, &failed);
    return in->state != RY_IN_READY;
}

/* Who sent has ended, who waits has nothing to send: the agent moves the channel. */
static bool s37_nobody_but_the_agent(struct town *t)
{
    if (!begin(t, (struct town_setting){0}))
        return false;
    town_fault(t, 0, fault(RY_FAULT_DROP, 0));
    if (put(t, 0, 5) != RY_OK)
        return false;
    town_run(t, 2 * TOWN_US);
    town_fault(t, 0, fault(RY_FAULT_PORT_DOWN, 0));
    return town_until(t, first_arrived, LONG_NS) && holds(0);
}

/* Sixteen transfers share a slow port: each waits for the others, and none has failed. */
static bool s40_slow_is_not_dead(struct town *t)
{
    enum { N = 16, MIB = 1 << 20 };
    uint8_t *block;

    if (!begin(t, (struct town_setting){.rails = 2,
                                        .channels = N,
                                        .heap_bytes = (N + 2) * MIB,
                                        .rate_bps = 100000000,
                                        .path_timeout_ns = 5 * TOWN_MS}))
        return false;
    block = town_alloc(t, (size_t)N * MIB);
    for (uint32_t i = 0; i < N; i++)
        if (ry_put_nbi(town_ctx(t, 0), block + (size_t)i * MIB, block + (size_t)i * MIB, MIB, 1))
            return false;
    if (ry_quiet(town_ctx(t, 0)) != RY_OK)
        return false;
    for (uint32_t c = 0; c < town_mesh(t, 0)->peers[1].n_channels; c++)
        if (town_out(t, 0, 1, c)->ch->moves)
            return false;
    return true;
}

/* Masked, and alive: what it writes meets a closed queue pair. */
static bool s42_masked_and_alive(struct town *t)
{
    uint64_t before;

    if (!begin(t, (struct town_setting){0}))
        return false;
    if (put(t, 0, 5) != RY_OK || ry_quiet(town_ctx(t, 0)) != RY_OK)
        return false;
    ry_agent_peer_lost(town_mesh(t, 1), 0);
    for (int i = 0; i < 100 && !ry_agent_peer_closed(town_mesh(t, 1), 0); i++)
        town_run(t, TOWN_US);
    if (!ry_agent_peer_closed(town_mesh(t, 1), 0))
        return false;
    before = there->dst[0];
    put(t, 1, 9); /* it does not know */
    town_run(t, LONG_NS);
    return there->dst[0] == before && !arrived(t, 9) && town_channel(t, 1, 0)->state &&
           ry_state_of(town_channel(t, 1, 0)->state) == RY_CH_DEAD;
}

/* The port flaps and has another GID behind it, and it is up before the fabric is ready. */
static bool s44_another_gid(struct town *t)
{
    if (!begin(t, (struct town_setting){0}))
        return false;
    town_fault(t, 0, fault(RY_FAULT_DROP, 900 * TOWN_US)); /* longer than the port is down */
    town_fault(t, 0, fault(RY_FAULT_PORT_DOWN, 200 * TOWN_US));
    town_fault(t, 0, fault(RY_FAULT_GID_CHANGE, 0));
    if (put(t, 0, 5) != RY_OK || ry_quiet(town_ctx(t, 0)) != RY_OK || !first_arrived(t))
        return false;
    return town_until(t, back_home, 10 * TOWN_MS) && second_stands(t) &&
           town_active(t, 0, 1)->rail == 0;
}

/* One end sees the failure, the other never does, and the answer to its question is lost. */
static uint32_t lost_fenced;
static bool lose_fenced(struct town *t, uint32_t from, uint32_t to, const struct ry_msg *msg)
{
    (void)t, (void)from, (void)to;
    return msg->type != RY_MSG_FENCED || lost_fenced++ >= 3;
}
static bool s45_one_end_sees_it(struct town *t)
{
    struct ry_nic_fault ghost = fault(RY_FAULT_GHOST, 100 * TOWN_US);

    lost_fenced = 0;
    if (!begin(t, (struct town_setting){0}))
        return false;
    t->hear = lose_fenced;
    ghost.delay_ns = 700 * TOWN_US;
    town_fault(t, 0, ghost); /* PE 1's port and queue pair are as healthy as ever */
    return put(t, 0, 5) == RY_OK && second_stands(t) && lost_fenced > 3;
}

/* A life is probed, and its last probe has been answered; before the initiator looks, the responder
 * cuts its rail off. The news comes first: that answer is none of the life that is to be offered.
 */
static bool cut;
static void cut_behind_a_probe(struct town *t)
{
    struct ry_mesh *m = town_mesh(t, 1);

    for (uint32_t i = 0; i < RY_SLOTS && !cut; i++) {
        const struct ry_out_slot *s = &town_out(t, 0, 1, 0)->slot[i];
        struct ry_msg news = {.version = RY_CTL_VERSION, .type = RY_MSG_RAILS, .a = m->rails_up};
        struct ry_cqe_tail c;

        if (s->state != RY_OUT_PROBING || s->probes_good + 1 < town_mesh(t, 0)->cfg.probes)
            continue;
        c = ry_observe_cqe(s->cqe);
        if (c.qpn != s->addr.qpn || c.opcode != RY_CQE_REQ || s->probes_good == s->probe_idx ||
            (uint16_t)(c.counter + 1u) != (uint16_t)s->probe_idx)
            continue;
        cut = true;
        ry_agent_close(m, &m->peers[0].in[i]);
        news.epoch = ++m->rails_news;
        m->rail_downs[s->peer_rail]++;
        memcpy(news.downs, m->rail_downs, sizeof(news.downs));
        town_say(t, 1, 0, &news);
    }
}
static bool cut_was(struct town *t)
{
    (void)t;
    return cut;
}
static bool s50_probe_older_than_a_cut(struct town *t)
{
    struct ry_nic_fault down = fault(RY_FAULT_PORT_DOWN, 200 * TOWN_US);

    cut = false;
    down.rail = 1; /* the backup's: nobody uses it, and nobody would find out */
    if (!begin(t, (struct town_setting){0}))
        return false;
    t->each = cut_behind_a_probe;
    town_fault(t, 0, down);
    if (put(t, 0, 5) != RY_OK || ry_quiet(town_ctx(t, 0)) != RY_OK ||
        !town_until(t, cut_was, 10 * TOWN_MS))
        return false;
    town_run(t, LONG_NS);
    for (uint32_t i = 0; i < RY_SLOTS; i++) {
        const struct ry_out_slot *s = &town_out(t, 0, 1, 0)->slot[i];
        const struct ry_in_slot *in = &town_mesh(t, 1)->peers[0].in[i];

        if (s->state == RY_OUT_ARMED && !s->condemned &&
            (in->state != RY_IN_READY || in->epoch != s->epoch))
            return false;
    }
    return true;
}

int main(void)
{
    static const struct town_schedule all[] = {
        {"13 ghost of a replayed put", RY_MUT_NO_FENCE, s13_ghost_of_a_replayed_put},
        {"13 the same, slow agent", RY_MUT_REUSE_UNFENCED, s13_slow_agent},
        {"21 late answer of a get", RY_MUT_QUIET_NO_SLOTS, s21_late_answer_of_a_get},
        {"22 atomic runs once", RY_MUT_AMO_REPLAYED, s22_atomic_runs_once},
        {"24 fence of one direction", RY_MUT_FENCE_BOTH_WAYS, s24_fence_of_one_direction},
        {"31 silence", RY_MUT_NO_DEADLINE, s31_silence},
        {"32 copy behind the fence", RY_MUT_FENCE_NO_FLUSH, s32_copy_behind_the_fence},
        {"33 packets of the last life", RY_MUT_NO_FENCE, s33_packets_of_the_last_life},
        {"34 no fence to be had", RY_MUT_NO_FENCE, s34_no_fence_to_be_had},
        {"34 no agent", RY_MUT_REUSE_UNFENCED, s34_no_agent},
        {"35 flush with the port down", RY_MUT_FENCE_NO_FLUSH, s35_flush_with_the_port_down},
        {"36 old news", RY_MUT_STALE_NEWS, s36_old_news},
        {"36 another incarnation", RY_MUT_ANY_INCARNATION, s36_another_incarnation},
        {"37 nobody but the agent", RY_MUT_AGENT_LEAVES_MOVES, s37_nobody_but_the_agent},
        {"40 slow is not dead", RY_MUT_NO_PATIENCE, s40_slow_is_not_dead},
        {"42 masked and alive", RY_MUT_MASK_REOPENED, s42_masked_and_alive},
        {"42 the same, no reset", RY_MUT_NO_FENCE, s42_masked_and_alive},
        {"44 another gid", RY_MUT_OLD_GID, s44_another_gid},
        {"45 one end sees it", RY_MUT_FENCED_ONCE, s45_one_end_sees_it},
        {"45 the same, no fence", RY_MUT_NO_FENCE, s45_one_end_sees_it},
        {"50 probe older than a cut", RY_MUT_OLD_PROBE, s50_probe_older_than_a_cut},
    };

    return town_run_all("schedule", all, sizeof(all) / sizeof(all[0]));
}
