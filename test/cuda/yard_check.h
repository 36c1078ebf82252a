/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RY_TEST_CUDA_YARD_CHECK_H
#define RY_TEST_CUDA_YARD_CHECK_H

#include <cuda_runtime.h>
#include <railyard/ep.h>

#include "core/place.h"

struct check_job {
    struct ry_place place;
    uint64_t seed, row_bytes;
    uint32_t pe, hidden, topk, tokens_max;
    int fp8, scale_kind, ht, idx_bytes;
};

/* What the sources sent; pointers that the checking GPU may follow. */
struct check_sources {
    const uint8_t *rows[16];
    const void *ids[16];
    const float *weights[16];
    uint32_t tokens[16];
};

void check_draw(const struct check_job *j, uint16_t *x, uint32_t tokens, cudaStream_t s);
void check_encode(const struct check_job *j, const uint16_t *x, uint8_t *row, uint16_t *decoded,
                  uint32_t tokens, cudaStream_t s);
void check_experts(const struct check_job *j, const ry_ep_output *o, const uint32_t *rows,
                   uint16_t *y, cudaStream_t s);
/* wrong: one count, and one more for each expert here; zero at the start. */
void check_combine(const struct check_job *j, const uint16_t *decoded, const void *ids,
                   const float *weights, const uint16_t *out, uint32_t tokens, uint32_t *wrong,
                   cudaStream_t s);
void check_dispatch(const struct check_job *j, const struct check_sources *from,
                    const ry_ep_output *o, const uint32_t *rows, uint32_t *wrong, cudaStream_t s);
void check_codecs(uint32_t *wrong);

#endif
