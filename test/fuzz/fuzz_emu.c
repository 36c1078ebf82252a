/* SPDX-License-Identifier: Apache-2.0 */
/* A hostile initiator: arbitrary ring blocks, doorbells and calls. Whatever it does, no byte
 * outside the registered memory of either side changes (the heaps have unregistered edges and
 * guard pages), and a completion names the queue pair that it belongs to.
 *
 * Byte 0 of the input: bit 0 real time (the kicking thread executes) or virtual, bit 1 data held
 * back. Then commands: one byte, and what it takes from the input. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "nic/emu/emu.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len_bytes);

enum { HEAP = 64 << 10, EDGE = 16 << 10, GUARD = 64 << 10, DEPTH = 16, STEPS = 400 };

struct side {
    struct ry_nic *nic;
    uint8_t *map, *heap;
    struct ry_mr mr;
};

struct world {
    const uint8_t *in;
    size_t left;
    uint64_t now;
    bool real;
    struct side side[2];
    struct ry_nic_qp *from, *to;
    struct ry_qp_addr from_addr, to_addr;
    struct ry_wqe *ring;
    struct ry_cqe *cqe;
    uint32_t dbr, prod;
    uint64_t uar;
};

static uint64_t fake_clock(void *arg)
{
    return __atomic_load_n(&((struct world *)arg)->now, __ATOMIC_RELAXED);
}

static uint64_t take(struct world *w, size_t bytes)
{
    uint64_t v = 0;

    if (bytes > w->left)
        bytes = w->left;
    memcpy(&v, w->in, bytes);
    w->in += bytes;
    w->left -= bytes;
    return v;
}

static void must(bool good)
{
    if (!good)
        abort();
}

static void side_open(struct world *w, uint32_t pe, bool held)
{
    struct side *s = &w->side[pe];
    struct ry_emu_cfg cfg = {.pe = pe,
                             .n_pes = 2,
                             .rails = 1,
                             .ports_per_nic = 1,
                             .retry_count = 1,
                             .retry_ns = 1000,
                             .seed = 7,
                             .virtual_time = !w->real,
                             .threads = true,
                             .now_ns = fake_clock,
                             .clock_arg = w};

    cfg.chaos.visible_delay_ns_max = held && !w->real ? 500 : 0;
    must(ry_emu_open(&cfg, &s->nic) == 0);
    s->map = mmap(NULL, HEAP + 2 * GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(s->map != MAP_FAILED);
    s->heap = s->map + GUARD;
    must(mprotect(s->heap, HEAP, PROT_READ | PROT_WRITE) == 0);
    memset(s->heap, 0xa5, HEAP);
    must(s->nic->ops->mr_reg(s->nic, 0, s->heap + EDGE, HEAP - 2 * EDGE, true, &s->mr) == 0);
}

static void attach(struct world *w, uint32_t me, uint32_t other)
{
    struct ry_nic_export ex;
    struct ry_nic_peer peer;

    must(w->side[other].nic->ops->export_seg(w->side[other].nic, &ex) == 0);
    peer = (struct ry_nic_peer){.pe = other,
                                .seg = ex.base,
                                .seg_len_bytes = ex.len_bytes,
                                .heap = w->side[other].heap,
                                .heap_len_bytes = HEAP,
                                .heap_base = (uint64_t)(uintptr_t)w->side[other].heap};
    must(w->side[me].nic->ops->peer_attach(w->side[me].nic, &peer) == 0);
}

static void path_open(struct world *w)
{
    const struct ry_nic_ops *ops = w->side[0].nic->ops;
    struct ry_qp_attr attr = {.kind = RY_QP_RESPONDER, .peer = 0};

    must(ops->qp_create(w->side[1].nic, &attr, &w->to, &w->to_addr) == 0);
    w->dbr = w->prod = 0;
    memset(w->cqe, 0xff, sizeof(*w->cqe));
    attr = (struct ry_qp_attr){.kind = RY_QP_INITIATOR,
                               .peer = 1,
                               .ring = w->ring,
                               .depth = DEPTH,
                               .cqe = w->cqe,
                               .dbr = &w->dbr,
                               .uar = &w->uar};
    must(ops->qp_create(w->side[0].nic, &attr, &w->from, &w->from_addr) == 0);
    ops->qp_connect(w->to, &w->from_addr); /* a dead NIC refuses, and so does an old GID */
    ops->qp_connect(w->from, &w->to_addr);
}

static void path_close(struct world *w)
{
    w->side[0].nic->ops->qp_destroy(w->from);
    w->side[0].nic->ops->qp_destroy(w->to);
}

/* A block that is right but for what the input says: keys, addresses and lengths near the
 * bounds. */
