/* SPDX-License-Identifier: Apache-2.0 */
/* PEs crash, and may come back. The tasks of one that does end wherever they are; its NIC goes on
 * with what was posted until the system takes it down, and what is in the fabric lands later still.
 * Every survivor is told at its own time. A replacement starts from nothing, with a heap and a NIC
 * of its own, and joins through the product's own code; where its start fails, because one more PE
 * was lost meanwhile, it ends and another one comes. */
#include "sim/oracle.h"

enum { US = 1000, TOLD_NS = 150 * US, SYSTEM_NS = 100 * US };

/* The loss of that PE in this run, or NULL. */
static struct ry_sim_lost *lost_of(uint32_t pe)
{
    for (uint32_t i = 0; i < RY_SIM_LOSSES; i++)
        if (ry_sim->plan.loss[i].at && ry_sim->plan.loss[i].pe == pe)
            return &ry_sim->lost[i];
    return NULL;
}

bool ry_sim_mortal(uint32_t pe) { return lost_of(pe) != NULL; }

bool ry_sim_gone(uint32_t pe)
{
    const struct ry_sim_lost *c = lost_of(pe);

    return c && c->down;
}

bool ry_sim_any_gone(void)
{
    bool any = false;

    for (uint32_t i = 0; i < RY_SIM_LOSSES; i++)
        any |= ry_sim->lost[i].down;
    return any;
}

bool ry_sim_stopped(uint32_t pe)
{
    const struct ry_sim_lost *c = lost_of(pe);

    return c && c->stopped;
}

static void tell(struct ry_sim_world *w, enum ry_boot_event_type type, uint32_t lost)
{
    for (uint32_t i = 0; i < w->plan.pes; i++) {
        struct ry_sim_pe *pe = &w->pe[i];

        if (i == lost || pe->n_events == RY_SIM_EVENTS)
            continue;
        pe->event[pe->n_events] = (struct ry_boot_event){
            .type = type, .pe = lost, .incarnation = w->pe[lost].boot.incarnation};
        pe->event_ns[pe->n_events++] = w->now_ns + ry_sim_below(&w->rng, TOLD_NS);
    }
}

/* Stopped for so long that the others are told it is lost; then it goes on. */
static void stop(struct ry_sim_world *w, const struct ry_sim_loss *l, struct ry_sim_lost *c)
{
    ry_sim_trace("pe%u is stopped", l->pe);
    ry_sim_mark("pe-stopped");
    for (uint32_t role = 0; role < RY_SIM_TASKS_A_PE; role++) {
        uint64_t *wake = &w->wake_ns[l->pe * RY_SIM_TASKS_A_PE + role];

        if (*wake != RY_SIM_NEVER)
            *wake = ry_max64(*wake, w->now_ns + l->lives);
    }
    w->live_apps--;
    c->down = c->stopped = true;
    c->lives_ns = w->now_ns + l->lives;
    ry_sim_meet_lost(l->pe);
    tell(w, RY_BOOT_PE_LOST, l->pe);
}

/* A process is no more; what it left is kept. */
static void end_process(struct ry_sim_world *w, uint32_t i)
{
    struct ry_sim_pe *pe = &w->pe[i];
    struct ry_sim_left *left = &w->left[w->n_left];

    for (uint32_t role = 0; role < RY_SIM_TASKS_A_PE; role++) {
        uint32_t t = i * RY_SIM_TASKS_A_PE + role;

        w->task[t].coro.run = NULL;
        w->task[t].slow = false;
        w->wake_ns[t] = RY_SIM_NEVER;
    }
    w->n_left++;
    left->pe = *pe;
    left->system_ns = w->now_ns + ry_sim_below(&w->rng, SYSTEM_NS);
    pe->ctx = NULL;
    pe->heap = NULL;
    pe->model = NULL;
    pe->nic_due_ns = RY_SIM_NEVER;
    pe->n_ctl = 0;
    pe->rc = RY_ERR_PEER_LOST;
    ry_sim_meet_lost(i);
    tell(w, RY_BOOT_PE_LOST, i);
}

/* Until a replacement is there. Where two are lost it takes longer than anybody sleeps: who meets
 * replacements, and neither runs nor hears of one more loss until somebody is there in that one's
 * place too, takes these for those. */
