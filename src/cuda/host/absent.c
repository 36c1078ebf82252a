/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU part of a library that was built without nvcc: the same functions, which say so. */
#include <railyard/gpu.h>
#include <railyard/gpu_job.h>
#include <railyard/gpu_perf.h>

#include "host/error.h"

static int absent(void)
{
    return ry_fail(RY_ERR_UNSUPPORTED, "this library was built without cuda: build it with nvcc");
}

int ry_gpu_count(void) { return 0; }

size_t ry_gpu_ep_heap_bytes(const ry_gpu_ep_attr *attr)
{
    (void)attr;
    absent();
    return 0;
}

int ry_gpu_ep_create(const ry_gpu_ep_attr *attr, void *const *heaps, ry_gpu_ep **out)
{
    (void)attr, (void)heaps, (void)out;
    return absent();
}

void ry_gpu_ep_destroy(ry_gpu_ep *ep) { (void)ep; }

int ry_gpu_ep_dispatch(ry_gpu_ep *ep, const ry_ep_input *in, ry_ep_output *out,
                       const uint32_t **rows_device, int phase, void *stream)
{
    (void)ep, (void)in, (void)out, (void)rows_device, (void)phase, (void)stream;
    return absent();
}

int ry_gpu_ep_combine(ry_gpu_ep *ep, const void *y, size_t y_stride, void *out, size_t out_stride,
                      int phase, void *stream)
{
    (void)ep, (void)y, (void)y_stride, (void)out, (void)out_stride, (void)phase, (void)stream;
    return absent();
}

int ry_gpu_ep_status(const ry_gpu_ep *ep)
{
    (void)ep;
    return absent();
}

int ry_gpu_export(void *block, void *handle)
{
    (void)block, (void)handle;
    return absent();
}

int ry_gpu_open(int device, const void *handle, void **block)
{
    (void)device, (void)handle, (void)block;
    return absent();
}

void ry_gpu_close(void *block) { (void)block; }

int ry_gpu_job_open(const ry_gpu_job_attr *attr, ry_gpu_job **out)
{
    (void)attr, (void)out;
    return absent();
}

void ry_gpu_job_close(ry_gpu_job *job) { (void)job; }

int ry_gpu_job_dispatch(ry_gpu_job *job, uint32_t pe, const ry_ep_input *in, ry_ep_output *out,
                        double *us)
{
    (void)job, (void)pe, (void)in, (void)out, (void)us;
    return absent();
}

int ry_gpu_job_combine(ry_gpu_job *job, uint32_t pe, const void *y, size_t y_stride, void *out,
                       size_t out_stride, double *us)
{
    (void)job, (void)pe, (void)y, (void)y_stride, (void)out, (void)out_stride, (void)us;
    return absent();
}

int ry_gpu_job_port(ry_gpu_job *job, uint32_t pe, uint32_t rail, int up)
{
    (void)job, (void)pe, (void)rail, (void)up;
    return absent();
}

int ry_gpu_job_count(ry_gpu_job *job, uint32_t pe, ry_gpu_job_counts *out)
{
    (void)job, (void)pe, (void)out;
    return absent();
}

int ry_gpu_perf_open(const ry_gpu_perf_attr *attr, ry_gpu_perf **out)
{
    (void)attr, (void)out;
    return absent();
}

void ry_gpu_perf_close(ry_gpu_perf *p) { (void)p; }

int ry_gpu_perf_measure(ry_gpu_perf *p, ry_gpu_perf_op op, uint64_t bytes, uint64_t iters,
                        uint64_t warmup, int both, ry_gpu_perf_row *row)
{
    (void)p, (void)op, (void)bytes, (void)iters, (void)warmup, (void)both, (void)row;
    return absent();
}
