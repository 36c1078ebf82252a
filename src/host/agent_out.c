/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a path slot of ours, after the start:
 *
 *   EMPTY -> ARMING (ARM, ARMED) -> PROBING (reads) -> ARMED (movers may take it)
 *   ARMED -> FLUSHING (left by a mover, or condemned) -> FENCING (FAILED, FENCED) -> EMPTY */
#include "host/agent.h"

static void go(struct ry_out_slot *s, enum ry_out_state state, uint64_t now_ns)
{
    s->state = state;
    s->since_ns = now_ns;
    s->next_ns = now_ns;
}

static void send_about(struct ry_mesh *m, struct ry_peer *p, uint32_t c, uint32_t i,
                       enum ry_msg_type type)
{
    const struct ry_out_slot *s = &p->out[c].slot[i];
    struct ry_msg msg = {
        .type = type,
        .channel = c,
        .slot = i,
        .rail = s->rail,
        .peer_rail = s->peer_rail,
        .epoch = s->epoch,
        .addr = s->addr,
    };

    ry_agent_send(m, p->pe, &msg);
}

/* A life that never was offered is given up: the responder, if it was made, is fenced by the next
 * ARM of this slot. */
void ry_agent_give_up_arming(struct ry_mesh *m, struct ry_peer *p, struct ry_out_slot *s,
                             uint64_t now_ns, bool silent)
{
    struct ry_pair *pair = &p->pair[s->rail][s->peer_rail];

    RY_MARK("arming-given-up");
    ry_slot_destroy(m, s);
    ry_st_rel64(&s->host.condemn_epoch, s->epoch);
    ry_st_rel64(&s->host.flushed_epoch, s->epoch);
    ry_agent_pair_failed(m, p, s->rail, s->peer_rail, now_ns);
    pair->unreachable = silent;
}

static void arming(struct ry_mesh *m, struct ry_peer *p, uint32_t c, uint32_t i, uint64_t now_ns)
{
    struct ry_out_slot *s = &p->out[c].slot[i];

    if (now_ns >= s->until_ns || !ry_agent_pair_up(m, p, s->rail, s->peer_rail)) {
        ry_agent_give_up_arming(m, p, s, now_ns, now_ns >= s->until_ns);
    } else if (now_ns >= s->next_ns) {
        s->next_ns = now_ns + ry_agent_repeat_ns(m);
        send_about(m, p, c, i, RY_MSG_ARM);
    }
}

void ry_agent_armed(struct ry_mesh *m, struct ry_peer *p, const struct ry_msg *msg)
{
    struct ry_out_slot *s = &p->out[msg->channel].slot[msg->slot];
    uint64_t now_ns = ry_now(&m->env);
    int rc;

    if (s->state != RY_OUT_ARMING || msg->epoch != s->epoch)
        return;
    ry_st_rel32(&s->rkeys[0], (uint32_t)msg->a);
    rc = m->nic->ops->qp_connect(s->qp, &msg->addr);
    if (rc == RY_ERR_AGAIN)
        return; /* ARM is repeated, and so is its answer */
    if (rc) {
        ry_agent_give_up_arming(m, p, s, now_ns, false);
        return;
    }
    go(s, RY_OUT_PROBING, now_ns);
    s->until_ns = now_ns + m->cfg.path_timeout_ns;
}

/* One read through a path that no mover knows yet. */
static void probe_post(struct ry_mesh *m, struct ry_peer *p, uint32_t c, struct ry_out_slot *s)
{
    struct ry_ring ring = {.wqe = s->wqe,
                           .qpn = s->addr.qpn,
                           .mask = m->cfg.depth - 1,
                           .dbr = s->dbr,
                           .uar = s->uar,
                           .lkeys = m->lkeys[s->rail],
                           .rkeys = s->rkeys,
                           .nic_qp = s->qp};
    struct ry_req q = ry_proof_req(p->out[c].ch);
    struct ry_grant g = {&ring, 0, 0, s->probe_idx, 1, 0};

    ry_queue_write(&g, 0, &q, 0);
    s->probe_idx++;
    ry_queue_bell_at(&ring, s->probe_idx, &m->env);
    RY_SLOW(); /* much may happen to the rail before its answer is looked at */
}

/* Rule 10: a run of good probes, and more than one unless there is no other path to the peer. */
static uint32_t probes_wanted(const struct ry_mesh *m, struct ry_channel *ch)
{
    return ry_state_of(ry_observe_state(ch)) == RY_CH_GOOD ? m->cfg.probes : 1;
}

