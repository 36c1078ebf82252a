/* SPDX-License-Identifier: Apache-2.0 */
/* What a PE receives, and the fewest rows that bring it there. */
#include <stdlib.h>

#include "ep/reference.h"
#include "host/error.h"

/* --- what a PE receives --- */

/* The arrays of an output, carved from one allocation. */
struct arrays {
    uint8_t *x, *scales;
    uint32_t *count, *src_token, *row_source, *expert_rows;
    int32_t *topk_idx;
    float *topk_weight;
    size_t rows; /* room */
};

static uint8_t *carve(uint8_t *base, size_t *at, size_t bytes)
{
    uint8_t *here = base ? base + *at : NULL;
    *at += (bytes + 63) / 64 * 64;
    return here;
}

/* With base NULL only counts the bytes. */
static size_t arrays_lay(const struct ry_ref *ref, uint32_t locals, uint8_t *base, struct arrays *a)
{
    size_t at = 0;
    size_t pairs = (size_t)locals * ref->place.pes;
    a->x = carve(base, &at, a->rows * ref->row_bytes);
    a->scales = carve(base, &at, a->rows * ref->scale_bytes);
    a->count = (uint32_t *)(void *)carve(base, &at, pairs * sizeof(uint32_t));
    a->src_token = (uint32_t *)(void *)carve(base, &at, a->rows * sizeof(uint32_t));
    a->row_source = (uint32_t *)(void *)carve(base, &at, a->rows * sizeof(uint32_t));
    a->expert_rows = (uint32_t *)(void *)carve(base, &at, locals * sizeof(uint32_t));
    a->topk_idx = (int32_t *)(void *)carve(base, &at, a->rows * ref->topk * sizeof(int32_t));
    a->topk_weight = (float *)(void *)carve(base, &at, a->rows * ref->topk * sizeof(float));
    return at + 64;
}

static uint32_t fill_ll(ry_ref *ref, uint32_t pe, const struct arrays *a)
{
    uint32_t first = ry_place_expert_first(&ref->place, pe);
    uint32_t total = 0;
    for (uint32_t e = 0; e < ry_place_expert_count(&ref->place, pe); e++) {
        for (uint32_t source = 0; source < ref->place.pes; source++) {
            size_t pair = (size_t)e * ref->place.pes + source;
            size_t row = pair * ref->job.attr.tokens_max;
            for (uint32_t t = 0; t < ref->job.tokens[source]; t++) {
                if (!ry_ref_is_active(ref, source) || !ry_ref_chooses(ref, source, t, first + e))
                    continue;
                ry_ref_received_row(ref, source, t, a->x + row * ref->row_bytes,
                                    a->scales + row * ref->scale_bytes);
                a->src_token[row++] = t;
                a->count[pair]++;
                a->expert_rows[e]++;
                total++;
            }
        }
    }
    return total;
}

/* The choices of a token as PE `pe` sees them: local numbers, -1 and weight 0 for the others. */
static void local_choices(const struct ry_ref *ref, uint32_t pe, uint32_t source, uint32_t token,
                          int32_t *ids, float *weights, uint32_t *expert_rows)
{
    for (uint32_t k = 0; k < ref->topk; k++) {
        int32_t e = ry_ref_choice(ref, source, token, k);
        bool here = e >= 0 && ry_place_expert_pe(&ref->place, (uint32_t)e) == pe;
        ids[k] = here ? (int32_t)ry_place_expert_local(&ref->place, (uint32_t)e) : -1;
        weights[k] = here ? ref->job.topk_weight[source][(size_t)token * ref->topk + k] : 0.0f;
        if (here)
            expert_rows[ids[k]]++;
    }
}

static uint32_t fill_ht(ry_ref *ref, uint32_t pe, const struct arrays *a)
{
    uint32_t row = 0;
    for (uint32_t source = 0; source < ref->place.pes; source++) {
        for (uint32_t t = 0; t < ref->job.tokens[source]; t++) {
            if (!ry_ref_is_active(ref, source) || !ry_ref_goes_to(ref, source, t, pe))
                continue;
            ry_ref_received_row(ref, source, t, a->x + row * ref->row_bytes,
                                a->scales + row * ref->scale_bytes);
            local_choices(ref, pe, source, t, a->topk_idx + row * ref->topk,
                          a->topk_weight + row * ref->topk, a->expert_rows);
            a->row_source[row] = source;
            a->src_token[row++] = t;
        }
    }
    return row;
}

