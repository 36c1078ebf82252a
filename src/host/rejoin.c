/* SPDX-License-Identifier: Apache-2.0 */
/* A replacement under a lost PE's rank. It makes its context as everybody did; the survivors meet
 * it here, in the same collectives in the same order (ctx.c: agree, join_job): settings, hello,
 * descriptors, addresses, two barriers. What the predecessor left in words of the survivors is
 * dropped: its queue pairs are RESET, so that nothing of it can land any more (rules 1 and 16). */
#include <string.h>

#include "host/agent.h"
#include "host/clock.h"
#include "host/ctx.h"
#include "host/error.h"

int ry_joining(const ry_ctx *ctx)
{
    return (int)__atomic_load_n(&ctx->joining, __ATOMIC_ACQUIRE) - 1;
}

/* Nothing of the predecessor can land any more: its responders here are RESET. */
static int await_fenced(struct ry_ctx *ctx, uint32_t pe, uint64_t deadline_ns)
{
    struct ry_wait w;

    ry_wait_begin(&ctx->mesh, &w, UINT32_MAX, deadline_ns - ry_clock_ns());
    while (!ry_agent_peer_closed(&ctx->mesh, pe)) {
        int rc = ry_wait_turn(&ctx->mesh, &w);

        if (rc)
            return rc;
    }
    return RY_OK;
}

/* Records and words that the predecessor wrote, and our account of it. */
static void forget(struct ry_ctx *ctx, uint32_t pe)
{
    pthread_mutex_lock(&ctx->amo.lock);
    if (!RY_MUT(RY_MUT_RECORDS_KEPT)) {
        memset(&ctx->amo.inbox[pe], 0, sizeof(ctx->amo.inbox[pe]));
        memset(&ctx->amo.peer[pe], 0, sizeof(ctx->amo.peer[pe]));
    }
    pthread_mutex_unlock(&ctx->amo.lock);
}

static int let_in(struct ry_ctx *ctx, uint32_t pe, uint64_t deadline_ns)
{
    struct ry_mesh *m = &ctx->mesh;
    struct ry_nic_export ex = {.fd = -1};
    int rc = ry_ctx_agree(ctx, deadline_ns);

    m->hello.barrier_count = ctx->barrier.count;
    m->hello.mallocs = ctx->mallocs;
    if (rc == RY_OK)
        rc = await_fenced(ctx, pe, deadline_ns);
    if (rc == RY_OK)
        rc = m->nic->ops->export_seg(m->nic, &ex);
    if (rc)
        return rc;
    pthread_rwlock_wrlock(&ctx->peers_lock);
    ry_mesh_forget(m, pe);
    ry_ctx_unmap_peer(ctx, &m->peers[pe]);
    forget(ctx, pe);
    for (uint32_t i = 0; i < m->hello.rails; i++) {
        ry_agent_renew_keys(m, i); /* its keys must be good */
        m->hello.rail[i].up = m->rails_up >> i & 1;
        m->hello.rail[i].downs = m->rail_downs[i];
    }
    pthread_rwlock_unlock(&ctx->peers_lock);
    rc = ry_mesh_rehello(m, pe, deadline_ns);
    if (rc == RY_OK)
        rc = ry_ctx_map_peers(ctx, &ex, pe, deadline_ns);
    if (rc)
        return rc;
    rc = ry_mesh_reconnect(m, pe, &ctx->peers_lock, deadline_ns);
    if (rc == RY_OK)
        rc = ctx->boot->ops->barrier(ctx->boot, deadline_ns);
    return rc;
}

int ry_rejoin(ry_ctx *ctx)
{
    int pe = ry_joining(ctx), rc;

    if (pe < 0)
        return ry_fail(RY_ERR_AGAIN, "no replacement waits to join");
    rc = let_in(ctx, (uint32_t)pe, ry_clock_ns() + ctx->start_timeout_ns);
    if (rc)
        return rc;
    __atomic_store_n(&ctx->joining, 0, __ATOMIC_RELEASE);
    ry_ctx_event(ctx, &ctx->mesh, RY_EVENT_PEER_JOINED, (uint32_t)pe, 0, 0, 0, NULL);
    return RY_OK;
}
