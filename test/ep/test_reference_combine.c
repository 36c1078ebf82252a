/* SPDX-License-Identifier: Apache-2.0 */
/* Combine of the reference: the order of its sums and what is rounded when, on rows made so that
 * any other order or rounding shows; and its agreement with received rows and ry_ep_local_reduce.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

#include "core/numeric.h"
#include "core/place.h"
#include "job.h"

/* One token on `home`, one expert a PE, four PEs on two nodes; expert e gives the constant y[e]. */
struct constant {
    float y[4];
};

static void constant_row(void *arg, uint32_t pe, uint32_t token, void *x)
{
    (void)arg, (void)pe, (void)token;
    memset(x, 0, 16);
}

static void constant_expert(void *arg, uint32_t expert, const void *x, void *y)
{
    const struct constant *c = arg;
    (void)x;
    for (int i = 0; i < 8; i++)
        ((uint16_t *)y)[i] = ry_f32_to_bf16(c->y[expert]);
}

static float combine_nodes(enum ry_ep_mode mode, uint32_t nodes, uint32_t home,
                           const int32_t ids[4], const float y[4], const uint64_t *active)
{
    static const float ones[4] = {1, 1, 1, 1};
    struct constant c = {{y[0], y[1], y[2], y[3]}};
    uint32_t tokens[4] = {0};
    const int32_t *ids_list[4] = {ids, ids, ids, ids};
    const float *weights_list[4] = {ones, ones, ones, ones};
    ry_ref_job job = {
        .attr = {4, 4, 8, 1, mode, RY_BF16, RY_SCALE_F32, 0},
        .n_pes = 4,
        .n_nodes = nodes,
        .tokens = tokens,
        .topk_idx = ids_list,
        .topk_weight = weights_list,
        .active = active,
        .row = constant_row,
        .expert = constant_expert,
        .arg = &c,
    };
    uint16_t out[8];
    ry_ref *ref;
    tokens[home] = 1;
    assert_int_equal(ry_ref_create(&job, &ref), RY_OK);
    ry_ref_combined_row(ref, home, 0, out);
    ry_ref_destroy(ref);
    for (int i = 1; i < 8; i++)
        assert_int_equal(out[i], out[0]);
    return ry_bf16_to_f32(out[0]);
}

static float combine(enum ry_ep_mode mode, uint32_t home, const int32_t ids[4], const float y[4],
                     const uint64_t *active)
{
    return combine_nodes(mode, 2, home, ids, y, active);
}

static const int32_t up[4] = {0, 1, 2, 3}, mixed[4] = {0, 2, 1, 3};
static const float big = 16777216; /* big + 1 is big */

static void ll_adds_in_order_of_k(void **state)
{
    (void)state;
    assert_true(combine(RY_EP_LL, 0, up, (float[]){big, 1, -big, 0}, NULL) == 0);
    assert_true(combine(RY_EP_LL, 0, mixed, (float[]){big, 1, -big, 0}, NULL) == 1);
    assert_true(combine(RY_EP_LL, 3, up, (float[]){256, 1, 1, 0}, NULL) == 258);
}

static void ht_adds_by_pe_whatever_the_order_of_k(void **state)
{
    const float y[4] = {big, -big, 1, 0};
    (void)state;
    assert_true(combine(RY_EP_HT, 0, up, y, NULL) == 1);
    assert_true(combine(RY_EP_HT, 0, mixed, y, NULL) == 1); /* in order of k it would be 0 */
}

/* 256 + 1 of one node is 257: kept at home, 256 when it crosses; 1 of the other node is 1 both
 * ways. */
static void ht_rounds_where_nodes_are_crossed(void **state)
{
    const float y[4] = {256, 1, 1, 0};
    (void)state;
    assert_true(combine(RY_EP_HT, 0, up, y, NULL) == 258);
    assert_true(combine(RY_EP_HT, 1, up, y, NULL) == 258);
    assert_true(combine(RY_EP_HT, 2, up, y, NULL) == 256);
    assert_true(combine(RY_EP_HT, 3, up, y, NULL) == 256);
}

/* Three nodes of 2, 1 and 1 PEs: 1 + big - big is 0, from any other node on it would be 1. */
static void ht_adds_by_node_ascending(void **state)
{
    const float y[4] = {1, 0, big, -big};
    (void)state;
    for (uint32_t home = 0; home < 4; home++)
        assert_true(combine_nodes(RY_EP_HT, 3, home, up, y, NULL) == 0);
    assert_true(combine_nodes(RY_EP_HT, 3, 0, up, (float[]){big, 0, -big, 1}, NULL) == 1);
}

static void masked_pes_are_absent(void **state)
{
    const uint64_t active = 0xd; /* not PE 1 */
    const float y[4] = {256, 1, 1, 0};
    (void)state;
    assert_true(combine(RY_EP_HT, 0, up, y, &active) == 256); /* 257, rounded once */
    assert_true(combine(RY_EP_LL, 0, up, y, &active) == 256);
    assert_true(combine(RY_EP_LL, 0, up, (float[]){0, 5, 0, 0}, &active) == 0);
}

