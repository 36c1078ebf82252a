/* SPDX-License-Identifier: Apache-2.0 */
/* Ports as a tree of files in the form of /sys/class/infiniband, so that tools read the emulated
 * and the real ones the same way. A file is written beside its place and renamed, so no reader
 * sees half. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nic/emu/emu_int.h"

enum { PATH_BYTES = 4096 };

static int dir_make(const char *path)
{
    return mkdir(path, 0700) == 0 || errno == EEXIST ? 0 : RY_ERR_SYSTEM;
}

static int file_put(const char *dir, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static int file_put(const char *dir, const char *name, const char *fmt, ...)
{
    char path[PATH_BYTES], tmp[PATH_BYTES + 8];
    va_list ap;
    FILE *f;
    int n;

    if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path))
        return RY_ERR_INVALID;
    snprintf(tmp, sizeof(tmp), "%s.new", path);
    f = fopen(tmp, "w");
    if (f == NULL)
        return RY_ERR_SYSTEM;
    va_start(ap, fmt);
    n = vfprintf(f, fmt, ap);
    va_end(ap);
    if (fclose(f) != 0 || n < 0 || rename(tmp, path) != 0) {
        unlink(tmp);
        return RY_ERR_SYSTEM;
    }
    return 0;
}

static int counters_put(struct ry_nic *nic, uint32_t rail, const char *port)
{
    struct ry_rail_counters c;
    char dir[PATH_BYTES];
    int rc = 0;

    if (snprintf(dir, sizeof(dir), "%s/counters", port) >= (int)sizeof(dir) || dir_make(dir) != 0 ||
        ry_emu_counters(nic, rail, &c) != 0)
        return RY_ERR_SYSTEM;
    rc |= file_put(dir, "port_xmit_data", "%llu\n", (unsigned long long)(c.tx_bytes / 4));
    rc |= file_put(dir, "port_rcv_data", "%llu\n", (unsigned long long)(c.rx_bytes / 4));
    rc |= file_put(dir, "port_xmit_packets", "%llu\n", (unsigned long long)c.tx_ops);
    rc |= file_put(dir, "port_rcv_packets", "%llu\n", (unsigned long long)c.rx_ops);
    rc |= file_put(dir, "port_rcv_errors", "%llu\n", (unsigned long long)c.errors);
    if (snprintf(dir, sizeof(dir), "%s/hw_counters", port) >= (int)sizeof(dir) ||
        dir_make(dir) != 0)
        return RY_ERR_SYSTEM;
    rc |= file_put(dir, "local_ack_timeout_err", "%llu\n", (unsigned long long)c.retries);
    return rc != 0 ? RY_ERR_SYSTEM : 0;
}

static int gid_put(const struct ry_rail_info *info, const char *port)
{
    char dir[PATH_BYTES], text[3 * RY_GID_BYTES];
    int n = 0;

    if (snprintf(dir, sizeof(dir), "%s/gids", port) >= (int)sizeof(dir) || dir_make(dir) != 0)
        return RY_ERR_SYSTEM;
    for (uint32_t i = 0; i < RY_GID_BYTES; i += 2)
        n += snprintf(text + n, sizeof(text) - (size_t)n, "%s%02x%02x", i == 0 ? "" : ":",
                      info->gid[i], info->gid[i + 1]);
    return file_put(dir, "0", "%s\n", text);
}

static int rail_put(struct ry_nic *nic, uint32_t rail, const char *root)
{
    struct ry_emu *e = ry_emu_of(nic);
    uint64_t rate = RY_LD_RLX(&e->seg->port[rail].rate_bps);
    bool up = ry_emu_rail_state(nic, rail) == RY_PORT_UP;
    struct ry_rail_info info;
    char dir[PATH_BYTES];
    int rc = ry_emu_rail_info(nic, rail, &info), n;

    n = snprintf(dir, sizeof(dir), "%s/emu%u", root, info.nic);
    if (rc != 0 || n < 0 || n + 32 >= (int)sizeof(dir) || dir_make(dir) != 0)
        return RY_ERR_SYSTEM;
    rc |= file_put(dir, "node_type", "1: CA\n");
    strcat(dir, "/ports");
    rc |= dir_make(dir);
    snprintf(dir + n, sizeof(dir) - (size_t)n, "/ports/%u", info.port);
    rc |= dir_make(dir);
    rc |= file_put(dir, "state", "%s\n", up ? "4: ACTIVE" : "1: DOWN");
    rc |= file_put(dir, "phys_state", "%s\n", up ? "5: LinkUp" : "3: Disabled");
    /* Gb/s as the kernel writes it; an unlimited port says so with 0. */
    rc |= file_put(dir, "rate", "%g Gb/sec (4X)\n", (double)rate * 8.0 / 1e9);
    rc |= file_put(dir, "lid", "0x%x\n", info.lid);
    rc |= file_put(dir, "link_layer", "Emulated\n");
    rc |= gid_put(&info, dir);
    return rc != 0 ? RY_ERR_SYSTEM : counters_put(nic, rail, dir);
}

int ry_emu_tree_write(struct ry_nic *nic, const char *dir)
{
    struct ry_emu *e = ry_emu_of(nic);
    int rc = 0;

    if (dir == NULL || strlen(dir) > PATH_BYTES - 128)
        return RY_ERR_INVALID;
    if (dir_make(dir) != 0)
        return RY_ERR_SYSTEM;
    for (uint32_t r = 0; r < e->cfg.rails && rc == 0; r++)
        rc = rail_put(nic, r, dir);
    return rc;
}
