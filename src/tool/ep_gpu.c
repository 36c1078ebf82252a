/* SPDX-License-Identifier: Apache-2.0 */
#include "ep_gpu.h"

#include <stdio.h>
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

int ep_gpu_open(struct ep_pe *p, const struct ep_job *job, struct ep_gpu *g)
{
    struct {
        ry_gpu_job *job;
        int status;
        char text[200];
    } mine = {0}, all[JOB_PES_MAX];
    *g = (struct ep_gpu){.pe = p->me, .rails = job->gpu.rails};
    if (p->n > JOB_PES_MAX)
        return RY_ERR_INVALID;
    if (p->me == 0) {
        mine.status = open_job(p, job, &mine.job);
        snprintf(mine.text, sizeof mine.text, "%s", ry_last_error());
    }
    /* threads of one process: a pointer is as good to the others */
    int rc = ry_allgather(p->ctx, &mine, sizeof mine, all);
    if (rc == RY_OK && all[0].status != RY_OK) {
        rc = all[0].status;
        if (p->report->status == RY_OK)
            snprintf(p->report->error, sizeof p->report->error, "%s", all[0].text);
        p->report->status = rc;
    }
    if (rc != RY_OK)
        return rc;
    g->job = all[0].job;
    ry_on_event(p->ctx, on_event, g);
    return RY_OK;
}

void ep_gpu_close(struct ep_pe *p, struct ep_gpu *g)
{
    uint8_t done = 1, all[JOB_PES_MAX];
    ry_on_event(p->ctx, NULL, NULL);
    if (!g->job)
        return;
    /* nobody's call is under way any more; a PE that failed comes here too */
    int rc = ry_allgather(p->ctx, &done, sizeof done, all);
    if (p->me == 0 && rc == RY_OK)
        ry_gpu_job_close(g->job);
}

void ep_gpu_begin(struct ep_gpu *g)
{
    if (ry_gpu_job_count(g->job, g->pe, &g->seen) == RY_OK)
        memcpy(g->base, g->seen.rail_bytes, sizeof g->base);
}

int ep_gpu_account(struct ep_pe *p, struct ep_gpu *g, double at_s)
{
    ry_gpu_job_counts now;
    uint32_t downs = __atomic_load_n(&g->downs, __ATOMIC_ACQUIRE);
    uint64_t bytes[REPORT_RAILS] = {0}, sent = 0;
    int rc = ry_gpu_job_count(g->job, g->pe, &now);
    if (rc != RY_OK)
        return rc;
    if (now.moves > g->seen.moves && downs > 0 && downs <= EP_GPU_DOWNS) {
        g->switch_us[downs - 1] = now.switch_us;
        g->replayed[downs - 1] += now.replayed - g->seen.replayed;
    }
    for (uint32_t r = 0; r < g->rails; r++) {
        bytes[r] = now.rail_bytes[r];
        sent += now.rail_bytes[r] - g->seen.rail_bytes[r];
    }
    p->rail_bytes = sent;
    g->seen = now;
    ry_track_bytes(&p->report->track, bytes, at_s);
    return RY_OK;
}

void ep_gpu_report(struct ep_gpu *g, struct ry_report *r)
{
    uint32_t down = 0;
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
