/* SPDX-License-Identifier: Apache-2.0 */
/* Rows: groups are scaled one by one, strides are kept, a bad value spoils only itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ep/quantise.h"

#define HIDDEN 384
#define GROUPS (HIDDEN / RY_SCALE_GROUP)

static uint32_t noise_state = 1;

static uint32_t noise(void)
{
    noise_state = noise_state * 1664525u + 1013904223u;
    return noise_state >> 8;
}

static void fill(uint16_t *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (uint16_t)((noise() & 1) << 15 | (100 + noise() % 50) << 7 | (noise() & 0x7f));
}

static float scale_of(const void *scales, size_t i, int kind)
{
    float f;
    if (kind == RY_QUANT_UE8M0)
        return ldexpf(1.0f, ((const uint8_t *)scales)[i] - 127);
    memcpy(&f, (const uint8_t *)scales + 4 * i, 4);
    return f;
}

/* Each channel returns within half a step of e4m3 at its size, the group's amax within its own. */
static void a_row_returns_within_half_a_step(void **state)
{
    (void)state;
    for (int kind = RY_QUANT_F32; kind <= RY_QUANT_UE8M0; kind++) {
        uint16_t x[HIDDEN], y[HIDDEN];
        uint8_t codes[HIDDEN], scales[GROUPS * 4];
        fill(x, HIDDEN);
        ry_quantise_row(x, HIDDEN, kind, codes, scales);
        ry_dequantise_row(codes, scales, HIDDEN, kind, y);
        for (size_t i = 0; i < HIDDEN; i++) {
            double want = ry_bf16_to_f32(x[i]), got = ry_bf16_to_f32(y[i]);
            double scale = scale_of(scales, i / RY_SCALE_GROUP, kind);
            double step = fmax(fabs(want) / 16, scale * ldexp(1, -10));
            assert_true(fabs(want - got) <= step * 1.02);
        }
    }
}

static void groups_have_their_own_scale(void **state)
{
    uint16_t x[HIDDEN] = {0};
    uint8_t codes[HIDDEN], scales[GROUPS];
    (void)state;
    x[5] = 0x43e0;   /* 448: 2^0 */
    x[130] = 0xc3e1; /* -450: 2^1 */
    x[383] = 0x3f80; /* 1: 2^-8 */
    ry_quantise_row(x, HIDDEN, RY_QUANT_UE8M0, codes, scales);
    assert_int_equal(scales[0], 127);
    assert_int_equal(scales[1], 128);
    assert_int_equal(scales[2], 119);
    assert_int_equal(codes[5], 0x7e);
    assert_int_equal(codes[130], 0xf6); /* -225 is -224 in e4m3 */
    assert_int_equal(codes[383], 0x78); /* 256 */
    assert_int_equal(codes[0], 0);
}

static void a_bad_value_spoils_only_itself(void **state)
{
    (void)state;
    for (int kind = RY_QUANT_F32; kind <= RY_QUANT_UE8M0; kind++) {
        uint16_t x[RY_SCALE_GROUP], y[RY_SCALE_GROUP], clean[RY_SCALE_GROUP];
        uint8_t codes[RY_SCALE_GROUP], scales[4], want[4];
        for (size_t i = 0; i < RY_SCALE_GROUP; i++)
            x[i] = (uint16_t)(0x3f80 + i);
        x[7] = x[8] = x[9] = 0;
        ry_quantise_row(x, RY_SCALE_GROUP, kind, codes, want);
        ry_dequantise_row(codes, want, RY_SCALE_GROUP, kind, clean);
        x[7] = 0x7f80;
        x[8] = 0xff80;
        x[9] = 0xffc1;
        ry_quantise_row(x, RY_SCALE_GROUP, kind, codes, scales);
        ry_dequantise_row(codes, scales, RY_SCALE_GROUP, kind, y);
        assert_memory_equal(scales, want, ry_scale_bytes(kind));
        assert_int_equal(codes[7], 0x7e);
        assert_int_equal(codes[8], 0xfe);
        assert_int_equal(y[9], 0x7fff);
        clean[7] = y[7], clean[8] = y[8], clean[9] = y[9];
        assert_memory_equal(clean, y, sizeof(y));
    }
}

