/* SPDX-License-Identifier: Apache-2.0 */
/* The table of settings. One entry a setting; everything else is derived from it. */
#include "host/config_table.h"

#include <string.h>

static const char *const debug_names[] = {"off", "warn", "info", "trace", NULL};
static const char *const nic_names[] = {"auto", "emu", "verbs", "mlx5", NULL};
static const char *const handler_names[] = {"auto", "gpu", "cpu", "cpu_host_memory", NULL};
static const char *const device_names[] = {"host", "cuda", NULL};
static const char *const post_names[] = {"auto", "off", "on", NULL};
static const char *const failover_names[] = {"off", "on", "both", NULL};

#define AT(field) offsetof(struct ry_config, field)
#define HOUR      3600000000000

/* clang-format off */
const struct ry_setting ry_settings[] = {
    {"DEBUG", RY_SET_CHOICE, 0, AT(debug), "warn", 0, 3, debug_names, "NVSHMEM_DEBUG", "General",
     "what is logged on stderr"},
    {"NIC", RY_SET_CHOICE, RY_SET_JOB, AT(nic), "auto", 0, 3, nic_names, NULL, NULL,
     "kind of NIC; auto takes mlx5 or verbs where there is an RDMA device, else emu"},
    {"HANDLER", RY_SET_CHOICE, 0, AT(handler), "auto", 0, 3, handler_names,
     "NVSHMEM_IBGDA_NIC_HANDLER", NULL, "who rings the doorbell"},
    {"DEVICE", RY_SET_CHOICE, RY_SET_JOB, AT(device), "host", 0, 1, device_names, NULL, NULL,
     "where the heap and the initiators are"},
    {"HEAP_SIZE", RY_SET_SIZE, RY_SET_JOB, AT(heap_size_bytes), "256M", 64 << 10, INT64_MAX, NULL,
     "NVSHMEM_SYMMETRIC_SIZE", NULL, "bytes of the symmetric heap of each PE"},
    {"P2P", RY_SET_SWITCH, RY_SET_JOB | RY_SET_INVERT, AT(p2p), "on", 0, 1, NULL,
     "NVSHMEM_DISABLE_P2P", NULL, "PEs of one node reach each other's heap without a NIC"},
    {"SPIN", RY_SET_TIME, 0, AT(spin_ns), "50us", 0, HOUR, NULL, NULL, NULL,
     "how long a wait looks again and again before it sleeps"},
    {"START_TIMEOUT", RY_SET_TIME, 0, AT(start_timeout_ns), "30s", 1000000, HOUR, NULL, NULL, NULL,
     "how long a PE waits for the others while the job starts"},
    {"SEED", RY_SET_U64, RY_SET_JOB, AT(seed), "1", 0, INT64_MAX, NULL, NULL, NULL,
     "seed of everything random in emulation and tests"},

    {"HCA", RY_SET_TEXT, 0, AT(hca), "", 0, 0, NULL, "NVSHMEM_HCA_LIST", "Rails and channels",
     "devices and ports to use: mlx5_0:1,mlx5_1; mlx5_* is every name that begins so, a ^ before "
     "an entry excludes it, emu0:1 is an emulated one; what is not there is an error"},
    {"GPU_NIC_MAP", RY_SET_TEXT, 0, AT(gpu_nic_map), "", 0, 0, NULL,
     "DEEP_EP_DEVICE_TO_HCA_MAPPING", NULL,
     "rails of each GPU by hand: 0:mlx5_0:1,1:mlx5_1:1; a GPU may stand there more than once"},
    {"GPU", RY_SET_I32, RY_SET_AUTO, AT(gpu), "auto", 0, 1023, NULL, NULL, NULL,
     "number of this PE's GPU; auto: its index within the node"},
    {"RAILS", RY_SET_LIST, RY_SET_AUTO, AT(rails), "auto", 1, 16, NULL, NULL, NULL,
     "rails of each PE, one number a node; auto: 2 on emu, else every port that the PE may reach"},
    {"PORTS_PER_NIC", RY_SET_U32, RY_SET_JOB, AT(ports_per_nic), "2", 1, 16, NULL, NULL, NULL,
     "ports of each emulated NIC"},
    {"CHANNELS", RY_SET_U32, RY_SET_JOB | RY_SET_AUTO, AT(channels), "auto", 1, 64, NULL,
     "NVSHMEM_IBGDA_NUM_RC_PER_PE", NULL, "channels to each peer; auto: one a rail, two at least"},
    {"QP_DEPTH", RY_SET_U32, RY_SET_JOB | RY_SET_POW2, AT(qp_depth), "1024", 16, 32768, NULL,
     "NVSHMEM_QP_DEPTH", NULL, "64-byte blocks of a send queue, a power of two"},
    {"CHUNK", RY_SET_SIZE, RY_SET_JOB, AT(chunk_bytes), "256K", 4 << 10, 256 << 10, NULL, NULL,
     NULL,
     "greatest message: a longer transfer becomes several; railyard tune finds what suits a shape"},
    {"BUFFERS", RY_SET_U32, RY_SET_JOB, AT(buffers), "2", 2, 3, NULL, NULL, NULL,
     "generations of dispatch and combine buffers; a third serves while a fence is under way"},

    {"SMS", RY_SET_U32, RY_SET_JOB, AT(sms), "0", 0, 160, NULL, NULL, NULL,
     "most multiprocessors that dispatch and combine take on a GPU; 0: all, or what railyard tune "
     "--device cuda found"},

    {"FAILOVER", RY_SET_CHOICE, RY_SET_JOB, AT(failover), "on", 0, 2, failover_names, NULL,
     "Failover", "off: no backup is connected and the first failure is the operation's error"},
    {"PATH_TIMEOUT", RY_SET_TIME, RY_SET_AUTO, AT(path_timeout_ns), "auto", 1000, HOUR, NULL, NULL,
     NULL, "time without a completion, while one is outstanding, at which a path fails; auto: 50ms "
     "on emu, 250ms on hardware"},
    {"TIMEOUT", RY_SET_TIME, RY_SET_AUTO, AT(timeout_ns), "auto", 1000, HOUR, NULL, NULL, NULL,
     "from the loss of the last path until an operation fails; auto: 2s on emu, 10s on hardware"},
    {"FAILURE_THRESHOLD", RY_SET_U32, 0, AT(failure_threshold), "3", 1, 1000, NULL, NULL, NULL,
     "failures of a path by silence after which it is held down longer"},
    {"CHECK_INTERVAL", RY_SET_TIME, 0, AT(check_interval_ns), "10ms", 10000, HOUR, NULL, NULL, NULL,
     "how often the agent looks at channels and ports"},
    {"RECOVERY_INTERVAL", RY_SET_TIME, 0, AT(recovery_interval_ns), "100ms", 100000, HOUR, NULL,
     NULL, NULL, "first wait before a failed path is tried again; doubles each time"},
    {"RECOVERY_INTERVAL_MAX", RY_SET_TIME, 0, AT(recovery_interval_max_ns), "30s", 100000, HOUR,
     NULL, NULL, NULL, "longest such wait"},
    {"RECOVERY_PROBES", RY_SET_U32, 0, AT(recovery_probes), "3", 1, 1000, NULL, NULL, NULL,
     "good probes in a row that earn a return"},
    {"FENCE_TIMEOUT", RY_SET_TIME, 0, AT(fence_timeout_ns), "1s", 1000, HOUR, NULL, NULL, NULL,
     "time for each step of a fence"},
    {"FAULT", RY_SET_TEXT, RY_SET_JOB, AT(fault), "", 0, 0, NULL, NULL, NULL,
     "faults to inject, as railyard ep --fault takes them"},

    {"LINK_RATE", RY_SET_RATE_LIST, 0, AT(link_rate_bps), "unlimited", 0, INT64_MAX, NULL, NULL,
     "Emulated NIC", "rate of each emulated port, in their order"},
    {"NIC_CAP", RY_SET_RATE, 0, AT(nic_cap_bps), "unlimited", 0, INT64_MAX, NULL, NULL, NULL,
     "rate that all ports of a NIC share"},
    {"LATENCY", RY_SET_TIME, 0, AT(latency_ns), "0", 0, HOUR, NULL, NULL, NULL,
     "one-way latency of a port"},
    {"EMU_SYSFS", RY_SET_TEXT, 0, AT(emu_sysfs), "", 0, 0, NULL, NULL, NULL,
     "folder to show ports and counters in, in the form of /sys/class/infiniband"},

    {"TUNE_FILE", RY_SET_TEXT, 0, AT(tune_file), "", 0, 0, NULL, NULL, "Tuning",
     "file of railyard tune; without one $HOME/.config/railyard-tune.json"},

    {"GID_INDEX", RY_SET_I32, RY_SET_AUTO, AT(gid_index), "auto", 0, 255, NULL,
     "NVSHMEM_IB_GID_INDEX", "RDMA NICs", "source GID; auto: found by its type"},
    {"ROCE_VERSION", RY_SET_U32, 0, AT(roce_version), "2", 1, 2, NULL,
     "NVSHMEM_IB_ROCE_VERSION_NUM", NULL, "type of GID to look for on Ethernet"},
    {"TRAFFIC_CLASS", RY_SET_U32, 0, AT(traffic_class), "0", 0, 255, NULL,
     "NVSHMEM_IB_TRAFFIC_CLASS", NULL, "traffic class of RoCE packets"},
    {"SL", RY_SET_U32, 0, AT(sl), "0", 0, 15, NULL, "NVSHMEM_IB_SL", NULL, "service level"},
    {"PKEY", RY_SET_HEX32, RY_SET_JOB, AT(pkey), "0xffff", 1, 0xffff, NULL, NULL, NULL,
     "partition key"},
    {"MTU", RY_SET_U32, RY_SET_AUTO | RY_SET_POW2, AT(mtu_bytes), "auto", 256, 4096, NULL, NULL,
     NULL,
     "bytes of a packet; auto: what both ports have"},
    {"INLINE", RY_SET_U32, RY_SET_AUTO, AT(inline_bytes), "auto", 1, 1024, NULL, NULL, NULL,
     "greatest payload that is put into the request itself"},
    {"RETRY_COUNT", RY_SET_U32, 0, AT(retry_count), "6", 0, 7, NULL, NULL, NULL,
     "tries of the transport before it reports an error; some devices take 7 as for ever"},
    {"RETRY_TIME", RY_SET_TIME, RY_SET_AUTO, AT(retry_ns), "auto", 4096, HOUR, NULL, NULL, NULL,
     "wait of the transport before each try; devices round it up to 4.096us times a power of two; "
     "auto: 4ms, 67ms where the NIC is software"},
    {"RNR_RETRY", RY_SET_U32, 0, AT(rnr_retry), "7", 0, 7, NULL, NULL, NULL,
     "tries where the receiver is not ready; 7 is for ever"},
    {"POST_THREADS", RY_SET_CHOICE, 0, AT(post_threads), "auto", 0, 2, post_names, NULL, NULL,
     "a thread for each rail that hands requests to the driver; auto: where the NIC is software, "
     "which sends on the CPU of who posts, and there are rails and CPUs for it"},

    {"CONFIG", RY_SET_LAUNCH, 0, 0, "~/.config/railyard.conf", 0, 0, NULL, NULL, "Launching",
     "the configuration file"},
    {"SECRET", RY_SET_LAUNCH, 0, 0, "", 0, 0, NULL, NULL, NULL,
     "secret of the job, any text; needed under torchrun's variables, made by railyard run"},
    {"JOB", RY_SET_LAUNCH, 0, 0, "", 0, 0, NULL, NULL, NULL,
     "id of the job, 16 hexadecimal digits; made by the launcher"},
    {"NODES", RY_SET_LAUNCH, 0, 0, "", 0, 0, NULL, NULL, NULL,
     "logical nodes that the PEs are split into; without it each host is a node"},
    {"BOOT", RY_SET_LAUNCH, 0, 0, "", 0, 0, NULL, NULL, NULL,
     "how PEs find each other: launch:NAME (set by railyard run), pmix, tcp or solo"},
    {"BOOT_PORT", RY_SET_LAUNCH, 0, 0, "", 0, 0, NULL, NULL, NULL,
     "TCP port of PE 0; without it the first free one from MASTER_PORT on"},
    {"PE", RY_SET_LAUNCH, 0, 0, "", 0, 0, NULL, NULL, NULL, "number of this PE"},
    {"PES", RY_SET_LAUNCH, 0, 0, "", 0, 0, NULL, NULL, NULL, "number of PEs"},
    {"INCARNATION", RY_SET_LAUNCH, 0, 0, "0", 0, 0, NULL, NULL, NULL,
     "how often this PE has been replaced"},
    {"HOST_ID", RY_SET_LAUNCH, 0, 0, "", 0, 0, NULL, NULL, NULL,
     "tells hosts apart where the kernel's boot id and network namespace do not"},
};
/* clang-format on */

