/* SPDX-License-Identifier: Apache-2.0 */
/* How much a PE takes in a job of some size: what connect.c will make, without making it. */
#include <railyard/context.h>

#include "host/ctx.h"
#include "host/error.h"
#include "host/mesh.h"

int ry_ctx_size(const char *const *settings, uint32_t n_settings, uint32_t n_pes, ry_job_size *out)
{
    struct ry_config c;
    struct ry_hello a = {0};
    uint64_t most = 0;

    if (n_pes == 0)
        return ry_fail(RY_ERR_INVALID, "a job has 1 pe at least");
    int rc = ry_config_load(&c, settings, n_settings);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < c.rails.n; i++)
        most = c.rails.v[i] > most ? c.rails.v[i] : most;
    a.rails = most ? (uint32_t)most : 2;
    if (c.nic == RY_NIC_EMU || (c.nic == RY_NIC_AUTO && c.hca[0])) {
        uint32_t place[RY_RAILS_MAX];

        ry_ctx_pick_nic(&c);
        rc = c.nic == RY_NIC_EMU ? ry_ctx_select_emu(&c, a.rails, place, &a.rails) : RY_OK;
        if (rc)
            return rc;
    }
    *out = (ry_job_size){.peers = n_pes - 1,
                         .rails = a.rails,
                         .channels = ry_plan_channels(&a, &a, c.channels),
                         .paths = c.failover != RY_FAILOVER_OFF && a.rails > 1 ? 2 : 1,
                         .heap_bytes = c.heap_size_bytes};
    uint64_t channels = (uint64_t)out->peers * out->channels;
    out->queue_pairs = channels * out->paths * 2;
    out->connections = channels * out->paths * 2;
    out->ring_bytes = channels * RY_SLOTS * ry_slot_memory_bytes(c.qp_depth);
    out->state_bytes = channels * (sizeof(struct ry_channel) + sizeof(struct ry_out_channel) +
                                   RY_SLOTS * sizeof(struct ry_in_slot));
    return RY_OK;
}
