/* SPDX-License-Identifier: Apache-2.0 */
/* A run's plan: everything that follows from its seed. */
#include <string.h>

#include "sim/world.h"

enum { US = 1000, BUSY_NS = 700 * US }; /* a run's traffic lasts about this long without faults */
enum {
    VOTE_NS = 300 * US, /* from a loss until it is masked */
    JOIN_NS = 450 * US, /* from the start of a replacement until it is in */
    ROUND_NS = 40 * US, /* a round of dispatch and combine takes less */
};
enum { CUT_NS = 240 * US }; /* a fence that takes longer ends in cutting its rail off */

static uint64_t below(uint64_t *r, uint64_t n) { return ry_sim_below(r, n); }

static const enum ry_nic_fault_kind kinds[] = {
    RY_FAULT_PORT_DOWN, RY_FAULT_PORT_DOWN, RY_FAULT_STALL,      RY_FAULT_DROP,
    RY_FAULT_ACK_DROP,  RY_FAULT_DELAY,     RY_FAULT_GHOST,      RY_FAULT_CQE_ERROR,
    RY_FAULT_QP_ERROR,  RY_FAULT_NIC_DOWN,  RY_FAULT_GID_CHANGE,
};

static void make_fault(struct ry_sim_plan *p, struct ry_sim_fault *f, uint64_t *r)
{
    /* none of them blames the request: a NIC that lies twice about one message has convicted it */
    static const uint8_t syndromes[] = {0x15, 0x15, 0x05, 0x02, 0x22, 0x10};

    memset(f, 0, sizeof(*f));
    f->at_ns = below(r, BUSY_NS);
    f->pe = (uint32_t)below(r, p->pes);
    f->f.kind = kinds[below(r, sizeof(kinds) / sizeof(kinds[0]))];
    f->f.rail = (uint32_t)below(r, p->rails);
    f->f.peer = below(r, 3) == 0 ? (int32_t)below(r, p->pes) : -1;
    f->f.p = below(r, 3) == 0 ? 1.0 : (double)(50 + below(r, 900)) / 1000;
    f->f.for_ns = (5 + below(r, 400)) * US;
    f->f.delay_ns = (1 + below(r, 200)) * US;
    if (f->f.kind == RY_FAULT_GHOST)
        f->f.delay_ns *= 3;
    f->f.jitter_ns = below(r, 20) * US;
    f->f.syndrome = syndromes[below(r, sizeof(syndromes))];
    f->f.vendor = (uint8_t)below(r, 256);
    f->f.seed = ry_sim_random(r);
    if (f->f.kind == RY_FAULT_CQE_ERROR)
        f->f.for_ns = 0; /* one of them */
}

static void make_faults(struct ry_sim_plan *p, bool swarm, uint64_t *r)
{
    p->n_faults = (uint32_t)below(r, swarm ? RY_SIM_FAULTS : 6);
    for (uint32_t i = 0; i < p->n_faults; i++) {
        make_fault(p, &p->fault[i], r);
        if (!swarm || !i || below(r, 3))
            continue;
        /* the same again, soon after: flaps, double failures */
        p->fault[i].pe = p->fault[i - 1].pe;
        p->fault[i].at_ns = p->fault[i - 1].at_ns + below(r, 100 * US);
    }
}

static void make_chaos(struct ry_sim_plan *p, uint64_t *r)
{
    if (below(r, 2))
        p->chaos.visible_delay_ns_max = (uint32_t)below(r, below(r, 4) == 0 ? 400 * US : 8 * US);
    if (below(r, 3) == 0)
        p->chaos.exec_delay_ns_max = (uint32_t)below(r, 3 * US);
    if (below(r, 2))
        p->chaos.ack_delay_ns_max = (uint32_t)below(r, below(r, 4) == 0 ? 30 * US : 5 * US);
    if (below(r, 3) == 0)
        p->chaos.reorder_p = (uint32_t)below(r, 65536);
    if (below(r, 5) == 0)
        p->chaos.lost_cqe_p = (uint32_t)below(r, 300);
}

/* Much goes over one small ring whose counter wraps soon and whose NIC is slow, while agents sleep
 * between two looks: what they saw is then a whole turn of the counter old. */
static void make_crowded(struct ry_sim_plan *p, uint64_t *r)
{
    p->rails = 1;
    p->depth = 16;
    p->bits = 5;
    p->ops = 100;
    p->slots = 8;
    p->hot = true;
    p->slow_agents = true;
    p->slow_p = 10000 + (uint32_t)below(r, 20000);
    p->chaos.exec_delay_ns_max = 1000 + (uint32_t)below(r, 4 * US);
    p->chaos.ack_delay_ns_max = 1000 + (uint32_t)below(r, 8 * US);
    for (uint32_t i = 0; i < p->n_faults; i++)
        p->fault[i].f.rail = 0;
}

/* A second PE is lost around the time of the first loss: before that one is masked, while others
 * vote, while its replacement is let in, or later. Mostly both come back, or none: while one is
 * missing for good, nobody is let in. */
