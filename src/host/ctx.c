/* SPDX-License-Identifier: Apache-2.0 */
/* Making and leaving a context. */
#include "host/ctx.h"

#include <railyard/rma.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/clock.h"
#include "host/control.h"
#include "host/error.h"
#include "host/heap_map.h"

enum {
    READY_NS = 1000000000,  /* another thread in mid-submit: much longer than any time slice */
    MOVE_NS = 50 * 1000000, /* one mover's work before it parks the channel */
    NAP_NS = 2 * 1000000,
    SPIN_SHARED_NS = 1000,
    LEAVE_NS = 2000000000, /* longest wait for the others at the end */
};

static uint64_t env_now(void *arg)
{
    (void)arg;
    return ry_clock_ns();
}

/* What is waited for in here is another thread of this process in mid-submit, or the NIC. That
 * thread may be waiting for this very core: without the yield a mover that took it away from a
 * submitter would spin to the end of its slice. */
static void env_relax(void *arg)
{
    struct ry_ctx *ctx = arg;

    ctx->mesh.nic->ops->drive(ctx->mesh.nic, ry_clock_ns());
    sched_yield();
}

static void env_kick(void *arg, struct ry_ring *ring, uint32_t prod_idx)
{
    struct ry_ctx *ctx = arg;

    ctx->mesh.nic->ops->kick(ring->nic_qp, prod_idx);
}

/* Front of the heap: the word that proofs read, landing words, atomics, barrier. */
uint64_t ry_ctx_sys_layout(struct ry_ctx *ctx, bool place)
{
    uint64_t n = ctx->boot->n_pes, at = 64 + 8 * n * RY_CHANNELS_MAX;
    uint64_t amo = (at + 255) & ~255ull;
    uint64_t barrier = amo + n * sizeof(struct ry_amo_inbox);
    uint64_t end = barrier + RY_BARRIER_ROUNDS * sizeof(struct ry_sector);

    if (place) {
        ctx->amo.inbox = (struct ry_amo_inbox *)(void *)(ctx->mesh.heap + amo);
        ctx->barrier.sector = (struct ry_sector *)(void *)(ctx->mesh.heap + barrier);
    }
    return (end + 4095) & ~4095ull;
}

/* Values that the settings leave to the backend. */
static void resolve_auto(struct ry_config *c)
{
    bool emu;

    ry_ctx_pick_nic(c);
    emu = c->nic == RY_NIC_EMU;
    if (!c->path_timeout_ns)
        c->path_timeout_ns = emu ? 50000000ull : 250000000ull;
    if (!c->timeout_ns)
        c->timeout_ns = emu ? 2000000000ull : 10000000000ull;
}

