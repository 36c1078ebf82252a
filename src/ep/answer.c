/* SPDX-License-Identifier: Apache-2.0 */
/* Answers: what may be written over.
 *
 * Per pair and direction there are two counts, generations whose dispatch, and generations whose
 * combine the receiver is done with. Combine of a generation is never done before its dispatch, so
 * both fit one word that only grows: dispatch << 4 | (15 - how far combine is behind).
 *
 * Done means by the final PE (rule 16): a forwarder answers a dispatch only when the PEs that it
 * brought the rows to have answered it, and a combine when the sources of the sums have. */
#include <assert.h>

#include "ep/ep.h"

enum { LAG_MAX = 15 };

static uint64_t pack(uint64_t dispatched, uint64_t combined)
{
    uint64_t lag = dispatched - combined;

    assert(combined <= dispatched && lag <= LAG_MAX);
    return dispatched << 4 | (LAG_MAX - lag);
}

static uint64_t unpack(uint64_t answer, bool combine)
{
    uint64_t dispatched = answer >> 4;

    if (!combine || answer == 0)
        return dispatched;
    return dispatched - (LAG_MAX - (answer & LAG_MAX));
}

void ry_ep_answer_note(struct ry_ep *ep, uint32_t p, uint64_t answer)
{
    ep->peer[p].answer_seen = ry_max64(ep->peer[p].answer_seen, answer);
}

/* Look at every sector that p writes here. */
static void look_all(struct ry_ep *ep, uint32_t p)
{
    uint32_t n = ry_ep_channels(ep, p);

    for (uint32_t c = 0; c < n; c++) {
        const struct ry_wide_sector *s = ry_ep_here(ep, ry_ep_answer_at(&ep->l, p, c));

        ry_ep_answer_note(ep, p, ry_observe_answer(s));
        for (uint32_t i = 0; i < RY_EP_KINDS * ep->l.generations; i++) {
            uint32_t kind = i / ep->l.generations, b = i % ep->l.generations;

            s = ry_ep_here(ep, ry_ep_signal_at(&ep->l, kind, b, p, c));
            ry_ep_answer_note(ep, p, ry_observe_answer(s));
        }
    }
}

bool ry_ep_reusable(struct ry_ep *ep, uint32_t kind, uint64_t gen, uint32_t p)
{
    bool combine = kind >= RY_EP_COMBINE, any = false;
    uint32_t n = ry_ep_channels(ep, p);

    if (p == ep->pe || !ry_ep_on(ep, p))
        return true;
    for (uint32_t c = 0; c < n; c++)
        any |= ry_ep_span_of(ep, kind, gen, p, c)->used;
    if (!any)
        return true;
    if (unpack(ep->peer[p].answer_seen, combine) < gen) {
        look_all(ep, p);
        if (unpack(ep->peer[p].answer_seen, combine) < gen)
            return false;
    }
    for (uint32_t c = 0; c < n && !ry_ep_direct(ep, p); c++) {
        const struct ry_ep_span *s = ry_ep_span_of(ep, kind, gen, p, c);
        struct ry_channel *ch = ry_mesh_channel(ep->m, p, c);

        if (!s->used)
            continue;
        if (!s->again)
            ry_channel_answered(ch, s->end);
        if (!ry_channel_reusable(ch, s->from, s->end))
            return false;
    }
    return true;
}

static bool all_reusable(struct ry_ep *ep, uint32_t kind, uint64_t gen)
{
    for (uint32_t p = 0; p < ep->n; p++) {
        if (ry_ep_reusable(ep, kind, gen, p))
            continue;
        ep->wait_for = p;
        return false;
    }
    return true;
}

/* How far the final PEs are with what this PE forwards. */
static void advance(struct ry_ep *ep)
{
    while (ep->forward_done < ep->returned && all_reusable(ep, RY_EP_FORWARD, ep->forward_done + 1))
        ep->forward_done++;
    while (ep->cross_done < ep->combined && all_reusable(ep, RY_EP_CROSS, ep->cross_done + 1))
        ep->cross_done++;
}

uint64_t ry_ep_answer_for(struct ry_ep *ep, uint32_t p)
{
    bool near = ry_place_node(&ep->l.place, p) == ep->node;

    if (ep->attr.mode == RY_EP_LL)
        return pack(ep->returned, ep->combined);
    advance(ep);
    if (near) /* its rows end here; what it sends back may go on to other nodes */
        return pack(ep->returned, ep->cross_done);
    if (ry_ep_ht_ferry(ep, p, ep->node) == p) /* it sends without a forwarder */
        return pack(ep->returned, ry_min64(ep->combined, ep->forward_done));
    return pack(ep->forward_done, ry_min64(ep->combined, ep->forward_done));
}

int ry_ep_answer_flush(struct ry_ep *ep)
{
    for (uint32_t i = 0; i + 1 < ep->n; i++) {
        uint32_t p = ry_ep_turn(ep, i);
        int rc;

        if (!ry_ep_on(ep, p) || ry_ep_answer_for(ep, p) <= ep->peer[p].answer_sent)
            continue;
        rc = ry_ep_signal_answer(ep, p);
        if (rc)
            return rc;
    }
    return RY_OK;
}

struct buffer_wait {
    uint64_t gen;
    uint32_t kind_first, kind_last;
};

static int buffer_step(struct ry_ep *ep, void *arg)
{
    const struct buffer_wait *w = arg;

    for (uint32_t kind = w->kind_first; kind <= w->kind_last; kind++)
        if (!all_reusable(ep, kind, w->gen))
            return 0;
    return 1;
}

int ry_ep_reuse_wait(struct ry_ep *ep, uint64_t gen, uint32_t kind_first, uint32_t kind_last)
{
    struct buffer_wait w = {gen - ep->l.generations, kind_first, kind_last};
    int rc;

    if (gen <= ep->l.generations)
        return RY_OK;
    rc = ry_ep_await(ep, buffer_step, &w);
    if (rc == RY_OK)
        advance(ep); /* while the spans still tell of that generation */
    return rc;
}

int ry_ep_buffer_wait(struct ry_ep *ep, uint64_t gen, uint32_t kind_first, uint32_t kind_last)
{
    int rc = ry_ep_reuse_wait(ep, gen, kind_first, kind_last);

    if (rc)
        return rc;
    for (uint32_t kind = kind_first; kind <= kind_last; kind++)
        for (uint32_t p = 0; p < ep->n; p++)
            for (uint32_t c = 0; c < ep->channels; c++)
                *ry_ep_span_of(ep, kind, gen, p, c) = (struct ry_ep_span){0};
    return RY_OK;
}

int ry_ep_quiet_step(struct ry_ep *ep, void *arg)
{
    uint64_t gen = ep->sent + 1 > ep->l.generations ? ep->sent + 1 - ep->l.generations : 1;
    int rc = ry_ep_answer_flush(ep);

    (void)arg;
    if (rc)
        return rc;
    for (; gen <= ep->sent; gen++)
        for (uint32_t kind = 0; kind < RY_EP_KINDS; kind++)
            if (!all_reusable(ep, kind, gen))
                return 0;
    advance(ep);
    if (ep->forward_done != ep->sent || ep->cross_done != ep->sent)
        return 0;
    return ry_ep_answer_flush(ep) == RY_OK;
}

int ry_ep_quiesce(struct ry_ep *ep)
{
    /* what was not combined never will be */
    ep->received = ep->returned = ep->combined = ep->sent;
    return ry_ep_await(ep, ry_ep_quiet_step, NULL);
}
