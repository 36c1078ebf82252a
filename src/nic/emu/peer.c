/* SPDX-License-Identifier: Apache-2.0 */
/* The peers' segments and heaps as they are mapped here. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "nic/emu/emu_int.h"

int ry_emu_export_seg(struct ry_nic *nic, struct ry_nic_export *out)
{
    struct ry_emu *e = ry_emu_of(nic);

    out->fd = e->fd;
    out->len_bytes = e->seg->len_bytes;
    out->base = e->seg;
    return 0;
}

static bool seg_good(const struct ry_emu *e, const struct ry_nic_peer *peer)
{
    const struct ry_emu_seg *s = peer->seg;
    uint64_t qps;

    if (s == NULL || peer->seg_len_bytes < sizeof(*s) || RY_LD_ACQ(&s->magic) != RY_EMU_MAGIC ||
        s->version != RY_EMU_SEG_VERSION || s->len_bytes > peer->seg_len_bytes || s->rails == 0 ||
        s->rails > RY_RAILS_MAX)
        return false;
    qps = (uint64_t)s->qp_mask + 1;
    if ((qps & (qps - 1)) != 0 || qps > (1u << 16) || (s->land_off != 0 && !e->cfg.virtual_time))
        return false;
    return s->mr_off <= s->len_bytes && s->qp_off <= s->len_bytes &&
           s->mr_off + RY_EMU_MRS * sizeof(struct ry_emu_seg_mr) <= s->len_bytes &&
           s->qp_off + qps * sizeof(struct ry_emu_seg_qp) <= s->len_bytes &&
           (s->land_off == 0 || s->land_off + RY_EMU_LAND_AREA <= s->len_bytes);
}

int ry_emu_peer_attach(struct ry_nic *nic, const struct ry_nic_peer *peer)
{
    struct ry_emu *e = ry_emu_of(nic);
    struct ry_emu_peer *p;
    struct ry_emu_seg *s = peer->seg;

    if (peer->pe >= e->cfg.n_pes || !seg_good(e, peer) || s->pe != peer->pe || peer->heap == NULL)
        return RY_ERR_INVALID;
    p = &e->peers[peer->pe];
    if (RY_LD_ACQ(&p->attached) != 0)
        return RY_ERR_EXISTS;
    p->seg_len = peer->seg_len_bytes;
    p->heap = peer->heap;
    p->heap_len = peer->heap_len_bytes;
    p->heap_base = peer->heap_base;
    p->qp_mask = s->qp_mask;
    p->mrs = ry_emu_seg_mrs(s);
    p->qps = ry_emu_seg_qps(s);
    RY_ST_RLX(&p->lost, 0u);
    p->checked_ns = 0;
    p->pid = (pid_t)s->pid;
    p->pidfd = -1;
    if (!e->cfg.virtual_time && p->pid != getpid())
        p->pidfd = (int)syscall(SYS_pidfd_open, p->pid, 0);
    p->seg = s;
    if (e->cfg.threads && !e->cfg.virtual_time)
        RY_ADD(&s->users, 1u); /* one mapping for all: its owner may leave before us */
    RY_ST_SEQ(&p->attached, 1u);
    return 0;
}

void ry_emu_peer_detach(struct ry_nic *nic, uint32_t pe)
{
    struct ry_emu *e = ry_emu_of(nic);
    struct ry_emu_peer *p;

    if (pe >= e->cfg.n_pes || e->peers[pe].attached == 0)
        return;
    p = &e->peers[pe];
    ry_emu_engine_lock(e);
    RY_ST_SEQ(&p->attached, 0u);
    ry_emu_ghosts_drop(e, pe);
    /* Everybody who still holds the old mapping passes through a queue pair's lock. */
    pthread_mutex_lock(&e->list);
    for (uint32_t i = 0; i <= e->seg->qp_mask; i++) {
        struct ry_nic_qp *qp = e->qps[i];

        if (qp == NULL || qp->peer != pe)
            continue;
        ry_emu_visit(&qp->lock);
        ry_emu_unlock(&qp->lock);
    }
    pthread_mutex_unlock(&e->list);
    ry_emu_engine_unlock(e);
    if (e->cfg.threads && !e->cfg.virtual_time)
        ry_emu_seg_drop(e, p->seg);
    p->seg = NULL;
    if (p->pidfd >= 0)
        close(p->pidfd);
    p->pidfd = -1;
}

/* Is the process behind the segment still there? A zombie is not: its NIC died with it. */
bool ry_emu_peer_alive(struct ry_emu *e, struct ry_emu_peer *p)
{
    struct pollfd fd = {.fd = p->pidfd, .events = POLLIN};

    if (RY_LD_RLX(&p->lost) != 0)
        return false;
    if (e->cfg.virtual_time || p->pid == getpid())
        return true;
    if (p->pidfd >= 0 ? poll(&fd, 1, 0) > 0 : kill(p->pid, 0) != 0 && errno == ESRCH)
        RY_ST_RLX(&p->lost, 1u);
    return RY_LD_RLX(&p->lost) == 0;
}
