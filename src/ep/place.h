/* SPDX-License-Identifier: Apache-2.0 */
/* How many bytes of the symmetric heap an exchange needs, and where each buffer lies. */
#ifndef RY_EP_PLACE_H
#define RY_EP_PLACE_H

#include <railyard/status.h>

#include <stddef.h>
#include <stdint.h>

#include "core/place.h"
#include "ep/validate.h"

/* Buffers start at multiples of this many bytes. */
#define RY_EP_ALIGN 256u

/* No process can map more. */
#define RY_EP_BYTES_MAX (1ull << 47)

/* Checks the shape (ry_ep_shape_check) and lays the buffers out. RY_ERR_INVALID also if they exceed
 * RY_EP_BYTES_MAX. layout is set on RY_OK only. */
int ry_ll_layout_make(const struct ry_ep_shape *shape, struct ry_ll_layout *layout);
int ry_ht_layout_make(const struct ry_ep_shape *shape, struct ry_ht_layout *layout);

/* RY_ERR_NO_MEMORY and a line that says how much is needed if `have` heap bytes are too few. `what`
 * is the mode's name in the line. */
int ry_ep_heap_check(const char *what, uint64_t need, uint64_t have);

#endif
