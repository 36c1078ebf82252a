/* SPDX-License-Identifier: Apache-2.0 */
/* One exchange between PEs that are threads, every byte of it compared with the reference. */
#ifndef RY_TEST_EP_EXCHANGE_H
#define RY_TEST_EP_EXCHANGE_H

#include <railyard/ep.h>
#include <railyard/fault.h>
#include <railyard/reference.h>
#include <string.h>

#include "../host/threads.h"
#include "core/token.h"
#include "ep/ep.h"
#include "ep/quantise.h"

/* Which experts tokens choose. */
enum ry_test_gate {
    GATE_HASH,   /* spread, one choice in six is none */
    GATE_FIRST,  /* all tokens choose the same K experts */
    GATE_NONE,   /* nobody chooses anything */
    GATE_SKEWED, /* low experts far more often */
};

struct ry_test_shape {
    uint32_t pes, nodes, experts, topk, hidden, tokens;
    enum ry_ep_mode mode;
    enum ry_dtype dtype;
    enum ry_scale scale;
    uint32_t generations;
    enum ry_test_gate gate;
    uint32_t iters;
    int idx_bytes;
    int overlap; /* dispatches that are sent before the oldest combine */
    const char *fault; /* a plan, from the first iteration on */
    const char *settings[8];
};

/* What all PEs do in one iteration: made from the shape alone, so each PE makes it for itself. */
struct ry_test_round {
    const struct ry_test_shape *shape;
    uint64_t seed;
    uint32_t *tokens;
    int32_t **ids;
    float **weights;
    ry_ref *ref;
};

static inline void ry_test_row(void *arg, uint32_t pe, uint32_t token, void *x)
{
    const struct ry_test_round *r = arg;

    ry_ref_token(r->seed, pe, token, r->shape->hidden, x);
}

static inline int32_t ry_test_choice(const struct ry_test_shape *s, uint64_t hash, uint32_t k)
{
    uint64_t h = ry_mix64(hash + k);
    uint32_t stride = s->experts / s->topk;

    switch (s->gate) {
    case GATE_FIRST:
        return (int32_t)k;
    case GATE_NONE:
        return -1;
    case GATE_SKEWED: /* one of each of K equal parts, its low end twice in three */
        return (int32_t)(k * stride + (h % 3 ? 0 : (h >> 8) % stride));
    default:
        return h % 6 == 0 ? -1 : (int32_t)((hash + k) % s->experts);
    }
}

static inline void ry_test_round_make(struct ry_test_round *r, const struct ry_test_shape *s,
                                      uint32_t iter)
{
    r->shape = s;
    r->seed = 7 + iter;
    r->tokens = calloc(s->pes, sizeof(*r->tokens));
    r->ids = calloc(s->pes, sizeof(*r->ids));
    r->weights = calloc(s->pes, sizeof(*r->weights));
    for (uint32_t p = 0; p < s->pes; p++) {
        uint64_t h = ry_mix64(r->seed * 1000 + p);

        r->ids[p] = calloc((size_t)s->tokens * s->topk, sizeof(**r->ids));
        r->weights[p] = calloc((size_t)s->tokens * s->topk, sizeof(**r->weights));
        r->tokens[p] = h % 4 == 0 ? 0 : h % 4 == 1 ? s->tokens : (uint32_t)(h % (s->tokens + 1));
        for (uint32_t i = 0; i < r->tokens[p] * s->topk; i++) {
            uint64_t token = ry_mix64(h + i / s->topk);

            r->ids[p][i] = ry_test_choice(s, token, i % s->topk);
            r->weights[p][i] = (float)(int32_t)(ry_mix64(token + i) >> 40 & 0xffff) / 65536.0f;
        }
    }
    ry_ref_job job = {
        .attr = {s->experts, s->topk, s->hidden, s->tokens, s->mode, s->dtype, s->scale, 0},
        .n_pes = s->pes,
        .n_nodes = s->nodes,
        .tokens = r->tokens,
        .topk_idx = (const int32_t *const *)r->ids,
        .topk_weight = (const float *const *)r->weights,
        .row = ry_test_row,
        .arg = r,
    };
    RY_CHECK(ry_ref_create(&job, &r->ref) == RY_OK);
}

static inline void ry_test_round_free(struct ry_test_round *r)
{
    ry_ref_destroy(r->ref);
    for (uint32_t p = 0; p < r->shape->pes; p++) {
        free(r->ids[p]);
        free(r->weights[p]);
    }
    free(r->ids);
    free(r->weights);
    free(r->tokens);
}

