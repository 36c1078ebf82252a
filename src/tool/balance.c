/* SPDX-License-Identifier: Apache-2.0 */
#include "balance.h"

#include <stdio.h>

void ry_balance_add(struct ry_balance *b, uint32_t pe, uint32_t peer, const uint64_t *bytes,
                    const double *share, uint32_t n)
{
    double least = 0, most = 0;
    uint32_t least_at = 0, most_at = 0, used = 0;
    uint64_t sum = 0;
    for (uint32_t k = 0; k < n; k++)
        sum += bytes[k];
    if (sum < BALANCE_LEAST_BYTES)
        return;
    for (uint32_t k = 0; k < n; k++) {
        double part = share[k] > 0 ? (double)bytes[k] / share[k] : 0;
        if (share[k] <= 0)
            continue; /* a backup, or left out by a map */
        if (used == 0 || part < least) {
            least = part;
            least_at = k;
        }
        if (used == 0 || part > most) {
            most = part;
            most_at = k;
        }
        used++;
    }
    if (used == 0)
        return;
    b->pairs++;
    double off = most > 0 ? 1 - least / most : 0;
    if (b->pairs > 1 && off <= b->worst)
        return;
    b->worst = off;
    b->pe = pe;
    b->peer = peer;
    b->least = least_at;
    b->most = most_at;
}

void ry_balance_run(struct ry_balance *b, const struct ry_run *run)
{
    *b = (struct ry_balance){0};
    for (uint32_t i = 0; i < run->n_pes; i++) {
        const struct ry_report *r = &run->reports[i];
        for (uint32_t k = 0; k < run->n_pes && k < REPORT_PEERS; k++) {
            if (k != i && !ry_run_lost_pe(run, i) && !ry_run_lost_pe(run, k))
                ry_balance_add(b, i, k, r->to[k].bytes, r->to[k].share, r->n_rails);
        }
    }
}

json_t *ry_pairs_json(const struct ry_run *run)
{
    json_t *pairs = json_array();
    for (uint32_t i = 0; i < run->n_pes; i++) {
        const struct ry_report *r = &run->reports[i];
        for (uint32_t k = 0; k < run->n_pes && k < REPORT_PEERS; k++) {
            json_t *bytes = json_array();
            uint64_t sum = 0;
            for (uint32_t rail = 0; rail < r->n_rails; rail++) {
                json_array_append_new(bytes, json_integer((json_int_t)r->to[k].bytes[rail]));
                sum += r->to[k].bytes[rail];
            }
            if (sum > 0)
                json_array_append_new(
                    pairs, json_pack("{s:i, s:i, s:O}", "pe", (int)i, "peer", (int)k, "bytes",
                                     bytes));
            json_decref(bytes);
        }
    }
    return pairs;
}

void ry_balance_print(const struct ry_balance *b)
{
    if (b->pairs == 0)
        return;
    printf("balance per pair: worst %.1f %% (pe%u to pe%u: rail%u behind rail%u), %u %s\n",
           100 * b->worst, b->pe, b->peer, b->least, b->most, b->pairs,
           b->pairs == 1 ? "pair" : "pairs");
}
