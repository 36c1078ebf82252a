/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that talk over a fabric's channels and check every byte. */
#ifndef RY_TEST_CUDA_SOAK_H
#define RY_TEST_CUDA_SOAK_H

#include <cuda_runtime.h>

#include "cuda/fabric.h"

enum {
    SOAK_WARPS = 16,     /* of a PE, four in a block */
    SOAK_BYTES = 7168,   /* of a message */
    SOAK_DEPTH = 8,      /* messages of a warp between two quiets */
    SOAK_SIGNALS_AT = 0, /* offsets in the heap */
    SOAK_SOURCE_AT = 1 << 20,
    SOAK_TARGET_AT = 4 << 20,
    SOAK_GOT_AT = 6 << 20,
    SOAK_HEAP = 8 << 20,
};

struct soak_result {
    uint64_t wrong;  /* bytes (of 8) that differ */
    uint64_t failed; /* calls that did not return 0 */
    uint64_t late;   /* signals seen before their data */
    uint64_t cycles[4];
};

/* Every warp of both PEs: `rounds` times write a message, put it with a signal, wait for the
 * peer's, check it. */
void soak_exchange(const struct ry_gpu_world *w, uint8_t *heap, uint32_t peer, uint32_t from,
                   uint32_t rounds, uint32_t warps, struct soak_result *r, cudaStream_t s);

/* Puts without waiting for anything: the kernel ends with sends unacknowledged. */
void soak_leave(const struct ry_gpu_world *w, uint8_t *heap, uint32_t peer, uint64_t seed,
                uint32_t messages, struct soak_result *r, cudaStream_t s);
void soak_left(uint8_t *heap, uint64_t seed, uint32_t messages, struct soak_result *r,
               cudaStream_t s);

/* Every scope of every call, once. */
void soak_calls(const struct ry_gpu_world *w, uint8_t *heap, uint32_t peer, struct soak_result *r,
                cudaStream_t s);
/* `adds` additions of 1..adds to the peer's counter by each of 64 threads, then what is here. */
void soak_adds(const struct ry_gpu_world *w, uint8_t *heap, uint32_t peer, uint32_t adds,
               struct soak_result *r, cudaStream_t s);

#endif
