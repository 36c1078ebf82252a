/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of what a caller hands to dispatch and combine. Each returns RY_OK, or a status and leaves
 * one clear lowercase line in ry_last_error(): what is wrong, why, what to do. */
#ifndef RY_EP_VALIDATE_H
#define RY_EP_VALIDATE_H

#include <railyard/status.h>

#include <stddef.h>
#include <stdint.h>

#include "core/place.h"

/* Bounds that keep every product of core/place.h within 64 bits and every index within its field.
 */
#define RY_EP_PES_MAX 65536u
#define RY_EP_EXPERTS_MAX 65536u
#define RY_EP_TOPK_MAX 1024u
#define RY_EP_HIDDEN_MAX (1u << 20)
#define RY_EP_TOKENS_MAX ((1u << 19) - 1u) /* a signal counts in 19 bits */
#define RY_EP_CHANNELS_MAX 256u
#define RY_EP_GENERATIONS_MAX 8u

/* Everything that sizes an exchange. int64_t, so that a caller's negative number is seen as one. */
struct ry_ep_shape {
    int64_t pes, nodes;
    int64_t experts, topk;
    int64_t hidden, tokens_max; /* tokens of one PE in one call */
    int64_t channels, generations;
    int fp8;        /* rows of a dispatch: 0 bf16, 1 e4m3 with scales */
    int scale_kind; /* RY_SCALE_*, where fp8 */
};

/* RY_ERR_INVALID: a number is outside its range, experts < topk, hidden not a multiple of 8 bf16 or
 * 16 fp8 (16 bytes) or, with fp8, of 128. */
int ry_ep_shape_check(const struct ry_ep_shape *shape);

/* The placement of an accepted shape. */
struct ry_place ry_ep_shape_place(const struct ry_ep_shape *shape);

/* topk_idx as the caller has it: id of (t, k) at ids + (t * stride_token + k * stride_k)
 * elements. */
struct ry_topk_view {
    const void *ids;
    int bits; /* 32 or 64 */
    int64_t tokens, topk;
    int64_t stride_token, stride_k; /* in elements */
};

/* One id, sign extended. No check. */
int64_t ry_topk_at(const struct ry_topk_view *view, int64_t token, int64_t k);

/* RY_ERR_INVALID: no ids, wrong bits, tokens outside 0..tokens_max; an id that is neither -1 nor
 * 0..experts-1, or an expert repeated in a token. The line names token and k. -1 may repeat. */
int ry_ep_topk_check(const struct ry_topk_view *view, int64_t experts, int64_t tokens_max);

/* Strides of a row-major matrix with `row` elements a row: RY_ERR_INVALID if rows would overlap
 * or the address or stride breaks 16-byte alignment (element_bytes 2 for bf16, 1 for fp8). */
int ry_ep_rows_check(const char *name, const void *base, int64_t rows, int64_t row, int64_t stride,
                     int64_t element_bytes);

#endif
