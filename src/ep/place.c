/* SPDX-License-Identifier: Apache-2.0 */
#include "ep/place.h"

#include <inttypes.h>
#include <stdbool.h>

#include "host/error.h"

/* Adds buffers one after another; once a sum is beyond the limit it stays `over`. */
struct cursor {
    uint64_t at;
    bool over;
};

static uint64_t product(struct cursor *c, uint64_t a, uint64_t b)
{
    uint64_t out = 0;
    if (__builtin_mul_overflow(a, b, &out) || out > RY_EP_BYTES_MAX)
        c->over = true;
    return c->over ? 0 : out;
}

/* Room for count[0] * count[1] * count[2] things of `bytes`; returns where it starts. */
static uint64_t room(struct cursor *c, uint64_t a, uint64_t b, uint64_t d, uint64_t bytes)
{
    uint64_t at = c->at;
    uint64_t size = product(c, product(c, product(c, a, b), d), bytes);
    uint64_t end = 0;
    if (__builtin_add_overflow(at, size, &end) || end > RY_EP_BYTES_MAX)
        c->over = true;
    if (!c->over)
        c->at = (end + RY_EP_ALIGN - 1) / RY_EP_ALIGN * RY_EP_ALIGN;
    return at;
}

static int too_large(void)
{
    return ry_fail(RY_ERR_INVALID,
                   "buffers of this shape exceed the address space: lower tokens, hidden, experts "
                   "or pes");
}

static uint64_t round16(uint64_t bytes)
{
    return (bytes + 15) / 16 * 16;
}

int ry_ll_layout_make(const struct ry_ep_shape *shape, struct ry_ll_layout *layout)
{
    int status = ry_ep_shape_check(shape);
    if (status != RY_OK)
        return status;
    struct ry_place place = ry_ep_shape_place(shape);
    struct cursor c = {0, false};
    struct ry_ll_layout l = {
        .row_bytes = ry_row_bytes((uint32_t)shape->hidden, shape->fp8, shape->scale_kind),
        .combine_row_bytes = 2 * (uint64_t)shape->hidden,
        .local_max = ry_place_expert_count_max(&place),
        .pes = place.pes,
        .tokens_max = (uint32_t)shape->tokens_max,
        .topk = (uint32_t)shape->topk,
        .channels = (uint32_t)shape->channels,
        .generations = (uint32_t)shape->generations,
    };
    l.slot_bytes = l.row_bytes + RY_LL_TAIL_BYTES;
    uint64_t pairs_max = ry_min32(l.topk, l.local_max); /* of one token at one PE */
    l.slots_at = room(&c, l.local_max, l.pes, l.tokens_max, l.slot_bytes);
    l.combine_at = room(&c, l.tokens_max, l.topk, 1, l.combine_row_bytes);
    l.dispatch_signals_at = room(&c, l.local_max, l.pes, l.channels, RY_EP_SIGNAL_BYTES);
    l.combine_signals_at = room(&c, l.pes, l.channels, 1, RY_EP_SIGNAL_BYTES);
    l.stage_at = room(&c, l.tokens_max, 1, 1, l.row_bytes);
    l.combine_stage_at = room(&c, l.pes, l.tokens_max, pairs_max, l.combine_row_bytes);
    l.generation_bytes = c.at;
    l.total_bytes = product(&c, c.at, l.generations);
    if (c.over)
        return too_large();
    *layout = l;
    return RY_OK;
}

/* Where the parts of a record lie and how long it is. */
static void record_make(struct ry_ht_layout *l)
{
    uint64_t list_bytes = round16(4 * (uint64_t)l->topk);
    l->ids_at = RY_HT_HEAD_BYTES;
    l->weights_at = l->ids_at + list_bytes;
    l->row_at = l->weights_at + list_bytes;
    l->record_bytes = l->row_at + l->row_bytes;
}

static void ht_buffers_make(struct ry_ht_layout *l, struct cursor *c)
{
    uint64_t places = l->forward_places;
    l->records_at = room(c, l->pes, l->tokens_max, 1, l->record_bytes);
    l->forward_at = room(c, places, l->tokens_max, 1, l->record_bytes);
    l->node_rows_at = room(c, places + 1, l->tokens_max, l->node_pes_max, l->combine_row_bytes);
    l->crossed_at = room(c, l->nodes, l->tokens_max, 1, l->combine_row_bytes);
    l->record_signals_at = room(c, l->pes, l->channels, 1, RY_EP_SIGNAL_BYTES);
    l->forward_signals_at = room(c, places, l->channels, 1, RY_EP_SIGNAL_BYTES);
    l->node_signals_at = room(c, places + 1, l->node_pes_max, l->channels, RY_EP_SIGNAL_BYTES);
    l->crossed_signals_at = room(c, l->nodes, l->channels, 1, RY_EP_SIGNAL_BYTES);
    l->stage_at = room(c, l->tokens_max, 1, 1, l->record_bytes);
    l->combine_stage_at = room(c, l->pes, l->tokens_max, 1, l->combine_row_bytes);
    l->cross_stage_at = room(c, places, l->tokens_max, 1, l->combine_row_bytes);
    l->generation_bytes = c->at;
    l->total_bytes = product(c, c->at, l->generations);
}

int ry_ht_layout_make(const struct ry_ep_shape *shape, struct ry_ht_layout *layout)
{
    int status = ry_ep_shape_check(shape);
    if (status != RY_OK)
        return status;
    struct ry_place place = ry_ep_shape_place(shape);
    struct cursor c = {0, false};
    struct ry_ht_layout l = {
        .row_bytes = ry_row_bytes((uint32_t)shape->hidden, shape->fp8, shape->scale_kind),
        .combine_row_bytes = 2 * (uint64_t)shape->hidden,
        .pes = place.pes,
        .nodes = place.nodes,
        .tokens_max = (uint32_t)shape->tokens_max,
        .topk = (uint32_t)shape->topk,
        .channels = (uint32_t)shape->channels,
        .generations = (uint32_t)shape->generations,
        .forward_places = ry_place_forward_places(&place),
        .node_pes_max = ry_place_node_size(&place, 0),
    };
    record_make(&l);
    ht_buffers_make(&l, &c);
    if (c.over)
        return too_large();
    *layout = l;
    return RY_OK;
}

int ry_ep_heap_check(const char *what, uint64_t need, uint64_t have)
{
    if (need <= have)
        return RY_OK;
    uint64_t mib = need / (1024 * 1024) + (need % (1024 * 1024) != 0);
    return ry_fail(RY_ERR_NO_MEMORY,
                   "heap too small: %s needs %" PRIu64 " bytes (%" PRIu64 "M), %" PRIu64
                   " are free; make the heap larger or lower tokens or hidden",
                   what, need, mib, have);
}
