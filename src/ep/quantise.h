/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of bf16 to and from fp8 e4m3 with one scale per 128 channels. The scalar steps are those of
 * core/numeric.h in the order written there, so a kernel that uses them agrees bit for bit.
 *
 * A row is `hidden` channels, hidden % 128 == 0. For each group of 128 channels:
 *   1. key   = greatest ry_bf16_amax_key over the group (infinity and NaN count as 0);
 *   2. amax  = ry_amax_from_key(key), which is at least 2^-100;
 *   3. code  = ry_quantise_one(x, ry_scale_inverse(amax, kind)) for each channel;
 *   4. scale = ry_scale_value(amax, kind), or ry_scale_ue8m0(amax) as a byte.
 * Infinity becomes +-448 * scale and NaN stays NaN; the other channels of the group are unharmed.
 * Strides are in elements of what they step over. Rows and scales need only the alignment of their
 * element; input and output must not overlap. No allocation; thread safe. */
#ifndef RY_EP_QUANTISE_H
#define RY_EP_QUANTISE_H

#include <railyard/status.h>

#include <stddef.h>
#include <stdint.h>

#include "core/numeric.h"

/* One row: hidden codes, hidden / 128 scales (f32, or one byte each for RY_QUANT_UE8M0). The caller
 * has checked hidden and kind. */
void ry_quantise_row(const uint16_t *x, size_t hidden, int kind, uint8_t *codes, void *scales);
void ry_dequantise_row(const uint8_t *codes, const void *scales, size_t hidden, int kind,
                       uint16_t *x);

/* Many rows. scale_stride counts scales. RY_ERR_INVALID if hidden is no multiple of 128 or kind is
 * unknown; then nothing is written. */
int ry_quantise_rows(const uint16_t *x, size_t x_stride, size_t rows, size_t hidden, int kind,
                     uint8_t *codes, size_t code_stride, void *scales, size_t scale_stride);
int ry_dequantise_rows(const uint8_t *codes, size_t code_stride, const void *scales,
                       size_t scale_stride, size_t rows, size_t hidden, int kind, uint16_t *x,
                       size_t x_stride);

/* Plain conversions of n contiguous channels. */
void ry_bf16_to_f32_row(const uint16_t *x, size_t n, float *y);
void ry_f32_to_bf16_row(const float *x, size_t n, uint16_t *y);

#endif
