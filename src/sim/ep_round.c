/* SPDX-License-Identifier: Apache-2.0 */
/* Dispatch and combine rounds: small shapes that follow from the plan's seed, every byte compared
 * with the reference, while everything else goes on. */
#include <railyard/ep.h>
#include <railyard/reference.h>
#include <stdlib.h>
#include <string.h>

#include "sim/oracle.h"

enum { EXPERTS = 6, TOPK = 2, HIDDEN = 64, TOKENS = 3, ROW_BYTES = HIDDEN * 2, CHOICES = 6 };
enum { PAIRS = TOKENS * TOPK, ROWS = EXPERTS * RY_SIM_PES * TOKENS };

/* What all PEs do in one round; each makes it for itself. */
struct round {
    uint64_t seed;
    uint32_t tokens[RY_SIM_PES];
    int32_t ids[RY_SIM_PES][PAIRS];
    float weights[RY_SIM_PES][PAIRS];
    const int32_t *ids_of[RY_SIM_PES];
    const float *weights_of[RY_SIM_PES];
    uint16_t x[TOKENS][HIDDEN], out[TOKENS][HIDDEN], y[ROWS][HIDDEN];
    ry_ref_job job;
};

static enum ry_ep_mode mode(void) { return ry_sim->plan.ht ? RY_EP_HT : RY_EP_LL; }

static ry_ep_attr attr_of(void)
{
    return (ry_ep_attr){.experts = EXPERTS,
                        .topk = TOPK,
                        .hidden = HIDDEN,
                        .tokens_max = TOKENS,
                        .mode = mode(),
                        .dtype = RY_BF16};
}

static bool ended(struct ry_sim_pe *pe, int rc, const char *what)
{
    ry_sim->running->relaxed = 0;
    if (rc && !ry_sim->failed)
        ry_sim_violate("ep: pe %u: %s failed: %s (%s)", pe->boot.pe, what, ry_status_name(rc),
                       ry_last_error());
    return rc == 0 && !ry_sim->failed;
}

bool ry_sim_ep_make(struct ry_sim_pe *pe)
{
    struct ry_sim_model *m = pe->model;
    ry_ep_attr attr = attr_of();
    ry_ep *ep = NULL;
    int rc = ry_ep_create(pe->ctx, &attr, &ep);

    if (pe->boot.incarnation && (rc == RY_ERR_LAUNCH || rc == RY_ERR_PEER_LOST)) {
        ry_sim_called_off(pe); /* one more was lost before it was in */
        return false;
    }
    m->ep = ep;
    return ended(pe, rc, "ep create");
}

void ry_sim_ep_end(struct ry_sim_pe *pe)
{
    struct ry_sim_model *m = pe->model;

    ry_ep_destroy(m->ep);
    m->ep = NULL;
}

static void row(void *arg, uint32_t pe, uint32_t token, void *x)
{
    ry_ref_token(((const struct round *)arg)->seed, pe, token, HIDDEN, x);
}

static void make(struct round *r, uint64_t seed)
{
    uint64_t rng = seed;

    r->seed = seed;
    r->job = (ry_ref_job){.attr = attr_of(),
                          .n_pes = ry_sim->plan.pes,
                          .n_nodes = ry_sim->plan.nodes,
                          .tokens = r->tokens,
                          .topk_idx = r->ids_of,
                          .topk_weight = r->weights_of,
                          .row = row,
                          .arg = r};
    for (uint32_t p = 0; p < ry_sim->plan.pes; p++) {
        r->tokens[p] = (uint32_t)ry_sim_below(&rng, TOKENS + 1);
        r->ids_of[p] = r->ids[p];
        r->weights_of[p] = r->weights[p];
        for (uint32_t i = 0; i < PAIRS; i++) {
            int32_t first = (int32_t)ry_sim_below(&rng, EXPERTS);

            r->ids[p][i] = i % TOPK ? (r->ids[p][i - 1] + 1) % EXPERTS : first;
            if (ry_sim_below(&rng, CHOICES) == 0 && i % TOPK)
                r->ids[p][i] = -1;
            r->weights[p][i] = (float)ry_sim_below(&rng, 65536) / 65536.0f;
        }
    }
}

/* What must come, if these PEs take part. The set stays the caller's. */
static ry_ref *reference(struct round *r, const uint64_t *active)
{
    ry_ref *ref = NULL;

    r->job.active = active;
    if (ry_ref_create(&r->job, &ref) && !ry_sim->failed)
        ry_sim_violate("ep: no reference: %s", ry_last_error());
    return ref;
}

/* The local experts' outputs, in the places of what came. */
static void compute(struct round *r, const ry_ep *ep, uint32_t pe, const ry_ep_output *got)
{
    uint32_t first = ry_ep_first_expert(ep, pe), local = ry_ep_local_experts(ep, pe);
    const uint8_t *x = got->x;

    if (mode() == RY_EP_LL) {
        for (uint32_t i = 0; i < local * ry_sim->plan.pes; i++)
            for (uint32_t k = 0; k < got->count[i]; k++) {
                uint32_t at = i * TOKENS + k;

                ry_ref_expert(first + i / ry_sim->plan.pes, HIDDEN, x + at * got->x_stride,
                              r->y[at]);
            }
        return;
    }
    for (uint32_t at = 0; at < got->rows; at++) {
        const int32_t *ids = &got->topk_idx[at * TOPK];
        uint16_t each[TOPK][HIDDEN];
        const void *rows[TOPK];

        for (uint32_t k = 0; k < TOPK; k++) {
            rows[k] = each[k];
            if (ids[k] >= 0)
                ry_ref_expert(first + (uint32_t)ids[k], HIDDEN, x + at * got->x_stride, each[k]);
        }
        ry_ep_local_reduce(ids, &got->topk_weight[at * TOPK], TOPK, rows, HIDDEN, r->y[at]);
    }
}

