/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RY_CUDA_EP_INSIDE_H
#define RY_CUDA_EP_INSIDE_H

#include <railyard/gpu.h>

#include "cuda/far.h"
#include "cuda/host/layout.h"

enum ry_gpu_kernel { K_DISPATCH, K_COMBINE, K_PLAN, K_COUNT };

/* A PE's own device memory of one generation, beside its heap part. */
struct ry_gpu_own {
    int32_t *kept_ids;
    float *kept_weights;
    uint32_t *kept_tokens;
    uint32_t *count;     /* ll: [local][pes] */
    uint32_t *src_token; /* ll */
    uint64_t *back;      /* ll */
    int32_t *rank;       /* ht */
    uint32_t *before;    /* ht */
    uint32_t *expert_rows;
    uint32_t *rows;
    uint64_t *last;
};

/* What a kernel is given; both begin with ry_gpu_common. */
union ry_gpu_args {
    struct ry_gpu_ll ll;
    struct ry_gpu_ht ht;
};

struct ry_gpu_ep {
    ry_gpu_ep_attr attr;
    uint32_t generations;
    uint64_t generation_bytes;
    uint8_t *heap[RY_GPU_PES_MAX]; /* a far peer's: its mirror */
    void *own;                     /* one allocation; NULL: the fabric's */
    struct ry_gpu_own part[RY_EP_GENERATIONS_MAX];
    struct ry_gpu_status *status;        /* pinned */
    struct ry_gpu_status *status_device; /* the same, as the GPU addresses it */
    uint32_t blocks;
    union ry_gpu_args args; /* what all launches have in common */
    uint64_t dispatch_sent, dispatch_received, combine_sent, combine_received;
    struct ry_gpu_far far; /* n 0: every peer's memory is mapped */
    struct ry_far_span *spans;
    uint32_t ports;              /* of a PE, where peers are far */
    void (*launched)(void *arg); /* called behind every launch; NULL: nobody */
    void *launched_arg;
};

/* Lays out a PE's own memory at base; with base NULL it only counts. */
uint64_t ry_gpu_ep_own_lay(ry_gpu_ep *ep, uint8_t *base);
/* Checks attr and makes an exchange without memory. */
int ry_gpu_ep_prepare(const ry_gpu_ep_attr *attr, ry_gpu_ep **out);
/* Once memory is there: what all launches have in common. */
void ry_gpu_ep_common(ry_gpu_ep *ep);

/* What stands between a stage's kernels where peers are far. */
int ry_far_room(const ry_gpu_ep *ep, uint64_t call, void *stream);
int ry_far_post(const ry_gpu_ep *ep, const union ry_gpu_args *a, enum ry_far_stage stage,
                uint64_t call, void *stream);
int ry_far_arrive(const ry_gpu_ep *ep, const union ry_gpu_args *a, enum ry_far_stage stage,
                  uint64_t call, void *stream);
/* SMs that railyard tune found best for this shape on this machine; 0: nothing is known. */
uint32_t ry_gpu_ep_tuned(const ry_gpu_ep_attr *attr);
/* RY_OK, or an error that says what could not be launched. */
int ry_gpu_launched(const ry_gpu_ep *ep, int cuda_error, const char *what);
/* Blocks of a PE's dispatch. */
uint32_t ry_gpu_ep_dispatch_blocks(const ry_gpu_ep *ep);

#endif
