/* SPDX-License-Identifier: Apache-2.0 */
/* Queue pairs of every channel, home and one backup each, connected at the start in one exchange.
 */
#include <stdlib.h>
#include <string.h>

#include "host/agent.h"
#include "host/error.h"

enum { START_SLOTS = 2, LINE = 64, COME_AGAIN_NS = 500000 };

/* Memory of one slot: ring, then one line each for the CQE and the words. */
size_t ry_slot_memory_bytes(uint32_t depth) { return (size_t)depth * 64 + 4 * LINE; }

static size_t slot_bytes(const struct ry_mesh *m) { return ry_slot_memory_bytes(m->cfg.depth); }

static void slot_place(const struct ry_mesh *m, struct ry_out_slot *s, uint8_t *at)
{
    uint8_t *words = at + (size_t)m->cfg.depth * 64;

    s->wqe = (struct ry_wqe *)at;
    s->cqe = (struct ry_cqe *)words;
    s->dbr = (uint32_t *)(words + LINE);
    s->uar = (uint64_t *)(words + LINE + 16);
    s->pslot = (uint64_t *)(words + 2 * LINE);
    s->pecho = (uint64_t *)(words + 3 * LINE);
}

static void channel_init(struct ry_mesh *m, uint32_t pe, uint32_t c, struct ry_channel *ch)
{
    uint64_t start = m->cfg.seq_first & RY_SEQ_MASK;

    memset(ch, 0, sizeof(*ch));
    ch->state = ry_state_pack(RY_CH_PARKED, 0, 0);
    ch->released = ch->dirty = start;
    ch->peer = pe;
    ch->id = c;
    ch->depth = m->cfg.depth;
    ch->handler = m->cfg.handler;
    ch->hint = &m->hint;
    /* landing word of this channel's proof reads; what they read is the first word of the heap */
    ch->read_laddr = m->hello.heap_base + LINE + 8 * (uint64_t)(pe * RY_CHANNELS_MAX + c);
    ch->read_raddr = m->peers[pe].hello.heap_base;
    for (int i = 0; i < RY_PROBES; i++)
        ch->probe[i] = start;
    ch->probe_next = ry_seq_add(start, m->cfg.depth / RY_PROBES);
    ch->first_ok_ns = 1;
    for (uint32_t s = 0; s < RY_SLOTS; s++) {
        struct ry_ring *r = &ch->ring[s];

        r->host = &m->peers[pe].out[c].slot[s].host;
        m->peers[pe].out[c].slot[s].epoch = m->cfg.epoch_first - 1;
        r->mask = m->cfg.depth - 1;
        r->resv_head = RY_CLOSED | start;
        r->cons = r->ready_head = ry_pack(0, start);
        r->first = r->carried = r->proven = start;
        r->failed_epoch = r->epoch = m->cfg.epoch_first - 1;
        r->host->armed_epoch = r->host->condemn_epoch = r->host->retire_epoch =
            r->host->flushed_epoch = r->host->fenced_epoch = m->cfg.epoch_first - 1;
    }
}

static int peer_alloc(struct ry_mesh *m, struct ry_peer *p, uint8_t *memory)
{
    uint32_t n = ry_plan_channels(&m->hello, &p->hello, m->cfg.channels);
    struct ry_channel *ch;

    p->memory = memory;
    p->channels_made = n;
    p->n_channels = n;
    p->out = calloc(n, sizeof(*p->out));
    p->in = calloc((size_t)n * RY_SLOTS, sizeof(*p->in));
    ch = aligned_alloc(LINE, n * sizeof(*ch));
    if (!p->out || !p->in || !ch) {
        free(ch);
        return ry_fail(RY_ERR_NO_MEMORY, "no memory for %u channels to pe %u", n, p->pe);
    }
    ry_plan_weights(&m->hello, &p->hello, n, p->weights);
    for (uint32_t c = 0; c < n; c++) {
        struct ry_out_channel *oc = &p->out[c];

        oc->ch = &ch[c];
        oc->mesh = m;
        oc->weight = p->weights[c];
        p->weight_sum += oc->weight;
        ry_plan_home(&m->hello, &p->hello, c, &oc->home_rail, &oc->home_peer_rail);
        oc->seen_active_rail = oc->home_rail;
        oc->quiet_seq = p->quiet_goal[c] = m->cfg.seq_first & RY_SEQ_MASK;
        for (uint32_t s = 0; s < RY_SLOTS; s++)
            slot_place(m, &oc->slot[s], memory + ((size_t)c * RY_SLOTS + s) * slot_bytes(m));
        channel_init(m, p->pe, c, &ch[c]);
    }
    return RY_OK;
}

