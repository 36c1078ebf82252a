/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of an exchange: what dispatch, combine, forwarding, answers and masks share.
 *
 * A generation is one dispatch and its combine; its number never repeats. It goes through the same
 * kinds of messages at every PE (enum ry_ep_kind); each is a stream of rows from one PE to another,
 * shared between the channels, and each channel ends it with a signal that says last and how many
 * rows it carried. The PE itself and PEs that are reached directly have no channel: rows are stored
 * straight into their heap, and channel 0's signal by a store.
 *
 * Answers: every signal also says which generations of the *other* direction are done with, so that
 * no message is sent for that alone unless a peer would wait for it (answer.c). */
#ifndef RY_EP_EP_H
#define RY_EP_EP_H

#include <railyard/heap.h>

#include "ep/buffers.h"
#include "host/ctx.h"

enum {
    RY_EP_MESSAGE_BLOCKS = 64,       /* most requests of one message, its signal included */
    RY_EP_MESSAGE_BYTES = 256 << 10, /* a longer message would look like silence on a slow rail */
};
#define RY_EP_NO_PE UINT32_MAX

/* What one channel carried of one stream: sequences of the channel. */
struct ry_ep_span {
    uint64_t from, end;
    uint32_t rows;
    bool used;
    bool
        again; /* sent once more after a loss: an answer may be older than it, only a read proves */
};

struct ry_ep_peer {
    uint64_t answer_seen; /* greatest answer that came from it, packed */
    uint64_t answer_sent;
    uint64_t answer_count;          /* messages that carried nothing else */
    uint64_t counts_gen;            /* lost, and its counts for this dispatch are another's word */
    uint64_t sent[RY_CHANNELS_MAX]; /* bytes by channel: what keeps the rails level */
    uint64_t newest[RY_CHANNELS_MAX]; /* sequence behind our newest message */
};

/* One generation, in the PE's own memory. */
struct ry_ep_gen {
    uint64_t gen;
    uint32_t tokens;
    int32_t *ids;   /* [T, K] as given */
    float *weights; /* [T, K] */
    bool *got;      /* [RY_EP_KINDS, n_pes]: the stream is complete */
    uint32_t *got_rows;

    /* ll */
    uint32_t *first;  /* [E + 1]: first row sent to each expert */
    uint32_t *row_of; /* [T, K]: row of the pair, or UINT32_MAX */
    uint32_t *base;   /* [n_pes]: number that the source gives to its first row for this PE */
    uint32_t *count;  /* [E_local, n_pes] */
    uint32_t *staged; /* [n_pes]: first row for the source in the staging buffer of combine */

    /* ht */
    uint64_t *to;      /* [T, words]: PEs that the token goes to */
    uint32_t *own;     /* [n_pes]: tokens for each PE */
    uint32_t *counts;  /* [n_pes, n_pes + 1]: rows before each source, by PE */
    uint64_t *bring;   /* [places, T, mark words]: PEs of this node that a landed token goes to */
    uint32_t *landed;  /* [places] rows */
    uint32_t *brought; /* [node_max]: rows forwarded to each PE of this node */
    bool placed;       /* the counts are known and all rows of this PE were sent */
    bool ended;        /* the streams of forwarded rows have ended */
    bool *forwarded;   /* [places] */
    bool *crossed;     /* [places] */

    uint64_t *without; /* [words]: PEs whose part is not in this PE's sums: masked, or lost since */

    /* output */
    uint32_t rows;
    uint32_t *src_token, *row_source, *expert_rows;
    int32_t *topk_idx;
    float *topk_weight;
    const uint8_t *y; /* what combine sends back */
    size_t y_stride;
};

struct ry_ep {
    ry_ctx *ctx;
    struct ry_mesh *m;
    ry_ep_attr attr;
    struct ry_ep_layout l;
    uint8_t *block;                                     /* in the heap */
    uint32_t pe, n, node, node_first, node_size, index; /* index: of this PE in its node */
    uint32_t words;                                     /* of a set of PEs */
    uint32_t channels;                                  /* most to any peer */
    uint64_t *active;                                   /* [words] */
    uint64_t *by_nic;                                   /* [words]: not reached directly */
    uint64_t *node_set;                                 /* [nodes, words] */
    uint32_t *place_source;                             /* [places]: who is forwarded there */
    int broken;                                         /* a status that ends the exchange */
    uint64_t end_ns; /* being destroyed: when waits end though all peers answer; 0 = not */

