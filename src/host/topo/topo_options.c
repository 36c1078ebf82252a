/* SPDX-License-Identifier: Apache-2.0 */
/* What the user asks for: a list of devices and a map from GPUs to ports. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nic/select.h"
#include "topo_internal.h"

/* One "device" or "device:port" of a list, cut at the comma. */
static int take_name(const char **at, char *name, size_t cap)
{
    size_t len = strcspn(*at, ",");
    if (len == 0 || len >= cap)
        return 0;
    memcpy(name, *at, len);
    name[len] = '\0';
    *at += len;
    if (**at == ',')
        (*at)++;
    return 1;
}

static int bad(char *why, size_t why_bytes, const char *setting, const char *name,
               const char *what)
{
    if (why)
        snprintf(why, why_bytes, "'%s' in %s %s", name, setting, what);
    return RY_ERR_INVALID;
}

/* Ports of the emulated NIC are as many as a job wants, and no part of the machine. */
static int is_emulated(const struct ry_select_part *part)
{
    return strncmp(part->device, "emu", 3) == 0;
}

static int apply_hca(ry_topo *topo, const char *list, char *why, size_t why_bytes)
{
    static const char *const setting = "RAILYARD_HCA";
    struct ry_select_part part;
    int rc, keeps = 0;
    for (const char *at = list, *from = at; (rc = ry_select_next(&at, &part)) != 0; from = at) {
        char name[RY_NIC_NAME_BYTES + 8];
        int found = 0;
        if (rc < 0)
            return bad(why, why_bytes, setting, list, "is no list of device or device:port");
        for (uint32_t i = 0; i < topo->port_count && !found; i++)
            found = ry_select_meets(&part, topo->ports[i].device, topo->ports[i].port);
        snprintf(name, sizeof name, "%.*s", (int)strcspn(from, ","), from);
        if (!found && !is_emulated(&part))
            return bad(why, why_bytes, setting, name, "is not a port of this machine");
        keeps |= !part.leave_out;
    }
    for (uint32_t i = 0; i < topo->port_count; i++) {
        uint32_t order;
        if (ry_select_takes(list, topo->ports[i].device, topo->ports[i].port, &order) != 1)
            topo->ports[i].excluded = RY_EXCLUDED_BY_USER;
        else if (keeps) /* named: a virtual function too */
            topo->ports[i].excluded = RY_EXCLUDED_NOT;
    }
    return RY_OK;
}

/* "0:mlx5_0:1,0:mlx5_1:1,1:mlx5_2" */
static int apply_map(ry_topo *topo, const char *map, char *why, size_t why_bytes)
{
    static const char *const setting = "RAILYARD_GPU_NIC_MAP";
    char name[64];
    for (const char *at = map; *at;) {
        if (!take_name(&at, name, sizeof name))
            return bad(why, why_bytes, setting, map, "is no list of gpu:device:port");
        char *end;
        unsigned long index = strtoul(name, &end, 10);
        if (end == name || *end != ':')
            return bad(why, why_bytes, setting, name, "is not gpu:device or gpu:device:port");
        uint32_t gpu = 0;
        while (gpu < topo->gpu_count && topo->gpus[gpu].index != index)
            gpu++;
        if (gpu == topo->gpu_count)
            return bad(why, why_bytes, setting, name, "names a GPU that is not there");
        int32_t port = ry_topo_find_port(topo, end + 1);
        if (port < 0)
            return bad(why, why_bytes, setting, end + 1, "is not a port of this machine");
        struct ry_rail_set *rails = &topo->rails[gpu];
        if (rails->count == RY_TOPO_RAILS)
            return bad(why, why_bytes, setting, name, "is one rail too many, 16 is the most");
        rails->by_user = 1;
        rails->ports[rails->count++] = (uint32_t)port;
    }
    return RY_OK;
}

int ry_topo_apply_options(ry_topo *topo, const ry_topo_options *options, char *why,
                          size_t why_bytes)
{
    int status = RY_OK;
    if (options->hca && *options->hca)
        status = apply_hca(topo, options->hca, why, why_bytes);
    if (status == RY_OK && options->gpu_nic_map && *options->gpu_nic_map)
        status = apply_map(topo, options->gpu_nic_map, why, why_bytes);
    return status;
}
