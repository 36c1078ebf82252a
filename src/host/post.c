/* SPDX-License-Identifier: Apache-2.0 */
/* Posting, with patience: a full ring and a move under way are waited for, a peer without any path
 * is named. */
#include "host/error.h"
#include "host/mesh.h"

static int lost(const struct ry_peer *p)
{
    return ry_fail(RY_ERR_PEER_LOST, "pe %u is lost: %s", p->pe,
                   __atomic_load_n(&p->given_up, __ATOMIC_ACQUIRE) ? "it was given up"
                                                                   : "its process ended");
}

/* A rail of the peer that it does not give back; NULL: there is none. */
static const char *unfenced_rail(const struct ry_peer *p, const struct ry_out_channel *oc)
{
    for (uint32_t i = 0; i < RY_SLOTS; i++)
        if (oc->slot[i].unfenced)
            return p->hello.rail[oc->slot[i].peer_rail].name;
    return NULL;
}

int ry_mesh_peer_status(struct ry_mesh *m, uint32_t pe)
{
    struct ry_peer *p = &m->peers[pe];
    uint32_t overdue = 0;

    if (ry_peer_state(p) == RY_PEER_GONE)
        return lost(p);
    for (uint32_t c = 0; c < p->n_channels; c++) {
        const struct ry_out_channel *oc = &p->out[c];
        uint64_t st = ry_observe_state(oc->ch);
        const struct ry_out_slot *s = &oc->slot[ry_state_active(st)];

        /* the agent says that a PE is lost before it gives its channels up */
        if (ry_state_of(st) == RY_CH_DEAD && ry_peer_state(p) == RY_PEER_GONE)
            return lost(p);
        if (ry_state_of(st) == RY_CH_DEAD && unfenced_rail(p, oc))
            return ry_fail(RY_ERR_UNREACHABLE,
                           "pe %u is given up: its rail %s failed, and its nic neither resets nor "
                           "cuts it: restart that pe",
                           pe, unfenced_rail(p, oc));
        overdue += ry_state_of(st) == RY_CH_PARKED && ry_channel_overdue(oc->ch, &m->env);
        if (ry_state_of(st) == RY_CH_DEAD || (overdue && overdue == p->n_channels))
            return ry_fail(RY_ERR_UNREACHABLE,
                           "pe %u is unreachable: no usable path within %.1f s, last tried rail "
                           "%s to %s (%s): check cables and switch ports of both",
                           pe, (double)m->env.lost_ns_max / 1e9, m->hello.rail[s->rail].name,
                           p->hello.rail[s->peer_rail].name,
                           m->rails_up >> s->rail & 1 ? "port up here" : "port down here");
    }
    if (ry_peer_state(p) == RY_PEER_UNREACHABLE)
        return ry_fail(RY_ERR_UNREACHABLE, "pe %u says that it cannot reach pe %u any more", pe,
                       m->pe);
    return RY_OK;
}

int ry_mesh_has_channels(struct ry_mesh *m, uint32_t pe)
{
    return RY_LIKELY(m->peers[pe].n_channels) ? RY_OK : lost(&m->peers[pe]);
}

static void noted(struct ry_mesh *m)
{
    __atomic_fetch_add(&m->activity, 1, __ATOMIC_RELAXED);
    if (RY_UNLIKELY(__atomic_load_n(&m->agent_dozes, __ATOMIC_RELAXED)) && m->wake_agent)
        m->wake_agent(m->wake_arg);
    if (RY_UNLIKELY(__atomic_load_n(&m->proxy_dozes, __ATOMIC_RELAXED)) && m->wake_proxy)
        m->wake_proxy(m->wake_arg);
}

/* Was the try refused for good? Else one turn of the wait that its answer calls for. */
static int refused(struct ry_mesh *m, uint32_t pe, struct ry_channel *ch, int rc, struct ry_wait *w)
{
    if (rc != RY_ERR_AGAIN && rc != RY_ERR_BUSY)
        return rc == RY_ERR_UNREACHABLE ? ry_mesh_peer_status(m, pe) : rc;
    if (!w->start_ns)
        ry_wait_begin(m, w, pe, 0);
    if (ry_channel_overdue(ch, &m->env)) {
        rc = ry_mesh_peer_status(m, pe);
        return rc ? rc
                  : ry_fail(RY_ERR_UNREACHABLE, "channel %u to pe %u has no usable path", ch->id,
                            pe);
    }
    return ry_wait_turn(m, w);
}

int ry_mesh_post(struct ry_mesh *m, uint32_t pe, uint32_t channel, const struct ry_req *reqs,
                 uint32_t n, uint32_t flags, uint64_t *end)
{
    struct ry_channel *ch = ry_mesh_channel(m, pe, channel);
    struct ry_wait w = {0};

    for (;;) {
        int rc = ry_channel_post(ch, reqs, n, flags, &m->env, end);

        if (RY_LIKELY(rc == RY_OK)) {
            noted(m);
            return rc;
        }
        rc = refused(m, pe, ch, rc, &w);
        if (rc)
            return rc;
    }
}

int ry_mesh_post_proof(struct ry_mesh *m, uint32_t pe, uint32_t channel, uint64_t *end)
{
    struct ry_channel *ch = ry_mesh_channel(m, pe, channel);
    struct ry_wait w = {0};

    for (;;) {
        int rc = ry_channel_post_proof(ch, &m->env, end);

        if (RY_LIKELY(rc == RY_OK)) {
            noted(m);
            return rc;
        }
        rc = refused(m, pe, ch, rc, &w);
        if (rc)
            return rc;
    }
}
