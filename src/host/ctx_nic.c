/* SPDX-License-Identifier: Apache-2.0 */
/* Which backend a context uses, and its settings. */
#include <string.h>

#include "host/clock.h"
#include "host/config.h"
#include "host/ctx.h"
#include "host/error.h"
#include "nic/emu/emu.h"

static uint64_t now(void *arg)
{
    (void)arg;
    return ry_clock_ns();
}

static int open_emu(struct ry_ctx *ctx, struct ry_nic **out)
{
    const struct ry_config *c = ctx->config;
    uint64_t rate[RY_RAILS_MAX];
    struct ry_emu_cfg cfg = {
        .pe = ctx->boot->pe,
        .n_pes = ctx->boot->n_pes,
        .rails = (uint32_t)ry_config_at(&c->rails, ctx->boot->node, 2),
        .ports_per_nic = c->ports_per_nic,
        .rate_bps = rate,
        .nic_cap_bps = c->nic_cap_bps,
        .latency_ns = c->latency_ns,
        .retry_count = c->retry_count,
        .retry_ns = c->retry_ns,
        .seed = c->seed,
        .threads = ctx->threads,
        .now_ns = now,
    };

    for (uint32_t i = 0; i < RY_RAILS_MAX; i++)
        rate[i] = ry_config_at(&c->link_rate_bps, i, 0);
    return ry_emu_open(&cfg, out);
}

int ry_ctx_open_nic(struct ry_ctx *ctx, struct ry_nic **out)
{
    switch (ctx->config->nic) {
    case RY_NIC_AUTO:
    case RY_NIC_EMU:
        strcpy(ctx->mesh.hello.nic, "emu");
        return open_emu(ctx, out);
    default:
        return ry_fail(RY_ERR_UNSUPPORTED,
                       "this build has no such nic backend: take RAILYARD_NIC=emu");
    }
}