static void judge(uint32_t pe, const ry_ref_tally *t, const char *what)
{
    if (t->lost || t->duplicated || t->corrupted)
        ry_sim_violate("ep: pe %u: %s: %llu rows lost, %llu twice, %llu wrong", pe, what,
                       (unsigned long long)t->lost, (unsigned long long)t->duplicated,
                       (unsigned long long)t->corrupted);
}

static bool came(struct ry_sim_pe *pe, const ry_ep *ep, struct round *r, const ry_ep_output *got)
{
    ry_ref_tally tally = {0};
    uint64_t active = 0;
    ry_ref *ref;
    bool ok;

    ry_ep_active(ep, &active);
    ref = reference(r, &active);
    ok = ref && ended(pe, ry_ref_check_dispatch(ref, pe->boot.pe, got, &tally), "the reference");
    ry_ref_destroy(ref);
    judge(pe->boot.pe, &tally, "dispatch");
    return ok;
}

/* PEs of this run that are lost, and whose part may be missing. */
static uint64_t lost_set(void)
{
    uint64_t set = 0;

    for (uint32_t p = 0; p < ry_sim->plan.pes; p++)
        set |= ry_sim_gone(p) ? 1ull << p : 0;
    return set;
}

static bool fits(const struct round *r, ry_ref *ref, uint32_t me, uint32_t t)
{
    uint16_t want[HIDDEN];

    ry_ref_combined_row(ref, me, t, want);
    return !memcmp(r->out[t], want, ROW_BYTES);
}

/* Is it the sum of these without some of the lost? */
static bool fits_without(struct round *r, uint32_t me, uint32_t t, uint64_t active)
{
    uint64_t lost = lost_set() & active, absent = 0;
    bool same = false;

    while (!same && (absent = (absent - lost) & lost)) { /* every subset in turn */
        uint64_t set = active & ~absent;
        ry_ref *ref = reference(r, &set);

        same = !ref || fits(r, ref, me, t); /* where there is none it was told */
        ry_ref_destroy(ref);
    }
    return same;
}

/* The sums are those of all who take part, but for what the library says is missing. */
static bool summed(struct ry_sim_pe *pe, const ry_ep *ep, struct round *r)
{
    uint32_t me = pe->boot.pe, tokens = r->tokens[me];
    float missing[TOKENS] = {0};
    uint64_t active = 0;
    ry_ref *all;

    ry_ep_active(ep, &active);
    ry_ep_lost(ep, missing, tokens);
    all = reference(r, &active);
    for (uint32_t t = 0; all && t < tokens; t++) {
        if (!fits(r, all, me, t) && (missing[t] == 0 || !fits_without(r, me, t, active)))
            ry_sim_violate("ep: pe %u: combine: token %u (experts %d, %d of %llx) has a wrong sum, "
                           "weight missing: %g",
                           me, t, r->ids[me][TOPK * t], r->ids[me][TOPK * t + 1],
                           (unsigned long long)active, (double)missing[t]);
        if (missing[t] != 0 && !ry_sim_any_gone())
            ry_sim_violate("ep: pe %u: combine: weight is missing, and nobody was lost", me);
    }
    ry_ref_destroy(all);
    return !ry_sim->failed;
}

static bool exchange(struct ry_sim_pe *pe, ry_ep *ep, struct round *r)
{
    uint32_t me = pe->boot.pe;
    ry_ep_output got;
    ry_ep_input in = {.x = r->x,
                      .x_stride = ROW_BYTES,
                      .topk_idx = r->ids[me],
                      .topk_idx_stride = TOPK * sizeof(int32_t),
                      .idx_bytes = 4,
                      .topk_weight = r->weights[me],
                      .topk_weight_stride = TOPK * sizeof(float),
                      .tokens = r->tokens[me]};

    for (uint32_t t = 0; t < r->tokens[me]; t++)
        row(r, me, t, r->x[t]);
    if (!ended(pe, ry_ep_dispatch(ep, &in, &got, RY_EP_BOTH), "dispatch") || !came(pe, ep, r, &got))
        return false;
    compute(r, ep, me, &got);
    return ended(pe, ry_ep_combine(ep, r->y, ROW_BYTES, r->out, ROW_BYTES, RY_EP_BOTH),
                 "combine") &&
           summed(pe, ep, r);
}

bool ry_sim_ep_round(struct ry_sim_pe *pe)
{
    struct ry_sim_model *m = pe->model;
    struct round *r = calloc(1, sizeof(*r));
    bool ok = r != NULL;

    if (!ok)
        ry_sim_violate("no memory for a round");
    if (ok)
        make(r, ry_sim->plan.seed * 1000 + ry_ep_iterations(m->ep) + 1);
    ok = ok && exchange(pe, m->ep, r);
    free(r);
    ry_sim->ep_rounds++;
    return ok;
}
