/* SPDX-License-Identifier: Apache-2.0 */
/* Libraries in sight of a process, and extensions built against them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doctor.h"

/* Two copies of one library with different versions: which wins depends on who loads first. */
static void check_copies(struct ry_doctor *doctor, struct ry_result *result, const char *name)
{
    const struct ry_lib *first = NULL, *newest = NULL, *other = NULL;
    for (unsigned i = 0; i < doctor->lib_count; i++) {
        const struct ry_lib *lib = &doctor->libs[i];
        if (strncmp(lib->name, name, strlen(name)) != 0)
            continue;
        if (!first)
            first = newest = lib;
        else if (!other && strcmp(lib->path, first->path) != 0)
            other = lib;
        if (ry_version_compare(lib->version, newest->version) > 0)
            newest = lib;
    }
    const char *preload = ry_doctor_env(doctor, "LD_PRELOAD");
    if (!doctor->has_libs)
        ry_say(result, RY_VERDICT_NA, "libraries cannot be listed");
    else if (!first)
        ry_say(result, RY_VERDICT_NA, "no %s here", name);
    else if (!other)
        ry_say(result, RY_VERDICT_OK, "one copy: %s %s", first->path, first->version);
    else if (preload && strstr(preload, name))
        ry_say(result, RY_VERDICT_OK, "several copies, LD_PRELOAD decides: %s", preload);
    else {
        int differ = strcmp(first->version, other->version) != 0;
        ry_say(result, differ ? RY_VERDICT_FAIL : RY_VERDICT_WARN,
               "two copies: %s (%s) wins over %s (%s)", first->path, first->version, other->path,
               other->version);
        ry_fix(result, "export LD_PRELOAD=%s", newest->path);
    }
}

static void check_nvshmem_copies(struct ry_doctor *doctor, struct ry_result *result)
{
    check_copies(doctor, result, "libnvshmem_host.so");
}

static void check_nccl_copies(struct ry_doctor *doctor, struct ry_result *result)
{
    check_copies(doctor, result, "libnccl.so");
}

static void check_verbs_copies(struct ry_doctor *doctor, struct ry_result *result)
{
    check_copies(doctor, result, "libibverbs.so");
}

static void check_device_library(struct ry_doctor *doctor, struct ry_result *result)
{
    const struct ry_lib *host = ry_doctor_lib(doctor, "libnvshmem_host.so.");
    const struct ry_lib *device = ry_doctor_lib(doctor, "libnvshmem_device.a");
    if (!host || !device)
        ry_say(result, RY_VERDICT_NA, "no pair of NVSHMEM host and device library here");
    else if (ry_version_compare(host->version, device->version) == 0)
        ry_say(result, RY_VERDICT_OK, "host and device library are both %s", host->version);
    else {
        ry_say(result, RY_VERDICT_FAIL,
               "the host library is %s, the device library %s: code built "
               "with the one misreads the other's state",
               host->version, device->version);
        ry_fix(result,
               "export NVSHMEM_DIR=%.*s && rm -rf build && pip install --no-build-isolation "
               "--force-reinstall .",
               (int)(strstr(host->path, "/lib") ? strrchr(host->path, '/') - host->path : 0),
               host->path);
    }
}

/* True if `list` ("80,90") holds `number`. */
static int list_has(const char *list, unsigned number)
{
    while (*list) {
        if (strtoul(list, NULL, 10) == number)
            return 1;
        list += strcspn(list, ",");
        list += *list == ',';
    }
    return 0;
}

static const char *arch_name(unsigned sm, char *name, size_t cap)
{
    snprintf(name, cap, "%u.%u", sm / 10, sm % 10);
    return name;
}

static void check_extension_arch(struct ry_doctor *doctor, struct ry_result *result)
{
    char name[16];
    if (ry_needs_gpu(doctor, result))
        return;
    if (!doctor->extension_count) {
        ry_say(result, RY_VERDICT_NA, "no deep_ep in sight");
        return;
    }
    for (unsigned i = 0; i < doctor->extension_count; i++) {
        const struct ry_extension *e = &doctor->extensions[i];
        unsigned sm = ry_topo_gpu_at(doctor->topo, 0)->sm;
        if (!sm || e->sm[0] == '-' || list_has(e->sm, sm))
            continue;
        ry_say(result, RY_VERDICT_FAIL,
               "%s has code for sm_%s only, the GPUs are sm_%u: \"named "
               "symbol not found\"",
               e->path, e->sm, sm);
        ry_fix(result,
               "TORCH_CUDA_ARCH_LIST=%s pip install --no-build-isolation "
               "--force-reinstall .",
               arch_name(sm, name, sizeof name));
        return;
    }
    ry_say(result, RY_VERDICT_OK, "deep_ep has code for these GPUs");
}

static void check_extension_ibgda(struct ry_doctor *doctor, struct ry_result *result)
{
    if (!doctor->extension_count) {
        ry_say(result, RY_VERDICT_NA, "no deep_ep in sight");
        return;
    }
    for (unsigned i = 0; i < doctor->extension_count; i++) {
        const struct ry_extension *e = &doctor->extensions[i];
        if (e->ibgda)
            continue;
        ry_say(result, RY_VERDICT_FAIL,
               "%s was built against an NVSHMEM without IBGDA: it works "
               "inside one machine only",
               e->path);
        ry_fix(result, "cmake -S . -B build -DNVSHMEM_IBGDA_SUPPORT=ON && cmake --build build "
                       "--target install; then build DeepEP again with NVSHMEM_DIR set");
        return;
    }
    ry_say(result, RY_VERDICT_OK, "deep_ep was built with IBGDA");
}

