/* SPDX-License-Identifier: Apache-2.0 */
/* What a run's log says: times of steps, latencies, devices that were not active. The log is given
 * with --log and read as the fact facts/log. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doctor.h"

enum { JITTER_PERCENT = 50, SLOW_US = 500 };

/* The time after "key=" or "key:" in a line, in microseconds; -1 if there is none. */
static double time_after(const char *line, const char *key)
{
    size_t len = strlen(key);
    for (const char *at = strstr(line, key); at; at = strstr(at + 1, key)) {
        if (at > line && (isalnum((unsigned char)at[-1]) || at[-1] == '_'))
            continue;
        const char *value = at + len + strspn(at + len, " =:");
        char *end;
        double time = strtod(value, &end);
        if (end == value || time < 0)
            continue;
        end += strspn(end, " ");
        if (strncmp(end, "us", 2) == 0)
            return time;
        if (strncmp(end, "ms", 2) == 0)
            return time * 1e3;
        if (*end == 's' && !isalpha((unsigned char)end[1]))
            return time * 1e6;
    }
    return -1;
}

struct times {
    unsigned lines;
    double pending; /* a median whose 99th percentile stands in a line to come */
    double worst_jitter, worst_average, shortest, longest, sum;
};

static void add_span(struct times *times, double average, double least, double most)
{
    times->lines++;
    if (average > times->worst_average)
        times->worst_average = average;
    if (least >= 0 && most >= least && (most - least) / average > times->worst_jitter)
        times->worst_jitter = (most - least) / average;
}

/* What `railyard ep` prints: "dispatch  P50  P99 ..." in us, or JSON with us_p50 before us_p99. */
static void read_own_line(struct times *times, const char *line)
{
    double middle, most;
    const char *at;
    if (sscanf(line, "dispatch %lf %lf", &middle, &most) == 2 ||
        sscanf(line, "combine %lf %lf", &middle, &most) == 2) {
        if (middle > 0)
            add_span(times, middle, middle, most);
        return;
    }
    if ((at = strstr(line, "\"us_p50\": ")) && sscanf(at + 10, "%lf", &middle) == 1)
        times->pending = middle;
    if ((at = strstr(line, "\"us_p99\": ")) && sscanf(at + 10, "%lf", &most) == 1 &&
        times->pending > 0) {
        add_span(times, times->pending, times->pending, most);
        times->pending = 0;
    }
}

static void read_line(struct times *times, const char *line)
{
    read_own_line(times, line);
    double average = time_after(line, "avg_t"), least = time_after(line, "min_t");
    double most = time_after(line, "max_t"), step = time_after(line, "step_time");
    if (step < 0)
        step = time_after(line, "elapsed");
    if (average > 0) {
        add_span(times, average, least, most);
    } else if (step > 0) {
        times->lines++;
        times->sum += step;
        if (times->shortest == 0 || step < times->shortest)
            times->shortest = step;
        if (step > times->longest)
            times->longest = step;
    }
}

/* 0 if there is a log. */
static int read_times(struct ry_doctor *doctor, struct ry_result *result, struct times *times)
{
    *times = (struct times){0};
    char *text = ry_facts_text(doctor->facts, "facts/log"), *rest = NULL;
    if (!text) {
        ry_say(result, RY_VERDICT_NA, "no log given: use --log FILE or -- COMMAND");
        return -1;
    }
    unsigned steps = 0;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        double before = times->sum;
        read_line(times, line);
        steps += times->sum > before;
    }
    free(text);
    if (steps > 0) {
        double average = times->sum / steps;
        double jitter = (times->longest - times->shortest) / average;
        times->worst_jitter = jitter > times->worst_jitter ? jitter : times->worst_jitter;
        times->worst_average = average > times->worst_average ? average : times->worst_average;
    }
    if (!times->lines)
        ry_say(result, RY_VERDICT_NA, "the log holds no times (avg_t, min_t, max_t, step_time)");
    return times->lines ? 0 : -1;
}

static void check_jitter(struct ry_doctor *doctor, struct ry_result *result)
{
    struct times times;
    if (read_times(doctor, result, &times) != 0)
        return;
    double percent = times.worst_jitter * 100;
    if (percent <= JITTER_PERCENT) {
        ry_say(result, RY_VERDICT_OK, "times differ by at most %.0f %%", percent);
        return;
    }
    ry_say(result, RY_VERDICT_WARN,
           "times differ by %.0f %% of their mean: a rail is shared, slow "
           "or flaps",
           percent);
    ry_fix(result, "railyard traffic -- COMMAND");
}

static void check_latency(struct ry_doctor *doctor, struct ry_result *result)
{
    struct times times;
    if (read_times(doctor, result, &times) != 0)
        return;
    if (times.worst_average <= SLOW_US) {
        ry_say(result, RY_VERDICT_OK, "mean times are at most %.0f us", times.worst_average);
        return;
    }
    ry_say(result, RY_VERDICT_WARN,
           "a mean time is %.0f us, more than %d: traffic goes through the "
           "CPU, or over one port instead of all",
           times.worst_average, SLOW_US);
    ry_fix(result, "export NVSHMEM_IBGDA_NIC_HANDLER=gpu && railyard traffic -- COMMAND");
}

static void check_log_device(struct ry_doctor *doctor, struct ry_result *result)
{
    static const char *const marks[] = {"not active", "inactive",       "PORT_DOWN",
                                        "Skipping",   "no active port", NULL};
    char *text = ry_facts_text(doctor->facts, "facts/log"), *rest = NULL;
    if (!text) {
        ry_say(result, RY_VERDICT_NA, "no log given: use --log FILE or -- COMMAND");
        return;
    }
    ry_say(result, RY_VERDICT_OK, "the log names no device that is out of use");
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        const char *const *mark = marks;
        while (*mark && !strstr(line, *mark))
            mark++;
        const char *device = strstr(line, "mlx5_");
        if (!device)
            device = strstr(line, "roce");
        if (!*mark || !device)
            continue;
        int len = 0, prefix = 0;
        while (isalnum((unsigned char)device[len]) || device[len] == '_')
            len++;
        while (prefix < len && !isdigit((unsigned char)device[prefix]))
            prefix++;
        ry_say(result, RY_VERDICT_FAIL, "the log says that %.*s is not used (\"%s\")", len, device,
               *mark);
        if (strcmp(*mark, "Skipping") == 0)
            ry_fix(result, "export NVSHMEM_HCA_PREFIX=%.*s", prefix, device);
        else
            ry_fix(result, "eval \"$(railyard env --for nvshmem)\"   # leaves %.*s out", len,
                   device);
        break;
    }
    free(text);
}

const struct ry_check ry_checks_log[] = {
    {"log-jitter", "facts/log (--log)",
     "Steps of one size should take nearly the same time. A spread over half of the mean points at "
     "a rail that others use too, at flow control, or at a port that goes up and down.",
     check_jitter},
    {"log-latency", "facts/log (--log)",
     "A low-latency dispatch takes tens of microseconds, a large one a few hundred. A mean over "
     "500 "
     "us says that something else than the fabric sets the pace.",
     check_latency},
    {"log-device", "facts/log (--log)",
     "Libraries say in their logs when they leave a device out, and go on with the rest.",
     check_log_device},
    {NULL, NULL, NULL, NULL},
};
