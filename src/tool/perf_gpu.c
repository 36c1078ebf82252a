/* SPDX-License-Identifier: Apache-2.0 */
/* railyard perf --device cuda: the same rows, from kernels. PEs are in this process. */
#include <railyard/gpu_perf.h>
#include <stdio.h>
#include <string.h>

#include "perf.h"

static void keep(struct ry_report *r, const ry_gpu_perf_row *row)
{
    struct ry_perf_row *to = &r->rows[r->n_rows++];
    to->bytes = row->bytes;
    to->iters = row->iters;
    to->us_p50 = row->us_p50;
    to->us_p99 = row->us_p99;
    to->gbps = row->gbps;
    to->memcpy_gbps = row->memcpy_gbps;
    to->wrong = row->wrong;
    to->failover_cost = row->failover_cost;
    for (uint32_t k = 0; k < r->n_rails; k++) {
        to->rail_gbps[k] = row->rail_gbps[k];
        r->rails[k].bytes += row->rail_bytes[k];
    }
}

static int measure(ry_gpu_perf *gpu, const struct perf_job *job, struct ry_report *r)
{
    static const ry_gpu_perf_op ops[] = {RY_GPU_PERF_PUT, RY_GPU_PERF_GET, RY_GPU_PERF_PUT_SIGNAL,
                                         RY_GPU_PERF_AMO_ADD, RY_GPU_PERF_PING_PONG};
    for (uint64_t size = job->size; size <= job->size_end && r->n_rows < REPORT_ROWS; size *= 2) {
        ry_gpu_perf_row row;
        int rc = ry_gpu_perf_measure(gpu, ops[job->op], size, perf_iters(job, size), job->warmup,
                                     job->both, &row);
        if (rc != RY_OK)
            return rc;
        keep(r, &row);
    }
    return RY_OK;
}

void perf_gpu(const struct perf_job *job, const struct ry_tool_gpu *setup, uint32_t n_pes,
              struct ry_report *r)
{
    const ry_gpu_perf_attr attr = {.n_pes = n_pes,
                                   .rails = setup->rails,
                                   .channels = setup->channels,
                                   .handler = setup->handler,
                                   .p2p = setup->p2p,
                                   .failover = setup->failover,
                                   .rate_bps = setup->rate_bps,
                                   .timeout_ns = setup->timeout_ns};
    ry_gpu_perf *gpu = NULL;
    int rc = ry_gpu_perf_open(&attr, &gpu);
    r->n_pes = n_pes;
    r->n_rails = setup->rails < RY_GPU_PERF_RAILS ? setup->rails : RY_GPU_PERF_RAILS;
    for (uint32_t k = 0; k < r->n_rails; k++)
        snprintf(r->rails[k].name, sizeof r->rails[k].name, "emu%u:%u", k / 2, k % 2 + 1);
    if (rc == RY_OK)
        r->state = PE_RUNNING;
    double until = ry_tool_now_s() + (double)job->duration_ns / 1e9;
    do { /* a long run keeps the rows of its last round */
        r->n_rows = 0;
        rc = rc == RY_OK ? measure(gpu, job, r) : rc;
    } while (rc == RY_OK && ry_tool_now_s() < until);
    ry_gpu_perf_close(gpu);
    if (rc != RY_OK)
        ry_report_fail(r, rc);
    r->state = rc == RY_OK ? PE_DONE : r->state;
}
