/* SPDX-License-Identifier: Apache-2.0 */
/* Who has which expert, which PE is on which node, and where a row lies: arithmetic that host and
 * kernels share. Nothing here checks its arguments or can overflow for shapes that
 * ry_ep_shape_check (ep/validate.h) has accepted. */
#ifndef RY_CORE_PLACE_H
#define RY_CORE_PLACE_H

#include "core/base.h"
#include "core/numeric.h"

/* `total` things in `parts` contiguous blocks, in order; the first total % parts blocks have one
 * more. total < parts leaves the last blocks empty. Both experts over PEs and PEs over nodes. */
RY_FN uint32_t ry_block_size(uint32_t total, uint32_t parts, uint32_t part)
{
    return total / parts + (part < total % parts ? 1u : 0u);
}

RY_FN uint32_t ry_block_first(uint32_t total, uint32_t parts, uint32_t part)
{
    return part * (total / parts) + ry_min32(part, total % parts);
}

RY_FN uint32_t ry_block_of(uint32_t total, uint32_t parts, uint32_t item)
{
    uint32_t size = total / parts;
    uint32_t wide = total % parts * (size + 1u); /* items in blocks that have one more */
    return item < wide ? item / (size + 1u) : total % parts + (item - wide) / size;
}

/* Experts over PEs and PEs over nodes. PEs are numbered node by node. */
struct ry_place {
    uint32_t experts;
    uint32_t pes;
    uint32_t nodes; /* 1..pes */
};

RY_FN uint32_t ry_place_expert_pe(const struct ry_place *p, uint32_t expert)
{
    return ry_block_of(p->experts, p->pes, expert);
}

/* Index of an expert among those of its PE. */
RY_FN uint32_t ry_place_expert_local(const struct ry_place *p, uint32_t expert)
{
    return expert - ry_block_first(p->experts, p->pes, ry_place_expert_pe(p, expert));
}

RY_FN uint32_t ry_place_expert_first(const struct ry_place *p, uint32_t pe)
{
    return ry_block_first(p->experts, p->pes, pe);
}

RY_FN uint32_t ry_place_expert_count(const struct ry_place *p, uint32_t pe)
{
    return ry_block_size(p->experts, p->pes, pe);
}

/* The most experts any PE has: arrays in the symmetric heap have this size everywhere. */
RY_FN uint32_t ry_place_expert_count_max(const struct ry_place *p)
{
    return ry_block_size(p->experts, p->pes, 0);
}

RY_FN uint32_t ry_place_node(const struct ry_place *p, uint32_t pe)
{
    return ry_block_of(p->pes, p->nodes, pe);
}

RY_FN uint32_t ry_place_node_first(const struct ry_place *p, uint32_t node)
{
    return ry_block_first(p->pes, p->nodes, node);
}

RY_FN uint32_t ry_place_node_size(const struct ry_place *p, uint32_t node)
{
    return ry_block_size(p->pes, p->nodes, node);
}

/* The PE of `node` that takes tokens of `source` into that node (high-throughput): the one with the
 * same index in its node, so that PE i of every node talks to PE i only; where the node is smaller
 * the index wraps. On its own node a source needs no forwarder: it is its own. */
RY_FN uint32_t ry_place_forwarder(const struct ry_place *p, uint32_t source, uint32_t node)
{
    uint32_t home = ry_place_node(p, source);
    uint32_t index = source - ry_place_node_first(p, home);
    if (home == node)
        return source;
    return ry_place_node_first(p, node) + index % ry_place_node_size(p, node);
}

/* How many PEs of one other node can share a forwarder: ceil(greatest node / smallest node). */
RY_FN uint32_t ry_place_forward_share(const struct ry_place *p)
{
    uint32_t most = ry_place_node_size(p, 0);
    uint32_t least = ry_place_node_size(p, p->nodes - 1u);
    return (most + least - 1u) / least;
}

/* Landing places a forwarder needs, one for each source of another node. */
RY_FN uint32_t ry_place_forward_places(const struct ry_place *p)
{
    return (p->nodes - 1u) * ry_place_forward_share(p);
}

/* Which of them `source`, of another node, uses at its forwarder in `node`. No two sources of one
 * forwarder share a place. */
RY_FN uint32_t ry_place_forward_place(const struct ry_place *p, uint32_t source, uint32_t node)
{
    uint32_t home = ry_place_node(p, source);
    uint32_t index = source - ry_place_node_first(p, home);
    uint32_t other = home < node ? home : home - 1u; /* home, counted without `node` */
    return other * ry_place_forward_share(p) + index / ry_place_node_size(p, node);
}

/* A token's row as it travels: bf16, 2 * hidden bytes; or fp8, hidden codes and then the scales,
 * filled up to 16 bytes. */
RY_FN uint64_t ry_row_bytes(uint32_t hidden, int fp8, int scale_kind)
{
    uint64_t scales = (uint64_t)(hidden / RY_SCALE_GROUP) * ry_scale_bytes(scale_kind);
    if (!fp8)
        return 2u * (uint64_t)hidden;
    return hidden + ((scales + 15u) & ~(uint64_t)15u);
}

#define RY_EP_SIGNAL_BYTES 32u /* one signal: four words in one sector */
#define RY_LL_TAIL_BYTES   16u

