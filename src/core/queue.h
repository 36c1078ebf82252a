/* SPDX-License-Identifier: Apache-2.0 */
/* The submit protocol: reserve, write, ring, publish; and reading completions. One ring at a time.
 *
 *   one compare-and-swap on resv_head (room, CLOSED, reservation)
 *   -> write the WQE blocks -> wait until ready_head is my start: now it is my turn
 *   -> ring: handler gpu writes the doorbell itself, the cpu handlers tell the proxy
 *   -> set ready_head to my end: the next one's turn
 *
 * ready_head is the one frontier in every handler mode (rule 14). The turn is a lock that costs
 * nothing: doorbells are in order because turns are, and once a mover has closed the ring and seen
 * ready_head reach the last reservation, nobody rings it any more. */
#ifndef RY_CORE_QUEUE_H
#define RY_CORE_QUEUE_H

#include "core/layout.h"
#include "core/mutant.h"
#include "railyard/status.h"

/* --- surroundings --- */

#ifndef RY_BELL_RUNG /* a measurement of the time up to the doorbell defines it */
#define RY_BELL_RUNG() ((void)0)
#endif

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

/* Between looks at ready_head: on the GPU the turn comes within a few looks. */
RY_FN void ry_relax_turn(const struct ry_env *env)
{
#if RY_ON_GPU
    (void)env;
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
 * every WQE block before it. A NIC may read the record unasked, so that the blocks come before it
 * by a fence of their own (the caller's ry_fence_sys). */
RY_FN void ry_publish_dbr(uint32_t *dbr, uint32_t prod_idx)
{
    ry_st_fenced32(dbr, ry_be32(prod_idx & 0xffff));
}
RY_FN void ry_ring_doorbell(uint64_t *uar, uint64_t word)
{
    ry_fence_sys();
    ry_st_fenced64(uar, word);
}
/* Initiator to proxy thread: the blocks before the slot's sequence are written. */
RY_FN void ry_publish_pslot(uint64_t *p, uint64_t v)
{
    ry_st_fenced64(p, v);
    RY_TOLD();
}
/* Proxy thread: what it is told, and its answer to a mover. */
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
    uint32_t proof; /* of n: a proof read behind the message (core/channel.h) */
};

/* What an initiator has read of a channel and its active ring, once for each move. All of it stays
 * as it is while the ring is open under that move, so that a view may be kept from post to post: a
 * reservation succeeds only under the view's move. Stale `released` and `probe_next` are careful,
 * and are read again before they refuse. A view belongs to one thread at a time. */
struct ry_view {
    struct ry_ring *ring; /* NULL: look first */
    struct ry_wqe *wqe;
    uint32_t *dbr;
    uint64_t *uar, *pslot;
    const uint32_t *lkeys, *rkeys;
    uint64_t base;
    uint64_t resv;  /* what the next swap expects */
    uint64_t ready; /* seen beside the swap */
    uint64_t released, probe_next;
    uint64_t bell; /* doorbell word of the block written last */
    uint32_t qpn, mask, slot, move, depth, handler;
    uint32_t lkey, rkey; /* of region 0 */
};

/* The ring's own words. The caller knows that it is open, or has it for itself. */
RY_FN void ry_view_ring(struct ry_view *v, struct ry_ring *r)
{
    v->ring = r;
    v->wqe = (struct ry_wqe *)ry_look_ptr_pe(&r->wqe);
    v->base = ry_look64_pe(&r->base);
    v->qpn = ry_look32_pe(&r->qpn);
    v->mask = r->mask;
    v->dbr = (uint32_t *)ry_look_ptr_pe(&r->dbr);
    v->uar = (uint64_t *)ry_look_ptr_pe(&r->uar);
    v->pslot = (uint64_t *)ry_look_ptr_pe(&r->pslot);
    v->lkeys = (const uint32_t *)ry_look_ptr_pe(&r->lkeys);
    v->rkeys = (const uint32_t *)ry_look_ptr_pe(&r->rkeys);
}

RY_FN void ry_view_keys(struct ry_view *v)
{
    v->lkey = ry_be32(v->lkeys[0]);
    v->rkey = ry_be32(ry_ld_rlx32(&v->rkeys[0]));
}

/* Look at the channel: 0, AGAIN (a move is under way), UNREACHABLE. The state is seen first: what
 * the mover wrote before it is seen then, and what a later mover writes belongs to another move. */
RY_FN int ry_view_look(struct ry_channel *ch, struct ry_view *v)
{
    uint64_t st = ry_observe_state(ch);
    struct ry_ring *r = &ch->ring[ry_state_active(st)];

    v->resv = ry_look64_pe(&r->resv_head);
    ry_view_ring(v, r);
    v->released = ry_look64_pe(&ch->released);
    v->probe_next = ry_look64_pe(&ch->probe_next);
    v->depth = ch->depth;
    v->handler = ch->handler;
    v->slot = ry_state_active(st);
    v->move = ry_packed_move(v->resv);
    if (RY_LIKELY(ry_state_of(st) != RY_CH_DEAD && !ry_packed_closed(v->resv) &&
                  v->move == ry_state_move(st)) ||
        RY_MUT(RY_MUT_CLOSE_OUTSIDE)) {
        ry_view_keys(v);
        return RY_OK;
    }
    v->ring = NULL;
    return ry_state_of(st) == RY_CH_DEAD ? RY_ERR_UNREACHABLE : RY_ERR_AGAIN;
}

/* Room for n more blocks behind seq, `released` being what the log may forget (rule 15). */
RY_FN bool ry_view_room(const struct ry_channel *ch, struct ry_view *v, uint64_t seq, uint32_t n)
{
    uint64_t end = ry_seq_add(seq, n);
    int64_t most = (int64_t)(v->depth - RY_RING_SPARE);

    if (RY_MUT(RY_MUT_ROOM_BY_COMPLETION))
        return ry_seq_diff(end, ry_packed_seq(ry_observe_cons(v->ring))) <= most;
    if (RY_LIKELY(ry_seq_diff(end, v->released) <= most))
        return true;
    v->released = ry_ld_acq64_pe(&ch->released);
    return ry_seq_diff(end, v->released) <= most;
}

/* May n blocks be taken? 0: offer the swap; AGAIN (a move is under way, or over: look again), BUSY
 * (the ring is full). */
RY_FN int ry_view_may(const struct ry_channel *ch, struct ry_view *v, uint32_t n)
{
    if (RY_UNLIKELY(ry_packed_closed(v->resv) || ry_packed_move(v->resv) != v->move) &&
        !RY_MUT(RY_MUT_CLOSE_OUTSIDE))
        return RY_ERR_AGAIN;
    if (RY_UNLIKELY(!ry_view_room(ch, v, ry_packed_seq(v->resv), n)) &&
        !RY_MUT(RY_MUT_RESERVE_BEFORE_ROOM))
        return RY_ERR_BUSY;
    return RY_OK;
}

/* The swap of a reservation. Room and CLOSED were tested on the very value that it replaces, so
 * that no one reserves between a check and a close, and nobody adds and then gives up. It orders
 * nothing: what the view holds was seen before, and blocks that `released` frees are free since. */
RY_FN uint64_t ry_view_offer(struct ry_view *v, uint32_t n)
{
    uint64_t want = ry_pack(v->move, ry_seq_add(ry_packed_seq(v->resv), n));

    v->ready = ry_look64_pe(&v->ring->ready_head); /* on its way together with the swap */
    return ry_claim64_pe(&v->ring->resv_head, v->resv, want);
}

/* What the swap answered: true, and the grant is ours. */
RY_FN bool ry_view_taken(struct ry_view *v, uint32_t n, uint64_t found, struct ry_grant *g)
{
    uint64_t seq = ry_packed_seq(v->resv);

    if (RY_UNLIKELY(found != v->resv)) {
        v->resv = found;
        return false;
    }
    *g = (struct ry_grant){v->ring, v->slot, v->move, seq, n, 0};
    v->resv = ry_pack(v->move, ry_seq_add(seq, n));
    return true;
}

/* Take n blocks of the view's ring: 0, AGAIN, BUSY. */
RY_FN int ry_view_reserve(struct ry_channel *ch, struct ry_view *v, uint32_t n, struct ry_grant *g)
{
    int rc;

    do {
        rc = ry_view_may(ch, v, n);
    } while (rc == RY_OK && !ry_view_taken(v, n, ry_view_offer(v, n), g));
    return rc;
}

/* Look and take: 0, AGAIN, BUSY, UNREACHABLE. */
RY_FN int ry_queue_reserve(struct ry_channel *ch, uint32_t n, struct ry_grant *g)
{
    struct ry_view v;
    int rc = ry_view_look(ch, &v);

    return rc ? rc : ry_view_reserve(ch, &v, n, g);
}

/* --- write --- */

RY_FN uint32_t ry_view_lkey(const struct ry_view *v, uint32_t tag)
{
    uint32_t region = tag & RY_TAG_LMR;

    return region ? ry_be32(v->lkeys[region]) : v->lkey;
}

RY_FN uint32_t ry_view_rkey(const struct ry_view *v, uint32_t tag)
{
    uint32_t region = tag >> RY_TAG_RMR_SHIFT;

    return region ? ry_be32(ry_ld_rlx32(&v->rkeys[region])) : v->rkey;
}

/* The operand's half of a block; its size in 16-byte units. */
RY_FN uint32_t ry_view_operand(const struct ry_view *v, struct ry_wqe *w, const struct ry_req *q)
{
    const uint64_t *o = q->operand;

    if (q->inline_bytes) { /* 4 bytes of count, then the data; what is behind it is not sent */
        w->u.words[0] = ry_be32(RY_WQE_INLINE | q->inline_bytes) | o[0] << 32;
        w->u.words[1] = o[0] >> 32 | o[1] << 32;
        w->u.words[2] = o[1] >> 32;
        w->u.words[3] = 0;
        return 2 + (4 + q->inline_bytes + 15u) / 16u;
    }
    if (ry_wqe_atomic(q->opcode)) {
        w->u.atomic.swap_add = ry_be64(o[0]);
        w->u.atomic.compare = ry_be64(o[1]);
        w->u.atomic.byte_count = ry_be32(q->bytes);
        w->u.atomic.lkey = ry_view_lkey(v, q->tag);
        w->u.atomic.addr = ry_be64(q->laddr);
        return 4;
    }
    w->u.data.byte_count = ry_be32(q->bytes);
    w->u.data.lkey = ry_view_lkey(v, q->tag);
    w->u.data.addr = ry_be64(q->laddr);
    w->u.data.pad[0] = w->u.data.pad[1] = 0;
    return 3;
}

RY_FN uint64_t ry_signal_stride(uint32_t tag) { return tag & RY_TAG_WIDE ? 16 : 8; }

/* The block of sequence `seq` from a request. `tag` adds marks (LAST, PROBE); the last block of a
 * message is always signalled. */
RY_FN void ry_view_block(const struct ry_view *v, uint64_t seq, const struct ry_req *q,
                         uint32_t tag, struct ry_wqe *out)
{
    uint32_t idx = (uint32_t)(seq - v->base);
    uint64_t raddr = q->raddr;
    struct ry_wqe w;

    tag |= q->tag;
    if ((tag & RY_TAG_SIGNAL) && !RY_MUT(RY_MUT_ONE_WORD))
        raddr += v->slot * ry_signal_stride(tag);
    ry_wqe_head(&w, q->opcode, idx, v->qpn, ry_view_operand(v, &w, q));
    w.signature = 0;
    w.rsvd[0] = w.rsvd[1] = 0;
    w.fm_ce_se = (q->flags & RY_REQ_SIGNALLED) || (tag & RY_TAG_LAST) ? RY_WQE_SIGNALLED : 0;
    if (RY_MUT(RY_MUT_LAST_UNSIGNALLED) && !(q->flags & RY_REQ_SIGNALLED))
        w.fm_ce_se = 0;
    w.tag = ry_be32(tag);
    w.raddr = ry_be64(raddr);
    w.rkey = ry_view_rkey(v, tag);
    w.rsvd2 = 0;
    *out = w;
}

RY_FN void ry_view_store(struct ry_view *v, uint64_t seq, const struct ry_wqe *w)
{
    v->bell = ry_wqe_doorbell(w);
    ry_wqe_store(&v->wqe[(uint32_t)(seq - v->base) & v->mask], w);
}

/* Block i of a grant. */
RY_FN void ry_view_write(struct ry_view *v, const struct ry_grant *g, uint32_t i,
                         const struct ry_req *q, uint32_t tag)
{
    uint64_t seq = ry_seq_add(g->seq, i);
    struct ry_wqe w;

    ry_view_block(v, seq, q, tag, &w);
    ry_view_store(v, seq, &w);
}

RY_FN void ry_queue_write(const struct ry_grant *g, uint32_t i, const struct ry_req *q,
                          uint32_t tag)
{
    struct ry_view v;

    ry_view_ring(&v, g->ring);
    ry_view_keys(&v);
    v.slot = g->slot;
    ry_view_write(&v, g, i, q, tag);
}

/* --- ring --- */

/* Doorbell for everything before `ready`, written by whoever may; `word` is what the last block
 * begins with. The blocks are fenced already. */
RY_FN void ry_queue_bell(struct ry_ring *r, uint32_t *dbr, uint64_t *uar, uint32_t idx,
                         uint64_t word, const struct ry_env *env)
{
    ry_publish_dbr(dbr, idx);
    ry_ring_doorbell(uar, word);
#if RY_ON_GPU
    RY_BELL_RUNG();
#endif
    ry_kick(env, r, idx);
}

/* The same by one who has to read all of that: mover, proxy, agent. */
RY_FN void ry_queue_bell_at(struct ry_ring *r, uint64_t ready, const struct ry_env *env)
{
    uint32_t idx = (uint32_t)(ready - ry_ld_rlx64(&r->base));

    ry_fence_sys();
    ry_queue_bell(r, r->dbr, r->uar, idx, ry_wqe_doorbell(&r->wqe[(idx - 1) & r->mask]), env);
}

/* By a mover that has closed the ring for itself: tell the NIC, or the proxy, of all before
 * `end`. */
RY_FN void ry_queue_ring(struct ry_channel *ch, struct ry_ring *r, uint32_t move, uint64_t end,
                         const struct ry_env *env)
{
    if (ch->handler != RY_HANDLER_GPU) {
        ry_fence_sys();
        ry_publish_pslot(r->pslot, ry_pack(move, end));
        return;
    }
    ry_st_rel64(&r->prod, ry_pack(move, end));
    ry_queue_bell_at(r, end, env);
}

/* May this doorbell be left to the next one, who has reserved already and cannot but publish? Only
 * where env allows it, and not across a boundary of env->batch blocks, so that a bell waits for
 * a bounded number of others. */
RY_FN bool ry_view_left_to_next(const struct ry_view *v, const struct ry_grant *g, uint64_t end,
                                uint64_t resv, const struct ry_env *env)
{
    return env->batch && ry_packed_seq(resv) != end && (g->seq ^ end) < env->batch &&
           v->move == ry_packed_move(resv);
}

/* By whoever has the turn. A thread that did not wait for it fences its blocks while the look at
 * resv_head is under way; one that did lets the next go first, if it may. */
RY_FN void ry_view_ring_it(const struct ry_view *v, const struct ry_grant *g, uint64_t end,
                           bool waited, const struct ry_env *env)
{
    uint64_t resv = env->batch ? ry_look64_pe(&v->ring->resv_head) : 0;

    RY_SLOW();
    if (!waited)
        ry_fence_sys();
    if (ry_view_left_to_next(v, g, end, resv, env))
        return;
    if (waited)
        ry_fence_sys();
    if (v->handler != RY_HANDLER_GPU) {
        ry_publish_pslot(v->pslot, ry_pack(g->move, end));
        return;
    }
    ry_st_fenced64(&v->ring->prod, ry_pack(g->move, end));
    ry_queue_bell(v->ring, v->dbr, v->uar, (uint32_t)(end - v->base), v->bell, env);
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
        ry_queue_bell_at(r, ry_packed_seq(v), env);
    return true;
}

RY_FN bool ry_view_await_turn(const struct ry_view *v, uint64_t mine, const struct ry_env *env)
{
    uint64_t until = 0;

    while (ry_observe_ready(v->ring) != mine && !RY_MUT(RY_MUT_READY_BY_STORE)) {
        uint64_t now = ry_now(env);

        if (!until)
            until = now + env->ready_ns_max;
        else if (now >= until)
            return false;
        ry_relax_turn(env);
    }
    return true;
}

/* Ring and publish a grant whose blocks are written, in order of reservation. STALLED: an earlier
 * reserver did not publish within env's patience; the context is broken, because its hole stops
 * all. */
RY_FN int ry_view_publish(const struct ry_view *v, const struct ry_grant *g,
                          const struct ry_env *env)
{
    uint64_t mine = ry_pack(g->move, g->seq), end = ry_seq_add(g->seq, g->n);
    bool waited = v->ready != mine;

    if (RY_UNLIKELY(waited) && !ry_view_await_turn(v, mine, env))
        return RY_ERR_STALLED;
    if (RY_MUT(RY_MUT_RING_UNCHECKED) || RY_MUT(RY_MUT_DOORBELL_STORE)) {
        ry_publish_ready(v->ring, ry_pack(g->move, end));
        ry_view_ring_it(v, g, end, waited, env);
        return RY_OK;
    }
    ry_view_ring_it(v, g, end, waited, env);
    ry_publish_ready(v->ring, ry_pack(g->move, end));
    return RY_OK;
}

RY_FN int ry_queue_publish(struct ry_channel *ch, const struct ry_grant *g,
                           const struct ry_env *env)
{
    uint64_t last = ry_seq_add(g->seq, g->n - 1);
    struct ry_view v;

    ry_view_ring(&v, g->ring);
    v.handler = ch->handler;
    v.move = g->move;
    v.ready = ry_observe_ready(g->ring);
    v.bell = ry_wqe_doorbell(ry_ring_at(g->ring, last));
    return ry_view_publish(&v, g, env);
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
    if (ry_seq_diff(next, ry_packed_seq(ry_observe_resv(r))) > 0 && !RY_MUT(RY_MUT_STALE_DISTANCE))
        return 0; /* a completion for a block that nobody reserved */
    if (!ry_cas64(&r->cons, c, ry_pack(ry_packed_move(c), next), &found)) {
        *cons = found;
        return ry_packed_closed(found) ? RY_ERR_AGAIN : 1;
    }
    *cons = ry_pack(ry_packed_move(c), next);
    return 1;
}

#endif
