/* SPDX-License-Identifier: Apache-2.0 */
/* What an agent does beside failing over: drains, rails that are down from the start, NICs that
 * refuse what they are asked, peers that are lost or silent, messages that make no sense. */
#include "sim/town.h"

#include <string.h>

enum { LONG_NS = 3 * TOWN_MS };

static ry_signal *sig;
static uint64_t value;

static bool begin(struct town *t, struct town_setting set)
{
    value = 0;
    if (!town_open(t, &set))
        return false;
    sig = town_alloc(t, sizeof(*sig));
    return true;
}

static bool works(struct town *t)
{
    return ry_put_signal_nbi(town_ctx(t, 0), NULL, NULL, 0, sig, ++value, 1) == RY_OK &&
           ry_quiet(town_ctx(t, 0)) == RY_OK &&
           ry_signal_read(town_ctx(t, 1), town_at(t, 1, sig)) == value;
}

static struct ry_nic_fault fault(enum ry_nic_fault_kind kind, uint64_t for_ns)
{
    return (struct ry_nic_fault){.kind = kind, .rail = 0, .p = 1.0, .for_ns = for_ns, .seed = 1};
}

static bool on_0(struct town *t) { return town_active(t, 0, 1)->rail == 0; }
static bool on_1(struct town *t) { return town_active(t, 0, 1)->rail == 1; }
static uint64_t failures(struct town *t)
{
    return town_channel(t, 0, 1)->moves - town_channel(t, 0, 1)->moves_planned;
}
static bool failed(struct town *t) { return failures(t) > 0; }

/* Drained here or there, the channel leaves, nothing is replayed; undrained it comes back. */
static bool drained(struct town *t)
{
    if (!begin(t, (struct town_setting){0}))
        return false;
    for (uint32_t pe = 0; pe < 2; pe++) {
        if (ry_agent_drain(town_mesh(t, pe), 0, true) != RY_OK || !works(t) ||
            !town_until(t, on_1, LONG_NS) || !works(t))
            return false;
        town_run(t, LONG_NS); /* and stays away */
        if (!on_1(t) || ry_agent_drain(town_mesh(t, pe), 0, false) != RY_OK ||
            !town_until(t, on_0, LONG_NS) || !works(t))
            return false;
    }
    return town_channel(t, 0, 1)->moves_planned == 4 && failures(t) == 0 &&
           town_channel(t, 0, 1)->replayed == 0;
}

static bool drain_of_no_rail(struct town *t)
{
    return begin(t, (struct town_setting){0}) &&
           ry_agent_drain(town_mesh(t, 0), 2, true) == RY_ERR_INVALID;
}

/* All rails drained: the last resort of a failure is better than an error. */
static bool all_drained(struct town *t)
{
    if (!begin(t, (struct town_setting){0}))
        return false;
    for (uint32_t r = 0; r < 2; r++)
        ry_agent_drain(town_mesh(t, 0), r, true);
    town_run(t, LONG_NS);
    town_fault(t, 0, fault(RY_FAULT_PORT_DOWN, 0));
    return works(t) && works(t);
}

/* A rail that is down from the start: its paths count as failed, and the home path comes when the
 * rail does. */
static bool down_from_the_start(struct town *t)
{
    if (!begin(t, (struct town_setting){.down = 1}) || !works(t) || !on_1(t))
        return false;
    town_fault(t, 0, fault(RY_FAULT_PORT_UP, 0));
    return town_until(t, on_0, 10 * TOWN_MS) && works(t);
}

/* Rates: known at both ends, at one, of different size; a path that is busy is not silent. */
static bool rates_differ(struct town *t)
{
    enum { BYTES = 200000 };
    static const uint64_t rates[][2] = {{1000, 0}, {0, 1000}, {1000, 500}, {500, 1000}};
    uint8_t *block;

    if (!begin(t, (struct town_setting){.rate_bps = 1000000000}))
        return false;
    block = town_alloc(t, BYTES);
    for (uint32_t i = 0; i < 4; i++) {
        for (uint32_t r = 0; r < 2; r++) {
            town_mesh(t, 0)->hello.rail[r].rate_bps = rates[i][0] * 1000000;
            town_mesh(t, 0)->peers[1].hello.rail[r].rate_bps = rates[i][1] * 1000000;
        }
        if (ry_put(town_ctx(t, 0), block, block, BYTES, 1) != RY_OK)
            return false;
    }
    return failures(t) == 0;
}

/* --- a NIC that refuses --- */

