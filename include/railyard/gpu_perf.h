/* SPDX-License-Identifier: Apache-2.0 */
/* One-sided operations called by kernels, measured and checked: what `railyard perf --device cuda`
 * prints. PEs are in this process, PE p on GPU p % ry_gpu_count(); PE 0 works on the last one.
 * Peers are reached through channels over an emulated NIC whose engines are resident kernels, or
 * with p2p directly. One thread at a time uses a ry_gpu_perf. */
#ifndef RAILYARD_GPU_PERF_H
#define RAILYARD_GPU_PERF_H

#include <railyard/gpu.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ry_gpu_perf ry_gpu_perf;

enum { RY_GPU_PERF_RAILS = 4, RY_GPU_PERF_BYTES_MAX = 64 << 20 };

typedef enum ry_gpu_perf_op {
    RY_GPU_PERF_PUT,
    RY_GPU_PERF_GET,
    RY_GPU_PERF_PUT_SIGNAL, /* at most 16 KiB each */
    RY_GPU_PERF_AMO_ADD,    /* 8 bytes */
    RY_GPU_PERF_PING_PONG   /* at most 16 KiB each */
} ry_gpu_perf_op;

typedef struct ry_gpu_perf_attr {
    uint32_t n_pes;
    uint32_t rails, channels; /* of a PE; n_pes * channels <= 16 */
    uint32_t handler; /* 0 the kernel writes doorbells, 2 a host thread does; 1 needs gdrdrv */
    int p2p, failover;
    uint64_t rate_bps;   /* of a rail, bytes a second; 0: as fast as it goes */
    uint64_t timeout_ns; /* of every wait in a kernel; 0: 2 s */
} ry_gpu_perf_attr;

typedef struct ry_gpu_perf_row {
    uint64_t bytes, iters, wrong;
    double us_p50, us_p99; /* of one operation that is waited for; put-signal and amo-add: of the
                            * call; ping-pong: half a round trip */
    double gbps;           /* 16 under way, each by a warp of its own; put-signal: by one warp */
    double memcpy_gbps;    /* put and get: cudaMemcpyAsync of the same pieces, 0 for others */
    double rail_gbps[RY_GPU_PERF_RAILS];
    uint64_t rail_bytes[RY_GPU_PERF_RAILS]; /* that left by each rail of PE 0 */
    double failover_cost; /* both: median of the time with failover over that without, less 1 */
} ry_gpu_perf_row;

/* INVALID, UNSUPPORTED (a build without CUDA, or the handler), DEVICE (no GPU), NO_MEMORY, TIMEOUT.
 * Before it the process must not have used CUDA. */
RY_API int ry_gpu_perf_open(const ry_gpu_perf_attr *attr, ry_gpu_perf **out);
RY_API void ry_gpu_perf_close(ry_gpu_perf *p); /* accepts NULL */

/* `both`: failover off and on in at least 400 blocks, in swapping order (put and get). INVALID,
 * DEVICE, TIMEOUT, UNREACHABLE (ry_last_error names peer and rail). */
RY_API int ry_gpu_perf_measure(ry_gpu_perf *p, ry_gpu_perf_op op, uint64_t bytes, uint64_t iters,
                               uint64_t warmup, int both, ry_gpu_perf_row *row);

#ifdef __cplusplus
}
#endif
#endif
