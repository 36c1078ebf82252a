/* SPDX-License-Identifier: Apache-2.0 */
/* Doorbells, the fast path and completions.
 *
 * Without a rate, a latency or a fault, the thread that kicks executes at once. A second thread
 * that kicks the same queue pair leaves its work to the first: it raises `prod` and then tries
 * the lock; the holder drops the lock and then looks at `prod` again. Both orders are
 * sequentially consistent, so one of the two sees the other. */
#include "nic/emu/emu_int.h"

enum { ALIVE_CHECK_NS = 5000000 };

/* Raise prod to what the doorbell says. The doorbell record is the truth; prod_idx may be older
 * (its thread was slow), or newer (the record is on its way). False: it went backward or
 * overran. */
static bool doorbell(struct ry_nic_qp *qp, uint32_t prod_idx)
{
    uint32_t old = RY_LD_SEQ(&qp->prod), want;

    do {
        uint16_t have = (uint16_t)old, to = (uint16_t)prod_idx;

        if (qp->dbr != NULL) {
            uint16_t rec = (uint16_t)ry_be32(RY_LD_ACQ(qp->dbr));

            if ((int16_t)(uint16_t)(rec - have) < 0)
                return false;
            if ((int16_t)(uint16_t)(to - rec) < 0)
                to = rec;
        }
        if ((int16_t)(uint16_t)(to - have) < 0)
            return false;
        want = old + (uint16_t)(to - have);
        if (want - RY_LD_RLX(&qp->done) > qp->depth)
            return false;
    } while (want != old && !RY_CAS(&qp->prod, &old, want));
    return true;
}

/* Must this queue pair's work wait for a time, or for something to come back? */
bool ry_emu_slow(const struct ry_nic_qp *qp)
{
    const struct ry_emu *e = qp->nic;
    const struct ry_emu_peer *p = &e->peers[qp->peer];

    return RY_LD_ACQ(&e->rail[qp->rail].slow) != 0 || RY_LD_SEQ(&p->attached) == 0 ||
           RY_LD_ACQ(&p->seg->port[qp->remote_rail].slow) != 0;
}

static void publish(struct ry_nic_qp *qp, uint32_t idx, uint8_t opcode)
{
    ry_publish_cqe(qp->cqe, ry_cqe_encode(qp->qpn, (uint16_t)idx, opcode, qp->cqes & 1));
    qp->cqes++;
    ry_emu_wake_seg(qp->nic->seg);
}

void ry_emu_complete(struct ry_nic_qp *qp, uint32_t idx, bool signalled)
{
    RY_ST_REL(&qp->done, idx + 1);
    if (signalled)
        publish(qp, idx, RY_CQE_REQ);
}

/* An error CQE: counter, syndrome, vendor and QPN are right, all else is rubbish on purpose,
 * because that is all that may be trusted of a real one. */
static void publish_error(struct ry_nic_qp *qp, uint32_t idx, uint8_t syndrome, uint8_t vendor)
{
    uint64_t *w = (uint64_t *)(void *)qp->cqe, seed = ((uint64_t)qp->qpn << 32) | idx, last;

    for (uint32_t i = 0; i < 6; i++)
        RY_ST_RLX(&w[i], ry_emu_random(&seed));
    last = (ry_emu_random(&seed) << 16) | ((uint64_t)vendor << 8) | syndrome;
    RY_ST_RLX(&w[6], ry_be64(last));
    RY_BUMP(&qp->errors, 1);
    publish(qp, idx, RY_CQE_REQ_ERR);
}

void ry_emu_flush(struct ry_nic_qp *qp)
{
    uint32_t prod = RY_LD_SEQ(&qp->prod);

    while ((int32_t)(prod - qp->done) > 0) {
        uint32_t idx = qp->done;

        RY_ST_REL(&qp->done, idx + 1);
        publish_error(qp, idx, RY_SYN_FLUSH, 0);
    }
}

void ry_emu_fail(struct ry_nic_qp *qp, uint32_t idx, uint8_t syndrome, uint8_t vendor)
{
    qp->state = RY_EMU_ERR;
    qp->fhead = qp->fexec = qp->ftail;
    if ((int32_t)(RY_LD_SEQ(&qp->prod) - idx) > 0)
        RY_ST_REL(&qp->done, idx + 1); /* a bad doorbell may have named no request at all */
    publish_error(qp, idx, syndrome, vendor);
    ry_emu_flush(qp);
}

