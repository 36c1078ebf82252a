/* SPDX-License-Identifier: Apache-2.0 */
/* Leaving a queue pair for good: ERR and flush at the initiator, RESET and settle at the
 * responder. */
#include "nic/emu/emu_int.h"

static bool dead(const struct ry_nic_qp *qp)
{
    const struct ry_emu *e = qp->nic;

    return RY_LD_ACQ(&e->seg->nic[e->rail[qp->rail].nic].dead) != 0;
}

int ry_emu_qp_error(struct ry_nic_qp *qp)
{
    if (qp->kind == RY_QP_RESPONDER) {
        uint32_t found = RY_EMU_RTR;

        RY_CAS(&qp->shared->state, &found, (uint32_t)RY_EMU_ERR);
        return 0;
    }
    RY_ST_SEQ(&qp->err_req, 1u);
    ry_emu_run(qp); /* flushes now, unless somebody executes it: he then sees the request */
    if (RY_LD_ACQ(&qp->timed) != 0)
        ry_emu_submit(qp);
    return 0;
}

int ry_emu_qp_flushed(struct ry_nic_qp *qp)
{
    int rc = 0;

    if (qp->kind == RY_QP_RESPONDER)
        return RY_ERR_INVALID;
    if (dead(qp))
        return RY_ERR_DEVICE;
    if (!ry_emu_trylock_as(&qp->lock, RY_EMU_VISITS))
        return 0;
    if (RY_LD_SEQ(&qp->err_req) != 0)
        ry_emu_halt(qp);
    if (qp->state == RY_EMU_ERR)
        rc = 1;
    else if (qp->state == RY_EMU_DEAD)
        rc = RY_ERR_DEVICE; /* its NIC died, and came back without it */
    else if (qp->state == RY_EMU_RESET)
        rc = RY_ERR_INVALID;
    ry_emu_unlock(&qp->lock);
    return rc;
}

/* Nobody copies through this queue pair: the count is down, or he who counted is no more. */
bool ry_emu_quiet(struct ry_emu *e, const struct ry_emu_seg_qp *q, uint32_t pe)
{
    if (RY_LD_SEQ(&q->inflight) == 0)
        return true;
    return pe < e->cfg.n_pes && RY_LD_ACQ(&e->peers[pe].attached) != 0 &&
           !ry_emu_peer_alive(e, &e->peers[pe]);
}

int ry_emu_qp_fence_begin(struct ry_nic_qp *qp)
{
    if (qp->kind != RY_QP_RESPONDER)
        return RY_ERR_INVALID;
    if (dead(qp))
        return RY_ERR_DEVICE;
    RY_ST_SEQ(&qp->shared->state, (uint32_t)RY_EMU_RESET);
    return 0;
}

/* A dead NIC answers no command, so its fence cannot be had until the rail was cut (rule 7's
 * ladder); after the cut nothing that it held can land. */
int ry_emu_qp_fence_poll(struct ry_nic_qp *qp)
{
    struct ry_emu *e = qp->nic;

    if (qp->kind != RY_QP_RESPONDER)
        return RY_ERR_INVALID;
    if (dead(qp) && !e->rail[qp->rail].cut)
        return RY_ERR_DEVICE;
    if (RY_LD_SEQ(&qp->shared->state) != RY_EMU_RESET && !e->rail[qp->rail].cut)
        return RY_ERR_INVALID;
    if (!ry_emu_quiet(e, qp->shared, qp->peer))
        return 0;
    return ry_emu_land_pending(e->seg, qp->qpn) ? 0 : 1;
}
