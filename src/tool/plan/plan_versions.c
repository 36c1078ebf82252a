/* SPDX-License-Identifier: Apache-2.0 */
/* The one table of versions and download sites. To move to newer versions, add a set that was
 * tried as a whole; a version that is changed alone rarely fits. */
#include <stdio.h>
#include <string.h>

#include "plan.h"

const struct ry_plan_sites ry_plan_sites = {
    .cuda = "https://developer.download.nvidia.com/compute/cuda/repos",
    .doca = "https://linux.mellanox.com/public/repo/doca",
    .torch = "https://download.pytorch.org/whl",
    .gdrcopy = "https://github.com/NVIDIA/gdrcopy",
    .nvshmem = "https://github.com/NVIDIA/nvshmem",
    .deepep = "https://github.com/deepseek-ai/DeepEP",
};

static const struct ry_plan_set sets[] = {
    {"2026-1", "12.9", "3.2.1", "2.5", "3.5.19-1", "2.9.1", "cu129", "main", "466"},
};

static const char apt_packages[] =
    "build-essential cmake ninja-build git python3-dev python3-venv "
    "openmpi-bin libopenmpi-dev libibverbs-dev";
static const char update_initramfs[] = "update-initramfs -u";

static const struct ry_plan_distribution distributions[] = {
    {"ubuntu", "24.04", "ubuntu2404", "ubuntu24.04", update_initramfs,
     "/usr/lib/x86_64-linux-gnu/openmpi", apt_packages},
    {"ubuntu", "22.04", "ubuntu2204", "ubuntu22.04", update_initramfs,
     "/usr/lib/x86_64-linux-gnu/openmpi", apt_packages},
    {"debian", "12", "debian12", "debian12.5", update_initramfs,
     "/usr/lib/x86_64-linux-gnu/openmpi", apt_packages},
};

const struct ry_plan_set *ry_plan_find_set(const char *name)
{
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        if (!name || strcmp(sets[i].name, name) == 0)
            return &sets[i];
    }
    return NULL;
}

void ry_plan_list_sets(void)
{
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++)
        printf(
            "%s%s: CUDA %s, DOCA-OFED %s, GDRCopy %s, NVSHMEM %s, PyTorch %s+%s, DeepEP %s with "
            "pull request %s\n",
            sets[i].name, i == 0 ? " (default)" : "", sets[i].cuda, sets[i].doca, sets[i].gdrcopy,
            sets[i].nvshmem, sets[i].torch, sets[i].torch_cuda, sets[i].deepep,
            sets[i].deepep_pull);
}

const struct ry_plan_distribution *ry_plan_find_distribution(const char *id, const char *version)
{
    for (size_t i = 0; i < sizeof distributions / sizeof distributions[0]; i++) {
        if (strcmp(distributions[i].id, id) == 0 && strcmp(distributions[i].version, version) == 0)
            return &distributions[i];
    }
    return NULL;
}
