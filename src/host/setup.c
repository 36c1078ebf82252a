/* SPDX-License-Identifier: Apache-2.0 */
/* Before anything connects: rails, registrations, and what PEs must agree on. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "host/error.h"
#include "host/mesh.h"

static int fill_rail(struct ry_mesh *m, uint32_t i)
{
    struct ry_rail_wire *w = &m->hello.rail[i];
    struct ry_rail_info info;
    int rc = m->nic->ops->rail_info(m->nic, i, &info);

    if (rc == RY_OK)
        rc = m->nic->ops->mr_reg(m->nic, i, m->heap, m->heap_bytes, true, &m->mrs[i]);
    if (rc)
        return rc;
    memcpy(w->name, info.name, sizeof(w->name));
    memcpy(w->gid, info.gid, sizeof(w->gid));
    w->rate_bps = info.rate_bps;
    w->nic = info.nic;
    w->backup = m->place[i].known ? m->place[i].backup : RY_RAILS_MAX;
    w->distance = m->place[i].known ? m->place[i].distance : info.distance;
    w->rkey = m->mrs[i].rkey;
    w->link_layer = info.link_layer;
    w->up = m->nic->ops->rail_state(m->nic, i) == RY_PORT_UP;
    m->lkeys[i][0] = m->mrs[i].lkey;
    if (w->up)
        m->rails_up |= 1ull << i;
    return RY_OK;
}

static int contradiction(const char *what, uint32_t a, uint64_t va, uint32_t b, uint64_t vb)
{
    return ry_fail(RY_ERR_CONFIG,
                   "pes disagree on %s: pe %u has %" PRIu64 ", pe %u has %" PRIu64
                   ": give every pe the same setting",
                   what, a, va, b, vb);
}

static const char *layer_name(uint32_t layer)
{
    return layer == 1 ? "infiniband" : layer == 2 ? "ethernet" : "emulated";
}

/* No cable leads from one kind of link to another: any two PEs need one kind in common. */
static int check_layers(const struct ry_mesh *m, const struct ry_hello *all)
{
    for (uint32_t p = 0; p < m->n_pes; p++) {
        const struct ry_hello *h = &all[p];
        bool met = p == m->pe;

        for (uint32_t i = 0; i < h->rails && !met; i++)
            for (uint32_t k = 0; k < m->hello.rails && !met; k++)
                met = h->rail[i].link_layer == m->hello.rail[k].link_layer;
        if (!met)
            return ry_fail(RY_ERR_CONFIG,
                           "%.63s of pe %u is %s and %.63s of pe %u is %s: name ports of one kind "
                           "in RAILYARD_HCA",
                           m->hello.rail[0].name, m->pe, layer_name(m->hello.rail[0].link_layer),
                           h->rail[0].name, p, layer_name(h->rail[0].link_layer));
    }
    return RY_OK;
}

/* Incarnations of all PEs in one word; never 0. */
static uint64_t view_of(const struct ry_hello *all, uint32_t n)
{
    uint64_t v = 1;

    for (uint32_t p = 0; p < n; p++)
        v = v * 0x9e3779b97f4a7c15u + all[p].incarnation;
    return v ? v : 1;
}

/* What this PE expects once those that wait are in. */
static void expect(struct ry_mesh *m, const uint64_t *set, struct ry_hello *all)
{
    for (uint32_t p = 0; p < m->n_pes; p++)
        all[p].incarnation = p == m->pe ? m->hello.incarnation
                             : ry_set_within(set, p)
                                 ? __atomic_load_n(&m->peers[p].came, __ATOMIC_ACQUIRE)
                                 : m->peers[p].hello.incarnation;
    m->hello.view = view_of(all, m->n_pes);
}

/* Everybody has the same answers before it, so all that meet here judge alike. */
static int check_views(const struct ry_mesh *m, const struct ry_hello *all)
{
    uint64_t view = view_of(all, m->n_pes);

    for (uint32_t p = 0; p < m->n_pes; p++)
        if (all[p].view && all[p].view != view)
            return ry_fail(RY_ERR_LAUNCH,
                           "another pe came back while pe %u let one in: it is asked again", p);
    return RY_OK;
}

