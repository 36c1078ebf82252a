/* SPDX-License-Identifier: Apache-2.0 */
/* Which backend a context uses, and its settings. */
#include <stdio.h>
#include <string.h>

#include "host/clock.h"
#include "host/config.h"
#include "host/ctx.h"
#include "host/error.h"
#include "nic/emu/emu.h"
#include "nic/select.h"
#ifdef RY_HAVE_IBVERBS
#include "nic/verbs/verbs.h"
#endif

enum { EMU_RETRY_NS = 4000000 };

static uint64_t now(void *arg)
{
    (void)arg;
    return ry_clock_ns();
}

static void emu_name(const struct ry_config *c, uint32_t port, char *device, size_t cap,
                     uint32_t *number)
{
    snprintf(device, cap, "emu%u", port / c->ports_per_nic);
    *number = port % c->ports_per_nic + 1;
}

/* Every name of the selection must be there: the port that a wrong one meant would idle. A list
 * that was made for another library says nothing of emulated ports. */
static int check_names(const struct ry_config *c, uint32_t ports, bool *ours)
{
    bool wish = ry_config_source(c, "HCA") != RY_FROM_ALIAS;
    const char *at = c->hca, *from = at;
    struct ry_select_part part;
    uint32_t number;
    char device[16];
    int rc;

    *ours = wish;
    for (; (rc = ry_select_next(&at, &part)) == 1; from = at) {
        bool met = false;

        for (uint32_t i = 0; i < ports && !met; i++) {
            emu_name(c, i, device, sizeof(device), &number);
            met = ry_select_meets(&part, device, number);
        }
        *ours |= met;
        if (met || (!wish && strncmp(part.device, "emu", 3) != 0))
            continue;
        emu_name(c, ports - 1, device, sizeof(device), &number);
        return ry_fail(RY_ERR_CONFIG,
                       "'%.*s' in RAILYARD_HCA is no emulated port, which are emu0:1 to %s:%u: "
                       "name one of them, or raise RAILYARD_RAILS",
                       (int)strcspn(from, ","), from, device, number);
    }
    if (rc < 0 && wish)
        return ry_fail(RY_ERR_CONFIG,
                       "'%.100s' in RAILYARD_HCA is no list of [^]DEVICE[:PORT] with commas "
                       "between",
                       c->hca);
    *ours &= rc == 0;
    return RY_OK;
}

int ry_ctx_select_emu(const struct ry_config *c, uint32_t ports, uint32_t *place, uint32_t *n)
{
    uint32_t order[RY_RAILS_MAX], number;
    char device[16];
    bool ours;
    int rc = check_names(c, ports, &ours);
    uint32_t taken = 0;

    for (uint32_t i = 0; rc == RY_OK && i < ports; i++) {
        uint32_t at = 0, k = taken;

        emu_name(c, i, device, sizeof(device), &number);
        if (ours && ry_select_takes(c->hca, device, number, &at) != 1)
            continue;
        for (; k > 0 && order[k - 1] > at; k--) { /* those of one part stay in their order */
            order[k] = order[k - 1];
            place[k] = place[k - 1];
        }
        order[k] = at;
        place[k] = i;
        taken++;
    }
    if (rc == RY_OK && taken == 0)
        return ry_fail(RY_ERR_CONFIG, "'%.100s' in RAILYARD_HCA leaves no emulated port: keep one",
                       c->hca);
    if (rc == RY_OK)
        *n = taken;
    return rc;
}

static int open_emu(struct ry_ctx *ctx, struct ry_nic **out)
{
    const struct ry_config *c = ctx->config;
    uint32_t ports = (uint32_t)ry_config_at(&c->rails, ctx->boot->node, 2), n = 0;
    uint32_t place[RY_RAILS_MAX];
    uint64_t rate[RY_RAILS_MAX];
    int rc = ry_ctx_select_emu(c, ports, place, &n);
    struct ry_emu_cfg cfg = {
        .pe = ctx->boot->pe,
        .n_pes = ctx->boot->n_pes,
        .rails = n,
        .place = place,
        .ports_per_nic = c->ports_per_nic,
        .rate_bps = rate,
        .nic_cap_bps = c->nic_cap_bps,
        .latency_ns = c->latency_ns,
        .retry_count = c->retry_count,
        .retry_ns = c->retry_ns ? c->retry_ns : EMU_RETRY_NS,
        .seed = c->seed,
        .threads = ctx->threads,
        .now_ns = now,
    };

    if (rc)
        return rc;
    for (uint32_t i = 0; i < n; i++)
        rate[i] = ry_config_at(&c->link_rate_bps, place[i], 0);
    return ry_emu_open(&cfg, out);
}

#ifdef RY_HAVE_IBVERBS
static void report(void *arg, int status, const char *line)
{
    const struct ry_ctx *ctx = arg;

    ry_fail(status, "%s", line);
    ry_log(&ctx->log, RY_DEBUG_INFO, "%s", line);
}

static int open_verbs(struct ry_ctx *ctx, struct ry_nic **out)
{
    const struct ry_config *c = ctx->config;
    char reason[RY_VERBS_REASON_BYTES] = "no memory";
    const struct ry_verbs_cfg cfg = {
        .pe = ctx->boot->pe,
        .hca = c->hca,
        .rails_max = (uint32_t)ry_config_at(&c->rails, ctx->boot->node, 0),
        .mtu_bytes = c->mtu_bytes,
        .gid_index = c->gid_index,
        .roce_version = c->roce_version,
        .sl = (uint8_t)c->sl,
        .traffic_class = (uint8_t)c->traffic_class,
        .pkey = (uint16_t)c->pkey,
        .retry_ns = c->retry_ns,
        .retry_count = (uint8_t)c->retry_count,
        .rnr_retry = (uint8_t)c->rnr_retry,
        .queue_depth = c->qp_depth,
        .posters = (enum ry_verbs_posters)c->post_threads,
        .crowded = ctx->mesh.crowded,
        .report = report,
        .report_arg = ctx,
    };
    int rc = ry_verbs_open(&cfg, out, reason, sizeof(reason));

    return rc ? ry_fail(rc, "%s", reason) : RY_OK;
}

static bool have_verbs(void)
{
    char reason[RY_VERBS_REASON_BYTES];
    uint32_t ports;

    return ry_verbs_list(NULL, 0, &ports, reason, sizeof(reason)) == RY_OK;
}
#else
static int open_verbs(struct ry_ctx *ctx, struct ry_nic **out)
{
    (void)ctx;
    (void)out;
    return ry_fail(RY_ERR_UNSUPPORTED,
                   "this build has no libibverbs, so no nic backend verbs: build "
                   "with libibverbs-dev, or take RAILYARD_NIC=emu");
}

static bool have_verbs(void) { return false; }
#endif

void ry_ctx_pick_nic(struct ry_config *c)
{
    if (c->nic == RY_NIC_AUTO)
        c->nic = have_verbs() ? RY_NIC_VERBS : RY_NIC_EMU;
}

int ry_ctx_open_nic(struct ry_ctx *ctx, struct ry_nic **out)
{
    switch (ctx->config->nic) {
    case RY_NIC_EMU:
        strcpy(ctx->mesh.hello.nic, "emu");
        return open_emu(ctx, out);
    case RY_NIC_VERBS:
        strcpy(ctx->mesh.hello.nic, "verbs");
        return open_verbs(ctx, out);
    default:
        return ry_fail(RY_ERR_UNSUPPORTED,
                       "this build has no such nic backend: take RAILYARD_NIC=emu");
    }
}
