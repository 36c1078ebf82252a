/* SPDX-License-Identifier: Apache-2.0 */
/* High-throughput dispatch: a token goes to each PE of its own node once, and to each other node
 * once, to the forwarder there.
 *
 * First every PE tells every other how many of its tokens are for each PE of that node. With that,
 * whoever writes a row, source or forwarder, knows its place among all rows of the receiver: rows
 * arrive dense and in order, and nothing is moved afterwards. */
#include <string.h>

#include "ep/ep.h"
#include "ep/quantise.h"

static bool meets(const struct ry_ep *ep, const uint64_t *a, const uint64_t *b)
{
    uint64_t any = 0;

    for (uint32_t i = 0; i < ep->words; i++)
        any |= a[i] & b[i];
    return any != 0;
}

static uint64_t *to_of(const struct ry_ep *ep, const struct ry_ep_gen *g, uint32_t t)
{
    return &g->to[(size_t)t * ep->words];
}
static uint64_t stage_at(const struct ry_ep *ep, uint64_t gen, uint32_t t)
{
    return ry_ep_buffer_at(&ep->l, gen) + ep->l.stage_records_at + t * ep->l.record_bytes;
}
static const uint64_t *node_set(const struct ry_ep *ep, uint32_t node)
{
    return &ep->node_set[(size_t)node * ep->words];
}

/* Which PEs each token goes to. */
static void choose(struct ry_ep *ep, struct ry_ep_gen *g)
{
    memset(g->to, 0, (size_t)g->tokens * ep->words * sizeof(*g->to));
    memset(g->own, 0, ep->n * sizeof(*g->own));
    for (uint32_t t = 0; t < g->tokens; t++) {
        uint64_t *to = to_of(ep, g, t);

        for (uint32_t k = 0; k < ep->l.topk; k++) {
            int32_t e = g->ids[t * ep->l.topk + k];
            uint32_t p;

            if (e < 0)
                continue;
            p = ry_place_expert_pe(&ep->l.place, (uint32_t)e);
            g->own[p] += !ry_set_has(to, p);
            ry_set_add(to, p);
        }
    }
}

/* --- counts --- */

static int counts_send(struct ry_ep *ep, struct ry_ep_gen *g, uint32_t p)
{
    uint64_t at = ry_ep_counts_at(&ep->l, g->gen, ep->pe), sent[RY_CHANNELS_MAX];
    uint64_t stage = ry_ep_buffer_at(&ep->l, g->gen) + ep->l.stage_counts_at, bytes = ep->n * 4ull;
    uint8_t *direct = ry_ep_direct(ep, p);
    struct ry_ep_stream s;
    uint32_t channel;

    if (direct) {
        ry_ep_store(ep, RY_EP_COUNTS, direct + at, g->own, bytes);
        ry_ep_signal_direct(ep, RY_EP_COUNTS, g->gen, p, 0);
        return RY_OK;
    }
    memcpy(sent, ep->peer[p].sent, sizeof(sent));
    channel = ry_route_pick(ep->m->peers[p].weights, sent, ry_ep_channels(ep, p), bytes);
    s = ry_ep_stream_open(ep, RY_EP_COUNTS, g->gen, p, channel);
    ry_ep_stream_write(&s, at, stage, bytes, 0);
    return ry_ep_stream_close(&s, true);
}

static int counts_step(struct ry_ep *ep, void *arg)
{
    return ry_ep_all_got(ep, RY_EP_COUNTS, (const struct ry_ep_gen *)arg);
}

/* Rows before each source, at each PE. No source may claim more than it can have. */
static int counts_sum(struct ry_ep *ep, struct ry_ep_gen *g)
{
    for (uint32_t d = 0; d < ep->n; d++) {
        uint32_t *sum = &g->counts[(size_t)d * (ep->n + 1)];

        sum[0] = 0;
        for (uint32_t p = 0; p < ep->n; p++) {
            const uint32_t *in = ry_ep_here(ep, ry_ep_counts_at(&ep->l, g->gen, p));
            bool told = p == ep->pe || g->got[RY_EP_COUNTS * ep->n + p];
            uint32_t count = told ? in[d] : 0;

            if (count > ep->l.tokens_max)
                return ry_ep_wrong_rows(ep, RY_EP_COUNTS, p, count, ep->l.tokens_max);
            sum[p + 1] = sum[p] + count;
        }
    }
    return RY_OK;
}

