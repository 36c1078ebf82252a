/* SPDX-License-Identifier: Apache-2.0 */
/* Example tokens and stand-in experts for tests and measurements, the same on host and GPU: integer
 * hashing, exact products with powers of two and one rounding each, no mathematical library. */
#ifndef RY_CORE_TOKEN_H
#define RY_CORE_TOKEN_H

#include "core/base.h"
#include "core/numeric.h"

/* The finaliser of splitmix64 (Vigna, public domain): a bijection that spreads every bit. */
RY_FN uint64_t ry_mix64(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* What makes token `token` of PE `pe` itself; once a row. */
RY_FN uint64_t ry_token_key(uint64_t seed, uint32_t pe, uint64_t token)
{
    return ry_mix64(ry_mix64(ry_mix64(seed) + pe) + token);
}

/* One channel in about 256 is an outlier in every token of a seed, 64 times the others, as in the
 * activations of real models. */
RY_FN uint32_t ry_token_outlier(uint64_t seed, uint32_t channel)
{
    return (channel * 2654435761u + (uint32_t)ry_mix64(seed)) >> 24 == 0;
}

/* Channel `channel` of the row with this key, bf16, never NaN or infinite: bell shaped about 0
 * with standard deviation 1.15, outlier channels 74; 1 in 4096 is subnormal and 1 in 4096 is 2^40
 * times as large. */
RY_FN uint16_t ry_token_channel(uint64_t seed, uint64_t key, uint32_t channel)
{
    uint64_t h = ry_mix64(key + channel);
    uint32_t rare = (uint32_t)(h >> 52);
    int32_t sum =
        (int32_t)((h & 0x1fff) + (h >> 13 & 0x1fff) + (h >> 26 & 0x1fff) + (h >> 39 & 0x1fff)) -
        16382;
    int32_t scale = ry_token_outlier(seed, channel) ? -6 : -12;
    if (rare == 0)
        return (uint16_t)((h & 0x7fu) | (h >> 7 & 1u) << 15);
    if (rare == 1)
        scale += 40;
    return ry_f32_to_bf16(ry_f32_mul((float)sum, ry_f32_pow2(scale)));
}

/* The stand-in expert e: y[c] = bf16(x[(c + shift) % hidden] * gain), so that a token that is lost,
 * doubled, swapped or given to another expert changes the combined row. */
RY_FN uint32_t ry_standin_shift(uint32_t expert, uint32_t hidden)
{
    return (uint32_t)(ry_mix64(expert) % hidden);
}

/* +-64/64 to +-191/64, exact in bf16. */
RY_FN float ry_standin_gain(uint32_t expert)
{
    uint64_t h = ry_mix64(0x5eedu + (uint64_t)expert);
    float magnitude = ry_f32_mul((float)(int32_t)(64u + (h & 0x7fu)), 0.015625f);
    return h >> 63 ? -magnitude : magnitude;
}

RY_FN uint16_t ry_standin_channel(uint16_t x, float gain)
{
    return ry_f32_to_bf16(ry_f32_mul(ry_bf16_to_f32(x), gain));
}

#endif
