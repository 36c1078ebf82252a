/* SPDX-License-Identifier: Apache-2.0 */
/* High-throughput forwarding: this PE takes the tokens of some sources of other nodes, brings them
 * to the PEs of its node, adds up what those give back, and sends each source one row a token. */
#include <string.h>

#include "core/numeric.h"
#include "ep/ep.h"
#include "ep/reduce.h"

bool ry_ep_ht_forwards(const struct ry_ep *ep, uint32_t p)
{
    for (uint32_t s = 0; s < ep->n; s++)
        if (ry_place_node(&ep->l.place, s) != ep->node && ry_ep_ht_forwarder(ep, s, ep->node) == p)
            return true;
    return false;
}

/* --- on their way in --- */

/* Read who of this node each landed token is for, and check it against what the source announced:
 * a row more would be written over another source's. */
static int read_ids(struct ry_ep *ep, struct ry_ep_gen *g, uint32_t place, uint32_t source)
{
    uint32_t words = ry_ep_mark_words(&ep->l);

    memset(ep->rank, 0, ep->node_size * sizeof(*ep->rank));
    memset(ry_ep_ht_bring(ep, g, place, 0), 0, (size_t)g->landed[place] * words * 8);
    for (uint32_t row = 0; row < g->landed[place]; row++) {
        const uint8_t *record = ry_ep_here(ep, ry_ep_landing_at(&ep->l, g->gen, place, row));
        const int32_t *ids = (const int32_t *)(const void *)(record + ep->l.ids_at);
        uint64_t *bring = ry_ep_ht_bring(ep, g, place, row);

        for (uint32_t k = 0; k < ep->l.topk; k++) {
            uint32_t d;

            if (ids[k] < 0 || (uint32_t)ids[k] >= ep->l.place.experts)
                continue;
            d = ry_place_expert_pe(&ep->l.place, (uint32_t)ids[k]) - ep->node_first;
            if (d >= ep->node_size || ry_set_has(bring, d))
                continue;
            ry_set_add(bring, d);
            ep->rank[d]++;
        }
    }
    for (uint32_t d = 0; d < ep->node_size; d++) {
        uint32_t want = ry_ep_ht_count(ep, g, ep->node_first + d, source);
        int rc = ry_ep_wrong_rows(ep, RY_EP_DISPATCH, source, ep->rank[d], want);

        if (rc)
            return rc;
        g->brought[d] += want;
    }
    return RY_OK;
}

static void store_rows(struct ry_ep *ep, struct ry_ep_gen *g, uint32_t place, uint32_t source)
{
    memset(ep->rank, 0, ep->node_size * sizeof(*ep->rank));
    for (uint32_t row = 0; row < g->landed[place]; row++) {
        const void *record = ry_ep_here(ep, ry_ep_landing_at(&ep->l, g->gen, place, row));
        const uint64_t *bring = ry_ep_ht_bring(ep, g, place, row);

        for (uint32_t d = 0; d < ep->node_size; d++) {
            uint8_t *to = ry_ep_direct(ep, ep->node_first + d);

            if (!to || !ry_set_has(bring, d))
                continue;
            to += ry_ep_record_at(
                &ep->l, g->gen, ry_ep_ht_before(ep, g, ep->node_first + d, source) + ep->rank[d]++);
            ry_ep_store(ep, RY_EP_FORWARD, to, record, ep->l.record_bytes);
        }
    }
}

/* By NIC, straight from where they landed. */
static int send_rows(struct ry_ep *ep, struct ry_ep_gen *g, uint32_t place, uint32_t source,
                     uint32_t d, bool last)
{
    uint32_t p = ep->node_first + d, begin[RY_CHANNELS_MAX + 1], from = 0, row = 0;
    uint64_t to =
        ry_ep_record_at(&ep->l, g->gen, ry_ep_ht_before(ep, g, ep->node_first + d, source));
    int rc = RY_OK;

    ry_ep_share(ep, p, ry_ep_ht_count(ep, g, ep->node_first + d, source), ep->l.record_bytes,
                begin);
    for (uint32_t c = 0; c < ry_ep_channels(ep, p) && rc == RY_OK; c++) {
        struct ry_ep_stream s = ry_ep_stream_open(ep, RY_EP_FORWARD, g->gen, p, c);

        for (; row < begin[c + 1]; from++) {
            if (!ry_set_has(ry_ep_ht_bring(ep, g, place, from), d))
                continue;
            ry_ep_stream_write(&s, to + row * ep->l.record_bytes,
                               ry_ep_landing_at(&ep->l, g->gen, place, from), ep->l.record_bytes,
                               1);
            row++;
        }
        rc = ry_ep_stream_close(&s, last);
    }
    return rc;
}