static void a_token_without_experts_gives_zero(void **state)
{
    const int32_t none[4] = {-1, -1, -1, -1};
    (void)state;
    for (int mode = RY_EP_LL; mode <= RY_EP_HT; mode++) {
        float v = combine((enum ry_ep_mode)mode, 1, none, (float[]){1, 1, 1, 1}, NULL);
        assert_true(v == 0 && !signbit(v));
    }
}

/* --- the whole way: received rows, stand-in experts, sums by hand --- */

struct whole {
    struct job job;
    ry_ref *ref;
    float *acc; /* [JOB_HIDDEN] of the token in hand */
};

static void expert_input(const struct whole *w, const ry_ep_output *out, size_t row, uint16_t *x)
{
    const uint8_t *codes = (const uint8_t *)out->x + row * out->x_stride;
    if (w->job.ref.attr.dtype == RY_BF16) {
        memcpy(x, codes, 2 * JOB_HIDDEN);
        return;
    }
    for (int c = 0; c < JOB_HIDDEN; c++) {
        const uint8_t *s = (const uint8_t *)out->scales + row * out->scales_stride;
        float scale;
        if (w->job.ref.attr.scale == RY_SCALE_UE8M0)
            scale = ry_ue8m0_to_f32(s[c / 128]);
        else
            memcpy(&scale, s + 4 * (c / 128), 4);
        x[c] = ry_f32_to_bf16(ry_e4m3_to_f32(codes[c]) * scale);
    }
}

static void add_bf16(float *acc, const uint16_t *row)
{
    for (int c = 0; c < JOB_HIDDEN; c++)
        acc[c] = acc[c] + ry_bf16_to_f32(row[c]);
}

/* ht, one token: rows of each PE by ry_ep_local_reduce from what that PE received. */
static void whole_ht(struct whole *w, uint32_t source, uint32_t token)
{
    struct ry_place place = {JOB_EXPERTS, JOB_PES, 2};
    float part[JOB_HIDDEN];
    for (uint32_t pe = 0; pe < JOB_PES; pe++) {
        ry_ep_output out;
        uint16_t x[JOB_HIDDEN], y[JOB_TOPK][JOB_HIDDEN], row[JOB_HIDDEN];
        const void *rows[JOB_TOPK];
        uint32_t node = ry_place_node(&place, pe);
        if (pe == ry_place_node_first(&place, node))
            memset(part, 0, sizeof(part));
        assert_int_equal(ry_ref_dispatch(w->ref, pe, &out), RY_OK);
        for (uint32_t r = 0; r < out.rows; r++) {
            if (out.row_source[r] != source || out.src_token[r] != token)
                continue;
            const int32_t *ids = out.topk_idx + r * JOB_TOPK;
            expert_input(w, &out, r, x);
            for (int k = 0; k < JOB_TOPK; k++) {
                rows[k] = y[k];
                if (ids[k] >= 0)
                    ry_ref_expert(ry_place_expert_first(&place, pe) + (uint32_t)ids[k], JOB_HIDDEN,
                                  x, y[k]);
            }
            ry_ep_local_reduce(ids, out.topk_weight + r * JOB_TOPK, JOB_TOPK, rows, JOB_HIDDEN,
                               row);
            add_bf16(part, row);
        }
        if (pe + 1 == ry_place_node_first(&place, node) + ry_place_node_size(&place, node)) {
            bool crosses = node != ry_place_node(&place, source);
            for (int c = 0; c < JOB_HIDDEN; c++)
                w->acc[c] += crosses ? ry_bf16_to_f32(ry_f32_to_bf16(part[c])) : part[c];
        }
    }
}

/* ll, one token: its row out of each chosen expert's slots. */
static void whole_ll(struct whole *w, uint32_t source, uint32_t token)
{
    struct ry_place place = {JOB_EXPERTS, JOB_PES, 2};
    for (int k = 0; k < JOB_TOPK; k++) {
        int32_t e = w->job.ids[source][token * JOB_TOPK + (uint32_t)k];
        float weight = w->job.weights[source][token * JOB_TOPK + (uint32_t)k];
        ry_ep_output out;
        uint16_t x[JOB_HIDDEN], y[JOB_HIDDEN];
        if (e < 0)
            continue;
        assert_int_equal(ry_ref_dispatch(w->ref, ry_place_expert_pe(&place, (uint32_t)e), &out),
                         RY_OK);
        size_t pair = ry_place_expert_local(&place, (uint32_t)e) * JOB_PES + source, found = 0;
        for (size_t row = pair * JOB_TOKENS; row < pair * JOB_TOKENS + out.count[pair]; row++) {
            if (out.src_token[row] != token)
                continue;
            expert_input(w, &out, row, x);
            found++;
        }
        assert_int_equal(found, 1);
        ry_ref_expert((uint32_t)e, JOB_HIDDEN, x, y);
        for (int c = 0; c < JOB_HIDDEN; c++) {
            float product = weight * ry_bf16_to_f32(y[c]);
            w->acc[c] = w->acc[c] + product;
        }
    }
}

