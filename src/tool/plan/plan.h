/* SPDX-License-Identifier: Apache-2.0 */
/* The install of a DeepEP/NVSHMEM/railyard stack as phases. Versions and download sites are in
 * plan_versions.c only. */
#ifndef RY_TOOL_PLAN_H
#define RY_TOOL_PLAN_H

#include <railyard/topo.h>
#include <stdio.h>

/* Versions that fit together. */
struct ry_plan_set {
    const char *name;
    const char *cuda;        /* 12.9 */
    const char *doca;        /* 3.2.1 */
    const char *gdrcopy;     /* 2.5 */
    const char *nvshmem;     /* 3.5.19-1 */
    const char *torch;       /* 2.9.1 */
    const char *torch_cuda;  /* cu129 */
    const char *deepep;      /* branch, tag or commit */
    const char *deepep_pull; /* the GPU-NIC map patch */
};

/* One version of a distribution and what it calls things. */
struct ry_plan_distribution {
    const char *id, *version;   /* as in os-release; version "" is any */
    const char *cuda_repo;      /* path below the CUDA site */
    const char *doca_repo;      /* path below the DOCA site */
    const char *initramfs;      /* command that puts module options into the boot image */
    const char *mpi_home;       /* where MPI's include and lib meet */
    const char *build_packages; /* names of the build dependencies, with spaces between */
};

struct ry_plan_sites {
    const char *cuda, *doca, *torch, *gdrcopy, *nvshmem, *deepep;
};

extern const struct ry_plan_sites ry_plan_sites;
const struct ry_plan_set *ry_plan_find_set(const char *name);
const struct ry_plan_distribution *ry_plan_find_distribution(const char *id, const char *version);
void ry_plan_list_sets(void);

enum ry_plan_state { RY_PLAN_DONE, RY_PLAN_NEEDED, RY_PLAN_BLOCKED };

enum ry_plan_phase {
    RY_PHASE_TOOLKIT,
    RY_PHASE_DRIVER_STACK,
    RY_PHASE_MODULE_OPTIONS,
    RY_PHASE_REBOOT,
    RY_PHASE_BUILD_DEPENDENCIES,
    RY_PHASE_GDRCOPY,
    RY_PHASE_NVSHMEM,
    RY_PHASE_PYTORCH,
    RY_PHASE_DEEPEP,
    RY_PHASE_ENVIRONMENT,
    RY_PHASE_TESTS,
    RY_PHASES
};

struct ry_plan {
    const struct ry_plan_set *set;
    const struct ry_plan_distribution *distribution;
    char distribution_text[64];
    char prefix[200]; /* where NVSHMEM, GDRCopy and the Python environment go */
    unsigned sm;      /* of the GPUs, 0 unknown */
    int wants_gdrdrv; /* the handler is cpu */
    enum ry_plan_state states[RY_PHASES];
    char reasons[RY_PHASES][160];
};

extern const char *const ry_plan_names[RY_PHASES];

/* Fills states and reasons. */
void ry_plan_judge(struct ry_plan *plan, ry_facts *facts, ry_topo *topo);

/* Writes the script for the phases that are needed; `only` is a phase or RY_PHASES for all. */
void ry_plan_write_script(const struct ry_plan *plan, unsigned only, FILE *out);

#endif
