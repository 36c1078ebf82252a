/* SPDX-License-Identifier: Apache-2.0 */
/* Executing a request at the peer, from the initiator's side.
 *
 * The in-flight count is raised before the responder's state and keys are looked at and lowered
 * after the copy. The owner changes state or key first and then waits for the count: so either
 * we see the change, or he sees our count. Both are sequentially consistent for that reason. */
#include "nic/emu/copy.h"
#include "nic/emu/emu_int.h"

uint64_t ry_emu_op_bytes(const struct ry_emu_op *op)
{
    return op->opcode == RY_OP_NOP ? 0 : op->bytes;
}

/* The peer behind a path on which packets now get through; NULL: they are lost. */
struct ry_emu_peer *ry_emu_reach(struct ry_emu *e, uint32_t rail, uint32_t pe, uint32_t remote_rail)
{
    struct ry_emu_peer *p = &e->peers[pe];
    struct ry_emu_seg_port *far;

    if (RY_UNLIKELY(RY_LD_SEQ(&p->attached) == 0 || RY_LD_RLX(&p->lost) != 0 ||
                    RY_LD_RLX(&p->seg->closed) != 0))
        return NULL;
    far = &p->seg->port[remote_rail];
    if (RY_UNLIKELY(RY_LD_ACQ(&e->seg->port[rail].up) == 0 || RY_LD_ACQ(&far->up) == 0))
        return NULL;
    return p;
}

/* Our end refuses a request before a packet leaves: where the data comes from or goes to. Bytes
 * [off, off + len) of it must be there too: the block may have been rewritten under way. */
uint8_t ry_emu_local_check(const struct ry_nic_qp *qp, const struct ry_emu_op *op, uint32_t off,
                           uint32_t len)
{
    if (op->bad != 0)
        return op->bad;
    if (op->opcode == RY_OP_NOP)
        return 0;
    if (off > op->bytes || len > op->bytes - off)
        return RY_SYN_LOCAL_QP_OP;
    if (op->is_inline || op->bytes == 0 ||
        ry_emu_mr_local(qp->nic, qp->rail, op->lkey, op->laddr, op->bytes))
        return 0;
    return RY_SYN_LOCAL_PROT;
}

static uint64_t add_fields(uint32_t old, uint32_t add, uint32_t boundary)
{
    return ((old & ~boundary) + (add & ~boundary)) ^ ((old ^ add) & boundary);
}

static void atomic32(const struct ry_emu_op *op, uint32_t *word, uint32_t *result)
{
    uint32_t old = RY_LD_ACQ(word), want;

    do {
        if (op->opcode == RY_OP_ATOMIC_MASKED_FA)
            want = (uint32_t)add_fields(old, op->swap32, op->cmp32);
        else if (((old ^ op->cmp32) & op->cmp_mask) == 0)
            want = (old & ~op->swap_mask) | (op->swap32 & op->swap_mask);
        else
            want = old;
    } while (!RY_CAS(word, &old, want));
    RY_ST_REL(result, old);
}

static void atomic64(const struct ry_emu_op *op, uint64_t *word, uint64_t *result)
{
    uint64_t old;

    if (op->opcode == RY_OP_ATOMIC_FA) {
        old = RY_ADD(word, op->operand);
    } else {
        old = op->compare;
        RY_CAS(word, &old, op->operand);
    }
    RY_ST_REL(result, old);
}

/* Bytes [off, off + len) of a request whose every check has passed. */
static void perform(struct ry_nic_qp *qp, struct ry_emu_peer *p, const struct ry_emu_op *op,
                    uint32_t off, uint32_t len)
{
    char *far = p->heap + (op->raddr - p->heap_base) + off;
    char *near = (char *)(uintptr_t)(op->laddr + off);

    switch (op->opcode) {
    case RY_OP_WRITE:
    case RY_OP_WRITE_IMM: {
        const void *src = op->is_inline ? (const char *)op->data + off : near;

        if (RY_LIKELY(p->seg->land_off == 0) || !ry_emu_land_add(qp, p, op->raddr + off, src, len))
            ry_emu_copy(far, src, len);
        return;
    }
    case RY_OP_READ:
        ry_emu_fetch(near, far, len);
        return;
    case RY_OP_ATOMIC_FA:
    case RY_OP_ATOMIC_CS:
        atomic64(op, (uint64_t *)(void *)far, (uint64_t *)(void *)near);
        return;
    default:
        atomic32(op, (uint32_t *)(void *)far, (uint32_t *)(void *)near);
        return;
    }
}

/* The responder refuses: its queue pair is in ERR from here on, and its owner hears of it. One that
 * was RESET since it accepted refuses nothing: it is silent. */
static int refuse(struct ry_emu_peer *p, struct ry_emu_seg_qp *q, uint8_t syndrome)
{
    uint32_t found = RY_EMU_RTR;

    if (RY_CAS(&q->state, &found, (uint32_t)RY_EMU_ERR)) {
        RY_ST_SEQ(&q->fatal, 1u);
        RY_ADD(&p->seg->fatal_count, 1u);
        ry_emu_wake_seg(p->seg);
    }
    return found == RY_EMU_RESET ? RY_EMU_LOST : syndrome;
}

