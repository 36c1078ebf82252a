/* SPDX-License-Identifier: Apache-2.0 */
/* High-throughput dispatch, second kernel: a warp takes a token at a time. The copy engine brings
 * the row into shared memory and carries it, encoded if so wished, to its final place at every PE
 * that wants it: one read, one write a PE, no staging at either end, and few SMs are enough because
 * many rows are on their way at once. */
#include "cuda/codec.h"
#include "cuda/wait.h"

#define RY_HT_SHARED_MAX (220u << 10)
#define RY_HT_WARPS_MAX  16u

/* A warp's shared memory: two rows (bf16), or a row and its codes (fp8). */
static __host__ __device__ uint32_t ry_ht_buffer_bytes(const struct ry_gpu_ht *a)
{
    return a->c.fp8 ? 2 * a->c.hidden + (uint32_t)a->l.row_bytes : 4 * a->c.hidden;
}

static __host__ __device__ uint32_t ry_ht_warps(const struct ry_gpu_ht *a)
{
    uint32_t n = RY_HT_SHARED_MAX / ry_ht_buffer_bytes(a);

    return n > RY_HT_WARPS_MAX ? RY_HT_WARPS_MAX : n;
}

/* Codes and scales of the row at x, by one warp. A lane takes whole groups, so that none of its 128
 * channels leaves its registers; lanes begin at different 16-byte pieces of their groups, so that
 * no two meet in a bank. */
static __device__ void ry_ht_encode(const struct ry_gpu_ht *a, const uint8_t *x, uint8_t *to)
{
    uint32_t groups = a->c.hidden / RY_SCALE_GROUP, lane = threadIdx.x & 31u;
    uint8_t *scales = to + a->c.hidden;

    for (uint32_t g = lane; g < groups; g += 32) {
        uint32_t key = RY_KEY_NONE;
        uint4 v[16];

#pragma unroll
        for (uint32_t i = 0; i < 16; i++) {
            v[i] = *(const uint4 *)(x + g * 256 + ((i + lane) & 15u) * 16);
            key = ry_key2_max(key, ry_key8(v[i]));
        }
        float amax = ry_amax_from_key(ry_key_of(key));
        float inverse = ry_scale_inverse(amax, a->c.scale_kind);

        if (a->c.scale_kind == RY_QUANT_UE8M0)
            scales[g] = ry_scale_ue8m0(amax);
        else
            ((float *)scales)[g] = ry_scale_value(amax, a->c.scale_kind);
#pragma unroll
        for (uint32_t i = 0; i < 16; i++)
            *(uint2 *)(to + g * 128 + ((i + lane) & 15u) * 8) = ry_eight_codes(v[i], inverse);
    }
}

/* Row number of token t at the PE that this lane serves, -1 if it does not go there. */
static __device__ int64_t ry_ht_row(const struct ry_gpu_ht *a, const uint32_t *base, uint32_t t)
{
    uint32_t p = threadIdx.x & 31u;
    int32_t rank = -1;

    if (p < a->c.place.pes && t < a->in.tokens)
        rank = a->rank[p * a->c.tokens_max + t];
    if (rank < 0)
        return -1;
    return (int64_t)base[p] + a->before[t / RY_HT_PART * a->c.place.pes + p] + rank;
}

/* What stands beside a row: local ids and weights, source and token; lanes share the work. */
static __device__ void ry_ht_label(const struct ry_gpu_ht *a, int64_t rows, uint32_t t)
{
    const struct ry_gpu_common *c = &a->c;
    uint32_t n = c->place.pes * c->topk;

    for (uint32_t i = threadIdx.x & 31u; i < ((n + 31u) & ~31u); i += 32) {
        uint32_t p = i < n ? i / c->topk : 0, k = i - p * c->topk;
        int64_t row = __shfl_sync(0xffffffffu, rows, (int)p);

        if (i >= n || row < 0)
            continue;
        int32_t id = a->kept_ids[t * c->topk + k];
        uint32_t first = ry_place_expert_first(&c->place, p);
        uint32_t local = (uint32_t)id - first;
        uint8_t *home = c->peer[p];

        if (id < 0 || local >= ry_place_expert_count(&c->place, p))
            local = 0xffffffffu;
        ((uint32_t *)(home + a->l.ids_at))[row * c->topk + k] = local;
        ((float *)(home + a->l.weights_at))[row * c->topk + k] = a->kept_weights[t * c->topk + k];
        if (k == 0) {
            ((uint32_t *)(home + a->l.src_token_at))[row] = t;
            ((uint32_t *)(home + a->l.row_source_at))[row] = c->pe;
        }
    }
}

