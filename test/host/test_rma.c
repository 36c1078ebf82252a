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
        cmocka_unit_test(gpu_handler),      cmocka_unit_test(cpu_handler),
        cmocka_unit_test(cpu_host_handler), cmocka_unit_test(unequal_rails),
        cmocka_unit_test(direct_peers),     cmocka_unit_test(outside_the_heap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