/* --- records --- */

/* All of a record but its row. */
static void head_make(struct ry_ep *ep, const struct ry_ep_gen *g, uint32_t t, uint8_t *record)
{
    const struct ry_ep_record head = {.source = ep->pe, .token = t};
    uint32_t k = ep->l.topk;

    memset(record, 0, ep->l.row_at);
    memcpy(record, &head, sizeof(head));
    memcpy(record + ep->l.ids_at, &g->ids[t * k], k * sizeof(*g->ids));
    memcpy(record + ep->l.weights_at, &g->weights[t * k], k * sizeof(*g->weights));
}

static void row_make(struct ry_ep *ep, const ry_ep_input *in, uint32_t t, uint8_t *row)
{
    const void *x = (const uint8_t *)in->x + t * in->x_stride;

    if (ep->attr.dtype == RY_FP8)
        ry_quantise_row(x, ep->l.hidden, (int)ep->attr.scale, row, row + ep->l.hidden);
    else
        memcpy(row, x, ep->l.row_bytes);
}

/* Tokens that a NIC reads. */
static void stage(struct ry_ep *ep, struct ry_ep_gen *g, const ry_ep_input *in)
{
    for (uint32_t t = 0; t < g->tokens; t++) {
        uint8_t *record = ry_ep_here(ep, stage_at(ep, g->gen, t));

        if (!meets(ep, to_of(ep, g, t), ep->by_nic))
            continue;
        head_make(ep, g, t, record);
        row_make(ep, in, t, record + ep->l.row_at);
    }
}

/* Long: one walk over tokens and channels together. */
int ry_ep_ht_send_tokens(struct ry_ep *ep, struct ry_ep_gen *g, uint32_t kind, uint32_t p,
                         const uint64_t *mask, uint64_t to, uint32_t rows)
{
    uint32_t begin[RY_CHANNELS_MAX + 1], t = 0, row = 0;
    int rc = RY_OK;

    ry_ep_share(ep, p, rows, ep->l.record_bytes, begin);
    for (uint32_t c = 0; c < ry_ep_channels(ep, p) && rc == RY_OK; c++) {
        struct ry_ep_stream s = ry_ep_stream_open(ep, kind, g->gen, p, c);

        for (; row < begin[c + 1]; t++) {
            if (!meets(ep, to_of(ep, g, t), mask))
                continue;
            ry_ep_stream_write(&s, to + row * ep->l.record_bytes, stage_at(ep, g->gen, t),
                               ep->l.record_bytes, 1);
            row++;
        }
        rc = ry_ep_stream_close(&s, true);
    }
    return rc;
}

static uint32_t tokens_for(const struct ry_ep *ep, const struct ry_ep_gen *g, const uint64_t *mask)
{
    uint32_t rows = 0;

    for (uint32_t t = 0; t < g->tokens; t++)
        rows += meets(ep, to_of(ep, g, t), mask);
    return rows;
}

/* To the forwarders of other nodes. */
static int far_send(struct ry_ep *ep, struct ry_ep_gen *g)
{
    const struct ry_place *pl = &ep->l.place;
    int rc = RY_OK;

    for (uint32_t i = 1; i < pl->nodes && rc == RY_OK; i++) {
        uint32_t node = (ep->node + i) % pl->nodes;
        uint32_t p = ry_ep_ht_ferry(ep, ep->pe, node);
        uint32_t place = ry_place_forward_place(pl, ep->pe, node);
        const uint64_t *set = node_set(ep, node);

        if (p == ep->pe)
            continue;
        rc = ry_ep_ht_send_tokens(ep, g, RY_EP_DISPATCH, p, set,
                                  ry_ep_landing_at(&ep->l, g->gen, place, 0),
                                  tokens_for(ep, g, set));
    }
    return rc;
}

