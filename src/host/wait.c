/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting: every wait has a deadline, works while it waits, and sleeps when there is nothing to do.
 */
#include <sched.h>

#include "host/error.h"
#include "host/mesh.h"

static bool has_work(const struct ry_channel *ch, uint64_t st)
{
    const struct ry_ring *r = &ch->ring[ry_state_active(st)];

    return ry_state_of(st) != RY_CH_GOOD ||
           ry_packed_seq(ry_observe_cons(r)) != ry_packed_seq(ry_observe_ready(r));
}

static int progress_peer(struct ry_mesh *m, struct ry_peer *p)
{
    int worst = RY_OK;

    for (uint32_t c = 0; c < p->n_channels; c++) {
        struct ry_channel *ch = p->out[c].ch;
        uint64_t acked;
        int rc;

        if (RY_LIKELY(!has_work(ch, ry_observe_state(ch))))
            continue;
        rc = ry_channel_progress(ch, &m->env, &acked);
        if (rc == RY_ERR_STALLED)
            return ry_fail(rc, "channel %u to pe %u: a thread stopped in mid-submit", c, p->pe);
        if (rc == RY_ERR_UNREACHABLE)
            worst = rc;
    }
    return worst;
}

int ry_mesh_progress(struct ry_mesh *m, uint32_t only)
{
    int worst = RY_OK;

    m->nic->ops->drive(m->nic, ry_now(&m->env));
    for (uint32_t q = 0; q < m->n_pes; q++) {
        int rc;

        if (q == m->pe || !m->peers[q].out)
            continue;
        rc = progress_peer(m, &m->peers[q]);
        if (rc == RY_ERR_STALLED || (rc && (only == q || only == UINT32_MAX)))
            worst = rc;
    }
    return worst;
}

bool ry_mesh_proxy_look(struct ry_mesh *m)
{
    bool any = false;

    for (uint32_t q = 0; q < m->n_pes; q++) {
        for (uint32_t c = 0; c < m->peers[q].n_channels; c++) {
            struct ry_out_channel *oc = &m->peers[q].out[c];

            for (uint32_t i = 0; i < RY_SLOTS; i++)
                any |= ry_proxy_step(&oc->ch->ring[i], oc->slot[i].pslot, oc->slot[i].pecho,
                                     &oc->slot[i].proxy_last, &m->env);
        }
    }
    return any;
}

void ry_wait_begin(struct ry_mesh *m, struct ry_wait *w, uint32_t from, uint64_t timeout_ns)
{
    w->start_ns = ry_now(&m->env);
    w->deadline_ns = timeout_ns ? w->start_ns + timeout_ns : 0;
    w->spin_until_ns = w->start_ns + m->spin_ns;
    w->from = from;
    w->turns = 0;
}

/* No deadline of the caller's: the peer is asked, and waited for as long as it answers. A slow peer
 * is not a dead link (rule 12); a peer that was not heard of for RAILYARD_TIMEOUT is. That is the
 * agent's count; should the agent itself not run, four times as long by the clock. */
static int ask_peer(struct ry_mesh *m, const struct ry_wait *w, uint64_t now)
{
    struct ry_peer *p = &m->peers[w->from];
    uint64_t asked = ry_ld_acq64(&p->asked_ns), heard = ry_ld_acq64(&p->heard_ns);
    uint64_t since = ry_max64(heard, ry_max64(asked, w->start_ns));
    uint64_t past = now > since ? now - since : 0, limit = m->env.lost_ns_max;

    if (now - w->start_ns < limit / 4)
        return RY_OK;
    if (!asked)
        ry_st_rel64(&p->asked_ns, now);
    if (asked && ((past > limit && ry_ld_acq64(&p->silent_ns) > limit) || past > 4 * limit))
        return ry_fail(RY_ERR_TIMEOUT, "pe %u has not answered for %.1f s: is it stopped?", w->from,
                       (double)past / 1e9);
    return RY_OK;
}

static int look_at_peer(struct ry_mesh *m, const struct ry_wait *w, uint64_t now)
{
    int rc;

    if (w->from == UINT32_MAX || w->from == m->pe)
        return RY_OK;
    rc = ry_mesh_peer_status(m, w->from);
    return rc || w->deadline_ns ? rc : ask_peer(m, w, now);
}

int ry_wait_turn(struct ry_mesh *m, struct ry_wait *w)
{
    int rc = ry_mesh_progress(m, w->from);
    uint64_t now, limit;

    if (rc == RY_ERR_STALLED)
        return rc;
    if (m->work)
        m->work(m->work_arg);
    now = ry_now(&m->env);
    if (w->deadline_ns && now >= w->deadline_ns)
        return ry_fail(RY_ERR_TIMEOUT, "timed out after %.3f s", (double)(now - w->start_ns) / 1e9);
    if ((++w->turns & 15) == 0 || now >= w->spin_until_ns) {
        rc = look_at_peer(m, w, now);
        if (rc)
            return rc;
    }
    if (m->virtual_time) {
        ry_relax(&m->env);
        return RY_OK;
    }
    if (now < w->spin_until_ns) {
        if (m->crowded)
            sched_yield();
        return RY_OK;
    }
    limit = now + m->nap_ns;
    if (w->deadline_ns)
        limit = ry_min64(limit, w->deadline_ns);
    m->nic->ops->idle(m->nic, limit);
    return RY_OK;
}
