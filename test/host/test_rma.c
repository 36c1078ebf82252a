/* SPDX-License-Identifier: Apache-2.0 */
/* One-sided operations between PEs that are threads, in every handler mode and several rail counts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "host/threads.h"

enum { BYTES = 300000 };

static uint8_t pattern(uint32_t pe, size_t i) { return (uint8_t)(pe * 31 + i * 7 + (i >> 8)); }

/* Every PE puts to its right neighbour, gets from its left one, signals, counts. */
static void ring_body(ry_ctx *ctx, void *arg)
{
    uint32_t me = ry_pe(ctx), n = ry_n_pes(ctx), right = (me + 1) % n, left = (me + n - 1) % n;
    uint8_t *src, *dst, *got;
    uint64_t *word, old = 0;
    ry_signal *sig;

    (void)arg;
    RY_CHECK(ry_malloc(ctx, BYTES, (void **)&src) == RY_OK);
    RY_CHECK(ry_malloc(ctx, BYTES, (void **)&dst) == RY_OK);
    RY_CHECK(ry_malloc(ctx, BYTES, (void **)&got) == RY_OK);
    RY_CHECK(ry_malloc(ctx, sizeof(*sig), (void **)&sig) == RY_OK);
    RY_CHECK(ry_malloc(ctx, 64, (void **)&word) == RY_OK);
    for (size_t i = 0; i < BYTES; i++)
        src[i] = pattern(me, i);
    RY_CHECK(ry_barrier(ctx) == RY_OK);

    RY_CHECK(ry_put(ctx, dst, src, BYTES, right) == RY_OK);
    RY_CHECK(ry_get(ctx, got, src, BYTES, left) == RY_OK);
    RY_CHECK(ry_barrier(ctx) == RY_OK);
    for (size_t i = 0; i < BYTES; i++)
        RY_CHECK(dst[i] == pattern(left, i) && got[i] == pattern(left, i));
    RY_CHECK(ry_barrier(ctx) == RY_OK); /* nobody writes before all have looked */

    for (uint64_t k = 1; k <= 200; k++) {
        src[0] = (uint8_t)k;
        RY_CHECK(ry_put_signal_nbi(ctx, dst, src, k * 7, sig, k, right) == RY_OK);
        RY_CHECK(ry_signal_wait(ctx, sig, k, left, 0) == RY_OK);
        RY_CHECK(dst[0] == (uint8_t)k);
        RY_CHECK(ry_barrier(ctx) == RY_OK);
    }

    for (int k = 0; k < 50; k++) {
        RY_CHECK(ry_amo_add(ctx, word, 1, 0) == RY_OK);
        RY_CHECK(ry_amo_fetch_add(ctx, &word[1], 1, right, &old) == RY_OK);
        RY_CHECK(old == (uint64_t)k);
    }
    RY_CHECK(ry_barrier(ctx) == RY_OK);
    RY_CHECK(me != 0 || word[0] == 50ull * n);
    RY_CHECK(word[1] == 50);
    RY_CHECK(ry_barrier(ctx) == RY_OK);
}

static void run(const char *handler, const char *rails, const char *p2p, uint32_t pes)
{
    const char *settings[] = {handler, rails, p2p, "HEAP_SIZE=8M", "QP_DEPTH=64"};

    assert_int_equal(ry_test_job(pes, 2, settings, 5, ring_body, NULL), RY_OK);
}

static void gpu_handler(void **state)
{
    (void)state;
    run("HANDLER=gpu", "RAILS=2", "P2P=off", 4);
}
static void cpu_handler(void **state)
{
    (void)state;
    run("HANDLER=cpu", "RAILS=2", "P2P=off", 3);
}
static void cpu_host_handler(void **state)
{
    (void)state;
    run("HANDLER=cpu_host_memory", "RAILS=1", "P2P=off", 2);
}
static void unequal_rails(void **state)
{
    (void)state;
    run("HANDLER=gpu", "RAILS=4,2", "P2P=off", 4);
}
static void direct_peers(void **state)
{
    (void)state;
    run("HANDLER=gpu", "RAILS=2", "P2P=on", 4);
}

enum { WINDOW = 4, PIECE = 3000, ROUNDS = 300 };

/* A window of puts whose sources are written again behind a mark: what a mark answers for must be
 * at the target, and what stands behind it not be waited for by anyone. */
