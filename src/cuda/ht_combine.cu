/* SPDX-License-Identifier: Apache-2.0 */
/* High-throughput combine: some warps of a block send rows back (the copy engine, through shared
 * memory), each row marked when it has arrived; the other warps add up this PE's tokens as their
 * rows come. The two never wait for each other inside a GPU, so that sending and adding overlap. */
#include "cuda/codec.h"
#include "cuda/wait.h"

#define RY_HT_COMBINE_SHARED_MAX (220u << 10)
#define RY_HT_COMBINE_WARPS      20u
#define RY_HT_SENDERS_MAX        8u
#define RY_HT_BUFFERS            3u /* rows of a sending warp that are on their way */

/* Where each source's rows begin here, and (last) how many rows there are. */
static __device__ void ry_ht_starts(const struct ry_gpu_ht *a, uint64_t gen, uint32_t *start)
{
    const struct ry_gpu_common *c = &a->c;
    const uint64_t *matrix = (const uint64_t *)(c->peer[c->pe] + a->l.matrix_at);

    if (threadIdx.x == 0) {
        uint32_t sum = 0;

        for (uint32_t s = 0; s < c->place.pes; s++) {
            start[s] = sum;
            sum += ry_wait_count(c, &matrix[s * c->place.pes + c->pe], gen, s);
        }
        start[c->place.pes] = sum;
    }
    __syncthreads(); /* the starts, to all warps */
}

static __device__ uint64_t *ry_ht_mark(const struct ry_gpu_ht *a, uint32_t source, uint32_t token)
{
    return (uint64_t *)(a->c.peer[source] + a->l.row_flags_at) + (uint64_t)token * a->c.place.pes +
           a->c.pe;
}

/* The n-th row that this PE sends: rows of the next PE first, its own last or (when the same kernel
 * adds them straight from y) not at all. */
static __device__ uint32_t ry_ht_nth(const struct ry_gpu_ht *a, const uint32_t *start, uint32_t n,
                                     uint32_t *source)
{
    uint32_t pes = a->c.place.pes;

    for (uint32_t i = 1; i <= pes; i++) {
        uint32_t s = (a->c.pe + i) % pes, rows = start[s + 1] - start[s];

        if (n < rows) {
            *source = s;
            return start[s] + n;
        }
        n -= rows;
    }
    return 0;
}

/* One lane sends rows first, first + step, ... below `rows`. */
static __device__ void ry_ht_send_rows(const struct ry_gpu_ht *a, uint64_t gen,
                                       const uint32_t *start, uint32_t rows, uint32_t first,
                                       uint32_t step, uint8_t *buffer, uint64_t *bars)
{
    const uint32_t *tokens = (const uint32_t *)(a->c.peer[a->c.pe] + a->l.src_token_at);
    uint32_t bytes = 2 * a->c.hidden, n = 0, loaded = 0, source;
    uint64_t *mark = 0;

    for (uint32_t i = first; i < rows; i += step, n++) {
        for (; loaded < n + RY_HT_BUFFERS - 1 && first + loaded * step < rows; loaded++) {
            uint32_t row = ry_ht_nth(a, start, first + loaded * step, &source);

            ry_bulk_load(buffer + loaded % RY_HT_BUFFERS * bytes, a->y + row * a->y_stride, bytes,
                         &bars[loaded % RY_HT_BUFFERS]);
        }
        uint32_t row = ry_ht_nth(a, start, i, &source), token = tokens[row];

        ry_bar_wait(&bars[n % RY_HT_BUFFERS], n / RY_HT_BUFFERS & 1);
        ry_bulk_store(a->c.peer[source] + a->l.combine_at +
                          ((uint64_t)token * a->c.place.pes + a->c.pe) * bytes,
                      buffer + n % RY_HT_BUFFERS * bytes, bytes);
        ry_bulk_commit();
        ry_bulk_wait1(); /* the row before is written, and its buffer is free */
        if (mark)
            ry_flag_publish(mark, gen);
        mark = ry_ht_mark(a, source, token);
    }
    ry_bulk_wait0();
    if (mark)
        ry_flag_publish(mark, gen);
    for (uint32_t b = 0; b < RY_HT_BUFFERS; b++)
        ry_bar_end(&bars[b]);
}