/* Differing rail counts and rates are legal; these are not. */
static int check_agreement(const struct ry_mesh *m, const struct ry_hello *all)
{
    const struct ry_hello *h0 = &all[0];

    for (uint32_t p = 1; p < m->n_pes; p++) {
        const struct ry_hello *h = &all[p];

        if (h->layout_version != h0->layout_version || h->ctl_version != h0->ctl_version ||
            memcmp(h->version, h0->version, sizeof(h->version)))
            return ry_fail(RY_ERR_CONFIG,
                           "pe 0 runs railyard %.15s and pe %u runs %.15s: install one version",
                           h0->version, p, h->version);
        if (memcmp(h->nic, h0->nic, sizeof(h->nic)))
            return ry_fail(RY_ERR_CONFIG,
                           "pes disagree on the nic backend: pe 0 has %.15s, pe %u has %.15s: give "
                           "every pe the same RAILYARD_NIC",
                           h0->nic, p, h->nic);
        if (h->heap_bytes != h0->heap_bytes)
            return contradiction("RAILYARD_HEAP_SIZE", 0, h0->heap_bytes, p, h->heap_bytes);
        if (h->channels != h0->channels)
            return contradiction("RAILYARD_CHANNELS", 0, h0->channels, p, h->channels);
        if (h->failover != h0->failover)
            return contradiction("RAILYARD_FAILOVER", 0, h0->failover, p, h->failover);
        if (h->p2p != h0->p2p)
            return contradiction("RAILYARD_P2P", 0, h0->p2p, p, h->p2p);
        if (h->rails == 0 || h->rails > RY_RAILS_MAX)
            return ry_fail(RY_ERR_PROTOCOL, "pe %u says it has %u rails", p, h->rails);
    }
    return check_layers(m, all);
}

static void fill_peer(struct ry_mesh *m, uint32_t pe, const struct ry_hello *h)
{
    struct ry_peer *p = &m->peers[pe];

    p->pe = pe;
    p->hello = *h;
    ry_peer_become(p, RY_PEER_UP);
    for (uint32_t j = 0; j < h->rails; j++) {
        p->rkeys[j][0] = h->rail[j].rkey;
        if (h->rail[j].up)
            p->rails_up |= 1ull << j;
        p->rail_downs[j] = (uint8_t)h->rail[j].downs;
    }
}

int ry_mesh_hello(struct ry_mesh *m, uint64_t deadline_ns)
{
    struct ry_hello *all;
    int rc = RY_OK;

    m->hello.rails = m->nic->ops->rail_count(m->nic);
    if (m->hello.rails == 0 || m->hello.rails > RY_RAILS_MAX)
        return ry_fail(RY_ERR_DEVICE, "%u rails, and 1 to %d are possible: check RAILYARD_HCA",
                       m->hello.rails, RY_RAILS_MAX);
    m->hello.layout_version = RY_LAYOUT_VERSION;
    m->hello.ctl_version = RY_CTL_VERSION;
    strncpy(m->hello.version, ry_version(), sizeof(m->hello.version) - 1);
    m->hello.heap_bytes = m->heap_bytes;
    m->hello.incarnation = m->boot->incarnation;
    for (uint32_t i = 0; i < m->hello.rails && rc == RY_OK; i++)
        rc = fill_rail(m, i);
    if (rc)
        return rc;
    m->peers = calloc(m->n_pes, sizeof(*m->peers));
    all = calloc(m->n_pes, sizeof(*all));
    if (!m->peers || !all)
        rc = ry_fail(RY_ERR_NO_MEMORY, "no memory for %u peers", m->n_pes);
    if (rc == RY_OK)
        rc = m->boot->ops->allgather(m->boot, &m->hello, sizeof(m->hello), all, deadline_ns);
    if (rc == RY_OK)
        rc = check_agreement(m, all);
    if (rc == RY_OK)
        rc = check_views(m, all);
    for (uint32_t p = 0; rc == RY_OK && p < m->n_pes; p++)
        fill_peer(m, p, &all[p]);
    free(all);
    return rc;
}

int ry_mesh_rehello(struct ry_mesh *m, const uint64_t *set, uint64_t deadline_ns)
{
    struct ry_hello *all = calloc(m->n_pes, sizeof(*all));
    int rc = all ? RY_OK : ry_fail(RY_ERR_NO_MEMORY, "no memory for %u peers", m->n_pes);

    if (rc == RY_OK)
        expect(m, set, all);
    if (rc == RY_OK)
        rc = m->boot->ops->allgather(m->boot, &m->hello, sizeof(m->hello), all, deadline_ns);
    if (rc == RY_OK)
        rc = check_agreement(m, all);
    if (rc == RY_OK)
        rc = check_views(m, all);
    for (uint32_t p = 0; rc == RY_OK && p < m->n_pes; p++) {
        if (ry_set_within(set, p))
            fill_peer(m, p, &all[p]);
        m->peers[p].hello.barrier_count = all[p].barrier_count;
    }
    free(all);
    return rc;
}
