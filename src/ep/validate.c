/* SPDX-License-Identifier: Apache-2.0 */
#include "ep/validate.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "host/error.h"

struct bound {
    const char *name;
    int64_t value, least, most;
};

static int bounds_check(const struct bound *bounds, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct bound *b = &bounds[i];
        if (b->value < b->least || b->value > b->most)
            return ry_fail(RY_ERR_INVALID, "%s is %" PRId64 ": must be %" PRId64 " to %" PRId64,
                           b->name, b->value, b->least, b->most);
    }
    return RY_OK;
}

static int hidden_check(const struct ry_ep_shape *s)
{
    if (s->fp8 && s->hidden % RY_SCALE_GROUP != 0)
        return ry_fail(RY_ERR_INVALID,
                       "hidden is %" PRId64 ": fp8 has a scale per %d channels, so it must be a "
                       "multiple of %d; choose %" PRId64 " or bf16",
                       s->hidden, RY_SCALE_GROUP, RY_SCALE_GROUP,
                       (s->hidden / RY_SCALE_GROUP + 1) * RY_SCALE_GROUP);
    if (s->hidden % 8 != 0)
        return ry_fail(RY_ERR_INVALID,
                       "hidden is %" PRId64 ": a bf16 row must be a multiple of 16 bytes; choose "
                       "%" PRId64,
                       s->hidden, (s->hidden / 8 + 1) * 8);
    if (s->fp8 && (s->scale_kind < RY_QUANT_F32 || s->scale_kind > RY_QUANT_UE8M0))
        return ry_fail(RY_ERR_INVALID, "scale kind is %d: must be f32, pow2 or ue8m0",
                       s->scale_kind);
    return RY_OK;
}

int ry_ep_shape_check(const struct ry_ep_shape *s)
{
    const struct bound bounds[] = {
        {"number of pes", s->pes, 1, RY_EP_PES_MAX},
        {"number of nodes", s->nodes, 1, RY_EP_PES_MAX},
        {"number of experts", s->experts, 1, RY_EP_EXPERTS_MAX},
        {"top-k", s->topk, 1, RY_EP_TOPK_MAX},
        {"hidden", s->hidden, 8, RY_EP_HIDDEN_MAX},
        {"greatest number of tokens", s->tokens_max, 1, RY_EP_TOKENS_MAX},
        {"number of channels", s->channels, 1, RY_EP_CHANNELS_MAX},
        {"number of buffer generations", s->generations, 2, RY_EP_GENERATIONS_MAX},
    };
    int status = bounds_check(bounds, sizeof(bounds) / sizeof(bounds[0]));
    if (status != RY_OK)
        return status;
    if (s->nodes > s->pes)
        return ry_fail(RY_ERR_INVALID,
                       "%" PRId64 " nodes for %" PRId64 " pes: a node needs a pe; use at most "
                       "%" PRId64 " nodes",
                       s->nodes, s->pes, s->pes);
    if (s->experts < s->topk)
        return ry_fail(RY_ERR_INVALID,
                       "%" PRId64 " experts for top-%" PRId64 ": a token cannot choose more experts"
                       " than there are; raise the experts or lower top-k",
                       s->experts, s->topk);
    return hidden_check(s);
}

struct ry_place ry_ep_shape_place(const struct ry_ep_shape *s)
{
    struct ry_place place = {(uint32_t)s->experts, (uint32_t)s->pes, (uint32_t)s->nodes};
    return place;
}

int64_t ry_topk_at(const struct ry_topk_view *view, int64_t token, int64_t k)
{
    int64_t index = token * view->stride_token + k * view->stride_k;
    if (view->bits == 64)
        return ((const int64_t *)view->ids)[index];
    return ((const int32_t *)view->ids)[index];
}

/* A token has few choices, so each is compared with those before it. */
static int token_check(const struct ry_topk_view *view, int64_t token, int64_t experts)
{
    for (int64_t k = 0; k < view->topk; k++) {
        int64_t id = ry_topk_at(view, token, k);
        if (id == -1)
            continue;
        if (id < 0 || id >= experts)
            return ry_fail(RY_ERR_INVALID,
                           "topk_idx of token %" PRId64 ", k %" PRId64 " is %" PRId64
                           ": must be -1 or 0 to %" PRId64,
                           token, k, id, experts - 1);
        for (int64_t j = 0; j < k; j++) {
            if (ry_topk_at(view, token, j) == id)
                return ry_fail(RY_ERR_INVALID,
                               "topk_idx of token %" PRId64 " has expert %" PRId64
                               " twice, at k %" PRId64 " and %" PRId64
                               ": a token may choose an expert once",
                               token, id, j, k);
        }
    }
    return RY_OK;
}

int ry_ep_topk_check(const struct ry_topk_view *view, int64_t experts, int64_t tokens_max)
{
    if (view->bits != 32 && view->bits != 64)
        return ry_fail(RY_ERR_INVALID, "topk_idx has %d-bit ids: must be int32 or int64",
                       view->bits);
    const struct bound bounds[] = {
        {"number of tokens", view->tokens, 0, tokens_max},
        {"top-k", view->topk, 1, RY_EP_TOPK_MAX},
    };
    int status = bounds_check(bounds, sizeof(bounds) / sizeof(bounds[0]));
    if (status == RY_OK && view->tokens > 0 && !view->ids)
        return ry_fail(RY_ERR_INVALID, "topk_idx is null with %" PRId64 " tokens: pass the ids",
                       view->tokens);
    for (int64_t t = 0; status == RY_OK && t < view->tokens; t++)
        status = token_check(view, t, experts);
    return status;
}

int ry_ep_rows_check(const char *name, const void *base, int64_t rows, int64_t row, int64_t stride,
                     int64_t element_bytes)
{
    if (rows == 0)
        return RY_OK;
    if (rows < 0 || !base)
        return ry_fail(RY_ERR_INVALID, "%s is %s with %" PRId64 " rows: pass rows", name,
                       base ? "given" : "null", rows);
    if (rows > 1 && stride < row)
        return ry_fail(RY_ERR_INVALID,
                       "%s has a row stride of %" PRId64 " elements but rows of %" PRId64
                       ": rows would overlap",
                       name, stride, row);
    if ((uintptr_t)base % 16 != 0 || (rows > 1 && stride % (16 / element_bytes) != 0))
        return ry_fail(RY_ERR_INVALID,
                       "%s is not aligned: address and row stride must be multiples of 16 bytes",
                       name);
    return RY_OK;
}
