/* SPDX-License-Identifier: Apache-2.0 */
/* Building and taking down one run's world. The context is the product's struct, put together
 * without threads and without an operating system. */
#include <stdlib.h>
#include <string.h>

#include "host/agent.h"
#include "host/error.h"
#include "nic/emu/emu.h"
#include "sim/oracle.h"

uint64_t ry_sim_now(void *arg);
void ry_sim_relax(void *arg);
void ry_sim_kick(void *arg, struct ry_ring *ring, uint32_t prod_idx);

enum {
    US = 1000,
    PATH_TIMEOUT_NS = 60 * US,
    TIMEOUT_NS = 30000 * US,
    RECOVERY_NS = 100 * US,
    READY_NS = 20000 * US,
    LATENCY_NS = 300,
    RETRY_NS = 8 * US,
    WORLD_NS = 400000 * US, /* a run that has not ended by then hangs */
    AGENT_NS = 20 * US, /* an agent looks at least this often: a NIC's event wakes no one here */
    POLL_NS = 300,
    POLL_DOUBLINGS = 3,
};

static int open_nic(struct ry_sim_world *w, struct ry_sim_pe *pe, uint32_t i)
{
    struct ry_emu_cfg cfg = {
        .pe = i,
        .n_pes = w->plan.pes,
        .rails = w->plan.rails,
        .ports_per_nic = 2,
        .latency_ns = LATENCY_NS,
        .retry_count = 3,
        .retry_ns = RETRY_NS,
        .seed = w->plan.seed + i + 1000 * pe->boot.incarnation,
        .virtual_time = true,
        .threads = true,
        .now_ns = ry_sim_now,
        .chaos = w->plan.chaos,
    };

    return ry_emu_open(&cfg, &pe->ctx->mesh.nic);
}

static void settings(struct ry_config *c, const struct ry_sim_plan *p)
{
    ry_config_defaults(c);
    c->qp_depth = p->depth;
    c->handler = p->handler == RY_HANDLER_GPU   ? RY_USE_GPU
                 : p->handler == RY_HANDLER_CPU ? RY_USE_CPU
                                                : RY_USE_CPU_HOST_MEMORY;
    c->p2p = false;
    c->failover = RY_FAILOVER_ON;
    c->path_timeout_ns = PATH_TIMEOUT_NS;
    c->timeout_ns = TIMEOUT_NS;
    c->recovery_interval_ns = RECOVERY_NS;
    c->recovery_interval_max_ns = 16 * RECOVERY_NS;
    c->recovery_probes = 2;
    c->failure_threshold = 2;
    c->seed = p->seed;
}

static void quiet_event(void *arg, const struct ry_mesh *m, int type, uint32_t peer,
                        uint32_t channel, uint32_t rail, uint32_t to_rail,
                        const struct ry_channel *ch)
{
    (void)arg, (void)ch;
    ry_sim_trace("pe%u event %d peer %u channel %u rail %u -> %u", m->pe, type, peer, channel, rail,
                 to_rail);
}

static int join_world(struct ry_sim_world *w, struct ry_sim_pe *pe, uint32_t i)
{
    struct ry_ctx *ctx = pe->ctx;
    struct ry_mesh *m = &ctx->mesh;
    struct ry_nic_export ex = {.fd = -1};
    int rc;

    settings(ctx->config, &w->plan);
    ctx->boot = &pe->boot;
    ctx->threads = true;
    ctx->heap_fd = ctx->wake_fd = ctx->proxy_fd = -1;
    ctx->start_timeout_ns = WORLD_NS;
    m->pe = i;
    m->n_pes = w->plan.pes;
    m->boot = &pe->boot;
    m->heap = pe->heap;
    m->heap_bytes = w->plan.ep ? RY_SIM_HEAP : RY_SIM_HEAP_PLAIN; /* it is cleared for each run */
    m->sys_bytes = ry_ctx_sys_layout(ctx, false);
    memset(m->heap, 0, m->heap_bytes);
    ry_ctx_sys_layout(ctx, true);
    ctx->amo.peer = calloc(m->n_pes, sizeof(*ctx->amo.peer));
    if (!ctx->amo.peer || ry_heap_init(ctx))
        return RY_ERR_NO_MEMORY;
    m->virtual_time = true;
    ry_ctx_fill_cfg(ctx);
    m->on_event = quiet_event;
    m->cfg.seq_first = w->plan.seq_first;
    m->cfg.epoch_first = w->plan.epoch_first;
    m->env.now_ns = ry_sim_now;
    m->env.relax = ry_sim_relax;
    m->env.kick = ry_sim_kick;
    m->env.ready_ns_max = READY_NS;
    m->env.move_ns_max = 2 * PATH_TIMEOUT_NS;
    m->env.batch = w->plan.sched & 1 ? 8 : 0; /* as on the host, and as on a GPU */
    rc = pe->boot.incarnation ? ry_ctx_agree(ctx, WORLD_NS) : RY_OK;
    if (rc == RY_OK)
        rc = open_nic(w, pe, i);
    if (rc == RY_OK)
        rc = m->nic->ops->export_seg(m->nic, &ex);
    if (rc)
        return rc;
    ry_sim_nic_due(i);
    strcpy(m->hello.nic, "sim");
    m->hello.seg_bytes = ex.len_bytes;
    m->hello.seg_base = (uint64_t)(uintptr_t)ex.base;
    rc = ry_mesh_hello(m, WORLD_NS);
    for (uint32_t q = 0; rc == RY_OK && q < m->n_pes; q++) {
        m->peers[q].heap = (void *)(uintptr_t)m->peers[q].hello.heap_base;
        m->peers[q].seg = (void *)(uintptr_t)m->peers[q].hello.seg_base;
    }
    if (rc == RY_OK)
        ry_ctx_take_counts(ctx);
    if (rc == RY_OK)
        rc = ry_mesh_connect(m, WORLD_NS);
    return rc == RY_OK && pe->boot.incarnation ? m->boot->ops->barrier(m->boot, WORLD_NS) : rc;
}

