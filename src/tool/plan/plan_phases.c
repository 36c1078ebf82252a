/* SPDX-License-Identifier: Apache-2.0 */
/* The check of each phase: done, needed or blocked. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan.h"

const char *const ry_plan_names[RY_PHASES] = {
    "toolkit", "driver-stack", "module-options", "reboot", "build-dependencies",
    "gdrcopy", "nvshmem",      "pytorch",        "deepep", "environment",
    "tests"};

static void set(struct ry_plan *plan, unsigned phase, enum ry_plan_state state, const char *format,
                ...) __attribute__((format(printf, 4, 5)));

static void set(struct ry_plan *plan, unsigned phase, enum ry_plan_state state, const char *format,
                ...)
{
    va_list args;
    plan->states[phase] = state;
    va_start(args, format);
    vsnprintf(plan->reasons[phase], sizeof plan->reasons[phase], format, args);
    va_end(args);
}

/* The value after KEY= in os-release, without quotes. */
static void read_release(ry_facts *facts, const char *key, char *value, size_t cap)
{
    char *text = ry_facts_text(facts, "etc/os-release"), *rest = NULL;
    size_t len = strlen(key);
    value[0] = '\0';
    for (char *line = text ? strtok_r(text, "\n", &rest) : NULL; line;
         line = strtok_r(NULL, "\n", &rest)) {
        if (strncmp(line, key, len) == 0 && line[len] == '=') {
            line += len + 1 + (line[len + 1] == '"');
            snprintf(value, cap, "%.*s",
                     (int)strspn(line, "abcdefghijklmnopqrstuvwxyz0123456789._-"), line);
        }
    }
    free(text);
}

static int has_text(ry_facts *facts, const char *path, const char *part)
{
    char *text = ry_facts_text(facts, path);
    int found = text && strstr(text, part) != NULL;
    free(text);
    return found;
}

/* A package whose name begins so; the version must begin so too unless it is NULL. */
static int has_package(ry_facts *facts, const char *name, const char *version)
{
    char *text = ry_facts_text(facts, "facts/packages"), *rest = NULL;
    int found = 0;
    for (char *line = text ? strtok_r(text, "\n", &rest) : NULL; line && !found;
         line = strtok_r(NULL, "\n", &rest)) {
        const char *space = strchr(line, ' ');
        found = strncmp(line, name, strlen(name)) == 0 && space &&
                (!version || strncmp(space + 1, version, strlen(version)) == 0);
    }
    free(text);
    return found;
}

static int has_exact_package(ry_facts *facts, const char *name, size_t len)
{
    char word[64];
    snprintf(word, sizeof word, "%.*s ", (int)len, name);
    return has_package(facts, word, NULL);
}

static void judge_toolkit(struct ry_plan *plan, ry_facts *facts)
{
    char package[32], major[8];
    snprintf(major, sizeof major, "%.*s", (int)strcspn(plan->set->cuda, "."), plan->set->cuda);
    snprintf(package, sizeof package, "cuda-toolkit-%s-%s", major,
             plan->set->cuda + strlen(major) + 1);
    char *version = ry_facts_text(facts, "usr/local/cuda/version.json");
    int right = version && strstr(version, plan->set->cuda) != NULL;
    if (right || has_package(facts, package, NULL))
        set(plan, RY_PHASE_TOOLKIT, RY_PLAN_DONE, "CUDA %s is installed", plan->set->cuda);
    else
        set(plan, RY_PHASE_TOOLKIT, RY_PLAN_NEEDED, "%s",
            version ? "another CUDA is in /usr/local/cuda" : "no CUDA toolkit");
    free(version);
}

static void judge_driver_stack(struct ry_plan *plan, ry_facts *facts, ry_topo *topo)
{
    if (ry_topo_port_count(topo) == 0)
        set(plan, RY_PHASE_DRIVER_STACK, RY_PLAN_BLOCKED, "no RDMA device here");
    else if (has_package(facts, "doca-", NULL) || has_package(facts, "mlnx-ofed", NULL))
        set(plan, RY_PHASE_DRIVER_STACK, RY_PLAN_DONE, "a vendor driver stack is installed");
    else
        set(plan, RY_PHASE_DRIVER_STACK, RY_PLAN_NEEDED, "inbox drivers only (%s)",
            ry_topo_port_at(topo, 0)->device);
}

