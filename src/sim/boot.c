/* SPDX-License-Identifier: Apache-2.0 */
/* Bootstrap and control of the simulated world: collectives are meetings of coroutines, control
 * datagrams are late, lost and doubled as the plan says. */
#include <stdlib.h>
#include <string.h>

#include <railyard/status.h>

#include "host/boot_node.h"
#include "host/error.h"
#include "sim/world.h"

enum { CTL_LATE_NS = 3000, MEET_NS = 2000 };

/* Sleep until somebody changes what this meeting is at. */
static void await_meet(struct ry_sim_meet *m, uint32_t pe)
{
    m->asleep |= 1u << pe;
    ry_sim_sleep(RY_SIM_NEVER - ry_sim->now_ns);
    m->asleep &= ~(1u << pe);
}

static void wake_meet(struct ry_sim_meet *m)
{
    struct ry_sim_world *w = ry_sim;

    for (uint32_t i = 0; i < w->plan.pes; i++)
        if (m->asleep >> i & 1)
            ry_sim_wake(i, RY_SIM_APP, w->now_ns + ry_sim_draw(&w->sched_rng, MEET_NS) + 1);
}

/* As at the product's meeting point (host/meet_round.c): where one is dead a round is never
 * complete, and who waits in it is told, but for replacements before their first. */
static void fail_if_gone(struct ry_sim_meet *m)
{
    uint32_t told = m->dead ? m->here & ~m->arriving : 0;

    if (!told)
        return;
    m->here &= ~told;
    m->failed |= told;
    wake_meet(m);
}

void ry_sim_meet_lost(uint32_t pe)
{
    struct ry_sim_meet *m = &ry_sim->meet;
    uint32_t bit = 1u << pe;

    m->dead |= bit;
    m->asleep &= ~bit;
    if (ry_sim_stopped(pe)) { /* it finds out when it goes on */
        m->failed |= m->here & bit;
        m->asleep |= m->here & bit;
    }
    m->here &= ~bit;
    if (m->left & bit) {
        m->left &= ~bit;
        if (!m->left)
            wake_meet(m);
    }
    fail_if_gone(m);
}

void ry_sim_meet_came(uint32_t pe)
{
    struct ry_sim_meet *m = &ry_sim->meet;

    m->dead &= ~(1u << pe);
    m->failed &= ~(1u << pe);
    m->arriving |= 1u << pe;
}

void ry_sim_meet_clear(struct ry_sim_meet *m)
{
    for (uint32_t i = 0; i < RY_SIM_PES; i++)
        free(m->part[i]);
    memset(m, 0, sizeof(*m));
}

static bool keep_part(struct ry_sim_meet *m, uint32_t pe, const void *in, size_t len)
{
    void *part = realloc(m->part[pe], len + 1);

    if (!part)
        return false;
    if (len)
        memcpy(part, in, len);
    m->part[pe] = part;
    m->len[pe] = len;
    return true;
}

/* All PEs come, the last one lets all go on; parts stay valid until all have left. */
static int meet(struct ry_boot *b, const void *in, size_t len, bool differ, uint64_t deadline_ns)
{
    struct ry_sim_meet *m = &ry_sim->meet;
    uint32_t generation, bit = 1u << b->pe, all = (1u << b->n_pes) - 1;

    (void)deadline_ns;
    while (m->left) /* the meeting before is not over */
        await_meet(m, b->pe);
    if (m->dead & bit)
        return ry_fail(RY_ERR_LAUNCH, "pe %u has been given up", b->pe);
    if (!keep_part(m, b->pe, in, len))
        return ry_fail(RY_ERR_NO_MEMORY, "no memory for a meeting");
    generation = m->generation;
    m->here |= bit;
    if (m->here == all) {
        for (uint32_t i = 0; i < b->n_pes; i++)
            if (!differ && m->len[i] != len)
                ry_sim_violate("meeting: pe %u gives %zu bytes, and pe %u gives %zu", b->pe, len, i,
                               m->len[i]);
        m->here = m->arriving = 0;
        m->left = all;
        m->generation++;
        wake_meet(m);
    } else {
        fail_if_gone(m);
    }
    while (m->generation == generation && !(m->failed & bit))
        await_meet(m, b->pe);
    if (!(m->failed & bit))
        return RY_OK;
    m->failed &= ~bit;
    return ry_fail(RY_ERR_LAUNCH, "not all pes are there: %x are dead", m->dead);
}

static void leave_meet(struct ry_boot *b)
{
    struct ry_sim_meet *m = &ry_sim->meet;
    uint32_t generation = m->generation, bit = 1u << b->pe;

    if (!(m->left & bit)) /* given up meanwhile */
        return;
    m->left &= ~bit;
    if (!m->left)
        wake_meet(m);
    while (m->left && m->generation == generation)
        await_meet(m, b->pe);
}

static int sim_allgather(struct ry_boot *b, const void *in, size_t len, void *out,
                         uint64_t deadline)
{
    int rc = meet(b, in, len, false, deadline);

    if (rc)
        return rc;
    for (uint32_t i = 0; i < b->n_pes; i++)
        memcpy((uint8_t *)out + i * len, ry_sim->meet.part[i], len);
    leave_meet(b);
    return RY_OK;
}