void ry_ctx_fill_cfg(struct ry_ctx *ctx)
{
    const struct ry_config *c = ctx->config;
    struct ry_mesh *m = &ctx->mesh;

    m->cfg = (struct ry_mesh_cfg){
        .channels = c->channels,
        .depth = c->qp_depth,
        .chunk_bytes = (uint32_t)c->chunk_bytes,
        .handler = c->handler == RY_USE_CPU               ? RY_HANDLER_CPU
                   : c->handler == RY_USE_CPU_HOST_MEMORY ? RY_HANDLER_CPU_HOST_MEMORY
                                                          : RY_HANDLER_GPU,
        .failover = c->failover != RY_FAILOVER_OFF,
        .path_timeout_ns = c->path_timeout_ns,
        .timeout_ns = c->timeout_ns,
        .check_ns = c->check_interval_ns,
        .recovery_ns = c->recovery_interval_ns,
        .recovery_ns_max = c->recovery_interval_max_ns,
        .failure_threshold = c->failure_threshold,
        .probes = c->recovery_probes ? c->recovery_probes : 1,
        .seed = c->seed,
        .epoch_first = 1,
        .seq_first = 0,
    };
    m->env = (struct ry_env){
        .now_ns = env_now,
        .relax = env_relax,
        .kick = env_kick,
        .arg = ctx,
        .ready_ns_max = READY_NS,
        .move_ns_max = ry_max64(MOVE_NS, c->path_timeout_ns),
        .lost_ns_max = c->timeout_ns,
        .width = 1,
    };
    if (!m->virtual_time)
        m->crowded = ctx->boot->n_pes > (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
    m->spin_ns = m->crowded ? ry_min64(c->spin_ns, SPIN_SHARED_NS) : c->spin_ns;
    m->nap_ns = NAP_NS;
    m->on_event = ry_ctx_event;
    m->event_arg = ctx;
    m->work = ry_amo_work;
    m->work_arg = ctx;
    m->hello.node = ctx->boot->node;
    m->hello.channels = c->channels;
    m->hello.failover = m->cfg.failover;
    m->hello.p2p = c->p2p;
    m->hello.heap_base = (uint64_t)(uintptr_t)m->heap;
}

/* The block is made once, before anything that was left to the machine is resolved: a replacement
 * brings it unresolved too. */
int ry_ctx_agree(struct ry_ctx *ctx, uint64_t deadline_ns)
{
    char *all = calloc(ctx->boot->n_pes, RY_CONFIG_JOB_BYTES);
    int rc;

    if (!ctx->job_block) {
        ctx->job_block = calloc(1, RY_CONFIG_JOB_BYTES);
        if (ctx->job_block)
            ry_config_job(ctx->config, ctx->job_block);
    }
    rc = ctx->job_block && all ? RY_OK : ry_fail(RY_ERR_NO_MEMORY, "no memory for the settings");
    if (rc == RY_OK)
        rc = ctx->boot->ops->allgather(ctx->boot, ctx->job_block, RY_CONFIG_JOB_BYTES, all,
                                       deadline_ns);
    if (rc == RY_OK)
        rc = ry_config_agree(all, ctx->boot->n_pes);
    free(all);
    return rc;
}

/* Settings, the others, memory. */
static int begin(struct ry_ctx *ctx, const ry_ctx_attr *attr, uint64_t *deadline_ns)
{
    int rc = ry_config_load(ctx->config, attr->settings, attr->n_settings);
    void *heap;

    if (rc)
        return rc;
    ctx->start_timeout_ns = ctx->config->start_timeout_ns;
    *deadline_ns = ry_clock_ns() + ctx->start_timeout_ns;
    rc = ry_boot_open(attr->hub, attr->hub_pe, *deadline_ns, &ctx->boot);
    if (rc)
        return rc;
    ctx->log = ry_log_make(ctx->config->debug, (int32_t)ctx->boot->pe);
    if (ctx->boot->pe == 0 && ctx->config->warnings[0])
        ry_log_lines(&ctx->log, RY_DEBUG_WARN, ctx->config->warnings);
    rc = ry_ctx_agree(ctx, *deadline_ns);
    if (rc)
        return rc;
    ctx->threads = attr->hub != NULL;
    ctx->mesh.pe = ctx->boot->pe;
    ctx->mesh.n_pes = ctx->boot->n_pes;
    ctx->mesh.boot = ctx->boot;
    ctx->mesh.sys_bytes = ry_ctx_sys_layout(ctx, false);
    ctx->mesh.heap_bytes = (ctx->config->heap_size_bytes + 4095) & ~4095ull;
    if (ctx->mesh.heap_bytes < ctx->mesh.sys_bytes + 4096)
        return ry_fail(RY_ERR_CONFIG,
                       "heap too small: %llu bytes, and %u pes need at least %llu: raise "
                       "RAILYARD_HEAP_SIZE",
                       (unsigned long long)ctx->mesh.heap_bytes, ctx->mesh.n_pes,
                       (unsigned long long)ctx->mesh.sys_bytes + 4096);
    rc = ry_map_create(ctx->mesh.heap_bytes, !ctx->threads, &heap, &ctx->heap_fd);
    if (rc)
        return rc;
    ctx->mesh.heap = heap;
    ry_ctx_sys_layout(ctx, true);
    ctx->amo.peer = calloc(ctx->mesh.n_pes, sizeof(*ctx->amo.peer));
    return ctx->amo.peer ? ry_heap_init(ctx) : ry_fail(RY_ERR_NO_MEMORY, "no memory");
}

void ry_ctx_take_counts(struct ry_ctx *ctx)
{
    for (uint32_t q = 0; q < ctx->mesh.n_pes; q++) {
        const struct ry_hello *h = &ctx->mesh.peers[q].hello;

        ctx->barrier.count = ry_max64(ctx->barrier.count, h->barrier_count);
        if (ctx->mesh.hello.incarnation)
            ctx->mallocs_theirs = ry_max64(ctx->mallocs_theirs, h->mallocs);
    }
}

/* NIC, peers, connections, threads. */
static int join_job(struct ry_ctx *ctx, uint64_t deadline_ns)
{
    struct ry_nic_export ex = {.fd = -1};
    int rc;

    resolve_auto(ctx->config);
    ry_ctx_fill_cfg(ctx);
    rc = ry_ctx_open_nic(ctx, &ctx->mesh.nic);
    if (rc == RY_OK)
        rc = ry_ctx_choose_homes(ctx);
    if (rc == RY_OK)
        rc = ctx->mesh.nic->ops->export_seg(ctx->mesh.nic, &ex);
    if (rc)
        return rc;
    ctx->mesh.hello.seg_bytes = ex.len_bytes;
    ctx->mesh.hello.seg_base = (uint64_t)(uintptr_t)ex.base;
    rc = ry_mesh_hello(&ctx->mesh, deadline_ns);
    if (rc == RY_OK) {
        ry_ctx_take_counts(ctx);
        rc = ry_ctx_map_peers(ctx, &ex, NULL, deadline_ns);
    }
    if (rc == RY_OK)
        rc = ry_mesh_connect(&ctx->mesh, deadline_ns);
    if (rc == RY_OK)
        rc = ry_control_start(ctx);
    if (rc == RY_OK)
        rc = ry_ctx_threads_start(ctx);
    if (rc == RY_OK)
        rc = ctx->boot->ops->barrier(ctx->boot, deadline_ns);
    return rc;
}

static void release(struct ry_ctx *ctx)
{
    ry_ctx_threads_stop(ctx);
    ry_control_stop(ctx);
    if (ctx->mesh.nic) {
        ry_mesh_teardown_qps(&ctx->mesh);
        for (uint32_t q = 0; ctx->mesh.peers && q < ctx->mesh.n_pes; q++)
            ry_ctx_unmap_peer(ctx, &ctx->mesh.peers[q]);
        ry_mesh_teardown(&ctx->mesh);
        ctx->mesh.nic->ops->close(ctx->mesh.nic);
    }
    ry_heap_fini(ctx);
    if (!ctx->kept)
        ry_map_release(ctx->mesh.heap, ctx->mesh.heap_bytes);
    if (ctx->heap_fd >= 0)
        close(ctx->heap_fd);
    free(ctx->amo.peer);
    if (ctx->boot)
        ctx->boot->ops->close(ctx->boot);
    pthread_mutex_destroy(&ctx->lock);
    pthread_mutex_destroy(&ctx->amo.lock);
    pthread_rwlock_destroy(&ctx->peers_lock);
    free(ctx->job_block);
    free(ctx->config);
    free(ctx);
}

int ry_ctx_create(const ry_ctx_attr *attr, ry_ctx **out)
{
    static const ry_ctx_attr none = {0};
    struct ry_ctx *ctx = calloc(1, sizeof(*ctx));
    uint64_t deadline_ns = 0;
    int rc;

    if (!ctx)
        return ry_fail(RY_ERR_NO_MEMORY, "no memory for a context");
    ctx->heap_fd = ctx->wake_fd = ctx->proxy_fd = -1;
    pthread_mutex_init(&ctx->lock, NULL);
    pthread_mutex_init(&ctx->amo.lock, NULL);
    pthread_rwlock_init(&ctx->peers_lock, NULL);
    ctx->config = calloc(1, sizeof(*ctx->config));
    rc = ctx->config ? begin(ctx, attr ? attr : &none, &deadline_ns)
                     : ry_fail(RY_ERR_NO_MEMORY, "no memory for the settings");
    if (rc == RY_OK)
        rc = join_job(ctx, deadline_ns);
    if (rc) {
        release(ctx);
        return rc;
    }
    *out = ctx;
    return RY_OK;
}

void ry_ctx_destroy(ry_ctx *ctx)
{
    if (!ctx)
        return;
    /* peers may still read and write here: all meet before anything is taken away */
    ry_quiet(ctx);
    ctx->boot->ops->barrier(ctx->boot, ry_clock_ns() + LEAVE_NS);
    /* and once more when no agent is left that could still probe a path */
    ry_ctx_threads_stop(ctx);
    ctx->boot->ops->barrier(ctx->boot, ry_clock_ns() + LEAVE_NS);
    if (ctx->threads) {
        /* one memory: a NIC still at work must have let go of a peer's before that is freed */
        ry_mesh_teardown_qps(&ctx->mesh);
        ctx->kept = ctx->boot->ops->barrier(ctx->boot, ry_clock_ns() + LEAVE_NS) != RY_OK;
    }
    release(ctx);
}
