/* SPDX-License-Identifier: Apache-2.0 */
/* High-throughput dispatch, first kernel: which PEs each token goes to, its place among the tokens
 * to each, and what every PE must know before rows can go straight to their final place: how many
 * tokens go from whom to whom, and how many to each expert.
 *
 * A block plans parts of RY_HT_PART tokens, a thread a token; the block that ends last adds the
 * parts up and tells the peers. */
#include "cuda/wait.h"

/* There is always one, so that a PE without tokens tells its peers so. */
static __host__ __device__ uint32_t ry_ht_parts(const struct ry_gpu_ht *a)
{
    return a->in.tokens ? (a->in.tokens + RY_HT_PART - 1) / RY_HT_PART : 1;
}

/* The block's part of ids and weights into shared memory and into what is kept for combine; ids out
 * of range become -1. */
static __device__ void ry_ht_stage(const struct ry_gpu_ht *a, uint32_t first, uint32_t n,
                                   int32_t *ids)
{
    uint32_t topk = a->c.topk;

    for (uint32_t i0 = threadIdx.x; i0 < n * topk; i0 += 8 * blockDim.x) {
        int64_t raw[8];
        float w[8];

#pragma unroll
        for (uint32_t j = 0; j < 8; j++) {
            uint32_t i = i0 + j * blockDim.x, t = i / topk, k = i - t * topk;

            raw[j] = -1;
            if (i < n * topk) {
                raw[j] = ry_input_raw(&a->in, first + t, k);
                w[j] = ((const float *)(a->in.weights + (first + t) * a->in.weights_stride))[k];
            }
        }
#pragma unroll
        for (uint32_t j = 0; j < 8; j++) {
            uint32_t i = i0 + j * blockDim.x;
            bool good = raw[j] >= 0 && raw[j] < (int64_t)a->c.place.experts;

            if (i >= n * topk)
                break;
            if (!good && raw[j] != -1)
                ry_status_report(a->c.status, RY_ERR_INVALID, RY_AT_INDEX, first + i / topk,
                                 i % topk);
            ids[i] = good ? (int32_t)raw[j] : -1;
            a->kept_weights[first * topk + i] = w[j];
        }
    }
    __syncthreads(); /* ids, to the thread of each token */
}

/* One token by one thread: repeated choices become -1, experts are counted; the PEs it goes to, a
 * bit each. */
static __device__ uint32_t ry_ht_token(const struct ry_gpu_ht *a, const uint8_t *table, uint32_t t,
                                       int32_t *ids, uint32_t *hits)
{
    uint32_t pes = 0, topk = a->c.topk;

    for (uint32_t k = 0; k < topk; k++) {
        int32_t id = ids[k];
        bool repeated = false;

        for (uint32_t i = 0; i < k; i++)
            repeated |= id >= 0 && ids[i] == id;
        if (repeated) {
            ry_status_report(a->c.status, RY_ERR_INVALID, RY_AT_INDEX, t, k);
            ids[k] = id = -1;
        }
        if (id >= 0) {
            pes |= 1u << table[id];
            atomicAdd(&hits[id], 1);
        }
    }
    return pes;
}

/* Ranks of the block's tokens among those of the part; how many there are goes to `before`. */
static __device__ void ry_ht_rank(const struct ry_gpu_ht *a, uint32_t part, uint32_t t,
                                  uint32_t pes)
{
    __shared__ uint32_t in_warp[RY_HT_PART / 32];
    uint32_t lane = threadIdx.x & 31u, warp = threadIdx.x / 32;

    for (uint32_t p = 0; p < a->c.place.pes; p++) {
        bool goes = pes >> p & 1;
        uint32_t mask = __ballot_sync(0xffffffffu, goes), at = 0, all = 0;

        if (lane == 0)
            in_warp[warp] = __popc(mask);
        __syncthreads(); /* each warp's number, to all */
        for (uint32_t w = 0; w < RY_HT_PART / 32; w++) {
            at += w < warp ? in_warp[w] : 0;
            all += in_warp[w];
        }
        at += __popc(mask & ((1u << lane) - 1));
        if (t < a->in.tokens)
            a->rank[p * a->c.tokens_max + t] = goes ? (int32_t)at : -1;
        if (threadIdx.x == 0)
            a->before[part * a->c.place.pes + p] = all;
        __syncthreads(); /* in_warp is read before it is written again */
    }
}

