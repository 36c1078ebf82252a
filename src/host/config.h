/* SPDX-License-Identifier: Apache-2.0 */
/* Settings: one table (config_table.c) from which the parser, `railyard info --config`, the manual
 * and the check between PEs are made. What goes before what: the caller's settings, RAILYARD_* in
 * the environment, another library's name for the same thing, the configuration file, the default.
 */
#ifndef RY_HOST_CONFIG_H
#define RY_HOST_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    RY_CONFIG_LIST = 32,           /* entries of a list */
    RY_CONFIG_TEXT = 1024,         /* bytes of a text, its NUL included */
    RY_CONFIG_FILE_MAX = 64 << 10, /* bytes of a configuration file */
    RY_CONFIG_JOB_BYTES = 2048,    /* what PEs exchange to find a contradiction */
    RY_SETTINGS_MAX = 64,
};

enum ry_debug { RY_DEBUG_OFF, RY_DEBUG_WARN, RY_DEBUG_INFO, RY_DEBUG_TRACE };
enum ry_nic_kind { RY_NIC_AUTO, RY_NIC_EMU, RY_NIC_VERBS, RY_NIC_MLX5 };
enum ry_handler_kind {
    RY_USE_AUTO,
    RY_USE_GPU,
    RY_USE_CPU,
    RY_USE_CPU_HOST_MEMORY,
};
enum ry_device_kind { RY_DEVICE_HOST, RY_DEVICE_CUDA };
enum ry_failover { RY_FAILOVER_OFF, RY_FAILOVER_ON, RY_FAILOVER_BOTH };
enum ry_setting_source { RY_FROM_DEFAULT, RY_FROM_FILE, RY_FROM_ALIAS, RY_FROM_ENV, RY_FROM_CALL };

struct ry_config_list {
    uint32_t n;
    uint64_t v[RY_CONFIG_LIST];
};

/* Plain data: may be copied. A number that the table prints as `auto` is 0 (gid_index, gpu: -1). */
struct ry_config {
    uint32_t debug;   /* enum ry_debug */
    uint32_t nic;     /* enum ry_nic_kind */
    uint32_t handler; /* enum ry_handler_kind */
    uint32_t device;  /* enum ry_device_kind */
    int32_t gpu;
    char hca[RY_CONFIG_TEXT];
    char gpu_nic_map[RY_CONFIG_TEXT];

    struct ry_config_list rails; /* per node: the last entry holds for all further nodes */
    uint32_t ports_per_nic;
    uint32_t channels;
    uint32_t qp_depth;
    uint32_t buffers;
    uint32_t sms;
    uint64_t heap_size_bytes;
    bool p2p;
    uint64_t spin_ns;

    uint32_t failover; /* enum ry_failover */
    uint64_t path_timeout_ns;
    uint64_t timeout_ns;
    uint32_t failure_threshold;
    uint64_t check_interval_ns;
    uint64_t recovery_interval_ns;
    uint64_t recovery_interval_max_ns;
    uint32_t recovery_probes;
    uint64_t fence_timeout_ns;
    uint64_t start_timeout_ns;
    char fault[RY_CONFIG_TEXT];
    uint64_t seed;

    struct ry_config_list link_rate_bps; /* per rail: the last entry holds for all further rails */
    uint64_t nic_cap_bps;
    uint64_t latency_ns;
    char emu_sysfs[RY_CONFIG_TEXT];
    uint64_t chunk_bytes;
    char tune_file[RY_CONFIG_TEXT];

    int32_t gid_index;
    uint32_t roce_version;
    uint32_t traffic_class;
    uint32_t sl;
    uint32_t pkey;
    uint32_t mtu_bytes;
    uint32_t inline_bytes;
    uint32_t retry_count;
    uint64_t retry_ns; /* 0: as the NIC needs it */
    uint32_t rnr_retry;
    uint32_t post_threads; /* as enum ry_verbs_posters */

    uint8_t source[RY_SETTINGS_MAX]; /* enum ry_setting_source, by place in the table */
    char file[256];                  /* configuration file that was read, or empty */
    char warnings[RY_CONFIG_TEXT];   /* lines to be shown once a job: unknown names, odd aliases */
};

/* Defaults, then file, then aliases, then environment, then `settings` ("NAME=VALUE", n of them).
 * RY_ERR_CONFIG: a value or name that makes no sense; the line names the setting and where it came
 * from. *out is set only on success. */
int ry_config_load(struct ry_config *out, const char *const *settings, uint32_t n);
void ry_config_defaults(struct ry_config *out);

/* One value by name, with or without RAILYARD_ before it. */
int ry_config_set(struct ry_config *c, const char *name, const char *value,
                  enum ry_setting_source from);

/* Where the value of a setting (named without RAILYARD_) comes from. */
enum ry_setting_source ry_config_source(const struct ry_config *c, const char *name);

/* A whole file's text; `where` names it in messages. The text need not end in NUL. */
int ry_config_parse(struct ry_config *c, const char *text, size_t len, const char *where);

/* All PEs must agree on what is marked so in the table. Write this PE's part into a block of
 * RY_CONFIG_JOB_BYTES, exchange the blocks, then check: RY_ERR_CONFIG names the setting, two PEs
 * and both values. */
void ry_config_job(const struct ry_config *c, char *block);
int ry_config_agree(const char *blocks, uint32_t n_pes);

/* Entry i of a list; its last entry where i is beyond, `none` if it is empty. */
static inline uint64_t ry_config_at(const struct ry_config_list *l, uint32_t i, uint64_t none)
{
    return l->n == 0 ? none : l->v[i < l->n ? i : l->n - 1];
}

#endif
