/* SPDX-License-Identifier: Apache-2.0 */
/* What the user asks for: a list of devices and a map from GPUs to ports. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static int matches(const ry_topo_port *port, const char *name)
{
    size_t len = strcspn(name, ":");
    if (strlen(port->device) != len || strncmp(port->device, name, len) != 0)
        return 0;
    return name[len] != ':' || strtoul(name + len + 1, NULL, 10) == port->port;
}

static int bad(char *why, size_t why_bytes, const char *setting, const char *name,
               const char *what)
{
    if (why)
        snprintf(why, why_bytes, "%s: '%s' %s", setting, name, what);
    return RY_ERR_INVALID;
}

/* "a,b:1" keeps only those; "^a,b" or "^a,^b" leaves those out; "a,^b:2" does both. */
static int apply_hca(ry_topo *topo, const char *list, char *why, size_t why_bytes)
{
    uint8_t kept[RY_TOPO_PORTS] = {0};
    int keeps = 0, leaves = list[0] == '^';
    char name[64];
    int all_leave = leaves && !strstr(list, ",^");
    for (const char *at = list; *at;) {
        if (!take_name(&at, name, sizeof name))
            return bad(why, why_bytes, "RAILYARD_HCA", list,
                       "is no list of device or device:port");
        int leave = name[0] == '^' || all_leave;
        const char *device = name + (name[0] == '^');
        unsigned found = 0;
        for (uint32_t i = 0; i < topo->port_count; i++) {
            if (!matches(&topo->ports[i], device))
                continue;
            found++;
            if (leave)
                topo->ports[i].excluded = RY_EXCLUDED_BY_USER;
            else
                kept[i] = 1;
        }
        if (!found)
            return bad(why, why_bytes, "RAILYARD_HCA", device, "is not a port of this machine");
        keeps |= !leave;
    }
    for (uint32_t i = 0; keeps && i < topo->port_count; i++) {
        if (kept[i])
            topo->ports[i].excluded = RY_EXCLUDED_NOT;
        else
            topo->ports[i].excluded = RY_EXCLUDED_BY_USER;
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
