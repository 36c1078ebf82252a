/* SPDX-License-Identifier: Apache-2.0 */
/* One-sided operations called by kernels. Each is called by a thread, or by all threads of a warp
 * or of a block together (`scope`); one of them posts, detects failures and moves channels, the
 * others meet it at the group's barrier. Every call ends by the world's deadline with a status,
 * which is also left in mapped memory with the peer and the rail.
 *
 * Sources and targets lie in the heaps; a target is named by this PE's address of the same object.
 * A peer whose heap is mapped (world.direct) is written directly, any other through channels.
 *
 * A thread that posts to one channel again and again keeps a line: what it has read of the channel.
 * Any number of threads may each have one of the same channel. */
#ifndef RY_CUDA_RMA_H
#define RY_CUDA_RMA_H

#include "core/move.h"
#include "core/route.h"
#include "core/signal.h"
#include "cuda/ptx.h"
#include "cuda/world.h"

#ifndef RY_WORLD_FAILOVER /* a build without failover, to compare with, defines it as 0 */
#define RY_WORLD_FAILOVER(w) ((w)->failover)
#endif

enum ry_scope { RY_THREAD, RY_WARP, RY_BLOCK };

RY_DEV bool ry_scope_leads(enum ry_scope s)
{
    if (s == RY_WARP)
        return (threadIdx.x & 31u) == 0;
    return s == RY_THREAD || threadIdx.x == 0;
}

RY_DEV void ry_scope_meet(enum ry_scope s)
{
    if (s == RY_WARP)
        __syncwarp();
    if (s == RY_BLOCK)
        __syncthreads();
}

/* The leader's status, to the group. */
RY_DEV int ry_scope_share(enum ry_scope s, int rc)
{
    if (s == RY_WARP)
        return __shfl_sync(0xffffffffu, rc, 0);
    if (s == RY_BLOCK)
        return -__syncthreads_or(threadIdx.x == 0 ? -rc : 0);
    return rc;
}

RY_DEV struct ry_channel *ry_world_channel(const struct ry_gpu_world *w, uint32_t pe, uint32_t c)
{
    return &w->ch[pe * w->channels + c];
}

RY_DEV uint64_t ry_world_raddr(const struct ry_gpu_world *w, uint32_t pe, const void *p)
{
    return w->raddr[pe] + (uint64_t)((const uint8_t *)p - w->heap);
}

RY_DEV_COLD int ry_world_fail(const struct ry_gpu_world *w, int rc, uint32_t pe, uint32_t c)
{
    const struct ry_channel *ch = ry_world_channel(w, pe, c);
    uint32_t slot = ry_state_active(ry_observe_state(ch));
    uint64_t word = (uint64_t)pe << 32 | (uint64_t)((c << 4 | slot) & 0xffffu) << 16 |
                    (uint64_t)((uint32_t)-rc & 0xffu) << 8 | RY_AT_CHANNEL;

    if (ry_word_observe(&w->status->first) == 0)
        ry_word_publish(&w->status->first, word);
    return rc;
}

/* One turn of a wait on a channel: completions every turn, the agent's words (host memory) now and
 * then. 0: go on; negative: the channel is lost. */
RY_DEV_COLD int ry_world_turn(const struct ry_gpu_world *w, struct ry_channel *ch, uint32_t turn,
                              uint64_t *acked)
{
    int rc = ry_channel_poll(ch, &w->env, acked);

    if (!RY_WORLD_FAILOVER(w))
        return rc == RY_ERR_PATH || rc == RY_ERR_UNREACHABLE ? rc : RY_OK;
    if (rc == RY_ERR_PATH || rc == RY_ERR_AGAIN || (turn & 127u) == 127u)
        rc = ry_channel_progress(ch, &w->env, acked);
    return rc == RY_ERR_UNREACHABLE || rc == RY_ERR_STALLED ? rc : RY_OK;
}

/* A channel as one thread knows it. */
struct ry_line {
    struct ry_channel *ch;
    uint32_t pe, c;
    struct ry_view view;
};

RY_DEV void ry_line_begin(const struct ry_gpu_world *w, uint32_t pe, uint32_t c, struct ry_line *l)
{
    memset(l, 0, sizeof(*l));
    l->ch = ry_world_channel(w, pe, c);
    l->pe = pe;
    l->c = c;
}

