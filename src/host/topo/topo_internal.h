/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a topology. It is filled once, in this order: devices (topo_load.c), distances
 * (topo_distance.c), the user's choice (topo_options.c), rails and backups (topo_rails.c),
 * findings (topo_issues.c). */
#ifndef RY_HOST_TOPO_TOPO_INTERNAL_H
#define RY_HOST_TOPO_TOPO_INTERNAL_H

#include <railyard/topo.h>

struct ry_rail_set {
    uint32_t count;
    uint32_t ports[RY_TOPO_RAILS];
    uint8_t by_user; /* the map names this GPU */
};

struct ry_topo {
    uint32_t gpu_count;
    uint32_t port_count;
    uint32_t numa_count;
    uint32_t issue_count;
    uint32_t issue_cap;
    ry_topo_gpu gpus[RY_TOPO_GPUS];
    ry_topo_port ports[RY_TOPO_PORTS];
    struct ry_rail_set rails[RY_TOPO_GPUS];
    uint8_t nvlinks[RY_TOPO_GPUS][RY_TOPO_GPUS];
    uint8_t gpu_gpu[RY_TOPO_GPUS][RY_TOPO_GPUS];     /* ry_distance */
    uint8_t gpu_port[RY_TOPO_GPUS][RY_TOPO_PORTS];   /* ry_distance */
    uint8_t port_port[RY_TOPO_PORTS][RY_TOPO_PORTS]; /* ry_distance */
    ry_topo_issue *issues;
};

/* Reads hwloc's XML, fills locality of every device and all distances. */
int ry_topo_measure(ry_topo *topo, ry_facts *facts, char *why, size_t why_bytes);

/* Finds the PCI addresses of GPUs in hwloc's XML, for a machine whose GPUs nothing else lists. */
int ry_topo_apply_options(ry_topo *topo, const ry_topo_options *options, char *why,
                          size_t why_bytes);
void ry_topo_choose_rails(ry_topo *topo);
int ry_topo_find_issues(ry_topo *topo);

/* A port that may carry traffic at all. */
static inline int ry_topo_usable(const ry_topo_port *port)
{
    return port->active && !port->excluded;
}

#endif
