/* SPDX-License-Identifier: Apache-2.0 */
/* Low-latency dispatch: a block takes a token, encodes it once and stores it into the slot of each
 * of its experts, at whichever GPU that is. A token's slot is the number of earlier tokens of this
 * PE that chose the same expert, which every warp counts for itself, so that no counter is shared
 * and the order is the same every time. */
#include "cuda/codec.h"
#include "cuda/wait.h"

/* Tokens of [0, tokens) that chose `expert`, counted by a whole warp. */
static __device__ uint32_t ry_ll_count(const struct ry_gpu_ll *a, int32_t expert, uint32_t tokens)
{
    uint32_t lane = threadIdx.x & 31u, n = 0;

    if (a->in.ids_bytes == 8) {
        for (uint32_t t = lane; t < tokens; t += 32) {
            const int64_t *row = (const int64_t *)(a->in.ids + t * a->in.ids_stride);
            uint32_t any = 0;
#pragma unroll 8
            for (uint32_t k = 0; k < a->c.topk; k++)
                any |= row[k] == expert;
            n += any;
        }
    } else {
        for (uint32_t t = lane; t < tokens; t += 32) {
            const int32_t *row = (const int32_t *)(a->in.ids + t * a->in.ids_stride);
            uint32_t any = 0;
#pragma unroll 8
            for (uint32_t k = 0; k < a->c.topk; k++)
                any |= row[k] == expert;
            n += any;
        }
    }
    return __reduce_add_sync(0xffffffffu, n);
}

/* Entry k of a token as dispatch uses it, by a warp: -1 where it is none, out of range or said
 * before; what is wrong is reported. */
static __device__ int32_t ry_ll_choice(const struct ry_gpu_ll *a, uint32_t token, uint32_t k)
{
    uint32_t lane = threadIdx.x & 31u;
    int32_t id = ry_input_id(&a->in, a->c.place.experts, token, k);
    bool repeated = false;

    for (uint32_t i = lane; i < k; i += 32)
        repeated |= ry_input_id(&a->in, a->c.place.experts, token, i) == id;
    repeated = __any_sync(0xffffffffu, repeated) && id >= 0;
    if (lane == 0 && (repeated || (id < 0 && ry_input_raw(&a->in, token, k) != -1)))
        ry_status_report(a->c.status, RY_ERR_INVALID, RY_AT_INDEX, token, k);
    return repeated ? -1 : id;
}

/* Where entry k of a token goes (0: nowhere), by one warp; keeps what combine needs. */
static __device__ uint8_t *ry_ll_aim(const struct ry_gpu_ll *a, uint32_t token, uint32_t k)
{
    const struct ry_gpu_common *c = &a->c;
    int32_t id = ry_ll_choice(a, token, k);
    uint32_t slot = id >= 0 ? ry_ll_count(a, id, token) : 0;
    uint32_t pair = token * c->topk + k;

    if ((threadIdx.x & 31u) == 0) {
        a->kept_ids[pair] = id;
        a->kept_weights[pair] = ((const float *)(a->in.weights + token * a->in.weights_stride))[k];
    }
    if (id < 0)
        return 0;
    uint32_t pe = ry_place_expert_pe(&c->place, (uint32_t)id);
    uint32_t local = (uint32_t)id - ry_place_expert_first(&c->place, pe);

    return c->peer[pe] + ry_ll_slot_at(&a->l, local, c->pe, slot);
}

/* Until the buffers that generation `last` used are free at every PE; a barrier must follow. */
static __device__ void ry_ll_wait(const struct ry_gpu_ll *a, uint64_t last)
{
    ry_wait_ends(&a->c, (const uint64_t *)(a->c.peer[a->c.pe] + a->end_flags_at), last);
}

/* The same for a block that has had no token; a barrier for all. */
static __device__ void ry_ll_free(const struct ry_gpu_ll *a, uint64_t last)
{
    ry_ll_wait(a, last);
    __syncthreads(); /* the flags' observers, to all who write; all have read `last` */
}

