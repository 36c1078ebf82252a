/* SPDX-License-Identifier: Apache-2.0 */
/* railyard doctor: is this machine ready, and if not, what mends it. */
#include "doctor/doctor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "doctor_run.h"
#include "record.h"

static const char usage[] =
    "usage: railyard doctor [FLAG...] [-- COMMAND [ARGUMENT...]]\n\n"
    "Checks the machine: one line a check, with cause and the command that mends it. With a\n"
    "command it runs that first, and judges what it prints as a log.\n"
    "Exit 0 if nothing fails, 1 if a check fails, 2 for a bad flag or file.";

struct options {
    const char *root, *json, *capture, *explain, *handler, *pes, *tokens, *log, *only;
    int list;
    char **command; /* to run, or NULL */
};

static const char *const verdict_names[] = {"OK", "WARN", "FAIL", "n.a."};

static int explain(const char *id)
{
    for (const struct ry_family *f = ry_doctor_families(); f->name; f++) {
        for (const struct ry_check *c = f->checks; c->id; c++) {
            if (strcmp(c->id, id) != 0)
                continue;
            printf("%s (%s)\n\n%s\n\nreads: %s\n", c->id, f->name, c->explain, c->reads);
            return TOOL_OK;
        }
    }
    return ry_tool_error("doctor", "no check '%s': type railyard doctor --list for their names",
                         id);
}

static void list_checks(void)
{
    for (const struct ry_family *f = ry_doctor_families(); f->name; f++) {
        for (const struct ry_check *c = f->checks; c->id; c++)
            printf("%-20s %-10s %s\n", c->id, f->name, c->reads);
    }
}

static void print_result(const struct ry_check *check, const struct ry_result *result, int colour)
{
    static const char *const colours[] = {"\033[32m", "\033[33m", "\033[31m", "\033[2m"};
    printf("%s%-4s%s  %-18s  %s\n", colour ? colours[result->verdict] : "",
           verdict_names[result->verdict], colour ? "\033[0m" : "", check->id, result->cause);
    if (result->fix[0] && result->verdict != RY_VERDICT_OK && result->verdict != RY_VERDICT_NA)
        printf("                          fix: %s\n", result->fix);
}

static json_t *result_to_json(const char *family, const struct ry_check *check,
                              const struct ry_result *result)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:s}", "id", check->id, "family", family, "verdict",
                     verdict_names[result->verdict], "cause", result->cause, "fix", result->fix);
}

/* Runs all checks; prints unless `quiet`. Counts verdicts, and collects JSON if asked to. */
static void run_checks(struct ry_doctor *doctor, const struct options *options, int quiet,
                       unsigned *counts, json_t *list)
{
    int colour = isatty(STDOUT_FILENO) && !getenv("NO_COLOR");
    for (const struct ry_family *f = ry_doctor_families(); f->name; f++) {
        for (const struct ry_check *c = f->checks; c->id; c++) {
            struct ry_result result = {.verdict = RY_VERDICT_NA};
            if (options->only && strcmp(options->only, c->id) != 0)
                continue;
            c->run(doctor, &result);
            counts[result.verdict]++;
            if (!quiet)
                print_result(c, &result, colour);
            if (list)
                json_array_append_new(list, result_to_json(f->name, c, &result));
        }
    }
}

static int add_log(ry_facts *facts, const char *path)
{
    FILE *file = fopen(path, "r");
    if (!file)
        return ry_tool_error("doctor", "cannot open the log '%s': give a file that can be read",
                             path);
    char *data = malloc(RY_FACT_MAX);
    size_t len = data ? fread(data, 1, RY_FACT_MAX, file) : 0;
    fclose(file);
    int status = data ? ry_facts_put(facts, "facts/log", data, len) : RY_ERR_NO_MEMORY;
    free(data);
    return status == RY_OK ? TOOL_OK
                           : ry_tool_error("doctor", "cannot keep the log '%s': %s", path,
                                           ry_status_text(status));
}

