/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that peers of the same host map too: a memfd, so that nothing stays behind. */
#ifndef RY_HOST_HEAP_MAP_H
#define RY_HOST_HEAP_MAP_H

#include <stdint.h>

/* Zeroed memory. shared: *fd is a memfd (close-on-exec, owned by the caller), else -1 and plain
 * memory. Errors: NO_MEMORY, SYSTEM. */
int ry_map_create(uint64_t bytes, int shared, void **base, int *fd);
/* Map a peer's descriptor; its size is checked against `bytes`. */
int ry_map_attach(int fd, uint64_t bytes, void **base);
void ry_map_release(void *base, uint64_t bytes);

#endif