/* An agent that looks again and again whether a NIC is done does so less and less often, as any
 * wait does; messages wake it, those that come while it is at work all together. */
static uint64_t agent_rest(struct ry_sim_pe *pe, uint64_t next, uint32_t *polls)
{
    uint64_t now = ry_sim->now_ns, ctl = ry_sim_ctl_due(pe->boot.pe), rest;

    rest = next > now ? next - now : 1;
    *polls = rest <= POLL_NS ? *polls + 1 : 0;
    if (*polls)
        rest <<= *polls < POLL_DOUBLINGS ? *polls : POLL_DOUBLINGS;
    if (ctl < now + rest)
        rest = ry_max64(ctl, now + ry_sim_draw(&ry_sim->sched_rng, POLL_NS) + 1) - now;
    return ry_min64(rest, AGENT_NS);
}

static void agent_task(void *arg)
{
    struct ry_sim_pe *pe = arg;
    uint32_t polls = 0;

    for (;;) {
        uint64_t now, next;

        pthread_rwlock_rdlock(&pe->ctx->peers_lock);
        pe->stepping = true;
        now = ry_sim->now_ns;
        ry_ctx_boot_events(pe->ctx);
        next = ry_agent_step(&pe->ctx->mesh, now);
        ry_amo_work(pe->ctx);
        pe->stepping = false;
        pthread_rwlock_unlock(&pe->ctx->peers_lock);
        ry_sim_sleep(agent_rest(pe, next, &polls));
    }
}

static bool proxy_look(struct ry_ctx *ctx)
{
    bool any;

    pthread_rwlock_rdlock(&ctx->peers_lock);
    any = ry_mesh_proxy_look(&ctx->mesh);
    pthread_rwlock_unlock(&ctx->peers_lock);
    return any;
}

/* Sleeps until it is told that a producer slot was written (ry_sim_proxy_told). */
static void proxy_task(void *arg)
{
    struct ry_sim_pe *pe = arg;

    for (;;) {
        uint64_t told = pe->told;

        if (proxy_look(pe->ctx) || pe->told != told)
            ry_sim_sleep(50);
        else
            ry_sim_sleep(RY_SIM_NEVER - ry_sim->now_ns);
    }
}

static void start(struct ry_sim_world *w, uint32_t pe, enum ry_sim_role role, void (*run)(void *))
{
    uint32_t i = pe * RY_SIM_TASKS_A_PE + role;
    struct ry_sim_task *t = &w->task[i];

    if (!ry_coro_start(&t->coro, run, &w->pe[pe])) {
        ry_sim_violate("no memory for a coroutine");
        return;
    }
    t->pe = pe;
    t->relaxed = 0;
    t->slow = false;
    ry_sim_wake(pe, role, w->now_ns + ry_sim_below(&w->sched_rng, 100));
}

static void main_task(void *arg)
{
    struct ry_sim_pe *pe = arg;
    struct ry_sim_world *w = ry_sim;
    uint32_t i = pe->boot.pe;
    int rc = join_world(w, pe, i);

    if (rc == RY_ERR_LAUNCH && pe->boot.incarnation) {
        ry_sim_called_off(pe);
        return;
    }
    if (rc) {
        ry_sim_violate("start: pe %u could not start: %s", i, ry_last_error());
        return;
    }
    start(w, i, RY_SIM_AGENT, agent_task);
    if (w->plan.handler != RY_HANDLER_GPU)
        start(w, i, RY_SIM_PROXY, proxy_task);
    if (w->plan.second) {
        w->live_apps++;
        start(w, i, RY_SIM_SECOND, ry_sim_second);
    }
    ry_sim_app(pe);
}

