/* SPDX-License-Identifier: Apache-2.0 */
/* railyard perf: one-sided operations between two PEs, measured and checked. */
#include "perf.h"

#include <railyard/config.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "timeline.h"

static const char usage[] =
    "usage: railyard perf put|get|put-signal|amo-add|ping-pong [FLAG...]\n\n"
    "Measures one-sided operations from PE 0 to the last PE, and checks what arrived. us: of one\n"
    "operation that is waited for (ping-pong: half a round trip); GB/s: several under way in a\n"
    "window of 64 MiB; memcpy: the same bytes, offsets and memory copied by one thread.";

static const char *const ops[] = {"put", "get", "put-signal", "amo-add", "ping-pong", NULL};

struct perf_flags {
    const char *size, *iters, *warmup, *outstanding;
};

static int read_size(const char *text, struct perf_job *job)
{
    char first[32];
    size_t len = strcspn(text, ":");
    bool both = text[len] == ':';
    if (len >= sizeof first)
        len = sizeof first - 1;
    memcpy(first, text, len);
    first[len] = '\0';
    if (ry_parse_size(first, &job->size) != RY_OK ||
        (both && ry_parse_size(text + strcspn(text, ":") + 1, &job->size_end) != RY_OK))
        return ry_tool_error("perf", "--size '%s' is no size: write 1M, or 8:1M for a range", text);
    if (!both)
        job->size_end = job->size;
    uint64_t most = job->op == PERF_PUT || job->op == PERF_GET ? PERF_WINDOW : 16 << 10;
    if (job->size < 1 || job->size_end < job->size || job->size_end > most)
        return ry_tool_error("perf",
                             "--size '%s' is out of range: from 1 byte to %llu, the first "
                             "not above the last",
                             text, (unsigned long long)most);
    return TOOL_OK;
}

static int read_flags(const struct perf_flags *f, struct perf_job *job)
{
    static const char *const sizes[] = {"8:1M", "8:1M", "64", "8", "8"};
    if (f->size && job->op == PERF_AMO_ADD && strcmp(f->size, "8") != 0)
        return ry_tool_error("perf", "--size '%s': an atomic has 8 bytes", f->size);
    if (read_size(f->size ? f->size : sizes[job->op], job) != TOOL_OK)
        return TOOL_BAD_INPUT;
    job->warmup = 64;
    if (f->iters && ry_tool_count("perf", "--iters", f->iters, 1, 1ull << 40, &job->iters))
        return TOOL_BAD_INPUT;
    job->outstanding = PERF_OUTSTANDING;
    if (f->outstanding && ry_tool_count("perf", "--outstanding", f->outstanding, 2,
                                        PERF_OUTSTANDING_MAX, &job->outstanding))
        return TOOL_BAD_INPUT;
    return f->warmup ? ry_tool_count("perf", "--warmup", f->warmup, 0, 1 << 30, &job->warmup)
                     : TOOL_OK;
}

static void print_rows(const struct ry_report *r, const struct perf_job *job)
{
    bool copies = job->op == PERF_PUT || job->op == PERF_GET;
    printf("%10s %10s %10s %10s %9s %7s", "bytes", "iterations", "us p50", "us p99", "GB/s",
           "wrong");
    if (copies)
        printf(" %9s", "memcpy");
    if (job->both)
        printf(" %13s", "failover_cost");
    for (uint32_t k = 0; copies && k < r->n_rails; k++)
        printf(" %7s%u", "rail", k);
    putchar('\n');
    for (uint32_t i = 0; i < r->n_rows; i++) {
        const struct ry_perf_row *row = &r->rows[i];
        printf("%10llu %10llu %10.2f %10.2f %9.3f %7llu", (unsigned long long)row->bytes,
               (unsigned long long)row->iters, row->us_p50, row->us_p99, row->gbps,
               (unsigned long long)row->wrong);
        if (copies)
            printf(" %9.3f", row->memcpy_gbps);
        if (job->both)
            printf(" %13.4f", row->failover_cost);
        for (uint32_t k = 0; copies && k < r->n_rails; k++)
            printf(" %8.3f", row->rail_gbps[k]);
        putchar('\n');
    }
}

static json_t *rows_json(const struct ry_report *r, const struct perf_job *job)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < r->n_rows; i++) {
        const struct ry_perf_row *row = &r->rows[i];
        json_t *rails = json_array();
        for (uint32_t k = 0; k < r->n_rails; k++)
            json_array_append_new(rails, json_real(row->rail_gbps[k]));
        json_t *json = json_pack(
            "{s:I, s:I, s:f, s:f, s:f, s:f, s:o, s:I}", "bytes", (json_int_t)row->bytes, "iters",
            (json_int_t)row->iters, "us_p50", row->us_p50, "us_p99", row->us_p99, "gbps", row->gbps,
            "memcpy_gbps", row->memcpy_gbps, "rail_gbps", rails, "wrong", (json_int_t)row->wrong);
        json_object_set_new(json, "failover_cost",
                            job->both ? json_real(row->failover_cost) : json_null());
        json_array_append_new(array, json);
    }
    return array;
}