static void window_body(ry_ctx *ctx, void *arg)
{
    uint32_t me = ry_pe(ctx), n = ry_n_pes(ctx), right = (me + 1) % n, left = (me + n - 1) % n;
    ry_mark mark[WINDOW], none;
    uint8_t *src, *dst;

    (void)arg;
    RY_CHECK(ry_malloc(ctx, WINDOW * PIECE, (void **)&src) == RY_OK);
    RY_CHECK(ry_malloc(ctx, ROUNDS * PIECE, (void **)&dst) == RY_OK);
    RY_CHECK(ry_mark_nbi(ctx, right, &none) == RY_OK);
    RY_CHECK(ry_mark_wait(ctx, &none) == RY_OK); /* nothing was queued */
    for (uint32_t k = 0; k < ROUNDS; k++) {
        uint8_t *from = src + k % WINDOW * PIECE;

        if (k >= WINDOW)
            RY_CHECK(ry_mark_wait(ctx, &mark[k % WINDOW]) == RY_OK);
        for (size_t i = 0; i < PIECE; i++)
            from[i] = pattern(me + k, i);
        RY_CHECK(ry_put_nbi(ctx, dst + k * PIECE, from, PIECE, right) == RY_OK);
        RY_CHECK(ry_mark_nbi(ctx, right, &mark[k % WINDOW]) == RY_OK);
    }
    RY_CHECK(ry_mark_wait(ctx, &mark[(ROUNDS - 1) % WINDOW]) == RY_OK);
    RY_CHECK(ry_mark_wait(ctx, &mark[ROUNDS % WINDOW]) == RY_OK); /* an older one, and again */
    RY_CHECK(ry_mark_wait(ctx, &mark[ROUNDS % WINDOW]) == RY_OK);
    RY_CHECK(ry_barrier(ctx) == RY_OK);
    for (uint32_t k = 0; k < ROUNDS; k++)
        for (size_t i = 0; i < PIECE; i++)
            RY_CHECK(dst[k * PIECE + i] == pattern(left + k, i));
    none.pe = n;
    RY_CHECK(ry_mark_nbi(ctx, n, &none) == RY_ERR_INVALID);
    RY_CHECK(ry_mark_wait(ctx, &none) == RY_ERR_INVALID);
    RY_CHECK(ry_mark_nbi(ctx, me, &none) == RY_OK && ry_mark_wait(ctx, &none) == RY_OK);
    RY_CHECK(ry_mark_nbi(ctx, right, &none) == RY_OK);
    none.incarnation++; /* of another life of that PE */
    RY_CHECK(ry_mark_wait(ctx, &none) == RY_ERR_PEER_LOST);
    RY_CHECK(ry_barrier(ctx) == RY_OK);
}

static void marks_keep_a_window(void **state)
{
    const char *settings[] = {"RAILS=2", "P2P=off", "HEAP_SIZE=8M", "QP_DEPTH=64"};

    (void)state;
    assert_int_equal(ry_test_job(2, 2, settings, 4, window_body, NULL), RY_OK);
    settings[1] = "P2P=on";
    assert_int_equal(ry_test_job(3, 1, settings, 4, window_body, NULL), RY_OK);
}

/* A mark is not a quiet: on a slow link the first of two is met while what stands in front of the
 * second is still under way. */
static void no_drain_body(ry_ctx *ctx, void *arg)
{
    enum { BIG = 1 << 20, N = 16 };
    uint32_t me = ry_pe(ctx);
    ry_mark mark[2];
    uint8_t *src, *dst;
    uint64_t at_first;
    ry_rail rail;

    (void)arg;
    RY_CHECK(ry_malloc(ctx, BIG, (void **)&src) == RY_OK);
    RY_CHECK(ry_malloc(ctx, BIG, (void **)&dst) == RY_OK);
    RY_CHECK(ry_barrier(ctx) == RY_OK);
    if (me == 0) {
        for (uint32_t h = 0; h < 2; h++) {
            for (uint32_t k = 0; k < N / 2; k++)
                RY_CHECK(ry_put_nbi(ctx, dst, src, BIG / N, 1) == RY_OK);
            RY_CHECK(ry_mark_nbi(ctx, 1, &mark[h]) == RY_OK);
        }
        RY_CHECK(ry_mark_wait(ctx, &mark[0]) == RY_OK);
        RY_CHECK(ry_rail_get(ctx, 0, &rail) == RY_OK);
        at_first = rail.tx_bytes;
        RY_CHECK(at_first >= BIG / 2 && at_first < BIG);
        RY_CHECK(ry_mark_wait(ctx, &mark[1]) == RY_OK);
        RY_CHECK(ry_rail_get(ctx, 0, &rail) == RY_OK);
        RY_CHECK(rail.tx_bytes >= BIG);
    }
    RY_CHECK(ry_barrier(ctx) == RY_OK);
}

static void a_mark_does_not_drain(void **state)
{
    const char *settings[] = {"RAILS=1", "P2P=off", "HEAP_SIZE=8M", "LINK_RATE=2MB/s"};

    (void)state;
    assert_int_equal(ry_test_job(2, 2, settings, 4, no_drain_body, NULL), RY_OK);
}

static void outside_the_heap_body(ry_ctx *ctx, void *arg)
{
    uint8_t stack[64];
    uint8_t *p;

    (void)arg;
    RY_CHECK(ry_malloc(ctx, 64, (void **)&p) == RY_OK);
    RY_CHECK(ry_put(ctx, stack, p, 64, 0) == RY_ERR_INVALID);
    RY_CHECK(ry_put(ctx, p, stack, 64, 0) == RY_ERR_INVALID);
    RY_CHECK(ry_put(ctx, p, p, ry_heap_bytes(ctx), 0) == RY_ERR_INVALID);
    RY_CHECK(ry_put(ctx, p, p, 64, 99) == RY_ERR_INVALID);
    RY_CHECK(strstr(ry_last_error(), "pe 99") != NULL);
    RY_CHECK(ry_malloc(ctx, ry_heap_bytes(ctx), (void **)&p) == RY_ERR_NO_MEMORY);
    RY_CHECK(strstr(ry_last_error(), "RAILYARD_HEAP_SIZE") != NULL);
    RY_CHECK(ry_barrier(ctx) == RY_OK);
}

static void outside_the_heap(void **state)
{
    const char *settings[] = {"HEAP_SIZE=8M"};

    (void)state;
    assert_int_equal(ry_test_job(2, 1, settings, 1, outside_the_heap_body, NULL), RY_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpu_handler),           cmocka_unit_test(cpu_handler),
        cmocka_unit_test(cpu_host_handler),      cmocka_unit_test(unequal_rails),
        cmocka_unit_test(direct_peers),          cmocka_unit_test(marks_keep_a_window),
        cmocka_unit_test(a_mark_does_not_drain), cmocka_unit_test(outside_the_heap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
