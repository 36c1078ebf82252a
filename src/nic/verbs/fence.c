/* SPDX-License-Identifier: Apache-2.0 */
/* How the work of a queue pair ends for certain.
 *
 * Initiator: to ERR, then one more request; its flush comes behind all others, so that afterwards
 * the NIC reads no source and no completion is still to come. A driver that gives no flush in time
 * is asked for RESET. Responder: to RESET, on a thread of its own because firmware may be slow;
 * once the driver says it is done, nothing that the peer sent lands any more. */
#include <errno.h>
#include <string.h>

#include "nic/verbs/verbs_int.h"

static void *reset_qp(void *arg)
{
    struct ry_nic_qp *qp = arg;
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_RESET};

    qp->worker_rc = ibv_modify_qp(qp->qp, &a, IBV_QP_STATE);
    __atomic_store_n(&qp->worker_done, 1, __ATOMIC_RELEASE);
    return NULL;
}

static int start_reset(struct ry_nic_qp *qp)
{
    int rc;

    if (qp->worker_runs)
        return RY_OK;
    rc = pthread_create(&qp->worker, NULL, reset_qp, qp);
    if (rc != 0)
        return ry_verbs_fail(qp->rail->nic, RY_ERR_SYSTEM, "cannot start a thread: %s",
                             strerror(rc));
    qp->worker_runs = 1;
    return RY_OK;
}

static int reset_done(const struct ry_nic_qp *qp)
{
    if (!__atomic_load_n(&qp->worker_done, __ATOMIC_ACQUIRE))
        return 0;
    if (qp->worker_rc != 0)
        return ry_verbs_fail(qp->rail->nic, RY_ERR_RAIL, "%s does not reset a queue pair: %s",
                             qp->rail->name, strerror(qp->worker_rc));
    return 1;
}

void ry_verbs_worker_join(struct ry_nic_qp *qp)
{
    if (qp->worker_runs)
        pthread_join(qp->worker, NULL);
    qp->worker_runs = 0;
}

int ry_verbs_qp_error(struct ry_nic_qp *qp)
{
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};
    struct ibv_send_wr *bad, wr = {.wr_id = RY_VERBS_DRAIN | (uint64_t)qp->slot << 32,
                                   .opcode = IBV_WR_RDMA_WRITE,
                                   .send_flags = IBV_SEND_SIGNALED};
    int rc;

    if (qp->error_ns)
        return RY_OK;
    __atomic_store_n(&qp->failed, 1, __ATOMIC_RELEASE);
    rc = ibv_modify_qp(qp->qp, &a, IBV_QP_STATE); /* what is being posted meanwhile is flushed */
    pthread_mutex_lock(&qp->lock);
    if (rc == 0 && qp->kind == RY_QP_INITIATOR) {
        __atomic_add_fetch(&qp->rail->inflight, 1, __ATOMIC_ACQ_REL);
        qp->draining = ibv_post_send(qp->qp, &wr, &bad) == 0;
        if (!qp->draining)
            __atomic_sub_fetch(&qp->rail->inflight, 1, __ATOMIC_ACQ_REL);
    }
    qp->error_ns = ry_verbs_now();
    pthread_mutex_unlock(&qp->lock);
    if (rc != 0)
        return ry_verbs_fail(qp->rail->nic, RY_ERR_RAIL, "cannot stop a queue pair on %s: %s",
                             qp->rail->name, strerror(rc));
    return RY_OK;
}

int ry_verbs_qp_flushed(struct ry_nic_qp *qp)
{
    uint64_t now = ry_verbs_now();
    int rc;

    if (!qp->error_ns)
        return 0;
    if (qp->kind == RY_QP_RESPONDER)
        return 1;
    ry_verbs_drive(&qp->rail->nic->base, now);
    if (__atomic_load_n(&qp->drained, __ATOMIC_ACQUIRE))
        return 1;
    if (!qp->worker_runs && qp->draining && now - qp->error_ns < RY_VERBS_FLUSH_NS_MAX)
        return 0;
    rc = start_reset(qp);
    return rc == RY_OK ? reset_done(qp) : rc;
}

int ry_verbs_qp_fence_begin(struct ry_nic_qp *qp) { return start_reset(qp); }

int ry_verbs_qp_fence_poll(struct ry_nic_qp *qp) { return qp->worker_runs ? reset_done(qp) : 0; }
