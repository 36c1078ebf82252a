/* SPDX-License-Identifier: Apache-2.0 */
/* Events of this PE's own side, oldest first. */
#include <unistd.h>

#include "nic/emu/emu_int.h"

/* With the list's lock: told together with what there is to see, so that whoever takes the last of
 * it can make the descriptor silent. A descriptor that stays readable keeps the agent awake for
 * good. */
void ry_emu_event_signal(struct ry_emu *e)
{
    uint64_t one = 1;

    if (e->event_fd >= 0 && write(e->event_fd, &one, sizeof(one)) < 0)
        return; /* full: it is readable already */
}

void ry_emu_event_add(struct ry_emu *e, enum ry_nic_event_type type, uint32_t rail, uint32_t qpn)
{
    pthread_mutex_lock(&e->list);
    if (e->ev_tail - e->ev_head < RY_EMU_EVENTS) {
        struct ry_nic_event *ev = &e->events[e->ev_tail % RY_EMU_EVENTS];

        ev->type = type;
        ev->rail = rail;
        ev->qpn = qpn;
        ev->at_ns = ry_emu_now(e);
        RY_ST_REL(&e->ev_tail, e->ev_tail + 1);
    }
    ry_emu_event_signal(e);
    pthread_mutex_unlock(&e->list);
    if (!e->cfg.virtual_time)
        ry_emu_wake_seg(e->seg);
}

/* A peer's NIC may have put responders in ERR: it cannot write here, so it counts, and we look. */
static bool fatal_take(struct ry_emu *e, struct ry_nic_event *ev)
{
    uint32_t count = RY_LD_SEQ(&e->seg->fatal_count);

    if (count == e->fatal_seen)
        return false;
    for (uint32_t i = 0; i <= e->seg->qp_mask; i++) {
        struct ry_nic_qp *qp = e->qps[i];

        if (qp == NULL || qp->shared == NULL || RY_XCHG(&qp->shared->fatal, 0u) == 0)
            continue;
        ev->type = RY_EV_QP_FATAL;
        ev->rail = qp->rail;
        ev->qpn = qp->qpn;
        ev->at_ns = ry_emu_now(e);
        return true;
    }
    e->fatal_seen = count;
    return false;
}

static void silence(struct ry_emu *e)
{
    uint64_t drained;

    if (e->event_fd >= 0 && read(e->event_fd, &drained, sizeof(drained)) < 0)
        return; /* nothing was told: a peer's count, or the simulator */
}

int ry_emu_poll_event(struct ry_nic *nic, struct ry_nic_event *ev)
{
    struct ry_emu *e = ry_emu_of(nic);
    int rc = 0;

    if (RY_LD_ACQ(&e->ev_tail) == RY_LD_RLX(&e->ev_head) &&
        RY_LD_SEQ(&e->seg->fatal_count) == e->fatal_seen)
        return 0;
    pthread_mutex_lock(&e->list);
    if (e->ev_head != e->ev_tail) {
        *ev = e->events[e->ev_head % RY_EMU_EVENTS];
        RY_ST_REL(&e->ev_head, e->ev_head + 1);
        rc = 1;
    } else if (fatal_take(e, ev)) {
        rc = 1;
    }
    if (e->ev_head == e->ev_tail && RY_LD_SEQ(&e->seg->fatal_count) == e->fatal_seen)
        silence(e); /* the last: the next call does not come here */
    pthread_mutex_unlock(&e->list);
    return rc;
}

int ry_emu_event_fd(struct ry_nic *nic) { return ry_emu_of(nic)->event_fd; }
