/* SPDX-License-Identifier: Apache-2.0 */
/* Every way a caller's shape or topk_idx can be wrong gives its status and a line that names it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "ep/validate.h"

static const struct ry_ep_shape good = {.pes = 8,
                                        .nodes = 2,
                                        .experts = 60,
                                        .topk = 4,
                                        .hidden = 2048,
                                        .tokens_max = 128,
                                        .channels = 2,
                                        .generations = 2,
                                        .fp8 = 1,
                                        .scale_kind = RY_QUANT_POW2};

static void refuse(const struct ry_ep_shape *s, const char *words)
{
    assert_int_equal(ry_ep_shape_check(s), RY_ERR_INVALID);
    if (!strstr(ry_last_error(), words))
        fail_msg("'%s' does not say '%s'", ry_last_error(), words);
}

static void good_shapes_pass(void **state)
{
    struct ry_ep_shape s = good;
    (void)state;
    assert_int_equal(ry_ep_shape_check(&s), RY_OK);
    s.fp8 = 0;
    s.hidden = 8;
    s.scale_kind = 99; /* of no account without fp8 */
    s.tokens_max = 1;
    s.topk = s.experts = 1;
    assert_int_equal(ry_ep_shape_check(&s), RY_OK);
}

static void bad_shapes_are_named(void **state)
{
    struct ry_ep_shape s;
    (void)state;
    s = good, s.pes = 0, refuse(&s, "number of pes is 0");
    s = good, s.nodes = 9, refuse(&s, "9 nodes for 8 pes");
    s = good, s.experts = 3, refuse(&s, "3 experts for top-4");
    s = good, s.topk = -1, refuse(&s, "top-k is -1");
    s = good, s.topk = 0, refuse(&s, "top-k is 0");
    s = good, s.hidden = 2000, refuse(&s, "choose 2048 or bf16");
    s = good, s.hidden = -128, refuse(&s, "hidden is -128");
    s = good, s.fp8 = 0, s.hidden = 12, refuse(&s, "choose 16");
    s = good, s.tokens_max = 0, refuse(&s, "number of tokens is 0");
    s = good, s.tokens_max = 1 << 19, refuse(&s, "1 to 524287");
    s = good, s.experts = INT64_MAX, refuse(&s, "number of experts");
    s = good, s.channels = 0, refuse(&s, "number of channels is 0");
    s = good, s.generations = 1, refuse(&s, "number of buffer generations is 1");
    s = good, s.scale_kind = 3, refuse(&s, "scale kind is 3");
}

static void topk_of_both_widths_and_any_stride(void **state)
{
    int32_t narrow[2 * 8];
    int64_t wide[2 * 8];
    struct ry_topk_view v;
    (void)state;
    for (int i = 0; i < 16; i++) {
        narrow[i] = 77; /* what lies between is not looked at */
        wide[i] = 77;
    }
    for (int t = 0; t < 2; t++) {
        for (int k = 0; k < 3; k++) {
            narrow[t * 8 + 2 * k] = t + k;
            wide[k * 4 + t] = k == 1 ? -1 : t + k;
        }
    }
    v = (struct ry_topk_view){narrow, 32, 2, 3, 8, 2};
    assert_int_equal(ry_ep_topk_check(&v, 4, 2), RY_OK);
    assert_int_equal(ry_topk_at(&v, 1, 2), 3);
    v = (struct ry_topk_view){wide, 64, 2, 3, 1, 4};
    assert_int_equal(ry_ep_topk_check(&v, 4, 2), RY_OK);
    assert_int_equal(ry_topk_at(&v, 1, 1), -1);
}

static void bad_ids_are_named(void **state)
{
    int64_t ids[] = {0, 1, 2, -1, -1, 3};
    struct ry_topk_view v = {ids, 64, 2, 3, 3, 1};
    (void)state;
    assert_int_equal(ry_ep_topk_check(&v, 4, 2), RY_OK);
    assert_int_equal(ry_ep_topk_check(&v, 3, 2), RY_ERR_INVALID);
    assert_string_equal(ry_last_error(), "topk_idx of token 1, k 2 is 3: must be -1 or 0 to 2");
    ids[5] = -2;
    assert_int_equal(ry_ep_topk_check(&v, 4, 2), RY_ERR_INVALID);
    ids[5] = 0x100000000; /* would be 0 if it were cut to 32 bits */
    assert_int_equal(ry_ep_topk_check(&v, 4, 2), RY_ERR_INVALID);
    ids[5] = 3;
    ids[2] = 0;
    assert_int_equal(ry_ep_topk_check(&v, 4, 2), RY_ERR_INVALID);
    assert_non_null(strstr(ry_last_error(), "token 0 has expert 0 twice, at k 0 and 2"));
}

static void bad_views_are_named(void **state)
{
    int32_t ids[] = {0, 1};
    struct ry_topk_view v = {ids, 16, 1, 2, 2, 1};
    (void)state;
    assert_int_equal(ry_ep_topk_check(&v, 4, 2), RY_ERR_INVALID);
    v.bits = 32;
    v.tokens = 3;
    assert_int_equal(ry_ep_topk_check(&v, 4, 2), RY_ERR_INVALID);
    assert_non_null(strstr(ry_last_error(), "number of tokens is 3: must be 0 to 2"));
    v.tokens = -1;
    assert_int_equal(ry_ep_topk_check(&v, 4, 2), RY_ERR_INVALID);
    v.tokens = 1;
    v.ids = NULL;
    assert_int_equal(ry_ep_topk_check(&v, 4, 2), RY_ERR_INVALID);
    v.tokens = 0;
    assert_int_equal(ry_ep_topk_check(&v, 4, 2), RY_OK);
}

static void bad_rows_are_named(void **state)
{
    _Alignas(16) static uint16_t x[64];
    (void)state;
    assert_int_equal(ry_ep_rows_check("x", x, 2, 16, 24, 2), RY_OK);
    assert_int_equal(ry_ep_rows_check("x", NULL, 0, 16, 0, 2), RY_OK);
    assert_int_equal(ry_ep_rows_check("x", x, 1, 16, 0, 2), RY_OK);
    assert_int_equal(ry_ep_rows_check("x", NULL, 2, 16, 16, 2), RY_ERR_INVALID);
    assert_int_equal(ry_ep_rows_check("x", x, -1, 16, 16, 2), RY_ERR_INVALID);
    assert_int_equal(ry_ep_rows_check("x", x, 2, 16, 8, 2), RY_ERR_INVALID);
    assert_non_null(strstr(ry_last_error(), "rows would overlap"));
    assert_int_equal(ry_ep_rows_check("x", x + 1, 1, 16, 16, 2), RY_ERR_INVALID);
    assert_int_equal(ry_ep_rows_check("x", x, 2, 16, 20, 2), RY_ERR_INVALID);
    assert_non_null(strstr(ry_last_error(), "multiples of 16 bytes"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_shapes_pass),
        cmocka_unit_test(bad_shapes_are_named),
        cmocka_unit_test(topk_of_both_widths_and_any_stride),
        cmocka_unit_test(bad_ids_are_named),
        cmocka_unit_test(bad_views_are_named),
        cmocka_unit_test(bad_rows_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
