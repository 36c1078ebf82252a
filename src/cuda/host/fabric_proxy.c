/* SPDX-License-Identifier: Apache-2.0 */
/* Handler cpu_host_memory: a host thread reads the initiators' slots in pinned memory and writes
 * the doorbells, which stand there too. Rings are in GPU memory, where it cannot look: it makes the
 * doorbell word from the slot's sequence, and copies a ring's base once for each move. */
#include "cuda/host/fabric_inside.h"

#include <sched.h>
#include <string.h>

#include "core/queue.h"
#include "cuda/host/driver.h"
#include "host/error.h"

/* What the proxy remembers of a slot. */
struct memory {
    uint64_t last, base;
    bool known; /* base is that of last's move */
};

static bool base_copy(struct ry_fabric_pe *p, uint32_t i, uint32_t s, uint64_t *base)
{
    cudaError_t rc;

    cudaSetDevice(p->device);
    rc = cudaMemcpyAsync(&p->pinned->base, &p->ch_device[i].ring[s].base, 8, cudaMemcpyDeviceToHost,
                         p->proxy_stream);
    if (rc == cudaSuccess)
        rc = cudaStreamSynchronize(p->proxy_stream);
    *base = p->pinned->base;
    return rc == cudaSuccess;
}

/* One look at one slot. A CLOSED one is echoed, and not rung again until a mover opens it. */
static bool look(struct ry_fabric_pe *p, uint32_t i, uint32_t s, struct memory *m)
{
    struct ry_fabric_bell *bell = &p->pinned->bell[i][s];
    const struct ry_slot_host *h = &p->pinned->slot[i][s];
    uint64_t v = ry_observe_pslot(&bell->pslot), word;
    uint32_t idx;

    if (v == m->last)
        return false;
    if (ry_packed_closed(v)) {
        m->last = v;
        m->known = false;
        ry_publish_echo(&bell->pecho, v);
        return true;
    }
    if (!m->known || ry_packed_move(v) != ry_packed_move(m->last))
        m->known = base_copy(p, i, s, &m->base);
    if (!m->known)
        return false; /* the next look tries again */
    m->last = v;
    idx = (uint32_t)(ry_packed_seq(v) - m->base);
    word = (uint64_t)ry_be32((idx - 1) << 8) | (uint64_t)ry_be32(h->qpn << 8) << 32;
    ry_publish_dbr(h->dbr, idx);
    ry_ring_doorbell(h->uar, word);
    return true;
}

static void *proxy_run(void *arg)
{
    struct ry_gpu_fabric *f = arg;
    static const struct memory none;
    struct memory m[RY_GNIC_PES_MAX][RY_FABRIC_CHANNELS_MAX][RY_SLOTS];
    uint32_t n = f->attr.pes * f->attr.channels, idle = 0;

    for (uint32_t pe = 0; pe < f->attr.pes; pe++)
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t s = 0; s < RY_SLOTS; s++)
                m[pe][i][s] = none;
    while (!__atomic_load_n(&f->proxy_stop, __ATOMIC_ACQUIRE)) {
        bool any = false;

        for (uint32_t pe = 0; pe < f->attr.pes; pe++)
            for (uint32_t i = 0; i < n; i++)
                for (uint32_t s = 0; s < RY_SLOTS && i / f->attr.channels != pe; s++)
                    any |= look(&f->pe[pe], i, s, &m[pe][i][s]);
        idle = any ? 0 : idle + 1;
        if (idle > 1000)
            sched_yield();
    }
    return NULL;
}

int ry_fabric_proxy_start(struct ry_gpu_fabric *f)
{
    if (pthread_create(&f->proxy, NULL, proxy_run, f))
        return ry_fail(RY_ERR_SYSTEM, "cannot start the proxy's thread");
    f->proxy_running = true;
    return RY_OK;
}

void ry_fabric_proxy_stop(struct ry_gpu_fabric *f)
{
    if (!f->proxy_running)
        return;
    __atomic_store_n(&f->proxy_stop, 1, __ATOMIC_RELEASE);
    pthread_join(f->proxy, NULL);
    f->proxy_running = false;
}
