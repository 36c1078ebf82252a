/* SPDX-License-Identifier: Apache-2.0 */
/* From ibv_wc to the collapsed CQE. */
#include "nic/verbs/verbs_int.h"

/* rxe says "remote invalid request" when its responder has lost its place in a message of many
 * packets, which happens on a lossy link: for a plain write or read that is the path's fault. An
 * atomic may really have asked for something that cannot be. */
uint8_t ry_verbs_syndrome(enum ibv_wc_status status, uint8_t opcode)
{
    switch (status) {
    case IBV_WC_LOC_LEN_ERR:
        return RY_SYN_LOCAL_LENGTH;
    case IBV_WC_LOC_PROT_ERR:
        return RY_SYN_LOCAL_PROT;
    case IBV_WC_WR_FLUSH_ERR:
        return RY_SYN_FLUSH;
    case IBV_WC_MW_BIND_ERR:
        return RY_SYN_MW_BIND;
    case IBV_WC_BAD_RESP_ERR:
        return RY_SYN_BAD_RESP;
    case IBV_WC_LOC_ACCESS_ERR:
        return RY_SYN_LOCAL_ACCESS;
    case IBV_WC_REM_INV_REQ_ERR:
        return ry_wqe_atomic(opcode) ? RY_SYN_REMOTE_INVALID_REQ : RY_SYN_RETRY_EXC;
    case IBV_WC_REM_ACCESS_ERR:
        return RY_SYN_REMOTE_ACCESS;
    case IBV_WC_REM_OP_ERR:
        return RY_SYN_REMOTE_OP;
    case IBV_WC_RETRY_EXC_ERR:
        return RY_SYN_RETRY_EXC;
    case IBV_WC_RNR_RETRY_EXC_ERR:
        return RY_SYN_RNR_RETRY_EXC;
    case IBV_WC_REM_ABORT_ERR:
        return RY_SYN_REMOTE_ABORTED;
    default:
        return RY_SYN_LOCAL_QP_OP; /* the device's own trouble: the path is dead */
    }
}

/* Backend to waiter. A good completion never covers an error, nor does a flush cover
 * what caused it. */
void ry_verbs_write_cqe(struct ry_nic_qp *qp, uint32_t index, uint8_t syndrome, uint8_t vendor)
{
    uint8_t opcode = syndrome ? RY_CQE_REQ_ERR : RY_CQE_REQ;

    pthread_mutex_lock(&qp->cqe_lock);
    if (!qp->told) {
        if (syndrome) {
            qp->told = 1;
            qp->cqe->syndrome = syndrome;
            qp->cqe->vendor_syndrome = vendor;
            __atomic_add_fetch(&qp->rail->counters.errors, 1, __ATOMIC_RELAXED);
        }
        ry_publish_cqe(qp->cqe, ry_cqe_encode(qp->qp->qp_num, (uint16_t)index, opcode, 0));
    }
    pthread_mutex_unlock(&qp->cqe_lock);
}

/* What [from, to) moved over the port, read from the ring while it is still the log. */
static void count(struct ry_nic_qp *qp, uint32_t from, uint32_t to)
{
    struct ry_rail_counters *c = &qp->rail->counters;
    uint64_t tx = 0, rx = 0;

    for (uint32_t i = from; i != to; i++) {
        const struct ry_wqe *w = &qp->ring[i & (qp->depth - 1)];
        uint8_t opcode = ry_wqe_opcode(w);

        if (opcode == RY_OP_WRITE)
            tx += ry_be32(w->u.data.byte_count) & ~RY_WQE_INLINE;
        else if (opcode == RY_OP_READ)
            rx += ry_be32(w->u.data.byte_count);
    }
    qp->tx_bytes += tx;
    __atomic_add_fetch(&c->tx_bytes, tx, __ATOMIC_RELAXED);
    __atomic_add_fetch(&c->rx_bytes, rx, __ATOMIC_RELAXED);
    __atomic_add_fetch(&c->tx_ops, to - from, __ATOMIC_RELAXED);
}

