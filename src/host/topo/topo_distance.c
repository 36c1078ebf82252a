/* SPDX-License-Identifier: Apache-2.0 */
/* Where each device sits and how far apart two of them are, from hwloc's tree. */
#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topo_internal.h"
#include "xml.h"

enum { BRIDGES = 32 }; /* PCI bridges above one device, at most */

/* A device's place: its bridges from the nearest up, and the first thing above that is no I/O. */
struct place {
    unsigned count;
    int has_host_bridge;
    hwloc_obj_t device;
    hwloc_obj_t bridges[BRIDGES];
    hwloc_obj_t host_bridge;
    hwloc_obj_t above;
};

const char *ry_distance_name(ry_distance distance)
{
    static const char *const names[] = {"X", "PIX", "PXB", "PHB", "NODE", "SYS"};
    return (unsigned)distance < sizeof names / sizeof names[0] ? names[distance] : "?";
}

static void find_place(hwloc_topology_t tree, const char *bus, struct place *place)
{
    unsigned domain, number, device, function;
    *place = (struct place){0};
    if (sscanf(bus, "%x:%x:%x.%x", &domain, &number, &device, &function) != 4)
        return;
    hwloc_obj_t at = hwloc_get_pcidev_by_busid(tree, domain, number, device, function);
    place->device = at;
    while (at && (at->type == HWLOC_OBJ_PCI_DEVICE || at->type == HWLOC_OBJ_BRIDGE)) {
        hwloc_obj_t up = at->parent;
        if (!up || up->type != HWLOC_OBJ_BRIDGE || !up->attr) {
            at = up;
            break;
        }
        if (up->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST)
            place->host_bridge = up;
        else if (place->count < BRIDGES)
            place->bridges[place->count++] = up;
        at = up;
    }
    while (at && !at->nodeset)
        at = at->parent;
    place->above = at;
}

static int all_nodes(hwloc_topology_t tree, const struct place *place)
{
    hwloc_obj_t root = hwloc_get_root_obj(tree);
    return !place->above || !root || !root->nodeset ||
           hwloc_bitmap_isequal(place->above->nodeset, root->nodeset);
}

static ry_distance measure(hwloc_topology_t tree, const struct place *a, const struct place *b)
{
    if (!a->device || !b->device)
        return RY_DISTANCE_SYS;
    if (a->device == b->device)
        return RY_DISTANCE_PIX; /* two ports of one function */
    for (unsigned i = 0; i < a->count; i++) {
        for (unsigned j = 0; j < b->count; j++) {
            if (a->bridges[i] == b->bridges[j])
                return i <= 1 && j <= 1 ? RY_DISTANCE_PIX : RY_DISTANCE_PXB;
        }
    }
    if (a->host_bridge && a->host_bridge == b->host_bridge)
        return RY_DISTANCE_PHB;
    if (!a->above || !b->above)
        return RY_DISTANCE_SYS;
    /* a device whose node nobody knows is attached to the whole machine: assume the worst there */
    int several = hwloc_get_nbobjs_by_type(tree, HWLOC_OBJ_NUMANODE) > 1;
    if (several && (all_nodes(tree, a) || all_nodes(tree, b)))
        return RY_DISTANCE_SYS;
    return hwloc_bitmap_intersects(a->above->nodeset, b->above->nodeset) ? RY_DISTANCE_NODE
                                                                         : RY_DISTANCE_SYS;
}

static void describe(hwloc_topology_t tree, const struct place *place, int32_t *numa, char *cpus,
                     size_t cap)
{
    cpus[0] = '\0';
    if (!place->above)
        return;
    int several = hwloc_get_nbobjs_by_type(tree, HWLOC_OBJ_NUMANODE) > 1;
    if (!several || !all_nodes(tree, place))
        *numa = hwloc_bitmap_first(place->above->nodeset);
    if (place->above->cpuset)
        hwloc_bitmap_list_snprintf(cpus, cap, place->above->cpuset);
}

/* A machine without driver or NVML: display and 3D controllers of NVIDIA are its GPUs. */
static void find_bare_gpus(ry_topo *topo, hwloc_topology_t tree)
{
    hwloc_obj_t at = NULL;
    while (topo->gpu_count < RY_TOPO_GPUS && (at = hwloc_get_next_pcidev(tree, at))) {
        const struct hwloc_pcidev_attr_s *pci = &at->attr->pcidev;
        if (pci->vendor_id != 0x10de || (pci->class_id >> 8) != 0x03)
            continue;
        ry_topo_gpu *gpu = &topo->gpus[topo->gpu_count];
        *gpu = (ry_topo_gpu){.index = topo->gpu_count, .numa = -1, .name = "GPU"};
        snprintf(gpu->bus, sizeof gpu->bus, "%04x:%02x:%02x.%x", (unsigned)pci->domain,
                 (unsigned)pci->bus, (unsigned)pci->dev, (unsigned)pci->func);
        topo->gpu_count++;
    }
}

