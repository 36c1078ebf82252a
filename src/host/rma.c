/* SPDX-License-Identifier: Apache-2.0 */
/* Put, get, put with signal, fence, quiet. */
#include <railyard/rma.h>
#include <string.h>

#include "host/ctx.h"
#include "host/error.h"

enum {
    CHUNK_BYTES = 256 << 10, /* one request */
    MESSAGE_CHUNKS = 4, /* requests of one message: completions come often enough to tell life */
};

_Static_assert((int)RY_MARK_CHANNELS == (int)RY_CHANNELS_MAX,
               "a mark has a place for every channel");

static int check(struct ry_mesh *m, const void *remote, const void *local, size_t bytes,
                 uint32_t pe)
{
    if (pe >= m->n_pes)
        return ry_fail(RY_ERR_INVALID, "pe %u: this job has pes 0 to %u", pe, m->n_pes - 1);
    if (!ry_mesh_in_heap(m, remote, bytes))
        return ry_fail(RY_ERR_INVALID, "remote address %p + %zu is outside the heap", remote,
                       bytes);
    if (!ry_mesh_in_heap(m, local, bytes))
        return ry_fail(RY_ERR_INVALID, "local address %p + %zu is outside the heap", local, bytes);
    return pe == m->pe || m->peers[pe].direct ? RY_OK : ry_mesh_has_channels(m, pe);
}

/* A peer that plain stores reach, this PE included; NULL: through channels. */
static uint8_t *direct(const struct ry_mesh *m, const void *p, uint32_t pe)
{
    uint64_t off = (uint64_t)((const uint8_t *)p - m->heap);

    if (pe == m->pe)
        return m->heap + off;
    return m->peers[pe].direct ? (uint8_t *)m->peers[pe].heap + off : NULL;
}

static struct ry_req data_req(uint8_t opcode, uint64_t raddr, uint64_t laddr, uint32_t bytes)
{
    struct ry_req q = {0};

    q.opcode = opcode;
    q.raddr = raddr;
    q.laddr = laddr;
    q.bytes = bytes;
    return q;
}

/* Small payloads travel in the request itself, so that their source is free at once. */
static struct ry_req write_req(uint64_t raddr, const void *src, uint64_t laddr, uint32_t bytes)
{
    struct ry_req q = data_req(RY_OP_WRITE, raddr, laddr, bytes);

    if (bytes && bytes <= sizeof(q.operand)) {
        q.inline_bytes = (uint8_t)bytes;
        memcpy(q.operand, src, bytes);
    }
    return q;
}

/* One stripe on one channel, in messages of a few requests. */
static int stripe(struct ry_mesh *m, uint8_t opcode, uint32_t pe, uint32_t c, const void *remote,
                  const void *local, uint64_t bytes)
{
    uint64_t raddr = ry_mesh_raddr(m, pe, remote), laddr = ry_mesh_laddr(m, local), at = 0, end;
    uint64_t chunk = m->cfg.chunk_bytes ? ry_min64(m->cfg.chunk_bytes, CHUNK_BYTES) : CHUNK_BYTES;

    while (at < bytes) {
        struct ry_req q[MESSAGE_CHUNKS];
        uint32_t n = 0;
        int rc;

        for (; n < MESSAGE_CHUNKS && at < bytes; n++) {
            uint32_t len = (uint32_t)ry_min64(bytes - at, chunk);

            q[n] = opcode == RY_OP_WRITE
                       ? write_req(raddr + at, (const uint8_t *)local + at, laddr + at, len)
                       : data_req(opcode, raddr + at, laddr + at, len);
            at += len;
        }
        rc = ry_mesh_post(m, pe, c, q, n, 0, &end);
        if (rc)
            return rc;
    }
    return RY_OK;
}

