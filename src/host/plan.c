/* SPDX-License-Identifier: Apache-2.0 */
/* Which rails a path uses. Pure functions of both ends' hello: both ends compute the same answer.
 */
#include "host/mesh.h"

uint32_t ry_plan_channels(const struct ry_hello *a, const struct ry_hello *b, uint32_t wanted)
{
    uint32_t n = a->rails > b->rails ? a->rails : b->rails;

    if (wanted)
        n = wanted;
    return n > RY_CHANNELS_MAX ? RY_CHANNELS_MAX : n;
}

static uint64_t homes_of(const struct ry_hello *h)
{
    uint64_t all = h->rails < 64 ? (1ull << h->rails) - 1 : UINT64_MAX;

    return h->homes & all ? h->homes & all : all;
}

/* The rail that channel number `channel` lives on: homes in turn. */
static uint32_t home_of(const struct ry_hello *h, uint32_t channel)
{
    uint64_t homes = homes_of(h);
    uint32_t skip = channel % (uint32_t)__builtin_popcountll(homes);

    for (; skip; skip--)
        homes &= homes - 1;
    return (uint32_t)__builtin_ctzll(homes);
}

void ry_plan_home(const struct ry_hello *a, const struct ry_hello *b, uint32_t channel,
                  uint32_t *rail, uint32_t *peer_rail)
{
    *rail = home_of(a, channel);
    *peer_rail = home_of(b, channel);
}

/* How many of n channels have the home `rail` as their end. */
static uint32_t sharers(uint32_t n, const struct ry_hello *h, uint32_t rail)
{
    uint64_t homes = homes_of(h);
    uint32_t count = (uint32_t)__builtin_popcountll(homes);
    uint32_t before = (uint32_t)__builtin_popcountll(homes & ((1ull << rail) - 1));

    return n / count + (before < n % count);
}

void ry_mesh_shares(const struct ry_mesh *m, uint32_t pe, double *share)
{
    const struct ry_peer *p = &m->peers[pe];

    for (uint32_t r = 0; r < m->hello.rails; r++)
        share[r] = 0;
    for (uint32_t c = 0; c < p->n_channels && p->weight_sum; c++)
        share[home_of(&m->hello, c)] += (double)p->weights[c] / p->weight_sum;
}

/* Rate of a rail; an unlimited one counts as the fastest of its PE. */
static uint64_t rate_of(const struct ry_hello *h, uint32_t rail)
{
    uint64_t max = 1;

    if (h->rail[rail].rate_bps)
        return h->rail[rail].rate_bps;
    for (uint32_t i = 0; i < h->rails; i++)
        max = ry_max64(max, h->rail[i].rate_bps);
    return max;
}

void ry_plan_weights(const struct ry_hello *a, const struct ry_hello *b, uint32_t n,
                     uint32_t *weight)
{
    uint64_t rate[RY_CHANNELS_MAX], max = 1;

    for (uint32_t c = 0; c < n; c++) {
        uint32_t i, j;
        uint64_t ra, rb;

        ry_plan_home(a, b, c, &i, &j);
        ra = a->rail[i].rate_bps ? a->rail[i].rate_bps / sharers(n, a, i) : 0;
        rb = b->rail[j].rate_bps ? b->rail[j].rate_bps / sharers(n, b, j) : 0;
        if (!ra && !rb)
            ra = rb = rate_of(a, i) / sharers(n, a, i);
        rate[c] = !ra ? rb : !rb ? ra : ry_min64(ra, rb);
        max = ry_max64(max, rate[c]);
    }
    for (uint32_t c = 0; c < n; c++) {
        uint64_t w = rate[c] * 1000 / max;

        weight[c] = w ? (uint32_t)w : 1;
    }
}

/* One end's part of a stand-in's cost: what the topology names, then the other port of the same
 * NIC, then by distance, the neighbour number only breaking ties. */
static uint32_t side_cost(const struct ry_hello *h, uint32_t from, uint32_t to)
{
    uint32_t cost = 0;

    if (to == from)
        return 0;
    if (to == h->rail[from].backup)
        return 0;
    if (h->rail[from].nic != h->rail[to].nic)
        cost += 2 + 2 * (h->rail[to].distance < 15 ? h->rail[to].distance : 15);
    return 1 + cost + (to != (from ^ 1u));
}

uint32_t ry_plan_cost(const struct ry_hello *a, const struct ry_hello *b, uint32_t from,
                      uint32_t from_peer, uint32_t rail, uint32_t peer_rail)
{
    uint32_t cost;

    if (rail == from && peer_rail == from_peer)
        return UINT32_MAX;
    cost = side_cost(a, from, rail) + side_cost(b, from_peer, peer_rail);
    if (a->rails == b->rails && rail != peer_rail)
        cost += 256; /* cross pairs after aligned ones */
    if (rail == from)
        cost += 1024; /* would die with it */
    if (peer_rail == from_peer)
        cost += 1024;
    return cost;
}

bool ry_plan_backup(const struct ry_hello *a, const struct ry_hello *b, uint32_t rail,
                    uint32_t peer_rail, uint32_t *to, uint32_t *to_peer)
{
    uint32_t best = UINT32_MAX;

    for (uint32_t i = 0; i < a->rails; i++) {
        for (uint32_t j = 0; j < b->rails; j++) {
            uint32_t cost = ry_plan_cost(a, b, rail, peer_rail, i, j);

            if (cost < best) {
                best = cost;
                *to = i;
                *to_peer = j;
            }
        }
    }
    return best != UINT32_MAX;
}
