/* SPDX-License-Identifier: Apache-2.0 */
/* What each PE of `ep` and `perf` tells the command: plain data in memory that the PEs and the
 * parent share, so that it is there whatever becomes of a PE. One writer a report: its PE; `at` and
 * `state` are read by others while it runs. */
#ifndef RY_TOOL_REPORT_H
#define RY_TOOL_REPORT_H

#include <jansson.h>
#include <railyard/context.h>
#include <railyard/fault.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    SAMPLES_MAX = 8192,
    TRACK_MAX = 512,
    REPORT_RAILS = 16,
    REPORT_PEERS = 256, /* of which bytes are kept one by one */
    REPORT_FAULTS = 512,
    REPORT_EVENTS = 64,
    REPORT_ROWS = 32,
};

/* Durations in us. More than SAMPLES_MAX are thinned at random (the same every run). */
struct ry_samples {
    uint64_t n;
    uint64_t random;
    double sum, worst;
    float v[SAMPLES_MAX];
};
/* Its pages are there from now on: what is measured later does not grow by them. */
void ry_samples_begin(struct ry_samples *s);
void ry_samples_add(struct ry_samples *s, double us);
/* Of all PEs' samples together; sorts them. q 0..1; 0 without samples. */
double ry_samples_quantile(struct ry_samples *const *s, uint32_t n, double q);

/* Bytes sent by each rail so far, at moments since the start; thinned by half when full. */
struct ry_track {
    uint32_t n, stride, skip;
    struct ry_track_point {
        float at_s;
        uint64_t bytes[REPORT_RAILS];
    } point[TRACK_MAX];
};
void ry_track_add(struct ry_track *t, ry_ctx *ctx, double at_s);
/* The same from bytes[REPORT_RAILS]. */
void ry_track_bytes(struct ry_track *t, const uint64_t *bytes, double at_s);

/* What the process takes. */
struct ry_usage {
    double at_s;
    uint64_t rss_bytes;
    uint32_t descriptors, threads;
};
void ry_usage_read(struct ry_usage *u, double at_s);

struct ry_phase {
    struct ry_samples time;
    uint64_t rail_bytes, local_bytes;
};

/* One row of `perf`. */
struct ry_perf_row {
    uint64_t bytes, iters, moved_bytes, wrong;
    double us_p50, us_p99, gbps, memcpy_gbps, failover_cost;
    double rail_gbps[REPORT_RAILS];
    uint32_t blocks;
};

enum ry_pe_state { PE_WAITING = 0, PE_RUNNING = 1, PE_DONE = 2 };

struct ry_report {
    uint32_t state; /* atomic, enum ry_pe_state */
    uint32_t incarnation;
    uint64_t at;    /* atomic: iterations done */
    uint64_t stop;  /* atomic: iteration before which the run ends; 0: unknown */
    int32_t status; /* of the library, RY_OK so far */
    char error[400];
    double origin_s; /* ry_tool_now_s at ry_fault_start; 0: not yet */
    double error_at_us;
    uint64_t job;
    uint32_t pe, n_pes, node, n_nodes;
    uint32_t n_rails;
    struct {
        char name[64];
        uint64_t bytes, rate_bps;
    } rails[REPORT_RAILS];
    struct ry_sent {
        uint64_t base[REPORT_RAILS], bytes[REPORT_RAILS];
        double share[REPORT_RAILS];
    } to[REPORT_PEERS]; /* each PE, by the rails of this one */
    uint32_t n_faults;
    ry_fault_record faults[REPORT_FAULTS];
    uint32_t n_events; /* that the application was told; texts of the first ones */
    char events[REPORT_EVENTS][120];
    uint64_t base[REPORT_RAILS]; /* bytes of each rail when the warm-up was over */
    struct ry_track track;
    bool collected; /* rails and faults are in: a later collect changes nothing */

    /* ep */
    uint64_t checked, lost, duplicated, corrupted, masked;
    struct ry_phase dispatch, combine;
    uint64_t minimum_bytes; /* that a dispatch must send to other nodes, rows only */
    struct ry_samples step;
    struct ry_usage first, half, last; /* half: of a duration */
    uint64_t rss_most;
    uint32_t descriptors_most, threads_most;
    /* perf, from PE 0 */
    uint32_t n_rows;
    struct ry_perf_row rows[REPORT_ROWS];
};

/* Counting of bytes begins here. */
void ry_report_base(struct ry_report *r, ry_ctx *ctx);
/* Rails, faults and events of a context into its report; called at the end, and by the failed. */
void ry_report_collect(struct ry_report *r, ry_ctx *ctx);
/* An error of the library, once: the first is kept. */
void ry_report_fail(struct ry_report *r, int status);

double ry_tool_now_s(void); /* CLOCK_MONOTONIC */

#endif
