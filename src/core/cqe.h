/* SPDX-License-Identifier: Apache-2.0 */
/* Completions (cqe64) in the mlx5 layout. Every ring has a collapsed CQ: one CQE, overwritten.
 *
 * Layout source: the 64-byte CQE in NVIDIA's (Mellanox') adapters programmer's reference manual.
 * Bytes 56 to 63, big endian: sop_qpn (8:24), wqe_counter (16), signature (8), op_own (opcode 4,
 * ... owner 1). An error CQE has vendor_err_synd at byte 54 and syndrome at byte 55. */
#ifndef RY_CORE_CQE_H
#define RY_CORE_CQE_H

#include "core/mem.h"

enum ry_cqe_opcode {
    RY_CQE_REQ = 0x0,
    RY_CQE_REQ_ERR = 0xd,
    RY_CQE_RESP_ERR = 0xe,
    RY_CQE_INVALID = 0xf,
};

/* Syndromes of an error CQE, as in the manual named above. */
enum ry_syndrome {
    RY_SYN_LOCAL_LENGTH = 0x01,
    RY_SYN_LOCAL_QP_OP = 0x02,
    RY_SYN_LOCAL_PROT = 0x04,
    RY_SYN_FLUSH = 0x05,
    RY_SYN_MW_BIND = 0x06,
    RY_SYN_BAD_RESP = 0x10,
    RY_SYN_LOCAL_ACCESS = 0x11,
    RY_SYN_REMOTE_INVALID_REQ = 0x12,
    RY_SYN_REMOTE_ACCESS = 0x13,
    RY_SYN_REMOTE_OP = 0x14,
    RY_SYN_RETRY_EXC = 0x15,
    RY_SYN_RNR_RETRY_EXC = 0x16,
    RY_SYN_REMOTE_ABORTED = 0x22,
};

struct ry_cqe {
    uint8_t rsvd[52];
    uint16_t rsvd2;
    uint8_t vendor_syndrome; /* error CQE only */
    uint8_t syndrome;        /* error CQE only */
    uint64_t tail;           /* QPN, counter, signature, op_own: one aligned load */
};

RY_STATIC_ASSERT(sizeof(struct ry_cqe) == 64, "cqe64");
RY_STATIC_ASSERT(offsetof(struct ry_cqe, syndrome) == 55, "syndrome");
RY_STATIC_ASSERT(offsetof(struct ry_cqe, tail) == 56, "qpn, counter, opcode");

struct ry_cqe_tail {
    uint32_t qpn;
    uint16_t counter;
    uint8_t opcode; /* enum ry_cqe_opcode */
    uint8_t owner;
};

RY_FN struct ry_cqe_tail ry_cqe_decode(uint64_t tail)
{
    uint64_t v = ry_be64(tail);
    struct ry_cqe_tail t;

    t.qpn = (uint32_t)(v >> 32) & 0xffffffu;
    t.counter = (uint16_t)(v >> 16);
    t.opcode = (uint8_t)((v >> 4) & 0xf);
    t.owner = (uint8_t)(v & 1);
    return t;
}

RY_FN uint64_t ry_cqe_encode(uint32_t qpn, uint16_t counter, uint8_t opcode, uint8_t owner)
{
    return ry_be64(((uint64_t)(qpn & 0xffffffu) << 32) | ((uint64_t)counter << 16) |
                   ((uint64_t)opcode << 4) | (owner & 1u));
}

/* Does this syndrome say that the request, and not the path, was wrong (rule 12)? */
RY_FN bool ry_syndrome_blames_request(uint8_t s)
{
    return s == RY_SYN_LOCAL_LENGTH || s == RY_SYN_LOCAL_PROT || s == RY_SYN_LOCAL_ACCESS ||
           s == RY_SYN_REMOTE_INVALID_REQ || s == RY_SYN_REMOTE_ACCESS || s == RY_SYN_REMOTE_OP;
}

/* NIC to waiter: everything the NIC wrote before this CQE is visible after the acquire load. One
 * 8-byte load, so that QPN, counter and opcode belong to the same completion (rule 5). */
RY_FN uint64_t ry_observe_cqe_tail(const struct ry_cqe *c) { return ry_ld_acq64(&c->tail); }

RY_FN struct ry_cqe_tail ry_observe_cqe(const struct ry_cqe *c)
{
    return ry_cqe_decode(ry_observe_cqe_tail(c));
}

/* Syndrome of the error completion whose tail was read; FLUSH if the NIC has written another over
 * it since (a collapsed CQ overwrites: the first error may be followed by flushes at once). */
RY_FN uint8_t ry_cqe_syndrome(const struct ry_cqe *c, uint64_t tail)
{
    uint64_t w = ry_be64(ry_ld_acq64((const uint64_t *)(const void *)c + 6));

    return ry_ld_acq64(&c->tail) == tail ? (uint8_t)w : (uint8_t)RY_SYN_FLUSH;
}

/* The emulated NIC's side of the same pair. */
RY_FN void ry_publish_cqe(struct ry_cqe *c, uint64_t tail) { ry_st_rel64(&c->tail, tail); }

#endif
