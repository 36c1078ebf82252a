/* SPDX-License-Identifier: Apache-2.0 */
/* The move: a channel leaves one path for another, by failure or as planned. One source for GPU and
 * host; any initiator, or the agent, may be the mover, and GOOD -> MOVING (or PARKED -> MOVING) has
 * one winner. Every step may be repeated by a later mover: the ring that is left stays whole,
 * CLOSED, and is the log until the copy on the next ring is complete (rule 11).
 *
 *   close: CLOSED inside resv_head; wait until all reserved is ready
 *   planned only: one read through the old path; its answer proves everything before it (rule 10)
 *   silence: no doorbell of the old ring any more
 *   freeze: CLOSED in the consumer word yields the frontier (rule 5)
 *   copy from the oldest message that is not released (rules 3 and 6), a proof read behind it
 *   ring once, open, make active */
#ifndef RY_CORE_MOVE_H
#define RY_CORE_MOVE_H

#include "core/path.h"

enum ry_move_kind {
    RY_MOVE_ERROR,     /* an error completion was seen */
    RY_MOVE_CONDEMNED, /* the agent asks: port event, silence, peer notice */
    RY_MOVE_PLANNED,   /* drain, return: nothing is replayed */
};

/* Wait on a ring that only this mover may use until `seq` is acknowledged. PATH: *syn and *at are
 * of the error. TIMEOUT: also when the agent condemns the life, whose NIC may then say nothing. */
RY_FN int ry_move_await(struct ry_ring *r, uint64_t seq, uint64_t until, const struct ry_env *env,
                        uint8_t *syn, uint64_t *at)
{
    for (uint32_t turn = 1;; turn++) {
        uint64_t cons;
        int rc = ry_queue_poll(r, &cons, syn, at);

        if (rc == RY_ERR_PATH)
            return rc;
        if (ry_seq_ge(ry_packed_seq(cons), seq))
            return RY_OK;
        if (ry_now(env) >= until)
            return RY_ERR_TIMEOUT;
        if (turn % 16 == 0 && ry_ld_acq64(&r->host->condemn_epoch) >= ry_ld_acq64(&r->epoch))
            return RY_ERR_TIMEOUT;
        ry_relax(env);
    }
}

/* Planned: read once through the path that is left. *end grows by the read, unless the log ends
 * with one already: a planned move that fails again and again must not outgrow the ring.
 * 0: all before it is visible; else the path is to be left as a failed one. */
RY_COLD_FN int ry_move_read_through(struct ry_channel *ch, uint32_t slot, const struct ry_env *env,
                                    uint64_t *end)
{
    struct ry_ring *r = &ch->ring[slot];
    uint32_t move = ry_packed_move(ry_observe_ready(r));
    struct ry_req q = ry_proof_req(ch);
    struct ry_grant g = {r, slot, move, *end, 1, 0};
    uint64_t at;
    uint8_t syn = 0;
    int rc;
    bool has_read = *end != ry_ld_acq64(&r->first) &&
                    (ry_wqe_tag(ry_ring_at(r, ry_seq_add(*end, RY_SEQ_MASK))) & RY_TAG_PROBE) != 0;

    if (RY_MUT(RY_MUT_PLANNED_NO_READ))
        return RY_OK;
    if (!has_read) {
        ry_queue_write(&g, 0, &q, 0);
        *end = ry_seq_add(*end, 1);
        ry_st_rel64(&r->resv_head, ry_pack(move, *end) | RY_CLOSED);
        ry_publish_ready(r, ry_pack(move, *end));
    }
    ry_queue_ring(ch, r, move, *end, env);
    rc = ry_move_await(r, *end, ry_now(env) + env->move_ns_max, env, &syn, &at);
    if (rc == RY_OK) {
        ry_ring_prove(r, move, *end);
        ry_seq_raise(&ch->released, *end); /* the log holds nothing that could be needed */
    }
    return rc;
}

/* Sequence behind the message that holds record `seq`, looking from `from` up to `end`. *start is
 * where that message begins. */
