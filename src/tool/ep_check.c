/* SPDX-License-Identifier: Apache-2.0 */
/* Is what arrived what had to arrive? While all PEs live, exactly that. In the iteration in which a
 * PE dies, what it had sent counts and what it had not is absent, and the library says so; anything
 * else that is missing is lost. */
#include <stdlib.h>
#include <string.h>

#include "ep.h"

/* What the library says that it brought, it must have brought. */
int ep_check_dispatch(struct ep_pe *p, const ry_ep_output *out)
{
    ry_ref_wire wire;
    ry_ref *ref;
    if (p->ep) /* on GPUs nobody is masked: a loss is an error */
        ry_ep_active(p->ep, p->active);
    int rc = ep_data_reference(&p->data, p->active, &ref);
    if (rc != RY_OK)
        return rc;
    ry_ref_wire_minimum(ref, p->me, &wire);
    p->minimum_bytes = wire.node_rows * wire.row_bytes;
    if (p->gpu)
        p->dispatch_sent.local_bytes =
            (wire.self_rows + (p->job->gpu.p2p ? wire.local_rows : 0)) * wire.row_bytes;
    rc = ry_ref_check_dispatch(ref, p->me, out, &p->tally);
    ry_ref_destroy(ref);
    return rc == RY_OK ? ep_data_experts(&p->data, p->ep, p->me, out) : rc;
}

/* (token, expert) pairs of this PE whose expert went with a PE that is not active. */
static uint64_t masked_pairs(const struct ep_pe *p)
{
    const int32_t *idx = p->data.idx_of[p->me];
    uint64_t n = 0;
    for (uint32_t pe = 0; pe < p->n; pe++) {
        int32_t first = (int32_t)ry_ep_first_expert(p->ep, pe);
        int32_t end = first + (int32_t)ry_ep_local_experts(p->ep, pe);
        for (uint32_t i = 0; !ep_is_active(p, pe) && i < p->job->tokens * p->job->attr.topk; i++)
            n += idx[i] >= first && idx[i] < end;
    }
    return n;
}

/* Is the combined row of a token right without one of the PEs? */
static bool right_without_one(struct ep_pe *p, uint32_t token, const uint16_t *got, uint16_t *want)
{
    bool right = false;
    for (uint32_t q = 0; q < p->n && !right; q++) {
        uint64_t active[EP_MASK_WORDS];
        ry_ref *ref;
        if (q == p->me || !ep_is_active(p, q))
            continue;
        memcpy(active, p->active, sizeof active);
        active[q / 64] &= ~(1ull << (q % 64));
        if (ep_data_reference(&p->data, active, &ref) != RY_OK)
            return false;
        ry_ref_combined_row(ref, p->me, token, want);
        ry_ref_destroy(ref);
        right = memcmp(got, want, p->job->attr.hidden * sizeof *want) == 0;
    }
    return right;
}

/* A loss in mid-combine: the library names pairs that are missing. A token without any must be
 * whole; others may lack the rows of one PE, or a part of them, which only the library can tell
 * apart. */
static int compare_with_losses(struct ep_pe *p, ry_ref *ref, const float *weight_lost)
{
    size_t hidden = p->job->attr.hidden;
    uint16_t *want = malloc(hidden * sizeof *want);
    if (!want)
        return RY_ERR_NO_MEMORY;
    for (uint32_t t = 0; t < p->job->tokens; t++) {
        const uint16_t *got = p->data.out + t * hidden;
        ry_ref_combined_row(ref, p->me, t, want);
        bool whole = memcmp(got, want, hidden * sizeof *want) == 0;
        p->tally.checked++;
        if (!whole && (weight_lost[t] == 0 || !right_without_one(p, t, got, want)))
            p->tally.corrupted++;
    }
    free(want);
    return RY_OK;
}

int ep_check_combine(struct ep_pe *p)
{
    ry_ref *ref;
    float *weight_lost = calloc(p->job->tokens, sizeof *weight_lost);
    if (!weight_lost)
        return RY_ERR_NO_MEMORY;
    uint64_t missing = 0, masked = 0;
    if (p->ep) {
        ry_ep_active(p->ep, p->active);
        missing = ry_ep_lost(p->ep, weight_lost, p->job->tokens);
        masked = masked_pairs(p);
    }
    int rc = ep_data_reference(&p->data, p->active, &ref);
    if (rc == RY_OK) {
        if (missing > masked)
            rc = compare_with_losses(p, ref, weight_lost);
        else
            ry_ref_check_combine(ref, p->me, p->data.out, p->job->attr.hidden * sizeof(uint16_t),
                                 &p->tally);
        ry_ref_destroy(ref);
    }
    if (missing < masked) /* the caller was not told of all that is missing */
        p->tally.lost += masked - missing;
    p->report->masked += missing;
    for (uint32_t pe = 0; pe < p->n; pe++)
        p->apart |= !ep_is_active(p, pe);
    free(weight_lost);
    return rc;
}
