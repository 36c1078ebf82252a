/* SPDX-License-Identifier: Apache-2.0 */
/* Low-latency combine. In each block some warps send: the copy engine carries each expert row
 * through shared memory back to the place of its (token, k) at the source, and when it is written
 * there it is marked, in order of tokens. The other warps add: each takes a part of a token's row
 * and adds the marked rows in order of k, so that adding overlaps with the rows still on their way.
 * Senders wait for nobody, so the two cannot lock. A PE's rows for itself are read where they are,
 * unless the two phases are separate calls. */
#include "cuda/codec.h"
#include "cuda/wait.h"

#define RY_LL_SHARED_MAX  (216u << 10)
#define RY_LL_SENDERS_MAX 5u
#define RY_LL_ADDERS      15u
#define RY_LL_PART        64u /* units of 16 bytes that a warp adds at once */
#define RY_LL_BUFFERS     2u  /* rows of a sending warp that are on their way */

/* Entry i of the list (token, source, k), and the word that says where its row stands here; 0:
 * there is none, or it is to be read in place. */
static __device__ uint64_t ry_ll_entry(const struct ry_gpu_ll *a, bool direct, uint32_t i,
                                       uint32_t *source, uint32_t *pair)
{
    const struct ry_gpu_common *c = &a->c;
    uint32_t k = i % c->topk, rest = i / c->topk;
    uint32_t s = rest % c->place.pes, t = rest / c->place.pes;

    if (t >= c->tokens_max || (direct && s == c->pe))
        return 0;
    *source = s;
    *pair = t * c->topk + k;
    return a->back[(uint64_t)s * c->tokens_max * c->topk + *pair];
}

/* What a sending warp remembers between rows. */
struct ry_ll_sender {
    uint8_t *buffer;
    uint64_t *bars;
    uint64_t *mark; /* of the row that was handed over last */
    uint32_t n;     /* rows so far */
};

/* Lane 0 sends one row; the row before it is written by the time this returns, and marked. */
static __device__ void ry_ll_send_row(const struct ry_gpu_ll *a, uint64_t gen,
                                      struct ry_ll_sender *w, uint32_t source, uint32_t pair,
                                      uint32_t row)
{
    uint32_t bytes = 2 * a->c.hidden, slot = w->n % RY_LL_BUFFERS;
    uint8_t *buffer = w->buffer + slot * bytes, *home = a->c.peer[source];

    ry_bulk_load(buffer, a->y + (uint64_t)row * a->y_stride, bytes, &w->bars[slot]);
    ry_bar_wait(&w->bars[slot], w->n / RY_LL_BUFFERS & 1);
    ry_bulk_store(home + ry_ll_combine_row_at(&a->l, pair), buffer, bytes);
    ry_bulk_commit();
    ry_bulk_wait1(); /* the row before is written, and its buffer is free */
    if (w->mark)
        ry_flag_publish(w->mark, gen);
    w->mark = (uint64_t *)(home + a->row_flags_at) + pair;
    w->n++;
}

/* What each lane of a sending warp looked up. */
struct ry_ll_look {
    uint64_t word;
    uint32_t source, pair;
};

/* One warp sends the rows of entries first, first + step, ...; its lanes look 32 of them up at a
 * time, the first of them before the generation is known. */
static __device__ void ry_ll_return(const struct ry_gpu_ll *a, uint64_t gen, bool direct,
                                    uint32_t first, uint32_t step, struct ry_ll_look look,
                                    struct ry_ll_sender w)
{
    const struct ry_gpu_common *c = &a->c;
    uint32_t entries = c->tokens_max * c->place.pes * c->topk, lane = threadIdx.x & 31u;