static void check_deepep_copies(struct ry_doctor *doctor, struct ry_result *result)
{
    if (!doctor->extension_count) {
        ry_say(result, RY_VERDICT_NA, "no deep_ep in sight");
        return;
    }
    if (doctor->extension_count == 1) {
        ry_say(result, RY_VERDICT_OK, "one deep_ep: %s", doctor->extensions[0].path);
        return;
    }
    const struct ry_extension *first = &doctor->extensions[0], *other = &doctor->extensions[1];
    ry_say(result, RY_VERDICT_FAIL, "two deep_ep: %s wins over %s", first->path, other->path);
    ry_fix(result, "rm -r %s", other->path);
}

static void check_deepep_python(struct ry_doctor *doctor, struct ry_result *result)
{
    char *text = ry_facts_text(doctor->facts, "facts/python");
    char version[16] = "", tag[32] = "";
    if (text)
        sscanf(text, "%15s %31s", version, tag);
    free(text);
    if (!doctor->extension_count || !tag[0]) {
        ry_say(result, RY_VERDICT_NA,
               doctor->extension_count ? "no python3 in the path" : "no deep_ep in sight");
        return;
    }
    for (unsigned i = 0; i < doctor->extension_count; i++) {
        const struct ry_extension *e = &doctor->extensions[i];
        if (e->python[0] == '-' || strcmp(e->python, tag) == 0)
            continue;
        ry_say(result, RY_VERDICT_FAIL, "%s was built for %s, python3 is %s", e->path, e->python,
               tag);
        ry_fix(result, "python%s -m pip install --no-build-isolation --force-reinstall .",
               version);
        return;
    }
    ry_say(result, RY_VERDICT_OK, "deep_ep was built for this Python (%s)", version);
}

/* Before the patch of 2026 DeepEP's own send code published to a counter that no proxy reads. */
static void check_cpu_handler(struct ry_doctor *doctor, struct ry_result *result)
{
    static const char last_bad[] = "1.2.1";
    if (!doctor->extension_count || strncmp(doctor->handler, "cpu", 3) != 0) {
        ry_say(result, RY_VERDICT_NA,
               doctor->extension_count ? "the handler cpu is not wanted" : "no deep_ep in sight");
        return;
    }
    const struct ry_extension *e = &doctor->extensions[0];
    if (ry_version_compare(e->version, last_bad) > 0) {
        ry_say(result, RY_VERDICT_OK, "deep_ep %s works with the handler cpu", e->version);
        return;
    }
    ry_say(result, RY_VERDICT_FAIL,
           "deep_ep %s hangs in its first dispatch with the handler %s: it "
           "publishes to a counter that the CPU thread does not read",
           e->version, doctor->handler);
    ry_fix(result, "export NVSHMEM_IBGDA_NIC_HANDLER=gpu");
}

const struct ry_check ry_checks_library[] = {
    {"nvshmem-copies", "facts/libs, LD_PRELOAD",
     "pip, a package and a build of one's own each bring libnvshmem_host. The loader takes the "
     "first it meets (LD_PRELOAD, LD_LIBRARY_PATH, the extension's rpath, the system), which need "
     "not be the one the device code was built with.",
     check_nvshmem_copies},
    {"nccl-copies", "facts/libs, LD_PRELOAD",
     "PyTorch brings its own libnccl; another in LD_LIBRARY_PATH shadows it.", check_nccl_copies},
    {"verbs-copies", "facts/libs, LD_PRELOAD",
     "A second libibverbs (from a container or conda) looks for its providers elsewhere and then "
     "sees no device.",
     check_verbs_copies},
    {"device-library", "facts/libs",
     "NVSHMEM's device library is compiled into an extension, its host library is loaded at start. "
     "They share structures, so both must be of one version.",
     check_device_library},
    {"extension-arch", "facts/extensions, facts/gpus",
     "CUDA code is built for given GPU architectures. If none fits, the first kernel fails with "
     "\"named symbol not found\" or \"no kernel image\".",
     check_extension_arch},
    {"extension-ibgda", "facts/extensions",
     "DeepEP's kernels between machines need NVSHMEM's IBGDA. Against an NVSHMEM that was built "
     "without it they are left out or do not link.",
     check_extension_ibgda},
    {"deepep-copies", "facts/extensions",
     "Two installations of deep_ep: Python takes the first on its path, a new build may go to the "
     "other and change nothing.",
     check_deepep_copies},
    {"deepep-python", "facts/extensions, facts/python",
     "An extension module is built for one version of Python; another does not see it.",
     check_deepep_python},
    {"cpu-handler-deepep", "facts/extensions, NVSHMEM_IBGDA_NIC_HANDLER",
     "DeepEP has its own copy of NVSHMEM's submit code. Up to 1.2.1 its branch for the CPU handler "
     "advances a counter that the proxy thread does not poll, so no doorbell is ever rung.",
     check_cpu_handler},
    {NULL, NULL, NULL, NULL},
};
