/* SPDX-License-Identifier: Apache-2.0 */
/* Responders: making them, fencing them (rule 7), answering every question again when it is
 * repeated. */
#include "host/agent.h"

static void reply(struct ry_mesh *m, struct ry_peer *p, uint32_t i, enum ry_msg_type type,
                  uint64_t epoch)
{
    const struct ry_in_slot *in = &p->in[i];
    struct ry_msg msg = {
        .type = type,
        .channel = i / RY_SLOTS,
        .slot = i % RY_SLOTS,
        .rail = type == RY_MSG_ARMED ? in->peer.rail : 0,
        .peer_rail = type == RY_MSG_ARMED ? in->rail : 0,
        .epoch = epoch,
        .addr = in->addr,
    };

    if (type == RY_MSG_ARMED)
        msg.a = m->hello.rail[in->rail].rkey;
    ry_agent_send(m, p->pe, &msg);
}

static void fence_begin(struct ry_mesh *m, struct ry_in_slot *in, uint64_t now_ns)
{
    in->state = RY_IN_FENCING;
    in->since_ns = now_ns;
    in->ladder = 0;
    if (!RY_MUT(RY_MUT_NO_FENCE))
        m->nic->ops->qp_fence_begin(in->qp);
}

void ry_agent_close(struct ry_mesh *m, struct ry_in_slot *in)
{
    if (in->state == RY_IN_READY)
        fence_begin(m, in, ry_now(&m->env));
}

static void fence_done(struct ry_mesh *m, struct ry_peer *p, uint32_t i)
{
    struct ry_in_slot *in = &p->in[i];

    if (!RY_MUT(RY_MUT_NO_FENCE) && !RY_MUT(RY_MUT_FENCE_NO_FLUSH)) {
        m->nic->ops->qp_destroy(in->qp);
        in->qp = NULL;
    }
    in->state = RY_IN_FENCED;
    reply(m, p, i, RY_MSG_FENCED, in->epoch);
}

/* Cut a rail off: its keys are invalid, so that nothing that sits in that NIC can land any more.
 * Nobody may meet an invalid key in good faith, since the request that does is taken for the one at
 * fault (rule 12): every responder of the rail is RESET first, so that peers see silence, and our
 * own lives over it are condemned. */
static int cut_rail(struct ry_mesh *m, uint32_t rail)
{
    int rc;

    for (uint32_t q = 0; q < m->n_pes && !RY_MUT(RY_MUT_CUT_LOUD); q++) {
        struct ry_peer *p = &m->peers[q];

        for (uint32_t i = 0; p->in && i < p->n_channels * RY_SLOTS; i++)
            if (p->in[i].rail == rail)
                ry_agent_close(m, &p->in[i]);
    }
    ry_agent_condemn_own(m, rail);
    rc = m->nic->ops->rail_cut(m->nic, rail);
    if (rc)
        return rc;
    m->rails_cut |= 1ull << rail;
    /* what other lives of this rail had acknowledged may be lost with it: as after a port that went
     * down and came back, their initiators must not rest on it */
    if (RY_MUT(RY_MUT_CUT_UNTOLD))
        return RY_OK;
    m->rail_downs[rail]++;
    m->rails_news++;
    return RY_OK;
}

/* The ladder: a RESET that does not come is followed by cutting the rail off. */
static void fence_poll(struct ry_mesh *m, struct ry_peer *p, uint32_t i, uint64_t now_ns)
{
    struct ry_in_slot *in = &p->in[i];
    int rc = RY_MUT(RY_MUT_NO_FENCE) || RY_MUT(RY_MUT_FENCE_NO_FLUSH)
                 ? 1
                 : m->nic->ops->qp_fence_poll(in->qp);

    /* a fence that a message began is younger than this step's now */
    if (rc == 0 && now_ns > in->since_ns && now_ns - in->since_ns >= ry_agent_ladder_ns(m))
        rc = RY_ERR_RAIL;
    if (rc < 0 && in->ladder == 0 && !RY_MUT(RY_MUT_NO_LADDER)) {
        RY_MARK("fence-ladder");
        in->ladder = 1;
        in->since_ns = now_ns;
        if (cut_rail(m, in->rail) == RY_OK)
            rc = 1;
    }
    if (rc == 1)
        fence_done(m, p, i);
}

