/* SPDX-License-Identifier: Apache-2.0 */
/* In the end both ends of every path agree: an armed life at the initiator is a ready one at the
 * responder, and what each says of its ports the other knows. An end is one only when nothing is on
 * its way between them any more, so that a run whose applications are done goes on until then. */
#include "sim/oracle.h"

enum { SLICE_NS = 20000, SETTLE_NS = 40000000, CALM_NS = 4000000 };

/* Do the two have channels to each other, and neither has given the other up? */
static bool in_touch(uint32_t p, uint32_t q)
{
    const struct ry_ctx *a = ry_sim->pe[p].ctx, *b = ry_sim->pe[q].ctx;

    return p != q && a && b && a->mesh.peers && b->mesh.peers &&
           a->mesh.peers[q].state == RY_PEER_UP && b->mesh.peers[p].state == RY_PEER_UP;
}

static bool usable(const struct ry_out_channel *oc, uint32_t i)
{
    const struct ry_out_slot *s = &oc->slot[i];

    return s->state == RY_OUT_ARMED && !s->condemned && oc->ch->ring[i].failed_epoch < s->epoch;
}

/* What a channel of p to q is still about, or NULL. */
static const char *unrest(const struct ry_out_channel *oc, const struct ry_in_slot *in)
{
    uint64_t st = oc->ch->state;

    for (uint32_t i = 0; i < RY_SLOTS; i++) {
        if (oc->slot[i].state != RY_OUT_EMPTY && !usable(oc, i))
            return oc->slot[i].state == RY_OUT_ARMED ? "a path is condemned"
                                                     : "a path is half made";
        if (in[i].state == RY_IN_FENCING)
            return "a fence is not done";
    }
    if (ry_state_of(st) == RY_CH_DEAD ||
        (ry_state_of(st) == RY_CH_GOOD && usable(oc, ry_state_active(st))))
        return NULL;
    return "a channel has no path";
}

struct rest {
    uint32_t p, q, channel;
    const char *why; /* NULL: everything is at rest */
};

static struct rest look(const struct ry_sim_world *w)
{
    struct rest r = {0};

    for (r.p = 0; r.p < w->plan.pes; r.p++) {
        for (r.q = 0; r.q < w->plan.pes; r.q++) {
            const struct ry_mesh *m;
            const struct ry_peer *peer;

            if (!in_touch(r.p, r.q))
                continue;
            m = &w->pe[r.p].ctx->mesh;
            peer = &m->peers[r.q];
            if (w->pe[r.p].stepping)
                r.why = "the agent is at work";
            else if (peer->acked_news != m->rails_news)
                r.why = "news is on its way";
            for (r.channel = 0; !r.why && r.channel < peer->n_channels; r.channel++)
                r.why = unrest(&peer->out[r.channel], &peer->in[r.channel * RY_SLOTS]);
            if (r.why)
                return r;
        }
    }
    return r;
}

static void agree_on_ports(uint32_t p, uint32_t q)
{
    const struct ry_mesh *m = &ry_sim->pe[p].ctx->mesh;
    const struct ry_peer *far = &ry_sim->pe[q].ctx->mesh.peers[p];

    if (far->rails_up != m->rails_up || far->rails_drained != m->rails_drained)
        ry_sim_violate("agreement: pe %u has ports %llx up and %llx drained, and pe %u takes them "
                       "for %llx and %llx",
                       p, (unsigned long long)m->rails_up, (unsigned long long)m->rails_drained, q,
                       (unsigned long long)far->rails_up, (unsigned long long)far->rails_drained);
}

static void agree_on_paths(uint32_t p, uint32_t q)
{
    const struct ry_peer *near = &ry_sim->pe[p].ctx->mesh.peers[q];
    const struct ry_peer *far = &ry_sim->pe[q].ctx->mesh.peers[p];

    for (uint32_t i = 0; i < near->n_channels * RY_SLOTS; i++) {
        const struct ry_out_channel *oc = &near->out[i / RY_SLOTS];
        const struct ry_out_slot *s = &oc->slot[i % RY_SLOTS];

        if (usable(oc, i % RY_SLOTS) &&
            (far->in[i].state != RY_IN_READY || far->in[i].epoch != s->epoch))
            ry_sim_violate("agreement: slot %u of pe %u to %u is armed as life %llu, and there it "
                           "is state %d of life %llu",
                           i, p, q, (unsigned long long)s->epoch, (int)far->in[i].state,
                           (unsigned long long)far->in[i].epoch);
    }
}

void ry_oracle_agree(void)
{
    struct ry_sim_world *w = ry_sim;
    uint64_t end = w->now_ns + SETTLE_NS, limit = w->now_ns;
    struct rest r = look(w);

    w->settling = true;
    while (r.why && !w->failed && limit < end) {
        limit += SLICE_NS;
        if (limit - CALM_NS >= end - SETTLE_NS && w->skip_max) {
            w->skip_max = 0; /* nobody is preempted any more: none is met at work for ever */
            ry_sim_skip_draw(w);
        }
        ry_sim_run_world(w, limit);
        r = look(w);
    }
    w->settling = false;
    for (uint32_t p = 0; p < w->plan.pes && !w->failed; p++) {
        for (uint32_t q = 0; q < w->plan.pes; q++) {
            if (!in_touch(p, q))
                continue;
            agree_on_ports(p, q);
            agree_on_paths(p, q);
        }
    }
    if (r.why && !w->failed)
        ry_sim_violate("agreement: %d ms after the last operation %s: channel %u of pe %u to %u",
                       SETTLE_NS / 1000000, r.why, r.channel, r.p, r.q);
}