/* All rows of one source. last: no other source is left, so the streams end. */
static int forward_place(struct ry_ep *ep, struct ry_ep_gen *g, uint32_t place, bool last)
{
    uint32_t source = ep->place_source[place];
    int rc;

    g->landed[place] = g->got_rows[RY_EP_DISPATCH * ep->n + source];
    if (g->landed[place] > ep->l.tokens_max)
        return ry_ep_wrong_rows(ep, RY_EP_DISPATCH, source, g->landed[place], ep->l.tokens_max);
    rc = read_ids(ep, g, place, source);
    if (rc)
        return rc;
    store_rows(ep, g, place, source);
    for (uint32_t i = 1; i < ep->node_size && rc == RY_OK; i++) {
        uint32_t d = (ep->index + i) % ep->node_size, p = ep->node_first + d;

        if (!ry_ep_on(ep, p))
            continue;
        if (!ry_ep_direct(ep, p))
            rc = send_rows(ep, g, place, source, d, last);
        else if (last)
            ry_ep_signal_direct(ep, RY_EP_FORWARD, g->gen, p, g->brought[d]);
    }
    g->forwarded[place] = true;
    g->ended |= last;
    return rc;
}

/* No source is left that would: end the streams. */
static int end_streams(struct ry_ep *ep, struct ry_ep_gen *g)
{
    int rc = RY_OK;

    g->ended = true;
    for (uint32_t d = 0; d < ep->node_size; d++) {
        uint32_t p = ep->node_first + d;

        if (p == ep->pe || !ry_ep_on(ep, p))
            continue;
        if (ry_ep_direct(ep, p))
            ry_ep_signal_direct(ep, RY_EP_FORWARD, g->gen, p, g->brought[d]);
        for (uint32_t c = 0; c < ry_ep_channels(ep, p) && rc == RY_OK; c++) {
            struct ry_ep_stream s;

            if (ry_ep_direct(ep, p))
                break;
            s = ry_ep_stream_open(ep, RY_EP_FORWARD, g->gen, p, c);
            rc = ry_ep_stream_close(&s, true);
        }
    }
    return rc;
}

int ry_ep_ht_forward(struct ry_ep *ep, struct ry_ep_gen *g)
{
    uint32_t left = 0;

    for (uint32_t i = 0; i < ep->l.places; i++) {
        uint32_t source = ep->place_source[i];

        if (source == RY_EP_NO_PE || g->forwarded[i])
            continue;
        if (ry_ep_on(ep, source)) {
            left++;
            continue;
        }
        g->landed[i] = 0; /* lost: absent */
        g->forwarded[i] = g->crossed[i] = true;
    }
    for (uint32_t i = 0; i < ep->l.places; i++) {
        uint32_t source = ep->place_source[i];
        int rc;

        if (source == RY_EP_NO_PE || g->forwarded[i])
            continue;
        if (!ry_ep_got(ep, RY_EP_DISPATCH, g->gen, source)) {
            ep->wait_for = source;
            continue;
        }
        rc = forward_place(ep, g, i, left == 1);
        if (rc)
            return rc;
        left--;
    }
    if (left == 0 && !g->ended) {
        int rc = end_streams(ep, g);

        return rc ? rc : 1;
    }
    return left == 0;
}

/* --- on their way back --- */

