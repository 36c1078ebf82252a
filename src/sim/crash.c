/* SPDX-License-Identifier: Apache-2.0 */
/* A PE crashes, and may come back. Its tasks end wherever they are; its NIC goes on with what was
 * posted until the system takes it down, and what is in the fabric lands later still. Every
 * survivor is told at its own time. A replacement starts from nothing, with a heap and a NIC of its
 * own, and joins through the product's own code. */
#include <railyard/ep.h>

#include "sim/oracle.h"

enum { US = 1000, TOLD_NS = 150 * US, SYSTEM_NS = 100 * US, SEEN_NS = 300 * US };

bool ry_sim_gone(uint32_t pe) { return ry_sim->crash.down && ry_sim->plan.crash_pe == pe; }

static void tell(struct ry_sim_world *w, enum ry_boot_event_type type)
{
    for (uint32_t i = 0; i < w->plan.pes; i++) {
        struct ry_sim_pe *pe = &w->pe[i];

        if (i == w->plan.crash_pe)
            continue;
        pe->event[pe->n_events] = (struct ry_boot_event){
            .type = type, .pe = w->plan.crash_pe, .incarnation = type == RY_BOOT_PE_JOINED};
        pe->event_ns[pe->n_events++] = w->now_ns + ry_sim_below(&w->rng, TOLD_NS);
    }
}

/* Stopped for so long that the others are told it is lost; then it goes on. */
static void stop(struct ry_sim_world *w)
{
    ry_sim_trace("pe%u is stopped", w->plan.crash_pe);
    ry_sim_mark("pe-stopped");
    for (uint32_t role = 0; role < RY_SIM_TASKS_A_PE; role++) {
        uint64_t *wake = &w->wake_ns[w->plan.crash_pe * RY_SIM_TASKS_A_PE + role];

        if (*wake != RY_SIM_NEVER)
            *wake = ry_max64(*wake, w->now_ns + w->plan.lives);
    }
    w->live_apps--;
    w->crash.down = w->crash.stopped = true;
    w->crash.lives_ns = w->now_ns + w->plan.lives;
    tell(w, RY_BOOT_PE_LOST);
}

static void go_down(struct ry_sim_world *w)
{
    struct ry_sim_pe *pe = &w->pe[w->plan.crash_pe];

    ry_sim_trace("pe%u crashes", w->plan.crash_pe);
    ry_sim_mark("pe-crashed");
    for (uint32_t role = 0; role < RY_SIM_TASKS_A_PE; role++) {
        uint32_t i = w->plan.crash_pe * RY_SIM_TASKS_A_PE + role;

        w->task[i].coro.run = NULL;
        w->task[i].slow = false;
        w->wake_ns[i] = RY_SIM_NEVER;
    }
    w->live_apps--;
    w->crash.down = true;
    w->crash.left = *pe;
    w->crash.system_ns = w->now_ns + ry_sim_below(&w->rng, SYSTEM_NS);
    if (w->plan.back)
        w->crash.back_ns = w->now_ns + TOLD_NS + w->plan.back;
    pe->ctx = NULL;
    pe->heap = NULL;
    pe->model = NULL;
    pe->nic_due_ns = RY_SIM_NEVER;
    pe->n_ctl = 0;
    pe->rc = RY_ERR_PEER_LOST;
    tell(w, RY_BOOT_PE_LOST);
}

/* The system destroys what the process had open. */
static void take_nic(struct ry_sim_world *w)
{
    struct ry_nic *nic = w->crash.left.ctx->mesh.nic;
    struct ry_nic_fault f = {.kind = RY_FAULT_NIC_DOWN, .peer = -1};

    w->crash.system_ns = 0;
    for (f.rail = 0; f.rail < w->plan.rails; f.rail++)
        nic->ops->fault(nic, &f);
    w->crash.left.nic_due_ns = w->now_ns;
}

