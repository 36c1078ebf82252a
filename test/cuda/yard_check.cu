/* SPDX-License-Identifier: Apache-2.0 */
/* The plain recomputation: one thread a channel or a group, no cleverness, core/numeric.h only. */
#include "cuda/codec.h"
#include "cuda/yard_check.h"

#include "core/place.h"
#include "core/token.h"

static __global__ void draw_kernel(struct check_job j, uint16_t *x)
{
    uint32_t t = blockIdx.x;
    uint64_t key = ry_token_key(j.seed, j.pe, t);

    for (uint32_t c = threadIdx.x; c < j.hidden; c += blockDim.x)
        x[(uint64_t)t * j.hidden + c] = ry_token_channel(j.seed, key, c);
}

/* A thread takes a group of 128 channels. */
static __global__ void encode_kernel(struct check_job j, const uint16_t *x, uint8_t *row,
                                     uint16_t *decoded)
{
    uint32_t t = blockIdx.x;
    const uint16_t *in = x + (uint64_t)t * j.hidden;
    uint8_t *to = row + t * j.row_bytes;
    uint16_t *plain = decoded + (uint64_t)t * j.hidden;

    if (!j.fp8) {
        for (uint32_t c = threadIdx.x; c < j.hidden; c += blockDim.x)
            ((uint16_t *)to)[c] = plain[c] = in[c];
        return;
    }
    for (uint32_t g = threadIdx.x; g < j.hidden / RY_SCALE_GROUP; g += blockDim.x) {
        uint32_t key = 0, at = g * RY_SCALE_GROUP;
        float amax, scale;

        for (uint32_t i = 0; i < RY_SCALE_GROUP; i++)
            key = max(key, ry_bf16_amax_key(in[at + i]));
        amax = ry_amax_from_key(key);
        scale = ry_scale_value(amax, j.scale_kind);
        for (uint32_t i = 0; i < RY_SCALE_GROUP; i++) {
            to[at + i] = ry_quantise_one(in[at + i], ry_scale_inverse(amax, j.scale_kind));
            plain[at + i] = ry_dequantise_one(to[at + i], scale);
        }
        if (j.scale_kind == RY_QUANT_UE8M0)
            to[j.hidden + g] = ry_scale_ue8m0(amax);
        else
            ((float *)(to + j.hidden))[g] = scale;
    }
}

/* Channel c of what expert e makes of a row. */
static __device__ uint16_t expert_channel(const uint16_t *row, uint32_t e, uint32_t c, uint32_t h)
{
    return ry_standin_channel(row[(c + ry_standin_shift(e, h)) % h], ry_standin_gain(e));
}

static __device__ uint16_t received_channel(const struct check_job *j, const uint8_t *x, uint32_t c)
{
    float scale;

    if (!j->fp8)
        return ((const uint16_t *)x)[c];
    if (j->scale_kind == RY_QUANT_UE8M0)
        scale = ry_ue8m0_to_f32(x[j->hidden + c / RY_SCALE_GROUP]);
    else
        scale = ((const float *)(x + j->hidden))[c / RY_SCALE_GROUP];
    return ry_dequantise_one(x[c], scale);
}

/* ll: the stand-in expert on what was received. A block takes an (expert, source) pair. */
static __global__ void ll_expert_kernel(struct check_job j, const uint8_t *x, uint64_t stride,
                                        const uint32_t *count, uint16_t *y)
{
    uint32_t pair = blockIdx.x;
    uint32_t e = ry_place_expert_first(&j.place, j.pe) + pair / j.place.pes;
    uint32_t shift = ry_standin_shift(e, j.hidden);
    float gain = ry_standin_gain(e);

    for (uint32_t i = blockIdx.y; i < count[pair]; i += gridDim.y) {
        uint64_t row = (uint64_t)pair * j.tokens_max + i;

        for (uint32_t c = threadIdx.x; c < j.hidden; c += blockDim.x)
            y[row * j.hidden + c] = ry_standin_channel(
                received_channel(&j, x + row * stride, (c + shift) % j.hidden), gain);
    }
}

