/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of several libraries that contradict each other or the machine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doctor.h"

static const char *const lists[] = {"NVSHMEM_HCA_LIST", "NCCL_IB_HCA", "RAILYARD_HCA",
                                    "NVSHMEM_HCA_PE_MAPPING", "DEEP_EP_DEVICE_TO_HCA_MAPPING"};

enum { LISTS = sizeof lists / sizeof lists[0] };

/* Takes the next entry of a list; *device gets "name" or "name:port" without marks and counts. */
static const char *next_entry(const char *at, char *device, size_t cap, int *leaves_out)
{
    size_t len = strcspn(at, ",");
    const char *from = at, *end = at + len;
    *leaves_out = *from == '^';
    while (from < end && strchr("^=", *from))
        from++;
    if (end > from && *from >= '0' && *from <= '9' && memchr(from, ':', (size_t)(end - from)))
        from = (const char *)memchr(from, ':', (size_t)(end - from)) + 1; /* GPU:device */
    const char *stop = from;
    int colons = 0;
    while (stop < end && !(*stop == ':' && ++colons == 2)) /* device:port:count */
        stop++;
    snprintf(device, cap, "%.*s", (int)(stop - from), from);
    return *end == ',' ? end + 1 : end;
}

/* NCCL takes a name as a prefix unless it begins with "=". */
static int names_a_port(struct ry_doctor *doctor, const char *device, int as_prefix)
{
    if (ry_topo_find_port(doctor->topo, device) >= 0)
        return 1;
    for (uint32_t i = 0; as_prefix && i < doctor->ports; i++) {
        if (strncmp(ry_topo_port_at(doctor->topo, i)->device, device, strlen(device)) == 0)
            return 1;
    }
    return 0;
}

static void check_unknown_device(struct ry_doctor *doctor, struct ry_result *result)
{
    unsigned set = 0;
    char device[64];
    if (ry_needs_port(doctor, result))
        return;
    for (int n = 0; n < LISTS; n++) {
        const char *at = ry_doctor_env(doctor, lists[n]);
        int leaves_out;
        set += at != NULL;
        while (at && *at) {
            int prefix = strcmp(lists[n], "NCCL_IB_HCA") == 0 && *at != '=';
            at = next_entry(at, device, sizeof device, &leaves_out);
            if (!device[0] || names_a_port(doctor, device, prefix))
                continue;
            ry_say(result, RY_VERDICT_FAIL, "%s names %s, which is no port of this machine",
                   lists[n], device);
            ry_fix(result, "eval \"$(railyard env --for %s)\"",
                   n == 1   ? "nccl"
                   : n == 2 ? "railyard"
                   : n == 4 ? "deepep"
                            : "nvshmem");
            return;
        }
    }
    ry_say(result, set ? RY_VERDICT_OK : RY_VERDICT_NA,
           set ? "all devices that settings name are there" : "no setting names a device");
}

static void check_inactive_device(struct ry_doctor *doctor, struct ry_result *result)
{
    unsigned set = 0;
    char device[64];
    if (ry_needs_port(doctor, result))
        return;
    for (int n = 0; n < LISTS; n++) {
        const char *at = ry_doctor_env(doctor, lists[n]);
        int leaves_out = 0;
        set += at != NULL;
        while (at && *at) {
            at = next_entry(at, device, sizeof device, &leaves_out);
            int32_t port = device[0] ? ry_topo_find_port(doctor->topo, device) : -1;
            if (port < 0 || leaves_out || ry_topo_port_at(doctor->topo, (uint32_t)port)->active)
                continue;
            ry_say(result, RY_VERDICT_FAIL, "%s names %s, which is not active", lists[n], device);
            ry_fix(result, "eval \"$(railyard env --for %s)\"",
                   n == 1   ? "nccl"
                   : n == 2 ? "railyard"
                   : n == 4 ? "deepep"
                            : "nvshmem");
            return;
        }
    }
    ry_say(result, set ? RY_VERDICT_OK : RY_VERDICT_NA,
           set ? "all devices that settings name are active" : "no setting names a device");
}