/* Four times 32 lanes of one row; the sums of all PEs in order. */
static __device__ void ry_ht_add_part(const struct ry_gpu_ht *a, const uint8_t *const *rows,
                                      uint32_t i, uint8_t *out)
{
    uint32_t units = a->c.hidden / 8;
    float acc[4][8];

#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
        for (int e = 0; e < 8; e++)
            acc[j][e] = 0;
    for (uint32_t p = 0; p < a->c.place.pes; p += 2) {
        const uint8_t *one = rows[p], *two = p + 1 < a->c.place.pes ? rows[p + 1] : 0;
        uint4 v[4], w[4];

#pragma unroll
        for (int j = 0; j < 4; j++)
            if (one && i + j * 32 < units)
                v[j] = ry_load16(one + (i + j * 32) * 16);
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (two && i + j * 32 < units)
                w[j] = ry_load16(two + (i + j * 32) * 16);
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (one && i + j * 32 < units)
                ry_add8(acc[j], v[j]);
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (two && i + j * 32 < units)
                ry_add8(acc[j], w[j]);
    }
#pragma unroll
    for (int j = 0; j < 4; j++)
        if (i + j * 32 < units)
            ry_store16(out + (i + j * 32) * 16, ry_round8(acc[j]));
}

/* The same where nodes add up by themselves: another node's sum is rounded once, as if its PEs had
 * added it there. 32 lanes of one row. */
static __device__ void ry_ht_add_nodes(const struct ry_gpu_ht *a, const uint8_t *const *rows,
                                       uint32_t i, uint8_t *out)
{
    const struct ry_place *place = &a->c.place;
    uint32_t home = ry_place_node(place, a->c.pe), p = 0;
    float acc[8] = {0, 0, 0, 0, 0, 0, 0, 0};

    for (uint32_t d = 0; d < place->nodes; d++) {
        uint32_t end = p + ry_place_node_size(place, d);
        float node[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        bool any = false;

        for (; p < end; p++) {
            if (rows[p])
                ry_add8(node, ry_load16(rows[p] + i * 16));
            any |= rows[p] != 0;
        }
        if (!any)
            continue;
        uint4 rounded = ry_round8(node);

        if (d != home) {
            ry_add8(acc, rounded);
            continue;
        }
        for (int e = 0; e < 8; e++)
            acc[e] = __fadd_rn(acc[e], node[e]);
    }
    ry_store16(out + i * 16, ry_round8(acc));
}

/* A warp adds up tokens first, first + step, ... Its own rows come from y when `direct`. */
static __device__ void ry_ht_add_tokens(const struct ry_gpu_ht *a, uint64_t gen,
                                        const uint32_t *start, uint32_t first, uint32_t step,
                                        bool direct, const uint8_t **rows)
{
    const struct ry_gpu_common *c = &a->c;
    const uint8_t *mine = c->peer[c->pe];
    const uint64_t *marks = (const uint64_t *)(mine + a->l.row_flags_at);
    uint32_t tokens = *a->kept_tokens, lane = threadIdx.x & 31u;

    for (uint32_t t = first; t < tokens; t += step) {
        if (lane < c->place.pes) { /* a lane looks after a PE */
            int32_t rank = a->rank[lane * c->tokens_max + t];
            const uint8_t *at = 0;

            if (rank >= 0 && direct && lane == c->pe) {
                uint32_t before = a->before[t / RY_HT_PART * c->place.pes + lane];

                at = a->y + (uint64_t)(start[c->pe] + before + rank) * a->y_stride;
            } else if (rank >= 0) {
                uint64_t index = (uint64_t)t * c->place.pes + lane;

                ry_wait_flag(c, marks + index, gen, RY_AT_COMBINE_ROW, lane);
                at = mine + a->l.combine_at + index * 2 * c->hidden;
            }
            rows[lane] = at;
        }
        __syncwarp(); /* addresses and what their marks cover, to the whole warp */
        if (c->place.nodes > 1)
            for (uint32_t i = lane; i < c->hidden / 8; i += 32)
                ry_ht_add_nodes(a, rows, i, a->out + t * a->out_stride);
        else
            for (uint32_t i = lane; i < c->hidden / 8; i += 4 * 32)
                ry_ht_add_part(a, rows, i, a->out + t * a->out_stride);
        __syncwarp(); /* rows[] is read before the next token's is written */
    }
}

/* The last sending warp of a block says that the block has read all it needs of this generation. */
static __device__ void ry_ht_returned(const struct ry_gpu_ht *a, uint64_t gen, uint32_t *done)
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
        ry_flag_publish((uint64_t *)(c->peer[p] + a->l.end_flags_at) + c->pe * RY_GPU_BLOCKS_MAX +
                            blockIdx.x,
                        gen);
}

