/* SPDX-License-Identifier: Apache-2.0 */
/* Dispatch and combine of both modes against the reference: shapes, types, gates. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "exchange.h"

/* pes nodes experts topk hidden tokens: filled up by the tests below. */
static const struct ry_test_shape shapes[] = {
    {.pes = 1, .nodes = 1, .experts = 3, .topk = 2, .hidden = 128, .tokens = 5},
    {.pes = 2, .nodes = 1, .experts = 5, .topk = 2, .hidden = 256, .tokens = 9},
    {.pes = 2, .nodes = 2, .experts = 4, .topk = 4, .hidden = 128, .tokens = 16},
    {.pes = 4, .nodes = 2, .experts = 13, .topk = 4, .hidden = 384, .tokens = 24},
    {.pes = 5, .nodes = 2, .experts = 7, .topk = 3, .hidden = 128, .tokens = 11},
    {.pes = 5, .nodes = 3, .experts = 64, .topk = 8, .hidden = 128, .tokens = 17},
    {.pes = 4, .nodes = 4, .experts = 3, .topk = 1, .hidden = 128, .tokens = 1},
};

static void run_all(enum ry_ep_mode mode, enum ry_dtype dtype, enum ry_scale scale,
                    const char *setting)
{
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        struct ry_test_shape s = shapes[i];

        s.mode = mode;
        s.dtype = dtype;
        s.scale = scale;
        s.iters = 4;
        s.idx_bytes = i % 2 ? 4 : 8;
        s.gate = i % 3 == 2 ? GATE_SKEWED : GATE_HASH;
        s.settings[0] = "HEAP_SIZE=16M";
        s.settings[1] = setting;
        assert_int_equal(ry_test_exchange(&s), RY_OK);
    }
}

static void ll_bf16(void **state)
{
    (void)state;
    run_all(RY_EP_LL, RY_BF16, RY_SCALE_F32, NULL);
    run_all(RY_EP_LL, RY_BF16, RY_SCALE_F32, "P2P=off");
}
static void ll_fp8(void **state)
{
    (void)state;
    run_all(RY_EP_LL, RY_FP8, RY_SCALE_F32, "P2P=off");
    run_all(RY_EP_LL, RY_FP8, RY_SCALE_UE8M0, NULL);
}
static void ht_bf16(void **state)
{
    (void)state;
    run_all(RY_EP_HT, RY_BF16, RY_SCALE_F32, NULL);
    run_all(RY_EP_HT, RY_BF16, RY_SCALE_F32, "P2P=off");
}
static void ht_fp8(void **state)
{
    (void)state;
    run_all(RY_EP_HT, RY_FP8, RY_SCALE_POW2, NULL);
    run_all(RY_EP_HT, RY_FP8, RY_SCALE_UE8M0, "P2P=off");
}

/* Everything to the same experts, nothing to anybody, many choices a token. */
static void gates(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        struct ry_test_shape s = {.pes = 4,
                                  .nodes = 2,
                                  .experts = 70,
                                  .topk = 2,
                                  .hidden = 128,
                                  .tokens = 20,
                                  .iters = 3,
                                  .idx_bytes = 4};

        s.mode = i % 2 ? RY_EP_HT : RY_EP_LL;
        s.gate = i / 2 % 3 == 0 ? GATE_FIRST : i / 2 % 3 == 1 ? GATE_NONE : GATE_HASH;
        if (s.gate == GATE_HASH)
            s.topk = 64;
        s.settings[0] = "HEAP_SIZE=64M";
        s.settings[1] = i >= 6 ? "P2P=off" : NULL;
        assert_int_equal(ry_test_exchange(&s), RY_OK);
    }
}

/* Sends and receives apart, several generations under way. */
static void overlap(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        struct ry_test_shape s = {.pes = 4,
                                  .nodes = 2,
                                  .experts = 12,
                                  .topk = 3,
                                  .hidden = 128,
                                  .tokens = 16,
                                  .iters = 12,
                                  .idx_bytes = 8};

        s.mode = i % 2 ? RY_EP_HT : RY_EP_LL;
        s.generations = i / 2 % 2 ? 3 : 2;
        s.overlap = (int)s.generations - 1;
        s.settings[0] = "HEAP_SIZE=16M";
        s.settings[1] = i >= 4 ? "P2P=off" : NULL;
        assert_int_equal(ry_test_exchange(&s), RY_OK);
    }
}

/* A ring so small that one phase is many messages. */
static void small_ring(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct ry_test_shape s = {.pes = 4,
                                  .nodes = 2,
                                  .experts = 24,
                                  .topk = 4,
                                  .hidden = 512,
                                  .tokens = 200,
                                  .iters = 3,
                                  .idx_bytes = 4};

        s.mode = i % 2 ? RY_EP_HT : RY_EP_LL;
        s.settings[0] = "HEAP_SIZE=64M";
        s.settings[1] = "P2P=off";
        s.settings[2] = "QP_DEPTH=16";
        assert_int_equal(ry_test_exchange(&s), RY_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ll_bf16),    cmocka_unit_test(ll_fp8), cmocka_unit_test(ht_bf16),
        cmocka_unit_test(ht_fp8),     cmocka_unit_test(gates),  cmocka_unit_test(overlap),
        cmocka_unit_test(small_ring),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
