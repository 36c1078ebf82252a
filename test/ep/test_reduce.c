/* SPDX-License-Identifier: Apache-2.0 */
/* ry_ep_local_reduce: order of k, each operation rounded by itself, one rounding to bf16. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include <railyard/ep.h>

#include "core/numeric.h"

#define K 3

/* The reduced value of one channel whose rows hold y[k]. */
static float reduce(const int32_t *ids, const float *w, const float *y)
{
    uint16_t rows[K][8], out[8];
    const void *list[K];
    for (int k = 0; k < K; k++) {
        for (int c = 0; c < 8; c++) {
            rows[k][c] = ry_f32_to_bf16(y[k]);
            assert_true(ry_bf16_to_f32(rows[k][c]) == y[k]);
        }
        list[k] = ids[k] < 0 ? NULL : rows[k];
    }
    ry_ep_local_reduce(ids, w, K, list, 8, out);
    for (int c = 1; c < 8; c++)
        assert_int_equal(out[c], out[0]);
    return ry_bf16_to_f32(out[0]);
}

static void rows_add_in_order_of_k(void **state)
{
    static const int32_t ids[K] = {5, 0, 2};
    static const float ones[K] = {1, 1, 1};
    (void)state;
    assert_true(reduce(ids, ones, (float[]){16777216, 1, -16777216}) == 0);
    assert_true(reduce(ids, ones, (float[]){16777216, -16777216, 1}) == 1);
}

static void absent_choices_are_skipped(void **state)
{
    static const int32_t some[K] = {-1, 3, -1}, none[K] = {-1, -1, -1};
    (void)state;
    assert_true(reduce(some, (float[]){9, 2, NAN}, (float[]){1, 3, 1}) == 6);
    float zero = reduce(none, (float[]){1, 1, 1}, (float[]){1, 1, 1});
    assert_true(zero == 0 && !signbit(zero));
}

/* -(1 + 2^-7) + (1 + 2^-23) * (1 + 2^-7): the product rounds to 1 + 2^-7 + 2^-23 before it is
 * added; fused, 2^-30 more would be left, and bf16 can show it. */
static void nothing_is_fused(void **state)
{
    static const int32_t ids[K] = {0, 1, -1};
    const float row = 1 + ldexpf(1, -7);
    const float w[K] = {-1, 1 + ldexpf(1, -23), 0};
    (void)state;
    assert_true(reduce(ids, w, (float[]){row, row, 0}) == ldexpf(1, -23));
    assert_true(fmaf(w[1], row, -row) == ldexpf(1 + ldexpf(1, -7), -23));
}

static void the_sum_is_rounded_once(void **state)
{
    static const int32_t ids[K] = {0, 1, 2};
    (void)state;
    /* bf16 steps by 2 here: 256 + 1 + 1 is 258, not 256 rounded twice */
    assert_true(reduce(ids, (float[]){1, 1, 1}, (float[]){256, 1, 1}) == 258);
    assert_true(reduce(ids, (float[]){1, 1, 0}, (float[]){256, 1, 1}) == 256);
}

static void a_sum_starts_from_plus_zero(void **state)
{
    static const int32_t ids[K] = {0, -1, -1};
    (void)state;
    float sum = reduce(ids, (float[]){1, 0, 0}, (float[]){-0.0f, 0, 0});
    assert_true(sum == 0 && !signbit(sum));
}

/* Wider than the block the sums are kept in, and no multiple of it. */
static void any_width_is_reduced(void **state)
{
    enum { WIDE = 1304 };
    static uint16_t rows[2][WIDE], out[WIDE + 1];
    static const int32_t ids[2] = {0, 7};
    static const float w[2] = {0.5f, 2};
    const void *list[2] = {rows[0], rows[1]};
    (void)state;
    for (int c = 0; c < WIDE; c++) {
        rows[0][c] = ry_f32_to_bf16((float)(c % 97));
        rows[1][c] = ry_f32_to_bf16((float)(c % 31));
    }
    out[WIDE] = 0xa5a5;
    ry_ep_local_reduce(ids, w, 2, list, WIDE, out);
    for (int c = 0; c < WIDE; c++)
        assert_int_equal(out[c], ry_f32_to_bf16(0.5f * (float)(c % 97) + 2.0f * (float)(c % 31)));
    assert_int_equal(out[WIDE], 0xa5a5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_add_in_order_of_k),
        cmocka_unit_test(absent_choices_are_skipped),
        cmocka_unit_test(nothing_is_fused),
        cmocka_unit_test(the_sum_is_rounded_once),
        cmocka_unit_test(a_sum_starts_from_plus_zero),
        cmocka_unit_test(any_width_is_reduced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
