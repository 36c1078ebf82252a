/* SPDX-License-Identifier: Apache-2.0 */
/* Replacements under the ranks of lost PEs. They make their context as everybody did; the survivors
 * meet them here, all that are missing at once, in the same collectives in the same order (ctx.c:
 * agree, join_job): settings, hello, descriptors, addresses, two barriers. What a predecessor left
 * in words of the survivors is dropped: its queue pairs are RESET, so that nothing of it can land
 * any more (rules 1 and 16). */
#include <stdlib.h>
#include <string.h>

#include "host/agent.h"
#include "host/clock.h"
#include "host/ctx.h"
#include "host/error.h"

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

/* It may have been one barrier ahead of the survivors: they would take its word for its
 * successor's. */
static void forget_barrier(struct ry_ctx *ctx, uint32_t pe)
{
    uint32_t n = ctx->mesh.n_pes;

    for (uint32_t r = 0; (1u << r) < n; r++)
        if ((ctx->mesh.pe + n - (1u << r)) % n == pe)
            memset(&ctx->barrier.sector[r], 0, sizeof(ctx->barrier.sector[r]));
}

/* Records and words that the predecessor wrote, and our account of it. */
static void forget(struct ry_ctx *ctx, uint32_t pe)
{
    forget_barrier(ctx, pe);
    pthread_mutex_lock(&ctx->amo.lock);
    if (!RY_MUT(RY_MUT_RECORDS_KEPT)) {
        memset(&ctx->amo.inbox[pe], 0, sizeof(ctx->amo.inbox[pe]));
        memset(&ctx->amo.peer[pe], 0, sizeof(ctx->amo.peer[pe]));
    }
    pthread_mutex_unlock(&ctx->amo.lock);
}

static void drop(struct ry_ctx *ctx, const uint64_t *set)
{
    for (uint32_t q = 0; q < ctx->mesh.n_pes; q++) {
        if (!ry_set_within(set, q))
            continue;
        ry_mesh_forget(&ctx->mesh, q);
        ry_ctx_unmap_peer(ctx, &ctx->mesh.peers[q]);
        forget(ctx, q);
    }
}

/* What the predecessors had goes, before their successors are met. */
static void forget_all(struct ry_ctx *ctx, const uint64_t *set)
{
    struct ry_mesh *m = &ctx->mesh;

    pthread_rwlock_wrlock(&ctx->peers_lock);
    drop(ctx, set);
    for (uint32_t i = 0; i < m->hello.rails; i++) {
        ry_agent_renew_keys(m, i); /* their keys must be good */
        m->hello.rail[i].up = m->rails_up >> i & 1;
        m->hello.rail[i].downs = m->rail_downs[i];
    }
    pthread_rwlock_unlock(&ctx->peers_lock);
}

/* They did not come in, since one more is lost: who was met half is as gone as before. Not before
 * its end, which the agent is told, does anybody come in its place. */
static int fall_back(struct ry_ctx *ctx, const uint64_t *set, int rc)
{
    pthread_rwlock_wrlock(&ctx->peers_lock);
    drop(ctx, set);
    pthread_rwlock_unlock(&ctx->peers_lock);
    return rc;
}

/* Nobody is met before all of this PE's ends towards their predecessors are closed. */
static int make_ready(struct ry_ctx *ctx, const uint64_t *set, struct ry_nic_export *ex,
                      uint64_t deadline_ns)
{
    struct ry_mesh *m = &ctx->mesh;
    int rc = ry_mesh_none_lost(m, set);

    if (rc == RY_OK)
        rc = ry_ctx_agree(ctx, deadline_ns);
    m->hello.barrier_count = ctx->barrier.count;
    m->hello.mallocs = ctx->mallocs;
    for (uint32_t q = 0; q < m->n_pes && rc == RY_OK; q++)
        if (ry_set_within(set, q))
            rc = await_fenced(ctx, q, deadline_ns);
    if (rc == RY_OK)
        rc = m->nic->ops->export_seg(m->nic, ex);
    if (rc == RY_OK)
        forget_all(ctx, set);
    return rc;
}

