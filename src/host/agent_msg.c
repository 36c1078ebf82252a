/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "host/agent.h"

void ry_agent_send(struct ry_mesh *m, uint32_t pe, struct ry_msg *msg)
{
    msg->version = RY_CTL_VERSION;
    msg->incarnation = m->hello.incarnation;
    msg->to_incarnation = m->peers[pe].hello.incarnation;
    m->boot->ops->ctl_send(m->boot, pe, msg, sizeof(*msg));
}

void ry_agent_tell_thrice(struct ry_mesh *m, struct ry_peer *p, enum ry_msg_type type)
{
    struct ry_msg msg = {.type = type};

    for (int i = 0; i < 3; i++)
        ry_agent_send(m, p->pe, &msg);
}

/* Does the message name something that exists at both ends? */
static bool in_range(const struct ry_mesh *m, const struct ry_peer *p, const struct ry_msg *msg)
{
    bool path = msg->type >= RY_MSG_ARM && msg->type <= RY_MSG_FENCED;
    bool ours = msg->type == RY_MSG_ARMED || msg->type == RY_MSG_FENCED;
    uint32_t rails = ours ? m->hello.rails : p->hello.rails;
    uint32_t peer_rails = ours ? p->hello.rails : m->hello.rails;

    return !path || (msg->channel < p->n_channels && msg->slot < RY_SLOTS && msg->rail < rails &&
                     msg->peer_rail < peer_rails);
}

/* News of another incarnation is no news of this one (rule 9). */
static bool of_this_life(const struct ry_mesh *m, const struct ry_peer *p, const struct ry_msg *msg)
{
    return RY_MUT(RY_MUT_ANY_INCARNATION) || (msg->incarnation == p->hello.incarnation &&
                                              msg->to_incarnation == m->hello.incarnation);
}

static void answer_ping(struct ry_mesh *m, struct ry_peer *p, const struct ry_msg *msg)
{
    struct ry_msg pong = {.type = RY_MSG_PONG, .epoch = msg->epoch};

    if (ry_peer_state(p) == RY_PEER_GONE)
        pong.type = RY_MSG_GIVEN_UP; /* it was stopped, and does not know */
    else if (m->left)
        pong.type = RY_MSG_LEFT;

    ry_agent_send(m, p->pe, &pong);
}

static void dispatch(struct ry_mesh *m, struct ry_peer *p, const struct ry_msg *msg)
{
    switch (msg->type) {
    case RY_MSG_ARM:
        ry_agent_arm_asked(m, p, msg);
        break;
    case RY_MSG_ARMED:
        ry_agent_armed(m, p, msg);
        break;
    case RY_MSG_FAILED:
        ry_agent_failed_told(m, p, msg);
        break;
    case RY_MSG_FENCED:
        ry_agent_fenced(m, p, msg);
        break;
    case RY_MSG_RAILS:
        ry_agent_take_news(m, p, msg);
        break;
    case RY_MSG_RAILS_OK:
        if (msg->epoch > p->acked_news)
            p->acked_news = (uint32_t)msg->epoch;
        break;
    case RY_MSG_PING:
        answer_ping(m, p, msg);
        break;
    case RY_MSG_GIVEN_UP:
        if (ry_peer_state(p) == RY_PEER_UP)
            ry_peer_become(p, RY_PEER_UNREACHABLE);
        break;
    case RY_MSG_LEFT:
        __atomic_store_n(&p->given_up, true, __ATOMIC_RELEASE);
        break;
    default:
        break;
    }
}

void ry_agent_receive(struct ry_mesh *m, uint64_t now_ns)
{
    uint8_t raw[RY_CTL_BYTES_MAX];
    uint32_t from;
    size_t len = sizeof(raw);

    while (m->boot->ops->ctl_recv(m->boot, &from, raw, &len) == 1) {
        struct ry_msg msg;
        struct ry_peer *p;
        size_t got = len;

        len = sizeof(raw);
        if (from >= m->n_pes || from == m->pe || got < 2 * sizeof(uint32_t))
            continue;
        p = &m->peers[from];
        memcpy(&msg, raw, got < sizeof(msg) ? got : sizeof(msg));
        if (msg.version != RY_CTL_VERSION)
            continue;
        ry_st_rel64(&p->heard_ns, now_ns);
        if (got != sizeof(msg) || !of_this_life(m, p, &msg) || !in_range(m, p, &msg))
            continue;
        dispatch(m, p, &msg);
    }
}