static void come_back(struct ry_sim_world *w)
{
    uint32_t i = w->plan.crash_pe;

    ry_sim_trace("pe%u comes back", i);
    ry_sim_mark("pe-replaced");
    w->crash.back_ns = 0;
    w->pe[i].boot.incarnation = 1;
    if (!ry_sim_pe_make(w, i)) {
        ry_sim_violate("no memory for a replacement");
        return;
    }
    tell(w, RY_BOOT_PE_JOINED);
}

uint64_t ry_sim_crash_step(struct ry_sim_world *w)
{
    struct ry_sim_crash *c = &w->crash;
    uint64_t next = RY_SIM_NEVER;

    if (!w->plan.crash || !w->base_ns)
        return next;
    if (!c->at_ns)
        c->at_ns = w->base_ns + w->plan.crash;
    if (!c->down && c->at_ns <= w->now_ns && w->plan.lives)
        stop(w);
    else if (!c->down && c->at_ns <= w->now_ns)
        go_down(w);
    if (c->system_ns && c->system_ns <= w->now_ns)
        take_nic(w);
    if (c->back_ns && c->back_ns <= w->now_ns)
        come_back(w);
    if (!c->down)
        next = c->at_ns;
    if (c->system_ns)
        next = ry_min64(next, c->system_ns);
    return c->back_ns ? ry_min64(next, c->back_ns) : next;
}

/* --- what the applications of such a run do --- */

/* Rounds go on until all survivors have masked the lost PE, or have its replacement among them, and
 * some more; all agree on how many, since nobody finishes a round that another has not begun. */
static bool goes_on(struct ry_sim_pe *pe, bool *masked)
{
    enum { MORE = 3, ROUNDS_MAX = 400 };
    struct ry_sim_crash *c = &ry_sim->crash;
    struct ry_sim_model *m = pe->model;
    uint64_t active = 0, at = ry_ep_iterations(m->ep), until;

    ry_ep_active(m->ep, &active);
    if (c->down && !(active >> ry_sim->plan.crash_pe & 1)) {
        /* who was only stopped has gone on, and has tried this and that, before the end is near */
        if (!*masked || (c->stopped && ry_sim->now_ns < c->lives_ns + SEEN_NS))
            c->masked_at = ry_max64(c->masked_at, at);
        *masked = m->without = true;
        ry_oracle_masked(pe->boot.pe);
    } else if (c->down && (*masked || pe->boot.incarnation)) {
        c->joined_at = c->joined_at ? c->joined_at : at;
    }
    if (at > ROUNDS_MAX)
        ry_sim_violate("mask: pe %u is in round %llu, and the lost pe is %s", pe->boot.pe,
                       (unsigned long long)at, *masked ? "not replaced" : "not masked");
    until = ry_sim->plan.back ? c->joined_at : c->masked_at;
    return !ry_sim->failed && (!until || at < until + MORE);
}

static void agree(struct ry_sim_pe *pe)
{
    struct ry_sim_model *m = pe->model;
    uint64_t active = 0, all = (1ull << ry_sim->plan.pes) - 1;

    ry_ep_active(m->ep, &active);
    if (active != (ry_sim->plan.back ? all : all & ~(1ull << ry_sim->plan.crash_pe)))
        ry_sim_violate("mask: pe %u ends with the active set %llx", pe->boot.pe,
                       (unsigned long long)active);
}

void ry_sim_crash_app(struct ry_sim_pe *pe)
{
    enum { OPS = 6 };
    struct ry_sim_world *w = ry_sim;
    uint64_t rng = w->plan.seed * 31 + pe->boot.pe + 4 * pe->boot.incarnation;
    bool ok = ry_sim_prepare(pe), masked = false;

    while (ok && goes_on(pe, &masked)) {
        for (uint64_t n = ry_sim_below(&rng, OPS); ok && n > 0 && !w->failed; n--)
            ok = ry_sim_one_op(pe, &rng);
        ok = ok && ry_sim_ep_round(pe);
    }
    if (ok && !w->failed)
        agree(pe);
}
