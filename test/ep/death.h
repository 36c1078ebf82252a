/* SPDX-License-Identifier: Apache-2.0 */
/* A job in which one PE is lost at a chosen moment: the others finish with the right sums, agree on
 * the mask and go on. Ends the program where they do not. */
#ifndef RY_TEST_EP_DEATH_H
#define RY_TEST_EP_DEATH_H

#include "exchange.h"
#include "host/boot_hub.h"

enum ry_test_when {
    BEFORE_DISPATCH,
    AFTER_DISPATCH_SEND,
    AFTER_DISPATCH,
    AFTER_COMBINE_SEND,
    WHENS,
};
enum { DEATH_ITERS = 6, DEATH_AT = 2 };

struct ry_test_death {
    struct ry_test_shape shape;
    ry_hub *hub;
    uint32_t victim;
    enum ry_test_when when;
    pthread_barrier_t end, gone;
};

static inline bool ry_test_death_dies(struct ry_test_death *d, uint32_t pe, uint32_t iter,
                                      enum ry_test_when when)
{
    if (pe != d->victim || iter != DEATH_AT || when != d->when)
        return false;
    ry_hub_kill(d->hub, pe);
    return true;
}

/* A reference in which only the active PEs take part. */
static inline ry_ref *ry_test_death_masked(struct ry_test_state *st, uint64_t *active)
{
    const struct ry_test_shape *s = st->round.shape;
    ry_ref *ref = NULL;
    ry_ref_job job = {
        .attr = {s->experts, s->topk, s->hidden, s->tokens, s->mode, s->dtype, s->scale, 0},
        .n_pes = s->pes,
        .n_nodes = s->nodes,
        .tokens = st->round.tokens,
        .topk_idx = (const int32_t *const *)st->round.ids,
        .topk_weight = (const float *const *)st->round.weights,
        .active = active,
        .row = ry_test_row,
        .arg = &st->round,
    };

    ry_ep_active(st->ep, active);
    RY_CHECK(ry_ref_create(&job, &ref) == RY_OK);
    return ref;
}

static inline void ry_test_death_check_rows(struct ry_test_state *st)
{
    uint64_t active[1];
    ry_ref *ref = ry_test_death_masked(st, active);
    ry_ref_tally tally = {0};

    RY_CHECK(ry_ref_check_dispatch(ref, st->pe, &st->got, &tally) == RY_OK);
    RY_CHECK(tally.lost == 0 && tally.duplicated == 0 && tally.corrupted == 0);
    ry_ref_destroy(ref);
}

/* Pairs whose expert's PE is not in the sums; lost[] has the weight taken off. */
static inline uint32_t ry_test_death_missing(struct ry_test_state *st, uint64_t active, float *lost)
{
    const struct ry_test_shape *s = st->round.shape;
    uint32_t pairs = 0;

    for (uint32_t i = 0; i < st->round.tokens[st->pe] * s->topk; i++) {
        int32_t e = st->round.ids[st->pe][i];

        for (uint32_t p = 0; p < s->pes && e >= 0; p++) {
            uint32_t first = ry_ep_first_expert(st->ep, p);

            if ((active >> p & 1) || (uint32_t)e < first ||
                (uint32_t)e >= first + ry_ep_local_experts(st->ep, p))
                continue;
            pairs++;
            lost[i / s->topk] -= st->round.weights[st->pe][i];
        }
    }
    return pairs;
}

static inline void ry_test_death_check_sums(struct ry_test_state *st)
{
    uint32_t n = st->round.tokens[st->pe], told;
    uint64_t active[1];
    ry_ref *ref = ry_test_death_masked(st, active);
    ry_ref_tally tally = {0};
    float lost[64];

    told = ry_ep_lost(st->ep, lost, n);
    RY_CHECK(ry_test_death_missing(st, active[0], lost) == told);
    for (uint32_t t = 0; t < n; t++)
        RY_CHECK(lost[t] > -1e-4f && lost[t] < 1e-4f);
    ry_ref_check_combine(ref, st->pe, st->out, (size_t)st->round.shape->hidden * 2, &tally);
    RY_CHECK(tally.corrupted == 0 && tally.checked == n);
    ry_ref_destroy(ref);
}

static inline void ry_test_death_compute(struct ry_test_state *st)
{
    uint16_t *x = malloc((size_t)st->round.shape->hidden * 2);

    if (st->round.shape->mode == RY_EP_LL)
        ry_test_experts_ll(st, x);
    else
        ry_test_experts_ht(st, x);
    free(x);
}

