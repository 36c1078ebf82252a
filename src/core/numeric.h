/* SPDX-License-Identifier: Apache-2.0 */
/* bf16, fp8 e4m3 and scales: the scalar codecs that host reference and kernels share.
 *
 * Everything here is exact by definition, so that any two implementations agree bit for bit:
 *   - rounding is to nearest, ties to even (RNE), subnormals are kept, never flushed;
 *   - a NaN that is *made* is the one canonical NaN (f32 0x7fffffff, bf16 0x7fff, e4m3 0x7f),
 *     which is also what the GPU's cvt instructions make; a NaN that is *copied* keeps its bits;
 *   - products and sums go through ry_f32_mul and ry_f32_add, which no compiler may fuse.
 *
 * Formats: bf16 is the upper half of an f32. e4m3 (the "fn" kind) is 1 sign, 4 exponent (bias 7)
 * and 3 mantissa bits; no infinity; greatest 448 (0x7e); 0x7f and 0xff are NaN; smallest 2^-9.
 * UE8M0 is one byte b, 2^(b-127); 255 is NaN. Source: Open Compute Project, "8-bit floating
 * point" and "microscaling formats". */
#ifndef RY_CORE_NUMERIC_H
#define RY_CORE_NUMERIC_H

#include "core/base.h"

#define RY_E4M3_MAX    448.0f
#define RY_SCALE_GROUP 128 /* channels that share one scale */

/* How the scale of a group is chosen and stored beside its row; the numbers of enum ry_scale. */
enum {
    RY_QUANT_F32 = 0,  /* amax / 448, four bytes */
    RY_QUANT_POW2 = 1, /* the smallest power of two with amax <= 448 * scale, an f32, four bytes */
    RY_QUANT_UE8M0 = 2 /* the same power of two, as its exponent, one byte */
};

/* Smallest amax that a scale is made for, 2^-100. Below it (and for a group of zeros) the scale
 * is that of 2^-100: amax/448 and its inverse then are always normal numbers and never need a
 * special case. */
#define RY_AMAX_BITS_MIN 0x0d800000u

RY_FN uint32_t ry_f32_bits(float v)
{
#if RY_ON_GPU
    return __float_as_uint(v);
#else
    uint32_t bits;
    __builtin_memcpy(&bits, &v, sizeof(bits));
    return bits;
#endif
}

RY_FN float ry_f32_from_bits(uint32_t bits)
{
#if RY_ON_GPU
    return __uint_as_float(bits);
#else
    float v;
    __builtin_memcpy(&v, &bits, sizeof(v));
    return v;
#endif
}

/* yes if cond is 1, no if it is 0: a select that stays one when a compiler vectorises the loop. */
RY_FN uint32_t ry_select32(uint32_t cond, uint32_t yes, uint32_t no)
{
    uint32_t mask = 0u - cond;
    return (yes & mask) | (no & ~mask);
}

/* One IEEE product, one IEEE sum, one IEEE quotient: rounded by themselves, never contracted. */
RY_FN float ry_f32_mul(float a, float b)
{
#if RY_ON_GPU
    return __fmul_rn(a, b);
#else
    return a * b;
#endif
}

RY_FN float ry_f32_add(float a, float b)
{
#if RY_ON_GPU
    return __fadd_rn(a, b);
#else
    return a + b;
#endif
}

RY_FN float ry_f32_div(float a, float b)
{
#if RY_ON_GPU
    return __fdiv_rn(a, b);
#else
    return a / b;
#endif
}

RY_FN float ry_bf16_to_f32(uint16_t v) { return ry_f32_from_bits((uint32_t)v << 16); }

/* RNE; overflow goes to infinity as IEEE has it; any NaN gives 0x7fff. */
RY_FN uint16_t ry_f32_to_bf16(float v)
{
    uint32_t bits = ry_f32_bits(v);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return (uint16_t)ry_select32((bits & 0x7fffffffu) > 0x7f800000u, 0x7fffu, rounded);
}

/* RNE and saturating: beyond 448 and infinities give +-448; any NaN gives 0x7f; zero keeps its
 * sign. */
