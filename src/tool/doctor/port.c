/* SPDX-License-Identifier: Apache-2.0 */
/* The state of each port. A port that no GPU would use does not fail a check. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doctor.h"

static char *port_fact(struct ry_doctor *doctor, const ry_topo_port *port, const char *name)
{
    return ry_facts_textf(doctor->facts, "sys/class/infiniband/%s/ports/%u/%s", port->device,
                          port->port, name);
}

static int is_ours(const ry_topo_port *port)
{
    return port->excluded == RY_EXCLUDED_NOT;
}

static void check_port_state(struct ry_doctor *doctor, struct ry_result *result)
{
    unsigned down = 0;
    const ry_topo_port *first = NULL;
    char interface[64];
    if (ry_needs_port(doctor, result))
        return;
    for (uint32_t i = 0; i < doctor->ports; i++) {
        const ry_topo_port *port = ry_topo_port_at(doctor->topo, i);
        if (is_ours(port) && !port->active && down++ == 0)
            first = port;
    }
    if (!first) {
        ry_say(result, RY_VERDICT_OK, "all ports are active");
        return;
    }
    ry_doctor_interface(doctor, first->device, interface, sizeof interface);
    ry_say(result, RY_VERDICT_FAIL,
           "%s:%u is not active (%u of %u ports): cable, switch or "
           "subnet manager",
           first->device, first->port, down, doctor->ports);
    if (interface[0])
        ry_fix(result, "sudo ip link set %s up && sudo mlxlink -d %s --port %u", interface,
               first->bus, first->port);
    else
        ry_fix(result, "sudo mlxlink -d %s --port %u && sudo systemctl restart opensm", first->bus,
               first->port);
}

static char *device_fact(struct ry_doctor *doctor, const ry_topo_port *port, const char *name)
{
    return ry_facts_textf(doctor->facts, "sys/class/infiniband/%s/%s", port->device, name);
}

/* The best rate among ports of the same kind of card is what this one could do. */
static uint32_t best_rate(struct ry_doctor *doctor, const ry_topo_port *port)
{
    uint32_t best = 0;
    char *mine = device_fact(doctor, port, "hca_type");
    for (uint32_t i = 0; i < doctor->ports; i++) {
        const ry_topo_port *other = ry_topo_port_at(doctor->topo, i);
        char *kind = device_fact(doctor, other, "hca_type");
        if (is_ours(other) && other->is_bond == port->is_bond && mine && kind &&
            strcmp(mine, kind) == 0 && other->rate_mbps > best)
            best = other->rate_mbps;
        free(kind);
    }
    free(mine);
    return best;
}

/* 1 if the PCIe link runs below what both ends can do. */
static int is_pcie_slow(struct ry_doctor *doctor, const ry_topo_port *port)
{
    static const char *const names[] = {"link_speed", "link_width"};
    int slow = 0;
    for (int i = 0; i < 2; i++) {
        char *now = ry_facts_textf(doctor->facts, "sys/class/infiniband/%s/device/current_%s",
                                   port->device, names[i]);
        char *most = ry_facts_textf(doctor->facts, "sys/class/infiniband/%s/device/max_%s",
                                    port->device, names[i]);
        slow |= now && most && strtod(now, NULL) > 0 && strtod(now, NULL) < strtod(most, NULL);
        free(now);
        free(most);
    }
    return slow;
}

