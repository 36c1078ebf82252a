/* SPDX-License-Identifier: Apache-2.0 */
/* Every channel to a peer carries its share of the small transfers (rule 4): none is left out. */
#include "sim/oracle.h"

enum { SLACK_BYTES = 4 * sizeof(struct ry_sim_cell) }; /* the one that is behind is taken next */

static void look_at(const struct ry_peer *p, uint32_t pe)
{
    uint64_t all = 0;

    for (uint32_t c = 0; c < p->n_channels; c++)
        all += p->sent[c];
    for (uint32_t c = 0; c < p->n_channels; c++) {
        uint64_t share = all * p->weights[c] / p->weight_sum;

        if (p->sent[c] + SLACK_BYTES < share)
            ry_sim_violate("spread: channel %u of pe %u to %u carried %llu of its %llu bytes", c,
                           pe, p->pe, (unsigned long long)p->sent[c], (unsigned long long)share);
    }
}

void ry_oracle_spread(uint32_t pe)
{
    const struct ry_mesh *m = &ry_sim->pe[pe].ctx->mesh;

    for (uint32_t q = 0; q < ry_sim->plan.pes; q++)
        if (q != pe && m->peers[q].out)
            look_at(&m->peers[q], pe);
}
