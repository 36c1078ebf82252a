/* SPDX-License-Identifier: Apache-2.0 */
/* Ports against GPUs, and maps that users set for one library or another. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doctor.h"

static const ry_topo_issue *find_issue(const struct ry_doctor *doctor, ry_topo_issue_kind kind)
{
    for (uint32_t i = 0; i < ry_topo_issue_count(doctor->topo); i++) {
        const ry_topo_issue *issue = ry_topo_issue_at(doctor->topo, i);
        if (issue->kind == kind)
            return issue;
    }
    return NULL;
}

static void check_port_count(struct ry_doctor *doctor, struct ry_result *result)
{
    if (ry_needs_both(doctor, result))
        return;
    const ry_topo_issue *issue = find_issue(doctor, RY_TOPO_FEWER_PORTS);
    if (!issue) {
        ry_say(result, RY_VERDICT_OK, "%u ports for %u GPUs", doctor->ports, doctor->gpus);
        return;
    }
    ry_say(result, RY_VERDICT_WARN, "%s: some GPUs share a port", issue->text);
    ry_fix(result, ry_doctor_env(doctor, "RAILYARD_HCA")
                       ? "unset RAILYARD_HCA"
                       : "railyard topo   # then plan for the shared ports, or add NICs");
}

static void check_shared_port(struct ry_doctor *doctor, struct ry_result *result)
{
    if (ry_needs_both(doctor, result))
        return;
    const ry_topo_issue *issue = find_issue(doctor, RY_TOPO_SHARED_PORT);
    if (!issue) {
        ry_say(result, RY_VERDICT_OK, "no two GPUs use one port");
        return;
    }
    /* with too few ports it cannot be otherwise; the check above says so */
    ry_say(result, find_issue(doctor, RY_TOPO_FEWER_PORTS) ? RY_VERDICT_WARN : RY_VERDICT_FAIL,
           "%s", issue->text);
    ry_fix(result, ry_doctor_env(doctor, "RAILYARD_GPU_NIC_MAP")
                       ? "unset RAILYARD_GPU_NIC_MAP"
                       : "railyard env --for railyard   # sets a map; ports are fewer than GPUs");
}

struct map_entry {
    unsigned gpu;
    char port[64];
};

enum { MAP_ENTRIES = 256 };

/* "0:mlx5_0:1,1:mlx5_1" */
static unsigned read_map(const char *text, struct map_entry *entries)
{
    unsigned count = 0;
    while (text && *text && count < MAP_ENTRIES) {
        size_t len = strcspn(text, ",");
        if (sscanf(text, "%u:%60[^,]", &entries[count].gpu, entries[count].port) == 2)
            count++;
        text += len + (text[len] == ',');
    }
    return count;
}

/* The line that sets the map of railyard's own choice in DeepEP's syntax. */
static void fix_with_map(struct ry_doctor *doctor, struct ry_result *result, const char *name)
{
    char line[480] = "";
    size_t len = 0;
    for (uint32_t g = 0; g < doctor->gpus; g++) {
        uint32_t rail;
        if (ry_topo_rails_for_gpu(doctor->topo, g, &rail, 1) == 0)
            continue;
        const ry_topo_port *port = ry_topo_port_at(doctor->topo, rail);
        int wrote = snprintf(line + len, sizeof line - len, "%s%u:%s:%u", len ? "," : "",
                             ry_topo_gpu_at(doctor->topo, g)->index, port->device, port->port);
        if (wrote < 0 || (size_t)wrote >= sizeof line - len)
            break;
        len += (size_t)wrote;
    }
    ry_fix(result, "export %s=%.450s", name, line);
}

static int sees_equal(const struct ry_doctor *doctor, uint32_t gpu, uint32_t a, uint32_t b)
{
    return ry_topo_gpu_port(doctor->topo, gpu, a) == ry_topo_gpu_port(doctor->topo, gpu, b);
}