static void block_near(struct world *w)
{
    struct ry_wqe *b = &w->ring[w->prod % DEPTH];
    uint8_t flags = (uint8_t)take(w, 1);
    static const uint8_t op[8] = {RY_OP_WRITE,     RY_OP_READ,      RY_OP_ATOMIC_FA,
                                  RY_OP_ATOMIC_CS, RY_OP_WRITE_IMM, RY_OP_ATOMIC_MASKED_FA,
                                  RY_OP_NOP,       RY_OP_ATOMIC_MASKED_CS};
    uint8_t code = op[flags & 7];
    uint64_t far = (uint64_t)(uintptr_t)w->side[1].heap + take(w, 2);
    uint64_t near = (uint64_t)(uintptr_t)w->side[0].heap + take(w, 2);
    uint32_t bytes = (uint32_t)take(w, 2);

    memset(b, 0, sizeof(*b));
    ry_wqe_head(b, code, w->prod, w->from_addr.qpn, ry_wqe_atomic(code) ? 4 : 3);
    b->fm_ce_se = flags & 8 ? RY_WQE_SIGNALLED : 0;
    b->raddr = ry_be64(flags & 16 ? far + take(w, 8) : far);
    b->rkey = ry_be32(flags & 32 ? (uint32_t)take(w, 4) : w->side[1].mr.rkey);
    if (ry_wqe_atomic(code)) {
        b->u.atomic.swap_add = take(w, 8);
        b->u.atomic.compare = take(w, 8);
        b->u.atomic.byte_count = ry_be32(code >= RY_OP_ATOMIC_MASKED_CS ? 4 : 8);
        b->u.atomic.lkey = ry_be32(w->side[0].mr.lkey);
        b->u.atomic.addr = ry_be64(near);
    } else {
        b->u.data.byte_count = ry_be32(flags & 64 ? bytes | RY_WQE_INLINE : bytes);
        b->u.data.lkey = ry_be32(flags & 128 ? (uint32_t)take(w, 4) : w->side[0].mr.lkey);
        b->u.data.addr = ry_be64(near);
    }
    w->prod++;
}

static void fault(struct world *w)
{
    struct ry_nic_fault f = {.kind = (enum ry_nic_fault_kind)(take(w, 1) % (RY_FAULT_CLEAR + 2)),
                             .rail = (uint32_t)take(w, 1) % 2,
                             .peer = -1,
                             .p = (double)take(w, 1) / 200.0,
                             .for_ns = take(w, 1) * 16,
                             .delay_ns = take(w, 1) * 8,
                             .factor = 1.0 + (double)take(w, 1)};

    struct ry_nic *nic = w->side[take(w, 1) & 1].nic;

    nic->ops->fault(nic, &f);
}

static void drive(struct world *w, uint64_t ns)
{
    __atomic_store_n(&w->now, w->now + ns, __ATOMIC_RELAXED);
    for (int i = 0; i < 2; i++)
        w->side[i].nic->ops->drive(w->side[i].nic, w->now);
}

static void step(struct world *w)
{
    const struct ry_nic_ops *ops = w->side[0].nic->ops;

    switch (take(w, 1) % 12) {
    case 0: /* any 64 bytes anywhere in the ring */
    {
        uint8_t *b = (uint8_t *)&w->ring[take(w, 1) % DEPTH];

        for (int i = 0; i < 64; i += 8) {
            uint64_t v = take(w, 8);

            memcpy(b + i, &v, 8);
        }
        break;
    }
    case 1: /* any doorbell */
        __atomic_store_n(&w->dbr, (uint32_t)take(w, 4), __ATOMIC_RELEASE);
        ops->kick(w->from, (uint32_t)take(w, 4));
        break;
    case 2:
    case 3:
    case 4:
        block_near(w);
        break;
    case 5:
    case 6:
        __atomic_store_n(&w->dbr, ry_be32(w->prod & 0xffff), __ATOMIC_RELEASE);
        ops->kick(w->from, w->prod);
        break;
    case 7:
        drive(w, take(w, 2));
        break;
    case 8:
        ops->qp_error(w->from);
        ops->qp_flushed(w->from);
        break;
    case 9:
        ops->qp_fence_begin(w->to);
        ops->qp_fence_poll(w->to);
        break;
    case 10:
        path_close(w);
        path_open(w);
        break;
    default:
        fault(w);
        break;
    }
}

static void check(const struct world *w)
{
    struct ry_cqe_tail t = ry_observe_cqe(w->cqe);

    for (int s = 0; s < 2; s++) {
        for (int i = 0; i < EDGE; i++) {
            must(w->side[s].heap[i] == 0xa5);
            must(w->side[s].heap[HEAP - 1 - i] == 0xa5);
        }
    }
    must(t.opcode == RY_CQE_INVALID || t.qpn == w->from_addr.qpn);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len_bytes)
{
    struct world w = {.in = data, .left = len_bytes};
    uint8_t mode = (uint8_t)take(&w, 1);

    w.real = (mode & 1) != 0;
    w.ring = aligned_alloc(64, DEPTH * sizeof(*w.ring));
    w.cqe = aligned_alloc(64, sizeof(*w.cqe));
    must(w.ring != NULL && w.cqe != NULL);
    memset(w.ring, 0, DEPTH * sizeof(*w.ring));
    side_open(&w, 0, (mode & 2) != 0);
    side_open(&w, 1, (mode & 2) != 0);
    attach(&w, 0, 1);
    attach(&w, 1, 0);
    path_open(&w);
    for (int i = 0; i < STEPS && w.left > 0; i++)
        step(&w);
    drive(&w, 100000);
    drive(&w, 100000);
    check(&w);
    path_close(&w);
    for (int i = 0; i < 2; i++)
        w.side[i].nic->ops->peer_detach(w.side[i].nic, (uint32_t)(1 - i));
    for (int i = 0; i < 2; i++) {
        w.side[i].nic->ops->close(w.side[i].nic);
        munmap(w.side[i].map, HEAP + 2 * GUARD);
    }
    free(w.ring);
    free(w.cqe);
    return 0;
}
