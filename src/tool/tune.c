/* SPDX-License-Identifier: Apache-2.0 */
/* railyard tune: sweeps channels and chunk sizes for a shape (on GPUs the number of SMs), in
 * bounded time. Each try is a run of `railyard ep`, so what is measured is what is used. */
#include <errno.h>
#include <fcntl.h>
#include <railyard/config.h>
#include <railyard/tune.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "commands.h"
#include "record.h"
#include "tune.h"

static const char usage[] =
    "usage: railyard tune [FLAG...]\n\n"
    "Tries channels and chunk sizes for a shape, with --device cuda numbers of SMs, prints what "
    "was\n"
    "best, and writes it to a file that railyard ep and the library load for the same machine and\n"
    "shape.";

static const uint32_t channel_list[] = {1, 2, 4, 8};
static const uint32_t chunk_list[] = {256 << 10, 64 << 10, 16 << 10};
static const uint32_t sms_list[] = {24, 48, 96, 132, 64, 16, 32, 12, 8};

enum {
    CHANNELS = sizeof channel_list / sizeof channel_list[0],
    CHUNKS = sizeof chunk_list / sizeof chunk_list[0],
    SMS = sizeof sms_list / sizeof sms_list[0],
    TRIES = CHANNELS * CHUNKS,
    FINALISTS = 3
};

struct
try {
    uint32_t channels, chunk_bytes;
    uint32_t sms; /* 0: on the host */
    unsigned runs;
    double dispatch_us, combine_us, dispatch_gbps, combine_gbps; /* of the best run */
};

struct tuner {
    struct ry_tune_flags flags;
    char exe[4096];
    char json[64];
    uint64_t end_ns;
    unsigned done, planned, n_tries;
    struct try tries[TRIES];
};

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void show_progress(const struct tuner *tuner, const char *what)
{
    char bar[31];
    unsigned full = tuner->planned ? 30 * tuner->done / tuner->planned : 0;
    if (!isatty(STDERR_FILENO))
        return;
    for (unsigned i = 0; i < 30; i++)
        bar[i] = i < full ? '#' : '.';
    bar[30] = '\0';
    fprintf(stderr, "\r[%s] %u/%u %-32s", bar, tuner->done, tuner->planned, what);
    if (tuner->done == tuner->planned)
        fputs("\r\033[K", stderr);
}

static bool on_gpu(const struct tuner *tuner)
{
    return tuner->flags.device && strcmp(tuner->flags.device, "cuda") == 0;
}

/* "channels 2, chunk 64K", or "24 SMs". */
static const char *name_of(const struct try *try, char *text, size_t cap)
{
    if (try->sms)
        snprintf(text, cap, "%u SMs", try->sms);
    else
        snprintf(text, cap, "channels %u, chunk %uK", try->channels, try->chunk_bytes >> 10);
    return text;
}

/* Runs `ep` with one choice; the child's words go nowhere, its JSON is read. */
static pid_t start_try(const struct tuner *tuner, const struct try *try, const char *iters)
{
    char channels[16], chunk[16], sms[16];
    const char *argv[RY_TUNE_ARGS + 12];
    unsigned n = 0;
    snprintf(channels, sizeof channels, "%u", try->channels);
    snprintf(chunk, sizeof chunk, "%uK", try->chunk_bytes >> 10);
    snprintf(sms, sizeof sms, "%u", try->sms);
    argv[n++] = tuner->exe;
    argv[n++] = "ep";
    n += ry_tune_arguments(&tuner->flags, argv + n);
    argv[n++] = "--channels";
    argv[n++] = channels;
    argv[n++] = "--iters";
    argv[n++] = iters;
    argv[n++] = "--json";
    argv[n++] = tuner->json;
    argv[n] = NULL;
    pid_t child = fork();
    if (child != 0)
        return child;
    int null = open("/dev/null", O_RDWR);
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    setenv(try->sms ? "RAILYARD_SMS" : "RAILYARD_CHUNK", try->sms ? sms : chunk, 1);
    execv(tuner->exe, (char *const *)argv);
    _exit(127);
}

