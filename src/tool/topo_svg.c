/* SPDX-License-Identifier: Apache-2.0 */
/* A topology as a picture: GPUs above, ports below, rails as lines, backups dashed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topo.h"

enum { BOX_W = 116, BOX_H = 44, GAP = 14, MARGIN = 24, GPU_Y = 70, PORT_Y = 300 };

static const char *const colours[] = {"#1b6ca8", "#c8553d", "#2e7d4f", "#8e5aa8",
                                      "#b07d12", "#008b8b", "#a83a6b", "#5b6770"};

static uint32_t x_of(uint32_t i, uint32_t count, uint32_t width)
{
    uint32_t used = count * (BOX_W + GAP) - GAP;
    return (width - used) / 2 + i * (BOX_W + GAP);
}

/* Names come from files: what XML takes for more than text goes. */
static void put_text(FILE *out, int x, int y, const char *class, const char *text)
{
    fprintf(out, "<text x=\"%d\" y=\"%d\" class=\"%s\">", x, y, class);
    for (; *text; text++)
        fputc(strchr("<>&\"'", *text) ? ' ' : *text, out);
    fputs("</text>\n", out);
}

static void put_box(FILE *out, uint32_t x, int y, const char *fill, const char *first,
                    const char *second)
{
    fprintf(out, "<rect x=\"%u\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"5\" fill=\"%s\"/>\n", x,
            y, BOX_W, BOX_H, fill);
    put_text(out, (int)x + BOX_W / 2, y + 19, "a", first);
    put_text(out, (int)x + BOX_W / 2, y + 35, "b", second);
}

static void put_line(FILE *out, uint32_t from, uint32_t to, const char *colour, int dashed)
{
    fprintf(
        out,
        "<line x1=\"%u\" y1=\"%d\" x2=\"%u\" y2=\"%d\" stroke=\"%s\" stroke-width=\"%s\"%s/>\n",
        from + BOX_W / 2, GPU_Y + BOX_H, to + BOX_W / 2, PORT_Y, colour, dashed ? "1" : "2.5",
        dashed ? " stroke-dasharray=\"5 4\"" : "");
}

static void put_rails(FILE *out, const ry_topo *topo, uint32_t width)
{
    uint32_t gpus = ry_topo_gpu_count(topo), ports = ry_topo_port_count(topo);
    for (uint32_t g = 0; g < gpus; g++) {
        uint32_t rails[RY_TOPO_RAILS];
        uint32_t count = ry_topo_rails_for_gpu(topo, g, rails, RY_TOPO_RAILS);
        const char *colour = colours[g % (sizeof colours / sizeof colours[0])];
        for (uint32_t i = 0; i < count; i++) {
            uint32_t backup;
            put_line(out, x_of(g, gpus, width), x_of(rails[i], ports, width), colour, 0);
            if (ry_topo_backup(topo, g, rails[i], &backup) != RY_BACKUP_NONE)
                put_line(out, x_of(g, gpus, width), x_of(backup, ports, width), colour, 1);
        }
    }
}

static void put_devices(FILE *out, const ry_topo *topo, uint32_t width)
{
    uint32_t gpus = ry_topo_gpu_count(topo), ports = ry_topo_port_count(topo);
    char first[64], second[96];
    for (uint32_t g = 0; g < gpus; g++) {
        const ry_topo_gpu *gpu = ry_topo_gpu_at(topo, g);
        snprintf(first, sizeof first, "GPU%u", gpu->index);
        snprintf(second, sizeof second, "node %d", gpu->numa);
        put_box(out, x_of(g, gpus, width), GPU_Y, colours[g % 8], first, second);
    }
    for (uint32_t i = 0; i < ports; i++) {
        const ry_topo_port *port = ry_topo_port_at(topo, i);
        snprintf(first, sizeof first, "%s:%u", port->device, port->port);
        snprintf(second, sizeof second, "%u Gb/s, node %d", port->rate_mbps / 1000, port->numa);
        put_box(out, x_of(i, ports, width), PORT_Y, port->active ? "#39434d" : "#a33", first,
                second);
    }
}

char *ry_topo_to_svg(const ry_topo *topo)
{
    uint32_t gpus = ry_topo_gpu_count(topo), ports = ry_topo_port_count(topo);
    uint32_t widest = gpus > ports ? gpus : ports;
    uint32_t width = 2 * MARGIN + (widest < 4 ? 4 : widest) * (BOX_W + GAP);
    uint32_t height = PORT_Y + BOX_H + 60 + 18 * ry_topo_issue_count(topo);
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);
    if (!out)
        return NULL;
    fprintf(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%u\" height=\"%u\" "
        "font-family=\"sans-serif\" font-size=\"12\">\n<style>.a{fill:#fff;text-anchor:middle;"
        "font-weight:bold}.b{fill:#fff;text-anchor:middle;font-size:10px}.c{fill:#222}</style>\n"
        "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
        width, height);
    put_text(out, MARGIN, 36, "c", "rails (solid) and their backups (dashed)");
    put_rails(out, topo, width);
    put_devices(out, topo, width);
    for (uint32_t i = 0; i < ry_topo_issue_count(topo); i++)
        put_text(out, MARGIN, PORT_Y + BOX_H + 40 + 18 * (int)i, "c",
                 ry_topo_issue_at(topo, i)->text);
    fputs("</svg>\n", out);
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}
