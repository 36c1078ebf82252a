/* SPDX-License-Identifier: Apache-2.0 */
/* What is wrong with a machine as far as its rails go. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "topo_internal.h"

static void add(ry_topo *topo, ry_topo_issue_kind kind, int32_t gpu, int32_t port,
                const char *format, ...) __attribute__((format(printf, 5, 6)));

static void add(ry_topo *topo, ry_topo_issue_kind kind, int32_t gpu, int32_t port,
                const char *format, ...)
{
    if (topo->issue_count == topo->issue_cap) {
        uint32_t cap = topo->issue_cap ? 2 * topo->issue_cap : 16;
        ry_topo_issue *issues = realloc(topo->issues, cap * sizeof *issues);
        if (!issues)
            return;
        topo->issues = issues;
        topo->issue_cap = cap;
    }
    ry_topo_issue *issue = &topo->issues[topo->issue_count++];
    issue->kind = kind;
    issue->gpu = gpu;
    issue->port = port;
    va_list args;
    va_start(args, format);
    vsnprintf(issue->text, sizeof issue->text, format, args);
    va_end(args);
}

const char *ry_topo_issue_name(ry_topo_issue_kind kind)
{
    static const char *const names[] = {"fewer-ports", "shared-port",   "shared-nic",
                                        "no-rail",     "no-backup",     "unused-port",
                                        "down-port",   "unequal-rates", "far"};
    return (unsigned)kind < sizeof names / sizeof names[0] ? names[kind] : "?";
}

uint32_t ry_topo_issue_count(const ry_topo *topo)
{
    return topo->issue_count;
}

const ry_topo_issue *ry_topo_issue_at(const ry_topo *topo, uint32_t i)
{
    return i < topo->issue_count ? &topo->issues[i] : NULL;
}

static int uses(const ry_topo *topo, uint32_t gpu, uint32_t port)
{
    for (uint32_t i = 0; i < topo->rails[gpu].count; i++) {
        if (topo->rails[gpu].ports[i] == port)
            return 1;
    }
    return 0;
}

static int uses_card(const ry_topo *topo, uint32_t gpu, uint32_t card)
{
    for (uint32_t i = 0; i < topo->rails[gpu].count; i++) {
        if (topo->ports[topo->rails[gpu].ports[i]].card == card)
            return 1;
    }
    return 0;
}

static void find_shared(ry_topo *topo)
{
    for (uint32_t a = 0; a < topo->gpu_count; a++) {
        for (uint32_t b = a + 1; b < topo->gpu_count; b++) {
            int32_t port = -1, card = -1;
            for (uint32_t i = 0; i < topo->rails[a].count; i++) {
                uint32_t mine = topo->rails[a].ports[i];
                if (uses(topo, b, mine))
                    port = (int32_t)mine;
                else if (uses_card(topo, b, topo->ports[mine].card))
                    card = (int32_t)mine;
            }
            if (port >= 0) {
                topo->gpus[a].shared_with++;
                topo->gpus[b].shared_with++;
                add(topo, RY_TOPO_SHARED_PORT, (int32_t)b, port,
                    "GPU%u and GPU%u both use %s:%u, each gets half of it", topo->gpus[a].index,
                    topo->gpus[b].index, topo->ports[port].device, topo->ports[port].port);
            } else if (card >= 0) {
                add(topo, RY_TOPO_SHARED_NIC, (int32_t)b, card,
                    "GPU%u and GPU%u use ports of one card (%s), which share its PCIe link",
                    topo->gpus[a].index, topo->gpus[b].index, topo->ports[card].device);
            }
        }
    }
}

static void find_rail_issues(ry_topo *topo, uint32_t g)
{
    const ry_topo_gpu *gpu = &topo->gpus[g];
    const struct ry_rail_set *rails = &topo->rails[g];
    if (rails->count == 0)
        add(topo, RY_TOPO_NO_RAIL, (int32_t)g, -1, "GPU%u has no usable port", gpu->index);
    for (uint32_t i = 0; i < rails->count; i++) {
        const ry_topo_port *port = &topo->ports[rails->ports[i]];
        uint32_t backup;
        if (ry_topo_backup(topo, g, rails->ports[i], &backup) == RY_BACKUP_NONE)
            add(topo, RY_TOPO_NO_BACKUP, (int32_t)g, (int32_t)rails->ports[i],
                "rail %s:%u of GPU%u has no backup: no other usable port of its link layer",
                port->device, port->port, gpu->index);
        if (gpu->numa >= 0 && port->numa >= 0 && gpu->numa != port->numa)
            add(topo, RY_TOPO_FAR, (int32_t)g, (int32_t)rails->ports[i],
                "rail %s:%u is on NUMA node %d, its GPU%u on node %d", port->device, port->port,
                port->numa, gpu->index, gpu->numa);
    }
}

static void find_unequal_rates(ry_topo *topo)
{
    const ry_topo_port *first = NULL;
    for (uint32_t g = 0; g < topo->gpu_count; g++) {
        for (uint32_t i = 0; i < topo->rails[g].count; i++) {
            const ry_topo_port *port = &topo->ports[topo->rails[g].ports[i]];
            if (!port->rate_mbps)
                continue;
            if (first && port->rate_mbps != first->rate_mbps) {
                add(topo, RY_TOPO_UNEQUAL_RATES, (int32_t)g, (int32_t)topo->rails[g].ports[i],
                    "rails differ in rate: %s:%u has %u Gb/s, %s:%u has %u Gb/s", first->device,
                    first->port, first->rate_mbps / 1000, port->device, port->port,
                    port->rate_mbps / 1000);
                return;
            }
            if (!first)
                first = port;
        }
    }
}

static void find_port_issues(ry_topo *topo)
{
    for (uint32_t i = 0; i < topo->port_count; i++) {
        const ry_topo_port *port = &topo->ports[i];
        uint32_t users = 0;
        if (port->excluded == RY_EXCLUDED_VIRTUAL)
            continue;
        for (uint32_t g = 0; g < topo->gpu_count; g++)
            users += (uint32_t)uses(topo, g, i);
        if (!port->active)
            add(topo, RY_TOPO_DOWN_PORT, -1, (int32_t)i, "%s:%u is not active", port->device,
                port->port);
        else if (users == 0 && topo->gpu_count > 0)
            add(topo, RY_TOPO_UNUSED_PORT, -1, (int32_t)i, "%s:%u is used by no GPU%s",
                port->device, port->port, port->excluded ? " (left out by RAILYARD_HCA)" : "");
    }
}

int ry_topo_find_issues(ry_topo *topo)
{
    uint32_t usable = 0;
    for (uint32_t i = 0; i < topo->port_count; i++)
        usable += (uint32_t)ry_topo_usable(&topo->ports[i]);
    if (topo->port_count > 0 && usable < topo->gpu_count)
        add(topo, RY_TOPO_FEWER_PORTS, -1, -1, "%u usable ports for %u GPUs", usable,
            topo->gpu_count);
    find_shared(topo);
    for (uint32_t g = 0; g < topo->gpu_count; g++)
        find_rail_issues(topo, g);
    find_port_issues(topo);
    find_unequal_rates(topo);
    return RY_OK;
}
