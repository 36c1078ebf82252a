/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of `railyard perf`. PE 0 works on the last PE; all others only wait. */
#ifndef RY_TOOL_PERF_H
#define RY_TOOL_PERF_H

#include <railyard/heap.h>
#include <railyard/rma.h>

#include "gpu_setup.h"
#include "start.h"

enum perf_op { PERF_PUT, PERF_GET, PERF_PUT_SIGNAL, PERF_AMO_ADD, PERF_PING_PONG };

enum {
    PERF_WINDOW = 64 << 20,
    PERF_OUTSTANDING = 16, /* if nothing else is asked for */
    PERF_OUTSTANDING_MAX = 512,
    PERF_SIGNALS = 8,  /* of put-signal: their messages go over different channels */
    PERF_SLOTS = 1024, /* payloads of put-signal under way at once */
    PERF_BLOCKS = 400, /* of failover off and on, at least */
    PERF_BLOCKS_MAX = 40000,
    PERF_BLOCK_BYTES = 4 << 20,
    PERF_COMPARE_S = 3, /* as long as this takes, at least */
};

struct perf_job {
    enum perf_op op;
    uint64_t size, size_end; /* doubled from the first to the last */
    uint64_t iters, warmup;  /* iters 0: by size */
    uint64_t outstanding;    /* put and get: so many under way */
    uint64_t duration_ns;
    bool both;
};

struct perf_pe {
    ry_ctx *ctx;
    const struct perf_job *job;
    struct ry_report *report;
    uint32_t me, peer; /* who works on whom; others have peer == me */
    bool active;       /* this is PE 0 */
    bool target;
    uint8_t *window;  /* what is put or got */
    uint8_t *landing; /* where it arrives */
    ry_signal
        *signals;    /* [PERF_SIGNALS] payloads, then one for each way of ping-pong and answers */
    uint64_t *count; /* how many were wrong, written by the target into PE 0's heap */
    double start_s;
    struct ry_samples samples;
};

uint64_t perf_iters(const struct perf_job *job, uint64_t size);
void perf_body(ry_ctx *ctx, const struct ry_run *run, struct ry_report *report);
/* --device cuda: all of it, PE 0's report. */
void perf_gpu(const struct perf_job *job, const struct ry_tool_gpu *setup, uint32_t n_pes,
              struct ry_report *r);

/* Fills with a pattern that `key` chooses, and counts pieces of `piece` bytes that differ. */
void perf_fill(uint8_t *at, size_t bytes, uint64_t key);
uint64_t perf_wrong(const uint8_t *at, size_t bytes, size_t piece, uint64_t key);

/* All meet; in the first row the moments of faults count from here. */
int perf_begin(struct perf_pe *p);
/* One row each; all PEs call them. */
int perf_row_put_signal(struct perf_pe *p, struct ry_perf_row *row);
int perf_row_amo(struct perf_pe *p, struct ry_perf_row *row);
int perf_row_ping_pong(struct perf_pe *p, struct ry_perf_row *row);
/* How many the target found wrong, for PE 0. Collective. */
int perf_tell_wrong(struct perf_pe *p, uint64_t wrong, uint64_t *out);
void perf_times(struct perf_pe *p, struct ry_perf_row *row);

#endif