bool ry_sim_pe_make(struct ry_sim_world *w, uint32_t i)
{
    struct ry_sim_pe *pe = &w->pe[i];

    if (!pe->heap)
        pe->heap = aligned_alloc(4096, RY_SIM_HEAP);
    pe->ctx = calloc(1, sizeof(*pe->ctx));
    if (!pe->heap || !pe->ctx)
        return false;
    pe->ctx->config = calloc(1, sizeof(*pe->ctx->config));
    if (!pe->ctx->config)
        return false;
    pthread_mutex_init(&pe->ctx->lock, NULL);
    pthread_mutex_init(&pe->ctx->amo.lock, NULL);
    pthread_rwlock_init(&pe->ctx->peers_lock, NULL);
    pe->ctx->log.fd = -1;          /* the trace says it */
    pe->nic_due_ns = RY_SIM_NEVER; /* it has none yet */
    pe->n_ctl = 0;
    pe->told = 0;
    pe->n_events = pe->seen_events = 0;
    pe->finished = pe->stepping = false;
    pe->rc = 0;
    ry_sim_workload_init(w, i);
    if (!pe->boot.incarnation) /* a replacement counts once it is in */
        w->live_apps++;
    start(w, i, RY_SIM_APP, main_task);
    return true;
}

static bool build(struct ry_sim_world *w)
{
    bool ok = true;

    for (uint32_t i = 0; ok && i < w->plan.pes; i++) {
        ry_sim_boot_init(w, i);
        ok = ry_sim_pe_make(w, i);
    }
    return ok;
}

/* What its channels have been through. */
static void account(struct ry_sim_world *w)
{
    for (uint32_t i = 0; i < w->plan.pes; i++) {
        const struct ry_mesh *m = &w->pe[i].ctx->mesh;

        for (uint32_t q = 0; w->pe[i].ctx && m->peers && q < w->plan.pes; q++) {
            for (uint32_t c = 0; m->peers[q].out && c < m->peers[q].n_channels; c++) {
                w->moves += m->peers[q].out[c].ch->moves;
                w->moves_planned += m->peers[q].out[c].ch->moves_planned;
                w->replayed += m->peers[q].out[c].ch->replayed;
            }
        }
    }
}

static void close_mesh(struct ry_ctx *ctx)
{
    if (!ctx || !ctx->mesh.nic)
        return;
    ry_mesh_teardown_qps(&ctx->mesh);
    ry_mesh_teardown(&ctx->mesh);
}

static void free_ctx(struct ry_ctx *ctx)
{
    if (!ctx)
        return;
    if (ctx->mesh.nic)
        ctx->mesh.nic->ops->close(ctx->mesh.nic);
    ry_heap_fini(ctx);
    free(ctx->amo.peer);
    free(ctx->job_block);
    free(ctx->config);
    free(ctx);
}

/* One heap for each PE stays for the next run. */
static void free_left(struct ry_sim_world *w)
{
    for (uint32_t i = 0; i < w->n_left; i++) {
        struct ry_sim_pe *left = &w->left[i].pe, *pe = &w->pe[left->boot.pe];

        free_ctx(left->ctx);
        if (pe->heap)
            free(left->heap);
        else
            pe->heap = left->heap;
        left->ctx = NULL;
    }
    w->n_left = 0;
}

static void take_down(struct ry_sim_world *w)
{
    for (uint32_t i = 0; i < RY_SIM_TASKS; i++) {
        w->task[i].coro.run = NULL;
        w->task[i].slow = false; /* else the next run would not begin as a first one does */
        w->wake_ns[i] = RY_SIM_NEVER;
    }
    for (uint32_t i = 0; i < w->plan.pes; i++) {
        ry_sim_workload_fini(&w->pe[i]);
        close_mesh(w->pe[i].ctx);
    }
    for (uint32_t i = 0; i < w->n_left; i++) {
        ry_sim_workload_fini(&w->left[i].pe);
        close_mesh(w->left[i].pe.ctx);
    }
    for (uint32_t i = 0; i < w->plan.pes; i++) {
        free_ctx(w->pe[i].ctx);
        w->pe[i].ctx = NULL;
    }
    free_left(w);
    ry_sim_meet_clear(&w->meet);
    memset(w->lost, 0, sizeof(w->lost));
}

