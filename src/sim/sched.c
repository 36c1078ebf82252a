/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler: virtual time, who runs next, and the hooks by which core/ yields to it. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "sim/oracle.h"

enum {
    STEP_NS = 40,   /* a task that yields at a shared access goes on about this much later */
    RELAX_NS = 150, /* first sleep of a wait */
    RELAX_DOUBLINGS = 7,
    PROXY_NS = 800,      /* a proxy sees a new producer slot this much later */
    OPENED_NS = 3000,    /* who sleeps until a ring was opened goes on this much later */
    STEPS_MAX = 2000000, /* a run has some 12,000: more is a loop that goes nowhere */
};

struct ry_sim_world *ry_sim;
int ry_mutant;
uint64_t ry_sim_skip;
uint16_t ry_sim_counter_mask = 0xffff;

/* The running task goes on later. If nobody else has anything to do before then, that is now. */
void ry_sim_sleep(uint64_t ns)
{
    struct ry_sim_world *w = ry_sim;

    if (w->now_ns + ns < w->horizon_ns) {
        w->now_ns += ns;
        return;
    }
    w->wake_ns[w->running - w->task] = w->now_ns + ns;
    ry_coro_yield();
}

void ry_sim_wake(uint32_t pe, enum ry_sim_role role, uint64_t at_ns)
{
    struct ry_sim_world *w = ry_sim;
    uint32_t i = pe * RY_SIM_TASKS_A_PE + role;

    if (!w->task[i].coro.run || w->task[i].coro.done || w->wake_ns[i] <= at_ns)
        return;
    w->wake_ns[i] = at_ns;
    if (w->running != &w->task[i])
        w->horizon_ns = ry_min64(w->horizon_ns, at_ns);
}

void ry_sim_nic_due(uint32_t pe)
{
    ry_sim->pe[pe].nic_due_ns = ry_sim->now_ns;
    ry_sim->horizon_ns = 0;
}

/* On the average every 65536 / point_p-th access; how far apart they are is uniform. */
void ry_sim_skip_draw(struct ry_sim_world *w)
{
    ry_sim_skip = w->skip_max ? ry_sim_draw(&w->sched_rng, w->skip_max) : UINT64_MAX;
}

/* A shared access: another task runs first, sometimes for long. */
void ry_sim_point(void)
{
    struct ry_sim_world *w = ry_sim;

    if (!w) {
        ry_sim_skip = UINT64_MAX;
        return;
    }
    ry_sim_skip_draw(w);
    if (!w->running)
        return;
    if (ry_sim_chance(&w->sched_rng, w->plan.stall_p))
        ry_sim_sleep(ry_sim_draw(&w->sched_rng, w->plan.stall_ns + 1) + 1);
    else
        ry_sim_sleep(ry_sim_draw(&w->sched_rng, 2 * STEP_NS) + 1);
}

/* Asleep where it is most dangerous. */
void ry_sim_slow(void)
{
    struct ry_sim_world *w = ry_sim;
    struct ry_sim_task *t = w ? w->running : NULL;

    if (!t || !w->plan.slow_p || !w->skip_max ||
        (w->plan.slow_agents && (t - w->task) % RY_SIM_TASKS_A_PE != RY_SIM_AGENT) ||
        !ry_sim_chance(&w->sched_rng, w->plan.slow_p))
        return;
    t->slow = true;
    ry_sim_sleep(ry_sim_below(&w->sched_rng, RY_SIM_SLOW_NS) + 1);
    t->slow = false;
}

/* A ring was opened: of those that sleep some wake. */
void ry_sim_opened(void)
{
    struct ry_sim_world *w = ry_sim;
    uint32_t pe = w && w->running ? w->running->pe : RY_SIM_PES;

    for (uint32_t role = 0; pe < RY_SIM_PES && role < RY_SIM_TASKS_A_PE; role++)
        if (w->task[pe * RY_SIM_TASKS_A_PE + role].slow && ry_sim_below(&w->sched_rng, 2))
            ry_sim_wake(pe, (enum ry_sim_role)role,
                        w->now_ns + ry_sim_below(&w->sched_rng, OPENED_NS) + 1);
}

uint64_t ry_sim_now(void *arg)
{
    (void)arg;
    return ry_sim->now_ns;
}

void ry_sim_relax(void *arg)
{
    struct ry_sim_world *w = ry_sim;
    uint32_t n;

    (void)arg;
    if (!w->running)
        return;
    n = w->running->relaxed++;
    ry_sim_sleep(
        ry_sim_draw(&w->sched_rng, RELAX_NS << (n < RELAX_DOUBLINGS ? n : RELAX_DOUBLINGS)) + 20);
}

void ry_sim_kick(void *arg, struct ry_ring *ring, uint32_t prod_idx)
{
    struct ry_ctx *ctx = arg;
    struct ry_sim_world *w = ry_sim;

    if (w->verbose) {
        const struct ry_wqe *q = &ring->wqe[(prod_idx - 1) & ring->mask];

        ry_sim_trace("pe%u rings qp %x index %u: opcode %x", ctx->mesh.pe, ring->qpn, prod_idx,
                     ry_wqe_opcode(q));
    }
    ctx->mesh.nic->ops->kick(ring->nic_qp, prod_idx);
    ry_sim_nic_due(ctx->mesh.pe);
}

/* Somebody has written a producer slot of the running task's PE: the proxy looks soon. */
void ry_sim_proxy_told(void)
{
    struct ry_sim_world *w = ry_sim;

    if (!w || !w->running)
        return;
    w->pe[w->running->pe].told++;
    ry_sim_wake(w->running->pe, RY_SIM_PROXY, w->now_ns + ry_sim_draw(&w->sched_rng, PROXY_NS) + 1);
}

