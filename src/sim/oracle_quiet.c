/* SPDX-License-Identifier: Apache-2.0 */
/* Nothing is reported complete that is not: when quiet returns, all that was put before it stands
 * in the peers' heaps; and in the end everything stands where it was put last, once. */
#include "sim/oracle.h"

void ry_oracle_quiet(uint32_t pe)
{
    struct ry_sim_model *m = ry_sim_model_of(pe);

    for (uint32_t q = 0; q < ry_sim->plan.pes; q++) {
        const struct ry_sim_area *there;

        if (q == pe || ry_sim_gone(q) || ry_sim_gone(pe))
            continue;
        there = ry_sim_model_of(q)->area;
        for (uint32_t i = 0; i < RY_SIM_SLOTS; i++)
            if (there->plain_in[pe][i].word[0] != m->plain_stamp[q][i])
                ry_sim_violate("quiet: pe %u's put %llx is not at pe %u: slot %u holds %llx", pe,
                               (unsigned long long)m->plain_stamp[q][i], q, i,
                               (unsigned long long)there->plain_in[pe][i].word[0]);
        if (ry_sim_signal(&there->sig[0][pe]) < m->stream[0][q].sent)
            ry_sim_violate("quiet: pe %u's signal %llu is not at pe %u", pe,
                           (unsigned long long)m->stream[0][q].sent, q);
    }
}

void ry_oracle_final(void)
{
    for (uint32_t p = 0; p < ry_sim->plan.pes; p++) {
        struct ry_sim_model *m = ry_sim_model_of(p);

        ry_oracle_look(p);
        if (!ry_sim_gone(p))
            ry_oracle_spread(p);
        for (uint32_t q = 0; q < ry_sim->plan.pes; q++) {
            if (q == p || ry_sim_gone(p) || ry_sim_gone(q))
                continue;
            for (uint32_t s = 0; s < 2; s++)
                if (ry_sim_signal(&ry_sim_model_of(q)->area->sig[s][p]) != m->stream[s][q].sent)
                    ry_sim_violate(
                        "final: stream %u of pe %u at pe %u ends at %llu instead of %llu", s, p, q,
                        (unsigned long long)ry_sim_signal(&ry_sim_model_of(q)->area->sig[s][p]),
                        (unsigned long long)m->stream[s][q].sent);
        }
        ry_oracle_quiet(p);
    }
}