/* The row in shared memory to every PE that wants it: a lane serves a PE. */
static __device__ void ry_ht_store(const struct ry_gpu_ht *a, int64_t row, const uint8_t *from)
{
    if (row >= 0)
        ry_bulk_store(a->c.peer[threadIdx.x & 31u] + a->l.rows_at + row * a->l.row_bytes, from,
                      (uint32_t)a->l.row_bytes);
    ry_bulk_commit();
}

static __device__ void ry_ht_send_bf16(const struct ry_gpu_ht *a, const uint32_t *base,
                                       uint8_t *buffer, uint64_t *bars)
{
    uint32_t step = gridDim.x * (blockDim.x / 32), bytes = 2 * a->c.hidden;
    uint32_t first = blockIdx.x + gridDim.x * (threadIdx.x / 32), lane = threadIdx.x & 31u;
    int64_t row = ry_ht_row(a, base, first), next;
    uint32_t n = 0;

    if (lane == 0 && first < a->in.tokens)
        ry_bulk_load(buffer, a->in.x + first * a->in.x_stride, bytes, &bars[0]);
    for (uint32_t t = first; t < a->in.tokens; t += step, n++, row = next) {
        next = ry_ht_row(a, base, t + step);
        ry_bulk_wait_read0();
        __syncwarp(); /* every lane's store has left the other buffer */
        if (lane == 0 && t + step < a->in.tokens)
            ry_bulk_load(buffer + ((n + 1) & 1) * bytes,
                         a->in.x + (uint64_t)(t + step) * a->in.x_stride, bytes,
                         &bars[(n + 1) & 1]);
        ry_bar_wait(&bars[n & 1], n / 2 & 1);
        ry_ht_store(a, row, buffer + (n & 1) * bytes);
        ry_ht_label(a, row, t);
    }
}

static __device__ void ry_ht_send_fp8(const struct ry_gpu_ht *a, const uint32_t *base,
                                      uint8_t *buffer, uint64_t *bar)
{
    uint32_t step = gridDim.x * (blockDim.x / 32), bytes = 2 * a->c.hidden;
    uint32_t first = blockIdx.x + gridDim.x * (threadIdx.x / 32), lane = threadIdx.x & 31u;
    int64_t row = ry_ht_row(a, base, first), next;
    uint8_t *codes = buffer + bytes;
    uint32_t n = 0;

    if (lane == 0 && first < a->in.tokens)
        ry_bulk_load(buffer, a->in.x + first * a->in.x_stride, bytes, bar);
    for (uint32_t t = first; t < a->in.tokens; t += step, n++, row = next) {
        next = ry_ht_row(a, base, t + step);
        ry_bulk_wait_read0();
        __syncwarp(); /* the codes of the token before have left, for every lane */
        ry_bar_wait(bar, n & 1);
        ry_ht_encode(a, buffer, codes);
        ry_shared_to_bulk();
        __syncwarp(); /* all lanes' codes, to the lanes that store them; the row has been read */
        if (lane == 0 && t + step < a->in.tokens)
            ry_bulk_load(buffer, a->in.x + (uint64_t)(t + step) * a->in.x_stride, bytes, bar);
        ry_ht_store(a, row, codes);
        ry_ht_label(a, row, t);
    }
}

/* Where this PE's rows begin at each PE; on the way, how many rows come here. */
static __device__ void ry_ht_bases(const struct ry_gpu_ht *a, uint64_t gen, uint32_t *base)
{
    const struct ry_gpu_common *c = &a->c;
    const uint64_t *matrix = (const uint64_t *)(c->peer[c->pe] + a->l.matrix_at);

    for (uint32_t p = threadIdx.x; p < c->place.pes; p += blockDim.x) {
        uint32_t sum = 0;

        for (uint32_t s = 0; s < c->pe; s++)
            sum += ry_wait_count(c, &matrix[s * c->place.pes + p], gen, s);
        base[p] = sum;
    }
    __syncthreads(); /* the bases, to all warps */
}

