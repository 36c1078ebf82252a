/* SPDX-License-Identifier: Apache-2.0 */
/* Dissemination barrier over signals: in round r, PE p tells p + 2^r and waits for p - 2^r. */
#ifndef RY_HOST_BARRIER_H
#define RY_HOST_BARRIER_H

#include "core/layout.h"

enum { RY_BARRIER_ROUNDS = 16 };

struct ry_barrier {
    struct ry_sector *sector; /* [RY_BARRIER_ROUNDS], in the heap */
    uint64_t count;
};

struct ry_ctx;
/* ry_barrier that ends with TIMEOUT after so long though all peers answer; 0: it does not. */
int ry_barrier_within(struct ry_ctx *ctx, uint64_t timeout_ns);

#endif
