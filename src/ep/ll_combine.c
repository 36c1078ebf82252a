/* SPDX-License-Identifier: Apache-2.0 */
/* Low-latency combine: the PE of an expert sends its rows back in the order in which the source
 * numbered them, so that they are one range at both ends; the source adds a token's rows in order
 * of k, in f32, and rounds once. */
#include <string.h>

#include "core/numeric.h"
#include "ep/ep.h"
#include "ep/reduce.h"

static uint32_t rows_of(const struct ry_ep *ep, const struct ry_ep_gen *g, uint32_t p)
{
    uint32_t local = ry_place_expert_count(&ep->l.place, ep->pe), rows = 0;

    for (uint32_t e = 0; e < local; e++)
        rows += g->count[e * ep->n + p];
    return rows;
}

/* The rows of source p, one after another, to `to`. */
static void gather(struct ry_ep *ep, const struct ry_ep_gen *g, uint32_t p, uint8_t *to)
{
    uint32_t local = ry_place_expert_count(&ep->l.place, ep->pe);
    uint64_t bytes = ep->l.back_bytes;

    for (uint32_t e = 0; e < local; e++) {
        uint64_t row = ((uint64_t)e * ep->n + p) * ep->l.tokens_max;

        for (uint32_t i = 0; i < g->count[e * ep->n + p]; i++, to += bytes)
            memcpy(to, ry_ep_y(g, row + i), bytes);
    }
}

static uint64_t stage_at(const struct ry_ep *ep, uint64_t gen, uint64_t row)
{
    return ry_ep_buffer_at(&ep->l, gen) + ep->l.stage_back_at + row * ep->l.back_bytes;
}

static int send_peer(struct ry_ep *ep, struct ry_ep_gen *g, uint32_t p)
{
    uint32_t begin[RY_CHANNELS_MAX + 1], rows = rows_of(ep, g, p);
    int rc = RY_OK;

    if (ry_ep_direct(ep, p)) {
        ry_ep_signal_direct(ep, RY_EP_COMBINE, g->gen, p, rows);
        return RY_OK;
    }
    ry_ep_share(ep, p, rows, ep->l.back_bytes, begin);
    for (uint32_t c = 0; c < ry_ep_channels(ep, p) && rc == RY_OK; c++) {
        struct ry_ep_stream s = ry_ep_stream_open(ep, RY_EP_COMBINE, g->gen, p, c);
        uint32_t count = begin[c + 1] - begin[c];

        ry_ep_stream_write(&s, ry_ep_back_at(&ep->l, g->gen, g->base[p] + begin[c]),
                           stage_at(ep, g->gen, (uint64_t)g->staged[p] + begin[c]),
                           count * ep->l.back_bytes, count);
        rc = ry_ep_stream_close(&s, true);
    }
    return rc;
}

int ry_ep_ll_combine_send(struct ry_ep *ep, struct ry_ep_gen *g)
{
    uint32_t staged = 0;
    int rc = RY_OK;

    for (uint32_t p = 0; p < ep->n; p++) {
        uint32_t rows = rows_of(ep, g, p);
        uint8_t *direct = ry_ep_direct(ep, p);

        if (!ry_ep_on(ep, p))
            continue;
        g->staged[p] = staged;
        if (direct) {
            gather(ep, g, p, direct + ry_ep_back_at(&ep->l, g->gen, g->base[p]));
            ep->traffic[1].local_bytes += rows * ep->l.back_bytes;
        } else {
            gather(ep, g, p, ry_ep_here(ep, stage_at(ep, g->gen, staged)));
            staged += rows;
        }
    }
    ep->returned = g->gen; /* all rows were read: signals may say so from here on */
    for (uint32_t i = 0; i < ep->n && rc == RY_OK; i++)
        if (ry_ep_on(ep, ry_ep_turn(ep, i)))
            rc = send_peer(ep, g, ry_ep_turn(ep, i));
    return rc;
}

static int recv_step(struct ry_ep *ep, void *arg)
{
    return ry_ep_all_got(ep, RY_EP_COMBINE, (const struct ry_ep_gen *)arg);
}

static int check(struct ry_ep *ep, struct ry_ep_gen *g)
{
    for (uint32_t p = 0; p < ep->n; p++) {
        uint32_t e = ry_place_expert_first(&ep->l.place, p);
        uint32_t sent = g->first[e + ry_place_expert_count(&ep->l.place, p)] - g->first[e];
        int rc;

        if (p == ep->pe || !ry_ep_on(ep, p))
            continue;
        rc = ry_ep_wrong_rows(ep, RY_EP_COMBINE, p, g->got_rows[RY_EP_COMBINE * ep->n + p], sent);
        if (rc)
            return rc;
    }
    return RY_OK;
}

/* Was the PE of this expert lost before its rows came back? */
static bool lost(const struct ry_ep *ep, const struct ry_ep_gen *g, int32_t expert)
{
    return ry_set_has(g->without, ry_place_expert_pe(&ep->l.place, (uint32_t)expert));
}

/* A block of channels at a time, so that the sum stays in the first cache. */
static void sum_token(struct ry_ep *ep, const struct ry_ep_gen *g, uint32_t t, uint16_t *out)
{
    enum { BLOCK = 512 };
    float acc[BLOCK];
    uint32_t k_of = t * ep->l.topk;

    for (uint32_t at = 0; at < ep->l.hidden; at += BLOCK) {
        uint32_t width = ry_min32(BLOCK, ep->l.hidden - at);

        memset(acc, 0, width * sizeof(*acc));
        for (uint32_t k = 0; k < ep->l.topk; k++) {
            const uint16_t *row;

            if (g->row_of[k_of + k] == UINT32_MAX || lost(ep, g, g->ids[k_of + k]))
                continue;
            row = ry_ep_here(ep, ry_ep_back_at(&ep->l, g->gen, g->row_of[k_of + k]));
            ry_reduce_add_weighted(acc, row + at, g->weights[k_of + k], width);
        }
        for (uint32_t i = 0; i < width; i++)
            out[at + i] = ry_f32_to_bf16(acc[i]);
    }
}

int ry_ep_ll_combine_recv(struct ry_ep *ep, struct ry_ep_gen *g, void *out, size_t stride)
{
    int rc = ry_ep_await(ep, recv_step, g);

    if (rc == RY_OK)
        rc = check(ep, g);
    for (uint32_t t = 0; t < g->tokens && rc == RY_OK; t++)
        sum_token(ep, g, t, (uint16_t *)((uint8_t *)out + t * stride));
    return rc;
}
