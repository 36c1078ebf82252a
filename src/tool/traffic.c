/* SPDX-License-Identifier: Apache-2.0 */
/* railyard traffic: runs a command and says which ports carried its bytes. */
#include "traffic.h"

#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <railyard/config.h>

#include "commands.h"
#include "record.h"

static const char usage[] =
    "usage: railyard traffic [FLAG...] -- COMMAND [ARGUMENT...]\n"
    "       railyard traffic --watch [FLAG...]\n\n"
    "Runs COMMAND, shows bytes, rate and share of each NIC port from the port counters, and says\n"
    "at the end whether all ports were used. Its exit is that of COMMAND.";

struct options {
    const char *dir, *interval, *count, *json;
    int watch;
};

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static json_t *to_json(const struct ry_traffic *traffic)
{
    json_t *list = json_array();
    double all = 0, seconds = (double)(traffic->now_ns - traffic->started_ns) / 1e9;
    for (unsigned i = 0; i < traffic->count; i++)
        all += (double)(traffic->ports[i].sent + traffic->ports[i].received);
    for (unsigned i = 0; i < traffic->count; i++) {
        const struct ry_traffic_port *port = &traffic->ports[i];
        double mine = (double)(port->sent + port->received);
        json_array_append_new(
            list, json_pack("{s:s, s:I, s:I, s:f, s:f, s:b}", "name", port->name, "sent_bytes",
                            (json_int_t)port->sent, "received_bytes", (json_int_t)port->received,
                            "bytes_per_s", seconds > 0 ? mine / seconds : 0.0, "share",
                            all > 0 ? mine / all : 0.0, "idle", ry_traffic_is_idle(traffic, i)));
    }
    return json_pack("{s:f, s:f, s:o}", "seconds", seconds, "spread_percent",
                     ry_traffic_spread(traffic), "ports", list);
}

static void nap(uint64_t ns)
{
    struct timespec wait = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    nanosleep(&wait, NULL);
}

/* Shows the last interval in place of the one before; only a terminal gets it. */
static void show_progress(const struct ry_traffic *traffic, unsigned *lines)
{
    if (!isatty(STDERR_FILENO) || traffic->count == 0)
        return;
    if (*lines)
        fprintf(stderr, "\033[%uA\033[J", *lines);
    ry_traffic_print(traffic, 1, stderr);
    *lines = traffic->count + 1;
}

static int start_command(char **argv, const char *emulated, int quiet_stdout, pid_t *child)
{
    *child = fork();
    if (*child < 0)
        return ry_tool_error("traffic", "cannot start '%s': %s", argv[0], strerror(errno));
    if (*child > 0)
        return TOOL_OK;
    if (emulated)
        setenv("RAILYARD_EMU_SYSFS", emulated, 1);
    if (quiet_stdout)
        dup2(STDERR_FILENO, STDOUT_FILENO); /* stdout holds only JSON */
    signal(SIGINT, SIG_DFL);
    execvp(argv[0], argv);
    fprintf(stderr, "railyard traffic: cannot run '%s': %s\n", argv[0], strerror(errno));
    _exit(127);
}

/* Samples until the command ends. Returns its exit code. */
static int follow(struct ry_traffic *traffic, pid_t child, uint64_t interval_ns)
{
    unsigned lines = 0;
    int status = 0;
    uint64_t shown_ns = 0;
    for (;;) {
        pid_t ended = waitpid(child, &status, WNOHANG);
        ry_traffic_sample(traffic);
        if (ended == child || (ended < 0 && errno != EINTR))
            break;
        if (traffic->now_ns - shown_ns >= interval_ns) {
            show_progress(traffic, &lines);
            shown_ns = traffic->now_ns;
        }
        nap(interval_ns < 50000000u ? interval_ns : 50000000u);
    }
    if (WIFSIGNALED(status))
        return 128 + WTERMSIG(status);
    return WEXITSTATUS(status);
}

