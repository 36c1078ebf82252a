/* SPDX-License-Identifier: Apache-2.0 */
/* Reliable connected queue pairs: made, connected, destroyed. fence.c ends their work. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "nic/verbs/verbs_int.h"

/* splitmix64: packet sequence numbers that an old packet is unlikely to match */
static uint64_t next_random(struct ry_verbs_nic *n)
{
    uint64_t z = (n->random += 0x9e3779b97f4a7c15ull);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static bool was_used(const struct ry_verbs_rail *r, uint32_t qpn)
{
    for (uint32_t i = 0; i < RY_VERBS_QPN_MEMORY; i++)
        if (r->old_qpn[i] == qpn)
            return true;
    return false;
}

/* A queue pair whose number no recently destroyed one had: a driver may hand the same one out again
 * at once, and a late completion would then match. */
static struct ibv_qp *make_qp(struct ry_verbs_rail *r, const struct ry_qp_attr *attr, uint32_t room)
{
    struct ibv_qp_init_attr init = {
        .send_cq = r->cq,
        .recv_cq = r->cq,
        .cap = {.max_send_wr = attr->kind == RY_QP_INITIATOR ? room + 1 : 1, /* and the drain's */
                .max_recv_wr = 1,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = attr->kind == RY_QP_INITIATOR ? RY_INLINE_MAX_BYTES : 0},
        .qp_type = IBV_QPT_RC,
    };
    struct ibv_qp *held[8], *qp = NULL;
    uint32_t n = 0;

    while (n < 8) {
        qp = ibv_create_qp(r->pd, &init);
        if (!qp || !was_used(r, qp->qp_num))
            break;
        held[n++] = qp;
        qp = NULL;
    }
    while (n)
        ibv_destroy_qp(held[--n]);
    return qp;
}

/* Room to remember what queue pairs to this peer have sent. Under cq_lock. */
static bool room_for_peer(struct ry_verbs_rail *r, uint32_t peer)
{
    uint64_t *grown;

    if (peer < r->sent_len)
        return true;
    grown = realloc(r->sent_gone, ((size_t)peer + 1) * sizeof(*grown));
    if (!grown)
        return false;
    memset(grown + r->sent_len, 0, (peer + 1 - r->sent_len) * sizeof(*grown));
    r->sent_gone = grown;
    r->sent_len = peer + 1;
    return true;
}

/* A free place in the rail's table, which grows. */
static int take_slot(struct ry_verbs_rail *r, struct ry_nic_qp *qp)
{
    uint32_t i;

    pthread_mutex_lock(&r->cq_lock);
    if (!room_for_peer(r, qp->peer)) {
        pthread_mutex_unlock(&r->cq_lock);
        return RY_ERR_NO_MEMORY;
    }
    for (i = 0; i < r->qps_len && r->qps[i]; i++)
        ;
    if (i == r->qps_len) {
        uint32_t len = r->qps_len ? r->qps_len * 2 : 16;
        struct ry_nic_qp **grown =
            len > RY_VERBS_SLOT_MASK ? NULL : realloc(r->qps, len * sizeof(*grown));

        if (!grown) {
            pthread_mutex_unlock(&r->cq_lock);
            return RY_ERR_NO_MEMORY;
        }
        memset(grown + r->qps_len, 0, (len - r->qps_len) * sizeof(*grown));
        r->qps = grown;
        r->qps_len = len;
    }
    r->qps[i] = qp;
    qp->slot = i;
    pthread_mutex_unlock(&r->cq_lock);
    return RY_OK;
}

static int check_attr(struct ry_verbs_nic *n, const struct ry_qp_attr *a)
{
    if (a->rail >= n->rails_len)
        return ry_verbs_fail(n, RY_ERR_INVALID, "no rail %u of %u", a->rail, n->rails_len);
    if (a->kind == RY_QP_INITIATOR && (!a->ring || !a->cqe || a->depth < RY_DEPTH_MIN ||
                                       a->depth > RY_DEPTH_MAX || (a->depth & (a->depth - 1))))
        return ry_verbs_fail(n, RY_ERR_INVALID,
                             "a ring of %u blocks: it takes a power of two, %d "
                             "to %d",
                             a->depth, RY_DEPTH_MIN, RY_DEPTH_MAX);
    return RY_OK;
}

static int fill_addr(struct ry_verbs_nic *n, const struct ry_qp_attr *attr,
                     const struct ry_nic_qp *qp, struct ry_qp_addr *addr)
{
    struct ry_rail_info info;
    int rc = ry_verbs_rail_info(&n->base, attr->rail, &info);

    if (rc != RY_OK)
        return rc;
    *addr = (struct ry_qp_addr){.pe = n->cfg.pe,
                                .rail = attr->rail,
                                .qpn = qp->qp->qp_num,
                                .psn = qp->psn,
                                .lid = info.lid,
                                .mtu_bytes = info.mtu_bytes};
    memcpy(addr->gid, info.gid, sizeof(addr->gid));
    return RY_OK;
}

static uint32_t room_of(const struct ry_verbs_rail *r, uint32_t depth)
{
    uint32_t room = ry_min32(depth, r->nic->cfg.queue_depth);

    return ry_min32(room, r->dev.max_qp_wr > 1 ? (uint32_t)r->dev.max_qp_wr - 1 : 1);
}

int ry_verbs_qp_create(struct ry_nic *nic, const struct ry_qp_attr *attr, struct ry_nic_qp **out,
                       struct ry_qp_addr *addr)
{
    struct ry_verbs_nic *n = ry_verbs_of(nic);
    struct ry_nic_qp *qp;
    int rc = check_attr(n, attr);

    if (rc != RY_OK)
        return rc;
    qp = calloc(1, sizeof(*qp));
    if (!qp)
        return ry_verbs_fail(n, RY_ERR_NO_MEMORY, "out of memory");
    qp->rail = &n->rails[attr->rail];
    qp->kind = attr->kind;
    qp->peer = attr->peer;
    qp->depth = attr->depth;
    qp->room = room_of(qp->rail, attr->depth);
    qp->ring = attr->ring;
    qp->cqe = attr->cqe;
    qp->psn = (uint32_t)next_random(n) & 0xffffffu;
    qp->qp = make_qp(qp->rail, attr, qp->room);
    if (!qp->qp) {
        rc = ry_verbs_fail(n, RY_ERR_DEVICE, "cannot create a queue pair on %s: %s", qp->rail->name,
                           strerror(errno));
        goto free_qp;
    }
    rc = fill_addr(n, attr, qp, addr);
    if (rc != RY_OK)
        goto destroy_qp;
    if (qp->cqe)
        ry_publish_cqe(qp->cqe, ry_cqe_encode(0, 0, RY_CQE_INVALID, 0));
    pthread_mutex_init(&qp->lock, NULL);
    pthread_mutex_init(&qp->cqe_lock, NULL);
    if (take_slot(qp->rail, qp) != RY_OK) {
        rc = ry_verbs_fail(n, RY_ERR_NO_MEMORY, "out of memory");
        goto destroy_lock;
    }
    *out = qp;
    return RY_OK;
destroy_lock:
    pthread_mutex_destroy(&qp->cqe_lock);
    pthread_mutex_destroy(&qp->lock);
destroy_qp:
    ibv_destroy_qp(qp->qp);
free_qp:
    free(qp);
    return rc;
}

static int to_init(const struct ry_nic_qp *qp)
{
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT,
                            .pkey_index = qp->rail->pkey_index,
                            .port_num = (uint8_t)qp->rail->port};

    if (qp->kind == RY_QP_RESPONDER)
        a.qp_access_flags =
            IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    return ibv_modify_qp(qp->qp, &a,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

/* Address of the peer. On RoCE the flow label is different for every queue pair: NICs and drivers
 * that make the UDP source port of it spread the queue pairs over equal-cost links. */
static int to_rtr(const struct ry_nic_qp *qp, const struct ry_qp_addr *to, uint32_t mtu_bytes,
                  uint32_t link_layer, uint32_t gid_index)
{
    const struct ry_verbs_cfg *cfg = &qp->rail->nic->cfg;
    struct ibv_qp_attr a = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = ry_verbs_mtu_of(ry_min32(mtu_bytes, to->mtu_bytes)),
        .dest_qp_num = to->qpn,
        .rq_psn = to->psn,
        .max_dest_rd_atomic =
            (uint8_t)ry_min32(RY_VERBS_RD_ATOMIC, (uint32_t)qp->rail->dev.max_qp_rd_atom),
        .min_rnr_timer = 12,
        .ah_attr = {.dlid = (uint16_t)to->lid, .sl = cfg->sl, .port_num = (uint8_t)qp->rail->port},
    };

    if (link_layer == 2) {
        a.ah_attr.is_global = 1;
        a.ah_attr.grh = (struct ibv_global_route){
            .flow_label = (qp->qp->qp_num * 0x9e3779b1u ^ to->qpn * 0x85ebca6bu) >> 12,
            .sgid_index = (uint8_t)gid_index,
            .hop_limit = 64,
            .traffic_class = cfg->traffic_class};
        memcpy(a.ah_attr.grh.dgid.raw, to->gid, RY_GID_BYTES);
    }
    return ibv_modify_qp(qp->qp, &a,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                             IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

static int to_rts(const struct ry_nic_qp *qp)
{
    const struct ry_verbs_cfg *cfg = &qp->rail->nic->cfg;
    struct ibv_qp_attr a = {
        .qp_state = IBV_QPS_RTS,
        .sq_psn = qp->psn,
        .max_rd_atomic =
            (uint8_t)ry_min32(RY_VERBS_RD_ATOMIC, (uint32_t)qp->rail->dev.max_qp_init_rd_atom),
        .timeout = ry_verbs_timeout(ry_verbs_retry_ns(qp->rail)),
        .retry_cnt = cfg->retry_count,
        .rnr_retry = cfg->rnr_retry,
    };

    return ibv_modify_qp(qp->qp, &a,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                             IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

/* The port's own address is looked up again, since it may have moved since the rail was opened. */
int ry_verbs_qp_connect(struct ry_nic_qp *qp, const struct ry_qp_addr *remote)
{
    struct ry_verbs_nic *n = qp->rail->nic;
    struct ry_rail_info info;
    union ibv_gid gid;
    uint32_t index = 0;
    int rc = ry_verbs_rail_info(&n->base, qp->rail->index, &info);

    if (rc != RY_OK)
        return rc;
    if (info.link_layer == 2) {
        if (ry_verbs_find_gid(&n->cfg, qp->rail->ctx, qp->rail->port, IBV_LINK_LAYER_ETHERNET, &gid,
                              &index) != RY_OK)
            return ry_verbs_fail(n, RY_ERR_RAIL,
                                 "%s has no RoCEv%u address any more: give its interface an IP "
                                 "address",
                                 qp->rail->name, n->cfg.roce_version);
        rc = ry_verbs_resolve(qp->rail, index, &gid, remote->gid);
        if (rc != RY_OK)
            return rc;
    }
    rc = to_init(qp);
    if (rc == 0)
        rc = to_rtr(qp, remote, info.mtu_bytes, info.link_layer, index);
    if (rc == 0 && qp->kind == RY_QP_INITIATOR)
        rc = to_rts(qp);
    if (rc == 0)
        return RY_OK;
    if (rc < 0)
        rc = errno;
    return ry_verbs_fail(n, RY_ERR_PATH, "cannot connect %s to queue pair %u of pe %u rail %u: %s",
                         qp->rail->name, remote->qpn, remote->pe, remote->rail, strerror(rc));
}

void ry_verbs_qp_destroy(struct ry_nic_qp *qp)
{
    struct ry_verbs_rail *r = qp->rail;
    uint32_t left;

    ry_verbs_worker_join(qp);
    __atomic_store_n(&qp->failed, 1, __ATOMIC_RELEASE);
    pthread_mutex_lock(&r->cq_lock);
    r->qps[qp->slot] = NULL; /* whoever polls gives it to the poster no more */
    pthread_mutex_unlock(&r->cq_lock);
    ry_verbs_poster_forget(qp);
    pthread_mutex_lock(&r->cq_lock);
    r->sent_gone[qp->peer] += qp->tx_bytes;
    r->old_qpn[r->old_next++ % RY_VERBS_QPN_MEMORY] = qp->qp->qp_num;
    left = qp->posted - qp->retired + (qp->draining && !qp->drained);
    __atomic_sub_fetch(&r->inflight, left, __ATOMIC_ACQ_REL);
    ibv_destroy_qp(qp->qp);
    pthread_mutex_unlock(&r->cq_lock);
    pthread_mutex_destroy(&qp->cqe_lock);
    pthread_mutex_destroy(&qp->lock);
    free(qp);
}
