/* SPDX-License-Identifier: Apache-2.0 */
/* Where the records are. */
#ifndef RY_TEST_TOPO_RECORDS_H
#define RY_TEST_TOPO_RECORDS_H

#include <stdio.h>
#include <stdlib.h>

static inline const char *record_path(char *path, size_t cap, const char *name)
{
    const char *source = getenv("RY_TEST_SOURCE");
    snprintf(path, cap, "%s/test/records/%s", source ? source : ".", name);
    return path;
}

#endif