/* A claim was refused: wait for room or for the end of a move. 0: try again. */
RY_DEV_COLD int ry_line_refused(const struct ry_gpu_world *w, struct ry_channel *ch, uint32_t pe,
                                uint32_t c, int rc, uint32_t turn, uint64_t *until)
{
    uint64_t acked;

    if (rc == RY_ERR_AGAIN || rc == RY_ERR_BUSY)
        rc = ry_world_turn(w, ch, turn, &acked);
    if (rc == RY_OK && !*until)
        *until = ry_global_ns() + w->timeout_ns;
    if (rc == RY_OK && (turn & 63u) == 63u && ry_global_ns() >= *until)
        rc = RY_ERR_TIMEOUT;
    return rc ? ry_world_fail(w, rc, pe, c) : RY_OK;
}

/* Claim room for a message of n blocks, waiting for room and moves. */
RY_DEV int ry_line_claim(const struct ry_gpu_world *w, struct ry_line *l, uint32_t n,
                         struct ry_grant *g)
{
    int rc = ry_channel_claim(l->ch, &l->view, n, 0, g);
    uint64_t until = 0;

    for (uint32_t turn = 0; RY_UNLIKELY(rc != RY_OK); turn++) {
        rc = ry_line_refused(w, l->ch, l->pe, l->c, rc, turn, &until);
        if (rc)
            return rc;
        rc = ry_channel_claim(l->ch, &l->view, n, 0, g);
    }
    return RY_OK;
}

RY_DEV int ry_line_submit(const struct ry_gpu_world *w, struct ry_line *l,
                          const struct ry_grant *g)
{
    uint64_t end;
    int rc = ry_channel_submit(l->ch, &l->view, g, &w->env, &end);

    return RY_UNLIKELY(rc) ? ry_world_fail(w, rc, l->pe, l->c) : RY_OK;
}

/* Post one message of any requests. By one thread. */
RY_DEV int ry_world_post(const struct ry_gpu_world *w, uint32_t pe, uint32_t c,
                         const struct ry_req *reqs, uint32_t n)
{
    struct ry_line l;
    struct ry_grant g;
    int rc;

    ry_line_begin(w, pe, c, &l);
    rc = ry_line_claim(w, &l, n, &g);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < n; i++)
        ry_view_write(&l.view, &g, i, &reqs[i], i + 1 == n ? RY_TAG_LAST : 0);
    return ry_line_submit(w, &l, &g);
}

RY_DEV struct ry_req ry_put_req(uint64_t to, const void *from, uint32_t bytes)
{
    struct ry_req q = {0};

    q.opcode = RY_OP_WRITE;
    q.bytes = bytes;
    q.raddr = to;
    q.laddr = (uint64_t)from;
    return q;
}

/* A put on a line; by one thread. At most 1 GiB. */
RY_DEV int ry_line_put(const struct ry_gpu_world *w, struct ry_line *l, void *to, const void *from,
                       uint32_t bytes)
{
    struct ry_req q = ry_put_req(ry_world_raddr(w, l->pe, to), from, bytes);
    struct ry_grant g;
    int rc = ry_line_claim(w, l, 1, &g);

    if (rc)
        return rc;
    ry_view_write(&l->view, &g, 0, &q, RY_TAG_LAST);
    return ry_line_submit(w, l, &g);
}

/* Compute a block here: behind the swap, before its answer says whether it was right. */
RY_DEV void ry_block_ahead(const struct ry_wqe *w)
{
    const uint64_t *word = (const uint64_t *)w;

    for (int i = 0; i < 8; i++)
        asm volatile("" ::"l"(word[i]));
}

/* A put and behind it a signal on a line; bytes 0: the signal alone. By one thread. The blocks are
 * made for the sequence that the line expects, while its swap is under way. */
RY_DEV int ry_line_put_signal(const struct ry_gpu_world *w, struct ry_line *l, void *to,
                              const void *from, uint32_t bytes, struct ry_sector *signal,
                              uint64_t value)
{
    struct ry_req q = ry_put_req(ry_world_raddr(w, l->pe, to), from, bytes);
    struct ry_req s = ry_signal_req(ry_world_raddr(w, l->pe, signal), value, 0);
    struct ry_view *v = &l->view;
    uint32_t n = bytes ? 2 : 1;
    uint64_t seq = ry_packed_seq(v->resv);
    struct ry_wqe a, b;
    struct ry_grant g;
    bool taken = false;

    if (RY_LIKELY(v->ring && ry_seq_diff(ry_seq_add(seq, n), v->probe_next) < 0 &&
                  ry_view_may(l->ch, v, n) == RY_OK)) {
        uint64_t found = ry_view_offer(v, n);

        ry_view_block(v, seq, &q, 0, &a);
        ry_view_block(v, ry_seq_add(seq, n - 1), &s, RY_TAG_LAST, &b);
        ry_block_ahead(&a);
        ry_block_ahead(&b);
        taken = ry_view_taken(v, n, found, &g);
    }
    if (RY_UNLIKELY(!taken)) {
        int rc = ry_line_claim(w, l, n, &g);

        if (rc)
            return rc;
        seq = g.seq;
        ry_view_block(v, seq, &q, 0, &a);
        ry_view_block(v, ry_seq_add(seq, n - 1), &s, RY_TAG_LAST, &b);
    }
    if (bytes)
        ry_view_store(v, seq, &a);
    ry_view_store(v, ry_seq_add(seq, n - 1), &b);
    return ry_line_submit(w, l, &g);
}

