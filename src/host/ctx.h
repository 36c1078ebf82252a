/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of a context: the mesh, and what the operating system gives it. */
#ifndef RY_HOST_CTX_H
#define RY_HOST_CTX_H

#include <pthread.h>
#include <railyard/context.h>
#include <railyard/fault.h>

#include "host/amo.h"
#include "host/barrier.h"
#include "host/mesh.h"

struct ry_fault_plan_state;
struct ry_config;

struct ry_heap_block {
    uint64_t offset, bytes;
    bool used;
    struct ry_heap_block *next;
};

struct ry_ctx {
    struct ry_mesh mesh; /* first: the mesh's waits know their context by it */
    struct ry_boot *boot;
    struct ry_config *config;
    int heap_fd;
    struct ry_heap_block *blocks;
    uint64_t heap_used;
    struct ry_amo amo;
    struct ry_barrier barrier;
    int pending_error; /* of queued operations, for the next quiet */

    pthread_t agent, proxy;
    bool agent_on, proxy_on;
    bool stop; /* atomic */
    int wake_fd;
    pthread_mutex_t lock; /* event callback, fault plan, status */
    ry_event_cb event_cb;
    void *event_arg;

    struct ry_fault_plan_state *faults;
    uint64_t fault_base_ns; /* ry_fault_start */
    uint64_t ops;           /* posted since then */
};

#define RY_CTX_OF_MESH(m) ((struct ry_ctx *)(m))

#endif
