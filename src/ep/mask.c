/* SPDX-License-Identifier: Apache-2.0 */
/* Losing a PE (rule 16).
 *
 * Survivors vote, over the same channels as everything else: each tells every other whom it knows
 * to be lost, and what the lost PE had announced. When all votes of a round name the same, every
 * survivor masks that PE before it goes on; else the next round is about what the votes taught.
 * Whoever was told in a round has a vote of everybody, so nobody can be a round ahead by more than
 * one, and two places for votes are enough.
 *
 * A generation that was under way goes on. What the lost PE had sent completely counts, what it had
 * not is absent. What it held for others is sent again, from buffers that its final readers have
 * not answered for: tokens straight to the PEs of its node, rows straight to their sources. The
 * bytes and their places are the same, so a row that had arrived is only written again. */
#include <string.h>

#include "ep/ep.h"

static struct ry_ep_vote *vote_of(struct ry_ep *ep, uint64_t round, uint32_t p)
{
    return ry_ep_here(ep, ry_ep_vote_at(&ep->l, round, p));
}
static uint64_t *set_of(struct ry_ep_vote *v) { return (uint64_t *)(void *)(v + 1); }
static uint32_t *counts_of(const struct ry_ep *ep, struct ry_ep_vote *v, uint32_t i)
{
    return (uint32_t *)(void *)(set_of(v) + ep->words) + (size_t)i * ep->n;
}
/* Newest round that p voted in. */
static uint64_t voted(struct ry_ep *ep, uint32_t p)
{
    return ry_observe_wide_signal(ry_ep_here(ep, ry_ep_ballot_at(&ep->l, p)));
}
static bool votes(const struct ry_ep *ep, uint32_t p)
{
    return p != ep->pe && ry_ep_on(ep, p) && !ry_set_has(ep->gone, p);
}

static bool look(struct ry_ep *ep)
{
    bool news = false;

    for (uint32_t p = 0; p < ep->n; p++) {
        if (!votes(ep, p) || ry_peer_state(&ep->m->peers[p]) != RY_PEER_GONE)
            continue;
        ry_set_add(ep->gone, p);
        news = true;
    }
    return news;
}

bool ry_ep_unsettled(struct ry_ep *ep)
{
    bool due = look(ep) || ry_ep_join_due(ep);

    for (uint32_t p = 0; p < ep->n && !due; p++)
        due = votes(ep, p) && voted(ep, p) > ep->round;
    return due;
}

int ry_ep_refused(struct ry_ep *ep, uint32_t p, int rc)
{
    return ry_peer_state(&ep->m->peers[p]) == RY_PEER_GONE ? RY_OK : rc;
}

/* What the next round is about: the first that is lost and not masked, then who wait to join, or
 * what the others name, whichever is the least. */
static uint32_t target_of(struct ry_ep *ep)
{
    uint32_t best = ep->hint;

    if (ry_ep_join_due(ep))
        best = ry_min32(best, ep->n);
    for (uint32_t p = 0; p < ep->n; p++)
        if (ry_set_has(ep->gone, p) && ry_ep_on(ep, p))
            best = ry_min32(best, p);
    for (uint32_t p = 0; p < ep->n; p++)
        if (votes(ep, p) && voted(ep, p) > ep->round)
            best = ry_min32(best, vote_of(ep, ep->round + 1, p)->target);
    return best;
}

/* --- one round --- */

static int reuse_step(struct ry_ep *ep, void *arg)
{
    (void)arg;
    for (uint32_t p = 0; p < ep->n; p++) {
        struct ry_ep_span *s = &ep->vote_span[(ep->round % 2) * ep->n + p];

        if (!s->used || !votes(ep, p) || ry_peer_state(&ep->m->peers[p]) == RY_PEER_GONE ||
            ry_channel_reusable(ry_mesh_channel(ep->m, p, 0), s->from, s->end))
            continue;
        ep->wait_for = p;
        return 0;
    }
    return 1;
}