static uint32_t refusals;
static int no_qp(struct ry_nic *nic, const struct ry_qp_attr *attr, struct ry_nic_qp **out,
                 struct ry_qp_addr *addr)
{
    (void)nic, (void)attr, (void)out, (void)addr;
    refusals++;
    return RY_ERR_NO_MEMORY;
}
static int no_mr(struct ry_nic *nic, uint32_t rail, void *base, uint64_t len_bytes, bool remote,
                 struct ry_mr *out)
{
    (void)nic, (void)rail, (void)base, (void)len_bytes, (void)remote, (void)out;
    refusals++;
    return RY_ERR_NO_MEMORY;
}
static int no_cut(struct ry_nic *nic, uint32_t rail)
{
    (void)nic, (void)rail;
    refusals++;
    return RY_ERR_DEVICE;
}
static int hung(struct ry_nic_qp *qp)
{
    (void)qp;
    return 0;
}

/* No queue pair to be had, here or there: tried again, at most as often as it is held back, and the
 * home path is back once there is one. */
static bool no_queue_pair(struct town *t)
{
    for (uint32_t pe = 0; pe < 2; pe++) {
        struct ry_nic_ops whole;

        refusals = 0;
        if (!begin(t, (struct town_setting){0}))
            return false;
        whole = t->pe[pe].ops;
        t->pe[pe].ops.qp_create = no_qp;
        town_fault(t, 0, fault(RY_FAULT_PORT_DOWN, 200 * TOWN_US));
        if (!works(t) || !town_until(t, on_1, LONG_NS))
            return false;
        town_run(t, LONG_NS);
        if (refusals == 0 || refusals > 100 || !on_1(t) || !works(t))
            return false;
        t->pe[pe].ops = whole;
        if (!town_until(t, on_0, 40 * TOWN_MS) || !works(t))
            return false;
    }
    return true;
}

static bool reusable_now(struct town *t)
{
    const struct ry_channel *ch = town_channel(t, 0, 1);

    return ry_channel_reusable(ch, 0, ry_packed_seq(ch->ring[1].carried));
}

/* Neither RESET nor a cut to be had: never FENCED, never reusable, and an error in the end. */
static bool no_fence_ever(struct town *t)
{
    refusals = 0;
    if (!begin(t, (struct town_setting){0}))
        return false;
    t->pe[1].ops.qp_fence_poll = hung;
    t->pe[1].ops.rail_cut = no_cut;
    town_fault(t, 0, fault(RY_FAULT_STALL, 200 * TOWN_US));
    if (ry_put_signal_nbi(town_ctx(t, 0), NULL, NULL, 0, sig, 1, 1) != RY_OK ||
        !town_until(t, failed, LONG_NS))
        return false;
    town_run(t, LONG_NS);
    /* the rail has two responders, and each asks for the cut once */
    return refusals == 2 && !reusable_now(t) && ry_quiet(town_ctx(t, 0)) != RY_OK;
}

/* After a cut the rail needs new keys: as long as there are none it is not armed. */
static bool no_keys(struct town *t)
{
    struct ry_nic_ops whole;

    refusals = 0;
    if (!begin(t, (struct town_setting){0}))
        return false;
    whole = t->pe[1].ops;
    t->pe[1].ops.qp_fence_poll = hung;
    t->pe[1].ops.mr_reg = no_mr;
    town_fault(t, 0, fault(RY_FAULT_PORT_DOWN, 200 * TOWN_US));
    if (!works(t) || !town_until(t, on_1, LONG_NS))
        return false;
    town_run(t, LONG_NS);
    if (refusals == 0 || refusals > 60 || !on_1(t) || !(town_mesh(t, 1)->rails_cut & 1))
        return false;
    t->pe[1].ops = whole;
    return town_until(t, on_0, 40 * TOWN_MS) && works(t) && !(town_mesh(t, 1)->rails_cut & 1);
}

/* Events of rails that this PE does not use are none of its business. */
static int foreign_event(struct ry_nic *nic, struct ry_nic_event *ev)
{
    (void)nic;
    *ev = (struct ry_nic_event){.type = RY_EV_PORT_DOWN, .rail = 7};
    return refusals++ < 5;
}
static bool events_of_other_rails(struct town *t)
{
    refusals = 0;
    if (!begin(t, (struct town_setting){0}))
        return false;
    t->pe[0].ops.poll_event = foreign_event;
    town_run(t, 50 * TOWN_US);
    return refusals > 5 && town_mesh(t, 0)->rails_up == 3 && works(t) && on_0(t);
}