static void a_row_of_zeros_keeps_its_signs(void **state)
{
    uint16_t x[RY_SCALE_GROUP] = {0}, y[RY_SCALE_GROUP];
    uint8_t codes[RY_SCALE_GROUP], scales[4];
    (void)state;
    x[3] = 0x8000;
    x[4] = 0x0001; /* the smallest subnormal vanishes under the least scale */
    for (int kind = RY_QUANT_F32; kind <= RY_QUANT_UE8M0; kind++) {
        ry_quantise_row(x, RY_SCALE_GROUP, kind, codes, scales);
        ry_dequantise_row(codes, scales, RY_SCALE_GROUP, kind, y);
        for (size_t i = 0; i < RY_SCALE_GROUP; i++)
            assert_int_equal(y[i], i == 3 ? 0x8000 : 0);
    }
}

/* Rows with gaps give the same as single rows and leave the gaps alone. */
static void strides_are_kept(void **state)
{
    enum { ROWS = 3, XS = HIDDEN + 5, CS = HIDDEN + 3, SS = GROUPS + 2 };
    uint16_t x[ROWS * XS], y[ROWS * XS], y1[HIDDEN];
    uint8_t codes[ROWS * CS], scales[ROWS * SS * 4], c1[HIDDEN], s1[GROUPS * 4];
    (void)state;
    fill(x, ROWS * XS);
    for (int kind = RY_QUANT_F32; kind <= RY_QUANT_UE8M0; kind++) {
        size_t sb = ry_scale_bytes(kind);
        memset(codes, 0xa5, sizeof(codes));
        memset(scales, 0xa5, sizeof(scales));
        memset(y, 0xa5, sizeof(y));
        assert_int_equal(ry_quantise_rows(x, XS, ROWS, HIDDEN, kind, codes, CS, scales, SS), RY_OK);
        assert_int_equal(ry_dequantise_rows(codes, CS, scales, SS, ROWS, HIDDEN, kind, y, XS),
                         RY_OK);
        for (size_t r = 0; r < ROWS; r++) {
            ry_quantise_row(x + r * XS, HIDDEN, kind, c1, s1);
            ry_dequantise_row(c1, s1, HIDDEN, kind, y1);
            assert_memory_equal(codes + r * CS, c1, HIDDEN);
            assert_memory_equal(scales + r * SS * sb, s1, GROUPS * sb);
            assert_memory_equal(y + r * XS, y1, sizeof(y1));
            assert_int_equal(codes[r * CS + HIDDEN], 0xa5);
            assert_int_equal(scales[(r * SS + GROUPS) * sb], 0xa5);
            assert_int_equal(y[r * XS + HIDDEN], 0xa5a5);
        }
    }
}

static void bad_shapes_are_refused(void **state)
{
    uint16_t x[200] = {0};
    uint8_t codes[200], scales[8];
    (void)state;
    memset(codes, 0xa5, sizeof(codes));
    assert_int_equal(ry_quantise_rows(x, 200, 1, 200, RY_QUANT_F32, codes, 200, scales, 1),
                     RY_ERR_INVALID);
    assert_int_equal(ry_quantise_rows(x, 128, 1, 128, 3, codes, 128, scales, 1), RY_ERR_INVALID);
    assert_int_equal(ry_dequantise_rows(codes, 128, scales, 1, 1, 128, -1, x, 128), RY_ERR_INVALID);
    assert_int_equal(codes[0], 0xa5);
}

static void plain_rows_convert(void **state)
{
    uint16_t x[37], y[37];
    float f[37];
    (void)state;
    fill(x, 37);
    ry_bf16_to_f32_row(x, 37, f);
    for (size_t i = 0; i < 37; i++)
        assert_true(f[i] == ry_bf16_to_f32(x[i]));
    ry_f32_to_bf16_row(f, 37, y);
    assert_memory_equal(x, y, sizeof(x));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_returns_within_half_a_step),
        cmocka_unit_test(groups_have_their_own_scale),
        cmocka_unit_test(a_bad_value_spoils_only_itself),
        cmocka_unit_test(a_row_of_zeros_keeps_its_signs),
        cmocka_unit_test(strides_are_kept),
        cmocka_unit_test(bad_shapes_are_refused),
        cmocka_unit_test(plain_rows_convert),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
