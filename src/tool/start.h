/* SPDX-License-Identifier: Apache-2.0 */
/* Starting the PEs of `ep` and `perf`: threads, processes of our own, or the one PE that a launcher
 * has started this process as. */
#ifndef RY_TOOL_START_H
#define RY_TOOL_START_H

#include "job.h"
#include "report.h"

struct ry_run {
    const struct ry_tool_job *job;
    /* What one PE does, from its context to the last check; writes its report. */
    void (*body)(ry_ctx *ctx, const struct ry_run *run, struct ry_report *report);
    const void *arg;
    uint64_t total; /* iterations, for the progress line; 0: unknown */
    bool survives;  /* the other PEs go on when one is killed */
    bool pin;       /* two PEs, and cores for both: each has its own */
    uint32_t n_pes; /* of reports */
    struct ry_report *reports;
};

/* Runs the job to its end. On TOOL_OK run->reports holds n_pes reports and this process is the one
 * that prints them; *printer false: it is a PE whose results another process prints. Otherwise the
 * error was printed and the exit code is returned. */
int ry_run_start(struct ry_run *run, int argc, char **argv, bool *printer);
void ry_run_end(struct ry_run *run);

/* The first error of any PE: its report, or NULL. PEs that a fault plan killed are none. */
const struct ry_report *ry_run_error(const struct ry_run *run);
bool ry_run_lost_pe(const struct ry_run *run, uint32_t pe);

#endif
