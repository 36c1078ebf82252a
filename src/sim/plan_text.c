/* SPDX-License-Identifier: Apache-2.0 */
/* A plan as one line of text, and back: how a shortened run is repeated. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/campaign.h"

static const char *const kinds[] = {
    [RY_FAULT_PORT_DOWN] = "port-down", [RY_FAULT_PORT_UP] = "port-up",
    [RY_FAULT_STALL] = "stall",         [RY_FAULT_DROP] = "drop",
    [RY_FAULT_ACK_DROP] = "ack-drop",   [RY_FAULT_DELAY] = "delay",
    [RY_FAULT_GHOST] = "ghost",         [RY_FAULT_CQE_ERROR] = "cqe-error",
    [RY_FAULT_QP_ERROR] = "qp-error",   [RY_FAULT_NIC_DOWN] = "nic-down",
    [RY_FAULT_SLOW] = "slow",           [RY_FAULT_GID_CHANGE] = "gid-change",
    [RY_FAULT_CLEAR] = "clear",
};

const char *ry_sim_fault_name(enum ry_nic_fault_kind kind) { return kinds[kind]; }

/* Values of a plan that are plain numbers, by name. */
struct value {
    const char *name;
    uint64_t v;
};

enum { VALUES = 35 };

static void values_of(const struct ry_sim_plan *p, struct value *v)
{
    const struct value all[VALUES] = {
        {"seed", p->seed},
        {"sched", p->sched},
        {"pes", p->pes},
        {"rails", p->rails},
        {"handler", (uint64_t)p->handler},
        {"depth", p->depth},
        {"ops", p->ops},
        {"ep", p->ep},
        {"second", p->second},
        {"point", p->point_p},
        {"stall", p->stall_p},
        {"ctl", p->ctl_loss_p},
        {"seq", p->seq_first},
        {"epoch", p->epoch_first},
        {"visible", p->chaos.visible_delay_ns_max},
        {"exec", p->chaos.exec_delay_ns_max},
        {"ack", p->chaos.ack_delay_ns_max},
        {"amo", p->amo_only},
        {"bad", p->bad_op},
        {"stallns", p->stall_ns},
        {"hot", p->hot},
        {"slots", p->slots},
        {"slow", p->slow_p},
        {"bits", p->bits},
        {"crash", p->loss[0].at},
        {"crashpe", p->loss[0].pe},
        {"back", p->loss[0].back},
        {"lives", p->loss[0].lives},
        {"slowagents", p->slow_agents},
        {"crash2", p->loss[1].at},
        {"crashpe2", p->loss[1].pe},
        {"back2", p->loss[1].back},
        {"lives2", p->loss[1].lives},
        {"ht", p->ht},
        {"nodes", p->nodes},
    };

    memcpy(v, all, sizeof(all));
}

static void loss_to(struct ry_sim_loss *l, const struct value *v)
{
    *l = (struct ry_sim_loss){(uint32_t)v[0].v, (uint32_t)v[1].v, (uint32_t)v[2].v,
                              (uint32_t)v[3].v};
}

static void values_to(struct ry_sim_plan *p, const struct value *v)
{
    p->seed = v[0].v;
    p->sched = v[1].v;
    p->pes = (uint32_t)v[2].v;
    p->rails = (uint32_t)v[3].v;
    p->handler = (enum ry_handler)v[4].v;
    p->depth = (uint32_t)v[5].v;
    p->ops = (uint32_t)v[6].v;
    p->ep = v[7].v != 0;
    p->second = v[8].v != 0;
    p->point_p = (uint32_t)v[9].v;
    p->stall_p = (uint32_t)v[10].v;
    p->ctl_loss_p = (uint32_t)v[11].v;
    p->seq_first = v[12].v & RY_SEQ_MASK;
    p->epoch_first = v[13].v;
    p->chaos.visible_delay_ns_max = (uint32_t)v[14].v;
    p->chaos.exec_delay_ns_max = (uint32_t)v[15].v;
    p->chaos.ack_delay_ns_max = (uint32_t)v[16].v;
    p->amo_only = v[17].v != 0;
    p->bad_op = (uint32_t)v[18].v;
    p->stall_ns = (uint32_t)v[19].v;
    p->hot = v[20].v != 0;
    p->slots = (uint32_t)v[21].v;
    p->slow_p = (uint32_t)v[22].v;
    p->bits = (uint32_t)v[23].v;
    loss_to(&p->loss[0], &v[24]);
    p->slow_agents = v[28].v != 0;
    loss_to(&p->loss[1], &v[29]);
    p->ht = v[33].v != 0;
    p->nodes = (uint32_t)v[34].v;
}

