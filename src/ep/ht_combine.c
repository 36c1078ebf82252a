/* SPDX-License-Identifier: Apache-2.0 */
/* High-throughput combine: a PE gives its rows back to sources of its node, and to the forwarder
 * for the others; a source adds the rows of its own node in order of PE, then nodes in order. */
#include <string.h>

#include "core/numeric.h"
#include "ep/ep.h"
#include "ep/reduce.h"

/* The PE that takes rows of `source`, and where: its own, or one of its places. */
static uint32_t taker(const struct ry_ep *ep, uint32_t source, uint32_t *place)
{
    const struct ry_place *pl = &ep->l.place;
    uint32_t p;

    if (ry_place_node(pl, source) == ep->node) {
        *place = ep->l.places;
        return source;
    }
    p = ry_ep_ht_ferry(ep, source, ep->node);
    *place = p == source ? ry_ep_ht_spare(ep, source, ep->node)
                         : ry_place_forward_place(pl, source, ep->node);
    return p;
}

static uint64_t stage_at(const struct ry_ep *ep, uint64_t gen, uint64_t row)
{
    return ry_ep_buffer_at(&ep->l, gen) + ep->l.stage_parts_at + row * ep->l.back_bytes;
}

const uint16_t *ry_ep_ht_part(struct ry_ep *ep, const struct ry_ep_gen *g, uint32_t place,
                              uint32_t d, uint32_t row)
{
    uint32_t source = place == ep->l.places ? ep->pe : ep->place_source[place];
    uint32_t p = ep->node_first + d, at = ry_ep_ht_before(ep, g, p, source) + row;
    uint8_t *direct = ry_ep_direct(ep, p);

    if (p == ep->pe)
        return (const uint16_t *)(const void *)ry_ep_y(g, at);
    if (direct)
        return (const uint16_t *)(const void *)(direct + stage_at(ep, g->gen, at));
    return ry_ep_here(ep, ry_ep_part_at(&ep->l, g->gen, place, d, row));
}

/* --- send --- */

