/* SPDX-License-Identifier: Apache-2.0 */
/* Posting: a stream of rows to one peer, channel by channel. A message is payload and then its
 * signal, on one channel (rule 3); every channel of every stream ends with a word that says last
 * (rule 4). */
#include <string.h>

#include "ep/ep.h"

void ry_ep_share(struct ry_ep *ep, uint32_t p, uint32_t rows, uint64_t row_bytes, uint32_t *begin)
{
    const struct ry_peer *peer = &ep->m->peers[p];
    uint64_t sent[RY_CHANNELS_MAX];
    uint32_t n = ry_ep_channels(ep, p), count[RY_CHANNELS_MAX] = {0};

    memcpy(sent, ep->peer[p].sent, sizeof(sent));
    for (uint32_t r = 0; r < rows; r++)
        count[ry_route_pick(peer->weights, sent, n, row_bytes)]++;
    begin[0] = 0;
    for (uint32_t c = 0; c < n; c++)
        begin[c + 1] = begin[c] + count[c];
}

/* Count what a channel carried; the counters are halved before products with weights overflow. */
static void count_sent(struct ry_ep *ep, uint32_t p, uint32_t channel, uint64_t bytes)
{
    uint64_t *sent = ep->peer[p].sent;

    sent[channel] += bytes;
    if (sent[channel] >> 44 == 0)
        return;
    for (uint32_t c = 0; c < RY_CHANNELS_MAX; c++)
        sent[c] /= 2;
}

static ry_ep_traffic *traffic_of(struct ry_ep *ep, uint32_t kind)
{
    return &ep->traffic[kind >= RY_EP_COMBINE];
}

struct ry_ep_stream ry_ep_stream_open(struct ry_ep *ep, uint32_t kind, uint64_t gen, uint32_t p,
                                      uint32_t channel)
{
    struct ry_ep_stream s = {.ep = ep, .kind = kind, .peer = p, .channel = channel, .gen = gen};

    s.rows = ry_ep_span_of(ep, kind, gen, p, channel)->rows;
    s.bytes_max = RY_EP_MESSAGE_BYTES;
    if (ep->m->cfg.chunk_bytes)
        s.bytes_max = ry_min64(s.bytes_max, ep->m->cfg.chunk_bytes);
    return s;
}

/* Most requests of one message, less its signal. */
static uint32_t room(const struct ry_ep_stream *s)
{
    const struct ry_channel *ch = ry_mesh_channel(s->ep->m, s->peer, s->channel);

    return ry_min32(RY_EP_MESSAGE_BLOCKS, ry_channel_message_max(ch)) - 1;
}

/* The answer releases messages, so they need no proof read of their own, but only as long as the
 * ring can hold them: behind half a ring without one the next message might find no room, and
 * nothing under way that would make some. */
static uint32_t post_flags(struct ry_ep *ep, uint32_t p, uint32_t channel, uint32_t n)
{
    const struct ry_channel *ch = ry_mesh_channel(ep->m, p, channel);
    int64_t held = ry_seq_diff(ep->peer[p].newest[channel], ry_ld_acq64(&ch->released));

    return held + n > (int64_t)ry_channel_message_max(ch) ? 0 : RY_POST_NO_PROOF;
}

static int post(struct ry_ep *ep, uint32_t p, uint32_t channel, uint32_t n, uint64_t *end)
{
    int rc = ry_mesh_post(ep->m, p, channel, ep->reqs, n, post_flags(ep, p, channel, n), end);

    if (rc == RY_OK)
        ep->peer[p].newest[channel] = *end;
    return rc;
}

static void flush(struct ry_ep_stream *s, bool last)
{
    struct ry_ep *ep = s->ep;
    struct ry_ep_span *span = ry_ep_span_of(ep, s->kind, s->gen, s->peer, s->channel);
    uint64_t sector = ry_ep_signal_at(&ep->l, s->kind, s->gen, ep->pe, s->channel);
    uint64_t answer = ry_ep_answer_for(ep, s->peer), end = 0;
    uint64_t bytes = s->bytes + 16;

    if (s->rc)
        return;
    ep->reqs[s->n] = ry_wide_signal_req(ry_mesh_raddr(ep->m, s->peer, ep->block + sector),
                                        ry_sig_pack(s->gen, last, s->rows), answer, 0);
    s->rc = post(ep, s->peer, s->channel, s->n + 1, &end);
    if (s->rc) {
        s->rc = ry_ep_refused(ep, s->peer, s->rc);
        s->n = 0;
        s->bytes = 0;
        return;
    }
    if (!span->used)
        span->from = ry_seq_add(end, RY_SEQ_MASK + 1 - (s->n + 1));
    span->used = true;
    span->again |= ep->again;
    span->end = end;
    span->rows = s->rows;
    ep->peer[s->peer].answer_sent = answer;
    count_sent(ep, s->peer, s->channel, bytes);
    traffic_of(ep, s->kind)->rail_bytes += bytes;
    s->n = 0;
    s->bytes = 0;
}

