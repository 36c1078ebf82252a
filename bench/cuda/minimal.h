/* SPDX-License-Identifier: Apache-2.0 */
/* A hand-written post, to compare with: the queue pair is this thread's alone, nothing can fail and
 * nothing is checked, not even room. It writes the same two blocks (a write of 8 bytes and an
 * inline signal), the doorbell record and the doorbell word, with the same two fences; all that it
 * needs of the queue pair is in registers and it stores 16 bytes at a time. */
#ifndef RY_BENCH_CUDA_MINIMAL_H
#define RY_BENCH_CUDA_MINIMAL_H

#include "core/queue.h"

struct minimal {
    struct ry_wqe *wqe;
    uint32_t *dbr;
    uint64_t *uar;
    uint32_t mask, qpn, lkey, rkey; /* keys as the NIC reads them */
};

__device__ static inline struct minimal minimal_take(const struct ry_ring *r)
{
    struct minimal m = {r->wqe,  r->dbr, r->uar,
                        r->mask, r->qpn, ry_be32(r->lkeys[0]), ry_be32(r->rkeys[0])};

    return m;
}

__device__ static inline void minimal_post(const struct minimal *m, uint32_t idx, uint64_t to,
                                           uint64_t from, uint64_t signal, uint64_t value)
{
    struct ry_wqe a, b;
    uint64_t bell;

    memset(&a, 0, sizeof(a));
    memset(&b, 0, sizeof(b));
    ry_wqe_head(&a, RY_OP_WRITE, idx, m->qpn, 3);
    a.raddr = ry_be64(to);
    a.rkey = m->rkey;
    a.u.data.byte_count = ry_be32(8);
    a.u.data.lkey = m->lkey;
    a.u.data.addr = ry_be64(from);
    ry_wqe_head(&b, RY_OP_WRITE, idx + 1, m->qpn, 3);
    b.fm_ce_se = RY_WQE_SIGNALLED;
    b.raddr = ry_be64(signal);
    b.rkey = m->rkey;
    b.u.words[0] = ry_be32(RY_WQE_INLINE | 8) | value << 32;
    b.u.words[1] = value >> 32;
    bell = ry_wqe_doorbell(&b);
    ry_wqe_store(&m->wqe[idx & m->mask], &a);
    ry_wqe_store(&m->wqe[(idx + 1) & m->mask], &b);
    ry_fence_sys();
    ry_publish_dbr(m->dbr, idx + 2);
    ry_ring_doorbell(m->uar, bell);
}

#endif
