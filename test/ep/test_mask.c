/* SPDX-License-Identifier: Apache-2.0 */
/* A PE is lost in every phase of an exchange: the others finish with the right sums, agree on the
 * mask and go on. Also where two batches are under way, and where a write of the lost PE is in a
 * NIC when its end becomes known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <time.h>
#include <unistd.h>

#include "exchange.h"
#include "host/boot_hub.h"
#include "nic/emu/emu_int.h"

enum when { BEFORE_DISPATCH, AFTER_DISPATCH_SEND, AFTER_DISPATCH, AFTER_COMBINE_SEND, WHENS };
enum { ITERS = 7, DEATH = 3, HANGS_S = 100 };

struct death {
    struct ry_test_shape shape;
    ry_hub *hub;
    uint32_t victim;
    enum when when;
    pthread_barrier_t end, gone;
    bool holds; /* writes of the victim are under way when its end becomes known */
    bool held;  /* atomic: they still are */
    bool late;  /* it stops long before its end becomes known: the others run ahead */
    ry_ctx *ctx[8];
};

static void nap_ms(long ms)
{
    struct timespec t = {0, ms * 1000000};

    nanosleep(&t, NULL);
}

/* A write of the victim that its NIC has begun and not ended, at every end towards it. */
static uint32_t hold(struct death *d, uint32_t **words, uint32_t max)
{
    uint32_t n = 0;

    for (uint32_t q = 0; q < d->shape.pes; q++) {
        struct ry_emu *e = ry_emu_of(d->ctx[q]->mesh.nic);

        if (q == d->victim)
            continue;
        pthread_mutex_lock(&e->list);
        for (uint32_t i = 0; i <= e->seg->qp_mask; i++) {
            struct ry_nic_qp *qp = e->qps[i];

            if (!qp || !qp->shared || qp->peer != d->victim || n == max)
                continue;
            words[n] = &qp->shared->inflight;
            RY_ADD(words[n++], 1u);
        }
        pthread_mutex_unlock(&e->list);
    }
    return n;
}

static bool dies(struct death *d, uint32_t pe, uint32_t iter, enum when when)
{
    uint32_t *words[256], n;

    if (pe != d->victim || iter != DEATH || when != d->when)
        return false;
    if (d->late)
        nap_ms(60);
    if (!d->holds) {
        ry_hub_kill(d->hub, pe);
        return true;
    }
    n = hold(d, words, 256);
    RY_CHECK(n > 0);
    __atomic_store_n(&d->held, true, __ATOMIC_SEQ_CST);
    ry_hub_kill(d->hub, pe);
    nap_ms(60);
    __atomic_store_n(&d->held, false, __ATOMIC_SEQ_CST);
    while (n--)
        RY_SUB(words[n], 1u);
    return true;
}

/* A reference in which only the active PEs take part. */
static ry_ref *masked(const struct death *d, struct ry_test_state *st, uint64_t *active)
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
    RY_CHECK((active[0] >> d->victim & 1) || !__atomic_load_n(&d->held, __ATOMIC_SEQ_CST));
    RY_CHECK(ry_ref_create(&job, &ref) == RY_OK);
    return ref;
}

static void check_rows(const struct death *d, struct ry_test_state *st)
{
    uint64_t active[1];
    ry_ref *ref = masked(d, st, active);
    ry_ref_tally tally = {0};

    RY_CHECK(ry_ref_check_dispatch(ref, st->pe, &st->got, &tally) == RY_OK);
    RY_CHECK(tally.lost == 0 && tally.duplicated == 0 && tally.corrupted == 0);
    ry_ref_destroy(ref);
}

/* Pairs whose expert's PE is not in the sums; lost[] has the weight taken off. */
static uint32_t missing(struct ry_test_state *st, uint64_t active, float *lost)
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

static void check_sums(const struct death *d, struct ry_test_state *st)
{
    uint32_t n = st->round.tokens[st->pe], told;
    uint64_t active[1];
    ry_ref *ref = masked(d, st, active);
    ry_ref_tally tally = {0};
    float lost[64];

    told = ry_ep_lost(st->ep, lost, n);
    RY_CHECK(missing(st, active[0], lost) == told);
    for (uint32_t t = 0; t < n; t++)
        RY_CHECK(lost[t] > -1e-4f && lost[t] < 1e-4f);
    ry_ref_check_combine(ref, st->pe, st->out, (size_t)st->round.shape->hidden * 2, &tally);
    RY_CHECK(tally.corrupted == 0 && tally.checked == n);
    ry_ref_destroy(ref);
}

