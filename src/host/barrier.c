/* SPDX-License-Identifier: Apache-2.0 */
#include "host/barrier.h"

#include <railyard/rma.h>

#include "host/ctx.h"
#include "host/error.h"

/* One round: tell `to`, wait for `from`, also where the other of the two is lost. */
static int round_trip(struct ry_ctx *ctx, uint32_t round, uint32_t to, uint32_t from)
{
    ry_signal *sig = (ry_signal *)&ctx->barrier.sector[round];
    int told = ry_put_signal_nbi(ctx, NULL, NULL, 0, sig, ctx->barrier.count, to);
    int heard = RY_OK;

    if (told == RY_OK || told == RY_ERR_PEER_LOST)
        heard = ry_signal_wait(ctx, sig, ctx->barrier.count, from, 0);
    return heard ? heard : told;
}

/* Whoever finds a lost PE goes through all rounds like the others: nobody waits for a PE that has
 * given up the barrier. */
int ry_barrier(ry_ctx *ctx)
{
    uint32_t n = ctx->mesh.n_pes, me = ctx->mesh.pe;
    int rc = ry_quiet(ctx), lost = RY_OK;

    ctx->barrier.count++;
    for (uint32_t r = 0; rc == RY_OK && (1u << r) < n; r++) {
        rc = round_trip(ctx, r, (me + (1u << r)) % n, (me + n - (1u << r)) % n);
        if (rc == RY_ERR_PEER_LOST) {
            lost = rc;
            rc = RY_OK;
        }
    }
    return rc ? rc : lost;
}