/* Channel for a small put, by where it goes: any regular stride meets all channels in turn. */
RY_DEV uint32_t ry_world_spread(const struct ry_gpu_world *w, const void *to)
{
    uint64_t h = ((uint64_t)((const uint8_t *)to - w->heap) >> 6) * 0x9e3779b97f4a7c15u;

    return (uint32_t)((h >> 32) * w->channels >> 32);
}

/* How a transfer is cut: into one part for each channel, none of them small, none over 1 GiB. */
RY_DEV uint64_t ry_world_stripe(const struct ry_gpu_world *w, uint64_t bytes)
{
    uint64_t parts = ry_min64(w->channels, bytes / RY_STRIPE_MIN_BYTES);
    uint64_t stripe = (bytes / ry_max64(parts, 1) + RY_STRIPE_ALIGN - 1) &
                      ~(uint64_t)(RY_STRIPE_ALIGN - 1);

    return ry_min64(stripe, 1u << 30);
}

/* The parts of a transfer, each posted on the next channel: a put, or a read where `ends` takes the
 * sequence behind the newest part of each channel. */
RY_DEV int ry_world_transfer(const struct ry_gpu_world *w, const uint8_t *there, uint8_t *here,
                             uint64_t bytes, uint32_t pe, uint64_t *ends)
{
    uint64_t stripe = ry_world_stripe(w, bytes);
    uint32_t c = ry_world_spread(w, there);
    int rc = RY_OK;

    for (uint64_t at = 0; at < bytes && rc == RY_OK; at += stripe, c = (c + 1) % w->channels) {
        struct ry_req q = ry_put_req(ry_world_raddr(w, pe, there + at), here + at,
                                     (uint32_t)ry_min64(stripe, bytes - at));
        struct ry_line l;
        struct ry_grant g;

        if (ends)
            q.opcode = RY_OP_READ;
        ry_line_begin(w, pe, c, &l);
        rc = ry_line_claim(w, &l, 1, &g);
        if (rc == RY_OK) {
            ry_view_write(&l.view, &g, 0, &q, RY_TAG_LAST);
            rc = ry_line_submit(w, &l, &g);
            if (ends)
                ends[c] = ry_seq_add(g.seq, 1);
        }
    }
    return rc;
}

RY_DEV void ry_direct_copy(uint8_t *to, const uint8_t *from, uint64_t bytes, enum ry_scope s)
{
    uint32_t rank = s == RY_BLOCK ? threadIdx.x : s == RY_WARP ? threadIdx.x & 31u : 0;
    uint32_t width = s == RY_BLOCK ? blockDim.x : s == RY_WARP ? 32 : 1;

    if ((((uint64_t)to | (uint64_t)from | bytes) & 15u) == 0)
        for (uint64_t i = rank; i < bytes / 16; i += width)
            ry_store16(to + i * 16, ry_load16(from + i * 16));
    else
        for (uint64_t i = rank; i < bytes; i += width)
            to[i] = from[i];
}

/* Queue a put. Large ones are striped over the channels. */
RY_DEV int ry_dev_put(const struct ry_gpu_world *w, void *to, const void *from, uint64_t bytes,
                      uint32_t pe, enum ry_scope s)
{
    int rc = RY_OK;

    ry_scope_meet(s); /* what the group wrote, to the one who posts it */
    if (w->direct[pe]) {
        ry_direct_copy(w->direct[pe] + ((uint8_t *)to - w->heap), (const uint8_t *)from, bytes, s);
        return RY_OK;
    }
    if (ry_scope_leads(s))
        rc = ry_world_transfer(w, (const uint8_t *)to, (uint8_t *)from, bytes, pe, NULL);
    return ry_scope_share(s, rc);
}

