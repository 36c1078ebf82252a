/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda/host/layout.h"

#include "host/error.h"

enum { ALIGN = 256 };

static uint64_t room(uint64_t *at, uint64_t bytes)
{
    uint64_t begin = *at;

    *at = (begin + bytes + ALIGN - 1) / ALIGN * ALIGN;
    return begin;
}

struct ry_ep_shape ry_gpu_shape(const struct ry_gpu_ep_attr *attr)
{
    const ry_ep_attr *e = &attr->ep;
    struct ry_ep_shape s = {
        .pes = attr->n_pes,
        .nodes = 1,
        .experts = e->experts,
        .topk = e->topk,
        .hidden = e->hidden,
        .tokens_max = e->tokens_max,
        .channels = 1,
        .generations = e->generations ? e->generations : 2,
        .fp8 = e->dtype == RY_FP8,
        .scale_kind = (int)e->scale,
    };

    return s;
}

/* Flags stand behind the buffers that every exchange has. */
int ry_gpu_ll_layout(const struct ry_ep_shape *s, struct ry_gpu_ll *a, uint64_t *generation_bytes)
{
    uint64_t at, pes = (uint64_t)s->pes;
    int status = ry_ll_layout_make(s, &a->l);

    if (status != RY_OK)
        return status;
    at = a->l.stage_at;                            /* what a NIC is to read stands in mirrors */
    a->counts_stride = (a->l.local_max + 1) & ~1u; /* rows of 16-byte units */
    a->counts_at = room(&at, a->counts_stride * pes * 8);
    a->dispatch_flags_at = room(&at, pes * RY_GPU_BLOCKS_MAX * 8);
    a->row_flags_at = room(&at, (uint64_t)s->tokens_max * (uint64_t)s->topk * 8);
    a->end_flags_at = room(&at, pes * RY_GPU_BLOCKS_MAX * 8);
    *generation_bytes = at;
    return RY_OK;
}

int ry_gpu_ht_layout(const struct ry_ep_shape *s, struct ry_gpu_ht *a, uint64_t *generation_bytes)
{
    struct ry_gpu_ht_layout *l = &a->l;
    struct ry_ht_layout bounds;
    uint64_t pes = (uint64_t)s->pes, tokens = (uint64_t)s->tokens_max, topk = (uint64_t)s->topk;
    uint64_t rows = pes * tokens, at = 0;
    int status = ry_ht_layout_make(s, &bounds); /* refuses what would overflow */

    if (status != RY_OK)
        return status;
    l->row_bytes = bounds.row_bytes;
    l->rows_at = room(&at, rows * l->row_bytes);
    l->ids_at = room(&at, rows * topk * 4);
    l->weights_at = room(&at, rows * topk * 4);
    l->src_token_at = room(&at, rows * 4);
    l->row_source_at = room(&at, rows * 4);
    l->combine_at = room(&at, rows * 2 * (uint64_t)s->hidden);
    l->matrix_at = room(&at, pes * pes * 8);
    a->local_max = ry_block_size((uint32_t)s->experts, (uint32_t)pes, 0);
    l->histogram_at = room(&at, pes * a->local_max * 8);
    l->dispatch_flags_at = room(&at, pes * RY_GPU_BLOCKS_MAX * 8);
    l->row_flags_at = room(&at, rows * 8);
    l->end_flags_at = room(&at, pes * RY_GPU_BLOCKS_MAX * 8);
    *generation_bytes = at;
    return RY_OK;
}