RY_FN uint64_t ry_move_message(const struct ry_ring *r, uint64_t from, uint64_t seq, uint64_t end,
                               uint64_t *start)
{
    *start = from;
    for (uint64_t s = from; s != end; s = ry_seq_add(s, 1)) {
        bool last = (ry_wqe_tag(ry_ring_at(r, s)) & RY_TAG_LAST) != 0;

        if (last && ry_seq_ge(s, seq))
            return ry_seq_add(s, 1);
        if (last)
            *start = ry_seq_add(s, 1);
    }
    return end;
}

RY_FN int ry_status_of_syndrome(uint8_t syn)
{
    if (syn == RY_SYN_LOCAL_PROT || syn == RY_SYN_LOCAL_LENGTH || syn == RY_SYN_LOCAL_ACCESS)
        return RY_ERR_LOCAL_ACCESS;
    return syn == RY_SYN_REMOTE_ACCESS ? RY_ERR_REMOTE_ACCESS : RY_ERR_REQUEST;
}

/* What the frontier and the syndrome say of the failure (rule 12): true when one message, and not
 * the path, is suspected; *suspect is a record of it. A parked channel that goes on knows nothing
 * new: what was suspected when it was parked still is. */
RY_FN bool ry_move_suspects(struct ry_channel *ch, const struct ry_ring *r, enum ry_move_kind kind,
                            bool resumed, uint64_t frontier, uint64_t from, uint64_t end,
                            uint64_t *suspect)
{
    bool path_at_fault = kind == RY_MOVE_CONDEMNED || !ry_ld_acq64(&r->host->port_up) ||
                         ry_ld_acq64(&r->host->condemn_epoch) >= r->epoch;

    if (RY_MUT(RY_MUT_NO_ALONE) || (path_at_fault && !resumed) || from == end) {
        ch->streak = 0; /* also where nothing was under way that could be at fault */
    } else if (resumed) {
        RY_MARK("parked-resumed");
    } else if (ch->streak && ch->streak_seq == frontier) {
        ch->streak++;
    } else {
        ch->streak = 1;
        ch->streak_seq = frontier;
    }
    /* Nothing named it: any of the log may be it, also behind messages that had completed but were
     * not released, and every replay begins before those. */
    *suspect = from != end ? ry_seq_add(end, RY_SEQ_MASK) : from;
    if (ch->blame_set && ry_seq_ge(ch->blame_seq, from) && ry_seq_ge(end, ch->blame_seq) &&
        ch->blame_seq != end)
        *suspect = ch->blame_seq;
    return from != end && (ch->blame_set || ch->streak >= 2);
}

/* Turn one message of the log into NOPs and leave its error behind. */
RY_FN void ry_move_void(struct ry_channel *ch, struct ry_ring *log, uint64_t from, uint64_t to,
                        uint8_t syn)
{
    for (uint64_t s = from; s != to; s = ry_seq_add(s, 1)) {
        bool last = ry_seq_add(s, 1) == to;

        ry_wqe_nop(ry_ring_at(log, s), 0, 0, last ? RY_TAG_LAST : 0, last);
    }
    ch->op_error_seq = to;
    ch->op_errors++;
    ch->op_error = ry_status_of_syndrome(syn);
}

/* Leave a ring for good: its life has failed and will be fenced by the agent. */
RY_FN void ry_move_leave(struct ry_ring *r, uint64_t end)
{
    ry_st_rel64(&r->carried, end);
    ry_st_rel64(&r->failed_epoch, r->epoch);
}

/* May a request that failed alone on this life be blamed for it? Not if the port went down, and not
 * if the life is older than the suspicion: its keys may be the cause, and a later life brings new
 * ones. */
RY_FN bool ry_move_convicts(const struct ry_channel *ch, const struct ry_ring *t, uint8_t syn)
{
    const struct ry_slot_host *h = t->host;

    return ry_syndrome_blames_request(syn) && ch->blame_set && ry_ld_acq64(&h->port_up) &&
           ry_ld_acq64(&h->condemn_epoch) < ry_observe_armed(h) &&
           ry_ld_acq64(&h->offered_ns) > ch->blame_ns;
}

/* Records that run together while a suspicion names none of them: a suspected log is cleared in a
 * few round trips. Where it fails, the next try runs one at a time. */
enum { RY_ALONE_MANY = 32 };

/* Carry [from, end) of the log to another ring; the number of messages that end there, proof reads
 * not counted. The next record is on its way while this one is written. */
