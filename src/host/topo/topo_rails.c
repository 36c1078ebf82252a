/* SPDX-License-Identifier: Apache-2.0 */
/* Which ports a GPU uses, and which port stands in for each.
 *
 * A GPU takes the ports that are nearest to it. GPUs that see the same nearest ports share them
 * out: the ports, in order of card and number, are cut into as many runs as there are GPUs, so
 * that both ports of a card stay with one GPU where that comes out even. A nearer GPU chooses
 * first, and what it took is left to others only if they would have nothing. */
#include <string.h>

#include "topo_internal.h"

struct candidates {
    uint32_t count;
    uint32_t ports[RY_TOPO_PORTS];
};

static void find_candidates(const ry_topo *topo, uint32_t gpu, unsigned distance,
                            const uint8_t *taken, struct candidates *out)
{
    out->count = 0;
    for (uint32_t i = 0; i < topo->port_count; i++) {
        if (ry_topo_usable(&topo->ports[i]) && topo->gpu_port[gpu][i] == distance &&
            !(taken && taken[i]))
            out->ports[out->count++] = i;
    }
}

/* Ports that nobody nearer took, or all if that leaves none. */
static void find_free(const ry_topo *topo, uint32_t gpu, unsigned distance, const uint8_t *taken,
                      struct candidates *out)
{
    find_candidates(topo, gpu, distance, taken, out);
    if (out->count == 0)
        find_candidates(topo, gpu, distance, NULL, out);
}

static unsigned nearest_distance(const ry_topo *topo, uint32_t gpu)
{
    unsigned best = RY_DISTANCE_SYS + 1;
    for (uint32_t i = 0; i < topo->port_count; i++) {
        if (ry_topo_usable(&topo->ports[i]) && topo->gpu_port[gpu][i] < best)
            best = topo->gpu_port[gpu][i];
    }
    return best;
}

/* By card, then by number: a stable insertion sort, the list is short. */
static void sort_by_card(const ry_topo *topo, struct candidates *list)
{
    for (uint32_t i = 1; i < list->count; i++) {
        uint32_t port = list->ports[i];
        uint32_t at = i;
        while (at > 0 && topo->ports[list->ports[at - 1]].card > topo->ports[port].card) {
            list->ports[at] = list->ports[at - 1];
            at--;
        }
        list->ports[at] = port;
    }
}

/* GPU `rank` of `sharers` takes its run of the ports. */
static void take_run(struct ry_rail_set *rails, const struct candidates *list, uint32_t rank,
                     uint32_t sharers)
{
    uint32_t from = (uint32_t)((uint64_t)rank * list->count / sharers);
    uint32_t to = (uint32_t)((uint64_t)(rank + 1) * list->count / sharers);
    if (to == from)
        to = from + 1; /* fewer ports than GPUs: some share one */
    for (uint32_t i = from; i < to && rails->count < RY_TOPO_RAILS; i++)
        rails->ports[rails->count++] = list->ports[i];
}

static int same_list(const struct candidates *a, const struct candidates *b)
{
    return a->count == b->count && memcmp(a->ports, b->ports, a->count * sizeof a->ports[0]) == 0;
}

/* All GPUs whose nearest port is `distance` away. */
static void choose_at(ry_topo *topo, unsigned distance, const unsigned *nearest, uint8_t *taken)
{
    uint8_t now_taken[RY_TOPO_PORTS];
    memcpy(now_taken, taken, sizeof now_taken);
    for (uint32_t gpu = 0; gpu < topo->gpu_count; gpu++) {
        if (nearest[gpu] != distance || topo->rails[gpu].by_user)
            continue;
        struct candidates mine, other;
        find_free(topo, gpu, distance, taken, &mine);
        uint32_t rank = 0, sharers = 0;
        for (uint32_t i = 0; i < topo->gpu_count; i++) {
            if (nearest[i] != distance || topo->rails[i].by_user)
                continue;
            find_free(topo, i, distance, taken, &other);
            if (!same_list(&mine, &other))
                continue;
            rank += i < gpu;
            sharers++;
        }
        sort_by_card(topo, &mine);
        take_run(&topo->rails[gpu], &mine, rank, sharers);
        for (uint32_t i = 0; i < topo->rails[gpu].count; i++)
            now_taken[topo->rails[gpu].ports[i]] = 1;
    }
    memcpy(taken, now_taken, sizeof now_taken);
}

void ry_topo_choose_rails(ry_topo *topo)
{
    uint8_t taken[RY_TOPO_PORTS] = {0};
    unsigned nearest[RY_TOPO_GPUS];
    for (uint32_t gpu = 0; gpu < topo->gpu_count; gpu++) {
        nearest[gpu] = nearest_distance(topo, gpu);
        for (uint32_t i = 0; i < topo->rails[gpu].count; i++)
            taken[topo->rails[gpu].ports[i]] = 1;
    }
    for (unsigned distance = 0; distance <= RY_DISTANCE_SYS; distance++)
        choose_at(topo, distance, nearest, taken);
}

uint32_t ry_topo_rails_for_gpu(const ry_topo *topo, uint32_t gpu, uint32_t *ports, uint32_t cap)
{
    if (gpu >= topo->gpu_count)
        return 0;
    const struct ry_rail_set *rails = &topo->rails[gpu];
    for (uint32_t i = 0; i < rails->count && i < cap; i++)
        ports[i] = rails->ports[i];
    return rails->count;
}

static int may_back(const ry_topo *topo, uint32_t port, uint32_t other)
{
    const ry_topo_port *a = &topo->ports[port], *b = &topo->ports[other];
    int same_cable = a->card == b->card && (a->is_virtual || b->is_virtual);
    return other != port && ry_topo_usable(b) && b->layer == a->layer && !same_cable;
}

ry_backup_why ry_topo_backup(const ry_topo *topo, uint32_t gpu, uint32_t port, uint32_t *backup)
{
    uint32_t best = 0, ties = 0, best_step = 0;
    unsigned best_distance = 0;
    for (uint32_t i = 0; i < topo->port_count; i++) {
        if (may_back(topo, port, i) && topo->ports[i].card == topo->ports[port].card) {
            *backup = i;
            return RY_BACKUP_SAME_CARD;
        }
    }
    for (uint32_t i = 0; i < topo->port_count; i++) {
        if (!may_back(topo, port, i))
            continue;
        /* how far the data has to go comes first, how near the dead NIC the new one is second */
        unsigned distance =
            (gpu < topo->gpu_count ? topo->gpu_port[gpu][i] : 0u) * 8u + topo->port_port[port][i];
        /* among equals the neighbour, else the next in a ring, so that not all choose the same */
        uint32_t step = i == (port ^ 1) ? 0 : (i + topo->port_count - port) % topo->port_count;
        if (ties > 0 && distance > best_distance)
            continue;
        ties = ties > 0 && distance == best_distance ? ties + 1 : 1;
        if (ties == 1 || step < best_step) {
            best = i;
            best_step = step;
        }
        best_distance = distance;
    }
    if (ties == 0)
        return RY_BACKUP_NONE;
    *backup = best;
    return ties > 1 && best_step == 0 ? RY_BACKUP_NEIGHBOUR : RY_BACKUP_NEAREST;
}
