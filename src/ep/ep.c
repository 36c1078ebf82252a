/* SPDX-License-Identifier: Apache-2.0 */
/* Making and ending an exchange, and the calls: what is the same for both modes. */
#include "ep/ep.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ep/place.h"
#include "ep/quantise.h"
#include "ep/validate.h"
#include "host/error.h"

/* --- making --- */

static int check_nodes(ry_ctx *ctx, const struct ry_place *pl)
{
    for (uint32_t p = 0; p < pl->pes; p++)
        if (ry_node_of(ctx, p) != ry_place_node(pl, p))
            return ry_fail(RY_ERR_CONFIG,
                           "exchange: pe %" PRIu32 " is on node %" PRIu32 " where node %" PRIu32
                           " was due: number pes node by node, as evenly as they divide",
                           p, ry_node_of(ctx, p), ry_place_node(pl, p));
    return RY_OK;
}

static void *take(bool *ok, size_t a, size_t b, size_t size)
{
    size_t n = 0;
    void *p = NULL;

    if (!__builtin_mul_overflow(a, b, &n))
        p = calloc(n ? n : 1, size);
    if (!p)
        *ok = false;
    return p;
}

static bool gen_make(const struct ry_ep *ep, struct ry_ep_gen *g)
{
    size_t n = ep->n, t = ep->l.tokens_max, k = ep->l.topk, local = ep->l.local_max;
    bool ok = true, ll = ep->attr.mode == RY_EP_LL;

    g->ids = take(&ok, t, k, sizeof(*g->ids));
    g->weights = take(&ok, t, k, sizeof(*g->weights));
    g->got = take(&ok, RY_EP_KINDS, n, sizeof(*g->got));
    g->got_rows = take(&ok, RY_EP_KINDS, n, sizeof(*g->got_rows));
    g->without = take(&ok, ep->words, 1, sizeof(*g->without));
    g->expert_rows = take(&ok, local, 1, sizeof(*g->expert_rows));
    g->src_token = take(&ok, ll ? local * n : n, t, sizeof(*g->src_token));
    if (ll) {
        g->first = take(&ok, ep->l.place.experts + 1u, 1, sizeof(*g->first));
        g->row_of = take(&ok, t, k, sizeof(*g->row_of));
        g->base = take(&ok, n, 1, sizeof(*g->base));
        g->staged = take(&ok, n, 1, sizeof(*g->staged));
        g->count = take(&ok, local, n, sizeof(*g->count));
        return ok;
    }
    g->to = take(&ok, t, ep->words, sizeof(*g->to));
    g->own = take(&ok, n, 1, sizeof(*g->own));
    g->brought = take(&ok, ep->l.node_max, 1, sizeof(*g->brought));
    g->counts = take(&ok, n, n + 1, sizeof(*g->counts));
    g->bring = take(&ok, ep->l.places * t, ry_ep_mark_words(&ep->l), sizeof(*g->bring));
    g->landed = take(&ok, ep->l.places, 1, sizeof(*g->landed));
    g->forwarded = take(&ok, ep->l.places, 1, sizeof(*g->forwarded));
    g->crossed = take(&ok, ep->l.places, 1, sizeof(*g->crossed));
    g->row_source = take(&ok, n, t, sizeof(*g->row_source));
    g->topk_idx = take(&ok, n * t, k, sizeof(*g->topk_idx));
    g->topk_weight = take(&ok, n * t, k, sizeof(*g->topk_weight));
    return ok;
}

static void gen_free(struct ry_ep_gen *g)
{
    void *const all[] = {g->ids,      g->weights,     g->got,     g->got_rows,  g->expert_rows,
                         g->first,    g->row_of,      g->base,    g->staged,    g->count,
                         g->to,       g->own,         g->counts,  g->bring,     g->landed,
                         g->brought,  g->forwarded,   g->crossed, g->src_token, g->row_source,
                         g->topk_idx, g->topk_weight, g->without};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        free(all[i]);
}

static void release(struct ry_ep *ep)
{
    for (uint32_t i = 0; ep->gens && i < ep->gens_kept; i++)
        gen_free(&ep->gens[i]);
    free(ep->gens);
    free(ep->span);
    free(ep->peer);
    free(ep->active);
    free(ep->gone);
    free(ep->join_set);
    free(ep->told);
    free(ep->vote_span);
    free(ep->by_nic);
    free(ep->node_set);
    free(ep->place_source);
    free(ep->scratch);
    free(ep->one);
    free(ep->rank);
    free(ep->part);
    free(ep->part_end);
    free(ep);
}