/* To PEs of this node that are reached directly, itself among them: straight into their place. */
static void near_store(struct ry_ep *ep, struct ry_ep_gen *g, const ry_ep_input *in)
{
    memset(ep->rank, 0, ep->node_size * sizeof(*ep->rank));
    for (uint32_t t = 0; t < g->tokens; t++) {
        const uint64_t *to = to_of(ep, g, t);
        bool staged = meets(ep, to, ep->by_nic), made = false;
        const uint8_t *head = ep->scratch, *row = ep->scratch + ep->l.row_at;

        if (staged) {
            head = ry_ep_here(ep, stage_at(ep, g->gen, t));
            row = head + ep->l.row_at;
        } else if (ep->attr.dtype == RY_BF16) {
            row = (const uint8_t *)in->x + t * in->x_stride;
        }
        for (uint32_t d = 0; d < ep->node_size; d++) {
            uint32_t p = ep->node_first + d;
            uint8_t *record = ry_ep_direct(ep, p);

            if (!record || !ry_set_has(to, p))
                continue;
            if (!staged && !made) {
                head_make(ep, g, t, ep->scratch);
                if (ep->attr.dtype == RY_FP8)
                    row_make(ep, in, t, ep->scratch + ep->l.row_at);
                made = true;
            }
            record +=
                ry_ep_record_at(&ep->l, g->gen, ry_ep_ht_before(ep, g, p, ep->pe) + ep->rank[d]++);
            ry_ep_store(ep, RY_EP_DISPATCH, record, head, ep->l.row_at);
            ry_ep_store(ep, RY_EP_DISPATCH, record + ep->l.row_at, row, ep->l.row_bytes);
        }
    }
}

/* By NIC to one PE that has experts: its own rows among all of its rows. */
static int send_to(struct ry_ep *ep, struct ry_ep_gen *g, uint32_t kind, uint32_t p)
{
    memset(ep->one, 0, ep->words * sizeof(*ep->one));
    ry_set_add(ep->one, p);
    return ry_ep_ht_send_tokens(ep, g, kind, p, ep->one,
                                ry_ep_record_at(&ep->l, g->gen, ry_ep_ht_before(ep, g, p, ep->pe)),
                                g->own[p]);
}

static int near_send(struct ry_ep *ep, struct ry_ep_gen *g)
{
    int rc = RY_OK;

    for (uint32_t i = 1; i < ep->node_size && rc == RY_OK; i++) {
        uint32_t p = ep->node_first + (ep->index + i) % ep->node_size;

        if (!ry_ep_on(ep, p))
            continue;
        if (ry_ep_direct(ep, p))
            ry_ep_signal_direct(ep, RY_EP_DISPATCH, g->gen, p, g->own[p]);
        else
            rc = send_to(ep, g, RY_EP_DISPATCH, p);
    }
    return rc;
}

int ry_ep_ht_resend_tokens(struct ry_ep *ep, struct ry_ep_gen *g, uint32_t node)
{
    uint32_t first = ry_place_node_first(&ep->l.place, node);
    int rc = RY_OK;

    for (uint32_t d = 0; d < ry_place_node_size(&ep->l.place, node) && rc == RY_OK; d++)
        if (ry_ep_on(ep, first + d))
            rc = send_to(ep, g, RY_EP_FORWARD, first + d);
    return rc;
}

/* To the PEs of nodes whose forwarder was lost. */
static int orphans_send(struct ry_ep *ep, struct ry_ep_gen *g)
{
    int rc = RY_OK;

    for (uint32_t node = 0; node < ep->l.place.nodes && rc == RY_OK; node++)
        if (node != ep->node && ry_ep_ht_ferry(ep, ep->pe, node) == ep->pe)
            rc = ry_ep_ht_resend_tokens(ep, g, node);
    return rc;
}

