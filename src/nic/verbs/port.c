/* SPDX-License-Identifier: Apache-2.0 */
/* A port: its address, partition key, rate and state. */
#include <errno.h>
#include <string.h>

#include "nic/verbs/verbs_int.h"

enum { RETRY_NS = 4 << 20, RETRY_SOFT_NS = 64 << 20 };

uint32_t ry_verbs_mtu_bytes(enum ibv_mtu mtu)
{
    return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128u << mtu : 256;
}

/* The greatest MTU that is not above so many bytes. */
enum ibv_mtu ry_verbs_mtu_of(uint32_t bytes)
{
    enum ibv_mtu m = IBV_MTU_4096;

    while (m > IBV_MTU_256 && ry_verbs_mtu_bytes(m) > bytes)
        m = (enum ibv_mtu)(m - 1);
    return m;
}

uint64_t ry_verbs_retry_ns(const struct ry_verbs_rail *r)
{
    uint64_t wish = r->nic->cfg.retry_ns;

    return wish ? wish : ry_verbs_in_software(&r->dev) ? RETRY_SOFT_NS : RETRY_NS;
}

/* The smallest timer of the queue pair that is not below so many nanoseconds. */
uint8_t ry_verbs_timeout(uint64_t ns)
{
    uint8_t t = 1;

    while (t < 31 && 4096ull << t < ns)
        t++;
    return t;
}

/* Bytes a second after line coding. Widths and speeds are bit masks of the InfiniBand port
 * attributes: width 1x 4x 8x 12x 2x; speed in steps of the lane's signalling rate. */
uint64_t ry_verbs_rate_bps(uint8_t width, uint32_t speed)
{
    static const struct {
        uint32_t speed;
        uint32_t mbit; /* of one lane, data */
    } lanes[] = {{1, 2000},   {2, 4000},   {4, 8000},     {8, 10000},   {16, 13640},
                 {32, 25000}, {64, 50000}, {128, 100000}, {256, 200000}};
    static const uint8_t widths[][2] = {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}};
    uint64_t lane = 0, count = 0;

    for (size_t i = 0; i < sizeof(lanes) / sizeof(lanes[0]); i++)
        if (lanes[i].speed == speed)
            lane = lanes[i].mbit;
    for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++)
        if (widths[i][0] == width)
            count = widths[i][1];
    return lane * count * 1000000ull / 8;
}

int ry_verbs_gid_rank(const struct ibv_gid_entry *e)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    static const uint8_t none[RY_GID_BYTES];

    if (memcmp(e->gid.raw, none, sizeof(none)) == 0)
        return 0;
    if (memcmp(e->gid.raw, mapped, sizeof(mapped)) == 0)
        return 3;
    return e->gid.raw[0] == 0xfe && (e->gid.raw[1] & 0xc0) == 0x80 ? 1 : 2;
}

/* The GID of a port. InfiniBand: entry 0 or the one wished for. RoCE: by type, because the index
 * moves whenever an address is added or removed. A link-local one is there even on an interface
 * without addresses and may lead nowhere: it is taken only if its index is asked for. */
int ry_verbs_find_gid(const struct ry_verbs_cfg *cfg, struct ibv_context *ctx, uint32_t port,
                      uint32_t link_layer, union ibv_gid *gid, uint32_t *index)
{
    uint32_t type = cfg->roce_version == 1 ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2;
    int32_t wish = cfg->gid_index;
    static const uint8_t none[RY_GID_BYTES];
    struct ibv_port_attr attr;
    struct ibv_gid_entry e;
    int best = 0;

    if (wish >= 0 || link_layer != IBV_LINK_LAYER_ETHERNET) {
        uint32_t at = wish >= 0 ? (uint32_t)wish : 0;

        if (ibv_query_gid(ctx, (uint8_t)port, (int)at, gid) != 0)
            return RY_ERR_DEVICE;
        *index = at;
        return memcmp(gid->raw, none, sizeof(none)) == 0 ? RY_ERR_NOT_FOUND : RY_OK;
    }
    if (ibv_query_port(ctx, (uint8_t)port, &attr) != 0)
        return RY_ERR_DEVICE;
    for (int i = 0; i < attr.gid_tbl_len && best < 3; i++) {
        int rank;

        if (ibv_query_gid_ex(ctx, port, (uint32_t)i, &e, 0) != 0)
            continue;
        rank = e.gid_type == type ? ry_verbs_gid_rank(&e) : 0;
        if (rank > best) {
            best = rank;
            *gid = e.gid;
            *index = (uint32_t)i;
        }
    }
    return best > 1 ? RY_OK : RY_ERR_NOT_FOUND;
}

int ry_verbs_find_pkey(struct ibv_context *ctx, uint32_t port, uint16_t pkey, uint16_t *index)
{
    struct ibv_port_attr attr;

    *index = 0;
    if (pkey == 0)
        return RY_OK;
    if (ibv_query_port(ctx, (uint8_t)port, &attr) != 0)
        return RY_ERR_DEVICE;
    for (int i = 0; i < attr.pkey_tbl_len; i++) {
        __be16 value;

        if (ibv_query_pkey(ctx, (uint8_t)port, i, &value) == 0 &&
            (ry_be16(value) & 0x7fff) == (pkey & 0x7fff)) {
            *index = (uint16_t)i;
            return RY_OK;
        }
    }
    return RY_ERR_NOT_FOUND;
}

int ry_verbs_rail_info(struct ry_nic *nic, uint32_t rail, struct ry_rail_info *info)
{
    struct ry_verbs_nic *n = ry_verbs_of(nic);
    struct ry_verbs_rail *r;
    struct ibv_port_attr attr;
    union ibv_gid gid;
    uint32_t index;

    if (rail >= n->rails_len)
        return RY_ERR_INVALID;
    r = &n->rails[rail];
    if (ibv_query_port(r->ctx, (uint8_t)r->port, &attr) != 0)
        return ry_verbs_fail(n, RY_ERR_RAIL, "cannot query %s: %s", r->name, strerror(errno));
    *info = (struct ry_rail_info){0};
    memcpy(info->name, r->name, sizeof(info->name));
    info->nic = r->device;
    info->port = r->port;
    info->rate_bps = ry_verbs_rate_bps(attr.active_width, attr.active_speed);
    info->mtu_bytes = ry_verbs_mtu_bytes(attr.active_mtu);
    if (n->cfg.mtu_bytes && n->cfg.mtu_bytes < info->mtu_bytes)
        info->mtu_bytes = ry_verbs_mtu_bytes(ry_verbs_mtu_of(n->cfg.mtu_bytes));
    info->lid = attr.lid;
    info->link_layer = attr.link_layer == IBV_LINK_LAYER_ETHERNET ? 2 : 1;
    if (ry_verbs_find_gid(&n->cfg, r->ctx, r->port, attr.link_layer, &gid, &index) == 0)
        memcpy(info->gid, gid.raw, sizeof(info->gid));
    return RY_OK;
}

enum ry_port_state ry_verbs_rail_state(struct ry_nic *nic, uint32_t rail)
{
    struct ry_verbs_nic *n = ry_verbs_of(nic);
    struct ibv_port_attr attr;

    if (rail >= n->rails_len ||
        ibv_query_port(n->rails[rail].ctx, (uint8_t)n->rails[rail].port, &attr) != 0)
        return RY_PORT_DOWN;
    return attr.state == IBV_PORT_ACTIVE ? RY_PORT_UP : RY_PORT_DOWN;
}