    for (uint32_t base = first; base < entries; base += 32 * step) {
        uint32_t here;

        if (base != first)
            look.word = ry_ll_entry(a, direct, base + lane * step, &look.source, &look.pair);
        here = __ballot_sync(0xffffffffu, look.word >> 32 == (gen & 0xffffffffu));
        for (; here; here &= here - 1) {
            int one = __ffs((int)here) - 1;
            uint32_t s = __shfl_sync(0xffffffffu, look.source, one);
            uint32_t p = __shfl_sync(0xffffffffu, look.pair, one);
            uint32_t r = __shfl_sync(0xffffffffu, (uint32_t)look.word, one);

            if (lane == 0)
                ry_ll_send_row(a, gen, &w, s, p, r);
        }
    }
    if (lane == 0) {
        ry_bulk_wait0();
        if (w.mark)
            ry_flag_publish(w.mark, gen);
        for (uint32_t i = 0; i < RY_LL_BUFFERS; i++)
            ry_bar_end(&w.bars[i]);
    }
    __syncwarp(); /* lane 0 has sent; the warp goes on together */
}

/* The last sending warp of a block says that the block has read all it needs of this generation. */
static __device__ void ry_ll_returned(const struct ry_gpu_ll *a, uint64_t gen, uint32_t *done)
{
    const struct ry_gpu_common *c = &a->c;
    uint32_t before = 0;

    if ((threadIdx.x & 31u) == 0) {
        __threadfence_block();
        before = atomicAdd_block(done, 1);
    }
    if (__shfl_sync(0xffffffffu, before, 0) != a->senders - 1)
        return;
    for (uint32_t p = threadIdx.x & 31u; p < c->place.pes; p += 32)
        ry_flag_publish((uint64_t *)(c->peer[p] + a->end_flags_at) + c->pe * RY_GPU_BLOCKS_MAX +
                            blockIdx.x,
                        gen);
}

/* Add units from and from + 32 of n rows, by one lane. */
static __device__ void ry_ll_add(float (*acc)[8], const uint8_t *const *rows, const float *weights,
                                 uint32_t n, uint32_t from, uint32_t units)
{
    bool one = from < units, two = from + 32 < units;

    for (uint32_t k0 = 0; k0 < n; k0 += 4) {
        uint4 v[4][2];

#pragma unroll
        for (int j = 0; j < 4; j++) {
            const uint8_t *row = k0 + j < n ? rows[k0 + j] : 0;

            if (row && one)
                v[j][0] = ry_load16(row + from * 16);
            if (row && two)
                v[j][1] = ry_load16(row + (from + 32) * 16);
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (k0 + j < n && rows[k0 + j]) {
                ry_add_weighted8(acc[0], v[j][0], weights[k0 + j]);
                ry_add_weighted8(acc[1], v[j][1], weights[k0 + j]);
            }
        }
    }
}

/* Where the row of a pair of mine is, once it is there; 0: there is none. */
static __device__ const uint8_t *ry_ll_row(const struct ry_gpu_ll *a, uint64_t gen, bool direct,
                                           uint32_t pair)
{
    const struct ry_gpu_common *c = &a->c;
    const uint8_t *mine = c->peer[c->pe];
    int32_t id = a->kept_ids[pair];
    uint32_t pe;

    if (id < 0)
        return 0;
    pe = ry_place_expert_pe(&c->place, (uint32_t)id);
    if (direct && pe == c->pe) {
        uint64_t row = (uint32_t)a->back[(uint64_t)pe * c->tokens_max * c->topk + pair];

        return a->y + row * a->y_stride;
    }
    ry_wait_flag(c, (const uint64_t *)(mine + a->row_flags_at) + pair, gen, RY_AT_COMBINE_ROW, pe);
    return mine + ry_ll_combine_row_at(&a->l, pair);
}

