/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RY_CUDA_JOB_INSIDE_H
#define RY_CUDA_JOB_INSIDE_H

#include <cuda_runtime_api.h>
#include <railyard/gpu.h>
#include <railyard/gpu_job.h>

#include "cuda/fabric.h"

struct ry_job_pe {
    int device;
    uint32_t local; /* experts here */
    uint64_t rows_max;
    cudaStream_t stream;
    cudaEvent_t begin, end;
    void *memory, *host; /* a block on the GPU and one here; all below stands in them */
    ry_gpu_ep *ep;
    uint8_t *x, *out, *ids, *weights, *y; /* on the GPU */
    uint8_t *rows_x;
    uint32_t *src_token, *row_source, *count, *expert_rows;
    int32_t *topk_idx;
    float *topk_weight;
    ry_ep_output last; /* pointers of the GPU */
    uint32_t rows;
};

struct ry_gpu_job {
    ry_gpu_job_attr attr;
    int gpus;
    struct ry_gpu_fabric *fabric;
    uint64_t met;  /* atomic: arrivals at the meeting point, all PEs together */
    uint32_t lost; /* atomic: a PE's call has failed, and it may not come again */
    struct ry_job_pe pe[RY_GPU_PES_MAX];
};

/* Takes `bytes` off a block; with base NULL it only counts. */
void *ry_job_take(uint8_t *base, uint64_t *at, uint64_t bytes);

#endif
