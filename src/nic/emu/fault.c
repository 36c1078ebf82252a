/* SPDX-License-Identifier: Apache-2.0 */
/* Faults: what goes wrong on purpose. One of each kind at a time on a rail; a new one of the
 * same kind takes its place. They hold until their time is out or CLEAR. */
#include "nic/emu/emu_int.h"

const struct ry_nic_fault *ry_emu_fault_on(struct ry_emu *e, uint32_t rail, uint32_t peer,
                                           enum ry_nic_fault_kind kind)
{
    struct ry_emu_fault_slot *s = &e->rail[rail].fault[kind];

    return s->on && (s->f.peer < 0 || (uint32_t)s->f.peer == peer) ? &s->f : NULL;
}

uint64_t ry_emu_fault_random(struct ry_emu *e, uint32_t rail, enum ry_nic_fault_kind kind)
{
    return ry_emu_random(&e->rail[rail].fault[kind].rng);
}

bool ry_emu_fault_roll(struct ry_emu *e, uint32_t rail, uint32_t peer, enum ry_nic_fault_kind kind)
{
    const struct ry_nic_fault *f = ry_emu_fault_on(e, rail, peer, kind);

    /* 53 random bits as a number in [0, 1) */
    return f != NULL && (double)(ry_emu_fault_random(e, rail, kind) >> 11) * 0x1p-53 < f->p;
}

static void port_set(struct ry_emu *e, uint32_t rail, bool up)
{
    struct ry_emu_seg_port *port = &e->seg->port[rail];

    if ((port->up != 0) == up || (up && e->seg->nic[e->rail[rail].nic].dead != 0))
        return;
    RY_ST_SEQ(&port->up, (uint32_t)up);
    ry_emu_links_refresh(e, rail);
    ry_emu_event_add(e, up ? RY_EV_PORT_UP : RY_EV_PORT_DOWN, rail, 0);
}

/* Responders of a rail, all or towards one peer, to ERR. tell: as events of this side. */
static void responders_err(struct ry_emu *e, uint32_t rail, int32_t peer, bool tell)
{
    bool any = false;

    pthread_mutex_lock(&e->list);
    for (uint32_t i = 0; i <= e->seg->qp_mask; i++) {
        struct ry_nic_qp *qp = e->qps[i];
        uint32_t found = RY_EMU_RTR;

        if (qp == NULL || qp->shared == NULL || qp->rail != rail ||
            (peer >= 0 && qp->peer != (uint32_t)peer) ||
            !RY_CAS(&qp->shared->state, &found, (uint32_t)RY_EMU_ERR) || !tell)
            continue;
        RY_ST_SEQ(&qp->shared->fatal, 1u);
        RY_ADD(&e->seg->fatal_count, 1u);
        any = true;
    }
    if (any)
        ry_emu_event_signal(e);
    pthread_mutex_unlock(&e->list);
}

/* A dead NIC takes its initiators with it: no completion, no flush, nothing. */
static void initiators_die(struct ry_emu *e, uint32_t rail)
{
    pthread_mutex_lock(&e->list);
    for (uint32_t i = 0; i <= e->seg->qp_mask; i++) {
        struct ry_nic_qp *qp = e->qps[i];

        if (qp == NULL || qp->kind != RY_QP_INITIATOR || qp->rail != rail)
            continue;
        ry_emu_visit(&qp->lock);
        if (qp->state != RY_EMU_RESET) {
            qp->state = RY_EMU_DEAD;
            qp->fhead = qp->fexec = qp->ftail;
            qp->lost = qp->halted = false;
            qp->send_idx = qp->done;
            qp->send_off = 0;
        }
        ry_emu_unlock(&qp->lock);
    }
    pthread_mutex_unlock(&e->list);
}

static void nic_down(struct ry_emu *e, uint32_t rail)
{
    struct ry_emu_seg_nic *nic = &e->seg->nic[e->rail[rail].nic];

    if (nic->dead != 0)
        return;
    RY_ST_SEQ(&nic->dead, 1u);
    for (uint32_t r = 0; r < e->cfg.rails; r++) {
        if (e->rail[r].nic != e->rail[rail].nic)
            continue;
        RY_ST_SEQ(&e->seg->port[r].up, 0u);
        ry_emu_links_refresh(e, r);
        responders_err(e, r, -1, false);
        initiators_die(e, r);
        ry_emu_land_flush(e, r, 0, false); /* what it held is lost */
    }
    ry_emu_event_add(e, RY_EV_NIC_FATAL, rail, 0);
}

static void nic_up(struct ry_emu *e, uint32_t rail)
{
    struct ry_emu_seg_nic *nic = &e->seg->nic[e->rail[rail].nic];

    if (nic->dead == 0)
        return;
    RY_ST_SEQ(&nic->dead, 0u);
    for (uint32_t r = 0; r < e->cfg.rails; r++)
        if (e->rail[r].nic == e->rail[rail].nic && !e->rail[r].fault[RY_FAULT_PORT_DOWN].on)
            port_set(e, r, true);
}