static void check_whole(enum ry_ep_mode mode, enum ry_dtype dtype, enum ry_scale scale)
{
    static struct whole w;
    float acc[JOB_HIDDEN];
    uint16_t want[JOB_HIDDEN], got[JOB_HIDDEN];
    job_make(&w.job, mode, dtype, scale);
    assert_int_equal(ry_ref_create(&w.job.ref, &w.ref), RY_OK);
    w.acc = acc;
    for (uint32_t pe = 0; pe < JOB_PES; pe++) {
        for (uint32_t t = 0; t < w.job.tokens[pe]; t++) {
            memset(acc, 0, sizeof(acc));
            if (mode == RY_EP_HT)
                whole_ht(&w, pe, t);
            else
                whole_ll(&w, pe, t);
            for (int c = 0; c < JOB_HIDDEN; c++)
                want[c] = ry_f32_to_bf16(acc[c]);
            ry_ref_combined_row(w.ref, pe, t, got);
            assert_memory_equal(want, got, sizeof(got));
        }
    }
    ry_ref_destroy(w.ref);
}

static void the_whole_way_agrees(void **state)
{
    (void)state;
    for (int mode = RY_EP_LL; mode <= RY_EP_HT; mode++) {
        check_whole((enum ry_ep_mode)mode, RY_BF16, RY_SCALE_F32);
        check_whole((enum ry_ep_mode)mode, RY_FP8, RY_SCALE_F32);
        check_whole((enum ry_ep_mode)mode, RY_FP8, RY_SCALE_UE8M0);
    }
}

/* The combined row of a token tells whether any of its choices was lost, doubled or misdirected. */
static void every_choice_shows_in_the_result(void **state)
{
    struct job j;
    uint16_t want[JOB_HIDDEN], got[JOB_HIDDEN];
    (void)state;
    for (int mode = RY_EP_LL; mode <= RY_EP_HT; mode++) {
        ry_ref *ref;
        job_make(&j, (enum ry_ep_mode)mode, RY_FP8, RY_SCALE_POW2);
        assert_int_equal(ry_ref_create(&j.ref, &ref), RY_OK);
        for (uint32_t i = 0; i < j.tokens[3] * JOB_TOPK; i++) {
            int32_t id = j.ids[3][i];
            float weight = j.weights[3][i];
            if (id < 0)
                continue;
            ry_ref_combined_row(ref, 3, i / JOB_TOPK, want);
            j.ids[3][i] = -1; /* lost */
            ry_ref_combined_row(ref, 3, i / JOB_TOPK, got);
            assert_memory_not_equal(want, got, sizeof(got));
            j.ids[3][i] = (id + 1) % JOB_EXPERTS; /* to another expert */
            ry_ref_combined_row(ref, 3, i / JOB_TOPK, got);
            assert_memory_not_equal(want, got, sizeof(got));
            j.ids[3][i] = id;
            j.weights[3][i] = 2 * weight; /* doubled */
            ry_ref_combined_row(ref, 3, i / JOB_TOPK, got);
            assert_memory_not_equal(want, got, sizeof(got));
            j.weights[3][i] = weight;
        }
        ry_ref_destroy(ref);
    }
}

static void bad_jobs_are_refused(void **state)
{
    struct job j;
    ry_ref *ref = NULL;
    (void)state;
    job_make(&j, RY_EP_LL, RY_BF16, RY_SCALE_F32);
    j.ref.n_nodes = 6;
    assert_int_equal(ry_ref_create(&j.ref, &ref), RY_ERR_INVALID);
    job_make(&j, RY_EP_LL, RY_BF16, RY_SCALE_F32);
    j.tokens[1] = JOB_TOKENS + 1;
    assert_int_equal(ry_ref_create(&j.ref, &ref), RY_ERR_INVALID);
    job_make(&j, RY_EP_LL, RY_BF16, RY_SCALE_F32);
    j.ids[4][3] = JOB_EXPERTS;
    assert_int_equal(ry_ref_create(&j.ref, &ref), RY_ERR_INVALID);
    assert_null(ref);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ll_adds_in_order_of_k),
        cmocka_unit_test(ht_adds_by_pe_whatever_the_order_of_k),
        cmocka_unit_test(ht_rounds_where_nodes_are_crossed),
        cmocka_unit_test(ht_adds_by_node_ascending),
        cmocka_unit_test(masked_pes_are_absent),
        cmocka_unit_test(a_token_without_experts_gives_zero),
        cmocka_unit_test(the_whole_way_agrees),
        cmocka_unit_test(every_choice_shows_in_the_result),
        cmocka_unit_test(bad_jobs_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
