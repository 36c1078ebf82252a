/* SPDX-License-Identifier: Apache-2.0 */
#include "report.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

double ry_tool_now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void ry_samples_begin(struct ry_samples *s) { memset(s, 0, sizeof *s); }

void ry_samples_add(struct ry_samples *s, double us)
{
    uint64_t place = s->n++;
    s->sum += us;
    s->worst = us > s->worst ? us : s->worst;
    if (place >= SAMPLES_MAX) { /* each of n stays with the same probability */
        s->random = s->random * 6364136223846793005u + 1442695040888963407u;
        place = (s->random >> 20) % s->n;
    }
    if (place < SAMPLES_MAX)
        s->v[place] = (float)us;
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

double ry_samples_quantile(struct ry_samples *const *s, uint32_t n, double q)
{
    size_t total = 0, at = 0;
    for (uint32_t i = 0; i < n; i++)
        total += s[i]->n < SAMPLES_MAX ? s[i]->n : SAMPLES_MAX;
    float *all = total > 0 ? malloc(total * sizeof *all) : NULL;
    if (!all)
        return 0;
    for (uint32_t i = 0; i < n; i++) {
        size_t len = s[i]->n < SAMPLES_MAX ? s[i]->n : SAMPLES_MAX;
        memcpy(all + at, s[i]->v, len * sizeof *all);
        at += len;
    }
    qsort(all, total, sizeof *all, by_value);
    at = (size_t)(q * (double)(total - 1) + 0.5);
    double value = (double)all[at];
    free(all);
    return value;
}

static void thin(struct ry_track *t)
{
    uint32_t kept = 0;
    for (uint32_t i = 1; i < t->n; i += 2)
        t->point[kept++] = t->point[i];
    t->n = kept;
    t->stride *= 2;
}

void ry_track_bytes(struct ry_track *t, const uint64_t *bytes, double at_s)
{
    if (t->stride == 0)
        t->stride = 1;
    if (++t->skip < t->stride)
        return;
    t->skip = 0;
    if (t->n == TRACK_MAX)
        thin(t);
    struct ry_track_point *p = &t->point[t->n++];
    *p = (struct ry_track_point){.at_s = (float)at_s};
    memcpy(p->bytes, bytes, sizeof p->bytes);
}

void ry_track_add(struct ry_track *t, ry_ctx *ctx, double at_s)
{
    uint64_t bytes[REPORT_RAILS] = {0};
    uint32_t rails = ry_rail_count(ctx);
    for (uint32_t r = 0; r < rails && r < REPORT_RAILS; r++) {
        ry_rail rail;
        if (ry_rail_get(ctx, r, &rail) == RY_OK)
            bytes[r] = rail.tx_bytes;
    }
    ry_track_bytes(t, bytes, at_s);
}

static uint32_t count_files(const char *folder)
{
    uint32_t n = 0;
    DIR *dir = opendir(folder);
    if (!dir)
        return 0;
    for (struct dirent *e = readdir(dir); e; e = readdir(dir))
        n += e->d_name[0] != '.';
    closedir(dir);
    return n;
}

void ry_usage_read(struct ry_usage *u, double at_s)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file) {
        if (fscanf(file, "%*u %lu", &pages) != 1)
            pages = 0;
        fclose(file);
    }
    u->at_s = at_s;
    u->rss_bytes = (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
    uint32_t files = count_files("/proc/self/fd");
    u->descriptors = files > 0 ? files - 1 : 0; /* not the folder itself */
    u->threads = count_files("/proc/self/task");
}

/* What each rail has sent to `peer`: into bytes, or (before) into base. */
static void read_sent(struct ry_report *r, ry_ctx *ctx, uint32_t peer, bool before)
{
    uint64_t bytes[REPORT_RAILS] = {0};
    struct ry_sent *to = &r->to[peer];
    if (ry_rail_count(ctx) > REPORT_RAILS || ry_sent_to(ctx, peer, bytes, to->share) != RY_OK)
        return;
    for (uint32_t k = 0; k < REPORT_RAILS; k++) {
        if (before)
            to->base[k] = bytes[k];
        else
            to->bytes[k] = bytes[k] - to->base[k];
    }
}

static void read_all_sent(struct ry_report *r, ry_ctx *ctx, bool before)
{
    for (uint32_t peer = 0; peer < ry_n_pes(ctx) && peer < REPORT_PEERS; peer++) {
        if (peer != ry_pe(ctx))
            read_sent(r, ctx, peer, before);
    }
}

void ry_report_collect(struct ry_report *r, ry_ctx *ctx)
{
    uint32_t rails = ry_rail_count(ctx);
    if (r->collected)
        return;
    r->n_rails = rails < REPORT_RAILS ? rails : REPORT_RAILS;
    for (uint32_t i = 0; i < r->n_rails; i++) {
        ry_rail rail;
        if (ry_rail_get(ctx, i, &rail) != RY_OK)
            continue;
        snprintf(r->rails[i].name, sizeof r->rails[i].name, "%s", rail.name);
        r->rails[i].bytes = rail.tx_bytes - r->base[i];
        r->rails[i].rate_bps = rail.rate_bps;
    }
    read_all_sent(r, ctx, false);
    uint32_t n = ry_fault_records(ctx, r->faults, REPORT_FAULTS);
    r->n_faults = n < REPORT_FAULTS ? n : REPORT_FAULTS;
}

void ry_report_fail(struct ry_report *r, int status)
{
    if (r->status != RY_OK)
        return;
    const char *text = ry_last_error();
    r->status = status;
    r->error_at_us = r->origin_s > 0 ? (ry_tool_now_s() - r->origin_s) * 1e6 : -1;
    snprintf(r->error, sizeof r->error, "%s", text[0] ? text : ry_status_text(status));
}

void ry_report_base(struct ry_report *r, ry_ctx *ctx)
{
    uint32_t rails = ry_rail_count(ctx);
    for (uint32_t i = 0; i < rails && i < REPORT_RAILS; i++) {
        ry_rail rail;
        if (ry_rail_get(ctx, i, &rail) == RY_OK)
            r->base[i] = rail.tx_bytes;
    }
    read_all_sent(r, ctx, true);
}
