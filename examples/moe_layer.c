/* SPDX-License-Identifier: Apache-2.0 */
/* A small, complete mixture-of-experts layer on the public interface: gate, dispatch, expert
 * feed-forward, combine. Every PE then computes its tokens alone and compares bit by bit.
 *
 *     railyard run -n 4 ./moe_layer     one process per PE
 *     ./moe_layer                       four PEs as threads of this process */
#include <math.h>
#include <pthread.h>
#include <railyard/context.h>
#include <railyard/ep.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXPERTS = 8, TOPK = 2, HIDDEN = 128, INNER = 64, TOKENS = 32, STEPS = 3, THREADS = 4 };

static float from_bf16(uint16_t v)
{
    uint32_t bits = (uint32_t)v << 16;
    float f;

    memcpy(&f, &bits, sizeof(f));
    return f;
}

static uint16_t to_bf16(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof(bits));
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* A made-up parameter or input: the same number for the same place on every PE. */
static float number(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t h = a * 2654435761u ^ b * 2246822519u ^ c * 3266489917u;

    h = (h ^ h >> 15) * 2246822519u;
    h = (h ^ h >> 13) * 3266489917u;
    return (float)(int32_t)((h >> 16) % 2001) / 1000.0f - 1.0f;
}

/* y = relu(x W1) W2 of one expert. */
static void feed_forward(uint32_t expert, const uint16_t *x, uint16_t *y)
{
    float inner[INNER];

    for (uint32_t j = 0; j < INNER; j++) {
        float sum = 0.0f;

        for (uint32_t i = 0; i < HIDDEN; i++)
            sum += from_bf16(x[i]) * number(100 + expert, i, j);
        inner[j] = sum > 0.0f ? sum : 0.0f;
    }
    for (uint32_t i = 0; i < HIDDEN; i++) {
        float sum = 0.0f;

        for (uint32_t j = 0; j < INNER; j++)
            sum += inner[j] * number(200 + expert, j, i);
        y[i] = to_bf16(sum / INNER);
    }
}

/* The gate: the TOPK experts with the greatest scores, softmax over them. */
static void gate(const uint16_t *x, int32_t *ids, float *weights)
{
    float score[EXPERTS], total = 0.0f;

    for (uint32_t e = 0; e < EXPERTS; e++) {
        score[e] = 0.0f;
        for (uint32_t i = 0; i < HIDDEN; i++)
            score[e] += from_bf16(x[i]) * number(300, e, i);
    }
    for (uint32_t k = 0; k < TOPK; k++) {
        uint32_t best = 0;

        for (uint32_t e = 1; e < EXPERTS; e++)
            best = score[e] > score[best] ? e : best;
        ids[k] = (int32_t)best;
        weights[k] = expf(score[best] / 8.0f);
        total += weights[k];
        score[best] = -INFINITY;
    }
    for (uint32_t k = 0; k < TOPK; k++)
        weights[k] /= total;
}

/* What the layer gives for one token, by one process. */
static void alone(const uint16_t *x, uint16_t *out)
{
    int32_t ids[TOPK];
    float weights[TOPK], sum[HIDDEN] = {0};
    uint16_t y[HIDDEN];

    gate(x, ids, weights);
    for (uint32_t k = 0; k < TOPK; k++) {
        feed_forward((uint32_t)ids[k], x, y);
        for (uint32_t i = 0; i < HIDDEN; i++)
            sum[i] += weights[k] * from_bf16(y[i]);
    }
    for (uint32_t i = 0; i < HIDDEN; i++)
        out[i] = to_bf16(sum[i]);
}