/* Rule 16: no vote on a loss before nothing of the lost PE can land here any more. What is masked
 * is given to others, or used again. */
static int closed_step(struct ry_ep *ep, void *arg)
{
    uint32_t target = *(const uint32_t *)arg;

    for (uint32_t p = 0; p < ep->n; p++) {
        if (!ry_ep_on(ep, p) || (p != target && !ry_set_has(ep->gone, p)) ||
            (ry_peer_state(&ep->m->peers[p]) == RY_PEER_GONE && ry_agent_peer_closed(ep->m, p)))
            continue;
        /* others know of it before this PE does: it takes their word, or, where it shares memory
         * with the lost PE, waits for its own news */
        if (ry_peer_state(&ep->m->peers[p]) != RY_PEER_GONE && !ry_mesh_give_up(ep->m, p))
            ep->wait_for = p;
        return 0;
    }
    return 1;
}

static void vote_make(struct ry_ep *ep, uint32_t target, struct ry_ep_vote *v)
{
    memset(v, 0, ep->l.vote_bytes);
    v->round = ep->round;
    v->gen = ep->sent;
    v->target = target;
    memcpy(set_of(v), ep->gone, ep->words * sizeof(*ep->gone));
    for (uint32_t i = 0; i < 2 && ep->attr.mode == RY_EP_HT && target < ep->n; i++) {
        uint64_t gen = ep->sent + i - 1;
        struct ry_ep_gen *g = ry_ep_gen_of(ep, gen);

        if (ep->sent + i < 2 || g->gen != gen || !g->got[RY_EP_COUNTS * ep->n + target])
            continue;
        v->has[i] = 1;
        memcpy(counts_of(ep, v, i), ry_ep_here(ep, ry_ep_counts_at(&ep->l, gen, target)),
               ep->n * sizeof(uint32_t));
    }
}

static int vote_send(struct ry_ep *ep, uint32_t p)
{
    uint64_t from = ry_ep_vote_at(&ep->l, ep->round, ep->n);
    uint64_t to = ry_ep_vote_at(&ep->l, ep->round, ep->pe), end = 0, proof = 0;
    uint64_t ballot = ry_ep_ballot_at(&ep->l, ep->pe);
    struct ry_ep_span *s = &ep->vote_span[(ep->round % 2) * ep->n + p];
    uint8_t *direct = ry_ep_direct(ep, p);
    int rc;

    if (direct) {
        memcpy(direct + to, ry_ep_here(ep, from), ep->l.vote_bytes);
        /* voter to voter: the vote is visible once its round is */
        ry_st_rel64(&((struct ry_wide_sector *)(direct + ballot))->w[0].value, ep->round);
        ry_ep_wake(ep, p);
        return RY_OK;
    }
    ep->reqs[0] = (struct ry_req){.opcode = RY_OP_WRITE,
                                  .bytes = (uint32_t)ep->l.vote_bytes,
                                  .raddr = ry_mesh_raddr(ep->m, p, ep->block + to),
                                  .laddr = ry_mesh_laddr(ep->m, ep->block + from)};
    ep->reqs[1] = ry_wide_signal_req(ry_mesh_raddr(ep->m, p, ep->block + ballot), ep->round, 0, 0);
    rc = ry_mesh_post(ep->m, p, 0, ep->reqs, 2, 0, &end);
    if (rc == RY_OK)
        rc = ry_mesh_post_proof(ep->m, p, 0, &proof);
    if (rc)
        return ry_ep_refused(ep, p, rc);
    *s = (struct ry_ep_span){.from = ry_seq_add(end, RY_SEQ_MASK - 1), .end = end, .used = true};
    return RY_OK;
}

static int votes_step(struct ry_ep *ep, void *arg)
{
    bool *news = arg;

    *news |= look(ep);
    for (uint32_t p = 0; p < ep->n; p++) {
        if (!votes(ep, p) || voted(ep, p) >= ep->round)
            continue;
        ep->wait_for = p;
        return 0;
    }
    return 1;
}