/* What one PE holds between its calls. */
struct ry_test_state {
    ry_ep *ep;
    uint32_t pe;
    void *x, *idx; /* freed or spoiled after the send: the library must not need them */
    uint16_t *y, *out;
    struct ry_test_round round;
    ry_ep_output got;
};

static inline void ry_test_fill(struct ry_test_state *st)
{
    const struct ry_test_shape *s = st->round.shape;
    uint32_t pairs = st->round.tokens[st->pe] * s->topk;

    for (uint32_t t = 0; t < st->round.tokens[st->pe]; t++)
        ry_test_row(&st->round, st->pe, t, (uint16_t *)st->x + (size_t)t * s->hidden);
    for (uint32_t i = 0; i < pairs; i++) {
        if (s->idx_bytes == 8)
            ((int64_t *)st->idx)[i] = st->round.ids[st->pe][i];
        else
            ((int32_t *)st->idx)[i] = st->round.ids[st->pe][i];
    }
}

static inline void ry_test_dispatch(struct ry_test_state *st, int phase)
{
    const struct ry_test_shape *s = st->round.shape;
    ry_ep_input in = {
        .x = st->x,
        .x_stride = (size_t)s->hidden * 2,
        .topk_idx = st->idx,
        .topk_idx_stride = (size_t)s->topk * (size_t)s->idx_bytes,
        .idx_bytes = s->idx_bytes,
        .topk_weight = st->round.weights[st->pe],
        .topk_weight_stride = s->topk * sizeof(float),
        .tokens = st->round.tokens[st->pe],
    };

    if (phase != RY_EP_RECV)
        ry_test_fill(st);
    RY_CHECK(ry_ep_dispatch(st->ep, &in, &st->got, phase) == RY_OK);
    if (phase != RY_EP_RECV)
        memset(st->x, 0xff, (size_t)s->tokens * s->hidden * 2);
}

/* Row r as its experts read it. */
static inline void ry_test_input(const struct ry_test_state *st, size_t r, uint16_t *x)
{
    const struct ry_test_shape *s = st->round.shape;
    const uint8_t *row = (const uint8_t *)st->got.x + r * st->got.x_stride;

    if (s->dtype == RY_FP8)
        ry_dequantise_row(row, (const uint8_t *)st->got.scales + r * st->got.scales_stride,
                          s->hidden, (int)s->scale, x);
    else
        memcpy(x, row, (size_t)s->hidden * 2);
}

static inline void ry_test_experts_ll(struct ry_test_state *st, uint16_t *x)
{
    const struct ry_test_shape *s = st->round.shape;
    uint32_t local = ry_ep_local_experts(st->ep, st->pe);

    for (uint32_t e = 0; e < local; e++)
        for (uint32_t p = 0; p < s->pes; p++)
            for (uint32_t i = 0; i < st->got.count[e * s->pes + p]; i++) {
                size_t r = ((size_t)e * s->pes + p) * s->tokens + i;

                ry_test_input(st, r, x);
                ry_ref_expert(ry_ep_first_expert(st->ep, st->pe) + e, s->hidden, x,
                              st->y + r * s->hidden);
            }
}

static inline void ry_test_experts_ht(struct ry_test_state *st, uint16_t *x)
{
    const struct ry_test_shape *s = st->round.shape;
    uint16_t *each = malloc((size_t)s->topk * s->hidden * 2);
    const void *rows[64];

    for (uint32_t r = 0; r < st->got.rows; r++) {
        const int32_t *ids = &st->got.topk_idx[(size_t)r * s->topk];

        ry_test_input(st, r, x);
        for (uint32_t k = 0; k < s->topk; k++) {
            rows[k] = each + (size_t)k * s->hidden;
            if (ids[k] >= 0)
                ry_ref_expert(ry_ep_first_expert(st->ep, st->pe) + (uint32_t)ids[k], s->hidden, x,
                              each + (size_t)k * s->hidden);
        }
        ry_ep_local_reduce(ids, &st->got.topk_weight[(size_t)r * s->topk], s->topk, rows, s->hidden,
                           st->y + (size_t)r * s->hidden);
    }
    free(each);
}