static int alloc_all(struct ry_mesh *m)
{
    size_t total = 0, at = 0;

    for (uint32_t q = 0; q < m->n_pes; q++)
        if (q != m->pe)
            total += ry_plan_channels(&m->hello, &m->peers[q].hello, m->cfg.channels) *
                     slot_bytes(m) * RY_SLOTS;
    total = (total + 4095) & ~(size_t)4095;
    if (total) {
        m->ring_memory = aligned_alloc(4096, total);
        if (!m->ring_memory)
            return ry_fail(RY_ERR_NO_MEMORY,
                           "no memory for %zu bytes of send rings: lower RAILYARD_QP_DEPTH or "
                           "RAILYARD_CHANNELS",
                           total);
        memset(m->ring_memory, 0, total);
        m->ring_memory_bytes = total;
    }
    for (uint32_t q = 0; q < m->n_pes; q++) {
        int rc;

        if (q == m->pe)
            continue;
        rc = peer_alloc(m, &m->peers[q], (uint8_t *)m->ring_memory + at);
        if (rc)
            return rc;
        at += m->peers[q].n_channels * slot_bytes(m) * RY_SLOTS;
    }
    return RY_OK;
}

/* Rails of slot s (0: home, 1: its backup) of channel c from a to b; false: there is no such path.
 */
static bool start_rails(const struct ry_mesh *m, const struct ry_hello *a, const struct ry_hello *b,
                        uint32_t c, uint32_t s, uint32_t *rail, uint32_t *peer_rail)
{
    uint32_t i, j;

    ry_plan_home(a, b, c, &i, &j);
    *rail = i;
    *peer_rail = j;
    return s == 0 || (m->cfg.failover && ry_plan_backup(a, b, i, j, rail, peer_rail));
}

/* One pair's part of the exchange: [channel][slot]{initiator, responder}. */
struct pair_addr {
    struct ry_qp_addr initiator, responder;
};

static size_t pair_count(const struct ry_mesh *m, uint32_t a, uint32_t b)
{
    return (size_t)START_SLOTS *
           ry_plan_channels(&m->peers[a].hello, &m->peers[b].hello, m->cfg.channels);
}

static int create_pair(struct ry_mesh *m, struct ry_peer *p, struct pair_addr *to)
{
    for (uint32_t c = 0; c < p->n_channels; c++) {
        for (uint32_t s = 0; s < START_SLOTS; s++) {
            struct pair_addr *a = &to[c * START_SLOTS + s];
            uint32_t rail, peer_rail;
            int rc = RY_OK;

            if (start_rails(m, &m->hello, &p->hello, c, s, &rail, &peer_rail)) {
                rc = ry_slot_create(m, p->pe, &p->out[c].slot[s], rail, peer_rail);
                a->initiator = p->out[c].slot[s].addr;
            }
            if (rc == RY_OK && start_rails(m, &p->hello, &m->hello, c, s, &peer_rail, &rail)) {
                rc = ry_slot_respond(m, p->pe, &p->in[c * RY_SLOTS + s], rail, NULL);
                a->responder = p->in[c * RY_SLOTS + s].addr;
            }
            if (rc)
                return rc;
        }
    }
    return RY_OK;
}

/* A path that cannot be had is left to the agent, as one that fails later is; so is one whose NIC
 * died meanwhile. */
