/* SPDX-License-Identifier: Apache-2.0 */
/* The proxy of handler cpu_host_memory: initiators store a producer slot in pinned host memory, and
 * this thread rings for them. The ring is in device memory, which the host does not read: the mover
 * shows the ring's base beside the slot, and of the doorbell word the NIC uses index and number. */
#include "cuda/host/fabric_inside.h"

#include <sched.h>

#include "core/queue.h"
#include "host/error.h"

/* One look at one slot; `last` is what was seen of this life. */
static bool look(struct ry_fabric_slot *slot, struct ry_fabric_bell bells[2], uint64_t *life,
                 uint64_t *last)
{
    uint64_t epoch = __atomic_load_n(&slot->rings, __ATOMIC_ACQUIRE), v;
    struct ry_fabric_bell *b = &bells[epoch & 1];

    if (!epoch)
        return false;
    if (epoch != *life) {
        *life = epoch;
        *last = 0;
    }
    v = ry_observe_pslot(&b->pslot);
    if (v == *last)
        return false;
    *last = v;
    if (ry_packed_closed(v)) {
        ry_publish_echo(&b->pecho, v);
    } else {
        uint32_t idx = (uint32_t)(ry_packed_seq(v) - ry_ld_rlx64(&b->pbase));
        struct ry_wqe head;

        ry_wqe_head(&head, RY_OP_WRITE, idx - 1, slot->qpn, 3);
        ry_publish_dbr((uint32_t *)&b->dbr, idx);
        ry_ring_doorbell(&b->uar, ry_wqe_doorbell(&head));
    }
    return true;
}

static void *proxy_run(void *arg)
{
    static const uint32_t idle_turns = 2000;
    struct ry_gpu_fabric *f = arg;
    uint32_t n = f->attr.pes * f->attr.channels, idle = 0;

    while (!__atomic_load_n(&f->proxy_stop, __ATOMIC_ACQUIRE)) {
        bool any = false;

        for (uint32_t pe = 0; pe < f->attr.pes; pe++)
            for (uint32_t i = 0; i < n; i++)
                for (uint32_t s = 0; s < RY_SLOTS; s++) {
                    struct ry_fabric_pe *p = &f->pe[pe];

                    any |= look(&p->slot[i][s], p->pinned->bell[i][s], &p->proxy_life[i][s],
                                &p->proxy_last[i][s]);
                }
        idle = any ? 0 : idle + 1;
        if (idle > idle_turns)
            sched_yield();
    }
    return NULL;
}

int ry_fabric_proxy_start(struct ry_gpu_fabric *f)
{
    if (f->attr.handler == RY_HANDLER_GPU)
        return RY_OK;
    if (pthread_create(&f->proxy, NULL, proxy_run, f))
        return ry_fail(RY_ERR_SYSTEM, "cannot start the proxy's thread");
    f->proxy_running = true;
    return RY_OK;
}

void ry_fabric_proxy_stop(struct ry_gpu_fabric *f)
{
    if (!f->proxy_running)
        return;
    __atomic_store_n(&f->proxy_stop, true, __ATOMIC_RELEASE);
    pthread_join(f->proxy, NULL);
    f->proxy_running = false;
}
