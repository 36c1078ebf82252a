/* SPDX-License-Identifier: Apache-2.0 */
/* The flags that `ep` and `perf` share, made into settings of a job. */
#ifndef RY_TOOL_JOB_H
#define RY_TOOL_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "record.h"

enum { JOB_SETTINGS = 24, JOB_FLAGS = 48, JOB_PES_MAX = 1024 };

/* How a process that we started as a PE finds the reports: "DESCRIPTOR:PES". */
#define JOB_REPORTS "RY_TOOL_REPORTS"

struct ry_tool_job {
    /* as given */
    const char *pes, *nodes, *rails, *ports_per_nic, *channels, *nic, *handler, *device, *p2p;
    const char *link_rate, *failover, *fault, *seed, *duration, *pes_as, *json, *svg;
    /* as understood */
    const char *command;
    uint32_t n_pes, n_nodes;
    uint32_t rails_most; /* of any PE, as far as settings tell; 0: the machine decides */
    bool emulated;       /* no real NIC will be used */
    bool threads;
    bool launched; /* somebody else's launcher has started this process as one PE */
    bool quiet;    /* stdout belongs to JSON */
    bool both;     /* --failover both */
    bool cuda;     /* --device cuda, once ry_tool_gpu_read has looked */
    uint64_t seed_value, duration_ns;
    char *settings[JOB_SETTINGS];
    uint32_t n_settings;
};

/* Appends the shared flags to a table of at least JOB_FLAGS entries that has `used` of its own, and
 * ends it. */
void ry_tool_job_flags(struct ry_tool_job *job, struct ry_tool_flag *table, uint32_t used);

/* Understands the flags. What is not given is taken from `pes` and `nodes` (defaults of the
 * command). Prints the error and returns TOOL_BAD_INPUT, or TOOL_OK. */
int ry_tool_job_read(struct ry_tool_job *job, const char *command, uint32_t pes, uint32_t nodes);

/* One more setting, "NAME=VALUE"; `keep`: only where the user has not set it in the environment or
 * the configuration file. */
int ry_tool_job_set(struct ry_tool_job *job, bool keep, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Asks the library whether all settings make sense. */
int ry_tool_job_check(const struct ry_tool_job *job);

void ry_tool_job_free(struct ry_tool_job *job);

/* Numbers and times of flags: print the error, which names the flag and what it takes. */
int ry_tool_count(const char *command, const char *flag, const char *text, uint64_t least,
                  uint64_t most, uint64_t *out);
int ry_tool_choice(const char *command, const char *flag, const char *text,
                   const char *const *choices, uint32_t *out);

/* Exit code for a status of the library. */
int ry_tool_exit(int status);

#endif