const uint32_t ry_n_settings = sizeof(ry_settings) / sizeof(ry_settings[0]);

_Static_assert(sizeof(ry_settings) / sizeof(ry_settings[0]) <= RY_SETTINGS_MAX, "sources fit");

const struct ry_setting *ry_setting_find(const char *name)
{
    if (strncmp(name, "RAILYARD_", 9) == 0)
        name += 9;
    for (uint32_t i = 0; i < ry_n_settings; i++) {
        if (strcmp(ry_settings[i].name, name) == 0)
            return &ry_settings[i];
    }
    return NULL;
}

/* Distance of Levenshtein, on the first 40 characters. */
static uint32_t distance(const char *a, const char *b)
{
    uint32_t row[41], n = (uint32_t)strnlen(b, 40);

    for (uint32_t k = 0; k <= n; k++)
        row[k] = k;
    for (uint32_t i = 0; i < 40 && a[i]; i++) {
        uint32_t diagonal = row[0];

        row[0] = i + 1;
        for (uint32_t k = 1; k <= n; k++) {
            uint32_t best = diagonal + (a[i] != b[k - 1]);

            diagonal = row[k];
            best = row[k] + 1 < best ? row[k] + 1 : best;
            row[k] = row[k - 1] + 1 < best ? row[k - 1] + 1 : best;
        }
    }
    return row[n];
}

const char *ry_setting_nearest(const char *name)
{
    uint32_t best = UINT32_MAX, at = 0;

    if (strncmp(name, "RAILYARD_", 9) == 0)
        name += 9;
    for (uint32_t i = 0; i < ry_n_settings; i++) {
        uint32_t d = distance(name, ry_settings[i].name);

        if (d < best) {
            best = d;
            at = i;
        }
    }
    return ry_settings[at].name;
}
