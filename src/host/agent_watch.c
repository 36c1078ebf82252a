/* SPDX-License-Identifier: Apache-2.0 */
/* What makes a channel move: silence, ports, peers' news, drain, and the home path's return. */
#include "host/agent.h"
#include "railyard/context.h"

/* Bytes that wait on one of our rails, over all channels: what a slow rail may take its time for.
 */
static uint64_t outstanding_bytes(const struct ry_mesh *m, uint32_t rail)
{
    uint64_t bytes = 0;

    for (uint32_t q = 0; q < m->n_pes; q++) {
        const struct ry_peer *p = &m->peers[q];

        for (uint32_t c = 0; c < p->n_channels; c++) {
            const struct ry_channel *ch = p->out[c].ch;
            uint32_t active = ry_state_active(ry_observe_state(ch));
            const struct ry_ring *r = &ch->ring[active];
            uint64_t s = ry_packed_seq(ry_observe_cons(r));
            uint64_t end = ry_packed_seq(ry_observe_ready(r));

            if (p->out[c].slot[active].rail != rail)
                continue;
            for (; ry_seq_diff(end, s) > 0; s = ry_seq_add(s, 1)) {
                uint32_t n = ry_be32(ry_ring_at(r, s)->u.data.byte_count);

                bytes += n & RY_WQE_INLINE ? 0 : n;
            }
        }
    }
    return bytes;
}

/* Longest time without a completion that a healthy path may take (rule 12). */
static uint64_t patience(const struct ry_mesh *m, const struct ry_peer *p,
                         const struct ry_out_slot *s)
{
    uint64_t rate = m->hello.rail[s->rail].rate_bps, other = p->hello.rail[s->peer_rail].rate_bps;

    if (!rate || (other && other < rate))
        rate = other;
    if (!rate || RY_MUT(RY_MUT_NO_PATIENCE))
        return m->cfg.path_timeout_ns;
    return m->cfg.path_timeout_ns + outstanding_bytes(m, s->rail) * 4 / (rate / 1000000 + 1) * 1000;
}

/* Has the NIC been told of work that it has not completed? What is published and not yet rung is
 * the business of a thread that sleeps. */
static bool outstanding(const struct ry_out_channel *oc, const struct ry_ring *r, uint64_t cons)
{
    uint64_t rung =
        oc->ch->handler == RY_HANDLER_GPU ? ry_ld_acq64(&r->prod) : ry_ld_acq64(r->pslot);

    return ry_packed_seq(cons) != ry_packed_seq(ry_observe_ready(r)) &&
           ry_seq_diff(ry_packed_seq(rung), ry_packed_seq(cons)) > 0;
}

/* True when the active path has been silent for longer than it may. Only time in which the agent
 * was running counts: on a crowded machine the threads that drive an emulated NIC sleep as long as
 * it does. The silence began between two looks: half a tick is the best guess. */
static bool silent(struct ry_mesh *m, struct ry_peer *p, struct ry_out_channel *oc, uint32_t active,
                   uint64_t now_ns)
{
    struct ry_ring *r = &oc->ch->ring[active];
    uint64_t cons = ry_observe_cons(r), step = now_ns - oc->looked_ns, most;

    oc->looked_ns = now_ns;
    if (RY_MUT(RY_MUT_NO_DEADLINE))
        return false;
    if (cons != oc->seen_cons || !outstanding(oc, r, cons)) {
        oc->seen_cons = cons;
        oc->silent_ns = ry_min64(step, ry_agent_tick_ns(m)) / 2;
        oc->since_ns = now_ns;
        oc->silent = 0;
        return false;
    }
    oc->silent_ns += ry_min64(step, 4 * ry_agent_tick_ns(m));
    if (oc->silent_ns < m->cfg.path_timeout_ns / 2)
        return false;
    oc->silent++;
    most = patience(m, p, &oc->slot[active]);
    if (oc->silent_ns < most) /* the next look is then, if that is before the next tick */
        m->watch_ns = ry_min64(m->watch_ns, now_ns + most - oc->silent_ns);
    return oc->silent_ns >= most && oc->silent >= m->cfg.failure_threshold;
}

/* Condemn a life: no mover takes it any more, and whoever uses it leaves it. Written before the
 * state word is read (armed() in agent_out.c): a full barrier between the two, seen by movers that
 * swap the state word and then read condemn_epoch. */
static void condemn(struct ry_out_slot *s)
{
    s->condemned = true;
    __atomic_exchange_n(&s->host.condemn_epoch, s->epoch, __ATOMIC_SEQ_CST);
}

/* What a life's probes have shown was before something happened to its rail. */
static void outdate(struct ry_mesh *m, struct ry_peer *p, struct ry_out_slot *s)
{
    RY_MARK("probe-outdated");
    if (!RY_MUT(RY_MUT_OLD_PROBE))
        ry_agent_give_up_arming(m, p, s, ry_now(&m->env), false);
}

void ry_agent_condemn_rail(struct ry_mesh *m, struct ry_peer *p, uint32_t peer_rail)
{
    for (uint32_t i = 0; i < p->n_channels * RY_SLOTS; i++) {
        struct ry_out_slot *s = &p->out[i / RY_SLOTS].slot[i % RY_SLOTS];

        if (s->peer_rail != peer_rail)
            continue;
        if (s->state == RY_OUT_PROBING)
            outdate(m, p, s);
        else if (s->state == RY_OUT_ARMED && !s->condemned)
            condemn(s);
    }
}

