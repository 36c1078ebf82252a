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
    if (__atomic_add_fetch(&r->inflight, 1, __ATOMIC_SEQ_CST) <= r->budget)
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

/* A place in the queue pair and one in the completion queue for request `index`. */
static bool take_room(struct ry_nic_qp *qp, uint32_t index)
{
    return index - __atomic_load_n(&qp->retired, __ATOMIC_SEQ_CST) < qp->room &&
           take_budget(qp->rail);
}

/* Whoever polls gives room and then looks at `waiting`; here it is the other way round, so that one
 * of the two sees the other's word. */
static bool have_room(struct ry_nic_qp *qp, uint32_t index)
{
    if (take_room(qp, index))
        return true;
    __atomic_store_n(&qp->rail->waiting, 1, __ATOMIC_SEQ_CST);
    return take_room(qp, index);
}

/* The next requests for which there is room. Every half queue one is signalled even if its writer
 * did not ask, because only a completion gives queue slots back. */
static void fill(struct ry_nic_qp *qp, struct batch *b)
{
    uint32_t unsignalled = qp->unsignalled;

    b->n = 0;
    b->refused = 0;
    while (b->n < RY_VERBS_BATCH &&
           qp->posted + b->n != __atomic_load_n(&qp->want, __ATOMIC_ACQUIRE)) {
        uint32_t index = qp->posted + b->n;
        struct ibv_send_wr *wr = &b->wr[b->n];

        if (!have_room(qp, index))
            break;
        b->refused = ry_verbs_translate(&qp->ring[index & (qp->depth - 1)], index, qp->slot, wr,
                                        &b->sge[b->n]);
        if (b->refused) {
            __atomic_sub_fetch(&qp->rail->inflight, 1, __ATOMIC_ACQ_REL);
            break;
        }
        if (++unsignalled >= qp->room / 2)
            wr->send_flags |= IBV_SEND_SIGNALED;
        if (wr->send_flags & IBV_SEND_SIGNALED)
            unsignalled = 0;
        if (b->n)
            b->wr[b->n - 1].next = wr;
        b->n++;
    }
}

/* What the driver took of a batch, and with it the marks that were set for these alone. */
static void count_taken(struct ry_nic_qp *qp, const struct batch *b, uint32_t from, uint32_t taken)
{
    for (uint32_t i = 0; i < taken; i++)
        qp->unsignalled = b->wr[i].send_flags & IBV_SEND_SIGNALED ? 0 : qp->unsignalled + 1;
    if (taken == b->n)
        return;
    __atomic_store_n(&qp->posted, from + taken, __ATOMIC_RELEASE);
    __atomic_sub_fetch(&qp->rail->inflight, b->n - taken, __ATOMIC_ACQ_REL);
}

static void give_up(struct ry_nic_qp *qp, uint8_t syndrome, uint8_t vendor)
{
    __atomic_store_n(&qp->failed, 1, __ATOMIC_RELEASE);
    ry_verbs_write_cqe(qp, qp->posted, syndrome, vendor);
}

/* The driver had no room, although it said so: it counts its slots more narrowly. Is there one that
 * will come free, so that whoever polls will post? */
static bool room_will_come(struct ry_nic_qp *qp)
{
    __atomic_store_n(&qp->rail->waiting, 1, __ATOMIC_SEQ_CST);
    return __atomic_load_n(&qp->retired, __ATOMIC_SEQ_CST) != qp->posted;
}

void ry_verbs_post(struct ry_nic_qp *qp)
{
    struct batch b;
    bool again = false;

    while (!__atomic_load_n(&qp->failed, __ATOMIC_ACQUIRE) &&
           qp->posted != __atomic_load_n(&qp->want, __ATOMIC_ACQUIRE)) {
        struct ibv_send_wr *bad = NULL;
        uint32_t from = qp->posted, taken;
        int rc;

        fill(qp, &b);
        if (b.n == 0) {
            if (b.refused)
                give_up(qp, b.refused, 0);
            return;
        }
        /* before the driver has them, since they may complete before it returns */
        __atomic_store_n(&qp->posted, from + b.n, __ATOMIC_RELEASE);
        rc = ibv_post_send(qp->qp, b.wr, &bad);
        taken = rc == 0 ? b.n : (uint32_t)(bad - b.wr);
        count_taken(qp, &b, from, taken);
        if (rc == ENOMEM && room_will_come(qp))
            return;
        if (rc != 0 && (rc != ENOMEM || again)) {
            give_up(qp, RY_SYN_LOCAL_QP_OP, (uint8_t)rc);
            return;
        }
        again = rc != 0;
    }
}

bool ry_verbs_small(const struct ry_nic_qp *qp, uint32_t from, uint32_t to)
{
    uint64_t bytes = 0;

    for (uint32_t i = from; i != to && bytes <= RY_VERBS_SMALL_BYTES; i++) {
        const struct ry_wqe *w = &qp->ring[i & (qp->depth - 1)];

        if (!ry_wqe_atomic(ry_wqe_opcode(w)))
            bytes += ry_be32(w->u.data.byte_count) & ~RY_WQE_INLINE;
    }
    return bytes <= RY_VERBS_SMALL_BYTES;
}

/* Post what is small and has nothing in front of it, without a change of threads. With long ones
 * under way a driver in software would use the occasion to go on with those, on this CPU. */
static bool post_small(struct ry_nic_qp *qp, uint32_t from, uint64_t now)
{
    bool alone;

    if (pthread_mutex_trylock(&qp->lock) != 0)
        return false;
    alone = qp->posted == from && (!ry_verbs_poster_busy(qp->rail, now) ||
                                   __atomic_load_n(&qp->retired, __ATOMIC_ACQUIRE) == from);
    if (alone)
        ry_verbs_post(qp);
    pthread_mutex_unlock(&qp->lock);
    return alone;
}

static void post_or_give(struct ry_nic_qp *qp, uint32_t from, uint32_t to, uint64_t now)
{
    struct ry_verbs_poster *p = &qp->rail->poster;
    bool small = ry_verbs_small(qp, from, to);

    if (small && post_small(qp, from, now))
        return;
    if (!small)
        __atomic_store_n(&p->long_ns, now, __ATOMIC_RELAXED);
    ry_verbs_poster_give(qp);
}

void ry_verbs_kick(struct ry_nic_qp *qp, uint32_t prod_idx)
{
    uint32_t from, to;
    uint16_t more;

    if (qp->kind != RY_QP_INITIATOR)
        return;
    from = __atomic_load_n(&qp->want, __ATOMIC_RELAXED);
    do {
        more = (uint16_t)(prod_idx - from);
        to = more < 1u << 15 ? from + more : from;
    } while (!__atomic_compare_exchange_n(&qp->want, &from, to, false, __ATOMIC_ACQ_REL,
                                          __ATOMIC_RELAXED));
    if (!qp->rail->poster.runs) {
        pthread_mutex_lock(&qp->lock);
        ry_verbs_post(qp);
        pthread_mutex_unlock(&qp->lock);
    } else {
        post_or_give(qp, from, to, ry_verbs_now());
    }
    __atomic_store_n(&qp->rail->nic->busy_ns, ry_verbs_now(), __ATOMIC_RELAXED);
}
