/* SPDX-License-Identifier: Apache-2.0 */
/* One PE of `railyard ep`: dispatch, experts, combine, and after each the comparison with the
 * reference, which no clock sees. */
#include <railyard/heap.h>
#include <railyard/rma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ep_gpu.h"

static bool leads(const struct ep_pe *p)
{
    uint32_t first = 0;
    while (first < p->n && !ep_is_active(p, first))
        first++;
    return first == p->me;
}

/* PEs begin a timed part together. Survivors of a loss may still meet; once the loss is agreed they
 * do no more, since a replacement would not know how often they have. */
static int meet(struct ep_pe *p)
{
    int rc = p->apart ? RY_OK : ry_barrier(p->ctx);
    return rc == RY_ERR_PEER_LOST ? RY_OK : rc;
}

/* The time is over: the PE in the lead says so before it begins iteration i. Nobody can end that
 * iteration without it, so everybody knows before i + 2. */
static int announce_end(struct ep_pe *p, uint64_t i)
{
    double limit_s = (double)p->job->duration_ns * 1e-9;
    if (p->job->duration_ns == 0 || p->stop_at || ry_tool_now_s() - p->start_s < limit_s ||
        !leads(p))
        return RY_OK;
    p->stop_at = i + 2;
    __atomic_store_n(&p->report->stop, i + 2, __ATOMIC_RELEASE);
    for (uint32_t pe = 0; pe < p->n; pe++) {
        int rc = pe == p->me || !ep_is_active(p, pe)
                     ? RY_OK
                     : ry_put_signal_nbi(p->ctx, NULL, NULL, 0, &p->stop[p->me], i + 2, pe);
        if (rc != RY_OK && rc != RY_ERR_PEER_LOST)
            return rc;
    }
    return RY_OK;
}

static void show_progress(struct ep_pe *p, uint64_t i)
{
    double now = ry_tool_now_s();
    if (p->shown_s == 0 || now - p->shown_s < 0.2 || !leads(p))
        return;
    p->shown_s = now;
    uint64_t wrong = p->tally.lost + p->tally.duplicated + p->tally.corrupted;
    uint64_t done = i + 1 - p->job->warmup;
    if (p->job->duration_ns)
        fprintf(stderr, "\rrailyard ep: iteration %llu, %.1f of %.1f s, %llu wrong ",
                (unsigned long long)done, now - p->start_s, (double)p->job->duration_ns * 1e-9,
                (unsigned long long)wrong);
    else
        fprintf(stderr, "\rrailyard ep: iteration %llu of %llu, %.1f s, %llu wrong ",
                (unsigned long long)done, (unsigned long long)p->job->iters, now - p->start_s,
                (unsigned long long)wrong);
}

static int host_dispatch(struct ep_pe *p, const ry_ep_input *in, ry_ep_output *out)
{
    double t0 = ry_tool_now_s();
    int rc = ry_ep_dispatch(p->ep, in, out, RY_EP_BOTH);
    p->dispatch_s = ry_tool_now_s() - t0;
    return rc;
}

static int host_combine(struct ep_pe *p)
{
    size_t stride = p->job->attr.hidden * sizeof(uint16_t);
    double t0 = ry_tool_now_s();
    int rc = ry_ep_combine(p->ep, p->data.y, stride, p->data.out, stride, RY_EP_BOTH);
    p->combine_s = ry_tool_now_s() - t0;
    ry_ep_last_traffic(p->ep, &p->dispatch_sent, &p->combine_sent);
    return rc;
}

static int iteration(struct ep_pe *p)
{
    ry_ep_input in;
    ry_ep_output out;
    size_t stride = p->job->attr.hidden * sizeof(uint16_t);
    ep_data_input(&p->data, p->me, &in);
    memset(p->data.out, 0xa5, p->job->tokens * stride);
    int rc = meet(p);
    if (rc != RY_OK)
        return rc;
    rc = p->gpu ? ep_gpu_dispatch(p, &in, &out) : host_dispatch(p, &in, &out);
    if (rc == RY_OK)
        rc = ep_check_dispatch(p, &out);
    if (rc == RY_OK)
        rc = meet(p);
    if (rc != RY_OK)
        return rc;
    rc = p->gpu ? ep_gpu_combine(p) : host_combine(p);
    return rc == RY_OK ? ep_check_combine(p) : rc;
}

static void usage_grew(struct ry_report *r, double at_s)
{
    struct ry_usage *u = &r->last;
    ry_usage_read(u, at_s);
    r->rss_most = u->rss_bytes > r->rss_most ? u->rss_bytes : r->rss_most;
    r->descriptors_most =
        u->descriptors > r->descriptors_most ? u->descriptors : r->descriptors_most;
    r->threads_most = u->threads > r->threads_most ? u->threads : r->threads_most;
}

