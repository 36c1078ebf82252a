/* SPDX-License-Identifier: Apache-2.0 */
/* Where an exchange keeps what in the symmetric heap: one block, the same on every PE, so that an
 * offset names a place at any of them.
 *
 * First the signals of all generations and the votes on a loss, then `generations` buffers. Inside
 * a buffer, by who writes:
 *
 *   low-latency
 *     rows        [local expert][source][slot]   sources
 *     lists       [source][row]: token numbers, in order of expert and slot   sources
 *     heads       [source][channel]: first row, then rows per local expert    sources
 *     back        [T_max * K] rows that combine sends back, in the order in which they were sent:
 *                 by expert, then token   PEs of the experts
 *     stage_*     what this PE's NICs read: the same, before it is sent
 *   high-throughput
 *     counts      [source][PE]: tokens of source for that PE   sources
 *     records     [row], dense: rows by source, then token; sources and forwarders
 *     landing     [place][row]: tokens that this PE forwards   sources of other nodes
 *     parts       [place, this PE, other node][PE of a node][row]: what combine adds up, as far as
 *                 it came by NIC; direct peers are read in their stage_parts. Other node: where its
 *                 forwarder was lost
 *     crossed     [node][row]: what forwarders have added up
 *     marks       [node]: which PEs of that node are in it
 *     stage_*     as above
 *
 * A record is a head, K expert ids, K weights and the row, each filled up to 16 bytes. */
#ifndef RY_EP_BUFFERS_H
#define RY_EP_BUFFERS_H

#include <railyard/ep.h>

#include "core/layout.h"
#include "core/place.h"
#include "core/route.h"

/* What a signal speaks of. The order is that of a generation. */
enum ry_ep_kind {
    RY_EP_COUNTS,   /* ht: how many tokens go where */
    RY_EP_DISPATCH, /* rows to their PE, or to the forwarder of its node */
    RY_EP_FORWARD,  /* ht: rows from a forwarder */
    RY_EP_COMBINE,  /* rows back to their PE, or to the forwarder */
    RY_EP_CROSS,    /* ht: a node's sums from its forwarder */
    RY_EP_KINDS,
};

struct ry_ep_layout {
    struct ry_place place;
    uint32_t topk, hidden, tokens_max, generations;
    uint32_t local_max; /* most experts of a PE */
    uint32_t node_max;  /* most PEs of a node */
    uint32_t places;    /* sources that one PE may forward for */
    uint32_t list_rows; /* most rows from one source */
    uint32_t head_bytes;
    uint64_t row_bytes;                                /* of dispatch */
    uint64_t back_bytes;                               /* of combine: bf16 */
    uint64_t record_bytes, ids_at, weights_at, row_at; /* in a record */

    uint64_t signals_at, answers_at, ballots_at, votes_at, buffers_at, buffer_bytes, total_bytes;
    uint64_t vote_bytes;
    /* from the start of a buffer */
    uint64_t rows_at, lists_at, heads_at, back_at;
    uint64_t stage_rows_at, stage_lists_at, stage_heads_at, stage_back_at;
    uint64_t counts_at, records_at, landing_at, parts_at, crossed_at, marks_at;
    uint64_t stage_counts_at, stage_records_at, stage_parts_at, stage_crossed_at, stage_marks_at;
};

struct ry_ep_record {
    uint32_t source, token;
    uint32_t zero[2];
};
RY_STATIC_ASSERT(sizeof(struct ry_ep_record) == 16, "the head of a record is 16 bytes");

/* What a PE knows of a lost one. Behind it: set of all PEs known to be lost, then two vectors of
 * counts, those that the lost PE sent for generations gen - 1 and gen. */
struct ry_ep_vote {
    uint64_t round, gen;
    uint32_t target;
    uint32_t has[2];
    uint32_t zero;
};
RY_STATIC_ASSERT(sizeof(struct ry_ep_vote) == 32, "the head of a vote");

/* INVALID with a line, or what an exchange of this shape takes. */
int ry_ep_layout_make(const ry_ep_attr *attr, uint32_t pes, uint32_t nodes, struct ry_ep_layout *l);

static inline uint64_t ry_ep_buffer_at(const struct ry_ep_layout *l, uint64_t gen)
{
    return l->buffers_at + gen % l->generations * l->buffer_bytes;
}

