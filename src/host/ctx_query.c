/* SPDX-License-Identifier: Apache-2.0 */
/* What a caller may ask of its context. */
#include "host/ctx.h"
#include "host/error.h"

uint32_t ry_pe(const ry_ctx *ctx) { return ctx->mesh.pe; }
uint32_t ry_n_pes(const ry_ctx *ctx) { return ctx->mesh.n_pes; }
uint32_t ry_node(const ry_ctx *ctx) { return ctx->boot->node; }
uint32_t ry_n_nodes(const ry_ctx *ctx) { return ctx->boot->n_nodes; }
uint64_t ry_job(const ry_ctx *ctx) { return ctx->boot->job; }
uint32_t ry_incarnation(const ry_ctx *ctx) { return ctx->boot->incarnation; }
uint32_t ry_rail_count(const ry_ctx *ctx) { return ctx->mesh.hello.rails; }

uint32_t ry_node_of(const ry_ctx *ctx, uint32_t pe)
{
    return pe < ctx->mesh.n_pes ? ctx->mesh.peers[pe].hello.node : 0;
}

int ry_rail_get(const ry_ctx *ctx, uint32_t rail, ry_rail *out)
{
    struct ry_nic *nic = ctx->mesh.nic;
    struct ry_rail_counters n;
    int rc;

    if (rail >= ctx->mesh.hello.rails)
        return ry_fail(RY_ERR_INVALID, "rail %u: this pe has rails 0 to %u", rail,
                       ctx->mesh.hello.rails - 1);
    rc = nic->ops->counters(nic, rail, &n);
    if (rc)
        return rc;
    out->name = ctx->mesh.hello.rail[rail].name;
    out->nic = ctx->mesh.hello.rail[rail].nic;
    out->rate_bps = ctx->mesh.hello.rail[rail].rate_bps;
    out->up = nic->ops->rail_state(nic, rail) == RY_PORT_UP;
    out->tx_bytes = n.tx_bytes;
    out->rx_bytes = n.rx_bytes;
    return RY_OK;
}

int ry_sent_to(const ry_ctx *ctx, uint32_t peer, uint64_t *bytes, double *share)
{
    const struct ry_mesh *m = &ctx->mesh;

    if (peer >= m->n_pes || peer == m->pe)
        return ry_fail(RY_ERR_INVALID, "pe %u is no peer of pe %u of %u", peer, m->pe, m->n_pes);
    if (share)
        ry_mesh_shares(m, peer, share);
    return m->nic->ops->peer_sent(m->nic, peer, bytes);
}

int ry_allgather(ry_ctx *ctx, const void *in, size_t len, void *out)
{
    return ctx->boot->ops->allgather(ctx->boot, in, len, out,
                                     ry_now(&ctx->mesh.env) + ctx->start_timeout_ns);
}

void ry_progress(ry_ctx *ctx)
{
    ry_mesh_progress(&ctx->mesh, UINT32_MAX);
    ry_amo_work(ctx);
}

int ry_drain(ry_ctx *ctx, uint32_t rail)
{
    int rc = ry_agent_drain(&ctx->mesh, rail, true);

    ctx->mesh.wake_agent(ctx);
    return rc;
}

int ry_undrain(ry_ctx *ctx, uint32_t rail)
{
    int rc = ry_agent_drain(&ctx->mesh, rail, false);

    ctx->mesh.wake_agent(ctx);
    return rc;
}