void ry_agent_condemn_own(struct ry_mesh *m, uint32_t rail)
{
    for (uint32_t q = 0; q < m->n_pes; q++) {
        struct ry_peer *p = &m->peers[q];

        for (uint32_t i = 0; p->out && i < p->n_channels * RY_SLOTS; i++) {
            struct ry_out_slot *s = &p->out[i / RY_SLOTS].slot[i % RY_SLOTS];

            if (s->rail != rail || s->condemned)
                continue;
            if (s->state == RY_OUT_PROBING)
                outdate(m, p, s);
            if (s->state != RY_OUT_ARMED)
                continue;
            ry_st_rel64(&s->host.port_up, 0);
            condemn(s);
        }
    }
}

static void look_at_ports(struct ry_mesh *m, struct ry_peer *p, struct ry_out_channel *oc)
{
    for (uint32_t i = 0; i < RY_SLOTS; i++) {
        struct ry_out_slot *s = &oc->slot[i];

        if (s->state != RY_OUT_ARMED)
            continue;
        if (!s->condemned && !ry_agent_pair_up(m, p, s->rail, s->peer_rail)) {
            ry_st_rel64(&s->host.port_up, 0);
            condemn(s);
        }
        if (ry_agent_pair_drained(m, p, s->rail, s->peer_rail)) {
            if (ry_ld_acq64(&s->host.retire_epoch) < s->epoch)
                ry_st_rel64(&s->host.retire_epoch, s->epoch);
        } else if (ry_ld_acq64(&s->host.retire_epoch) >= s->epoch) {
            ry_st_rel64(&s->host.retire_epoch, s->epoch - 1);
        }
    }
}

/* Is there a reason to leave a healthy path: its port is drained, or home is ready again? */
static bool wants_planned(const struct ry_mesh *m, const struct ry_peer *p,
                          const struct ry_out_channel *oc, uint32_t active)
{
    const struct ry_out_slot *a = &oc->slot[active];

    if (ry_agent_pair_drained(m, p, a->rail, a->peer_rail))
        return true;
    if (a->rail == oc->home_rail && a->peer_rail == oc->home_peer_rail)
        return false;
    for (uint32_t i = 0; i < RY_SLOTS; i++) {
        const struct ry_out_slot *s = &oc->slot[i];

        if (i != active && s->state == RY_OUT_ARMED && s->rail == oc->home_rail &&
            s->peer_rail == oc->home_peer_rail && ry_slot_usable(&oc->ch->ring[i]) &&
            !ry_slot_retired(&oc->ch->ring[i]))
            return true;
    }
    return false;
}

static void tell_moves(struct ry_mesh *m, struct ry_peer *p, uint32_t c)
{
    struct ry_out_channel *oc = &p->out[c];
    uint64_t st = ry_observe_state(oc->ch);
    uint32_t rail = oc->slot[ry_state_active(st)].rail, from = oc->seen_active_rail;
    int type = rail == oc->home_rail ? RY_EVENT_RETURN : RY_EVENT_SWITCH;

    if (st == oc->seen_state)
        return;
    if (ry_state_of(st) == RY_CH_DEAD && ry_state_of(oc->seen_state) != RY_CH_DEAD) {
        oc->seen_state = st;
        if (ry_peer_state(p) == RY_PEER_GONE)
            return; /* its end was told */
        if (ry_peer_state(p) == RY_PEER_UP) {
            ry_peer_become(p, RY_PEER_UNREACHABLE);
            ry_agent_tell_thrice(m, p, RY_MSG_GIVEN_UP);
        }
        if (m->on_event)
            m->on_event(m->event_arg, m, RY_EVENT_UNREACHABLE, p->pe, c, from, rail, oc->ch);
        return;
    }
    if (ry_state_of(st) != RY_CH_GOOD || ry_state_move(st) == ry_state_move(oc->seen_state))
        return;
    oc->seen_state = st;
    oc->seen_active_rail = rail;
    if (m->on_event)
        m->on_event(m->event_arg, m, type, p->pe, c, from, rail, oc->ch);
}

void ry_agent_leave_path(struct ry_mesh *m, struct ry_peer *p, uint32_t c)
{
    struct ry_out_channel *oc = &p->out[c];
    uint64_t acked;

    if (ry_state_of(ry_observe_state(oc->ch)) == RY_CH_DEAD)
        return;
    look_at_ports(m, p, oc);
    ry_channel_progress(oc->ch, &m->env, &acked);
}

void ry_agent_watch(struct ry_mesh *m, struct ry_peer *p, uint32_t c, uint64_t now_ns)
{
    struct ry_out_channel *oc = &p->out[c];
    uint64_t st = ry_observe_state(oc->ch), acked;
    uint32_t active = ry_state_active(st);

    if (ry_state_of(st) == RY_CH_DEAD) {
        tell_moves(m, p, c);
        return;
    }
    look_at_ports(m, p, oc);
    if (RY_MUT(RY_MUT_AGENT_LEAVES_MOVES))
        return;
    ry_channel_progress(oc->ch, &m->env, &acked);
    if (ry_state_of(st) == RY_CH_GOOD && st == ry_observe_state(oc->ch)) {
        if (silent(m, p, oc, active, now_ns)) {
            RY_MARK("silence");
            condemn(&oc->slot[active]);
            ry_channel_move(oc->ch, RY_MOVE_CONDEMNED, st, &m->env);
        } else if (wants_planned(m, p, oc, active)) {
            ry_channel_move(oc->ch, RY_MOVE_PLANNED, st, &m->env);
        }
    }
    tell_moves(m, p, c);
}
