/* SPDX-License-Identifier: Apache-2.0 */
/* The submit protocol: reserve, write, publish, ring; and reading completions. One ring at a time.
 *
 *   one compare-and-swap on resv_head (room, CLOSED, reservation)
 *   -> write the WQE blocks -> wait until ready_head is my start -> set it to my end
 *   -> ring: handler gpu writes the doorbell itself, the cpu handlers tell the proxy
 *
 * ready_head is the one frontier in every handler mode (rule 14). */
#ifndef RY_CORE_QUEUE_H
#define RY_CORE_QUEUE_H

#include "core/layout.h"
#include "core/mutant.h"
#include "railyard/status.h"

/* --- surroundings --- */

RY_FN uint64_t ry_now(const struct ry_env *env)
{
#if RY_ON_GPU
    uint64_t t;
    (void)env;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    return t;
#else
    return env->now_ns(env->arg);
#endif
}

RY_FN void ry_relax(const struct ry_env *env)
{
#if RY_ON_GPU
    (void)env;
    __nanosleep(64);
#else
    env->relax(env->arg);
#endif
}

RY_FN void ry_kick(const struct ry_env *env, struct ry_ring *ring, uint32_t prod_idx)
{
#if RY_ON_GPU
    (void)env, (void)ring, (void)prod_idx;
#else
    env->kick(env->arg, ring, prod_idx);
#endif
}

/* --- verbs: each names the two observers it orders --- */

/* Mover to initiators: a ring opened by the mover is seen whole. */
RY_FN uint64_t ry_observe_state(const struct ry_channel *ch) { return ry_ld_acq64_pe(&ch->state); }
/* Initiator to initiators: reservations. */
RY_FN uint64_t ry_observe_resv(const struct ry_ring *r) { return ry_ld_acq64_pe(&r->resv_head); }
/* Initiator to doorbell writer: WQE blocks before `ready` are written. */
RY_FN uint64_t ry_observe_ready(const struct ry_ring *r) { return ry_ld_acq64_pe(&r->ready_head); }
RY_FN void ry_publish_ready(struct ry_ring *r, uint64_t v) { ry_st_rel64_pe(&r->ready_head, v); }
/* Waiter to waiters: completions that were seen. */
RY_FN uint64_t ry_observe_cons(const struct ry_ring *r) { return ry_ld_acq64_pe(&r->cons); }
/* Initiator to NIC: the doorbell record may be read once the doorbell word is; the NIC then sees
 * every WQE block before it. */
RY_FN void ry_publish_dbr(uint32_t *dbr, uint32_t prod_idx)
{
    ry_st_rel32(dbr, ry_be32(prod_idx & 0xffff));
}
RY_FN void ry_ring_doorbell(uint64_t *uar, uint64_t word) { ry_st_rel64(uar, word); }
/* Initiator (or mover) to proxy thread, and back. */
RY_FN uint64_t ry_observe_pslot(const uint64_t *p) { return ry_ld_acq64(p); }
RY_FN void ry_publish_echo(uint64_t *p, uint64_t v) { ry_st_rel64(p, v); }
RY_FN uint64_t ry_observe_echo(const uint64_t *p) { return ry_ld_acq64(p); }

RY_FN struct ry_wqe *ry_ring_at(const struct ry_ring *r, uint64_t seq)
{
    return &r->wqe[(uint32_t)(seq - ry_ld_rlx64(&r->base)) & r->mask];
}

/* --- reserve --- */

struct ry_grant {
    struct ry_ring *ring;
    uint32_t slot, move;
    uint64_t seq; /* first block */
    uint32_t n;
};

/* Room for n more blocks behind seq, `released` being what the log may forget (rule 15). */
RY_FN bool ry_queue_room(const struct ry_channel *ch, uint64_t seq, uint32_t n)
{
    int64_t used = ry_seq_diff(ry_seq_add(seq, n), ry_ld_acq64_pe(&ch->released));

    if (RY_MUT(RY_MUT_ROOM_BY_COMPLETION))
        used = ry_seq_diff(ry_seq_add(seq, n),
                           ry_packed_seq(ry_observe_cons(&ch->ring[ry_state_active(ch->state)])));
    return used <= (int64_t)(ch->depth - RY_RING_SPARE);
}