static bool path_only(int rc)
{
    return rc == RY_ERR_PATH || rc == RY_ERR_RAIL || rc == RY_ERR_DEVICE;
}

/* Nothing else is to be done meanwhile. */
static int connect_qp(struct ry_mesh *m, struct ry_nic_qp *qp, const struct ry_qp_addr *to)
{
    int rc = m->nic->ops->qp_connect(qp, to);

    while (rc == RY_ERR_AGAIN) {
        m->nic->ops->idle(m->nic, ry_now(&m->env) + COME_AGAIN_NS);
        rc = m->nic->ops->qp_connect(qp, to);
    }
    return rc;
}

/* A start fails when a pair of PEs has no path at all; a rejoin leaves that to the agents, who may
 * find one before an operation's time is over. */
static int connect_pair(struct ry_mesh *m, struct ry_peer *p, const struct pair_addr *from,
                        bool rejoin)
{
    uint32_t usable = 0;
    int last = RY_OK;

    for (uint32_t c = 0; c < p->n_channels; c++) {
        for (uint32_t s = 0; s < START_SLOTS; s++) {
            const struct pair_addr *a = &from[c * START_SLOTS + s];
            struct ry_out_slot *o = &p->out[c].slot[s];
            struct ry_in_slot *in = &p->in[c * RY_SLOTS + s];
            int rc = RY_OK;

            if (in->qp) {
                rc = connect_qp(m, in->qp, &a->initiator);
                in->peer = a->initiator;
                in->epoch = m->cfg.epoch_first;
                in->state = RY_IN_READY;
                if (m->rails_cut >> in->rail & 1) /* since its keys were told */
                    ry_agent_close(m, in);
            }
            if ((rc == RY_OK || path_only(rc)) && o->qp) {
                rc = connect_qp(m, o->qp, &a->responder);
                if (path_only(rc) || m->rails_cut >> o->rail & 1)
                    ry_slot_destroy(m, o);
            }
            if (rc && !path_only(rc))
                return rc;
            last = rc ? rc : last;
            usable += o->qp != NULL;
        }
    }
    return usable || p->n_channels == 0 || rejoin ? RY_OK : last;
}

/* All peers are connected: offer the paths and open the home rings. A rail that is down at the
 * start is left to the agent: its paths count as failed from the beginning. */
static void open_pair(struct ry_mesh *m, struct ry_peer *p)
{
    uint64_t now = ry_now(&m->env);

    for (uint32_t c = 0; c < p->n_channels; c++) {
        struct ry_out_channel *oc = &p->out[c];
        uint32_t first;

        for (uint32_t s = 0; s < START_SLOTS; s++) {
            struct ry_out_slot *o = &oc->slot[s];

            if (!o->qp)
                continue;
            o->epoch = m->cfg.epoch_first;
            o->since_ns = now;
            ry_slot_offer(m, p->pe, oc, o);
            m->peers[p->pe].pair[o->rail][o->peer_rail].good_since_ns = now;
        }
        for (first = 0; first < START_SLOTS && !oc->slot[first].qp; first++)
            ;
        if (first < START_SLOTS)
            ry_channel_open(oc->ch, first, &m->env);
        else
            oc->ch->parked_ns = now;
        oc->seen_state = ry_observe_state(oc->ch);
    }
}

static size_t blob_offset(const struct ry_mesh *m, uint32_t owner, uint32_t to)
{
    size_t n = 0;

    for (uint32_t q = 0; q < to; q++)
        if (q != owner)
            n += pair_count(m, owner, q);
    return n * sizeof(struct pair_addr);
}

/* Of all peers, or in a rejoin of those in `set`: the other parts of the blob are then zero. */
static bool wanted(const struct ry_mesh *m, uint32_t q, const uint64_t *set)
{
    return q != m->pe && ry_set_within(set, q);
}