/* Check what came, and compute. */
static inline void ry_test_compute(struct ry_test_state *st)
{
    const struct ry_test_shape *s = st->round.shape;
    uint16_t *x = malloc((size_t)s->hidden * 2);
    ry_ref_tally tally = {0};

    RY_CHECK(ry_ref_check_dispatch(st->round.ref, st->pe, &st->got, &tally) == RY_OK);
    RY_CHECK(tally.lost == 0 && tally.duplicated == 0 && tally.corrupted == 0);
    if (s->mode == RY_EP_LL)
        ry_test_experts_ll(st, x);
    else
        ry_test_experts_ht(st, x);
    free(x);
}

static inline void ry_test_combine(struct ry_test_state *st, int phase)
{
    const struct ry_test_shape *s = st->round.shape;
    ry_ref_tally tally = {0};

    memset(st->out, 0xa5, (size_t)s->tokens * s->hidden * 2);
    RY_CHECK(ry_ep_combine(st->ep, st->y, (size_t)s->hidden * 2, st->out, (size_t)s->hidden * 2,
                           phase) == RY_OK);
    if (phase == RY_EP_SEND)
        return;
    ry_ref_check_combine(st->round.ref, st->pe, st->out, (size_t)s->hidden * 2, &tally);
    RY_CHECK(tally.corrupted == 0 && tally.checked == st->round.tokens[st->pe]);
}

static inline void ry_test_state_make(struct ry_test_state *st, const struct ry_test_shape *s,
                                      ry_ep *ep, uint32_t pe)
{
    size_t local = ry_ep_local_experts(ep, 0);
    size_t rows = (s->mode == RY_EP_LL ? local : 1) * s->pes * s->tokens;

    memset(st, 0, sizeof(*st));
    st->ep = ep;
    st->pe = pe;
    st->x = malloc((size_t)s->tokens * s->hidden * 2);
    st->idx = malloc((size_t)s->tokens * s->topk * 8);
    st->y = malloc(rows * s->hidden * 2);
    st->out = malloc((size_t)s->tokens * s->hidden * 2);
}

static inline void ry_test_state_free(struct ry_test_state *st)
{
    free(st->x);
    free(st->idx);
    free(st->y);
    free(st->out);
}

/* What a dead PE leaves: its memory goes, without a word to the others. */
static inline void ry_test_abandon(struct ry_test_state *st)
{
    st->ep->broken = RY_ERR_PEER_LOST;
    ry_ep_destroy(st->ep);
    ry_test_state_free(st);
}

/* overlap 0: one call each. Else sends and receives apart, `overlap` dispatches ahead. */
static inline void ry_test_exchange_body(ry_ctx *ctx, void *arg)
{
    const struct ry_test_shape *s = arg;
    ry_ep_attr attr = {s->experts, s->topk,  s->hidden, s->tokens,
                       s->mode,    s->dtype, s->scale,  s->generations};
    uint32_t depth = s->overlap ? (uint32_t)s->overlap : 1;
    struct ry_test_state st[8];
    ry_ep *ep = NULL;

    RY_CHECK(ry_ep_create(ctx, &attr, &ep) == RY_OK);
    for (uint32_t i = 0; i < depth; i++)
        ry_test_state_make(&st[i], s, ep, ry_pe(ctx));
    if (s->fault) {
        RY_CHECK(ry_fault_plan(ctx, s->fault, 7) == RY_OK);
        ry_fault_start(ctx);
    }
    for (uint32_t i = 0; i < s->iters + depth - 1; i++) {
        struct ry_test_state *a = &st[i % depth], *b = &st[(i + 1) % depth];

        if (i < s->iters) {
            ry_test_round_make(&a->round, s, i);
            ry_test_dispatch(a, s->overlap ? RY_EP_SEND : RY_EP_BOTH);
            if (s->overlap)
                ry_test_dispatch(a, RY_EP_RECV);
            ry_test_compute(a);
        }
        if (i + 1 < depth)
            continue;
        ry_test_combine(b, s->overlap ? RY_EP_SEND : RY_EP_BOTH);
        if (s->overlap)
            ry_test_combine(b, RY_EP_RECV);
        ry_test_round_free(&b->round);
    }
    for (uint32_t i = 0; i < depth; i++)
        ry_test_state_free(&st[i]);
    ry_ep_destroy(ep);
}

static inline int ry_test_exchange(const struct ry_test_shape *shape)
{
    uint32_t n = 0;

    while (n < 8 && shape->settings[n])
        n++;
    return ry_test_job(shape->pes, shape->nodes, shape->settings, n, ry_test_exchange_body,
                       (void *)(uintptr_t)shape);
}

#endif
