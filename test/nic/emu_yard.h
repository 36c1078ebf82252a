/* SPDX-License-Identifier: Apache-2.0 */
/* A few emulated NICs in one process, and one queue pair at a time written by hand: what the
 * tests of nic/emu share. Virtual time by default: the test is the clock. */
#ifndef RY_TEST_EMU_YARD_H
#define RY_TEST_EMU_YARD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "nic/emu/emu.h"
#include "railyard/status.h"

#ifndef YARD_HEAP_BYTES
#define YARD_HEAP_BYTES (4 << 20)
#endif
enum { YARD_PES = 8, YARD_HEAP = YARD_HEAP_BYTES, YARD_DEPTH = 64 };

struct yard_pe {
    struct ry_nic *nic;
    char *heap;
    struct ry_mr mr[RY_RAILS_MAX];
};

struct yard {
    uint64_t now;
    uint32_t pes;
    struct yard_pe pe[YARD_PES];
};

/* One direction between two PEs: the initiator's ring and both ends. */
struct yard_path {
    struct yard *y;
    uint32_t from, to, rail, far_rail;
    struct ry_nic_qp *qp, *far;
    struct ry_qp_addr addr, far_addr;
    struct ry_wqe *ring;
    struct ry_cqe *cqe;
    uint32_t depth, prod;
    uint32_t dbr;
    uint64_t uar;
};

static inline uint64_t yard_clock(void *arg) { return ((struct yard *)arg)->now; }

static inline struct ry_emu_cfg yard_cfg(struct yard *y, uint32_t pes, uint32_t rails)
{
    return (struct ry_emu_cfg){.n_pes = pes,
                               .rails = rails,
                               .ports_per_nic = 2,
                               .retry_count = 3,
                               .retry_ns = 1000000,
                               .seed = 1,
                               .virtual_time = true,
                               .now_ns = yard_clock,
                               .clock_arg = y};
}

static inline void yard_open(struct yard *y, const struct ry_emu_cfg *base)
{
    y->pes = base->n_pes;
    for (uint32_t i = 0; i < y->pes; i++) {
        struct ry_emu_cfg cfg = *base;

        cfg.pe = i;
        assert_int_equal(ry_emu_open(&cfg, &y->pe[i].nic), 0);
        y->pe[i].heap = aligned_alloc(4096, YARD_HEAP);
        assert_non_null(y->pe[i].heap);
        memset(y->pe[i].heap, 0, YARD_HEAP);
        for (uint32_t r = 0; r < base->rails; r++)
            assert_int_equal(y->pe[i].nic->ops->mr_reg(y->pe[i].nic, r, y->pe[i].heap, YARD_HEAP,
                                                       true, &y->pe[i].mr[r]),
                             0);
    }
    for (uint32_t i = 0; i < y->pes; i++) {
        for (uint32_t j = 0; j < y->pes; j++) {
            struct ry_nic_export ex;
            struct ry_nic_peer peer;

            assert_int_equal(y->pe[j].nic->ops->export_seg(y->pe[j].nic, &ex), 0);
            peer = (struct ry_nic_peer){.pe = j,
                                        .seg = ex.base,
                                        .seg_len_bytes = ex.len_bytes,
                                        .heap = y->pe[j].heap,
                                        .heap_len_bytes = YARD_HEAP,
                                        .heap_base = (uint64_t)(uintptr_t)y->pe[j].heap};
            assert_int_equal(y->pe[i].nic->ops->peer_attach(y->pe[i].nic, &peer), 0);
        }
    }
}

static inline void yard_close(struct yard *y)
{
    for (uint32_t i = 0; i < y->pes; i++)
        for (uint32_t j = 0; j < y->pes; j++)
            y->pe[i].nic->ops->peer_detach(y->pe[i].nic, j);
    for (uint32_t i = 0; i < y->pes; i++) {
        y->pe[i].nic->ops->close(y->pe[i].nic);
        free(y->pe[i].heap);
    }
}

static inline void yard_path_make(struct yard *y, struct yard_path *p, uint32_t from, uint32_t to,
                                  uint32_t rail, uint32_t far_rail)
{
    const struct ry_nic_ops *ops = y->pe[from].nic->ops;
    struct ry_qp_attr attr = {.kind = RY_QP_RESPONDER, .rail = far_rail, .peer = from};

    memset(p, 0, sizeof(*p));
    p->y = y;
    p->from = from;
    p->to = to;
    p->rail = rail;
    p->far_rail = far_rail;
    p->depth = YARD_DEPTH;
    p->ring = aligned_alloc(64, YARD_DEPTH * sizeof(*p->ring));
    p->cqe = aligned_alloc(64, sizeof(*p->cqe));
    assert_non_null(p->ring);
    assert_non_null(p->cqe);
    memset(p->ring, 0, YARD_DEPTH * sizeof(*p->ring));
    memset(p->cqe, 0xff, sizeof(*p->cqe));
    assert_int_equal(ops->qp_create(y->pe[to].nic, &attr, &p->far, &p->far_addr), 0);
    attr = (struct ry_qp_attr){.kind = RY_QP_INITIATOR,
                               .rail = rail,
                               .peer = to,
                               .ring = p->ring,
                               .depth = p->depth,
                               .cqe = p->cqe,
                               .dbr = &p->dbr,
                               .uar = &p->uar};
    assert_int_equal(ops->qp_create(y->pe[from].nic, &attr, &p->qp, &p->addr), 0);
}

