/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/yard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int ry_mutant;
uint64_t ry_sim_skip; /* 0: every point is told */

static struct {
    uint32_t left;
    void (*run)(struct yard *y);
    struct yard *y;
} point;

void ry_sim_mark(const char *name) { (void)name; }
void ry_sim_proxy_told(void) {}
void ry_sim_slow(void) {}
void ry_sim_opened(void) {}
uint16_t ry_sim_counter_mask = 0xffff;

void ry_sim_point(void)
{
    void (*run)(struct yard *) = point.run;

    ry_sim_skip = 0;
    if (!run || --point.left)
        return;
    point.run = NULL;
    run(point.y);
}

void yard_at(uint32_t n, void (*run)(struct yard *y), struct yard *y)
{
    point.left = n;
    point.run = run;
    point.y = y;
}

static uint64_t now_ns(void *arg) { return ((struct yard *)arg)->now += 10; }

static void relax(void *arg)
{
    struct yard *y = arg;

    y->now += 1000;
    for (uint32_t i = 0; i < RY_SLOTS; i++)
        ry_proxy_step(&y->ch.ring[i], &y->pslot[i], &y->pecho[i], &y->last[i], &y->env);
    if (y->relax)
        y->relax(y);
}

static void kick(void *arg, struct ry_ring *ring, uint32_t prod_idx)
{
    struct yard *y = arg;
    size_t slot = (size_t)(ring - y->ch.ring);

    y->rung[slot] = prod_idx;
    y->bells[slot]++;
}

void yard_open(struct yard *y, uint32_t depth, enum ry_handler handler, uint32_t armed)
{
    memset(y, 0, sizeof(*y));
    point.run = NULL;
    y->env = (struct ry_env){.now_ns = now_ns,
                             .relax = relax,
                             .kick = kick,
                             .arg = y,
                             .ready_ns_max = 100000,
                             .move_ns_max = 100000,
                             .lost_ns_max = 1000000,
                             .width = 1};
    y->ch.depth = depth;
    y->ch.handler = (uint32_t)handler;
    y->ch.probe_next = depth / RY_PROBES;
    for (uint32_t i = 0; i < RY_SLOTS; i++) {
        struct ry_ring *r = &y->ch.ring[i];
        struct ry_slot_host *h = &y->host[i];

        r->host = h;
        r->mask = depth - 1;
        r->resv_head = RY_CLOSED;
        *h = (struct ry_slot_host){.wqe = y->wqe[i],
                                   .cqe = &y->cqe[i],
                                   .dbr = &y->dbr[i],
                                   .uar = &y->uar[i],
                                   .pslot = &y->pslot[i],
                                   .pecho = &y->pecho[i],
                                   .lkeys = y->keys,
                                   .rkeys = y->keys,
                                   .qpn = YARD_QPN + i,
                                   .preferred = RY_SLOTS - i,
                                   .port_up = 1,
                                   .armed_epoch = i < armed};
        ry_publish_cqe(&y->cqe[i], ry_cqe_encode(0, 0, RY_CQE_INVALID, 1));
    }
    ry_channel_open(&y->ch, 0, &y->env);
}

int yard_post(struct yard *y, uint64_t raddr, uint64_t value, uint64_t *end)
{
    struct ry_req q[2] = {{0}};
    uint64_t at;
    int rc;

    q[0].opcode = RY_OP_WRITE;
    q[0].bytes = 64;
    q[0].raddr = raddr;
    q[1] = ry_signal_req(0x9000, value, 0);
    rc = ry_channel_post(&y->ch, q, 2, RY_POST_NO_PROOF, &y->env, &at);
    if (rc == RY_OK && end)
        *end = at;
    for (uint32_t i = 0; i < RY_SLOTS; i++)
        ry_proxy_step(&y->ch.ring[i], &y->pslot[i], &y->pecho[i], &y->last[i], &y->env);
    return rc;
}

void yard_done(struct yard *y, uint32_t slot, uint32_t idx)
{
    ry_publish_cqe(&y->cqe[slot],
                   ry_cqe_encode(y->host[slot].qpn, (uint16_t)(idx - 1), RY_CQE_REQ, 0));
}

void yard_error(struct yard *y, uint32_t slot, uint32_t idx, uint8_t syndrome)
{
    ((uint64_t *)(void *)&y->cqe[slot])[6] = ry_be64(syndrome);
    ry_publish_cqe(&y->cqe[slot],
                   ry_cqe_encode(y->host[slot].qpn, (uint16_t)idx, RY_CQE_REQ_ERR, 0));
}

int yard_fail(struct yard *y)
{
    uint64_t st = ry_observe_state(&y->ch);
    struct ry_slot_host *h = &y->host[ry_state_active(st)];

    h->port_up = 0;
    h->condemn_epoch = h->armed_epoch;
    return ry_channel_move(&y->ch, RY_MOVE_CONDEMNED, st, &y->env);
}

uint64_t yard_acked(struct yard *y)
{
    uint64_t acked;

    ry_channel_poll(&y->ch, &y->env, &acked);
    return acked;
}

const struct ry_wqe *yard_block(const struct yard *y, uint32_t slot, uint32_t idx)
{
    return &y->wqe[slot][idx & (y->ch.depth - 1)];
}

int yard_find(const struct yard *y, uint32_t slot, uint64_t raddr)
{
    for (uint32_t i = 0; i < y->rung[slot]; i++)
        if (ry_wqe_opcode(yard_block(y, slot, i)) == RY_OP_WRITE &&
            ry_be64(yard_block(y, slot, i)->raddr) == raddr)
            return (int)i;
    return -1;
}

int yard_run(const char *group, const struct schedule *all, size_t n)
{
    const char *mutants = getenv("RY_TEST_MUTANTS"); /* off: what they run is no coverage */
    bool with_mutants = !mutants || strcmp(mutants, "off") != 0;
    int wrong = 0;

    for (size_t i = 0; i < n; i++) {
        bool right, caught = true;

        ry_mutant = 0;
        right = all[i].right();
        ry_mutant = with_mutants ? all[i].mutant : 0;
        if (ry_mutant)
            caught = !all[i].right();
        ry_mutant = 0;
        printf("%s %s: %s%s\n", group, all[i].name, right ? "right" : "WRONG",
               !all[i].mutant || !with_mutants ? ""
               : caught       ? ", and wrong without its rule"
                              : ", AND RIGHT WITHOUT ITS RULE");
        wrong += !right || !caught;
    }
    return wrong != 0;
}
