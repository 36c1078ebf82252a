/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that measure one-sided calls and check what arrived. Times of single calls are cycles of
 * the SM, which both clocks of the whole kernel turn into nanoseconds. */
#include "cuda/perf.h"

#include "core/token.h"
#include "cuda/rma.h"

static __device__ uint64_t word_of(uint64_t key, uint64_t i) { return ry_mix64(key + i); }

static __global__ void ry_perf_fill_kernel(uint8_t *at, uint64_t bytes, uint64_t key)
{
    uint64_t step = (uint64_t)gridDim.x * blockDim.x;

    for (uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < bytes / 8; i += step)
        ((uint64_t *)at)[i] = word_of(key, i);
}

/* Pieces that differ, the bytes of each counted once. */
static __global__ void ry_perf_check_kernel(const uint8_t *at, uint64_t bytes, uint64_t piece,
                                            uint64_t key, struct ry_perf_times *t)
{
    for (uint64_t p = blockIdx.x; p < bytes / piece; p += gridDim.x) {
        uint32_t bad = 0;

        for (uint64_t i = p * piece + threadIdx.x; i < (p + 1) * piece; i += blockDim.x)
            bad |= at[i] != (uint8_t)(word_of(key, i / 8) >> i % 8 * 8);
        if (__syncthreads_or((int)bad) && threadIdx.x == 0)
            atomicAdd_system((unsigned long long *)&t->wrong, 1);
    }
}

struct span {
    uint64_t ns, cycles;
};

static __device__ struct span span_begin(void)
{
    struct span s = {ry_global_ns(), (uint64_t)clock64()};

    return s;
}

static __device__ void span_end(const struct span *s, struct ry_perf_times *t)
{
    t->all_cycles = (uint64_t)clock64() - s->cycles;
    t->ns = ry_global_ns() - s->ns;
}

static __device__ void sample(struct ry_perf_times *t, const struct ry_perf_args *a, uint64_t i,
                              uint64_t begin)
{
    if (i >= a->warmup)
        t->cycles[(i - a->warmup) % RY_PERF_SAMPLES] = (uint32_t)((uint64_t)clock64() - begin);
}

static __device__ int move_one(const struct ry_perf_args *a, uint64_t i, enum ry_scope s)
{
    uint64_t at = i % (RY_PERF_WINDOW / a->bytes) * a->bytes;
    uint8_t *landing = a->heap + RY_PERF_LANDING_AT + at;

    return a->get ? ry_dev_get(&a->w, landing, a->heap + at, a->bytes, a->peer, s)
                  : ry_dev_put(&a->w, landing, a->heap + at, a->bytes, a->peer, s);
}

static __global__ void ry_perf_one_kernel(const __grid_constant__ struct ry_perf_args a)
{
    struct span s = span_begin();
    int rc = RY_OK;

    for (uint64_t i = 0; i < a.warmup + a.iters && rc == RY_OK; i++) {
        uint64_t begin = (uint64_t)clock64();

        rc = move_one(&a, i, RY_THREAD);
        if (rc == RY_OK && !a.get)
            rc = ry_dev_quiet(&a.w, RY_THREAD);
        sample(a.times, &a, i, begin);
    }
    span_end(&s, a.times);
    if (rc)
        a.times->status = rc;
}

static __global__ void __launch_bounds__(32 * RY_PERF_WARPS, 1)
    ry_perf_many_kernel(const __grid_constant__ struct ry_perf_args a)
{
    int rc = RY_OK;

    for (uint64_t i = threadIdx.x / 32; i < a.iters && rc == RY_OK; i += RY_PERF_WARPS)
        rc = move_one(&a, i, RY_WARP);
    if (rc)
        a.times->status = rc;
    rc = ry_dev_quiet(&a.w, RY_BLOCK);
    if (rc)
        a.times->status = rc;
}

static __device__ struct ry_sector *signal_at(const struct ry_perf_args *a, uint32_t i)
{
    return (struct ry_sector *)(a->heap + RY_PERF_SIGNALS_AT) + i;
}

static __device__ bool slots_turn(const struct ry_perf_args *a, uint64_t op)
{
    return op % RY_PERF_SLOTS == RY_PERF_SLOTS - 1 || op + 1 == a->iters;
}

/* One warp: every word of a payload says which operation it belongs to. */
static __global__ void ry_perf_send_kernel(const __grid_constant__ struct ry_perf_args a)
{
    uint32_t lane = threadIdx.x;
    struct span s = span_begin();
    int rc = RY_OK;

    for (uint64_t op = 0; op < a.iters && rc == RY_OK; op++) {
        uint8_t *from = a.heap + op % RY_PERF_SLOTS * a.bytes;
        uint64_t begin;

        for (uint64_t i = lane; i < a.bytes; i += 32)
            from[i] = (uint8_t)(ry_mix64(a.base + op) >> i % 8 * 8);
        __syncwarp(); /* the payload, to the one who posts */
        begin = (uint64_t)clock64();
        rc = ry_dev_put_signal(&a.w, from + RY_PERF_LANDING_AT, from, a.bytes,
                               signal_at(&a, op % RY_PERF_SIGNALS), a.base + op + 1, a.peer,
                               RY_WARP);
        if (lane == 0)
            sample(a.times, &a, op + a.warmup, begin);
        if (rc == RY_OK && slots_turn(&a, op)) { /* the other side has looked at all of them */
            rc = ry_dev_quiet(&a.w, RY_WARP);
            if (rc == RY_OK)
                rc = ry_dev_signal_wait(&a.w, signal_at(&a, RY_PERF_SIGNALS), a.base + op + 1,
                                        a.peer, RY_WARP);
        }
    }
    if (lane == 0)
        span_end(&s, a.times);
    if (rc)
        a.times->status = rc;
}

