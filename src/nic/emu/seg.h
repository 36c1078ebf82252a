/* SPDX-License-Identifier: Apache-2.0 */
/* The segment: what one emulated NIC shows to the NICs of its peers.
 *
 * The initiator's side executes, so everything that a responder decides (is my port up, is this
 * key good, does this queue pair still accept) stands here, in memory that both processes map.
 * Nothing here bounds a copy alone: the initiator also holds every address against the heap that
 * it has itself mapped.
 *
 * | word                               | writer                                               |
 * |------------------------------------|------------------------------------------------------|
 * | head, port.up, gid_gen, stalled, nic | owner                                                |
 * | port.rate_bps, slow, nic.*         | owner (clocks: whoever sends, by compare-and-swap)   |
 * | mr[]                               | owner                                                |
 * | qp.state                           | owner; the peer's NIC, RTR -> ERR, by compare-and-swap |
 * | qp.qpn, rail, peer_pe, peer_qpn    | owner, while the state is RESET                      |
 * | qp.epsn, rx_*, tx_*                | the peer's NIC while RTR; owner while RESET          |
 * | qp.inflight                        | the peer's NIC, by add and subtract                  |
 * | qp.fatal, head.fatal_count         | the peer's NIC                                       |
 * | wake, armed                        | sleeper arms; whoever wrote this PE's memory wakes   |
 * | land.*                             | virtual time only: one thread                        | */
#ifndef RY_NIC_EMU_SEG_H
#define RY_NIC_EMU_SEG_H

#include "nic/nic.h"

enum {
    RY_EMU_MAGIC = 0x72796e63,
    RY_EMU_SEG_VERSION = 2,
    RY_EMU_MR_BITS = 10,
    RY_EMU_MRS = 1 << RY_EMU_MR_BITS,
    RY_EMU_LAND_BYTES = 512, /* data of one landing slot */
    RY_EMU_LANDS = 64,
};

/* Keys: 10 bits of index, 21 bits of generation; bit 31 tells a remote key from a local one. */
#define RY_EMU_RKEY_BIT 0x80000000u

enum ry_emu_state {
    RY_EMU_RESET = 0,
    RY_EMU_RTR = 1, /* responder */
    RY_EMU_RTS = 2, /* initiator */
    RY_EMU_ERR = 3,
    RY_EMU_DEAD = 4, /* initiator whose NIC died: it says nothing any more */
};

struct ry_emu_seg_port {
    uint32_t up;
    uint32_t gid_gen;
    uint32_t stalled;                  /* packets to it are neither taken nor refused */
    uint32_t slow;                     /* not the fast path: a rate, a cap, down, stalled or dead */
    uint64_t rate_bps;                 /* effective; 0 = unlimited */
    uint64_t tx_clock_ns, rx_clock_ns; /* reserved until */
    uint32_t nic;                      /* which nic[] it belongs to */
    uint32_t rsvd;
    uint64_t rsvd2[2];
};
RY_STATIC_ASSERT(sizeof(struct ry_emu_seg_port) == 64, "a port is one line");

struct ry_emu_seg_nic {
    uint32_t dead;
    uint32_t rsvd;
    uint64_t cap_bps;
    uint64_t tx_clock_ns, rx_clock_ns;
    uint64_t rsvd2[4];
};
RY_STATIC_ASSERT(sizeof(struct ry_emu_seg_nic) == 64, "a NIC is one line");

struct ry_emu_seg_mr {
    uint32_t key; /* the remote key; 0 = none */
    uint32_t lkey;
    uint32_t rail;
    uint32_t rsvd;
    uint64_t base, len_bytes;
};

struct ry_emu_seg_qp {
    uint32_t state; /* enum ry_emu_state */
    uint32_t qpn;
    uint32_t rail;
    uint32_t peer_pe;
    uint32_t peer_qpn;
    uint32_t epsn;     /* packet sequence number of the next message */
    uint32_t inflight; /* copies that a peer's NIC has begun and not ended */
    uint32_t fatal;    /* the peer's NIC put it in ERR and the owner has not said so yet */
    uint64_t rx_bytes, rx_ops;
    uint64_t tx_bytes, tx_ops; /* answers to reads */
};
RY_STATIC_ASSERT(sizeof(struct ry_emu_seg_qp) == 64, "a queue pair is one line");

/* Data that was acknowledged and is not in memory yet (virtual time only). */
struct ry_emu_seg_land {
    uint64_t due_ns;
    uint64_t order; /* 0 = free; else in the order taken */
    uint64_t addr;
    uint32_t qpn;
    uint32_t rail;
    uint32_t len_bytes;
    uint32_t rsvd;
    uint64_t rsvd2[2];
};
RY_STATIC_ASSERT(sizeof(struct ry_emu_seg_land) == 56, "data stands behind all of these");

enum { RY_EMU_LAND_AREA = RY_EMU_LANDS * (56 + RY_EMU_LAND_BYTES) };

struct ry_emu_seg {
    uint32_t magic, version;
    uint32_t pe, pid;
    uint32_t rails, qp_mask;
    uint32_t closed;
    uint32_t users; /* PEs that are threads: its own NIC and those attached; the last frees it */
    uint64_t len_bytes;
    uint64_t mr_off, qp_off, land_off; /* land_off 0: nothing is held back */
    uint32_t fatal_count;
    uint32_t land_used;
    uint64_t land_order;
    uint64_t land_min_ns; /* nothing held is due before this */
    uint64_t rsvd[5];
    /* sleeping: their own line */
    uint32_t wake;  /* futex: changes when memory was written or somebody called wake */
    uint32_t armed; /* 0: nobody means to sleep, so a writer need not say anything */
    uint32_t rsvd2[14];
    struct ry_emu_seg_port port[RY_RAILS_MAX];
    struct ry_emu_seg_nic nic[RY_RAILS_MAX];
};
RY_STATIC_ASSERT(offsetof(struct ry_emu_seg, wake) % 64 == 0, "futex on its own line");
RY_STATIC_ASSERT(offsetof(struct ry_emu_seg, port) % 64 == 0, "ports on lines");

static inline struct ry_emu_seg_mr *ry_emu_seg_mrs(struct ry_emu_seg *s)
{
    return (struct ry_emu_seg_mr *)((char *)s + s->mr_off);
}
static inline struct ry_emu_seg_qp *ry_emu_seg_qps(struct ry_emu_seg *s)
{
    return (struct ry_emu_seg_qp *)((char *)s + s->qp_off);
}
static inline struct ry_emu_seg_land *ry_emu_seg_lands(struct ry_emu_seg *s)
{
    return (struct ry_emu_seg_land *)((char *)s + s->land_off);
}

/* The data of landing slot i. */
static inline uint8_t *ry_emu_seg_land_data(struct ry_emu_seg *s, uint32_t i)
{
    return (uint8_t *)(ry_emu_seg_lands(s) + RY_EMU_LANDS) + (uint64_t)i * RY_EMU_LAND_BYTES;
}

#endif
