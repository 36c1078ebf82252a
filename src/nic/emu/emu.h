/* SPDX-License-Identifier: Apache-2.0 */
/* The emulated NIC: opening one. Everything else goes through nic.h's ops table.
 *
 * It takes the mlx5 data path as it is (64-byte send WQEs, doorbell record and word, cqe64) and
 * moves bytes between heaps that it has mapped. The initiator's side executes: it reads its own
 * ring, checks keys and states in the peer's segment, copies, completes. See
 * doc/emulated-nic.md. */
#ifndef RY_NIC_EMU_H
#define RY_NIC_EMU_H

#include "nic/nic.h"

/* Adversary of the simulator; all zero in the product. Times in ns, probabilities in 1/65536. */
struct ry_emu_chaos {
    uint32_t visible_delay_ns_max; /* acknowledged, but not yet in memory, for up to this long */
    uint32_t exec_delay_ns_max;    /* a WQE starts this late */
    uint32_t ack_delay_ns_max;     /* CQE this much behind the acknowledgement */
    uint32_t reorder_p;            /* visibility order between different queue pairs is shuffled */
    uint32_t lost_cqe_p;           /* executed, and its completion never written */
};

struct ry_emu_cfg {
    uint32_t pe, n_pes;
    uint32_t rails;
    uint32_t ports_per_nic;
    const uint32_t *place;    /* [rails] each rail's port, counted through all NICs; NULL: in
                                 order; copied */
    const uint64_t *rate_bps; /* per rail, 0 = unlimited; NULL: all unlimited; copied */
    uint64_t nic_cap_bps;     /* per NIC besides, 0 = none */
    uint64_t latency_ns;      /* one way, added to the port's time */
    uint32_t retry_count;     /* 0..7; 7 = for ever, as rxe has it */
    uint64_t retry_ns;        /* time-out of one try */
    uint64_t seed;
    uint32_t qpn_first; /* first queue pair number given; 0: from the seed */
    bool virtual_time;  /* simulator: no thread, no sleep, no system call; all in drive() */
    bool threads;       /* the export is plain memory of this process, no memfd */
    uint64_t (*now_ns)(void *arg); /* clock, never NULL */
    void *clock_arg;
    struct ry_emu_chaos chaos;
};

/* Errors: INVALID (rails 0 or > RY_RAILS_MAX ...), NO_MEMORY, SYSTEM. */
int ry_emu_open(const struct ry_emu_cfg *cfg, struct ry_nic **out);

/* Write the port tree in the form of /sys/class/infiniband under `dir` (created, 0700):
 * DEVICE/ports/N/ {state,rate,counters/port_xmit_data,...}, data counters in 4-byte units as the
 * kernel has them. */
int ry_emu_tree_write(struct ry_nic *nic, const char *dir);

/* Virtual time: when data that a peer's NIC has acknowledged lands here next. That NIC put it here,
 * so that drive() of this one may have said that nothing is due. */
uint64_t ry_emu_lands_ns(struct ry_nic *nic);

#endif
