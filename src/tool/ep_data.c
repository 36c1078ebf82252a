/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens, routing and stand-in experts of `railyard ep`: every PE can make those of all PEs. */
#include <railyard/routing.h>
#include <stdlib.h>
#include <string.h>

#include "ep.h"

enum { POOL_ROWS = 509, STAMP = 8, ROUTES_MAX = 1 << 20 };

static int open_routing(struct ep_data *d)
{
    const struct ep_job *job = d->job;
    ry_routing_attr attr = {.experts = job->attr.experts, .topk = job->attr.topk};
    ry_routing *routing;
    ry_routing_info info;
    int rc = ry_routing_open(job->routing, &attr, &routing);
    if (rc != RY_OK)
        return rc;
    ry_routing_get_info(routing, &info);
    uint64_t wanted = (job->iters + job->warmup) * d->n_pes * job->tokens;
    d->n_routes = info.tokens < ROUTES_MAX ? info.tokens : ROUTES_MAX;
    if (job->duration_ns == 0 && wanted < d->n_routes)
        d->n_routes = wanted;
    size_t topk = job->attr.topk, rows = d->n_routes + job->tokens;
    d->idx = malloc(rows * topk * sizeof *d->idx);
    d->weight = malloc(rows * topk * sizeof *d->weight);
    rc = d->idx && d->weight ? ry_routing_next(routing, (uint32_t)d->n_routes, d->idx, d->weight)
                             : RY_ERR_NO_MEMORY;
    ry_routing_close(routing);
    if (rc != RY_OK)
        return rc;
    for (uint64_t t = d->n_routes; t < rows; t++) {
        memcpy(d->idx + t * topk, d->idx + (t - d->n_routes) * topk, topk * sizeof *d->idx);
        memcpy(d->weight + t * topk, d->weight + (t - d->n_routes) * topk,
               topk * sizeof *d->weight);
    }
    return RY_OK;
}

int ep_data_open(struct ep_data *d, const struct ep_job *job, uint32_t pe, uint32_t n_pes,
                 uint32_t n_nodes)
{
    size_t hidden = job->attr.hidden, tokens = job->tokens;
    *d = (struct ep_data){.job = job, .n_pes = n_pes, .n_nodes = n_nodes};
    int rc = open_routing(d);
    if (rc != RY_OK)
        return rc;
    d->pool = malloc(POOL_ROWS * hidden * sizeof *d->pool);
    d->tokens = malloc(n_pes * sizeof *d->tokens);
    d->idx_of = malloc(n_pes * sizeof *d->idx_of);
    d->weight_of = malloc(n_pes * sizeof *d->weight_of);
    d->x = malloc(tokens * hidden * sizeof *d->x);
    d->out = malloc(tokens * hidden * sizeof *d->out);
    d->scratch = malloc(hidden * (sizeof(float) + sizeof(uint16_t)));
    if (!d->pool || !d->tokens || !d->idx_of || !d->weight_of || !d->x || !d->out || !d->scratch)
        return RY_ERR_NO_MEMORY;
    for (uint32_t r = 0; r < POOL_ROWS; r++)
        ry_ref_token(job->seed, 0, r, job->attr.hidden, d->pool + r * hidden);
    ep_data_iteration(d, 0, pe);
    return RY_OK;
}

void ep_data_close(struct ep_data *d)
{
    free(d->idx);
    free(d->weight);
    free(d->pool);
    free(d->tokens);
    free(d->idx_of);
    free(d->weight_of);
    free(d->x);
    free(d->y);
    free(d->out);
    free(d->scratch);
}

/* A row of the pool, other ones in each iteration, with channels that say whose it is. */
static void make_row(void *arg, uint32_t pe, uint32_t token, void *x)
{
    const struct ep_data *d = arg;
    size_t hidden = d->job->attr.hidden;
    uint64_t row = (token + 53 * (uint64_t)pe + 197 * d->iteration) % POOL_ROWS;
    memcpy(x, d->pool + row * hidden, hidden * sizeof(uint16_t));
    uint64_t stamp = ((d->iteration << 36) ^ ((uint64_t)pe << 24) ^ token) + d->job->seed;
    stamp = (stamp ^ (stamp >> 30)) * 0xbf58476d1ce4e5b9u;
    stamp = (stamp ^ (stamp >> 27)) * 0x94d049bb133111ebu;
    for (uint32_t c = 0; c < STAMP && c < hidden; c++, stamp >>= 7)
        ((uint16_t *)x)[c] = (uint16_t)(0x3f80 | (stamp & 0x7f)); /* bf16 from 1 to 2 */
}

void ep_data_iteration(struct ep_data *d, uint64_t i, uint32_t pe)
{
    uint32_t tokens = d->job->tokens, topk = d->job->attr.topk;
    d->iteration = i;
    for (uint32_t p = 0; p < d->n_pes; p++) {
        uint64_t first = (i * d->n_pes + p) * tokens % d->n_routes;
        d->tokens[p] = tokens;
        d->idx_of[p] = d->idx + first * topk;
        d->weight_of[p] = d->weight + first * topk;
    }
    for (uint32_t t = 0; t < tokens; t++)
        make_row(d, pe, t, d->x + (size_t)t * d->job->attr.hidden);
}

void ep_data_input(const struct ep_data *d, uint32_t pe, ry_ep_input *in)
{
    size_t topk = d->job->attr.topk;
    *in = (ry_ep_input){
        .x = d->x,
        .x_stride = d->job->attr.hidden * sizeof(uint16_t),
        .topk_idx = d->idx_of[pe],
        .topk_idx_stride = topk * sizeof(int32_t),
        .idx_bytes = 4,
        .topk_weight = d->weight_of[pe],
        .topk_weight_stride = topk * sizeof(float),
        .tokens = d->job->tokens,
    };
}

