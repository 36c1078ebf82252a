/* SPDX-License-Identifier: Apache-2.0 */
/* Dispatch of the reference passes its own check; every fault planted in its output is counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "core/place.h"
#include "job.h"

static const struct ry_place place = {JOB_EXPERTS, JOB_PES, 2};

struct fixture {
    struct job job;
    ry_ref *ref;
    ry_ep_output out; /* of PE 1 */
};

static void fixture_open(struct fixture *f, enum ry_ep_mode mode, enum ry_dtype dtype)
{
    job_make(&f->job, mode, dtype, RY_SCALE_UE8M0);
    assert_int_equal(ry_ref_create(&f->job.ref, &f->ref), RY_OK);
    assert_int_equal(ry_ref_dispatch(f->ref, 1, &f->out), RY_OK);
}

static ry_ref_tally check(struct fixture *f)
{
    ry_ref_tally tally = {0};
    assert_int_equal(ry_ref_check_dispatch(f->ref, 1, &f->out, &tally), RY_OK);
    return tally;
}

static void expect(struct fixture *f, uint64_t lost, uint64_t duplicated, uint64_t corrupted)
{
    ry_ref_tally t = check(f);
    assert_int_equal(t.lost, lost);
    assert_int_equal(t.duplicated, duplicated);
    assert_int_equal(t.corrupted, corrupted);
}

/* Rows of all PEs: every choice once (ll), every (token, PE) once (ht), counted over the routing.
 */
static void all_rows_are_there_once(void **state)
{
    (void)state;
    for (int mode = RY_EP_LL; mode <= RY_EP_HT; mode++) {
        struct fixture f;
        uint64_t want = 0, got = 0, checked = 0;
        fixture_open(&f, (enum ry_ep_mode)mode, RY_BF16);
        for (uint32_t pe = 0; pe < JOB_PES; pe++) {
            for (uint32_t t = 0; t < f.job.tokens[pe]; t++) {
                uint32_t seen = 0;
                for (int k = 0; k < JOB_TOPK; k++) {
                    int32_t e = f.job.ids[pe][t * JOB_TOPK + (uint32_t)k];
                    if (e < 0)
                        continue;
                    uint32_t bit = 1u << ry_place_expert_pe(&place, (uint32_t)e);
                    want += mode == RY_EP_LL || !(seen & bit);
                    seen |= bit;
                }
            }
        }
        for (uint32_t pe = 0; pe < JOB_PES; pe++) {
            ry_ref_tally tally = {0};
            assert_int_equal(ry_ref_dispatch(f.ref, pe, &f.out), RY_OK);
            assert_int_equal(ry_ref_check_dispatch(f.ref, pe, &f.out, &tally), RY_OK);
            assert_int_equal(tally.lost + tally.duplicated + tally.corrupted, 0);
            got += f.out.rows;
            checked += tally.checked;
        }
        assert_int_equal(got, want);
        assert_int_equal(checked, want);
        ry_ref_destroy(f.ref);
    }
}

/* Rows hold the token's own bytes, ids and weights. */
static void ht_rows_are_the_tokens(void **state)
{
    struct fixture f;
    uint16_t x[JOB_HIDDEN];
    (void)state;
    fixture_open(&f, RY_EP_HT, RY_BF16);
    assert_true(f.out.rows > 3);
    for (uint32_t r = 0; r < f.out.rows; r++) {
        uint32_t source = f.out.row_source[r], token = f.out.src_token[r];
        ry_ref_token(11, source, token, JOB_HIDDEN, x);
        assert_memory_equal((const char *)f.out.x + r * f.out.x_stride, x, sizeof(x));
        for (uint32_t k = 0; k < JOB_TOPK; k++) {
            int32_t e = f.job.ids[source][token * JOB_TOPK + k];
            bool here = e >= 0 && ry_place_expert_pe(&place, (uint32_t)e) == 1;
            uint32_t at = r * JOB_TOPK + k;
            assert_int_equal(f.out.topk_idx[at], here ? e - 3 : -1); /* PE 1 has experts 3 to 5 */
            assert_true(f.out.topk_weight[at] ==
                        (here ? f.job.weights[source][token * JOB_TOPK + k] : 0));
        }
    }
    ry_ref_destroy(f.ref);
}

