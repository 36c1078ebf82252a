/* SPDX-License-Identifier: Apache-2.0 */
/* Run-time facts about software: libraries in sight in the order in which the loader looks, Python
 * extensions and what they were built for, source trees. */
#include "live.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static const char *const wanted_libs[] = {"libnvshmem_host.so.3",
                                          "libnvshmem_host.so.2",
                                          "libnvshmem_device.a",
                                          "libnccl.so.2",
                                          "libibverbs.so.1",
                                          "libmlx5.so.1",
                                          "libmlx5.so",
                                          "nvshmem_bootstrap_mpi.so.3",
                                          "nvshmem_bootstrap_pmix.so.3"};

/* The version in the name of the file that a link ends at: libnccl.so.2 -> libnccl.so.2.27.7. */
static void file_version(const char *path, char *version, size_t cap)
{
    char real[PATH_MAX];
    const char *at = realpath(path, real) ? strstr(strrchr(real, '/'), ".so.") : NULL;
    snprintf(version, cap, "-");
    if (at && strchr(at + 4, '.'))
        snprintf(version, cap, "%.40s", at + 4);
}

/* The version of the Python package "nvidia_nvshmem_cu12-3.4.5.dist-info" beside nvidia/. */
static int site_version(const char *site, const char *package, char *version, size_t cap)
{
    DIR *dir = opendir(site);
    size_t len = strlen(package);
    int found = 0;
    for (struct dirent *d = dir ? readdir(dir) : NULL; d && !found; d = readdir(dir)) {
        const char *dash = strncmp(d->d_name, package, len) == 0 ? strchr(d->d_name, '-') : NULL;
        const char *end = dash ? strstr(dash, ".dist-info") : NULL;
        if (!end && dash)
            end = strstr(dash, ".egg-info");
        if (dash && end && (dash == d->d_name + len || d->d_name[len] == '_')) {
            snprintf(version, cap, "%.*s", (int)(end - dash - 1), dash + 1);
            found = 1;
        }
    }
    if (dir)
        closedir(dir);
    return found;
}

static void add_lib(struct ry_text *out, const char *folder, const char *name, const char *site,
                    const char *origin)
{
    char path[PATH_MAX], real[PATH_MAX], version[64];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path ||
        access(path, R_OK) != 0 || !realpath(path, real) || strpbrk(path, " \n"))
        return;
    file_version(path, version, sizeof version);
    if (site && strstr(name, "nvshmem"))
        site_version(site, "nvidia_nvshmem", version, sizeof version);
    else if (site && strstr(name, "nccl"))
        site_version(site, "nvidia_nccl", version, sizeof version);
    ry_text_addf(out, "%s %s %s %s\n", name, path, version, origin);
}

static void add_folder(struct ry_text *out, const char *folder, const char *site,
                       const char *origin)
{
    for (size_t i = 0; i < sizeof wanted_libs / sizeof wanted_libs[0]; i++)
        add_lib(out, folder, wanted_libs[i], site, origin);
}

/* A list of folders as in PATH. */
static void add_folders(struct ry_text *out, const char *list, const char *origin)
{
    char folder[PATH_MAX];
    while (list && *list) {
        size_t len = strcspn(list, ":");
        snprintf(folder, sizeof folder, "%.*s", (int)len, list);
        if (len)
            add_folder(out, folder, NULL, origin);
        list += len + (list[len] == ':');
    }
}

static void add_preloaded(struct ry_text *out)
{
    const char *list = getenv("LD_PRELOAD");
    char path[PATH_MAX], version[64];
    while (list && *list) {
        size_t len = strcspn(list, ": ");
        snprintf(path, sizeof path, "%.*s", (int)len, list);
        const char *name = strrchr(path, '/');
        if (name && access(path, R_OK) == 0) {
            file_version(path, version, sizeof version);
            ry_text_addf(out, "%s %s %s preload\n", name + 1, path, version);
        }
        list += len;
        list += strspn(list, ": ");
    }
}

