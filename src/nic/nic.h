/* SPDX-License-Identifier: Apache-2.0 */
/* One NIC interface, one ops table a backend (emu, verbs, mlx5).
 *
 * A ry_nic is the set of rails that one PE uses through one backend; it is an object, several may
 * live in one process. Queue pairs come in two kinds: an initiator has a send ring and a collapsed
 * CQ and sends only; a responder has neither and only receives (one queue pair per direction, so
 * that a fence on one does not flush the other).
 *
 * Data path: the caller (core/queue) writes 64-byte WQEs into the ring, then the doorbell record
 * and the doorbell word, then calls ops->kick, where a software backend learns that there is work.
 * The backend writes the CQE. ops->drive lets any thread that posts or waits do the NIC's work
 * itself.
 *
 * Thread safety: kick, drive, idle, counters, peer_sent and rail_state may be called by any thread
 * at any time; all other calls on one ry_nic come from one thread at a time (the agent's, or the
 * creator's before the agent runs). All calls return 0 or a negative ry_status and never block
 * longer than their comment says. */
#ifndef RY_NIC_H
#define RY_NIC_H

#include "core/layout.h"

struct ry_nic;
struct ry_nic_qp;
struct ry_config;

enum { RY_NIC_NAME_BYTES = 64, RY_GID_BYTES = 16 };

struct ry_rail_info {
    char name[RY_NIC_NAME_BYTES]; /* device:port */
    uint32_t nic;                 /* which NIC of this PE's set: rails of one NIC share it */
    uint32_t port;                /* 1-based */
    uint64_t rate_bps;            /* bytes a second; 0 = not limited (emulated) */
    uint32_t mtu_bytes;
    uint32_t lid;
    uint32_t link_layer; /* 1 InfiniBand, 2 Ethernet, 3 emulated */
    uint32_t distance;   /* to the PE's GPU: enum ry_distance of topo.h, 0 = unknown */
    uint8_t gid[RY_GID_BYTES];
};

enum ry_port_state { RY_PORT_DOWN = 0, RY_PORT_UP = 1 };

/* Where the other end of a queue pair is: exchanged between PEs as it stands (little endian). */
struct ry_qp_addr {
    uint32_t pe;
    uint32_t rail;
    uint32_t qpn;
    uint32_t psn;
    uint32_t lid;
    uint32_t mtu_bytes;
    uint8_t gid[RY_GID_BYTES];
};
RY_STATIC_ASSERT(sizeof(struct ry_qp_addr) == 40, "queue pair address on the wire");

enum ry_qp_kind { RY_QP_INITIATOR, RY_QP_RESPONDER };

struct ry_qp_attr {
    enum ry_qp_kind kind;
    uint32_t rail;
    uint32_t peer;
    struct ry_wqe *ring; /* initiator: `depth` blocks, 64-byte aligned, owned by the caller */
    uint32_t depth;
    struct ry_cqe *cqe; /* initiator: the one CQE of the collapsed CQ, owned by the caller */
    uint32_t *dbr;      /* initiator: doorbell record (big endian producer index, 16 bits used) */
    uint64_t *uar;      /* initiator: doorbell word */
};

struct ry_mr {
    uint32_t lkey, rkey;
};

enum ry_nic_event_type {
    RY_EV_PORT_DOWN = 1, /* rail */
    RY_EV_PORT_UP,       /* rail */
    RY_EV_GID_CHANGE,    /* rail */
    RY_EV_NIC_FATAL,     /* every rail of that NIC: rail names one */
    RY_EV_QP_FATAL,      /* rail, qpn */
};

struct ry_nic_event {
    enum ry_nic_event_type type;
    uint32_t rail;
    uint32_t qpn;
    uint64_t at_ns;
};

struct ry_rail_counters {
    uint64_t tx_bytes, rx_bytes; /* payload bytes of WRITE, READ, SEND as they cross the port */
    uint64_t tx_ops, rx_ops;
    uint64_t retries, errors;
};

/* What one PE shows to the others so that their NICs can reach it (emulated NIC: memory that its
 * own process and theirs map; others: nothing). fd = -1 where none is needed. */
struct ry_nic_export {
    int fd;
    uint64_t len_bytes;
    void *base; /* in this process: for PEs that are threads of it */
};

struct ry_nic_peer {
    uint32_t pe;
    void *seg; /* the peer's export, mapped here */
    uint64_t seg_len_bytes;
    void *heap; /* the peer's heap, mapped here; NULL where the backend does not need it */
    uint64_t heap_len_bytes;
    uint64_t heap_base; /* address of the heap's first byte as the peer's registrations name it */
};

