/* SPDX-License-Identifier: Apache-2.0 */
/* Every port of every device, for `info`. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "nic/verbs/verbs_int.h"

static bool describe(struct ibv_context *ctx, const struct ibv_device_attr *dev, uint32_t port,
                     struct ry_verbs_port *p)
{
    struct ibv_port_attr attr;
    const struct ry_verbs_cfg any = {.gid_index = -1, .roce_version = 2};
    union ibv_gid gid;
    uint32_t index;

    if (ibv_query_port(ctx, (uint8_t)port, &attr) != 0)
        return false;
    *p = (struct ry_verbs_port){
        .port = port,
        .ports = dev->phys_port_cnt,
        .vendor_id = dev->vendor_id,
        .vendor_part_id = dev->vendor_part_id,
        .hw_ver = dev->hw_ver,
        .node_guid = ry_be64(dev->node_guid),
        .state = (uint32_t)attr.state,
        .link_layer = attr.link_layer == IBV_LINK_LAYER_ETHERNET ? 2 : 1,
        .mtu_max_bytes = ry_verbs_mtu_bytes(attr.max_mtu),
        .mtu_bytes = ry_verbs_mtu_bytes(attr.active_mtu),
        .lid = attr.lid,
        .sm_lid = attr.sm_lid,
        .rate_bps = ry_verbs_rate_bps(attr.active_width, attr.active_speed),
        .gid_index = -1,
    };
    snprintf(p->device, sizeof(p->device), "%s", ibv_get_device_name(ctx->device));
    snprintf(p->firmware, sizeof(p->firmware), "%s", dev->fw_ver);
    if (ry_verbs_find_gid(&any, ctx, port, attr.link_layer, &gid, &index) == RY_OK) {
        memcpy(p->gid, gid.raw, sizeof(p->gid));
        p->gid_index = (int32_t)index;
    }
    return true;
}

int ry_verbs_list(struct ry_verbs_port *out, uint32_t max, uint32_t *count, char *reason,
                  size_t reason_bytes)
{
    int devices_len = 0, failed = 0;
    struct ibv_device **devices = ibv_get_device_list(&devices_len);
    uint32_t n = 0;

    for (int i = 0; devices && i < devices_len; i++) {
        struct ibv_context *ctx = ibv_open_device(devices[i]);
        struct ibv_device_attr dev;

        if (!ctx || ibv_query_device(ctx, &dev) != 0) {
            failed = errno;
            if (ctx)
                ibv_close_device(ctx);
            continue;
        }
        for (uint32_t port = 1; port <= dev.phys_port_cnt; port++) {
            struct ry_verbs_port p;

            if (!describe(ctx, &dev, port, &p))
                continue;
            if (n < max)
                out[n] = p;
            n++;
        }
        ibv_close_device(ctx);
    }
    if (devices)
        ibv_free_device_list(devices);
    if (n == 0) {
        if (failed)
            snprintf(reason, reason_bytes, "cannot open an rdma device: %s", strerror(failed));
        else
            snprintf(reason, reason_bytes, "no rdma device on this machine");
        return RY_ERR_DEVICE;
    }
    *count = n;
    return RY_OK;
}
