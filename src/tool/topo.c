/* SPDX-License-Identifier: Apache-2.0 */
/* railyard topo: the matrix of nvidia-smi with a row for each port, rails, backups and findings.
 */
#include "topo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "record.h"

static const char usage[] =
    "usage: railyard topo [FLAG...]\n\n"
    "Shows which NIC ports each GPU uses, what backs each of them, and what "
    "is wrong.";

void ry_topo_row_name(const ry_topo *topo, uint32_t i, char *name, size_t cap)
{
    uint32_t gpus = ry_topo_gpu_count(topo);
    if (i < gpus) {
        snprintf(name, cap, "GPU%u", ry_topo_gpu_at(topo, i)->index);
        return;
    }
    const ry_topo_port *port = ry_topo_port_at(topo, i - gpus);
    if (port->device_ports > 1)
        snprintf(name, cap, "NIC%u:%u", port->nic, port->port);
    else
        snprintf(name, cap, "NIC%u", port->nic);
}

void ry_topo_cell(const ry_topo *topo, uint32_t row, uint32_t column, char *cell, size_t cap)
{
    uint32_t gpus = ry_topo_gpu_count(topo);
    uint32_t a = row < column ? row : column, b = row < column ? column : row;
    ry_distance distance;
    if (b < gpus && ry_topo_nvlinks(topo, a, b) > 0) {
        snprintf(cell, cap, "NV%u", ry_topo_nvlinks(topo, a, b));
        return;
    }
    if (b < gpus)
        distance = ry_topo_gpu_gpu(topo, a, b);
    else if (a < gpus)
        distance = ry_topo_gpu_port(topo, a, b - gpus);
    else
        distance = ry_topo_port_port(topo, a - gpus, b - gpus);
    snprintf(cell, cap, "%s", ry_distance_name(distance));
}

const char *ry_topo_why_text(ry_backup_why why)
{
    switch (why) {
    case RY_BACKUP_SAME_CARD:
        return "other port of the same card";
    case RY_BACKUP_NEAREST:
        return "nearest other card";
    case RY_BACKUP_NEIGHBOUR:
        return "several are equally near, the neighbour";
    default:
        return "none: no other usable port of its link layer";
    }
}

static void print_matrix(const ry_topo *topo)
{
    uint32_t gpus = ry_topo_gpu_count(topo);
    uint32_t rows = gpus + ry_topo_port_count(topo);
    char text[32];
    for (uint32_t i = 0; i < rows; i++) {
        ry_topo_row_name(topo, i, text, sizeof text);
        printf("\t%s", text);
    }
    printf("%s\n", gpus ? "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID" : "");
    for (uint32_t i = 0; i < rows; i++) {
        ry_topo_row_name(topo, i, text, sizeof text);
        printf("%s", text);
        for (uint32_t j = 0; j < rows; j++) {
            ry_topo_cell(topo, i, j, text, sizeof text);
            printf("\t%s%s%s", i == j ? " " : "", text, i == j ? " " : "");
        }
        if (i < gpus) {
            const ry_topo_gpu *gpu = ry_topo_gpu_at(topo, i);
            if (gpu->numa >= 0)
                snprintf(text, sizeof text, "%d", gpu->numa);
            else
                snprintf(text, sizeof text, "N/A");
            printf("\t%s\t%s\tN/A", gpu->cpus[0] ? gpu->cpus : "N/A", text);
        }
        putchar('\n');
    }
}

static const char *layer_name(ry_link_layer layer)
{
    return layer == RY_LINK_INFINIBAND ? "InfiniBand"
           : layer == RY_LINK_ETHERNET ? "Ethernet"
                                       : "?";
}

static void print_legend(const ry_topo *topo)
{
    puts("\nX same device, NV# NVLinks, PIX one PCIe bridge, PXB several, PHB one host bridge,\n"
         "NODE one NUMA node, SYS across NUMA nodes");
    if (ry_topo_port_count(topo) > 0)
        puts("\nports:");
    for (uint32_t i = 0; i < ry_topo_port_count(topo); i++) {
        const ry_topo_port *port = ry_topo_port_at(topo, i);
        char name[32];
        ry_topo_row_name(topo, ry_topo_gpu_count(topo) + i, name, sizeof name);
        printf("  %-8s %s:%u  %s  %u Gb/s %s%s%s%s%s\n", name, port->device, port->port,
               port->bus[0] ? port->bus : "no PCI device", port->rate_mbps / 1000,
               layer_name(port->layer), port->active ? "" : ", not active",
               port->is_virtual ? ", virtual function" : "", port->is_bond ? ", bond" : "",
               port->excluded == RY_EXCLUDED_BY_USER ? ", left out by RAILYARD_HCA" : "");
    }
}