int ry_ref_dispatch(ry_ref *ref, uint32_t pe, ry_ep_output *out)
{
    bool ll = ref->job.attr.mode == RY_EP_LL;
    uint32_t locals = ry_place_expert_count(&ref->place, pe);
    struct arrays a = {.rows = (size_t)ref->place.pes * ref->job.attr.tokens_max};
    a.rows *= ll ? locals : 1;
    uint8_t *memory = calloc(1, arrays_lay(ref, locals, NULL, &a));
    if (!memory)
        return ry_fail(RY_ERR_NO_MEMORY, "no memory for the reference of a dispatch to pe %u", pe);
    free(ref->received);
    ref->received = memory;
    arrays_lay(ref, locals, memory, &a);
    uint32_t rows = ll ? fill_ll(ref, pe, &a) : fill_ht(ref, pe, &a);
    *out = (ry_ep_output){
        .x = a.x,
        .x_stride = ref->row_bytes,
        .scales = ref->scale_bytes ? a.scales : NULL,
        .scales_stride = ref->scale_bytes,
        .rows = rows,
        .count = ll ? a.count : NULL,
        .src_token = a.src_token,
        .row_source = ll ? NULL : a.row_source,
        .topk_idx = ll ? NULL : a.topk_idx,
        .topk_weight = ll ? NULL : a.topk_weight,
        .expert_rows = a.expert_rows,
    };
    return RY_OK;
}

/* --- the fewest rows --- */

/* low-latency: one row for each choice. */
static void count_choices(const struct ry_ref *ref, uint32_t pe, uint32_t token, ry_ref_wire *wire)
{
    uint32_t home = ry_place_node(&ref->place, pe);
    for (uint32_t k = 0; k < ref->topk; k++) {
        int32_t e = ry_ref_choice(ref, pe, token, k);
        if (e < 0)
            continue;
        uint32_t target = ry_place_expert_pe(&ref->place, (uint32_t)e);
        if (target == pe)
            wire->self_rows++;
        else if (ry_place_node(&ref->place, target) == home)
            wire->local_rows++;
        else
            wire->node_rows++;
    }
}

/* high-throughput: what `from`, the token's source or its forwarder in this node, hands on inside
 * it. Returns how many PEs of the node get the token. */
static uint32_t count_node(const struct ry_ref *ref, uint32_t source, uint32_t token, uint32_t node,
                           uint32_t from, ry_ref_wire *wire)
{
    uint32_t first = ry_place_node_first(&ref->place, node);
    uint32_t targets = 0;
    for (uint32_t p = first; p < first + ry_place_node_size(&ref->place, node); p++) {
        if (!ry_ref_goes_to(ref, source, token, p))
            continue;
        targets++;
        if (!wire)
            continue;
        if (p == from)
            wire->self_rows++;
        else
            wire->local_rows++;
    }
    return targets;
}

/* Everything that `pe` does for one token of `source` in high-throughput mode. */
static void count_ht(const struct ry_ref *ref, uint32_t pe, uint32_t source, uint32_t token,
                     ry_ref_wire *wire)
{
    uint32_t home = ry_place_node(&ref->place, pe);
    if (ry_place_forwarder(&ref->place, source, home) == pe)
        count_node(ref, source, token, home, pe, wire);
    for (uint32_t node = 0; source == pe && node < ref->place.nodes; node++) {
        if (node != home && count_node(ref, source, token, node, 0, NULL) > 0)
            wire->node_rows++;
    }
}

void ry_ref_wire_minimum(const ry_ref *ref, uint32_t pe, ry_ref_wire *out)
{
    ry_ref_wire wire = {.row_bytes = ref->row_bytes + ref->scale_bytes};
    for (uint32_t source = 0; source < ref->place.pes; source++) {
        if (!ry_ref_is_active(ref, source))
            continue;
        for (uint32_t t = 0; t < ref->job.tokens[source]; t++) {
            if (ref->job.attr.mode == RY_EP_HT)
                count_ht(ref, pe, source, t, &wire);
            else if (source == pe)
                count_choices(ref, pe, t, &wire);
        }
    }
    *out = wire;
}
