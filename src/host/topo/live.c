/* SPDX-License-Identifier: Apache-2.0 */
/* Run-time facts that need nothing but the C library and hwloc. */
#include "live.h"

#include <hwloc.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

extern char **environ;

static const struct {
    const char *path;
    int (*make)(ry_facts *facts, struct ry_text *out);
} makers[] = {
    {"topology.xml", ry_live_topology},   {"facts/env", ry_live_env},
    {"facts/limits", ry_live_limits},     {"facts/packages", ry_live_packages},
    {"facts/python", ry_live_python},     {"facts/build", ry_live_build},
    {"facts/launcher", ry_live_launcher}, {"facts/gpus", ry_live_gpus},
    {"facts/register", ry_live_register}, {"facts/devices", ry_live_devices},
    {"facts/counters", ry_live_counters}, {"facts/pcie", ry_live_pcie},
    {"facts/libs", ry_live_libs},         {"facts/extensions", ry_live_extensions},
    {"facts/torch", ry_live_torch},       {"facts/sources", ry_live_sources},
};

int ry_facts_is_made(const char *path)
{
    return strcmp(path, "topology.xml") == 0 || strncmp(path, "facts/", strlen("facts/")) == 0;
}

int ry_facts_make_live(ry_facts *facts, const char *path, struct ry_text *out)
{
    for (size_t i = 0; i < sizeof makers / sizeof makers[0]; i++) {
        if (strcmp(makers[i].path, path) == 0)
            return makers[i].make(facts, out);
    }
    return -1;
}

int ry_live_topology(ry_facts *facts, struct ry_text *out)
{
    (void)facts;
    hwloc_topology_t tree;
    if (hwloc_topology_init(&tree) != 0)
        return -1;
    hwloc_topology_set_io_types_filter(tree, HWLOC_TYPE_FILTER_KEEP_ALL);
    /* sysfs tells all that is needed; these start drivers, open displays or read name tables */
    static const char *const left_out[] = {"pci",  "gl",   "opencl",   "cuda",
                                           "nvml", "rsmi", "levelzero"};
    for (size_t i = 0; i < sizeof left_out / sizeof left_out[0]; i++)
        hwloc_topology_set_components(tree, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, left_out[i]);
    char *xml = NULL;
    int len = 0;
    int failed = hwloc_topology_load(tree) != 0 ||
                 hwloc_topology_export_xmlbuffer(tree, &xml, &len, 0) != 0;
    if (!failed) {
        ry_text_add(out, xml, len > 0 ? (size_t)len - 1 : 0);
        hwloc_free_xmlbuffer(tree, xml);
    }
    hwloc_topology_destroy(tree);
    return failed ? -1 : 0;
}

/* Settings that a check may want to see; no others are ever read. */
static int is_wanted_setting(const char *name, size_t len)
{
    static const char *const prefixes[] = {"RAILYARD_", "NVSHMEM_", "DEEP_EP_", "NCCL_", "UCX_"};
    static const char *const names[] = {
        "CUDA_HOME",   "CUDA_VISIBLE_DEVICES", "LD_PRELOAD",           "LD_LIBRARY_PATH",
        "PYTHONPATH",  "GDRCOPY_HOME",         "NVSHMEM_DIR",          "MPI_HOME",
        "VIRTUAL_ENV", "CONDA_PREFIX",         "TORCH_CUDA_ARCH_LIST", "LOCAL_RANK"};
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return strncmp(name, "RAILYARD_SECRET", len) != 0;
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strlen(names[i]) == len && strncmp(name, names[i], len) == 0)
            return 1;
    }
    return 0;
}