    /* generations that went through each call; the first is number 1 */
    uint64_t sent, received, returned, combined;
    /* of these, what peers may write over: answer.c */
    uint64_t forward_done, cross_done;

    /* masks */
    uint64_t *gone;     /* [words]: known to be lost */
    uint64_t *told;     /* [words]: ry_ep_active: whose part is in the last result */
    uint64_t round;     /* votes so far */
    uint32_t hint;      /* what others vote on: the number of a PE, or n: to let replacements in */
    uint64_t *join_set; /* [words]: who is let in before dispatch join_at */
    uint64_t join_at;   /* 0: no join is agreed on */
    bool settling;
    bool again;                   /* what is posted now is sent once more */
    struct ry_ep_span *vote_span; /* [2, n] */

    struct ry_ep_peer *peer; /* [n] */
    struct ry_ep_span *span; /* [RY_EP_KINDS, generations, n, channels] */
    /* [gens_kept], one more than buffers: where dispatches overlap, a forwarder may be lost when
     * the dispatch that takes its buffer is under way here and another PE still waits for the sums
     * (mask.c) */
    struct ry_ep_gen *gens;
    uint32_t gens_kept;
    uint32_t wait_for;     /* PE that a step could not go on without */
    uint8_t *scratch;      /* one row of dispatch, or a record */
    uint64_t *one;         /* [words] */
    uint32_t *rank;        /* [n + nodes]: rows counted so far */
    const uint16_t **part; /* [n + nodes]: rows that are added up, node by node */
    uint32_t *part_end;    /* [nodes] */
    struct ry_req reqs[RY_EP_MESSAGE_BLOCKS];
    ry_ep_traffic traffic[2]; /* dispatch, combine */
};

static inline struct ry_ep_gen *ry_ep_gen_of(struct ry_ep *ep, uint64_t gen)
{
    return &ep->gens[gen % ep->gens_kept];
}
static inline bool ry_ep_on(const struct ry_ep *ep, uint32_t p)
{
    return ry_set_has(ep->active, p);
}
/* Local address of what stands at `offset` of the block. */
static inline void *ry_ep_here(struct ry_ep *ep, uint64_t offset) { return ep->block + offset; }
/* The same in the heap of `p`, or NULL: only a NIC reaches it. */
static inline uint8_t *ry_ep_direct(struct ry_ep *ep, uint32_t p)
{
    const struct ry_peer *peer = &ep->m->peers[p];

    if (p == ep->pe)
        return ep->block;
    return peer->direct ? (uint8_t *)peer->heap + (ep->block - ep->m->heap) : NULL;
}
static inline uint32_t ry_ep_channels(const struct ry_ep *ep, uint32_t p)
{
    return ep->m->peers[p].direct ? 1 : ep->m->peers[p].n_channels;
}
static inline struct ry_ep_span *ry_ep_span_of(struct ry_ep *ep, uint32_t kind, uint64_t gen,
                                               uint32_t p, uint32_t channel)
{
    uint64_t i = (uint64_t)kind * ep->l.generations + gen % ep->l.generations;

    return &ep->span[(i * ep->n + p) * ep->channels + channel];
}
/* The i-th PE to serve: everybody begins at the next one, so that no PE is hit by all at once. */
static inline uint32_t ry_ep_turn(const struct ry_ep *ep, uint32_t i)
{
    return (ep->pe + 1 + i) % ep->n;
}
static inline const uint8_t *ry_ep_y(const struct ry_ep_gen *g, uint64_t row)
{
    return g->y + row * g->y_stride;
}

/* --- send.c: streams of rows to one peer --- */

/* One channel's part of a stream, while it is being posted. Offsets are from the block's start. */
struct ry_ep_stream {
    struct ry_ep *ep;
    uint32_t kind, peer, channel;
    uint64_t gen;
    uint32_t n; /* requests that wait in ep->reqs */
    uint32_t rows;
    uint64_t bytes;
    uint64_t bytes_max; /* of one message */
    int rc;
};

/* Share `rows` rows of row_bytes between the channels to p: begin[c]..begin[c + 1] are channel
 * c's. */
void ry_ep_share(struct ry_ep *ep, uint32_t p, uint32_t rows, uint64_t row_bytes, uint32_t *begin);
struct ry_ep_stream ry_ep_stream_open(struct ry_ep *ep, uint32_t kind, uint64_t gen, uint32_t p,
                                      uint32_t channel);