/* ht: weighted over the experts here, in order of k, rounded once. */
static __global__ void ht_expert_kernel(struct check_job j, const uint8_t *x, uint64_t stride,
                                        const uint32_t *rows, const int32_t *ids,
                                        const float *weights, uint16_t *y)
{
    uint32_t first = ry_place_expert_first(&j.place, j.pe);

    for (uint32_t r = blockIdx.x; r < *rows; r += gridDim.x) {
        for (uint32_t c = threadIdx.x; c < j.hidden; c += blockDim.x) {
            float acc = 0;

            for (uint32_t k = 0; k < j.topk; k++) {
                int32_t id = ids[(uint64_t)r * j.topk + k];

                if (id < 0)
                    continue;
                uint32_t from = (c + ry_standin_shift(first + id, j.hidden)) % j.hidden;
                uint16_t v = ry_standin_channel(received_channel(&j, x + r * stride, from),
                                                ry_standin_gain(first + id));
                acc = ry_f32_add(acc,
                                 ry_f32_mul(weights[(uint64_t)r * j.topk + k], ry_bf16_to_f32(v)));
            }
            y[(uint64_t)r * j.hidden + c] = ry_f32_to_bf16(acc);
        }
    }
}

static __device__ int32_t choice(const struct check_job *j, const void *ids, uint32_t t, uint32_t k)
{
    return j->idx_bytes == 8 ? (int32_t)((const int64_t *)ids)[(uint64_t)t * j->topk + k]
                             : ((const int32_t *)ids)[(uint64_t)t * j->topk + k];
}

/* Adds the weighted rows of the token's experts (on PE `pe`, -1: anywhere) in order of k. */
static __device__ bool add_choices(const struct check_job *j, const uint16_t *row, const void *ids,
                                   const float *weights, uint32_t t, uint32_t c, int pe, float *sum)
{
    bool any = false;

    for (uint32_t k = 0; k < j->topk; k++) {
        int32_t e = choice(j, ids, t, k);

        if (e < 0 || (pe >= 0 && ry_place_expert_pe(&j->place, (uint32_t)e) != (uint32_t)pe))
            continue;
        any = true;
        *sum = ry_f32_add(
            *sum, ry_f32_mul(weights[(uint64_t)t * j->topk + k],
                             ry_bf16_to_f32(expert_channel(row, (uint32_t)e, c, j->hidden))));
    }
    return any;
}

/* ht: what PE `pe` sends back, rounded, onto its node's sum. */
static __device__ bool add_pe(const struct check_job *j, const uint16_t *row, const void *ids,
                              const float *weights, uint32_t t, uint32_t c, uint32_t pe, float *sum)
{
    float part = 0;
    bool any = add_choices(j, row, ids, weights, t, c, (int)pe, &part);

    if (any)
        *sum = ry_f32_add(*sum, ry_bf16_to_f32(ry_f32_to_bf16(part)));
    return any;
}

static __global__ void combine_kernel(struct check_job j, const uint16_t *decoded, const void *ids,
                                      const float *weights, const uint16_t *out, uint32_t *wrong)
{
    uint32_t t = blockIdx.x;

    for (uint32_t c = threadIdx.x; c < j.hidden; c += blockDim.x) {
        const uint16_t *row = decoded + (uint64_t)t * j.hidden;
        float acc = 0;
        uint16_t want;

        for (uint32_t d = 0; d < (j.ht ? j.place.nodes : 1); d++) {
            uint32_t first = ry_place_node_first(&j.place, d);
            float node = 0;
            bool any = false;

            for (uint32_t p = first; p < first + ry_place_node_size(&j.place, d) && j.ht; p++)
                any |= add_pe(&j, row, ids, weights, t, c, p, &node);
            if (!j.ht)
                any = add_choices(&j, row, ids, weights, t, c, -1, &node);
            if (d != ry_place_node(&j.place, j.pe) && j.ht)
                node = ry_bf16_to_f32(ry_f32_to_bf16(node));
            if (any)
                acc = ry_f32_add(acc, node);
        }
        want = ry_f32_to_bf16(acc);
        if (out[(uint64_t)t * j.hidden + c] != want)
            atomicAdd(wrong, 1);
    }
}