static __global__ void ry_perf_watch_kernel(const __grid_constant__ struct ry_perf_args a)
{
    uint32_t lane = threadIdx.x;
    int rc = RY_OK;

    for (uint64_t op = 0; op < a.iters && rc == RY_OK; op++) {
        const uint8_t *at = a.heap + RY_PERF_LANDING_AT + op % RY_PERF_SLOTS * a.bytes;
        uint32_t bad = 0;

        rc = ry_dev_signal_wait(&a.w, signal_at(&a, op % RY_PERF_SIGNALS), a.base + op + 1, a.peer,
                                RY_WARP);
        for (uint64_t i = lane; i < a.bytes; i += 32)
            bad |= ((const volatile uint8_t *)at)[i] !=
                   (uint8_t)(ry_mix64(a.base + op) >> i % 8 * 8);
        if (__any_sync(0xffffffffu, (int)bad) && lane == 0)
            a.times->wrong++;
        if (rc == RY_OK && slots_turn(&a, op))
            rc = ry_dev_put_signal(&a.w, a.heap, a.heap, 0, signal_at(&a, RY_PERF_SIGNALS),
                                   a.base + op + 1, a.peer, RY_WARP);
    }
    if (rc == RY_OK)
        rc = ry_dev_quiet(&a.w, RY_WARP);
    if (rc)
        a.times->status = rc;
}

static __global__ void ry_perf_add_kernel(const __grid_constant__ struct ry_perf_args a)
{
    struct ry_sector *counter = (struct ry_sector *)(a.heap + RY_PERF_COUNTER_AT);
    struct span s = span_begin();
    int rc = RY_OK;

    for (uint64_t i = 0; i < a.iters && rc == RY_OK; i++) {
        uint64_t begin = (uint64_t)clock64();

        rc = ry_dev_amo_add(&a.w, counter, 0, 1, a.peer, RY_THREAD);
        sample(a.times, &a, i + a.warmup, begin);
    }
    if (rc == RY_OK)
        rc = ry_dev_quiet(&a.w, RY_THREAD);
    span_end(&s, a.times);
    if (rc)
        a.times->status = rc;
}

static __global__ void ry_perf_sum_kernel(const __grid_constant__ struct ry_perf_args a)
{
    uint64_t sum =
        ry_dev_amo_read(&a.w, (const struct ry_sector *)(a.heap + RY_PERF_COUNTER_AT));

    a.times->wrong += sum > a.base ? sum - a.base : a.base - sum;
}

static __global__ void ry_perf_bounce_kernel(const __grid_constant__ struct ry_perf_args a)
{
    struct ry_sector *signal = signal_at(&a, RY_PERF_SIGNALS + 1);
    struct span s = span_begin();
    struct ry_line line;
    int rc = RY_OK;

    ry_line_begin(&a.w, a.peer, 0, &line);
    for (uint64_t i = 0; i < a.warmup + a.iters && rc == RY_OK; i++) {
        uint64_t begin = (uint64_t)clock64();

        for (uint32_t turn = 0; turn < 2 && rc == RY_OK; turn++) {
            if ((turn == 0) != (a.w.pe == 0))
                rc = ry_dev_signal_wait(&a.w, signal, a.base + i + 1, a.peer, RY_THREAD);
            else if (a.w.direct[a.peer])
                rc = ry_dev_put_signal(&a.w, a.heap + RY_PERF_LANDING_AT, a.heap, a.bytes, signal,
                                       a.base + i + 1, a.peer, RY_THREAD);
            else
                rc = ry_line_put_signal(&a.w, &line, a.heap + RY_PERF_LANDING_AT, a.heap,
                                        (uint32_t)a.bytes, signal, a.base + i + 1);
        }
        sample(a.times, &a, i, begin);
    }
    span_end(&s, a.times);
    if (rc == RY_OK)
        rc = ry_dev_quiet(&a.w, RY_THREAD);
    if (rc)
        a.times->status = rc;
}

extern "C" int ry_perf_fill_launch(uint8_t *at, uint64_t bytes, uint64_t key, void *stream)
{
    ry_perf_fill_kernel<<<64, 256, 0, (cudaStream_t)stream>>>(at, bytes, key);
    return (int)cudaGetLastError();
}

extern "C" int ry_perf_check_launch(const uint8_t *at, uint64_t bytes, uint64_t piece, uint64_t key,
                                    struct ry_perf_times *t, void *stream)
{
    ry_perf_check_kernel<<<64, 256, 0, (cudaStream_t)stream>>>(at, bytes, piece, key, t);
    return (int)cudaGetLastError();
}

#define LAUNCH(name, threads)                                                                      \
    extern "C" int ry_perf_##name##_launch(const struct ry_perf_args *a, void *stream)             \
    {                                                                                              \
        ry_perf_##name##_kernel<<<1, threads, 0, (cudaStream_t)stream>>>(*a);                      \
        return (int)cudaGetLastError();                                                            \
    }

LAUNCH(one, 1)
LAUNCH(many, 32 * RY_PERF_WARPS)
LAUNCH(send, 32)
LAUNCH(watch, 32)
LAUNCH(add, 1)
LAUNCH(sum, 1)
LAUNCH(bounce, 1)