void ry_agent_in(struct ry_mesh *m, struct ry_peer *p, uint32_t i, uint64_t now_ns)
{
    if (p->in[i].state == RY_IN_FENCING)
        fence_poll(m, p, i, now_ns);
}

/* What was registered before the cut stays dead; peers learn the new keys with ARMED. */
int ry_agent_renew_keys(struct ry_mesh *m, uint32_t rail)
{
    struct ry_mr mr;
    int rc;

    if (!(m->rails_cut >> rail & 1))
        return RY_OK;
    rc = m->nic->ops->mr_reg(m->nic, rail, m->heap, m->heap_bytes, true, &mr);
    if (rc)
        return rc;
    m->mrs[rail] = mr;
    m->lkeys[rail][0] = mr.lkey;
    m->hello.rail[rail].rkey = mr.rkey;
    m->rails_cut &= ~(1ull << rail);
    return RY_OK;
}

void ry_agent_arm_asked(struct ry_mesh *m, struct ry_peer *p, const struct ry_msg *msg)
{
    uint32_t i = msg->channel * RY_SLOTS + msg->slot;
    struct ry_in_slot *in = &p->in[i];
    uint64_t now_ns;
    int rc;

    if (ry_peer_state(p) == RY_PEER_GONE && !RY_MUT(RY_MUT_MASK_REOPENED))
        return; /* it may live, and think that it may write here (rule 16) */
    if (msg->epoch < in->epoch && !RY_MUT(RY_MUT_STALE_NEWS))
        return;
    if (msg->epoch == in->epoch && in->state == RY_IN_READY) {
        if (in->peer.qpn == msg->addr.qpn)
            reply(m, p, i, RY_MSG_ARMED, in->epoch);
        return;
    }
    if (in->state == RY_IN_READY) { /* a later life: the last one is fenced first, whoever asks */
        fence_begin(m, in, ry_now(&m->env));
        return;
    }
    if (in->state == RY_IN_FENCING || msg->epoch == in->epoch)
        return; /* asked again until the fence is done; a fenced life does not rise again */
    now_ns = ry_now(&m->env);
    if (now_ns < in->deaf_until_ns)
        return;
    rc = ry_agent_renew_keys(m, msg->peer_rail);
    if (rc == RY_OK)
        rc = ry_slot_respond(m, p->pe, in, msg->peer_rail, &msg->addr);
    if (rc == RY_ERR_AGAIN)
        return;
    if (rc) {
        /* the port is not ready, or leads elsewhere: asked again, and a try costs real time */
        in->deaf_until_ns = now_ns + ry_agent_deaf_ns(m);
        return;
    }
    in->deaf_until_ns = 0;
    in->epoch = msg->epoch;
    in->state = RY_IN_READY;
    reply(m, p, i, RY_MSG_ARMED, in->epoch);
}

void ry_agent_failed_told(struct ry_mesh *m, struct ry_peer *p, const struct ry_msg *msg)
{
    uint32_t i = msg->channel * RY_SLOTS + msg->slot;
    struct ry_in_slot *in = &p->in[i];

    if (msg->epoch < in->epoch) { /* a life that was fenced before this one was made */
        if (!RY_MUT(RY_MUT_FENCED_ONCE))
            reply(m, p, i, RY_MSG_FENCED, msg->epoch);
        return;
    }
    if (in->state == RY_IN_FENCED || in->state == RY_IN_NONE) {
        bool again = in->state == RY_IN_FENCED && in->epoch == msg->epoch;

        in->epoch = msg->epoch;
        in->state = RY_IN_FENCED;
        if (!again || !RY_MUT(RY_MUT_FENCED_ONCE))
            reply(m, p, i, RY_MSG_FENCED, msg->epoch);
        return;
    }
    in->epoch = msg->epoch; /* also when its ARM never came: what is here is older still */
    for (uint32_t s = 0; RY_MUT(RY_MUT_FENCE_BOTH_WAYS) && s < RY_SLOTS; s++)
        if (p->out[msg->channel].slot[s].state == RY_OUT_ARMED)
            m->nic->ops->qp_error(p->out[msg->channel].slot[s].qp);
    if (in->state == RY_IN_READY)
        fence_begin(m, in, ry_now(&m->env));
}