/* To ERR by order, or for a bad doorbell. True if the queue pair executes nothing any more. */
bool ry_emu_halt(struct ry_nic_qp *qp)
{
    if (qp->state == RY_EMU_RESET || qp->state == RY_EMU_DEAD)
        return true;
    if (qp->state == RY_EMU_RTS) {
        if (RY_LD_SEQ(&qp->doorbell_bad) != 0)
            ry_emu_fail(qp, qp->done, RY_SYN_LOCAL_QP_OP, 0);
        else if (RY_LD_SEQ(&qp->err_req) != 0)
            qp->state = RY_EMU_ERR;
        else
            return false;
        qp->fhead = qp->fexec = qp->ftail;
    }
    ry_emu_flush(qp);
    return true;
}

void ry_emu_peer_watch(struct ry_nic_qp *qp)
{
    struct ry_emu_peer *p = &qp->nic->peers[qp->peer];
    uint64_t now;

    if (RY_LD_SEQ(&p->attached) == 0 || p->pidfd < 0)
        return;
    now = ry_emu_now(qp->nic);
    if (now - RY_LD_RLX(&p->checked_ns) < ALIVE_CHECK_NS)
        return;
    RY_ST_RLX(&p->checked_ns, now);
    ry_emu_peer_alive(qp->nic, p);
}

/* lost: a try was made and got no answer; its timer runs from here. */
static void give_to_engine(struct ry_nic_qp *qp, bool lost)
{
    qp->lost = lost;
    if (lost)
        qp->retry_ns = ry_emu_now(qp->nic) + qp->nic->cfg.retry_ns;
    qp->send_idx = qp->seen_prod = qp->done;
    qp->send_off = 0;
    RY_ST_SEQ(&qp->timed, 1u);
}

/* False: nothing more can be done here now (not connected, or the engine has it). */
static bool run_locked(struct ry_nic_qp *qp)
{
    if (RY_LD_ACQ(&qp->timed) != 0)
        return false;
    if (ry_emu_halt(qp))
        return qp->state == RY_EMU_ERR;
    ry_emu_peer_watch(qp);
    while (qp->done != RY_LD_SEQ(&qp->prod)) {
        uint32_t idx = qp->done;
        struct ry_emu_op op;
        int rc;

        if (ry_emu_halt(qp))
            return true;
        if (RY_UNLIKELY(ry_emu_slow(qp))) {
            give_to_engine(qp, false);
            return false;
        }
        ry_emu_decode(&qp->ring[idx & (qp->depth - 1)], qp->qpn, &op);
        rc = ry_emu_exec(qp, &op, qp->next_psn, 0, (uint32_t)ry_emu_op_bytes(&op), true);
        if (RY_LIKELY(rc == 0)) {
            qp->retries = 0;
            if (op.opcode != RY_OP_NOP)
                qp->next_psn = (qp->next_psn + 1) & RY_EMU_PSN_MASK;
            ry_emu_complete(qp, idx, op.signalled);
        } else if (rc == RY_EMU_LOST) {
            if (ry_emu_halt(qp))
                return true;
            give_to_engine(qp, true);
            return false;
        } else {
            ry_emu_fail(qp, idx, (uint8_t)rc, 0);
        }
    }
    return true;
}

void ry_emu_run(struct ry_nic_qp *qp)
{
    bool again, live, timed;

    do {
        while (!ry_emu_trylock(&qp->lock)) {
            if (RY_LD_SEQ(&qp->lock) == RY_EMU_EXECUTES)
                return; /* he looks again after letting go */
            sched_yield();
        }
        again = run_locked(qp);
        live = qp->state == RY_EMU_RTS;
        timed = RY_LD_RLX(&qp->timed) != 0;
        ry_emu_unlock(&qp->lock);
        if (timed)
            ry_emu_submit(qp); /* without the lock: it may do the engine's work */
    } while (again && (RY_LD_SEQ(&qp->done) != RY_LD_SEQ(&qp->prod) ||
                       (live && (RY_LD_SEQ(&qp->err_req) | RY_LD_SEQ(&qp->doorbell_bad)) != 0)));
}

void ry_emu_kick(struct ry_nic_qp *qp, uint32_t prod_idx)
{
    if (RY_UNLIKELY(!doorbell(qp, prod_idx)))
        RY_ST_SEQ(&qp->doorbell_bad, 1u);
    if (RY_UNLIKELY(qp->nic->cfg.virtual_time || RY_LD_SEQ(&qp->timed) != 0))
        ry_emu_submit(qp);
    else
        ry_emu_run(qp);
}