static void probing(struct ry_mesh *m, struct ry_peer *p, uint32_t c, uint32_t i, uint64_t now_ns)
{
    struct ry_out_channel *oc = &p->out[c];
    struct ry_out_slot *s = &oc->slot[i];
    struct ry_cqe_tail t = ry_observe_cqe(s->cqe);
    bool answered = t.qpn == s->addr.qpn && t.opcode == RY_CQE_REQ &&
                    (uint16_t)(t.counter + 1u) == (uint16_t)s->probe_idx && s->probe_idx;
    bool failed = t.qpn == s->addr.qpn && t.opcode != RY_CQE_REQ && t.opcode != RY_CQE_INVALID;

    if (answered && s->probes_good < s->probe_idx) {
        s->probes_good = s->probe_idx;
        s->until_ns = now_ns + m->cfg.path_timeout_ns;
        s->next_ns = s->probes_good == 1 && probes_wanted(m, oc->ch) > 1
                         ? now_ns
                         : now_ns + ry_agent_tick_ns(m);
    }
    if (failed || now_ns >= s->until_ns || !ry_agent_pair_up(m, p, s->rail, s->peer_rail)) {
        ry_agent_give_up_arming(m, p, s, now_ns, s->probes_good == 0);
        return;
    }
    if (s->probes_good >= probes_wanted(m, oc->ch)) {
        struct ry_pair *pair = &p->pair[s->rail][s->peer_rail];

        pair->good_since_ns = now_ns;
        pair->unreachable = false;
        s->since_ns = now_ns;
        ry_slot_offer(m, p->pe, oc, s);
    } else if (s->probes_good == s->probe_idx && now_ns >= s->next_ns) {
        probe_post(m, p, c, s);
    }
}

/* Left by a mover, or condemned before a mover took it and safe from being taken: after
 * condemn_epoch is written, a state word that is not MOVING means that every later mover reads it.
 */
static void armed(struct ry_mesh *m, struct ry_peer *p, uint32_t c, uint32_t i, uint64_t now_ns)
{
    struct ry_out_channel *oc = &p->out[c];
    struct ry_out_slot *s = &oc->slot[i];
    uint64_t st = ry_observe_state(oc->ch);
    bool left = ry_ld_acq64(&oc->ch->ring[i].failed_epoch) >= s->epoch;
    bool idle = ry_state_of(st) != RY_CH_MOVING && ry_state_active(st) != i;

    if (!left && !(s->condemned && idle))
        return;
    ry_agent_pair_failed(m, p, s->rail, s->peer_rail, now_ns);
    m->nic->ops->qp_error(s->qp);
    go(s, RY_OUT_FLUSHING, now_ns);
}

static void flushing(struct ry_mesh *m, struct ry_peer *p, uint32_t c, uint32_t i, uint64_t now_ns)
{
    struct ry_out_slot *s = &p->out[c].slot[i];
    int rc = m->nic->ops->qp_flushed(s->qp);

    if (rc == 0 && now_ns - s->since_ns < ry_agent_setup_ns(m))
        return;
    ry_st_rel64(&s->host.flushed_epoch, s->epoch);
    go(s, RY_OUT_FENCING, now_ns);
    s->until_ns = now_ns + m->cfg.timeout_ns;
}

static void fenced(struct ry_mesh *m, struct ry_out_slot *s)
{
    ry_slot_destroy(m, s);
    ry_st_rel64(&s->host.fenced_epoch, s->epoch);
}

/* The peer answers, and does not give the life back: neither RESET nor a cut is to be had. Its
 * memory may be written by that life for ever, so nothing is reusable, and what waits for it ends
 * with an error (rule 7). Only time in which the peer talks counts: a stopped one may go on. */
static bool never_fenced(const struct ry_mesh *m, const struct ry_peer *p, struct ry_out_slot *s,
                         uint64_t now_ns)
{
    uint64_t heard = ry_ld_acq64(&p->heard_ns);

    if (heard < s->since_ns || now_ns - heard > m->cfg.timeout_ns / 2)
        s->until_ns = now_ns + m->cfg.timeout_ns;
    return now_ns >= s->until_ns;
}

static void fencing(struct ry_mesh *m, struct ry_peer *p, uint32_t c, uint32_t i, uint64_t now_ns)
{
    struct ry_out_slot *s = &p->out[c].slot[i];

    if (ry_peer_state(p) == RY_PEER_GONE) {
        fenced(m, s); /* its memory is gone with it */
    } else if (never_fenced(m, p, s, now_ns)) {
        s->unfenced = true;
        ry_agent_give_up(p->out[c].ch);
    } else if (now_ns >= s->next_ns) {
        s->next_ns = RY_MUT(RY_MUT_TOLD_ONCE) ? UINT64_MAX : now_ns + ry_agent_repeat_ns(m);
        send_about(m, p, c, i, RY_MSG_FAILED);
    }
}

void ry_agent_fenced(struct ry_mesh *m, struct ry_peer *p, const struct ry_msg *msg)
{
    struct ry_out_slot *s = &p->out[msg->channel].slot[msg->slot];

    if (s->state == RY_OUT_FENCING && msg->epoch == s->epoch)
        fenced(m, s);
}

void ry_agent_out(struct ry_mesh *m, struct ry_peer *p, uint32_t c, uint64_t now_ns)
{
    for (uint32_t i = 0; i < RY_SLOTS; i++) {
        switch (p->out[c].slot[i].state) {
        case RY_OUT_EMPTY:
            break;
        case RY_OUT_ARMING:
            arming(m, p, c, i, now_ns);
            break;
        case RY_OUT_PROBING:
            probing(m, p, c, i, now_ns);
            break;
        case RY_OUT_ARMED:
            armed(m, p, c, i, now_ns);
            break;
        case RY_OUT_FLUSHING:
            flushing(m, p, c, i, now_ns);
            break;
        case RY_OUT_FENCING:
            fencing(m, p, c, i, now_ns);
            break;
        }
    }
}