/* Who is where, and who is forwarded by this PE. */
static void plan(struct ry_ep *ep)
{
    const struct ry_place *pl = &ep->l.place;

    for (uint32_t i = 0; i < ep->l.places; i++)
        ep->place_source[i] = RY_EP_NO_PE;
    for (uint32_t p = 0; p < ep->n; p++) {
        uint32_t node = ry_place_node(pl, p);

        ry_set_add(ep->active, p);
        ry_set_add(ep->told, p);
        ry_set_add(ep->node_set + (size_t)node * ep->words, p);
        if (p != ep->pe && !ep->m->peers[p].direct)
            ry_set_add(ep->by_nic, p);
        if (node != ep->node && ry_place_forwarder(pl, p, ep->node) == ep->pe)
            ep->place_source[ry_place_forward_place(pl, p, ep->node)] = p;
    }
}

static bool make(struct ry_ep *ep)
{
    bool ok = true;

    ep->active = take(&ok, ep->words, 1, sizeof(*ep->active));
    ep->told = take(&ok, ep->words, 1, sizeof(*ep->told));
    ep->gone = take(&ok, ep->words, 1, sizeof(*ep->gone));
    ep->join_set = take(&ok, ep->words, 1, sizeof(*ep->join_set));
    ep->vote_span = take(&ok, ep->n, 2, sizeof(*ep->vote_span));
    ep->peer = take(&ok, ep->n, 1, sizeof(*ep->peer));
    ep->span = take(&ok, (size_t)RY_EP_KINDS * ep->l.generations, (size_t)ep->n * ep->channels,
                    sizeof(*ep->span));
    ep->gens_kept = ep->l.generations + 1;
    ep->gens = take(&ok, ep->gens_kept, 1, sizeof(*ep->gens));
    ep->scratch = take(&ok, ep->l.row_bytes + ep->l.row_at, 1, 1);
    ep->by_nic = take(&ok, ep->words, 1, sizeof(*ep->by_nic));
    ep->node_set = take(&ok, ep->words, ep->l.place.nodes, sizeof(*ep->node_set));
    ep->place_source = take(&ok, ep->l.places, 1, sizeof(*ep->place_source));
    ep->one = take(&ok, ep->words, 1, sizeof(*ep->one));
    ep->rank = take(&ok, ep->n + ep->l.place.nodes, 1, sizeof(*ep->rank));
    ep->part = take(&ok, ep->n + ep->l.place.nodes, 1, sizeof(*ep->part));
    ep->part_end = take(&ok, ep->l.place.nodes, 1, sizeof(*ep->part_end));
    for (uint32_t i = 0; ok && i < ep->gens_kept; i++)
        ok = gen_make(ep, &ep->gens[i]);
    if (ok)
        plan(ep);
    return ok;
}

static struct ry_ep *begin(ry_ctx *ctx, const ry_ep_attr *attr, const struct ry_ep_layout *l)
{
    struct ry_ep *ep = calloc(1, sizeof(*ep));

    if (!ep)
        return NULL;
    ep->ctx = ctx;
    ep->m = &ctx->mesh;
    ep->attr = *attr;
    ep->l = *l;
    ep->pe = ry_pe(ctx);
    ep->n = l->place.pes;
    ep->node = ry_place_node(&l->place, ep->pe);
    ep->node_first = ry_place_node_first(&l->place, ep->node);
    ep->node_size = ry_place_node_size(&l->place, ep->node);
    ep->index = ep->pe - ep->node_first;
    ep->words = (ep->n + 63) / 64;
    ep->channels = 1;
    ep->hint = RY_EP_NO_PE;
    for (uint32_t p = 0; p < ep->n; p++)
        if (p != ep->pe && ep->m->peers[p].n_channels > ep->channels)
            ep->channels = ep->m->peers[p].n_channels;
    return ep;
}

