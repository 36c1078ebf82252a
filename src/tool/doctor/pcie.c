/* SPDX-License-Identifier: Apache-2.0 */
/* The way between GPU and NIC. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doctor.h"

/* Bits of the ACS control register that send peer traffic up to the root: P2P request redirect,
 * P2P completion redirect, upstream forwarding. Source validation alone does no harm. */
enum { ACS_REDIRECT = 0x0004 | 0x0008 | 0x0010 };

static char *pcie_fact(struct ry_doctor *doctor, struct ry_result *result)
{
    char *text = ry_facts_text(doctor->facts, "facts/pcie");
    if (!text)
        ry_say(result, RY_VERDICT_NA, "PCIe registers cannot be read: run as root");
    return text;
}

static void check_acs(struct ry_doctor *doctor, struct ry_result *result)
{
    if (ry_needs_both(doctor, result))
        return;
    char *text = pcie_fact(doctor, result), *rest = NULL;
    if (!text)
        return;
    unsigned count = 0;
    char first[24] = "";
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char bus[24];
        unsigned acs;
        if (sscanf(line, "%23s acs=%x", bus, &acs) == 2 && (acs & ACS_REDIRECT) && count++ == 0)
            memcpy(first, bus, sizeof first);
    }
    free(text);
    if (!count) {
        ry_say(result, RY_VERDICT_OK, "no bridge redirects peer traffic");
        return;
    }
    ry_say(result, RY_VERDICT_FAIL,
           "ACS at %s (%u in all) sends traffic between GPU and NIC up to the CPU", first, count);
    ry_fix(result,
           "for b in $(lspci -D | awk '/PCI bridge/{print $1}'); do sudo setpci -s $b "
           "ECAP_ACS+0x6.w=0000 2>/dev/null; done   # lasts until reboot; better off in the "
           "firmware setup");
}

/* Peer traffic through an IOMMU that translates; a pass-through ("identity") domain is fine. */
static void check_iommu(struct ry_doctor *doctor, struct ry_result *result)
{
    char **names;
    unsigned translated = 0, seen = 0;
    if (ry_needs_both(doctor, result))
        return;
    unsigned count = ry_facts_list(doctor->facts, "sys/kernel/iommu_groups", &names);
    for (unsigned i = 0; i < count; i++) {
        char *type = ry_facts_textf(doctor->facts, "sys/kernel/iommu_groups/%s/type", names[i]);
        seen += type != NULL;
        translated += type && strncmp(type, "DMA", 3) == 0;
        free(type);
    }
    ry_facts_free_names(names, count);
    char *line = ry_facts_text(doctor->facts, "proc/cmdline");
    int amd = line && strstr(line, "amd_iommu");
    free(line);
    if (!seen) {
        ry_say(result, RY_VERDICT_OK, "no IOMMU is in the way");
    } else if (!translated) {
        ry_say(result, RY_VERDICT_OK, "the IOMMU passes devices through");
    } else {
        ry_say(result, RY_VERDICT_FAIL,
               "the IOMMU translates for %u groups of devices: GPU and NIC meet in the CPU",
               translated);
        ry_fix(result,
               "sudo sed -i 's/^GRUB_CMDLINE_LINUX=\"/&iommu=pt%s /' /etc/default/grub && "
               "sudo update-grub && sudo reboot",
               amd ? " amd_iommu=on" : "");
    }
}

static void check_relaxed_ordering(struct ry_doctor *doctor, struct ry_result *result)
{
    if (ry_needs_both(doctor, result))
        return;
    char *text = pcie_fact(doctor, result), *rest = NULL;
    if (!text)
        return;
    ry_say(result, RY_VERDICT_OK, "relaxed ordering is enabled on all NICs");
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char bus[24];
        int relaxed;
        if (sscanf(line, "%23s acs=%*x relaxed=%d", bus, &relaxed) != 2 || relaxed)
            continue;
        for (uint32_t i = 0; i < doctor->ports; i++) {
            const ry_topo_port *port = ry_topo_port_at(doctor->topo, i);
            if (strcmp(port->bus, bus) != 0)
                continue;
            ry_say(result, RY_VERDICT_WARN,
                   "%s may not use relaxed ordering: its writes wait for each other",
                   port->device);
            ry_fix(result, "sudo setpci -s %s CAP_EXP+8.w=0010:0010", bus);
        }
    }
    free(text);
}

static void check_socket(struct ry_doctor *doctor, struct ry_result *result)
{
    if (ry_needs_both(doctor, result))
        return;
    for (uint32_t i = 0; i < ry_topo_issue_count(doctor->topo); i++) {
        const ry_topo_issue *issue = ry_topo_issue_at(doctor->topo, i);
        if (issue->kind != RY_TOPO_FAR)
            continue;
        uint32_t gpu = (uint32_t)issue->gpu;
        ry_say(result, RY_VERDICT_WARN, "%s", issue->text);
        for (uint32_t p = 0; p < doctor->ports; p++) {
            const ry_topo_port *port = ry_topo_port_at(doctor->topo, p);
            if (port->numa != ry_topo_gpu_at(doctor->topo, gpu)->numa || !port->active ||
                port->excluded)
                continue;
            ry_fix(result, "unset RAILYARD_GPU_NIC_MAP   # %s:%u is nearer", port->device,
                   port->port);
            return;
        }
        ry_fix(result,
               "numactl --cpunodebind=%d --membind=%d COMMAND   # and move a NIC to that "
               "socket's slots",
               ry_topo_gpu_at(doctor->topo, gpu)->numa, ry_topo_gpu_at(doctor->topo, gpu)->numa);
        return;
    }
    ry_say(result, RY_VERDICT_OK, "each GPU and its rails are on one socket");
}

const struct ry_check ry_checks_pcie[] = {
    {"acs", "facts/pcie",
     "Access Control Services in a PCIe switch can redirect traffic between two devices below it "
     "up to the root complex. GPU and NIC then share the link to the CPU and lose most of their "
     "bandwidth. Virtual machines need it on; bare metal does not.",
     check_acs},
    {"iommu", "sys/kernel/iommu_groups/*/type, proc/cmdline",
     "An IOMMU that translates addresses forces traffic between GPU and NIC through the CPU. "
     "Pass-through mode (iommu=pt) leaves devices of the host alone.",
     check_iommu},
    {"relaxed-ordering", "facts/pcie",
     "Relaxed ordering lets writes of a NIC overtake each other on PCIe; on many processors a NIC "
     "reaches its rate only with it.",
     check_relaxed_ordering},
    {"socket", "topology.xml, facts/gpus",
     "Between sockets, traffic of GPU and NIC crosses the processors' link, at a fraction of the "
     "bandwidth and with twice the latency.",
     check_socket},
    {NULL, NULL, NULL, NULL},
};