RY_FN uint64_t ry_records_carry(const struct ry_view *l, uint32_t log, const struct ry_view *t,
                                uint32_t to, uint64_t from, uint64_t end, bool *ends_with_proof)
{
    struct ry_wqe w, next;
    uint64_t messages = 0;

    *ends_with_proof = false;
    if (from != end)
        ry_wqe_load(&l->wqe[(uint32_t)(from - l->base) & l->mask], &next);
    for (uint64_t s = from; s != end;) {
        uint64_t after = ry_seq_add(s, 1);
        uint32_t tag;

        w = next;
        if (after != end)
            ry_wqe_load(&l->wqe[(uint32_t)(after - l->base) & l->mask], &next);
        tag = ry_wqe_tag(&w);
        ry_record_aim(&w, log, t, to, s);
        ry_wqe_store(&t->wqe[(uint32_t)(s - t->base) & t->mask], &w);
        messages += (tag & (RY_TAG_LAST | RY_TAG_PROBE)) == RY_TAG_LAST;
        *ends_with_proof = (tag & RY_TAG_PROBE) != 0;
        s = after;
    }
    return messages;
}

/* What a life that failed under a replay says of the suspicion. [s, stop) was running. */
RY_COLD_FN void ry_move_judge(struct ry_channel *ch, uint32_t log, struct ry_ring *t, uint64_t from,
                              uint64_t s, uint64_t stop, uint64_t end, uint64_t at, uint8_t syn,
                              const struct ry_env *env)
{
    struct ry_ring *l = &ch->ring[log];
    bool one = ry_seq_add(s, 1) == stop;
    uint64_t start;

    if (ry_syndrome_blames_request(syn) && !ch->blame_set) {
        ch->blame_set = syn;
        ch->blame_seq = one ? s : at;
        ch->blame_ns = ry_now(env);
    } else if (one && ry_move_convicts(ch, t, syn)) {
        RY_MARK("message-voided");
        stop = ry_move_message(l, from, s, end, &start);
        ry_move_void(ch, l, start, stop, syn);
        ch->blame_set = 0;
        ch->streak = 0;
    } else if (syn == RY_SYN_FLUSH) {
        ch->streak++; /* something went before that may name a request: one at a time shows it */
    }
}

/* Run the log's records up to the suspected message's end on slot `to` before the rest: one at a
 * time if one of them was named or many failed together before, so that an error names the very
 * record (a collapsed CQ would show flushes of the others). 0, and *done is how far the target
 * carries. PATH: it failed here too; the message was voided if it is to blame. */
RY_COLD_FN int ry_move_alone(struct ry_channel *ch, uint32_t log, uint32_t to, uint32_t move,
                             uint64_t from, uint64_t suspect, uint64_t end,
                             const struct ry_env *env, uint64_t *done)
{
    struct ry_ring *t = &ch->ring[to];
    uint64_t start, stop = ry_move_message(&ch->ring[log], from, suspect, end, &start), s = from;
    uint32_t step = ch->blame_set || ch->streak > 2 ? 1 : RY_ALONE_MANY;
    uint64_t next = from, at = from;
    struct ry_view l, v;
    uint8_t syn = 0;
    int rc = RY_OK;
    bool proof;

    RY_MARK(step == 1 ? "replay-alone" : "replay-together");
    ry_view_ring(&l, &ch->ring[log]);
    ry_view_ring(&v, t);
    ry_view_keys(&v);
    for (; s != stop; s = next) {
        next = ry_seq_diff(stop, s) > (int64_t)step ? ry_seq_add(s, step) : stop;
        ry_records_carry(&l, log, &v, to, s, next, &proof);
        ry_ring_at(t, ry_seq_add(next, RY_SEQ_MASK))->fm_ce_se |= RY_WQE_SIGNALLED;
        ry_ring_run(ch, t, move, s, next, env);
        rc = ry_move_await(t, next, ry_now(env) + env->move_ns_max, env, &syn, &at);
        if (rc)
            break;
    }
    *done = s;
    ch->alone += (uint64_t)ry_seq_diff(s, from);
    if (rc == RY_OK)
        return rc;
    if (rc == RY_ERR_PATH)
        ry_move_judge(ch, log, t, from, s, next, end, at, syn, env);
    ry_ring_silence(ch, t, env);
    ry_or64(&t->cons, RY_CLOSED);
    ry_or64(&t->proven, RY_CLOSED);
    ry_move_leave(t, next);
    return RY_ERR_PATH;
}

