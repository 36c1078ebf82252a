/* SPDX-License-Identifier: Apache-2.0 */
/* From the 64 bytes of a ring block to an operation. The ring is written by somebody else, who
 * may be wrong: every length is held against the block, nothing is believed twice. */
#include <string.h>

#include "nic/emu/emu_int.h"

/* opmod of the 32-bit masked forms: the manual's extended atomics of 4 bytes. 0 is taken as the
 * same. */
enum { OPMOD_EXT32 = 0x08 };

static void decode_data(const struct ry_wqe *w, uint32_t ds, struct ry_emu_op *op)
{
    uint32_t count = ry_be32(w->u.data.byte_count);

    if (ds == 2)
        return; /* no data segment: zero bytes */
    if ((count & RY_WQE_INLINE) != 0) {
        uint32_t n = count & ~RY_WQE_INLINE;

        if (n > RY_INLINE_MAX_BYTES || 2 + (4 + n + 15) / 16 > ds || op->opcode == RY_OP_READ) {
            op->bad = RY_SYN_LOCAL_QP_OP;
            return;
        }
        op->is_inline = true;
        op->bytes = n;
        memcpy(op->data, w->u.inl.bytes, n);
        return;
    }
    if (ds != 3) { /* one data segment is all that this NIC takes */
        op->bad = RY_SYN_LOCAL_QP_OP;
        return;
    }
    op->bytes = count;
    op->lkey = ry_be32(w->u.data.lkey);
    op->laddr = ry_be64(w->u.data.addr);
}

static void decode_atomic(const struct ry_wqe *w, uint32_t ds, uint8_t opmod, struct ry_emu_op *op)
{
    bool masked = op->opcode == RY_OP_ATOMIC_MASKED_CS || op->opcode == RY_OP_ATOMIC_MASKED_FA;
    uint32_t count = ry_be32(w->u.atomic.byte_count);

    if (ds != 4 || count != (masked ? 4u : 8u) || (masked && opmod != OPMOD_EXT32 && opmod != 0)) {
        op->bad = RY_SYN_LOCAL_QP_OP;
        return;
    }
    op->bytes = count;
    op->lkey = ry_be32(w->u.atomic.lkey);
    op->laddr = ry_be64(w->u.atomic.addr);
    if (masked) {
        uint64_t a = ry_be64(w->u.atomic.swap_add), b = ry_be64(w->u.atomic.compare);

        op->swap32 = (uint32_t)(a >> 32);
        op->cmp32 = (uint32_t)a; /* fetch-and-add: the field boundaries */
        op->swap_mask = (uint32_t)(b >> 32);
        op->cmp_mask = (uint32_t)b;
    } else {
        op->operand = ry_be64(w->u.atomic.swap_add);
        op->compare = ry_be64(w->u.atomic.compare);
    }
    if ((op->laddr & (count - 1)) != 0)
        op->bad = RY_SYN_LOCAL_QP_OP;
}

void ry_emu_decode(const struct ry_wqe *ring, uint32_t qpn, struct ry_emu_op *op)
{
    struct ry_wqe w;
    uint32_t head, ds;

    memcpy(&w, ring, sizeof(w)); /* one look: the block may change under us */
    head = ry_be32(w.opmod_idx_opcode);
    ds = ry_be32(w.qpn_ds) & 0xff;
    op->opcode = (uint8_t)head;
    op->bad = 0;
    op->signalled = ry_wqe_signalled(&w);
    op->is_inline = false;
    op->bytes = 0;
    op->lkey = 0;
    op->laddr = 0;
    op->rkey = ry_be32(w.rkey);
    op->raddr = ry_be64(w.raddr);
    if (ds == 0 || ds > 4 || ry_wqe_qpn(&w) != qpn) {
        op->bad = RY_SYN_LOCAL_QP_OP;
        return;
    }
    switch (op->opcode) {
    case RY_OP_NOP:
        return;
    case RY_OP_WRITE:
    case RY_OP_WRITE_IMM:
    case RY_OP_READ:
        if (ds < 2)
            op->bad = RY_SYN_LOCAL_QP_OP;
        else
            decode_data(&w, ds, op);
        return;
    case RY_OP_ATOMIC_CS:
    case RY_OP_ATOMIC_FA:
    case RY_OP_ATOMIC_MASKED_CS:
    case RY_OP_ATOMIC_MASKED_FA:
        decode_atomic(&w, ds, (uint8_t)(head >> 24), op);
        return;
    default:
        op->bad = RY_SYN_LOCAL_QP_OP;
    }
}