static int report(const struct ry_traffic *traffic, const struct options *options, int code)
{
    int quiet = options->json && strcmp(options->json, "-") == 0;
    if (!quiet) {
        ry_traffic_print(traffic, 0, stdout);
        ry_traffic_judge(traffic, stdout);
    }
    if (options->json) {
        int written = ry_tool_write_json("traffic", options->json, to_json(traffic));
        code = code ? code : written;
    }
    return code;
}

static int run_command(struct ry_traffic *traffic, const struct options *options, char **argv,
                       uint64_t interval_ns)
{
    char folder[] = "/tmp/railyard-traffic-XXXXXX";
    const char *emulated = getenv("RAILYARD_EMU_SYSFS");
    int made = 0;
    if (!options->dir && (!emulated || !*emulated)) {
        emulated = mkdtemp(folder);
        made = emulated != NULL;
    }
    if (!options->dir && emulated)
        traffic->roots[traffic->root_count++] = emulated;
    ry_traffic_sample(traffic);
    pid_t child;
    int quiet = options->json && strcmp(options->json, "-") == 0;
    fflush(stdout);
    signal(SIGINT, SIG_IGN); /* the command gets it too, and its end is awaited */
    int code = start_command(argv, options->dir ? NULL : emulated, quiet, &child);
    if (code == TOOL_OK)
        code = report(traffic, options, follow(traffic, child, interval_ns));
    signal(SIGINT, SIG_DFL);
    if (made)
        nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    return code;
}

static int watch(struct ry_traffic *traffic, const struct options *options, uint64_t interval_ns,
                 long long count)
{
    ry_traffic_sample(traffic);
    if (traffic->count == 0)
        return ry_tool_error("traffic", "no port counters below %s: is there an RDMA device?",
                             traffic->roots[0]);
    for (long long i = 0; count == 0 || i < count; i++) {
        nap(interval_ns);
        ry_traffic_sample(traffic);
        if (options->json && strcmp(options->json, "-") == 0)
            continue;
        if (isatty(STDOUT_FILENO))
            fputs("\033[H\033[J", stdout);
        ry_traffic_print(traffic, 1, stdout);
        fflush(stdout);
    }
    return report(traffic, options, TOOL_OK);
}

int ry_command_traffic(int argc, char **argv)
{
    struct options options = {.interval = "1s", .count = "0"};
    const struct ry_tool_flag flags[] = {
        {"--watch", NULL, &options.watch, "show the ports of this machine until interrupted"},
        {"--dir", &options.dir, NULL, "folder of ports in the form of /sys/class/infiniband"},
        {"--interval", &options.interval, NULL, "time between two looks (1s)"},
        {"--count", &options.count, NULL, "with --watch: end after so many (0: never)"},
        {"--json", &options.json, NULL, "write JSON to this file, - is stdout"},
        {NULL, NULL, NULL, NULL},
    };
    int code;
    int at = ry_tool_flags(argc, argv, flags, usage, &code);
    if (at < 0)
        return code;
    uint64_t interval_ns;
    long long count = ry_tool_number(options.count);
    if (ry_parse_time(options.interval, &interval_ns) != RY_OK || interval_ns < 1000000u)
        return ry_tool_error("traffic", "--interval '%s' is no time of 1ms or more: write 500ms",
                             options.interval);
    if (count < 0)
        return ry_tool_error("traffic", "--count '%s' is no number: write 10", options.count);
    if (options.watch == (at < argc))
        return ry_tool_error("traffic", options.watch
                                            ? "--watch takes no command: leave one of them out"
                                            : "no command: type railyard traffic -- COMMAND");
    struct ry_traffic *traffic = calloc(1, sizeof *traffic);
    if (!traffic)
        return ry_tool_error("traffic", "no memory");
    traffic->roots[traffic->root_count++] = options.dir ? options.dir : "/sys/class/infiniband";
    code = options.watch ? watch(traffic, &options, interval_ns, count)
                         : run_command(traffic, &options, argv + at, interval_ns);
    free(traffic);
    return code;
}
