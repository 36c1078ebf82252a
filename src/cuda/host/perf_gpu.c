/* SPDX-License-Identifier: Apache-2.0 */
/* Measuring one-sided calls of kernels: the fabric, the launches, and what their times say. */
#include <cuda_runtime_api.h>
#include <railyard/gpu_perf.h>

#include <stdlib.h>
#include <string.h>

#include "cuda/fabric.h"
#include "cuda/host/driver.h"
#include "cuda/perf.h"
#include "host/error.h"

enum { BLOCKS = 400, BLOCK_OPS = 64, DEPTH = 1024 };

struct ry_gpu_perf {
    ry_gpu_perf_attr attr;
    struct ry_gpu_fabric *fabric;
    uint32_t peer;
    int device[2]; /* of PE 0 and of the peer */
    cudaStream_t stream[2];
    cudaEvent_t begin, end;
    struct ry_perf_times *times[2]; /* pinned */
    uint64_t rounds;                /* signals of a row lie above those of the rows before */
    uint64_t added;                 /* to the peer's counter so far */
};

static int failed(int e, const char *what)
{
    return e == cudaSuccess ? RY_OK : ry_gpu_fail(e, what);
}

/* End 0 is PE 0, end 1 the peer. */
static int enter(const struct ry_gpu_perf *p, int end)
{
    return failed((int)cudaSetDevice(p->device[end]), "cannot use the gpu");
}

static int ends_make(struct ry_gpu_perf *p)
{
    for (int end = 0; end < 2; end++) {
        cudaError_t e;
        int rc = enter(p, end);

        if (rc != RY_OK)
            return rc;
        e = cudaStreamCreateWithFlags(&p->stream[end], cudaStreamNonBlocking);
        if (e == cudaSuccess)
            e = cudaHostAlloc((void **)&p->times[end], sizeof(*p->times[end]),
                              cudaHostAllocPortable);
        if (e == cudaSuccess && end == 0)
            e = cudaEventCreate(&p->begin);
        if (e == cudaSuccess && end == 0)
            e = cudaEventCreate(&p->end);
        if (e != cudaSuccess)
            return failed((int)e, "cannot prepare the measurement");
    }
    return RY_OK;
}

int ry_gpu_perf_open(const ry_gpu_perf_attr *attr, ry_gpu_perf **out)
{
    struct ry_gpu_fabric_attr a = {.pes = attr->n_pes,
                                   .ports = attr->rails,
                                   .channels = attr->channels,
                                   .depth = DEPTH,
                                   .parts = attr->rails > 2 ? 2 : 4,
                                   .heap_bytes = (uint64_t)RY_PERF_HEAP + (1 << 20),
                                   .rate_bps = attr->rate_bps,
                                   .retry_ns = 50000,
                                   .timeout_ns =
                                       attr->timeout_ns ? attr->timeout_ns : 2000000000ull,
                                   .direct = attr->p2p,
                                   .failover = attr->failover,
                                   .handler = attr->handler,
                                   .event_ns = 300000};
    struct ry_gpu_perf *p;
    int rc, gpus;

    setenv("CUDA_MODULE_LOADING", "EAGER", 1); /* resident kernels hold up no later load */
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
    gpus = ry_gpu_count();
    if (gpus == 0)
        return ry_fail(RY_ERR_DEVICE, "no gpu here: --device cuda needs one and its driver");
    if (attr->n_pes < 2)
        return ry_fail(RY_ERR_INVALID, "%u pes: an operation needs two", attr->n_pes);
    a.devices = (uint32_t)gpus < attr->n_pes ? (uint32_t)gpus : attr->n_pes;
    p = calloc(1, sizeof(*p));
    if (!p)
        return ry_fail(RY_ERR_NO_MEMORY, "no memory for a measurement");
    p->attr = *attr;
    p->peer = attr->n_pes - 1;
    p->device[1] = (int)(p->peer % a.devices);
    rc = ry_gpu_fabric_open(&a, &p->fabric);
    if (rc == RY_OK)
        rc = ends_make(p);
    if (rc != RY_OK) {
        ry_gpu_perf_close(p);
        return rc;
    }
    *out = p;
    return RY_OK;
}

void ry_gpu_perf_close(ry_gpu_perf *p)
{
    if (!p)
        return;
    if (p->fabric)
        ry_gpu_fabric_close(p->fabric);
    for (int end = 0; end < 2; end++) {
        (void)enter(p, end);
        if (p->stream[end])
            cudaStreamDestroy(p->stream[end]);
        cudaFreeHost(p->times[end]);
    }
    if (p->begin)
        cudaEventDestroy(p->begin);
    if (p->end)
        cudaEventDestroy(p->end);
    free(p);
}

