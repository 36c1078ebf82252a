/* SPDX-License-Identifier: Apache-2.0 */
/* What `railyard env` knows of a machine, and the writers for each library. */
#ifndef RY_TOOL_ENV_H
#define RY_TOOL_ENV_H

#include <railyard/topo.h>

struct ry_env_machine {
    ry_topo *topo;
    const char *handler;
    int has_driver_options, has_gdrdrv;
    int gid_index; /* the same on all ports; -1 none is needed, -2 they differ */
    char *hca; /* RAILYARD_HCA as it is set, or NULL */
    unsigned pes, tokens, nvshmem_copies;
    char preload[RY_FACT_PATH]; /* the libnvshmem_host to take, "" if none is in sight */
};

void ry_env_railyard(const struct ry_env_machine *machine);
void ry_env_nvshmem(const struct ry_env_machine *machine);
void ry_env_deepep(const struct ry_env_machine *machine);
void ry_env_nccl(const struct ry_env_machine *machine);

#endif