/* The low-latency slot is a row and this tail. pair = token * topk + k names the token, and the
 * place where its combine row lands at the source. */
struct ry_ll_tail {
    uint32_t pair;
    uint32_t zero[3];
};
RY_STATIC_ASSERT(sizeof(struct ry_ll_tail) == RY_LL_TAIL_BYTES, "the tail of a slot is 16 bytes");

/* Low-latency buffers of one generation, offsets from its start; the same on every PE.
 *   slots          [local_max][pes][tokens_max] of slot_bytes   written by sources
 *   combine rows   [tokens_max][topk] bf16 rows                 written by expert PEs
 *   signals        dispatch [local_max][pes][channels], combine [pes][channels]
 *   stage          [tokens_max] rows                            read by this PE's NICs
 *   combine stage  [pes * tokens_max * min(topk, local_max)] bf16 rows, likewise */
struct ry_ll_layout {
    uint64_t row_bytes, slot_bytes, combine_row_bytes;
    uint64_t slots_at, combine_at, dispatch_signals_at, combine_signals_at, stage_at,
        combine_stage_at;
    uint64_t generation_bytes, total_bytes;
    uint32_t local_max, pes, tokens_max, topk, channels, generations;
};

RY_FN uint64_t ry_ll_slot_at(const struct ry_ll_layout *l, uint32_t local, uint32_t source,
                             uint32_t slot)
{
    uint64_t index = ((uint64_t)local * l->pes + source) * l->tokens_max + slot;
    return l->slots_at + index * l->slot_bytes;
}

RY_FN uint64_t ry_ll_combine_row_at(const struct ry_ll_layout *l, uint32_t pair)
{
    return l->combine_at + pair * l->combine_row_bytes;
}

RY_FN uint64_t ry_ll_dispatch_signal_at(const struct ry_ll_layout *l, uint32_t local,
                                        uint32_t source, uint32_t channel)
{
    uint64_t index = ((uint64_t)local * l->pes + source) * l->channels + channel;
    return l->dispatch_signals_at + index * RY_EP_SIGNAL_BYTES;
}

RY_FN uint64_t ry_ll_combine_signal_at(const struct ry_ll_layout *l, uint32_t peer,
                                       uint32_t channel)
{
    uint64_t index = (uint64_t)peer * l->channels + channel;
    return l->combine_signals_at + index * RY_EP_SIGNAL_BYTES;
}

/* The head of a high-throughput record; topk expert ids (int32, global, -1 none), topk weights
 * (f32) and the row follow, each part filled up to 16 bytes. */
struct ry_ht_head {
    uint32_t source; /* PE that owns the token */
    uint32_t token;  /* its index there */
    uint32_t zero[2];
};
#define RY_HT_HEAD_BYTES 16u
RY_STATIC_ASSERT(sizeof(struct ry_ht_head) == RY_HT_HEAD_BYTES, "the head of a record is 16 bytes");

/* High-throughput buffers of one generation, offsets from its start; the same on every PE.
 * records         [pes][tokens_max] of record_bytes       by source, written by it or its
 * forwarder forward         [forward_places][tokens_max] of record_bytes      written by sources
 * elsewhere node rows       [forward_places + 1][tokens_max][node_pes_max] bf16 rows: what the
 * PEs of this node send back, for a source elsewhere or (last) for this PE crossed rows
 * [nodes][tokens_max] bf16 rows           written by this PE's forwarders signals         records
 * [pes][channels], forward [forward_places][channels], node rows [forward_places +
 * 1][node_pes_max][channels], crossed [nodes][channels] stage           [tokens_max] records
 * read by this PE's NICs combine stage   [pes][tokens_max] bf16 rows, likewise cross stage
 * [forward_places][tokens_max] bf16 rows, likewise */
struct ry_ht_layout {
    uint64_t row_bytes, record_bytes, ids_at, weights_at, row_at, combine_row_bytes;
    uint64_t records_at, forward_at, node_rows_at, crossed_at;
    uint64_t record_signals_at, forward_signals_at, node_signals_at, crossed_signals_at;
    uint64_t stage_at, combine_stage_at, cross_stage_at;
    uint64_t generation_bytes, total_bytes;
    uint32_t pes, nodes, tokens_max, topk, channels, generations, forward_places, node_pes_max;
};

RY_FN uint64_t ry_ht_record_at(const struct ry_ht_layout *l, uint32_t source, uint32_t slot)
{
    return l->records_at + ((uint64_t)source * l->tokens_max + slot) * l->record_bytes;
}

RY_FN uint64_t ry_ht_forward_at(const struct ry_ht_layout *l, uint32_t place, uint32_t slot)
{
    return l->forward_at + ((uint64_t)place * l->tokens_max + slot) * l->record_bytes;
}

RY_FN uint64_t ry_ht_node_row_at(const struct ry_ht_layout *l, uint32_t place, uint32_t token,
                                 uint32_t pe_in_node)
{
    uint64_t index = ((uint64_t)place * l->tokens_max + token) * l->node_pes_max + pe_in_node;
    return l->node_rows_at + index * l->combine_row_bytes;
}

RY_FN uint64_t ry_ht_crossed_row_at(const struct ry_ht_layout *l, uint32_t node, uint32_t token)
{
    return l->crossed_at + ((uint64_t)node * l->tokens_max + token) * l->combine_row_bytes;
}

#endif
