/* SPDX-License-Identifier: Apache-2.0 */
/* Which ports a device selection (RAILYARD_HCA) takes: "mlx5_0:1,mlx5_1,^mlx5_2". One reading for
 * every backend and for the tools. A part is DEVICE or DEVICE:PORT; a * at the end of DEVICE stands
 * for any rest of the name; ^ before a part leaves out what it meets. Without a part that takes
 * something, everything not left out is taken. */
#ifndef RY_NIC_SELECT_H
#define RY_NIC_SELECT_H

#include "nic/nic.h"

struct ry_select_part {
    char device[RY_NIC_NAME_BYTES]; /* without the * */
    uint32_t port;                  /* 0: every port */
    bool any_rest;                  /* a * stood behind it */
    bool leave_out;
};

/* The part at *at; moves *at behind it and its comma. 1 a part, 0 the end, -1 malformed. */
int ry_select_next(const char **at, struct ry_select_part *out);
bool ry_select_meets(const struct ry_select_part *part, const char *device, uint32_t port);

/* Does the selection (NULL or "": all) take the port? *order is the place of the part that takes it
 * among those that take something, 0 without such parts. -1: malformed. */
int ry_select_takes(const char *hca, const char *device, uint32_t port, uint32_t *order);
/* Does a part name this device in full, to take it? */
bool ry_select_names(const char *hca, const char *device);

#endif