static int let_in(struct ry_ctx *ctx, const uint64_t *set, uint64_t deadline_ns)
{
    struct ry_mesh *m = &ctx->mesh;
    struct ry_nic_export ex = {.fd = -1};
    int rc = make_ready(ctx, set, &ex, deadline_ns);

    if (rc)
        return rc;
    rc = ry_mesh_none_lost(m, set);
    if (rc == RY_OK)
        rc = ry_mesh_rehello(m, set, deadline_ns);
    if (rc == RY_OK)
        ry_ctx_take_counts(ctx);
    if (rc == RY_OK)
        rc = ry_ctx_map_peers(ctx, &ex, set, deadline_ns);
    if (rc == RY_OK)
        rc = ry_mesh_none_lost(m, set);
    if (rc == RY_OK)
        rc = ry_mesh_reconnect(m, set, &ctx->peers_lock, deadline_ns);
    if (rc == RY_OK)
        rc = ry_mesh_none_lost(m, set);
    if (rc == RY_OK)
        rc = ctx->boot->ops->barrier(ctx->boot, deadline_ns);
    return rc ? fall_back(ctx, set, rc) : RY_OK;
}

bool ry_ctx_came(const struct ry_ctx *ctx, uint32_t pe)
{
    const struct ry_peer *p = &ctx->mesh.peers[pe];

    return ry_peer_state(p) == RY_PEER_GONE && ry_ld_acq32(&p->came) > p->hello.incarnation;
}

bool ry_ctx_waits(const struct ry_ctx *ctx, uint32_t pe)
{
    const struct ry_peer *p = &ctx->mesh.peers[pe];

    return ry_ctx_came(ctx, pe) && ry_ld_acq32(&p->came) != ry_ld_acq32(&p->fell);
}

/* Is it missing, and does nobody wait to take its place? */
static bool vacant(const struct ry_ctx *ctx, uint32_t pe)
{
    return ry_peer_state(&ctx->mesh.peers[pe]) == RY_PEER_GONE && !ry_ctx_waits(ctx, pe);
}

int ry_joining(const ry_ctx *ctx)
{
    int first = -1;

    for (uint32_t q = 0; q < ctx->mesh.n_pes; q++) {
        if (q == ctx->mesh.pe)
            continue;
        if (vacant(ctx, q))
            return -1;
        if (first < 0 && ry_ctx_waits(ctx, q))
            first = (int)q;
    }
    return first;
}

int ry_ctx_rejoin(struct ry_ctx *ctx, const uint64_t *set)
{
    int rc = let_in(ctx, set, ry_clock_ns() + ctx->start_timeout_ns);

    if (rc)
        return rc;
    for (uint32_t q = 0; q < ctx->mesh.n_pes; q++)
        if (ry_set_within(set, q))
            ry_ctx_event(ctx, &ctx->mesh, RY_EVENT_PEER_JOINED, q, 0, 0, 0, NULL);
    return RY_OK;
}

int ry_rejoin(ry_ctx *ctx)
{
    uint64_t *set;
    int rc;

    if (ry_joining(ctx) < 0)
        return ry_fail(RY_ERR_AGAIN, "no replacement waits to join");
    set = calloc((ctx->mesh.n_pes + 63) / 64, sizeof(*set));
    if (!set)
        return ry_fail(RY_ERR_NO_MEMORY, "no memory for %u pes", ctx->mesh.n_pes);
    for (uint32_t q = 0; q < ctx->mesh.n_pes; q++)
        if (q != ctx->mesh.pe && ry_ctx_waits(ctx, q))
            ry_set_add(set, q);
    rc = ry_ctx_rejoin(ctx, set);
    free(set);
    return rc;
}
