/* SPDX-License-Identifier: Apache-2.0 */
/* Shortening a failing plan: leave out faults, operations, initiators and kinds of chaos one by one
 * while the same oracle still speaks. Each change shifts the schedule, so that it is tried under a
 * few schedules before it is taken back. */
#include <string.h>

#include "sim/campaign.h"

enum { TRIES = 6, RUNS_MAX = 200 };

void ry_sim_oracle_name(const char *violation, char *to, size_t bytes)
{
    size_t n = strcspn(violation, ": ");

    n = n < bytes - 1 ? n : bytes - 1;
    memcpy(to, violation, n);
    to[n] = '\0';
}

struct shrink {
    struct ry_sim_world *w;
    struct ry_sim_plan best;
    char oracle[32];
    uint32_t runs;
};

static bool still_fails(struct shrink *s, struct ry_sim_plan p)
{
    for (uint64_t k = 0; k < TRIES && s->runs < RUNS_MAX; k++) {
        char name[32];

        p.sched = k ? s->best.sched + k * 7919 : s->best.sched;
        s->runs++;
        if (ry_sim_once(s->w, &p))
            continue;
        ry_sim_oracle_name(s->w->violation, name, sizeof(name));
        if (!strcmp(name, s->oracle)) {
            s->best = p;
            return true;
        }
    }
    return false;
}

/* Leave one number out of the plan: true when it went. */
static bool zero(struct shrink *s, uint32_t *field_of_best)
{
    struct ry_sim_plan p = s->best;
    size_t at = (size_t)((uint8_t *)field_of_best - (uint8_t *)&s->best);

    if (*field_of_best == 0)
        return false;
    memset((uint8_t *)&p + at, 0, sizeof(*field_of_best));
    return still_fails(s, p);
}

static bool drop_faults(struct shrink *s)
{
    bool any = false;

    for (uint32_t i = s->best.n_faults; i-- > 0;) {
        struct ry_sim_plan p = s->best;

        memmove(&p.fault[i], &p.fault[i + 1], (p.n_faults - i - 1) * sizeof(p.fault[0]));
        p.n_faults--;
        any |= still_fails(s, p);
    }
    return any;
}

static bool drop_ops(struct shrink *s)
{
    bool any = false;

    for (uint32_t part = s->best.ops / 2; part > 0; part /= 2) {
        struct ry_sim_plan p = s->best;

        if (p.ops <= part)
            continue;
        p.ops -= part;
        any |= still_fails(s, p);
    }
    return any;
}

/* Whole losses first, then that one comes back. */
static bool drop_losses(struct shrink *s)
{
    bool any = false;

    for (uint32_t i = RY_SIM_LOSSES; i-- > 0;) {
        struct ry_sim_plan p = s->best;

        if (!p.loss[i].at)
            continue;
        memmove(&p.loss[i], &p.loss[i + 1], (RY_SIM_LOSSES - i - 1) * sizeof(p.loss[0]));
        p.loss[RY_SIM_LOSSES - 1] = (struct ry_sim_loss){0};
        any |= still_fails(s, p);
    }
    for (uint32_t i = 0; i < RY_SIM_LOSSES; i++) {
        struct ry_sim_plan p = s->best;

        if (!p.loss[i].back)
            continue;
        p.loss[i].back = 0;
        any |= still_fails(s, p);
    }
    return any;
}

static bool drop_flags(struct shrink *s)
{
    struct ry_sim_plan p = s->best;
    bool any = false;

    if (p.second) {
        p.second = false;
        any |= still_fails(s, p);
    }
    p = s->best;
    if (p.ep && !p.loss[0].at) {
        p.ep = false;
        any |= still_fails(s, p);
    }
    p = s->best;
    if (p.bits < 16) {
        p.bits = 16;
        any |= still_fails(s, p);
    }
    p = s->best;
    if (p.pes > 2 && !p.loss[0].at) {
        p.nodes = p.nodes == p.pes || p.pes == 3 ? p.pes - 1 : p.nodes;
        p.pes--;
        for (uint32_t i = 0; i < p.n_faults; i++) {
            p.fault[i].pe %= p.pes;
            p.fault[i].f.peer = p.fault[i].f.peer < 0 ? -1 : p.fault[i].f.peer % (int)p.pes;
        }
        any |= still_fails(s, p);
    }
    p = s->best;
    if (p.seq_first || p.epoch_first != 1) {
        p.seq_first = 0;
        p.epoch_first = 1;
        any |= still_fails(s, p);
    }
    return any;
}

static bool drop_chaos(struct shrink *s)
{
    uint32_t *const fields[] = {
        &s->best.chaos.visible_delay_ns_max,
        &s->best.chaos.exec_delay_ns_max,
        &s->best.chaos.ack_delay_ns_max,
        &s->best.chaos.reorder_p,
        &s->best.chaos.lost_cqe_p,
        &s->best.ctl_loss_p,
        &s->best.stall_p,
        &s->best.slow_p,
        &s->best.point_p,
    };
    bool any = false;

    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        any |= zero(s, fields[i]);
    return any;
}

uint32_t ry_sim_shrink(struct ry_sim_world *w, struct ry_sim_plan *plan)
{
    struct shrink s = {.w = w, .best = *plan};
    bool any;

    ry_sim_oracle_name(w->violation, s.oracle, sizeof(s.oracle));
    w->tracing = false;
    do {
        any = drop_faults(&s);
        any |= drop_losses(&s);
        any |= drop_flags(&s);
        any |= drop_chaos(&s);
        any |= drop_ops(&s);
    } while (any && s.runs < RUNS_MAX);
    *plan = s.best;
    w->tracing = true;
    ry_sim_once(w, plan); /* the world shows this plan's failure now */
    return s.runs + 1;
}