/* Do all votes of this round say the same? What they know is taken over. */
static bool same(struct ry_ep *ep, uint32_t target)
{
    bool all = true;

    if (RY_MUT(RY_MUT_MASK_ALONE))
        return true;
    ep->hint = RY_EP_NO_PE;
    for (uint32_t p = 0; p < ep->n; p++) {
        struct ry_ep_vote *v = vote_of(ep, ep->round, p);

        if (!votes(ep, p))
            continue;
        all &= v->target == target;
        all &= memcmp(set_of(v), set_of(vote_of(ep, ep->round, ep->n)),
                      ep->words * sizeof(uint64_t)) == 0;
        ep->hint = ry_min32(ep->hint, v->target);
    }
    if (all)
        ep->hint = RY_EP_NO_PE;
    for (uint32_t p = 0; p < ep->n && !all; p++)
        for (uint32_t i = 0; i < ep->words && votes(ep, p); i++)
            ep->gone[i] |= set_of(vote_of(ep, ep->round, p))[i];
    return all;
}

/* --- masking --- */

/* What the lost PE announced for a generation, where another survivor had heard it: then rows have
 * been placed by it, and all must leave room for them. */
static void take_counts(struct ry_ep *ep, struct ry_ep_gen *g, uint32_t target)
{
    for (uint32_t p = 0; p < ep->n; p++) {
        struct ry_ep_vote *v = vote_of(ep, ep->round, p);
        bool *got = &g->got[RY_EP_COUNTS * ep->n + target];

        for (uint32_t i = 0; i < 2 && votes(ep, p) && !*got; i++) {
            if (!v->has[i] || v->gen + i != g->gen + 1)
                continue;
            memcpy(ry_ep_here(ep, ry_ep_counts_at(&ep->l, g->gen, target)), counts_of(ep, v, i),
                   ep->n * sizeof(uint32_t));
            *got = true;
        }
    }
}

/* And for the dispatch that another survivor has begun and this PE has not. All have answered for
 * the buffer, or that one had not begun; so it may be written. */
static void take_next_counts(struct ry_ep *ep, uint32_t target)
{
    uint64_t next = ep->sent + 1;

    for (uint32_t p = 0; p < ep->n && !RY_MUT(RY_MUT_COUNTS_FORGOTTEN); p++) {
        struct ry_ep_vote *v = vote_of(ep, ep->round, p);

        if (!votes(ep, p) || v->gen != next || !v->has[1])
            continue;
        memcpy(ry_ep_here(ep, ry_ep_counts_at(&ep->l, next, target)), counts_of(ep, v, 1),
               ep->n * sizeof(uint32_t));
        ep->peer[target].counts_gen = next;
        break;
    }
}

/* The rows of the oldest generation are still in their place until the combine of the newest, which
 * has its buffer, has begun; that waits until all are answered. Its tokens all had arrived, else
 * this PE could not have sent again. */
static int resend(struct ry_ep *ep, struct ry_ep_gen *g, uint32_t target)
{
    uint32_t node = ry_place_node(&ep->l.place, target);

    if (ep->attr.mode == RY_EP_LL || RY_MUT(RY_MUT_FORWARD_FORGOTTEN))
        return RY_OK;
    if (node == ep->node && g->gen <= ep->returned && ep->returned < g->gen + ep->l.generations)
        return ry_ep_ht_resend_rows(ep, g, target);
    if (node == ep->node)
        return RY_OK;
    if (!g->placed || g->gen <= ep->combined || ry_ep_ht_forwarder(ep, ep->pe, node) != target)
        return RY_OK;
    return ry_ep_ht_resend_tokens(ep, g, node);
}