/* Copy [from, end) to slot `to`: *next is the sequence behind the proof read. */
RY_COLD_FN void ry_move_copy(struct ry_channel *ch, uint32_t log, uint32_t to, uint32_t move,
                             uint64_t from, uint64_t end, uint64_t *next)
{
    struct ry_ring *t = &ch->ring[to];
    uint64_t messages;
    struct ry_view l, v;
    bool ends_with_proof;

    ry_view_ring(&l, &ch->ring[log]);
    ry_view_ring(&v, t);
    ry_view_keys(&v);
    messages = ry_records_carry(&l, log, &v, to, from, end, &ends_with_proof);
    *next = end;
    /* A log that ends with a proof read brings its own: else every failure would make it longer. */
    if (from != end && !ends_with_proof && !RY_MUT(RY_MUT_NO_PROOF_READ)) {
        struct ry_grant g = {t, to, move, end, 1, 0};
        struct ry_req q = ry_proof_req(ch);

        v.slot = to;
        ry_view_write(&v, &g, 0, &q, 0);
        *next = ry_seq_add(end, 1);
    }
    if (from != end)
        ry_channel_note_proof(ch, *next); /* a planned move's read that failed was not noted */
    ry_st_rel64(&ch->replayed, ry_ld_rlx64(&ch->replayed) + messages);
    ry_st_rel64(&ch->last_replayed, messages);
}

/* The last steps: run what is left, open the ring, make it active. */
RY_FN void ry_move_finish(struct ry_channel *ch, uint32_t to, uint32_t move, uint64_t cons,
                          uint64_t next, bool planned, const struct ry_env *env)
{
    struct ry_ring *t = &ch->ring[to];

    if (!planned)
        ry_seq_raise(&ch->dirty, next);
    ry_ring_run(ch, t, move, cons, next, env);
    ry_channel_prove(
        ch, t, ry_pack(move, cons)); /* what ran alone is completed, and may have been a proof */
    ch->moves++;
    ch->moves_planned += planned;
    ry_st_rel64(&ch->parked_ns, 0);
    ry_ring_open(t, move, next);
    ry_st_rel64(&ch->state, ry_state_pack(RY_CH_GOOD, to, move));
}

/* No usable path: the log waits where it is. */
RY_FN int ry_move_park(struct ry_channel *ch, uint32_t log, uint32_t move, const struct ry_env *env)
{
    RY_MARK("parked");
    ch->parks++;
    if (!ry_ld_acq64(&ch->parked_ns))
        ry_st_rel64(&ch->parked_ns, ry_now(env));
    ry_st_rel64(&ch->state, ry_state_pack(RY_CH_PARKED, log, move));
    return RY_ERR_PATH;
}

/* Nothing to move to after all: the same ring goes on under a new move number. */
RY_FN int ry_move_reopen(struct ry_channel *ch, uint32_t slot, uint32_t move, uint64_t frontier,
                         uint64_t end, const struct ry_env *env)
{
    struct ry_ring *r = &ch->ring[slot];

    RY_MARK("planned-given-up");
    move = (move + 1) & RY_MOVE_MASK;
    ry_ring_run(ch, r, move, frontier, end, env);
    ry_ring_open(r, move, end);
    ry_st_rel64(&ch->state, ry_state_pack(RY_CH_GOOD, slot, move));
    return RY_ERR_NOT_FOUND;
}

