/* SPDX-License-Identifier: Apache-2.0 */
/* One channel's part of a stage, put together by the first lane of a warp: writes from a mirror to
 * the same place at its peer, several to a message, and a signal behind the last. */
#ifndef RY_CUDA_FAR_WIRE_H
#define RY_CUDA_FAR_WIRE_H

#include "cuda/far.h"
#include "cuda/rma.h"

/* Far peer number i, counted from the PE behind this one, so that no peer is met by all at once. */
RY_DEV uint32_t ry_far_peer(const struct ry_gpu_far *f, uint32_t i)
{
    uint32_t p = f->w.pe;

    do {
        p = p + 1 == f->w.pes ? 0 : p + 1;
    } while (!(f->peers >> p & 1) || i-- > 0);
    return p;
}

RY_DEV uint64_t ry_far_sector_at(const struct ry_gpu_far *f, enum ry_far_stage stage,
                                 uint32_t source, uint32_t c)
{
    return f->sectors_at +
           ((stage * f->w.pes + source) * f->w.channels + c) * sizeof(struct ry_sector);
}

/* A deadline has passed: what would be sent is not worth sending. */
RY_DEV bool ry_far_lost(const struct ry_gpu_far *f)
{
    return (ry_word_observe(&f->w.status->first) & 0xffu) > RY_AT_INDEX;
}

enum {
    RY_WIRE_PUTS = 8,          /* of a message */
    RY_WIRE_BYTES = 256 << 10, /* of a put */
};

struct ry_wire {
    const struct ry_gpu_far *f;
    const uint8_t *mirror;
    uint32_t pe, channel, n;
    int rc;
    struct ry_req req[RY_WIRE_PUTS + 1];
};

RY_DEV void ry_wire_post(struct ry_wire *x)
{
    if (x->n && x->rc == RY_OK)
        x->rc = ry_world_post(&x->f->w, x->pe, x->channel, x->req, x->n);
    x->n = 0;
}

/* What stands `at` in the mirror. */
RY_DEV void ry_wire_put(struct ry_wire *x, uint64_t at, uint64_t bytes)
{
    uint64_t there = x->f->w.raddr[x->pe] + x->f->buffers_at;

    while (bytes) {
        uint32_t part = (uint32_t)(bytes < RY_WIRE_BYTES ? bytes : RY_WIRE_BYTES);

        if (x->n == RY_WIRE_PUTS)
            ry_wire_post(x);
        x->req[x->n++] = ry_put_req(there + at, x->mirror + at, part);
        at += part;
        bytes -= part;
    }
}

/* The signal, in the last message; then a read whose answer proves all of it. */
RY_DEV void ry_wire_end(struct ry_wire *x, enum ry_far_stage stage, uint64_t gen)
{
    const struct ry_gpu_world *w = &x->f->w;
    struct ry_channel *ch = ry_world_channel(w, x->pe, x->channel);
    uint64_t sector = w->raddr[x->pe] + ry_far_sector_at(x->f, stage, w->pe, x->channel), end;

    x->req[x->n++] = ry_signal_req(sector, gen, 0);
    ry_wire_post(x);
    if (x->rc == RY_OK)
        ry_channel_post_proof(ch, &w->env, &end); /* refused: whoever waits for room asks again */
    if (stage == RY_FAR_COMBINE)
        x->f->span[x->pe * w->channels + x->channel].end =
            ry_packed_seq(ry_observe_ready(&ch->ring[ry_state_active(ry_observe_state(ch))]));
}

/* Share number `i` of `n` of [0, all). */
RY_DEV uint32_t ry_far_share(uint32_t all, uint32_t n, uint32_t i)
{
    return (uint32_t)((uint64_t)all * i / n);
}

#endif