/* Small transfers take the channels in turn, large ones all of them by weight. */
static int transfer(struct ry_ctx *ctx, uint8_t opcode, uint32_t pe, const void *remote,
                    const void *local, uint64_t bytes)
{
    struct ry_mesh *m = &ctx->mesh;
    struct ry_peer *p = &m->peers[pe];
    int rc = RY_OK;

    if (bytes < RY_STRIPE_MIN_BYTES || p->n_channels == 1)
        return stripe(m, opcode, pe, ry_route_pick(p->weights, p->sent, p->n_channels, bytes),
                      remote, local, bytes);
    for (uint32_t c = 0; rc == RY_OK && c < p->n_channels; c++) {
        uint64_t a = ry_route_begin(p->weights, p->n_channels, c, p->weight_sum, bytes);
        uint64_t b = ry_route_begin(p->weights, p->n_channels, c + 1, p->weight_sum, bytes);

        rc = stripe(m, opcode, pe, c, (const uint8_t *)remote + a, (const uint8_t *)local + a,
                    b - a);
    }
    return rc;
}

int ry_put_nbi(ry_ctx *ctx, void *dst, const void *src, size_t bytes, uint32_t pe)
{
    int rc = check(&ctx->mesh, dst, src, bytes, pe);
    uint8_t *to;

    if (rc || bytes == 0)
        return rc;
    to = direct(&ctx->mesh, dst, pe);
    if (!to)
        return transfer(ctx, RY_OP_WRITE, pe, dst, src, bytes);
    memmove(to, src, bytes);
    return RY_OK;
}

int ry_get_nbi(ry_ctx *ctx, void *dst, const void *src, size_t bytes, uint32_t pe)
{
    int rc = check(&ctx->mesh, src, dst, bytes, pe);
    uint8_t *from;

    if (rc || bytes == 0)
        return rc;
    from = direct(&ctx->mesh, src, pe);
    if (!from)
        return transfer(ctx, RY_OP_READ, pe, src, dst, bytes);
    memmove(dst, from, bytes);
    return RY_OK;
}

/* Post a proof read on every channel to `pe` that has something to prove; goal[c] is the sequence
 * behind it. What is posted behind it, by the agent's answers to atomics for one, is not waited
 * for. */
static int prove(struct ry_mesh *m, struct ry_peer *p, uint64_t *goal)
{
    for (uint32_t c = 0; c < p->n_channels; c++) {
        struct ry_out_channel *oc = &p->out[c];
        const struct ry_ring *r = &oc->ch->ring[ry_state_active(ry_observe_state(oc->ch))];
        uint64_t head = ry_packed_seq(ry_observe_resv(r));
        int rc;

        goal[c] = head;
        if (head == ry_ld_acq64(&oc->ch->released))
            continue;
        rc = ry_mesh_post_proof(m, p->pe, c, &goal[c]);
        if (rc)
            return rc;
    }
    return RY_OK;
}

/* Errors of operations that were turned into NOPs since the last quiet (rule 12). */
static int take_op_error(struct ry_peer *p, uint32_t c)
{
    struct ry_out_channel *oc = &p->out[c];

    if (oc->seen_op_errors == oc->ch->op_errors)
        return RY_OK;
    oc->seen_op_errors = oc->ch->op_errors;
    return ry_fail(oc->ch->op_error, "an operation on pe %u was refused: %s", p->pe,
                   ry_status_text(oc->ch->op_error));
}

/* Wait until all of one channel up to its proof is reusable: released, and every path that carried
 * it proven or fenced. */
static int settle(struct ry_mesh *m, struct ry_peer *p, uint32_t c, uint64_t goal)
{
    struct ry_out_channel *oc = &p->out[c];
    struct ry_wait w;
    uint64_t acked;

    if (ry_seq_ge(oc->quiet_seq, goal))
        return take_op_error(p, c);
    ry_wait_begin(m, &w, p->pe, 0);
    for (;;) {
        int rc;

        ry_channel_progress(oc->ch, &m->env, &acked);
        ry_channel_prove_to(oc->ch, goal);
        if (RY_MUT(RY_MUT_QUIET_WRONG_COUNTER))
            break;
        if (RY_MUT(RY_MUT_QUIET_NO_SLOTS) ? ry_seq_ge(acked, goal)
                                          : ry_channel_reusable(oc->ch, oc->quiet_seq, goal))
            break;
        rc = ry_wait_turn(m, &w);
        if (rc)
            return rc;
    }
    oc->quiet_seq = goal;
    return take_op_error(p, c);
}

