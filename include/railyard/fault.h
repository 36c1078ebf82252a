/* SPDX-License-Identifier: Apache-2.0 */
/* Fault injection, drain, and the state of paths: for tests, operators and the tools. */
#ifndef RAILYARD_FAULT_H
#define RAILYARD_FAULT_H

#include <railyard/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Plan faults from a SPEC (grammar: railyard-fault(1)); each PE applies the events that touch it.
 * The same text drives the emulated NIC and the simulator. Errors: INVALID with the column in the
 * text. */
RY_API int ry_fault_plan(ry_ctx *ctx, const char *spec, uint64_t seed);
/* Does the SPEC parse, for a job of this shape? */
RY_API int ry_fault_check(const char *spec, uint32_t n_pes, uint32_t rails);
/* return_ns: [n_pes], how long after each PE's death its replacement comes, by the kills of a SPEC
 * that fits; 0: none does. Errors: INVALID, NO_MEMORY. */
RY_API int ry_fault_returns(const char *spec, uint32_t n_pes, uint64_t *return_ns);
/* Tell the planner how far the job is: iteration number, from 0. Operations are counted by the
 * context. */
RY_API void ry_fault_iteration(ry_ctx *ctx, uint64_t iteration);
/* Operations posted from now on count for `opN` triggers; called when the warm-up is over.
 * What is planned for the first moment has happened when this returns. */
RY_API void ry_fault_start(ry_ctx *ctx);

/* What a fault did to this PE: one entry per event and rail it touches. Times in us, -1: not
 * applicable. */
typedef struct ry_fault_record {
    char kind[16];
    uint32_t pe, rail;
    double at_us;     /* injection, since ry_fault_start */
    double detect_us; /* from the later of injection and the oldest affected operation's post */
    double switch_us; /* detection to the first good completion on the new path */
    double failback_us;
    uint64_t replayed;
} ry_fault_record;

/* Copies at most max records, returns how many there are. */
RY_API uint32_t ry_fault_records(ry_ctx *ctx, ry_fault_record *out, uint32_t max);

/* Move traffic away from a rail of this PE with nothing replayed, and let it return. */
RY_API int ry_drain(ry_ctx *ctx, uint32_t rail);
RY_API int ry_undrain(ry_ctx *ctx, uint32_t rail);

/* Whether this PE goes on arming backup paths (on, as at the start) or not: `railyard perf
 * --failover both` does the same work in turns with and without. Backups that are connected stay.
 * UNSUPPORTED if failover was off when the job started. */
RY_API int ry_failover(ry_ctx *ctx, int on);

enum ry_path_health {
    RY_PATH_GOOD,
    RY_PATH_SUSPECTED,
    RY_PATH_FAILED,
    RY_PATH_RECOVERING,
    RY_PATH_UNREACHABLE
};

/* One path of a channel of this PE. */
typedef struct ry_path_status {
    uint32_t peer, channel, slot;
    uint32_t rail, peer_rail;
    enum ry_path_health health;
    int active, home;
    uint64_t epoch;
    uint64_t moves, replayed;
    double last_switch_us; /* duration of the last switch away from it, -1: none */
    double since_s;        /* in this state */
} ry_path_status;

RY_API uint32_t ry_paths(ry_ctx *ctx, ry_path_status *out, uint32_t max);
RY_API const char *ry_path_health_name(enum ry_path_health h);

#ifdef __cplusplus
}
#endif
#endif
