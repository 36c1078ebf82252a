/* SPDX-License-Identifier: Apache-2.0 */
/* PEs are lost between two iterations; the others go on without them, let their replacements in by
 * agreement, and from then on nothing is missing. Then others are lost, or the replacements. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "exchange.h"
#include "host/boot_hub.h"

enum { BEFORE = 2, BEHIND = 4, TRIES = 5000, DEATHS = 2, PES_MAX = 8, HANGS_S = 100 };

struct job {
    struct ry_test_shape shape;
    ry_hub *hub;
    uint32_t victims[DEATHS]; /* a bit each; who dies together */
    pthread_barrier_t ready;  /* all PEs have finished an iteration */
    pthread_barrier_t
        dead[DEATHS]; /* survivors and main: the victims are dead, their memory goes */
    ry_ctx *left_behind[PES_MAX];
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

/* Without the victims until their replacements are in, then some iterations with all. */
static void go_on(struct job *j, ry_ctx *ctx, struct ry_test_state *st, uint32_t death)
{
    uint32_t whole = 0, tries = 0;

    for (uint32_t pe = 0; pe < j->shape.pes; pe++)
        if (j->victims[death] >> pe & 1)
            await_closed(ctx, pe);
    pthread_barrier_wait(&j->dead[death]); /* only now may their memory go */
    pthread_barrier_wait(&j->dead[death]);
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
        pthread_barrier_wait(&j->ready);
        if (j->victims[d] >> t->pe & 1) {
            j->left_behind[t->pe] = ctx;
            ry_test_abandon(&st);
            return NULL;
        }
        go_on(j, ctx, &st, d);
    }
    finish(ctx, &st);
    return NULL;
}

/* A dead PE waits for nobody. And all is one memory: its NIC lets go of the others' who died with
 * it, before theirs goes. */
static void forget_others(ry_ctx *ctx, uint32_t victims)
{
    pthread_rwlock_wrlock(&ctx->peers_lock);
    for (uint32_t q = 0; q < ry_n_pes(ctx); q++) {
        if (q == ry_pe(ctx))
            continue;
        ry_agent_peer_lost(&ctx->mesh, q);
        if (victims >> q & 1)
            ry_mesh_forget(&ctx->mesh, q);
    }
    pthread_rwlock_unlock(&ctx->peers_lock);
}

/* Main's part in a death: the victims end, are declared dead, and are replaced one after the other:
 * the first waits while the others are still missing. */
static void replace(struct job *j, struct thread *t, pthread_t *thread, uint32_t death)
{
    uint32_t victims = j->victims[death], pes = j->shape.pes;

    for (uint32_t pe = 0; pe < pes; pe++)
        if (victims >> pe & 1)
            pthread_join(thread[pe], NULL);
    for (uint32_t pe = 0; pe < pes; pe++)
        if (victims >> pe & 1)
            ry_hub_kill(j->hub, pe);
    pthread_barrier_wait(&j->dead[death]);
    for (uint32_t pe = 0; pe < pes; pe++)
        if (victims >> pe & 1)
            forget_others(j->left_behind[pe], victims);
    for (uint32_t pe = 0; pe < pes; pe++)
        if (victims >> pe & 1)
            ry_ctx_destroy(j->left_behind[pe]);
    pthread_barrier_wait(&j->dead[death]);
    for (uint32_t pe = 0; pe < pes; pe++) {
        if (!(victims >> pe & 1))
            continue;
        nap_ms(20); /* some iterations without it */
        assert_int_equal(ry_hub_revive(j->hub, pe), RY_OK);
        t[pe].from = death + 1;
        assert_int_equal(pthread_create(&thread[pe], NULL, life, &t[pe]), 0);
    }
}

static void run(enum ry_ep_mode mode, uint32_t pes, uint32_t nodes, uint32_t first, uint32_t second,
                const char *p2p)
{
    struct job j = {.victims = {first, second}};
    pthread_t thread[PES_MAX];
    struct thread t[PES_MAX];

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
    pthread_barrier_init(&j.ready, NULL, pes);
    for (uint32_t d = 0; d < DEATHS; d++)
        pthread_barrier_init(&j.dead[d], NULL,
                             pes + 1 - (uint32_t)__builtin_popcount(j.victims[d]));
    for (uint32_t i = 0; i < pes; i++) {
        t[i] = (struct thread){&j, i, 0};
        assert_int_equal(pthread_create(&thread[i], NULL, life, &t[i]), 0);
    }
    for (uint32_t d = 0; d < DEATHS; d++)
        replace(&j, t, thread, d);
    for (uint32_t i = 0; i < pes; i++)
        pthread_join(thread[i], NULL);
    pthread_barrier_destroy(&j.ready);
    for (uint32_t d = 0; d < DEATHS; d++)
        pthread_barrier_destroy(&j.dead[d]);
    ry_hub_destroy(j.hub);
}

#define PE(n) (1u << (n))

static void ll(void **state)
{
    (void)state;
    run(RY_EP_LL, 3, 1, PE(2), PE(0), NULL);
    run(RY_EP_LL, 4, 2, PE(0), PE(0), "P2P=off");
}

static void ht(void **state)
{
    (void)state;
    run(RY_EP_HT, 3, 1, PE(0), PE(0), NULL);
    run(RY_EP_HT, 4, 2, PE(3), PE(2), NULL);
    run(RY_EP_HT, 4, 2, PE(1), PE(3), "P2P=off");
}

/* A whole node at once, and two PEs of different nodes. */
static void several(void **state)
{
    (void)state;
    run(RY_EP_LL, 4, 2, PE(2) | PE(3), PE(0) | PE(3), "P2P=off");
    run(RY_EP_HT, 6, 3, PE(2) | PE(3), PE(0) | PE(1) | PE(4), NULL);
    run(RY_EP_HT, 4, 2, PE(0) | PE(2), PE(2) | PE(3), "P2P=off");
}

int main(void)
{
    alarm(HANGS_S); /* whoever waits for a PE that is not let in waits for long */
    const struct CMUnitTest tests[] = {cmocka_unit_test(ll), cmocka_unit_test(ht),
                                       cmocka_unit_test(several)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
