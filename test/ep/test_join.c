/* SPDX-License-Identifier: Apache-2.0 */
/* A PE is lost between two iterations; the others go on without it, let its replacement in by
 * agreement, and from then on nothing is missing. Then a second one is lost, or the replacement. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "exchange.h"
#include "host/boot_hub.h"

enum { BEFORE = 2, BEHIND = 4, TRIES = 5000, DEATHS = 2, HANGS_S = 100 };

struct job {
    struct ry_test_shape shape;
    ry_hub *hub;
    uint32_t victim[DEATHS];
    pthread_barrier_t lost; /* all have finished; the victim is dead behind it */
    ry_ctx *left_behind;
};

static void nap_ms(long ms)
{
    struct timespec t = {0, ms * 1000000};

    nanosleep(&t, NULL);
}

static ry_ctx *enter(struct job *j, uint32_t pe)
{
    ry_ctx_attr attr = {.hub = j->hub, .hub_pe = pe, .settings = j->shape.settings};
    ry_ctx *ctx = NULL;

    while (j->shape.settings[attr.n_settings])
        attr.n_settings++;
    RY_CHECK(ry_ctx_create(&attr, &ctx) == RY_OK);
    return ctx;
}

/* One iteration; was everybody in it? Then the sums are compared. */
static bool iteration(struct job *j, struct ry_test_state *st)
{
    const struct ry_test_shape *s = &j->shape;
    size_t stride = (size_t)s->hidden * 2;
    uint16_t *x = malloc(stride);
    uint64_t active[1];
    ry_ref_tally tally = {0};

    ry_test_round_make(&st->round, s, 0);
    ry_test_dispatch(st, RY_EP_BOTH);
    if (s->mode == RY_EP_LL)
        ry_test_experts_ll(st, x);
    else
        ry_test_experts_ht(st, x);
    RY_CHECK(ry_ep_combine(st->ep, st->y, stride, st->out, stride, RY_EP_BOTH) == RY_OK);
    ry_ep_active(st->ep, active);
    if (active[0] == (1ull << s->pes) - 1) {
        ry_ref_check_combine(st->round.ref, st->pe, st->out, stride, &tally);
        RY_CHECK(tally.corrupted == 0 && tally.checked == st->round.tokens[st->pe]);
    }
    ry_test_round_free(&st->round);
    free(x);
    return active[0] == (1ull << s->pes) - 1;
}

static void start(struct job *j, ry_ctx *ctx, struct ry_test_state *st)
{
    const struct ry_test_shape *s = &j->shape;
    ry_ep_attr attr = {s->experts, s->topk,  s->hidden, s->tokens,
                       s->mode,    s->dtype, s->scale,  s->generations};
    ry_ep *ep = NULL;

    RY_CHECK(ry_ep_create(ctx, &attr, &ep) == RY_OK);
    ry_test_state_make(st, s, ep, ry_pe(ctx));
}

static void finish(ry_ctx *ctx, struct ry_test_state *st)
{
    ry_ep_destroy(st->ep);
    ry_test_state_free(st);
    ry_ctx_destroy(ctx);
}

/* Until the loss is known here and nothing of the dead PE can land any more. */
static void await_closed(ry_ctx *ctx, uint32_t victim)
{
    bool closed = false;

    for (int i = 0; i < TRIES && !closed; i++) {
        nap_ms(1);
        pthread_rwlock_wrlock(&ctx->peers_lock);
        closed = ry_peer_state(&ctx->mesh.peers[victim]) == RY_PEER_GONE &&
                 ry_agent_peer_closed(&ctx->mesh, victim);
        pthread_rwlock_unlock(&ctx->peers_lock);
    }
    RY_CHECK(closed);
}

struct thread {
    struct job *job;
    uint32_t pe;
    uint32_t from; /* lives from this death on: it is the replacement for the one before */
};