/* Take n blocks of the active ring: 0, AGAIN (a move is under way), BUSY (the ring is full),
 * UNREACHABLE (the peer was given up). Room and CLOSED are tested on the very value that the swap
 * replaces, so that no one reserves between a check and a close, and nobody adds and then gives up.
 */
RY_FN int ry_queue_reserve(struct ry_channel *ch, uint32_t n, struct ry_grant *g)
{
    uint64_t st = ry_observe_state(ch);
    struct ry_ring *r = &ch->ring[ry_state_active(st)];
    uint64_t v = ry_observe_resv(r);

    if (RY_UNLIKELY(ry_state_of(st) == RY_CH_DEAD))
        return RY_ERR_UNREACHABLE;
    for (;;) {
        uint64_t seq = ry_packed_seq(v), found;

        if (RY_UNLIKELY(ry_packed_closed(v)) && !RY_MUT(RY_MUT_CLOSE_OUTSIDE))
            return RY_ERR_AGAIN;
        if (RY_UNLIKELY(!ry_queue_room(ch, seq, n)) && !RY_MUT(RY_MUT_RESERVE_BEFORE_ROOM))
            return RY_ERR_BUSY;
        if (RY_LIKELY(ry_take64_pe(&r->resv_head, v, ry_pack(ry_packed_move(v), ry_seq_add(seq, n)),
                                   &found))) {
            g->ring = r;
            g->slot = ry_state_active(st);
            g->move = ry_packed_move(v);
            g->seq = seq;
            g->n = n;
            return RY_OK;
        }
        v = found;
    }
}

/* --- write --- */

RY_FN void ry_queue_write_operand(struct ry_wqe *w, const struct ry_ring *r, const struct ry_req *q)
{
    if (q->inline_bytes) {
        uint8_t *to = w->u.inl.bytes;
        const uint8_t *from = (const uint8_t *)q->operand;

        w->u.inl.byte_count = ry_be32(RY_WQE_INLINE | q->inline_bytes);
        for (uint32_t i = 0; i < q->inline_bytes && i < sizeof(q->operand); i++)
            to[i] = from[i];
    } else if (ry_wqe_atomic(q->opcode)) {
        w->u.atomic.swap_add = ry_be64(q->operand[0]);
        w->u.atomic.compare = ry_be64(q->operand[1]);
        w->u.atomic.byte_count = ry_be32(q->bytes);
        w->u.atomic.lkey = ry_be32(r->lkeys[q->tag & RY_TAG_LMR]);
        w->u.atomic.addr = ry_be64(q->laddr);
    } else {
        w->u.data.byte_count = ry_be32(q->bytes);
        w->u.data.lkey = ry_be32(r->lkeys[q->tag & RY_TAG_LMR]);
        w->u.data.addr = ry_be64(q->laddr);
    }
}

RY_FN uint64_t ry_signal_stride(uint32_t tag) { return tag & RY_TAG_WIDE ? 16 : 8; }

/* Block i of a grant, from a request. `tag` adds marks (LAST, PROBE). */
RY_FN void ry_queue_write(const struct ry_grant *g, uint32_t i, const struct ry_req *q,
                          uint32_t tag)
{
    const struct ry_ring *r = g->ring;
    uint64_t seq = ry_seq_add(g->seq, i);
    uint32_t idx = (uint32_t)(seq - ry_ld_rlx64(&r->base));
    struct ry_wqe *w = &r->wqe[idx & r->mask];
    uint64_t raddr = q->raddr;
    uint32_t ds = 3;

    tag |= q->tag;
    if ((tag & RY_TAG_SIGNAL) && !RY_MUT(RY_MUT_ONE_WORD))
        raddr += g->slot * ry_signal_stride(tag);
    if (q->inline_bytes)
        ds = 2 + (4 + q->inline_bytes + 15u) / 16u;
    else if (ry_wqe_atomic(q->opcode))
        ds = 4;
    ry_wqe_head(w, q->opcode, idx, r->qpn, ds);
    w->signature = 0;
    w->rsvd[0] = w->rsvd[1] = 0;
    w->fm_ce_se = q->flags & RY_REQ_SIGNALLED ? RY_WQE_SIGNALLED : 0;
    w->tag = ry_be32(tag);
    w->raddr = ry_be64(raddr);
    w->rkey = ry_be32(ry_ld_rlx32(&r->rkeys[tag >> RY_TAG_RMR_SHIFT]));
    w->rsvd2 = 0;
    ry_queue_write_operand(w, r, q);
}

