/* SPDX-License-Identifier: Apache-2.0 */
/* The reference: slow, plain, and by the definitions at the head of include/railyard/reference.h.
 */
#include "ep/reference.h"

#include <stdlib.h>
#include <string.h>

#include "core/token.h"
#include "ep/quantise.h"
#include "ep/reduce.h"
#include "ep/validate.h"
#include "host/error.h"
#include "host/set.h"

static int job_check(const ry_ref_job *job)
{
    const ry_ep_attr *a = &job->attr;
    struct ry_ep_shape shape = {
        .pes = job->n_pes,
        .nodes = job->n_nodes,
        .experts = a->experts,
        .topk = a->topk,
        .hidden = a->hidden,
        .tokens_max = a->tokens_max,
        .channels = 1,
        .generations = 2,
        .fp8 = a->dtype == RY_FP8,
        .scale_kind = (int)a->scale,
    };
    int status = ry_ep_shape_check(&shape);
    for (uint32_t pe = 0; status == RY_OK && pe < job->n_pes; pe++) {
        struct ry_topk_view view = {job->topk_idx[pe], 32, job->tokens[pe], a->topk, a->topk, 1};
        status = ry_ep_topk_check(&view, a->experts, a->tokens_max);
    }
    return status;
}

static bool scratch_alloc(struct ry_ref *ref)
{
    size_t n = ref->hidden;
    ref->x = malloc(n * sizeof(*ref->x));
    ref->y = malloc(n * sizeof(*ref->y));
    ref->sum16 = malloc(n * sizeof(*ref->sum16));
    ref->pe_sum = malloc(n * sizeof(*ref->pe_sum));
    ref->node_sum = malloc(n * sizeof(*ref->node_sum));
    ref->sum = malloc(n * sizeof(*ref->sum));
    ref->row = malloc(ref->row_bytes);
    ref->scales = malloc(ref->scale_bytes + 1);
    return ref->x && ref->y && ref->sum16 && ref->pe_sum && ref->node_sum && ref->sum && ref->row &&
           ref->scales;
}

int ry_ref_create(const ry_ref_job *job, ry_ref **out)
{
    int status = job_check(job);
    if (status != RY_OK)
        return status;
    struct ry_ref *ref = calloc(1, sizeof(*ref));
    if (ref) {
        bool fp8 = job->attr.dtype == RY_FP8;
        ref->job = *job;
        ref->place = (struct ry_place){job->attr.experts, job->n_pes, job->n_nodes};
        ref->hidden = job->attr.hidden;
        ref->topk = job->attr.topk;
        ref->row_bytes = fp8 ? ref->hidden : 2 * ref->hidden;
        if (fp8)
            ref->scale_bytes = ref->hidden / RY_SCALE_GROUP * ry_scale_bytes((int)job->attr.scale);
    }
    if (!ref || !scratch_alloc(ref)) {
        ry_ref_destroy(ref);
        return ry_fail(RY_ERR_NO_MEMORY, "no memory for the reference");
    }
    *out = ref;
    return RY_OK;
}

void ry_ref_destroy(ry_ref *ref)
{
    if (!ref)
        return;
    free(ref->received);
    free(ref->scales);
    free(ref->row);
    free(ref->sum);
    free(ref->node_sum);
    free(ref->pe_sum);
    free(ref->sum16);
    free(ref->y);
    free(ref->x);
    free(ref);
}

bool ry_ref_is_active(const struct ry_ref *ref, uint32_t pe)
{
    return ry_set_within(ref->job.active, pe);
}

int32_t ry_ref_choice(const struct ry_ref *ref, uint32_t pe, uint32_t token, uint32_t k)
{
    int32_t expert = ref->job.topk_idx[pe][(size_t)token * ref->topk + k];
    if (expert < 0 || !ry_ref_is_active(ref, ry_place_expert_pe(&ref->place, (uint32_t)expert)))
        return -1;
    return expert;
}

bool ry_ref_goes_to(const struct ry_ref *ref, uint32_t pe, uint32_t token, uint32_t target)
{
    for (uint32_t k = 0; k < ref->topk; k++) {
        int32_t e = ry_ref_choice(ref, pe, token, k);
        if (e >= 0 && ry_place_expert_pe(&ref->place, (uint32_t)e) == target)
            return true;
    }
    return false;
}

bool ry_ref_chooses(const struct ry_ref *ref, uint32_t pe, uint32_t token, uint32_t expert)
{
    for (uint32_t k = 0; k < ref->topk; k++) {
        int32_t e = ry_ref_choice(ref, pe, token, k);
        if (e >= 0 && (uint32_t)e == expert)
            return true;
    }
    return false;
}

