/* SPDX-License-Identifier: Apache-2.0 */
/* Low-latency dispatch: every token goes straight to the slot of each of its experts.
 *
 * Rows are numbered over all experts in order, by token within an expert: so the rows for one PE
 * are one range, also in the staging buffer, and one channel's share of it is a sub-range that
 * takes one request per expert it touches. */
#include <string.h>

#include "ep/ep.h"
#include "ep/quantise.h"
#include "host/error.h"

/* One row as it travels. */
static void encode(struct ry_ep *ep, const ry_ep_input *in, uint32_t t, uint8_t *to)
{
    const void *x = (const uint8_t *)in->x + t * in->x_stride;

    if (ep->attr.dtype == RY_FP8)
        ry_quantise_row(x, ep->l.hidden, (int)ep->attr.scale, to, to + ep->l.hidden);
    else
        memcpy(to, x, ep->l.row_bytes);
}

/* Number the rows: first[e] and row_of. */
static void number(struct ry_ep *ep, struct ry_ep_gen *g)
{
    uint32_t pairs = g->tokens * ep->l.topk, next = 0;

    memset(g->first, 0, (ep->l.place.experts + 1) * sizeof(*g->first));
    for (uint32_t i = 0; i < pairs; i++)
        if (g->ids[i] >= 0)
            g->first[g->ids[i]]++;
    for (uint32_t e = 0; e <= ep->l.place.experts; e++) {
        uint32_t count = e < ep->l.place.experts ? g->first[e] : 0;

        g->first[e] = next;
        next += count;
    }
    for (uint32_t i = 0; i < pairs; i++)
        g->row_of[i] = g->ids[i] < 0 ? UINT32_MAX : g->first[g->ids[i]]++;
    for (uint32_t e = ep->l.place.experts; e > 0; e--) /* back to the beginnings */
        g->first[e] = g->first[e - 1];
    g->first[0] = 0;
}

static uint64_t stage_row(const struct ry_ep *ep, uint64_t gen, uint64_t row)
{
    return ry_ep_buffer_at(&ep->l, gen) + ep->l.stage_rows_at + row * ep->l.row_bytes;
}
static uint64_t stage_list(const struct ry_ep *ep, uint64_t gen, uint64_t row)
{
    return ry_ep_buffer_at(&ep->l, gen) + ep->l.stage_lists_at + row * 4;
}
static uint64_t stage_head(const struct ry_ep *ep, uint64_t gen, uint32_t p, uint32_t c)
{
    uint64_t i = (uint64_t)p * RY_CHANNELS_MAX + c;

    return ry_ep_buffer_at(&ep->l, gen) + ep->l.stage_heads_at + i * ep->l.head_bytes;
}

/* Every row to where it is read: a direct peer's slot, or the staging buffer. */
static void place_rows(struct ry_ep *ep, struct ry_ep_gen *g, const ry_ep_input *in)
{
    const struct ry_place *pl = &ep->l.place;

    for (uint32_t t = 0; t < g->tokens; t++) {
        bool encoded = false;

        for (uint32_t k = 0; k < ep->l.topk; k++) {
            int32_t e = g->ids[t * ep->l.topk + k];
            uint32_t row, p;
            uint8_t *direct;

            if (e < 0)
                continue;
            if (!encoded)
                encode(ep, in, t, ep->scratch);
            encoded = true;
            row = g->row_of[t * ep->l.topk + k];
            p = ry_place_expert_pe(pl, (uint32_t)e);
            direct = ry_ep_direct(ep, p);
            if (direct)
                ry_ep_store(ep, RY_EP_DISPATCH,
                            direct + ry_ep_row_at(&ep->l, g->gen,
                                                  (uint32_t)e - ry_place_expert_first(pl, p),
                                                  ep->pe, row - g->first[e]),
                            ep->scratch, ep->l.row_bytes);
            else
                memcpy(ry_ep_here(ep, stage_row(ep, g->gen, row)), ep->scratch, ep->l.row_bytes);
            *(uint32_t *)ry_ep_here(ep, stage_list(ep, g->gen, row)) = t;
        }
    }
}