static __device__ void compare_row(const struct check_job *j, const uint8_t *got,
                                   const uint8_t *want, uint32_t *wrong)
{
    uint32_t bytes = j->fp8 ? j->hidden + j->hidden / RY_SCALE_GROUP * ry_scale_bytes(j->scale_kind)
                            : 2 * j->hidden;

    for (uint32_t i = threadIdx.x; i < bytes; i += blockDim.x)
        if (got[i] != want[i])
            atomicAdd(wrong, 1);
}

/* ll: rows of source s at expert e: exactly its tokens that chose e, in order. */
static __global__ void ll_dispatch_kernel(struct check_job j, const struct check_sources *from,
                                          const uint8_t *x, uint64_t stride, const uint32_t *count,
                                          const uint32_t *src_token, uint32_t *wrong)
{
    uint32_t pair = blockIdx.x, s = pair % j.place.pes, n = 0;
    int32_t e = (int32_t)(ry_place_expert_first(&j.place, j.pe) + pair / j.place.pes);

    for (uint32_t t = 0; t < from->tokens[s]; t++) {
        bool any = false;

        for (uint32_t k = 0; k < j.topk; k++)
            any |= choice(&j, from->ids[s], t, k) == e;
        if (!any)
            continue;
        if (n < count[pair]) {
            uint64_t row = (uint64_t)pair * j.tokens_max + n;

            if (threadIdx.x == 0 && src_token[row] != t)
                atomicAdd(wrong, 1);
            compare_row(&j, x + row * stride, from->rows[s] + t * j.row_bytes, wrong);
        }
        n++;
    }
    if (threadIdx.x == 0 && n != count[pair])
        atomicAdd(wrong, 1);
}

/* ht: rows by source, then token; a block takes row r = blockIdx.x, blockIdx.x + gridDim.x, ... */
static __global__ void ht_dispatch_kernel(struct check_job j, const struct check_sources *from,
                                          const uint8_t *x, uint64_t stride, const uint32_t *rows,
                                          const uint32_t *src_token, const uint32_t *row_source,
                                          const int32_t *ids, const float *weights,
                                          const uint32_t *expert_rows, uint32_t *wrong)
{
    uint32_t first = ry_place_expert_first(&j.place, j.pe), n = 0;
    uint32_t here = ry_place_expert_count(&j.place, j.pe);

    for (uint32_t s = 0; s < j.place.pes; s++) {
        for (uint32_t t = 0; t < from->tokens[s]; t++) {
            bool any = false;

            for (uint32_t k = 0; k < j.topk; k++) {
                int32_t e = choice(&j, from->ids[s], t, k);

                any |= e >= 0 && (uint32_t)e - first < here;
            }
            if (!any)
                continue;
            if (n % gridDim.x == blockIdx.x && n < *rows) {
                if (threadIdx.x == 0 && (src_token[n] != t || row_source[n] != s))
                    atomicAdd(wrong, 1);
                for (uint32_t k = threadIdx.x; k < j.topk; k += blockDim.x) {
                    uint32_t e = (uint32_t)choice(&j, from->ids[s], t, k) - first;
                    int32_t want = e < here ? (int32_t)e : -1;
                    uint64_t at = (uint64_t)n * j.topk + k;

                    if (ids[at] != want ||
                        (want >= 0 && weights[at] != from->weights[s][(uint64_t)t * j.topk + k]))
                        atomicAdd(wrong, 1);
                    if (want >= 0)
                        atomicAdd(&wrong[1 + want], 1);
                }
                compare_row(&j, x + (uint64_t)n * stride, from->rows[s] + t * j.row_bytes, wrong);
            }
            n++;
        }
    }
    if (threadIdx.x == 0 && blockIdx.x == 0 && n != *rows)
        atomicAdd(wrong, 1);
    (void)expert_rows;
}

static __global__ void histogram_kernel(uint32_t n, const uint32_t *expert_rows, uint32_t *wrong)
{
    for (uint32_t e = threadIdx.x; e < n; e += blockDim.x)
        if (expert_rows[e] != wrong[1 + e])
            atomicAdd(wrong, 1);
}