/* --- lost and silent peers --- */

/* Lost: its channels are dead, also one that a mover has just now; its ends are closed, and what
 * was to be fenced with it is. */
static bool lost(struct town *t)
{
    struct ry_mesh *m;
    struct ry_channel *ch;
    uint64_t st;

    if (!begin(t, (struct town_setting){0}) || !works(t))
        return false;
    m = town_mesh(t, 0);
    t->pe[1].agent_stopped = true;
    town_fault(t, 0, fault(RY_FAULT_PORT_DOWN, 0));
    town_run(t, 100 * TOWN_US); /* FAILED is said, and not answered */
    if (town_out(t, 0, 1, 0)->slot[0].state != RY_OUT_FENCING)
        return false;
    ry_agent_peer_lost(m, 1);
    if (ry_agent_peer_closed(m, 1))
        return false;
    ry_agent_peer_lost(m, 1); /* told twice */
    town_run(t, 100 * TOWN_US);
    if (!ry_agent_peer_closed(m, 1) || town_out(t, 0, 1, 0)->slot[0].state != RY_OUT_EMPTY)
        return false;
    if (ry_put_signal_nbi(town_ctx(t, 0), NULL, NULL, 0, sig, 9, 1) != RY_ERR_PEER_LOST)
        return false;
    ch = town_channel(t, 1, 0);
    st = ch->state;
    ch->state = ry_state_pack(RY_CH_MOVING, ry_state_active(st), ry_state_move(st));
    ry_agent_peer_lost(town_mesh(t, 1), 0);
    return ry_state_of(ch->state) == RY_CH_MOVING && /* the mover's */
           ry_state_of(town_channel(t, 0, 1)->state) == RY_CH_DEAD;
}

/* Its agent is stopped: a wait without a deadline of its own ends all the same, the next one asks
 * anew, and a slow one that answers is waited for. */
static bool silent_peer(struct town *t)
{
    uint64_t at;

    if (!begin(t, (struct town_setting){0}))
        return false;
    t->pe[1].agent_stopped = true;
    at = t->now;
    if (ry_signal_wait(town_ctx(t, 0), sig, 1, 1, 0) != RY_ERR_TIMEOUT ||
        t->now - at < town_mesh(t, 0)->env.lost_ns_max || !town_mesh(t, 0)->peers[1].asked_ns)
        return false;
    town_run(t, 5 * town_mesh(t, 0)->env.lost_ns_max);
    if (town_mesh(t, 0)->peers[1].asked_ns)
        return false;
    t->pe[1].agent_stopped = false;
    at = t->now;
    return ry_signal_wait(town_ctx(t, 0), sig, 1, 1, 4 * town_mesh(t, 0)->env.lost_ns_max) ==
               RY_ERR_TIMEOUT &&
           t->now - at >= 4 * town_mesh(t, 0)->env.lost_ns_max;
}

/* --- messages --- */

/* FAILED of a life whose ARM never came is answered, and that life does not rise any more. */
static uint64_t fenced_told, armed_told;
static bool count_answers(struct town *t, uint32_t from, uint32_t to, const struct ry_msg *msg)
{
    (void)t, (void)to;
    fenced_told += from == 1 && msg->type == RY_MSG_FENCED;
    armed_told += from == 1 && msg->type == RY_MSG_ARMED;
    return true;
}
static bool failed_before_armed(struct town *t)
{
    struct ry_msg m = {.version = RY_CTL_VERSION, .type = RY_MSG_FAILED, .slot = 3, .epoch = 7};
    const struct ry_in_slot *in;

    fenced_told = armed_told = 0;
    if (!begin(t, (struct town_setting){0}))
        return false;
    t->hear = count_answers;
    in = &town_mesh(t, 1)->peers[0].in[3];
    town_say(t, 0, 1, &m);
    if (fenced_told != 1 || in->state != RY_IN_FENCED || in->epoch != 7)
        return false;
    m.type = RY_MSG_ARM;
    town_say(t, 0, 1, &m);
    if (armed_told || in->state != RY_IN_FENCED)
        return false;
    m.type = RY_MSG_FAILED;
    m.epoch = 9; /* a later one, that this end has not heard of either */
    town_say(t, 0, 1, &m);
    m.epoch = 8; /* and an older one */
    town_say(t, 0, 1, &m);
    return fenced_told == 3 && in->epoch == 9 && works(t);
}