static void compute(struct ry_test_state *st)
{
    uint16_t *x = malloc((size_t)st->round.shape->hidden * 2);

    if (st->round.shape->mode == RY_EP_LL)
        ry_test_experts_ll(st, x);
    else
        ry_test_experts_ht(st, x);
    free(x);
}

static bool dispatch(struct death *d, struct ry_test_state *st, uint32_t iter)
{
    if (dies(d, st->pe, iter, BEFORE_DISPATCH))
        return false;
    ry_test_dispatch(st, RY_EP_SEND);
    if (dies(d, st->pe, iter, AFTER_DISPATCH_SEND))
        return false;
    ry_test_dispatch(st, RY_EP_RECV);
    if (dies(d, st->pe, iter, AFTER_DISPATCH))
        return false;
    check_rows(d, st);
    return true;
}

static void receive_sums(struct death *d, struct ry_test_state *st)
{
    size_t stride = (size_t)d->shape.hidden * 2;

    memset(st->out, 0xa5, d->shape.tokens * stride);
    RY_CHECK(ry_ep_combine(st->ep, NULL, 0, st->out, stride, RY_EP_RECV) == RY_OK);
    check_sums(d, st);
    ry_test_round_free(&st->round);
}

/* Where batches overlap, the sums of the one before are received behind the next dispatch. */
static bool one(struct death *d, struct ry_test_state *st, struct ry_test_state *before,
                uint32_t iter)
{
    const struct ry_test_shape *s = &d->shape;
    size_t stride = (size_t)s->hidden * 2;

    ry_test_round_make(&st->round, s, iter);
    if (!dispatch(d, st, iter)) {
        if (s->overlap)
            ry_test_round_free(&before->round);
        return false;
    }
    if (s->overlap && iter > 0)
        receive_sums(d, before);
    compute(st);
    RY_CHECK(ry_ep_combine(st->ep, st->y, stride, NULL, 0, RY_EP_SEND) == RY_OK);
    if (dies(d, st->pe, iter, AFTER_COMBINE_SEND))
        return false;
    if (!s->overlap || iter + 1 == ITERS)
        receive_sums(d, st);
    return true;
}

static void body(ry_ctx *ctx, void *arg)
{
    struct death *d = arg;
    const struct ry_test_shape *s = &d->shape;
    ry_ep_attr attr = {s->experts, s->topk,  s->hidden, s->tokens,
                       s->mode,    s->dtype, s->scale,  s->generations};
    struct ry_test_state st[2];
    uint64_t active[1];
    ry_ep *ep = NULL;

    d->ctx[ry_pe(ctx)] = ctx;
    RY_CHECK(ry_ep_create(ctx, &attr, &ep) == RY_OK);
    for (uint32_t i = 0; i < 2; i++)
        ry_test_state_make(&st[i], s, ep, ry_pe(ctx));
    for (uint32_t i = 0; i < ITERS; i++) {
        if (one(d, &st[i % 2], &st[(i + 1) % 2], i))
            continue;
        /* it goes before the others: to them its memory is still mapped until then */
        ry_test_round_free(&st[i % 2].round);
        pthread_barrier_wait(&d->end);
        ry_test_abandon(&st[0]);
        ry_test_state_free(&st[1]);
        return;
    }
    ry_ep_active(ep, active);
    RY_CHECK(active[0] == (((1ull << s->pes) - 1) & ~(1ull << d->victim)));
    ry_ep_destroy(ep);
    pthread_barrier_wait(&d->end);
    ry_test_state_free(&st[0]);
    ry_test_state_free(&st[1]);
}

/* The others have closed their ends to the dead PE: it need not wait for answers. */
static void forget_all(ry_ctx *ctx)
{
    pthread_rwlock_wrlock(&ctx->peers_lock);
    for (uint32_t q = 0; q < ctx->mesh.n_pes; q++)
        if (q != ctx->mesh.pe)
            ry_agent_peer_lost(&ctx->mesh, q);
    pthread_rwlock_unlock(&ctx->peers_lock);
}