static bool accepts(const struct ry_nic_qp *qp, const struct ry_emu_seg_qp *q)
{
    return RY_LD_SEQ(&q->state) == RY_EMU_RTR && RY_LD_RLX(&q->qpn) == qp->remote_qpn &&
           RY_LD_RLX(&q->peer_qpn) == qp->qpn && RY_LD_RLX(&q->peer_pe) == qp->nic->cfg.pe &&
           RY_LD_RLX(&q->rail) == qp->remote_rail;
}

static void count(struct ry_nic_qp *qp, struct ry_emu_seg_qp *q, const struct ry_emu_op *op,
                  uint32_t len, bool last)
{
    if (op->opcode == RY_OP_READ) {
        RY_BUMP(&qp->rx_bytes, len);
        RY_BUMP(&q->tx_bytes, len);
    } else {
        RY_BUMP(&qp->tx_bytes, len);
        RY_BUMP(&q->rx_bytes, len);
    }
    if (last) {
        RY_BUMP(&qp->tx_ops, 1);
        RY_BUMP(&q->rx_ops, 1);
    }
}

/* With the in-flight count raised. */
static int at_responder(struct ry_nic_qp *qp, struct ry_emu_peer *p, struct ry_emu_seg_qp *q,
                        const struct ry_emu_op *op, uint32_t psn, uint32_t off, uint32_t len,
                        bool last)
{
    uint32_t ahead, at, end = off + len;
    bool again;

    if (!accepts(qp, q))
        return RY_EMU_LOST;
    ahead = (RY_LD_RLX(&q->epsn) - psn) & RY_EMU_PSN_MASK;
    if (ahead > RY_DEPTH_MAX)
        return RY_EMU_LOST; /* a gap, or a packet of another life */
    again = ahead != 0;
    if (op->bytes != 0 && !ry_emu_mr_remote(p, qp->remote_rail, op->rkey, op->raddr, op->bytes))
        return refuse(p, q, RY_SYN_REMOTE_ACCESS);
    if (ry_wqe_atomic(op->opcode) && (op->raddr & (op->bytes - 1)) != 0)
        return refuse(p, q, RY_SYN_REMOTE_INVALID_REQ);
    /* A duplicate is answered; only a read is done again (its first answer may have been lost). */
    if (!again || op->opcode == RY_OP_READ) {
        if (p->seg->land_off != 0 && (op->opcode == RY_OP_READ || ry_wqe_atomic(op->opcode)))
            ry_emu_land_qp(p, q->qpn);
        for (at = off; at < end; at += RY_EMU_CHUNK) {
            if (at != off && (!accepts(qp, q) || RY_LD_ACQ(&qp->err_req) != 0))
                return RY_EMU_LOST;
            perform(qp, p, op, at, ry_min32(RY_EMU_CHUNK, end - at));
        }
    }
    if (!again) {
        count(qp, q, op, len, last);
        if (last)
            RY_ST_RLX(&q->epsn, (psn + 1) & RY_EMU_PSN_MASK);
    }
    return 0;
}

/* Packets carry the GIDs that both ports had when the queue pair was connected: once one of them
 * has moved they reach nobody. */
static bool same_gids(const struct ry_nic_qp *qp, const struct ry_emu_peer *p)
{
    return RY_LD_ACQ(&qp->nic->seg->port[qp->rail].gid_gen) == qp->gid_gen &&
           RY_LD_ACQ(&p->seg->port[qp->remote_rail].gid_gen) == qp->remote_gid_gen;
}

/* Waiters wait for words; payload is followed by one. To wake them for every piece of it would cost
 * more than the copy, on both sides. Who waits for a word within a large write finds it when it
 * looks by itself, which waits do every few milliseconds. */
static bool tells(const struct ry_emu_op *op)
{
    return op->opcode != RY_OP_READ && op->bytes <= RY_EMU_TELLS;
}

int ry_emu_exec(struct ry_nic_qp *qp, const struct ry_emu_op *op, uint32_t psn, uint32_t off,
                uint32_t len, bool last)
{
    struct ry_emu_peer *p;
    struct ry_emu_seg_qp *q;
    int rc = ry_emu_local_check(qp, op, off, len);

    if (RY_UNLIKELY(rc != 0))
        return rc;
    if (op->opcode == RY_OP_NOP)
        return 0;
    p = ry_emu_reach(qp->nic, qp->rail, qp->peer, qp->remote_rail);
    if (RY_UNLIKELY(p == NULL || !same_gids(qp, p)))
        return RY_EMU_LOST;
    q = &p->qps[qp->remote_qpn & p->qp_mask];
    RY_ADD(&q->inflight, 1u);
    rc = at_responder(qp, p, q, op, psn, off, len, last);
    RY_SUB(&q->inflight, 1u);
    if (rc == 0 && tells(op))
        ry_emu_wake_seg(p->seg);
    return rc;
}
