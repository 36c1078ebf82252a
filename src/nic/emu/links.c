/* SPDX-License-Identifier: Apache-2.0 */
/* The link model: a port and a NIC are clocks, "reserved until". Whoever sends moves the clocks
 * of both ends forward by the time his bytes take there. */
#include "nic/emu/emu_int.h"


#define NOMINAL_BPS 12500000000ull /* what `slow` divides where no rate was given: 100 Gb/s */

/* Reserve bytes on one clock, not before from_ns; returns when the last of them has passed. */
static uint64_t clock_reserve(uint64_t *clock, uint64_t rate_bps, uint64_t from_ns, uint64_t bytes)
{
    uint64_t old, end;

    if (rate_bps == 0)
        return from_ns;
    old = RY_LD_RLX(clock);
    do {
        end = ry_max64(old, from_ns) + (bytes * 1000000000u + rate_bps - 1) / rate_bps;
    } while (!RY_CAS(clock, &old, end));
    return end;
}

/* inbound: the bytes come from the peer (a read's answer). */
uint64_t ry_emu_reserve(struct ry_nic_qp *qp, bool inbound, uint64_t from_ns, uint64_t bytes)
{
    struct ry_emu *e = qp->nic;
    struct ry_emu_seg *far = e->peers[qp->peer].seg, *near = e->seg;
    struct ry_emu_seg_port *np = &near->port[qp->rail], *fp = &far->port[qp->remote_rail];
    struct ry_emu_seg_nic *nn = &near->nic[e->rail[qp->rail].nic];
    struct ry_emu_seg_nic *fn = &far->nic[fp->nic % RY_RAILS_MAX];
    uint64_t a, b, c, d;

    a = clock_reserve(inbound ? &np->rx_clock_ns : &np->tx_clock_ns, RY_LD_RLX(&np->rate_bps),
                      from_ns, bytes);
    b = clock_reserve(inbound ? &nn->rx_clock_ns : &nn->tx_clock_ns, RY_LD_RLX(&nn->cap_bps),
                      from_ns, bytes);
    c = clock_reserve(inbound ? &fp->tx_clock_ns : &fp->rx_clock_ns, RY_LD_RLX(&fp->rate_bps),
                      from_ns, bytes);
    d = clock_reserve(inbound ? &fn->tx_clock_ns : &fn->rx_clock_ns, RY_LD_RLX(&fn->cap_bps),
                      from_ns, bytes);
    return ry_max64(ry_max64(a, b), ry_max64(c, d));
}

/* Bring what peers see of a rail, and the mark that closes the fast path, up to date. */
void ry_emu_links_refresh(struct ry_emu *e, uint32_t rail)
{
    struct ry_emu_rail *r = &e->rail[rail];
    struct ry_emu_seg_port *port = &e->seg->port[rail];
    struct ry_emu_seg_nic *nic = &e->seg->nic[r->nic];
    const struct ry_emu_fault_slot *slow = &r->fault[RY_FAULT_SLOW];
    uint64_t rate = r->rate_bps;
    uint32_t far, near;

    if (slow->on && slow->f.factor > 1.0) {
        rate = (uint64_t)((double)(rate != 0 ? rate : NOMINAL_BPS) / slow->f.factor);
        rate = rate != 0 ? rate : 1;
    }
    RY_ST_REL(&port->rate_bps, rate);
    far = rate != 0 || nic->cap_bps != 0 || e->cfg.latency_ns != 0 || port->up == 0 ||
          port->stalled != 0 || nic->dead != 0;
    near = far;
    for (uint32_t k = 0; k < RY_EMU_FAULT_KINDS; k++)
        near |= r->fault[k].on;
    RY_ST_SEQ(&r->slow, near);
    RY_ST_SEQ(&port->slow, far);
}