/* Long: the steps of a mask in their order. */
static int mask(struct ry_ep *ep, uint32_t target)
{
    uint64_t kept = ep->l.generations, gen = ep->sent > kept ? ep->sent - kept : 1;
    bool near = ry_place_node(&ep->l.place, target) == ep->node || ep->attr.mode == RY_EP_LL;
    int rc = RY_OK;

    if (!ry_ep_on(ep, target))
        return RY_OK;
    if (ep->attr.mode == RY_EP_HT)
        take_next_counts(ep, target);
    ry_set_drop(ep->active, target);
    for (; gen <= ep->sent && rc == RY_OK; gen++) {
        struct ry_ep_gen *g = ry_ep_gen_of(ep, gen);

        if (g->gen != gen) /* before this PE took its predecessor's place */
            continue;
        if (ep->attr.mode == RY_EP_HT && gen + kept > ep->sent)
            take_counts(ep, g, target); /* into its buffer */
        if (near && gen > ep->combined && !ry_ep_got(ep, RY_EP_COMBINE, gen, target))
            ry_set_add(g->without, target);
        ep->again = !RY_MUT(RY_MUT_OLD_ANSWER);
        rc = resend(ep, g, target);
        ep->again = false;
    }
    return rc;
}

/* All that are lost, and the votes name the same, are let in before the first dispatch that nobody
 * has begun. */
static void plan_join(struct ry_ep *ep)
{
    memcpy(ep->join_set, ep->gone, ep->words * sizeof(*ep->gone));
    ep->join_at = ep->sent + 1;
    for (uint32_t q = 0; q < ep->n; q++)
        if (votes(ep, q))
            ep->join_at = ry_max64(ep->join_at, vote_of(ep, ep->round, q)->gen + 1);
}

static int act(struct ry_ep *ep, uint32_t target)
{
    if (target >= ep->n) {
        plan_join(ep);
        return RY_OK;
    }
    ep->join_at = 0; /* one more is missing: the round that lets them in could not be complete */
    ry_set_add(ep->gone, target);
    return mask(ep, target);
}

int ry_ep_settle(struct ry_ep *ep)
{
    int rc = RY_OK;

    ep->settling = true;
    for (;;) {
        uint32_t target = (look(ep), target_of(ep));
        bool news = false;

        if (target == RY_EP_NO_PE)
            break;
        ep->round++;
        rc = ry_ep_await(ep, closed_step, &target);
        if (rc == RY_OK)
            rc = ry_ep_await(ep, reuse_step, NULL);
        if (rc)
            break;
        vote_make(ep, target, vote_of(ep, ep->round, ep->n));
        for (uint32_t p = 0; p < ep->n && rc == RY_OK; p++)
            if (votes(ep, p))
                rc = vote_send(ep, p);
        if (rc == RY_OK)
            rc = ry_ep_await(ep, votes_step, &news);
        if (rc)
            break;
        if (same(ep, target) && !news)
            rc = act(ep, target);
        if (rc)
            break;
    }
    ep->settling = false;
    return rc;
}

/* --- what the caller is told --- */

void ry_ep_active(const ry_ep *ep, uint64_t *out)
{
    memcpy(out, ep->told, ep->words * sizeof(*out));
}

uint32_t ry_ep_lost(const ry_ep *ep, float *weight_lost, uint32_t tokens)
{
    const struct ry_ep_gen *g = &ep->gens[ep->combined % ep->gens_kept];
    uint32_t pairs = 0, k_max = ep->l.topk;

    for (uint32_t t = 0; t < tokens; t++) {
        weight_lost[t] = 0.0f;
        for (uint32_t k = 0; ep->combined && t < g->tokens && k < k_max; k++) {
            int32_t e = g->ids[t * k_max + k];
            bool lost =
                e < -1 ||
                (e >= 0 && ry_set_has(g->without, ry_place_expert_pe(&ep->l.place, (uint32_t)e)));

            if (!lost)
                continue;
            pairs++;
            weight_lost[t] += g->weights[t * k_max + k];
        }
    }
    return pairs;
}
