/* SPDX-License-Identifier: Apache-2.0 */
/* High throughput, to far peers: the plan by one channel, then rows. Rows of one source lie packed
 * at their target, so that a channel's share of a dispatch is a few long runs. */
#include "cuda/far_wire.h"
#include "cuda/wait.h"

static __device__ uint32_t ry_far_planned(const struct ry_gpu_ht *a, uint32_t source, uint32_t to)
{
    const uint64_t *matrix = (const uint64_t *)(a->c.peer[a->c.pe] + a->l.matrix_at);

    return (uint32_t)ry_word_observe(&matrix[source * a->c.place.pes + to]) & RY_GPU_COUNT_MASK;
}

/* Where rows of `source` begin at PE `to`. */
static __device__ uint32_t ry_far_start(const struct ry_gpu_ht *a, uint32_t source, uint32_t to)
{
    uint32_t sum = 0;

    for (uint32_t s = 0; s < source; s++)
        sum += ry_far_planned(a, s, to);
    return sum;
}

static __device__ void ry_far_ht_plan(const struct ry_gpu_ht *a, struct ry_wire *x)
{
    uint32_t pes = a->c.place.pes, pe = a->c.pe;
    uint32_t experts = ry_place_expert_count(&a->c.place, x->pe);

    if (x->channel == 0) {
        ry_wire_put(x, a->l.matrix_at + (uint64_t)pe * pes * 8, pes * 8ull);
        ry_wire_put(x, a->l.histogram_at + (uint64_t)pe * a->local_max * 8, experts * 8ull);
    }
    ry_wire_end(x, RY_FAR_PLAN, ry_word_observe(&a->c.turn->send));
}

static __device__ void ry_far_ht_dispatch(const struct ry_gpu_ht *a, struct ry_wire *x)
{
    uint32_t rows = ry_far_planned(a, a->c.pe, x->pe), start = ry_far_start(a, a->c.pe, x->pe);
    uint64_t first = start + ry_far_share(rows, x->f->w.channels, x->channel);
    uint64_t n = start + ry_far_share(rows, x->f->w.channels, x->channel + 1) - first;

    ry_wire_put(x, a->l.ids_at + first * a->c.topk * 4, n * a->c.topk * 4);
    ry_wire_put(x, a->l.weights_at + first * a->c.topk * 4, n * a->c.topk * 4);
    ry_wire_put(x, a->l.src_token_at + first * 4, n * 4);
    ry_wire_put(x, a->l.row_source_at + first * 4, n * 4);
    ry_wire_put(x, a->l.rows_at + first * a->l.row_bytes, n * a->l.row_bytes);
    ry_wire_end(x, RY_FAR_DISPATCH, ry_word_observe(&a->c.turn->send));
}

/* Rows go back to the places of their tokens, one by one. */
static __device__ void ry_far_ht_combine(const struct ry_gpu_ht *a, struct ry_wire *x)
{
    const uint32_t *tokens = (const uint32_t *)(a->c.peer[a->c.pe] + a->l.src_token_at);
    uint32_t rows = ry_far_planned(a, x->pe, a->c.pe), start = ry_far_start(a, x->pe, a->c.pe);
    uint64_t bytes = 2ull * a->c.hidden;

    for (uint32_t i = x->channel; i < rows && x->rc == RY_OK; i += x->f->w.channels) {
        uint64_t at = (uint64_t)tokens[start + i] * a->c.place.pes + a->c.pe;

        ry_wire_put(x, a->l.combine_at + at * bytes, bytes);
    }
    ry_wire_end(x, RY_FAR_COMBINE, ry_word_observe(&a->c.turn->send));
}

static __global__ void __launch_bounds__(32)
    ry_far_ht_post_kernel(const __grid_constant__ struct ry_gpu_ht a,
                          const __grid_constant__ struct ry_gpu_far f, enum ry_far_stage stage)
{
    struct ry_wire x;

    if (threadIdx.x || ry_far_lost(&f))
        return;
    x.f = &f;
    x.pe = ry_far_peer(&f, blockIdx.x / f.w.channels);
    x.channel = blockIdx.x % f.w.channels;
    x.mirror = a.c.peer[x.pe];
    x.n = 0;
    x.rc = RY_OK;
    if (stage == RY_FAR_PLAN)
        ry_far_ht_plan(&a, &x);
    else if (stage == RY_FAR_DISPATCH)
        ry_far_ht_dispatch(&a, &x);
    else
        ry_far_ht_combine(&a, &x);
}

extern "C" int ry_far_ht_post_launch(const struct ry_gpu_ht *a, const struct ry_gpu_far *f,
                                     enum ry_far_stage stage, void *stream)
{
    ry_far_ht_post_kernel<<<f->n * f->w.channels, 32, 0, (cudaStream_t)stream>>>(*a, *f, stage);
    return (int)cudaGetLastError();
}
