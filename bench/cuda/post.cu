/* SPDX-License-Identifier: Apache-2.0 */
/* Cycles of a post up to its doorbell store, and of what it is made of. */
__device__ static unsigned long long bell_at; /* clock at the newest doorbell store */
#define RY_BELL_RUNG() (bell_at = (unsigned long long)clock64())

#include <stdio.h>
#include <stdlib.h>

#include "rma_bench.h"

#include "cuda/rma.h"
#include "minimal.h"

static __device__ void note(struct post_times *out, uint32_t i, uint64_t begin, int rc)
{
    uint64_t end = (uint64_t)clock64();

    out->bell[i] = (uint32_t)(*(volatile unsigned long long *)&bell_at - begin);
    out->returns[i] = (uint32_t)(end - begin);
    if (rc)
        out->failed = 1;
}

static __global__ void minimal_kernel(const __grid_constant__ struct ry_gpu_world w, uint8_t *heap,
                                      struct post_times *out)
{
    struct ry_channel *ch = ry_world_channel(&w, 1, 0);
    const struct ry_ring *r = &ch->ring[ry_state_active(ry_observe_state(ch))];
    uint64_t raddr = ry_world_raddr(&w, 1, heap);
    struct minimal m = minimal_take(r);

    for (uint32_t i = 0; i < POSTS; i++) {
        uint64_t begin;

        if (i % 16 == 0 && i)
            while (ry_observe_cqe(r->cqe).counter != (uint16_t)(2 * i - 1))
                ;
        begin = (uint64_t)clock64();
        minimal_post(&m, 2 * i, raddr + 4096, (uint64_t)heap + 8192, raddr, i + 1);
        RY_BELL_RUNG();
        note(out, i, begin, 0);
    }
}

static __global__ void line_kernel(const __grid_constant__ struct ry_gpu_world w, uint8_t *heap,
                                   struct post_times *out)
{
    struct ry_sector *signal = (struct ry_sector *)heap; /* channel 0 */
    struct ry_line line;

    ry_line_begin(&w, 1, 0, &line);
    for (uint32_t i = 0; i < POSTS; i++) {
        uint64_t begin;
        int rc;

        if (i % 16 == 0)
            ry_world_quiet(&w, 1, 0);
        begin = (uint64_t)clock64();
        rc = ry_line_put_signal(&w, &line, heap + 4096, heap + 8192, 8, signal, i + 1);
        note(out, i, begin, rc);
    }
}

static __global__ void call_kernel(const __grid_constant__ struct ry_gpu_world w, uint8_t *heap,
                                   struct post_times *out)
{
    struct ry_sector *signal = (struct ry_sector *)heap; /* channel 0 */

    for (uint32_t i = 0; i < POSTS; i++) {
        uint64_t begin;
        int rc;

        if (i % 16 == 0)
            ry_world_quiet(&w, 1, 0);
        begin = (uint64_t)clock64();
        rc = ry_dev_put_signal(&w, heap + 4096, heap + 8192, 8, signal, i + 1, 1, RY_THREAD);
        note(out, i, begin, rc);
    }
}

extern "C" int post_launch(const struct ry_gpu_world *w, uint8_t *heap, enum post_kind kind,
                           struct post_times *out, void *stream)
{
    if (kind == POST_MINIMAL)
        minimal_kernel<<<1, 1, 0, (cudaStream_t)stream>>>(*w, heap, out);
    else if (kind == POST_LINE)
        line_kernel<<<1, 1, 0, (cudaStream_t)stream>>>(*w, heap, out);
    else
        call_kernel<<<1, 1, 0, (cudaStream_t)stream>>>(*w, heap, out);
    return (int)cudaGetLastError();
}

enum { PARTS = 8, ROUNDS = 64 };

static const char *const names[PARTS] = {
    "clock",
    "load from L2",
    "swap, gpu scope",
    "load and swap together",
    "fence.acq_rel.gpu, nothing outstanding",
    "fence.acq_rel.sys, nothing outstanding",
    "fence.acq_rel.sys behind 8 stores of 16 bytes",
    "fence.acq_rel.sys behind one store",
};

static __device__ void part(uint32_t k, uint64_t *w, uint64_t i, uint64_t *sink)
{
    uint64_t found = 0;

    if (k == 1 || k == 3)
        found = ry_look64_pe(w + 64);
    if (k == 2 || k == 3)
        *sink += ry_claim64_pe(w, i, i + 1);
    if (k == 4)
        asm volatile("fence.acq_rel.gpu;" ::: "memory");
    if (k == 6)
        for (uint32_t s = 0; s < 8; s++)
            asm volatile("st.global.v2.u64 [%0], {%1, %1};" ::"l"(w + 128 + 2 * s), "l"(i)
                         : "memory");
    if (k == 7)
        ry_st_fenced64(w + 128, i);
    if (k >= 5)
        ry_fence_sys();
    *sink += found;
}

static __global__ void parts_kernel(uint64_t *w, uint32_t *out)
{
    uint64_t sink = 0;

    for (uint32_t k = 0; k < PARTS; k++) {
        uint64_t swaps = 0;

        for (uint32_t i = 0; i < ROUNDS; i++) {
            uint64_t begin, end;

            w[0] = swaps;
            ry_fence_sys();
            begin = (uint64_t)clock64();
            part(k, w, swaps, &sink);
            /* what was loaded is used before the clock is read again */
            asm volatile("add.u64 %0, %0, 0;" : "+l"(sink)::"memory");
            end = (uint64_t)clock64();
            out[k * ROUNDS + i] = (uint32_t)(end - begin) + (sink == 0x123456789abcdefull);
            swaps++;
        }
    }
}

extern "C" int parts_launch(uint64_t *device_words, uint32_t *cycles, void *stream)
{
    parts_kernel<<<1, 1, 0, (cudaStream_t)stream>>>(device_words, cycles);
    return (int)cudaGetLastError();
}

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

extern "C" void post_print_parts(const uint32_t *cycles)
{
    for (uint32_t k = 0; k < PARTS; k++) {
        uint32_t v[ROUNDS];

        for (uint32_t i = 0; i < ROUNDS; i++)
            v[i] = cycles[k * ROUNDS + i];
        qsort(v, ROUNDS, sizeof(v[0]), compare);
        printf("cycles of %s: median %u (lowest %u)\n", names[k], v[ROUNDS / 2], v[0]);
    }
}
