/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's step: everything that is due, once. */
#include "host/agent.h"
#include "railyard/context.h"

enum { PROMPT_NS = 1000000 }; /* longest time of driver calls between two looks at ports and news */

/* A wait asks whether the peer is there. Only time in which this agent was running counts as
 * silence: on a crowded machine the peer's agent sleeps as long as ours does. */
static void ask(struct ry_mesh *m, struct ry_peer *p, uint64_t now_ns)
{
    struct ry_msg msg = {.type = RY_MSG_PING};
    uint64_t asked = ry_ld_acq64(&p->asked_ns), step = now_ns - p->looked_ns;
    bool heard = ry_ld_acq64(&p->heard_ns) >= p->looked_ns;

    p->looked_ns = now_ns;
    if (!asked || heard)
        ry_st_rel64(&p->silent_ns, 0);
    else
        ry_st_rel64(&p->silent_ns,
                    ry_ld_acq64(&p->silent_ns) + ry_min64(step, 2 * ry_agent_idle_ns(m)));
    if (!asked || now_ns - p->ping_ns < m->cfg.path_timeout_ns)
        return;
    if (now_ns > asked && now_ns - asked > 4 * m->env.lost_ns_max) {
        ry_st_rel64(&p->asked_ns, 0); /* who still waits asks anew */
        return;
    }
    p->ping_ns = now_ns;
    ry_agent_send(m, p->pe, &msg);
}

bool ry_mesh_give_up(struct ry_mesh *m, uint32_t pe)
{
    struct ry_peer *p = &m->peers[pe];

    if (p->direct && ry_peer_state(p) != RY_PEER_GONE)
        return false;
    __atomic_store_n(&p->given_up, true, __ATOMIC_RELEASE);
    if (m->wake_agent)
        m->wake_agent(m->wake_arg);
    return true;
}

void ry_mesh_leave(struct ry_mesh *m)
{
    __atomic_store_n(&m->leaves, true, __ATOMIC_RELEASE);
    if (m->wake_agent)
        m->wake_agent(m->wake_arg);
}

/* A peer that was given up is told so, should it live, and closed. */
static void part(struct ry_mesh *m, struct ry_peer *p)
{
    if (ry_peer_state(p) == RY_PEER_GONE || !__atomic_load_n(&p->given_up, __ATOMIC_ACQUIRE))
        return;
    RY_MARK("peer-given-up");
    ry_agent_tell_thrice(m, p, RY_MSG_GIVEN_UP);
    ry_agent_peer_lost(m, p->pe);
    if (m->on_event)
        m->on_event(m->event_arg, m, RY_EVENT_PEER_LOST, p->pe, 0, 0, 0, NULL);
}

static void leave(struct ry_mesh *m)
{
    if (m->left || !__atomic_load_n(&m->leaves, __ATOMIC_ACQUIRE))
        return;
    m->left = true;
    for (uint32_t q = 0; q < m->n_pes; q++)
        if (q != m->pe && m->peers[q].out && ry_peer_state(&m->peers[q]) != RY_PEER_GONE)
            ry_agent_tell_thrice(m, &m->peers[q], RY_MSG_LEFT);
}

/* When must the agent look at this path again? What only the peer can change, its answer to a
 * question that is repeated, wakes the agent; what the NIC does is looked at. */
static uint64_t slot_due(const struct ry_mesh *m, const struct ry_out_slot *o,
                         const struct ry_in_slot *in, uint64_t now_ns)
{
    if (in->state == RY_IN_FENCING || o->state == RY_OUT_PROBING || o->state == RY_OUT_FLUSHING)
        return now_ns + ry_agent_tick_ns(m) / 5;
    return o->state == RY_OUT_ARMING || o->state == RY_OUT_FENCING ? o->next_ns : UINT64_MAX;
}

/* A lost peer: is every responder towards it RESET? Told to threads that wait for it. */
static void note_closed(struct ry_peer *p)
{
    if (ry_peer_state(p) != RY_PEER_GONE || ry_ld_rlx32(&p->closed))
        return;
    for (uint32_t i = 0; i < p->n_channels * RY_SLOTS; i++)
        if (p->in[i].state == RY_IN_READY || p->in[i].state == RY_IN_FENCING)
            return;
    ry_st_rel32(&p->closed, 1);
}

