/* SPDX-License-Identifier: Apache-2.0 */
/* The scalar codecs against definitions in double arithmetic, exhaustively where that is
 * possible. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "core/numeric.h"

static double bf16_value(uint32_t v)
{
    int e = (int)(v >> 7 & 0xff);
    int m = (int)(v & 0x7f);
    double mag = e == 0 ? ldexp(m, -133) : ldexp(128 + m, e - 134);
    return v & 0x8000 ? -mag : mag;
}

static double e4m3_value(uint32_t v)
{
    int e = (int)(v >> 3 & 0xf);
    int m = (int)(v & 7);
    double mag = e == 0 ? ldexp(m, -9) : ldexp(8 + m, e - 10);
    return v & 0x80 ? -mag : mag;
}

static void bf16_decodes_every_code(void **state)
{
    (void)state;
    for (uint32_t v = 0; v < 65536; v++) {
        float f = ry_bf16_to_f32((uint16_t)v);
        if ((v & 0x7f80) == 0x7f80 && (v & 0x7f)) {
            assert_true(isnan(f));
        } else if ((v & 0x7fff) == 0x7f80) {
            assert_true(isinf(f) && (signbit(f) != 0) == (v >> 15));
        } else {
            assert_true((double)f == bf16_value(v));
            assert_int_equal(signbit(f) != 0, v >> 15);
        }
    }
}

static void bf16_comes_back_from_every_code(void **state)
{
    (void)state;
    for (uint32_t v = 0; v < 65536; v++) {
        int nan = (v & 0x7fff) > 0x7f80;
        assert_int_equal(ry_f32_to_bf16(ry_bf16_to_f32((uint16_t)v)), nan ? 0x7fff : v);
    }
}

/* Between each code and the next: just above it, the midpoint and both its neighbours, just
 * below. */
static void bf16_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t v = 0; v < 65536; v++) {
        if ((v & 0x7fff) >= 0x7f80)
            continue;
        uint32_t even = v & 1 ? v + 1 : v; /* above the greatest this is infinity, as IEEE has it */
        assert_int_equal(ry_f32_to_bf16(ry_f32_from_bits(v << 16 | 0x0001)), v);
        assert_int_equal(ry_f32_to_bf16(ry_f32_from_bits(v << 16 | 0x7fff)), v);
        assert_int_equal(ry_f32_to_bf16(ry_f32_from_bits(v << 16 | 0x8000)), even);
        assert_int_equal(ry_f32_to_bf16(ry_f32_from_bits(v << 16 | 0x8001)), v + 1);
        assert_int_equal(ry_f32_to_bf16(ry_f32_from_bits(v << 16 | 0xffff)), v + 1);
    }
}

static void made_nans_are_canonical(void **state)
{
    static const uint32_t nans[] = {0x7f800001, 0xff800001, 0x7fc00000, 0xffc00000,
                                    0x7fffffff, 0xffffffff, 0x7fa0f00f, 0xff80ffff};
    (void)state;
    for (size_t i = 0; i < sizeof(nans) / sizeof(nans[0]); i++) {
        assert_int_equal(ry_f32_to_bf16(ry_f32_from_bits(nans[i])), 0x7fff);
        assert_int_equal(ry_f32_to_e4m3(ry_f32_from_bits(nans[i])), 0x7f);
    }
    assert_int_equal(ry_f32_bits(ry_e4m3_to_f32(0x7f)), 0x7fffffff);
    assert_int_equal(ry_f32_bits(ry_e4m3_to_f32(0xff)), 0x7fffffff);
}

static void e4m3_decodes_every_code(void **state)
{
    (void)state;
    for (uint32_t v = 0; v < 256; v++) {
        if ((v & 0x7f) == 0x7f)
            continue;
        float f = ry_e4m3_to_f32((uint8_t)v);
        assert_true((double)f == e4m3_value(v));
        assert_int_equal(signbit(f) != 0, v >> 7);
        assert_int_equal(ry_f32_to_e4m3(f), v);
    }
    assert_true(ry_e4m3_to_f32(0x7e) == RY_E4M3_MAX);
}

