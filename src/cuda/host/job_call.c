/* SPDX-License-Identifier: Apache-2.0 */
/* A job's dispatch and combine: copy in, run, wait, copy out what is in use. Only rows that are in
 * use are copied; what a kernel left unwritten shows, because outputs are filled before. */
#include "cuda/host/job_inside.h"

#include <string.h>

#include "cuda/host/driver.h"
#include "cuda/host/ep_inside.h"
#include "host/clock.h"
#include "host/error.h"

enum { POISON = 0xa5 };
#define MEET_NS 30000000000ull /* a PE that is this late is lost */

/* Copies, the first failure kept. */
struct copier {
    struct ry_job_pe *p;
    cudaError_t rc;
};

static void copy(struct copier *c, void *to, const void *from, size_t bytes)
{
    if (c->rc == cudaSuccess && bytes)
        c->rc = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, c->p->stream);
}

static void copy_rows(struct copier *c, void *to, size_t to_stride, const void *from,
                      size_t from_stride, size_t width, size_t rows)
{
    if (c->rc == cudaSuccess && rows)
        c->rc = cudaMemcpy2DAsync(to, to_stride, from, from_stride, width, rows, cudaMemcpyDefault,
                                  c->p->stream);
}

static void poison(struct copier *c, const void *at, size_t bytes)
{
    if (c->rc == cudaSuccess && at)
        c->rc = cudaMemsetAsync((void *)at, POISON, bytes, c->p->stream);
}

static int finish(struct copier *c, const char *what)
{
    if (c->rc == cudaSuccess)
        c->rc = cudaStreamSynchronize(c->p->stream);
    return c->rc == cudaSuccess ? RY_OK : ry_gpu_fail(c->rc, what);
}

/* PEs launch together, once all have copied: what a kernel waits for is then the others' kernels
 * and not their copies. Nobody waits for a PE that has failed. */
static void meet(ry_gpu_job *job)
{
    uint64_t n = job->attr.n_pes, until = ry_clock_ns() + MEET_NS;
    uint64_t mine = __atomic_add_fetch(&job->met, 1, __ATOMIC_ACQ_REL);
    uint64_t all = (mine + n - 1) / n * n;

    while (__atomic_load_n(&job->met, __ATOMIC_ACQUIRE) < all &&
           !__atomic_load_n(&job->lost, __ATOMIC_ACQUIRE) && ry_clock_ns() < until)
        ;
}

/* Behind every launch, where PEs share a GPU. The driver may put streams of several PEs into one
 * queue, where what waits holds up all that stands behind it. So PEs launch in step, each kernel of
 * all of them before the next of any: no kernel then waits for one that stands behind it. */
static void in_step(void *arg)
{
    ry_gpu_job *job = arg;

    if (job->gpus < (int)job->attr.n_pes)
        meet(job);
}

/* Where a call's time begins. */
static int begin(ry_gpu_job *job, struct ry_job_pe *p)
{
    cudaError_t rc;

    p->ep->launched = in_step;
    p->ep->launched_arg = job;
    meet(job);
    rc = cudaEventRecord(p->begin, p->stream);
    in_step(job);
    return rc == cudaSuccess ? RY_OK : ry_gpu_fail(rc, "cannot record an event");
}

static int timed(struct ry_job_pe *p, double *us)
{
    float ms = 0;
    cudaError_t rc = cudaEventElapsedTime(&ms, p->begin, p->end);

    *us = (double)ms * 1e3;
    return rc == cudaSuccess ? ry_gpu_ep_status(p->ep) : ry_gpu_fail(rc, "cannot take the time");
}

static int tokens_in(ry_gpu_job *job, struct ry_job_pe *p, const ry_ep_input *in, ry_ep_input *to)
{
    const ry_ep_attr *e = &job->attr.ep;
    size_t row = 2ull * e->hidden, ids = (size_t)e->topk * (size_t)in->idx_bytes;
    struct copier c = {p, cudaSuccess};

    if (in->tokens > e->tokens_max)
        return ry_fail(RY_ERR_INVALID, "%u tokens: tokens_max is %u", in->tokens, e->tokens_max);
    *to = (ry_ep_input){.x = p->x,
                        .x_stride = row,
                        .topk_idx = p->ids,
                        .topk_idx_stride = ids,
                        .idx_bytes = in->idx_bytes,
                        .topk_weight = (const float *)p->weights,
                        .topk_weight_stride = e->topk * 4ull,
                        .tokens = in->tokens};
    copy_rows(&c, p->x, row, in->x, in->x_stride, row, in->tokens);
    copy_rows(&c, p->ids, ids, in->topk_idx, in->topk_idx_stride, ids, in->tokens);
    copy_rows(&c, p->weights, e->topk * 4ull, in->topk_weight, in->topk_weight_stride,
              e->topk * 4ull, in->tokens);
    poison(&c, p->last.x, p->rows_max * p->last.x_stride); /* free until the dispatch but one */
    return finish(&c, "cannot copy tokens");
}

/* ll: the rows of every (expert, source), each run of slots by itself. */
static void rows_out(ry_gpu_job *job, struct ry_job_pe *p, struct copier *c)
{
    const ry_ep_output *d = &p->last;
    uint64_t most = job->attr.ep.tokens_max;

    for (uint64_t pair = 0; pair < (uint64_t)p->local * job->attr.n_pes; pair++) {
        copy(c, p->rows_x + pair * most * d->x_stride,
             (const uint8_t *)d->x + pair * most * d->x_stride, p->count[pair] * d->x_stride);
        copy(c, p->src_token + pair * most, d->src_token + pair * most, p->count[pair] * 4ull);
    }
}

