/* SPDX-License-Identifier: Apache-2.0 */
/* Rails as the caller sees them: names, state, counters. */
#include <stdio.h>
#include <string.h>

#include "nic/emu/emu_int.h"

uint32_t ry_emu_rail_count(struct ry_nic *nic) { return ry_emu_of(nic)->cfg.rails; }

int ry_emu_rail_info(struct ry_nic *nic, uint32_t rail, struct ry_rail_info *info)
{
    struct ry_emu *e = ry_emu_of(nic);

    if (rail >= e->cfg.rails)
        return RY_ERR_INVALID;
    memset(info, 0, sizeof(*info));
    snprintf(info->name, sizeof(info->name), "emu%u:%u", e->rail[rail].nic, e->rail[rail].port);
    info->nic = e->rail[rail].nic;
    info->port = e->rail[rail].port;
    info->rate_bps = e->rail[rail].rate_bps;
    info->mtu_bytes = 4096;
    info->lid = e->cfg.pe * RY_RAILS_MAX + rail + 1;
    info->link_layer = 3;
    ry_emu_gid(e->seg, rail, info->gid);
    return 0;
}

enum ry_port_state ry_emu_rail_state(struct ry_nic *nic, uint32_t rail)
{
    struct ry_emu *e = ry_emu_of(nic);

    if (rail >= e->cfg.rails || RY_LD_ACQ(&e->seg->port[rail].up) == 0)
        return RY_PORT_DOWN;
    return RY_PORT_UP;
}

int ry_emu_counters(struct ry_nic *nic, uint32_t rail, struct ry_rail_counters *out)
{
    struct ry_emu *e = ry_emu_of(nic);
    struct ry_rail_counters c;
    struct ry_emu_rail *r;

    if (rail >= e->cfg.rails)
        return RY_ERR_INVALID;
    pthread_mutex_lock(&e->list);
    r = &e->rail[rail];
    c = (struct ry_rail_counters){.tx_bytes = r->tx_bytes_gone,
                                  .rx_bytes = r->rx_bytes_gone,
                                  .tx_ops = r->tx_ops_gone,
                                  .rx_ops = r->rx_ops_gone,
                                  .retries = r->retries_gone,
                                  .errors = r->errors_gone};
    for (uint32_t i = 0; i <= e->seg->qp_mask; i++) {
        struct ry_nic_qp *qp = e->qps[i];

        if (qp == NULL || qp->rail != rail)
            continue;
        c.tx_bytes += RY_LD_RLX(&qp->tx_bytes);
        c.tx_ops += RY_LD_RLX(&qp->tx_ops);
        c.rx_bytes += RY_LD_RLX(&qp->rx_bytes);
        c.retries += RY_LD_RLX(&qp->retries_total);
        c.errors += RY_LD_RLX(&qp->errors);
        if (qp->shared != NULL) {
            c.tx_bytes += RY_LD_RLX(&qp->shared->tx_bytes);
            c.tx_ops += RY_LD_RLX(&qp->shared->tx_ops);
            c.rx_bytes += RY_LD_RLX(&qp->shared->rx_bytes);
            c.rx_ops += RY_LD_RLX(&qp->shared->rx_ops);
        }
    }
    pthread_mutex_unlock(&e->list);
    *out = c;
    return 0;
}

/* Requests, and answers to the peer's reads. */
uint64_t ry_emu_qp_sent(const struct ry_nic_qp *qp)
{
    return RY_LD_RLX(&qp->tx_bytes) + (qp->shared != NULL ? RY_LD_RLX(&qp->shared->tx_bytes) : 0);
}

int ry_emu_peer_sent(struct ry_nic *nic, uint32_t peer, uint64_t *bytes)
{
    struct ry_emu *e = ry_emu_of(nic);

    if (peer >= e->cfg.n_pes)
        return RY_ERR_INVALID;
    pthread_mutex_lock(&e->list);
    for (uint32_t r = 0; r < e->cfg.rails; r++)
        bytes[r] = e->peers[peer].sent_gone[r];
    for (uint32_t i = 0; i <= e->seg->qp_mask; i++) {
        const struct ry_nic_qp *qp = e->qps[i];

        if (qp != NULL && qp->peer == peer)
            bytes[qp->rail] += ry_emu_qp_sent(qp);
    }
    pthread_mutex_unlock(&e->list);
    return 0;
}
