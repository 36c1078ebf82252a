/* SPDX-License-Identifier: Apache-2.0 */
#include "host/slot.h"

#include <string.h>

int ry_slot_create(struct ry_mesh *m, uint32_t pe, struct ry_out_slot *s, uint32_t rail,
                   uint32_t peer_rail)
{
    struct ry_qp_attr attr = {
        .kind = RY_QP_INITIATOR,
        .rail = rail,
        .peer = pe,
        .ring = s->wqe,
        .depth = m->cfg.depth,
        .cqe = s->cqe,
        .dbr = s->dbr,
        .uar = s->uar,
    };
    int rc;

    ry_st_rel32(s->dbr, 0);
    ry_publish_cqe(s->cqe, ry_cqe_encode(0, 0, RY_CQE_INVALID, 1));
    rc = m->nic->ops->qp_create(m->nic, &attr, &s->qp, &s->addr);
    if (rc)
        return rc;
    if (RY_MUT(RY_MUT_OLD_GID))
        memcpy(s->addr.gid, m->hello.rail[rail].gid, sizeof(s->addr.gid));
    s->rail = rail;
    s->peer_rail = peer_rail;
    memcpy(s->rkeys, m->peers[pe].rkeys[peer_rail], sizeof(s->rkeys)); /* ARMED may bring others */
    s->probe_idx = 0;
    s->probes_good = 0;
    s->condemned = false;
    s->unfenced = false;
    return RY_OK;
}

int ry_slot_respond(struct ry_mesh *m, uint32_t pe, struct ry_in_slot *in, uint32_t rail,
                    const struct ry_qp_addr *remote)
{
    struct ry_qp_attr attr = {.kind = RY_QP_RESPONDER, .rail = rail, .peer = pe};
    int rc = m->nic->ops->qp_create(m->nic, &attr, &in->qp, &in->addr);

    if (rc)
        return rc;
    if (remote) {
        rc = m->nic->ops->qp_connect(in->qp, remote);
        if (rc) {
            m->nic->ops->qp_destroy(in->qp);
            in->qp = NULL;
            return rc;
        }
        in->peer = *remote;
    }
    in->rail = rail;
    return RY_OK;
}

void ry_slot_offer(struct ry_mesh *m, uint32_t pe, struct ry_out_channel *oc, struct ry_out_slot *s)
{
    struct ry_slot_host *h = &s->host;
    const struct ry_peer *p = &m->peers[pe];
    bool home = s->rail == oc->home_rail && s->peer_rail == oc->home_peer_rail;
    uint32_t cost = ry_plan_cost(&m->hello, &p->hello, oc->home_rail, oc->home_peer_rail, s->rail,
                                 s->peer_rail);

    h->wqe = s->wqe;
    h->cqe = s->cqe;
    h->dbr = s->dbr;
    h->uar = s->uar;
    h->pslot = s->pslot;
    h->pecho = s->pecho;
    h->lkeys = m->lkeys[s->rail];
    h->rkeys = s->rkeys;
    h->nic_qp = s->qp;
    h->qpn = s->addr.qpn;
    h->next_idx = s->probe_idx;
    ry_st_rel64(&h->offered_ns, ry_now(&m->env));
    ry_st_rel64(&h->port_up, 1);
    ry_st_rel64(&h->preferred, home ? RY_PREFER_HOME
                                    : RY_PREFER_BACKUP - ry_min32(cost / 8, RY_PREFER_BACKUP - 1));
    s->state = RY_OUT_ARMED;
    s->condemned = false;
    ry_st_rel64(&h->armed_epoch, s->epoch);
}

void ry_slot_destroy(struct ry_mesh *m, struct ry_out_slot *s)
{
    if (s->qp)
        m->nic->ops->qp_destroy(s->qp);
    s->qp = NULL;
    s->state = RY_OUT_EMPTY;
}