/* Queue a put and behind it, on the same channel, a signal: seen after the data, never before.
 * bytes 0: the signal alone. The channel is chosen by the signal's address. */
RY_DEV int ry_dev_put_signal(const struct ry_gpu_world *w, void *to, const void *from,
                             uint64_t bytes, struct ry_sector *signal, uint64_t value, uint32_t pe,
                             enum ry_scope s)
{
    int rc = RY_OK;

    ry_scope_meet(s); /* what the group wrote, to the one who posts it */
    if (w->direct[pe]) {
        struct ry_sector *there =
            (struct ry_sector *)(w->direct[pe] + ((uint8_t *)signal - w->heap));

        ry_direct_copy(w->direct[pe] + ((uint8_t *)to - w->heap), (const uint8_t *)from, bytes, s);
        ry_scope_meet(s); /* the group's stores, to the one who publishes them */
        if (ry_scope_leads(s))
            ry_flag_publish(&there->word[0], value);
        return RY_OK;
    }
    if (ry_scope_leads(s)) {
        uint32_t c =
            (uint32_t)((uint64_t)((uint8_t *)signal - w->heap) / sizeof(*signal)) % w->channels;
        struct ry_line l;

        ry_line_begin(w, pe, c, &l);
        rc = bytes > 1u << 30 ? ry_world_fail(w, RY_ERR_INVALID, pe, c)
                              : ry_line_put_signal(w, &l, to, from, (uint32_t)bytes, signal, value);
    }
    return ry_scope_share(s, rc);
}

/* One look at what may have happened to any channel: completions, failures, the agent's wishes.
 * What every wait does from time to time, so that a failure is met whoever waits for what. */
RY_DEV_COLD void ry_world_watch(const struct ry_gpu_world *w, uint32_t turn)
{
    uint32_t n = w->pes * w->channels, i = turn % n;
    uint64_t acked;

    if (i / w->channels == w->pe || w->direct[i / w->channels])
        return;
    if (RY_WORLD_FAILOVER(w))
        ry_channel_progress(&w->ch[i], &w->env, &acked);
}

/* Wait until a signal here is at least `value`. */
RY_DEV int ry_dev_signal_wait(const struct ry_gpu_world *w, const struct ry_sector *signal,
                              uint64_t value, uint32_t from, enum ry_scope s)
{
    int rc = RY_OK;

    if (ry_scope_leads(s)) {
        uint64_t until = 0;

        for (uint32_t turn = 0; !ry_signal_reached(signal, value); turn++) {
            if ((turn & 127u) != 127u)
                continue;
            ry_world_watch(w, turn >> 7);
            if (!until)
                until = ry_global_ns() + w->timeout_ns;
            if (ry_global_ns() >= until) {
                rc = ry_world_fail(w, RY_ERR_TIMEOUT, from, 0);
                break;
            }
        }
    }
    return ry_scope_share(s, rc); /* the observer, to its group */
}

/* Wait until [from, to) of channel c is visible at `pe`, and every path that carried any of it is
 * proven or fenced. By one thread. */
RY_DEV_COLD int ry_world_await(const struct ry_gpu_world *w, uint32_t pe, uint32_t c,
                               uint64_t from, uint64_t to)
{
    struct ry_channel *ch = ry_world_channel(w, pe, c);
    uint64_t until = ry_global_ns() + w->timeout_ns, acked = 0, end = 0;
    bool asked = false;
    int rc = RY_OK;

    for (uint32_t turn = 0; rc == RY_OK; turn++) {
        if (ry_channel_reusable(ch, from, to))
            return RY_OK;
        rc = ry_world_turn(w, ch, turn, &acked);
        if (rc == RY_OK && !asked) {
            rc = ry_channel_post_proof(ch, &w->env, &end);
            asked = rc == RY_OK;
            rc = rc == RY_ERR_AGAIN || rc == RY_ERR_BUSY ? RY_OK : rc;
        }
        if (rc == RY_OK && (turn & 63u) == 63u && ry_global_ns() >= until)
            rc = RY_ERR_TIMEOUT;
    }
    return ry_world_fail(w, rc, pe, c);
}

