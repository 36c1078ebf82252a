/* SPDX-License-Identifier: Apache-2.0 */
/* A channel: posting messages, seeing them completed, proven, released, reusable.
 *
 * released: the log may forget it. Its signal was seen acknowledged and the receiver's answer was
 *           seen, or a read behind it was answered through its path (rules 6 and 15).
 * reusable: no path can write or read its buffers any more: released, and every path life that
 *           carried it is proven or fenced. Whether the receiver has consumed what it got is for
 *           the caller to know: a proof read may release a message before its answer comes. */
#ifndef RY_CORE_CHANNEL_H
#define RY_CORE_CHANNEL_H

#include "core/queue.h"

enum { RY_POST_NO_PROOF = 1 }; /* an answer will release it: no proof read at each quarter ring */

/* Raise a sequence word; sequences wrap, so that greater is by distance. */
RY_FN void ry_seq_raise(uint64_t *p, uint64_t seq)
{
    uint64_t old = ry_ld_acq64_pe(p), found;

    while (ry_seq_diff(seq, old) > 0 && !ry_cas64(p, old, seq, &found))
        old = found;
}

/* Most blocks of one message: half a ring, less what movers keep (rule 15). */
RY_FN uint32_t ry_channel_message_max(const struct ry_channel *ch)
{
    return ch->depth / 2 - RY_RING_SPARE;
}

RY_FN struct ry_req ry_proof_req(const struct ry_channel *ch)
{
    struct ry_req q = {0};

    q.opcode = RY_OP_READ;
    q.bytes = 8;
    q.flags = RY_REQ_SIGNALLED;
    q.tag = RY_TAG_PROBE | RY_TAG_LAST;
    q.raddr = ch->read_raddr;
    q.laddr = ch->read_laddr;
    return q;
}

/* Remember that a proof read stands before sequence `end`. */
RY_COLD_FN void ry_channel_note_proof(struct ry_channel *ch, uint64_t end)
{
    uint32_t quarter = ch->depth / RY_PROBES;

    ry_seq_raise(&ch->probe[(end / quarter) % RY_PROBES], end);
    ry_seq_raise(&ch->probe_next, ry_seq_add(end, quarter));
}

/* Should a proof read follow a message of n blocks? At each quarter ring; where answers release
 * (flag NO_PROOF), only when they stay away and half of the ring is full. Then less than half of it
 * has nothing behind it that will prove it, and the longest message and its proof have room. */
RY_FN uint32_t ry_channel_proof_due(const struct ry_channel *ch, struct ry_view *v, uint32_t n,
                                    uint32_t flags)
{
    uint64_t end = ry_seq_add(ry_packed_seq(v->resv), n);

    if (RY_LIKELY(ry_seq_diff(end, v->probe_next) < 0))
        return 0;
    if (flags & RY_POST_NO_PROOF) {
        v->released = ry_ld_acq64(&ch->released);
        if (ry_seq_diff(end, v->released) < (int64_t)(v->depth / 2))
            return 0;
    }
    v->probe_next = ry_ld_acq64_pe(&ch->probe_next);
    return ry_seq_diff(end, v->probe_next) >= 0;
}

/* Room for one message of n blocks, and for a proof read if one is due, in a view that may be old
 * or empty. Whether one is due is asked of the very head that the swap replaces: several who had
 * looked at an older one would each leave it to the next, until a message and its proof have no
 * room and nothing that is under way gives any (schedule 51). 0: write blocks 0 to n - 1 of the
 * grant, the last one with RY_TAG_LAST, and submit it; else as ry_view_look and ry_view_reserve;
 * INVALID: longer than half a ring. */
RY_FN int ry_channel_claim(struct ry_channel *ch, struct ry_view *v, uint32_t n, uint32_t flags,
                           struct ry_grant *g)
{
    uint32_t proof;
    int rc = RY_OK;

    if (RY_UNLIKELY(!v->ring))
        rc = ry_view_look(ch, v);
    if (RY_UNLIKELY(rc))
        return rc;
    if (RY_UNLIKELY(n == 0 || n > v->depth / 2 - RY_RING_SPARE))
        return RY_ERR_INVALID;
    proof = ry_channel_proof_due(ch, v, n, flags);
    while ((rc = ry_view_may(ch, v, n + proof)) == RY_OK &&
           !ry_view_taken(v, n + proof, ry_view_offer(v, n + proof), g)) {
        if (!RY_MUT(RY_MUT_PROOF_OLD_HEAD))
            proof = ry_channel_proof_due(ch, v, n, flags);
    }
    if (RY_UNLIKELY(rc == RY_ERR_AGAIN))
        v->ring = NULL;
    g->proof = proof;
    return rc;
}