static __global__ void codec_kernel(uint32_t *wrong)
{
    const float inverses[] = {1.0f, 448.0f, 0.0078125f, 3.1415927f, 1.2e30f, 5.6e-30f};
    uint32_t v = blockIdx.x * blockDim.x + threadIdx.x; /* every bf16 */
    uint32_t bits = ry_mix64(v) & 0xffffffffu;          /* and as many f32 */
    float f = ry_f32_from_bits(bits), plain = ry_bf16_to_f32((uint16_t)v);

    for (int i = 0; i < 6; i++) {
        uint32_t two = ry_two_e4m3(__fmul_rn(plain, inverses[i]), __fmul_rn(f, inverses[i]));
        uint32_t want = ry_quantise_one((uint16_t)v, inverses[i]) |
                        (uint32_t)ry_f32_to_e4m3(ry_f32_mul(f, inverses[i])) << 8;

        if (two != want)
            atomicAdd(wrong, 1);
    }
    for (uint32_t low = 0; low < 4; low++) { /* around a rounding tie of every bf16 */
        float near = ry_f32_from_bits(v << 16 | (0x7fffu + low));

        if (ry_two_bf16(near, f) != (ry_f32_to_bf16(near) | (uint32_t)ry_f32_to_bf16(f) << 16))
            atomicAdd(wrong, 1);
    }
    uint4 eight = make_uint4(v | (bits << 16), bits, v << 16, 0);
    const uint16_t *each = (const uint16_t *)&eight;
    uint32_t key = 0;

    for (int i = 0; i < 8; i++)
        key = max(key, ry_bf16_amax_key(each[i]));
    if (ry_key_of(ry_key8(eight)) != key)
        atomicAdd(wrong, 1);
}

void check_draw(const struct check_job *j, uint16_t *x, uint32_t tokens, cudaStream_t s)
{
    if (tokens)
        draw_kernel<<<tokens, 256, 0, s>>>(*j, x);
}

void check_encode(const struct check_job *j, const uint16_t *x, uint8_t *row, uint16_t *decoded,
                  uint32_t tokens, cudaStream_t s)
{
    if (tokens)
        encode_kernel<<<tokens, 128, 0, s>>>(*j, x, row, decoded);
}

void check_experts(const struct check_job *j, const ry_ep_output *o, const uint32_t *rows,
                   uint16_t *y, cudaStream_t s)
{
    uint32_t pairs = ry_place_expert_count(&j->place, j->pe) * j->place.pes;

    if (j->ht)
        ht_expert_kernel<<<32, 256, 0, s>>>(*j, (const uint8_t *)o->x, o->x_stride, rows,
                                            o->topk_idx, o->topk_weight, y);
    else if (pairs)
        ll_expert_kernel<<<dim3(pairs, 4), 256, 0, s>>>(*j, (const uint8_t *)o->x, o->x_stride,
                                                        o->count, y);
}

void check_combine(const struct check_job *j, const uint16_t *decoded, const void *ids,
                   const float *weights, const uint16_t *out, uint32_t tokens, uint32_t *wrong,
                   cudaStream_t s)
{
    if (tokens)
        combine_kernel<<<tokens, 256, 0, s>>>(*j, decoded, ids, weights, out, wrong);
}

void check_dispatch(const struct check_job *j, const struct check_sources *from,
                    const ry_ep_output *o, const uint32_t *rows, uint32_t *wrong, cudaStream_t s)
{
    uint32_t here = ry_place_expert_count(&j->place, j->pe);

    if (j->ht) {
        ht_dispatch_kernel<<<64, 128, 0, s>>>(*j, from, (const uint8_t *)o->x, o->x_stride, rows,
                                              o->src_token, o->row_source, o->topk_idx,
                                              o->topk_weight, o->expert_rows, wrong);
        histogram_kernel<<<1, 128, 0, s>>>(here, o->expert_rows, wrong);
    } else if (here) {
        ll_dispatch_kernel<<<here * j->place.pes, 128, 0, s>>>(
            *j, from, (const uint8_t *)o->x, o->x_stride, o->count, o->src_token, wrong);
    }
}

void check_codecs(uint32_t *wrong) { codec_kernel<<<256, 256>>>(wrong); }
