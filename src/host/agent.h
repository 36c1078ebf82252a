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
    RY_MSG_RAILS, /* a = up, b = drained (bit per rail of the sender), epoch = number of the news */
    RY_MSG_RAILS_OK,
    RY_MSG_PING, /* are you there? */
    RY_MSG_PONG,
    RY_MSG_GIVEN_UP,    /* my channels to you have no path left: do not wait for me */
    RY_MSG_OTHER = 100, /* and above: on_message */
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
};

/* Times of the agent that are no settings. */
enum {
    RY_AGENT_REPEAT_NS = 5 * 1000 * 1000,   /* between repeats of a question */
    RY_AGENT_DEAF_NS = 100 * 1000 * 1000,   /* between tries to meet an ARM */
    RY_AGENT_ARM_NS = 1000 * 1000 * 1000,   /* longest wait for ARMED */
    RY_AGENT_FLUSH_NS = 1000 * 1000 * 1000, /* longest wait for flushes: then the NIC is dead */
    RY_AGENT_LADDER_NS = 200 * 1000 * 1000, /* between steps of rule 7's ladder */
    RY_AGENT_IDLE_NS = 10 * 1000 * 1000,    /* tick without traffic */
    RY_AGENT_BUSY_NS = 1000 * 1000,         /* tick with traffic */
    RY_AGENT_PING_NS = 50 * 1000 * 1000,    /* between two questions to a peer that is waited for */
    RY_AGENT_PROBE_GAP_NS = 1000 * 1000,    /* between two probes of one path */
};

/* agent_msg.c */
void ry_agent_send(struct ry_mesh *m, uint32_t pe, struct ry_msg *msg);
void ry_agent_receive(struct ry_mesh *m, uint64_t now_ns);
/* agent_rails.c */
void ry_agent_events(struct ry_mesh *m, uint64_t now_ns);
void ry_agent_news(struct ry_mesh *m, uint64_t now_ns);
void ry_agent_take_news(struct ry_mesh *m, struct ry_peer *p, const struct ry_msg *msg);
bool ry_agent_pair_up(const struct ry_mesh *m, const struct ry_peer *p, uint32_t rail,
                      uint32_t peer_rail);
bool ry_agent_pair_drained(const struct ry_mesh *m, const struct ry_peer *p, uint32_t rail,
                           uint32_t peer_rail);
/* agent_out.c: our channels' slots */
void ry_agent_out(struct ry_mesh *m, struct ry_peer *p, uint32_t c, uint64_t now_ns);
void ry_agent_armed(struct ry_mesh *m, struct ry_peer *p, const struct ry_msg *msg);
void ry_agent_fenced(struct ry_mesh *m, struct ry_peer *p, const struct ry_msg *msg);
/* agent_arm.c: which path to arm next */
void ry_agent_arm(struct ry_mesh *m, struct ry_peer *p, uint32_t c, uint64_t now_ns);
void ry_agent_pair_failed(struct ry_mesh *m, struct ry_peer *p, uint32_t rail, uint32_t peer_rail,
                          uint64_t now_ns);
/* agent_in.c: responders */
void ry_agent_in(struct ry_mesh *m, struct ry_peer *p, uint32_t i, uint64_t now_ns);
void ry_agent_arm_asked(struct ry_mesh *m, struct ry_peer *p, const struct ry_msg *msg);
void ry_agent_failed_told(struct ry_mesh *m, struct ry_peer *p, const struct ry_msg *msg);
/* agent_watch.c: silence, condemned and retired paths, returns */
void ry_agent_watch(struct ry_mesh *m, struct ry_peer *p, uint32_t c, uint64_t now_ns);

#endif