static void judge_options(struct ry_plan *plan, ry_facts *facts)
{
    int live = has_text(facts, "proc/driver/nvidia/params", "EnableStreamMemOPs: 1") &&
               (has_text(facts, "proc/driver/nvidia/params", "PeerMappingOverride=1") ||
                has_text(facts, "proc/driver/nvidia/params", "PeerMappingOverride=0x1"));
    int configured =
        has_text(facts, "etc/modprobe.d/nvidia-railyard.conf", "PeerMappingOverride=1");
    if (live)
        set(plan, RY_PHASE_MODULE_OPTIONS, RY_PLAN_DONE, "the options are in force");
    else if (configured)
        set(plan, RY_PHASE_MODULE_OPTIONS, RY_PLAN_DONE, "configured");
    else
        set(plan, RY_PHASE_MODULE_OPTIONS, RY_PLAN_NEEDED,
            "PeerMappingOverride and EnableStreamMemOPs are off");
    int changes = plan->states[RY_PHASE_DRIVER_STACK] == RY_PLAN_NEEDED ||
                  plan->states[RY_PHASE_MODULE_OPTIONS] == RY_PLAN_NEEDED;
    if (!live || changes)
        set(plan, RY_PHASE_REBOOT, RY_PLAN_NEEDED, "%s",
            changes ? "drivers or options change" : "options are configured but not in force");
    else
        set(plan, RY_PHASE_REBOOT, RY_PLAN_DONE, "nothing waits for it");
}

static void judge_dependencies(struct ry_plan *plan, ry_facts *facts)
{
    const char *at = plan->distribution ? plan->distribution->build_packages : "";
    char missing[128] = "";
    while (*at) {
        size_t len = strcspn(at, " ");
        size_t used = strlen(missing);
        /* a driver stack brings its own development files of libibverbs */
        int ofed = strncmp(at, "libibverbs-dev", len) == 0 && has_package(facts, "doca-", NULL);
        if (!ofed && !has_exact_package(facts, at, len))
            snprintf(missing + used, sizeof missing - used, " %.*s", (int)len, at);
        at += len + (at[len] == ' ');
    }
    if (missing[0])
        set(plan, RY_PHASE_BUILD_DEPENDENCIES, RY_PLAN_NEEDED, "missing:%s", missing);
    else
        set(plan, RY_PHASE_BUILD_DEPENDENCIES, RY_PLAN_DONE, "all packages are installed");
}

/* A fact below the prefix, which is an absolute path. */
static int has_file(const struct ry_plan *plan, ry_facts *facts, const char *below)
{
    char path[RY_FACT_PATH];
    int len = snprintf(path, sizeof path, "%s/%s", plan->prefix + 1, below);
    return len > 0 && (size_t)len < sizeof path && ry_facts_has(facts, path);
}

static void judge_gdrcopy(struct ry_plan *plan, ry_facts *facts)
{
    int library = has_package(facts, "libgdrapi", NULL) ||
                  ry_facts_has(facts, "usr/include/gdrapi.h") ||
                  has_file(plan, facts, "gdrcopy/include/gdrapi.h");
    int driver = !plan->wants_gdrdrv || has_text(facts, "proc/modules", "gdrdrv ");
    if (library && driver)
        set(plan, RY_PHASE_GDRCOPY, RY_PLAN_DONE, "the library is installed%s",
            plan->wants_gdrdrv ? ", gdrdrv is loaded" : "");
    else
        set(plan, RY_PHASE_GDRCOPY, RY_PLAN_NEEDED, "%s",
            library ? "the handler cpu needs gdrdrv" : "NVSHMEM is built against its headers");
}

static void judge_nvshmem(struct ry_plan *plan, ry_facts *facts)
{
    char *text = ry_facts_text(facts, "facts/libs");
    char *at = text ? strstr(text, "libnvshmem_host.so") : NULL;
    char version[64] = "";
    if (at)
        sscanf(at, "%*s %*s %63s", version);
    size_t len = strcspn(plan->set->nvshmem, "-");
    if (strncmp(version, plan->set->nvshmem, len) == 0)
        set(plan, RY_PHASE_NVSHMEM, RY_PLAN_DONE, "NVSHMEM %s is installed", version);
    else if (version[0])
        set(plan, RY_PHASE_NVSHMEM, RY_PLAN_NEEDED, "NVSHMEM %.40s is installed, %s is meant",
            version, plan->set->nvshmem);
    else
        set(plan, RY_PHASE_NVSHMEM, RY_PLAN_NEEDED, "no NVSHMEM");
    free(text);
}

static void judge_pytorch(struct ry_plan *plan, ry_facts *facts)
{
    char want[64];
    char *have = ry_facts_text(facts, "facts/torch");
    snprintf(want, sizeof want, "%s+%s", plan->set->torch, plan->set->torch_cuda);
    if (have && strcmp(have, want) == 0)
        set(plan, RY_PHASE_PYTORCH, RY_PLAN_DONE, "PyTorch %s is installed", want);
    else
        set(plan, RY_PHASE_PYTORCH, RY_PLAN_NEEDED, "%s%.40s",
            have ? "another PyTorch: " : "no PyTorch", have ? have : "");
    free(have);
}

