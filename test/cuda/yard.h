/* SPDX-License-Identifier: Apache-2.0 */
/* Several PEs of one process on one or more GPUs, their tokens, a stand-in for the experts, and a
 * plain recomputation of every result on the GPU by the definitions of railyard/reference.h. */
#ifndef RY_TEST_CUDA_YARD_H
#define RY_TEST_CUDA_YARD_H

#include <cuda_runtime.h>
#include <railyard/gpu.h>
#include <railyard/reference.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda/fabric.h"

struct check_sources;

#define CHECK_CUDA(call)                                                                           \
    do {                                                                                           \
        cudaError_t rc_ = (call);                                                                  \
        if (rc_ != cudaSuccess) {                                                                  \
            printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(rc_));         \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define CHECK_RY(call)                                                                             \
    do {                                                                                           \
        int rc_ = (call);                                                                          \
        if (rc_ != RY_OK) {                                                                        \
            printf("%s:%d: %s: %d %s\n", __FILE__, __LINE__, #call, rc_, ry_last_error());         \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

struct yard_pe {
    int device;
    cudaStream_t stream;
    cudaEvent_t begin, end; /* for whoever times a round */
    ry_gpu_ep *ep;
    void *heap;
    uint16_t *x, *y, *out;
    void *ids;
    float *weights;
    int32_t *ids_host; /* [tokens][topk] */
    float *weights_host;
    uint8_t *expect_row; /* [tokens_max] rows as dispatch carries them */
    uint16_t *decoded;   /* [tokens_max][hidden] as an expert reads them */
    uint32_t *wrong;     /* counts of the checkers */
    uint32_t tokens;
    ry_ep_input in;
    ry_ep_output got;
    const uint32_t *rows;
};

struct yard {
    ry_ep_attr attr;
    uint32_t pes, sms;
    uint64_t seed;
    int idx_bytes;
    int plain; /* choices are uniform, none is -1 */
    uint64_t row_bytes, y_rows;
    struct check_sources *from;   /* of the checkers */
    struct ry_gpu_fabric *fabric; /* NULL: all peers are mapped */
    uint32_t nodes;
    struct yard_pe pe[RY_GPU_PES_MAX];
};

/* GPUs are used in turn, `devices` of them. */
void yard_open(struct yard *y, const ry_ep_attr *attr, uint32_t pes, int devices, uint32_t sms,
               int idx_bytes, uint64_t timeout_ns);
/* The same on a fabric: `f` says ports, channels, nodes, rates and which peers are mapped; the rest
 * of it is filled in. */
void yard_open_far(struct yard *y, const ry_ep_attr *attr, uint32_t pes, int devices, uint32_t sms,
                   const struct ry_gpu_fabric_attr *f);
void yard_close(struct yard *y);

/* New tokens and routing on every PE: `tokens` each, or fewer and uneven when `uneven`. skew > 0:
 * some experts are chosen more often. Choices come from `ids` (cyclic) when it is not NULL. */
void yard_draw(struct yard *y, uint64_t seed, uint32_t tokens, int uneven, const int32_t *ids,
               uint32_t n_ids);

/* Outputs, y, and the rows that the last dispatch brought. */
void yard_poison(struct yard *y);
void yard_dispatch(struct yard *y, int phase);
void yard_experts(struct yard *y); /* y from what arrived */
void yard_combine(struct yard *y, int phase);
void yard_sync(struct yard *y);
/* Record where a round begins or ends; then how long the slower PE took. */
void yard_mark(struct yard *y, int end);
float yard_took_us(struct yard *y);

/* Counts of differences from what must be there; both wait for the GPU. */
uint32_t yard_check_dispatch(struct yard *y);
uint32_t yard_check_combine(struct yard *y);

/* The same questions to the host's reference. */
uint64_t yard_reference(struct yard *y);

/* Codecs of cuda/codec.h against core/numeric.h. */
uint32_t yard_check_codecs(void);

#endif