static uint64_t start_ns(const struct ry_sim_world *w, const struct ry_sim_loss *l)
{
    const struct ry_sim_plan *p = &w->plan;
    uint64_t sleep = p->slow_p ? RY_SIM_SLOW_NS : p->stall_ns;

    return TOLD_NS + l->back + (p->loss[1].at ? 2 * sleep : 0);
}

static void go_down(struct ry_sim_world *w, const struct ry_sim_loss *l, struct ry_sim_lost *c)
{
    ry_sim_trace("pe%u crashes", l->pe);
    ry_sim_mark("pe-crashed");
    w->live_apps--;
    c->down = true;
    if (l->back)
        c->back_ns = w->now_ns + start_ns(w, l);
    end_process(w, l->pe);
}

/* The system destroys what a process had open. */
static void take_nic(struct ry_sim_world *w, struct ry_sim_left *left)
{
    struct ry_nic *nic = left->pe.ctx->mesh.nic;
    struct ry_nic_fault f = {.kind = RY_FAULT_NIC_DOWN, .peer = -1};

    left->system_ns = 0;
    for (f.rail = 0; nic && f.rail < w->plan.rails; f.rail++)
        nic->ops->fault(nic, &f);
    if (nic)
        left->pe.nic_due_ns = w->now_ns;
}

static void come_back(struct ry_sim_world *w, uint32_t i, struct ry_sim_lost *c)
{
    ry_sim_trace("pe%u comes back", i);
    ry_sim_mark("pe-replaced");
    c->back_ns = 0;
    w->pe[i].boot.incarnation++;
    if (!ry_sim_pe_make(w, i)) {
        ry_sim_violate("no memory for a replacement");
        return;
    }
    ry_sim_meet_came(i);
    tell(w, RY_BOOT_PE_JOINED, i);
}

void ry_sim_called_off(struct ry_sim_pe *pe)
{
    struct ry_sim_lost *c = lost_of(pe->boot.pe);

    ry_sim_trace("pe%u: its start is called off: %s", pe->boot.pe, ry_last_error());
    ry_sim_mark("pe-called-off");
    c->called_off = true;
    pe->rc = RY_ERR_LAUNCH;
    ry_sim->fault_ns = ry_sim->now_ns;
    ry_sim->horizon_ns = 0;
}

/* The process ends, and the launcher starts another one. */
static void begin_again(struct ry_sim_world *w, const struct ry_sim_loss *l, struct ry_sim_lost *c)
{
    c->called_off = false;
    c->joined_at = 0;
    if (w->n_left == RY_SIM_LEFT) {
        ry_sim_violate("join: %u replacements were called off", RY_SIM_LEFT - RY_SIM_LOSSES);
        return;
    }
    end_process(w, l->pe);
    c->back_ns = w->now_ns + start_ns(w, l);
}

static uint64_t loss_step(struct ry_sim_world *w, const struct ry_sim_loss *l,
                          struct ry_sim_lost *c)
{
    if (!l->at)
        return RY_SIM_NEVER;
    c->at_ns = w->base_ns + l->at;
    if (!c->down && c->at_ns > w->now_ns)
        return c->at_ns;
    if (!c->down)
        l->lives ? stop(w, l, c) : go_down(w, l, c);
    if (c->called_off)
        begin_again(w, l, c);
    if (c->back_ns && c->back_ns <= w->now_ns)
        come_back(w, l->pe, c);
    return c->back_ns ? c->back_ns : RY_SIM_NEVER;
}

uint64_t ry_sim_crash_step(struct ry_sim_world *w)
{
    uint64_t next = RY_SIM_NEVER;

    for (uint32_t i = 0; w->base_ns && i < RY_SIM_LOSSES; i++)
        next = ry_min64(next, loss_step(w, &w->plan.loss[i], &w->lost[i]));
    for (uint32_t i = 0; i < w->n_left; i++) {
        struct ry_sim_left *left = &w->left[i];

        if (left->system_ns && left->system_ns <= w->now_ns)
            take_nic(w, left);
        if (left->system_ns)
            next = ry_min64(next, left->system_ns);
    }
    return next;
}