void ry_ep_stream_write(struct ry_ep_stream *s, uint64_t to, uint64_t from, uint64_t bytes,
                        uint32_t rows)
{
    struct ry_ep *ep = s->ep;
    uint64_t raddr = ry_mesh_raddr(ep->m, s->peer, ep->block + to);
    uint64_t laddr = ry_mesh_laddr(ep->m, ep->block + from);

    while (bytes > 0) {
        struct ry_req *q = s->n ? &ep->reqs[s->n - 1] : NULL;
        uint64_t left = s->bytes_max - s->bytes;
        uint64_t piece = ry_min64(bytes, left);

        if (q && q->raddr + q->bytes == raddr && q->laddr + q->bytes == laddr) {
            q->bytes += (uint32_t)piece;
        } else {
            ep->reqs[s->n++] = (struct ry_req){
                .opcode = RY_OP_WRITE, .bytes = (uint32_t)piece, .raddr = raddr, .laddr = laddr};
        }
        s->bytes += piece;
        raddr += piece;
        laddr += piece;
        bytes -= piece;
        if (bytes == 0)
            s->rows += rows;
        if (s->n == room(s) || s->bytes == s->bytes_max)
            flush(s, false);
        if (s->rc)
            return;
    }
}

int ry_ep_stream_close(struct ry_ep_stream *s, bool last)
{
    uint64_t proof;

    if (RY_MUT(RY_MUT_NO_LAST_WORD) && s->rows == 0)
        last = false;
    if (last || s->n)
        flush(s, last);
    if (s->rc == RY_OK && s->ep->again)
        s->rc = ry_ep_refused(s->ep, s->peer,
                              ry_mesh_post_proof(s->ep->m, s->peer, s->channel, &proof));
    return s->rc;
}

void ry_ep_wake(struct ry_ep *ep, uint32_t p)
{
    const struct ry_nic_ops *ops = ep->m->nic->ops;

    if (ops->wake_peer)
        ops->wake_peer(ep->m->nic, p);
}

void ry_ep_signal_direct(struct ry_ep *ep, uint32_t kind, uint64_t gen, uint32_t p, uint32_t rows)
{
    uint64_t at = ry_ep_signal_at(&ep->l, kind, gen, ep->pe, 0);
    struct ry_wide_sector *sector = (struct ry_wide_sector *)(ry_ep_direct(ep, p) + at);
    uint64_t answer = ry_ep_answer_for(ep, p);

    if (p == ep->pe)
        return;
    ry_ep_span_of(ep, kind, gen, p, 0)->used = true;
    /* sender to receiver: rows stored before are visible once the value is; and what the answer
     * speaks of is no longer read here */
    ry_st_rel64(&sector->w[0].answer, answer);
    ry_st_rel64(&sector->w[0].value, ry_sig_pack(gen, true, rows));
    ep->peer[p].answer_sent = answer;
    traffic_of(ep, kind)->local_bytes += 16;
    ry_ep_wake(ep, p);
}

int ry_ep_signal_answer(struct ry_ep *ep, uint32_t p)
{
    struct ry_ep_peer *peer = &ep->peer[p];
    uint64_t answer = ry_ep_answer_for(ep, p), end = 0, at;
    uint64_t sent[RY_CHANNELS_MAX];
    uint8_t *direct = ry_ep_direct(ep, p);
    uint32_t channel;
    int rc;

    if (direct) {
        at = ry_ep_answer_at(&ep->l, ep->pe, 0);
        /* receiver to sender: what the answer speaks of is no longer read here */
        ry_st_rel64(&((struct ry_wide_sector *)(direct + at))->w[0].answer, answer);
        peer->answer_sent = answer;
        ry_ep_wake(ep, p);
        return RY_OK;
    }
    memcpy(sent, peer->sent, sizeof(sent));
    channel = ry_route_pick(ep->m->peers[p].weights, sent, ry_ep_channels(ep, p), 16);
    at = ry_ep_answer_at(&ep->l, ep->pe, channel);
    ep->reqs[0] = ry_wide_signal_req(ry_mesh_raddr(ep->m, p, ep->block + at), ++peer->answer_count,
                                     answer, 0);
    rc = post(ep, p, channel, 1, &end);
    if (rc)
        return ry_ep_refused(ep, p, rc);
    peer->answer_sent = answer;
    count_sent(ep, p, channel, 16);
    return RY_OK;
}

void ry_ep_store(struct ry_ep *ep, uint32_t kind, uint8_t *to, const void *from, uint64_t bytes)
{
    memcpy(to, from, bytes);
    traffic_of(ep, kind)->local_bytes += bytes;
}
