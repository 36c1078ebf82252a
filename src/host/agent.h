/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the agent: its messages and its parts.
 *
 * Control messages are datagrams that may be lost, doubled and late: every one names the sender's
 * incarnation and the epoch of the path life it speaks of; older news is ignored, a repeated
 * question is answered again, and whoever needs an answer repeats the question (rule 9). */
#ifndef RY_HOST_AGENT_H
#define RY_HOST_AGENT_H

#include "host/slot.h"

enum ry_msg_type {
    RY_MSG_ARM =
        1,         /* initiator: make the responder of (channel, slot, epoch), this is my address */
    RY_MSG_ARMED,  /* responder: here it is; a = rkey of its heap on that rail */
    RY_MSG_FAILED, /* initiator: (channel, slot, epoch) is dead, fence it */
    RY_MSG_FENCED, /* responder: RESET and flushed */
    RY_MSG_RAILS,  /* a = up, b = drained (bit per rail of the sender), downs; epoch = number */
    RY_MSG_RAILS_OK,
    RY_MSG_PING, /* are you there? */
    RY_MSG_PONG,
    RY_MSG_GIVEN_UP, /* my channels to you have no path left: do not wait for me */
    RY_MSG_LEFT,     /* I write to nobody any more: count me as lost */
};

struct ry_msg {
    uint32_t version, type;
    uint32_t incarnation; /* of the sender */
    uint32_t to_incarnation;
    uint32_t channel, slot;
    uint32_t rail, peer_rail; /* of the initiator, of the responder */
    uint64_t epoch;
    uint64_t a, b;
    struct ry_qp_addr addr;
    uint8_t downs[RY_RAILS_MAX]; /* RAILS: how often each rail of the sender has gone down */
};

/* Times of the agent that are no settings of their own: shares of those that are, so that the whole
 * engine is as fast or as patient as RAILYARD_PATH_TIMEOUT (50 ms: the figures in brackets) and
 * RAILYARD_TIMEOUT (2 s) say. */
static inline uint64_t ry_agent_repeat_ns(const struct ry_mesh *m) /* a question again (5 ms) */
{
    return m->cfg.path_timeout_ns / 10;
}
/* With traffic (1 ms); without failover nobody waits for what a tick finds (10 ms). */
static inline uint64_t ry_agent_tick_ns(const struct ry_mesh *m)
{
    bool on = __atomic_load_n(&m->cfg.failover, __ATOMIC_RELAXED);

    return m->cfg.path_timeout_ns / (on ? 50 : 5);
}
static inline uint64_t ry_agent_idle_ns(const struct ry_mesh *m) /* without traffic (10 ms) */
{
    return m->cfg.path_timeout_ns / 5;
}
static inline uint64_t
ry_agent_deaf_ns(const struct ry_mesh *m) /* between tries to meet an ARM (100 ms) */
{
    return m->cfg.path_timeout_ns * 2;
}
static inline uint64_t
ry_agent_setup_ns(const struct ry_mesh *m) /* ARMED, or flushes, at most (1 s) */
{
    return m->cfg.timeout_ns / 2;
}
static inline uint64_t
ry_agent_ladder_ns(const struct ry_mesh *m) /* a step of rule 7's ladder (200 ms) */
{
    return m->cfg.path_timeout_ns * 4;
}

/* agent.c: nothing more is sent on this channel */
void ry_agent_give_up(struct ry_channel *ch);
/* agent_msg.c */
void ry_agent_send(struct ry_mesh *m, uint32_t pe, struct ry_msg *msg);
/* What need not be answered, three times: a datagram may be lost. */
void ry_agent_tell_thrice(struct ry_mesh *m, struct ry_peer *p, enum ry_msg_type type);
void ry_agent_receive(struct ry_mesh *m, uint64_t now_ns);
/* agent_rails.c */
void ry_agent_events(struct ry_mesh *m);
void ry_agent_news(struct ry_mesh *m, uint64_t now_ns);
void ry_agent_take_news(struct ry_mesh *m, struct ry_peer *p, const struct ry_msg *msg);
static inline bool ry_agent_pair_up(const struct ry_mesh *m, const struct ry_peer *p, uint32_t rail,
                                    uint32_t peer_rail)
{
    return (m->rails_up >> rail & 1) && (p->rails_up >> peer_rail & 1);
}
static inline bool ry_agent_pair_drained(const struct ry_mesh *m, const struct ry_peer *p,
                                         uint32_t rail, uint32_t peer_rail)
{
    return (m->rails_drained >> rail & 1) || (p->rails_drained >> peer_rail & 1);
}
/* agent_out.c: our channels' slots */
void ry_agent_out(struct ry_mesh *m, struct ry_peer *p, uint32_t c, uint64_t now_ns);
void ry_agent_armed(struct ry_mesh *m, struct ry_peer *p, const struct ry_msg *msg);
void ry_agent_fenced(struct ry_mesh *m, struct ry_peer *p, const struct ry_msg *msg);
/* A life that never was offered ends; silent: the peer has not answered. */
void ry_agent_give_up_arming(struct ry_mesh *m, struct ry_peer *p, struct ry_out_slot *s,
                             uint64_t now_ns, bool silent);
/* agent_arm.c: which path to arm next */
void ry_agent_arm(struct ry_mesh *m, struct ry_peer *p, uint32_t c, uint64_t now_ns);
void ry_agent_pair_failed(struct ry_mesh *m, struct ry_peer *p, uint32_t rail, uint32_t peer_rail,
                          uint64_t now_ns);
/* agent_in.c: responders */
void ry_agent_in(struct ry_mesh *m, struct ry_peer *p, uint32_t i, uint64_t now_ns);
/* Fence a responder without being asked: its peer is lost. */
void ry_agent_close(struct ry_mesh *m, struct ry_in_slot *in);
/* After a cut the rail has new keys. */
int ry_agent_renew_keys(struct ry_mesh *m, uint32_t rail);
void ry_agent_arm_asked(struct ry_mesh *m, struct ry_peer *p, const struct ry_msg *msg);
void ry_agent_failed_told(struct ry_mesh *m, struct ry_peer *p, const struct ry_msg *msg);
/* agent_watch.c: silence, condemned and retired paths, returns */
/* Condemn every armed life over that rail of the peer, and give up those that are probed: a good
 * probe may be older than what happened to the rail. */
void ry_agent_condemn_rail(struct ry_mesh *m, struct ry_peer *p, uint32_t peer_rail);
/* And every one over a rail of ours: it went down, also if it is up again or has another GID now.
 */
void ry_agent_condemn_own(struct ry_mesh *m, uint32_t rail);
/* Leave the active path at once if its port is known to be down. */
void ry_agent_leave_path(struct ry_mesh *m, struct ry_peer *p, uint32_t c);
void ry_agent_watch(struct ry_mesh *m, struct ry_peer *p, uint32_t c, uint64_t now_ns);

#endif