static void copy_rows(const struct ry_ep *ep, const struct ry_ep_gen *g, uint32_t row,
                      uint32_t count, uint8_t *to)
{
    uint64_t bytes = ep->l.back_bytes;

    if (g->y_stride == bytes && count) {
        memcpy(to, ry_ep_y(g, row), count * bytes);
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        memcpy(to + i * bytes, ry_ep_y(g, row + i), bytes);
}

/* Every row that another PE adds up, to this PE's staging buffer: NICs read it there, and so do PEs
 * that reach it directly. It stays until the sources have answered, whoever forwards (rule 16). */
static void stage_rows(struct ry_ep *ep, struct ry_ep_gen *g)
{
    for (uint32_t s = 0; s < ep->n; s++) {
        uint32_t place, row = ry_ep_ht_before(ep, g, ep->pe, s);

        if (taker(ep, s, &place) != ep->pe)
            copy_rows(ep, g, row, ry_ep_ht_count(ep, g, ep->pe, s),
                      ry_ep_here(ep, stage_at(ep, g->gen, row)));
    }
}

/* How many rows p takes of this PE. */
static uint32_t rows_for(const struct ry_ep *ep, const struct ry_ep_gen *g, uint32_t p)
{
    uint32_t rows = 0, place;

    for (uint32_t s = 0; s < ep->n; s++)
        if (taker(ep, s, &place) == p)
            rows += ry_ep_ht_count(ep, g, ep->pe, s);
    return rows;
}

/* Write rows [lo, hi) of those that p takes, counted over its sources in order. */
static void write_range(struct ry_ep_stream *st, const struct ry_ep_gen *g, uint32_t lo,
                        uint32_t hi)
{
    struct ry_ep *ep = st->ep;
    uint32_t seen = 0;

    for (uint32_t s = 0; s < ep->n && seen < hi; s++) {
        uint32_t place, p = taker(ep, s, &place);
        uint32_t count = ry_ep_ht_count(ep, g, ep->pe, s);
        uint32_t from = lo > seen ? lo - seen : 0, to = ry_min32(count, hi - seen);

        if (p != st->peer)
            continue;
        if (to > from)
            ry_ep_stream_write(
                st, ry_ep_part_at(&ep->l, g->gen, place, ep->index, from),
                stage_at(ep, g->gen, ry_ep_ht_before(ep, g, ep->pe, s) + (uint64_t)from),
                (to - from) * ep->l.back_bytes, to - from);
        seen += count;
    }
}

static int send_peer(struct ry_ep *ep, struct ry_ep_gen *g, uint32_t p)
{
    uint32_t begin[RY_CHANNELS_MAX + 1], rows = rows_for(ep, g, p);
    int rc = RY_OK;

    if (ry_ep_direct(ep, p)) {
        ep->traffic[1].local_bytes += rows * ep->l.back_bytes;
        ry_ep_signal_direct(ep, RY_EP_COMBINE, g->gen, p, rows);
        return RY_OK;
    }
    ry_ep_share(ep, p, rows, ep->l.back_bytes, begin);
    for (uint32_t c = 0; c < ry_ep_channels(ep, p) && rc == RY_OK; c++) {
        struct ry_ep_stream s = ry_ep_stream_open(ep, RY_EP_COMBINE, g->gen, p, c);

        write_range(&s, g, begin[c], begin[c + 1]);
        rc = ry_ep_stream_close(&s, true);
    }
    return rc;
}

/* Does p, of another node, add up itself what this node gives back? */
static bool orphan(const struct ry_ep *ep, uint32_t p)
{
    return ry_place_node(&ep->l.place, p) != ep->node && ry_ep_on(ep, p) &&
           ry_ep_ht_ferry(ep, p, ep->node) == p;
}

int ry_ep_ht_resend_rows(struct ry_ep *ep, struct ry_ep_gen *g, uint32_t lost)
{
    int rc = RY_OK;

    for (uint32_t p = 0; p < ep->n && rc == RY_OK; p++)
        if (orphan(ep, p) && ry_ep_ht_forwarder(ep, p, ep->node) == lost)
            rc = send_peer(ep, g, p);
    return rc;
}

int ry_ep_ht_combine_send(struct ry_ep *ep, struct ry_ep_gen *g)
{
    int rc = RY_OK;

    stage_rows(ep, g);
    ep->returned = g->gen; /* what others wrote here was read: signals may say so from here on */
    for (uint32_t i = 0; i + 1 < ep->n && rc == RY_OK; i++) {
        uint32_t p = ry_ep_turn(ep, i);

        if (ry_ep_on(ep, p) && (ry_place_node(&ep->l.place, p) == ep->node || orphan(ep, p)))
            rc = send_peer(ep, g, p);
    }
    return rc;
}

/* --- receive --- */

/* Whose part of the sums of another node is not here; RY_EP_NO_PE: all are. */
static uint32_t missing(struct ry_ep *ep, struct ry_ep_gen *g, uint32_t node)
{
    uint32_t first = ry_place_node_first(&ep->l.place, node);
    uint32_t p = ry_ep_ht_forwarder(ep, ep->pe, node);

    if (ry_ep_got(ep, RY_EP_CROSS, g->gen, p))
        return RY_EP_NO_PE;
    if (ry_ep_on(ep, p))
        return p;
    for (uint32_t d = 0; d < ry_place_node_size(&ep->l.place, node); d++)
        if (ry_ep_on(ep, first + d) && !ry_ep_got(ep, RY_EP_COMBINE, g->gen, first + d))
            return first + d;
    return RY_EP_NO_PE;
}

static int recv_step(struct ry_ep *ep, void *arg)
{
    struct ry_ep_gen *g = arg;
    int done = ry_ep_ht_cross(ep, g);

    for (uint32_t node = 0; node < ep->l.place.nodes && done >= 0; node++) {
        uint32_t late = node == ep->node ? RY_EP_NO_PE : missing(ep, g, node);

        if (late == RY_EP_NO_PE)
            continue;
        ep->wait_for = late;
        done = 0;
    }
    return done;
}

/* Sums of that node came from its forwarder, not from its PEs one by one. */
static bool came_crossed(const struct ry_ep *ep, const struct ry_ep_gen *g, uint32_t node)
{
    return g->got[RY_EP_CROSS * ep->n + ry_ep_ht_forwarder(ep, ep->pe, node)];
}

static uint32_t tokens_for_node(const struct ry_ep *ep, const struct ry_ep_gen *g, uint32_t node)
{
    const uint64_t *set = &ep->node_set[(size_t)node * ep->words];
    uint32_t rows = 0;

    for (uint32_t t = 0; t < g->tokens; t++) {
        uint64_t any = 0;

        for (uint32_t i = 0; i < ep->words; i++)
            any |= set[i] & g->to[(size_t)t * ep->words + i];
        rows += any != 0;
    }
    return rows;
}

/* Rows of one other node, and what the forwarder says of PEs that it left out. */
static int check_node(struct ry_ep *ep, struct ry_ep_gen *g, uint32_t node)
{
    uint32_t first = ry_place_node_first(&ep->l.place, node);
    uint32_t f = ry_ep_ht_forwarder(ep, ep->pe, node);
    const uint64_t *marks = ry_ep_here(ep, ry_ep_marks_at(&ep->l, g->gen, node));
    int rc = RY_OK;

    for (uint32_t d = 0; d < ry_place_node_size(&ep->l.place, node) && rc == RY_OK; d++) {
        uint32_t p = first + d;

        if (came_crossed(ep, g, node) ? !ry_set_has(marks, d) : !ry_ep_on(ep, p))
            ry_set_add(g->without, p);
        else if (!came_crossed(ep, g, node))
            rc = ry_ep_wrong_rows(ep, RY_EP_COMBINE, p, g->got_rows[RY_EP_COMBINE * ep->n + p],
                                  g->own[p]);
    }
    if (rc == RY_OK && came_crossed(ep, g, node))
        rc = ry_ep_wrong_rows(ep, RY_EP_CROSS, f, g->got_rows[RY_EP_CROSS * ep->n + f],
                              tokens_for_node(ep, g, node));
    return rc;
}

/* Is one of those lost that this PE forwards for? Then PEs may give back rows of it or not. */
static bool open_places(const struct ry_ep *ep)
{
    for (uint32_t i = 0; i < ep->l.places; i++)
        if (ep->place_source[i] != RY_EP_NO_PE && !ry_ep_on(ep, ep->place_source[i]))
            return true;
    return false;
}

static int check(struct ry_ep *ep, struct ry_ep_gen *g)
{
    bool open = open_places(ep);
    int rc = RY_OK;

    for (uint32_t d = 0; d < ep->node_size && rc == RY_OK; d++) {
        uint32_t p = ep->node_first + d;

        if (p != ep->pe && ry_ep_on(ep, p) && !open)
            rc = ry_ep_wrong_rows(ep, RY_EP_COMBINE, p, g->got_rows[RY_EP_COMBINE * ep->n + p],
                                  g->own[p] + g->brought[d]);
    }
    for (uint32_t node = 0; node < ep->l.place.nodes && rc == RY_OK; node++)
        if (node != ep->node)
            rc = check_node(ep, g, node);
    return rc;
}

/* The rows of one node that make up a token, to ep->part from n on; returns where they end. */
static uint32_t parts_of(struct ry_ep *ep, const struct ry_ep_gen *g, uint32_t t, uint32_t node,
                         uint32_t n)
{
    const uint64_t *to = &g->to[(size_t)t * ep->words];
    uint32_t first = ry_place_node_first(&ep->l.place, node);
    uint32_t size = ry_place_node_size(&ep->l.place, node);
    bool crossed = node != ep->node && came_crossed(ep, g, node), any = false;

    for (uint32_t d = 0; d < size; d++) {
        uint32_t p = first + d, row;

        if (!ry_set_has(to, p))
            continue;
        any = true;
        row = ep->rank[p]++;
        if (crossed || ry_set_has(g->without, p))
            continue;
        ep->part[n++] =
            node == ep->node
                ? ry_ep_ht_part(ep, g, ep->l.places, d, row)
                : ry_ep_here(
                      ep, ry_ep_part_at(&ep->l, g->gen, ry_ep_ht_spare(ep, ep->pe, node), d, row));
    }
    if (crossed && any)
        ep->part[n++] =
            ry_ep_here(ep, ry_ep_crossed_at(&ep->l, g->gen, node, ep->rank[ep->n + node]++));
    return n;
}

enum { BLOCK = 512 };

/* A node's rows, added up where the forwarder did not: rounded as it would have. */
static void add_rounded(float *sum, float *part, uint32_t width)
{
    for (uint32_t i = 0; i < width; i++)
        part[i] = ry_bf16_to_f32(ry_f32_to_bf16(part[i]));
    ry_reduce_add_f32(sum, part, width);
}

/* One block of channels of one token. Nothing is lost by adding this node's parts straight to a sum
 * that is still +0: a sum that starts at +0 never is -0. */
static void sum_block(struct ry_ep *ep, const struct ry_ep_gen *g, uint32_t at, uint32_t width,
                      uint16_t *out)
{
    float sum[BLOCK], part[BLOCK];
    uint32_t i = 0;

    memset(sum, 0, width * sizeof(*sum));
    for (uint32_t node = 0; node < ep->l.place.nodes; node++) {
        uint32_t end = ep->part_end[node];
        bool near = node == ep->node, crossed = !near && came_crossed(ep, g, node);
        float *acc = crossed || (near && i == 0) ? sum : part;

        if (i == end)
            continue;
        if (acc == part)
            memset(part, 0, width * sizeof(*part));
        for (; i < end; i++)
            ry_reduce_add_row(acc, ep->part[i] + at, width);
        if (acc == part && near)
            ry_reduce_add_f32(sum, part, width);
        else if (acc == part)
            add_rounded(sum, part, width);
    }
    for (uint32_t j = 0; j < width; j++)
        out[at + j] = ry_f32_to_bf16(sum[j]);
}

int ry_ep_ht_combine_recv(struct ry_ep *ep, struct ry_ep_gen *g, void *out, size_t stride)
{
    int rc = ry_ep_await(ep, recv_step, g);

    if (rc == RY_OK)
        rc = check(ep, g);
    memset(ep->rank, 0, (ep->n + ep->l.place.nodes) * sizeof(*ep->rank));
    for (uint32_t t = 0; t < g->tokens && rc == RY_OK; t++) {
        uint32_t n = 0;

        for (uint32_t node = 0; node < ep->l.place.nodes; node++)
            ep->part_end[node] = n = parts_of(ep, g, t, node, n);
        for (uint32_t at = 0; at < ep->l.hidden; at += BLOCK)
            sum_block(ep, g, at, ry_min32(BLOCK, ep->l.hidden - at),
                      (uint16_t *)((uint8_t *)out + t * stride));
    }
    return rc;
}
