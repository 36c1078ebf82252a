/* SPDX-License-Identifier: Apache-2.0 */
/* Queue pairs: numbers that were not used before, connecting, taking down. */
#include <stdlib.h>
#include <string.h>

#include "nic/emu/emu_int.h"

/* A link-local address that names PE, rail and how often the GID has changed. */
void ry_emu_gid(const struct ry_emu_seg *seg, uint32_t rail, uint8_t *gid)
{
    uint32_t gen = RY_LD_ACQ(&seg->port[rail].gid_gen);

    memset(gid, 0, RY_GID_BYTES);
    gid[0] = 0xfe;
    gid[1] = 0x80;
    gid[8] = (uint8_t)(gen >> 8);
    gid[9] = (uint8_t)gen;
    gid[10] = 0x72;
    gid[11] = 0x79;
    gid[12] = (uint8_t)(seg->pe >> 8);
    gid[13] = (uint8_t)seg->pe;
    gid[15] = (uint8_t)rail;
}

static bool attr_good(const struct ry_emu *e, const struct ry_qp_attr *a)
{
    if (a->rail >= e->cfg.rails || a->peer >= e->cfg.n_pes)
        return false;
    if (a->kind == RY_QP_RESPONDER)
        return true;
    return a->kind == RY_QP_INITIATOR && a->ring != NULL && ((uintptr_t)a->ring & 63) == 0 &&
           a->cqe != NULL && ((uintptr_t)a->cqe & 63) == 0 && a->depth != 0 &&
           a->depth <= RY_DEPTH_MAX && (a->depth & (a->depth - 1)) == 0;
}

/* The next number whose place is free. Numbers only go up, so a number comes again after 2^24. */
static bool number_take(struct ry_emu *e, uint32_t *qpn, uint32_t *slot)
{
    for (uint32_t n = 0; n <= e->seg->qp_mask; n++) {
        uint32_t q = e->qpn_next & 0xffffff, i = q & e->seg->qp_mask;

        e->qpn_next++;
        if (q < 2 || e->qps[i] != NULL || RY_LD_ACQ(&e->sqps[i].inflight) != 0)
            continue;
        *qpn = q;
        *slot = i;
        return true;
    }
    return false;
}

int ry_emu_qp_create(struct ry_nic *nic, const struct ry_qp_attr *attr, struct ry_nic_qp **out,
                     struct ry_qp_addr *addr)
{
    struct ry_emu *e = ry_emu_of(nic);
    struct ry_nic_qp *qp;

    if (!attr_good(e, attr))
        return RY_ERR_INVALID;
    qp = calloc(1, sizeof(*qp));
    if (qp == NULL)
        return RY_ERR_NO_MEMORY;
    pthread_mutex_lock(&e->list);
    if (!number_take(e, &qp->qpn, &qp->slot)) {
        pthread_mutex_unlock(&e->list);
        free(qp);
        return RY_ERR_NO_MEMORY;
    }
    qp->nic = e;
    qp->kind = attr->kind;
    qp->rail = attr->rail;
    qp->peer = attr->peer;
    qp->ring = attr->ring;
    qp->depth = attr->depth;
    qp->cqe = attr->cqe;
    qp->dbr = attr->dbr;
    qp->psn = (uint32_t)ry_emu_random(&e->rng_names) & RY_EMU_PSN_MASK;
    if (qp->kind == RY_QP_RESPONDER) {
        qp->shared = &e->sqps[qp->slot];
        memset(qp->shared, 0, sizeof(*qp->shared));
        qp->shared->qpn = qp->qpn;
        qp->shared->rail = qp->rail;
    }
    e->qps[qp->slot] = qp;
    pthread_mutex_unlock(&e->list);
    memset(addr, 0, sizeof(*addr));
    addr->pe = e->cfg.pe;
    addr->rail = qp->rail;
    addr->qpn = qp->qpn;
    addr->psn = qp->psn;
    addr->lid = e->cfg.pe * RY_RAILS_MAX + qp->rail + 1;
    addr->mtu_bytes = 4096;
    ry_emu_gid(e->seg, qp->rail, addr->gid);
    *out = qp;
    return 0;
}

