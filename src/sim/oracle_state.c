/* SPDX-License-Identifier: Apache-2.0 */
/* States are legal, queues never overrun, and nothing moves without a reason. */
#include "sim/oracle.h"

static void look_at(const struct ry_out_channel *oc, uint32_t pe, uint32_t q, uint32_t c)
{
    const struct ry_channel *ch = oc->ch;
    const struct ry_ring *r = &ch->ring[ry_state_active(ch->state)];
    int64_t used = ry_seq_diff(ry_packed_seq(r->resv_head), ch->released);
    int64_t flying = ry_seq_diff(ry_packed_seq(r->resv_head), ry_packed_seq(r->cons));

    if (used < 0 || used > (int64_t)ch->depth)
        ry_sim_violate("overrun: channel %u of pe %u to %u holds %lld of %u blocks", c, pe, q,
                       (long long)used, ch->depth);
    if (ry_state_of(ch->state) == RY_CH_GOOD && flying > (int64_t)ch->depth)
        ry_sim_violate("overrun: channel %u of pe %u to %u has %lld of %u blocks under way", c, pe,
                       q, (long long)flying, ch->depth);
    if (ry_state_of(ch->state) == RY_CH_GOOD &&
        ry_seq_diff(ry_packed_seq(r->cons), ry_packed_seq(r->resv_head)) > 0)
        ry_sim_violate("frontier: channel %u of pe %u to %u has completed what was not posted", c,
                       pe, q);
    for (uint32_t s = 0; s < RY_SLOTS; s++)
        if (ch->ring[s].failed_epoch > oc->slot[s].epoch ||
            oc->slot[s].host.fenced_epoch > oc->slot[s].epoch)
            ry_sim_violate("epoch: slot %u of channel %u of pe %u to %u is ahead of its life", s, c,
                           pe, q);
}

void ry_oracle_states(void)
{
    for (uint32_t p = 0; p < ry_sim->plan.pes; p++) {
        const struct ry_mesh *m = &ry_sim->pe[p].ctx->mesh;

        for (uint32_t q = 0; ry_sim->pe[p].ctx && m->peers && q < ry_sim->plan.pes; q++)
            for (uint32_t c = 0; m->peers[q].out && c < m->peers[q].n_channels; c++)
                look_at(&m->peers[q].out[c], p, q, c);
    }
}

/* Where nothing goes wrong, nothing moves but home. A proxy that sleeps for longer than a path may
 * be silent is something that goes wrong. */
void ry_oracle_needless(uint64_t failed)
{
    const struct ry_sim_plan *p = &ry_sim->plan;

    bool calm = (p->stall_p == 0 || p->stall_ns < 50000) && p->slow_p == 0;

    if (failed && calm && !p->n_faults && !p->chaos.lost_cqe_p && !p->bad_op && !p->loss[0].at)
        ry_sim_violate("needless: %llu moves without a fault", (unsigned long long)failed);
}

void ry_sim_check_end(struct ry_sim_world *w)
{
    for (uint32_t p = 0; p < w->plan.pes && !w->failed; p++) {
        struct ry_sim_model *m = w->pe[p].model;

        for (uint32_t i = 0; i < RY_SIM_COUNTERS && !ry_sim_gone(p); i++)
            if (m->area->counter[i] != m->fetched[i])
                ry_sim_violate("atomic: word %u of pe %u is %llu after %u adds", i, p,
                               (unsigned long long)m->area->counter[i], m->fetched[i]);
    }
    ry_oracle_states();
    for (uint32_t p = 0; ry_sim_any_gone() && p < w->plan.pes; p++)
        ry_oracle_masked(p);
    ry_oracle_final();
}