void ry_live_each_site(ry_site_fn each, void *arg)
{
    static const char *const roots[] = {"/usr/local/lib", "/usr/lib"};
    const char *path = getenv("PYTHONPATH");
    char folder[PATH_MAX];
    while (path && *path) {
        size_t len = strcspn(path, ":");
        snprintf(folder, sizeof folder, "%.*s", (int)len, path);
        if (len)
            each(arg, folder);
        path += len + (path[len] == ':');
    }
    const char *venv = getenv("VIRTUAL_ENV"), *conda = getenv("CONDA_PREFIX");
    char venv_lib[PATH_MAX / 2], conda_lib[PATH_MAX / 2];
    snprintf(venv_lib, sizeof venv_lib, "%s/lib", venv ? venv : "");
    snprintf(conda_lib, sizeof conda_lib, "%s/lib", conda ? conda : "");
    const char *all[] = {venv ? venv_lib : NULL, conda ? conda_lib : NULL, roots[0], roots[1]};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        DIR *dir = all[i] ? opendir(all[i]) : NULL;
        for (struct dirent *d = dir ? readdir(dir) : NULL; d; d = readdir(dir)) {
            if (strncmp(d->d_name, "python3", 7) != 0)
                continue;
            snprintf(folder, sizeof folder, "%s/%.64s/site-packages", all[i], d->d_name);
            if (access(folder, R_OK) == 0)
                each(arg, folder);
            snprintf(folder, sizeof folder, "%s/%.64s/dist-packages", all[i], d->d_name);
            if (access(folder, R_OK) == 0)
                each(arg, folder);
        }
        if (dir)
            closedir(dir);
    }
}

static void add_site_libs(void *arg, const char *site)
{
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s/nvidia/nvshmem/lib", site);
    add_folder(arg, folder, site, "python");
    snprintf(folder, sizeof folder, "%s/nvidia/nccl/lib", site);
    add_folder(arg, folder, site, "python");
}

int ry_live_libs(ry_facts *facts, struct ry_text *out)
{
    (void)facts;
    static const char *const homes[] = {"NVSHMEM_HOME", "NVSHMEM_DIR"};
    add_preloaded(out);
    add_folders(out, getenv("LD_LIBRARY_PATH"), "env");
    ry_live_each_site(add_site_libs, out);
    for (size_t i = 0; i < sizeof homes / sizeof homes[0]; i++) {
        const char *home = getenv(homes[i]);
        char folder[PATH_MAX];
        snprintf(folder, sizeof folder, "%s/lib", home ? home : "");
        if (home)
            add_folder(out, folder, NULL, "home");
    }
    add_folders(out,
                "/usr/local/lib:/usr/lib/x86_64-linux-gnu:/usr/lib/aarch64-linux-gnu:/usr/lib64:"
                "/usr/lib/x86_64-linux-gnu/nvshmem/12:/usr/lib/x86_64-linux-gnu/nvshmem/13:"
                "/usr/local/cuda/lib64:/opt/nvshmem/lib",
                "system");
    return 0;
}

/* Compute capabilities of the code in a fat binary. Layout: a header of magic, version and sizes,
 * then entries of kind, header size at 4, size at 8, architecture at 28, all little endian. */
static void list_architectures(const unsigned char *data, size_t len, struct ry_text *out)
{
    static const unsigned char magic[] = {0x50, 0xed, 0x55, 0xba};
    unsigned char seen[256] = {0};
    const unsigned char *at = data, *end = data + len;
    while ((at = memmem(at, (size_t)(end - at), magic, sizeof magic))) {
        uint64_t size;
        if ((size_t)(end - at) < 16)
            break;
        memcpy(&size, at + 8, sizeof size);
        const unsigned char *entry = at + 16;
        const unsigned char *stop = size < (uint64_t)(end - entry) ? entry + size : end;
        while (stop - entry >= 32) {
            uint32_t header, arch;
            uint64_t body;
            memcpy(&header, entry + 4, sizeof header);
            memcpy(&body, entry + 8, sizeof body);
            memcpy(&arch, entry + 28, sizeof arch);
            if (arch > 0 && arch < sizeof seen)
                seen[arch] = 1;
            if (header < 32 || body > (uint64_t)(stop - entry) - header ||
                header > (uint64_t)(stop - entry))
                break;
            entry += header + body;
        }
        at += 16;
    }
    const char *comma = "";
    for (unsigned i = 0; i < sizeof seen; i++) {
        if (seen[i]) {
            ry_text_addf(out, "%s%u", comma, i);
            comma = ",";
        }
    }
    if (!*comma)
        ry_text_addf(out, "-");
}

static void add_extension(struct ry_text *out, const char *site, const char *file)
{
    char path[PATH_MAX], tag[32] = "-", version[64] = "-";
    struct stat st;
    if (snprintf(path, sizeof path, "%s/%s", site, file) >= (int)sizeof path)
        return;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    void *data = MAP_FAILED;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0 && st.st_size < (1 << 28))
        data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (data == MAP_FAILED)
        return;
    const char *cpython = strstr(file, "cpython-");
    if (cpython)
        snprintf(tag, sizeof tag, "cpython-%.*s", (int)strcspn(cpython + 8, "-."), cpython + 8);
    site_version(site, "deep_ep", version, sizeof version);
    ry_text_addf(out, "deep_ep %s python=%s sm=", path, tag);
    list_architectures(data, (size_t)st.st_size, out);
    int ibgda = memmem(data, (size_t)st.st_size, "nvshmemi_ibgda_device_state", 27) != NULL;
    ry_text_addf(out, " ibgda=%d version=%s\n", ibgda, version);
    munmap(data, (size_t)st.st_size);
}

