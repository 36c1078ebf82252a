/* SPDX-License-Identifier: Apache-2.0 */
/* One path life in a slot: adopting what the agent armed, opening and closing its ring, carrying a
 * WQE from one ring to another. Only the mover calls these (one at a time: GOOD -> MOVING has one
 * winner). */
#ifndef RY_CORE_PATH_H
#define RY_CORE_PATH_H

#include "core/channel.h"

/* Agent to mover: the life that armed_epoch names is described by the words written before it. */
RY_FN uint64_t ry_observe_armed(const struct ry_slot_host *h)
{
    return ry_ld_acq64(&h->armed_epoch);
}

RY_FN bool ry_slot_usable(const struct ry_ring *r)
{
    const struct ry_slot_host *h = r->host;
    uint64_t armed = ry_observe_armed(h);

    return armed > ry_ld_acq64(&r->failed_epoch) && ry_ld_acq64(&h->condemn_epoch) < armed &&
           ry_ld_acq64(&h->preferred) != 0;
}

/* Is there a planned reason to leave this life? */
RY_FN bool ry_slot_retired(const struct ry_ring *r)
{
    return ry_ld_acq64(&r->host->retire_epoch) >= ry_observe_armed(r->host);
}

/* Best target beside `log`; RY_SLOTS: none. A retired slot (its port is drained) is the last resort
 * of a failure and no target of a planned move. */
RY_FN uint32_t ry_slot_pick(const struct ry_channel *ch, uint32_t log, bool planned)
{
    uint32_t best = RY_SLOTS;
    uint64_t best_pref = 0;

    for (uint32_t i = 0; i < RY_SLOTS; i++) {
        const struct ry_ring *r = &ch->ring[i];
        uint64_t pref;

        if (i == log || !ry_slot_usable(r))
            continue;
        pref = ry_ld_acq64(&r->host->preferred) << 1;
        if (!ry_slot_retired(r))
            pref |= 1ull << 63;
        else if (planned)
            continue;
        if (pref > best_pref) {
            best_pref = pref;
            best = i;
        }
    }
    return best;
}

/* Take over what the agent armed, if the ring does not hold that life yet: its queue pair is new,
 * its ring index starts behind the agent's probes. */
RY_FN void ry_ring_adopt(struct ry_ring *r)
{
    const struct ry_slot_host *h = r->host;
    uint64_t armed = ry_observe_armed(h);

    if (r->epoch == armed)
        return;
    ry_st_ptr(&r->wqe, h->wqe); /* an initiator that is late may look: it finds another move */
    r->cqe = h->cqe;
    ry_st_ptr(&r->dbr, h->dbr);
    ry_st_ptr(&r->uar, h->uar);
    ry_st_ptr(&r->pslot, h->pslot);
    r->pecho = h->pecho;
    ry_st_ptr(&r->lkeys, h->lkeys);
    ry_st_ptr(&r->rkeys, h->rkeys);
    r->nic_qp = h->nic_qp;
    ry_st_fenced32(&r->qpn, h->qpn);
    ry_st_rel64(&r->base, (0 - (uint64_t)h->next_idx) & RY_SEQ_MASK);
    ry_st_rel64(&r->resv_head, RY_CLOSED);
    ry_st_rel64(&r->epoch, armed);
}

/* Ring index at which the next record of this life goes. */
RY_FN uint64_t ry_ring_next(const struct ry_ring *r)
{
    return (ry_packed_seq(ry_observe_resv(r)) - ry_ld_rlx64(&r->base)) & RY_SEQ_MASK;
}

/* Prepare a target for records from sequence `from` on; it stays closed. */
RY_FN void ry_ring_place(struct ry_ring *r, uint64_t from)
{
    uint64_t next = ry_ring_next(r);

    ry_st_rel64(&r->base, (from - next) & RY_SEQ_MASK);
    ry_st_rel64(&r->resv_head, RY_CLOSED | from);
    ry_st_rel64(&r->first, from);
    ry_st_rel64(&r->proven, RY_CLOSED | from);
    ry_st_rel64(&r->carried, from);
}

