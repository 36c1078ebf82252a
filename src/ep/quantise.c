/* SPDX-License-Identifier: Apache-2.0 */
#include "ep/quantise.h"

#include <railyard/ep.h>

#include <string.h>

_Static_assert((int)RY_SCALE_F32 == RY_QUANT_F32 && (int)RY_SCALE_POW2 == RY_QUANT_POW2 &&
                   (int)RY_SCALE_UE8M0 == RY_QUANT_UE8M0,
               "the public numbers are those of the codec");

static uint32_t group_key(const uint16_t *x)
{
    int16_t key = 0; /* keys are below 0x7f80, and 16-bit maxima are one instruction */
    for (int i = 0; i < RY_SCALE_GROUP; i++) {
        int16_t k = (int16_t)ry_bf16_amax_key(x[i]);
        key = k > key ? k : key;
    }
    return (uint32_t)key;
}

/* Scales may lie at any byte of a packed message, so they are copied, not stored through a float
 * *. */
static void scale_write(void *scales, size_t group, int kind, float amax)
{
    if (kind == RY_QUANT_UE8M0) {
        ((uint8_t *)scales)[group] = ry_scale_ue8m0(amax);
    } else {
        float scale = ry_scale_value(amax, kind);
        memcpy((uint8_t *)scales + group * sizeof(scale), &scale, sizeof(scale));
    }
}

static float scale_read(const void *scales, size_t group, int kind)
{
    float scale;
    if (kind == RY_QUANT_UE8M0)
        return ry_ue8m0_to_f32(((const uint8_t *)scales)[group]);
    memcpy(&scale, (const uint8_t *)scales + group * sizeof(scale), sizeof(scale));
    return scale;
}

static void encode_group(const uint16_t *restrict in, float inverse, uint8_t *restrict out)
{
    for (int i = 0; i < RY_SCALE_GROUP; i++)
        out[i] = ry_quantise_one(in[i], inverse);
}

static void decode_group(const uint8_t *restrict in, float scale, uint16_t *restrict out)
{
    for (int i = 0; i < RY_SCALE_GROUP; i++)
        out[i] = ry_dequantise_one(in[i], scale);
}

void ry_quantise_row(const uint16_t *x, size_t hidden, int kind, uint8_t *codes, void *scales)
{
    for (size_t group = 0; group < hidden / RY_SCALE_GROUP; group++) {
        const uint16_t *in = x + group * RY_SCALE_GROUP;
        float amax = ry_amax_from_key(group_key(in));
        encode_group(in, ry_scale_inverse(amax, kind), codes + group * RY_SCALE_GROUP);
        scale_write(scales, group, kind, amax);
    }
}

void ry_dequantise_row(const uint8_t *codes, const void *scales, size_t hidden, int kind,
                       uint16_t *x)
{
    for (size_t group = 0; group < hidden / RY_SCALE_GROUP; group++)
        decode_group(codes + group * RY_SCALE_GROUP, scale_read(scales, group, kind),
                     x + group * RY_SCALE_GROUP);
}

static int shape_is_good(size_t hidden, int kind)
{
    return hidden % RY_SCALE_GROUP == 0 && kind >= RY_QUANT_F32 && kind <= RY_QUANT_UE8M0;
}

int ry_quantise_rows(const uint16_t *x, size_t x_stride, size_t rows, size_t hidden, int kind,
                     uint8_t *codes, size_t code_stride, void *scales, size_t scale_stride)
{
    if (!shape_is_good(hidden, kind))
        return RY_ERR_INVALID;
    for (size_t row = 0; row < rows; row++)
        ry_quantise_row(x + row * x_stride, hidden, kind, codes + row * code_stride,
                        (uint8_t *)scales + row * scale_stride * ry_scale_bytes(kind));
    return RY_OK;
}

int ry_dequantise_rows(const uint8_t *codes, size_t code_stride, const void *scales,
                       size_t scale_stride, size_t rows, size_t hidden, int kind, uint16_t *x,
                       size_t x_stride)
{
    if (!shape_is_good(hidden, kind))
        return RY_ERR_INVALID;
    for (size_t row = 0; row < rows; row++)
        ry_dequantise_row(codes + row * code_stride,
                          (const uint8_t *)scales + row * scale_stride * ry_scale_bytes(kind),
                          hidden, kind, x + row * x_stride);
    return RY_OK;
}

void ry_bf16_to_f32_row(const uint16_t *restrict x, size_t n, float *restrict y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = ry_bf16_to_f32(x[i]);
}

void ry_f32_to_bf16_row(const float *restrict x, size_t n, uint16_t *restrict y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = ry_f32_to_bf16(x[i]);
}
