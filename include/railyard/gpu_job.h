/* SPDX-License-Identifier: Apache-2.0 */
/* A whole exchange in one process: PEs as threads, their heaps on the GPUs of this machine, and an
 * emulated NIC of several ports. For tests, measurements and `railyard ep --device cuda`.
 *
 * PE p is on GPU p % ry_gpu_count(); several PEs may share one. PEs of one node write each other's
 * memory (p2p), all others go through channels and the NIC, whose engines are resident kernels: a
 * block for each port of each PE. Calls take host memory, copy, run the kernels and wait.
 *
 * Thread safety: each PE is one thread; calls of different PEs may run at once. */
#ifndef RAILYARD_GPU_JOB_H
#define RAILYARD_GPU_JOB_H

#include <railyard/ep.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ry_gpu_job ry_gpu_job;

enum { RY_GPU_JOB_RAILS = 4 };

enum ry_gpu_job_handler {
    RY_GPU_JOB_GPU = 0,            /* the kernel writes doorbells */
    RY_GPU_JOB_CPU = 1,            /* needs gdrdrv: UNSUPPORTED */
    RY_GPU_JOB_CPU_HOST_MEMORY = 2 /* a host thread writes them */
};

typedef struct ry_gpu_job_attr {
    ry_ep_attr ep;
    uint32_t n_pes, n_nodes;
    uint32_t rails, channels; /* of a PE, to each peer; n_pes * channels <= 32 */
    uint32_t handler;         /* enum ry_gpu_job_handler */
    uint32_t sms;             /* most SMs that a kernel takes; PEs of one GPU share it; 0: all */
    int p2p, failover;
    uint64_t rate_bps;   /* of a port, bytes a second; 0: as fast as it goes */
    uint64_t timeout_ns; /* of every wait in a kernel; 0: 2 s */
} ry_gpu_job_attr;

/* Takes memory, starts engines and connects all channels. Before it the process must not have used
 * CUDA: it sets what the runtime reads at its start. INVALID, UNSUPPORTED (not built with CUDA, or
 * the handler), DEVICE (no GPU), NO_MEMORY, TIMEOUT. */
RY_API int ry_gpu_job_open(const ry_gpu_job_attr *attr, ry_gpu_job **out);
RY_API void ry_gpu_job_close(ry_gpu_job *job); /* accepts NULL; no call is under way */

/* As ry_ep_dispatch and ry_ep_combine of both phases, with host memory. The output's arrays are the
 * job's until the PE's next dispatch. *us: from before the first kernel to behind the last, by the
 * GPU's clock. Outputs hold a pattern before. INVALID, DEVICE, TIMEOUT and UNREACHABLE
 * (ry_last_error names peer and rail). */
RY_API int ry_gpu_job_dispatch(ry_gpu_job *job, uint32_t pe, const ry_ep_input *in,
                               ry_ep_output *out, double *us);
RY_API int ry_gpu_job_combine(ry_gpu_job *job, uint32_t pe, const void *y, size_t y_stride,
                              void *out, size_t out_stride, double *us);

/* A port of a PE goes down (up 0) or comes back. Any thread. */
RY_API int ry_gpu_job_port(ry_gpu_job *job, uint32_t pe, uint32_t rail, int up);

typedef struct ry_gpu_job_counts {
    uint64_t rail_bytes[RY_GPU_JOB_RAILS]; /* that left by each port so far */
    uint64_t moves, replayed;              /* of this PE's channels, planned ones not counted */
    double switch_us; /* longest, failure seen to first good completion, of each channel's last */
} ry_gpu_job_counts;
RY_API int ry_gpu_job_count(ry_gpu_job *job, uint32_t pe, ry_gpu_job_counts *out);

#ifdef __cplusplus
}
#endif
#endif
