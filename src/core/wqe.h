/* SPDX-License-Identifier: Apache-2.0 */
/* Send work requests (WQEs) in the mlx5 layout: one 64-byte block (WQEBB) each.
 *
 * Layout source: the control, remote-address, data, inline-data and atomic segments of the send WQE
 * in NVIDIA's (Mellanox') adapters programmer's reference manual; all fields are big endian:
 *
 *   0  opmod_idx_opcode   opmod:8  wqe_index:16  opcode:8
 *   4  qpn_ds             qpn:24   ds:8 (size in 16-byte units)
 *   8  signature:8, reserved:16, fm_ce_se:8 (bits 3:2 = 2: write a CQE)
 *   12 immediate          not sent by the opcodes used here: railyard keeps its tag in it
 *   16 raddr:64  24 rkey:32  28 reserved
 *   32 byte_count:32 (bit 31 set: inline data follows)  36 lkey:32  40 addr:64
 *   atomic: 32 swap_or_add:64  40 compare:64  48 byte_count, lkey, addr of the result
 *
 * The tag lets a mover carry a WQE from one ring to another without knowing who wrote it. */
#ifndef RY_CORE_WQE_H
#define RY_CORE_WQE_H

#include "core/base.h"

enum {
    RY_WQE_BYTES = 64,
    RY_WQE_SHIFT = 6,
    RY_INLINE_MAX_BYTES = 28, /* what fits one block behind the 4-byte inline header */
};

enum ry_opcode {
    RY_OP_NOP = 0x00,
    RY_OP_WRITE = 0x08,
    RY_OP_WRITE_IMM = 0x09,
    RY_OP_READ = 0x10,
    RY_OP_ATOMIC_CS = 0x11,
    RY_OP_ATOMIC_FA = 0x12,
    RY_OP_ATOMIC_MASKED_CS = 0x14,
    RY_OP_ATOMIC_MASKED_FA = 0x15,
};

#define RY_WQE_SIGNALLED 0x08u       /* fm_ce_se: completion wanted */
#define RY_WQE_INLINE    0x80000000u /* byte_count: inline data */

/* Tag: bits 0..7 local memory region, 8 signal (the word it writes belongs to the path's slot),
 * 9 wide signal (slots 16 bytes apart, else 8), 10 last block of its message, 11 probe (a read of
 * the mover or of quiet: it is not copied by a replay), 16..31 remote memory region. */
enum {
    RY_TAG_LMR = 0xff,
    RY_TAG_SIGNAL = 1u << 8,
    RY_TAG_WIDE = 1u << 9,
    RY_TAG_LAST = 1u << 10,
    RY_TAG_PROBE = 1u << 11,
    RY_TAG_RMR_SHIFT = 16,
};

struct ry_wqe {
    uint32_t opmod_idx_opcode;
    uint32_t qpn_ds;
    uint8_t signature;
    uint8_t rsvd[2];
    uint8_t fm_ce_se;
    uint32_t tag;
    uint64_t raddr;
    uint32_t rkey;
    uint32_t rsvd2;
    union {
        struct {
            uint32_t byte_count;
            uint32_t lkey;
            uint64_t addr;
            uint64_t pad[2];
        } data;
        struct {
            uint32_t byte_count;
            uint8_t bytes[RY_INLINE_MAX_BYTES];
        } inl;
        struct {
            uint64_t swap_add;
            uint64_t compare;
            uint32_t byte_count;
            uint32_t lkey;
            uint64_t addr;
        } atomic;
        uint64_t words[4];
    } u;
};

RY_STATIC_ASSERT(sizeof(struct ry_wqe) == RY_WQE_BYTES, "one WQE is one 64-byte block");
RY_STATIC_ASSERT(offsetof(struct ry_wqe, raddr) == 16, "remote address segment");
RY_STATIC_ASSERT(offsetof(struct ry_wqe, u) == 32, "data segment");

/* What a caller of core/ asks for, before it has a ring: all in host byte order. */
struct ry_req {
    uint8_t opcode;
    uint8_t inline_bytes; /* > 0: data in inl, no local address */
    uint16_t flags;       /* RY_REQ_* */
    uint32_t bytes;
    uint32_t tag; /* RY_TAG_*: regions, signal marks; LAST is added by the queue */
    uint64_t raddr;
    uint64_t laddr;
    uint64_t operand[2]; /* atomics: swap_add, compare; inline: the data */
};

enum { RY_REQ_SIGNALLED = 1 };

RY_FN uint8_t ry_wqe_opcode(const struct ry_wqe *w)
{
    return (uint8_t)(ry_be32(w->opmod_idx_opcode) & 0xff);
}
RY_FN uint32_t ry_wqe_qpn(const struct ry_wqe *w) { return ry_be32(w->qpn_ds) >> 8; }
RY_FN uint32_t ry_wqe_ds(const struct ry_wqe *w) { return ry_be32(w->qpn_ds) & 0x3f; }
RY_FN uint32_t ry_wqe_tag(const struct ry_wqe *w) { return ry_be32(w->tag); }
RY_FN bool ry_wqe_signalled(const struct ry_wqe *w) { return w->fm_ce_se & RY_WQE_SIGNALLED; }
RY_FN bool ry_wqe_atomic(uint8_t opcode) { return opcode >= RY_OP_ATOMIC_CS && opcode <= 0x15; }

/* Header of a WQE at ring index `idx` of queue pair `qpn`: what must change when it changes
 * rings. */
RY_FN void ry_wqe_head(struct ry_wqe *w, uint8_t opcode, uint32_t idx, uint32_t qpn, uint32_t ds)
{
    w->opmod_idx_opcode = ry_be32(((idx & 0xffffu) << 8) | opcode);
    w->qpn_ds = ry_be32((qpn << 8) | ds);
}

RY_FN void ry_wqe_nop(struct ry_wqe *w, uint32_t idx, uint32_t qpn, uint32_t tag, bool signalled)
{
    ry_wqe_head(w, RY_OP_NOP, idx, qpn, 1);
    w->signature = 0;
    w->rsvd[0] = w->rsvd[1] = 0;
    w->fm_ce_se = signalled ? RY_WQE_SIGNALLED : 0;
    w->tag = ry_be32(tag);
}

/* A whole block to its place in a ring, on the GPU by four stores of 16 bytes. */
RY_FN void ry_wqe_store(struct ry_wqe *to, const struct ry_wqe *w)
{
#if RY_ON_GPU
    const uint64_t *word = (const uint64_t *)w;

    for (int i = 0; i < 8; i += 2)
        asm volatile("st.global.v2.u64 [%0], {%1, %2};" ::"l"((uint64_t *)to + i), "l"(word[i]),
                     "l"(word[i + 1])
                     : "memory");
#else
    *to = *w;
#endif
}

RY_FN void ry_wqe_load(const struct ry_wqe *from, struct ry_wqe *w)
{
#if RY_ON_GPU
    uint64_t *word = (uint64_t *)w;

    for (int i = 0; i < 8; i += 2)
        asm volatile("ld.global.v2.u64 {%0, %1}, [%2];"
                     : "=l"(word[i]), "=l"(word[i + 1])
                     : "l"((const uint64_t *)from + i)
                     : "memory");
#else
    *w = *from;
#endif
}

/* The first 8 bytes of the last WQE: what a doorbell write carries. */
RY_FN uint64_t ry_wqe_doorbell(const struct ry_wqe *w)
{
    return (uint64_t)w->opmod_idx_opcode | ((uint64_t)w->qpn_ds << 32);
}

#endif