/* NVSHMEM alone gives two GPUs at equal distance the same NIC: the map must say otherwise. */
static void check_split(struct ry_doctor *doctor, struct ry_result *result)
{
    static const char name[] = "DEEP_EP_DEVICE_TO_HCA_MAPPING";
    struct map_entry *entries = calloc(MAP_ENTRIES, sizeof *entries);
    const char *text = ry_doctor_env(doctor, name);
    unsigned count = entries ? read_map(text, entries) : 0;
    if (ry_needs_both(doctor, result)) {
        free(entries);
        return;
    }
    ry_say(result, RY_VERDICT_OK, "equally near ports are split among GPUs");
    for (unsigned i = 0; i < count; i++) {
        for (unsigned j = i + 1; j < count; j++) {
            if (strcmp(entries[i].port, entries[j].port) != 0 || entries[i].gpu == entries[j].gpu)
                continue;
            ry_say(result, RY_VERDICT_FAIL, "%s gives %s to GPU%u and to GPU%u", name,
                   entries[i].port, entries[i].gpu, entries[j].gpu);
            fix_with_map(doctor, result, name);
        }
    }
    const char *own = ry_doctor_env(doctor, "NVSHMEM_HCA_PE_MAPPING");
    int tie = 0;
    for (uint32_t a = 0; a < doctor->gpus && !tie; a++) {
        for (uint32_t b = a + 1; b < doctor->gpus && !tie; b++) {
            uint32_t mine, other;
            tie =
                ry_topo_rails_for_gpu(doctor->topo, a, &mine, 1) &&
                ry_topo_rails_for_gpu(doctor->topo, b, &other, 1) && mine != other &&
                sees_equal(doctor, a, mine, other) && sees_equal(doctor, b, mine, other) &&
                ry_topo_gpu_port(doctor->topo, a, mine) == ry_topo_gpu_port(doctor->topo, b, mine);
        }
    }
    if (result->verdict == RY_VERDICT_OK && tie && doctor->extension_count && !text && !own) {
        ry_say(
            result, RY_VERDICT_WARN,
            "two GPUs see the same nearest ports and no map is set: NVSHMEM gives both the same");
        fix_with_map(doctor, result, name);
    }
    free(entries);
}

/* A GPU that a map sends to a far port though a near one is free. */
static void check_far_map(struct ry_doctor *doctor, struct ry_result *result)
{
    static const char *const names[] = {"RAILYARD_GPU_NIC_MAP", "DEEP_EP_DEVICE_TO_HCA_MAPPING"};
    struct map_entry *entries = calloc(MAP_ENTRIES, sizeof *entries);
    unsigned seen = 0;
    if (ry_needs_both(doctor, result)) {
        free(entries);
        return;
    }
    for (int n = 0; n < 2 && entries; n++) {
        unsigned count = read_map(ry_doctor_env(doctor, names[n]), entries);
        seen += count;
        for (unsigned i = 0; i < count; i++) {
            int32_t port = ry_topo_find_port(doctor->topo, entries[i].port);
            uint32_t gpu = 0;
            while (gpu < doctor->gpus &&
                   ry_topo_gpu_at(doctor->topo, gpu)->index != entries[i].gpu)
                gpu++;
            if (port < 0 || gpu == doctor->gpus)
                continue;
            ry_distance mine = ry_topo_gpu_port(doctor->topo, gpu, (uint32_t)port);
            for (uint32_t p = 0; p < doctor->ports; p++) {
                const ry_topo_port *other = ry_topo_port_at(doctor->topo, p);
                ry_distance distance = ry_topo_gpu_port(doctor->topo, gpu, p);
                if (distance >= mine || !other->active || other->excluded)
                    continue;
                ry_say(result, RY_VERDICT_FAIL, "%s sends GPU%u to %s (%s), %s:%u is nearer (%s)",
                       names[n], entries[i].gpu, entries[i].port, ry_distance_name(mine),
                       other->device, other->port, ry_distance_name(distance));
                ry_fix(result, "unset %s", names[n]);
                free(entries);
                return;
            }
        }
    }
    free(entries);
    if (seen)
        ry_say(result, RY_VERDICT_OK, "the map that is set uses the nearest ports");
    else
        ry_say(result, RY_VERDICT_NA, "no map is set");
}

const struct ry_check ry_checks_rail[] = {
    {"port-count", "sys/class/infiniband, facts/gpus",
     "With fewer usable ports than GPUs some GPUs share one and get half of it each.",
     check_port_count},
    {"shared-port", "topology.xml, RAILYARD_GPU_NIC_MAP",
     "Two GPUs on one port while others idle halve the bandwidth of both. It comes from a map that "
     "was set by hand, or from a list of devices that is too short.",
     check_shared_port},
    {"split", "topology.xml, DEEP_EP_DEVICE_TO_HCA_MAPPING, NVSHMEM_HCA_PE_MAPPING",
     "Where two GPUs and two NICs hang under one switch, both NICs are equally near to both GPUs. "
     "NVSHMEM, asked by two processes that do not know of each other, gives both the first NIC and "
     "leaves the second idle. A map by GPU (DeepEP with its GPU-NIC map patch) splits them.",
     check_split},
    {"far-map", "RAILYARD_GPU_NIC_MAP, DEEP_EP_DEVICE_TO_HCA_MAPPING, topology.xml",
     "A map that sends a GPU to a NIC behind another switch or socket costs most of the bandwidth: "
     "6.5 GB/s were seen where 70 to 80 were there.",
     check_far_map},
    {NULL, NULL, NULL, NULL},
};