static __device__ void ry_ht_receive(const struct ry_gpu_ht *a, uint64_t gen)
{
    const struct ry_gpu_common *c = &a->c;
    const uint8_t *mine = c->peer[c->pe];
    const uint64_t *flags = (const uint64_t *)(mine + a->l.dispatch_flags_at);
    const uint64_t *matrix = (const uint64_t *)(mine + a->l.matrix_at);
    const uint64_t *histogram = (const uint64_t *)(mine + a->l.histogram_at);
    uint32_t pes = c->place.pes;

    for (uint32_t i = threadIdx.x; i < pes * gridDim.x; i += blockDim.x)
        if (!ry_wait_flag(c, flags + i / gridDim.x * RY_GPU_BLOCKS_MAX + i % gridDim.x, gen,
                          RY_AT_DISPATCH_FLAG, i / gridDim.x))
            break;
    if (blockIdx.x == 0) {
        for (uint32_t e = threadIdx.x; e < c->local_count; e += blockDim.x) {
            uint32_t sum = 0;

            for (uint32_t s = 0; s < pes; s++)
                sum += ry_wait_count(c, &histogram[s * a->local_max + e], gen, s);
            a->expert_rows[e] = sum;
        }
    }
    if (blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) {
        uint32_t sum = 0;

        for (uint32_t s = 0; s < pes; s++)
            sum += ry_wait_count(c, &matrix[s * pes + c->pe], gen, s);
        *a->rows = sum;
    }
}

extern "C" __global__ void __launch_bounds__(RY_HT_WARPS_MAX * 32, 1)
    ry_ht_dispatch_kernel(const __grid_constant__ struct ry_gpu_ht a)
{
    extern __shared__ __align__(128) uint8_t shared[];
    __shared__ uint64_t bars[RY_HT_WARPS_MAX][2];
    __shared__ uint32_t base[RY_GPU_PES_MAX];
    uint32_t warp = threadIdx.x / 32;
    uint64_t gen = ry_turn_take(a.c.turn, a.c.phases);

    if (a.c.phases & RY_EP_SEND) {
        if (threadIdx.x % 32 == 0) {
            ry_bar_init(&bars[warp][0]);
            ry_bar_init(&bars[warp][1]);
            ry_bar_init_fence();
        }
        __syncwarp();
        ry_ht_bases(&a, gen, base);
        if (a.c.fp8)
            ry_ht_send_fp8(&a, base, shared + warp * ry_ht_buffer_bytes(&a), bars[warp]);
        else
            ry_ht_send_bf16(&a, base, shared + warp * ry_ht_buffer_bytes(&a), bars[warp]);
        ry_bulk_wait0(); /* written, not only read */
        __syncthreads(); /* all of the block's rows and labels, to the threads that publish */
        for (uint32_t p = threadIdx.x; p < a.c.place.pes; p += blockDim.x)
            ry_flag_publish((uint64_t *)(a.c.peer[p] + a.l.dispatch_flags_at) +
                                a.c.pe * RY_GPU_BLOCKS_MAX + blockIdx.x,
                            gen);
        if (threadIdx.x % 32 == 0) {
            ry_bar_end(&bars[warp][0]);
            ry_bar_end(&bars[warp][1]);
        }
    }
    if (a.c.phases & RY_EP_RECV)
        ry_ht_receive(&a, gen);
}

extern "C" int ry_gpu_ht_dispatch_launch(const struct ry_gpu_ht *a, uint32_t blocks, void *stream)
{
    uint32_t warps = ry_ht_warps(a);

    if (!(a->c.phases & RY_EP_SEND)) {
        ry_ht_dispatch_kernel<<<blocks, 256, 0, (cudaStream_t)stream>>>(*a);
        return (int)cudaGetLastError();
    }
    cudaFuncSetAttribute(ry_ht_dispatch_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         RY_HT_SHARED_MAX);
    ry_ht_dispatch_kernel<<<blocks, warps * 32, warps * ry_ht_buffer_bytes(a),
                            (cudaStream_t)stream>>>(*a);
    return (int)cudaGetLastError();
}