/* The sum of one landed token's parts, rounded to the row that crosses. */
static void sum_row(struct ry_ep *ep, const struct ry_ep_gen *g, uint32_t place, uint32_t row)
{
    enum { BLOCK = 512 };
    const uint64_t *bring = ry_ep_ht_bring(ep, g, place, row);
    uint64_t at = ry_ep_buffer_at(&ep->l, g->gen) + ep->l.stage_crossed_at +
                  ((uint64_t)place * ep->l.tokens_max + row) * ep->l.back_bytes;
    uint16_t *out = ry_ep_here(ep, at);
    float acc[BLOCK];
    uint32_t n = 0;

    for (uint32_t d = 0; d < ep->node_size; d++)
        if (ry_set_has(bring, d)) {
            ep->part[n] = ry_ep_ht_part(ep, g, place, d, ep->rank[d]++);
            n += !ry_set_has(g->without, ep->node_first + d);
        }
    for (uint32_t i = 0; i < ep->l.hidden; i += BLOCK) {
        uint32_t width = ry_min32(BLOCK, ep->l.hidden - i);

        memset(acc, 0, width * sizeof(*acc));
        for (uint32_t j = 0; j < n; j++)
            ry_reduce_add_row(acc, ep->part[j] + i, width);
        for (uint32_t j = 0; j < width; j++)
            out[i + j] = ry_f32_to_bf16(acc[j]);
    }
}

/* Which PEs of this node are in the sums: for the source to know, should one be lost. */
static uint64_t mark(struct ry_ep *ep, const struct ry_ep_gen *g, uint32_t place)
{
    uint32_t words = ry_ep_mark_words(&ep->l);
    uint64_t at = ry_ep_buffer_at(&ep->l, g->gen) + ep->l.stage_marks_at +
                  (uint64_t)place * words * sizeof(uint64_t);
    uint64_t *set = ry_ep_here(ep, at);

    memset(set, 0, words * sizeof(*set));
    for (uint32_t d = 0; d < ep->node_size; d++)
        if (!ry_set_has(g->without, ep->node_first + d))
            ry_set_add(set, d);
    return at;
}

static int cross_place(struct ry_ep *ep, struct ry_ep_gen *g, uint32_t place)
{
    uint32_t p = ep->place_source[place], begin[RY_CHANNELS_MAX + 1], row = 0;
    uint64_t from = ry_ep_buffer_at(&ep->l, g->gen) + ep->l.stage_crossed_at +
                    (uint64_t)place * ep->l.tokens_max * ep->l.back_bytes;
    uint64_t marks = mark(ep, g, place);
    int rc = RY_OK;

    memset(ep->rank, 0, ep->node_size * sizeof(*ep->rank));
    ry_ep_share(ep, p, g->landed[place], ep->l.back_bytes, begin);
    for (uint32_t c = 0; c < ry_ep_channels(ep, p) && rc == RY_OK; c++) {
        struct ry_ep_stream s = ry_ep_stream_open(ep, RY_EP_CROSS, g->gen, p, c);

        if (c == 0)
            ry_ep_stream_write(&s, ry_ep_marks_at(&ep->l, g->gen, ep->node), marks,
                               ry_ep_mark_words(&ep->l) * sizeof(uint64_t), 0);
        for (; row < begin[c + 1]; row++) {
            sum_row(ep, g, place, row);
            ry_ep_stream_write(&s, ry_ep_crossed_at(&ep->l, g->gen, ep->node, row),
                               from + row * ep->l.back_bytes, ep->l.back_bytes, 1);
        }
        rc = ry_ep_stream_close(&s, true);
    }
    g->crossed[place] = true;
    return rc;
}

int ry_ep_ht_cross(struct ry_ep *ep, struct ry_ep_gen *g)
{
    for (uint32_t p = ep->node_first; p < ep->node_first + ep->node_size; p++) {
        if (!ry_ep_on(ep, p) || ry_ep_got(ep, RY_EP_COMBINE, g->gen, p))
            continue;
        ep->wait_for = p;
        return 0;
    }
    for (uint32_t i = 0; i < ep->l.places; i++) {
        int rc;

        if (ep->place_source[i] == RY_EP_NO_PE || g->crossed[i] ||
            !ry_ep_on(ep, ep->place_source[i]))
            continue;
        rc = cross_place(ep, g, i);
        if (rc)
            return rc;
    }
    return 1;
}