/* The first pair of PE 1 with at least two rows. */
static size_t busy_pair(const struct fixture *f)
{
    for (size_t pair = 0; pair < 3 * JOB_PES; pair++) {
        if (f->out.count[pair] >= 2)
            return pair;
    }
    fail_msg("no expert of pe 1 got two rows from one source");
    return 0;
}

static void ll_faults_are_counted(void **state)
{
    struct fixture f;
    (void)state;
    fixture_open(&f, RY_EP_LL, RY_FP8);
    size_t pair = busy_pair(&f), row = pair * JOB_TOKENS;
    uint32_t *count = (uint32_t *)(uintptr_t)f.out.count;
    uint32_t *token = (uint32_t *)(uintptr_t)f.out.src_token;
    uint32_t *rows = (uint32_t *)(uintptr_t)f.out.expert_rows;
    uint8_t *x = (uint8_t *)(uintptr_t)f.out.x + row * f.out.x_stride;
    uint8_t *scale = (uint8_t *)(uintptr_t)f.out.scales + row * f.out.scales_stride;
    uint32_t last = token[row + count[pair] - 1], first = token[row], was = count[pair];
    expect(&f, 0, 0, 0);
    x[JOB_HIDDEN - 1] ^= 1, expect(&f, 0, 0, 1), x[JOB_HIDDEN - 1] ^= 1;
    scale[1] ^= 1, expect(&f, 0, 0, 1), scale[1] ^= 1;
    rows[pair / JOB_PES]++, expect(&f, 0, 0, 1), rows[pair / JOB_PES]--;
    f.out.rows++, expect(&f, 0, 0, 1), f.out.rows--;
    token[row] = 0xffffffff, expect(&f, 1, 0, 1); /* not expected, and the true one is missing */
    token[row] = last, expect(&f, 1, 1, 1);       /* claims another's number with its own bytes */
    token[row] = first, expect(&f, 0, 0, 0);
    count[pair]--, expect(&f, 1, 0, 2), count[pair]++; /* a lost row, and two sums are wrong */
    memcpy(&token[row + was], &token[row], 4);
    memcpy(x + was * f.out.x_stride, x, f.out.x_stride);
    memcpy(scale + was * f.out.scales_stride, scale, f.out.scales_stride);
    count[pair]++, expect(&f, 0, 1, 2), count[pair]--;
    count[pair] = 0x7fffffff;
    assert_true(check(&f).corrupted > 0);
    ry_ref_destroy(f.ref);
}

static void ll_rows_of_a_pair_come_in_any_order(void **state)
{
    struct fixture f;
    uint8_t spare[2 * JOB_HIDDEN];
    (void)state;
    fixture_open(&f, RY_EP_LL, RY_BF16);
    size_t row = busy_pair(&f) * JOB_TOKENS;
    uint32_t *token = (uint32_t *)(uintptr_t)f.out.src_token, first = token[row];
    uint8_t *x = (uint8_t *)(uintptr_t)f.out.x + row * f.out.x_stride;
    memcpy(spare, x, sizeof(spare));
    memcpy(x, x + f.out.x_stride, sizeof(spare));
    memcpy(x + f.out.x_stride, spare, sizeof(spare));
    expect(&f, 0, 0, 2); /* rows swapped, numbers not */
    token[row] = token[row + 1];
    token[row + 1] = first;
    expect(&f, 0, 0, 0);
    ry_ref_destroy(f.ref);
}

static void ht_faults_are_counted(void **state)
{
    struct fixture f;
    (void)state;
    fixture_open(&f, RY_EP_HT, RY_FP8);
    uint32_t *token = (uint32_t *)(uintptr_t)f.out.src_token;
    uint32_t *source = (uint32_t *)(uintptr_t)f.out.row_source;
    uint32_t *rows = (uint32_t *)(uintptr_t)f.out.expert_rows;
    int32_t *ids = (int32_t *)(uintptr_t)f.out.topk_idx;
    float *weight = (float *)(uintptr_t)f.out.topk_weight;
    uint8_t *x = (uint8_t *)(uintptr_t)f.out.x;
    size_t at = 0;
    while (ids[at] < 0)
        at++;
    expect(&f, 0, 0, 0);
    x[3] ^= 0x10, expect(&f, 0, 0, 1), x[3] ^= 0x10;
    weight[at] += 1, expect(&f, 0, 0, 1), weight[at] -= 1;
    ids[at]++, expect(&f, 0, 0, 1), ids[at]--;
    rows[0]++, expect(&f, 0, 0, 1), rows[0]--;
    source[0] = 77, expect(&f, 1, 0, 1), source[0] = 0;
    uint32_t first = token[0];
    token[0] = 1000, expect(&f, 1, 0, 1), token[0] = first;
    f.out.rows--, expect(&f, 1, 0, 0), f.out.rows++;
    f.out.rows = 0xffffffff;
    assert_true(check(&f).corrupted > 0);
    ry_ref_destroy(f.ref);
}

