/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of bench_gpu_rma, which are compiled more than once. */
#ifndef RY_BENCH_CUDA_RMA_BENCH_H
#define RY_BENCH_CUDA_RMA_BENCH_H

#include "cuda/fabric.h"

enum { POSTS = 512 };

enum post_kind {
    POST_MINIMAL,  /* hand-written: see post.cu */
    POST_LINE,     /* ry_line_put_signal: the thread keeps what it has read of the channel */
    POST_CALL,     /* ry_dev_put_signal: looks at the channel each time */
    POST_KINDS
};

struct post_times {
    uint32_t bell[POSTS];    /* cycles from the call to the doorbell store */
    uint32_t returns[POSTS]; /* and to its return */
    uint64_t failed;
};

#ifdef __cplusplus
extern "C" {
#endif
/* 8-byte put-signals by one thread, one after the other, at most 16 outstanding. */
int post_launch(const struct ry_gpu_world *w, uint8_t *heap, enum post_kind kind,
                struct post_times *out, void *stream);
/* Cycles of what a post is made of: a load from L2, a swap, fences. */
int parts_launch(uint64_t *device_words, uint32_t *cycles, void *stream);
void post_print_parts(const uint32_t *cycles);
/* Registers and blocks per SM of a kernel that puts, signals, waits and is quiet, compiled with
 * failover and without. */
void lean_print(void);
void lean_print_off(void);
#ifdef __cplusplus
}
#endif

#endif
