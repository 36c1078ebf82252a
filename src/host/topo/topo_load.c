/* SPDX-License-Identifier: Apache-2.0 */
/* Which GPUs and RDMA ports there are. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "facts_internal.h"
#include "topo_internal.h"

/* Copies a device's name. It ends up in a terminal and in shell lines, so only plain characters.
 */
static void copy_word(char *to, size_t cap, const char *from)
{
    size_t len = 0;
    for (; len + 1 < cap && *from; from++)
        to[len++] = isalnum((unsigned char)*from) || strchr("_-.", *from) ? *from : '_';
    to[len] = '\0';
}

static void copy_line(char *to, size_t cap, const char *from)
{
    size_t len = 0;
    while (len + 1 < cap && (unsigned char)from[len] >= 0x20) {
        to[len] = (unsigned char)from[len] < 0x7f ? from[len] : '?';
        len++;
    }
    to[len] = '\0';
}

/* Lower case, four hex digits of domain: the form that sysfs has. */
static void copy_bus(char *to, size_t cap, const char *from)
{
    unsigned domain, bus, device, function;
    if (sscanf(from, "%8x:%2x:%2x.%1x", &domain, &bus, &device, &function) == 4)
        snprintf(to, cap, "%04x:%02x:%02x.%x", domain & 0xffffff, bus, device, function);
    else
        to[0] = '\0';
}

static void add_gpu(ry_topo *topo, unsigned index, const char *bus, unsigned sm, const char *name)
{
    if (topo->gpu_count == RY_TOPO_GPUS)
        return;
    ry_topo_gpu *gpu = &topo->gpus[topo->gpu_count++];
    gpu->index = index;
    gpu->sm = sm;
    gpu->numa = -1;
    copy_bus(gpu->bus, sizeof gpu->bus, bus);
    copy_line(gpu->name, sizeof gpu->name, *name ? name : "GPU");
}

static void set_nvlinks(ry_topo *topo, unsigned a, unsigned b, unsigned links)
{
    uint32_t i = 0, j = 0;
    while (i < topo->gpu_count && topo->gpus[i].index != a)
        i++;
    while (j < topo->gpu_count && topo->gpus[j].index != b)
        j++;
    if (i == topo->gpu_count || j == topo->gpu_count || i == j || links > 255)
        return;
    topo->nvlinks[i][j] = topo->nvlinks[j][i] = (uint8_t)links;
}

/* Lines "gpu INDEX BUS SM NAME" and "nvlink A B LINKS". */
static void read_gpus(ry_topo *topo, ry_facts *facts)
{
    char *text = ry_facts_text(facts, "facts/gpus");
    char *rest = NULL;
    for (char *line = text ? strtok_r(text, "\n", &rest) : NULL; line;
         line = strtok_r(NULL, "\n", &rest)) {
        unsigned a, b, links;
        char bus[24];
        int name_at = 0;
        if (sscanf(line, "gpu %4u %23s %4u %n", &a, bus, &b, &name_at) == 3 && name_at > 0)
            add_gpu(topo, a, bus, b, line + name_at);
        else if (sscanf(line, "nvlink %4u %4u %4u", &a, &b, &links) == 3)
            set_nvlinks(topo, a, b, links);
    }
    free(text);
    if (topo->gpu_count > 0)
        return;
    /* a driver without NVML still lists its GPUs */
    char **names;
    unsigned count = ry_facts_list(facts, "proc/driver/nvidia/gpus", &names);
    for (unsigned i = 0; i < count; i++)
        add_gpu(topo, i, names[i], 0, "");
    ry_facts_free_names(names, count);
}

static uint32_t read_rate_mbps(const char *text)
{
    double gbps = text ? strtod(text, NULL) : 0;
    return gbps > 0 && gbps < 1e6 ? (uint32_t)(gbps * 1000) : 0;
}

static void read_port(ry_facts *facts, const char *dir, ry_topo_port *port)
{
    char *state = ry_facts_textf(facts, "%s/ports/%u/state", dir, port->port);
    char *rate = ry_facts_textf(facts, "%s/ports/%u/rate", dir, port->port);
    char *layer = ry_facts_textf(facts, "%s/ports/%u/link_layer", dir, port->port);
    port->active = !state || strstr(state, "ACTIVE") != NULL;
    port->rate_mbps = read_rate_mbps(rate);
    if (layer && strcmp(layer, "InfiniBand") == 0)
        port->layer = RY_LINK_INFINIBAND;
    else if (layer && strcmp(layer, "Ethernet") == 0)
        port->layer = RY_LINK_ETHERNET;
    free(state);
    free(rate);
    free(layer);
}

/* The PCI address in a uevent file. */
static void read_bus(ry_facts *facts, const char *dir, const char *below, char *bus, size_t cap)
{
    bus[0] = '\0';
    char *text = ry_facts_textf(facts, "%s/%s", dir, below);
    const char *at = text ? strstr(text, "PCI_SLOT_NAME=") : NULL;
    if (at)
        copy_bus(bus, cap, at + strlen("PCI_SLOT_NAME="));
    free(text);
}

/* Functions of one card share domain, bus and device; a virtual function counts to its card. */
static uint32_t card_of(const ry_topo *topo, const char *bus, uint32_t fresh, char cards[][24])
{
    for (uint32_t i = 0; i < topo->port_count; i++) {
        size_t len = strcspn(bus, ".");
        if (*bus && strncmp(cards[i], bus, len) == 0 && cards[i][len] == '.')
            return topo->ports[i].card;
    }
    return fresh;
}