/* Without the victim until its replacement is in, then some iterations with all. */
static void go_on(struct job *j, ry_ctx *ctx, struct ry_test_state *st, uint32_t victim)
{
    uint32_t whole = 0, tries = 0;

    await_closed(ctx, victim);
    pthread_barrier_wait(&j->lost); /* only now may its memory go */
    pthread_barrier_wait(&j->lost);
    while (whole < BEHIND && tries++ < TRIES) {
        bool all = iteration(j, st);

        RY_CHECK(all || whole == 0);
        whole += all;
        if (!all)
            nap_ms(1);
    }
    RY_CHECK(whole == BEHIND);
}

static void *life(void *arg)
{
    struct thread *t = arg;
    struct job *j = t->job;
    ry_ctx *ctx = enter(j, t->pe);
    struct ry_test_state st;

    RY_CHECK((t->from > 0) == (ry_incarnation(ctx) > 0));
    start(j, ctx, &st);
    for (uint32_t i = 0; i < (t->from ? BEHIND : BEFORE); i++)
        RY_CHECK(iteration(j, &st));
    for (uint32_t d = t->from; d < DEATHS; d++) {
        pthread_barrier_wait(&j->lost);
        if (t->pe == j->victim[d]) {
            j->left_behind = ctx;
            ry_test_abandon(&st);
            return NULL;
        }
        go_on(j, ctx, &st, j->victim[d]);
    }
    finish(ctx, &st);
    return NULL;
}

static void run(enum ry_ep_mode mode, uint32_t pes, uint32_t nodes, uint32_t first, uint32_t second,
                const char *p2p)
{
    struct job j = {.victim = {first, second}};
    pthread_t thread[8];
    struct thread t[8];

    j.shape = (struct ry_test_shape){.pes = pes,
                                     .nodes = nodes,
                                     .experts = 11,
                                     .topk = 3,
                                     .hidden = 128,
                                     .tokens = 12,
                                     .mode = mode,
                                     .idx_bytes = 4};
    j.shape.settings[0] = "HEAP_SIZE=16M";
    j.shape.settings[1] = p2p;
    assert_int_equal(ry_hub_create(pes, nodes, &j.hub), RY_OK);
    pthread_barrier_init(&j.lost, NULL, pes);
    for (uint32_t i = 0; i < pes; i++) {
        t[i] = (struct thread){&j, i, 0};
        assert_int_equal(pthread_create(&thread[i], NULL, life, &t[i]), 0);
    }
    for (uint32_t d = 0; d < DEATHS; d++) {
        uint32_t victim = j.victim[d];

        pthread_join(thread[victim], NULL);
        ry_hub_kill(j.hub, victim);
        pthread_barrier_wait(&j.lost);
        ry_ctx_destroy(j.left_behind);
        pthread_barrier_wait(&j.lost);
        nap_ms(20); /* some iterations without it */
        assert_int_equal(ry_hub_revive(j.hub, victim), RY_OK);
        t[victim].from = d + 1;
        assert_int_equal(pthread_create(&thread[victim], NULL, life, &t[victim]), 0);
    }
    for (uint32_t i = 0; i < pes; i++)
        pthread_join(thread[i], NULL);
    pthread_barrier_destroy(&j.lost);
    ry_hub_destroy(j.hub);
}

static void ll(void **state)
{
    (void)state;
    run(RY_EP_LL, 3, 1, 2, 0, NULL);
    run(RY_EP_LL, 4, 2, 0, 0, "P2P=off");
}

static void ht(void **state)
{
    (void)state;
    run(RY_EP_HT, 3, 1, 0, 0, NULL);
    run(RY_EP_HT, 4, 2, 3, 2, NULL);
    run(RY_EP_HT, 4, 2, 1, 3, "P2P=off");
}

int main(void)
{
    alarm(HANGS_S); /* whoever waits for a PE that is not let in waits for long */
    const struct CMUnitTest tests[] = {cmocka_unit_test(ll), cmocka_unit_test(ht)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