int ry_ep_ht_dispatch_send(struct ry_ep *ep, struct ry_ep_gen *g, const ry_ep_input *in)
{
    int rc = RY_OK;

    choose(ep, g);
    memset(g->forwarded, 0, ep->l.places * sizeof(*g->forwarded));
    memset(g->crossed, 0, ep->l.places * sizeof(*g->crossed));
    memset(g->brought, 0, ep->l.node_max * sizeof(*g->brought));
    g->ended = !ry_ep_ht_forwards(ep, ep->pe);
    memcpy(ry_ep_here(ep, ry_ep_buffer_at(&ep->l, g->gen) + ep->l.stage_counts_at), g->own,
           ep->n * sizeof(*g->own));
    for (uint32_t i = 0; i < ep->n && rc == RY_OK; i++)
        if (ry_ep_on(ep, ry_ep_turn(ep, i)))
            rc = counts_send(ep, g, ry_ep_turn(ep, i));
    if (rc)
        return rc;
    stage(ep, g, in);
    rc = far_send(ep, g);
    if (rc == RY_OK)
        rc = ry_ep_await(ep, counts_step, g);
    if (rc == RY_OK)
        rc = counts_sum(ep, g);
    if (rc)
        return rc;
    near_store(ep, g, in);
    rc = near_send(ep, g);
    if (rc == RY_OK)
        rc = orphans_send(ep, g);
    g->placed = true;
    return rc;
}

/* --- receive --- */

/* A lost PE put rows into places that follow from its own counts. Where those are agreed to be
 * unknown, no place is its: what it brought is void, and the sources send again. */
static bool brought(struct ry_ep *ep, const struct ry_ep_gen *g, uint32_t p)
{
    bool counted = ry_ep_on(ep, p) || g->got[RY_EP_COUNTS * ep->n + p] || RY_MUT(RY_MUT_VOID_ROWS);

    return counted && ry_ep_got(ep, RY_EP_FORWARD, g->gen, p);
}

/* Whose rows are not here yet, of those that p of this node forwards, or forwarded: RY_EP_NO_PE:
 * all are. */
static uint32_t missing(struct ry_ep *ep, struct ry_ep_gen *g, uint32_t p)
{
    if (!ry_ep_ht_forwards(ep, p) || p == ep->pe || brought(ep, g, p))
        return RY_EP_NO_PE;
    if (ry_ep_on(ep, p))
        return p;
    for (uint32_t s = 0; s < ep->n; s++) /* it was lost: its sources send again */
        if (ry_ep_on(ep, s) && ry_place_node(&ep->l.place, s) != ep->node &&
            ry_ep_ht_forwarder(ep, s, ep->node) == p && !ry_ep_got(ep, RY_EP_FORWARD, g->gen, s))
            return s;
    return RY_EP_NO_PE;
}

static int recv_step(struct ry_ep *ep, void *arg)
{
    struct ry_ep_gen *g = arg;
    int done = ry_ep_ht_forward(ep, g);

    for (uint32_t p = ep->node_first; p < ep->node_first + ep->node_size && done >= 0; p++) {
        uint32_t late = missing(ep, g, p);

        if (ry_ep_on(ep, p) && !ry_ep_got(ep, RY_EP_DISPATCH, g->gen, p))
            late = p;
        if (late == RY_EP_NO_PE)
            continue;
        ep->wait_for = late;
        done = 0;
    }
    return done;
}

/* Rows that p of this node had to bring; false: a loss leaves that open. */
static bool due_by(const struct ry_ep *ep, const struct ry_ep_gen *g, uint32_t p, uint32_t *rows)
{
    *rows = 0;
    for (uint32_t s = 0; s < ep->n; s++) {
        uint32_t count = ry_ep_ht_count(ep, g, ep->pe, s);

        if (ry_place_node(&ep->l.place, s) == ep->node || !count ||
            ry_ep_ht_forwarder(ep, s, ep->node) != p)
            continue;
        if (!ry_ep_on(ep, s))
            return false;
        *rows += count;
    }
    return ry_ep_ht_forwards(ep, p);
}

