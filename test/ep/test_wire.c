/* SPDX-License-Identifier: Apache-2.0 */
/* The fewest rows on the wire: a small case counted by hand, and a balance of rows sent and
 * received. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/place.h"
#include "job.h"

static void expect(const ry_ref *ref, uint32_t pe, uint64_t node, uint64_t local, uint64_t self)
{
    ry_ref_wire w;
    ry_ref_wire_minimum(ref, pe, &w);
    assert_int_equal(w.node_rows, node);
    assert_int_equal(w.local_rows, local);
    assert_int_equal(w.self_rows, self);
}

static void no_row(void *arg, uint32_t pe, uint32_t token, void *x)
{
    (void)arg, (void)pe, (void)token, (void)x;
}

/* 4 PEs on 2 nodes, 8 experts; one token of PE 1 with experts 2, 3 (itself), 0 (PE 0), 4, 5 (PE
 * 2) and 6 (PE 3). Its forwarder in node 1 is PE 3. */
static void one_token_by_hand(void **state)
{
    static const int32_t ids[6] = {4, 2, 0, 6, 5, 3};
    static const float weights[6] = {1, 1, 1, 1, 1, 1};
    static const uint32_t tokens[4] = {0, 1, 0, 0};
    const int32_t *ids_list[4] = {ids, ids, ids, ids};
    const float *weights_list[4] = {weights, weights, weights, weights};
    ry_ref_job job = {
        .attr = {8, 6, 128, 1, RY_EP_HT, RY_FP8, RY_SCALE_F32, 0},
        .n_pes = 4,
        .n_nodes = 2,
        .tokens = tokens,
        .topk_idx = ids_list,
        .topk_weight = weights_list,
        .row = no_row,
    };
    ry_ref *ref;
    ry_ref_wire w;
    (void)state;
    assert_int_equal(ry_ref_create(&job, &ref), RY_OK);
    expect(ref, 0, 0, 0, 0);
    expect(ref, 1, 1, 1, 1); /* to PE 3, to PE 0, kept */
    expect(ref, 2, 0, 0, 0);
    expect(ref, 3, 0, 1, 1); /* forwarded to PE 2, kept */
    ry_ref_wire_minimum(ref, 1, &w);
    assert_int_equal(w.row_bytes, 128 + 4);
    ry_ref_destroy(ref);

    job.attr.mode = RY_EP_LL;
    assert_int_equal(ry_ref_create(&job, &ref), RY_OK);
    expect(ref, 1, 3, 1, 2);
    expect(ref, 3, 0, 0, 0);
    ry_ref_destroy(ref);
}

/* What is kept or sent inside nodes is what is received; a token enters a node at most once. */
static void rows_sent_are_rows_received(void **state)
{
    (void)state;
    for (int mode = RY_EP_LL; mode <= RY_EP_HT; mode++) {
        struct job j;
        ry_ref *ref;
        ry_ref_wire sum = {0}, w;
        uint64_t received = 0, tokens = 0;
        job_make(&j, (enum ry_ep_mode)mode, RY_BF16, RY_SCALE_F32);
        assert_int_equal(ry_ref_create(&j.ref, &ref), RY_OK);
        for (uint32_t pe = 0; pe < JOB_PES; pe++) {
            ry_ep_output out;
            ry_ref_wire_minimum(ref, pe, &w);
            sum.node_rows += w.node_rows;
            sum.local_rows += w.local_rows;
            sum.self_rows += w.self_rows;
            assert_int_equal(w.row_bytes, 2 * JOB_HIDDEN);
            assert_int_equal(ry_ref_dispatch(ref, pe, &out), RY_OK);
            received += out.rows;
            tokens += j.tokens[pe];
        }
        if (mode == RY_EP_LL) {
            assert_int_equal(sum.self_rows + sum.local_rows + sum.node_rows, received);
        } else {
            assert_int_equal(sum.self_rows + sum.local_rows, received);
            assert_in_range(sum.node_rows, 1, tokens);
        }
        ry_ref_destroy(ref);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_token_by_hand),
        cmocka_unit_test(rows_sent_are_rows_received),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
