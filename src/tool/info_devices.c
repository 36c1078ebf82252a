/* SPDX-License-Identifier: Apache-2.0 */
/* railyard info -d: ports of the machine's RDMA devices, in the manner of ibv_devinfo. */
#include <inttypes.h>
#include <railyard/device.h>

#include <stdio.h>
#include <stdlib.h>

#include "commands.h"
#include "info_devices.h"
#include "timeline.h"

static void gid_text(const uint8_t *gid, char *text, size_t len)
{
    size_t at = 0;

    for (int i = 0; i < 16 && at + 4 < len; i++)
        at += (size_t)snprintf(text + at, len - at, "%s%02x", i && i % 2 == 0 ? ":" : "", gid[i]);
}

static void rail_text(int32_t rail, char *text, size_t len)
{
    if (rail < 0)
        snprintf(text, len, "none");
    else
        snprintf(text, len, "rail%d", rail);
}

static void print_port(const ry_device_port *p)
{
    char gid[48] = "", rail[16], backup[16], rate[32] = "unknown";

    gid_text(p->gid, gid, sizeof(gid));
    rail_text(p->rail, rail, sizeof(rail));
    rail_text(p->backup, backup, sizeof(backup));
    if (p->rate_bps)
        snprintf(rate, sizeof(rate), "%.1f Gb/s", (double)p->rate_bps * 8 / 1e9);
    printf("%s:%u\n", p->device, p->port);
    printf("  firmware    %s\n", p->firmware);
    printf("  vendor      %#x, part %u, hardware %#x\n", p->vendor_id, p->vendor_part_id,
           p->hw_ver);
    printf("  node guid   %016" PRIx64 "\n", p->node_guid);
    printf("  state       %s\n", p->state);
    printf("  link layer  %s\n", p->link_layer);
    printf("  rate        %s\n", rate);
    printf("  mtu         %u of %u\n", p->mtu_bytes, p->max_mtu_bytes);
    printf("  lid         %u, subnet manager %u\n", p->lid, p->sm_lid);
    if (p->gid_index >= 0)
        printf("  gid         %s, index %d\n", gid, p->gid_index);
    else
        puts("  gid         none that railyard could take");
    printf("  rail        %s, backup %s\n", rail, backup);
    printf("  health      %s\n", p->up ? "up" : "down");
}

static json_t *port_json(const ry_device_port *p)
{
    char gid[48] = "";

    gid_text(p->gid, gid, sizeof(gid));
    return json_pack("{s:s, s:i, s:s, s:I, s:I, s:I, s:I, s:s, s:s, s:I, s:i, s:i, s:i, s:i, s:i, "
                     "s:s, s:i, s:i, s:b}",
                     "device", p->device, "port", (int)p->port, "firmware", p->firmware,
                     "vendor_id", (json_int_t)p->vendor_id, "vendor_part_id",
                     (json_int_t)p->vendor_part_id, "hw_ver", (json_int_t)p->hw_ver, "node_guid",
                     (json_int_t)p->node_guid, "state", p->state, "link_layer", p->link_layer,
                     "rate_bps", (json_int_t)p->rate_bps, "mtu_bytes", (int)p->mtu_bytes,
                     "max_mtu_bytes", (int)p->max_mtu_bytes, "lid", (int)p->lid, "sm_lid",
                     (int)p->sm_lid, "gid_index", (int)p->gid_index, "gid", gid, "rail",
                     (int)p->rail, "backup", (int)p->backup, "up", p->up);
}

int ry_print_devices(const char *json)
{
    ry_device_port *ports = NULL;
    uint32_t n = 0;
    int code = TOOL_OK;

    if (ry_device_ports(&ports, &n) != RY_OK)
        return ry_tool_error("info", "%s", ry_last_error());
    if (!json || json[0] != '-' || json[1])
        for (uint32_t i = 0; i < n; i++)
            print_port(&ports[i]);
    if (json) {
        json_t *all = json_array();

        for (uint32_t i = 0; all && i < n; i++)
            json_array_append_new(all, port_json(&ports[i]));
        code = ry_tool_write_json("info", json, json_pack("{s:o}", "ports", all));
    }
    free(ports);
    return code;
}