/* The head of rows [lo, hi) for p: number of p's first row, then how many for each expert. */
static void head_make(const struct ry_ep *ep, const struct ry_ep_gen *g, uint32_t p, uint32_t lo,
                      uint32_t hi, uint32_t *head)
{
    uint32_t e0 = ry_place_expert_first(&ep->l.place, p);
    uint32_t n = ry_place_expert_count(&ep->l.place, p);

    memset(head, 0, ep->l.head_bytes);
    head[0] = g->first[e0];
    for (uint32_t e = 0; e < n; e++) {
        uint32_t from = g->first[e0 + e] > lo ? g->first[e0 + e] : lo;
        uint32_t to = ry_min32(g->first[e0 + e + 1], hi);

        head[1 + e] = to > from ? to - from : 0;
    }
}

static int send_channel(struct ry_ep *ep, struct ry_ep_gen *g, uint32_t p, uint32_t c, uint32_t lo,
                        uint32_t hi)
{
    struct ry_ep_stream s = ry_ep_stream_open(ep, RY_EP_DISPATCH, g->gen, p, c);
    uint32_t e0 = ry_place_expert_first(&ep->l.place, p);
    uint32_t n = ry_place_expert_count(&ep->l.place, p), base = g->first[e0];
    uint64_t head = stage_head(ep, g->gen, p, c);

    for (uint32_t e = 0; e < n && lo < hi; e++) {
        uint32_t first = g->first[e0 + e];
        uint32_t from = first > lo ? first : lo, to = ry_min32(g->first[e0 + e + 1], hi);

        if (to > from)
            ry_ep_stream_write(&s, ry_ep_row_at(&ep->l, g->gen, e, ep->pe, from - first),
                               stage_row(ep, g->gen, from), (to - from) * ep->l.row_bytes,
                               to - from);
    }
    if (lo < hi) {
        head_make(ep, g, p, lo, hi, ry_ep_here(ep, head));
        ry_ep_stream_write(&s, ry_ep_list_at(&ep->l, g->gen, ep->pe, lo - base),
                           stage_list(ep, g->gen, lo), (hi - lo) * 4ull, 0);
        ry_ep_stream_write(&s, ry_ep_head_at(&ep->l, g->gen, ep->pe, c), head, ep->l.head_bytes, 0);
    }
    return ry_ep_stream_close(&s, true);
}

static int send_peer(struct ry_ep *ep, struct ry_ep_gen *g, uint32_t p)
{
    uint32_t e0 = ry_place_expert_first(&ep->l.place, p);
    uint32_t base = g->first[e0];
    uint32_t rows = g->first[e0 + ry_place_expert_count(&ep->l.place, p)] - base;
    uint32_t begin[RY_CHANNELS_MAX + 1], head_words = ep->l.head_bytes;
    uint8_t *direct = ry_ep_direct(ep, p);
    int rc = RY_OK;

    if (direct) {
        uint32_t *head = (uint32_t *)(direct + ry_ep_head_at(&ep->l, g->gen, ep->pe, 0));

        head_make(ep, g, p, base, base + rows, head);
        ep->traffic[0].local_bytes += head_words;
        ry_ep_store(ep, RY_EP_DISPATCH, direct + ry_ep_list_at(&ep->l, g->gen, ep->pe, 0),
                    ry_ep_here(ep, stage_list(ep, g->gen, base)), rows * 4ull);
        ry_ep_signal_direct(ep, RY_EP_DISPATCH, g->gen, p, rows);
        return RY_OK;
    }
    ry_ep_share(ep, p, rows, ep->l.row_bytes, begin);
    for (uint32_t c = 0; c < ry_ep_channels(ep, p) && rc == RY_OK; c++)
        rc = send_channel(ep, g, p, c, base + begin[c], base + begin[c + 1]);
    return rc;
}

