/* SPDX-License-Identifier: Apache-2.0 */
/* Striping: how a large transfer is shared between the channels to one peer, by weight. */
#ifndef RY_CORE_ROUTE_H
#define RY_CORE_ROUTE_H

#include "core/base.h"
#include "core/mutant.h"

enum { RY_CHANNELS_MAX = 32, RY_STRIPE_ALIGN = 256, RY_STRIPE_MIN_BYTES = 16 << 10 };

/* Byte at which stripe i of n begins (stripe n: the end), weights w[] of sum `total`. Stripes begin
 * at multiples of RY_STRIPE_ALIGN and cover [0, bytes) exactly. */
RY_FN uint64_t ry_route_begin(const uint32_t *w, uint32_t n, uint32_t i, uint64_t total,
                              uint64_t bytes)
{
    uint64_t before = 0;

    if (i >= n)
        return bytes;
    for (uint32_t k = 0; k < i; k++)
        before += w[k];
    /* bytes * before / total without overflow: transfers stay below 2^48, weights below 2^16 */
    return (bytes / total * before + bytes % total * before / total) &
           ~(uint64_t)(RY_STRIPE_ALIGN - 1);
}

/* Channel that should carry the next `bytes`: the one that is furthest behind its share. sent[]
 * counts what each has carried; deterministic, ties to the lower number. */
RY_FN uint32_t ry_route_pick(const uint32_t *w, uint64_t *sent, uint32_t n, uint64_t bytes)
{
    uint32_t best = 0;

    if (RY_MUT(RY_MUT_ROUTE_HALF))
        n = (n + 1) / 2;
    for (uint32_t i = 1; i < n; i++)
        if (sent[i] * w[best] < sent[best] * w[i])
            best = i;
    sent[best] += bytes;
    return best;
}

#endif
