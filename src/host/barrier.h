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

#endif