int ry_mesh_none_lost(const struct ry_mesh *m, const uint64_t *set)
{
    for (uint32_t q = 0; q < m->n_pes; q++)
        if (q != m->pe && !ry_set_within(set, q) && ry_peer_state(&m->peers[q]) == RY_PEER_GONE)
            return ry_fail(RY_ERR_LAUNCH, "pe %u is lost while others are let in", q);
    return RY_OK;
}

static int exchange(struct ry_mesh *m, const uint64_t *set, uint64_t deadline_ns)
{
    size_t mine = blob_offset(m, m->pe, m->n_pes);
    size_t *offs = calloc(m->n_pes + 1u, sizeof(*offs));
    uint8_t *blob = calloc(1, mine + 1), *all = NULL;
    int rc = offs && blob ? RY_OK : ry_fail(RY_ERR_NO_MEMORY, "no memory for the exchange");

    for (uint32_t q = 0; rc == RY_OK && q < m->n_pes; q++)
        if (wanted(m, q, set))
            rc =
                create_pair(m, &m->peers[q], (struct pair_addr *)(blob + blob_offset(m, m->pe, q)));
    if (rc == RY_OK)
        rc = m->boot->ops->allgatherv(m->boot, blob, mine, (void **)&all, offs, deadline_ns);
    for (uint32_t q = 0; rc == RY_OK && q < m->n_pes; q++) {
        if (!wanted(m, q, set))
            continue;
        if (offs[q + 1] - offs[q] != blob_offset(m, q, m->n_pes))
            rc = ry_fail(RY_ERR_PROTOCOL, "pe %u sent %zu bytes of addresses instead of %zu", q,
                         offs[q + 1] - offs[q], blob_offset(m, q, m->n_pes));
        else
            rc = connect_pair(m, &m->peers[q],
                              (const struct pair_addr *)(all + offs[q] + blob_offset(m, q, m->pe)),
                              set || m->hello.incarnation);
    }
    free(all);
    free(blob);
    free(offs);
    return rc;
}

static int attach(struct ry_mesh *m, uint32_t q)
{
    struct ry_nic_peer at = {
        .pe = q,
        .seg = m->peers[q].seg,
        .seg_len_bytes = m->peers[q].hello.seg_bytes,
        .heap = m->peers[q].heap,
        .heap_len_bytes = m->heap_bytes,
        .heap_base = m->peers[q].hello.heap_base,
    };

    return m->nic->ops->peer_attach(m->nic, &at);
}

int ry_mesh_connect(struct ry_mesh *m, uint64_t deadline_ns)
{
    int rc = alloc_all(m);

    for (uint32_t q = 0; rc == RY_OK && q < m->n_pes; q++)
        if (q != m->pe)
            rc = attach(m, q);
    if (rc == RY_OK)
        rc = exchange(m, NULL, deadline_ns);
    if (rc == RY_OK)
        rc = m->boot->ops->barrier(m->boot, deadline_ns);
    for (uint32_t q = 0; rc == RY_OK && q < m->n_pes; q++)
        if (q != m->pe)
            open_pair(m, &m->peers[q]);
    return rc;
}

/* Attached, and rings as at the start: a proxy, which remembers none, would ring old ones. */
static int renew(struct ry_mesh *m, struct ry_peer *p)
{
    uint32_t n = ry_plan_channels(&m->hello, &p->hello, m->cfg.channels), made = p->channels_made;
    int rc = RY_OK;

    if (n > made)
        return ry_fail(
            RY_ERR_CONFIG,
            "pe %u comes back with %u rails and needs %u channels instead of %u: give it "
            "the rails of its predecessor",
            p->pe, p->hello.rails, n, made);
    rc = attach(m, p->pe);
    memset(p->memory, 0, n * slot_bytes(m) * RY_SLOTS);
    if (rc == RY_OK)
        rc = peer_alloc(m, p, p->memory);
    p->channels_made = made;
    return rc;
}