RY_FN uint8_t ry_f32_to_e4m3(float v)
{
    uint32_t bits = ry_f32_bits(v);
    uint32_t sign = (bits >> 24) & 0x80u;
    uint32_t mag = bits & 0x7fffffffu;
    /* from 2^-6 on: round at bit 20, then take the bias from 127 to 7 */
    uint32_t normal = ((mag + 0x7ffffu + ((mag >> 20) & 1u)) >> 20) - (120u << 3);
    /* below: a sum with 2^14, whose last bit is worth 2^-9, rounds to a multiple of 2^-9 */
    uint32_t small = ry_f32_bits(ry_f32_add(ry_f32_from_bits(mag), 16384.0f)) - 0x46800000u;
    uint32_t code = ry_select32(mag < 0x3c800000u, small, normal);
    code = ry_select32(mag > 0x43e00000u, 0x7eu, code) | sign;
    return (uint8_t)ry_select32(mag > 0x7f800000u, 0x7fu, code);
}

/* Exact. Both NaN codes give the f32 NaN 0x7fffffff. */
RY_FN float ry_e4m3_to_f32(uint8_t code)
{
    uint32_t sign = (uint32_t)(code & 0x80u) << 24;
    uint32_t mag = code & 0x7fu;
    uint32_t normal = (mag << 20) + (120u << 23);
    uint32_t small = ry_f32_bits(ry_f32_mul((float)(int32_t)mag, 0.001953125f)); /* 2^-9 */
    uint32_t bits = ry_select32(mag < 8u, small, normal) | sign;
    return ry_f32_from_bits(ry_select32(mag == 0x7fu, 0x7fffffffu, bits));
}

/* The magnitude of a bf16 as a number that may be compared as an integer, 0 for infinity and NaN:
 * the amax of a group is the greatest of these, so that one bad value spoils itself and not its
 * 127 neighbours. */
RY_FN uint32_t ry_bf16_amax_key(uint16_t v)
{
    uint32_t mag = v & 0x7fffu;
    return ry_select32(mag < 0x7f80u, mag, 0u);
}

/* The f32 amax of a group from the greatest key in it. */
RY_FN float ry_amax_from_key(uint32_t key)
{
    uint32_t bits = key << 16;
    return ry_f32_from_bits(bits < RY_AMAX_BITS_MIN ? RY_AMAX_BITS_MIN : bits);
}

/* Exponent e of the smallest power of two with amax <= 448 * 2^e. 448 is 1.75 * 2^8, so no
 * logarithm is needed. amax is from ry_amax_from_key: e lies in -108..120. */
RY_FN int32_t ry_scale_exponent(float amax)
{
    uint32_t bits = ry_f32_bits(amax);
    int32_t e = (int32_t)(bits >> 23) - 127 - 8;
    return e + ((bits & 0x7fffffu) > 0x600000u ? 1 : 0);
}

/* 2^e for e in -126..127. */
RY_FN float ry_f32_pow2(int32_t e) { return ry_f32_from_bits((uint32_t)(e + 127) << 23); }

/* A stored scale from UE8M0; 255 gives NaN, 0 gives 2^-127. */
RY_FN float ry_ue8m0_to_f32(uint8_t code)
{
    uint32_t bits = code == 0 ? 0x00400000u : (uint32_t)code << 23;
    return ry_f32_from_bits(code == 255 ? 0x7fffffffu : bits);
}

/* What a group is multiplied by before it is encoded: 448 / amax, or 2^-e. */
RY_FN float ry_scale_inverse(float amax, int kind)
{
    if (kind == RY_QUANT_F32)
        return ry_f32_div(RY_E4M3_MAX, amax);
    return ry_f32_pow2(-ry_scale_exponent(amax));
}

/* What a decoded group is multiplied by: amax / 448, or 2^e. UE8M0 stores e + 127 of the same
 * number. */
RY_FN float ry_scale_value(float amax, int kind)
{
    if (kind == RY_QUANT_F32)
        return ry_f32_div(amax, RY_E4M3_MAX);
    return ry_f32_pow2(ry_scale_exponent(amax));
}

RY_FN uint8_t ry_scale_ue8m0(float amax) { return (uint8_t)(ry_scale_exponent(amax) + 127); }

/* Bytes that the scale of one group takes. */
RY_FN uint32_t ry_scale_bytes(int kind) { return kind == RY_QUANT_UE8M0 ? 1u : 4u; }

/* One channel out and back: encode rounds x * inverse to f32, then to e4m3; decode rounds code *
 * scale to f32, then to bf16. */
RY_FN uint8_t ry_quantise_one(uint16_t x, float inverse)
{
    return ry_f32_to_e4m3(ry_f32_mul(ry_bf16_to_f32(x), inverse));
}

RY_FN uint16_t ry_dequantise_one(uint8_t code, float scale)
{
    return ry_f32_to_bf16(ry_f32_mul(ry_e4m3_to_f32(code), scale));
}

#endif
