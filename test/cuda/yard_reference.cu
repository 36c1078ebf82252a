/* SPDX-License-Identifier: Apache-2.0 */
/* The yard's results against the host's reference: outputs are copied to the host first. */
#include <string.h>

#include "core/place.h"
#include "cuda/yard.h"

static void row_of(void *arg, uint32_t pe, uint32_t token, void *x)
{
    const struct yard *y = (const struct yard *)arg;

    ry_ref_token(y->seed, pe, token, y->attr.hidden, x);
}

static void *to_host(const void *from, size_t bytes)
{
    void *to = malloc(bytes + 1);

    CHECK_CUDA(cudaMemcpy(to, from, bytes, cudaMemcpyDefault));
    return to;
}

/* A copy of an output whose pointers the host may follow; freed by output_free. */
static ry_ep_output output_copy(const struct yard *y, uint32_t p)
{
    const ry_ep_output *d = &y->pe[p].got;
    struct ry_place place = {y->attr.experts, y->pes, 1};
    uint32_t local = ry_place_expert_count(&place, p);
    ry_ep_output o = *d;
    uint32_t *rows = (uint32_t *)to_host(y->pe[p].rows, 4);
    size_t n = (size_t)y->pes * y->attr.tokens_max * (d->row_source ? 1 : local);

    o.rows = *rows;
    free(rows);
    /* a row's scales stand behind its codes: one copy holds both */
    o.x = to_host(d->x, n * d->x_stride);
    if (d->scales)
        o.scales = (const uint8_t *)o.x + ((const uint8_t *)d->scales - (const uint8_t *)d->x);
    o.src_token = (const uint32_t *)to_host(d->src_token, n * 4);
    if (d->count)
        o.count = (const uint32_t *)to_host(d->count, (size_t)local * y->pes * 4);
    if (d->row_source) {
        o.row_source = (const uint32_t *)to_host(d->row_source, n * 4);
        o.topk_idx = (const int32_t *)to_host(d->topk_idx, n * y->attr.topk * 4);
        o.topk_weight = (const float *)to_host(d->topk_weight, n * y->attr.topk * 4);
    }
    o.expert_rows = (const uint32_t *)to_host(d->expert_rows, local * 4);
    return o;
}

static void output_free(ry_ep_output *o)
{
    free((void *)o->x);
    free((void *)o->src_token);
    free((void *)o->count);
    free((void *)o->row_source);
    free((void *)o->topk_idx);
    free((void *)o->topk_weight);
    free((void *)o->expert_rows);
}

uint64_t yard_reference(struct yard *y)
{
    const int32_t *ids[RY_GPU_PES_MAX];
    const float *weights[RY_GPU_PES_MAX];
    uint32_t tokens[RY_GPU_PES_MAX];
    ry_ref_tally tally;
    ry_ref_job job;
    ry_ref *ref;

    memset(&job, 0, sizeof(job));
    memset(&tally, 0, sizeof(tally));
    yard_sync(y);
    for (uint32_t p = 0; p < y->pes; p++) {
        ids[p] = y->pe[p].ids_host;
        weights[p] = y->pe[p].weights_host;
        tokens[p] = y->pe[p].tokens;
    }
    job.attr = y->attr;
    job.n_pes = y->pes;
    job.n_nodes = y->nodes;
    job.tokens = tokens;
    job.topk_idx = ids;
    job.topk_weight = weights;
    job.row = row_of;
    job.arg = y;
    CHECK_RY(ry_ref_create(&job, &ref));
    for (uint32_t p = 0; p < y->pes; p++) {
        size_t bytes = (size_t)y->pe[p].tokens * y->attr.hidden * 2;
        ry_ep_output o = output_copy(y, p);
        void *out = to_host(y->pe[p].out, bytes);

        CHECK_RY(ry_ref_check_dispatch(ref, p, &o, &tally));
        ry_ref_check_combine(ref, p, out, 2ull * y->attr.hidden, &tally);
        free(out);
        output_free(&o);
    }
    ry_ref_destroy(ref);
    if (tally.lost + tally.duplicated + tally.corrupted)
        printf("checked %llu lost %llu duplicated %llu corrupted %llu\n",
               (unsigned long long)tally.checked, (unsigned long long)tally.lost,
               (unsigned long long)tally.duplicated, (unsigned long long)tally.corrupted);
    return tally.lost + tally.duplicated + tally.corrupted;
}
