/* SPDX-License-Identifier: Apache-2.0 */
/* What launchers leave in the environment. */
#ifndef RY_HOST_BOOT_ENV_H
#define RY_HOST_BOOT_ENV_H

#include <stdbool.h>

#include "host/boot.h"
#include "host/boot_net.h"

/* A number in [min, max]. 1: set, 0: the variable is not there or empty (out untouched), or
 * RY_ERR_CONFIG with a line that names the variable. */
int ry_env_u32(const char *name, uint32_t min, uint32_t max, uint32_t *out);

enum ry_boot_way { RY_BOOT_SOLO, RY_BOOT_LAUNCH, RY_BOOT_PMIX, RY_BOOT_TCP };

/* Which way this process's environment asks for; RY_ERR_CONFIG: none that exists. */
int ry_boot_way(void);

/* Fills cfg from RAILYARD_PE, PES, JOB, SECRET, INCARNATION and connects to the launcher. The
 * descriptor, or an error. */
int ry_boot_launch_connect(struct ry_net_cfg *cfg);

int ry_boot_launch_open(uint64_t deadline_ns, struct ry_boot **out);
int ry_boot_tcp_open(uint64_t deadline_ns, struct ry_boot **out);
int ry_boot_pmix_open(uint64_t deadline_ns, struct ry_boot **out);
bool ry_boot_pmix_built(void);

#endif