static void *pe_main(void *arg)
{
    struct ry_test_pe *t = arg;
    struct death *d = t->arg;
    ry_ctx_attr attr = {
        .hub = t->hub, .hub_pe = t->pe, .settings = t->settings, .n_settings = t->n_settings};
    ry_ctx *ctx = NULL;

    RY_CHECK(ry_ctx_create(&attr, &ctx) == RY_OK);
    t->body(ctx, t->arg);
    if (t->pe == d->victim) {
        forget_all(ctx);
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

static void run(struct death *d)
{
    struct ry_test_pe pe[8];
    pthread_t thread[8];
    uint32_t n = 0;

    print_message("pe %u of %u on %u nodes, phase %d\n", d->victim, d->shape.pes, d->shape.nodes,
                  (int)d->when);
    while (d->shape.settings[n])
        n++;
    assert_int_equal(ry_hub_create(d->shape.pes, d->shape.nodes, &d->hub), RY_OK);
    pthread_barrier_init(&d->end, NULL, d->shape.pes);
    pthread_barrier_init(&d->gone, NULL, d->shape.pes - 1);
    for (uint32_t i = 0; i < d->shape.pes; i++) {
        pe[i] = (struct ry_test_pe){d->hub, i, d->shape.settings, n, body, d, 0, ""};
        assert_int_equal(pthread_create(&thread[i], NULL, pe_main, &pe[i]), 0);
    }
    for (uint32_t i = 0; i < d->shape.pes; i++)
        pthread_join(thread[i], NULL);
    pthread_barrier_destroy(&d->end);
    pthread_barrier_destroy(&d->gone);
    ry_hub_destroy(d->hub);
}

struct way {
    const char *p2p;
    bool holds, late;
    int overlap;
};

static void lose_so(enum ry_ep_mode mode, uint32_t pes, uint32_t nodes, struct way way)
{
    for (int when = 0; when < WHENS; when++) {
        struct death d = {.victim = when % 2 ? pes - 1 : 1,
                          .when = (enum when)when,
                          .holds = way.holds,
                          .late = way.late};

        d.shape = (struct ry_test_shape){.pes = pes,
                                         .nodes = nodes,
                                         .experts = 13,
                                         .topk = 4,
                                         .hidden = 128,
                                         .tokens = 16,
                                         .mode = mode,
                                         .overlap = way.overlap,
                                         .idx_bytes = 4};
        d.shape.settings[0] = "HEAP_SIZE=16M";
        d.shape.settings[1] = way.p2p;
        run(&d);
    }
}

static void lose(enum ry_ep_mode mode, uint32_t pes, uint32_t nodes, const char *p2p)
{
    lose_so(mode, pes, nodes, (struct way){.p2p = p2p});
}

/* Rule 16: nobody masks a PE of which something may still land. */
static void under_way(void **state)
{
    (void)state;
    lose_so(RY_EP_LL, 4, 2, (struct way){.p2p = "P2P=off", .holds = true});
    lose_so(RY_EP_HT, 4, 2, (struct way){.p2p = "P2P=off", .holds = true});
}

/* The sums of one batch are still to come when the next is dispatched. A forwarder that is lost
 * then leaves PEs behind that wait for it, while others have gone two dispatches ahead. */
static void overlapping(void **state)
{
    (void)state;
    for (int late = 0; late < 2; late++) {
        lose_so(RY_EP_LL, 4, 2, (struct way){.p2p = "P2P=off", .overlap = 1, .late = late});
        lose_so(RY_EP_HT, 4, 2, (struct way){.overlap = 1, .late = late});
        lose_so(RY_EP_HT, 4, 2, (struct way){.p2p = "P2P=off", .overlap = 1, .late = late});
        lose_so(RY_EP_HT, 7, 3, (struct way){.p2p = "P2P=off", .overlap = 1, .late = late});
    }
}

static void ll(void **state)
{
    (void)state;
    lose(RY_EP_LL, 4, 2, NULL);
    lose(RY_EP_LL, 4, 2, "P2P=off");
}
static void ht_one_node(void **state)
{
    (void)state;
    lose(RY_EP_HT, 3, 1, NULL);
    lose(RY_EP_HT, 3, 1, "P2P=off");
}
static void ht_two_nodes(void **state)
{
    (void)state;
    lose(RY_EP_HT, 4, 2, NULL);
    lose(RY_EP_HT, 4, 2, "P2P=off");
}
static void ht_uneven(void **state)
{
    (void)state;
    lose(RY_EP_HT, 5, 2, NULL);
    lose(RY_EP_HT, 7, 3, NULL);
    lose(RY_EP_HT, 7, 3, "P2P=off");
}

int main(void)
{
    alarm(HANGS_S); /* a PE that waits for what never comes waits for good */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ll),
        cmocka_unit_test(ht_one_node),
        cmocka_unit_test(ht_two_nodes),
        cmocka_unit_test(ht_uneven),
        cmocka_unit_test(under_way),
        cmocka_unit_test(overlapping),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