int ry_ep_create(ry_ctx *ctx, const ry_ep_attr *attr, ry_ep **out)
{
    struct ry_ep_layout l;
    struct ry_ep *ep;
    void *block = NULL;
    int rc = ry_ep_layout_make(attr, ry_n_pes(ctx), ry_n_nodes(ctx), &l);

    if (rc == RY_OK)
        rc = check_nodes(ctx, &l.place);
    if (rc == RY_OK)
        rc = ry_ep_agree(ctx, attr);
    if (rc == RY_OK)
        rc = ry_ep_heap_check(attr->mode == RY_EP_LL ? "low-latency exchange"
                                                     : "high-throughput exchange",
                              l.total_bytes, ry_heap_bytes(ctx) - ry_heap_used(ctx));
    if (rc)
        return rc;
    ep = begin(ctx, attr, &l);
    if (!ep || !make(ep)) {
        if (ep)
            release(ep);
        return ry_fail(RY_ERR_NO_MEMORY, "no memory for an exchange of this shape");
    }
    rc = ry_malloc(ctx, l.total_bytes, &block);
    if (rc == RY_OK) {
        ep->block = block;
        memset(ep->block, 0, l.buffers_at); /* signals of an exchange that used this memory */
        rc = ry_ep_meet(ep, true);
    }
    if (rc) {
        if (block)
            ry_free(ctx, block);
        release(ep);
        return rc;
    }
    *out = ep;
    return RY_OK;
}

static bool everybody(const struct ry_ep *ep)
{
    uint32_t n = 0;

    for (uint32_t p = 0; p < ep->n; p++)
        n += ry_ep_on(ep, p);
    return n == ep->n;
}

void ry_ep_destroy(ry_ep *ep)
{
    if (!ep)
        return;
    ep->end_ns = ry_now(&ep->m->env) + ep->ctx->start_timeout_ns;
    if (ep->broken == RY_OK && ry_ep_quiesce(ep) == RY_OK && everybody(ep))
        ry_barrier_within(ep->ctx, ep->ctx->start_timeout_ns);
    ry_free(ep->ctx, ep->block);
    release(ep);
}

/* --- calls --- */

static int input_check(struct ry_ep *ep, const ry_ep_input *in)
{
    struct ry_topk_view v = {.ids = in->topk_idx,
                             .bits = in->idx_bytes * 8,
                             .tokens = in->tokens,
                             .topk = ep->l.topk,
                             .stride_token = 0,
                             .stride_k = 1};
    int rc;

    if (in->idx_bytes == 4 || in->idx_bytes == 8) {
        if (in->topk_idx_stride % (size_t)in->idx_bytes)
            return ry_fail(RY_ERR_INVALID,
                           "topk_idx has a stride of %zu bytes: must be a multiple of %d",
                           in->topk_idx_stride, in->idx_bytes);
        v.stride_token = (int64_t)(in->topk_idx_stride / (size_t)in->idx_bytes);
    }
    rc = ry_ep_topk_check(&v, ep->l.place.experts, ep->l.tokens_max);
    if (rc == RY_OK && in->tokens && in->x_stride % 2)
        rc = ry_fail(RY_ERR_INVALID, "x has a stride of %zu bytes: must be even", in->x_stride);
    if (rc == RY_OK && in->tokens && (!in->x || !in->topk_weight))
        rc = ry_fail(RY_ERR_INVALID, "%s is null with %" PRIu32 " tokens: pass it",
                     in->x ? "topk_weight" : "x", in->tokens);
    return rc;
}

/* Keep what the caller may change after the call: who goes where, with what weight. Experts of
 * masked PEs count as absent: any negative number; -2 - e remembers which. */
static void input_keep(struct ry_ep *ep, struct ry_ep_gen *g, const ry_ep_input *in)
{
    g->tokens = in->tokens;
    for (uint32_t t = 0; t < in->tokens; t++) {
        const uint8_t *from = (const uint8_t *)in->topk_idx + t * in->topk_idx_stride;
        const uint8_t *w = (const uint8_t *)in->topk_weight + t * in->topk_weight_stride;
        int32_t *ids = &g->ids[t * ep->l.topk];

        for (uint32_t k = 0; k < ep->l.topk; k++) {
            ids[k] = in->idx_bytes == 8 ? (int32_t)((const int64_t *)(const void *)from)[k]
                                        : ((const int32_t *)(const void *)from)[k];
            if (ids[k] >= 0 && !ry_ep_on(ep, ry_place_expert_pe(&ep->l.place, (uint32_t)ids[k])))
                ids[k] = -2 - ids[k];
        }
        memcpy(&g->weights[t * ep->l.topk], w, ep->l.topk * sizeof(float));
    }
}