/* Names of nothing: no such channel, slot or rail, another version, half a message. */
static bool nonsense(struct town *t)
{
    static const struct ry_msg all[] = {
        {.type = RY_MSG_FAILED, .channel = 1, .epoch = 5},
        {.type = RY_MSG_FAILED, .slot = RY_SLOTS, .epoch = 5},
        {.type = RY_MSG_FAILED, .rail = 2, .epoch = 5},
        {.type = RY_MSG_FAILED, .peer_rail = 2, .epoch = 5},
        {.type = RY_MSG_FENCED, .rail = 2, .epoch = 1},
        {.type = RY_MSG_ARMED, .peer_rail = 2, .epoch = 1},
        {.type = 50, .epoch = 5},
    };
    const struct ry_in_slot *in;
    struct ry_msg m;

    if (!begin(t, (struct town_setting){0}))
        return false;
    in = town_mesh(t, 1)->peers[0].in;
    for (uint32_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        m = all[i];
        m.version = RY_CTL_VERSION;
        town_say(t, 0, 1, &m);
    }
    m = (struct ry_msg){.version = RY_CTL_VERSION + 1, .type = RY_MSG_FAILED, .epoch = 5};
    town_say(t, 0, 1, &m);
    m.version = RY_CTL_VERSION;
    t->pe[0].boot.ops->ctl_send(&t->pe[0].boot, 1, &m, 4);
    t->pe[0].boot.ops->ctl_send(&t->pe[0].boot, 1, &m, sizeof(m) - 8);
    t->pe[1].boot.ops->ctl_send(&t->pe[1].boot, 1, &m, sizeof(m)); /* from itself */
    town_run(t, 50 * TOWN_US);
    if (in[0].state != RY_IN_READY || in[1].state != RY_IN_READY || failures(t))
        return false;
    m.type = 100;
    town_say(t, 0, 1, &m);
    return works(t);
}

/* "I cannot reach you any more" is heard once; whoever waits for that PE is told. */
static bool given_up(struct town *t)
{
    struct ry_msg m = {.version = RY_CTL_VERSION, .type = RY_MSG_GIVEN_UP};

    if (!begin(t, (struct town_setting){0}))
        return false;
    for (int i = 0; i < 3; i++)
        town_say(t, 1, 0, &m);
    if (ry_peer_state(&town_mesh(t, 0)->peers[1]) != RY_PEER_UNREACHABLE)
        return false;
    ry_agent_peer_lost(town_mesh(t, 0), 1);
    town_say(t, 1, 0, &m);
    return ry_peer_state(&town_mesh(t, 0)->peers[1]) == RY_PEER_GONE &&
           ry_signal_wait(town_ctx(t, 0), sig, 1, 1, 0) == RY_ERR_PEER_LOST;
}

/* Handlers with a proxy fail over alike. */
static bool with_a_proxy(struct town *t)
{
    for (int h = RY_HANDLER_CPU; h <= RY_HANDLER_CPU_HOST_MEMORY; h++) {
        if (!begin(t, (struct town_setting){.handler = (enum ry_handler)h}))
            return false;
        town_fault(t, 0, fault(RY_FAULT_STALL, 500 * TOWN_US));
        if (!works(t) || !failed(t) || !town_until(t, on_0, 10 * TOWN_MS) || !works(t))
            return false;
    }
    return true;
}

int main(void)
{
    static const struct town_schedule all[] = {
        {"drained", RY_MUT_PLANNED_NO_READ, drained},
        {"drain of no rail", RY_MUT_NONE, drain_of_no_rail},
        {"all drained", RY_MUT_NONE, all_drained},
        {"down from the start", RY_MUT_NONE, down_from_the_start},
        {"rates differ", RY_MUT_NONE, rates_differ},
        {"no queue pair", RY_MUT_NO_HOLD_BACK, no_queue_pair},
        {"no fence ever", RY_MUT_NO_FENCE, no_fence_ever},
        {"no keys", RY_MUT_NONE, no_keys},
        {"events of other rails", RY_MUT_NONE, events_of_other_rails},
        {"lost", RY_MUT_NONE, lost},
        {"silent peer", RY_MUT_NONE, silent_peer},
        {"failed before armed", RY_MUT_NONE, failed_before_armed},
        {"nonsense", RY_MUT_NONE, nonsense},
        {"given up", RY_MUT_NONE, given_up},
        {"with a proxy", RY_MUT_PROXY_SHORT_LOOK, with_a_proxy},
    };

    return town_run_all("agent", all, sizeof(all) / sizeof(all[0]));
}