static int finish(struct ry_run *run, const struct perf_job *job)
{
    const struct ry_report *r = &run->reports[0], *error = ry_run_error(run);
    uint64_t wrong = 0;
    if (error)
        ry_tool_error("perf", "%s", error->error);
    if (r->state == PE_WAITING)
        return error ? ry_tool_exit(error->status) : TOOL_FAILED;
    for (uint32_t i = 0; i < r->n_rows; i++)
        wrong += r->rows[i].wrong;
    bool ok = !error && r->n_rows > 0 && wrong == 0;
    if (!run->job->quiet && r->n_rows > 0) {
        printf("%s, pe0 to pe%u, %u rails\n", ops[job->op], r->n_pes - 1, r->n_rails);
        print_rows(r, job);
        ry_timeline_print(run);
        puts(ok ? "ok" : "failed");
    }
    json_t *json =
        json_pack("{s:b, s:s, s:o, s:o, s:o}", "ok", ok, "operation", ops[job->op], "rows",
                  rows_json(r, job), "rails", ry_rails_json(run), "faults", ry_timeline_json(run));
    json_object_set_new(json, "error", error ? json_string(error->error) : json_null());
    json_object_set_new(json, "error_at_us", json_real(error ? error->error_at_us : -1));
    int wrote = ry_run_write(run, json, "railyard perf");
    int code = error ? ry_tool_exit(error->status) : ok ? TOOL_OK : TOOL_FAILED;
    return code != TOOL_OK ? code : wrote;
}

static int on_gpu(struct ry_run *run, const struct perf_job *job, const struct ry_tool_gpu *gpu)
{
    if (run->job->fault)
        return ry_tool_error("perf", "--fault with --device cuda: ports of gpus go down in ep; "
                                     "leave it out here");
    struct ry_report *report = calloc(1, sizeof *report);
    if (!report)
        return ry_tool_error("perf", "no memory for a report");
    perf_gpu(job, gpu, run->job->n_pes, report);
    run->reports = report;
    run->n_pes = 1;
    int code = finish(run, job);
    free(report);
    return code;
}

/* The first word says what is measured; it may stand before or behind flags. */
static int read_command(int argc, char **argv, struct ry_tool_job *shared, struct perf_job *job)
{
    struct perf_flags f = {0};
    struct ry_tool_flag flags[JOB_FLAGS] = {
        {"--size", &f.size, NULL, "A or A:B: bytes of an operation, doubled from A to B"},
        {"--iters", &f.iters, NULL, "I: operations that count (by size)"},
        {"--warmup", &f.warmup, NULL, "W: operations before those (64)"},
        {"--outstanding", &f.outstanding, NULL, "O: puts or gets under way at once (16)"},
    };
    int code;
    uint32_t op = 0;
    ry_tool_job_flags(shared, flags, 4);
    int at = ry_tool_flags(argc, argv, flags, usage, &code);
    if (at < 0)
        return code == TOOL_OK ? -1 : code;
    if (at == argc)
        return ry_tool_error("perf", "nothing to measure: name put, get, put-signal, amo-add or "
                                     "ping-pong");
    if (ry_tool_choice("perf", "operation", argv[at], ops, &op) != TOOL_OK)
        return TOOL_BAD_INPUT;
    char *word = argv[at];
    argv[at] = argv[0];
    int more = ry_tool_flags(argc - at, argv + at, flags, usage, &code);
    argv[at] = word;
    if (more < 0)
        return code == TOOL_OK ? -1 : code;
    if (at + more < argc)
        return ry_tool_error("perf", "unexpected '%s': perf measures one operation a run",
                             argv[at + more]);
    job->op = (enum perf_op)op;
    return read_flags(&f, job);
}

int ry_command_perf(int argc, char **argv)
{
    struct ry_tool_job shared = {0};
    struct perf_job job = {0};
    bool printer;
    int code = read_command(argc, argv, &shared, &job);
    if (code != TOOL_OK)
        return code < 0 ? TOOL_OK : code;
    code = ry_tool_job_read(&shared, "perf", 2, 2);
    if (code == TOOL_OK && shared.n_pes < 2 && !shared.launched)
        code = ry_tool_error("perf", "--pes 1: an operation needs two PEs");
    if (code == TOOL_OK && !shared.p2p)
        code = ry_tool_job_set(&shared, false, "P2P=off");
    if (code == TOOL_OK && !shared.launched)
        code = ry_tool_job_set(&shared, true, "HEAP_SIZE=%uM",
                               (unsigned)(2 * (PERF_WINDOW >> 20) + 32));
    if (code == TOOL_OK)
        code = ry_tool_job_check(&shared);
    struct ry_tool_gpu gpu;
    if (code == TOOL_OK)
        code = ry_tool_gpu_read(&shared, &gpu);
    job.duration_ns = shared.duration_ns;
    job.both = shared.both && (job.op == PERF_PUT || job.op == PERF_GET);
    struct ry_run run = {.job = &shared, .body = perf_body, .arg = &job, .pin = true};
    if (code == TOOL_OK && shared.cuda) {
        code = on_gpu(&run, &job, &gpu);
        ry_tool_job_free(&shared);
        return code;
    }
    if (code == TOOL_OK)
        code = ry_run_start(&run, argc, argv, &printer);
    if (code == TOOL_OK && printer)
        code = finish(&run, &job);
    ry_run_end(&run);
    ry_tool_job_free(&shared);
    return code;
}