static int dispatch_send(struct ry_ep *ep, const ry_ep_input *in)
{
    struct ry_ep_gen *g = ry_ep_gen_of(ep, ep->sent + 1);
    uint64_t gen = ep->sent + 1;
    int rc = input_check(ep, in);

    if (rc)
        return rc;
    if (gen - ep->returned > ep->l.generations - 1 || gen - ep->combined > ep->l.generations)
        return ry_fail(RY_ERR_INVALID,
                       "dispatch: %" PRIu64 " are under way without their combine and there are "
                       "%" PRIu32 " buffers: combine first or raise generations",
                       ep->sent - ep->returned, ep->l.generations);
    /* In low-latency combine the rows for one PE stand in the order in which it sent tokens, so
     * what was this PE's place in an older generation may be another's in this one. That PE writes
     * there once it has this dispatch from everybody: by then nothing older may come late. */
    if (ep->attr.mode == RY_EP_LL && !RY_MUT(RY_MUT_BACK_EARLY))
        rc = ry_ep_reuse_wait(ep, gen, RY_EP_COMBINE, RY_EP_COMBINE);
    if (rc == RY_OK)
        rc = ry_ep_buffer_wait(ep, gen, RY_EP_COUNTS, RY_EP_FORWARD);
    if (rc == RY_OK) /* last: a wait may agree on a join before this very dispatch */
        rc = ry_ep_join(ep);
    if (rc)
        return rc;
    g->gen = gen;
    memset(g->got, 0, (size_t)RY_EP_KINDS * ep->n * sizeof(*g->got));
    for (uint32_t i = 0; i < ep->words; i++)
        g->without[i] = ~ep->active[i];
    for (uint32_t p = 0; p < ep->n; p++)
        g->got[RY_EP_COUNTS * ep->n + p] = ep->peer[p].counts_gen == gen;
    g->placed = false;
    input_keep(ep, g, in);
    ep->traffic[0] = (ry_ep_traffic){0};
    ep->sent = gen;
    return ep->attr.mode == RY_EP_LL ? ry_ep_ll_dispatch_send(ep, g, in)
                                     : ry_ep_ht_dispatch_send(ep, g, in);
}

static int dispatch_recv(struct ry_ep *ep, ry_ep_output *out)
{
    struct ry_ep_gen *g = ry_ep_gen_of(ep, ep->received + 1);
    ry_ep_output made;
    int rc;

    if (ep->received == ep->sent)
        return ry_fail(RY_ERR_INVALID, "dispatch: nothing to receive: send first");
    rc = ep->attr.mode == RY_EP_LL ? ry_ep_ll_dispatch_recv(ep, g, &made)
                                   : ry_ep_ht_dispatch_recv(ep, g, &made);
    if (rc)
        return rc;
    if (ep->attr.dtype == RY_FP8) {
        made.scales = (const uint8_t *)made.x + ep->l.hidden;
        made.scales_stride = made.x_stride;
    }
    ep->received++;
    memcpy(ep->told, ep->active, ep->words * sizeof(*ep->told));
    *out = made;
    return RY_OK;
}

/* An exchange that broke stays so; its first error was told. */
static int usable(const struct ry_ep *ep, int phase)
{
    if (phase < RY_EP_BOTH || phase > RY_EP_RECV)
        return ry_fail(RY_ERR_INVALID, "phase is %d: must be both, send or receive", phase);
    if (ep->broken)
        return ry_fail(ep->broken, "exchange: it failed before (%s): destroy it",
                       ry_status_text(ep->broken));
    return RY_OK;
}

int ry_ep_dispatch(ry_ep *ep, const ry_ep_input *in, ry_ep_output *out, int phase)
{
    int rc = usable(ep, phase);

    if (rc == RY_OK && ((phase != RY_EP_RECV && !in) || (phase != RY_EP_SEND && !out)))
        rc = ry_fail(RY_ERR_INVALID, "dispatch: %s is null in a phase that needs it",
                     phase != RY_EP_RECV && !in ? "in" : "out");
    if (rc == RY_OK && phase != RY_EP_RECV)
        rc = dispatch_send(ep, in);
    if (rc == RY_OK && phase != RY_EP_SEND)
        rc = dispatch_recv(ep, out);
    return rc;
}