static void describe_slots(const struct ry_out_channel *oc, const struct ry_peer *far)
{
    for (uint32_t k = 0; k < RY_SLOTS; k++) {
        const struct ry_out_slot *o = &oc->slot[k];
        const struct ry_ring *r = &oc->ch->ring[k];

        if (o->state == RY_OUT_EMPTY && o->host.fenced_epoch >= r->epoch)
            continue;
        ry_sim_trace("    slot %u state %d life %lld armed %lld cond %lld failed %lld fenced %lld "
                     "ring %lld [%llu,%llu) proven %llu far %d/%lld",
                     k, (int)o->state, (long long)o->epoch, (long long)o->host.armed_epoch,
                     (long long)o->host.condemn_epoch, (long long)r->failed_epoch,
                     (long long)o->host.fenced_epoch, (long long)r->epoch,
                     (unsigned long long)r->first, (unsigned long long)r->carried,
                     (unsigned long long)ry_packed_seq(r->proven),
                     (int)far->in[oc->ch->id * RY_SLOTS + k].state,
                     (long long)far->in[oc->ch->id * RY_SLOTS + k].epoch);
    }
}

/* Who still runs, when a run does not end. */
static void describe_hang(struct ry_sim_world *w)
{
    for (uint32_t i = 0; i < w->plan.pes; i++) {
        struct ry_mesh *m = &w->pe[i].ctx->mesh;

        for (uint32_t q = 0; w->pe[i].ctx && m->peers && q < w->plan.pes; q++) {
            for (uint32_t c = 0; c < m->peers[q].n_channels; c++) {
                struct ry_out_channel *oc = &m->peers[q].out[c];
                uint64_t st = oc->ch->state;
                struct ry_ring *r = &oc->ch->ring[ry_state_active(st)];

                ry_sim_trace("pe%u->%u.%u %s state %d slot %u resv %llu ready %llu cons %llu rel "
                             "%llu",
                             i, q, c, w->pe[i].finished ? "done" : "runs", (int)ry_state_of(st),
                             ry_state_active(st), (unsigned long long)ry_packed_seq(r->resv_head),
                             (unsigned long long)ry_packed_seq(r->ready_head),
                             (unsigned long long)ry_packed_seq(r->cons),
                             (unsigned long long)oc->ch->released);
                if (oc->ch->blame_set || oc->ch->streak)
                    ry_sim_trace("    suspicion: syndrome %x of %llu, streak %u at %llu",
                                 (unsigned)oc->ch->blame_set, (unsigned long long)oc->ch->blame_seq,
                                 (unsigned)oc->ch->streak, (unsigned long long)oc->ch->streak_seq);
                if (!w->pe[i].finished && w->pe[q].ctx && w->pe[q].ctx->mesh.peers)
                    describe_slots(oc, &w->pe[q].ctx->mesh.peers[i]);
            }
        }
    }
}

bool ry_sim_once(struct ry_sim_world *w, const struct ry_sim_plan *plan)
{
    ry_sim = w;
    w->plan = *plan;
    for (uint32_t i = 0; i < RY_SIM_FAULTS; i++)
        w->plan.fault[i].done = false;
    w->now_ns = 1000000;
    w->rng = plan->seed * 0x2545f4914f6cdd1dull + 1;
    w->sched_rng = plan->sched;
    w->steps = w->events = w->ops = w->ep_rounds = 0;
    w->moves = w->moves_planned = w->replayed = 0;
    w->live_apps = 0;
    w->failed = false;
    w->violation[0] = '\0';
    w->traced = 0;
    w->running = NULL;
    w->horizon_ns = w->fault_ns = w->base_ns = 0;
    w->ready = 0;
    for (uint32_t i = 0; i < RY_SIM_TASKS; i++)
        w->wake_ns[i] = RY_SIM_NEVER;
    w->skip_max = plan->point_p ? 2 * 65536 / plan->point_p + 1 : 0;
    ry_sim_skip_draw(w);
    ry_sim_counter_mask = (uint16_t)((1u << plan->bits) - 1);
    if (!build(w))
        ry_sim_violate("no memory for the world");
    ry_sim_run_world(w, w->now_ns + WORLD_NS);
    if (!w->failed && w->live_apps) {
        describe_hang(w);
        ry_sim_violate("progress: %u applications have not ended after %d ms", w->live_apps,
                       WORLD_NS / 1000000);
    }
    if (!w->failed)
        ry_oracle_agree();
    account(w);
    if (!w->failed)
        ry_sim_check_end(w);
    if (!w->failed)
        ry_oracle_needless(w->moves - w->moves_planned);
    take_down(w);
    ry_sim = NULL;
    return !w->failed;
}
