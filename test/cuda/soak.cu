/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda/soak.h"

#include "core/token.h"
#include "cuda/rma.h"

static __device__ uint64_t word_of(uint64_t seed, uint32_t pe, uint32_t warp, uint64_t round,
                                   uint32_t i)
{
    return ry_mix64(seed + pe * 1000003ull + warp * 7919ull + (round << 32) + i);
}

static __device__ void fill(uint64_t *to, uint64_t seed, uint32_t pe, uint32_t warp, uint64_t round)
{
    for (uint32_t i = threadIdx.x & 31u; i < SOAK_BYTES / 8; i += 32)
        to[i] = word_of(seed, pe, warp, round, i);
}

static __device__ uint32_t differs(const uint64_t *at, uint64_t seed, uint32_t pe, uint32_t warp,
                                   uint64_t round)
{
    uint32_t n = 0;

    for (uint32_t i = threadIdx.x & 31u; i < SOAK_BYTES / 8; i += 32)
        n += ry_word_observe(&at[i]) != word_of(seed, pe, warp, round, i);
    return __reduce_add_sync(0xffffffffu, n);
}

static __global__ void exchange_kernel(const __grid_constant__ struct ry_gpu_world w, uint8_t *heap,
                                       uint32_t peer, uint32_t from, uint32_t rounds,
                                       struct soak_result *r)
{
    uint32_t warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x & 31u;
    struct ry_sector *signal = (struct ry_sector *)(heap + SOAK_SIGNALS_AT) + warp;
    uint8_t *source = heap + SOAK_SOURCE_AT + warp * SOAK_DEPTH * SOAK_BYTES;
    uint8_t *target = heap + SOAK_TARGET_AT + warp * SOAK_DEPTH * SOAK_BYTES;
    uint32_t c = (uint32_t)((uint64_t)((uint8_t *)signal - w.heap) / sizeof(*signal)) % w.channels;

    for (uint64_t round = from; round < from + rounds; round++) {
        uint32_t at = (uint32_t)(round % SOAK_DEPTH) * SOAK_BYTES, bad;
        int rc = RY_OK;

        if (at == 0 && !w.direct[peer])
            rc = lane == 0 ? ry_world_quiet(&w, peer, c) : 0;
        rc = __shfl_sync(0xffffffffu, rc, 0);
        fill((uint64_t *)(source + at), 77, w.pe, warp, round);
        if (rc == RY_OK)
            rc = ry_dev_put_signal(&w, target + at, source + at, SOAK_BYTES, signal, round + 1,
                                   peer, RY_WARP);
        if (rc == RY_OK)
            rc = ry_dev_signal_wait(&w, signal, round + 1, peer, RY_WARP);
        if (rc != RY_OK) {
            if (lane == 0)
                atomicAdd((unsigned long long *)&r->failed, 1);
            return;
        }
        bad = differs((const uint64_t *)(target + at), 77, peer, warp, round);
        if (lane == 0 && bad)
            atomicAdd((unsigned long long *)&r->wrong, bad);
    }
    /* nothing is left behind: completions are seen here, and their time is that of the switch */
    if (!w.direct[peer] && ry_dev_quiet(&w, RY_WARP) != RY_OK && lane == 0)
        atomicAdd((unsigned long long *)&r->failed, 1);
}

static __global__ void leave_kernel(const __grid_constant__ struct ry_gpu_world w, uint8_t *heap,
                                    uint32_t peer, uint64_t seed, uint32_t messages,
                                    struct soak_result *r)
{
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x & 31u;

    for (uint32_t m = warp; m < messages; m += blockDim.x / 32) {
        uint8_t *source = heap + SOAK_SOURCE_AT + m * SOAK_BYTES;

        fill((uint64_t *)source, seed, 0, m, 0);
        if (ry_dev_put(&w, heap + SOAK_TARGET_AT + m * SOAK_BYTES, source, SOAK_BYTES, peer,
                       RY_WARP) != RY_OK &&
            lane == 0)
            atomicAdd((unsigned long long *)&r->failed, 1);
    }
}

static __global__ void left_kernel(uint8_t *heap, uint64_t seed, uint32_t messages,
                                   struct soak_result *r)
{
    for (uint32_t m = threadIdx.x / 32; m < messages; m += blockDim.x / 32) {
        uint32_t bad =
            differs((const uint64_t *)(heap + SOAK_TARGET_AT + m * SOAK_BYTES), seed, 0, m, 0);

        if ((threadIdx.x & 31u) == 0 && bad)
            atomicAdd((unsigned long long *)&r->wrong, bad);
    }
}

