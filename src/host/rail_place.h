/* SPDX-License-Identifier: Apache-2.0 */
/* What the topology says of rails: their distance to the GPU, and which stands in for which. */
#ifndef RY_HOST_RAIL_PLACE_H
#define RY_HOST_RAIL_PLACE_H

#include <railyard/topo.h>

#include "host/mesh.h"

/* names[i] is "device:port" of rail i. A backup that is none of these rails is none. */
void ry_rail_places(const ry_topo *topo, uint32_t gpu, char names[][RY_NIC_NAME_BYTES],
                    uint32_t rails, struct ry_rail_place *out);

#endif