/* One piece, from here to there, that holds `rows` rows; pieces that adjoin become one request. */
void ry_ep_stream_write(struct ry_ep_stream *s, uint64_t to, uint64_t from, uint64_t bytes,
                        uint32_t rows);
/* Post what waits. last: the channel ends its part of the stream. */
int ry_ep_stream_close(struct ry_ep_stream *s, bool last);
/* End a stream to a peer that is reached directly. */
void ry_ep_signal_direct(struct ry_ep *ep, uint32_t kind, uint64_t gen, uint32_t p, uint32_t rows);
/* A signal that only answers. */
int ry_ep_signal_answer(struct ry_ep *ep, uint32_t p);
/* Store into a heap that is reached directly; counted. */
void ry_ep_store(struct ry_ep *ep, uint32_t kind, uint8_t *to, const void *from, uint64_t bytes);
/* A store and its signal were made in p's heap: wake it if it sleeps. */
void ry_ep_wake(struct ry_ep *ep, uint32_t p);

/* --- recv.c --- */

/* Is p's stream complete? Remembered. */
bool ry_ep_got(struct ry_ep *ep, uint32_t kind, uint64_t gen, uint32_t p);
/* A step of ry_ep_await: 1 when the streams of all active PEs are complete, else 0 and who is late.
 */
int ry_ep_all_got(struct ry_ep *ep, uint32_t kind, const struct ry_ep_gen *g);
/* Rows of it that came by one channel. */
uint32_t ry_ep_got_channel(struct ry_ep *ep, uint32_t kind, uint64_t gen, uint32_t p, uint32_t c);
/* A stream had another number of rows than was said. */
int ry_ep_wrong_rows(struct ry_ep *ep, uint32_t kind, uint32_t p, uint32_t rows, uint32_t want);
/* The exchange ends here with rc: peers are told to go on without this PE. Returns rc. */
int ry_ep_break(struct ry_ep *ep, int rc);
/* Call step until it returns 1 or an error; it leaves in ep->wait_for whom it waits for. */
int ry_ep_await(struct ry_ep *ep, int (*step)(struct ry_ep *, void *), void *arg);

/* --- answer.c --- */

/* What a signal to p says now. */
uint64_t ry_ep_answer_for(struct ry_ep *ep, uint32_t p);
void ry_ep_answer_note(struct ry_ep *ep, uint32_t p, uint64_t answer);
/* May what this PE sent in these kinds of `gen` be written over, here and there? */
bool ry_ep_reusable(struct ry_ep *ep, uint32_t kind, uint64_t gen, uint32_t p);
/* Wait until the buffer of gen, used last by gen - generations, is free for these kinds. */
int ry_ep_reuse_wait(struct ry_ep *ep, uint64_t gen, uint32_t kind_first, uint32_t kind_last);
/* The same, and begin to use it for gen. */
int ry_ep_buffer_wait(struct ry_ep *ep, uint64_t gen, uint32_t kind_first, uint32_t kind_last);
/* Send answers that no message carries. */
int ry_ep_answer_flush(struct ry_ep *ep);
/* A step of ry_ep_await, where all that was sent is combined: done with it, and nobody waits for an
 * answer that this PE still owes. What it owes as a forwarder depends on answers to come. */
int ry_ep_quiet_step(struct ry_ep *ep, void *arg);
/* Wait until nobody owes anything. */
int ry_ep_quiesce(struct ry_ep *ep);

/* --- mask.c --- */

/* Is a PE lost, or does anybody vote? Then ry_ep_settle is due. */
bool ry_ep_unsettled(struct ry_ep *ep);
/* Agree with the other survivors on who is lost, mask them, and send again what they held. */
int ry_ep_settle(struct ry_ep *ep);
/* A post was refused: RY_OK if that is because the peer is lost, which ry_ep_settle will see to. */
int ry_ep_refused(struct ry_ep *ep, uint32_t p, int rc);

/* --- join.c --- */

/* Collective: do all ask for the same? CONFIG names the difference. */
int ry_ep_agree(ry_ctx *ctx, const ry_ep_attr *attr);
/* Collective: all tell where the exchange stands; who is fresh takes it over from those who are
 * not. */
int ry_ep_meet(struct ry_ep *ep, bool fresh);
/* Are all that are lost masked, do replacements of all wait, and has nobody voted on it yet? */
bool ry_ep_join_due(const struct ry_ep *ep);
/* Before a dispatch: let in who is due. */
int ry_ep_join(struct ry_ep *ep);

/* --- modes --- */

