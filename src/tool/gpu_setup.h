/* SPDX-License-Identifier: Apache-2.0 */
/* What --device cuda makes of the flags and settings that `ep` and `perf` share. */
#ifndef RY_TOOL_GPU_SETUP_H
#define RY_TOOL_GPU_SETUP_H

#include "job.h"

struct ry_tool_gpu {
    uint32_t rails, channels, handler, sms;
    bool p2p, failover;
    uint64_t rate_bps, timeout_ns;
};

/* Does the job run on GPUs? If so it becomes one process, whose PEs are threads, and *gpu is filled
 * in. Prints what a GPU job cannot do and returns TOOL_BAD_INPUT, or TOOL_OK. */
int ry_tool_gpu_read(struct ry_tool_job *job, struct ry_tool_gpu *gpu);

#endif
