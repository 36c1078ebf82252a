/* SPDX-License-Identifier: Apache-2.0 */
/* From ports of the topology to rails of a PE. */
#include "host/rail_place.h"

static uint32_t rail_of_port(const ry_topo *topo, char names[][RY_NIC_NAME_BYTES], uint32_t rails,
                             uint32_t port)
{
    uint32_t i = 0;

    while (i < rails && ry_topo_find_port(topo, names[i]) != (int32_t)port)
        i++;
    return i < rails ? i : RY_RAILS_MAX;
}

void ry_rail_places(const ry_topo *topo, uint32_t gpu, char names[][RY_NIC_NAME_BYTES],
                    uint32_t rails, struct ry_rail_place *out)
{
    for (uint32_t i = 0; i < rails; i++) {
        int32_t port = ry_topo_find_port(topo, names[i]);
        uint32_t backup;

        out[i] = (struct ry_rail_place){.known = port >= 0, .backup = RY_RAILS_MAX};
        if (port < 0)
            continue;
        if (gpu < ry_topo_gpu_count(topo))
            out[i].distance = ry_topo_gpu_port(topo, gpu, (uint32_t)port);
        if (ry_topo_backup(topo, gpu, (uint32_t)port, &backup) != RY_BACKUP_NONE)
            out[i].backup = rail_of_port(topo, names, rails, backup);
    }
}