void ry_sim_trace_line(const char *form, ...)
{
    struct ry_sim_world *w = ry_sim;
    char *to = w->trace[w->traced++ % RY_SIM_TRACE];
    int n = snprintf(to, sizeof(w->trace[0]), "%10.3f us ", (double)w->now_ns / 1e3);
    va_list args;

    va_start(args, form);
    vsnprintf(to + n, sizeof(w->trace[0]) - (size_t)n, form, args);
    va_end(args);
}

void ry_sim_violate(const char *form, ...)
{
    struct ry_sim_world *w = ry_sim;
    va_list args;

    if (w->failed || (w->running && ry_sim_stopped(w->running->pe)))
        return; /* who was masked and lives may fail as it likes */
    w->failed = true;
    w->horizon_ns = 0;
    va_start(args, form);
    vsnprintf(w->violation, sizeof(w->violation), form, args);
    va_end(args);
    ry_sim_trace("VIOLATION %s", w->violation);
}

void ry_sim_ready(struct ry_sim_world *w)
{
    if (++w->ready < w->plan.pes)
        return;
    w->base_ns = w->fault_ns = w->now_ns;
    w->horizon_ns = 0;
}

/* Faults whose time has come; none before the start is over. */
static void inject(struct ry_sim_world *w)
{
    uint64_t next = ry_sim_crash_step(w);

    for (uint32_t i = 0; i < w->plan.n_faults; i++) {
        struct ry_sim_fault *f = &w->plan.fault[i];
        struct ry_sim_pe *pe = &w->pe[f->pe];

        if (f->done || !w->base_ns)
            continue;
        if (w->base_ns + f->at_ns > w->now_ns) {
            next = ry_min64(next, w->base_ns + f->at_ns);
            continue;
        }
        f->done = true;
        if (!pe->ctx || !pe->ctx->mesh.nic)
            continue;
        ry_sim_trace("fault kind %d pe%u/rail%u peer %d for %llu ns", f->f.kind, f->pe, f->f.rail,
                     f->f.peer, (unsigned long long)f->f.for_ns);
        pe->ctx->mesh.nic->ops->fault(pe->ctx->mesh.nic, &f->f);
        pe->nic_due_ns = w->now_ns;
    }
    w->fault_ns = next;
}

/* NICs do what is due; also that of a PE which is no more. */
static uint64_t drive(struct ry_sim_world *w)
{
    uint64_t next = RY_SIM_NEVER;
    bool worked = false;

    for (uint32_t i = 0; i < w->plan.pes + w->n_left; i++) {
        struct ry_sim_pe *pe = i < w->plan.pes ? &w->pe[i] : &w->left[i - w->plan.pes].pe;

        if (pe->ctx && pe->ctx->mesh.nic)
            pe->nic_due_ns = ry_min64(pe->nic_due_ns, ry_emu_lands_ns(pe->ctx->mesh.nic));
        if (pe->nic_due_ns <= w->now_ns) {
            uint64_t due = pe->ctx->mesh.nic->ops->drive(pe->ctx->mesh.nic, w->now_ns);

            pe->nic_due_ns = due <= w->now_ns ? w->now_ns + 1 : due;
            w->events++;
            worked = true;
        }
        next = ry_min64(next, pe->nic_due_ns);
    }
    if (worked)
        ry_oracle_watch();
    return next;
}

/* The task that wakes first, equals are drawn; *second: when another one does. */
static uint32_t pick(struct ry_sim_world *w, uint64_t *wake, uint64_t *second)
{
    uint64_t first = RY_SIM_NEVER, next = RY_SIM_NEVER;
    uint32_t best = 0, same = 0;

    for (uint32_t i = 0; i < RY_SIM_TASKS; i++) {
        uint64_t at = w->wake_ns[i];

        next = ry_min64(next, ry_max64(at, first));
        best = at < first ? i : best;
        first = ry_min64(first, at);
    }
    for (uint32_t i = best; next == first && first != RY_SIM_NEVER && i < RY_SIM_TASKS; i++)
        if (w->wake_ns[i] == first && ry_sim_draw(&w->sched_rng, ++same) == 0)
            best = i;
    *wake = first;
    *second = next;
    return best;
}

static void step(struct ry_sim_world *w, uint32_t i)
{
    struct ry_sim_task *t = &w->task[i];

    w->steps++;
    w->running = t;
    w->wake_ns[i] = RY_SIM_NEVER; /* it says itself when it sleeps */
    ry_coro_resume(&t->coro);
    w->running = NULL;
}

/* Until no application lives, or, while the agents settle, for as long as it takes; an oracle has
 * spoken, or time is over. */
void ry_sim_run_world(struct ry_sim_world *w, uint64_t limit_ns)
{
    while ((w->live_apps || w->settling) && !w->failed) {
        uint64_t nic_ns, wake, second, next;
        uint32_t i;

        if (w->fault_ns <= w->now_ns)
            inject(w);
        nic_ns = ry_min64(drive(w), w->fault_ns);
        i = pick(w, &wake, &second);
        next = ry_min64(wake, nic_ns);
        if (next > limit_ns || w->steps > STEPS_MAX)
            return;
        if (next > w->now_ns)
            w->now_ns = next;
        if (wake > nic_ns)
            continue;
        w->horizon_ns = ry_min64(ry_min64(second, nic_ns), limit_ns);
        step(w, i);
    }
}
