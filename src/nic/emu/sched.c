/* SPDX-License-Identifier: Apache-2.0 */
/* One queue pair's timed work: messages are cut into segments; a segment reserves its time on
 * the links, is executed when it arrives and answered a latency later; what is lost is sent
 * again from there (go back N) when its timer is out. Engine and queue pair locks are held. */
#include "nic/emu/emu_int.h"

enum {
    AHEAD_NS = 500000, /* how far links are reserved in advance, and how much lateness is made up */
    TOP_UP_NS = 125000, /* what is left of that when the next reservations are made */
    STALL_LOOK_NS = 1000000,
    SEGMENT_SLOW = 16 << 10,
    SEGMENT_FAST = 64 << 10,
    FAST_BPS = 2000000000,
};

static struct ry_emu_flight *at(struct ry_nic_qp *qp, uint32_t n)
{
    return &qp->flight[n % RY_EMU_FLIGHT];
}

/* When packets of this queue pair are held without an error: until when at least. 0: they are
 * not. */
static uint64_t stalled(struct ry_nic_qp *qp)
{
    struct ry_emu *e = qp->nic;
    struct ry_emu_peer *p = &e->peers[qp->peer];
    const struct ry_emu_fault_slot *s = &e->rail[qp->rail].fault[RY_FAULT_STALL];

    if (ry_emu_fault_on(e, qp->rail, qp->peer, RY_FAULT_STALL) != NULL)
        return s->until_ns;
    if (RY_LD_SEQ(&p->attached) == 0 || RY_LD_ACQ(&p->seg->port[qp->remote_rail].stalled) == 0)
        return 0;
    RY_ST_RLX(&e->far_stall, true);
    return e->cfg.virtual_time ? RY_EMU_NEVER : ry_emu_now(e) + STALL_LOOK_NS;
}

/* Everything from flight n on is as if it had never been sent; it goes again when the timer is
 * out. */
static void rewind_to(struct ry_nic_qp *qp, uint32_t n, uint64_t from_ns)
{
    struct ry_emu_flight *f = at(qp, n);

    qp->send_idx = f->idx;
    qp->send_off = f->off;
    qp->next_psn = f->psn;
    qp->ftail = n;
    if ((int32_t)(qp->fexec - n) > 0)
        qp->fexec = n;
    qp->lost = true;
    qp->halted = false;
    qp->retry_ns = from_ns + qp->nic->cfg.retry_ns;
}

/* The fault that makes up an error completion. Whether the request was executed it does not
 * tell. */
static bool fake_error(struct ry_nic_qp *qp, struct ry_emu_flight *f, const struct ry_emu_op *op)
{
    struct ry_emu *e = qp->nic;
    const struct ry_nic_fault *g = ry_emu_fault_on(e, qp->rail, qp->peer, RY_FAULT_CQE_ERROR);

    if (g == NULL)
        return false;
    if ((ry_emu_fault_random(e, qp->rail, RY_FAULT_CQE_ERROR) & 1) != 0)
        ry_emu_exec(qp, op, f->psn, f->off, f->len, true);
    f->err = g->syndrome;
    f->vendor = g->vendor;
    qp->fexec++;
    qp->ftail = qp->fexec;
    qp->halted = true;
    if (g->for_ns == 0)
        ry_emu_fault_end(e, qp->rail, RY_FAULT_CQE_ERROR);
    return true;
}

/* The fault that keeps packets in the fabric: the sender takes this one for lost, and it arrives
 * late. */
static bool ghosted(struct ry_nic_qp *qp, const struct ry_emu_flight *f, const struct ry_emu_op *op)
{
    const struct ry_nic_fault *g = ry_emu_fault_on(qp->nic, qp->rail, qp->peer, RY_FAULT_GHOST);

    if (g == NULL || op->opcode == RY_OP_NOP || ry_emu_local_check(qp, op, f->off, f->len) != 0)
        return false;
    if (qp->retries == 0)
        ry_emu_ghost_add(qp, op, f, f->arrive_ns + g->delay_ns);
    return true;
}

/* Arrivals up to now. */
static void execute_due(struct ry_nic_qp *qp, uint64_t now, bool *moved)
{
    while (qp->fexec != qp->ftail && !qp->halted && at(qp, qp->fexec)->arrive_ns <= now) {
        struct ry_emu_flight *f = at(qp, qp->fexec);
        struct ry_emu_op op;
        int rc;

        *moved = true;
        ry_emu_decode(&qp->ring[f->idx & (qp->depth - 1)], qp->qpn, &op);
        qp->nic->exec_ns = f->arrive_ns;
        if (f->last && fake_error(qp, f, &op))
            return;
        if (ghosted(qp, f, &op)) {
            rewind_to(qp, qp->fexec, f->arrive_ns);
            return;
        }
        rc = f->drop ? RY_EMU_LOST : ry_emu_exec(qp, &op, f->psn, f->off, f->len, f->last);
        if (rc == RY_EMU_LOST) {
            rewind_to(qp, qp->fexec, f->arrive_ns);
            return;
        }
        qp->fexec++;
        if (rc > 0) {
            f->err = (uint8_t)rc;
            f->last = 1;
            qp->ftail = qp->fexec;
            qp->halted = true;
        }
    }
}