static void show(struct ry_mesh *m, const uint64_t *set, bool on)
{
    for (uint32_t q = 0; q < m->n_pes; q++) {
        struct ry_peer *p = &m->peers[q];

        if (wanted(m, q, set))
            p->n_channels = on ? ry_plan_channels(&m->hello, &p->hello, m->cfg.channels) : 0;
    }
}

/* The peers are half made until their paths are open: nobody but this thread looks at them then,
 * because they have no channels (n_channels is 0). An agent that did would arm a path of its own in
 * a slot that the opening then offers. */
int ry_mesh_reconnect(struct ry_mesh *m, const uint64_t *set, pthread_rwlock_t *lock,
                      uint64_t deadline_ns)
{
    int rc = RY_OK;

    pthread_rwlock_wrlock(lock);
    for (uint32_t q = 0; rc == RY_OK && q < m->n_pes; q++)
        if (wanted(m, q, set))
            rc = renew(m, &m->peers[q]);
    if (rc == RY_OK)
        rc = exchange(m, set, deadline_ns);
    if (rc == RY_OK && !RY_MUT(RY_MUT_HALF_MADE))
        show(m, set, false);
    pthread_rwlock_unlock(lock);
    if (rc)
        return rc;
    rc = ry_mesh_none_lost(m, set);
    if (rc == RY_OK)
        rc = m->boot->ops->barrier(m->boot, deadline_ns);
    pthread_rwlock_wrlock(lock);
    show(m, set, true);
    for (uint32_t q = 0; rc == RY_OK && q < m->n_pes; q++)
        if (wanted(m, q, set))
            open_pair(m, &m->peers[q]);
    if (!RY_MUT(RY_MUT_JOIN_UNTOLD))
        m->rails_repeat_ns = 0; /* they have none of our news */
    pthread_rwlock_unlock(lock);
    return rc;
}

static void peer_destroy_qps(struct ry_mesh *m, struct ry_peer *p)
{
    for (uint32_t i = 0; p->out && p->in && i < p->n_channels * RY_SLOTS; i++) {
        ry_slot_destroy(m, &p->out[i / RY_SLOTS].slot[i % RY_SLOTS]);
        if (p->in[i].qp)
            m->nic->ops->qp_destroy(p->in[i].qp);
        p->in[i].qp = NULL;
    }
}

void ry_mesh_forget(struct ry_mesh *m, uint32_t pe)
{
    struct ry_peer *p = &m->peers[pe];
    uint8_t *memory = p->memory;
    uint32_t made = p->channels_made;
    struct ry_peer old = *p;

    peer_destroy_qps(m, p);
    m->nic->ops->peer_detach(m->nic, pe);
    if (p->out)
        free(p->out[0].ch);
    free(p->out);
    free(p->in);
    memset(p, 0, sizeof(*p));
    /* what the unmapping needs, and the memory of the rings, stay */
    p->pe = pe;
    p->state = RY_PEER_GONE;
    p->hello = old.hello;
    p->heap = old.heap;
    p->seg = old.seg;
    p->mapped = old.mapped;
    p->memory = memory;
    p->channels_made = made;
    p->came = old.came;
    p->fell = old.fell;
}

void ry_mesh_teardown_qps(struct ry_mesh *m)
{
    for (uint32_t q = 0; m->peers && q < m->n_pes; q++) {
        peer_destroy_qps(m, &m->peers[q]);
        if (q != m->pe)
            m->nic->ops->peer_detach(m->nic, q);
    }
}

void ry_mesh_teardown(struct ry_mesh *m)
{
    for (uint32_t q = 0; m->peers && q < m->n_pes; q++) {
        struct ry_peer *p = &m->peers[q];

        if (p->out)
            free(p->out[0].ch);
        free(p->out);
        free(p->in);
    }
    for (uint32_t i = 0; i < m->hello.rails; i++)
        if (m->mrs[i].rkey || m->mrs[i].lkey)
            m->nic->ops->mr_dereg(m->nic, i, m->mrs[i]);
    free(m->peers);
    free(m->ring_memory);
    m->peers = NULL;
    m->ring_memory = NULL;
}