/* One warp takes parts first, first + step, ... of all tokens' rows, token by token. */
static __device__ void ry_ll_take(const struct ry_gpu_ll *a, uint64_t gen, bool direct,
                                  uint32_t first, uint32_t step, const uint8_t **rows)
{
    const struct ry_gpu_common *c = &a->c;
    uint32_t units = c->hidden / 8, lane = threadIdx.x & 31u;
    uint32_t parts = (units + RY_LL_PART - 1) / RY_LL_PART, n = *a->kept_tokens * parts;

    for (uint32_t i = first; i < n; i += step) {
        uint32_t t = i / parts, from = i % parts * RY_LL_PART + lane;
        uint8_t *out = a->out + t * a->out_stride;
        float acc[2][8] = {{0, 0, 0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0, 0, 0}};

        for (uint32_t k = 0; k < c->topk; k += 32) {
            uint32_t pair = t * c->topk + k;

            rows[lane] = k + lane < c->topk ? ry_ll_row(a, gen, direct, pair + lane) : 0;
            __syncwarp(); /* addresses and what their marks cover, to the whole warp */
            ry_ll_add(acc, rows, a->kept_weights + pair, ry_min32(32, c->topk - k), from, units);
            __syncwarp(); /* rows[] is read before it is written again */
        }
        if (from < units)
            ry_store16(out + from * 16, ry_round8(acc[0]));
        if (from + 32 < units)
            ry_store16(out + (from + 32) * 16, ry_round8(acc[1]));
    }
}

extern "C" __global__ void __launch_bounds__((RY_LL_SENDERS_MAX + RY_LL_ADDERS) * 32, 1)
    ry_ll_combine_kernel(const __grid_constant__ struct ry_gpu_ll a)
{
    extern __shared__ __align__(128) uint8_t shared[];
    __shared__ uint64_t bars[RY_LL_SENDERS_MAX][RY_LL_BUFFERS];
    __shared__ const uint8_t *rows[RY_LL_ADDERS][32];
    __shared__ uint32_t done;
    uint32_t warp = threadIdx.x / 32, warps = blockDim.x / 32, senders = a.senders;
    bool direct = a.c.phases == (RY_EP_SEND | RY_EP_RECV);

    if (threadIdx.x == 0)
        done = 0;
    if (warp < senders && threadIdx.x % 32 == 0) {
        for (uint32_t i = 0; i < RY_LL_BUFFERS; i++)
            ry_bar_init(&bars[warp][i]);
        ry_bar_init_fence();
    }
    uint32_t first = blockIdx.x + gridDim.x * warp, step = gridDim.x * senders;
    struct ry_ll_look look = {0, 0, 0};

    if (warp < senders)
        look.word =
            ry_ll_entry(&a, direct, first + threadIdx.x % 32 * step, &look.source, &look.pair);
    uint64_t gen = ry_turn_take(a.c.turn, a.c.phases); /* its barrier shows `done` to all */

    if (warp < senders) {
        struct ry_ll_sender w = {shared + warp * RY_LL_BUFFERS * 2 * a.c.hidden, bars[warp], 0, 0};

        ry_ll_return(&a, gen, direct, first, step, look, w);
        ry_ll_returned(&a, gen, &done);
    } else {
        ry_ll_take(&a, gen, direct, blockIdx.x + gridDim.x * (warp - senders),
                   gridDim.x * (warps - senders), rows[warp - senders]);
    }
}

extern "C" int ry_gpu_ll_combine_launch(struct ry_gpu_ll *a, uint32_t blocks, void *stream)
{
    uint32_t one = RY_LL_BUFFERS * 2 * a->c.hidden, adders = RY_LL_ADDERS;

    a->senders = ry_min32(RY_LL_SHARED_MAX / one, RY_LL_SENDERS_MAX);
    if (!(a->c.phases & RY_EP_SEND))
        a->senders = 0;
    if (!(a->c.phases & RY_EP_RECV))
        adders = 0;
    cudaFuncSetAttribute(ry_ll_combine_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         RY_LL_SHARED_MAX);
    ry_ll_combine_kernel<<<blocks, (a->senders + adders) * 32, a->senders * one,
                           (cudaStream_t)stream>>>(*a);
    return (int)cudaGetLastError();
}
