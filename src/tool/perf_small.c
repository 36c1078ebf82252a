/* SPDX-License-Identifier: Apache-2.0 */
/* Signals behind their payload, atomics, ping-pong. */
#include <string.h>

#include "perf.h"

/* --- put-signal: is a signal ever seen before what was put in front of it? --- */

/* Slots of one signal's messages: every PERF_SIGNALS-th. */
static uint8_t *slot_of(uint8_t *base, uint64_t op, uint64_t size)
{
    return base + op % PERF_SLOTS * size;
}

/* Every word of a payload says which operation it belongs to. */
static void stamp(uint8_t *at, uint64_t size, uint64_t op)
{
    for (uint64_t i = 0; i + 8 <= size; i += 8)
        memcpy(at + i, &op, 8);
    for (uint64_t i = size / 8 * 8; i < size; i++)
        at[i] = (uint8_t)op;
}

static bool stamped(const uint8_t *at, uint64_t size, uint64_t op)
{
    for (uint64_t i = 0; i + 8 <= size; i += 8) {
        uint64_t w;
        memcpy(&w, at + i, 8);
        if (w != op)
            return false;
    }
    for (uint64_t i = size / 8 * 8; i < size; i++) {
        if (at[i] != (uint8_t)op)
            return false;
    }
    return true;
}

/* Signals are values that only grow: those of later rows lie above. */
static uint64_t row_base(const struct perf_pe *p) { return (uint64_t)p->report->n_rows << 40; }

static int send_burst(struct perf_pe *p, uint64_t first, uint64_t n, uint64_t size)
{
    int rc = RY_OK;
    for (uint64_t op = first; rc == RY_OK && op < first + n; op++) {
        uint8_t *from = slot_of(p->window, op, size), *to = slot_of(p->landing, op, size);
        stamp(from, size, op + 1);
        double t0 = ry_tool_now_s();
        rc = ry_put_signal_nbi(p->ctx, to, from, size, &p->signals[op % PERF_SIGNALS],
                               row_base(p) + op + 1, p->peer);
        ry_samples_add(&p->samples, (ry_tool_now_s() - t0) * 1e6);
    }
    if (rc == RY_OK)
        rc = ry_quiet(p->ctx);
    if (rc == RY_OK) /* the other side has looked at all of them */
        rc = ry_signal_wait(p->ctx, &p->signals[PERF_SIGNALS], row_base(p) + first + n, p->peer, 0);
    return rc;
}

/* Looks at each payload as soon as its signal is seen. */
static int watch_burst(struct perf_pe *p, uint64_t first, uint64_t n, uint64_t size,
                       uint64_t *wrong)
{
    uint64_t next[PERF_SIGNALS], left = n;
    for (uint64_t s = 0; s < PERF_SIGNALS; s++)
        next[s] = first + (s + PERF_SIGNALS - first % PERF_SIGNALS) % PERF_SIGNALS;
    while (left > 0) {
        uint64_t before = left, lowest = 0;
        for (uint64_t s = 0; s < PERF_SIGNALS; s++) {
            uint64_t seen = ry_signal_read(p->ctx, &p->signals[s]);
            for (; next[s] < first + n && seen >= row_base(p) + next[s] + 1; left--) {
                *wrong += !stamped(slot_of(p->landing, next[s], size), size, next[s] + 1);
                next[s] += PERF_SIGNALS;
            }
            if (next[s] < first + n && (next[lowest] >= first + n || next[s] < next[lowest]))
                lowest = s;
        }
        if (left > 0 && left == before) {
            int rc = ry_signal_wait(p->ctx, &p->signals[lowest], row_base(p) + next[lowest] + 1,
                                    p->peer, 0);
            if (rc != RY_OK)
                return rc;
        }
    }
    return ry_put_signal_nbi(p->ctx, NULL, NULL, 0, &p->signals[PERF_SIGNALS],
                             row_base(p) + first + n, 0);
}

