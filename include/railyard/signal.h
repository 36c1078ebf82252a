/* SPDX-License-Identifier: Apache-2.0 */
/* Signals: words in the receiver's heap that say how much has arrived.
 *
 * A signal has one writer PE and its values only grow (they are written, never added: a write that
 * is repeated after a failure is harmless, an addition is not). It has one word per path slot; the
 * receiver takes the greatest. */
#ifndef RAILYARD_SIGNAL_H
#define RAILYARD_SIGNAL_H

#include <railyard/context.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ry_signal {
    uint64_t word[4];
} ry_signal; /* 32 bytes, 32-byte aligned, in the symmetric heap */

/* Greatest value that has arrived; everything put before it on its channel is visible after
 * this. */
RY_API uint64_t ry_signal_read(const ry_ctx *ctx, const ry_signal *sig);

/* Wait until the signal is at least `value`. timeout_ns 0: RAILYARD_TIMEOUT, and then, as long as
 * the peer answers, again (a slow peer is not a dead one). Errors: TIMEOUT, UNREACHABLE, PEER_LOST.
 * The thread spins briefly, then sleeps. */
RY_API int ry_signal_wait(ry_ctx *ctx, const ry_signal *sig, uint64_t value, uint32_t from_pe,
                          uint64_t timeout_ns);

#ifdef __cplusplus
}
#endif
#endif