enum ry_nic_fault_kind {
    RY_FAULT_PORT_DOWN,
    RY_FAULT_PORT_UP,
    RY_FAULT_STALL,
    RY_FAULT_DROP,
    RY_FAULT_ACK_DROP,
    RY_FAULT_DELAY,
    RY_FAULT_GHOST,
    RY_FAULT_CQE_ERROR,
    RY_FAULT_QP_ERROR,
    RY_FAULT_NIC_DOWN,
    RY_FAULT_SLOW,
    RY_FAULT_GID_CHANGE,
    RY_FAULT_CLEAR
};

struct ry_nic_fault {
    enum ry_nic_fault_kind kind;
    uint32_t rail;
    int32_t peer;    /* only traffic to this PE; -1: all */
    double p;        /* drop, ack-drop: probability */
    uint64_t for_ns; /* 0: until cleared */
    uint64_t delay_ns, jitter_ns;
    double factor; /* slow */
    uint8_t syndrome, vendor;
    uint64_t seed;
};

struct ry_nic_ops {
    const char *name;

    /* Rails. info is filled for rail < rail_count. */
    uint32_t (*rail_count)(struct ry_nic *nic);
    int (*rail_info)(struct ry_nic *nic, uint32_t rail, struct ry_rail_info *info);
    enum ry_port_state (*rail_state)(struct ry_nic *nic, uint32_t rail);
    int (*counters)(struct ry_nic *nic, uint32_t rail, struct ry_rail_counters *out);
    /* Payload bytes that each rail has sent to that peer, rail_count of them; counted where the
     * backend counts anyway. */
    int (*peer_sent)(struct ry_nic *nic, uint32_t peer, uint64_t *bytes);

    /* Memory of this PE: registered on one rail. remote: peers may read, write and do atomics. */
    int (*mr_reg)(struct ry_nic *nic, uint32_t rail, void *base, uint64_t len_bytes, bool remote,
                  struct ry_mr *out);
    int (*mr_dereg)(struct ry_nic *nic, uint32_t rail, struct ry_mr mr);

    /* Queue pairs. create leaves it in RESET with a QPN that was not used before; connect takes it
     * through INIT and RTR (responder) or RTS (initiator); AGAIN, for a tenth of a second at most:
     * the network is being asked where the peer is, try again soon. */
    int (*qp_create)(struct ry_nic *nic, const struct ry_qp_attr *attr, struct ry_nic_qp **out,
                     struct ry_qp_addr *addr);
    int (*qp_connect)(struct ry_nic_qp *qp, const struct ry_qp_addr *remote);
    /* To ERR. flushed: 1 once every WQE has a final state and the NIC reads no source any more,
     * 0 not yet, negative: cannot be had (dead NIC). */
    int (*qp_error)(struct ry_nic_qp *qp);
    int (*qp_flushed)(struct ry_nic_qp *qp);
    /* Responder to RESET and its NIC flushed: everything it took is in memory, nothing will come.
     * Begin, then poll: 1 done, 0 not yet, negative: cannot be had. */
    int (*qp_fence_begin)(struct ry_nic_qp *qp);
    int (*qp_fence_poll)(struct ry_nic_qp *qp);
    void (*qp_destroy)(struct ry_nic_qp *qp);
    /* Last step of the fence's ladder: cut this rail off so that no peer's write can land. */
    int (*rail_cut)(struct ry_nic *nic, uint32_t rail);

    /* Data path. prod_idx: ring index behind the newest WQE (16 bits count). */
    void (*kick)(struct ry_nic_qp *qp, uint32_t prod_idx);
    /* Do what is due now; returns the time at which something is due next (UINT64_MAX: nothing). */
    uint64_t (*drive)(struct ry_nic *nic, uint64_t now_ns);
    /* Sleep until a word of this PE's memory was written (a long write need not count), a
     * completion came, somebody called wake, or until_ns. */
    void (*idle)(struct ry_nic *nic, uint64_t until_ns);
    void (*wake)(struct ry_nic *nic);
    /* Plain stores were made in the heap of `pe`: wake who idles there. NULL: its idle looks by
     * itself. */
    void (*wake_peer)(struct ry_nic *nic, uint32_t pe);

    /* Events, oldest first: 1 and *ev, or 0. event_fd: readable when there may be one; -1: poll. */
    int (*poll_event)(struct ry_nic *nic, struct ry_nic_event *ev);
    int (*event_fd)(struct ry_nic *nic);

    /* Emulated fabric; others: no export (fd -1, len 0), peer_attach does nothing. */
    int (*export_seg)(struct ry_nic *nic, struct ry_nic_export *out);
    int (*peer_attach)(struct ry_nic *nic, const struct ry_nic_peer *peer);
    void (*peer_detach)(struct ry_nic *nic, uint32_t pe);
    int (*fault)(struct ry_nic *nic, const struct ry_nic_fault *f); /* unsupported on real NICs */

    void (*close)(struct ry_nic *nic);
};

struct ry_nic {
    const struct ry_nic_ops *ops;
};

#endif
