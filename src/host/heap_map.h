/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that PEs of one host share: a memfd where they are processes, plain memory where they are
 * threads of one. No file, and nothing in /dev/shm. */
#ifndef RY_HOST_HEAP_MAP_H
#define RY_HOST_HEAP_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ry_map {
    void *base;
    uint64_t len_bytes; /* whole pages */
    int fd;             /* -1: plain memory, or a peer's mapping whose descriptor is closed */
};

/* New memory, zeroed, of at least len_bytes. `shared`: as a memfd called `name`, sealed against
 * shrinking and growing, so that no peer can be made to touch a page that is gone. NO_MEMORY,
 * SYSTEM. */
int ry_map_create(const char *name, uint64_t len_bytes, bool shared, struct ry_map *out);

/* A peer's memory by its descriptor, which is the map's from then on, also on failure. PROTOCOL: it
 * is not as long as the peer said, or not sealed. */
int ry_map_peer(int fd, uint64_t len_bytes, struct ry_map *out);

void ry_map_free(struct ry_map *m);

#endif