/* One list for each: a device that one library uses and another leaves out is a mistake in one. */
static void check_lists_agree(struct ry_doctor *doctor, struct ry_result *result)
{
    const char *nvshmem = ry_doctor_env(doctor, "NVSHMEM_HCA_LIST");
    const char *nccl = ry_doctor_env(doctor, "NCCL_IB_HCA");
    char device[64];
    int out;
    if (ry_needs_port(doctor, result))
        return;
    if (!nvshmem || !nccl || *nccl == '^' || *nvshmem == '^') {
        ry_say(result, RY_VERDICT_NA, "not both NVSHMEM_HCA_LIST and NCCL_IB_HCA are set");
        return;
    }
    for (const char *at = nvshmem; *at;) {
        at = next_entry(at, device, sizeof device, &out);
        device[strcspn(device, ":")] = '\0';
        int found = 0;
        for (const char *other = nccl; *other;) {
            char name[64];
            other = next_entry(other, name, sizeof name, &out);
            name[strcspn(name, ":")] = '\0';
            found |= name[0] && strncmp(device, name, strlen(name)) == 0;
        }
        if (!found) {
            ry_say(result, RY_VERDICT_WARN, "NVSHMEM_HCA_LIST has %s, NCCL_IB_HCA does not",
                   device);
            ry_fix(result, "eval \"$(railyard env --for nccl)\"");
            return;
        }
    }
    ry_say(result, RY_VERDICT_OK, "NVSHMEM and NCCL use the same devices");
}

static void check_mapping_switch(struct ry_doctor *doctor, struct ry_result *result)
{
    const char *list = ry_doctor_env(doctor, "NVSHMEM_HCA_LIST");
    const char *map = ry_doctor_env(doctor, "NVSHMEM_HCA_PE_MAPPING");
    const char *on = ry_doctor_env(doctor, "NVSHMEM_ENABLE_NIC_PE_MAPPING");
    const char *deepep = ry_doctor_env(doctor, "DEEP_EP_DEVICE_TO_HCA_MAPPING");
    int enabled = on && strcmp(on, "0") != 0;
    if (list && map) {
        ry_say(result, RY_VERDICT_FAIL,
               "NVSHMEM_HCA_LIST and NVSHMEM_HCA_PE_MAPPING are both set: "
               "only one is heeded");
        ry_fix(result, "unset NVSHMEM_HCA_LIST");
    } else if (map && !enabled) {
        ry_say(
            result, RY_VERDICT_FAIL,
            "NVSHMEM_HCA_PE_MAPPING is set, but without NVSHMEM_ENABLE_NIC_PE_MAPPING=1 NVSHMEM "
            "chooses by distance");
        ry_fix(result, "export NVSHMEM_ENABLE_NIC_PE_MAPPING=1");
    } else if (enabled && !list && !map && !deepep) {
        ry_say(result, RY_VERDICT_WARN,
               "NVSHMEM_ENABLE_NIC_PE_MAPPING is on without a list or map: "
               "NICs are dealt out by rank, not by distance");
        ry_fix(result, "unset NVSHMEM_ENABLE_NIC_PE_MAPPING");
    } else if (!on && !list && !map && !deepep) {
        ry_say(result, RY_VERDICT_NA, "no NVSHMEM device settings");
    } else {
        ry_say(result, RY_VERDICT_OK, "NVSHMEM's device settings fit together");
    }
}

/* DeepEP's map works only with the patch; without it the setting is ignored in silence. */
static void check_map_patch(struct ry_doctor *doctor, struct ry_result *result)
{
    if (!ry_doctor_env(doctor, "DEEP_EP_DEVICE_TO_HCA_MAPPING")) {
        ry_say(result, RY_VERDICT_NA, "DEEP_EP_DEVICE_TO_HCA_MAPPING is not set");
        return;
    }
    char *text = ry_facts_text(doctor->facts, "facts/sources");
    int missing = text && strstr(text, "patch=0") != NULL;
    int known = text && strstr(text, "patch=") != NULL;
    free(text);
    if (!known) {
        ry_say(result, RY_VERDICT_NA, "no DeepEP source tree in sight");
    } else if (missing) {
        ry_say(result, RY_VERDICT_FAIL,
               "DEEP_EP_DEVICE_TO_HCA_MAPPING is set, but this DeepEP "
               "lacks the GPU-NIC map patch and ignores it");
        ry_fix(result, "railyard plan --script   # its phase deepep applies the patch");
    } else {
        ry_say(result, RY_VERDICT_OK, "this DeepEP heeds its GPU-NIC map");
    }
}