void ry_ref_received_row(ry_ref *ref, uint32_t pe, uint32_t token, void *x, void *scales)
{
    if (ref->job.attr.dtype == RY_FP8) {
        ref->job.row(ref->job.arg, pe, token, ref->x);
        ry_quantise_row(ref->x, ref->hidden, (int)ref->job.attr.scale, x, scales);
    } else {
        ref->job.row(ref->job.arg, pe, token, x);
    }
}

/* The token's row as its experts read it, into ref->x. */
static void expert_input(struct ry_ref *ref, uint32_t pe, uint32_t token)
{
    ref->job.row(ref->job.arg, pe, token, ref->x);
    if (ref->job.attr.dtype == RY_FP8) {
        int kind = (int)ref->job.attr.scale;
        ry_quantise_row(ref->x, ref->hidden, kind, ref->row, ref->scales);
        ry_dequantise_row(ref->row, ref->scales, ref->hidden, kind, ref->x);
    }
}

static void expert_apply(struct ry_ref *ref, uint32_t expert)
{
    if (ref->job.expert)
        ref->job.expert(ref->job.arg, expert, ref->x, ref->y);
    else
        ry_ref_expert(expert, (uint32_t)ref->hidden, ref->x, ref->y);
}

static void zero(const struct ry_ref *ref, float *acc)
{
    for (size_t i = 0; i < ref->hidden; i++)
        acc[i] = 0.0f;
}

/* acc += weight * expert row over the choices k of the token, in order; with target >= 0 only over
 * those whose expert lies on that PE. Returns whether there was one. */
static bool add_choices(struct ry_ref *ref, uint32_t pe, uint32_t token, int64_t target, float *acc)
{
    bool any = false;
    for (uint32_t k = 0; k < ref->topk; k++) {
        int32_t e = ry_ref_choice(ref, pe, token, k);
        if (e < 0 || (target >= 0 && ry_place_expert_pe(&ref->place, (uint32_t)e) != target))
            continue;
        any = true;
        expert_apply(ref, (uint32_t)e);
        float weight = ref->job.topk_weight[pe][(size_t)token * ref->topk + k];
        ry_reduce_add_weighted(acc, ref->y, weight, ref->hidden);
    }
    return any;
}

/* part(d): adds row(p) over the PEs of a node. Returns whether the token goes there. */
static bool node_part(struct ry_ref *ref, uint32_t pe, uint32_t token, uint32_t node)
{
    uint32_t first = ry_place_node_first(&ref->place, node);
    uint32_t size = ry_place_node_size(&ref->place, node);
    bool any = false;
    zero(ref, ref->node_sum);
    for (uint32_t p = first; p < first + size; p++) {
        zero(ref, ref->pe_sum);
        if (!add_choices(ref, pe, token, p, ref->pe_sum))
            continue;
        any = true;
        ry_f32_to_bf16_row(ref->pe_sum, ref->hidden, ref->sum16);
        ry_reduce_add_row(ref->node_sum, ref->sum16, ref->hidden);
    }
    return any;
}

static void combine_ht(struct ry_ref *ref, uint32_t pe, uint32_t token)
{
    uint32_t home = ry_place_node(&ref->place, pe);
    for (uint32_t node = 0; node < ref->place.nodes; node++) {
        if (!node_part(ref, pe, token, node))
            continue;
        if (node != home) {
            ry_f32_to_bf16_row(ref->node_sum, ref->hidden, ref->sum16);
            ry_bf16_to_f32_row(ref->sum16, ref->hidden, ref->node_sum);
        }
        ry_reduce_add_f32(ref->sum, ref->node_sum, ref->hidden);
    }
}

void ry_ref_combined_row(ry_ref *ref, uint32_t pe, uint32_t token, void *out)
{
    expert_input(ref, pe, token);
    zero(ref, ref->sum);
    if (ref->job.attr.mode == RY_EP_HT)
        combine_ht(ref, pe, token);
    else
        add_choices(ref, pe, token, -1, ref->sum);
    ry_f32_to_bf16_row(ref->sum, ref->hidden, out);
}

void ry_ref_token(uint64_t seed, uint32_t pe, uint64_t token, uint32_t hidden, void *x)
{
    uint64_t key = ry_token_key(seed, pe, token);
    for (uint32_t c = 0; c < hidden; c++)
        ((uint16_t *)x)[c] = ry_token_channel(seed, key, c);
}

void ry_ref_expert(uint32_t expert, uint32_t hidden, const void *x, void *y)
{
    uint32_t shift = ry_standin_shift(expert, hidden);
    float gain = ry_standin_gain(expert);
    const uint16_t *in = x;
    uint16_t *out = y;
    for (uint32_t c = 0; c < hidden - shift; c++)
        out[c] = ry_standin_channel(in[c + shift], gain);
    for (uint32_t c = hidden - shift; c < hidden; c++)
        out[c] = ry_standin_channel(in[c + shift - hidden], gain);
}
