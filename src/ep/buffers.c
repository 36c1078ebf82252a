/* SPDX-License-Identifier: Apache-2.0 */
#include "ep/buffers.h"

#include <stdbool.h>

#include "ep/place.h"
#include "ep/validate.h"
#include "host/error.h"

/* Adds one part after another; a sum beyond the address space stays so. */
struct cursor {
    uint64_t at;
    bool over;
};

static uint64_t part(struct cursor *c, uint64_t a, uint64_t b, uint64_t d, uint64_t bytes)
{
    uint64_t at = c->at, size = 0, end = 0;

    if (__builtin_mul_overflow(a, b, &size) || __builtin_mul_overflow(size, d, &size) ||
        __builtin_mul_overflow(size, bytes, &size) || __builtin_add_overflow(at, size, &end) ||
        end > RY_EP_BYTES_MAX)
        c->over = true;
    else
        c->at = (end + RY_EP_ALIGN - 1) / RY_EP_ALIGN * RY_EP_ALIGN;
    return at;
}

static uint64_t round16(uint64_t bytes) { return (bytes + 15) / 16 * 16; }

static void ll_make(struct ry_ep_layout *l, struct cursor *c)
{
    uint64_t n = l->place.pes, t = l->tokens_max, sent = t * l->topk;

    l->list_rows = l->tokens_max * ry_min32(l->topk, l->local_max);
    l->head_bytes = (uint32_t)round16(4 * (1 + (uint64_t)l->local_max));
    l->rows_at = part(c, l->local_max, n, t, l->row_bytes);
    l->lists_at = part(c, n, l->list_rows, 1, 4);
    l->heads_at = part(c, n, RY_CHANNELS_MAX, 1, l->head_bytes);
    l->back_at = part(c, sent, 1, 1, l->back_bytes);
    l->stage_rows_at = part(c, sent, 1, 1, l->row_bytes);
    l->stage_lists_at = part(c, sent, 1, 1, 4);
    l->stage_heads_at = part(c, n, RY_CHANNELS_MAX, 1, l->head_bytes);
    l->stage_back_at = part(c, n, l->list_rows, 1, l->back_bytes);
}

static void ht_make(struct ry_ep_layout *l, struct cursor *c)
{
    uint64_t n = l->place.pes, t = l->tokens_max, list = round16(4 * (uint64_t)l->topk);
    uint64_t nodes = l->place.nodes;

    l->ids_at = sizeof(struct ry_ep_record);
    l->weights_at = l->ids_at + list;
    l->row_at = l->weights_at + list;
    l->record_bytes = l->row_at + l->row_bytes;
    l->counts_at = part(c, n, n, 1, 4);
    l->records_at = part(c, n, t, 1, l->record_bytes);
    l->landing_at = part(c, l->places, t, 1, l->record_bytes);
    l->parts_at = part(c, l->places + nodes, l->node_max, t, l->back_bytes);
    l->crossed_at = part(c, nodes, t, 1, l->back_bytes);
    l->marks_at = part(c, nodes, ry_ep_mark_words(l), 1, 8);
    l->stage_counts_at = part(c, n, 1, 1, 4);
    l->stage_records_at = part(c, t, 1, 1, l->record_bytes);
    l->stage_parts_at = part(c, n, t, 1, l->back_bytes);
    l->stage_crossed_at = part(c, l->places, t, 1, l->back_bytes);
    l->stage_marks_at = part(c, l->places, ry_ep_mark_words(l), 1, 8);
}

static struct ry_ep_shape shape_of(const ry_ep_attr *a, uint32_t pes, uint32_t nodes)
{
    return (struct ry_ep_shape){
        .pes = pes,
        .nodes = nodes,
        .experts = a->experts,
        .topk = a->topk,
        .hidden = a->hidden,
        .tokens_max = a->tokens_max,
        .channels = RY_CHANNELS_MAX,
        .generations = a->generations ? a->generations : 2,
        .fp8 = a->dtype == RY_FP8,
        .scale_kind = (int)a->scale,
    };
}

static int check(const ry_ep_attr *a, const struct ry_ep_shape *s)
{
    if (a->mode != RY_EP_LL && a->mode != RY_EP_HT)
        return ry_fail(RY_ERR_INVALID, "mode is %d: must be low-latency or high-throughput",
                       (int)a->mode);
    if (a->dtype != RY_BF16 && a->dtype != RY_FP8)
        return ry_fail(RY_ERR_INVALID, "dtype is %d: must be bf16 or fp8", (int)a->dtype);
    return ry_ep_shape_check(s);
}

int ry_ep_layout_make(const ry_ep_attr *attr, uint32_t pes, uint32_t nodes, struct ry_ep_layout *l)
{
    struct ry_ep_shape s = shape_of(attr, pes, nodes);
    struct cursor c = {0, false};
    int rc = check(attr, &s);

    if (rc)
        return rc;
    *l = (struct ry_ep_layout){
        .place = ry_ep_shape_place(&s),
        .topk = attr->topk,
        .hidden = attr->hidden,
        .tokens_max = attr->tokens_max,
        .generations = (uint32_t)s.generations,
        .row_bytes = ry_row_bytes(attr->hidden, s.fp8, s.scale_kind),
        .back_bytes = 2 * (uint64_t)attr->hidden,
    };
    l->local_max = ry_place_expert_count_max(&l->place);
    l->node_max = ry_place_node_size(&l->place, 0);
    l->places = ry_place_forward_places(&l->place);
    if (attr->mode == RY_EP_LL)
        ll_make(l, &c);
    else
        ht_make(l, &c);
    l->buffer_bytes = c.at;
    c.at = 0;
    l->signals_at = part(&c, (uint64_t)RY_EP_KINDS * l->generations, pes, RY_CHANNELS_MAX,
                         sizeof(struct ry_wide_sector));
    l->answers_at = part(&c, pes, RY_CHANNELS_MAX, 1, sizeof(struct ry_wide_sector));
    l->vote_bytes = round16(sizeof(struct ry_ep_vote) + (pes + 63ull) / 64 * 8 + 8ull * pes);
    l->ballots_at = part(&c, pes, sizeof(struct ry_wide_sector), 1, 1);
    l->votes_at = part(&c, 2, pes + 1ull, l->vote_bytes, 1);
    l->buffers_at = part(&c, l->generations, l->buffer_bytes, 1, 1);
    l->total_bytes = c.at;
    if (c.over)
        return ry_fail(RY_ERR_INVALID, "buffers of this shape exceed the address space: lower "
                                       "tokens, hidden, experts or pes");
    return RY_OK;
}

size_t ry_ep_heap_bytes(const ry_ep_attr *attr, uint32_t n_pes, uint32_t n_nodes)
{
    struct ry_ep_layout l;

    return ry_ep_layout_make(attr, n_pes, n_nodes, &l) == RY_OK ? l.total_bytes : 0;
}