static int sim_allgatherv(struct ry_boot *b, const void *in, size_t len, void **out, size_t *offs,
                          uint64_t deadline)
{
    int rc = meet(b, in, len, true, deadline);
    size_t total = 0;
    uint8_t *all;

    if (rc)
        return rc;
    for (uint32_t i = 0; i < b->n_pes; i++) {
        offs[i] = total;
        total += ry_sim->meet.len[i];
    }
    offs[b->n_pes] = total;
    all = malloc(total + 1);
    for (uint32_t i = 0; all && i < b->n_pes; i++)
        memcpy(all + offs[i], ry_sim->meet.part[i], ry_sim->meet.len[i]);
    *out = all;
    leave_meet(b);
    return all ? RY_OK : RY_ERR_NO_MEMORY;
}

static int sim_barrier(struct ry_boot *b, uint64_t deadline)
{
    int rc = meet(b, NULL, 0, false, deadline);

    if (rc == RY_OK)
        leave_meet(b);
    return rc;
}

static int sim_share_fds(struct ry_boot *b, const int *mine, int n, int *fds, uint64_t deadline)
{
    (void)b, (void)mine, (void)n, (void)fds, (void)deadline;
    return RY_ERR_UNSUPPORTED; /* PEs are in one process */
}

static int sim_same(struct ry_boot *b, uint32_t pe)
{
    (void)b, (void)pe;
    return 1;
}

static void put_ctl(uint32_t from, uint32_t to, const void *msg, size_t len)
{
    struct ry_sim_world *w = ry_sim;
    struct ry_sim_pe *pe = &w->pe[to];
    struct ry_sim_ctl *c = &pe->ctl[pe->n_ctl];

    if (pe->n_ctl == RY_SIM_CTL)
        return;
    pe->n_ctl++;
    c->due_ns = w->now_ns + 200 + ry_sim_below(&w->rng, CTL_LATE_NS);
    if (ry_sim_chance(&w->rng, w->plan.ctl_loss_p))
        c->due_ns += ry_sim_below(&w->rng, 100 * CTL_LATE_NS); /* old news */
    c->from = from;
    c->len = (uint32_t)len;
    memcpy(c->msg, msg, len);
    ry_sim_wake(to, RY_SIM_AGENT, c->due_ns);
}

uint64_t ry_sim_ctl_due(uint32_t pe)
{
    uint64_t next = RY_SIM_NEVER;

    for (uint32_t i = 0; i < ry_sim->pe[pe].n_ctl; i++)
        next = ry_min64(next, ry_sim->pe[pe].ctl[i].due_ns);
    return next;
}

static int sim_ctl_send(struct ry_boot *b, uint32_t pe, const void *msg, size_t len)
{
    struct ry_sim_world *w = ry_sim;

    if (len > sizeof(w->pe[pe].ctl[0].msg))
        return RY_ERR_INVALID;
    if (ry_sim_chance(&w->rng, w->plan.ctl_loss_p))
        return RY_OK;
    put_ctl(b->pe, pe, msg, len);
    if (ry_sim_chance(&w->rng, w->plan.ctl_loss_p))
        put_ctl(b->pe, pe, msg, len);
    return RY_OK;
}

static int sim_ctl_recv(struct ry_boot *b, uint32_t *from, void *msg, size_t *len)
{
    struct ry_sim_world *w = ry_sim;
    struct ry_sim_pe *pe = &w->pe[b->pe];

    for (uint32_t i = 0; i < pe->n_ctl; i++) {
        struct ry_sim_ctl *c = &pe->ctl[i];

        if (c->due_ns > w->now_ns)
            continue;
        *from = c->from;
        *len = c->len;
        memcpy(msg, c->msg, c->len);
        *c = pe->ctl[--pe->n_ctl];
        w->events++;
        return 1;
    }
    return 0;
}

static int sim_poll_event(struct ry_boot *b, struct ry_boot_event *ev)
{
    struct ry_sim_pe *pe = &ry_sim->pe[b->pe];

    if (pe->seen_events == pe->n_events || pe->event_ns[pe->seen_events] > ry_sim->now_ns)
        return 0;
    *ev = pe->event[pe->seen_events++];
    return 1;
}

static int sim_wait_fd(struct ry_boot *b)
{
    (void)b;
    return -1;
}

static void sim_close(struct ry_boot *b) { (void)b; }

static const struct ry_boot_ops ops = {
    .allgather = sim_allgather,
    .allgatherv = sim_allgatherv,
    .barrier = sim_barrier,
    .share_fds = sim_share_fds,
    .same_process = sim_same,
    .same_host = sim_same,
    .ctl_send = sim_ctl_send,
    .ctl_recv = sim_ctl_recv,
    .poll_event = sim_poll_event,
    .wait_fd = sim_wait_fd,
    .close = sim_close,
};

void ry_sim_boot_init(struct ry_sim_world *w, uint32_t pe)
{
    w->pe[pe].boot =
        (struct ry_boot){.ops = &ops, .pe = pe, .n_pes = w->plan.pes, .job = w->plan.seed};
    ry_node_split(&w->pe[pe].boot, w->plan.nodes);
}