/* Round k: thread, warp and block in turn; sizes that are odd, small, large and none. */
static __global__ void calls_kernel(const __grid_constant__ struct ry_gpu_world w, uint8_t *heap,
                                    uint32_t peer, struct soak_result *r)
{
    const uint32_t sizes[] = {1, 24, 100, 4096, 70000, 300000};
    struct ry_sector *signal = (struct ry_sector *)(heap + SOAK_SIGNALS_AT) + 64;

    for (uint32_t k = 0; k < 18; k++) {
        enum ry_scope s = (enum ry_scope)(k % 3);
        uint32_t bytes = sizes[k / 3], bad = 0;
        uint8_t *source = heap + SOAK_SOURCE_AT, *target = heap + SOAK_TARGET_AT;
        bool calls = s == RY_BLOCK || (s == RY_WARP && threadIdx.x < 32) || threadIdx.x == 0;
        int rc = RY_OK;

        for (uint32_t i = threadIdx.x; i < bytes; i += blockDim.x)
            source[i] = (uint8_t)ry_mix64(k * 1000000ull + i + w.pe);
        __syncthreads();
        if (calls)
            rc |= ry_dev_put(&w, target, source, bytes, peer, s);
        if (calls)
            rc |= ry_dev_quiet(&w, s);
        if (calls)
            rc |= ry_dev_put_signal(&w, target, source, k & 1 ? bytes : 0, signal, k + 1, peer, s);
        if (calls)
            rc |= ry_dev_signal_wait(&w, signal, k + 1, peer, s);
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < bytes; i += blockDim.x)
            bad += ((volatile uint8_t *)target)[i] != (uint8_t)ry_mix64(k * 1000000ull + i + peer);
        if (bad)
            atomicAdd((unsigned long long *)&r->wrong, bad);
        if (rc)
            atomicAdd((unsigned long long *)&r->failed, 1);
        __syncthreads();
        /* what the peer put, read back from its source into another place */
        if (calls)
            rc |= ry_dev_get(&w, heap + SOAK_GOT_AT, source, bytes, peer, s);
        __syncthreads();
        bad = 0;
        for (uint32_t i = threadIdx.x; i < bytes; i += blockDim.x)
            bad += ((volatile uint8_t *)heap)[SOAK_GOT_AT + i] !=
                   (uint8_t)ry_mix64(k * 1000000ull + i + peer);
        if (bad)
            atomicAdd((unsigned long long *)&r->wrong, bad);
        __syncthreads();
        /* both have looked before the next round writes */
        if (threadIdx.x == 0)
            rc = ry_dev_quiet(&w, RY_THREAD) |
                 ry_dev_put_signal(&w, target, source, 0, signal + 1, k + 1, peer, RY_THREAD) |
                 ry_dev_signal_wait(&w, signal + 1, k + 1, peer, RY_THREAD);
        __syncthreads();
    }
}

static __global__ void adds_kernel(const __grid_constant__ struct ry_gpu_world w, uint8_t *heap,
                                   uint32_t peer, uint32_t adds, struct soak_result *r)
{
    struct ry_sector *counter = (struct ry_sector *)(heap + SOAK_SIGNALS_AT) + 128;
    struct ry_sector *ready = counter + w.pes;
    uint64_t want = 64ull * adds * (adds + 1) / 2;
    int rc = RY_OK;

    for (uint32_t i = 1; i <= adds && rc == RY_OK; i++)
        rc = ry_dev_amo_add(&w, counter, 0, i, peer, RY_THREAD);
    if (rc)
        atomicAdd((unsigned long long *)&r->failed, 1);
    __syncthreads();
    if (threadIdx.x == 0) {
        rc = ry_dev_quiet(&w, RY_THREAD) |
             ry_dev_put_signal(&w, heap, heap, 0, ready, 1, peer, RY_THREAD) |
             ry_dev_signal_wait(&w, ready, 1, peer, RY_THREAD);
        if (rc || ry_dev_amo_read(&w, counter) != want)
            r->wrong += 1;
    }
}

void soak_exchange(const struct ry_gpu_world *w, uint8_t *heap, uint32_t peer, uint32_t from,
                   uint32_t rounds, uint32_t warps, struct soak_result *r, cudaStream_t s)
{
    uint32_t blocks = (warps + 3) / 4, threads = warps < 4 ? warps * 32 : 128;

    exchange_kernel<<<blocks, threads, 0, s>>>(*w, heap, peer, from, rounds, r);
}

void soak_leave(const struct ry_gpu_world *w, uint8_t *heap, uint32_t peer, uint64_t seed,
                uint32_t messages, struct soak_result *r, cudaStream_t s)
{
    leave_kernel<<<1, 256, 0, s>>>(*w, heap, peer, seed, messages, r);
}

void soak_left(uint8_t *heap, uint64_t seed, uint32_t messages, struct soak_result *r,
               cudaStream_t s)
{
    left_kernel<<<1, 256, 0, s>>>(heap, seed, messages, r);
}

void soak_calls(const struct ry_gpu_world *w, uint8_t *heap, uint32_t peer, struct soak_result *r,
                cudaStream_t s)
{
    calls_kernel<<<1, 128, 0, s>>>(*w, heap, peer, r);
}

void soak_adds(const struct ry_gpu_world *w, uint8_t *heap, uint32_t peer, uint32_t adds,
               struct soak_result *r, cudaStream_t s)
{
    adds_kernel<<<1, 64, 0, s>>>(*w, heap, peer, adds, r);
}
