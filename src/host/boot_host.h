/* SPDX-License-Identifier: Apache-2.0 */
/* A meeting point in a thread of PE 0, where no launcher of ours keeps one. */
#ifndef RY_HOST_BOOT_HOST_H
#define RY_HOST_BOOT_HOST_H

#include <stdint.h>

#include "host/secret.h"

struct ry_host;

struct ry_host_cfg {
    uint32_t n_pes, n_nodes; /* n_nodes 0: each host is a node */
    uint64_t job;
    struct ry_secret secret;
    uint64_t start_deadline_ns;
};

/* Serves the listening sockets, which it owns also on failure. */
int ry_host_open(const struct ry_host_cfg *cfg, const int *fds, uint32_t n_fds,
                 struct ry_host **out);

/* Tells the PEs that are still there that this is no failure, and ends. `host` is a struct ry_host.
 */
void ry_host_close(void *host);

#endif
