/* SPDX-License-Identifier: Apache-2.0 */
#include "host/barrier.h"

#include <railyard/rma.h>

#include "host/ctx.h"
#include "host/error.h"

/* One round: tell `to`, wait for `from`. */
static int round_trip(struct ry_ctx *ctx, uint32_t round, uint32_t to, uint32_t from)
{
    ry_signal *sig = (ry_signal *)&ctx->barrier.sector[round];
    int rc = ry_put_signal_nbi(ctx, NULL, NULL, 0, sig, ctx->barrier.count, to);

    return rc ? rc : ry_signal_wait(ctx, sig, ctx->barrier.count, from, 0);
}

int ry_barrier(ry_ctx *ctx)
{
    uint32_t n = ctx->mesh.n_pes, me = ctx->mesh.pe;
    int rc = ry_quiet(ctx);

    ctx->barrier.count++;
    for (uint32_t r = 0; rc == RY_OK && (1u << r) < n; r++)
        rc = round_trip(ctx, r, (me + (1u << r)) % n, (me + n - (1u << r)) % n);
    return rc;
}
