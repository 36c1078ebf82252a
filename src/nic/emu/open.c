/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing an emulated NIC: the segment, the tables, the ops. */
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "nic/emu/emu_int.h"

/* splitmix64: small, seedable, the same on every machine. */
uint64_t ry_emu_random(uint64_t *rng)
{
    uint64_t z = (*rng += 0x9e3779b97f4a7c15ull);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static uint64_t round64(uint64_t v) { return (v + 63) & ~63ull; }

/* Room for every slot of every channel towards every peer, both kinds, several lives at once. */
static uint32_t qp_slots(uint32_t n_pes)
{
    uint32_t want = n_pes * 128, n = 256;

    while (n < want && n < (1u << 16))
        n <<= 1;
    return n;
}

static int seg_map(struct ry_emu *e, uint64_t len)
{
    void *p;

    if (e->cfg.virtual_time) { /* the simulator opens thousands a second: no new pages each time */
        p = aligned_alloc(4096, len);
        if (p == NULL)
            return RY_ERR_NO_MEMORY;
        memset(p, 0, len);
    } else if (e->cfg.threads) {
        p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    } else {
        e->fd = memfd_create("ry-emu", MFD_CLOEXEC);
        if (e->fd < 0)
            return RY_ERR_SYSTEM;
        if (ftruncate(e->fd, (off_t)len) != 0)
            return RY_ERR_NO_MEMORY;
        p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, e->fd, 0);
    }
    if (p == MAP_FAILED)
        return RY_ERR_NO_MEMORY;
    e->seg = p;
    return 0;
}

void ry_emu_seg_drop(struct ry_emu *e, struct ry_emu_seg *seg)
{
    if (!e->cfg.threads || RY_ADD(&seg->users, UINT32_MAX) == 1)
        munmap(seg, seg->len_bytes);
}

static int seg_make(struct ry_emu *e)
{
    uint32_t slots = qp_slots(e->cfg.n_pes);
    uint64_t mr_off = round64(sizeof(struct ry_emu_seg));
    uint64_t qp_off = round64(mr_off + RY_EMU_MRS * sizeof(struct ry_emu_seg_mr));
    uint64_t land_off = round64(qp_off + slots * sizeof(struct ry_emu_seg_qp));
    uint64_t len = land_off;
    bool lands = e->cfg.chaos.visible_delay_ns_max != 0;
    int rc;

    if (lands)
        len += RY_EMU_LAND_AREA;
    len = (len + 4095) & ~4095ull;
    rc = seg_map(e, len);
    if (rc != 0)
        return rc;
    e->seg->version = RY_EMU_SEG_VERSION;
    e->seg->users = 1;
    e->seg->pe = e->cfg.pe;
    e->seg->pid = (uint32_t)getpid();
    e->seg->rails = e->cfg.rails;
    e->seg->qp_mask = slots - 1;
    e->seg->len_bytes = len;
    e->seg->mr_off = mr_off;
    e->seg->qp_off = qp_off;
    e->seg->land_off = lands ? land_off : 0;
    e->seg->land_min_ns = RY_EMU_NEVER;
    e->mrs = ry_emu_seg_mrs(e->seg);
    e->sqps = ry_emu_seg_qps(e->seg);
    RY_ST_REL(&e->seg->magic, (uint32_t)RY_EMU_MAGIC);
    return 0;
}

static void rails_make(struct ry_emu *e, const struct ry_emu_cfg *cfg)
{
    for (uint32_t r = 0; r < cfg->rails; r++) {
        uint32_t place = cfg->place != NULL ? cfg->place[r] : r;

        e->rail[r].nic = place / cfg->ports_per_nic;
        e->rail[r].port = place % cfg->ports_per_nic + 1;
        e->seg->port[r].nic = e->rail[r].nic;
        e->rail[r].rate_bps = cfg->rate_bps != NULL ? cfg->rate_bps[r] : 0;
        e->seg->port[r].up = 1;
        e->seg->nic[e->rail[r].nic].cap_bps = cfg->nic_cap_bps;
    }
    e->cfg.rate_bps = NULL; /* the caller's */
    e->cfg.place = NULL;
    for (uint32_t r = 0; r < cfg->rails; r++)
        ry_emu_links_refresh(e, r);
}

static const struct ry_nic_ops ops;

static int cfg_check(const struct ry_emu_cfg *cfg)
{
    bool chaos = cfg->chaos.visible_delay_ns_max != 0 || cfg->chaos.exec_delay_ns_max != 0 ||
                 cfg->chaos.ack_delay_ns_max != 0 || cfg->chaos.reorder_p != 0 ||
                 cfg->chaos.lost_cqe_p != 0;

    if (cfg->rails == 0 || cfg->rails > RY_RAILS_MAX || cfg->ports_per_nic == 0 ||
        cfg->now_ns == NULL || cfg->n_pes == 0 || cfg->pe >= cfg->n_pes || cfg->retry_count > 7)
        return RY_ERR_INVALID;
    for (uint32_t r = 0; cfg->place != NULL && r < cfg->rails; r++) {
        if (cfg->place[r] >= RY_RAILS_MAX)
            return RY_ERR_INVALID;
    }
    return chaos && !cfg->virtual_time ? RY_ERR_INVALID : 0;
}