int ry_ep_ll_dispatch_send(struct ry_ep *ep, struct ry_ep_gen *g, const ry_ep_input *in)
{
    int rc = RY_OK;

    number(ep, g);
    place_rows(ep, g, in);
    for (uint32_t i = 0; i < ep->n && rc == RY_OK; i++)
        if (ry_ep_on(ep, ry_ep_turn(ep, i)))
            rc = send_peer(ep, g, ry_ep_turn(ep, i));
    return rc;
}

static int recv_step(struct ry_ep *ep, void *arg)
{
    return ry_ep_all_got(ep, RY_EP_DISPATCH, (const struct ry_ep_gen *)arg);
}

/* Add the heads of one source to its counts and check them against the signals. */
static int take_heads(struct ry_ep *ep, struct ry_ep_gen *g, uint32_t p)
{
    uint32_t local = ry_place_expert_count(&ep->l.place, ep->pe), sum = 0;
    uint32_t n = p == ep->pe ? 1 : ry_ep_channels(ep, p);

    for (uint32_t c = 0; c < n; c++) {
        const uint32_t *head = ry_ep_here(ep, ry_ep_head_at(&ep->l, g->gen, p, c));

        if (p != ep->pe && ry_ep_got_channel(ep, RY_EP_DISPATCH, g->gen, p, c) == 0)
            continue;
        g->base[p] = head[0];
        for (uint32_t e = 0; e < local; e++) {
            uint32_t *count = &g->count[e * ep->n + p];

            if (head[1 + e] > ep->l.tokens_max - *count)
                return ry_ep_wrong_rows(ep, RY_EP_DISPATCH, p, head[1 + e], ep->l.tokens_max);
            *count += head[1 + e];
            sum += head[1 + e];
        }
    }
    g->rows += sum;
    if (p == ep->pe)
        return RY_OK;
    return ry_ep_wrong_rows(ep, RY_EP_DISPATCH, p, g->got_rows[RY_EP_DISPATCH * ep->n + p], sum);
}

/* Where each row of a source came from. */
static void take_list(struct ry_ep *ep, struct ry_ep_gen *g, uint32_t p)
{
    const uint32_t *list = ry_ep_here(ep, ry_ep_list_at(&ep->l, g->gen, p, 0));
    uint32_t local = ry_place_expert_count(&ep->l.place, ep->pe);

    for (uint32_t e = 0; e < local; e++) {
        uint32_t count = g->count[e * ep->n + p];
        uint64_t row = ((uint64_t)e * ep->n + p) * ep->l.tokens_max;

        memcpy(&g->src_token[row], list, count * sizeof(*list));
        list += count;
        g->expert_rows[e] += count;
    }
}

int ry_ep_ll_dispatch_recv(struct ry_ep *ep, struct ry_ep_gen *g, ry_ep_output *out)
{
    int rc = ry_ep_await(ep, recv_step, g);

    g->rows = 0;
    memset(g->count, 0, (size_t)ep->l.local_max * ep->n * sizeof(*g->count));
    memset(g->expert_rows, 0, ep->l.local_max * sizeof(*g->expert_rows));
    for (uint32_t p = 0; p < ep->n && rc == RY_OK; p++) {
        if (!ry_ep_on(ep, p))
            continue;
        rc = take_heads(ep, g, p);
        if (rc == RY_OK)
            take_list(ep, g, p);
    }
    if (rc)
        return rc;
    *out = (ry_ep_output){
        .x = ry_ep_here(ep, ry_ep_row_at(&ep->l, g->gen, 0, 0, 0)),
        .x_stride = ep->l.row_bytes,
        .rows = g->rows,
        .count = g->count,
        .src_token = g->src_token,
        .expert_rows = g->expert_rows,
    };
    return RY_OK;
}
