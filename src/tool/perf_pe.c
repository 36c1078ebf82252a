/* SPDX-License-Identifier: Apache-2.0 */
/* One PE of `railyard perf`: put and get. Checking and filling are outside of what is timed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perf.h"

uint64_t perf_iters(const struct perf_job *job, uint64_t size)
{
    uint64_t n = (256ull << 20) / size;
    if (job->iters)
        return job->iters;
    if (job->op == PERF_PUT_SIGNAL)
        return 100000;
    if (job->op == PERF_AMO_ADD || job->op == PERF_PING_PONG)
        return 20000;
    return n < 64 ? 64 : n > 16384 ? 16384 : n;
}

static uint64_t word_at(uint64_t key, uint64_t i)
{
    uint64_t x = key + i * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    return x ^ (x >> 29);
}

void perf_fill(uint8_t *at, size_t bytes, uint64_t key)
{
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t w = word_at(key, i);
        memcpy(at + i, &w, bytes - i < 8 ? bytes - i : 8);
    }
}

uint64_t perf_wrong(const uint8_t *at, size_t bytes, size_t piece, uint64_t key)
{
    uint64_t wrong = 0;
    for (size_t from = 0; from < bytes; from += piece) {
        size_t to = from + piece < bytes ? from + piece : bytes;
        bool differs = false;
        for (size_t i = from / 8 * 8; i < to; i += 8) {
            uint64_t w = word_at(key, i);
            size_t skip = i < from ? from - i : 0, len = to - i < 8 ? to - i : 8;
            differs |= memcmp(at + i + skip, (uint8_t *)&w + skip, len - skip) != 0;
        }
        wrong += differs;
    }
    return wrong;
}

void perf_times(struct perf_pe *p, struct ry_perf_row *row)
{
    struct ry_samples *list[] = {&p->samples};
    row->us_p50 = ry_samples_quantile(list, 1, 0.5);
    row->us_p99 = ry_samples_quantile(list, 1, 0.99);
}

int perf_tell_wrong(struct perf_pe *p, uint64_t wrong, uint64_t *out)
{
    int rc = RY_OK;
    if (p->target) {
        p->count[1] = wrong;
        rc = ry_put(p->ctx, &p->count[0], &p->count[1], sizeof *p->count, 0);
    }
    if (rc == RY_OK)
        rc = ry_barrier(p->ctx);
    *out = p->count[0];
    return rc;
}

int perf_begin(struct perf_pe *p)
{
    int rc = ry_barrier(p->ctx);
    if (rc == RY_OK && p->report->n_rows == 0) {
        p->start_s = ry_tool_now_s();
        p->report->origin_s = p->start_s;
        ry_fault_start(p->ctx);
    }
    return rc;
}

static uint64_t offset_of(uint64_t i, uint64_t size)
{
    uint64_t places = PERF_WINDOW / size;
    return i % places * size;
}

static int one(struct perf_pe *p, uint64_t i, uint64_t size, bool wait)
{
    uint64_t at = offset_of(i, size);
    if (p->job->op == PERF_PUT)
        return wait ? ry_put(p->ctx, p->landing + at, p->window + at, size, p->peer)
                    : ry_put_nbi(p->ctx, p->landing + at, p->window + at, size, p->peer);
    return wait ? ry_get(p->ctx, p->landing + at, p->window + at, size, p->peer)
                : ry_get_nbi(p->ctx, p->landing + at, p->window + at, size, p->peer);
}

/* Operations under way: two to four parts, each with a mark behind it. Before a new one begins the
 * oldest of them is waited for, so that the link never runs dry. Small parts keep more under way,
 * but a mark is a read on every channel. */
enum { PART_MIN = 8, PARTS = 4 };

struct flow {
    uint64_t part, at_once; /* operations of a part, parts that are under way */
    uint64_t parts;
    ry_mark mark[PARTS];
};

static void flow_begin(struct flow *f, const struct perf_pe *p)
{
    uint64_t all = p->job->outstanding, part = all / PARTS;
    part = part > PART_MIN ? part : PART_MIN;
    f->part = part < all / 2 ? part : all / 2;
    f->at_once = all / f->part < PARTS ? all / f->part : PARTS;
    f->parts = 0;
}