static __device__ void ry_ll_aim_all(const struct ry_gpu_ll *a, uint32_t token, uint8_t **dest)
{
    for (uint32_t k = threadIdx.x / 32; k < a->c.topk; k += blockDim.x / 32) {
        uint8_t *to = ry_ll_aim(a, token, k);

        if ((threadIdx.x & 31u) == 0)
            dest[k] = to;
    }
}

/* FP8: 16 channels at x + i * 32 to codes; eight lanes hold a group, and one writes its scale. */
static __device__ uint4 ry_ll_encode(const struct ry_gpu_ll *a, uint4 v0, uint4 v1, uint32_t i,
                                     uint8_t *scales)
{
    uint32_t key = ry_key2_max(ry_key8(v0), ry_key8(v1));

    key = ry_key2_max(key, __shfl_xor_sync(0xffffffffu, key, 1));
    key = ry_key2_max(key, __shfl_xor_sync(0xffffffffu, key, 2));
    key = ry_key2_max(key, __shfl_xor_sync(0xffffffffu, key, 4));
    float amax = ry_amax_from_key(ry_key_of(key));
    float inverse = ry_scale_inverse(amax, a->c.scale_kind);
    uint2 low = ry_eight_codes(v0, inverse), high = ry_eight_codes(v1, inverse);

    if (i % 8 == 0 && i < a->c.hidden / 16) {
        if (a->c.scale_kind == RY_QUANT_UE8M0)
            scales[i / 8] = ry_scale_ue8m0(amax);
        else
            ((float *)scales)[i / 8] = ry_scale_value(amax, a->c.scale_kind);
    }
    return make_uint4(low.x, low.y, high.x, high.y);
}

/* The row is on its way while the warps find out where it goes. */
static __device__ void ry_ll_send_fp8(const struct ry_gpu_ll *a, uint32_t token, uint64_t last,
                                      uint8_t **dest, uint8_t *scales)
{
    uint32_t items = a->c.hidden / 16, padded = (items + 31u) & ~31u, i = threadIdx.x;
    const uint8_t *x = a->in.x + token * a->in.x_stride;
    uint4 v0 = make_uint4(0, 0, 0, 0), v1 = v0;

    if (i < items) {
        v0 = ry_load16_const(x + i * 32);
        v1 = ry_load16_const(x + i * 32 + 16);
    }
    ry_ll_aim_all(a, token, dest);
    ry_ll_wait(a, last);
    uint4 codes = ry_ll_encode(a, v0, v1, i, scales);

    __syncthreads(); /* the warps that aimed and waited, to all that store */
    for (;;) {
        for (uint32_t k = 0; k < a->c.topk && i < items; k++)
            if (dest[k])
                ry_store16(dest[k] + i * 16, codes);
        i += blockDim.x;
        if (i >= padded)
            break;
        if (i < items) {
            v0 = ry_load16_const(x + i * 32);
            v1 = ry_load16_const(x + i * 32 + 16);
        }
        codes = ry_ll_encode(a, v0, v1, i, scales);
    }
}

static __device__ void ry_ll_send_bf16(const struct ry_gpu_ll *a, uint32_t token, uint64_t last,
                                       uint8_t **dest)
{
    uint32_t items = a->c.hidden / 8;
    const uint8_t *x = a->in.x + token * a->in.x_stride;

    ry_ll_aim_all(a, token, dest);
    ry_ll_wait(a, last);
    __syncthreads(); /* the warps that aimed and waited, to all that store */
    for (uint32_t i = threadIdx.x; i < items; i += 2 * blockDim.x) {
        uint32_t j = i + blockDim.x;
        uint4 v0 = ry_load16_const(x + i * 16), v1 = v0;

        if (j < items)
            v1 = ry_load16_const(x + j * 16);
        for (uint32_t k = 0; k < a->c.topk; k++) {
            if (!dest[k])
                continue;
            ry_store16(dest[k] + i * 16, v0);
            if (j < items)
                ry_store16(dest[k] + j * 16, v1);
        }
    }
}