/* The last block: numbers of the parts become what stands before each; the peers are told. */
static __device__ void ry_ht_tell(const struct ry_gpu_ht *a, uint64_t gen, const uint8_t *table,
                                  uint32_t parts)
{
    const struct ry_gpu_common *c = &a->c;
    uint32_t pes = c->place.pes, lane = threadIdx.x & 31u;

    ry_wait_ends(c, (const uint64_t *)(c->peer[c->pe] + a->l.end_flags_at), *c->last);
    __syncthreads(); /* the flags' observers, to all who write; `last` is read */
    if (threadIdx.x == 0)
        *c->last = gen;
    for (uint32_t p = threadIdx.x / 32; p < pes; p += blockDim.x / 32) {
        uint32_t sum = 0;

        for (uint32_t base = 0; base < parts; base += 32) {
            uint32_t part = base + lane, own, v = 0;

            if (part < parts)
                v = __ldcg(&a->before[part * pes + p]);
            own = v;
            for (uint32_t d = 1; d < 32; d *= 2) {
                uint32_t up = __shfl_up_sync(0xffffffffu, v, d);

                v += lane >= d ? up : 0;
            }
            if (part < parts)
                a->before[part * pes + p] = sum + v - own;
            sum += __shfl_sync(0xffffffffu, v, 31);
        }
        /* everyone needs the whole matrix: it says where each source's rows begin */
        if (lane < pes)
            ry_word_publish((uint64_t *)(c->peer[lane] + a->l.matrix_at) + c->pe * pes + p,
                            ry_count_word(gen, sum));
    }
    for (uint32_t e = threadIdx.x; e < c->place.experts; e += blockDim.x) {
        uint32_t pe = table[e], local = e - ry_place_expert_first(&c->place, pe);

        ry_word_publish((uint64_t *)(c->peer[pe] + a->l.histogram_at) + c->pe * a->local_max +
                            local,
                        ry_count_word(gen, __ldcg(&a->hits[e])));
        a->hits[e] = 0;
    }
    if (threadIdx.x == 0) {
        *a->kept_tokens = a->in.tokens;
        *a->done = 0;
    }
}

/* One part of RY_HT_PART tokens. */
static __device__ void ry_ht_part(const struct ry_gpu_ht *a, uint32_t part, const uint8_t *table,
                                  uint32_t *hits, int32_t *ids)
{
    uint32_t first = part * RY_HT_PART, topk = a->c.topk, pes = 0;
    uint32_t n = first < a->in.tokens ? ry_min32(a->in.tokens - first, RY_HT_PART) : 0;

    ry_ht_stage(a, first, n, ids);
    if (threadIdx.x < n)
        pes = ry_ht_token(a, table, first + threadIdx.x, ids + threadIdx.x * topk, hits);
    ry_ht_rank(a, part, first + threadIdx.x, pes); /* meets at barriers: ids are final then */
    for (uint32_t i = threadIdx.x; i < n * topk; i += blockDim.x)
        a->kept_ids[first * topk + i] = ids[i];
    __syncthreads(); /* ids are read before the next part's are written */
}

extern "C" __global__ void __launch_bounds__(RY_HT_PART)
    ry_ht_plan_kernel(const __grid_constant__ struct ry_gpu_ht a)
{
    extern __shared__ __align__(16) uint8_t shared[];
    __shared__ uint32_t last;
    int32_t *ids = (int32_t *)shared;                         /* [RY_HT_PART][topk] */
    uint32_t *hits = (uint32_t *)ids + RY_HT_PART * a.c.topk; /* [experts] */
    uint8_t *table = (uint8_t *)(hits + a.c.place.experts);   /* PE of every expert */
    uint32_t parts = ry_ht_parts(&a);
    uint64_t gen = ry_turn_take(a.c.turn, RY_EP_SEND | RY_EP_RECV);

    for (uint32_t e = threadIdx.x; e < a.c.place.experts; e += blockDim.x) {
        table[e] = (uint8_t)ry_place_expert_pe(&a.c.place, e);
        hits[e] = 0;
    }
    __syncthreads(); /* the table and zeros, to all */
    for (uint32_t part = blockIdx.x; part < parts; part += gridDim.x)
        ry_ht_part(&a, part, table, hits, ids);
    for (uint32_t e = threadIdx.x; e < a.c.place.experts; e += blockDim.x)
        if (hits[e])
            atomicAdd(&a.hits[e], hits[e]);
    __syncthreads(); /* all the block has written, to the thread that says so */
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicAdd(a.done, 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads(); /* who is last, and the others' numbers, to the block */
    if (last)
        ry_ht_tell(&a, gen, table, parts);
}

extern "C" int ry_gpu_ht_plan_launch(const struct ry_gpu_ht *a, uint32_t blocks, void *stream)
{
    uint32_t shared = RY_HT_PART * a->c.topk * 4 + a->c.place.experts * 5;

    cudaFuncSetAttribute(ry_ht_plan_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         RY_HT_PLAN_SHARED_MAX);
    ry_ht_plan_kernel<<<ry_min32(ry_ht_parts(a), blocks), RY_HT_PART, shared,
                        (cudaStream_t)stream>>>(*a);
    return (int)cudaGetLastError();
}