static void check_port_speed(struct ry_doctor *doctor, struct ry_result *result)
{
    if (ry_needs_port(doctor, result))
        return;
    for (uint32_t i = 0; i < doctor->ports; i++) {
        const ry_topo_port *port = ry_topo_port_at(doctor->topo, i);
        uint32_t best = best_rate(doctor, port);
        if (!is_ours(port) || !port->active)
            continue;
        if (port->rate_mbps && port->rate_mbps < best) {
            ry_say(result, RY_VERDICT_FAIL, "%s:%u runs at %u Gb/s, others like it at %u Gb/s",
                   port->device, port->port, port->rate_mbps / 1000, best / 1000);
            ry_fix(result, "sudo mlxlink -d %s --port %u --link_mode_force --speeds %uG",
                   port->bus, port->port, best / 1000);
            return;
        }
        if (is_pcie_slow(doctor, port)) {
            ry_say(result, RY_VERDICT_FAIL, "the PCIe link of %s is below what it can do",
                   port->device);
            ry_fix(result, "sudo lspci -vv -s %s | grep LnkSta; then reseat the card", port->bus);
            return;
        }
    }
    ry_say(result, RY_VERDICT_OK, "ports and their PCIe links run at full speed");
}

static void check_link_layer(struct ry_doctor *doctor, struct ry_result *result)
{
    unsigned counts[3] = {0};
    if (ry_needs_port(doctor, result))
        return;
    for (uint32_t i = 0; i < doctor->ports; i++) {
        const ry_topo_port *port = ry_topo_port_at(doctor->topo, i);
        if (is_ours(port) && port->active)
            counts[port->layer]++;
    }
    if (!counts[RY_LINK_INFINIBAND] || !counts[RY_LINK_ETHERNET]) {
        ry_say(result, RY_VERDICT_OK, "one link layer: %s",
               counts[RY_LINK_INFINIBAND] ? "InfiniBand"
               : counts[RY_LINK_ETHERNET] ? "Ethernet"
                                          : "unknown");
        return;
    }
    ry_link_layer odd = counts[RY_LINK_INFINIBAND] < counts[RY_LINK_ETHERNET] ? RY_LINK_INFINIBAND
                                                                              : RY_LINK_ETHERNET;
    for (uint32_t i = 0; i < doctor->ports; i++) {
        const ry_topo_port *port = ry_topo_port_at(doctor->topo, i);
        if (!is_ours(port) || !port->active || port->layer != odd)
            continue;
        ry_say(result, RY_VERDICT_FAIL,
               "%s:%u is %s, the others are %s: they cannot back each "
               "other",
               port->device, port->port, odd == RY_LINK_ETHERNET ? "Ethernet" : "InfiniBand",
               odd == RY_LINK_ETHERNET ? "InfiniBand" : "Ethernet");
        ry_fix(result,
               "sudo mlxconfig -y -d %s set LINK_TYPE_P%u=%d && sudo mlxfwreset -y -d %s "
               "reset",
               port->bus, port->port, odd == RY_LINK_ETHERNET ? 1 : 2, port->bus);
        return;
    }
}

/* The MTU of an interface, 0 if there is none. */
static unsigned interface_mtu(struct ry_doctor *doctor, const ry_topo_port *port, char *name,
                              size_t cap)
{
    ry_doctor_interface(doctor, port->device, name, cap);
    char *text = name[0]
                     ? ry_facts_textf(doctor->facts, "sys/class/infiniband/%s/device/net/%s/mtu",
                                      port->device, name)
                     : NULL;
    unsigned mtu = text ? (unsigned)strtoul(text, NULL, 10) : 0;
    free(text);
    return mtu;
}

static void check_mtu(struct ry_doctor *doctor, struct ry_result *result)
{
    char name[64];
    unsigned most = 0, seen = 0;
    if (ry_needs_port(doctor, result))
        return;
    for (uint32_t i = 0; i < doctor->ports; i++) {
        const ry_topo_port *port = ry_topo_port_at(doctor->topo, i);
        if (!is_ours(port) || port->layer != RY_LINK_ETHERNET)
            continue;
        unsigned mtu = interface_mtu(doctor, port, name, sizeof name);
        seen += mtu > 0;
        most = mtu > most ? mtu : most;
    }
    if (!seen) {
        ry_say(result, RY_VERDICT_NA, "no RoCE port");
        return;
    }
    for (uint32_t i = 0; i < doctor->ports; i++) {
        const ry_topo_port *port = ry_topo_port_at(doctor->topo, i);
        if (!is_ours(port) || port->layer != RY_LINK_ETHERNET)
            continue;
        unsigned mtu = interface_mtu(doctor, port, name, sizeof name);
        if (mtu == 0 || (mtu == most && mtu >= 4200))
            continue;
        if (mtu < most)
            ry_say(result, RY_VERDICT_FAIL,
                   "%s (%s) has MTU %u, others have %u: packets between "
                   "them are dropped",
                   name, port->device, mtu, most);
        else
            ry_say(result, RY_VERDICT_WARN,
                   "%s (%s) has MTU %u: RDMA packets are at most 1024 "
                   "bytes, 4096 need 4200",
                   name, port->device, mtu);
        ry_fix(result, "sudo ip link set dev %s mtu %u", name, most >= 4200 ? most : 9000);
        return;
    }
    ry_say(result, RY_VERDICT_OK, "all RoCE ports have MTU %u", most);
}