static void print_rails(const ry_topo *topo)
{
    if (ry_topo_gpu_count(topo) > 0)
        puts("\nrails:");
    for (uint32_t g = 0; g < ry_topo_gpu_count(topo); g++) {
        uint32_t rails[RY_TOPO_RAILS];
        uint32_t count = ry_topo_rails_for_gpu(topo, g, rails, RY_TOPO_RAILS);
        if (count == 0)
            printf("  GPU%u  no rail\n", ry_topo_gpu_at(topo, g)->index);
        for (uint32_t i = 0; i < count; i++) {
            const ry_topo_port *port = ry_topo_port_at(topo, rails[i]);
            uint32_t backup = 0;
            ry_backup_why why = ry_topo_backup(topo, g, rails[i], &backup);
            printf("  GPU%u  rail%u %s:%u (%s)  backup ", ry_topo_gpu_at(topo, g)->index, i,
                   port->device, port->port,
                   ry_distance_name(ry_topo_gpu_port(topo, g, rails[i])));
            if (why != RY_BACKUP_NONE) {
                const ry_topo_port *other = ry_topo_port_at(topo, backup);
                printf("%s:%u (%s): ", other->device, other->port,
                       ry_distance_name(ry_topo_gpu_port(topo, g, backup)));
            }
            puts(ry_topo_why_text(why));
        }
    }
}

static void print_findings(const ry_topo *topo)
{
    uint32_t count = ry_topo_issue_count(topo);
    puts(ry_topo_gpu_count(topo) + ry_topo_port_count(topo) ? "\nfindings:" : "findings:");
    if (ry_topo_gpu_count(topo) == 0)
        puts("  no GPU here, so there are no rails");
    if (ry_topo_port_count(topo) == 0)
        puts("  no RDMA port here");
    else if (count == 0)
        puts("  none");
    for (uint32_t i = 0; i < count; i++) {
        const ry_topo_issue *issue = ry_topo_issue_at(topo, i);
        printf("  %s: %s\n", ry_topo_issue_name(issue->kind), issue->text);
    }
}

static int write_svg(const ry_topo *topo, const char *file)
{
    char *svg = ry_topo_to_svg(topo);
    if (!svg)
        return ry_tool_error("topo", "cannot draw: no memory");
    int code = ry_tool_write_text("topo", file, svg);
    free(svg);
    return code;
}

int ry_command_topo(int argc, char **argv)
{
    const char *root = NULL, *json = NULL, *svg = NULL;
    const struct ry_tool_flag flags[] = {
        {"--root", &root, NULL, "read this record (folder or archive), not the machine"},
        {"--json", &json, NULL, "write JSON to this file, - is stdout"},
        {"--svg", &svg, NULL, "draw a picture into this file, - is stdout"},
        {NULL, NULL, NULL, NULL},
    };
    int code;
    int at = ry_tool_flags(argc, argv, flags, usage, &code);
    if (at < 0)
        return code;
    if (at < argc)
        return ry_tool_error("topo", "unexpected '%s': topo takes flags only", argv[at]);
    ry_facts *facts;
    code = ry_tool_open("topo", root, &facts);
    if (code != TOOL_OK)
        return code;
    ry_topo *topo;
    code = ry_tool_topo("topo", facts, &topo);
    ry_facts_close(facts);
    if (code != TOOL_OK)
        return code;
    int quiet = (json && strcmp(json, "-") == 0) || (svg && strcmp(svg, "-") == 0);
    if (!quiet) {
        if (ry_topo_gpu_count(topo) + ry_topo_port_count(topo) > 0) {
            print_matrix(topo);
            print_legend(topo);
        }
        print_rails(topo);
        print_findings(topo);
    }
    if (json)
        code = ry_tool_write_json("topo", json, ry_topo_to_json(topo));
    if (svg && code == TOOL_OK)
        code = write_svg(topo, svg);
    ry_topo_free(topo);
    return code;
}