static int compare_lines(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

int ry_live_env(ry_facts *facts, struct ry_text *out)
{
    (void)facts;
    char *lines[512];
    size_t count = 0;
    for (char **e = environ; *e && count < 512; e++) {
        if (is_wanted_setting(*e, strcspn(*e, "=")) && !strchr(*e, '\n'))
            lines[count++] = *e;
    }
    qsort(lines, count, sizeof lines[0], compare_lines);
    for (size_t i = 0; i < count; i++)
        ry_text_addf(out, "%s\n", lines[i]);
    return 0;
}

static void add_limit(struct ry_text *out, const char *name, int which)
{
    struct rlimit limit;
    if (getrlimit((__rlimit_resource_t)which, &limit) != 0)
        return;
    if (limit.rlim_cur == RLIM_INFINITY)
        ry_text_addf(out, "%s unlimited\n", name);
    else
        ry_text_addf(out, "%s %llu\n", name, (unsigned long long)limit.rlim_cur);
}

int ry_live_limits(ry_facts *facts, struct ry_text *out)
{
    (void)facts;
    struct statvfs shm;
    add_limit(out, "memlock", RLIMIT_MEMLOCK);
    add_limit(out, "nofile", RLIMIT_NOFILE);
    if (statvfs("/dev/shm", &shm) == 0)
        ry_text_addf(out, "shm %llu\n",
                     (unsigned long long)shm.f_blocks * (unsigned long long)shm.f_frsize);
    ry_text_addf(out, "uid %u\n", (unsigned)getuid());
    return 0;
}

/* Packages that checks and the plan ask about, a name ending in * standing for all that begin so.
 */
static int is_wanted_package(const char *name)
{
    static const char *const wanted[] = {
        "build-essential", "cmake",          "git",           "ninja-build",
        "python3-dev",     "python3-venv",   "cuda-toolkit*", "doca-*",
        "mlnx-ofed*",      "rdma-core",      "libibverbs*",   "ibverbs-providers",
        "gdrcopy*",        "gdrdrv*",        "libgdrapi*",    "libnvshmem*",
        "libnccl*",        "nvidia-driver*", "nvidia-open*",  "openmpi-bin",
        "libopenmpi-dev",  "cuda-drivers*"};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        size_t len = strlen(wanted[i]);
        if (wanted[i][len - 1] == '*' ? strncmp(name, wanted[i], len - 1) == 0
                                      : strcmp(name, wanted[i]) == 0)
            return 1;
    }
    return 0;
}

int ry_live_packages(ry_facts *facts, struct ry_text *out)
{
    (void)facts;
    FILE *status = fopen("/var/lib/dpkg/status", "r");
    if (!status)
        return -1;
    char line[512], name[128] = "";
    int installed = 0;
    while (fgets(line, sizeof line, status)) {
        char version[128];
        if (sscanf(line, "Package: %127s", name) == 1)
            installed = 0;
        else if (strncmp(line, "Status: ", 8) == 0)
            installed = strstr(line, " installed") != NULL;
        else if (installed && sscanf(line, "Version: %127s", version) == 1 &&
                 is_wanted_package(name))
            ry_text_addf(out, "%s %s\n", name, version);
    }
    fclose(status);
    return 0;
}

/* The python3 that a command line would start: its file name has the version. */
int ry_live_python(ry_facts *facts, struct ry_text *out)
{
    (void)facts;
    const char *path = getenv("PATH");
    char candidate[PATH_MAX], real[PATH_MAX];
    while (path && *path) {
        size_t len = strcspn(path, ":");
        snprintf(candidate, sizeof candidate, "%.*s/python3", (int)len, path);
        unsigned major, minor;
        if (access(candidate, X_OK) == 0 && realpath(candidate, real) &&
            sscanf(strrchr(real, '/'), "/python%u.%u", &major, &minor) == 2) {
            ry_text_addf(out, "%u.%u cpython-%u%u %s\n", major, minor, major, minor, candidate);
            return 0;
        }
        path += len + (path[len] == ':');
    }
    return -1;
}

int ry_live_build(ry_facts *facts, struct ry_text *out)
{
    (void)facts;
#ifdef RY_HAVE_PMIX
    ry_text_addf(out, "pmix=1\n");
#else
    ry_text_addf(out, "pmix=0\n");
#endif
    return 0;
}

/* Which launcher started this process, and how many PEs it says there are. */
int ry_live_launcher(ry_facts *facts, struct ry_text *out)
{
    (void)facts;
    static const struct {
        const char *mark, *size, *name;
    } launchers[] = {
        {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "mpi"},
        {"PMIX_RANK", "PMIX_SIZE", "pmix"},
        {"SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_TASKS", "slurm"},
        {"TORCHELASTIC_RUN_ID", "WORLD_SIZE", "torchrun"},
    };
    for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; i++) {
        const char *size = getenv(launchers[i].size);
        if (getenv(launchers[i].mark)) {
            ry_text_addf(out, "%s %d\n", launchers[i].name, size ? atoi(size) : 1);
            return 0;
        }
    }
    ry_text_addf(out, "none 1\n");
    return 0;
}