/* The same of everything this PE has queued to `pe` on channel c. */
RY_DEV_COLD int ry_world_quiet(const struct ry_gpu_world *w, uint32_t pe, uint32_t c)
{
    struct ry_channel *ch = ry_world_channel(w, pe, c);
    uint64_t until = ry_global_ns() + w->timeout_ns, st = ry_observe_state(ch), acked, want;
    int rc = RY_OK;

    for (uint32_t turn = 0; ry_state_of(st) != RY_CH_GOOD && rc == RY_OK; turn++) {
        rc = ry_world_turn(w, ch, turn, &acked);
        st = ry_observe_state(ch);
        if (rc == RY_OK && (turn & 63u) == 63u && ry_global_ns() >= until)
            rc = RY_ERR_TIMEOUT;
    }
    if (rc)
        return ry_world_fail(w, rc, pe, c);
    want = ry_packed_seq(ry_observe_ready(&ch->ring[ry_state_active(st)]));
    /* from the beginning, where a failed path may have carried any of it */
    return ry_world_await(
        w, pe, c, ry_seq_add(want, RY_SEQ_MASK - (ry_ld_acq64(&ch->dirty) ? 1ull << 40 : 0)), want);
}

RY_DEV int ry_dev_quiet(const struct ry_gpu_world *w, enum ry_scope s)
{
    int rc = RY_OK;

    ry_scope_meet(s); /* what the group posted, to the one who drains it */
    if (ry_scope_leads(s)) {
        __threadfence_system(); /* direct stores, to whoever is told after this */
        for (uint32_t pe = 0; pe < w->pes && rc == RY_OK; pe++)
            for (uint32_t c = 0; c < w->channels && pe != w->pe && !w->direct[pe]; c++) {
                rc = ry_world_quiet(w, pe, c);
                if (rc)
                    break;
            }
    }
    return ry_scope_share(s, rc);
}

/* Read `bytes` of a peer's object into one's own; the data is there when this returns. A read that
 * is carried to another path may still be written by the old one, so that it is over only when
 * every path that carried it is proven or fenced: what quiet waits for. */
RY_DEV int ry_dev_get(const struct ry_gpu_world *w, void *to, const void *from, uint64_t bytes,
                      uint32_t pe, enum ry_scope s)
{
    int rc = RY_OK;

    ry_scope_meet(s);
    if (w->direct[pe]) {
        ry_direct_copy((uint8_t *)to, w->direct[pe] + ((const uint8_t *)from - w->heap), bytes, s);
        ry_scope_meet(s);
        return RY_OK;
    }
    if (ry_scope_leads(s)) {
        uint64_t begins[RY_CHANNELS_MAX], ends[RY_CHANNELS_MAX];

        for (uint32_t c = 0; c < w->channels; c++) /* released: an early enough beginning */
            begins[c] = ends[c] = ry_ld_acq64_pe(&ry_world_channel(w, pe, c)->released);
        rc = ry_world_transfer(w, (const uint8_t *)from, (uint8_t *)to, bytes, pe, ends);
        for (uint32_t c = 0; c < w->channels && rc == RY_OK; c++)
            if (ends[c] != begins[c])
                rc = ry_world_await(w, pe, c, begins[c], ends[c]);
    }
    return ry_scope_share(s, rc); /* the data, from the one who saw it complete to its group */
}

/* A counter that many PEs add to without any atomic on the wire: each PE writes its own running sum
 * into its own sector, which may be written twice; the reader adds the sectors up. `counter` is
 * [pes] sectors in the heap, `index` the number of its running sums in world.totals. */
RY_DEV int ry_dev_amo_add(const struct ry_gpu_world *w, struct ry_sector *counter, uint32_t index,
                          uint64_t value, uint32_t pe, enum ry_scope s)
{
    int rc = RY_OK;

    ry_scope_meet(s);
    if (ry_scope_leads(s)) {
        uint64_t *total = &w->totals[2 * (index * w->pes + pe)], found;
        uint64_t until = ry_global_ns() + w->timeout_ns;

        /* sum and post under one lock, so that sums are posted in their order */
        while (!ry_take64_pe(total + 1, 0, 1, &found) && rc == RY_OK)
            if (ry_global_ns() >= until)
                rc = ry_world_fail(w, RY_ERR_STALLED, pe, 0);
        if (rc == RY_OK) {
            total[0] += value;
            rc =
                ry_dev_put_signal(w, w->heap, w->heap, 0, &counter[w->pe], total[0], pe, RY_THREAD);
            ry_st_rel64_pe(total + 1, 0);
        }
    }
    return ry_scope_share(s, rc);
}

RY_DEV uint64_t ry_dev_amo_read(const struct ry_gpu_world *w, const struct ry_sector *counter)
{
    uint64_t sum = 0;

    for (uint32_t p = 0; p < w->pes; p++)
        sum += ry_observe_signal(&counter[p]);
    return sum;
}

#endif