static int results_out(ry_gpu_job *job, struct ry_job_pe *p, const uint32_t *rows,
                       ry_ep_output *out)
{
    const ry_ep_output *d = &p->last;
    uint64_t topk = job->attr.ep.topk;
    struct copier c = {p, cudaSuccess};
    int status;

    copy(&c, &p->rows, rows, 4);
    copy(&c, p->expert_rows, d->expert_rows, p->local * 4ull);
    if (d->count)
        copy(&c, p->count, d->count, (uint64_t)p->local * job->attr.n_pes * 4);
    status = finish(&c, "cannot copy counts");
    if (status != RY_OK)
        return status;
    if (d->count) {
        rows_out(job, p, &c);
    } else {
        copy(&c, p->rows_x, d->x, p->rows * d->x_stride);
        copy(&c, p->src_token, d->src_token, p->rows * 4ull);
        copy(&c, p->row_source, d->row_source, p->rows * 4ull);
        copy(&c, p->topk_idx, d->topk_idx, p->rows * topk * 4);
        copy(&c, p->topk_weight, d->topk_weight, p->rows * topk * 4);
    }
    *out = *d;
    out->x = p->rows_x;
    out->rows = p->rows;
    if (d->scales)
        out->scales = p->rows_x + ((const uint8_t *)d->scales - (const uint8_t *)d->x);
    out->count = d->count ? p->count : NULL;
    out->src_token = p->src_token;
    out->row_source = d->row_source ? p->row_source : NULL;
    out->topk_idx = d->topk_idx ? p->topk_idx : NULL;
    out->topk_weight = d->topk_weight ? p->topk_weight : NULL;
    out->expert_rows = p->expert_rows;
    return finish(&c, "cannot copy rows");
}

static int dispatch(ry_gpu_job *job, uint32_t pe, const ry_ep_input *in, ry_ep_output *out,
                    double *us)
{
    struct ry_job_pe *p = &job->pe[pe];
    const uint32_t *rows = NULL;
    struct copier none = {p, cudaSuccess};
    ry_ep_input there;
    int status = ry_gpu_enter(p->device);

    if (status == RY_OK)
        status = tokens_in(job, p, in, &there);
    if (status != RY_OK)
        return status;
    status = begin(job, p);
    if (status == RY_OK)
        status = ry_gpu_ep_dispatch(p->ep, &there, &p->last, &rows, RY_EP_BOTH, p->stream);
    cudaEventRecord(p->end, p->stream);
    if (status == RY_OK)
        status = finish(&none, "dispatch");
    if (status == RY_OK)
        status = timed(p, us);
    return status == RY_OK ? results_out(job, p, rows, out) : status;
}

/* The rows of y that are in use, to where they stand. */
static int y_in(ry_gpu_job *job, struct ry_job_pe *p, const void *y, size_t y_stride)
{
    size_t row = 2ull * job->attr.ep.hidden;
    uint64_t most = job->attr.ep.tokens_max;
    struct copier c = {p, cudaSuccess};

    poison(&c, p->out, most * row);
    if (!p->last.count) {
        copy_rows(&c, p->y, row, y, y_stride, row, p->rows);
        return finish(&c, "cannot copy the experts' rows");
    }
    for (uint64_t pair = 0; pair < (uint64_t)p->local * job->attr.n_pes; pair++)
        copy_rows(&c, p->y + pair * most * row, row, (const uint8_t *)y + pair * most * y_stride,
                  y_stride, row, p->count[pair]);
    return finish(&c, "cannot copy the experts' rows");
}

static int combine(ry_gpu_job *job, uint32_t pe, const void *y, size_t y_stride, void *out,
                   size_t out_stride, double *us)
{
    struct ry_job_pe *p = &job->pe[pe];
    size_t row = 2ull * job->attr.ep.hidden;
    struct copier c = {p, cudaSuccess};
    int status = ry_gpu_enter(p->device);

    if (status == RY_OK)
        status = y_in(job, p, y, y_stride);
    if (status != RY_OK)
        return status;
    status = begin(job, p);
    if (status == RY_OK)
        status = ry_gpu_ep_combine(p->ep, p->y, row, p->out, row, RY_EP_BOTH, p->stream);
    cudaEventRecord(p->end, p->stream);
    if (status == RY_OK)
        status = finish(&c, "combine");
    if (status == RY_OK)
        status = timed(p, us);
    if (status != RY_OK)
        return status;
    copy_rows(&c, out, out_stride, p->out, row, row, job->attr.ep.tokens_max);
    return finish(&c, "cannot copy the sums");
}

static int ended(ry_gpu_job *job, int status)
{
    if (status != RY_OK)
        __atomic_store_n(&job->lost, 1, __ATOMIC_RELEASE);
    return status;
}

int ry_gpu_job_dispatch(ry_gpu_job *job, uint32_t pe, const ry_ep_input *in, ry_ep_output *out,
                        double *us)
{
    return ended(job, dispatch(job, pe, in, out, us));
}

int ry_gpu_job_combine(ry_gpu_job *job, uint32_t pe, const void *y, size_t y_stride, void *out,
                       size_t out_stride, double *us)
{
    return ended(job, combine(job, pe, y, y_stride, out, out_stride, us));
}