void ry_sim_plan_print(const struct ry_sim_plan *p, char *to, size_t bytes)
{
    struct value v[VALUES];
    size_t n = 0;

    values_of(p, v);
    for (uint32_t i = 0; i < VALUES && n < bytes; i++)
        n += (size_t)snprintf(to + n, bytes - n, "%s%s=%" PRIu64, i ? "," : "", v[i].name, v[i].v);
    if (n < bytes)
        n += (size_t)snprintf(to + n, bytes - n, ",reorder=%u,lost=%u", p->chaos.reorder_p,
                              p->chaos.lost_cqe_p);
    for (uint32_t i = 0; i < p->n_faults && n < bytes; i++) {
        const struct ry_sim_fault *f = &p->fault[i];

        n += (size_t)snprintf(to + n, bytes - n,
                              ";%s@%" PRIu64 ":%u/%u/%d:%u:%" PRIu64 ":%" PRIu64 ":%" PRIu64
                              ":%u:%u:%" PRIu64,
                              kinds[f->f.kind], f->at_ns, f->pe, f->f.rail, f->f.peer,
                              (unsigned)(f->f.p * 1000 + 0.5), f->f.for_ns, f->f.delay_ns,
                              f->f.jitter_ns, f->f.syndrome, f->f.vendor, f->f.seed);
    }
}

static bool parse_fault(struct ry_sim_fault *f, const char *text)
{
    char kind[16];
    unsigned pe, rail, permille, syndrome, vendor;
    int peer, used = 0;

    memset(f, 0, sizeof(*f));
    if (sscanf(text,
               "%15[a-z-]@%" SCNu64 ":%u/%u/%d:%u:%" SCNu64 ":%" SCNu64 ":%" SCNu64
               ":%u:%u:%" SCNu64 "%n",
               kind, &f->at_ns, &pe, &rail, &peer, &permille, &f->f.for_ns, &f->f.delay_ns,
               &f->f.jitter_ns, &syndrome, &vendor, &f->f.seed, &used) != 12 ||
        text[used] || pe >= RY_SIM_PES || rail >= 2 || peer >= RY_SIM_PES || peer < -1 ||
        permille > 1000 || syndrome > 255 || vendor > 255)
        return false;
    f->pe = pe;
    f->f.rail = rail;
    f->f.peer = peer;
    f->f.p = permille / 1000.0;
    f->f.syndrome = (uint8_t)syndrome;
    f->f.vendor = (uint8_t)vendor;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (!strcmp(kinds[i], kind)) {
            f->f.kind = (enum ry_nic_fault_kind)i;
            return true;
        }
    }
    return false;
}

static bool parse_value(struct ry_sim_plan *p, struct value *v, const char *text)
{
    const char *equal = strchr(text, '=');
    char *end;
    uint64_t number;
    size_t len;

    if (!equal || equal[1] < '0' || equal[1] > '9')
        return false;
    len = (size_t)(equal - text);
    number = strtoull(equal + 1, &end, 10);
    if (*end)
        return false;
    for (uint32_t i = 0; i < VALUES; i++) {
        if (strlen(v[i].name) == len && !strncmp(v[i].name, text, len)) {
            v[i].v = number;
            return true;
        }
    }
    if (len == 7 && !strncmp(text, "reorder", len))
        p->chaos.reorder_p = (uint32_t)number;
    else if (len == 4 && !strncmp(text, "lost", len))
        p->chaos.lost_cqe_p = (uint32_t)number;
    else
        return false;
    return true;
}

/* Two at least survive, and ask things of each other. */
static bool sane_losses(const struct ry_sim_plan *p)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < RY_SIM_LOSSES; i++) {
        const struct ry_sim_loss *l = &p->loss[i];

        if (l->pe >= p->pes || (l->lives && l->back) || (l->at && i > n))
            return false;
        n += l->at != 0;
    }
    return n == 0 || (p->ep && p->pes >= n + 2 && (n == 1 || p->loss[0].pe != p->loss[1].pe));
}

static bool sane(const struct ry_sim_plan *p)
{
    return p->pes >= 2 && p->pes <= RY_SIM_PES && p->rails >= 1 && p->rails <= 2 &&
           (unsigned)p->handler <= 2 && p->depth >= 16 && p->depth <= 1024 &&
           !(p->depth & (p->depth - 1)) && p->ops <= 100000 && sane_losses(p) &&
           (p->nodes == 2 || p->nodes == p->pes) && p->bits <= 16 &&
           1u << p->bits >= 2 * p->depth && (p->slots == 2 || p->slots == 4 || p->slots == 8);
}

bool ry_sim_plan_parse(struct ry_sim_plan *p, const char *text)
{
    struct value v[VALUES];
    char *copy = strdup(text), *save = NULL, *part, *item, *inner = NULL;
    bool ok = copy != NULL;

    memset(p, 0, sizeof(*p));
    p->bits = 16;
    values_of(p, v);
    part = ok ? strtok_r(copy, ";", &save) : NULL;
    ok = part != NULL;
    for (item = ok ? strtok_r(part, ",", &inner) : NULL; ok && item;
         item = strtok_r(NULL, ",", &inner))
        ok = parse_value(p, v, item);
    values_to(p, v);
    while (ok && (part = strtok_r(NULL, ";", &save)) != NULL)
        ok = p->n_faults < RY_SIM_FAULTS && parse_fault(&p->fault[p->n_faults++], part);
    free(copy);
    return ok && sane(p);
}
