/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of a context: the mesh, and what the operating system gives it. */
#ifndef RY_HOST_CTX_H
#define RY_HOST_CTX_H

#include <pthread.h>
#include <railyard/context.h>
#include <railyard/fault.h>

#include "host/amo.h"
#include "host/barrier.h"
#include "host/config.h"
#include "host/log.h"
#include "host/mesh.h"

struct ry_control;
struct ry_fault_plan_state;

struct ry_heap_block {
    uint64_t offset, bytes;
    bool used;
    struct ry_heap_block *next;
};

struct ry_ctx {
    struct ry_mesh mesh; /* first: the mesh's waits know their context by it */
    struct ry_boot *boot;
    struct ry_config *config;
    char *job_block; /* settings as they were before the machine resolved some (ry_config_job) */
    int heap_fd;
    struct ry_heap_block *blocks;
    uint64_t heap_used;
    struct ry_amo amo;
    struct ry_barrier barrier;
    uint64_t start_timeout_ns;

    pthread_t agent, proxy;
    bool agent_on, proxy_on;
    bool stop; /* atomic */
    int wake_fd, proxy_fd;
    uint32_t proxy_spin;
    bool threads; /* PEs are threads of this process */
    bool kept;    /* the heap stays: a PE that has not left may be about to write it */
    /* ry_malloc calls so far, and for a replacement those of the others: up to them it gives what
     * they have, without asking them */
    uint64_t mallocs, mallocs_theirs;
    pthread_rwlock_t peers_lock; /* agent and proxy read peers; a rejoin changes one */
    struct ry_log log;
    uint64_t told_ns[RY_RAILS_MAX];
    uint64_t ports_due_ns; /* ctx_rails.c */
    pthread_mutex_t lock;  /* event callback, fault plan, status */
    ry_event_cb event_cb;
    void *event_arg;

    struct ry_control *control; /* control.c */
    struct ry_fault_plan_state *faults;
    uint64_t fault_base_ns; /* ry_fault_start */
    uint64_t ops;           /* posted since then */
};

/* ctx.c: also for the simulator, which has neither threads nor an operating system. Bytes of the
 * heap's front, placed when `place`; settings to mesh and env. */
int ry_ctx_agree(struct ry_ctx *ctx, uint64_t deadline_ns);
/* A replacement joins the counts that the survivors are at, and these the highest of theirs: some
 * knew of the loss before a barrier that others began. */
void ry_ctx_take_counts(struct ry_ctx *ctx);
uint64_t ry_ctx_sys_layout(struct ry_ctx *ctx, bool place);
void ry_ctx_fill_cfg(struct ry_ctx *ctx);

/* ctx_nic.c, ctx_peers.c, ctx_thread.c, ctx_event.c */
/* auto becomes the backend that this machine has. */
void ry_ctx_pick_nic(struct ry_config *c);
int ry_ctx_open_nic(struct ry_ctx *ctx, struct ry_nic **out);
/* The emulated ports that RAILYARD_HCA takes of so many, in its order: place[] and *n. CONFIG. */
int ry_ctx_select_emu(const struct ry_config *c, uint32_t ports, uint32_t *place, uint32_t *n);
/* Exchanges descriptors with all and maps those in `set` (NULL: all peers). */
int ry_ctx_map_peers(struct ry_ctx *ctx, const struct ry_nic_export *ex, const uint64_t *set,
                     uint64_t deadline_ns);
void ry_ctx_unmap_peer(struct ry_ctx *ctx, struct ry_peer *p);
/* PEs that were lost or have joined, as the bootstrap tells; the agent's, with peers_lock held. */
void ry_ctx_boot_events(struct ry_ctx *ctx);
int ry_ctx_threads_start(struct ry_ctx *ctx);
void ry_ctx_threads_stop(struct ry_ctx *ctx);
void ry_ctx_event(void *arg, const struct ry_mesh *m, int type, uint32_t peer, uint32_t channel,
                  uint32_t rail, uint32_t to_rail, const struct ry_channel *ch);

/* rejoin.c. Has a replacement of that lost PE come since it was met, whatever became of it? Does
 * one wait? And ry_rejoin for those in `set`, a bit each, who are all that are missing. */
bool ry_ctx_came(const struct ry_ctx *ctx, uint32_t pe);
bool ry_ctx_waits(const struct ry_ctx *ctx, uint32_t pe);
int ry_ctx_rejoin(struct ry_ctx *ctx, const uint64_t *set);

/* ctx_rails.c */
int ry_ctx_choose_homes(struct ry_ctx *ctx);
/* Writes the emulated ports below RAILYARD_EMU_SYSFS, where set; the agent does so at times. */
void ry_ctx_show_ports(struct ry_ctx *ctx);
uint64_t ry_ctx_ports_tick(struct ry_ctx *ctx, uint64_t now_ns);

/* heap.c */
int ry_heap_init(struct ry_ctx *ctx);
void ry_heap_fini(struct ry_ctx *ctx);

#endif