static int gid_is_set(const char *gid)
{
    return gid && strspn(gid, "0:") != strlen(gid);
}

/* The index of a RoCE v2 GID, the last one that stands for an IPv4 address being best; -1 if none.
 */
static int find_roce_gid(struct ry_doctor *doctor, const ry_topo_port *port)
{
    int found = -1, found_ipv4 = 0;
    for (int i = 0; i < 16; i++) {
        char name[32];
        snprintf(name, sizeof name, "gid_attrs/types/%d", i);
        char *type = port_fact(doctor, port, name);
        snprintf(name, sizeof name, "gids/%d", i);
        char *gid = port_fact(doctor, port, name);
        int ipv4 = gid && strncmp(gid, "0000:0000:0000:0000:0000:ffff:", 30) == 0;
        if (gid_is_set(gid) && type && strcmp(type, "RoCE v2") == 0 && (found < 0 || ipv4) &&
            !found_ipv4) {
            found = i;
            found_ipv4 = ipv4;
        }
        free(type);
        free(gid);
    }
    return found;
}

static void check_roce_gid(struct ry_doctor *doctor, struct ry_result *result)
{
    unsigned roce = 0;
    char name[64];
    if (ry_needs_port(doctor, result))
        return;
    for (uint32_t i = 0; i < doctor->ports; i++) {
        const ry_topo_port *port = ry_topo_port_at(doctor->topo, i);
        if (!is_ours(port) || port->layer != RY_LINK_ETHERNET || !port->active)
            continue;
        roce++;
        if (find_roce_gid(doctor, port) >= 0)
            continue;
        ry_doctor_interface(doctor, port->device, name, sizeof name);
        ry_say(result, RY_VERDICT_FAIL,
               "%s:%u has no RoCE v2 GID: its interface %s has no address", port->device,
               port->port, name);
        ry_fix(result, "sudo ip link set %s up && sudo dhclient %s", name, name);
        return;
    }
    ry_say(result, roce ? RY_VERDICT_OK : RY_VERDICT_NA,
           roce ? "all RoCE ports have a RoCE v2 GID" : "no RoCE port");
}

static void check_gid_index(struct ry_doctor *doctor, struct ry_result *result)
{
    static const char *const names[] = {"NVSHMEM_IB_GID_INDEX", "NCCL_IB_GID_INDEX"};
    unsigned set = 0;
    if (ry_needs_port(doctor, result))
        return;
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        const char *value = ry_doctor_env(doctor, names[n]);
        if (!value || strcmp(value, "-1") == 0)
            continue;
        set++;
        for (uint32_t i = 0; i < doctor->ports; i++) {
            const ry_topo_port *port = ry_topo_port_at(doctor->topo, i);
            char path[32];
            snprintf(path, sizeof path, "gids/%lu", strtoul(value, NULL, 10));
            char *gid = port_fact(doctor, port, path);
            int ok = gid_is_set(gid);
            free(gid);
            if (ok || !is_ours(port) || !port->active)
                continue;
            int better = find_roce_gid(doctor, port);
            ry_say(result, RY_VERDICT_FAIL, "%s=%s, but %s:%u has nothing there", names[n], value,
                   port->device, port->port);
            if (better >= 0)
                ry_fix(result, "export %s=%d", names[n], better);
            else
                ry_fix(result, "unset %s", names[n]);
            return;
        }
    }
    ry_say(result, set ? RY_VERDICT_OK : RY_VERDICT_NA,
           set ? "the GID index that is set has a GID on every port" : "no GID index is set");
}