static int settle_peer(struct ry_mesh *m, struct ry_peer *p, const uint64_t *goal)
{
    int rc, worst = RY_OK;

    for (uint32_t c = 0; c < p->n_channels && worst != RY_ERR_UNREACHABLE; c++) {
        rc = settle(m, p, c, goal[c]);
        worst = worst ? worst : rc;
    }
    return worst;
}

/* What was queued for a PE that is gone is lost with it; later calls say so. */
static int quiet_peer(struct ry_mesh *m, struct ry_peer *p)
{
    int rc = ry_peer_state(p) == RY_PEER_GONE ? RY_OK : prove(m, p, p->quiet_goal);

    return rc || ry_peer_state(p) == RY_PEER_GONE ? rc : settle_peer(m, p, p->quiet_goal);
}

int ry_quiet(ry_ctx *ctx)
{
    struct ry_mesh *m = &ctx->mesh;
    int worst = RY_OK;

    /* all proofs are under way before the first is waited for */
    for (uint32_t i = 1; i < m->n_pes; i++) {
        struct ry_peer *p = &m->peers[(m->pe + i) % m->n_pes];
        int rc = ry_peer_state(p) == RY_PEER_GONE ? RY_OK : prove(m, p, p->quiet_goal);

        worst = worst ? worst : rc;
    }
    for (uint32_t i = 1; i < m->n_pes; i++) {
        struct ry_peer *p = &m->peers[(m->pe + i) % m->n_pes];
        int rc = ry_peer_state(p) == RY_PEER_GONE ? RY_OK : settle_peer(m, p, p->quiet_goal);

        worst = worst ? worst : rc;
    }
    return worst;
}

int ry_mark_nbi(ry_ctx *ctx, uint32_t pe, ry_mark *mark)
{
    struct ry_mesh *m = &ctx->mesh;
    ry_mark made = {.pe = pe};
    int rc;

    if (pe >= m->n_pes)
        return ry_fail(RY_ERR_INVALID, "pe %u: this job has pes 0 to %u", pe, m->n_pes - 1);
    made.incarnation = m->peers[pe].hello.incarnation;
    rc = pe == m->pe ? RY_OK : prove(m, &m->peers[pe], made.seq);
    if (rc == RY_OK)
        *mark = made;
    return rc;
}

int ry_mark_wait(ry_ctx *ctx, const ry_mark *mark)
{
    struct ry_mesh *m = &ctx->mesh;
    struct ry_peer *p;

    if (mark->pe >= m->n_pes)
        return ry_fail(RY_ERR_INVALID, "a mark of pe %u: this job has pes 0 to %u", mark->pe,
                       m->n_pes - 1);
    p = &m->peers[mark->pe];
    if (mark->pe == m->pe)
        return RY_OK;
    if (ry_peer_state(p) == RY_PEER_GONE || p->hello.incarnation != mark->incarnation)
        return ry_fail(RY_ERR_PEER_LOST,
                       "pe %u is lost, and with it what was queued in front of "
                       "a mark",
                       mark->pe);
    return settle_peer(m, p, mark->seq);
}

/* Channels are independent: only what is proven on all of them comes before what follows on any. */
int ry_fence(ry_ctx *ctx) { return ry_quiet(ctx); }

int ry_put(ry_ctx *ctx, void *dst, const void *src, size_t bytes, uint32_t pe)
{
    int rc = ry_put_nbi(ctx, dst, src, bytes, pe);

    return rc || pe == ctx->mesh.pe ? rc : quiet_peer(&ctx->mesh, &ctx->mesh.peers[pe]);
}