static inline void yard_path_open(struct yard *y, struct yard_path *p, uint32_t from, uint32_t to,
                                  uint32_t rail, uint32_t far_rail)
{
    yard_path_make(y, p, from, to, rail, far_rail);
    assert_int_equal(y->pe[to].nic->ops->qp_connect(p->far, &p->addr), 0);
    assert_int_equal(y->pe[from].nic->ops->qp_connect(p->qp, &p->far_addr), 0);
}

static inline void yard_path_close(struct yard_path *p)
{
    const struct ry_nic_ops *ops = p->y->pe[p->from].nic->ops;

    ops->qp_destroy(p->qp);
    ops->qp_destroy(p->far);
    free(p->ring);
    free(p->cqe);
}

/* The next free block, filled for an operation of `bytes` at heap offsets. Not yet rung. */
static inline struct ry_wqe *yard_wqe(struct yard_path *p, uint8_t opcode, uint64_t far_off,
                                      uint64_t near_off, uint32_t bytes, bool signalled)
{
    struct ry_wqe *w = &p->ring[p->prod & (p->depth - 1)];
    bool atomic = ry_wqe_atomic(opcode);

    memset(w, 0, sizeof(*w));
    ry_wqe_head(w, opcode, p->prod, p->addr.qpn, atomic ? 4 : 3);
    w->fm_ce_se = signalled ? RY_WQE_SIGNALLED : 0;
    w->raddr = ry_be64((uint64_t)(uintptr_t)p->y->pe[p->to].heap + far_off);
    w->rkey = ry_be32(p->y->pe[p->to].mr[p->far_rail].rkey);
    if (atomic) {
        w->u.atomic.byte_count = ry_be32(bytes);
        w->u.atomic.lkey = ry_be32(p->y->pe[p->from].mr[p->rail].lkey);
        w->u.atomic.addr = ry_be64((uint64_t)(uintptr_t)p->y->pe[p->from].heap + near_off);
    } else {
        w->u.data.byte_count = ry_be32(bytes);
        w->u.data.lkey = ry_be32(p->y->pe[p->from].mr[p->rail].lkey);
        w->u.data.addr = ry_be64((uint64_t)(uintptr_t)p->y->pe[p->from].heap + near_off);
    }
    p->prod++;
    return w;
}

static inline struct ry_wqe *yard_inline(struct yard_path *p, uint64_t far_off, const void *data,
                                         uint32_t bytes, bool signalled)
{
    struct ry_wqe *w = yard_wqe(p, RY_OP_WRITE, far_off, 0, 0, signalled);

    ry_wqe_head(w, RY_OP_WRITE, p->prod - 1, p->addr.qpn, 2 + (4 + bytes + 15) / 16);
    memset(&w->u, 0, sizeof(w->u));
    w->u.inl.byte_count = ry_be32(bytes | RY_WQE_INLINE);
    memcpy(w->u.inl.bytes, data, bytes);
    return w;
}

static inline void yard_ring(struct yard_path *p)
{
    __atomic_store_n(&p->dbr, ry_be32(p->prod & 0xffff), __ATOMIC_RELEASE);
    __atomic_store_n(&p->uar, ry_wqe_doorbell(&p->ring[(p->prod - 1) & (p->depth - 1)]),
                     __ATOMIC_RELEASE);
    p->y->pe[p->from].nic->ops->kick(p->qp, p->prod);
}

/* Let virtual time pass to `until`, from one due time to the next. */
static inline void yard_run(struct yard *y, uint64_t until)
{
    for (;;) {
        uint64_t next = UINT64_MAX;

        for (uint32_t i = 0; i < y->pes; i++) {
            uint64_t due = y->pe[i].nic->ops->drive(y->pe[i].nic, y->now);

            next = due < next ? due : next;
        }
        if (next > until)
            break;
        y->now = next > y->now ? next : y->now;
    }
    y->now = until > y->now ? until : y->now;
}

static inline struct ry_cqe_tail yard_cqe(const struct yard_path *p)
{
    return ry_observe_cqe(p->cqe);
}

/* Runs until the request with this index has its CQE, or time is out. The CQE's opcode. */
static inline uint8_t yard_await(struct yard_path *p, uint32_t idx, uint64_t patience_ns)
{
    uint64_t end = p->y->now + patience_ns;

    while (p->y->now <= end) {
        struct ry_cqe_tail t;

        yard_run(p->y, p->y->now);
        t = yard_cqe(p);
        if (t.opcode != RY_CQE_INVALID && t.counter == (uint16_t)idx)
            return t.opcode;
        p->y->now += 1000;
    }
    return RY_CQE_INVALID;
}

static inline uint8_t yard_syndrome(const struct yard_path *p)
{
    uint64_t w = __atomic_load_n((const uint64_t *)(const void *)p->cqe + 6, __ATOMIC_RELAXED);

    return (uint8_t)ry_be64(w);
}

/* Packets of a rail are lost with probability p. */
static inline struct ry_nic_fault yard_drop(uint32_t rail, double p)
{
    return (struct ry_nic_fault){.kind = RY_FAULT_DROP, .rail = rail, .peer = -1, .p = p};
}

static inline void yard_fault(struct yard *y, uint32_t pe, struct ry_nic_fault f)
{
    assert_int_equal(y->pe[pe].nic->ops->fault(y->pe[pe].nic, &f), 0);
}

#endif