/* Under cq_lock. Requests of one queue pair end in order, so one completion ends all before it. */
static void take(struct ry_verbs_rail *r, const struct ibv_wc *wc)
{
    uint32_t slot = (uint32_t)(wc->wr_id >> 32) & RY_VERBS_SLOT_MASK;
    uint32_t index = (uint32_t)wc->wr_id, n;
    struct ry_nic_qp *qp = slot < r->qps_len ? r->qps[slot] : NULL;

    if (!qp || qp->qp->qp_num != wc->qp_num)
        return; /* a queue pair that is gone */
    if (wc->wr_id & RY_VERBS_DRAIN) {
        __atomic_sub_fetch(&r->inflight, 1, __ATOMIC_ACQ_REL);
        __atomic_store_n(&qp->drained, 1, __ATOMIC_RELEASE);
        return;
    }
    n = index + 1 - qp->retired;
    if (n > __atomic_load_n(&qp->posted, __ATOMIC_ACQUIRE) - qp->retired)
        n = 0; /* older than what is known */
    if (wc->status == IBV_WC_SUCCESS && n) {
        count(qp, qp->retired, index + 1);
        ry_verbs_write_cqe(qp, index, 0, 0);
    } else if (wc->status != IBV_WC_SUCCESS) {
        uint8_t opcode = ry_wqe_opcode(&qp->ring[index & (qp->depth - 1)]);

        __atomic_store_n(&qp->failed, 1, __ATOMIC_RELEASE);
        ry_verbs_write_cqe(qp, index, ry_verbs_syndrome(wc->status, opcode),
                           (uint8_t)wc->vendor_err);
    }
    __atomic_store_n(&qp->retired, qp->retired + n, __ATOMIC_SEQ_CST);
    __atomic_sub_fetch(&r->inflight, n, __ATOMIC_SEQ_CST);
}

/* Queue pairs that had no room may have some now. Under cq_lock. */
static void post_waiting(struct ry_verbs_rail *r)
{
    if (!__atomic_exchange_n(&r->waiting, 0, __ATOMIC_SEQ_CST))
        return;
    for (uint32_t i = 0; i < r->qps_len; i++) {
        struct ry_nic_qp *qp = r->qps[i];

        if (!qp || qp->kind != RY_QP_INITIATOR)
            continue;
        if (r->poster.runs) {
            ry_verbs_poster_give(qp);
            continue;
        }
        pthread_mutex_lock(&qp->lock);
        ry_verbs_post(qp);
        pthread_mutex_unlock(&qp->lock);
    }
}

bool ry_verbs_look(struct ry_verbs_nic *n, uint64_t now_ns, bool *busy)
{
    struct ibv_wc wc[RY_VERBS_POLL];
    bool did = false;

    *busy = false;
    for (uint32_t i = 0; i < n->rails_len; i++) {
        struct ry_verbs_rail *r = &n->rails[i];
        int got, turns = 4;

        if (!__atomic_load_n(&r->inflight, __ATOMIC_ACQUIRE))
            continue;
        *busy = true;
        if (pthread_mutex_trylock(&r->cq_lock) != 0)
            continue; /* another thread is at it */
        do {
            got = ibv_poll_cq(r->cq, RY_VERBS_POLL, wc);
            for (int k = 0; k < got; k++)
                take(r, &wc[k]);
            did |= got > 0;
        } while (got == RY_VERBS_POLL && --turns);
        post_waiting(r);
        pthread_mutex_unlock(&r->cq_lock);
    }
    if (did)
        __atomic_store_n(&n->busy_ns, now_ns, __ATOMIC_RELAXED);
    return did;
}

uint64_t ry_verbs_drive(struct ry_nic *nic, uint64_t now_ns)
{
    bool busy;

    ry_verbs_look(ry_verbs_of(nic), now_ns, &busy);
    return busy ? now_ns + 20000 : UINT64_MAX;
}