/* Let the NIC run [cons, next) of a placed ring: the mover's doorbell. Still closed to initiators.
 */
RY_FN void ry_ring_run(struct ry_channel *ch, struct ry_ring *r, uint32_t move, uint64_t cons,
                       uint64_t next, const struct ry_env *env)
{
    ry_st_rel64(&r->carried, next);
    ry_st_rel64(&r->cons, ry_pack(move, cons));
    ry_st_rel64(&r->proven, ry_pack(move, ry_packed_seq(ry_ld_acq64(&r->proven))));
    ry_st_rel64(&r->resv_head, RY_CLOSED | next); /* a completion before it is one of ours */
    ry_publish_ready(r, ry_pack(move, next));
    if (ch->handler != RY_HANDLER_GPU || next != r->first)
        ry_queue_ring(ch, r, move, next, env);
    else
        ry_st_rel64(&r->prod, ry_pack(move, next));
}

/* Mover to initiators: the ring is whole and may be reserved from. */
RY_FN void ry_ring_open(struct ry_ring *r, uint32_t move, uint64_t next)
{
    ry_st_rel64(&r->resv_head, ry_pack(move, next));
    RY_OPENED();
}

/* Stop reservations, wait until every reserved block is ready; *end is the sequence behind them. */
RY_FN int ry_ring_close(struct ry_ring *r, const struct ry_env *env, uint64_t *end)
{
    uint64_t v = ry_or64(&r->resv_head, RY_CLOSED);
    uint64_t want = ry_pack(ry_packed_move(v), ry_packed_seq(v));
    uint64_t until = ry_now(env) + env->ready_ns_max;

    *end = ry_packed_seq(v);
    while (ry_packed_seq(ry_observe_ready(r)) != ry_packed_seq(want)) {
        if (RY_MUT(RY_MUT_MOVE_WITHOUT_WAIT))
            break;
        if (ry_now(env) >= until)
            return RY_ERR_STALLED;
        ry_relax(env);
    }
    return RY_OK;
}

/* Nobody rings this ring any more. gpu: every reservation is published, so nobody has a turn or
 * gets one; cpu: besides, the proxy has echoed CLOSED. */
RY_FN int ry_ring_silence(struct ry_channel *ch, struct ry_ring *r, const struct ry_env *env)
{
    uint64_t v, until;

    if (ch->handler == RY_HANDLER_GPU)
        return RY_OK;
    if (!r->pslot)
        return RY_OK; /* it never held a life: the channel had no path from the start */
    v = ry_or64(r->pslot, RY_CLOSED) | RY_CLOSED;
    RY_TOLD();
    until = ry_now(env) + env->ready_ns_max;
    while (ry_observe_echo(r->pecho) != v) {
        if (ry_now(env) >= until)
            return RY_ERR_STALLED;
        ry_relax(env);
    }
    return RY_OK;
}

/* Make a record another ring's: index, QPN, keys of that NIC, and the word of that slot. */
RY_FN void ry_record_aim(struct ry_wqe *w, uint32_t from_slot, const struct ry_view *to,
                         uint32_t to_slot, uint64_t seq)
{
    uint32_t tag = ry_wqe_tag(w), idx = (uint32_t)(seq - to->base);
    uint8_t op = ry_wqe_opcode(w);

    ry_wqe_head(w, op, idx, to->qpn, ry_wqe_ds(w));
    if (op == RY_OP_NOP)
        return;
    w->rkey = ry_view_rkey(to, tag);
    if ((tag & RY_TAG_SIGNAL) && !RY_MUT(RY_MUT_ONE_WORD))
        w->raddr = ry_be64(ry_be64(w->raddr) +
                           ((uint64_t)to_slot - from_slot) * ry_signal_stride(tag));
    if (ry_wqe_atomic(op))
        w->u.atomic.lkey = ry_view_lkey(to, tag);
    else if (!(ry_be32(w->u.data.byte_count) & RY_WQE_INLINE))
        w->u.data.lkey = ry_view_lkey(to, tag);
}

#endif
