/* SPDX-License-Identifier: Apache-2.0 */
#include "host/barrier.h"

#include <railyard/rma.h>

#include "host/ctx.h"
#include "host/error.h"

/* A barrier without one of its PEs never ends, whomever this round waits for: the others may have
 * gone to look after the loss. */
static int all_here(struct ry_mesh *m)
{
    for (uint32_t q = 0; q < m->n_pes; q++)
        if (q != m->pe && ry_peer_state(&m->peers[q]) == RY_PEER_GONE)
            return ry_mesh_peer_status(m, q);
    return RY_OK;
}

static int wait_for(struct ry_ctx *ctx, const ry_signal *sig, uint32_t from, uint64_t timeout_ns)
{
    struct ry_wait w;

    ry_wait_begin(&ctx->mesh, &w, from, timeout_ns);
    while (ry_signal_read(ctx, sig) < ctx->barrier.count) {
        int rc = ry_wait_turn(&ctx->mesh, &w);

        if (rc == RY_OK)
            rc = all_here(&ctx->mesh);
        if (rc && ry_signal_read(ctx, sig) < ctx->barrier.count)
            return rc;
    }
    return RY_OK;
}

/* One round: tell `to`, wait for `from`, also where the other of the two is lost. */
static int round_trip(struct ry_ctx *ctx, uint32_t round, uint32_t to, uint32_t from,
                      uint64_t timeout_ns)
{
    ry_signal *sig = (ry_signal *)&ctx->barrier.sector[round];
    int told = ry_put_signal_nbi(ctx, NULL, NULL, 0, sig, ctx->barrier.count, to);
    int heard = RY_OK;

    if (told == RY_OK || told == RY_ERR_PEER_LOST)
        heard = wait_for(ctx, sig, from, timeout_ns);
    return heard ? heard : told;
}

/* Whoever finds a lost PE goes through all rounds like the others: nobody waits for a PE that has
 * given up the barrier. */
int ry_barrier_within(struct ry_ctx *ctx, uint64_t timeout_ns)
{
    uint32_t n = ctx->mesh.n_pes, me = ctx->mesh.pe;
    int rc = ry_quiet(ctx), lost = RY_OK;

    ctx->barrier.count++;
    for (uint32_t r = 0; rc == RY_OK && (1u << r) < n; r++) {
        rc = round_trip(ctx, r, (me + (1u << r)) % n, (me + n - (1u << r)) % n, timeout_ns);
        if (rc == RY_ERR_PEER_LOST) {
            lost = rc;
            rc = RY_OK;
        }
    }
    return rc ? rc : lost;
}

int ry_barrier(ry_ctx *ctx) { return ry_barrier_within(ctx, 0); }
