/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of `railyard ep`. */
#ifndef RY_TOOL_EP_H
#define RY_TOOL_EP_H

#include <railyard/ep.h>
#include <railyard/reference.h>
#include <railyard/signal.h>

#include "gpu_setup.h"
#include "start.h"

struct ep_job {
    ry_ep_attr attr;
    uint32_t tokens; /* of each PE and iteration */
    uint64_t iters, warmup, duration_ns;
    uint64_t seed;
    const char *routing; /* file, or NULL: the built-in gate */
    char source[256];    /* of the routing, for people */
    bool on_gpu;         /* --device cuda: */
    struct ry_tool_gpu gpu;
};

/* What every PE knows of all PEs' tokens. */
struct ep_data {
    const struct ep_job *job;
    uint32_t n_pes, n_nodes;
    uint64_t n_routes;      /* different tokens of the routing */
    int32_t *idx;           /* [n_routes + tokens, topk]: the first ones again behind the last */
    float *weight;          /* likewise */
    uint16_t *pool;         /* rows that tokens are made of */
    uint64_t iteration;     /* that the pointers below are of */
    uint32_t *tokens;       /* [n_pes] */
    const int32_t **idx_of; /* [n_pes] */
    const float **weight_of;
    uint16_t *x;   /* [tokens, hidden] of this PE */
    uint16_t *y;   /* one bf16 row for each received row */
    size_t y_rows; /* room of y */
    uint16_t *out; /* [tokens, hidden] */
    void *scratch;
};

/* Prints an error, or leaves ry_last_error(): 0 or a status. */
int ep_data_open(struct ep_data *d, const struct ep_job *job, uint32_t pe, uint32_t n_pes,
                 uint32_t n_nodes);
void ep_data_close(struct ep_data *d);

/* Tokens and routing of iteration `i`. */
void ep_data_iteration(struct ep_data *d, uint64_t i, uint32_t pe);
void ep_data_input(const struct ep_data *d, uint32_t pe, ry_ep_input *in);

/* The stand-in experts on what PE `pe` received: fills y. ep NULL: the rows came from a GPU.
 * NO_MEMORY. */
int ep_data_experts(struct ep_data *d, const ry_ep *ep, uint32_t pe, const ry_ep_output *out);

/* How many experts PE `pe` of n has; *first (may be NULL) is the first. */
uint32_t ep_experts(const struct ep_job *job, uint32_t n_pes, uint32_t pe, uint32_t *first);

/* The reference of this iteration with the PEs in `active` (NULL: all). */
int ep_data_reference(struct ep_data *d, const uint64_t *active, ry_ref **ref);

enum { EP_MASK_WORDS = (JOB_PES_MAX + 63) / 64 };

struct ep_gpu;

/* One PE at work. */
struct ep_pe {
    ry_ctx *ctx;
    ry_ep *ep;
    struct ep_data data;
    struct ry_report *report;
    const struct ep_job *job;
    uint32_t me, n;
    uint64_t minimum_bytes; /* of this iteration */
    ry_signal *stop;        /* [n] in the heap: who led says before which iteration the run ends */
    uint64_t stop_at;       /* the last of them that is known here; 0: none is */
    bool apart;             /* a PE was lost: dispatch and combine alone keep the others together */
    uint64_t active[EP_MASK_WORDS]; /* PEs in the newest result */
    ry_ref_tally tally;
    double start_s, shown_s;
    double dispatch_s, combine_s;              /* of this iteration */
    ry_ep_traffic dispatch_sent, combine_sent; /* likewise */
    struct ep_gpu *gpu;                        /* NULL: on the host */
};

static inline bool ep_is_active(const struct ep_pe *p, uint32_t pe)
{
    return p->active[pe / 64] >> (pe % 64) & 1;
}

/* What arrived, then the experts' answers. */
int ep_check_dispatch(struct ep_pe *p, const ry_ep_output *out);
/* What came back, and what the library says is missing. */
int ep_check_combine(struct ep_pe *p);

/* What one PE does. */
void ep_body(ry_ctx *ctx, const struct ry_run *run, struct ry_report *report);

/* Results of all PEs. */
struct ep_total {
    uint64_t checked, lost, duplicated, corrupted, masked, iterations;
    uint32_t lost_pes, replaced_pes;
    uint64_t dispatch_bytes, minimum_bytes; /* to other nodes: sent, and needed at least */
    bool ok;
    struct ep_phase_total {
        double us_p50, us_p99, us_worst, gbps, rail_gbps, local_gbps;
    } dispatch, combine, step;
};
void ep_total_make(const struct ry_run *run, struct ep_total *t);
void ep_print(const struct ry_run *run, const struct ep_job *job, const struct ep_total *t);
json_t *ep_json(const struct ry_run *run, const struct ep_job *job, const struct ep_total *t);

#endif