/* --- ring --- */

/* Take the doorbell lock; false when env's patience ends: an initiator stopped inside it. */
RY_FN bool ry_queue_lock(struct ry_ring *r, const struct ry_env *env)
{
    uint64_t found, until = 0;

    while (!ry_take64_pe(&r->lock, 0, 1, &found)) {
        uint64_t now = ry_now(env);

        if (!until)
            until = now + env->ready_ns_max;
        else if (now >= until)
            return false;
        ry_relax(env);
    }
    return true;
}

/* Lock holder to the next: prod, the doorbell record and word are written. */
RY_FN void ry_queue_unlock(struct ry_ring *r) { ry_st_rel64_pe(&r->lock, 0); }

/* Doorbell for everything up to `ready`, written by whoever owns it now. */
RY_FN void ry_queue_bell(struct ry_ring *r, uint64_t ready, const struct ry_env *env)
{
    uint32_t idx = (uint32_t)(ready - ry_ld_rlx64(&r->base));
    const struct ry_wqe *last = &r->wqe[(idx - 1) & r->mask];

    ry_publish_dbr(r->dbr, idx);
    ry_ring_doorbell(r->uar, ry_wqe_doorbell(last));
    ry_kick(env, r, idx);
}

/* handler gpu: under the lock, by max, and only while the ring is still in this move's life: a
 * thread that slept between publishing and ringing must not ring a rebuilt ring. */
RY_FN int ry_queue_ring_direct(struct ry_ring *r, uint32_t move, const struct ry_env *env)
{
    uint64_t prod, ready;

    if (!ry_queue_lock(r, env))
        return RY_ERR_STALLED;
    prod = ry_ld_acq64_pe(&r->prod);
    ready = ry_observe_ready(r);
    if ((!ry_packed_closed(prod) && ry_packed_move(prod) == move) ||
        RY_MUT(RY_MUT_RING_UNCHECKED)) {
        if (ry_seq_diff(ry_packed_seq(ready), ry_packed_seq(prod)) > 0) {
            ry_st_rel64_pe(&r->prod, ry_pack(move, ry_packed_seq(ready)));
            ry_queue_bell(r, ry_packed_seq(ready), env);
        }
    }
    ry_queue_unlock(r);
    return RY_OK;
}

/* cpu handlers: raise the producer slot, within the same move only. */
RY_FN void ry_queue_raise_pslot(struct ry_ring *r, uint32_t move, uint64_t seq)
{
    uint64_t old = ry_observe_pslot(r->pslot);

    while (ry_packed_move(old) == move && !ry_packed_closed(old) &&
           ry_seq_diff(seq, ry_packed_seq(old)) > 0) {
        uint64_t found;

        if (ry_cas64(r->pslot, old, ry_pack(move, seq), &found))
            break;
        old = found;
    }
    RY_TOLD();
}

RY_FN int ry_queue_ring(struct ry_channel *ch, struct ry_ring *r, uint32_t move, uint64_t end,
                        const struct ry_env *env)
{
    if (ch->handler == RY_HANDLER_GPU)
        return ry_queue_ring_direct(r, move, env);
    if (RY_MUT(RY_MUT_DOORBELL_STORE))
        ry_st_rel64(r->pslot, ry_pack(move, end));
    ry_queue_raise_pslot(r, move, end);
    return RY_OK;
}

/* Proxy thread, cpu handlers: one look at one ring; *last is its memory of it. True when it did
 * something. A CLOSED slot is echoed and never rung again until the mover opens it with a new move.
 */
RY_FN bool ry_proxy_step(struct ry_ring *r, uint64_t *pslot, uint64_t *pecho, uint64_t *last,
                         const struct ry_env *env)
{
    uint64_t v = ry_observe_pslot(pslot);

    if (v == *last || (RY_MUT(RY_MUT_PROXY_SHORT_LOOK) && (uint32_t)v == (uint32_t)*last))
        return false;
    *last = v;
    if (ry_packed_closed(v))
        ry_publish_echo(pecho, v);
    else
        ry_queue_bell(r, ry_packed_seq(v), env);
    return true;
}