/* Waits for it until the time is over. Returns its exit code, -1 if it was stopped. */
static int await(pid_t child, uint64_t end_ns)
{
    int status;
    for (;;) {
        pid_t ended = waitpid(child, &status, WNOHANG);
        if (ended == child)
            return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        if (ended < 0 && errno != EINTR)
            return -1;
        if (now_ns() >= end_ns) {
            kill(child, SIGTERM); /* ep ends its PEs */
            waitpid(child, &status, 0);
            return -1;
        }
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
}

/* Takes the figures of a run if they are this choice's best. */
static int read_figures(const struct tuner *tuner, struct try *try)
{
    double dispatch, combine, dispatch_gbps, combine_gbps;
    json_t *json = json_load_file(tuner->json, 0, NULL);
    int bad =
        json_unpack(json, "{s:{s:F, s:F}, s:{s:F, s:F}}", "dispatch", "us_p50", &dispatch, "gbps",
                    &dispatch_gbps, "combine", "us_p50", &combine, "gbps", &combine_gbps);
    json_decref(json);
    if (bad || dispatch <= 0 || combine <= 0)
        return -1;
    if (try->runs == 0 || dispatch + combine < try->dispatch_us + try->combine_us) {
        try->dispatch_us = dispatch;
        try->combine_us = combine;
        try->dispatch_gbps = dispatch_gbps;
        try->combine_gbps = combine_gbps;
    }
    try->runs++;
    return 0;
}

/* One run. Returns 0, or the exit code with which tune ends. */
static int run_try(struct tuner *tuner, struct try *try, const char *iters)
{
    char what[48];
    show_progress(tuner, name_of(try, what, sizeof what));
    pid_t child = start_try(tuner, try, iters);
    if (child < 0)
        return ry_tool_error("tune", "cannot start a run: %s", strerror(errno));
    int code = await(child, tuner->end_ns);
    tuner->done++;
    if (code == 0 && read_figures(tuner, try) != 0)
        code = 1;
    if (code > 0)
        return ry_tool_error("tune",
                             "a run with %s failed (exit %d): try railyard ep with the same "
                             "flags",
                             what, code),
               code;
    return TOOL_OK;
}

static double total_us(const struct try *try) { return try->dispatch_us + try->combine_us; }

static int compare_tries(const void *a, const void *b)
{
    const struct try *x = a, *y = b;
    if (!x->runs || !y->runs)
        return (y->runs > 0) - (x->runs > 0);
    return (total_us(x) > total_us(y)) - (total_us(x) < total_us(y));
}

/* Few channels and large chunks first, or the likely numbers of SMs: where time is short, the
 * likely best are tried. */
static void list_tries(struct tuner *tuner)
{
    for (unsigned i = 0; on_gpu(tuner) && i < SMS; i++)
        tuner->tries[tuner->n_tries++] =
            (struct try){.channels = 2, .chunk_bytes = chunk_list[0], .sms = sms_list[i]};
    for (unsigned i = 0; !on_gpu(tuner) && i < CHUNKS * CHANNELS; i++)
        tuner->tries[tuner->n_tries++] = (struct try){.channels = channel_list[i % CHANNELS],
                                                      .chunk_bytes = chunk_list[i / CHANNELS]};
}

/* All choices once; then the best few again, longer. Stops when the time is over. */
static int sweep(struct tuner *tuner)
{
    int code = TOOL_OK;
    list_tries(tuner);
    tuner->planned = tuner->n_tries + FINALISTS;
    for (unsigned i = 0; i < tuner->n_tries && code == TOOL_OK && now_ns() < tuner->end_ns; i++)
        code = run_try(tuner, &tuner->tries[i], tuner->flags.iters);
    qsort(tuner->tries, tuner->n_tries, sizeof tuner->tries[0], compare_tries);
    for (unsigned i = 0;
         i < FINALISTS && i < tuner->n_tries && code == TOOL_OK && now_ns() < tuner->end_ns; i++) {
        if (tuner->tries[i].runs)
            code = run_try(tuner, &tuner->tries[i], tuner->flags.iters);
    }
    qsort(tuner->tries, tuner->n_tries, sizeof tuner->tries[0], compare_tries);
    tuner->done = tuner->planned;
    show_progress(tuner, "");
    return code;
}

static void print_table(const struct tuner *tuner)
{
    char name[48];
    printf("%-24s %14s %14s\n", on_gpu(tuner) ? "SMs" : "channels and chunk", "dispatch us",
           "combine us");
    for (unsigned i = 0; i < tuner->n_tries; i++) {
        const struct try *try = &tuner->tries[i];
        if (try->runs)
            printf("%-24s %14.1f %14.1f\n", name_of(try, name, sizeof name), try->dispatch_us,
                   try->combine_us);
    }
    const struct try *dispatch = &tuner->tries[0], *combine = &tuner->tries[0];
    for (unsigned i = 1; i < tuner->n_tries && tuner->tries[i].runs; i++) {
        if (tuner->tries[i].dispatch_us < dispatch->dispatch_us)
            dispatch = &tuner->tries[i];
        if (tuner->tries[i].combine_us < combine->combine_us)
            combine = &tuner->tries[i];
    }
    printf("[tuning] best dispatch (%s): %s: %.1f us, %.3f GB/s\n", tuner->flags.dtype,
           name_of(dispatch, name, sizeof name), dispatch->dispatch_us, dispatch->dispatch_gbps);
    printf("[tuning] best combine: %s: %.1f us, %.3f GB/s\n", name_of(combine, name, sizeof name),
           combine->combine_us, combine->combine_gbps);
    printf("[tuning] best of both: %s: %.1f us\n", name_of(&tuner->tries[0], name, sizeof name),
           total_us(&tuner->tries[0]));
    if (!on_gpu(tuner))
        puts("[tuning] SMs: the host moves these bytes, there is nothing to sweep");
}

static json_t *to_json(const struct tuner *tuner)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < tuner->n_tries; i++) {
        const struct try *try = &tuner->tries[i];
        if (try->runs)
            json_array_append_new(list, json_pack("{s:i, s:i, s:i, s:i, s:f, s:f}", "channels",
                                                  (int)try->channels, "chunk_bytes",
                                                  (int)try->chunk_bytes, "sms", (int)try->sms,
                                                  "runs", (int)try->runs, "dispatch_us",
                                                  try->dispatch_us, "combine_us", try->combine_us));
    }
    return json_pack("{s:o, s:i, s:i, s:i}", "rows", list, "channels",
                     (int)tuner->tries[0].channels, "chunk_bytes", (int)tuner->tries[0].chunk_bytes,
                     "sms", (int)tuner->tries[0].sms);
}

