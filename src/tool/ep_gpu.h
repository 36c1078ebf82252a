/* SPDX-License-Identifier: Apache-2.0 */
/* `railyard ep --device cuda`: the same run, its dispatch and combine on GPUs. */
#ifndef RY_TOOL_EP_GPU_H
#define RY_TOOL_EP_GPU_H

#include <railyard/gpu_job.h>

#include "ep.h"

enum { EP_GPU_DOWNS = 64 };

/* Of all PEs, made by the first. */
struct ep_gpu_shared {
    ry_gpu_job *job;
    uint32_t users; /* atomic */
};

/* A PE's part. Ports follow those of the PE's context, which the fault plan moves. */
struct ep_gpu {
    struct ep_gpu_shared *shared;
    ry_gpu_job *job;
    const struct ep_job *run;
    uint32_t pe, rails;
    uint64_t base[RY_GPU_JOB_RAILS]; /* bytes when counting began */
    ry_gpu_job_counts seen;          /* at the end of the last iteration */
    uint32_t downs;                  /* atomic: ports that went down */
    uint32_t told;                   /* of them, that have a base */
    ry_gpu_job_counts before;        /* the newest of them */
    double switch_us[EP_GPU_DOWNS];  /* what the kernels did about each */
    uint64_t replayed[EP_GPU_DOWNS];
};

/* Collective. The first PE opens the job for all; what failed is in the report. */
int ep_gpu_open(struct ep_pe *p, const struct ep_job *job, struct ep_gpu *g);
void ep_gpu_close(struct ep_pe *p, struct ep_gpu *g);

int ep_gpu_dispatch(struct ep_pe *p, const ry_ep_input *in, ry_ep_output *out);
int ep_gpu_combine(struct ep_pe *p);

void ep_gpu_begin(struct ep_gpu *g); /* counting begins */
/* What the iteration did to ports and channels; for the picture too. */
int ep_gpu_account(struct ep_pe *p, double at_s);
/* Rails and faults as the GPU saw them, into the report. */
void ep_gpu_report(struct ep_gpu *g, struct ry_report *r);

#endif
