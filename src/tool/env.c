/* SPDX-License-Identifier: Apache-2.0 */
/* railyard env: the lines to export on this machine, for railyard itself or for another library.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "env.h"
#include "record.h"

static const char usage[] =
    "usage: railyard env [--for railyard|nvshmem|deepep|nccl] [FLAG...]\n\n"
    "Prints export lines for this machine, each with its reason. To set them:\n"
    "  eval \"$(railyard env --for deepep)\"";

static const struct {
    const char *name;
    void (*print)(const struct ry_env_machine *machine);
} targets[] = {
    {"railyard", ry_env_railyard},
    {"nvshmem", ry_env_nvshmem},
    {"deepep", ry_env_deepep},
    {"nccl", ry_env_nccl},
};

static int read_count(const char *text, unsigned most, unsigned *count)
{
    long long value = text ? ry_tool_number(text) : *count;
    if (value < 1 || value > most)
        return -1;
    *count = (unsigned)value;
    return 0;
}

static void read_gids(struct ry_env_machine *machine, ry_facts *facts)
{
    int first = 1;
    machine->gid_index = -1;
    for (uint32_t i = 0; i < ry_topo_port_count(machine->topo); i++) {
        const ry_topo_port *port = ry_topo_port_at(machine->topo, i);
        if (port->layer != RY_LINK_ETHERNET || !port->active || port->excluded)
            continue;
        int found = -1;
        for (int g = 0; g < 16; g++) {
            char *type =
                ry_facts_textf(facts, "sys/class/infiniband/%s/ports/%u/gid_attrs/types/%d",
                               port->device, port->port, g);
            char *gid = ry_facts_textf(facts, "sys/class/infiniband/%s/ports/%u/gids/%d",
                                       port->device, port->port, g);
            int v2 = type && strcmp(type, "RoCE v2") == 0;
            int ipv4 = gid && strncmp(gid, "0000:0000:0000:0000:0000:ffff:", 30) == 0;
            free(type);
            free(gid);
            if (v2 && ipv4 && found < 0)
                found = g;
        }
        /* an index is worth setting only if it is the same on all ports */
        if (!first && found != machine->gid_index)
            found = -2;
        machine->gid_index = found;
        if (found == -2)
            break;
        first = 0;
    }
}

/* The handler that this machine can have: gpu needs the driver's options. */
static void choose_handler(struct ry_env_machine *machine, ry_facts *facts)
{
    char *params = ry_facts_text(facts, "proc/driver/nvidia/params");
    char *modules = ry_facts_text(facts, "proc/modules");
    machine->has_driver_options =
        params && strstr(params, "EnableStreamMemOPs: 1") &&
        (strstr(params, "PeerMappingOverride=1") || strstr(params, "PeerMappingOverride=0x1"));
    machine->has_gdrdrv = modules && strstr(modules, "gdrdrv");
    machine->handler = machine->has_driver_options ? "gpu" : machine->has_gdrdrv ? "cpu" : "auto";
    free(params);
    free(modules);
}

/* NVSHMEM of one's own, if several are in sight: the newest outside Python's own packages. */
static void choose_preload(struct ry_env_machine *machine, ry_facts *facts)
{
    char *text = ry_facts_text(facts, "facts/libs"), *rest = NULL;
    unsigned copies = 0;
    for (char *line = text ? strtok_r(text, "\n", &rest) : NULL; line;
         line = strtok_r(NULL, "\n", &rest)) {
        char name[64], path[RY_FACT_PATH], version[64], origin[16];
        if (sscanf(line, "%63s %239s %63s %15s", name, path, version, origin) != 4 ||
            strncmp(name, "libnvshmem_host.so", 18) != 0)
            continue;
        copies++;
        if (!machine->preload[0] && strcmp(origin, "python") != 0 && !strchr(path, '\''))
            snprintf(machine->preload, sizeof machine->preload, "%s", path);
    }
    free(text);
    machine->nvshmem_copies = copies;
}

static int print_for(const char *name, const struct ry_env_machine *machine)
{
    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
        if (strcmp(targets[i].name, name) == 0) {
            targets[i].print(machine);
            return TOOL_OK;
        }
    }
    return ry_tool_error("env", "unknown target '%s': use railyard, nvshmem, deepep or nccl",
                         name);
}

static void keep_only_hca(ry_facts *facts, const char *hca)
{
    size_t cap = hca ? strlen(hca) + 32 : 1;
    char *text = malloc(cap);
    if (!text)
        return;
    int len = hca && *hca ? snprintf(text, cap, "RAILYARD_HCA=%s\n", hca) : 0;
    ry_facts_put(facts, "facts/env", text, (size_t)len);
    free(text);
}

int ry_command_env(int argc, char **argv)
{
    const char *root = NULL, *target = "railyard", *pes = NULL, *tokens = NULL;
    struct ry_env_machine machine = {.pes = 64, .tokens = 128};
    const struct ry_tool_flag flags[] = {
        {"--for", &target, NULL, "railyard, nvshmem, deepep or nccl"},
        {"--root", &root, NULL, "read this record (folder or archive), not the machine"},
        {"--pes", &pes, NULL, "PEs of the job (64)"},
        {"--tokens", &tokens, NULL, "tokens a PE sends at once (128)"},
        {NULL, NULL, NULL, NULL},
    };
    int code;
    int at = ry_tool_flags(argc, argv, flags, usage, &code);
    if (at < 0)
        return code;
    if (at < argc)
        return ry_tool_error("env", "unexpected '%s': env takes flags only", argv[at]);
    if (read_count(pes, 1 << 20, &machine.pes) != 0)
        return ry_tool_error("env", "--pes %s is no number of PEs: use 1 to 1M", pes);
    if (read_count(tokens, 1 << 20, &machine.tokens) != 0)
        return ry_tool_error("env", "--tokens %s is no number of tokens: use 1 to 1M", tokens);
    ry_facts *facts;
    code = ry_tool_open("env", root, &facts);
    if (code != TOOL_OK)
        return code;
    /* what is set now must not decide what should be set, but for the ports that its user wants */
    machine.hca = ry_tool_setting(facts, "RAILYARD_HCA");
    keep_only_hca(facts, machine.hca);
    code = ry_tool_topo("env", facts, &machine.topo);
    if (code == TOOL_OK) {
        read_gids(&machine, facts);
        choose_handler(&machine, facts);
        choose_preload(&machine, facts);
        code = print_for(target, &machine);
        ry_topo_free(machine.topo);
    }
    ry_facts_close(facts);
    free(machine.hca);
    return code;
}
