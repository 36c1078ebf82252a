/* SPDX-License-Identifier: Apache-2.0 */
/* Starting a job on this machine: N processes that find each other, die together and leave nothing.
 *
 * ry_launch must be called where the process has one thread, since it forks. While it runs it holds
 * SIGINT, SIGTERM and SIGHUP (forwarded to the PEs) and SIGCHLD; it restores them. If the launcher
 * itself is killed, a guard process kills every PE and what they started. */
#ifndef RAILYARD_LAUNCH_H
#define RAILYARD_LAUNCH_H

#include <railyard/status.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Zero it, then set what is needed: argv and n_pes at least. */
typedef struct ry_launch_cfg {
    uint32_t n_pes;
    uint32_t n_nodes;       /* logical nodes that the PEs are split into; 0: one */
    char *const *argv;      /* program (searched in PATH) and arguments, NULL at the end */
    const char *const *env; /* "NAME=VALUE" for every PE besides this process's own, or NULL */
    int keep_going;         /* a PE that dies after the start does not end the others */
    int quiet;              /* no lines on stderr but errors */
    uint32_t restarts;      /* replacements in all, each PE that dies after the start gets one */
    uint64_t restart_delay_ns;
    /* [n_pes], instead of the two: the first time that a PE dies after the start, it gets a
     * replacement so much later; 0: it gets none. NULL: the two count. */
    const uint64_t *return_ns;
    uint64_t start_timeout_ns; /* from the first PE that joins until the last; 0: 60 s */
    /* Called for each result that a PE hands over (ry_launch_report), as it comes; may be NULL. */
    void (*on_report)(void *arg, uint32_t pe, const void *data, size_t len);
    void *arg;
} ry_launch_cfg;

typedef struct ry_launch_pe {
    int exit_code; /* 128 + signal if a signal ended it */
    int lost;      /* died after the start and was not replaced (keep_going) */
    uint32_t incarnation;
    char *report; /* the last result it handed over, NUL behind it; NULL: none */
    size_t report_bytes;
} ry_launch_pe;

typedef struct ry_launch_result {
    int exit_code; /* what the launcher should exit with: 0 if all PEs that count ended with 0 */
    uint64_t job;
    uint32_t n_pes;
    ry_launch_pe *pes;
} ry_launch_result;

/* Runs the job to its end. A PE that fails is no error of this call: see result->exit_code. Errors:
 * INVALID, CONFIG (the program cannot be started), SYSTEM, NO_MEMORY; then there is no result. */
RY_API int ry_launch(const ry_launch_cfg *cfg, ry_launch_result *result);
RY_API void ry_launch_result_free(ry_launch_result *result);

/* The same with this very program and these arguments again, as PEs: cfg->argv is ignored. */
RY_API int ry_launch_self(int argc, char *const *argv, const ry_launch_cfg *cfg,
                          ry_launch_result *result);

/* Is this process a PE of a job that a launcher (railyard run, mpirun, torchrun, ...) has started?
 * And of how many: number and count are set if not NULL. */
RY_API int ry_launched(uint32_t *pe, uint32_t *n_pes);

/* In a PE: hand a result of at most 64 MiB to the launcher. NOT_FOUND where no railyard launcher
 * started this process. Errors besides: AUTH, TIMEOUT, UNREACHABLE. Any thread. */
RY_API int ry_launch_report(const void *data, size_t len);

#ifdef __cplusplus
}
#endif
#endif
