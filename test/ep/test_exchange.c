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

/* Messages and answers are lost, ports die and old copies come late, with one batch under way or
 * two. PEs have other numbers of tokens in each iteration: a row of one PE stands where that of
 * another stood, and must not be written over by what that one sends again. */
static void with_faults(uint32_t generations, int overlapping)
{
    static const char *const plans[] = {
        "drop@0:rail0:p=0.05,for=2s;ack-drop@0:rail1:p=0.05,for=2s",
        "port-down@op60:pe0/rail1:for=20ms;port-down@op90:pe1/rail0:for=20ms",
        "ghost@0:rail0:us=2000,for=2s;qp-error@op50:pe2/rail0;cqe-error@op80:pe3/rail1",
        "stall@op40:pe1/rail1:for=120ms;nic-down@op80:pe2/rail0:for=50ms",
    };

    for (int i = 0; i < 8; i++) {
        struct ry_test_shape s = {.pes = 4,
                                  .nodes = 2,
                                  .experts = 12,
                                  .topk = 3,
                                  .hidden = 256,
                                  .tokens = 32,
                                  .iters = 40,
                                  .generations = generations,
                                  .overlap = overlapping,
                                  .idx_bytes = 4};

        s.mode = i % 2 ? RY_EP_HT : RY_EP_LL;
        s.fault = plans[i / 2];
        s.settings[0] = "HEAP_SIZE=32M";
        s.settings[1] = "RAILS=2";
        s.settings[2] = "P2P=off";
        s.settings[3] = "RECOVERY_INTERVAL=5ms";
        assert_int_equal(ry_test_exchange(&s), RY_OK);
    }
}

static void faults(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        with_faults(2, i % 2);
}

