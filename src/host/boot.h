/* SPDX-License-Identifier: Apache-2.0 */
/* Bootstrap and control: what PEs use to find each other and what their agents talk through.
 *
 * One ops table, because there are several ways: the launcher's hub (railyard run, ep, perf), TCP
 * with torchrun's variables, PMIx, an in-process hub for PEs that are threads, and the simulator's.
 *
 * Collectives are called by every PE in the same order, by one thread a PE. Control messages are
 * small datagrams between agents: they may be lost, doubled or late, never torn; the protocol
 * repeats them. Every call has a deadline (absolute, CLOCK_MONOTONIC ns) and returns 0 or a
 * negative ry_status. */
#ifndef RY_HOST_BOOT_H
#define RY_HOST_BOOT_H

#include <stddef.h>
#include <stdint.h>

enum { RY_CTL_BYTES_MAX = 512, RY_BOOT_FDS_MAX = 4, RY_BOOT_BYTES_MAX = 64 << 20 };

struct ry_boot;

enum ry_boot_event_type { RY_BOOT_PE_LOST = 1, RY_BOOT_PE_JOINED = 2, RY_BOOT_ABORT = 3 };

struct ry_boot_event {
    enum ry_boot_event_type type;
    uint32_t pe;
    uint32_t incarnation; /* of the PE that joined */
};

struct ry_boot_ops {
    /* Each PE gives `len` bytes (all the same length), out has n_pes * len bytes in PE order. If a
     * PE ends first: RY_ERR_LAUNCH and ry_last_error says which. */
    int (*allgather)(struct ry_boot *b, const void *in, size_t len, void *out,
                     uint64_t deadline_ns);
    /* Lengths may differ; *out is malloc'd and holds the parts in PE order, offs has n_pes + 1. */
    int (*allgatherv)(struct ry_boot *b, const void *in, size_t len, void **out, size_t *offs,
                      uint64_t deadline_ns);
    int (*barrier)(struct ry_boot *b, uint64_t deadline_ns);
    /* Give the PEs of this host `n` descriptors, get theirs: fds[pe * RY_BOOT_FDS_MAX + i], -1 for
     * PEs of other hosts. The receiver owns what it got. */
    int (*share_fds)(struct ry_boot *b, const int *mine, int n, int *fds, uint64_t deadline_ns);
    /* Is that PE a thread of this process? Then pointers may be exchanged instead of
     * descriptors. */
    int (*same_process)(struct ry_boot *b, uint32_t pe);
    int (*same_host)(struct ry_boot *b, uint32_t pe);

    /* Control datagrams, agent thread only. send never blocks (a full queue drops: 0 is returned).
     * recv: 1 and the message, 0 none. wait_fd: readable when recv or poll_event may have
     * something. */
    int (*ctl_send)(struct ry_boot *b, uint32_t pe, const void *msg, size_t len);
    int (*ctl_recv)(struct ry_boot *b, uint32_t *from, void *msg, size_t *len);
    int (*poll_event)(struct ry_boot *b, struct ry_boot_event *ev);
    int (*wait_fd)(struct ry_boot *b);

    void (*close)(struct ry_boot *b);
};

struct ry_boot {
    const struct ry_boot_ops *ops;
    uint32_t pe, n_pes;
    uint32_t node, n_nodes;     /* logical nodes: --nodes splits one machine into several */
    uint32_t local_pe, n_local; /* index within the node */
    uint32_t incarnation;       /* 0 at first start; a replacement has a greater one */
    uint64_t job;               /* id that is printed at start and that --job takes */
};

/* Opens what the environment asks for: an in-process hub given by `hub` (threads), else the
 * launcher's variables (RAILYARD_BOOT, RAILYARD_PE, RAILYARD_PES, RAILYARD_NODES, RAILYARD_JOB,
 * RAILYARD_SECRET), else PMIx where built and present, else torchrun's (MASTER_ADDR, MASTER_PORT,
 * RANK, WORLD_SIZE, LOCAL_RANK), else a job of one PE. */
struct ry_hub;
int ry_boot_open(struct ry_hub *hub, uint32_t hub_pe, uint64_t deadline_ns, struct ry_boot **out);

/* In-process hub for PEs that are threads. */
int ry_hub_create(uint32_t n_pes, uint32_t n_nodes, struct ry_hub **out);
void ry_hub_destroy(struct ry_hub *hub);

#endif