static void read_device(ry_topo *topo, ry_facts *facts, const char *name, uint32_t nic,
                        char cards[][24])
{
    char dir[128], sub[160], card_bus[24], bus[24];
    if (snprintf(dir, sizeof dir, "sys/class/infiniband/%s", name) >= (int)sizeof dir)
        return;
    snprintf(sub, sizeof sub, "%s/ports", dir);
    char **ports;
    unsigned count = ry_facts_list(facts, sub, &ports);
    read_bus(facts, dir, "device/uevent", bus, sizeof bus);
    read_bus(facts, dir, "device/physfn/uevent", card_bus, sizeof card_bus);
    int is_virtual = card_bus[0] != '\0';
    if (!is_virtual)
        memcpy(card_bus, bus, sizeof bus);
    uint32_t card = card_of(topo, card_bus, nic, cards);
    for (unsigned i = 0; i < count && topo->port_count < RY_TOPO_PORTS; i++) {
        unsigned number = (unsigned)strtoul(ports[i], NULL, 10);
        if (number == 0 || number > 255)
            continue;
        ry_topo_port *port = &topo->ports[topo->port_count];
        memcpy(cards[topo->port_count++], card_bus, sizeof card_bus);
        copy_word(port->device, sizeof port->device, name);
        memcpy(port->bus, bus, sizeof bus);
        port->nic = nic;
        port->card = card;
        port->port = number;
        port->device_ports = count;
        port->numa = -1;
        port->is_virtual = (uint8_t)is_virtual;
        port->is_bond = strstr(name, "bond") != NULL;
        read_port(facts, dir, port);
    }
    ry_facts_free_names(ports, count);
}

static void read_ports(ry_topo *topo, ry_facts *facts)
{
    char(*cards)[24] = calloc(RY_TOPO_PORTS, sizeof *cards);
    char **names;
    unsigned count = ry_facts_list(facts, "sys/class/infiniband", &names);
    for (unsigned i = 0; cards && i < count; i++)
        read_device(topo, facts, names[i], i, cards);
    ry_facts_free_names(names, count);
    free(cards);
    for (uint32_t i = 0; i < topo->port_count; i++) {
        for (uint32_t j = 0; topo->ports[i].is_virtual && j < topo->port_count; j++) {
            if (!topo->ports[j].is_virtual && topo->ports[j].card == topo->ports[i].card)
                topo->ports[i].excluded = RY_EXCLUDED_VIRTUAL;
        }
    }
}

int ry_topo_from_facts(ry_facts *facts, const ry_topo_options *options, ry_topo **out, char *why,
                       size_t why_bytes)
{
    ry_topo *topo = calloc(1, sizeof *topo);
    if (!topo)
        return RY_ERR_NO_MEMORY;
    if (why && why_bytes)
        why[0] = '\0';
    read_gpus(topo, facts);
    read_ports(topo, facts);
    int status = ry_topo_measure(topo, facts, why, why_bytes);
    if (status == RY_OK && options)
        status = ry_topo_apply_options(topo, options, why, why_bytes);
    if (status == RY_OK) {
        ry_topo_choose_rails(topo);
        status = ry_topo_find_issues(topo);
    }
    if (status != RY_OK) {
        ry_topo_free(topo);
        return status;
    }
    *out = topo;
    return RY_OK;
}

int ry_topo_load(const char *root, const ry_topo_options *options, ry_topo **out, char *why,
                 size_t why_bytes)
{
    ry_facts *facts;
    int status = ry_facts_open(root, &facts);
    if (status != RY_OK) {
        if (why && why_bytes)
            snprintf(why, why_bytes, "cannot open the record '%s' as a directory",
                     root ? root : "/");
        return status;
    }
    status = ry_topo_from_facts(facts, options, out, why, why_bytes);
    ry_facts_close(facts);
    return status;
}

void ry_topo_free(ry_topo *topo)
{
    if (!topo)
        return;
    free(topo->issues);
    free(topo);
}

uint32_t ry_topo_gpu_count(const ry_topo *topo)
{
    return topo->gpu_count;
}

uint32_t ry_topo_port_count(const ry_topo *topo)
{
    return topo->port_count;
}

uint32_t ry_topo_numa_count(const ry_topo *topo)
{
    return topo->numa_count;
}

const ry_topo_gpu *ry_topo_gpu_at(const ry_topo *topo, uint32_t i)
{
    return i < topo->gpu_count ? &topo->gpus[i] : NULL;
}

const ry_topo_port *ry_topo_port_at(const ry_topo *topo, uint32_t i)
{
    return i < topo->port_count ? &topo->ports[i] : NULL;
}

int32_t ry_topo_find_port(const ry_topo *topo, const char *name)
{
    size_t len = strcspn(name, ":");
    unsigned long number = name[len] == ':' ? strtoul(name + len + 1, NULL, 10) : 0;
    for (uint32_t i = 0; i < topo->port_count; i++) {
        const ry_topo_port *port = &topo->ports[i];
        if (strlen(port->device) == len && strncmp(port->device, name, len) == 0 &&
            (number == 0 || number == port->port))
            return (int32_t)i;
    }
    return -1;
}
