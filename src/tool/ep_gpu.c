/* SPDX-License-Identifier: Apache-2.0 */
#include "ep_gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int open_job(const struct ep_pe *p, const struct ep_job *job, ry_gpu_job **out)
{
    const ry_gpu_job_attr attr = {.ep = job->attr,
                                  .n_pes = p->n,
                                  .n_nodes = ry_n_nodes(p->ctx),
                                  .rails = job->gpu.rails,
                                  .channels = job->gpu.channels,
                                  .handler = job->gpu.handler,
                                  .sms = job->gpu.sms,
                                  .p2p = job->gpu.p2p,
                                  .failover = job->gpu.failover,
                                  .rate_bps = job->gpu.rate_bps,
                                  .timeout_ns = job->gpu.timeout_ns};
    return ry_gpu_job_open(&attr, out);
}

/* A port of this PE changed: from the context's agent. */
static void on_event(void *arg, const ry_event *ev)
{
    struct ep_gpu *g = arg;
    bool down = ev->type == RY_EVENT_RAIL_DOWN;
    if ((!down && ev->type != RY_EVENT_RAIL_UP) || ev->rail >= g->rails)
        return;
    if (down)
        __atomic_fetch_add(&g->downs, 1, __ATOMIC_RELEASE);
    ry_gpu_job_port(g->job, g->pe, ev->rail, !down);
}

/* What the first PE tells the others. */
struct shown {
    struct ep_gpu_shared *shared;
    int status;
    char text[200];
};

static void open_for_all(const struct ep_pe *p, const struct ep_job *job, struct shown *mine)
{
    mine->shared = calloc(1, sizeof *mine->shared);
    mine->status = mine->shared ? open_job(p, job, &mine->shared->job) : RY_ERR_NO_MEMORY;
    snprintf(mine->text, sizeof mine->text, "%s", ry_last_error());
    if (mine->status != RY_OK)
        free(mine->shared);
    else
        mine->shared->users = p->n;
}

int ep_gpu_open(struct ep_pe *p, const struct ep_job *job, struct ep_gpu *g)
{
    struct shown mine = {0}, *all = calloc(p->n, sizeof *all);
    *g = (struct ep_gpu){.run = job, .pe = p->me, .rails = job->gpu.rails};
    if (!all)
        return RY_ERR_NO_MEMORY;
    if (p->me == 0)
        open_for_all(p, job, &mine);
    /* threads of one process: a pointer is as good to the others */
    int rc = ry_allgather(p->ctx, &mine, sizeof mine, all);
    if (rc == RY_OK && all[0].status != RY_OK) {
        rc = all[0].status;
        snprintf(p->report->error, sizeof p->report->error, "%s", all[0].text);
        p->report->status = rc;
    }
    g->shared = rc == RY_OK ? all[0].shared : NULL;
    free(all);
    if (rc != RY_OK)
        return rc;
    g->job = g->shared->job;
    ry_on_event(p->ctx, on_event, g);
    return RY_OK;
}

/* The last PE to leave closes: one that failed must not wait for the others. */
void ep_gpu_close(struct ep_pe *p, struct ep_gpu *g)
{
    ry_on_event(p->ctx, NULL, NULL);
    if (!g->shared || __atomic_sub_fetch(&g->shared->users, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    ry_gpu_job_close(g->job);
    free(g->shared);
}

void ep_gpu_begin(struct ep_gpu *g)
{
    if (ry_gpu_job_count(g->job, g->pe, &g->seen) == RY_OK)
        memcpy(g->base, g->seen.rail_bytes, sizeof g->base);
}

/* Bytes by NIC since the last time. */
static int take_counts(struct ep_gpu *g, uint64_t *sent)
{
    ry_gpu_job_counts now;
    uint32_t downs = __atomic_load_n(&g->downs, __ATOMIC_ACQUIRE);
    int rc = ry_gpu_job_count(g->job, g->pe, &now);
    *sent = 0;
    if (rc != RY_OK)
        return rc;
    if (downs > g->told) { /* what was counted last was before it */
        g->told = downs;
        g->before = g->seen;
    }
    if (now.moves > g->before.moves && downs > 0 && downs <= EP_GPU_DOWNS) {
        double *us = &g->switch_us[downs - 1];
        *us = now.switch_us > *us ? now.switch_us : *us;
        g->replayed[downs - 1] = now.replayed - g->before.replayed;
    }
    for (uint32_t r = 0; r < g->rails; r++)
        *sent += now.rail_bytes[r] - g->seen.rail_bytes[r];
    g->seen = now;
    return RY_OK;
}

/* Is PE `pe`'s memory written directly? */
static bool near(const struct ep_pe *p, uint32_t pe)
{
    return pe == p->me ||
           (p->gpu->run->gpu.p2p && ry_node_of(p->ctx, pe) == ry_node_of(p->ctx, p->me));
}

/* Rows that came from PEs whose memory is written directly: their answers go that way too. */
static uint64_t near_rows(const struct ep_pe *p, const ry_ep_output *out)
{
    const struct ep_job *job = p->gpu->run;
    uint64_t n = 0, pairs = (uint64_t)ep_experts(job, p->n, p->me, NULL) * p->n;
    for (uint64_t i = 0; out->count && i < pairs; i++)
        n += near(p, (uint32_t)(i % p->n)) ? out->count[i] : 0;
    for (uint32_t r = 0; !out->count && r < out->rows; r++)
        n += near(p, out->row_source[r]);
    return n;
}

int ep_gpu_dispatch(struct ep_pe *p, const ry_ep_input *in, ry_ep_output *out)
{
    double us = 0;
    int rc = ry_gpu_job_dispatch(p->gpu->job, p->me, in, out, &us);
    p->dispatch_s = us * 1e-6;
    if (rc != RY_OK)
        return rc;
    p->combine_sent.local_bytes = near_rows(p, out) * p->job->attr.hidden * sizeof(uint16_t);
    return RY_OK;
}

int ep_gpu_combine(struct ep_pe *p)
{
    size_t stride = p->job->attr.hidden * sizeof(uint16_t);
    double us = 0;
    /* all PEs have received, so all of the dispatch has left */
    int rc = take_counts(p->gpu, &p->dispatch_sent.rail_bytes);
    if (rc == RY_OK)
        rc = ry_gpu_job_combine(p->gpu->job, p->me, p->data.y, stride, p->data.out, stride, &us);
    p->combine_s = us * 1e-6;
    return rc;
}

int ep_gpu_account(struct ep_pe *p, double at_s)
{
    uint64_t bytes[REPORT_RAILS] = {0};
    int rc = take_counts(p->gpu, &p->combine_sent.rail_bytes);
    for (uint32_t r = 0; r < p->gpu->rails; r++)
        bytes[r] = p->gpu->seen.rail_bytes[r];
    ry_track_bytes(&p->report->track, bytes, at_s);
    return rc;
}

void ep_gpu_report(struct ep_gpu *g, struct ry_report *r)
{
    uint32_t down = 0;
    r->collected = true;
    for (uint32_t i = 0; i < r->n_rails && i < g->rails; i++)
        r->rails[i].bytes = g->seen.rail_bytes[i] - g->base[i];
    for (uint32_t i = 0; i < r->n_faults; i++) {
        ry_fault_record *f = &r->faults[i];
        bool known = down < EP_GPU_DOWNS && f->pe == g->pe && g->switch_us[down] > 0;
        f->detect_us = -1;
        f->switch_us = known ? g->switch_us[down] : -1;
        f->failback_us = -1;
        f->replayed = known ? g->replayed[down] : 0;
        down += f->pe == g->pe;
    }
}