/* Scales and tail of all slots of a token. */
static __device__ void ry_ll_send_rest(const struct ry_gpu_ll *a, uint32_t token,
                                       uint8_t *const *dest, const uint8_t *scales)
{
    uint32_t at = a->c.fp8 ? a->c.hidden : (uint32_t)a->l.row_bytes;
    uint32_t units = ((uint32_t)a->l.slot_bytes - at) / 16;

    for (uint32_t i = threadIdx.x; i < units * a->c.topk; i += blockDim.x) {
        uint32_t k = i / units, u = i % units;

        if (!dest[k])
            continue;
        if (u + 1 == units)
            ry_store16(dest[k] + at + u * 16, make_uint4(token * a->c.topk + k, 0, 0, 0));
        else
            ry_store16(dest[k] + at + u * 16, *(const uint4 *)(scales + u * 16));
    }
}

static __device__ void ry_ll_send(const struct ry_gpu_ll *a, uint64_t gen, uint8_t *shared)
{
    const struct ry_gpu_common *c = &a->c;
    uint32_t warp = threadIdx.x / 32, warps = blockDim.x / 32;
    uint8_t **dest = (uint8_t **)shared;
    uint8_t *scales = shared + ((c->topk * sizeof(*dest) + 15u) & ~15ull);

    uint64_t last = c->last[blockIdx.x];

    for (uint32_t t = blockIdx.x; t < a->in.tokens; t += gridDim.x) {
        if (c->fp8)
            ry_ll_send_fp8(a, t, last, dest, scales);
        else
            ry_ll_send_bf16(a, t, last, dest);
        last = 0;
        if (c->fp8 && c->hidden / 16 > blockDim.x)
            __syncthreads(); /* scales made behind the barrier above, to those who send them */
        ry_ll_send_rest(a, t, dest, scales);
        __syncthreads(); /* dest and scales are read before the next token's are written */
    }
    ry_ll_free(a, last);
    /* this block's share of the counts, while the stores are on their way */
    for (uint32_t e = blockIdx.x + gridDim.x * warp; e < c->place.experts; e += gridDim.x * warps) {
        uint32_t n = ry_ll_count(a, (int32_t)e, a->in.tokens);
        uint32_t pe = ry_place_expert_pe(&c->place, e);
        uint32_t local = e - ry_place_expert_first(&c->place, pe);

        if ((threadIdx.x & 31u) == 0)
            ry_word_publish((uint64_t *)(c->peer[pe] + a->counts_at) + c->pe * a->counts_stride +
                                local,
                            ry_count_word(gen, n));
    }
    if (threadIdx.x == 0)
        c->last[blockIdx.x] = gen;
    if (blockIdx.x == 0 && threadIdx.x == 0)
        *a->kept_tokens = a->in.tokens;
    __syncthreads(); /* all of the block's stores, to the threads that publish them */
    for (uint32_t p = threadIdx.x; p < c->place.pes; p += blockDim.x) {
        uint32_t to = (c->pe + 1 + p) % c->place.pes;

        ry_flag_publish((uint64_t *)(c->peer[to] + a->dispatch_flags_at) +
                            c->pe * RY_GPU_BLOCKS_MAX + blockIdx.x,
                        gen);
    }
}

/* Rows of each expert, and of all, by one block. */
static __device__ void ry_ll_total(const struct ry_gpu_ll *a, const uint8_t *mine)
{
    const uint64_t *words = (const uint64_t *)(mine + a->counts_at);
    __shared__ uint32_t total;

    if (threadIdx.x == 0)
        total = 0;
    __syncthreads(); /* zero, to all who add */
    for (uint32_t e = threadIdx.x; e < a->c.local_count; e += blockDim.x) {
        uint32_t sum = 0;

        for (uint32_t s = 0; s < a->c.place.pes; s++)
            sum += (uint32_t)ry_word_observe(words + s * a->counts_stride + e) & RY_GPU_COUNT_MASK;
        a->expert_rows[e] = sum;
        atomicAdd(&total, sum);
    }
    __syncthreads(); /* the sum, to the one who writes it down */
    if (threadIdx.x == 0)
        *a->rows = total;
}

