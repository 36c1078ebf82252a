/* SPDX-License-Identifier: Apache-2.0 */
/* Expert parallelism: dispatch tokens to the PEs of their experts, combine what the experts made.
 *
 * Placement: experts are dealt to PEs in blocks; with E experts and n PEs, PE p has E / n, and one
 * more if p < E % n. All arrays are the caller's; the library never owns a tensor. Strides are in
 * bytes.
 *
 * Dispatch and combine are collective: every PE makes the same calls in the same order. Each may be
 * split: RY_EP_SEND posts and returns, RY_EP_RECV waits for what the peers sent; both is the
 * default. A high-throughput dispatch exchanges counts first, so its send waits until every PE has
 * entered it. One combine belongs to each dispatch, in order. At most `generations` - 1 dispatches
 * may be under way without their combine. An exchange is used by the thread of its context. */
#ifndef RAILYARD_EP_H
#define RAILYARD_EP_H

#include <railyard/context.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ry_ep ry_ep;

enum ry_ep_mode { RY_EP_LL = 0, RY_EP_HT = 1 };
enum ry_dtype { RY_BF16 = 0, RY_FP8 = 1 }; /* what dispatch puts on the wire; input is bf16 */
enum ry_scale { RY_SCALE_F32 = 0, RY_SCALE_POW2 = 1, RY_SCALE_UE8M0 = 2 }; /* per 128 channels */
enum { RY_EP_BOTH = 0, RY_EP_SEND = 1, RY_EP_RECV = 2 };

typedef struct ry_ep_attr {
    uint32_t experts;    /* E, over all PEs */
    uint32_t topk;       /* K <= E */
    uint32_t hidden;     /* H; 2*H a multiple of 16 bytes; FP8: H % 128 == 0 */
    uint32_t tokens_max; /* T_max: most tokens a PE dispatches at once, >= 1 */
    enum ry_ep_mode mode;
    enum ry_dtype dtype;
    enum ry_scale scale;
    uint32_t generations; /* buffers in rotation: 0 = 2 */
} ry_ep_attr;

/* Heap bytes that ry_ep_create will take with n_pes PEs on n_nodes nodes; 0 if attr is invalid. */
RY_API size_t ry_ep_heap_bytes(const ry_ep_attr *attr, uint32_t n_pes, uint32_t n_nodes);

/* Collective. Errors: INVALID (ry_last_error names the field), NO_MEMORY (says how much is needed),
 * CONFIG (PEs differ). Freed by ry_ep_destroy, collective too, before the context: it waits for
 * what peers have not received yet, for RAILYARD_START_TIMEOUT at most; then peers go on without
 * this PE, as after any error of an exchange. */
RY_API int ry_ep_create(ry_ctx *ctx, const ry_ep_attr *attr, ry_ep **out);
RY_API void ry_ep_destroy(ry_ep *ep);

RY_API uint32_t ry_ep_local_experts(const ry_ep *ep, uint32_t pe);
RY_API uint32_t ry_ep_first_expert(const ry_ep *ep, uint32_t pe);

/* What this PE sends: T <= tokens_max tokens. Not needed any more when the send returns. */
typedef struct ry_ep_input {
    const void *x; /* [T, H] bf16 */
    size_t x_stride;
    const void *topk_idx; /* [T, K] int32 or int64; -1 = none; no expert twice in a token */
    size_t topk_idx_stride;
    int idx_bytes;            /* 4 or 8 */
    const float *topk_weight; /* [T, K] */
    size_t topk_weight_stride;
    uint32_t tokens;
} ry_ep_input;

/* What arrived: pointers into the library's buffers, valid until the combine of this dispatch
 * returns from its send.
 *
 * ll: rows stand at [local expert][source PE][slot]: row r of (expert e, source s) is number
 * (e * n_pes + s) * tokens_max + i, i < count[e * n_pes + s]; src_token[row] is the token's index
 * at its source. The (begin, count) of a pair is its base row and count.
 * ht: rows 0..rows-1, ordered by source PE, then by token; row_source[r], src_token[r]; topk_idx
 * [rows, K] holds local expert numbers (-1: not here), topk_weight [rows, K]; expert_rows[e] counts
 * rows per expert. A row whose source was lost in mid-dispatch chooses nothing, and its bytes mean
 * nothing. */