/* GPU memory was registered with each device, which alone tells for sure. */
static void check_registration(struct ry_doctor *doctor, struct ry_result *result)
{
    if (ry_needs_both(doctor, result))
        return;
    char *text = ry_facts_text(doctor->facts, "facts/register"), *rest = NULL;
    if (!text || !*text) {
        free(text);
        ry_say(result, RY_VERDICT_NA, "not tried: no CUDA driver or no libibverbs here");
        return;
    }
    ry_say(result, RY_VERDICT_OK, "GPU memory registers on every port");
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char port[64], word[16], error[32] = "";
        if (sscanf(line, "%63s %15s %31s", port, word, error) < 2 || strcmp(word, "failed") != 0)
            continue;
        int32_t at = ry_topo_find_port(doctor->topo, port);
        if (at >= 0 && !is_ours(ry_topo_port_at(doctor->topo, (uint32_t)at)))
            continue;
        int second = at >= 0 && strstr(ry_topo_port_at(doctor->topo, (uint32_t)at)->bus, ".1");
        ry_say(result, RY_VERDICT_FAIL, "GPU memory does not register on %s (%s)%s", port, error,
               second ? ": the second port of its card" : "");
        if (second)
            ry_fix(result, "export RAILYARD_HCA=^%.*s NVSHMEM_HCA_LIST=^%s",
                   (int)strcspn(port, ":"), port, port);
        else
            ry_fix(result, "sudo modprobe nvidia_peermem && sudo /etc/init.d/openibd restart");
        break;
    }
    free(text);
}

const struct ry_check ry_checks_port[] = {
    {"port-state", "sys/class/infiniband/*/ports/*/state",
     "A port that is not ACTIVE carries nothing: the cable is out, the switch port is shut, or on "
     "InfiniBand no subnet manager has seen it. Jobs that list it stop at start or use another.",
     check_port_state},
    {"port-speed", "sys/class/infiniband/*/ports/*/rate, device/current_link_*",
     "A port that trained to a lower rate than others of the same kind, or a card in a narrow or "
     "slow PCIe slot, holds back every exchange it takes part in.",
     check_port_speed},
    {"link-layer", "sys/class/infiniband/*/ports/*/link_layer",
     "Ports in InfiniBand and in Ethernet mode reach different fabrics. A port that was left in "
     "the wrong mode cannot talk to its peers and backs nothing.",
     check_link_layer},
    {"mtu", "sys/class/infiniband/*/device/net/*/mtu",
     "RoCE takes its packet size from the interface's MTU. Ports with different ones lose large "
     "packets in one direction, and small ones cost bandwidth.",
     check_mtu},
    {"roce-gid", "sys/class/infiniband/*/ports/*/gids, gid_attrs/types",
     "A RoCE v2 address (GID) appears when the port's interface is up and has an IP address. "
     "Without it queue pairs cannot be connected across routers, mostly not at all.",
     check_roce_gid},
    {"gid-index", "NVSHMEM_IB_GID_INDEX, NCCL_IB_GID_INDEX, sys/class/infiniband/*/ports/*/gids",
     "A fixed GID index must hold a GID on every port of every machine; indices move when "
     "addresses are added or removed. An empty one gives errors when queue pairs are connected.",
     check_gid_index},
    {"gpu-registration", "facts/register",
     "Registers a piece of GPU memory with each device. It can fail on the second port of a card "
     "while the first works, and then only when the second is first used.",
     check_registration},
    {NULL, NULL, NULL, NULL},
};
