/* SPDX-License-Identifier: Apache-2.0 */
/* Fetched atomics return what a sequential order allows: with fetch-add of 1 every old value is
 * handed out once, and in the end the word is the number of adds. Gets return what stood there. */
#include "sim/oracle.h"

void ry_oracle_fetched(uint32_t pe, uint32_t at, uint32_t word, uint64_t old)
{
    struct ry_sim_model *m = ry_sim_model_of(at);

    m->fetched[word]++;
    if (old >= RY_SIM_FETCHED || m->taken[word][old])
        ry_sim_violate("atomic: pe %u fetched %llu from word %u of pe %u, which was handed out or "
                       "never was",
                       pe, (unsigned long long)old, word, at);
    else
        m->taken[word][old] = 1;
}

/* A get that is over writes nothing more. */
void ry_oracle_got_away(uint32_t pe)
{
    const struct ry_sim_model *m = ry_sim_model_of(pe);

    for (uint32_t i = 0; m->got_away && i < RY_SIM_CELL_WORDS; i++)
        if (m->area->got.word[i] != 0xeeeeeeeeeeeeeeeeull)
            ry_sim_violate("get: pe %u's landing place was written again after its get was over",
                           pe);
}

void ry_oracle_got(uint32_t pe, uint32_t from)
{
    const struct ry_sim_cell *got = &ry_sim_model_of(pe)->area->got;
    const struct ry_sim_cell *want = &ry_sim_model_of(from)->area->fixed;

    for (uint32_t i = 0; i < RY_SIM_CELL_WORDS; i++)
        if (got->word[i] != want->word[i])
            ry_sim_violate("get: pe %u read %llx from pe %u instead of %llx", pe,
                           (unsigned long long)got->word[i], from,
                           (unsigned long long)want->word[i]);
}