static void begin(struct ry_emu *e, const struct ry_nic_fault *f)
{
    struct ry_emu_seg_port *port = &e->seg->port[f->rail];

    switch (f->kind) {
    case RY_FAULT_PORT_DOWN:
        port_set(e, f->rail, false);
        break;
    case RY_FAULT_STALL:
        RY_ST_SEQ(&port->stalled, f->peer < 0 ? 1u : 0u);
        break;
    case RY_FAULT_NIC_DOWN:
        nic_down(e, f->rail);
        break;
    default:
        break;
    }
    ry_emu_links_refresh(e, f->rail);
}

static void end(struct ry_emu *e, uint32_t rail, enum ry_nic_fault_kind kind)
{
    struct ry_emu_fault_slot *s = &e->rail[rail].fault[kind];

    if (!s->on)
        return;
    s->on = false;
    e->faults--;
    if (kind == RY_FAULT_PORT_DOWN)
        port_set(e, rail, true);
    else if (kind == RY_FAULT_NIC_DOWN)
        nic_up(e, rail);
    else if (kind == RY_FAULT_STALL)
        RY_ST_SEQ(&e->seg->port[rail].stalled, 0u);
    ry_emu_links_refresh(e, rail);
}

void ry_emu_fault_end(struct ry_emu *e, uint32_t rail, enum ry_nic_fault_kind kind)
{
    end(e, rail, kind);
}

uint64_t ry_emu_faults_expire(struct ry_emu *e, uint64_t now)
{
    uint64_t next = RY_EMU_NEVER;

    for (uint32_t r = 0; e->faults != 0 && r < e->cfg.rails; r++) {
        for (uint32_t k = 0; k < RY_EMU_FAULT_KINDS; k++) {
            struct ry_emu_fault_slot *s = &e->rail[r].fault[k];

            if (!s->on)
                continue;
            if (s->until_ns <= now)
                end(e, r, (enum ry_nic_fault_kind)k);
            else
                next = ry_min64(next, s->until_ns);
        }
    }
    return next;
}

static int fault_check(const struct ry_emu *e, const struct ry_nic_fault *f)
{
    if (f->rail >= e->cfg.rails || (unsigned)f->kind >= RY_EMU_FAULT_KINDS ||
        f->peer >= (int32_t)e->cfg.n_pes)
        return RY_ERR_INVALID;
    if ((f->kind == RY_FAULT_DROP || f->kind == RY_FAULT_ACK_DROP) && !(f->p >= 0.0 && f->p <= 1.0))
        return RY_ERR_INVALID;
    return f->kind == RY_FAULT_SLOW && !(f->factor >= 1.0) ? RY_ERR_INVALID : 0;
}

/* Kinds that happen once and leave nothing behind. True: done. */
static bool momentary(struct ry_emu *e, const struct ry_nic_fault *f)
{
    switch (f->kind) {
    case RY_FAULT_PORT_UP:
        if (e->rail[f->rail].fault[RY_FAULT_PORT_DOWN].on)
            end(e, f->rail, RY_FAULT_PORT_DOWN);
        else
            port_set(e, f->rail, true);
        return true;
    case RY_FAULT_QP_ERROR:
        responders_err(e, f->rail, f->peer, true);
        return true;
    case RY_FAULT_GID_CHANGE:
        RY_ADD(&e->seg->port[f->rail].gid_gen, 1u);
        ry_emu_event_add(e, RY_EV_GID_CHANGE, f->rail, 0);
        return true;
    case RY_FAULT_CLEAR:
        for (uint32_t k = 0; k < RY_EMU_FAULT_KINDS; k++)
            end(e, f->rail, (enum ry_nic_fault_kind)k);
        return true;
    default:
        return false;
    }
}

int ry_emu_fault(struct ry_nic *nic, const struct ry_nic_fault *f)
{
    struct ry_emu *e = ry_emu_of(nic);
    uint64_t now = ry_emu_now(e), next = now;
    int rc = fault_check(e, f);

    if (rc == 0 && f->kind == RY_FAULT_GHOST)
        rc = ry_emu_ghosts_make(e);
    if (rc != 0)
        return rc;
    ry_emu_engine_lock(e);
    if (!momentary(e, f)) {
        struct ry_emu_fault_slot *s = &e->rail[f->rail].fault[f->kind];

        e->faults += !s->on;
        s->on = true;
        s->f = *f;
        s->until_ns = f->for_ns != 0                ? now + f->for_ns
                      : f->kind == RY_FAULT_GHOST ? now + f->delay_ns
                                                  : RY_EMU_NEVER;
        s->rng = f->seed ^ e->cfg.seed ^ ((uint64_t)f->rail << 32) ^ (uint64_t)f->kind;
        if (s->until_ns != RY_EMU_NEVER)
            next = s->until_ns;
        begin(e, f);
    }
    RY_ST_SEQ(&e->next_due, 0ull);
    RY_ST_SEQ(&e->engine_work, 1u);
    ry_emu_engine_unlock(e);
    ry_emu_engine_poke(e, next);
    return 0;
}