static int combine_send(struct ry_ep *ep, const void *y, size_t y_stride)
{
    struct ry_ep_gen *g = ry_ep_gen_of(ep, ep->returned + 1);
    int rc;

    if (ep->returned == ep->received)
        return ry_fail(RY_ERR_INVALID, "combine: no dispatch was received for it");
    if (!y && g->rows)
        return ry_fail(RY_ERR_INVALID, "combine: y is null with %" PRIu32 " rows: pass the rows",
                       g->rows);
    rc = ry_ep_buffer_wait(ep, g->gen, RY_EP_COMBINE, RY_EP_CROSS);
    if (rc)
        return rc;
    g->y = y;
    g->y_stride = y_stride;
    ep->traffic[1] = (ry_ep_traffic){0};
    return ep->attr.mode == RY_EP_LL ? ry_ep_ll_combine_send(ep, g) : ry_ep_ht_combine_send(ep, g);
}

static int combine_recv(struct ry_ep *ep, void *out, size_t out_stride)
{
    struct ry_ep_gen *g = ry_ep_gen_of(ep, ep->combined + 1);
    int rc;

    if (ep->combined == ep->returned)
        return ry_fail(RY_ERR_INVALID, "combine: nothing to receive: send first");
    if (!out && g->tokens)
        return ry_fail(RY_ERR_INVALID, "combine: out is null with %" PRIu32 " tokens: pass it",
                       g->tokens);
    rc = ep->attr.mode == RY_EP_LL ? ry_ep_ll_combine_recv(ep, g, out, out_stride)
                                   : ry_ep_ht_combine_recv(ep, g, out, out_stride);
    if (rc)
        return rc;
    ep->combined++;
    for (uint32_t i = 0; i < ep->words; i++)
        ep->told[i] = ~g->without[i];
    for (uint32_t p = ep->n; p < ep->words * 64; p++)
        ry_set_drop(ep->told, p);
    return RY_OK;
}

int ry_ep_combine(ry_ep *ep, const void *y, size_t y_stride, void *out, size_t out_stride,
                  int phase)
{
    int rc = usable(ep, phase);

    if (rc == RY_OK && phase != RY_EP_RECV)
        rc = combine_send(ep, y, y_stride);
    if (rc == RY_OK && phase != RY_EP_SEND)
        rc = combine_recv(ep, out, out_stride);
    return rc;
}

/* --- looking --- */

uint32_t ry_ep_local_experts(const ry_ep *ep, uint32_t pe)
{
    return pe < ep->n ? ry_place_expert_count(&ep->l.place, pe) : 0;
}

uint32_t ry_ep_first_expert(const ry_ep *ep, uint32_t pe)
{
    return pe < ep->n ? ry_place_expert_first(&ep->l.place, pe) : ep->l.place.experts;
}

uint64_t ry_ep_iterations(const ry_ep *ep) { return ep->sent; }

void ry_ep_dequantise(const ry_ep *ep, const ry_ep_output *out, uint32_t row, float *dst)
{
    const uint8_t *x = (const uint8_t *)out->x + row * out->x_stride;
    const uint8_t *scales = (const uint8_t *)out->scales + row * out->scales_stride;

    if (ep->attr.dtype == RY_BF16) {
        ry_bf16_to_f32_row((const uint16_t *)(const void *)x, ep->l.hidden, dst);
        return;
    }
    for (uint32_t i = 0; i < ep->l.hidden; i++) {
        uint32_t group = i / RY_SCALE_GROUP;
        float scale = ep->attr.scale == RY_SCALE_UE8M0
                          ? ry_ue8m0_to_f32(scales[group])
                          : ((const float *)(const void *)scales)[group];

        dst[i] = ry_f32_mul(ry_e4m3_to_f32(x[i]), scale);
    }
}

void ry_ep_last_traffic(const ry_ep *ep, ry_ep_traffic *dispatch, ry_ep_traffic *combine)
{
    *dispatch = ep->traffic[0];
    *combine = ep->traffic[1];
}