extern "C" __global__ void __launch_bounds__(RY_HT_COMBINE_WARPS * 32, 1)
    ry_ht_combine_kernel(const __grid_constant__ struct ry_gpu_ht a)
{
    extern __shared__ __align__(128) uint8_t shared[];
    __shared__ uint64_t bars[RY_HT_SENDERS_MAX][RY_HT_BUFFERS];
    __shared__ uint32_t start[RY_GPU_PES_MAX + 1], done;
    __shared__ const uint8_t *rows[RY_HT_COMBINE_WARPS][RY_GPU_PES_MAX];
    uint32_t warp = threadIdx.x / 32, warps = blockDim.x / 32;
    uint32_t senders = a.c.phases & RY_EP_SEND ? a.senders : 0;
    bool direct = a.c.phases == (RY_EP_SEND | RY_EP_RECV);

    if (threadIdx.x == 0)
        done = 0;
    uint64_t gen = ry_turn_take(a.c.turn, a.c.phases);

    ry_ht_starts(&a, gen, start);
    if (warp < senders) {
        if (threadIdx.x % 32 == 0) {
            uint32_t own = start[a.c.pe + 1] - start[a.c.pe];
            uint32_t n = start[a.c.place.pes] - (direct ? own : 0);

            for (uint32_t i = 0; i < RY_HT_BUFFERS; i++)
                ry_bar_init(&bars[warp][i]);
            ry_bar_init_fence();
            ry_ht_send_rows(&a, gen, start, n, blockIdx.x + gridDim.x * warp, gridDim.x * senders,
                            shared + warp * RY_HT_BUFFERS * 2 * a.c.hidden, bars[warp]);
        }
        __syncwarp(); /* lane 0 has sent; the warp goes on together */
        ry_ht_returned(&a, gen, &done);
    } else if (a.c.phases & RY_EP_RECV) {
        ry_ht_add_tokens(&a, gen, start, blockIdx.x + gridDim.x * (warp - senders),
                         gridDim.x * (warps - senders), direct, rows[warp]);
    }
}

extern "C" int ry_gpu_ht_combine_launch(struct ry_gpu_ht *a, uint32_t blocks, void *stream)
{
    uint32_t one = RY_HT_BUFFERS * 2 * a->c.hidden;
    uint32_t senders = RY_HT_COMBINE_SHARED_MAX / one;
    uint32_t shared;

    senders = senders > RY_HT_SENDERS_MAX ? RY_HT_SENDERS_MAX : senders;
    a->senders = senders;
    shared = a->c.phases & RY_EP_SEND ? senders * one : 0;
    cudaFuncSetAttribute(ry_ht_combine_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         RY_HT_COMBINE_SHARED_MAX);
    ry_ht_combine_kernel<<<blocks, RY_HT_COMBINE_WARPS * 32, shared, (cudaStream_t)stream>>>(*a);
    return (int)cudaGetLastError();
}
