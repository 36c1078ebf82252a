/* SPDX-License-Identifier: Apache-2.0 */
/* What applications do in a run that loses PEs: rounds of dispatch and combine until no PE is
 * missing that could still come, and some more. */
#include <railyard/ep.h>

#include "sim/oracle.h"

enum { US = 1000, SEEN_NS = 300 * US, ROUNDS_MAX = 1000 };

static bool has(uint64_t set, uint32_t pe) { return set >> pe & 1; }

/* Is the PE in that place, from this one's view, not the one that was lost? */
static bool replaced(const struct ry_sim_pe *pe, uint32_t q)
{
    const struct ry_mesh *m = &pe->ctx->mesh;

    if (!pe->boot.incarnation)
        return has(((const struct ry_sim_model *)pe->model)->without, q);
    return q == pe->boot.pe || m->peers[q].hello.incarnation > 0;
}

/* What this PE sees of one loss. */
static void see(struct ry_sim_pe *pe, uint32_t i, uint64_t active, uint64_t at)
{
    struct ry_sim_lost *c = &ry_sim->lost[i];
    struct ry_sim_model *m = pe->model;
    uint32_t q = ry_sim->plan.loss[i].pe;

    if (!c->down)
        return;
    if (!has(active, q)) {
        /* who was only stopped has gone on, and has tried this and that, before the end is near */
        if (!has(m->without, q) || (c->stopped && ry_sim->now_ns < c->lives_ns + SEEN_NS))
            c->masked_at = ry_max64(c->masked_at, at);
        m->without |= 1u << q;
        ry_oracle_masked(pe->boot.pe);
    } else if (replaced(pe, q)) {
        c->joined_at = c->joined_at ? c->joined_at : at;
    }
}

/* The round in which the last loss was over; 0: one is not. While one is missing for good nobody is
 * let in, so that masked is the end for those who wait. */
static uint64_t over_at(void)
{
    const struct ry_sim_plan *p = &ry_sim->plan;
    bool for_good = false;
    uint64_t last = 0;

    for (uint32_t i = 0; i < RY_SIM_LOSSES; i++)
        for_good |= p->loss[i].at && !p->loss[i].back && ry_sim->lost[i].masked_at;
    for (uint32_t i = 0; i < RY_SIM_LOSSES; i++) {
        const struct ry_sim_lost *c = &ry_sim->lost[i];
        uint64_t at = c->joined_at;

        if (!at && (for_good || !p->loss[i].back))
            at = c->masked_at;
        if (!at && p->loss[i].at)
            return 0;
        last = ry_max64(last, at);
    }
    return last;
}

/* Rounds go on until all survivors have masked the lost PEs, or have their replacements among them,
 * and some more; all agree on how many, since nobody finishes a round that another has not begun.
 */
static bool goes_on(struct ry_sim_pe *pe)
{
    enum { MORE = 3 };
    struct ry_sim_model *m = pe->model;
    uint64_t active = 0, at = ry_ep_iterations(m->ep), until;

    ry_ep_active(m->ep, &active);
    for (uint32_t i = 0; i < RY_SIM_LOSSES && !ry_sim_stopped(pe->boot.pe); i++)
        see(pe, i, active, at);
    if (at > ROUNDS_MAX)
        ry_sim_violate("mask: pe %u is in round %llu, without %x, and not all that are lost are "
                       "masked or replaced",
                       pe->boot.pe, (unsigned long long)at, m->without);
    until = over_at();
    return !ry_sim->failed && (!until || at < until + MORE);
}

/* Who is in at the end: all but those that are lost for good, and who waits because of them. */
static uint64_t members(void)
{
    uint64_t set = (1ull << ry_sim->plan.pes) - 1;

    for (uint32_t i = 0; i < RY_SIM_LOSSES; i++)
        if (ry_sim->plan.loss[i].at && !ry_sim->lost[i].joined_at)
            set &= ~(1ull << ry_sim->plan.loss[i].pe);
    return set;
}

static void agree(struct ry_sim_pe *pe)
{
    struct ry_sim_model *m = pe->model;
    uint64_t active = 0;

    ry_ep_active(m->ep, &active);
    if (active != members())
        ry_sim_violate("mask: pe %u ends with the active set %llx", pe->boot.pe,
                       (unsigned long long)active);
}

void ry_sim_crash_app(struct ry_sim_pe *pe)
{
    enum { OPS = 6 };
    struct ry_sim_world *w = ry_sim;
    uint64_t rng = w->plan.seed * 31 + pe->boot.pe + 4 * pe->boot.incarnation;
    bool ok = ry_sim_prepare(pe);

    while (ok && goes_on(pe)) {
        for (uint64_t n = ry_sim_below(&rng, OPS); ok && n > 0 && !w->failed; n--)
            ok = ry_sim_one_op(pe, &rng);
        ok = ok && ry_sim_ep_round(pe);
    }
    if (ok && !w->failed)
        agree(pe);
}