static int apply_options(struct ry_doctor *doctor, const struct options *options)
{
    static const char *const handlers[] = {"auto", "gpu", "cpu", "cpu_host_memory", NULL};
    if (options->handler) {
        int known = 0;
        for (const char *const *h = handlers; *h; h++)
            known |= strcmp(*h, options->handler) == 0;
        if (!known)
            return ry_tool_error("doctor",
                                 "unknown handler '%s': use auto, gpu, cpu or cpu_host_memory",
                                 options->handler);
        snprintf(doctor->handler, sizeof doctor->handler, "%s", options->handler);
    }
    if (options->pes) {
        long long pes = ry_tool_number(options->pes);
        if (pes < 1 || pes > 1 << 20)
            return ry_tool_error("doctor", "--pes %s is no number of PEs: use 1 to 1M",
                                 options->pes);
        doctor->pes = (unsigned)pes;
    }
    if (options->tokens) {
        long long tokens = ry_tool_number(options->tokens);
        if (tokens < 1 || tokens > 1 << 24)
            return ry_tool_error("doctor", "--tokens %s is no number of tokens: use 1 to 16M",
                                 options->tokens);
        doctor->tokens = (unsigned)tokens;
    }
    return TOOL_OK;
}

static int examine(ry_facts *facts, ry_topo *topo, const struct options *options)
{
    struct ry_doctor doctor;
    unsigned counts[4] = {0};
    int quiet = options->json && strcmp(options->json, "-") == 0;
    json_t *list = options->json ? json_array() : NULL;
    ry_doctor_open(&doctor, facts, topo);
    int code = apply_options(&doctor, options);
    if (code == TOOL_OK) {
        run_checks(&doctor, options, quiet, counts, list);
        if (!quiet)
            printf("\n%u ok, %u warnings, %u failures, %u not applicable\n", counts[RY_VERDICT_OK],
                   counts[RY_VERDICT_WARN], counts[RY_VERDICT_FAIL], counts[RY_VERDICT_NA]);
    }
    ry_doctor_close(&doctor);
    if (code != TOOL_OK || !list) {
        json_decref(list);
    } else {
        code = ry_tool_write_json(
            "doctor", options->json,
            json_pack("{s:o, s:i, s:i, s:i, s:i}", "checks", list, "ok",
                      (int)counts[RY_VERDICT_OK], "warn", (int)counts[RY_VERDICT_WARN], "fail",
                      (int)counts[RY_VERDICT_FAIL], "na", (int)counts[RY_VERDICT_NA]));
    }
    return code == TOOL_OK && counts[RY_VERDICT_FAIL] ? TOOL_FAILED : code;
}

static int diagnose(const struct options *options)
{
    ry_facts *facts, *record = NULL;
    ry_topo *topo;
    int code = ry_tool_open("doctor", options->root, &facts);
    if (code != TOOL_OK)
        return code;
    if (options->capture && ry_facts_open_empty(&record) == RY_OK)
        ry_facts_record(facts, record);
    if (options->log)
        code = add_log(facts, options->log);
    else if (options->command)
        code = ry_doctor_run(options->command, facts);
    if (code == TOOL_OK)
        code = ry_tool_topo("doctor", facts, &topo);
    if (code == TOOL_OK) {
        code = examine(facts, topo, options);
        ry_topo_free(topo);
    }
    if (record && code != TOOL_BAD_INPUT) {
        int written = ry_tool_write_archive("doctor", options->capture, record);
        code = written != TOOL_OK ? written : code;
    }
    ry_facts_close(record);
    ry_facts_close(facts);
    return code;
}

int ry_command_doctor(int argc, char **argv)
{
    struct options options = {0};
    const struct ry_tool_flag flags[] = {
        {"--root", &options.root, NULL, "read this record (folder or archive), not the machine"},
        {"--json", &options.json, NULL, "write JSON to this file, - is stdout"},
        {"--capture", &options.capture, NULL, "write a record of what was read (.tar.gz)"},
        {"--explain", &options.explain, NULL, "say what this check means"},
        {"--list", NULL, &options.list, "list all checks"},
        {"--only", &options.only, NULL, "run this check alone"},
        {"--handler", &options.handler, NULL, "handler wanted: auto, gpu, cpu, cpu_host_memory"},
        {"--pes", &options.pes, NULL, "PEs of the job (64)"},
        {"--tokens", &options.tokens, NULL, "tokens a PE sends at once (128)"},
        {"--log", &options.log, NULL, "log of a run to look into"},
        {NULL, NULL, NULL, NULL},
    };
    int code;
    int at = ry_tool_flags(argc, argv, flags, usage, &code);
    if (at < 0)
        return code;
    if (at < argc && strcmp(argv[at - 1], "--") == 0)
        options.command = argv + at;
    else if (at < argc)
        return ry_tool_error("doctor", "unexpected '%s': a command stands behind --", argv[at]);
    if (options.command && options.log)
        return ry_tool_error("doctor", "--log and a command are both a log: give one");
    if (options.explain)
        return explain(options.explain);
    if (options.list) {
        list_checks();
        return TOOL_OK;
    }
    return diagnose(&options);
}
