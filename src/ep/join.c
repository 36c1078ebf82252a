/* SPDX-License-Identifier: Apache-2.0 */
/* Replacements take the places of lost PEs (rule 16), of all that are missing at once. Survivors
 * vote on the dispatch before which they are let in, the first that none of them has begun; there
 * they meet them: in ry_ctx_rejoin while those make their contexts, then in the collectives of
 * ry_ep_create, where they are told where the exchange stands. They begin behind every generation
 * and round that the survivors have seen. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ep/ep.h"
#include "host/error.h"

/* Where an exchange stands; behind it the set of PEs that take part. */
struct state {
    uint64_t fresh; /* just made: it has no past */
    uint64_t gen, round;
};

int ry_ep_agree(ry_ctx *ctx, const ry_ep_attr *attr)
{
    static const char *const names[] = {"experts", "topk",  "hidden", "tokens_max",
                                        "mode",    "dtype", "scale",  "generations"};
    enum { FIELDS = sizeof(names) / sizeof(names[0]) };
    uint32_t mine[FIELDS] = {attr->experts,         attr->topk,           attr->hidden,
                             attr->tokens_max,      (uint32_t)attr->mode, (uint32_t)attr->dtype,
                             (uint32_t)attr->scale, attr->generations};
    uint32_t n = ry_n_pes(ctx), (*all)[FIELDS] = calloc(n, sizeof(*all));
    int rc = all ? ry_allgather(ctx, mine, sizeof(mine), all)
                 : ry_fail(RY_ERR_NO_MEMORY, "no memory for %" PRIu32 " pes", n);

    for (uint32_t p = 0; p < n && rc == RY_OK; p++)
        for (uint32_t i = 0; i < FIELDS && rc == RY_OK; i++)
            if (all[p][i] != mine[i])
                rc = ry_fail(RY_ERR_CONFIG,
                             "exchange: pe %" PRIu32 " has %s %" PRIu32 ", pe %" PRIu32
                             " has %" PRIu32 ": give every pe the same",
                             ry_pe(ctx), names[i], mine[i], p, all[p][i]);
    free(all);
    return rc;
}

/* A replacement takes over where the others are; who is let in beside it takes part too. */
static void adopt(struct ry_ep *ep, const struct state *s, const uint8_t *all, size_t bytes)
{
    const uint64_t *active = (const uint64_t *)(const void *)(s + 1);
    uint64_t gen = RY_MUT(RY_MUT_JOIN_AT_ZERO) ? 0 : s->gen;

    ep->sent = ep->received = ep->returned = ep->combined = gen;
    ep->forward_done = ep->cross_done = gen;
    ep->round = s->round;
    memcpy(ep->active, active, ep->words * sizeof(*active));
    for (uint32_t p = 0; p < ep->n; p++)
        if (((const struct state *)(const void *)(all + p * bytes))->fresh)
            ry_set_add(ep->active, p);
    memcpy(ep->told, ep->active, ep->words * sizeof(*active));
    for (uint32_t p = 0; p < ep->n; p++)
        if (!ry_ep_on(ep, p))
            ry_set_add(ep->gone, p);
}

int ry_ep_meet(struct ry_ep *ep, bool fresh)
{
    size_t bytes = sizeof(struct state) + ep->words * sizeof(uint64_t);
    uint8_t *mine = calloc(1, bytes), *all = calloc(ep->n, bytes);
    int rc = RY_OK;

    if (mine && all) {
        *(struct state *)(void *)mine = (struct state){fresh, ep->sent, ep->round};
        memcpy(mine + sizeof(struct state), ep->active, ep->words * sizeof(uint64_t));
        rc = ry_allgather(ep->ctx, mine, bytes, all);
    } else {
        rc = ry_fail(RY_ERR_NO_MEMORY, "no memory for %" PRIu32 " pes", ep->n);
    }
    for (uint32_t p = 0; p < ep->n && rc == RY_OK && fresh; p++) {
        const struct state *s = (const struct state *)(void *)(all + p * bytes);

        if (s->fresh)
            continue;
        adopt(ep, s, all, bytes);
        break;
    }
    free(mine);
    free(all);
    if (rc == RY_OK)
        rc = ry_barrier(ep->ctx);
    /* all were met in the allgather, or nobody was; one lost since is masked as any is */
    return rc == RY_ERR_PEER_LOST ? RY_OK : rc;
}

bool ry_ep_join_due(const struct ry_ep *ep)
{
    bool any = false;

    if (ep->join_at)
        return false;
    for (uint32_t p = 0; p < ep->n; p++) {
        if (!ry_set_has(ep->gone, p))
            continue;
        if (ry_ep_on(ep, p) || !ry_ctx_waits(ep->ctx, p))
            return false;
        any = true;
    }
    return any;
}