int ry_get(ry_ctx *ctx, void *dst, const void *src, size_t bytes, uint32_t pe)
{
    int rc = ry_get_nbi(ctx, dst, src, bytes, pe);

    return rc || pe == ctx->mesh.pe ? rc : quiet_peer(&ctx->mesh, &ctx->mesh.peers[pe]);
}

static uint32_t signal_channel(const struct ry_mesh *m, const struct ry_peer *p, const void *sig)
{
    uint64_t line = (uint64_t)((const uint8_t *)sig - m->heap) / sizeof(ry_signal);

    return (uint32_t)((line * 0x9e3779b97f4a7c15ull >> 32) % p->n_channels);
}

static int signal_direct(struct ry_mesh *m, uint8_t *to, const void *src, size_t bytes,
                         uint8_t *sig, uint64_t value)
{
    if (bytes)
        memmove(to, src, bytes);
    ry_st_rel64(&((struct ry_sector *)(void *)sig)->word[0], value);
    (void)m;
    return RY_OK;
}

int ry_put_signal_nbi(ry_ctx *ctx, void *dst, const void *src, size_t bytes, ry_signal *sig,
                      uint64_t value, uint32_t pe)
{
    struct ry_mesh *m = &ctx->mesh;
    struct ry_req q[2];
    uint64_t end;
    uint32_t c, n = 0;
    int rc = check(m, sig, bytes ? src : sig, bytes ? bytes : 1, pe);

    if (rc == RY_OK && bytes)
        rc = check(m, dst, src, bytes, pe);
    if (rc)
        return rc;
    if (direct(m, sig, pe))
        return signal_direct(m, bytes ? direct(m, dst, pe) : NULL, src, bytes, direct(m, sig, pe),
                             value);
    c = signal_channel(m, &m->peers[pe], sig);
    if (bytes > CHUNK_BYTES) {
        size_t head = (bytes - 1) / CHUNK_BYTES * CHUNK_BYTES;

        rc = stripe(m, RY_OP_WRITE, pe, c, dst, src, head);
        if (rc)
            return rc;
        dst = (uint8_t *)dst + head;
        src = (const uint8_t *)src + head;
        bytes -= head;
    }
    if (bytes)
        q[n++] = write_req(ry_mesh_raddr(m, pe, dst), src, ry_mesh_laddr(m, src), (uint32_t)bytes);
    if (RY_MUT(RY_MUT_SIGNAL_OTHER_RAIL) && n) {
        rc = ry_mesh_post(m, pe, (c + 1) % m->peers[pe].n_channels, q, n, 0, &end);
        if (rc)
            return rc;
        n = 0;
    }
    q[n++] = ry_signal_req(ry_mesh_raddr(m, pe, sig), value, 0);
    if (RY_MUT(RY_MUT_SIGNAL_ADDED)) {
        q[n - 1] = data_req(RY_OP_ATOMIC_FA, q[n - 1].raddr, m->hello.heap_base, 8);
        q[n - 1].operand[0] = 1;
    }
    return ry_mesh_post(m, pe, c, q, n, 0, &end);
}

uint64_t ry_signal_read(const ry_ctx *ctx, const ry_signal *sig)
{
    (void)ctx;
    return ry_observe_signal((const struct ry_sector *)sig);
}

int ry_signal_wait(ry_ctx *ctx, const ry_signal *sig, uint64_t value, uint32_t from_pe,
                   uint64_t timeout_ns)
{
    struct ry_mesh *m = &ctx->mesh;
    struct ry_wait w;

    if (!ry_mesh_in_heap(m, sig, sizeof(*sig)) || from_pe >= m->n_pes)
        return ry_fail(RY_ERR_INVALID, "signal %p of pe %u: not in the heap, or no such pe",
                       (const void *)sig, from_pe);
    if (ry_signal_read(ctx, sig) >= value)
        return RY_OK;
    ry_wait_begin(m, &w, from_pe, timeout_ns);
    while (ry_signal_read(ctx, sig) < value) {
        int rc = ry_wait_turn(m, &w);

        if (rc && ry_signal_read(ctx, sig) < value)
            return rc;
    }
    return RY_OK;
}