static void overlap_and_faults(void **state)
{
    (void)state;
    with_faults(3, 2);
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

/* A token crosses to a node once: what one dispatch puts on the wire is the least it can be, and
 * the headers counted here. */
static void wire_body(ry_ctx *ctx, void *arg)
{
    const struct ry_test_shape *s = arg;
    ry_ep_attr attr = {s->experts, s->topk,  s->hidden, s->tokens,
                       s->mode,    s->dtype, s->scale,  s->generations};
    uint32_t n = s->pes, node_pes = n / s->nodes, rails = 2;
    ry_ep_traffic sent, back;
    struct ry_test_state st;
    ry_ref_wire least;
    uint64_t counts, signals;
    ry_ep *ep = NULL;

    RY_CHECK(ry_ep_create(ctx, &attr, &ep) == RY_OK);
    ry_test_state_make(&st, s, ep, ry_pe(ctx));
    ry_test_round_make(&st.round, s, 0);
    ry_test_dispatch(&st, RY_EP_BOTH);
    ry_test_compute(&st);
    ry_test_combine(&st, RY_EP_BOTH);
    ry_ep_last_traffic(ep, &sent, &back);
    ry_ref_wire_minimum(st.round.ref, st.pe, &least);
    counts = (n - node_pes) * (4 * n + 16); /* to each PE of other nodes */
    signals = (s->nodes - 1) * rails * 16;  /* to each forwarder, one a channel */
    RY_CHECK(sent.rail_bytes == least.node_rows * st.got.x_stride + counts + signals);
    RY_CHECK(st.got.x_stride == 16 + 2 * 16 + least.row_bytes); /* head, ids, weights */
    RY_CHECK(sent.local_bytes >= (least.local_rows + least.self_rows) * st.got.x_stride);
    RY_CHECK(sent.local_bytes < (least.local_rows + least.self_rows) * st.got.x_stride + 4096);
    ry_test_round_free(&st.round);
    ry_test_state_free(&st);
    ry_ep_destroy(ep);
}

static void wire(void **state)
{
    const char *settings[] = {"HEAP_SIZE=32M", "RAILS=2"};
    (void)state;
    for (uint32_t nodes = 2; nodes <= 4; nodes += 2) {
        struct ry_test_shape s = {.pes = 4,
                                  .nodes = nodes,
                                  .experts = 32,
                                  .topk = 4,
                                  .hidden = 256,
                                  .tokens = 40,
                                  .mode = RY_EP_HT,
                                  .gate = GATE_SKEWED,
                                  .idx_bytes = 4};

        assert_int_equal(ry_test_job(4, nodes, settings, 2, wire_body, &s), RY_OK);
    }
}

/* A call that makes no sense is refused with a line, and harms nothing. */
static void wrong_body(ry_ctx *ctx, void *arg)
{
    const struct ry_test_shape *s = arg;
    ry_ep_attr attr = {.experts = 4, .topk = 2, .hidden = 128, .tokens_max = 8};
    int32_t ids[] = {0, 1, 2, 9};
    float weights[4] = {0};
    uint16_t x[2 * 128] = {0};
    ry_ep_input in = {x, 256, ids, 8, 4, weights, 8, 2};
    ry_ep_output out;
    ry_ep *ep = NULL;

    (void)s;
    RY_CHECK(ry_ep_create(ctx, &attr, &ep) == RY_OK);
    RY_CHECK(ry_ep_dispatch(ep, &in, &out, RY_EP_BOTH) == RY_ERR_INVALID);
    RY_CHECK(strstr(ry_last_error(), "topk_idx of token 1, k 1 is 9"));
    ids[3] = 2;
    RY_CHECK(ry_ep_dispatch(ep, &in, &out, RY_EP_BOTH) == RY_ERR_INVALID);
    RY_CHECK(strstr(ry_last_error(), "twice"));
    ids[3] = 3;
    in.tokens = 9;
    RY_CHECK(ry_ep_dispatch(ep, &in, &out, RY_EP_BOTH) == RY_ERR_INVALID);
    in.tokens = 2;
    RY_CHECK(ry_ep_dispatch(ep, NULL, &out, RY_EP_BOTH) == RY_ERR_INVALID);
    RY_CHECK(ry_ep_dispatch(ep, &in, &out, 7) == RY_ERR_INVALID);
    RY_CHECK(ry_ep_dispatch(ep, NULL, &out, RY_EP_RECV) == RY_ERR_INVALID);
    RY_CHECK(ry_ep_combine(ep, x, 256, x, 256, RY_EP_BOTH) == RY_ERR_INVALID);
    RY_CHECK(ry_ep_dispatch(ep, &in, &out, RY_EP_BOTH) == RY_OK);
    RY_CHECK(ry_ep_dispatch(ep, &in, &out, RY_EP_BOTH) == RY_ERR_INVALID);
    RY_CHECK(strstr(ry_last_error(), "combine first"));
    ry_ep_destroy(ep);
    attr.hidden = 100;
    RY_CHECK(ry_ep_create(ctx, &attr, &ep) == RY_ERR_INVALID);
    attr.hidden = 1 << 20;
    attr.tokens_max = 4096;
    RY_CHECK(ry_ep_create(ctx, &attr, &ep) == RY_ERR_NO_MEMORY);
    RY_CHECK(strstr(ry_last_error(), "needs"));
    attr.tokens_max = 1;
    attr.hidden = 128 << ry_pe(ctx);
    RY_CHECK(ry_ep_create(ctx, &attr, &ep) == RY_ERR_CONFIG);
    RY_CHECK(strstr(ry_last_error(), "hidden"));
}

static void wrong(void **state)
{
    (void)state;
    assert_int_equal(ry_test_job(2, 1, NULL, 0, wrong_body, NULL), RY_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ll_bf16),
        cmocka_unit_test(ll_fp8),
        cmocka_unit_test(ht_bf16),
        cmocka_unit_test(ht_fp8),
        cmocka_unit_test(gates),
        cmocka_unit_test(overlap),
        cmocka_unit_test(small_ring),
        cmocka_unit_test(wire),
        cmocka_unit_test(wrong),
        cmocka_unit_test(faults),
        cmocka_unit_test(overlap_and_faults),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
