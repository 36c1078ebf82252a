/* SPDX-License-Identifier: Apache-2.0 */
/* PEs to logical nodes where --nodes splits one machine: contiguous, sizes differing by one at
 * most. */
#ifndef RY_HOST_BOOT_NODE_H
#define RY_HOST_BOOT_NODE_H

#include "host/boot.h"

static inline uint32_t ry_node_index(uint32_t pe, uint32_t n_pes, uint32_t n_nodes)
{
    return (uint32_t)((uint64_t)pe * n_nodes / n_pes);
}

/* Sets node, n_nodes, local_pe and n_local from pe and n_pes. 1 <= n_nodes <= n_pes. */
static inline void ry_node_split(struct ry_boot *b, uint32_t n_nodes)
{
    b->n_nodes = n_nodes;
    b->node = ry_node_index(b->pe, b->n_pes, n_nodes);
    b->local_pe = 0;
    b->n_local = 0;
    for (uint32_t i = 0; i < b->n_pes; i++) {
        if (ry_node_index(i, b->n_pes, n_nodes) != b->node)
            continue;
        if (i < b->pe)
            b->local_pe++;
        b->n_local++;
    }
}

#endif