int ry_ep_ll_dispatch_send(struct ry_ep *ep, struct ry_ep_gen *g, const ry_ep_input *in);
int ry_ep_ll_dispatch_recv(struct ry_ep *ep, struct ry_ep_gen *g, ry_ep_output *out);
int ry_ep_ll_combine_send(struct ry_ep *ep, struct ry_ep_gen *g);
int ry_ep_ll_combine_recv(struct ry_ep *ep, struct ry_ep_gen *g, void *out, size_t stride);

int ry_ep_ht_dispatch_send(struct ry_ep *ep, struct ry_ep_gen *g, const ry_ep_input *in);
int ry_ep_ht_dispatch_recv(struct ry_ep *ep, struct ry_ep_gen *g, ry_ep_output *out);
int ry_ep_ht_combine_send(struct ry_ep *ep, struct ry_ep_gen *g);
int ry_ep_ht_combine_recv(struct ry_ep *ep, struct ry_ep_gen *g, void *out, size_t stride);

/* ht_dispatch.c: the tokens of this PE whose PEs meet `mask`, from the staging buffer to
 * consecutive records at p; rows of them. */
int ry_ep_ht_send_tokens(struct ry_ep *ep, struct ry_ep_gen *g, uint32_t kind, uint32_t p,
                         const uint64_t *mask, uint64_t to, uint32_t rows);
/* Rows of `source` at PE p: how many stand before them, how many they are. */
static inline uint32_t ry_ep_ht_before(const struct ry_ep *ep, const struct ry_ep_gen *g,
                                       uint32_t p, uint32_t source)
{
    return g->counts[(size_t)p * (ep->n + 1) + source];
}
static inline uint32_t ry_ep_ht_count(const struct ry_ep *ep, const struct ry_ep_gen *g, uint32_t p,
                                      uint32_t source)
{
    return ry_ep_ht_before(ep, g, p, source + 1) - ry_ep_ht_before(ep, g, p, source);
}
static inline uint64_t *ry_ep_ht_bring(const struct ry_ep *ep, const struct ry_ep_gen *g,
                                       uint32_t place, uint32_t row)
{
    uint64_t i = (uint64_t)place * ep->l.tokens_max + row;

    return &g->bring[i * ry_ep_mark_words(&ep->l)];
}
/* The forwarder of `source` in another node. */
static inline uint32_t ry_ep_ht_forwarder(const struct ry_ep *ep, uint32_t source, uint32_t node)
{
    return ry_place_forwarder(&ep->l.place, source, node);
}
/* PE by which tokens of `source` enter and leave `node`: the forwarder there; where that was lost,
 * the source itself sends to the PEs of the node and adds up what they give back. */
static inline uint32_t ry_ep_ht_ferry(const struct ry_ep *ep, uint32_t source, uint32_t node)
{
    uint32_t p = ry_ep_ht_forwarder(ep, source, node);

    return ry_ep_on(ep, p) ? p : source;
}
/* Where `source` takes parts from PEs of a node whose forwarder was lost: a place of its own for
 * each other node, because rows of the lost one's tokens may still be under way to the others. */
static inline uint32_t ry_ep_ht_spare(const struct ry_ep *ep, uint32_t source, uint32_t node)
{
    uint32_t home = ry_place_node(&ep->l.place, source);

    return ep->l.places + 1 + (node < home ? node : node - 1);
}
/* Does p, of this node, forward rows of anybody? Then all PEs of the node hear from it. */
bool ry_ep_ht_forwards(const struct ry_ep *ep, uint32_t p);
/* After a loss: tokens of this PE again, without the forwarder; rows given back again. */
int ry_ep_ht_resend_tokens(struct ry_ep *ep, struct ry_ep_gen *g, uint32_t node);
int ry_ep_ht_resend_rows(struct ry_ep *ep, struct ry_ep_gen *g, uint32_t lost);

/* ht_forward.c: rows of other nodes on their way to PEs of this one, and their sums back. 1: all
 * done; 0: ep->wait_for has not sent all. */
int ry_ep_ht_forward(struct ry_ep *ep, struct ry_ep_gen *g);
int ry_ep_ht_cross(struct ry_ep *ep, struct ry_ep_gen *g);

/* ht_combine.c: the row that the PE of this node with index d gave back for `row` of a place (the
 * last place: this PE's own tokens). */
const uint16_t *ry_ep_ht_part(struct ry_ep *ep, const struct ry_ep_gen *g, uint32_t place,
                              uint32_t d, uint32_t row);

#endif