static void make_second(struct ry_sim_plan *p, uint64_t *r)
{
    const struct ry_sim_loss *first = &p->loss[0];
    struct ry_sim_loss *l = &p->loss[1];

    switch (below(r, 4)) {
    case 0:
        l->at = 1 + (uint32_t)below(r, 2ull * first->at);
        break;
    case 1:
        l->at = first->at + (uint32_t)below(r, VOTE_NS);
        break;
    case 2:
        l->at = first->at + first->back + (uint32_t)below(r, JOIN_NS) +
                2 * (p->slow_p ? RY_SIM_SLOW_NS : p->stall_ns);
        break;
    default:
        l->at = first->at + (uint32_t)below(r, BUSY_NS);
    }
    l->pe = (first->pe + 1 + (uint32_t)below(r, p->pes - 1)) % p->pes;
    l->back = below(r, 4) < (first->back ? 1 : 3) ? 0 : 1 + (uint32_t)below(r, BUSY_NS);
    if (!l->back && below(r, 2))
        l->lives = 1 + (uint32_t)below(r, BUSY_NS / 2);
}

/* Half of the runs lose a second PE; most are of two nodes, where what a lost forwarder held is
 * sent again, and in half of these writes may take longer to be seen than a round does; and most
 * faults come while the survivors see to the first loss. */
static void make_lossy(struct ry_sim_plan *p, uint64_t *r)
{
    if (below(r, 2))
        make_second(p, r);
    if (below(r, 4)) {
        p->ht = true;
        p->nodes = 2;
        if (below(r, 2))
            p->chaos.visible_delay_ns_max = (uint32_t)below(r, ROUND_NS);
    }
    for (uint32_t i = 0; i < p->n_faults; i++)
        if (below(r, 3))
            p->fault[i].at_ns = p->loss[0].at + below(r, VOTE_NS);
}

/* A swarm's run has a subset of what can go wrong, so that rare pairs of things meet. The others
 * draw the same numbers in the same order. */
void ry_sim_plan_make(struct ry_sim_plan *p, uint64_t seed, enum ry_sim_family family)
{
    uint64_t r = seed ^ 0x6a09e667f3bcc908ull;
    const bool lossy = family == RY_SIM_LOSSY;
    struct ry_sim_loss *loss = &p->loss[0];

    memset(p, 0, sizeof(*p));
    p->seed = seed;
    p->sched = seed ^ 0x5bd1e995u;
    p->pes = RY_SIM_PES;
    p->ht = seed & 16;
    p->nodes = seed & 32 ? 2 : p->pes;
    p->rails = below(&r, 6) == 0 ? 1 : 2;
    p->handler = (enum ry_handler)below(&r, 3);
    p->depth = 16u << below(&r, 2);
    p->ops = 50;
    p->ep = below(&r, 7) == 0;
    if (p->ep && p->depth < 64) /* a channel holds all live generations (rule 15) */
        p->depth = 64;
    p->second = below(&r, 2);
    if ((below(&r, 10) == 0) | lossy) { /* who lives on masks it, in dispatch and combine */
        loss->at = 1 + (uint32_t)below(&r, BUSY_NS / 2);
        loss->pe = (uint32_t)below(&r, p->pes);
        loss->back = below(&r, 3) ? 1 + (uint32_t)below(&r, BUSY_NS) : 0;
        p->ep = true;
        p->second = false;
        p->depth = 64;
    }
    p->point_p = (uint32_t)(below(&r, 3) == 0 ? 8000 : below(&r, 1500));
    p->stall_p = (uint32_t)below(&r, 3000);
    p->stall_ns = (below(&r, 4) == 0 ? 400 : 40) * US;
    if (p->stall_ns > 40 * US) { /* long, and so rare that an agent still keeps its deadlines */
        p->point_p %= 1500;
        p->stall_p %= 300;
    }
    p->hot = below(&r, 4) == 0 && !loss->at;
    p->slots = below(&r, 2) ? 2 : 8;
    p->amo_only = below(&r, 12) == 0 && !loss->at;
    p->bad_op = below(&r, 10) == 0 && !loss->at ? 1 + (uint32_t)below(&r, 40) : 0;
    p->ctl_loss_p = below(&r, 2) ? (uint32_t)below(&r, 12000) : 0;
    p->seq_first = below(&r, 4) == 0 ? RY_SEQ_MASK - below(&r, 200) : below(&r, 3) * 65500;
    p->epoch_first = below(&r, 4) == 0 ? UINT64_MAX - 100000 : 1;
    p->bits = 16;
    if (below(&r, 4) == 0)
        for (p->bits = 1; 1u << p->bits < 2 * p->depth;)
            p->bits++;
    if (below(&r, 3) == 0)
        p->slow_p = (uint32_t)below(&r, 2000);
    if (loss->at && !loss->back && below(&r, 2)) /* it was only stopped, and knows of nothing */
        loss->lives = 1 + (uint32_t)below(&r, BUSY_NS / 2);
    make_chaos(p, &r);
    /* rails are cut, since fences take too long: a request at fault meets those that are not, and
     * agents that sleep hear of it late */
    if (p->chaos.visible_delay_ns_max > CUT_NS && !loss->at && below(&r, 2))
        p->bad_op = 1 + (uint32_t)below(&r, 40);
    if (p->chaos.visible_delay_ns_max > CUT_NS && below(&r, 2)) {
        p->slow_agents = true;
        p->slow_p = 2000 + (uint32_t)below(&r, 10000);
    }
    make_faults(p, family != RY_SIM_FEW, &r);
    if (!loss->at && !p->ep && !p->amo_only && below(&r, 16) == 0)
        make_crowded(p, &r);
    if (lossy)
        make_lossy(p, &r);
}