static void account(struct ep_pe *p)
{
    struct ry_report *r = p->report;
    double at = ry_tool_now_s() - p->start_s;
    if (p->gpu)
        ep_gpu_account(p, at);
    const ry_ep_traffic d = p->dispatch_sent, c = p->combine_sent;
    ry_samples_add(&r->dispatch.time, p->dispatch_s * 1e6);
    ry_samples_add(&r->combine.time, p->combine_s * 1e6);
    ry_samples_add(&r->step, (p->dispatch_s + p->combine_s) * 1e6);
    r->minimum_bytes += p->minimum_bytes;
    r->dispatch.rail_bytes += d.rail_bytes;
    r->dispatch.local_bytes += d.local_bytes;
    r->combine.rail_bytes += c.rail_bytes;
    r->combine.local_bytes += c.local_bytes;
    if (!p->gpu)
        ry_track_add(&r->track, p->ctx, at);
    if (r->at % 16 == 0)
        usage_grew(r, at);
    if (p->job->duration_ns && r->half.rss_bytes == 0 && at >= (double)p->job->duration_ns * 5e-10)
        ry_usage_read(&r->half, at);
    __atomic_store_n(&r->at, r->at + 1, __ATOMIC_RELAXED);
}

static bool ended(struct ep_pe *p, uint64_t i)
{
    for (uint32_t pe = 0; p->job->duration_ns && pe < p->n; pe++) {
        uint64_t stop = ry_signal_read(p->ctx, &p->stop[pe]);
        p->stop_at = stop > p->stop_at ? stop : p->stop_at;
    }
    return p->job->duration_ns ? p->stop_at && i >= p->stop_at
                               : i >= p->job->warmup + p->job->iters;
}

/* The warm-up is over: what was found wrong in it stays, how much was checked does not. */
static int begin_counting(struct ep_pe *p)
{
    p->tally.checked = 0;
    int rc = meet(p); /* a replacement's is none */
    p->start_s = ry_tool_now_s();
    p->shown_s = isatty(2) ? p->start_s : 0;
    ry_samples_begin(&p->report->dispatch.time);
    ry_samples_begin(&p->report->combine.time);
    ry_samples_begin(&p->report->step);
    ry_usage_read(&p->report->first, 0);
    ry_report_base(p->report, p->ctx);
    ry_track_add(&p->report->track, p->ctx, 0);
    p->report->origin_s = p->start_s;
    if (p->gpu)
        ep_gpu_begin(p->gpu);
    ry_fault_start(p->ctx);
    return rc;
}

/* A replacement begins where the others are; that the end was announced it could not hear. */
static uint64_t catch_up(struct ep_pe *p, const struct ry_run *run)
{
    p->apart = true;
    for (uint32_t i = 0; i < run->n_pes && run->reports; i++) {
        uint64_t stop = __atomic_load_n(&run->reports[i].stop, __ATOMIC_ACQUIRE);
        p->stop_at = stop > p->stop_at ? stop : p->stop_at;
    }
    return ry_ep_iterations(p->ep);
}

static int loop(struct ep_pe *p, uint64_t first)
{
    uint64_t warmup = p->job->warmup;
    int rc = RY_OK;
    for (uint64_t i = first; rc == RY_OK && !ended(p, i); i++) {
        if (i == warmup || i == first)
            rc = i >= warmup ? begin_counting(p) : RY_OK;
        ep_data_iteration(&p->data, i, p->me);
        if (i >= warmup)
            ry_fault_iteration(p->ctx, i - warmup);
        if (rc == RY_OK && i >= warmup)
            rc = announce_end(p, i);
        if (rc == RY_OK)
            rc = iteration(p);
        if (rc == RY_OK && i >= warmup) {
            account(p);
            show_progress(p, i);
        }
    }
    if (p->shown_s > 0 && leads(p))
        fputs("\r\033[K", stderr);
    usage_grew(p->report, ry_tool_now_s() - p->start_s);
    return rc;
}

static int exchange_open(struct ep_pe *p, struct ep_gpu *gpu)
{
    if (!p->job->on_gpu)
        return ry_ep_create(p->ctx, &p->job->attr, &p->ep);
    p->gpu = gpu;
    return ep_gpu_open(p, p->job, gpu);
}

void ep_body(ry_ctx *ctx, const struct ry_run *run, struct ry_report *report)
{
    const struct ep_job *job = run->arg;
    struct ep_pe *p = calloc(1, sizeof *p);
    struct ep_gpu gpu;
    void *stop = NULL;
    if (!p) {
        ry_report_fail(report, RY_ERR_NO_MEMORY);
        return;
    }
    p->ctx = ctx;
    p->report = report;
    p->job = job;
    p->me = ry_pe(ctx);
    p->n = ry_n_pes(ctx);
    for (uint32_t i = 0; i < p->n && i < JOB_PES_MAX; i++)
        p->active[i / 64] |= 1ull << (i % 64);
    int rc = ep_data_open(&p->data, job, p->me, p->n, ry_n_nodes(ctx));
    if (rc == RY_OK)
        rc = ry_malloc(ctx, p->n * sizeof *p->stop, &stop);
    p->stop = stop;
    if (rc == RY_OK)
        rc = exchange_open(p, &gpu);
    if (rc == RY_OK)
        rc = loop(p, ry_incarnation(ctx) > 0 ? catch_up(p, run) : 0);
    if (rc != RY_OK)
        ry_report_fail(report, rc);
    report->checked = p->tally.checked;
    report->lost = p->tally.lost;
    report->duplicated = p->tally.duplicated;
    report->corrupted = p->tally.corrupted;
    if (p->gpu) {
        ry_report_collect(report, ctx);
        ep_gpu_report(p->gpu, report);
        ep_gpu_close(p, p->gpu);
    }
    ry_ep_destroy(p->ep);
    ep_data_close(&p->data);
    free(p);
}