/* What must not wait for a driver, which may take milliseconds to stop or to make a queue pair:
 * peers are told of a port that went down, and every channel that has lost its path moves. It is a
 * part of one more step; in virtual time drivers take no time, and it would find nothing. */
static void hurry(struct ry_mesh *m, uint64_t now_ns)
{
    if (m->virtual_time || m->hurried == m->rails_news + m->peers_news)
        return;
    m->hurried = m->rails_news + m->peers_news;
    ry_agent_news(m, now_ns);
    for (uint32_t q = 0; q < m->n_pes; q++)
        for (uint32_t c = 0; q != m->pe && c < m->peers[q].n_channels; c++)
            ry_agent_leave_path(m, &m->peers[q], c);
}

/* When must the agent look again at what it is doing with this peer? *now grows with the time that
 * drivers take. */
static uint64_t peer_step(struct ry_mesh *m, struct ry_peer *p, uint64_t *now)
{
    uint64_t now_ns = *now, next = now_ns + ry_agent_idle_ns(m);

    part(m, p);
    ask(m, p, now_ns);
    for (uint32_t c = 0; c < p->n_channels; c++) {
        ry_agent_watch(m, p, c, now_ns);
        ry_agent_out(m, p, c, now_ns);
        ry_agent_arm(m, p, c, now_ns);
        for (uint32_t s = 0; s < RY_SLOTS; s++) {
            if (p->in[c * RY_SLOTS + s].state == RY_IN_FENCING)
                ry_agent_in(m, p, c * RY_SLOTS + s, now_ns);
            next =
                ry_min64(next, slot_due(m, &p->out[c].slot[s], &p->in[c * RY_SLOTS + s], now_ns));
        }
        if (!m->virtual_time && ry_now(&m->env) > now_ns + PROMPT_NS) {
            *now = now_ns = ry_now(&m->env);
            ry_agent_events(m);
            ry_agent_receive(m, now_ns);
            hurry(m, now_ns);
        }
    }
    note_closed(p);
    return next;
}

uint64_t ry_agent_step(struct ry_mesh *m, uint64_t now_ns)
{
    uint64_t next = now_ns + ry_agent_idle_ns(m);

    m->watch_ns = UINT64_MAX;
    ry_agent_events(m);
    ry_agent_receive(m, now_ns);
    leave(m);
    hurry(m, now_ns);
    for (uint32_t q = 0; q < m->n_pes; q++)
        if (q != m->pe && m->peers[q].out)
            next = ry_min64(next, peer_step(m, &m->peers[q], &now_ns));
    ry_agent_news(m, now_ns);
    return ry_min64(ry_min64(next, m->watch_ns), m->rails_repeat_ns);
}

int ry_agent_drain(struct ry_mesh *m, uint32_t rail, bool on)
{
    uint64_t bit = 1ull << rail;

    if (rail >= m->hello.rails)
        return RY_ERR_INVALID;
    m->rails_drained = on ? m->rails_drained | bit : m->rails_drained & ~bit;
    m->rails_news++;
    return RY_OK;
}

/* A mover at work parks it when its deadline ends; give_up of core/ then finds the peer gone. */
void ry_agent_give_up(struct ry_channel *ch)
{
    uint64_t st = ry_observe_state(ch), found;

    while (ry_state_of(st) != RY_CH_MOVING && ry_state_of(st) != RY_CH_DEAD &&
           !ry_cas64(&ch->state, st,
                     ry_state_pack(RY_CH_DEAD, ry_state_active(st), ry_state_move(st)), &found))
        st = found;
}

void ry_agent_peer_lost(struct ry_mesh *m, uint32_t pe)
{
    struct ry_peer *p = &m->peers[pe];

    ry_peer_become(p, RY_PEER_GONE);
    for (uint32_t c = 0; c < p->n_channels; c++)
        ry_agent_give_up(p->out[c].ch);
    for (uint32_t i = 0; i < p->n_channels * RY_SLOTS && !RY_MUT(RY_MUT_MASK_UNFENCED); i++)
        ry_agent_close(m, &p->in[i]);
}

/* A peer without channels has no responders: the agent does not look at it. */
bool ry_agent_peer_closed(const struct ry_mesh *m, uint32_t pe)
{
    const struct ry_peer *p = &m->peers[pe];

    return !p->n_channels || ry_ld_acq32(&p->closed) || RY_MUT(RY_MUT_MASK_UNFENCED);
}
