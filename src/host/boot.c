/* SPDX-License-Identifier: Apache-2.0 */
/* Which bootstrap this process has, and the launcher's. */
#include "host/boot.h"

#include <railyard/launch.h>

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "host/boot_env.h"
#include "host/boot_hub.h"
#include "host/clock.h"
#include "host/error.h"
#include "host/wire.h"

int ry_env_u32(const char *name, uint32_t min, uint32_t max, uint32_t *out)
{
    const char *text = getenv(name);
    char *end = NULL;

    if (!text || !*text)
        return 0;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);

    if (*text < '0' || *text > '9' || *end || errno || v < min || v > max)
        return ry_fail(RY_ERR_CONFIG, "%s: '%.64s' is no number from %u to %u", name, text, min,
                       max);
    *out = (uint32_t)v;
    return 1;
}

static bool there(const char *name)
{
    const char *text = getenv(name);

    return text && *text;
}

int ry_boot_way(void)
{
    const char *way = getenv("RAILYARD_BOOT");

    if (way && strncmp(way, "launch:", 7) == 0)
        return RY_BOOT_LAUNCH;
    if (way && strcmp(way, "solo") == 0)
        return RY_BOOT_SOLO;
    if (way && strcmp(way, "tcp") == 0)
        return RY_BOOT_TCP;
    if (way && strcmp(way, "pmix") == 0)
        return RY_BOOT_PMIX;
    if (way && *way)
        return ry_fail(RY_ERR_CONFIG,
                       "RAILYARD_BOOT: '%.64s' is none of launch:NAME, pmix, tcp, solo", way);
    bool pmix = there("PMIX_RANK") && there("PMIX_NAMESPACE");

    if (pmix && ry_boot_pmix_built())
        return RY_BOOT_PMIX;
    if (there("MASTER_ADDR") && there("WORLD_SIZE"))
        return RY_BOOT_TCP;
    if (pmix)
        return ry_fail(RY_ERR_CONFIG,
                       "a launcher with PMIx has started this, but railyard was built "
                       "without PMIx: set MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE");
    return RY_BOOT_SOLO;
}

static int launch_cfg(struct ry_net_cfg *cfg)
{
    const char *job = getenv("RAILYARD_JOB"), *secret = getenv("RAILYARD_SECRET");
    int pes = ry_env_u32("RAILYARD_PES", 1, RY_WIRE_PES_MAX, &cfg->n_pes);

    if (pes < 0)
        return pes;
    int pe = ry_env_u32("RAILYARD_PE", 0, pes ? cfg->n_pes - 1 : UINT32_MAX, &cfg->pe);
    int inc = pe < 0 ? pe : ry_env_u32("RAILYARD_INCARNATION", 0, UINT32_MAX, &cfg->incarnation);

    if (pe < 0 || inc < 0)
        return RY_ERR_CONFIG;
    if (!pes || !pe || !job || !secret)
        return ry_fail(RY_ERR_CONFIG,
                       "RAILYARD_BOOT is set but not all of RAILYARD_PE, RAILYARD_PES, "
                       "RAILYARD_JOB, RAILYARD_SECRET: use railyard run");
    char *end = NULL;

    cfg->job = strtoull(job, &end, 16);
    if (end == job || *end)
        return ry_fail(RY_ERR_CONFIG, "RAILYARD_JOB: '%.64s' is no job id", job);
    ry_secret_from_text(secret, &cfg->secret);
    cfg->launcher = true;
    return RY_OK;
}

int ry_boot_launch_connect(struct ry_net_cfg *cfg)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    const char *name = getenv("RAILYARD_BOOT");
    size_t len = name && strncmp(name, "launch:", 7) == 0 ? strlen(name + 7) : 0;

    if (len == 0 || len >= sizeof(a.sun_path) - 1)
        return ry_fail(RY_ERR_NOT_FOUND, "no railyard launcher has started this process");
    int rc = launch_cfg(cfg);

    if (rc < 0)
        return rc;
    memcpy(a.sun_path + 1, name + 7, len);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return ry_fail(RY_ERR_SYSTEM, "no socket: %s: see ulimit -n", strerror(errno));
    if (connect(fd, (struct sockaddr *)&a,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len)) < 0) {
        rc = ry_fail(RY_ERR_UNREACHABLE, "the launcher does not answer at @%s: %s: has it ended?",
                     name + 7, strerror(errno));
        close(fd);
        return rc;
    }
    return fd;
}

int ry_boot_launch_open(uint64_t deadline_ns, struct ry_boot **out)
{
    struct ry_net_cfg cfg = {0};
    int fd = ry_boot_launch_connect(&cfg);

    return fd < 0 ? fd : ry_net_open(&cfg, fd, deadline_ns, out);
}

int ry_boot_open(struct ry_hub *hub, uint32_t hub_pe, uint64_t deadline_ns, struct ry_boot **out)
{
    if (hub)
        return ry_hub_open(hub, hub_pe, out);
    int way = ry_boot_way();

    switch (way) {
    case RY_BOOT_LAUNCH:
        return ry_boot_launch_open(deadline_ns, out);
    case RY_BOOT_TCP:
        return ry_boot_tcp_open(deadline_ns, out);
    case RY_BOOT_PMIX:
        return ry_boot_pmix_open(deadline_ns, out);
    case RY_BOOT_SOLO:
        return ry_hub_solo(out);
    default:
        return way;
    }
}

int ry_launched(uint32_t *pe, uint32_t *n_pes)
{
    static const char *const names[][2] = {
        [RY_BOOT_SOLO] = {NULL, NULL},
        [RY_BOOT_LAUNCH] = {"RAILYARD_PE", "RAILYARD_PES"},
        [RY_BOOT_PMIX] = {"PMIX_RANK", "OMPI_COMM_WORLD_SIZE"},
        [RY_BOOT_TCP] = {"RANK", "WORLD_SIZE"},
    };
    int way = ry_boot_way();
    uint32_t number = 0, count = 0;

    if (way <= 0 || ry_env_u32(names[way][0], 0, UINT32_MAX, &number) < 0 ||
        ry_env_u32(names[way][1], 0, UINT32_MAX, &count) < 0)
        return 0;
    if (way == RY_BOOT_PMIX && count == 0)
        ry_env_u32("SLURM_NTASKS", 0, UINT32_MAX, &count);
    if (pe)
        *pe = number;
    if (n_pes)
        *n_pes = count;
    return 1;
}

int ry_launch_report(const void *data, size_t len)
{
    struct ry_net_cfg cfg = {0};

    if (len > RY_BOOT_BYTES_MAX)
        return ry_fail(RY_ERR_INVALID, "a report of %zu bytes, at most %d", len, RY_BOOT_BYTES_MAX);
    int fd = ry_boot_launch_connect(&cfg);

    if (fd < 0)
        return fd;
    return ry_net_report(&cfg, fd, data, len, ry_clock_ns() + 10000000000u);
}
