/* SPDX-License-Identifier: Apache-2.0 */
/* A small job for the tests of the reference: uneven in every respect, some tokens without experts,
 * one PE without tokens. */
#ifndef RY_TEST_EP_JOB_H
#define RY_TEST_EP_JOB_H

#include <railyard/reference.h>

#include <string.h>

#include "core/token.h"

enum { JOB_PES = 5, JOB_EXPERTS = 13, JOB_TOPK = 4, JOB_TOKENS = 9, JOB_HIDDEN = 256 };

struct job {
    ry_ref_job ref;
    uint32_t tokens[JOB_PES];
    int32_t ids[JOB_PES][JOB_TOKENS * JOB_TOPK];
    float weights[JOB_PES][JOB_TOKENS * JOB_TOPK];
    const int32_t *ids_list[JOB_PES];
    const float *weights_list[JOB_PES];
};

static inline void job_row(void *arg, uint32_t pe, uint32_t token, void *x)
{
    (void)arg;
    ry_ref_token(11, pe, token, JOB_HIDDEN, x);
}

/* Choices by hashing: distinct, and -1 one time in six. */
static inline void job_choose(int32_t *ids, float *weights, uint64_t hash)
{
    for (int k = 0; k < JOB_TOPK; k++) {
        uint64_t h = ry_mix64(hash + (uint64_t)k);
        ids[k] = h % 6 == 0 ? -1 : (int32_t)((hash + 3 * (uint64_t)k) % JOB_EXPERTS);
        weights[k] = (float)(int32_t)(h >> 40 & 0xffff) / 65536.0f;
    }
}

static inline void job_make(struct job *j, enum ry_ep_mode mode, enum ry_dtype dtype,
                            enum ry_scale scale)
{
    static const uint32_t tokens[JOB_PES] = {9, 1, 0, 7, 4};
    memset(j, 0, sizeof(*j));
    memcpy(j->tokens, tokens, sizeof(tokens));
    for (uint32_t pe = 0; pe < JOB_PES; pe++) {
        j->ids_list[pe] = j->ids[pe];
        j->weights_list[pe] = j->weights[pe];
        for (uint32_t t = 0; t < JOB_TOKENS; t++)
            job_choose(&j->ids[pe][t * JOB_TOPK], &j->weights[pe][t * JOB_TOPK],
                       ry_mix64(pe * 100 + t));
    }
    for (int k = 0; k < JOB_TOPK; k++)
        j->ids[0][2 * JOB_TOPK + k] = -1;
    j->ref = (ry_ref_job){
        .attr = {JOB_EXPERTS, JOB_TOPK, JOB_HIDDEN, JOB_TOKENS, mode, dtype, scale, 0},
        .n_pes = JOB_PES,
        .n_nodes = 2,
        .tokens = j->tokens,
        .topk_idx = j->ids_list,
        .topk_weight = j->weights_list,
        .row = job_row,
    };
}

#endif