/* Ring and publish what was claimed and written; *end is the sequence behind the message. */
RY_FN int ry_channel_submit(struct ry_channel *ch, struct ry_view *v, const struct ry_grant *g,
                            const struct ry_env *env, uint64_t *end)
{
    uint32_t n = g->n - g->proof;

    if (RY_UNLIKELY(g->proof)) {
        struct ry_req q = ry_proof_req(ch);

        ry_view_write(v, g, n, &q, 0);
        ry_channel_note_proof(ch, ry_seq_add(g->seq, n + 1));
    }
    *end = ry_seq_add(g->seq, n);
    return ry_view_publish(v, g, env);
}

/* Post one message of n requests; the last one is its end and always signalled. 0, and *end is the
 * sequence behind it; else as ry_channel_claim and ry_view_publish. */
RY_FN int ry_channel_post(struct ry_channel *ch, const struct ry_req *reqs, uint32_t n,
                          uint32_t flags, const struct ry_env *env, uint64_t *end)
{
    struct ry_view v;
    struct ry_grant g;
    int rc;

    v.ring = NULL;
    rc = ry_channel_claim(ch, &v, n, flags, &g);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < n; i++)
        ry_view_write(&v, &g, i, &reqs[i], i + 1 == n ? RY_TAG_LAST : 0);
    return ry_channel_submit(ch, &v, &g, env, end);
}

/* Post a proof read behind everything posted so far; *end as above. */
RY_COLD_FN int ry_channel_post_proof(struct ry_channel *ch, const struct ry_env *env, uint64_t *end)
{
    struct ry_req q = ry_proof_req(ch);
    struct ry_grant g;
    struct ry_view v;
    int rc = ry_view_look(ch, &v);

    if (rc == RY_OK)
        rc = ry_view_reserve(ch, &v, 1, &g);
    if (rc)
        return rc;
    ry_view_write(&v, &g, 0, &q, 0);
    *end = ry_seq_add(g.seq, 1);
    ry_channel_note_proof(ch, *end);
    return ry_view_publish(&v, &g, env);
}

/* Give a grant back as NOPs: the only way out of a reservation but to fill it (rule 15). */
RY_FN int ry_channel_abandon(struct ry_channel *ch, const struct ry_grant *g,
                             const struct ry_env *env)
{
    for (uint32_t i = 0; i < g->n; i++) {
        uint64_t seq = ry_seq_add(g->seq, i);

        ry_wqe_nop(ry_ring_at(g->ring, seq), (uint32_t)(seq - ry_ld_rlx64(&g->ring->base)),
                   g->ring->qpn, RY_TAG_LAST, i + 1 == g->n);
    }
    return ry_queue_publish(ch, g, env);
}

/* Raise a life's proven word, packed like the consumer word: only while that life's move goes on. A
 * waiter that slept across two moves must not prove the slot's next life, nor release what a replay
 * is about to carry; the mover closes the word before it decides where a replay begins. */
RY_FN bool ry_ring_prove(struct ry_ring *r, uint32_t move, uint64_t seq)
{
    uint64_t old = ry_ld_acq64(&r->proven), found;

    for (;;) {
        if ((ry_packed_closed(old) || ry_packed_move(old) != move) && !RY_MUT(RY_MUT_LATE_PROOF))
            return false;
        if (ry_seq_diff(seq, ry_packed_seq(old)) <= 0 ||
            ry_cas64(&r->proven, old, ry_pack(move, seq), &found))
            return true;
        old = found;
    }
}

/* What completions up to `cons` (packed) prove: the reads among them were answered, so all before
 * them is visible at the peer through this life. */
RY_FN void ry_channel_prove(struct ry_channel *ch, struct ry_ring *r, uint64_t cons)
{
    uint64_t best = ry_packed_seq(ry_ld_acq64(&r->proven));
    bool any = false;

    for (int i = 0; i < RY_PROBES; i++) {
        uint64_t p = ry_ld_acq64(&ch->probe[i]);

        if (ry_seq_ge(ry_packed_seq(cons), p) && ry_seq_ge(p, best)) {
            best = p;
            any = true;
        }
    }
    if (!any)
        return;
    RY_SLOW();
    if (ry_ring_prove(r, ry_packed_move(cons), best))
        ry_seq_raise(&ch->released, best);
}

/* For whoever knows of a proof read before `end` that probe[] may not remember, because a later one
 * took its place: is it among what has completed? */
RY_FN void ry_channel_prove_to(struct ry_channel *ch, uint64_t end)
{
    uint64_t st = ry_observe_state(ch), cons;
    struct ry_ring *r = &ch->ring[ry_state_active(st)];

    if (ry_state_of(st) != RY_CH_GOOD || ry_seq_ge(ry_ld_acq64(&ch->released), end))
        return;
    cons = ry_observe_cons(r);
    if (!ry_packed_closed(cons) && ry_seq_ge(ry_packed_seq(cons), end) &&
        ry_ring_prove(r, ry_packed_move(cons), end))
        ry_seq_raise(&ch->released, end);
}