/* Wait for every block of every source, then count and name the rows of this block's experts. */
static __device__ void ry_ll_receive(const struct ry_gpu_ll *a, uint64_t gen)
{
    const struct ry_gpu_common *c = &a->c;
    const uint8_t *mine = c->peer[c->pe];
    const uint64_t *flags = (const uint64_t *)(mine + a->dispatch_flags_at);
    uint32_t pes = c->place.pes, lane = threadIdx.x & 31u;

    for (uint32_t i = threadIdx.x; i < pes * gridDim.x; i += blockDim.x) {
        uint32_t source = i / gridDim.x, block = i % gridDim.x;

        if (!ry_wait_flag(c, flags + source * RY_GPU_BLOCKS_MAX + block, gen, RY_AT_DISPATCH_FLAG,
                          source))
            break;
    }
    __syncthreads(); /* the flags' observers, to all readers of slots */
    for (uint32_t i = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; i < c->local_count * pes;
         i += gridDim.x * (blockDim.x / 32)) {
        uint32_t local = i / pes, source = i % pes;
        uint64_t word = ry_word_observe((const uint64_t *)(mine + a->counts_at) +
                                        source * a->counts_stride + local);
        uint32_t n = word >> RY_GPU_COUNT_BITS == gen ? (uint32_t)word & RY_GPU_COUNT_MASK : 0;

        n = ry_min32(n, c->tokens_max);
        for (uint32_t s = lane; s < n; s += 32) {
            const uint8_t *slot = mine + ry_ll_slot_at(&a->l, local, source, s);
            const struct ry_ll_tail *tail = (const struct ry_ll_tail *)(slot + a->l.row_bytes);

            uint32_t pair = tail->pair, row = i * c->tokens_max + s;

            if (pair >= c->tokens_max * c->topk)
                continue; /* only after a time-out: the slot was never written */
            a->src_token[row] = pair / c->topk;
            a->back[(uint64_t)source * c->tokens_max * c->topk + pair] = gen << 32 | row;
        }
        if (lane == 0)
            a->count[i] = n;
    }
    if (blockIdx.x == gridDim.x - 1)
        ry_ll_total(a, mine);
}

extern "C" __global__ void __launch_bounds__(512, 2)
    ry_ll_dispatch_kernel(const __grid_constant__ struct ry_gpu_ll a)
{
    extern __shared__ __align__(16) uint8_t shared[];
    uint64_t gen = ry_turn_take(a.c.turn, a.c.phases);

    if (a.c.phases & RY_EP_SEND)
        ry_ll_send(&a, gen, shared);
    if (a.c.phases & RY_EP_RECV)
        ry_ll_receive(&a, gen);
}

extern "C" int ry_gpu_ll_dispatch_launch(const struct ry_gpu_ll *a, uint32_t blocks, void *stream)
{
    uint32_t items = a->c.hidden / (a->c.fp8 ? 16 : 8);
    uint32_t threads = (items + 31u) / 32u * 32u;
    size_t shared = ((a->c.topk * sizeof(void *) + 15u) & ~15ull) + a->l.row_bytes -
                    (a->c.fp8 ? a->c.hidden : a->l.row_bytes) + 16;

    if (!a->c.fp8)
        threads = (items / 2 + 31u) / 32u * 32u;
    threads = threads < 128 ? 128 : threads > 512 ? 512 : threads;
    ry_ll_dispatch_kernel<<<blocks, threads, shared, (cudaStream_t)stream>>>(*a);
    return (int)cudaGetLastError();
}
