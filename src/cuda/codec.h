/* SPDX-License-Identifier: Apache-2.0 */
/* The codecs of core/numeric.h as the GPU's own instructions do them: same bits, fewer steps.
 * test/cuda compares them with core/numeric.h over every bf16 value. */
#ifndef RY_CUDA_CODEC_H
#define RY_CUDA_CODEC_H

#include "core/numeric.h"
#include "cuda/ptx.h"

/* Magnitudes of two bf16 each in its half, for a signed 16-bit maximum: plus 0x80, infinity and NaN
 * become negative and so never win over RY_KEY_NONE, which stands for magnitude 0. */
#define RY_KEY_NONE 0x00800080u

RY_DEV uint32_t ry_key2(uint32_t two) { return (two & 0x7fff7fffu) + 0x00800080u; }

RY_DEV uint32_t ry_key2_max(uint32_t a, uint32_t b) { return __vmaxs2(a, b); }

/* The greatest key among eight bf16. */
RY_DEV uint32_t ry_key8(uint4 v)
{
    uint32_t a = ry_key2_max(ry_key2(v.x), ry_key2(v.y));
    uint32_t b = ry_key2_max(ry_key2(v.z), ry_key2(v.w));

    return ry_key2_max(ry_key2_max(a, b), RY_KEY_NONE);
}

/* The key of ry_bf16_amax_key from both halves. */
RY_DEV uint32_t ry_key_of(uint32_t two)
{
    uint32_t a = two & 0xffffu, b = two >> 16;

    return (a > b ? a : b) - 0x80u;
}

RY_DEV float ry_low_f32(uint32_t two) { return __uint_as_float(two << 16); }
RY_DEV float ry_high_f32(uint32_t two) { return __uint_as_float(two & 0xffff0000u); }

/* Two f32 to e4m3, the first in the low byte. */
RY_DEV uint32_t ry_two_e4m3(float low, float high)
{
    uint16_t v;

    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(v) : "f"(high), "f"(low));
    return v;
}

/* Two f32 to bf16, the first in the low half. */
RY_DEV uint32_t ry_two_bf16(float low, float high)
{
    uint32_t v;

    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
    return v;
}

/* Four channels (two words) to four codes. */
RY_DEV uint32_t ry_four_codes(uint32_t a, uint32_t b, float inverse)
{
    uint32_t low =
        ry_two_e4m3(__fmul_rn(ry_low_f32(a), inverse), __fmul_rn(ry_high_f32(a), inverse));
    uint32_t high =
        ry_two_e4m3(__fmul_rn(ry_low_f32(b), inverse), __fmul_rn(ry_high_f32(b), inverse));

    return low | high << 16;
}

RY_DEV uint2 ry_eight_codes(uint4 v, float inverse)
{
    uint2 codes;

    codes.x = ry_four_codes(v.x, v.y, inverse);
    codes.y = ry_four_codes(v.z, v.w, inverse);
    return codes;
}

/* acc[8] += weight * row, product and sum rounded one by one. */
RY_DEV void ry_add_weighted8(float *acc, uint4 v, float weight)
{
    uint32_t w[4] = {v.x, v.y, v.z, v.w};

#pragma unroll
    for (int i = 0; i < 4; i++) {
        acc[2 * i] = __fadd_rn(acc[2 * i], __fmul_rn(weight, ry_low_f32(w[i])));
        acc[2 * i + 1] = __fadd_rn(acc[2 * i + 1], __fmul_rn(weight, ry_high_f32(w[i])));
    }
}

RY_DEV void ry_add8(float *acc, uint4 v)
{
    uint32_t w[4] = {v.x, v.y, v.z, v.w};

#pragma unroll
    for (int i = 0; i < 4; i++) {
        acc[2 * i] = __fadd_rn(acc[2 * i], ry_low_f32(w[i]));
        acc[2 * i + 1] = __fadd_rn(acc[2 * i + 1], ry_high_f32(w[i]));
    }
}

RY_DEV uint4 ry_round8(const float *acc)
{
    return make_uint4(ry_two_bf16(acc[0], acc[1]), ry_two_bf16(acc[2], acc[3]),
                      ry_two_bf16(acc[4], acc[5]), ry_two_bf16(acc[6], acc[7]));
}

#endif
