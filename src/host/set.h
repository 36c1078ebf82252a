/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of PEs: a bit each, PE 0 the lowest of the first word. The words are the caller's. */
#ifndef RY_HOST_SET_H
#define RY_HOST_SET_H

#include <stdbool.h>
#include <stdint.h>

static inline bool ry_set_has(const uint64_t *set, uint32_t pe)
{
    return set[pe / 64] >> (pe % 64) & 1;
}

/* The same, where NULL is the set of all. */
static inline bool ry_set_within(const uint64_t *set, uint32_t pe)
{
    return !set || ry_set_has(set, pe);
}

static inline void ry_set_add(uint64_t *set, uint32_t pe) { set[pe / 64] |= 1ull << (pe % 64); }
static inline void ry_set_drop(uint64_t *set, uint32_t pe)
{
    set[pe / 64] &= ~(1ull << (pe % 64));
}

#endif
