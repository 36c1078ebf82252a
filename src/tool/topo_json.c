/* SPDX-License-Identifier: Apache-2.0 */
/* A topology as JSON. */
#include <stdio.h>

#include "topo.h"

static json_t *text_or_null(const char *text)
{
    return *text ? json_string(text) : json_null();
}

static json_t *gpus_to_json(const ry_topo *topo)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < ry_topo_gpu_count(topo); i++) {
        const ry_topo_gpu *gpu = ry_topo_gpu_at(topo, i);
        json_array_append_new(
            list, json_pack("{s:i, s:s, s:o, s:o, s:i, s:i, s:i}", "index", (int)gpu->index,
                            "name", gpu->name, "bus", text_or_null(gpu->bus), "cpus",
                            text_or_null(gpu->cpus), "numa", (int)gpu->numa, "sm", (int)gpu->sm,
                            "shared_with", (int)gpu->shared_with));
    }
    return list;
}

static json_t *ports_to_json(const ry_topo *topo)
{
    static const char *const layers[] = {"unknown", "InfiniBand", "Ethernet"};
    json_t *list = json_array();
    for (uint32_t i = 0; i < ry_topo_port_count(topo); i++) {
        const ry_topo_port *port = ry_topo_port_at(topo, i);
        char name[64];
        snprintf(name, sizeof name, "%s:%u", port->device, port->port);
        json_array_append_new(
            list,
            json_pack("{s:s, s:s, s:i, s:i, s:o, s:i, s:f, s:s, s:b, s:b, s:b, s:b}", "name", name,
                      "device", port->device, "port", (int)port->port, "card", (int)port->card,
                      "bus", text_or_null(port->bus), "numa", (int)port->numa, "rate_gbps",
                      (double)port->rate_mbps / 1000, "layer", layers[port->layer], "active",
                      port->active, "virtual", port->is_virtual, "bond", port->is_bond, "excluded",
                      port->excluded != RY_EXCLUDED_NOT));
    }
    return list;
}

static json_t *matrix_to_json(const ry_topo *topo)
{
    json_t *names = json_array(), *rows = json_array();
    uint32_t count = ry_topo_gpu_count(topo) + ry_topo_port_count(topo);
    char text[32];
    for (uint32_t i = 0; i < count; i++) {
        ry_topo_row_name(topo, i, text, sizeof text);
        json_array_append_new(names, json_string(text));
        json_t *row = json_array();
        for (uint32_t j = 0; j < count; j++) {
            ry_topo_cell(topo, i, j, text, sizeof text);
            json_array_append_new(row, json_string(text));
        }
        json_array_append_new(rows, row);
    }
    return json_pack("{s:o, s:o}", "names", names, "cells", rows);
}

static json_t *rail_to_json(const ry_topo *topo, uint32_t gpu, uint32_t rail, uint32_t at)
{
    static const char *const whys[] = {"none", "same-card", "nearest", "neighbour"};
    const ry_topo_port *port = ry_topo_port_at(topo, at);
    uint32_t backup = 0;
    ry_backup_why why = ry_topo_backup(topo, gpu, at, &backup);
    char name[64];
    snprintf(name, sizeof name, "%s:%u", port->device, port->port);
    json_t *json = json_pack("{s:i, s:s, s:s}", "rail", (int)rail, "port", name, "distance",
                             ry_distance_name(ry_topo_gpu_port(topo, gpu, at)));
    if (why != RY_BACKUP_NONE) {
        port = ry_topo_port_at(topo, backup);
        snprintf(name, sizeof name, "%s:%u", port->device, port->port);
        json_object_set_new(json, "backup", json_string(name));
        json_object_set_new(json, "backup_distance",
                            json_string(ry_distance_name(ry_topo_gpu_port(topo, gpu, backup))));
    } else {
        json_object_set_new(json, "backup", json_null());
    }
    json_object_set_new(json, "why", json_string(whys[why]));
    return json;
}

static json_t *rails_to_json(const ry_topo *topo)
{
    json_t *list = json_array();
    for (uint32_t g = 0; g < ry_topo_gpu_count(topo); g++) {
        uint32_t rails[RY_TOPO_RAILS];
        uint32_t count = ry_topo_rails_for_gpu(topo, g, rails, RY_TOPO_RAILS);
        json_t *mine = json_array();
        for (uint32_t i = 0; i < count; i++)
            json_array_append_new(mine, rail_to_json(topo, g, i, rails[i]));
        json_array_append_new(list, json_pack("{s:i, s:o}", "gpu",
                                              (int)ry_topo_gpu_at(topo, g)->index, "rails", mine));
    }
    return list;
}

static json_t *findings_to_json(const ry_topo *topo)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < ry_topo_issue_count(topo); i++) {
        const ry_topo_issue *issue = ry_topo_issue_at(topo, i);
        json_array_append_new(
            list,
            json_pack("{s:s, s:s}", "kind", ry_topo_issue_name(issue->kind), "text", issue->text));
    }
    return list;
}

json_t *ry_topo_to_json(const ry_topo *topo)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:i}", "gpus", gpus_to_json(topo), "ports",
                     ports_to_json(topo), "matrix", matrix_to_json(topo), "map",
                     rails_to_json(topo), "findings", findings_to_json(topo), "numa_nodes",
                     (int)ry_topo_numa_count(topo));
}