static void add_site_extensions(void *arg, const char *site)
{
    DIR *dir = opendir(site);
    for (struct dirent *d = dir ? readdir(dir) : NULL; d; d = readdir(dir)) {
        if (strncmp(d->d_name, "deep_ep_cpp", 11) == 0 && strstr(d->d_name, ".so"))
            add_extension(arg, site, d->d_name);
    }
    if (dir)
        closedir(dir);
}

int ry_live_extensions(ry_facts *facts, struct ry_text *out)
{
    (void)facts;
    ry_live_each_site(add_site_extensions, out);
    return 0;
}

static void add_torch(void *arg, const char *site)
{
    char version[64];
    struct ry_text *out = arg;
    if (out->len == 0 && site_version(site, "torch", version, sizeof version))
        ry_text_addf(out, "%s\n", version);
}

int ry_live_torch(ry_facts *facts, struct ry_text *out)
{
    (void)facts;
    ry_live_each_site(add_torch, out);
    return out->len ? 0 : -1;
}

/* 1 if git sees no change in the tree, 0 if it does, -1 if git cannot say. */
static int is_clean(const char *path)
{
    char *argv[] = {(char *)"git",
                    (char *)"-C",
                    (char *)path,
                    (char *)"status",
                    (char *)"--porcelain",
                    (char *)"--untracked-files=no",
                    NULL};
    int ends[2];
    pid_t pid;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    int failed = posix_spawnp(&pid, "git", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    char first;
    ssize_t got = failed ? -1 : read(ends[0], &first, 1);
    close(ends[0]);
    int status = 1;
    if (!failed)
        waitpid(pid, &status, 0);
    if (got > 0)
        return 0;
    return !failed && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 1 : -1;
}

static int file_has(const char *path, const char *text)
{
    char buffer[4096];
    FILE *file = fopen(path, "r");
    int found = 0;
    while (file && !found && fgets(buffer, sizeof buffer, file))
        found = strstr(buffer, text) != NULL;
    if (file)
        fclose(file);
    return found;
}

static void add_source(struct ry_text *out, const char *path)
{
    char sub[PATH_MAX];
    struct stat st, build;
    const char *gdrcopy = getenv("GDRCOPY_HOME");
    if (strpbrk(path, " \n") || stat(path, &st) != 0)
        return;
    snprintf(sub, sizeof sub, "%s/deep_ep/__init__.py", path);
    int deepep = access(sub, R_OK) == 0;
    snprintf(sub, sizeof sub, "%s/src/include/nvshmem.h", path);
    if (!deepep && access(sub, R_OK) != 0)
        return;
    ry_text_addf(out, "%s %s owner=%u", deepep ? "deepep" : "nvshmem", path, (unsigned)st.st_uid);
    snprintf(sub, sizeof sub, "%s/build", path);
    if (stat(sub, &build) == 0)
        ry_text_addf(out, " build_owner=%u", (unsigned)build.st_uid);
    int clean = is_clean(path);
    if (clean >= 0)
        ry_text_addf(out, " clean=%d", clean);
    if (deepep) {
        snprintf(sub, sizeof sub, "%s/deep_ep/buffer.py", path);
        ry_text_addf(out, " patch=%d\n", file_has(sub, "DEEP_EP_DEVICE_TO_HCA_MAPPING"));
    } else {
        snprintf(sub, sizeof sub, "%s/include/gdrapi.h", gdrcopy ? gdrcopy : "/usr");
        ry_text_addf(out, " gdrcopy=%d\n", access(sub, R_OK) == 0);
    }
}

int ry_live_sources(ry_facts *facts, struct ry_text *out)
{
    (void)facts;
    static const char *const below[] = {"DeepEP", "nvshmem_src", "nvshmem"};
    const char *home = getenv("HOME");
    const char *roots[] = {home, "/opt"};
    char path[PATH_MAX], here[PATH_MAX];
    if (getcwd(here, sizeof here))
        add_source(out, here);
    for (size_t r = 0; r < sizeof roots / sizeof roots[0]; r++) {
        for (size_t i = 0; roots[r] && i < sizeof below / sizeof below[0]; i++) {
            snprintf(path, sizeof path, "%.3900s/%s", roots[r], below[i]);
            add_source(out, path);
        }
    }
    return 0;
}
