/* SPDX-License-Identifier: Apache-2.0 */
/* Low latency, to far peers: a warp takes one channel to one peer and posts its share of the rows,
 * whatever experts they are for. */
#include "cuda/far_wire.h"
#include "cuda/wait.h"

/* Rows for expert `local` of the wire's peer, which the dispatch kernel has counted. */
static __device__ uint32_t ry_far_rows(const struct ry_gpu_ll *a, const struct ry_wire *x,
                                       uint32_t experts, uint32_t local, uint64_t gen)
{
    uint64_t word;

    if (local >= experts)
        return 0;
    word = ((const uint64_t *)(x->mirror + a->counts_at))[x->f->w.pe * a->counts_stride + local];
    return word >> RY_GPU_COUNT_BITS == gen ? (uint32_t)word & RY_GPU_COUNT_MASK : 0;
}

/* Rows [from, to) of all that go to the peer, in order of experts: whole runs of slots. */
static __device__ void ry_far_slots(const struct ry_gpu_ll *a, struct ry_wire *x, uint32_t experts,
                                    uint64_t gen, uint32_t from, uint32_t to)
{
    uint32_t lane = threadIdx.x, at = 0; /* rows of the experts before */

    for (uint32_t base = 0; base < experts && at < to; base += 32) {
        uint32_t mine = ry_far_rows(a, x, experts, base + lane, gen);

        for (uint32_t i = 0; i < 32; i++) {
            uint32_t n = __shfl_sync(0xffffffffu, mine, (int)i);
            uint32_t first = from > at ? from - at : 0, end = ry_min32(n, to > at ? to - at : 0);

            if (lane == 0 && first < end)
                ry_wire_put(x, ry_ll_slot_at(&a->l, base + i, x->f->w.pe, first),
                            (end - first) * a->l.slot_bytes);
            at += n;
        }
    }
}

static __device__ void ry_far_ll_dispatch(const struct ry_gpu_ll *a, struct ry_wire *x)
{
    uint32_t experts = ry_place_expert_count(&a->c.place, x->pe), all = 0;
    uint64_t gen = ry_word_observe(&a->c.turn->send);

    for (uint32_t e = threadIdx.x; e < experts; e += 32)
        all += ry_far_rows(a, x, experts, e, gen);
    all = __reduce_add_sync(0xffffffffu, all);
    if (threadIdx.x == 0 && x->channel == 0 && experts)
        ry_wire_put(x, a->counts_at + x->f->w.pe * a->counts_stride * 8ull, experts * 8ull);
    ry_far_slots(a, x, experts, gen, ry_far_share(all, x->f->w.channels, x->channel),
                 ry_far_share(all, x->f->w.channels, x->channel + 1));
    if (threadIdx.x == 0)
        ry_wire_end(x, RY_FAR_DISPATCH, gen);
}

/* The rows that the combine kernel put into the mirror; channels take them in turn. */
static __device__ void ry_far_ll_combine(const struct ry_gpu_ll *a, struct ry_wire *x)
{
    uint32_t pairs = a->c.tokens_max * a->c.topk, lane = threadIdx.x, n = 0;
    uint64_t gen = ry_word_observe(&a->c.turn->send);
    const uint64_t *back = a->back + (uint64_t)x->pe * pairs;

    for (uint32_t base = 0; base < pairs; base += 32) {
        bool here = base + lane < pairs && back[base + lane] >> 32 == (gen & 0xffffffffu);
        uint32_t mask = __ballot_sync(0xffffffffu, here);

        for (; mask; mask &= mask - 1, n++)
            if (lane == 0 && n % x->f->w.channels == x->channel)
                ry_wire_put(x, ry_ll_combine_row_at(&a->l, base + (uint32_t)__ffs((int)mask) - 1),
                            2ull * a->c.hidden);
    }
    if (lane == 0)
        ry_wire_end(x, RY_FAR_COMBINE, gen);
}

static __global__ void __launch_bounds__(32)
    ry_far_ll_post_kernel(const __grid_constant__ struct ry_gpu_ll a,
                          const __grid_constant__ struct ry_gpu_far f, enum ry_far_stage stage)
{
    struct ry_wire x;

    if (ry_far_lost(&f))
        return;
    x.f = &f;
    x.pe = ry_far_peer(&f, blockIdx.x / f.w.channels);
    x.channel = blockIdx.x % f.w.channels;
    x.mirror = a.c.peer[x.pe];
    x.n = 0;
    x.rc = RY_OK;
    if (stage == RY_FAR_DISPATCH)
        ry_far_ll_dispatch(&a, &x);
    else
        ry_far_ll_combine(&a, &x);
}

extern "C" int ry_far_ll_post_launch(const struct ry_gpu_ll *a, const struct ry_gpu_far *f,
                                     enum ry_far_stage stage, void *stream)
{
    ry_far_ll_post_kernel<<<f->n * f->w.channels, 32, 0, (cudaStream_t)stream>>>(*a, *f, stage);
    return (int)cudaGetLastError();
}
