/* SPDX-License-Identifier: Apache-2.0 */
/* PEs of one process with heaps in device memory, joined by channels over the emulated NIC: for
 * tests and measurements of what kernels do when a port goes down. Several PEs may share a GPU. */
#ifndef RY_CUDA_FABRIC_H
#define RY_CUDA_FABRIC_H

#include "cuda/nic.h"
#include "cuda/world.h"

struct ry_gpu_fabric;

struct ry_gpu_fabric_attr {
    uint32_t pes, ports, channels, depth;
    uint32_t devices; /* PE p is on GPU p % devices */
    uint32_t parts;   /* engine blocks of a port */
    uint32_t nodes;   /* 0 = 1: PEs of other nodes are never written directly */
    uint64_t heap_bytes;
    uint64_t own_bytes; /* of GPU memory that no NIC knows, for each PE */
    uint64_t rate_bps;  /* of a port; 0: no limit */
    uint64_t retry_ns;  /* of an engine whose port is down */
    uint64_t timeout_ns;
    int direct;        /* heaps of peers of one node are written directly */
    int failover;      /* 0: no backup is armed */
    int failback;      /* channels return to their home path when it is good again */
    uint32_t handler;  /* enum ry_handler; cpu needs gpu memory that the host maps: UNSUPPORTED */
    uint64_t event_ns; /* from a port's change to the agent's hearing of it */
};

#ifdef __cplusplus
extern "C" {
#endif

/* Takes memory, starts engines and the agent's thread, and waits until every channel has a path. */
int ry_gpu_fabric_open(const struct ry_gpu_fabric_attr *attr, struct ry_gpu_fabric **out);
void ry_gpu_fabric_close(struct ry_gpu_fabric *f);

/* The argument of kernels of this PE. */
const struct ry_gpu_world *ry_gpu_fabric_world(const struct ry_gpu_fabric *f, uint32_t pe);
void *ry_gpu_fabric_heap(const struct ry_gpu_fabric *f, uint32_t pe);
void *ry_gpu_fabric_own(const struct ry_gpu_fabric *f, uint32_t pe);
/* 0, or the first failure that a kernel of this PE left behind: its peer, channel and rail. Clears
 * it. */
int ry_gpu_fabric_status(struct ry_gpu_fabric *f, uint32_t pe, uint32_t *peer, uint32_t *channel,
                         uint32_t *rail);

/* A port goes down or comes back. `after` > 0: down by itself when its NIC has run that many more
 * WQEs. */
int ry_gpu_fabric_port(struct ry_gpu_fabric *f, uint32_t pe, uint32_t port, int up, uint64_t after);
/* Wait until every slot of every channel whose ports are up is armed again. */
int ry_gpu_fabric_settle(struct ry_gpu_fabric *f, uint64_t timeout_ns);

struct ry_gpu_fabric_counts {
    uint64_t moves, planned, replayed;
    uint64_t switch_ns_max; /* longest time from failure seen to first good completion, of failures
                             * since the last count */
    uint64_t alone;         /* records that ran before the rest because of a suspicion */
    uint64_t parks;         /* times that a channel had no usable path */
    uint64_t port_bytes[RY_GNIC_PORTS_MAX];
};
/* Copies channels and counters from the GPU. */
int ry_gpu_fabric_count(struct ry_gpu_fabric *f, uint32_t pe, struct ry_gpu_fabric_counts *out);

int ry_mover_launch(const struct ry_gpu_world *w, uint64_t for_ns, uint32_t planned, void *stream);

#ifdef __cplusplus
}
#endif

#endif