/* Nothing of the predecessor counts any more; its words here are old, and so are ours for it. */
static void forget(struct ry_ep *ep, uint32_t p)
{
    const struct ry_ep_layout *l = &ep->l;
    size_t sectors = RY_CHANNELS_MAX * sizeof(struct ry_wide_sector);

    memset(&ep->peer[p], 0, sizeof(ep->peer[p]));
    for (uint32_t kind = 0; kind < RY_EP_KINDS; kind++)
        for (uint32_t b = 0; b < l->generations; b++) {
            memset(ry_ep_span_of(ep, kind, b, p, 0), 0, ep->channels * sizeof(*ep->span));
            memset(ry_ep_here(ep, ry_ep_signal_at(l, kind, b, p, 0)), 0, sectors);
        }
    memset(ry_ep_here(ep, ry_ep_answer_at(l, p, 0)), 0, sectors);
    memset(ry_ep_here(ep, ry_ep_ballot_at(l, p)), 0, sizeof(struct ry_wide_sector));
    for (uint32_t i = 0; i < 2; i++)
        ep->vote_span[i * ep->n + p] = (struct ry_ep_span){0};
}

static void let_in(struct ry_ep *ep, uint32_t p)
{
    ry_set_add(ep->active, p);
    ry_set_drop(ep->gone, p);
    ry_set_drop(ep->by_nic, p);
    if (!ep->m->peers[p].direct)
        ry_set_add(ep->by_nic, p);
}

/* Is the join that was agreed on before the dispatch that this PE begins? */
static bool now(const struct ry_ep *ep)
{
    return ep->join_at && ep->sent + 1 >= ep->join_at && ep->combined == ep->sent;
}

/* Who is let in has come, and nobody waits for an answer of this PE: it gives none while it meets
 * them. Or the join is off, since one more is lost; another one may have been agreed on at once,
 * for a later dispatch: this one comes first, which others have begun. */
static int ready_step(struct ry_ep *ep, void *arg)
{
    for (uint32_t p = 0; p < ep->n && now(ep); p++)
        if (ry_set_has(ep->join_set, p) && !ry_ctx_came(ep->ctx, p))
            return 0;
    return now(ep) && !RY_MUT(RY_MUT_JOIN_OWING) ? ry_ep_quiet_step(ep, arg) : 1;
}

/* The paths of the new peers fit into what was made for their predecessors. */
static int check_channels(const struct ry_ep *ep)
{
    for (uint32_t p = 0; p < ep->n; p++)
        if (ry_set_has(ep->join_set, p) && ep->m->peers[p].n_channels > ep->channels)
            return ry_fail(RY_ERR_CONFIG,
                           "pe %" PRIu32 " comes back with %" PRIu32 " channels, and %" PRIu32
                           " are the most: give it the rails of its predecessor",
                           p, ep->m->peers[p].n_channels, ep->channels);
    return RY_OK;
}

/* One more was lost while they were met, before the last of the collectives that all must be in:
 * it failed at every survivor alike. They end, since nobody lets them in, and others come. */
static int turn_away(struct ry_ep *ep)
{
    for (uint32_t p = 0; p < ep->n; p++)
        if (ry_set_has(ep->join_set, p))
            ry_mesh_give_up(ep->m, p);
    return RY_OK;
}

static int join(struct ry_ep *ep)
{
    int rc = ry_ep_await(ep, ready_step, NULL);

    if (rc || !now(ep))
        return rc;
    ep->join_at = 0;
    rc = ry_ctx_rejoin(ep->ctx, ep->join_set);
    if (rc == RY_ERR_LAUNCH)
        return RY_OK; /* one ended again before it was in, or one more is lost: still masked */
    for (uint32_t p = 0; p < ep->n; p++)
        if (ry_set_has(ep->join_set, p))
            forget(ep, p); /* before it writes here, behind the barrier of ry_ep_meet */
    if (rc == RY_OK)
        rc = check_channels(ep);
    if (rc == RY_OK)
        rc = ry_mesh_none_lost(ep->m, ep->join_set);
    if (rc == RY_OK)
        rc = ry_ep_agree(ep->ctx, &ep->attr);
    if (rc == RY_OK)
        rc = ry_mesh_none_lost(ep->m, ep->join_set);
    if (rc == RY_OK)
        rc = ry_ep_meet(ep, false);
    if (rc == RY_ERR_LAUNCH)
        return turn_away(ep);
    for (uint32_t p = 0; p < ep->n && rc == RY_OK; p++)
        if (ry_set_has(ep->join_set, p))
            let_in(ep, p);
    if (rc)
        ry_ep_break(ep, rc);
    return rc;
}

int ry_ep_join(struct ry_ep *ep)
{
    int rc = ry_ep_unsettled(ep) ? ry_ep_settle(ep) : RY_OK;

    return rc || !now(ep) ? rc : join(ep);
}