/* From a closed, frozen log to a target, trying one after the other. */
RY_FN int ry_move_onward(struct ry_channel *ch, uint32_t log, uint32_t move, enum ry_move_kind kind,
                         bool resumed, uint64_t frontier, uint64_t end, const struct ry_env *env)
{
    struct ry_ring *l = &ch->ring[log];
    bool planned = kind == RY_MOVE_PLANNED;
    uint64_t from = ry_ld_acq64(&ch->released), suspect = from;
    bool alone;

    from = ry_seq_max(ry_seq_max(from, l->first),
                      planned ? end : ry_packed_seq(ry_ld_acq64(&l->proven)));
    if (RY_MUT(RY_MUT_REPLAY_FROM_ACKED))
        from = ry_seq_max(from, frontier);
    alone = !planned && ry_move_suspects(ch, l, kind, resumed, frontier, from, end, &suspect);
    for (;;) {
        uint32_t to = ry_slot_pick(ch, log, planned);
        uint64_t cons = from, next;

        if (to == RY_SLOTS)
            return planned ? ry_move_reopen(ch, log, move, frontier, end, env)
                           : ry_move_park(ch, log, move, env);
        ry_ring_adopt(&ch->ring[to]);
        ry_ring_place(&ch->ring[to], from);
        if (RY_MUT(RY_MUT_RESET_BEFORE_COPY))
            ry_seq_raise(&ch->released, end);
        move = (move + 1) & RY_MOVE_MASK;
        if (alone) {
            int rc = ry_move_alone(ch, log, to, move, from, suspect, end, env, &cons);

            alone = ch->blame_set != 0 || ch->streak >= 2;
            if (rc)
                continue;
        }
        ry_move_copy(ch, log, to, move, from, end, &next);
        ch->blame_set = 0;
        ry_move_finish(ch, to, move, cons, next, planned, env);
        return RY_OK;
    }
}

/* Begin: become the mover, or say why not. A caller that saw the failure of an earlier life is
 * turned away by `seen`, the state word it read before it looked. */
RY_FN int ry_move_begin(struct ry_channel *ch, enum ry_move_kind kind, uint64_t seen)
{
    enum ry_channel_state s = ry_state_of(seen);
    uint64_t found;

    if (s == RY_CH_DEAD)
        return RY_ERR_UNREACHABLE;
    if (s == RY_CH_MOVING || (kind == RY_MOVE_PLANNED && s != RY_CH_GOOD))
        return RY_ERR_AGAIN;
    RY_SLOW(); /* whoever else saw the reason moves first */
    if (RY_MUT(RY_MUT_TWO_MOVERS)) {
        ry_st_rel64(&ch->state,
                    ry_state_pack(RY_CH_MOVING, ry_state_active(seen), ry_state_move(seen)));
        return RY_OK;
    }
    if (!ry_cas64(&ch->state, seen,
                  ry_state_pack(RY_CH_MOVING, ry_state_active(seen), ry_state_move(seen)), &found))
        return RY_ERR_AGAIN;
    return RY_OK;
}

/* Move the channel away from its active path. `seen` is the state word under which the caller saw
 * the reason. 0: moved; AGAIN: somebody else is at it, or it has happened; PATH: parked, no usable
 * path; NOT_FOUND: planned, and no target; UNREACHABLE: given up; STALLED: an initiator or the
 * proxy stopped in mid-submit, the context is broken. The caller holds no reservation on this
 * channel. */
RY_COLD_FN int ry_channel_move(struct ry_channel *ch, enum ry_move_kind kind, uint64_t seen,
                               const struct ry_env *env)
{
    uint32_t log = ry_state_active(seen), move = ry_state_move(seen);
    struct ry_ring *l = &ch->ring[log];
    uint64_t end, frontier;
    bool was_good = ry_state_of(seen) == RY_CH_GOOD;
    int rc;

    if (kind == RY_MOVE_PLANNED && ry_slot_pick(ch, log, true) == RY_SLOTS)
        return RY_ERR_NOT_FOUND;
    rc = ry_move_begin(ch, kind, seen);
    if (rc)
        return rc;
    if (kind != RY_MOVE_PLANNED && was_good) {
        ry_st_rel64(&ch->failed_ns, ry_now(env));
        ry_st_rel64(&ch->first_ok_ns, 0);
    }
    rc = ry_ring_close(l, env, &end);
    if (rc == RY_OK && kind == RY_MOVE_PLANNED &&
        ry_move_read_through(ch, log, env, &end) != RY_OK) {
        RY_MARK("planned-became-failure");
        kind = RY_MOVE_ERROR;
        ry_st_rel64(&ch->failed_ns, ry_now(env));
        ry_st_rel64(&ch->first_ok_ns, 0);
    }
    if (rc == RY_OK)
        rc = ry_ring_silence(ch, l, env);
    if (rc) {
        ry_move_park(ch, log, move, env);
        return rc;
    }
    frontier = ry_packed_seq(ry_or64(&l->cons, RY_CLOSED));
    ry_or64(&l->proven, RY_CLOSED);
    if (kind == RY_MOVE_PLANNED)
        ry_st_rel64(&l->carried, end);
    else if (ry_ld_acq64(&l->failed_epoch) < ry_ld_acq64(&l->epoch))
        ry_move_leave(l, end); /* also for a mover that stopped before it came to this */
    return ry_move_onward(ch, log, move, kind, !was_good, frontier, end, env);
}