/* Look for completions once. 1: something completed; 0: nothing; AGAIN: a move is under way or
 * nothing is active; PATH: the active path failed, ry_channel_move is due; UNREACHABLE: given up.
 * *acked is the sequence behind the newest acknowledged block. */
RY_COLD_FN int ry_channel_poll(struct ry_channel *ch, const struct ry_env *env, uint64_t *acked)
{
    uint64_t st = ry_observe_state(ch), cons, at = 0;
    struct ry_ring *r = &ch->ring[ry_state_active(st)];
    uint8_t syn = 0;
    int rc;

    *acked = ry_packed_seq(ry_observe_cons(r));
    if (ry_state_of(st) != RY_CH_GOOD)
        return ry_state_of(st) == RY_CH_DEAD ? RY_ERR_UNREACHABLE : RY_ERR_AGAIN;
    rc = ry_queue_poll(r, &cons, &syn, &at);
    *acked = ry_packed_seq(cons);
    if (RY_MUT(RY_MUT_FRONTIER_FROM_FLUSH) && rc == RY_ERR_PATH && syn == RY_SYN_FLUSH)
        ry_channel_prove(ch, r, cons);
    if (rc == RY_ERR_PATH) {
        if (ry_syndrome_blames_request(syn) && !RY_MUT(RY_MUT_NO_ALONE)) {
            if (!ch->blame_set)
                ch->blame_ns = ry_now(env);
            ch->blame_seq = at;
            ch->blame_set = syn;
        }
        return rc;
    }
    if (rc == 1) {
        ry_channel_prove(ch, r, cons);
        if (RY_MUT(RY_MUT_RELEASE_ON_ACK))
            ry_seq_raise(&ch->released, *acked);
        if (RY_UNLIKELY(ry_ld_rlx64(&ch->first_ok_ns) == 0))
            ry_st_rel64(&ch->first_ok_ns, ry_now(env));
    }
    return rc;
}

/* The receiver's answer to everything before `seq` was seen. Released is what is answered and
 * acknowledged both: acknowledged alone may still sit in a NIC, answered alone may be sent again.
 */
RY_FN void ry_channel_answered(struct ry_channel *ch, uint64_t seq)
{
    uint64_t st = ry_observe_state(ch);
    struct ry_ring *r = &ch->ring[ry_state_active(st)];
    uint64_t acked = ry_packed_seq(ry_observe_cons(r));

    if (RY_MUT(RY_MUT_RELEASE_ON_ANSWER))
        acked = seq;
    if (ry_state_of(st) != RY_CH_GOOD)
        return; /* the ring is being left: asked again after the move */
    ry_seq_raise(&ch->released, ry_seq_ge(acked, seq) ? seq : acked);
}

/* Did this life leave nothing behind of [from, to)? What stands behind `dirty` was carried by the
 * active life alone, or by lives that a planned move left proven: for it, released is proof enough.
 */
RY_FN bool ry_slot_clean(const struct ry_channel *ch, uint32_t slot, bool active, uint64_t from,
                         uint64_t to)
{
    const struct ry_ring *r = &ch->ring[slot];
    uint64_t carried = active ? ry_ld_acq64(&ch->dirty) : ry_ld_acq64(&r->carried);

    if (!active && ry_ld_acq64(&r->host->fenced_epoch) >= ry_ld_acq64(&r->epoch))
        return true;
    if (ry_seq_ge(ry_ld_acq64(&r->first), to) || ry_seq_ge(from, carried))
        return true;
    return ry_seq_ge(ry_packed_seq(ry_ld_acq64(&r->proven)), ry_seq_ge(carried, to) ? to : carried);
}

/* May the buffers of the messages in [from, to) be written again, by either end? Asked by the
 * initiator only; a move that runs meanwhile answers no. */
RY_COLD_FN bool ry_channel_reusable(const struct ry_channel *ch, uint64_t from, uint64_t to)
{
    uint64_t st = ry_observe_state(ch);
    bool clean = true;

    if (ry_state_of(st) != RY_CH_GOOD || !ry_seq_ge(ry_ld_acq64(&ch->released), to))
        return false;
    if (RY_LIKELY(ry_seq_ge(from, ry_ld_acq64(&ch->dirty))) || RY_MUT(RY_MUT_REUSE_UNFENCED))
        return true;
    for (uint32_t i = 0; i < RY_SLOTS && clean; i++)
        clean = ry_slot_clean(ch, i, i == ry_state_active(st), from, to);
    return clean && ry_observe_state(ch) == st;
}

#endif
