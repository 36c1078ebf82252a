/* SPDX-License-Identifier: Apache-2.0 */
#include "host/heap_map.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/error.h"

int ry_map_create(uint64_t bytes, int shared, void **base, int *fd)
{
    int flags = shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, f = -1;
    void *p;

    if (shared) {
        f = memfd_create("railyard-heap", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (f < 0)
            return ry_fail(RY_ERR_SYSTEM, "memfd for the heap: %s", strerror(errno));
        /* sealed, so that no peer can be made to touch a page that is gone */
        if (ftruncate(f, (off_t)bytes) || fcntl(f, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW)) {
            int e = errno;

            close(f);
            return ry_fail(RY_ERR_NO_MEMORY,
                           "heap of %" PRIu64 " bytes: %s: lower RAILYARD_HEAP_SIZE", bytes,
                           strerror(e));
        }
    }
    p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, f, 0);
    if (p == MAP_FAILED) {
        int e = errno;

        if (f >= 0)
            close(f);
        return ry_fail(RY_ERR_NO_MEMORY, "heap of %" PRIu64 " bytes: %s: lower RAILYARD_HEAP_SIZE",
                       bytes, strerror(e));
    }
    *base = p;
    *fd = f;
    return RY_OK;
}

int ry_map_attach(int fd, uint64_t bytes, void **base)
{
    struct stat st;
    void *p;

    if (fstat(fd, &st) || st.st_size < 0 || (uint64_t)st.st_size < bytes)
        return ry_fail(RY_ERR_PROTOCOL, "a peer's memory is smaller than it said (%" PRIu64 ")",
                       bytes);
    p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return ry_fail(RY_ERR_NO_MEMORY, "mapping %" PRIu64 " bytes of a peer: %s", bytes,
                       strerror(errno));
    *base = p;
    return RY_OK;
}

void ry_map_release(void *base, uint64_t bytes)
{
    if (base)
        munmap(base, bytes);
}