/* Sector that `source` writes at its peer. */
static inline uint64_t ry_ep_signal_at(const struct ry_ep_layout *l, uint32_t kind, uint64_t gen,
                                       uint32_t source, uint32_t channel)
{
    uint64_t i = (uint64_t)kind * l->generations + gen % l->generations;

    i = (i * l->place.pes + source) * RY_CHANNELS_MAX + channel;
    return l->signals_at + i * sizeof(struct ry_wide_sector);
}
static inline uint64_t ry_ep_answer_at(const struct ry_ep_layout *l, uint32_t source,
                                       uint32_t channel)
{
    uint64_t i = (uint64_t)source * RY_CHANNELS_MAX + channel;

    return l->answers_at + i * sizeof(struct ry_wide_sector);
}

/* mask.c: signal of a vote (its value is the round), and the vote of a PE in a round; the last is
 * where this PE's own is sent from. */
static inline uint64_t ry_ep_ballot_at(const struct ry_ep_layout *l, uint32_t source)
{
    return l->ballots_at + (uint64_t)source * sizeof(struct ry_wide_sector);
}
static inline uint64_t ry_ep_vote_at(const struct ry_ep_layout *l, uint64_t round, uint32_t source)
{
    return l->votes_at + (round % 2 * (l->place.pes + 1u) + source) * l->vote_bytes;
}

/* Places inside the buffer of a generation, from the start of the block. */
static inline uint64_t ry_ep_row_at(const struct ry_ep_layout *l, uint64_t gen, uint32_t local,
                                    uint32_t source, uint32_t slot)
{
    uint64_t i = ((uint64_t)local * l->place.pes + source) * l->tokens_max + slot;

    return ry_ep_buffer_at(l, gen) + l->rows_at + i * l->row_bytes;
}
static inline uint64_t ry_ep_list_at(const struct ry_ep_layout *l, uint64_t gen, uint32_t source,
                                     uint64_t row)
{
    return ry_ep_buffer_at(l, gen) + l->lists_at + ((uint64_t)source * l->list_rows + row) * 4;
}
static inline uint64_t ry_ep_head_at(const struct ry_ep_layout *l, uint64_t gen, uint32_t source,
                                     uint32_t channel)
{
    uint64_t i = (uint64_t)source * RY_CHANNELS_MAX + channel;

    return ry_ep_buffer_at(l, gen) + l->heads_at + i * l->head_bytes;
}
static inline uint64_t ry_ep_back_at(const struct ry_ep_layout *l, uint64_t gen, uint64_t row)
{
    return ry_ep_buffer_at(l, gen) + l->back_at + row * l->back_bytes;
}
static inline uint64_t ry_ep_counts_at(const struct ry_ep_layout *l, uint64_t gen, uint32_t source)
{
    return ry_ep_buffer_at(l, gen) + l->counts_at + (uint64_t)source * l->place.pes * 4;
}
static inline uint64_t ry_ep_record_at(const struct ry_ep_layout *l, uint64_t gen, uint64_t row)
{
    return ry_ep_buffer_at(l, gen) + l->records_at + row * l->record_bytes;
}
static inline uint64_t ry_ep_landing_at(const struct ry_ep_layout *l, uint64_t gen, uint32_t place,
                                        uint64_t row)
{
    uint64_t i = (uint64_t)place * l->tokens_max + row;

    return ry_ep_buffer_at(l, gen) + l->landing_at + i * l->record_bytes;
}
static inline uint64_t ry_ep_part_at(const struct ry_ep_layout *l, uint64_t gen, uint32_t place,
                                     uint32_t pe_in_node, uint64_t row)
{
    uint64_t i = ((uint64_t)place * l->node_max + pe_in_node) * l->tokens_max + row;

    return ry_ep_buffer_at(l, gen) + l->parts_at + i * l->back_bytes;
}
static inline uint64_t ry_ep_crossed_at(const struct ry_ep_layout *l, uint64_t gen, uint32_t node,
                                        uint64_t row)
{
    uint64_t i = (uint64_t)node * l->tokens_max + row;

    return ry_ep_buffer_at(l, gen) + l->crossed_at + i * l->back_bytes;
}
static inline uint32_t ry_ep_mark_words(const struct ry_ep_layout *l)
{
    return (l->node_max + 63) / 64;
}
static inline uint64_t ry_ep_marks_at(const struct ry_ep_layout *l, uint64_t gen, uint32_t node)
{
    return ry_ep_buffer_at(l, gen) + l->marks_at + (uint64_t)node * ry_ep_mark_words(l) * 8;
}

#endif