/* n more operations from number *i on. */
static int flow_on(struct perf_pe *p, struct flow *f, uint64_t *i, uint64_t n, uint64_t size)
{
    int rc = RY_OK;
    for (uint64_t k = 0; rc == RY_OK && k < n; f->parts += rc == RY_OK) {
        uint64_t part = n - k < f->part ? n - k : f->part;
        ry_mark *mark = &f->mark[f->parts % f->at_once];
        if (f->parts >= f->at_once)
            rc = ry_mark_wait(p->ctx, mark);
        for (uint64_t j = 0; rc == RY_OK && j < part; j++)
            rc = one(p, (*i)++, size, false);
        if (rc == RY_OK)
            rc = ry_mark_nbi(p->ctx, p->peer, mark);
        k += part;
    }
    return rc;
}

/* Wait for all of them. */
static int flow_end(struct perf_pe *p, struct flow *f)
{
    int rc = f->parts ? ry_mark_wait(p->ctx, &f->mark[(f->parts - 1) % f->at_once]) : RY_OK;
    f->parts = 0;
    return rc;
}

static int batch(struct perf_pe *p, uint64_t *i, uint64_t n, uint64_t size)
{
    struct flow f;
    flow_begin(&f, p);
    int rc = flow_on(p, &f, i, n, size);
    return rc == RY_OK ? flow_end(p, &f) : rc;
}

/* The same bytes moved by one thread's memcpy, in the same memory and the same order. It takes
 * turns with the operation, so that what else the machine does slows both. */
struct copying {
    uint8_t *to;
    const uint8_t *from;
    double s, bytes;
};

static void copy_some(struct copying *c, uint64_t size, uint64_t i, uint64_t n)
{
    double t0 = ry_tool_now_s();
    for (uint64_t k = 0; k < n; k++) {
        memcpy(c->to + offset_of(i + k, size), c->from + offset_of(i + k, size), size);
        __asm__ volatile("" ::: "memory");
    }
    c->s += ry_tool_now_s() - t0;
    c->bytes += (double)size * (double)n;
}

/* Not onto what is checked: a get's landing is copied from. The first round makes the pages. */
static void copy_begin(struct copying *c, struct perf_pe *p, uint64_t size)
{
    bool get = p->job->op == PERF_GET;
    *c = (struct copying){.to = get ? p->window : p->landing, .from = get ? p->landing : p->window};
    for (uint64_t at = 0; at < PERF_WINDOW; at += 4096)
        c->to[at] = c->from[at];
    copy_some(c, size, 0, p->job->outstanding);
    c->s = c->bytes = 0;
}

static void rail_bytes(struct perf_pe *p, uint64_t *bytes)
{
    for (uint32_t r = 0; r < ry_rail_count(p->ctx) && r < REPORT_RAILS; r++) {
        ry_rail rail;
        if (ry_rail_get(p->ctx, r, &rail) == RY_OK)
            bytes[r] = p->job->op == PERF_GET ? rail.rx_bytes : rail.tx_bytes;
    }
}