/* The oldest message has its answer: complete it, or turn it into the error that it met. */
static void answer(struct ry_nic_qp *qp, struct ry_emu_flight *f)
{
    struct ry_emu *e = qp->nic;
    struct ry_emu_op op;
    bool lose = false;

    qp->retries = 0;
    if (f->err != 0) {
        ry_emu_fail(qp, f->idx, f->err, f->vendor);
        return;
    }
    ry_emu_decode(&qp->ring[f->idx & (qp->depth - 1)], qp->qpn, &op);
    if (e->cfg.chaos.lost_cqe_p != 0)
        lose = (ry_emu_random(&e->rng) & 0xffff) < e->cfg.chaos.lost_cqe_p;
    ry_emu_complete(qp, f->idx, op.signalled && !lose);
}

/* Answers up to now. They are cumulative: a later one stands for earlier ones that were lost. */
static void answer_due(struct ry_nic_qp *qp, uint64_t now, bool *moved)
{
    uint32_t good = qp->fhead;

    for (uint32_t n = qp->fhead; n != qp->fexec && at(qp, n)->ack_ns <= now; n++)
        if (!at(qp, n)->ack_drop)
            good = n + 1;
    while (qp->fhead != good && qp->state == RY_EMU_RTS) {
        struct ry_emu_flight *f = at(qp, qp->fhead);

        qp->fhead++;
        *moved = true;
        if (f->last)
            answer(qp, f);
    }
    if (qp->fhead != qp->fexec && at(qp, qp->fhead)->ack_drop &&
        at(qp, qp->fhead)->ack_ns + qp->nic->cfg.retry_ns <= now) {
        rewind_to(qp, qp->fhead, at(qp, qp->fhead)->ack_ns);
        *moved = true;
    }
}

/* Nothing answered in time: once more, or the end of it. 7 tries are for ever, as soft-RoCE has
 * it. */
static void retry_due(struct ry_nic_qp *qp, uint64_t now, bool *moved)
{
    struct ry_emu *e = qp->nic;

    if (!qp->lost || qp->fhead != qp->ftail || now < qp->retry_ns)
        return;
    *moved = true;
    qp->lost = false;
    ry_emu_peer_watch(qp);
    if (qp->retries >= e->cfg.retry_count && e->cfg.retry_count != 7) {
        ry_emu_fail(qp, qp->done, RY_SYN_RETRY_EXC, 0x81);
        return;
    }
    qp->retries++;
    RY_BUMP(&qp->retries_total, 1);
    qp->ready_ns = now;
}

/* The next arrival that somebody may wait for: the end of a message, or a loss. What comes
 * before it is executed with it, so that a long message does not wake the engine for every
 * segment. */
static uint64_t arrival_due(struct ry_nic_qp *qp)
{
    bool full = qp->ftail - qp->fhead >= RY_EMU_FLIGHT;

    for (uint32_t n = qp->fexec; n != qp->ftail && !qp->halted; n++)
        if (full || at(qp, n)->last || at(qp, n)->drop)
            return at(qp, n)->arrive_ns;
    return RY_EMU_NEVER;
}

/* Do what is due; returns when something is due next. */
uint64_t ry_emu_advance(struct ry_nic_qp *qp, uint64_t now, bool *moved)
{
    uint64_t hold, next;

    if (ry_emu_halt(qp)) {
        qp->lost = qp->halted = false;
        qp->send_idx = qp->done;
        qp->send_off = 0;
        return RY_EMU_NEVER;
    }
    hold = stalled(qp);
    if (hold != 0)
        return hold;
    execute_due(qp, now, moved);
    answer_due(qp, now, moved);
    retry_due(qp, now, moved);
    if (qp->state != RY_EMU_RTS) {
        *moved = true;
        return now;
    }
    next = arrival_due(qp);
    if (qp->fhead != qp->fexec) {
        struct ry_emu_flight *f = at(qp, qp->fhead);

        next = ry_min64(next, f->ack_drop && f->ack_ns <= now ? f->ack_ns + qp->nic->cfg.retry_ns
                                                              : f->ack_ns);
        for (uint32_t n = qp->fhead; f->ack_drop && n != qp->fexec; n++)
            if (at(qp, n)->ack_ns > now)
                next = ry_min64(next, at(qp, n)->ack_ns);
    }
    if (qp->lost && qp->fhead == qp->ftail)
        next = ry_min64(next, qp->retry_ns);
    return next;
}