static void check_transport(struct ry_doctor *doctor, struct ry_result *result)
{
    const char *remote = ry_doctor_env(doctor, "NVSHMEM_REMOTE_TRANSPORT");
    const char *ibgda = ry_doctor_env(doctor, "NVSHMEM_IB_ENABLE_IBGDA");
    const char *disabled = ry_doctor_env(doctor, "NCCL_IB_DISABLE");
    const char *own = ry_doctor_env(doctor, "RAILYARD_HANDLER");
    const char *theirs = ry_doctor_env(doctor, "NVSHMEM_IBGDA_NIC_HANDLER");
    int on = ibgda && strcmp(ibgda, "0") != 0;
    if (on && remote && strcmp(remote, "ibgda") != 0) {
        ry_say(result, RY_VERDICT_FAIL,
               "NVSHMEM_IB_ENABLE_IBGDA is on, NVSHMEM_REMOTE_TRANSPORT "
               "is %s",
               remote);
        ry_fix(result, "export NVSHMEM_REMOTE_TRANSPORT=ibgda");
    } else if (theirs && remote && strcmp(remote, "ibgda") != 0) {
        ry_say(result, RY_VERDICT_WARN,
               "NVSHMEM_IBGDA_NIC_HANDLER has no effect with "
               "NVSHMEM_REMOTE_TRANSPORT=%s",
               remote);
        ry_fix(result, "export NVSHMEM_REMOTE_TRANSPORT=ibgda");
    } else if (disabled && strcmp(disabled, "0") != 0 && doctor->ports > 0) {
        ry_say(result, RY_VERDICT_WARN,
               "NCCL_IB_DISABLE is set: NCCL uses sockets though there "
               "are %u RDMA ports",
               doctor->ports);
        ry_fix(result, "unset NCCL_IB_DISABLE");
    } else if (own && theirs && strcmp(own, theirs) != 0) {
        ry_say(result, RY_VERDICT_WARN, "RAILYARD_HANDLER=%s, NVSHMEM_IBGDA_NIC_HANDLER=%s", own,
               theirs);
        ry_fix(result, "export NVSHMEM_IBGDA_NIC_HANDLER=%s", own);
    } else {
        ry_say(result, RY_VERDICT_OK, "transports and handlers fit together");
    }
}

static void check_gid_agree(struct ry_doctor *doctor, struct ry_result *result)
{
    const char *nvshmem = ry_doctor_env(doctor, "NVSHMEM_IB_GID_INDEX");
    const char *nccl = ry_doctor_env(doctor, "NCCL_IB_GID_INDEX");
    if (!nvshmem || !nccl) {
        ry_say(result, RY_VERDICT_NA,
               "not both NVSHMEM_IB_GID_INDEX and NCCL_IB_GID_INDEX are set");
    } else if (strcmp(nvshmem, nccl) == 0) {
        ry_say(result, RY_VERDICT_OK, "NVSHMEM and NCCL use GID index %s", nccl);
    } else {
        ry_say(result, RY_VERDICT_WARN, "NVSHMEM_IB_GID_INDEX=%s, NCCL_IB_GID_INDEX=%s", nvshmem,
               nccl);
        ry_fix(result, "export NVSHMEM_IB_GID_INDEX=%s", nccl);
    }
}

const struct ry_check ry_checks_setting[] = {
    {"unknown-device", "NVSHMEM_HCA_LIST, NCCL_IB_HCA, RAILYARD_HCA and maps",
     "A list that names a device that is not there comes from another machine or from before a "
     "rename. Libraries skip it, use fewer rails, or end.",
     check_unknown_device},
    {"inactive-device", "NVSHMEM_HCA_LIST, NCCL_IB_HCA, RAILYARD_HCA and maps, port state",
     "A listed device whose port is down makes NVSHMEM end at start; others use one port less.",
     check_inactive_device},
    {"lists-agree", "NVSHMEM_HCA_LIST, NCCL_IB_HCA",
     "NVSHMEM carries the exchange, NCCL the rest of the job. Different lists usually mean that "
     "one "
     "still has a management or storage port.",
     check_lists_agree},
    {"mapping-switch", "NVSHMEM_HCA_LIST, NVSHMEM_HCA_PE_MAPPING, NVSHMEM_ENABLE_NIC_PE_MAPPING",
     "NVSHMEM heeds a list by PE only with NVSHMEM_ENABLE_NIC_PE_MAPPING=1, and either a list or a "
     "map, not both. Without, it chooses by distance, from each process's own view.",
     check_mapping_switch},
    {"map-patch", "DEEP_EP_DEVICE_TO_HCA_MAPPING, facts/sources",
     "The setting is read by a patch to DeepEP (pull request 466) that has to be applied first.",
     check_map_patch},
    {"transport", "NVSHMEM_REMOTE_TRANSPORT, NVSHMEM_IB_ENABLE_IBGDA, NCCL_IB_DISABLE, handlers",
     "Settings that exclude each other: the stricter one wins without a word.", check_transport},
    {"gid-agree", "NVSHMEM_IB_GID_INDEX, NCCL_IB_GID_INDEX",
     "Both libraries use the same ports and should use the same address of them.",
     check_gid_agree},
    {NULL, NULL, NULL, NULL},
};