/* Publish a grant whose blocks are written, in order of reservation, and ring. STALLED: an earlier
 * reserver did not publish within env's patience; the context is broken, because its hole stops
 * all. */
RY_FN int ry_queue_publish(struct ry_channel *ch, const struct ry_grant *g,
                           const struct ry_env *env)
{
    struct ry_ring *r = g->ring;
    uint64_t mine = ry_pack(g->move, g->seq), end = ry_seq_add(g->seq, g->n);
    uint64_t until = 0;

    while (RY_UNLIKELY(ry_observe_ready(r) != mine) && !RY_MUT(RY_MUT_READY_BY_STORE)) {
        uint64_t now = ry_now(env);

        if (!until)
            until = now + env->ready_ns_max;
        else if (now >= until)
            return RY_ERR_STALLED;
        ry_relax(env);
    }
    ry_publish_ready(r, ry_pack(g->move, end));
    RY_SLOW();
    return ry_queue_ring(ch, r, g->move, end, env);
}

/* --- completions --- */

/* How far behind the frontier c a completion is: half of the counter's range or more is stale. */
RY_FN uint16_t ry_cqe_distance(const struct ry_cqe_tail *t, uint64_t c, uint64_t base)
{
    return (uint16_t)((t->counter - (uint16_t)(ry_packed_seq(c) - base)) & RY_COUNTER_MASK);
}
RY_FN bool ry_cqe_stale(uint16_t distance) { return distance > RY_COUNTER_MASK >> 1; }

/* Look at the ring's CQE once. 1: *cons grew; 0: nothing new; AGAIN: the ring is closed, read the
 * active one; PATH: an error completion (syndrome in *syn, its sequence in *at). *cons is the
 * packed word. */
RY_FN int ry_queue_poll(struct ry_ring *r, uint64_t *cons, uint8_t *syn, uint64_t *at)
{
    uint64_t c = ry_observe_cons(r); /* before the CQE: rule 5 */
    uint64_t tail = ry_observe_cqe_tail(r->cqe);
    struct ry_cqe_tail t = ry_cqe_decode(tail);
    uint64_t next, found, base = ry_ld_rlx64(&r->base);
    uint16_t distance = ry_cqe_distance(&t, c, base);

    *cons = c;
    if (t.qpn == r->qpn && !ry_cqe_stale(distance))
        RY_SLOW();
    if (RY_MUT(RY_MUT_BASE_AFTER_CQE))
        *cons = c = ry_observe_cons(r);
    if (RY_UNLIKELY(ry_packed_closed(c)))
        return RY_ERR_AGAIN;
    if (t.opcode == RY_CQE_INVALID || t.qpn != r->qpn)
        return 0;
    if (RY_MUT(RY_MUT_OPCODE_EARLY))
        t.counter = ry_cqe_decode(ry_observe_cqe_tail(r->cqe)).counter;
    distance = ry_cqe_distance(&t, c, base);
    if (RY_UNLIKELY(t.opcode != RY_CQE_REQ) && !RY_MUT(RY_MUT_OPCODE_UNCHECKED)) {
        *syn = ry_cqe_syndrome(r->cqe, tail);
        *at = ry_seq_add(ry_packed_seq(c), distance);
        if (RY_MUT(RY_MUT_FRONTIER_FROM_FLUSH) && *syn == RY_SYN_FLUSH)
            *cons = ry_pack(ry_packed_move(c), ry_seq_add(*at, 1));
        return RY_ERR_PATH;
    }
    if (ry_cqe_stale(distance) && !RY_MUT(RY_MUT_STALE_DISTANCE))
        return 0;
    next = ry_seq_add(ry_packed_seq(c), distance + 1u);
    if (ry_seq_diff(next, ry_packed_seq(ry_observe_ready(r))) > 0 && !RY_MUT(RY_MUT_STALE_DISTANCE))
        return 0; /* a completion for a block that nobody published */
    if (!ry_cas64(&r->cons, c, ry_pack(ry_packed_move(c), next), &found)) {
        *cons = found;
        return ry_packed_closed(found) ? RY_ERR_AGAIN : 1;
    }
    *cons = ry_pack(ry_packed_move(c), next);
    return 1;
}

#endif
