/* SPDX-License-Identifier: Apache-2.0 */
/* Example tokens and stand-in experts: the same bits everywhere, finite, varied and distinct. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include <railyard/reference.h>

#include "core/token.h"

#define HIDDEN 2048

static uint64_t fnv(uint64_t hash, const uint16_t *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ x[i]) * 0x100000001b3u;
    return hash;
}

static void every_machine_makes_the_same(void **state)
{
    static uint16_t x[HIDDEN], y[HIDDEN];
    uint64_t tokens = 0xcbf29ce484222325u, experts = tokens;
    (void)state;
    for (uint32_t t = 0; t < 16; t++) {
        ry_ref_token(42, t % 3, t, HIDDEN, x);
        ry_ref_expert(t, HIDDEN, x, y);
        tokens = fnv(tokens, x, HIDDEN);
        experts = fnv(experts, y, HIDDEN);
    }
    assert_int_equal(tokens, 0xa20d3cf4b693da6c);
    assert_int_equal(experts, 0xb924b4e8677ee6f3);
}

static void tokens_look_like_activations(void **state)
{
    static uint16_t x[HIDDEN];
    unsigned subnormal = 0, large = 0, outliers = 0, plain = 0;
    double squares = 0;
    (void)state;
    for (uint32_t t = 0; t < 64; t++) {
        ry_ref_token(7, 1, t, HIDDEN, x);
        for (uint32_t c = 0; c < HIDDEN; c++) {
            double v = fabs((double)ry_bf16_to_f32(x[c]));
            assert_true((x[c] & 0x7fff) < 0x7f80);
            subnormal += (x[c] & 0x7fff) > 0 && (x[c] & 0x7fff) < 0x80;
            large += v > 1e6;
            outliers += t == 0 && ry_token_outlier(7, c);
            if (!ry_token_outlier(7, c) && v < 1e6) {
                squares += v * v;
                plain++;
            }
        }
    }
    assert_in_range(subnormal, 8, 128); /* 32 are to be expected of each */
    assert_in_range(large, 8, 128);
    assert_in_range(outliers, 2, 24);
    assert_true(fabs(sqrt(squares / plain) - 1.15) < 0.05);
}

static void tokens_differ_by_seed_pe_and_number(void **state)
{
    static const uint64_t who[][3] = {{1, 0, 0}, {1, 0, 1}, {1, 1, 0}, {2, 0, 0}, {1, 2, 5}};
    static uint16_t x[5][64];
    (void)state;
    for (int i = 0; i < 5; i++) {
        ry_ref_token(who[i][0], (uint32_t)who[i][1], who[i][2], 64, x[i]);
        for (int j = 0; j < i; j++)
            assert_memory_not_equal(x[i], x[j], sizeof(x[i]));
    }
}

static void experts_rotate_and_scale(void **state)
{
    uint16_t x[24], y[24];
    (void)state;
    for (uint32_t c = 0; c < 24; c++)
        x[c] = ry_f32_to_bf16((float)(c + 1));
    for (uint32_t e = 0; e < 40; e++) {
        uint32_t shift = ry_standin_shift(e, 24);
        float gain = ry_standin_gain(e);
        assert_true(shift < 24);
        assert_true(fabsf(gain) >= 1 && fabsf(gain) < 3 && gain * 64 == rintf(gain * 64));
        ry_ref_expert(e, 24, x, y);
        for (uint32_t c = 0; c < 24; c++)
            assert_int_equal(y[c], ry_f32_to_bf16((float)((c + shift) % 24 + 1) * gain));
    }
}

/* No two of 256 experts do the same to a row. */
static void experts_differ(void **state)
{
    static uint16_t x[HIDDEN], y[256][HIDDEN];
    (void)state;
    ry_ref_token(3, 0, 0, HIDDEN, x);
    for (uint32_t e = 0; e < 256; e++) {
        ry_ref_expert(e, HIDDEN, x, y[e]);
        for (uint32_t f = 0; f < e; f++)
            assert_memory_not_equal(y[e], y[f], sizeof(y[e]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_machine_makes_the_same),
        cmocka_unit_test(tokens_look_like_activations),
        cmocka_unit_test(tokens_differ_by_seed_pe_and_number),
        cmocka_unit_test(experts_rotate_and_scale),
        cmocka_unit_test(experts_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