/* Start of a channel's life: make slot `slot`, which the agent has armed, active. Nobody else uses
 * the channel yet. */
RY_FN void ry_channel_open(struct ry_channel *ch, uint32_t slot, const struct ry_env *env)
{
    struct ry_ring *r = &ch->ring[slot];
    uint64_t seq = ry_ld_acq64(&ch->released);

    ry_ring_adopt(r);
    ry_ring_place(r, seq);
    ry_ring_run(ch, r, 1, seq, seq, env);
    ry_ring_open(r, 1, seq);
    ry_st_rel64(&ch->state, ry_state_pack(RY_CH_GOOD, slot, 1));
}

/* Has the channel had no usable path for longer than an operation waits for one? */
RY_FN bool ry_channel_overdue(const struct ry_channel *ch, const struct ry_env *env)
{
    uint64_t since = ry_ld_acq64(&ch->parked_ns), now = ry_now(env);

    return since && now > since && now - since >= env->lost_ns_max && !RY_MUT(RY_MUT_NO_GIVE_UP);
}

/* A parked channel whose time is over and whose log holds messages: they are lost, and with them
 * the peer. With an empty log it stays parked: a path may come back. True for the one that did it.
 */
RY_FN bool ry_channel_give_up(struct ry_channel *ch, const struct ry_env *env)
{
    uint64_t st = ry_observe_state(ch), found;
    const struct ry_ring *r = &ch->ring[ry_state_active(st)];

    if (ry_state_of(st) != RY_CH_PARKED || !ry_channel_overdue(ch, env) ||
        ry_packed_seq(ry_observe_resv(r)) == ry_ld_acq64(&ch->released))
        return false;
    return ry_cas64(&ch->state, st,
                    ry_state_pack(RY_CH_DEAD, ry_state_active(st), ry_state_move(st)), &found);
}

/* Look, and act on what is seen: completions, a failed path, the agent's wishes, a parked channel
 * that has a path again. What every wait calls in its loop. Returns as ry_channel_poll, or STALLED.
 */
RY_COLD_FN int ry_channel_progress(struct ry_channel *ch, const struct ry_env *env, uint64_t *acked)
{
    uint64_t st = ry_observe_state(ch);
    const struct ry_ring *r = &ch->ring[ry_state_active(st)];
    const struct ry_slot_host *h = r->host;
    int rc = ry_channel_poll(ch, env, acked);

    if (rc == RY_ERR_PATH) {
        rc = ry_channel_move(ch, RY_MOVE_ERROR, st, env);
        return rc == RY_ERR_STALLED ? rc : RY_ERR_AGAIN;
    }
    if (rc == RY_ERR_AGAIN && ry_state_of(st) == RY_CH_PARKED && !RY_MUT(RY_MUT_PARKED_STAYS)) {
        if (ry_slot_pick(ch, ry_state_active(st), false) != RY_SLOTS)
            rc = ry_channel_move(ch, RY_MOVE_CONDEMNED, st, env);
        else if (ry_channel_give_up(ch, env))
            return RY_ERR_UNREACHABLE;
        return rc == RY_ERR_STALLED ? rc : RY_ERR_AGAIN;
    }
    if (ry_state_of(st) == RY_CH_GOOD && RY_UNLIKELY(ry_ld_acq64(&h->condemn_epoch) >= r->epoch)) {
        rc = ry_channel_move(ch, RY_MOVE_CONDEMNED, st, env);
        return rc == RY_ERR_STALLED ? rc : RY_ERR_AGAIN;
    }
    return rc;
}

#endif
