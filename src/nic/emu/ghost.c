/* SPDX-License-Identifier: Apache-2.0 */
/* Ghosts: writes that the sender takes for lost and that arrive late, once more or for the first
 * time. One lands if its queue pair was not RESET meanwhile and its responder still waits for
 * its packet number: on a healthy pair the repeat came first, and the late packet is a duplicate
 * that is dropped. It carries the bytes that it was sent with. */
#include <stdlib.h>
#include <string.h>

#include "nic/emu/copy.h"
#include "nic/emu/emu_int.h"

/* Room for them is made when the fault is set, not when a packet goes. */
int ry_emu_ghosts_make(struct ry_emu *e)
{
    struct ry_emu_ghost *g;
    uint8_t *data;

    if (RY_LD_ACQ(&e->ghosts) != NULL)
        return 0;
    g = calloc(RY_EMU_GHOSTS, sizeof(*g));
    data = malloc((size_t)RY_EMU_GHOSTS * RY_EMU_GHOST_BYTES);
    if (g == NULL || data == NULL) {
        free(g);
        free(data);
        return RY_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < RY_EMU_GHOSTS; i++)
        g[i].data = data + (size_t)i * RY_EMU_GHOST_BYTES;
    ry_emu_engine_lock(e);
    RY_ST_REL(&e->ghosts, g);
    ry_emu_engine_unlock(e);
    return 0;
}

/* Engine lock. A segment larger than a ghost's room leaves several. */
void ry_emu_ghost_add(struct ry_nic_qp *qp, const struct ry_emu_op *op,
                      const struct ry_emu_flight *f, uint64_t due_ns)
{
    struct ry_emu *e = qp->nic;
    const char *src = op->is_inline ? (const char *)op->data : (const char *)(uintptr_t)op->laddr;
    uint32_t done = 0, off = f->off, len = f->len;

    if (op->opcode != RY_OP_WRITE && op->opcode != RY_OP_WRITE_IMM)
        return;
    for (uint32_t i = 0; i < RY_EMU_GHOSTS && done < len; i++) {
        struct ry_emu_ghost *g = &e->ghosts[i];

        if (g->len != 0)
            continue;
        g->due_ns = due_ns;
        g->raddr = op->raddr + off + done;
        g->peer = qp->peer;
        g->rail = qp->rail;
        g->remote_rail = qp->remote_rail;
        g->remote_qpn = qp->remote_qpn;
        g->qpn = qp->qpn;
        g->rkey = op->rkey;
        g->psn = f->psn;
        g->len = ry_min32(len - done, RY_EMU_GHOST_BYTES);
        memcpy(g->data, src + off + done, g->len);
        done += g->len;
        g->last = f->last && done == len;
        e->ghost_count++;
    }
}

static void land(struct ry_emu *e, struct ry_emu_ghost *g)
{
    struct ry_emu_peer *p = ry_emu_reach(e, g->rail, g->peer, g->remote_rail);
    struct ry_emu_seg_qp *q;

    if (p == NULL)
        return;
    q = &p->qps[g->remote_qpn & p->qp_mask];
    RY_ADD(&q->inflight, 1u);
    if (RY_LD_SEQ(&q->state) != RY_EMU_RESET && RY_LD_RLX(&q->qpn) == g->remote_qpn &&
        RY_LD_RLX(&q->peer_qpn) == g->qpn && RY_LD_RLX(&q->epsn) == g->psn &&
        ry_emu_mr_remote(p, g->remote_rail, g->rkey, g->raddr, g->len))
        ry_emu_copy(p->heap + (g->raddr - p->heap_base), g->data, g->len);
    if (g->last && RY_LD_RLX(&q->epsn) == g->psn)
        RY_ST_RLX(&q->epsn, (g->psn + 1) & RY_EMU_PSN_MASK);
    RY_SUB(&q->inflight, 1u);
    ry_emu_wake_seg(p->seg);
}

uint64_t ry_emu_ghosts_due(struct ry_emu *e, uint64_t now)
{
    uint64_t next = RY_EMU_NEVER;

    if (RY_LIKELY(e->ghost_count == 0))
        return next;
    for (uint32_t i = 0; i < RY_EMU_GHOSTS; i++) {
        struct ry_emu_ghost *g = &e->ghosts[i];

        if (g->len == 0)
            continue;
        if (g->due_ns > now) {
            next = ry_min64(next, g->due_ns);
            continue;
        }
        land(e, g);
        g->len = 0;
        e->ghost_count--;
    }
    return next;
}

/* Those towards a peer whose memory goes away. Engine lock. */
void ry_emu_ghosts_drop(struct ry_emu *e, uint32_t peer)
{
    for (uint32_t i = 0; e->ghosts != NULL && i < RY_EMU_GHOSTS; i++) {
        if (e->ghosts[i].len == 0 || e->ghosts[i].peer != peer)
            continue;
        e->ghosts[i].len = 0;
        e->ghost_count--;
    }
}