static void args_fill(struct ry_gpu_perf *p, int end, struct ry_perf_args *a, uint64_t bytes,
                      uint64_t iters, uint64_t warmup)
{
    uint32_t pe = end ? p->peer : 0;

    memset(a, 0, sizeof(*a));
    memset(p->times[end], 0, sizeof(*p->times[end]));
    a->w = *ry_gpu_fabric_world(p->fabric, pe);
    a->heap = ry_gpu_fabric_heap(p->fabric, pe);
    a->times = p->times[end];
    a->bytes = bytes;
    a->iters = iters;
    a->warmup = warmup;
    a->peer = end ? 0 : p->peer;
    a->base = p->rounds << 40;
}

/* The end's kernels have ended well, or why not. */
static int join(struct ry_gpu_perf *p, int end)
{
    uint32_t peer, channel, rail;
    int rc = enter(p, end), status;

    if (rc == RY_OK)
        rc = failed((int)cudaStreamSynchronize(p->stream[end]), "the gpu's kernels failed");
    if (rc != RY_OK)
        return rc;
    status = ry_gpu_fabric_status(p->fabric, end ? p->peer : 0, &peer, &channel, &rail);
    if (p->times[end]->status == 0 && status == 0)
        return RY_OK;
    return ry_fail(p->times[end]->status ? p->times[end]->status : status,
                   "a call of pe %u to pe %u on rail %u did not end well", end ? p->peer : 0, peer,
                   rail);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double quantile(double *v, uint64_t n, double q)
{
    uint64_t at = (uint64_t)(q * (double)n);

    qsort(v, n, sizeof(*v), compare);
    return v[at < n ? at : n - 1];
}

static int samples_read(const struct ry_perf_times *t, uint64_t iters, double divide,
                        ry_gpu_perf_row *row)
{
    uint64_t n = iters < RY_PERF_SAMPLES ? iters : RY_PERF_SAMPLES;
    double *v = malloc(n * sizeof(*v));
    double us = t->all_cycles ? (double)t->ns / (double)t->all_cycles / 1e3 / divide : 0;

    if (!v)
        return ry_fail(RY_ERR_NO_MEMORY, "no memory for %llu times", (unsigned long long)n);
    for (uint64_t i = 0; i < n; i++)
        v[i] = t->cycles[i] * us;
    row->us_p50 = quantile(v, n, 0.5);
    row->us_p99 = quantile(v, n, 0.99);
    free(v);
    return RY_OK;
}

/* 16 warps move `iters` pieces; *ms by the GPU's events. */
static int many(struct ry_gpu_perf *p, struct ry_perf_args *a, uint64_t iters, float *ms)
{
    int e, rc = enter(p, 0);

    if (rc != RY_OK)
        return rc;
    a->iters = iters;
    e = (int)cudaEventRecord(p->begin, p->stream[0]);
    if (e == 0)
        e = ry_perf_many_launch(a, p->stream[0]);
    if (e == 0)
        e = (int)cudaEventRecord(p->end, p->stream[0]);
    rc = failed(e, "cannot start the kernel");
    if (rc == RY_OK)
        rc = join(p, 0);
    return rc != RY_OK ? rc
                       : failed((int)cudaEventElapsedTime(ms, p->begin, p->end), "no time taken");
}

static int copy_rate(struct ry_gpu_perf *p, uint64_t bytes, uint64_t iters, double *gbps)
{
    uint8_t *from = ry_gpu_fabric_heap(p->fabric, 0);
    uint8_t *to = (uint8_t *)ry_gpu_fabric_heap(p->fabric, p->peer) + RY_PERF_LANDING_AT;
    uint64_t n = iters < 256 ? iters : 256;
    int e, rc = enter(p, 0);
    float ms = 0;

    if (rc != RY_OK)
        return rc;
    e = (int)cudaEventRecord(p->begin, p->stream[0]);
    for (uint64_t i = 0; i < n && e == 0; i++) {
        uint64_t at = i % (RY_PERF_WINDOW / bytes) * bytes;

        e = (int)cudaMemcpyAsync(to + at, from + at, bytes, cudaMemcpyDefault, p->stream[0]);
    }
    if (e == 0)
        e = (int)cudaEventRecord(p->end, p->stream[0]);
    if (e == 0)
        e = (int)cudaStreamSynchronize(p->stream[0]);
    if (e == 0)
        e = (int)cudaEventElapsedTime(&ms, p->begin, p->end);
    *gbps = ms > 0 ? (double)bytes * (double)n / ms / 1e6 : 0;
    return failed(e, "cannot copy");
}

/* Off and on in swapping order. */
static int cost(struct ry_gpu_perf *p, struct ry_perf_args *a, ry_gpu_perf_row *row)
{
    double ratio[BLOCKS / 2];
    int rc = RY_OK;

    for (uint32_t i = 0; i < BLOCKS / 2 && rc == RY_OK; i++) {
        float ms[2] = {0, 0};

        for (uint32_t k = 0; k < 2 && rc == RY_OK; k++) {
            a->w.failover = (k + i) & 1;
            rc = many(p, a, BLOCK_OPS, &ms[a->w.failover]);
        }
        ratio[i] = ms[0] > 0 ? ms[1] / ms[0] : 0;
    }
    row->failover_cost = rc == RY_OK ? quantile(ratio, BLOCKS / 2, 0.5) - 1 : 0;
    a->w.failover = (uint32_t)p->attr.failover;
    return rc;
}

static int check(struct ry_gpu_perf *p, int end, uint64_t bytes, uint64_t pieces, uint64_t key,
                 uint64_t *wrong)
{
    uint64_t places = RY_PERF_WINDOW / bytes;
    const uint8_t *heap = ry_gpu_fabric_heap(p->fabric, end ? p->peer : 0);
    int rc = enter(p, end);

    if (rc != RY_OK)
        return rc;
    memset(p->times[end], 0, sizeof(*p->times[end]));
    rc = failed(ry_perf_check_launch(heap + RY_PERF_LANDING_AT,
                                     (pieces < places ? pieces : places) * bytes, bytes, key,
                                     p->times[end], p->stream[end]),
                "cannot start the check");
    if (rc == RY_OK)
        rc = join(p, end);
    *wrong += p->times[end]->wrong;
    return rc;
}

static int fill(struct ry_gpu_perf *p, int source, uint64_t key)
{
    for (int end = 0; end < 2; end++) {
        uint8_t *heap = ry_gpu_fabric_heap(p->fabric, end ? p->peer : 0);
        int rc = enter(p, end);

        if (rc == RY_OK)
            rc = failed(ry_perf_fill_launch(heap, RY_PERF_WINDOW, end == source ? key : 1,
                                            p->stream[end]),
                        "cannot fill");
        if (rc == RY_OK)
            rc = failed((int)cudaMemsetAsync(heap + RY_PERF_LANDING_AT, 0, RY_PERF_WINDOW,
                                             p->stream[end]),
                        "cannot fill");
        if (rc == RY_OK)
            rc = join(p, end);
        if (rc != RY_OK)
            return rc;
    }
    return RY_OK;
}

static int row_copy(struct ry_gpu_perf *p, bool get, uint64_t warmup, int both,
                    ry_gpu_perf_row *row)
{
    uint64_t key = ++p->rounds << 20, one = row->iters < 1000 ? row->iters : 1000;
    struct ry_gpu_fabric_counts before, after;
    struct ry_perf_args a;
    float ms = 0;
    int rc = copy_rate(p, row->bytes, row->iters, &row->memcpy_gbps), from = get ? 1 : 0;

    if (rc == RY_OK)
        rc = fill(p, from, key);
    if (rc != RY_OK)
        return rc;
    args_fill(p, 0, &a, row->bytes, one, warmup);
    a.get = get;
    rc = enter(p, 0);
    if (rc == RY_OK)
        rc = failed(ry_perf_one_launch(&a, p->stream[0]), "cannot start the kernel");
    if (rc == RY_OK)
        rc = join(p, 0);
    if (rc == RY_OK)
        rc = samples_read(p->times[0], one, 1, row);
    if (rc == RY_OK)
        rc = ry_gpu_fabric_count(p->fabric, 0, &before);
    if (rc == RY_OK)
        rc = many(p, &a, row->iters, &ms);
    if (rc == RY_OK)
        rc = ry_gpu_fabric_count(p->fabric, 0, &after);
    if (rc != RY_OK || ms <= 0)
        return rc;
    row->gbps = (double)row->bytes * (double)row->iters / ms / 1e6;
    for (uint32_t r = 0; r < p->attr.rails && r < RY_GPU_PERF_RAILS; r++)
        row->rail_gbps[r] = (double)(after.port_bytes[r] - before.port_bytes[r]) / ms / 1e6;
    if (both)
        rc = cost(p, &a, row);
    return rc == RY_OK ? check(p, 1 - from, row->bytes, row->iters, key, &row->wrong) : rc;
}

/* Kernels of both ends at once. */
static int row_pair(struct ry_gpu_perf *p, int (*here)(const struct ry_perf_args *, void *),
                    int (*there)(const struct ry_perf_args *, void *), uint64_t warmup,
                    double divide, ry_gpu_perf_row *row)
{
    struct ry_perf_args a[2];
    int rc = RY_OK, other;

    p->rounds++;
    for (int end = 1; end >= 0 && rc == RY_OK; end--) {
        args_fill(p, end, &a[end], row->bytes, row->iters, warmup);
        rc = enter(p, end);
        if (rc == RY_OK)
            rc = failed((end ? there : here)(&a[end], p->stream[end]), "cannot start the kernel");
    }
    if (rc != RY_OK)
        return rc;
    rc = join(p, 0);
    other = join(p, 1);
    row->wrong += p->times[1]->wrong;
    row->gbps = p->times[0]->ns
                    ? (double)row->bytes * (double)row->iters / (double)p->times[0]->ns
                    : 0;
    if (rc == RY_OK)
        rc = samples_read(p->times[0], row->iters, divide, row);
    return rc == RY_OK ? other : rc;
}

static int row_add(struct ry_gpu_perf *p, ry_gpu_perf_row *row)
{
    struct ry_perf_args a;
    int rc = enter(p, 0);

    args_fill(p, 0, &a, 8, row->iters, 0);
    if (rc == RY_OK)
        rc = failed(ry_perf_add_launch(&a, p->stream[0]), "cannot start the kernel");
    if (rc == RY_OK)
        rc = join(p, 0);
    if (rc == RY_OK)
        rc = samples_read(p->times[0], row->iters, 1, row);
    if (rc != RY_OK)
        return rc;
    row->gbps =
        p->times[0]->ns ? (double)row->bytes * (double)row->iters / (double)p->times[0]->ns : 0;
    p->added += row->iters;
    args_fill(p, 1, &a, 8, 1, 0);
    a.base = p->added;
    rc = enter(p, 1);
    if (rc == RY_OK)
        rc = failed(ry_perf_sum_launch(&a, p->stream[1]), "cannot start the check");
    if (rc == RY_OK)
        rc = join(p, 1);
    row->wrong += p->times[1]->wrong;
    return rc;
}

int ry_gpu_perf_measure(ry_gpu_perf *p, ry_gpu_perf_op op, uint64_t bytes, uint64_t iters,
                        uint64_t warmup, int both, ry_gpu_perf_row *row)
{
    bool copies = op == RY_GPU_PERF_PUT || op == RY_GPU_PERF_GET;
    uint64_t most = copies ? RY_GPU_PERF_BYTES_MAX : 16384;
    ry_gpu_perf_row r = {.bytes = bytes, .iters = iters};
    struct ry_gpu_fabric_counts before, after;
    int rc;

    if (bytes < 1 || bytes > most || iters < 1)
        return ry_fail(RY_ERR_INVALID, "%llu operations of %llu bytes: from 1, of 1 to %llu bytes",
                       (unsigned long long)iters, (unsigned long long)bytes,
                       (unsigned long long)most);
    rc = ry_gpu_fabric_count(p->fabric, 0, &before);
    if (rc != RY_OK)
        return rc;
    if (copies)
        rc = row_copy(p, op == RY_GPU_PERF_GET, warmup, both, &r);
    else if (op == RY_GPU_PERF_PUT_SIGNAL)
        rc = row_pair(p, ry_perf_send_launch, ry_perf_watch_launch, 0, 1, &r);
    else if (op == RY_GPU_PERF_AMO_ADD)
        rc = row_add(p, &r);
    else
        rc = row_pair(p, ry_perf_bounce_launch, ry_perf_bounce_launch, warmup, 2, &r);
    if (rc == RY_OK)
        rc = ry_gpu_fabric_count(p->fabric, 0, &after);
    for (uint32_t k = 0; rc == RY_OK && k < p->attr.rails && k < RY_GPU_PERF_RAILS; k++)
        r.rail_bytes[k] = after.port_bytes[k] - before.port_bytes[k];
    if (rc == RY_OK)
        *row = r;
    return rc;
}