static uint16_t round_bf16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return 0x7fff;
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

/* e4m3: sign, 4 bits of exponent (bias 7), 3 of mantissa; 0x7f is NaN, there is no infinity. */
static float decode_code(uint8_t code)
{
    int exponent = code >> 3 & 15, mantissa = code & 7;
    float v = exponent ? (float)(8 + mantissa) : (float)mantissa;
    uint32_t bits = (uint32_t)((exponent ? exponent : 1) - 10 + 127) << 23; /* 2^(e - 7 - 3) */
    float power;
    memcpy(&power, &bits, sizeof power);
    v *= power;
    if ((code & 0x7f) == 0x7f) {
        bits = 0x7fc00000;
        memcpy(&v, &bits, sizeof v);
    }
    return code & 0x80 ? -v : v;
}

/* Codes and one f32 scale for each 128 channels. */
static void decode_row(uint32_t hidden, const ry_ep_output *out, uint32_t row, float *wide)
{
    const uint8_t *codes = (const uint8_t *)out->x + row * out->x_stride;
    const uint8_t *scales = (const uint8_t *)out->scales + row * out->scales_stride;
    for (uint32_t c = 0; c < hidden; c++) {
        float scale;
        memcpy(&scale, scales + c / 128 * sizeof scale, sizeof scale);
        wide[c] = decode_code(codes[c]) * scale;
    }
}

uint32_t ep_experts(const struct ep_job *job, uint32_t n_pes, uint32_t pe, uint32_t *first)
{
    uint32_t each = job->attr.experts / n_pes, rest = job->attr.experts % n_pes;
    if (first)
        *first = pe * each + (pe < rest ? pe : rest);
    return each + (pe < rest);
}

/* Row `row` as an expert reads it: bf16. */
static const void *received(struct ep_data *d, const ry_ep *ep, const ry_ep_output *out,
                            uint32_t row)
{
    uint32_t hidden = d->job->attr.hidden;
    if (d->job->attr.dtype == RY_BF16)
        return (const char *)out->x + row * out->x_stride;
    float *wide = d->scratch;
    uint16_t *narrow = (uint16_t *)(wide + hidden);
    if (ep)
        ry_ep_dequantise(ep, out, row, wide);
    else
        decode_row(hidden, out, row, wide);
    for (uint32_t c = 0; c < hidden; c++)
        narrow[c] = round_bf16(wide[c]);
    return narrow;
}

static int room(struct ep_data *d, size_t rows)
{
    if (rows <= d->y_rows)
        return RY_OK;
    uint16_t *y = realloc(d->y, rows * d->job->attr.hidden * sizeof *y);
    if (!y)
        return RY_ERR_NO_MEMORY;
    d->y = y;
    d->y_rows = rows;
    return RY_OK;
}

static int experts_ll(struct ep_data *d, const ry_ep *ep, uint32_t pe, const ry_ep_output *out)
{
    uint32_t first, local = ep_experts(d->job, d->n_pes, pe, &first);
    uint32_t hidden = d->job->attr.hidden, most = d->job->attr.tokens_max;
    int rc = room(d, (size_t)local * d->n_pes * most);
    for (uint32_t e = 0; rc == RY_OK && e < local; e++) {
        for (uint32_t s = 0; s < d->n_pes; s++) {
            uint32_t base = (e * d->n_pes + s) * most;
            for (uint32_t i = 0; i < out->count[e * d->n_pes + s]; i++)
                ry_ref_expert(first + e, hidden, received(d, ep, out, base + i),
                              d->y + (size_t)(base + i) * hidden);
        }
    }
    return rc;
}

static int experts_ht(struct ep_data *d, const ry_ep *ep, uint32_t pe, const ry_ep_output *out)
{
    uint32_t first, topk = d->job->attr.topk;
    size_t hidden = d->job->attr.hidden;
    ep_experts(d->job, d->n_pes, pe, &first);
    int rc = room(d, out->rows);
    uint16_t *copy = rc == RY_OK ? malloc((topk + 1) * hidden * sizeof *copy) : NULL;
    const void **rows = malloc(topk * sizeof *rows);
    if (!copy || !rows) {
        free(copy);
        free(rows);
        return RY_ERR_NO_MEMORY;
    }
    uint16_t *made = copy + hidden;
    for (uint32_t r = 0; r < out->rows; r++) {
        const int32_t *idx = out->topk_idx + (size_t)r * topk;
        memcpy(copy, received(d, ep, out, r), hidden * sizeof *copy);
        for (uint32_t k = 0; k < topk; k++) {
            rows[k] = made + k * hidden;
            if (idx[k] >= 0)
                ry_ref_expert(first + (uint32_t)idx[k], (uint32_t)hidden, copy, made + k * hidden);
        }
        ry_ep_local_reduce(idx, out->topk_weight + (size_t)r * topk, topk, rows, (uint32_t)hidden,
                           d->y + r * hidden);
    }
    free(copy);
    free(rows);
    return RY_OK;
}

int ep_data_experts(struct ep_data *d, const ry_ep *ep, uint32_t pe, const ry_ep_output *out)
{
    return d->job->attr.mode == RY_EP_LL ? experts_ll(d, ep, pe, out) : experts_ht(d, ep, pe, out);
}

int ep_data_reference(struct ep_data *d, const uint64_t *active, ry_ref **ref)
{
    const ry_ref_job job = {
        .attr = d->job->attr,
        .n_pes = d->n_pes,
        .n_nodes = d->n_nodes,
        .tokens = d->tokens,
        .topk_idx = d->idx_of,
        .topk_weight = d->weight_of,
        .active = active,
        .row = make_row,
        .arg = d,
    };
    return ry_ref_create(&job, ref);
}