/* Two rows exchanged with everything that belongs to them: only the order is wrong. */
static void ht_order_is_checked(void **state)
{
    struct fixture f;
    (void)state;
    fixture_open(&f, RY_EP_HT, RY_BF16);
    ry_ep_output swapped = f.out;
    uint32_t token[2] = {f.out.src_token[1], f.out.src_token[0]};
    uint32_t source[2] = {f.out.row_source[1], f.out.row_source[0]};
    int32_t ids[2 * JOB_TOPK];
    float weight[2 * JOB_TOPK];
    static uint16_t x[2][JOB_HIDDEN];
    for (int i = 0; i < 2; i++) {
        memcpy(ids + i * JOB_TOPK, f.out.topk_idx + (1 - i) * JOB_TOPK, sizeof(ids) / 2);
        memcpy(weight + i * JOB_TOPK, f.out.topk_weight + (1 - i) * JOB_TOPK, sizeof(ids) / 2);
        memcpy(x[i], (const uint8_t *)f.out.x + (size_t)(1 - i) * f.out.x_stride, sizeof(x[i]));
    }
    memcpy((void *)(uintptr_t)swapped.src_token, token, sizeof(token));
    memcpy((void *)(uintptr_t)swapped.row_source, source, sizeof(source));
    memcpy((void *)(uintptr_t)swapped.topk_idx, ids, sizeof(ids));
    memcpy((void *)(uintptr_t)swapped.topk_weight, weight, sizeof(weight));
    memcpy((void *)(uintptr_t)swapped.x, x, sizeof(x));
    expect(&f, 0, 0, 1);
    ry_ref_destroy(f.ref);
}

static void masked_pes_send_nothing(void **state)
{
    static const uint64_t active = 0x1e; /* not PE 0, which has most tokens */
    struct fixture f;
    (void)state;
    for (int mode = RY_EP_LL; mode <= RY_EP_HT; mode++) {
        fixture_open(&f, (enum ry_ep_mode)mode, RY_BF16);
        uint32_t all = f.out.rows;
        ry_ref_destroy(f.ref);
        f.job.ref.active = &active;
        assert_int_equal(ry_ref_create(&f.job.ref, &f.ref), RY_OK);
        assert_int_equal(ry_ref_dispatch(f.ref, 1, &f.out), RY_OK);
        assert_true(f.out.rows > 0 && f.out.rows < all);
        expect(&f, 0, 0, 0);
        ry_ref_destroy(f.ref);
    }
}

static void combined_rows_are_compared(void **state)
{
    struct fixture f;
    static uint16_t out[9][JOB_HIDDEN + 8];
    ry_ref_tally tally = {0};
    (void)state;
    fixture_open(&f, RY_EP_HT, RY_BF16);
    for (uint32_t t = 0; t < 9; t++)
        ry_ref_combined_row(f.ref, 0, t, out[t]);
    ry_ref_check_combine(f.ref, 0, out, sizeof(out[0]), &tally);
    assert_int_equal(tally.checked, 9);
    assert_int_equal(tally.corrupted, 0);
    out[4][JOB_HIDDEN - 1] ^= 1;
    ry_ref_check_combine(f.ref, 0, out, sizeof(out[0]), &tally);
    assert_int_equal(tally.checked, 18);
    assert_int_equal(tally.corrupted, 1);
    ry_ref_destroy(f.ref);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_rows_are_there_once),
        cmocka_unit_test(ht_rows_are_the_tokens),
        cmocka_unit_test(ll_faults_are_counted),
        cmocka_unit_test(ll_rows_of_a_pair_come_in_any_order),
        cmocka_unit_test(ht_faults_are_counted),
        cmocka_unit_test(ht_order_is_checked),
        cmocka_unit_test(masked_pes_send_nothing),
        cmocka_unit_test(combined_rows_are_compared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
