/* SPDX-License-Identifier: Apache-2.0 */
/* Which rails a PE's channels live on, and the emulated ports as files for the tools. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "host/ctx.h"
#include "host/error.h"
#include "host/rail_place.h"
#include "nic/emu/emu.h"

enum { SHOW_NS = 200 * 1000 * 1000 }; /* between two looks at the counters */

/* The rail "device:port", or the first of "device"; -1 if this PE has none. */
static int rail_of(struct ry_ctx *ctx, const char *name, size_t len)
{
    struct ry_nic *nic = ctx->mesh.nic;
    uint32_t rails = nic->ops->rail_count(nic);

    for (uint32_t i = 0; i < rails; i++) {
        struct ry_rail_info info;

        if (nic->ops->rail_info(nic, i, &info) == RY_OK && strncmp(info.name, name, len) == 0 &&
            (info.name[len] == '\0' || (info.name[len] == ':' && !memchr(name, ':', len))))
            return (int)i;
    }
    return -1;
}

static int take_map(struct ry_ctx *ctx, const char *map, uint32_t gpu, uint64_t *homes)
{
    const char *at = map;

    while (*at) {
        size_t len = strcspn(at, ",");
        char *end;
        unsigned long number = strtoul(at, &end, 10);

        if (end == at || *end != ':' || end + 1 >= at + len)
            return ry_fail(RY_ERR_CONFIG,
                           "'%.*s' in RAILYARD_GPU_NIC_MAP is not gpu:device or gpu:device:port",
                           (int)len, at);
        /* a map for the machine's NICs, maybe another library's, says nothing of emulated ones */
        if (number == gpu && (ctx->config->nic != RY_NIC_EMU || strncmp(end + 1, "emu", 3) == 0)) {
            int rail = rail_of(ctx, end + 1, (size_t)(at + len - end - 1));

            if (rail < 0)
                return ry_fail(RY_ERR_CONFIG,
                               "'%.*s' in RAILYARD_GPU_NIC_MAP is no rail of pe %u: see railyard "
                               "topo",
                               (int)len, at, ctx->boot->pe);
            *homes |= 1ull << rail;
        }
        at += len + (at[len] == ',');
    }
    return RY_OK;
}

/* Where no map says otherwise, a GPU's channels live on its nearest ports; and what stands in for a
 * rail goes by card and distance. A machine whose topology cannot be read, or that has no such GPU,
 * keeps all. */
static void take_nearest(struct ry_ctx *ctx, uint32_t gpu, uint64_t *homes)
{
    const ry_topo_options options = {.hca = ctx->config->hca[0] ? ctx->config->hca : NULL};
    struct ry_nic *nic = ctx->mesh.nic;
    ry_topo *topo;
    uint32_t ports[RY_TOPO_RAILS], count, rails = nic->ops->rail_count(nic);
    char names[RY_RAILS_MAX][RY_NIC_NAME_BYTES] = {""};
    struct ry_rail_info info;

    if (ry_topo_load(NULL, &options, &topo, NULL, 0) != RY_OK)
        return;
    count = homes ? ry_topo_rails_for_gpu(topo, gpu, ports, RY_TOPO_RAILS) : 0;
    for (uint32_t i = 0; i < count; i++) {
        const ry_topo_port *port = ry_topo_port_at(topo, ports[i]);
        char name[64];
        int len = snprintf(name, sizeof(name), "%s:%u", port->device, port->port);
        int rail = rail_of(ctx, name, (size_t)len);

        if (rail >= 0)
            *homes |= 1ull << rail;
    }
    for (uint32_t i = 0; i < rails; i++)
        if (nic->ops->rail_info(nic, i, &info) == RY_OK)
            memcpy(names[i], info.name, sizeof(names[i]));
    ry_rail_places(topo, gpu, names, rails, ctx->mesh.place);
    ry_topo_free(topo);
}

int ry_ctx_choose_homes(struct ry_ctx *ctx)
{
    const struct ry_config *c = ctx->config;
    uint32_t gpu = c->gpu >= 0 ? (uint32_t)c->gpu : ctx->boot->local_pe;
    uint64_t homes = 0;
    int rc = RY_OK;

    if (c->gpu_nic_map[0])
        rc = take_map(ctx, c->gpu_nic_map, gpu, &homes);
    if (c->nic != RY_NIC_EMU)
        take_nearest(ctx, gpu, c->gpu_nic_map[0] ? NULL : &homes);
    ctx->mesh.hello.homes = homes;
    return rc;
}

void ry_ctx_show_ports(struct ry_ctx *ctx)
{
    char path[RY_CONFIG_TEXT + 32];
    const char *folder = ctx->config->emu_sysfs;

    if (!folder[0] || ctx->config->nic != RY_NIC_EMU || !ctx->mesh.nic)
        return;
    snprintf(path, sizeof(path), "%s/pe%u", folder, ctx->boot->pe);
    if (mkdir(folder, 0700) != 0 && errno != EEXIST)
        return;
    ry_emu_tree_write(ctx->mesh.nic, path); /* a reader sees what was there before, if it fails */
}

uint64_t ry_ctx_ports_tick(struct ry_ctx *ctx, uint64_t now_ns)
{
    if (!ctx->config->emu_sysfs[0])
        return UINT64_MAX;
    if (now_ns >= ctx->ports_due_ns) {
        ry_ctx_show_ports(ctx);
        ctx->ports_due_ns = now_ns + SHOW_NS;
    }
    return ctx->ports_due_ns;
}