static void emu_close(struct ry_nic *nic)
{
    struct ry_emu *e = ry_emu_of(nic);

    ry_emu_engine_stop(e);
    if (e->qps != NULL) {
        for (uint32_t i = 0; i <= e->seg->qp_mask; i++)
            if (e->qps[i] != NULL)
                ry_emu_qp_destroy(e->qps[i]);
    }
    if (e->seg != NULL) {
        RY_ST_SEQ(&e->seg->closed, 1u);
        for (uint32_t r = 0; r < e->cfg.rails; r++)
            ry_emu_rail_cut(nic, r);
    }
    if (e->peers != NULL)
        for (uint32_t p = 0; p < e->cfg.n_pes; p++)
            ry_emu_peer_detach(nic, p);
    if (e->ghosts != NULL)
        free(e->ghosts[0].data); /* one block for all of them */
    if (e->event_fd >= 0)
        close(e->event_fd);
    if (e->seg != NULL && e->cfg.virtual_time)
        free(e->seg);
    else if (e->seg != NULL)
        ry_emu_seg_drop(e, e->seg);
    if (e->fd >= 0)
        close(e->fd);
    free(e->ghosts);
    free(e->qps);
    free(e->active);
    free(e->peers);
    pthread_mutex_destroy(&e->list);
    pthread_mutex_destroy(&e->thread_lock);
    free(e);
}

int ry_emu_open(const struct ry_emu_cfg *cfg, struct ry_nic **out)
{
    struct ry_emu *e;
    int rc = cfg_check(cfg);

    if (rc != 0)
        return rc;
    e = calloc(1, sizeof(*e));
    if (e == NULL)
        return RY_ERR_NO_MEMORY;
    e->base.ops = &ops;
    e->cfg = *cfg;
    e->fd = e->event_fd = -1;
    e->id = ry_emu_now(e) ^ ((uint64_t)(uintptr_t)e << 16) ^ 1;
    e->next_due = RY_EMU_NEVER;
    e->rng = cfg->seed ^ ((uint64_t)cfg->pe << 40);
    e->rng_names = ~e->rng;
    pthread_mutex_init(&e->list, NULL);
    pthread_mutex_init(&e->thread_lock, NULL);
    e->qpn_next = cfg->qpn_first;
    if (e->qpn_next == 0)
        e->qpn_next = (uint32_t)ry_emu_random(&e->rng_names) & 0x7fffff;
    rc = seg_make(e);
    if (rc != 0)
        goto undo;
    rc = RY_ERR_NO_MEMORY;
    e->qps = calloc(e->seg->qp_mask + 1, sizeof(struct ry_nic_qp *));
    e->active = calloc(e->seg->qp_mask + 1, sizeof(struct ry_nic_qp *));
    e->peers = calloc(cfg->n_pes, sizeof(*e->peers));
    if (e->qps == NULL || e->active == NULL || e->peers == NULL)
        goto undo;
    for (uint32_t p = 0; p < cfg->n_pes; p++)
        e->peers[p].pidfd = -1;
    rails_make(e, cfg);
    if (!cfg->virtual_time) {
        rc = RY_ERR_SYSTEM;
        e->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (e->event_fd < 0)
            goto undo;
    }
    *out = &e->base;
    return 0;
undo: /* everything that was made so far */
    emu_close(&e->base);
    return rc;
}

static const struct ry_nic_ops ops = {
    .name = "emu",
    .rail_count = ry_emu_rail_count,
    .rail_info = ry_emu_rail_info,
    .rail_state = ry_emu_rail_state,
    .counters = ry_emu_counters,
    .peer_sent = ry_emu_peer_sent,
    .mr_reg = ry_emu_mr_reg,
    .mr_dereg = ry_emu_mr_dereg,
    .qp_create = ry_emu_qp_create,
    .qp_connect = ry_emu_qp_connect,
    .qp_error = ry_emu_qp_error,
    .qp_flushed = ry_emu_qp_flushed,
    .qp_fence_begin = ry_emu_qp_fence_begin,
    .qp_fence_poll = ry_emu_qp_fence_poll,
    .qp_destroy = ry_emu_qp_destroy,
    .rail_cut = ry_emu_rail_cut,
    .kick = ry_emu_kick,
    .drive = ry_emu_drive,
    .idle = ry_emu_idle,
    .wake = ry_emu_wake,
    .wake_peer = ry_emu_wake_peer,
    .poll_event = ry_emu_poll_event,
    .event_fd = ry_emu_event_fd,
    .export_seg = ry_emu_export_seg,
    .peer_attach = ry_emu_peer_attach,
    .peer_detach = ry_emu_peer_detach,
    .fault = ry_emu_fault,
    .close = emu_close,
};