static int layer(ry_ctx *ctx, ry_ep *ep, uint16_t (*x)[HIDDEN], uint16_t (*out)[HIDDEN])
{
    uint32_t n = ry_n_pes(ctx), local = ry_ep_local_experts(ep, ry_pe(ctx));
    int32_t ids[TOKENS][TOPK];
    float weights[TOKENS][TOPK];
    ry_ep_input in = {x, sizeof(*x), ids, sizeof(*ids), 4, *weights, sizeof(*weights), TOKENS};
    ry_ep_output got;
    uint16_t *y;
    int rc;

    for (uint32_t t = 0; t < TOKENS; t++)
        gate(x[t], ids[t], weights[t]);
    rc = ry_ep_dispatch(ep, &in, &got, RY_EP_BOTH);
    if (rc)
        return rc;
    y = malloc((size_t)(local ? local : 1) * n * TOKENS * HIDDEN * sizeof(*y));
    if (!y)
        return RY_ERR_NO_MEMORY;
    for (uint32_t pair = 0; pair < local * n; pair++) /* of local expert and source */
        for (uint32_t i = 0; i < got.count[pair]; i++) {
            size_t row = (size_t)pair * TOKENS + i;

            feed_forward(ry_ep_first_expert(ep, ry_pe(ctx)) + pair / n,
                         (const uint16_t *)((const char *)got.x + row * got.x_stride),
                         y + row * HIDDEN);
        }
    rc = ry_ep_combine(ep, y, HIDDEN * sizeof(*y), out, sizeof(*out), RY_EP_BOTH);
    free(y);
    return rc;
}

static int run(ry_ctx *ctx)
{
    ry_ep_attr attr = {.experts = EXPERTS, .topk = TOPK, .hidden = HIDDEN, .tokens_max = TOKENS};
    uint16_t x[TOKENS][HIDDEN], out[TOKENS][HIDDEN], want[HIDDEN];
    ry_ep *ep = NULL;
    int rc = ry_ep_create(ctx, &attr, &ep), wrong = 0;

    for (uint32_t step = 0; step < STEPS && rc == RY_OK; step++) {
        for (uint32_t i = 0; i < TOKENS * HIDDEN; i++)
            x[i / HIDDEN][i % HIDDEN] = to_bf16(number(ry_pe(ctx), step, i));
        rc = layer(ctx, ep, x, out);
        for (uint32_t t = 0; t < TOKENS && rc == RY_OK; t++) {
            alone(x[t], want);
            wrong += memcmp(want, out[t], sizeof(want)) != 0;
        }
    }
    if (rc)
        fprintf(stderr, "moe_layer: pe %u: %s\n", ry_pe(ctx), ry_last_error());
    else
        printf("pe %u: %d tokens, %d wrong\n", ry_pe(ctx), STEPS * TOKENS, wrong);
    ry_ep_destroy(ep);
    return rc || wrong;
}

static void *pe_main(void *arg)
{
    const ry_ctx_attr *attr = arg;
    ry_ctx *ctx = NULL;
    int failed = ry_ctx_create(attr, &ctx) != RY_OK;

    if (failed)
        fprintf(stderr, "moe_layer: %s\n", ry_last_error());
    else
        failed = run(ctx);
    ry_ctx_destroy(ctx);
    return failed ? arg : NULL;
}

int main(void)
{
    ry_ctx_attr attr[THREADS] = {{0}};
    pthread_t thread[THREADS];
    ry_hub *hub = NULL;
    int failed = 0;

    if (getenv("RAILYARD_BOOT") || getenv("WORLD_SIZE") || getenv("PMIX_RANK"))
        return pe_main(attr) != NULL;
    if (ry_hub_create(THREADS, 2, &hub) != RY_OK)
        return 1;
    for (uint32_t i = 0; i < THREADS; i++) {
        attr[i] = (ry_ctx_attr){.hub = hub, .hub_pe = i};
        if (pthread_create(&thread[i], NULL, pe_main, &attr[i]))
            abort();
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        void *bad = NULL;

        pthread_join(thread[i], &bad);
        failed |= bad != NULL;
    }
    ry_hub_destroy(hub);
    return failed;
}
