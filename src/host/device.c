/* SPDX-License-Identifier: Apache-2.0 */
/* Devices of this machine, for `info -d`. */
#include <railyard/device.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/config.h"
#include "host/error.h"
#include "host/rail_place.h"
#ifdef RY_HAVE_IBVERBS
#include "nic/select.h"
#include "nic/verbs/verbs.h"

static void copy_port(ry_device_port *to, const struct ry_verbs_port *p)
{
    static const char *const states[] = {"unknown", "down", "init", "armed", "active", "deferred"};

    *to = (ry_device_port){.port = p->port,
                           .vendor_id = p->vendor_id,
                           .vendor_part_id = p->vendor_part_id,
                           .hw_ver = p->hw_ver,
                           .node_guid = p->node_guid,
                           .up = p->state == 4,
                           .max_mtu_bytes = p->mtu_max_bytes,
                           .mtu_bytes = p->mtu_bytes,
                           .lid = p->lid,
                           .sm_lid = p->sm_lid,
                           .rate_bps = p->rate_bps,
                           .gid_index = p->gid_index,
                           .rail = -1,
                           .backup = -1};
    memcpy(to->device, p->device, sizeof(to->device));
    memcpy(to->firmware, p->firmware, sizeof(to->firmware));
    memcpy(to->gid, p->gid, sizeof(to->gid));
    strncpy(to->state, states[p->state < 6 ? p->state : 0], sizeof(to->state) - 1);
    strncpy(to->link_layer, p->link_layer == 2 ? "ethernet" : "infiniband",
            sizeof(to->link_layer) - 1);
}

/* Which rail stands in for which, as channels to a PE with the same ports would have it. */
static void find_backups(ry_device_port *all, uint32_t n, const struct ry_config *c)
{
    char names[RY_RAILS_MAX][RY_NIC_NAME_BYTES] = {""};
    struct ry_rail_place place[RY_RAILS_MAX] = {{0}};
    const ry_topo_options options = {.hca = c->hca[0] ? c->hca : NULL};
    struct ry_hello h = {.rails = 0};
    ry_topo *topo = NULL;

    for (uint32_t i = 0; i < n; i++) {
        if (all[i].rail < 0 || all[i].rail >= RY_RAILS_MAX)
            continue;
        snprintf(names[all[i].rail], RY_NIC_NAME_BYTES, "%.40s:%u", all[i].device, all[i].port);
        if (h.rails <= (uint32_t)all[i].rail)
            h.rails = (uint32_t)all[i].rail + 1;
        for (uint32_t k = 0; k < n && strcmp(all[k].device, all[i].device) != 0; k++)
            h.rail[all[i].rail].nic = k + 1; /* the first port of the same device is the same k */
    }
    if (ry_topo_load(NULL, &options, &topo, NULL, 0) == RY_OK)
        ry_rail_places(topo, c->gpu >= 0 ? (uint32_t)c->gpu : 0, names, h.rails, place);
    ry_topo_free(topo);
    for (uint32_t i = 0; i < h.rails; i++) {
        h.rail[i].backup = place[i].known ? place[i].backup : RY_RAILS_MAX;
        h.rail[i].distance = place[i].distance;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t rail = (uint32_t)all[i].rail, to, peer;

        if (all[i].rail >= 0 && rail < h.rails && ry_plan_backup(&h, &h, rail, rail, &to, &peer))
            all[i].backup = (int32_t)to;
    }
}

/* Numbers rails as opening does: by place in the selection, then in the order of the list. */
static int number_rails(ry_device_port *all, uint32_t n, const char *hca)
{
    uint32_t *order = calloc(n, sizeof(*order));

    if (!order)
        return ry_fail(RY_ERR_NO_MEMORY, "no memory for %u ports", n);
    for (uint32_t i = 0; i < n; i++) {
        int takes = ry_select_takes(*hca ? hca : NULL, all[i].device, all[i].port, &order[i]);

        if (takes < 0) {
            free(order);
            return ry_fail(RY_ERR_CONFIG, "cannot read the device selection '%s'", hca);
        }
        all[i].rail = takes && all[i].gid_index >= 0 ? 0 : -1;
    }
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < n && all[i].rail >= 0; k++)
            all[i].rail +=
                all[k].rail >= 0 && (order[k] < order[i] || (order[k] == order[i] && k < i));
    free(order);
    return RY_OK;
}

int ry_device_ports(ry_device_port **out, uint32_t *n)
{
    char reason[RY_VERBS_REASON_BYTES] = "";
    struct ry_config *c = calloc(1, sizeof(*c));
    struct ry_verbs_port *ports = NULL;
    ry_device_port *all = NULL;
    uint32_t count = 0, got = 0;
    int rc = c ? ry_config_load(c, NULL, 0) : ry_fail(RY_ERR_NO_MEMORY, "no memory");

    if (rc == RY_OK && ry_verbs_list(NULL, 0, &count, reason, sizeof(reason)) != RY_OK)
        rc = ry_fail(RY_ERR_DEVICE, "%s: load its driver, or use the emulated nic", reason);
    if (rc == RY_OK) {
        ports = calloc(count, sizeof(*ports));
        all = calloc(count, sizeof(*all));
        if (!ports || !all)
            rc = ry_fail(RY_ERR_NO_MEMORY, "no memory for %u ports", count);
    }
    if (rc == RY_OK && ry_verbs_list(ports, count, &got, reason, sizeof(reason)) != RY_OK)
        rc = ry_fail(RY_ERR_DEVICE, "%s", reason);
    if (rc == RY_OK) {
        count = got < count ? got : count;
        for (uint32_t i = 0; i < count; i++)
            copy_port(&all[i], &ports[i]);
        rc = number_rails(all, count, c->hca);
        if (rc == RY_OK)
            find_backups(all, count, c);
    }
    free(ports);
    free(c);
    if (rc != RY_OK) {
        free(all);
        return rc;
    }
    *out = all;
    *n = count;
    return RY_OK;
}
#else
int ry_device_ports(ry_device_port **out, uint32_t *n)
{
    (void)out;
    (void)n;
    return ry_fail(RY_ERR_UNSUPPORTED, "this build has no libibverbs, so it sees no rdma device");
}
#endif