typedef struct ry_ep_output {
    const void *x; /* bf16 or fp8 rows */
    size_t x_stride;
    const void *scales; /* FP8: per row H/128 of f32 (UE8M0: one byte each); NULL with bf16 */
    size_t scales_stride;
    uint32_t rows;               /* ht: rows; ll: rows of all experts together */
    const uint32_t *count;       /* ll: [E_local, n_pes] */
    const uint32_t *src_token;   /* ll: [E_local * n_pes * tokens_max]; ht: [rows] */
    const uint32_t *row_source;  /* ht: [rows] */
    const int32_t *topk_idx;     /* ht: [rows, K] */
    const float *topk_weight;    /* ht: [rows, K] */
    const uint32_t *expert_rows; /* [E_local] */
} ry_ep_output;

/* out may be NULL when `phase` is RY_EP_SEND, in when it is RY_EP_RECV. Errors: INVALID (index out
 * of range or repeated: the text names token and place), TIMEOUT, UNREACHABLE, PEER_LOST only when
 * the loss could not be masked. */
RY_API int ry_ep_dispatch(ry_ep *ep, const ry_ep_input *in, ry_ep_output *out, int phase);

/* Combine: y holds one bf16 row per received row, in the places of dispatch's output, and stays as
 * it is until the receive returns (rows for this PE's own tokens are read there).
 * ll: the expert's row; the library weights it: out[t] = f32 sum over k in order of weight * row,
 * rounded once.
 * ht: the row already weighted over its local experts (ry_ep_local_reduce); rows add in f32 by PE
 * within a node, are rounded to bf16 where they cross nodes, then add by node. out: [T, H] bf16.
 * Tokens without any expert give zeros. */
RY_API int ry_ep_combine(ry_ep *ep, const void *y, size_t y_stride, void *out, size_t out_stride,
                         int phase);

/* ht: the weighted sum in order of k of one row's expert outputs: out[i] = round(sum_k
 * w[k]*y_k[i]), k over those with topk_idx[k] >= 0; rows[k] is the bf16 output of expert
 * topk_idx[k]. */
RY_API void ry_ep_local_reduce(const int32_t *topk_idx, const float *topk_weight, uint32_t topk,
                               const void *const *rows, uint32_t hidden, void *out);

/* Where this PE's combine can be taken from for the FP8 row r: decode one row to f32. */
RY_API void ry_ep_dequantise(const ry_ep *ep, const ry_ep_output *out, uint32_t row, float *dst);

/* Who is in the last result, bit p of mask[p / 64]: after a dispatch the PEs whose tokens it
 * brought, after a combine those whose rows are in the sums. A PE that was lost is masked by
 * agreement of all others, who finish the iteration under way: what it had sent completely counts,
 * the rest is absent. */
RY_API void ry_ep_active(const ry_ep *ep, uint64_t *mask);

/* Dispatches that were sent so far. A replacement that joined begins where the others are, and they
 * let it in before a dispatch at which nothing else is under way. */
RY_API uint64_t ry_ep_iterations(const ry_ep *ep);

/* After a combine: what it lost because a PE was lost. For each of this PE's tokens the weight that
 * is missing from its sum (0: complete); whether to scale the sum up is the caller's choice.
 * Returns how many (token, expert) pairs. */
RY_API uint32_t ry_ep_lost(const ry_ep *ep, float *weight_lost, uint32_t tokens);

/* Bytes this PE sent in the last dispatch and combine, headers and signals included: by NIC, and
 * within reach of plain stores, itself included. */
typedef struct ry_ep_traffic {
    uint64_t rail_bytes, local_bytes;
} ry_ep_traffic;
RY_API void ry_ep_last_traffic(const ry_ep *ep, ry_ep_traffic *dispatch, ry_ep_traffic *combine);

#ifdef __cplusplus
}
#endif
#endif
