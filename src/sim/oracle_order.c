/* SPDX-License-Identifier: Apache-2.0 */
/* No signal before its payload; no ghost in a reused buffer; what is proven never goes back. */
#include <string.h>

#include "sim/oracle.h"

static bool whole(const struct ry_sim_cell *c, uint64_t stamp)
{
    if (c->word[0] != stamp)
        return false;
    for (uint32_t i = 1; i < RY_SIM_CELL_WORDS; i++)
        if (c->word[i] != stamp * 0x9e3779b97f4a7c15ull + i)
            return false;
    return true;
}

static void look_at(uint32_t pe, uint32_t from, uint32_t s)
{
    struct ry_sim_model *m = ry_sim_model_of(pe), *f = ry_sim_model_of(from);
    uint32_t slots = s ? RY_SIM_SLOTS : ry_sim->plan.slots;
    uint64_t v = ry_sim_signal(&m->area->sig[s][from]), started = f->stream[s][pe].started;

    if (v > started) {
        ry_sim_violate("signal: pe %u sees value %llu of pe %u, which has begun only %llu", pe,
                       (unsigned long long)v, from, (unsigned long long)started);
        return;
    }
    /* A replay may write what is not proven once more, in order, into a word that a fenced life had
     * brought further: it is back for as long as the replay takes. What quiet proved stays. */
    if (v < f->stream[s][pe].quiet) {
        ry_sim_violate("signal: the value of pe %u at pe %u went back to %llu, and %llu was proven",
                       from, pe, (unsigned long long)v, (unsigned long long)f->stream[s][pe].quiet);
        return;
    }
    m->seen[s][from] = v;
    /* what the sender has not begun to write again must stand there */
    for (uint64_t k = v; k + slots > v && k > 0; k--) {
        const struct ry_sim_cell *c = &m->area->in[s][from][k % slots];

        if (f->stream[s][pe].started >= k + slots)
            break;
        if (!whole(c, k << 8 | from << 4 | s)) {
            ry_sim_violate("payload: pe %u sees signal %llu of pe %u, and slot of %llu holds %llx",
                           pe, (unsigned long long)v, from, (unsigned long long)k,
                           (unsigned long long)c->word[0]);
            return;
        }
    }
}

/* Plain puts to one slot follow each other by a quiet, so that an older one must never come back.
 */
static void look_at_plain(uint32_t pe, uint32_t from)
{
    struct ry_sim_model *m = ry_sim_model_of(pe);

    for (uint32_t i = 0; i < RY_SIM_SLOTS; i++) {
        const struct ry_sim_cell *c = &m->area->plain_in[from][i];
        uint64_t stamp = c->word[0];

        if (stamp == m->plain_seen[from][i])
            continue;
        if (stamp < m->plain_seen[from][i] || !whole(c, stamp)) {
            ry_sim_violate("ghost: slot %u of pe %u at pe %u holds %llx after %llx", i, from, pe,
                           (unsigned long long)stamp, (unsigned long long)m->plain_seen[from][i]);
            return;
        }
        m->plain_seen[from][i] = stamp;
    }
}

/* Look at every signal of pe that is another one than before. False: not at all of them. */
static bool watch(uint32_t pe, struct ry_sim_model *m)
{
    bool all = true;

    for (uint32_t q = 0; q < ry_sim->plan.pes; q++) {
        for (uint32_t s = 0; s < 2 && q != pe && !ry_sim_gone(q); s++) {
            uint64_t v = ry_sim_signal(&m->area->sig[s][q]);

            if (v == m->seen[s][q])
                continue;
            if (ry_sim_model_of(q)->ready)
                look_at(pe, q, s);
            else
                all = false;
        }
    }
    return all;
}

void ry_oracle_watch(void)
{
    for (uint32_t p = 0; p < ry_sim->plan.pes; p++) {
        struct ry_sim_model *m = ry_sim_gone(p) ? NULL : ry_sim_model_of(p);

        if (m && m->ready && memcmp(m->watched, m->area->sig, sizeof(m->watched)) != 0 &&
            watch(p, m))
            memcpy(m->watched, m->area->sig, sizeof(m->watched));
    }
}

void ry_oracle_look(uint32_t pe)
{
    for (uint32_t q = 0; q < ry_sim->plan.pes && !ry_sim->failed; q++) {
        if (q == pe || ry_sim_gone(q) || ry_sim_gone(pe) || !ry_sim_model_of(q)->ready ||
            !ry_sim_model_of(pe)->ready)
            continue;
        look_at(pe, q, 0);
        look_at(pe, q, 1);
        look_at_plain(pe, q);
    }
}
