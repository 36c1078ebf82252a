/* SPDX-License-Identifier: Apache-2.0 */
/* One-sided put, get, put with signal, and atomics on the symmetric heap.
 *
 * dst and src of a remote access name the local address of a heap object; the same offset in `pe`'s
 * heap is meant. Local sources and destinations must be in the heap too. Calls named _nbi return
 * when the work is queued: the source must stay as it is until ry_quiet. An error of a queued
 * operation comes from the next ry_quiet. Errors of all: INVALID (address outside the heap, pe out
 * of range), UNREACHABLE, PEER_LOST, TIMEOUT, LOCAL_ACCESS, REMOTE_ACCESS. */
#ifndef RAILYARD_RMA_H
#define RAILYARD_RMA_H

#include <railyard/signal.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Large puts and gets are split into one stripe per channel, by rail speed, so that every rail
 * works. */
RY_API int ry_put_nbi(ry_ctx *ctx, void *dst, const void *src, size_t bytes, uint32_t pe);
RY_API int ry_put(ry_ctx *ctx, void *dst, const void *src, size_t bytes, uint32_t pe);
RY_API int ry_get_nbi(ry_ctx *ctx, void *dst, const void *src, size_t bytes, uint32_t pe);
RY_API int ry_get(ry_ctx *ctx, void *dst, const void *src, size_t bytes, uint32_t pe);

/* Put, then set *sig to value at the target, never visible before the data. One message on one
 * channel, chosen by the signal's address: signals of one address stay in order. bytes 0: the
 * signal alone. */
RY_API int ry_put_signal_nbi(ry_ctx *ctx, void *dst, const void *src, size_t bytes, ry_signal *sig,
                             uint64_t value, uint32_t pe);

/* Later puts to a PE are not visible before earlier ones. */
RY_API int ry_fence(ry_ctx *ctx);
/* Every queued operation is visible at its target and done with its source, and every path that
 * carried one is proven or fenced: sources may be changed and targets written again. */
RY_API int ry_quiet(ry_ctx *ctx);

/* Quiet in two steps, towards one PE, for a caller that keeps a window of operations under way:
 * queue, mark, queue more, and wait for the mark before the sources in front of it are changed.
 * What is queued behind a mark is not waited for, and the link never runs dry. */
enum { RY_MARK_CHANNELS = 32 };
typedef struct ry_mark { /* plain data, the caller's */
    uint32_t pe, incarnation;
    uint64_t seq[RY_MARK_CHANNELS];
} ry_mark;

/* Mark all that is queued to `pe` so far. Returns when a small read behind it is queued on each
 * channel that has something under way. */
RY_API int ry_mark_nbi(ry_ctx *ctx, uint32_t pe, ry_mark *mark);
/* Wait until all in front of the mark is as ry_quiet leaves it. Waiting again, or for a mark that
 * an older call to ry_quiet covers, returns at once. */
RY_API int ry_mark_wait(ry_ctx *ctx, const ry_mark *mark);

/* 64-bit atomics on a naturally aligned heap word. Run exactly once at the target, also when the
 * reply is lost and the request is sent again. Blocking. */
RY_API int ry_amo_add(ry_ctx *ctx, uint64_t *dst, uint64_t value, uint32_t pe);
RY_API int ry_amo_fetch_add(ry_ctx *ctx, uint64_t *dst, uint64_t value, uint32_t pe, uint64_t *old);
RY_API int ry_amo_swap(ry_ctx *ctx, uint64_t *dst, uint64_t value, uint32_t pe, uint64_t *old);
RY_API int ry_amo_cas(ry_ctx *ctx, uint64_t *dst, uint64_t expect, uint64_t value, uint32_t pe,
                      uint64_t *old);
RY_API int ry_amo_fetch(ry_ctx *ctx, const uint64_t *dst, uint32_t pe, uint64_t *value);

#ifdef __cplusplus
}
#endif
#endif
