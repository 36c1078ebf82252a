/* SPDX-License-Identifier: Apache-2.0 */
/* Acknowledged is not visible: with chaos.visible_delay a responder's NIC holds data back. One
 * queue pair's data lands in its order; that of different ones does not. A read or an atomic
 * pushes what its own queue pair holds before it, as PCIe has it. RESET takes no more, but what
 * was taken still lands, and the fence is done only then. Virtual time only, so one thread. */
#include <string.h>

#include "nic/emu/copy.h"
#include "nic/emu/emu_int.h"

static void put(struct ry_emu_seg *seg, struct ry_emu_seg_land *l, const struct ry_emu_peer *p)
{
    char *to = p != NULL ? p->heap + (l->addr - p->heap_base) : (char *)(uintptr_t)l->addr;
    uint32_t i = (uint32_t)(l - ry_emu_seg_lands(seg));

    ry_emu_copy(to, ry_emu_seg_land_data(seg, i), l->len_bytes);
    l->order = 0;
    seg->land_used--;
}

/* The oldest slot that `pick` says; NULL: none. qpn 0: any; rail -1: any. */
static struct ry_emu_seg_land *oldest(struct ry_emu_seg *seg, uint32_t qpn, uint32_t rail,
                                      uint64_t due_ns)
{
    struct ry_emu_seg_land *all = ry_emu_seg_lands(seg), *best = NULL;

    if (seg->land_off == 0 || seg->land_used == 0)
        return NULL;
    for (uint32_t i = 0; i < RY_EMU_LANDS; i++) {
        struct ry_emu_seg_land *l = &all[i];

        if (l->order == 0 || l->due_ns > due_ns || (qpn != 0 && l->qpn != qpn) ||
            (rail != UINT32_MAX && l->rail != rail))
            continue;
        if (best == NULL || l->due_ns < best->due_ns ||
            (l->due_ns == best->due_ns && l->order < best->order))
            best = l;
    }
    return best;
}

/* When data of this queue pair that comes now will be visible: never before what came earlier. */
static uint64_t due_pick(struct ry_nic_qp *qp, struct ry_emu_seg *seg)
{
    struct ry_emu *e = qp->nic;
    const struct ry_emu_chaos *c = &e->cfg.chaos;
    struct ry_emu_seg_land *all = ry_emu_seg_lands(seg);
    uint64_t due = e->exec_ns + ry_emu_random(&e->rng) % ((uint64_t)c->visible_delay_ns_max + 1);

    if ((ry_emu_random(&e->rng) & 0xffff) < c->reorder_p)
        due += c->visible_delay_ns_max;
    for (uint32_t i = 0; i < RY_EMU_LANDS; i++)
        if (all[i].order != 0 && all[i].qpn == qp->remote_qpn)
            due = ry_max64(due, all[i].due_ns);
    return due;
}

/* Hold data back. False: not held (no room, or no delay asked for); all that the queue pair held
 * has then landed, so that a direct copy keeps its order. */
bool ry_emu_land_add(struct ry_nic_qp *qp, struct ry_emu_peer *p, uint64_t raddr, const void *src,
                     uint64_t len)
{
    struct ry_emu_seg *seg = p->seg;
    struct ry_emu_seg_land *all = ry_emu_seg_lands(seg);
    uint64_t need = (len + RY_EMU_LAND_BYTES - 1) / RY_EMU_LAND_BYTES, due, done = 0;

    if (len == 0 || qp->nic->cfg.chaos.visible_delay_ns_max == 0 ||
        need > RY_EMU_LANDS - seg->land_used) {
        ry_emu_land_qp(p, qp->remote_qpn);
        return false;
    }
    due = due_pick(qp, seg);
    for (uint32_t i = 0; i < RY_EMU_LANDS && done < len; i++) {
        struct ry_emu_seg_land *l = &all[i];

        if (l->order != 0)
            continue;
        l->due_ns = due;
        l->order = ++seg->land_order;
        l->addr = raddr + done;
        l->qpn = qp->remote_qpn;
        l->rail = qp->remote_rail;
        l->len_bytes = (uint32_t)ry_min64(len - done, RY_EMU_LAND_BYTES);
        memcpy(ry_emu_seg_land_data(seg, i), (const char *)src + done, l->len_bytes);
        done += l->len_bytes;
        seg->land_used++;
    }
    seg->land_min_ns = ry_min64(seg->land_min_ns, due);
    return true;
}

/* At the peer, from here: everything that this queue pair holds. */
void ry_emu_land_qp(struct ry_emu_peer *p, uint32_t qpn)
{
    struct ry_emu_seg_land *l;

    while ((l = oldest(p->seg, qpn, UINT32_MAX, UINT64_MAX)) != NULL)
        put(p->seg, l, p);
}

bool ry_emu_land_pending(struct ry_emu_seg *seg, uint32_t qpn)
{
    return oldest(seg, qpn, UINT32_MAX, UINT64_MAX) != NULL;
}

uint64_t ry_emu_lands_ns(struct ry_nic *nic)
{
    const struct ry_emu_seg *seg = ry_emu_of(nic)->seg;

    return seg->land_used != 0 ? seg->land_min_ns : RY_EMU_NEVER;
}

uint64_t ry_emu_land_due(struct ry_emu *e, uint64_t now)
{
    struct ry_emu_seg_land *l;

    if (e->seg->land_min_ns > now)
        return e->seg->land_min_ns;
    while ((l = oldest(e->seg, 0, UINT32_MAX, now)) != NULL)
        put(e->seg, l, NULL);
    l = oldest(e->seg, 0, UINT32_MAX, UINT64_MAX);
    e->seg->land_min_ns = l != NULL ? l->due_ns : RY_EMU_NEVER;
    return e->seg->land_min_ns;
}

/* Our own, of one rail and queue pair (0: all): land it now, or lose it. */
void ry_emu_land_flush(struct ry_emu *e, uint32_t rail, uint32_t qpn, bool write)
{
    struct ry_emu_seg_land *l;

    while ((l = oldest(e->seg, qpn, rail, UINT64_MAX)) != NULL) {
        if (write) {
            put(e->seg, l, NULL);
        } else {
            l->order = 0;
            e->seg->land_used--;
        }
    }
}
