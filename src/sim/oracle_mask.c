/* SPDX-License-Identifier: Apache-2.0 */
/* Nothing of a masked PE lands (rule 16): once a survivor counts without it, what it had written
 * there stays as it is, until a replacement may write. */
#include "sim/oracle.h"

static uint64_t mix(uint64_t h, const void *from, size_t bytes)
{
    const uint8_t *b = from;

    for (size_t i = 0; i < bytes; i++)
        h = (h ^ b[i]) * 0x100000001b3ull;
    return h;
}

static uint64_t left_by(const struct ry_sim_area *a, uint32_t lost)
{
    uint64_t h = 0xcbf29ce484222325ull;

    for (uint32_t s = 0; s < 2; s++) {
        h = mix(h, &a->sig[s][lost], sizeof(a->sig[s][lost]));
        h = mix(h, a->in[s][lost], sizeof(a->in[s][lost]));
    }
    return mix(h, a->plain_in[lost], sizeof(a->plain_in[lost]));
}

static void still(uint32_t pe, struct ry_sim_model *m, uint32_t lost)
{
    uint64_t h = left_by(m->area, lost);

    if (m->left[lost] && h != m->left[lost])
        ry_sim_violate("mask: pe %u has masked pe %u, and something of it has landed", pe, lost);
    m->left[lost] = h;
}

void ry_oracle_masked(uint32_t pe)
{
    struct ry_sim_model *m = ry_sim_model_of(pe);

    for (uint32_t i = 0; i < RY_SIM_LOSSES; i++) {
        uint32_t lost = ry_sim->plan.loss[i].pe;

        if (ry_sim->lost[i].down && !ry_sim->lost[i].joined_at && pe != lost && m &&
            m->without >> lost & 1)
            still(pe, m, lost);
    }
}