static int report(struct tuner *tuner, const ry_tune_shape *shape)
{
    const struct try *best = &tuner->tries[0];
    const struct ry_tune_flags *flags = &tuner->flags;
    int quiet = flags->json && strcmp(flags->json, "-") == 0;
    if (!best->runs)
        return ry_tool_error("tune", "no run ended within %s: give more with --time", flags->time);
    if (!quiet)
        print_table(tuner);
    const ry_tune_choice choice = {.channels = best->channels,
                                   .chunk_bytes = best->chunk_bytes,
                                   .sms = best->sms,
                                   .dispatch_us = best->dispatch_us,
                                   .combine_us = best->combine_us};
    char path[4096];
    ry_tune_file(path, sizeof path);
    if (ry_tune_store(flags->file, shape, &choice) != RY_OK)
        return ry_tool_error("tune", "%s", ry_last_error());
    if (!quiet)
        printf("[tuning] written to %s\n", flags->file ? flags->file : path);
    return flags->json ? ry_tool_write_json("tune", flags->json, to_json(tuner)) : TOOL_OK;
}

int ry_command_tune(int argc, char **argv)
{
    struct tuner *tuner = calloc(1, sizeof *tuner);
    ry_tune_shape shape;
    uint64_t time_ns = 0;
    int code = TOOL_BAD_INPUT;
    if (!tuner)
        return ry_tool_error("tune", "no memory");
    if (ry_tune_read_flags(argc, argv, usage, &tuner->flags, &shape, &time_ns, &code) != 0) {
        free(tuner);
        return code;
    }
    ssize_t len = readlink("/proc/self/exe", tuner->exe, sizeof tuner->exe - 1);
    snprintf(tuner->json, sizeof tuner->json, "/tmp/railyard-tune-XXXXXX");
    int fd = len > 0 ? mkstemp(tuner->json) : -1;
    if (fd < 0) {
        free(tuner);
        return ry_tool_error("tune", "cannot make a file for results: %s", strerror(errno));
    }
    close(fd);
    tuner->end_ns = now_ns() + time_ns;
    code = sweep(tuner);
    if (code == TOOL_OK)
        code = report(tuner, &shape);
    unlink(tuner->json);
    free(tuner);
    return code;
}