static void e4m3_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t v = 0; v < 0x7e; v++) {
        float mid = (float)((e4m3_value(v) + e4m3_value(v + 1)) / 2);
        uint32_t even = v & 1 ? v + 1 : v;
        for (uint32_t sign = 0; sign < 2; sign++) {
            float flip = sign ? -1.0f : 1.0f;
            uint32_t s = sign << 7;
            assert_int_equal(ry_f32_to_e4m3(flip * mid), even | s);
            assert_int_equal(ry_f32_to_e4m3(flip * nextafterf(mid, 0)), v | s);
            assert_int_equal(ry_f32_to_e4m3(flip * nextafterf(mid, INFINITY)), (v + 1) | s);
        }
    }
}

/* Nearest by search over all codes: the slow definition. */
static uint32_t e4m3_nearest(double value)
{
    uint32_t best = 0;
    double mag = fabs(value);
    for (uint32_t v = 0; v < 0x7f; v++) {
        double d = fabs(e4m3_value(v) - mag);
        double b = fabs(e4m3_value(best) - mag);
        if (d < b || (d == b && !(v & 1)))
            best = v;
    }
    return best | (signbit(value) ? 0x80 : 0);
}

static void e4m3_encodes_every_bf16(void **state)
{
    (void)state;
    for (uint32_t v = 0; v < 65536; v++) {
        if ((v & 0x7fff) > 0x7f80)
            continue;
        float f = ry_bf16_to_f32((uint16_t)v);
        uint32_t want = isinf(f) ? (v >> 15 << 7 | 0x7e) : e4m3_nearest(f);
        assert_int_equal(ry_f32_to_e4m3(f), want);
    }
}

static void e4m3_saturates(void **state)
{
    (void)state;
    assert_int_equal(ry_f32_to_e4m3(448.0f), 0x7e);
    assert_int_equal(ry_f32_to_e4m3(nextafterf(448.0f, 1000.0f)), 0x7e);
    assert_int_equal(ry_f32_to_e4m3(480.0f), 0x7e);
    assert_int_equal(ry_f32_to_e4m3(-3.4e38f), 0xfe);
    assert_int_equal(ry_f32_to_e4m3(INFINITY), 0x7e);
    assert_int_equal(ry_f32_to_e4m3(-INFINITY), 0xfe);
    assert_int_equal(ry_f32_to_e4m3(-0.0f), 0x80);
}

/* Every amax a bf16 group can have: the power of two is the smallest that holds it, and both
 * kinds are normal numbers with a normal inverse. */
static void scales_hold_every_amax(void **state)
{
    (void)state;
    for (uint32_t key = 0; key < 0x7f80; key++) {
        float amax = ry_amax_from_key(key);
        double scale = ry_scale_value(amax, RY_QUANT_POW2);
        assert_true((double)amax == fmax(bf16_value(key), ldexp(1, -100)));
        assert_true(amax <= 448 * scale && amax > 448 * scale / 2);
        assert_true(scale * ry_scale_inverse(amax, RY_QUANT_POW2) == 1.0);
        assert_true((double)ry_ue8m0_to_f32(ry_scale_ue8m0(amax)) == scale);
        assert_true(ry_scale_value(amax, RY_QUANT_UE8M0) == ry_scale_value(amax, RY_QUANT_POW2));
        float plain = ry_scale_value(amax, RY_QUANT_F32);
        assert_true(plain == (float)((double)amax / 448));
        assert_true(isnormal(plain) && isnormal(ry_scale_inverse(amax, RY_QUANT_F32)));
        assert_int_equal(ry_f32_to_e4m3(amax * ry_scale_inverse(amax, RY_QUANT_F32)), 0x7e);
    }
}

static void ue8m0_decodes_every_code(void **state)
{
    (void)state;
    for (int v = 0; v < 255; v++)
        assert_true((double)ry_ue8m0_to_f32((uint8_t)v) == ldexp(1, v - 127));
    assert_true(isnan(ry_ue8m0_to_f32(255)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_decodes_every_code),
        cmocka_unit_test(bf16_comes_back_from_every_code),
        cmocka_unit_test(bf16_rounds_to_nearest_even),
        cmocka_unit_test(made_nans_are_canonical),
        cmocka_unit_test(e4m3_decodes_every_code),
        cmocka_unit_test(e4m3_rounds_to_nearest_even),
        cmocka_unit_test(e4m3_encodes_every_bf16),
        cmocka_unit_test(e4m3_saturates),
        cmocka_unit_test(scales_hold_every_amax),
        cmocka_unit_test(ue8m0_decodes_every_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
