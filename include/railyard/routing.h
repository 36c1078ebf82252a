/* SPDX-License-Identifier: Apache-2.0 */
/* Routing input: which experts each token goes to and with what weight, from a recording or from a
 * built-in gate over the project's own documents. For tests, benchmarks and the `ep` command.
 *
 * A recording is a text file of JSON lines, as routing loggers of inference servers write it: first
 *   {"type": "meta", "top_k": K, ...}
 * then one line a token
 *   {"type": "route", "topk_ids": [K ids], "topk_weights": [K numbers], ...}
 * Other keys are ignored. An id is -1 (none) or an expert; no expert twice in a token. */
#ifndef RAILYARD_ROUTING_H
#define RAILYARD_ROUTING_H

#include <railyard/status.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ry_routing ry_routing;

/* What is wanted of the source; zero means what the source says. */
typedef struct ry_routing_attr {
    uint32_t experts; /* recording: greatest id + 1 unless set; gate: 64 unless set */
    uint32_t topk;    /* recording: must agree with its meta line if set; gate: 8 unless set */
    uint64_t seed;    /* gate: another seed is another model */
} ry_routing_attr;

typedef struct ry_routing_info {
    uint32_t experts, topk;
    uint64_t tokens;    /* in one pass; then it starts again */
    const char *source; /* file name, or "built-in gate"; valid until close */
} ry_routing_info;

/* Opens the recording at path, or the built-in gate if path is NULL; attr may be NULL. A
 * recording is read through once, so that every bad line is known here: CONFIG, and
 * ry_last_error() names file, line and fault. INVALID: experts < topk. NO_MEMORY. Memory use is
 * bounded whatever the file's size: lines of at most 65536 bytes, at most 4194304 of them. The
 * caller closes *out. */
RY_API int ry_routing_open(const char *path, const ry_routing_attr *attr, ry_routing **out);

/* Accepts NULL. */
RY_API void ry_routing_close(ry_routing *routing);

RY_API void ry_routing_get_info(const ry_routing *routing, ry_routing_info *info);

/* The next `tokens` tokens in order, from the first again after the last: topk_idx and
 * topk_weight are [tokens, topk]. Weights are the source's own and need not sum to 1. CONFIG if
 * the file has changed since it was opened. One thread at a time. */
RY_API int ry_routing_next(ry_routing *routing, uint32_t tokens, int32_t *topk_idx,
                           float *topk_weight);

/* Makes token number `token` (counted from 0, modulo the tokens of a pass) the next one. */
RY_API int ry_routing_seek(ry_routing *routing, uint64_t token);

#ifdef __cplusplus
}
#endif
#endif
