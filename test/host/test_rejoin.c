/* SPDX-License-Identifier: Apache-2.0 */
/* A PE is lost; the survivors are told and go on; a replacement joins under its rank, with words
 * that begin above what the survivors have seen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "host/agent.h"
#include "host/barrier.h"
#include "host/boot_hub.h"
#include "host/ctx.h"
#include "host/threads.h"

enum { PES = 3, VICTIM = 2 };

static ry_hub *hub;
static const char *handler;
static bool ahead;    /* the victim began a barrier that no survivor did; else PE 0 began one */
static uint32_t came; /* atomic: the replacement is at its first barrier */
static ry_ctx *left_behind; /* the lost PE's context, taken away after it is declared dead */

static void nap_ms(long ms)
{
    struct timespec t = {0, ms * 1000000};

    nanosleep(&t, NULL);
}

struct objects {
    uint64_t *word, *count;
    ry_signal *sig;
};

static void make(ry_ctx *ctx, struct objects *o)
{
    RY_CHECK(ry_malloc(ctx, 4096, (void **)&o->word) == RY_OK);
    RY_CHECK(ry_malloc(ctx, 64, (void **)&o->count) == RY_OK);
    RY_CHECK(ry_malloc(ctx, 4096, (void **)&o->sig) == RY_OK);
}

/* Everybody puts to everybody, signals, counts at PE 0. */
static void round_of(ry_ctx *ctx, struct objects *o, uint64_t k, uint32_t skip)
{
    uint32_t me = ry_pe(ctx), n = ry_n_pes(ctx);
    uint64_t old;

    for (uint32_t q = 0; q < n; q++) {
        if (q == me || q == skip)
            continue;
        o->word[64 + q] = k << 8 | me;
        RY_CHECK(ry_put_signal_nbi(ctx, &o->word[me], &o->word[64 + q], 8, &o->sig[me], k, q) ==
                 RY_OK);
    }
    for (uint32_t q = 0; q < n; q++) {
        if (q == me || q == skip)
            continue;
        RY_CHECK(ry_signal_wait(ctx, &o->sig[q], k, q, 0) == RY_OK);
        RY_CHECK(o->word[q] == (k << 8 | q));
    }
    RY_CHECK(ry_amo_fetch_add(ctx, o->count, 1, 0, &old) == RY_OK);
}

/* After the rejoin all make a new object together. */
static void make_another(ry_ctx *ctx)
{
    void *p;

    RY_CHECK(ry_malloc(ctx, 1024, &p) == RY_OK);
    RY_CHECK(ry_barrier(ctx) == RY_OK);
}

static void all_rounds(ry_ctx *ctx, struct objects *o, uint64_t from)
{
    for (uint64_t k = from; k < from + 20; k++) {
        round_of(ctx, o, k, UINT32_MAX);
        RY_CHECK(ry_barrier(ctx) == RY_OK);
    }
}

static ry_ctx *enter(uint32_t pe)
{
    const char *settings[] = {"RAILS=2",     "P2P=off",    "HEAP_SIZE=8M",
                              "QP_DEPTH=64", "TIMEOUT=4s", handler};
    ry_ctx_attr attr = {.hub = hub, .hub_pe = pe, .settings = settings, .n_settings = 6};
    ry_ctx *ctx = NULL;

    RY_CHECK(ry_ctx_create(&attr, &ctx) == RY_OK);
    return ctx;
}

static void *survivor(void *arg)
{
    ry_ctx *ctx = enter((uint32_t)(uintptr_t)arg);
    struct objects o;
    int tries = 0;

    make(ctx, &o);
    all_rounds(ctx, &o, 1);
    while (ry_joining(ctx) < 0 && tries++ < 5000) {
        RY_CHECK(ry_rejoin(ctx) == RY_ERR_AGAIN);
        nap_ms(1);
    }
    RY_CHECK(ry_joining(ctx) == VICTIM);
    /* one began a barrier that the other, who knew of the loss in time, did not */
    RY_CHECK(ahead || ry_pe(ctx) != 0 || ry_barrier(ctx) == RY_ERR_PEER_LOST);
    RY_CHECK(ry_rejoin(ctx) == RY_OK);
    RY_CHECK(ry_barrier(ctx) == RY_OK);
    RY_CHECK(__atomic_load_n(&came, __ATOMIC_ACQUIRE) == 1);
    all_rounds(ctx, &o, 100);
    make_another(ctx);
    RY_CHECK(ry_pe(ctx) != 0 || *o.count >= 20u * PES * 2);
    ry_ctx_destroy(ctx);
    return NULL;
}

static void *victim(void *arg)
{
    ry_ctx *ctx = enter((uint32_t)(uintptr_t)arg);
    struct objects o;

    make(ctx, &o);
    all_rounds(ctx, &o, 1);
    RY_CHECK(!ahead || ry_barrier_within(ctx, 1000000) == RY_ERR_TIMEOUT);
    left_behind = ctx;
    return NULL;
}

static void *replacement(void *arg)
{
    ry_ctx *ctx = enter((uint32_t)(uintptr_t)arg);
    struct objects o;

    RY_CHECK(ry_incarnation(ctx) == 1);
    make(ctx, &o);
    nap_ms(50);
    __atomic_store_n(&came, 1, __ATOMIC_RELEASE);
    RY_CHECK(ry_barrier(ctx) == RY_OK);
    all_rounds(ctx, &o, 100);
    make_another(ctx);
    ry_ctx_destroy(ctx);
    return NULL;
}

static void replace(const char *how, bool victim_ahead)
{
    pthread_t thread[PES + 1];

    handler = how;
    ahead = victim_ahead;
    came = 0;
    assert_int_equal(ry_hub_create(PES, PES, &hub), RY_OK);
    for (uintptr_t i = 0; i < PES; i++)
        pthread_create(&thread[i], NULL, i == VICTIM ? victim : survivor, (void *)i);
    pthread_join(thread[VICTIM], NULL);
    ry_hub_kill(hub, VICTIM);
    nap_ms(50);
    pthread_rwlock_wrlock(&left_behind->peers_lock);
    for (uint32_t i = 0; i < VICTIM; i++) /* the dead waits for nobody */
        ry_agent_peer_lost(&left_behind->mesh, i);
    pthread_rwlock_unlock(&left_behind->peers_lock);
    ry_ctx_destroy(left_behind);
    assert_int_equal(ry_hub_revive(hub, VICTIM), RY_OK);
    pthread_create(&thread[PES], NULL, replacement, (void *)(uintptr_t)VICTIM);
    for (uint32_t i = 0; i <= PES; i++)
        if (i != VICTIM)
            pthread_join(thread[i], NULL);
    ry_hub_destroy(hub);
}

/* With a proxy too, which finds new producer slots and must not take them for old ones. */
static void a_replacement_takes_part(void **state) { replace(*state, false); }

static void a_barrier_waits_for_the_replacement(void **state) { replace(*state, true); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(a_replacement_takes_part, "HANDLER=gpu"),
        cmocka_unit_test_prestate(a_replacement_takes_part, "HANDLER=cpu"),
        cmocka_unit_test_prestate(a_barrier_waits_for_the_replacement, "HANDLER=gpu"),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