static inline bool ry_test_death_one(struct ry_test_death *d, struct ry_test_state *st,
                                     uint32_t iter)
{
    const struct ry_test_shape *s = &d->shape;
    size_t stride = (size_t)s->hidden * 2;

    if (ry_test_death_dies(d, st->pe, iter, BEFORE_DISPATCH))
        return false;
    ry_test_dispatch(st, RY_EP_SEND);
    if (ry_test_death_dies(d, st->pe, iter, AFTER_DISPATCH_SEND))
        return false;
    ry_test_dispatch(st, RY_EP_RECV);
    if (ry_test_death_dies(d, st->pe, iter, AFTER_DISPATCH))
        return false;
    ry_test_death_check_rows(st);
    ry_test_death_compute(st);
    RY_CHECK(ry_ep_combine(st->ep, st->y, stride, NULL, 0, RY_EP_SEND) == RY_OK);
    if (ry_test_death_dies(d, st->pe, iter, AFTER_COMBINE_SEND))
        return false;
    memset(st->out, 0xa5, s->tokens * stride);
    RY_CHECK(ry_ep_combine(st->ep, NULL, 0, st->out, stride, RY_EP_RECV) == RY_OK);
    ry_test_death_check_sums(st);
    return true;
}

static inline void ry_test_death_body(ry_ctx *ctx, void *arg)
{
    struct ry_test_death *d = arg;
    const struct ry_test_shape *s = &d->shape;
    ry_ep_attr attr = {s->experts, s->topk,  s->hidden, s->tokens,
                       s->mode,    s->dtype, s->scale,  s->generations};
    struct ry_test_state st;
    uint64_t active[1];
    ry_ep *ep = NULL;

    RY_CHECK(ry_ep_create(ctx, &attr, &ep) == RY_OK);
    ry_test_state_make(&st, s, ep, ry_pe(ctx));
    for (uint32_t i = 0; i < DEATH_ITERS; i++) {
        bool alive;

        ry_test_round_make(&st.round, s, i);
        alive = ry_test_death_one(d, &st, i);
        ry_test_round_free(&st.round);
        if (!alive) { /* it goes before the others: to them its memory is still mapped until then */
            pthread_barrier_wait(&d->end);
            ry_test_abandon(&st);
            return;
        }
    }
    ry_ep_active(ep, active);
    RY_CHECK(active[0] == (((1ull << s->pes) - 1) & ~(1ull << d->victim)));
    ry_ep_destroy(ep);
    pthread_barrier_wait(&d->end);
    ry_test_state_free(&st);
}

/* The others have closed their ends to the dead PE: it need not wait for answers. */
static inline void ry_test_death_forget_all(ry_ctx *ctx)
{
    pthread_rwlock_wrlock(&ctx->peers_lock);
    for (uint32_t q = 0; q < ctx->mesh.n_pes; q++)
        if (q != ctx->mesh.pe)
            ry_agent_peer_lost(&ctx->mesh, q);
    pthread_rwlock_unlock(&ctx->peers_lock);
}

static inline void *ry_test_death_pe_main(void *arg)
{
    struct ry_test_pe *t = arg;
    struct ry_test_death *d = t->arg;
    ry_ctx_attr attr = {
        .hub = t->hub, .hub_pe = t->pe, .settings = t->settings, .n_settings = t->n_settings};
    ry_ctx *ctx = NULL;

    RY_CHECK(ry_ctx_create(&attr, &ctx) == RY_OK);
    t->body(ctx, t->arg);
    if (t->pe == d->victim) {
        ry_test_death_forget_all(ctx);
        ry_ctx_destroy(ctx);
    }
    pthread_barrier_wait(&d->end);
    if (t->pe != d->victim) {
        ry_quiet(ctx);
        pthread_barrier_wait(&d->gone);
        ry_ctx_destroy(ctx);
    }
    return NULL;
}

static inline void ry_test_death_run(struct ry_test_death *d)
{
    struct ry_test_pe pe[8];
    pthread_t thread[8];
    uint32_t n = 0;

    printf("pe %u of %u on %u nodes, phase %d\n", d->victim, d->shape.pes, d->shape.nodes,
           (int)d->when);
    while (d->shape.settings[n])
        n++;
    RY_CHECK(ry_hub_create(d->shape.pes, d->shape.nodes, &d->hub) == RY_OK);
    pthread_barrier_init(&d->end, NULL, d->shape.pes);
    pthread_barrier_init(&d->gone, NULL, d->shape.pes - 1);
    for (uint32_t i = 0; i < d->shape.pes; i++) {
        pe[i] = (struct ry_test_pe){d->hub, i, d->shape.settings, n, ry_test_death_body, d, 0, ""};
        RY_CHECK(pthread_create(&thread[i], NULL, ry_test_death_pe_main, &pe[i]) == 0);
    }
    for (uint32_t i = 0; i < d->shape.pes; i++)
        pthread_join(thread[i], NULL);
    pthread_barrier_destroy(&d->end);
    pthread_barrier_destroy(&d->gone);
    ry_hub_destroy(d->hub);
}

#endif
