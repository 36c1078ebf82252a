/* SPDX-License-Identifier: Apache-2.0 */
#include "ep/reduce.h"

#include <railyard/ep.h>

#include "core/numeric.h"

void ry_reduce_add_weighted(float *restrict acc, const uint16_t *restrict row, float weight,
                            size_t hidden)
{
    for (size_t i = 0; i < hidden; i++)
        acc[i] = ry_f32_add(acc[i], ry_f32_mul(weight, ry_bf16_to_f32(row[i])));
}

void ry_reduce_add_row(float *restrict acc, const uint16_t *restrict row, size_t hidden)
{
    for (size_t i = 0; i < hidden; i++)
        acc[i] = ry_f32_add(acc[i], ry_bf16_to_f32(row[i]));
}

void ry_reduce_add_f32(float *restrict acc, const float *restrict part, size_t hidden)
{
    for (size_t i = 0; i < hidden; i++)
        acc[i] = ry_f32_add(acc[i], part[i]);
}

/* A block of channels at a time, so that the sums stay in a small array of its own: no allocation
 * and any hidden. */
void ry_ep_local_reduce(const int32_t *topk_idx, const float *topk_weight, uint32_t topk,
                        const void *const *rows, uint32_t hidden, void *out)
{
    enum { BLOCK = 512 };
    float acc[BLOCK];
    for (uint32_t at = 0; at < hidden; at += BLOCK) {
        uint32_t width = hidden - at < BLOCK ? hidden - at : BLOCK;
        for (uint32_t i = 0; i < width; i++)
            acc[i] = 0.0f;
        for (uint32_t k = 0; k < topk; k++) {
            if (topk_idx[k] >= 0)
                ry_reduce_add_weighted(acc, (const uint16_t *)rows[k] + at, topk_weight[k], width);
        }
        for (uint32_t i = 0; i < width; i++)
            ((uint16_t *)out)[at + i] = ry_f32_to_bf16(acc[i]);
    }
}
