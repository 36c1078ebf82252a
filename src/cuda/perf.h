/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of ry_gpu_perf. */
#ifndef RY_CUDA_PERF_H
#define RY_CUDA_PERF_H

#include "cuda/world.h"

enum {
    RY_PERF_WINDOW = 64 << 20,
    RY_PERF_WARPS = 16,
    RY_PERF_SAMPLES = 8192, /* the last ones are kept */
    RY_PERF_SLOTS = 512,    /* payloads of put-signal under way at once */
    RY_PERF_SIGNALS = 8,
    RY_PERF_LANDING_AT = RY_PERF_WINDOW, /* offsets from the caller's heap */
    RY_PERF_SIGNALS_AT = 2 * RY_PERF_WINDOW,
    RY_PERF_COUNTER_AT = RY_PERF_SIGNALS_AT + 4096,
    RY_PERF_HEAP = RY_PERF_SIGNALS_AT + 65536
};

/* In pinned memory. */
struct ry_perf_times {
    uint32_t cycles[RY_PERF_SAMPLES];
    uint64_t ns, all_cycles; /* of the whole kernel, by both clocks */
    uint64_t wrong;
    int32_t status;
};

/* One kernel's work. */
struct ry_perf_args {
    struct ry_gpu_world w;
    uint8_t *heap;
    struct ry_perf_times *times;
    uint64_t bytes, iters, warmup;
    uint64_t base; /* signals of this row lie above */
    uint32_t peer, get;
};

#ifdef __cplusplus
extern "C" {
#endif
/* Launches; 0 or a cudaError. */
int ry_perf_fill_launch(uint8_t *at, uint64_t bytes, uint64_t key, void *stream);
int ry_perf_check_launch(const uint8_t *at, uint64_t bytes, uint64_t piece, uint64_t key,
                         struct ry_perf_times *t, void *stream);
int ry_perf_one_launch(const struct ry_perf_args *a, void *stream);    /* waited for, one thread */
int ry_perf_many_launch(const struct ry_perf_args *a, void *stream);   /* 16 warps */
int ry_perf_send_launch(const struct ry_perf_args *a, void *stream);   /* put-signal */
int ry_perf_watch_launch(const struct ry_perf_args *a, void *stream);  /* its receiver */
int ry_perf_add_launch(const struct ry_perf_args *a, void *stream);    /* amo-add */
int ry_perf_sum_launch(const struct ry_perf_args *a, void *stream);    /* base: what it must be */
int ry_perf_bounce_launch(const struct ry_perf_args *a, void *stream); /* ping-pong, both PEs */
#ifdef __cplusplus
}
#endif

#endif