/* Did every PE of the node bring what the counts announced? */
static int check(struct ry_ep *ep, struct ry_ep_gen *g)
{
    int rc = RY_OK;

    for (uint32_t p = ep->node_first; p < ep->node_first + ep->node_size && rc == RY_OK; p++) {
        uint32_t rows;

        if (p == ep->pe || !ry_ep_on(ep, p))
            continue;
        rc = ry_ep_wrong_rows(ep, RY_EP_DISPATCH, p, g->got_rows[RY_EP_DISPATCH * ep->n + p],
                              ry_ep_ht_count(ep, g, ep->pe, p));
        if (rc == RY_OK && due_by(ep, g, p, &rows))
            rc = ry_ep_wrong_rows(ep, RY_EP_FORWARD, p, g->got_rows[RY_EP_FORWARD * ep->n + p],
                                  rows);
    }
    return rc;
}

/* A row of a PE that was lost: it is there, but chooses nothing. */
static void unpack_absent(struct ry_ep *ep, struct ry_ep_gen *g, uint32_t row, uint32_t source)
{
    g->row_source[row] = source;
    g->src_token[row] = 0;
    for (uint32_t k = 0; k < ep->l.topk; k++) {
        g->topk_idx[(size_t)row * ep->l.topk + k] = -1;
        g->topk_weight[(size_t)row * ep->l.topk + k] = 0.0f;
    }
}

/* The parts of a record that the caller gets in arrays of their own. */
static void unpack(struct ry_ep *ep, struct ry_ep_gen *g, uint32_t row, uint32_t source)
{
    const uint8_t *record = ry_ep_here(ep, ry_ep_record_at(&ep->l, g->gen, row));
    const int32_t *ids = (const int32_t *)(const void *)(record + ep->l.ids_at);
    const float *weights = (const float *)(const void *)(record + ep->l.weights_at);
    int32_t first = (int32_t)ry_place_expert_first(&ep->l.place, ep->pe);
    int32_t local = (int32_t)ry_place_expert_count(&ep->l.place, ep->pe);
    uint32_t k_max = ep->l.topk;

    g->row_source[row] = source;
    g->src_token[row] = ((const struct ry_ep_record *)(const void *)record)->token;
    for (uint32_t k = 0; k < k_max; k++) {
        int32_t e = ids[k] - first;
        bool here = ids[k] >= first && e < local;

        g->topk_idx[(size_t)row * k_max + k] = here ? e : -1;
        g->topk_weight[(size_t)row * k_max + k] = here ? weights[k] : 0.0f;
        if (here)
            g->expert_rows[e]++;
    }
}

int ry_ep_ht_dispatch_recv(struct ry_ep *ep, struct ry_ep_gen *g, ry_ep_output *out)
{
    uint32_t row = 0;
    int rc = ry_ep_await(ep, recv_step, g);

    if (rc == RY_OK)
        rc = check(ep, g);
    if (rc)
        return rc;
    g->rows = ry_ep_ht_before(ep, g, ep->pe, ep->n);
    memset(g->expert_rows, 0, ep->l.local_max * sizeof(*g->expert_rows));
    for (uint32_t s = 0; s < ep->n; s++)
        for (; row < ry_ep_ht_before(ep, g, ep->pe, s + 1); row++)
            (ry_ep_on(ep, s) ? unpack : unpack_absent)(ep, g, row, s);
    *out = (ry_ep_output){
        .x = (uint8_t *)ry_ep_here(ep, ry_ep_record_at(&ep->l, g->gen, 0)) + ep->l.row_at,
        .x_stride = ep->l.record_bytes,
        .rows = g->rows,
        .src_token = g->src_token,
        .row_source = g->row_source,
        .topk_idx = g->topk_idx,
        .topk_weight = g->topk_weight,
        .expert_rows = g->expert_rows,
    };
    return RY_OK;
}
