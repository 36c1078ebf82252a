/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels know of their PE's channels; handed to them by value. */
#ifndef RY_CUDA_WORLD_H
#define RY_CUDA_WORLD_H

#include "core/layout.h"
#include "cuda/args.h"

struct ry_gpu_world {
    struct ry_channel *ch; /* [pes][channels] */
    uint8_t *heap;
    uint8_t *direct[RY_GPU_PES_MAX]; /* peers' heaps where mapped, else 0 */
    uint64_t raddr[RY_GPU_PES_MAX];  /* heaps as the peers' registrations name them */
    uint64_t *totals;                /* amo: [counters][pes] running sums, device memory */
    struct ry_gpu_status *status;
    struct ry_env env;
    uint64_t timeout_ns;
    uint32_t pe, pes, channels;
    uint32_t failover; /* 0: the first failure is the operation's error */
};

#endif
