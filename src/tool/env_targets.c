/* SPDX-License-Identifier: Apache-2.0 */
/* The settings of each library, in its own names and syntax. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "env.h"

enum { QUEUE_DEPTH = 1024, QPS_PER_PEER = 24 };

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A comment line; the output is meant for eval, so nothing else may be printed. */
static void say(const char *format, ...)
{
    va_list args;
    fputs("# ", stdout);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

/* How a list names a port. */
enum form { FORM_DEVICE_PORT, FORM_GPU_DEVICE_PORT, FORM_DEVICE_PORT_COUNT };

/* All rails of all GPUs in order, each port once unless they are listed by GPU. */
static void print_ports(const struct ry_env_machine *machine, enum form form, int first_only)
{
    uint8_t seen[RY_TOPO_PORTS] = {0};
    const char *comma = "";
    for (uint32_t g = 0; g < ry_topo_gpu_count(machine->topo); g++) {
        uint32_t rails[RY_TOPO_RAILS];
        uint32_t count = ry_topo_rails_for_gpu(machine->topo, g, rails, RY_TOPO_RAILS);
        for (uint32_t i = 0; i < count && !(first_only && i > 0); i++) {
            const ry_topo_port *port = ry_topo_port_at(machine->topo, rails[i]);
            if (form != FORM_GPU_DEVICE_PORT && seen[rails[i]]++)
                continue;
            fputs(comma, stdout);
            if (form == FORM_GPU_DEVICE_PORT)
                printf("%u:", ry_topo_gpu_at(machine->topo, g)->index);
            printf("%s:%u%s", port->device, port->port,
                   form == FORM_DEVICE_PORT_COUNT ? ":1" : "");
            comma = ",";
        }
    }
}

/* Most rails of a GPU. */
static uint32_t rails_per_gpu(const struct ry_env_machine *machine)
{
    uint32_t most = 0, rails[RY_TOPO_RAILS];
    for (uint32_t g = 0; g < ry_topo_gpu_count(machine->topo); g++) {
        uint32_t count = ry_topo_rails_for_gpu(machine->topo, g, rails, RY_TOPO_RAILS);
        most = count > most ? count : most;
    }
    return most;
}

/* 1 if there is nothing to map; says so. */
static int has_no_rails(const struct ry_env_machine *machine, const char *what)
{
    if (rails_per_gpu(machine) > 0)
        return 0;
    say("%s: %s", what,
        ry_topo_gpu_count(machine->topo) == 0 ? "no GPU here, so there is no map to set"
                                              : "no usable RDMA port here, so nothing is set");
    return 1;
}

static unsigned queue_depth(const struct ry_env_machine *machine)
{
    unsigned depth = QUEUE_DEPTH;
    while (depth < 2 * (machine->tokens + 1))
        depth *= 2;
    return depth;
}

static void print_gid(const struct ry_env_machine *machine, const char *name)
{
    if (machine->gid_index >= 0) {
        say("the RoCE v2 address with an IPv4 address has this index on every port");
        printf("export %s=%d\n", name, machine->gid_index);
    } else if (machine->gid_index == -2) {
        say("%s is left alone: the index of the RoCE v2 address differs between ports", name);
    }
}

static void print_handler(const struct ry_env_machine *machine, const char *name)
{
    if (machine->has_driver_options)
        say("the driver's options let the GPU ring the doorbell itself");
    else if (machine->has_gdrdrv)
        say("the driver's options are off, gdrdrv is loaded: a CPU thread rings the doorbell");
    else
        say("the driver's options are off and gdrdrv is missing: the library takes what works");
    printf("export %s=%s\n", name, machine->handler);
}

/* Letters before the first digit of the first device. */
static void print_prefix(const struct ry_env_machine *machine)
{
    const char *device = ry_topo_port_at(machine->topo, 0)->device;
    int len = (int)strcspn(device, "0123456789");
    if (strncmp(device, "mlx5_", 5) == 0)
        len = 4; /* the digit belongs to the driver's name */
    say("only devices whose names begin so are looked at");
    printf("export NVSHMEM_HCA_PREFIX=%.*s\n", len, device);
}

void ry_env_railyard(const struct ry_env_machine *machine)
{
    say("railyard finds its rails by itself; these lines fix what it would choose here");
    if (machine->hca && *machine->hca) {
        say("as it is set now: all else here keeps to it");
        printf("export RAILYARD_HCA='%s'\n", machine->hca);
    }
    if (ry_topo_port_count(machine->topo) == 0)
        say("no RDMA port here: jobs take the emulated NIC, whose ports are emu0:1, emu0:2, ...");
    if (has_no_rails(machine, "railyard"))
        return;
    say("each GPU's nearest ports, both ports of a card where there are two");
    printf("export RAILYARD_GPU_NIC_MAP=");
    print_ports(machine, FORM_GPU_DEVICE_PORT, 0);
    putchar('\n');
    print_handler(machine, "RAILYARD_HANDLER");
    say("at least a channel a rail, two for latency hiding");
    printf("export RAILYARD_CHANNELS=%u\n", 2 * rails_per_gpu(machine));
    say("a queue holds all that %u tokens put into it at once", machine->tokens);
    printf("export RAILYARD_QP_DEPTH=%u\n", queue_depth(machine));
    say("a path without a completion for this long is given up");
    printf("export RAILYARD_PATH_TIMEOUT=%s\n", machine->pes > 256 ? "200ms" : "50ms");
    print_gid(machine, "RAILYARD_GID_INDEX");
}

static void print_nvshmem_base(const struct ry_env_machine *machine)
{
    print_prefix(machine);
    say("GPU-initiated transport between machines");
    puts("export NVSHMEM_REMOTE_TRANSPORT=ibgda\nexport NVSHMEM_IB_ENABLE_IBGDA=1");
    print_handler(machine, "NVSHMEM_IBGDA_NIC_HANDLER");
    print_gid(machine, "NVSHMEM_IB_GID_INDEX");
    say("a heap in one piece: registration of pieces fails on some driver stacks");
    puts("export NVSHMEM_DISABLE_CUDA_VMM=1");
    say("a queue holds all that %u tokens put into it at once", machine->tokens);
    printf("export NVSHMEM_QP_DEPTH=%u\n", queue_depth(machine));
    say("%u queue pairs to each of %u PEs", machine->pes > 256 ? 8 : QPS_PER_PEER,
        machine->pes - 1);
    printf("export NVSHMEM_IBGDA_NUM_RC_PER_PE=%d\n", machine->pes > 256 ? 8 : QPS_PER_PEER);
    if (machine->preload[0] && machine->nvshmem_copies > 1) {
        say("%u copies of NVSHMEM are in sight, this one is meant", machine->nvshmem_copies);
        printf("export LD_PRELOAD='%s'\n", machine->preload);
    }
    if (rails_per_gpu(machine) > 1) {
        say("more than one port a GPU");
        puts("export NVSHMEM_IBGDA_ENABLE_MULTI_PORT=1");
    }
}

void ry_env_nvshmem(const struct ry_env_machine *machine)
{
    say("NVSHMEM");
    if (has_no_rails(machine, "NVSHMEM"))
        return;
    print_nvshmem_base(machine);
    say("PE n of a machine takes entry n; PEs must be numbered as GPUs are");
    puts("export NVSHMEM_ENABLE_NIC_PE_MAPPING=1");
    printf("export NVSHMEM_HCA_PE_MAPPING=");
    print_ports(machine, FORM_DEVICE_PORT_COUNT, 1);
    puts("\nunset NVSHMEM_HCA_LIST");
}

void ry_env_deepep(const struct ry_env_machine *machine)
{
    say("DeepEP over NVSHMEM");
    if (has_no_rails(machine, "DeepEP"))
        return;
    print_nvshmem_base(machine);
    say("DeepEP starts NVSHMEM so that every PE is number 0 of its own; its GPU-NIC map patch");
    say("(pull request 466) therefore chooses by GPU, and sets the list and switch itself");
    printf("export DEEP_EP_DEVICE_TO_HCA_MAPPING=");
    print_ports(machine, FORM_GPU_DEVICE_PORT, 1);
    puts("\nunset NVSHMEM_HCA_LIST NVSHMEM_HCA_PE_MAPPING");
}

void ry_env_nccl(const struct ry_env_machine *machine)
{
    say("NCCL chooses the nearest of these for each GPU by itself");
    if (has_no_rails(machine, "NCCL"))
        return;
    say("= takes names as they are, without it NCCL takes every name that begins so");
    printf("export NCCL_IB_HCA==");
    print_ports(machine, FORM_DEVICE_PORT, 0);
    putchar('\n');
    print_gid(machine, "NCCL_IB_GID_INDEX");
    say("GPU memory straight to the NIC up to this distance");
    puts("export NCCL_NET_GDR_LEVEL=PXB");
    say("retry time of the NIC: 4.096 us * 2^20 * 8 is 34 s, as long as a switch reboots a port");
    printf("export NCCL_IB_TIMEOUT=%d\n", machine->pes > 256 ? 22 : 20);
    if (rails_per_gpu(machine) > 1) {
        say("both ports of a card as one");
        puts("export NCCL_IB_MERGE_NICS=1");
    }
    puts("unset NCCL_IB_DISABLE");
}
