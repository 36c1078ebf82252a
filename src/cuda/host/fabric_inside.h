/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RY_CUDA_FABRIC_INSIDE_H
#define RY_CUDA_FABRIC_INSIDE_H

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdbool.h>

#include "cuda/fabric.h"

enum { RY_FABRIC_PARTS_MAX = 4, RY_FABRIC_CHANNELS_MAX = RY_GNIC_QPS_MAX / RY_SLOTS };

/* Where the cpu_host_memory handler's words stand: the initiator's slot, the proxy's echo, and what
 * the NIC reads, one life in each half. */
struct ry_fabric_bell {
    uint64_t pslot, pecho;
    struct {
        uint64_t uar;
        uint32_t dbr, rsvd;
    } half[2];
    uint64_t rsvd[2];
};

/* Words that host and GPU share, in pinned memory. */
struct ry_fabric_pinned {
    struct ry_slot_host slot[RY_FABRIC_CHANNELS_MAX][RY_SLOTS];
    uint64_t report[RY_FABRIC_CHANNELS_MAX][RY_SLOTS];
    uint64_t tripped[RY_GNIC_PORTS_MAX];
    uint64_t hint;
    struct ry_gpu_status status;
    struct ry_fabric_bell bell[RY_FABRIC_CHANNELS_MAX][RY_SLOTS];
    uint64_t base;             /* of a ring, as the proxy copied it */
    struct ry_gnic_qp staging; /* of copies to the GPU */
    uint64_t word;
    uint8_t cqe[64];
};

/* The agent's own account of a slot. */
struct ry_fabric_slot {
    uint64_t epoch;
    uint32_t port, peer_port;
    bool armed;  /* the life `epoch` is offered and has not ended */
    bool failed; /* it has ended, and the slot waits to be armed again */
};

struct ry_fabric_pe {
    int device;
    bool started;
    void *memory;
    uint8_t *heap;
    uint8_t *own; /* the caller's */
    struct ry_channel *ch_device, *ch_host;
    uint64_t *totals, *down, *stop;
    struct ry_gnic_qp *qp_device;
    struct ry_gnic_port *port_device;
    struct ry_gnic_engine *engines;
    uint32_t *keys;
    uint8_t *words, *rings;
    struct ry_fabric_pinned *pinned;
    struct ry_gpu_world world;
    cudaStream_t engine_stream, copy_stream, mover_stream, proxy_stream;
    struct ry_fabric_slot slot[RY_FABRIC_CHANNELS_MAX][RY_SLOTS];
    uint64_t failed_ns[RY_FABRIC_CHANNELS_MAX]; /* of failures that were counted */
};

/* A port's change that the agent has not heard of yet. */
struct ry_fabric_event {
    uint64_t at_ns;
    bool waits, up;
};

struct ry_gpu_fabric {
    struct ry_gpu_fabric_attr attr;
    struct ry_fabric_pe pe[RY_GNIC_PES_MAX];
    struct ry_fabric_event event[RY_GNIC_PES_MAX * RY_GNIC_PORTS_MAX];
    bool port_down[RY_GNIC_PES_MAX * RY_GNIC_PORTS_MAX]; /* as the agent knows it */
    uint32_t next_qpn;
    uint64_t unsettled_until_ns;
    pthread_mutex_t lock; /* everything above, between the agent and callers */
    pthread_t thread;
    bool running, stop;
    pthread_t proxy;
    bool proxy_running;
    uint32_t proxy_stop;
};

int ry_fabric_agent_start(struct ry_gpu_fabric *f);
void ry_fabric_agent_stop(struct ry_gpu_fabric *f);

/* Handler cpu_host_memory: the thread that rings doorbells. */
int ry_fabric_proxy_start(struct ry_gpu_fabric *f);
void ry_fabric_proxy_stop(struct ry_gpu_fabric *f);

#endif
