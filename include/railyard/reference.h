/* SPDX-License-Identifier: Apache-2.0 */
/* What dispatch and combine must give, bit for bit, computed by one process without any network:
 * for tests, for `railyard ep`, and for whoever writes another implementation.
 *
 * Definitions. f32(v) is exact, bf16(v) rounds to nearest even; every product and sum is one f32
 * operation rounded by itself (no fused multiply-add); every f32 sum starts from +0. A made NaN
 * is bf16 0x7fff. received row   bf16: the token's row, its bytes unchanged. fp8: e4m3 codes and
 * a scale for each 128 channels; an expert reads bf16(f32(code) * scale). expert row     y =
 * expert(received row), bf16. ll combine     out = bf16(sum over k ascending of weight[k] * f32(y
 * of expert topk_idx[k])). ht combine     For each PE p that has an expert of the token: row(p)
 * = bf16(sum over k ascending, expert k on p, of weight[k] * f32(y of k)). For each node d with
 * such a PE: part(d) = sum over its PEs ascending of f32(row(p)), and part(d) =
 * f32(bf16(part(d))) if d is not the node of the token's own PE. out = bf16(sum over nodes
 * ascending of part(d)). So the own node's part is never rounded by itself, whichever PEs it
 * comes from, and another node's part always is, once, even if one PE alone made it. -1 entries
 * and experts of a masked PE count as absent; a token without experts gives +0. PEs are numbered
 * node by node; PEs over nodes and experts over PEs lie in contiguous blocks, the first ones one
 * larger where they do not divide. */
#ifndef RAILYARD_REFERENCE_H
#define RAILYARD_REFERENCE_H

#include <railyard/ep.h>
#include <railyard/status.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ry_ref ry_ref;

/* One iteration of a job, all PEs of it. Pointers must stay valid as long as the ry_ref. */
typedef struct ry_ref_job {
    ry_ep_attr attr;
    uint32_t n_pes, n_nodes;
    const uint32_t *tokens;          /* [n_pes] tokens of each PE, <= attr.tokens_max */
    const int32_t *const *topk_idx;  /* [n_pes] of [tokens, topk] global expert numbers, -1 none */
    const float *const *topk_weight; /* [n_pes] of [tokens, topk] */
    const uint64_t *active;          /* bit p of active[p / 64]: PE p takes part; NULL: all do */
    /* Fills x with the `hidden` bf16 of a token. */
    void (*row)(void *arg, uint32_t pe, uint32_t token, void *x);
    /* Expert `expert`: y from x, both `hidden` bf16. NULL: ry_ref_expert. */
    void (*expert)(void *arg, uint32_t expert, const void *x, void *y);
    void *arg; /* of both */
} ry_ref_job;

/* Checks the job (INVALID, ry_last_error names what is wrong) and copies it; NO_MEMORY. One
 * thread at a time uses a ry_ref. */
RY_API int ry_ref_create(const ry_ref_job *job, ry_ref **out);
RY_API void ry_ref_destroy(ry_ref *ref); /* accepts NULL */

/* The row that a dispatch delivers of a token: hidden bf16, or hidden codes and then its scales
 * (f32, or one byte each for UE8M0) in `scales`, which bf16 leaves alone. */
RY_API void ry_ref_received_row(ry_ref *ref, uint32_t pe, uint32_t token, void *x, void *scales);

/* The row that combine gives for a token: hidden bf16. */
RY_API void ry_ref_combined_row(ry_ref *ref, uint32_t pe, uint32_t token, void *out);

/* What PE `pe` receives, in the form of ry_ep_dispatch; ll: within (expert, source) by token. The
 * arrays are the ref's, valid until its next ry_ref_dispatch or its end. Of an ll output only
 * rows that are in use are set. NO_MEMORY. */
RY_API int ry_ref_dispatch(ry_ref *ref, uint32_t pe, ry_ep_output *out);

/* Counts of a comparison; the checks add to them. */
typedef struct ry_ref_tally {
    uint64_t checked;    /* rows that had to be there */
    uint64_t lost;       /* of them not there */
    uint64_t duplicated; /* there more than once */
    uint64_t corrupted;  /* wrong bytes, scales, ids, weights, counts or order, or not expected */
} ry_ref_tally;

/* Compares what PE `pe` received with what it should have. ll: rows of one (expert, source) may
 * come in any order. ht: order, local ids and weights (where the id is not -1) are compared too.
 * NO_MEMORY. */
RY_API int ry_ref_check_dispatch(ry_ref *ref, uint32_t pe, const ry_ep_output *got,
                                 ry_ref_tally *tally);

/* Compares the combined rows of all tokens of PE `pe`: a row that differs is corrupted. */
RY_API void ry_ref_check_combine(ry_ref *ref, uint32_t pe, const void *out, size_t out_stride,
                                 ry_ref_tally *tally);

/* The fewest rows that PE `pe` must send in a dispatch, as source and as forwarder. ht: a token
 * goes to each other node once and, inside a node, to each PE once, from its source or from the
 * node's forwarder, the PE with the source's index in its node (modulo the node's size). ll: a
 * token goes to each of its experts. */
typedef struct ry_ref_wire {
    uint64_t row_bytes;  /* of one row and its scales, no headers */
    uint64_t node_rows;  /* to another node */
    uint64_t local_rows; /* to another PE of the same node */
    uint64_t self_rows;  /* that stay on this PE; no wire */
} ry_ref_wire;
RY_API void ry_ref_wire_minimum(const ry_ref *ref, uint32_t pe, ry_ref_wire *out);

/* Example tokens: `hidden` bf16 that depend on all of seed, pe and token; bell shaped with
 * outlier channels, some subnormal and some very large, never NaN or infinite. Same bits on every
 * machine. */
RY_API void ry_ref_token(uint64_t seed, uint32_t pe, uint64_t token, uint32_t hidden, void *x);

/* The stand-in expert: a rotation of the channels and a gain, both by the expert's number. */
RY_API void ry_ref_expert(uint32_t expert, uint32_t hidden, const void *x, void *y);

#ifdef __cplusplus
}
#endif
#endif
