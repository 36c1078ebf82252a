/* SPDX-License-Identifier: Apache-2.0 */
/* Ports of our own, and what we tell and hear of ports. */
#include <string.h>

#include "host/agent.h"
#include "railyard/context.h"

static void tell(struct ry_mesh *m, int type, uint32_t peer, uint32_t rail)
{
    if (m->on_event)
        m->on_event(m->event_arg, m, type, peer, 0, rail, rail, NULL);
}

static void rail_changes(struct ry_mesh *m, uint32_t rail, bool up)
{
    uint64_t bit = 1ull << rail;

    if (!!(m->rails_up & bit) == up)
        return;
    if (up)
        m->rails_up |= bit;
    else
        m->rails_up &= ~bit;
    m->rail_downs[rail] += !up;
    if (!up)
        ry_agent_condemn_own(m, rail);
    m->rails_news++;
    tell(m, up ? RY_EVENT_RAIL_UP : RY_EVENT_RAIL_DOWN, m->pe, rail);
}

void ry_agent_events(struct ry_mesh *m)
{
    struct ry_nic_event ev;

    while (m->nic->ops->poll_event(m->nic, &ev) == 1) {
        if (ev.rail >= m->hello.rails)
            continue;
        switch (ev.type) {
        case RY_EV_PORT_DOWN:
            rail_changes(m, ev.rail, false);
            break;
        case RY_EV_PORT_UP:
            rail_changes(m, ev.rail, m->nic->ops->rail_state(m->nic, ev.rail) == RY_PORT_UP);
            break;
        case RY_EV_NIC_FATAL:
            for (uint32_t i = 0; i < m->hello.rails; i++)
                if (m->hello.rail[i].nic == m->hello.rail[ev.rail].nic)
                    rail_changes(m, i, false);
            break;
        case RY_EV_GID_CHANGE: /* paths over it are dead at the old GID: leave, rebuild with the new
                                */
            rail_changes(m, ev.rail, false);
            rail_changes(m, ev.rail, m->nic->ops->rail_state(m->nic, ev.rail) == RY_PORT_UP);
            break;
        case RY_EV_QP_FATAL: /* its completions say so too */
            break;
        }
    }
}

/* Tell every peer that does not have our newest news; repeated until it says so. */
void ry_agent_news(struct ry_mesh *m, uint64_t now_ns)
{
    bool waiting = false;

    if (now_ns < m->rails_repeat_ns && m->rails_told == m->rails_news)
        return;
    for (uint32_t q = 0; q < m->n_pes; q++) {
        struct ry_peer *p = &m->peers[q];
        struct ry_msg msg = {
            .type = RY_MSG_RAILS, .epoch = m->rails_news, .a = m->rails_up, .b = m->rails_drained};

        if (q == m->pe || ry_peer_state(p) == RY_PEER_GONE || p->acked_news == m->rails_news)
            continue;
        memcpy(msg.downs, m->rail_downs, sizeof(msg.downs));
        ry_agent_send(m, q, &msg);
        waiting = true;
    }
    m->rails_told = m->rails_news;
    m->rails_repeat_ns =
        waiting && !RY_MUT(RY_MUT_NEWS_ONCE) ? now_ns + ry_agent_repeat_ns(m) : UINT64_MAX;
}

void ry_agent_take_news(struct ry_mesh *m, struct ry_peer *p, const struct ry_msg *msg)
{
    struct ry_msg ok = {.type = RY_MSG_RAILS_OK, .epoch = msg->epoch};

    ry_agent_send(m, p->pe, &ok);
    if (msg->epoch <= p->news && !RY_MUT(RY_MUT_STALE_NEWS))
        return;
    m->peers_news++;
    p->news = (uint32_t)msg->epoch;
    p->rails_up = msg->a;
    p->rails_drained = msg->b;
    /* A rail that went down and up again between two pieces of news is no rail that stayed up: what
     * its NIC had acknowledged may never have reached memory. */
    for (uint32_t j = 0; j < p->hello.rails; j++)
        if (p->rail_downs[j] != msg->downs[j])
            ry_agent_condemn_rail(m, p, j);
    memcpy(p->rail_downs, msg->downs, sizeof(p->rail_downs));
}
