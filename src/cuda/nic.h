/* SPDX-License-Identifier: Apache-2.0 */
/* An emulated NIC for device memory: resident kernels ("engines") that take the mlx5 data path as
 * it is, doorbells, 64-byte WQEs and collapsed CQs, from where a real NIC would read it.
 *
 * A port is one or more blocks that share a rate. A block serves some queue pairs of its port: it
 * takes up to RY_GNIC_BATCH posted WQEs of one queue pair, copies their payload with all its warps
 * at once, and then retires them in order: signals (inline writes) and short reads one by one, one
 * CQE. A long read is a batch of its own.
 *
 * | word                          | writer                                                    |
 * |-------------------------------|-----------------------------------------------------------|
 * | qp fields, then qp.want       | agent (host), by copies in stream order                   |
 * | qp.halt, engine.stop, down[]  | agent; down[own port] also the engine whose trip came     |
 * | trip                          | agent; the engine sets it to 0                            |
 * | report, tripped (pinned)      | engine                                                    |
 * | free_ns, counters             | engines of the port, by atomics                           |
 */
#ifndef RY_CUDA_NIC_H
#define RY_CUDA_NIC_H

#include "core/layout.h"

enum {
    RY_GNIC_BATCH = 32,
    RY_GNIC_QPS_MAX = 128, /* of one PE */
    RY_GNIC_MRS = 2,       /* local regions: 0 the heap, 1 another block of the caller's */
    RY_GNIC_PES_MAX = 16,
    RY_GNIC_PORTS_MAX = 4,
};

enum ry_gnic_state { RY_GNIC_NONE = 0, RY_GNIC_SERVES = 1, RY_GNIC_ERROR = 2 };

struct ry_gnic_mr {
    uint64_t base, bytes;
    uint32_t key, rsvd;
};

struct ry_gnic_qp {
    struct ry_wqe *wqe;
    struct ry_cqe *cqe;
    uint64_t *uar;
    uint64_t *report; /* epoch << 2 | enum ry_gnic_state */
    uint32_t mask, qpn;
    uint32_t port, peer_port; /* numbers in down[] */
    uint32_t peer, rsvd;
    uint64_t halt; /* lives up to this one are to stop */
    uint64_t want; /* life to serve; 0: none */
};

/* What the engines of one port share, in device memory. */
struct ry_gnic_port {
    uint64_t free_ns; /* when the wire has carried all it was given */
    uint64_t bytes, wqes;
    uint64_t trip; /* the port goes down by itself once wqes reaches this; 0: never */
};

struct ry_gnic_engine {
    struct ry_gnic_qp
        *qp; /* [n] of this PE, RY_SLOTS a channel; a port's channels are dealt to its parts */
    struct ry_gnic_port *shared;
    uint64_t *down; /* [pes * ports], this GPU's copy: 1 is down */
    uint64_t *stop;
    uint64_t *tripped; /* pinned */
    struct ry_gnic_mr local[RY_GNIC_MRS], remote[RY_GNIC_PES_MAX];
    uint32_t n, port, part, parts;
    uint32_t ports, rsvd; /* of the PE */
    uint64_t rate_bps; /* 0: as fast as it goes */
    uint64_t retry_ns; /* from finding the port down to the error CQE */
};

#ifdef __cplusplus
extern "C" {
#endif
int ry_gnic_launch(const struct ry_gnic_engine *e, uint32_t n, void *stream);
#ifdef __cplusplus
}
#endif

#endif
