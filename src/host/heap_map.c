/* SPDX-License-Identifier: Apache-2.0 */
#include "host/heap_map.h"

#include <railyard/config.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/error.h"

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW };

static uint64_t whole_pages(uint64_t len)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

    return len > UINT64_MAX - page ? 0 : (len + page - 1) / page * page;
}

static int no_room(const char *name, uint64_t len)
{
    char size[32];
    int cause = errno;

    ry_format_size(len, size, sizeof(size));
    return ry_fail(RY_ERR_NO_MEMORY,
                   "cannot get %s for the %s: %s: see RAILYARD_HEAP_SIZE, ulimit -v", size, name,
                   strerror(cause));
}

static int make_fd(const char *name, uint64_t len)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0)
        return ry_fail(RY_ERR_SYSTEM, "cannot create shared memory: %s: see ulimit -n",
                       strerror(errno));
    if (ftruncate(fd, (off_t)len) < 0 || fcntl(fd, F_ADD_SEALS, SEALS | F_SEAL_SEAL) < 0) {
        int rc = no_room(name, len);

        close(fd);
        return rc;
    }
    return fd;
}

int ry_map_create(const char *name, uint64_t len_bytes, bool shared, struct ry_map *out)
{
    uint64_t len = whole_pages(len_bytes);
    int fd = -1;

    if (len == 0 || len > INT64_MAX)
        return ry_fail(RY_ERR_INVALID, "a %s of %llu bytes", name, (unsigned long long)len_bytes);
    if (shared) {
        fd = make_fd(name, len);
        if (fd < 0)
            return fd;
    }
    void *base = mmap(NULL, len, PROT_READ | PROT_WRITE,
                      shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, fd, 0);

    if (base == MAP_FAILED) {
        int rc = no_room(name, len);

        if (fd >= 0)
            close(fd);
        return rc;
    }
    *out = (struct ry_map){.base = base, .len_bytes = len, .fd = fd};
    return RY_OK;
}

int ry_map_peer(int fd, uint64_t len_bytes, struct ry_map *out)
{
    uint64_t len = whole_pages(len_bytes);
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);

    if (fstat(fd, &st) < 0 || seals < 0 || (seals & SEALS) != SEALS || len == 0 ||
        (uint64_t)st.st_size < len) {
        close(fd);
        return ry_fail(RY_ERR_PROTOCOL,
                       "a peer's memory is not what it said: want %llu bytes, sealed",
                       (unsigned long long)len_bytes);
    }
    void *base = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    int rc = base == MAP_FAILED ? no_room("map of a peer's memory", len) : RY_OK;

    close(fd);
    if (rc == RY_OK)
        *out = (struct ry_map){.base = base, .len_bytes = len, .fd = -1};
    return rc;
}

void ry_map_free(struct ry_map *m)
{
    if (m->base)
        munmap(m->base, m->len_bytes);
    if (m->fd >= 0)
        close(m->fd);
    *m = (struct ry_map){.fd = -1};
}