static uint32_t segment_bytes(const struct ry_nic_qp *qp)
{
    const struct ry_emu *e = qp->nic;
    uint64_t rate = RY_LD_RLX(&e->seg->port[qp->rail].rate_bps);
    uint64_t cap = RY_LD_RLX(&e->seg->nic[e->rail[qp->rail].nic].cap_bps);

    if (rate == 0 || (cap != 0 && cap < rate))
        rate = cap;
    return rate != 0 && rate < FAST_BPS ? SEGMENT_SLOW : SEGMENT_FAST;
}

/* Faults that a segment meets on its way. */
static void meet_faults(struct ry_nic_qp *qp, struct ry_emu_flight *f)
{
    struct ry_emu *e = qp->nic;
    const struct ry_nic_fault *d = ry_emu_fault_on(e, qp->rail, qp->peer, RY_FAULT_DELAY);

    f->drop = ry_emu_fault_roll(e, qp->rail, qp->peer, RY_FAULT_DROP);
    f->ack_drop = f->last && ry_emu_fault_roll(e, qp->rail, qp->peer, RY_FAULT_ACK_DROP);
    if (d != NULL) {
        f->arrive_ns += d->delay_ns;
        if (d->jitter_ns != 0)
            f->arrive_ns += ry_emu_fault_random(e, qp->rail, RY_FAULT_DELAY) % (d->jitter_ns + 1);
    }
}

static uint64_t chaos(struct ry_emu *e, uint32_t max)
{
    return max != 0 ? ry_emu_random(&e->rng) % ((uint64_t)max + 1) : 0;
}

/* Send the next segment if its time has come. True if one was sent. */
bool ry_emu_admit(struct ry_nic_qp *qp, uint64_t now, uint64_t *next)
{
    struct ry_emu *e = qp->nic;
    uint32_t prod = RY_LD_SEQ(&qp->prod);
    struct ry_emu_flight *f;
    struct ry_emu_op op;
    uint64_t from, fin, rest;
    bool inbound;

    if (qp->state != RY_EMU_RTS || qp->lost || qp->halted || qp->send_idx == prod ||
        qp->ftail - qp->fhead >= RY_EMU_FLIGHT || stalled(qp) != 0)
        return false;
    if (qp->send_idx == qp->seen_prod && qp->send_off == 0)
        qp->ready_ns = now + chaos(e, e->cfg.chaos.exec_delay_ns_max);
    qp->seen_prod = prod;
    if (qp->last_fin_ns > now + AHEAD_NS) {
        *next = ry_min64(*next, qp->last_fin_ns - TOP_UP_NS);
        return false;
    }
    ry_emu_decode(&qp->ring[qp->send_idx & (qp->depth - 1)], qp->qpn, &op);
    rest = ry_emu_op_bytes(&op) - ry_min64(qp->send_off, ry_emu_op_bytes(&op));
    f = at(qp, qp->ftail);
    *f = (struct ry_emu_flight){.idx = qp->send_idx, .psn = qp->next_psn, .off = qp->send_off};
    f->len = (uint32_t)ry_min64(rest, segment_bytes(qp));
    f->last = f->len == rest;
    inbound = op.opcode == RY_OP_READ;
    from = ry_max64(qp->ready_ns, qp->last_fin_ns > AHEAD_NS ? qp->last_fin_ns - AHEAD_NS : 0);
    fin = from;
    if (op.bad == 0 && op.opcode != RY_OP_NOP && RY_LD_SEQ(&e->peers[qp->peer].attached) != 0)
        fin = ry_emu_reserve(qp, inbound, from, f->len);
    qp->last_fin_ns = ry_max64(qp->last_fin_ns, fin);
    f->arrive_ns = qp->last_fin_ns;
    if (op.bad == 0 && op.opcode != RY_OP_NOP)
        f->arrive_ns += e->cfg.latency_ns * (inbound ? 2 : 1);
    if (op.opcode != RY_OP_NOP)
        meet_faults(qp, f);
    f->arrive_ns = qp->last_arrive_ns = ry_max64(f->arrive_ns, qp->last_arrive_ns);
    f->ack_ns = f->arrive_ns + (inbound || op.opcode == RY_OP_NOP ? 0 : e->cfg.latency_ns) +
                chaos(e, e->cfg.chaos.ack_delay_ns_max);
    f->ack_ns = qp->last_ack_ns = ry_max64(f->ack_ns, qp->last_ack_ns);
    *next = ry_min64(*next, f->arrive_ns);
    qp->ftail++;
    qp->send_off += f->len;
    if (f->last) {
        if (op.opcode != RY_OP_NOP)
            qp->next_psn = (qp->next_psn + 1) & RY_EMU_PSN_MASK;
        qp->send_idx++;
        qp->send_off = 0;
    }
    return true;
}
