/* SPDX-License-Identifier: Apache-2.0 */
/* Memory regions: keys with a generation, so that a stale one is refused, never misused. */
#include "nic/emu/emu_int.h"

enum { GEN_MAX = (1 << 21) - 1, WAIT_NS = 1000000000 };

int ry_emu_mr_reg(struct ry_nic *nic, uint32_t rail, void *base, uint64_t len_bytes, bool remote,
                  struct ry_mr *out)
{
    struct ry_emu *e = ry_emu_of(nic);
    uint64_t addr = (uint64_t)(uintptr_t)base;
    int rc = RY_ERR_NO_MEMORY;

    if (rail >= e->cfg.rails || len_bytes == 0 || addr + len_bytes < addr)
        return RY_ERR_INVALID;
    pthread_mutex_lock(&e->list);
    for (uint32_t n = 0; n < RY_EMU_MRS; n++) {
        uint32_t i = (e->mr_next + n) % RY_EMU_MRS;
        struct ry_emu_seg_mr *m = &e->mrs[i];
        uint32_t key;

        if (m->lkey != 0 || e->mr_gen[i] == GEN_MAX)
            continue;
        e->mr_next = (i + 1) % RY_EMU_MRS;
        key = (++e->mr_gen[i] << RY_EMU_MR_BITS) | i;
        m->rail = rail;
        m->base = addr;
        m->len_bytes = len_bytes;
        e->rail[rail].cut = false;
        RY_ST_REL(&m->lkey, key);
        RY_ST_REL(&m->key, remote ? key | RY_EMU_RKEY_BIT : 0u);
        out->lkey = key;
        out->rkey = remote ? key | RY_EMU_RKEY_BIT : 0;
        rc = 0;
        break;
    }
    pthread_mutex_unlock(&e->list);
    return rc;
}

/* Waits until every copy that saw a key which is gone by now has ended: the peers' by their
 * count, our own by passing through each queue pair's lock. */
static int rail_settle(struct ry_emu *e, uint32_t rail)
{
    uint64_t end = e->cfg.virtual_time ? 0 : ry_emu_now(e) + WAIT_NS;
    int rc = 0;

    for (uint32_t i = 0; i <= e->seg->qp_mask; i++) {
        struct ry_nic_qp *qp = e->qps[i];

        if (qp == NULL || qp->rail != rail)
            continue;
        if (qp->kind == RY_QP_INITIATOR) {
            ry_emu_visit(&qp->lock);
            ry_emu_unlock(&qp->lock);
            continue;
        }
        while (!ry_emu_quiet(e, qp->shared, qp->shared->peer_pe)) {
            if (e->cfg.virtual_time || ry_emu_now(e) > end) {
                rc = RY_ERR_TIMEOUT;
                break;
            }
            sched_yield();
        }
    }
    return rc;
}

int ry_emu_mr_dereg(struct ry_nic *nic, uint32_t rail, struct ry_mr mr)
{
    struct ry_emu *e = ry_emu_of(nic);
    struct ry_emu_seg_mr *m = &e->mrs[mr.lkey & (RY_EMU_MRS - 1)];
    int rc = RY_ERR_NOT_FOUND;

    pthread_mutex_lock(&e->list);
    if (mr.lkey != 0 && m->lkey == mr.lkey && m->rail == rail) {
        RY_ST_SEQ(&m->key, 0u);
        RY_ST_SEQ(&m->lkey, 0u);
        ry_emu_land_flush(e, rail, 0, true);
        rc = rail_settle(e, rail);
    }
    pthread_mutex_unlock(&e->list);
    return rc;
}

int ry_emu_rail_cut(struct ry_nic *nic, uint32_t rail)
{
    struct ry_emu *e = ry_emu_of(nic);
    int rc;

    if (rail >= e->cfg.rails)
        return RY_ERR_INVALID;
    pthread_mutex_lock(&e->list);
    for (uint32_t i = 0; i < RY_EMU_MRS; i++) {
        if (e->mrs[i].lkey == 0 || e->mrs[i].rail != rail)
            continue;
        RY_ST_SEQ(&e->mrs[i].key, 0u);
        RY_ST_SEQ(&e->mrs[i].lkey, 0u);
    }
    e->rail[rail].cut = true;
    ry_emu_land_flush(e, rail, 0, false);
    rc = e->qps != NULL ? rail_settle(e, rail) : 0;
    pthread_mutex_unlock(&e->list);
    return rc;
}

static bool inside(uint64_t base, uint64_t len, uint64_t addr, uint64_t bytes)
{
    return addr >= base && addr - base <= len && bytes <= len - (addr - base);
}

bool ry_emu_mr_local(const struct ry_emu *e, uint32_t rail, uint32_t lkey, uint64_t addr,
                     uint64_t len_bytes)
{
    const struct ry_emu_seg_mr *m = &e->mrs[lkey & (RY_EMU_MRS - 1)];

    return lkey != 0 && RY_LD_SEQ(&m->lkey) == lkey && RY_LD_RLX(&m->rail) == rail &&
           inside(RY_LD_RLX(&m->base), RY_LD_RLX(&m->len_bytes), addr, len_bytes);
}

/* Called with our count in the responder's inflight word: a key that was good when looked at
 * stays in its place until that count is down again. The heap we mapped bounds the copy besides. */
bool ry_emu_mr_remote(const struct ry_emu_peer *p, uint32_t rail, uint32_t rkey, uint64_t addr,
                      uint64_t len_bytes)
{
    const struct ry_emu_seg_mr *m = &p->mrs[rkey & (RY_EMU_MRS - 1)];

    return (rkey & RY_EMU_RKEY_BIT) != 0 && RY_LD_SEQ(&m->key) == rkey &&
           RY_LD_RLX(&m->rail) == rail &&
           inside(RY_LD_RLX(&m->base), RY_LD_RLX(&m->len_bytes), addr, len_bytes) &&
           inside(p->heap_base, p->heap_len, addr, len_bytes);
}