/* DeepEP's code must fit the GPUs, have IBGDA, and its sources the map patch. */
static void judge_deepep(struct ry_plan *plan, ry_facts *facts)
{
    char *text = ry_facts_text(facts, "facts/extensions");
    char *sources = ry_facts_text(facts, "facts/sources");
    char list[64] = "", want[8];
    const char *at = text ? strstr(text, " sm=") : NULL;
    if (at)
        sscanf(at, " sm=%63s", list);
    snprintf(want, sizeof want, "%u", plan->sm);
    const char *deepep = sources ? strstr(sources, "deepep ") : NULL;
    char line[256] = "";
    if (deepep)
        snprintf(line, sizeof line, "%.*s", (int)strcspn(deepep, "\n"), deepep);
    if (strstr(line, "clean=0"))
        set(plan, RY_PHASE_DEEPEP, RY_PLAN_BLOCKED,
            "its source tree has changes that no commit holds: git stash first");
    else if (!at)
        set(plan, RY_PHASE_DEEPEP, RY_PLAN_NEEDED, "no deep_ep");
    else if (plan->sm && !strstr(list, want))
        set(plan, RY_PHASE_DEEPEP, RY_PLAN_NEEDED, "deep_ep has code for sm_%.32s, not sm_%s",
            list, want);
    else if (strstr(text, "ibgda=0"))
        set(plan, RY_PHASE_DEEPEP, RY_PLAN_NEEDED, "deep_ep was built without IBGDA");
    else if (strstr(line, "patch=0"))
        set(plan, RY_PHASE_DEEPEP, RY_PLAN_NEEDED, "the GPU-NIC map patch is missing");
    else
        set(plan, RY_PHASE_DEEPEP, RY_PLAN_DONE, "deep_ep is built for these GPUs");
    free(text);
    free(sources);
}

static void judge_rest(struct ry_plan *plan, ry_facts *facts)
{
    if (ry_facts_has(facts, "etc/profile.d/railyard.sh"))
        set(plan, RY_PHASE_ENVIRONMENT, RY_PLAN_DONE, "/etc/profile.d/railyard.sh is there");
    else
        set(plan, RY_PHASE_ENVIRONMENT, RY_PLAN_NEEDED, "no /etc/profile.d/railyard.sh");
    char *passed = ry_facts_text(facts, "var/lib/railyard/plan-tests");
    if (passed && strcmp(passed, plan->set->name) == 0)
        set(plan, RY_PHASE_TESTS, RY_PLAN_DONE, "passed with this set of versions");
    else
        set(plan, RY_PHASE_TESTS, RY_PLAN_NEEDED, "not run with this set of versions");
    free(passed);
}

/* A phase waits for what it builds on. */
static void block_by_others(struct ry_plan *plan)
{
    static const struct {
        enum ry_plan_phase phase, needs;
    } order[] = {
        {RY_PHASE_DEEPEP, RY_PHASE_NVSHMEM},
        {RY_PHASE_DEEPEP, RY_PHASE_PYTORCH},
        {RY_PHASE_TESTS, RY_PHASE_DEEPEP},
    };
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
        if (plan->states[order[i].phase] == RY_PLAN_NEEDED &&
            plan->states[order[i].needs] == RY_PLAN_BLOCKED)
            set(plan, order[i].phase, RY_PLAN_BLOCKED, "waits for %s",
                ry_plan_names[order[i].needs]);
    }
}

void ry_plan_judge(struct ry_plan *plan, ry_facts *facts, ry_topo *topo)
{
    char id[24], version[24];
    read_release(facts, "ID", id, sizeof id);
    read_release(facts, "VERSION_ID", version, sizeof version);
    snprintf(plan->distribution_text, sizeof plan->distribution_text, "%s %s",
             id[0] ? id : "unknown", version);
    plan->distribution = ry_plan_find_distribution(id, version);
    plan->sm = ry_topo_gpu_count(topo) ? ry_topo_gpu_at(topo, 0)->sm : 0;
    judge_toolkit(plan, facts);
    judge_driver_stack(plan, facts, topo);
    judge_options(plan, facts);
    judge_dependencies(plan, facts);
    judge_gdrcopy(plan, facts);
    judge_nvshmem(plan, facts);
    judge_pytorch(plan, facts);
    judge_deepep(plan, facts);
    judge_rest(plan, facts);
    block_by_others(plan);
    for (unsigned i = 0; i < RY_PHASES; i++) {
        if (plan->states[i] == RY_PLAN_DONE)
            continue;
        if (ry_topo_gpu_count(topo) == 0)
            set(plan, i, RY_PLAN_BLOCKED, "no NVIDIA GPU here");
        else if (!plan->distribution && i != RY_PHASE_REBOOT)
            set(plan, i, RY_PLAN_BLOCKED, "no recipe for %s", plan->distribution_text);
    }
}