enum {
    COPY_TURNS = 64,     /* of memcpy in a row, about */
    COPY_AT_ONCE = 64,   /* copies in a turn, at most */
    COPIES_OF_TIMED = 4, /* turns, all at the start, where the run has a given time */
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Blocks with failover off and on, in swapping order; the median of their ratio less one. Short
 * ones and many: what else the machine does within a millisecond then hits both of a pair, and a
 * median of thousands is good to a few parts in a thousand. */
static int compare_failover(struct perf_pe *p, uint64_t *i, struct ry_perf_row *row)
{
    uint64_t most = PERF_BLOCK_BYTES / row->bytes, n = row->iters / PERF_BLOCKS, pairs = 0;
    double *ratio = malloc(PERF_BLOCKS_MAX / 2 * sizeof *ratio), start = ry_tool_now_s();
    int rc = ratio ? RY_OK : RY_ERR_NO_MEMORY;
    n = n < p->job->outstanding ? p->job->outstanding : n;
    n = n > most && most > 0 ? most : n;
    while (rc == RY_OK && pairs < PERF_BLOCKS_MAX / 2 &&
           (pairs < PERF_BLOCKS / 2 || ry_tool_now_s() - start < PERF_COMPARE_S)) {
        double s[2] = {0, 0};
        for (uint32_t k = 0; rc == RY_OK && k < 2; k++) {
            int on = (int)((pairs + k) % 2);
            rc = ry_failover(p->ctx, on);
            double t0 = ry_tool_now_s();
            if (rc == RY_OK)
                rc = batch(p, i, n, row->bytes);
            s[on] = ry_tool_now_s() - t0;
        }
        ratio[pairs++] = s[0] > 0 ? s[1] / s[0] : 1;
        row->blocks += 2;
    }
    if (rc == RY_OK)
        rc = ry_failover(p->ctx, 1);
    if (rc == RY_OK) {
        qsort(ratio, pairs, sizeof *ratio, by_value);
        row->failover_cost = (ratio[(pairs - 1) / 2] + ratio[pairs / 2]) / 2 - 1;
    }
    free(ratio);
    return rc;
}

/* Operations that are waited for one by one. */
static int measure_alone(struct perf_pe *p, struct ry_perf_row *row, uint64_t *i)
{
    uint64_t n = row->iters < 1000 ? row->iters : 1000;
    int rc = RY_OK;
    if (p->job->duration_ns && n > 64)
        n = 64;
    for (uint64_t k = 0; rc == RY_OK && k < n; k++) {
        double t0 = ry_tool_now_s();
        rc = one(p, (*i)++, row->bytes, true);
        ry_samples_add(&p->samples, (ry_tool_now_s() - t0) * 1e6);
        if (ry_tool_now_s() - p->start_s > 20 && k >= 16)
            break; /* a slow link */
    }
    return rc;
}

/* How much is done without a pause: in runs of a given time all behind the first few copies. */
static uint64_t stretch(const struct perf_pe *p, const struct ry_perf_row *row, uint64_t turn)
{
    uint64_t n = row->iters / COPY_TURNS / p->job->outstanding * p->job->outstanding;
    if (p->job->duration_ns)
        return turn < COPIES_OF_TIMED ? p->job->outstanding : UINT64_MAX;
    return n < COPY_AT_ONCE ? COPY_AT_ONCE : n;
}

/* Operations with a window of them under way, in stretches, memcpy between. *s: what they took. */
static int measure_flow(struct perf_pe *p, struct ry_perf_row *row, uint64_t *i,
                        struct copying *copies, double *s)
{
    double limit_s = (double)p->job->duration_ns * 1e-9;
    uint64_t n = 0, turn = 0;
    bool timed = p->job->duration_ns != 0;
    int rc = RY_OK;
    while (rc == RY_OK && (timed ? *s < limit_s : n < row->iters)) {
        struct flow f;
        uint64_t len = stretch(p, row, turn);
        flow_begin(&f, p);
        if (!timed || turn++ < COPIES_OF_TIMED)
            copy_some(copies, row->bytes, *i, len < COPY_AT_ONCE ? len : COPY_AT_ONCE);
        double t0 = ry_tool_now_s(), now = t0;
        for (uint64_t k = 0; rc == RY_OK && k < len; k += p->job->outstanding) {
            uint64_t left = timed ? p->job->outstanding : row->iters - n;
            uint64_t part = left < p->job->outstanding ? left : p->job->outstanding;
            if (timed ? *s + now - t0 >= limit_s : left == 0)
                break;
            rc = flow_on(p, &f, i, part, row->bytes);
            n += rc == RY_OK ? part : 0;
            now = ry_tool_now_s();
            ry_track_add(&p->report->track, p->ctx, now - p->start_s);
            __atomic_store_n(&p->report->at, p->report->at + part, __ATOMIC_RELAXED);
        }
        if (rc == RY_OK)
            rc = flow_end(p, &f);
        *s += ry_tool_now_s() - t0;
    }
    row->iters = n;
    return rc;
}

static int measure(struct perf_pe *p, struct ry_perf_row *row, uint64_t *used)
{
    uint64_t before[REPORT_RAILS] = {0}, after[REPORT_RAILS] = {0}, i = 0;
    struct copying copies;
    double s = 0;
    int rc = measure_alone(p, row, &i);
    if (rc == RY_OK && p->job->both)
        rc = compare_failover(p, &i, row);
    rail_bytes(p, before);
    copy_begin(&copies, p, row->bytes);
    if (rc == RY_OK)
        rc = measure_flow(p, row, &i, &copies, &s);
    rail_bytes(p, after);
    row->moved_bytes = row->iters * row->bytes;
    row->gbps = s > 0 ? (double)row->moved_bytes / s * 1e-9 : 0;
    row->memcpy_gbps = copies.s > 0 ? copies.bytes / copies.s * 1e-9 : 0;
    for (uint32_t r = 0; r < REPORT_RAILS; r++)
        row->rail_gbps[r] = s > 0 ? (double)(after[r] - before[r]) / s * 1e-9 : 0;
    perf_times(p, row);
    *used = i * row->bytes < PERF_WINDOW / row->bytes * row->bytes
                ? i * row->bytes
                : PERF_WINDOW / row->bytes * row->bytes;
    return rc;
}

static int row_put_get(struct perf_pe *p, struct ry_perf_row *row)
{
    uint64_t key = row->bytes * 1000003 + 17, used = 0, wrong = 0;
    bool sends = p->job->op == PERF_PUT ? p->active : p->target;
    bool lands = p->job->op == PERF_PUT ? p->target : p->active;
    if (sends || p->active)
        perf_fill(p->window, PERF_WINDOW, key);
    if (lands)
        memset(p->landing, 0, PERF_WINDOW);
    int rc = ry_barrier(p->ctx);
    uint64_t i = 0;
    if (rc == RY_OK && p->active)
        rc = batch(p, &i, p->job->warmup, row->bytes);
    if (rc == RY_OK)
        rc = perf_begin(p);
    if (rc == RY_OK && p->active)
        rc = measure(p, row, &used);
    p->count[2] = used;
    if (rc == RY_OK && p->active && p->peer != p->me)
        rc = ry_put(p->ctx, &p->count[2], &p->count[2], sizeof *p->count, p->peer);
    if (rc == RY_OK)
        rc = ry_barrier(p->ctx);
    if (rc == RY_OK && lands)
        wrong = perf_wrong(p->landing, p->count[2], row->bytes, key);
    if (rc == RY_OK)
        rc = perf_tell_wrong(p, wrong, &row->wrong);
    if (p->active && lands)
        row->wrong = wrong;
    return rc;
}

static int run_row(struct perf_pe *p, struct ry_perf_row *row)
{
    memset(&p->samples, 0, sizeof p->samples);
    switch (p->job->op) {
    case PERF_PUT_SIGNAL:
        return perf_row_put_signal(p, row);
    case PERF_AMO_ADD:
        return perf_row_amo(p, row);
    case PERF_PING_PONG:
        return perf_row_ping_pong(p, row);
    default:
        return row_put_get(p, row);
    }
}

static int make_room(struct perf_pe *p)
{
    void *at[4] = {NULL};
    bool small = p->job->op >= PERF_PUT_SIGNAL;
    size_t window = small ? (size_t)PERF_SLOTS * p->job->size_end : PERF_WINDOW;
    const size_t bytes[4] = {window, window, (PERF_SIGNALS + 4) * sizeof(ry_signal),
                             8 * sizeof(uint64_t)};
    int rc = RY_OK;
    for (uint32_t i = 0; rc == RY_OK && i < 4; i++)
        rc = ry_malloc(p->ctx, bytes[i], &at[i]);
    p->window = at[0];
    p->landing = at[1];
    p->signals = at[2];
    p->count = at[3];
    return rc;
}

void perf_body(ry_ctx *ctx, const struct ry_run *run, struct ry_report *report)
{
    const struct perf_job *job = run->arg;
    struct perf_pe *p = calloc(1, sizeof *p);
    if (!p) {
        ry_report_fail(report, RY_ERR_NO_MEMORY);
        return;
    }
    p->ctx = ctx;
    p->job = job;
    p->report = report;
    p->me = ry_pe(ctx);
    p->active = p->me == 0;
    p->target = p->me == ry_n_pes(ctx) - 1;
    p->peer = p->active ? ry_n_pes(ctx) - 1 : 0;
    int rc = make_room(p);
    if (rc == RY_OK)
        rc = ry_barrier(ctx);
    ry_report_base(report, ctx);
    ry_track_add(&report->track, ctx, 0);
    for (uint64_t size = job->size; rc == RY_OK && size <= job->size_end; size *= 2) {
        if (report->n_rows == REPORT_ROWS)
            break;
        struct ry_perf_row *row = &report->rows[report->n_rows];
        row->bytes = size;
        row->iters = perf_iters(job, size);
        rc = run_row(p, row);
        report->n_rows++;
    }
    if (rc != RY_OK)
        ry_report_fail(report, rc);
    free(p);
}