static int measure_all(ry_topo *topo, hwloc_topology_t tree)
{
    uint32_t gpus = topo->gpu_count, ports = topo->port_count;
    struct place *places = calloc((size_t)gpus + ports + 1, sizeof *places);
    if (!places)
        return RY_ERR_NO_MEMORY;
    struct place *port_places = places + gpus;
    for (uint32_t i = 0; i < gpus; i++) {
        ry_topo_gpu *gpu = &topo->gpus[i];
        find_place(tree, gpu->bus, &places[i]);
        describe(tree, &places[i], &gpu->numa, gpu->cpus, sizeof gpu->cpus);
    }
    for (uint32_t i = 0; i < ports; i++) {
        ry_topo_port *port = &topo->ports[i];
        find_place(tree, port->bus, &port_places[i]);
        describe(tree, &port_places[i], &port->numa, port->cpus, sizeof port->cpus);
    }
    for (uint32_t i = 0; i < gpus; i++) {
        for (uint32_t j = 0; j < gpus; j++)
            topo->gpu_gpu[i][j] =
                (uint8_t)(i == j ? RY_DISTANCE_SELF : measure(tree, &places[i], &places[j]));
        for (uint32_t j = 0; j < ports; j++)
            topo->gpu_port[i][j] = (uint8_t)measure(tree, &places[i], &port_places[j]);
    }
    for (uint32_t i = 0; i < ports; i++) {
        for (uint32_t j = 0; j < ports; j++) {
            ry_distance far = measure(tree, &port_places[i], &port_places[j]);
            if (i == j)
                far = RY_DISTANCE_SELF;
            else if (topo->ports[i].card == topo->ports[j].card)
                far = RY_DISTANCE_PIX;
            topo->port_port[i][j] = (uint8_t)far;
        }
    }
    free(places);
    return RY_OK;
}

/* hwloc is given only what passed our own reading of the XML: it stops the process on some inputs.
 */
static int load_tree(const char *xml, hwloc_topology_t *out, char *why, size_t why_bytes)
{
    struct ry_text reduced = {0};
    int status = ry_xml_reduce(xml, &reduced, why, why_bytes);
    ry_text_add(&reduced, "", 1);
    if (status == RY_OK && reduced.failed)
        status = RY_ERR_NO_MEMORY;
    hwloc_topology_t tree;
    if (status == RY_OK && hwloc_topology_init(&tree) != 0)
        status = RY_ERR_NO_MEMORY;
    if (status != RY_OK) {
        free(reduced.data);
        return status;
    }
    hwloc_topology_set_io_types_filter(tree, HWLOC_TYPE_FILTER_KEEP_ALL);
    int failed = hwloc_topology_set_xmlbuffer(tree, reduced.data, (int)reduced.len) != 0 ||
                 hwloc_topology_load(tree) != 0;
    free(reduced.data);
    if (failed) {
        hwloc_topology_destroy(tree);
        if (why)
            snprintf(why, why_bytes,
                     "hwloc cannot read topology.xml: export it again with lstopo");
        return RY_ERR_INVALID;
    }
    *out = tree;
    return RY_OK;
}

int ry_topo_measure(ry_topo *topo, ry_facts *facts, char *why, size_t why_bytes)
{
    char *xml = ry_facts_text(facts, "topology.xml");
    if (!xml) {
        if (why)
            snprintf(why, why_bytes, "no topology.xml: this is no record, or hwloc failed here");
        return RY_ERR_INVALID;
    }
    hwloc_topology_t tree;
    int status = load_tree(xml, &tree, why, why_bytes);
    free(xml);
    if (status != RY_OK)
        return status;
    int nodes = hwloc_get_nbobjs_by_type(tree, HWLOC_OBJ_NUMANODE);
    topo->numa_count = nodes > 0 ? (uint32_t)nodes : 1;
    if (topo->gpu_count == 0)
        find_bare_gpus(topo, tree);
    status = measure_all(topo, tree);
    hwloc_topology_destroy(tree);
    return status;
}

ry_distance ry_topo_gpu_port(const ry_topo *topo, uint32_t gpu, uint32_t port)
{
    return (ry_distance)topo->gpu_port[gpu][port];
}

ry_distance ry_topo_gpu_gpu(const ry_topo *topo, uint32_t a, uint32_t b)
{
    return (ry_distance)topo->gpu_gpu[a][b];
}

ry_distance ry_topo_port_port(const ry_topo *topo, uint32_t a, uint32_t b)
{
    return (ry_distance)topo->port_port[a][b];
}

uint32_t ry_topo_nvlinks(const ry_topo *topo, uint32_t a, uint32_t b)
{
    return topo->nvlinks[a][b];
}