/* A peer that is attached must still have the GID that it gave; an old one reaches nobody. */
static int gid_check(struct ry_emu *e, const struct ry_qp_addr *remote)
{
    struct ry_emu_peer *p = &e->peers[remote->pe];
    uint8_t gid[RY_GID_BYTES];

    if (RY_LD_ACQ(&p->attached) == 0)
        return RY_ERR_UNREACHABLE;
    if (remote->rail >= p->seg->rails)
        return RY_ERR_INVALID;
    ry_emu_gid(p->seg, remote->rail, gid);
    return memcmp(gid, remote->gid, sizeof(gid)) == 0 ? 0 : RY_ERR_PATH;
}

int ry_emu_qp_connect(struct ry_nic_qp *qp, const struct ry_qp_addr *remote)
{
    struct ry_emu *e = qp->nic;
    int rc;

    if (remote->pe != qp->peer || remote->pe >= e->cfg.n_pes)
        return RY_ERR_INVALID;
    if (RY_LD_ACQ(&e->seg->nic[e->rail[qp->rail].nic].dead) != 0)
        return RY_ERR_DEVICE;
    rc = gid_check(e, remote);
    if (rc != 0)
        return rc;
    if (qp->kind == RY_QP_RESPONDER) {
        if (RY_LD_ACQ(&qp->shared->state) != RY_EMU_RESET)
            return RY_ERR_INVALID;
        RY_ST_RLX(&qp->shared->peer_pe, remote->pe);
        RY_ST_RLX(&qp->shared->peer_qpn, remote->qpn);
        RY_ST_RLX(&qp->shared->epsn, remote->psn & RY_EMU_PSN_MASK);
        RY_ST_SEQ(&qp->shared->state, (uint32_t)RY_EMU_RTR);
        return 0;
    }
    ry_emu_visit(&qp->lock);
    if (qp->state != RY_EMU_RESET) {
        ry_emu_unlock(&qp->lock);
        return RY_ERR_INVALID;
    }
    qp->remote_qpn = remote->qpn;
    qp->remote_rail = remote->rail;
    qp->gid_gen = RY_LD_ACQ(&e->seg->port[qp->rail].gid_gen);
    qp->remote_gid_gen = RY_LD_ACQ(&e->peers[remote->pe].seg->port[remote->rail].gid_gen);
    qp->next_psn = qp->psn;
    qp->state = RY_EMU_RTS;
    ry_emu_unlock(&qp->lock);
    return 0;
}

/* Counts outlive the queue pair that made them. */
static void counts_keep(struct ry_emu *e, struct ry_nic_qp *qp)
{
    struct ry_emu_rail *r = &e->rail[qp->rail];

    r->tx_bytes_gone += qp->tx_bytes;
    r->tx_ops_gone += qp->tx_ops;
    r->rx_bytes_gone += qp->rx_bytes;
    r->retries_gone += qp->retries_total;
    r->errors_gone += qp->errors;
    if (qp->shared != NULL) {
        r->tx_bytes_gone += RY_LD_RLX(&qp->shared->tx_bytes);
        r->tx_ops_gone += RY_LD_RLX(&qp->shared->tx_ops);
        r->rx_bytes_gone += RY_LD_RLX(&qp->shared->rx_bytes);
        r->rx_ops_gone += RY_LD_RLX(&qp->shared->rx_ops);
    }
    e->peers[qp->peer].sent_gone[qp->rail] += ry_emu_qp_sent(qp);
}

void ry_emu_qp_destroy(struct ry_nic_qp *qp)
{
    struct ry_emu *e = qp->nic;

    if (qp->kind == RY_QP_RESPONDER) {
        RY_ST_SEQ(&qp->shared->state, (uint32_t)RY_EMU_RESET);
        ry_emu_land_flush(e, qp->rail, qp->qpn, true);
    } else {
        ry_emu_engine_leave(qp);
        ry_emu_visit(&qp->lock); /* whoever executes it has ended */
        qp->state = RY_EMU_RESET;
        ry_emu_unlock(&qp->lock);
    }
    pthread_mutex_lock(&e->list);
    counts_keep(e, qp);
    e->qps[qp->slot] = NULL;
    pthread_mutex_unlock(&e->list);
    free(qp);
}