int perf_row_put_signal(struct perf_pe *p, struct ry_perf_row *row)
{
    uint64_t wrong = 0, op = 0;
    memset(p->window, 0, PERF_SLOTS * row->bytes);
    int rc = perf_begin(p);
    double t0 = ry_tool_now_s();
    while (rc == RY_OK && op < row->iters && (p->active || p->target)) {
        uint64_t n = row->iters - op < PERF_SLOTS ? row->iters - op : PERF_SLOTS;
        rc = p->active ? send_burst(p, op, n, row->bytes)
                       : watch_burst(p, op, n, row->bytes, &wrong);
        op += n;
        if (p->active)
            ry_track_add(&p->report->track, p->ctx, ry_tool_now_s() - p->start_s);
        __atomic_store_n(&p->report->at, op, __ATOMIC_RELAXED);
    }
    double s = ry_tool_now_s() - t0;
    row->moved_bytes = op * row->bytes;
    row->gbps = s > 0 ? (double)row->moved_bytes / s * 1e-9 : 0;
    perf_times(p, row);
    return rc == RY_OK ? perf_tell_wrong(p, wrong, &row->wrong) : rc;
}

/* --- amo-add --- */

int perf_row_amo(struct perf_pe *p, struct ry_perf_row *row)
{
    uint64_t *sum = &p->count[4], wrong = 0;
    *sum = 0;
    int rc = perf_begin(p);
    double t0 = ry_tool_now_s();
    for (uint64_t i = 0; rc == RY_OK && p->active && i < row->iters; i++) {
        double t1 = ry_tool_now_s();
        rc = ry_amo_add(p->ctx, sum, 3, p->peer);
        ry_samples_add(&p->samples, (ry_tool_now_s() - t1) * 1e6);
        __atomic_store_n(&p->report->at, i + 1, __ATOMIC_RELAXED);
        if (i % 256 == 0)
            ry_track_add(&p->report->track, p->ctx, ry_tool_now_s() - p->start_s);
    }
    double s = ry_tool_now_s() - t0;
    if (rc == RY_OK)
        rc = ry_barrier(p->ctx);
    if (p->target) {
        uint64_t got = __atomic_load_n(sum, __ATOMIC_ACQUIRE), want = 3 * row->iters;
        wrong = ((got > want ? got - want : want - got) + 2) / 3;
    }
    row->moved_bytes = row->iters * 8;
    row->gbps = s > 0 ? (double)row->moved_bytes / s * 1e-9 : 0;
    perf_times(p, row);
    return rc == RY_OK ? perf_tell_wrong(p, wrong, &row->wrong) : rc;
}

/* --- ping-pong --- */

int perf_row_ping_pong(struct perf_pe *p, struct ry_perf_row *row)
{
    ry_signal *there = &p->signals[PERF_SIGNALS + 1], *back = &p->signals[PERF_SIGNALS + 2];
    uint64_t base = row_base(p), rounds = row->iters + p->job->warmup, wrong = 0;
    size_t payload = row->bytes > 8 ? row->bytes - 8 : 0; /* 8 bytes are the signal itself */
    int rc = perf_begin(p);
    for (uint64_t i = 1; rc == RY_OK && i <= rounds && (p->active || p->target); i++) {
        ry_signal *mine = p->active ? there : back, *other = p->active ? back : there;
        double t0 = ry_tool_now_s();
        if (p->target)
            rc = ry_signal_wait(p->ctx, other, base + i, p->peer, 0);
        if (payload && p->target && rc == RY_OK)
            wrong += !stamped(p->landing, payload, i);
        if (payload)
            stamp(p->window, payload, i);
        if (rc == RY_OK)
            rc = ry_put_signal_nbi(p->ctx, p->landing, p->window, payload, mine, base + i, p->peer);
        if (rc == RY_OK && p->active)
            rc = ry_signal_wait(p->ctx, other, base + i, p->peer, 0);
        if (p->active && i > p->job->warmup)
            ry_samples_add(&p->samples, (ry_tool_now_s() - t0) * 0.5e6);
        if (payload && rc == RY_OK)
            rc = ry_quiet(p->ctx); /* the source is written again in the next round */
    }
    row->moved_bytes = 2 * row->iters * row->bytes;
    perf_times(p, row);
    row->gbps = row->us_p50 > 0 ? (double)row->bytes / row->us_p50 * 1e-3 : 0;
    return rc == RY_OK ? perf_tell_wrong(p, wrong, &row->wrong) : rc;
}
