/* SPDX-License-Identifier: Apache-2.0 */
/* From WQEs in the core's format to ibv_post_send. */
#include <errno.h>
#include <string.h>

#include "nic/verbs/verbs_int.h"

static uint64_t wr_id_of(uint32_t index, uint32_t slot)
{
    return (uint64_t)(slot & RY_VERBS_SLOT_MASK) << 32 | index;
}

/* Data segment: inline bytes where they stand in the ring, or the caller's memory. */
static void data_sge(const struct ry_wqe *w, struct ibv_send_wr *wr, struct ibv_sge *sge)
{
    uint32_t count = ry_be32(w->u.data.byte_count);

    wr->sg_list = sge;
    if (count & RY_WQE_INLINE) {
        count &= ~RY_WQE_INLINE;
        sge->addr = (uint64_t)(uintptr_t)w->u.inl.bytes;
        sge->lkey = 0;
        wr->send_flags |= IBV_SEND_INLINE;
    } else {
        sge->addr = ry_be64(w->u.data.addr);
        sge->lkey = ry_be32(w->u.data.lkey);
    }
    sge->length = count;
    wr->num_sge = count > 0;
}

uint8_t ry_verbs_translate(const struct ry_wqe *w, uint32_t index, uint32_t slot,
                           struct ibv_send_wr *wr, struct ibv_sge *sge)
{
    uint8_t opcode = ry_wqe_opcode(w);

    memset(wr, 0, sizeof(*wr));
    memset(sge, 0, sizeof(*sge));
    wr->wr_id = wr_id_of(index, slot);
    wr->send_flags = ry_wqe_signalled(w) ? IBV_SEND_SIGNALED : 0;
    switch (opcode) {
    case RY_OP_NOP:
        /* Verbs has no request that does nothing; a write of no bytes checks no key, touches no
         * memory and completes in its turn. */
        wr->opcode = IBV_WR_RDMA_WRITE;
        return 0;
    case RY_OP_WRITE:
    case RY_OP_READ:
        wr->opcode = opcode == RY_OP_WRITE ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
        wr->wr.rdma.remote_addr = ry_be64(w->raddr);
        wr->wr.rdma.rkey = ry_be32(w->rkey);
        data_sge(w, wr, sge);
        if (opcode == RY_OP_READ && (wr->send_flags & IBV_SEND_INLINE))
            return RY_SYN_LOCAL_LENGTH;
        if ((wr->send_flags & IBV_SEND_INLINE) && sge->length > RY_INLINE_MAX_BYTES)
            return RY_SYN_LOCAL_LENGTH;
        return 0;
    case RY_OP_ATOMIC_CS:
    case RY_OP_ATOMIC_FA:
        if (ry_be32(w->u.atomic.byte_count) != 8)
            return RY_SYN_LOCAL_LENGTH;
        sge->addr = ry_be64(w->u.atomic.addr);
        sge->lkey = ry_be32(w->u.atomic.lkey);
        sge->length = 8;
        wr->sg_list = sge;
        wr->num_sge = 1;
        wr->wr.atomic.remote_addr = ry_be64(w->raddr);
        wr->wr.atomic.rkey = ry_be32(w->rkey);
        wr->opcode =
            opcode == RY_OP_ATOMIC_CS ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD;
        wr->wr.atomic.compare_add =
            ry_be64(opcode == RY_OP_ATOMIC_CS ? w->u.atomic.compare : w->u.atomic.swap_add);
        wr->wr.atomic.swap = opcode == RY_OP_ATOMIC_CS ? ry_be64(w->u.atomic.swap_add) : 0;
        return 0;
    default:
        return RY_SYN_REMOTE_INVALID_REQ; /* masked atomics and immediates: not in plain verbs */
    }
}

/* One more request in flight on this rail, unless its completion might not fit the queue. */
static bool take_budget(struct ry_verbs_rail *r)
{
    if (__atomic_add_fetch(&r->inflight, 1, __ATOMIC_ACQ_REL) <= r->budget)
        return true;
    __atomic_sub_fetch(&r->inflight, 1, __ATOMIC_ACQ_REL);
    return false;
}

struct batch {
    struct ibv_send_wr wr[RY_VERBS_BATCH];
    struct ibv_sge sge[RY_VERBS_BATCH];
    uint32_t n;
    uint8_t refused; /* syndrome of the request behind the batch */
};

/* The next requests for which there is room. Every half queue one is signalled even if its writer
 * did not ask, because only a completion gives queue slots back. */
static void fill(struct ry_nic_qp *qp, struct batch *b)
{
    b->n = 0;
    b->refused = 0;
    while (b->n < RY_VERBS_BATCH && qp->posted + b->n != qp->want) {
        uint32_t index = qp->posted + b->n;
        struct ibv_send_wr *wr = &b->wr[b->n];

        if (index - qp->retired >= qp->room || !take_budget(qp->rail)) {
            __atomic_store_n(&qp->rail->waiting, 1, __ATOMIC_RELEASE);
            break;
        }
        b->refused = ry_verbs_translate(&qp->ring[index & (qp->depth - 1)], index, qp->slot, wr,
                                        &b->sge[b->n]);
        if (b->refused) {
            __atomic_sub_fetch(&qp->rail->inflight, 1, __ATOMIC_ACQ_REL);
            break;
        }
        if (++qp->unsignalled >= qp->room / 2)
            wr->send_flags |= IBV_SEND_SIGNALED;
        if (wr->send_flags & IBV_SEND_SIGNALED)
            qp->unsignalled = 0;
        if (b->n)
            b->wr[b->n - 1].next = wr;
        b->n++;
    }
}

void ry_verbs_post(struct ry_nic_qp *qp)
{
    struct batch b;

    while (!qp->failed && qp->posted != qp->want) {
        struct ibv_send_wr *bad = NULL;
        uint32_t taken;
        int rc;

        fill(qp, &b);
        if (b.n == 0) {
            if (b.refused) {
                qp->failed = 1;
                ry_verbs_write_cqe(qp, qp->posted, b.refused, 0);
            }
            return;
        }
        rc = ibv_post_send(qp->qp, b.wr, &bad);
        taken = rc == 0 ? b.n : (uint32_t)(bad - b.wr);
        qp->posted += taken;
        if (taken < b.n)
            __atomic_sub_fetch(&qp->rail->inflight, b.n - taken, __ATOMIC_ACQ_REL);
        if (rc == ENOMEM) { /* the driver counts its slots more narrowly than it said */
            __atomic_store_n(&qp->rail->waiting, 1, __ATOMIC_RELEASE);
            return;
        }
        if (rc != 0) {
            qp->failed = 1;
            ry_verbs_write_cqe(qp, qp->posted, RY_SYN_LOCAL_QP_OP, (uint8_t)rc);
            return;
        }
    }
}

void ry_verbs_kick(struct ry_nic_qp *qp, uint32_t prod_idx)
{
    uint16_t more;

    if (qp->kind != RY_QP_INITIATOR)
        return;
    pthread_mutex_lock(&qp->lock);
    more = (uint16_t)(prod_idx - qp->want);
    if (more < 1u << 15)
        qp->want += more;
    ry_verbs_post(qp);
    pthread_mutex_unlock(&qp->lock);
    __atomic_store_n(&qp->rail->nic->busy_ns, ry_verbs_now(), __ATOMIC_RELAXED);
}
