/* SPDX-License-Identifier: Apache-2.0 */
/* railyard info: version and settings in effect; --config prints a configuration file, --settings
 * the tables of the manual. */
#include <inttypes.h>
#include <railyard/config.h>
#include <railyard/context.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "info_devices.h"
#include "job.h"
#include "record.h"
#include "timeline.h"

static const char usage[] = "usage: railyard info [FLAG...]\n\n"
                            "shows the version and every setting that is not at its default";

static void warn(const char *warnings)
{
    while (*warnings) {
        size_t len = strcspn(warnings, "\n");

        fprintf(stderr, "railyard info: %.*s\n", (int)len, warnings);
        warnings += len + (warnings[len] == '\n');
    }
}

static int print_config(void)
{
    char *text = NULL, *warnings = NULL;

    if (ry_config_text(NULL, 0, &text, &warnings) < 0)
        return ry_tool_error("info", "%s", ry_last_error());
    warn(warnings);
    fputs(text, stdout);
    free(text);
    free(warnings);
    return TOOL_OK;
}

/* Text of a cell: no markup of ours is in the table, but | and < would be taken for some. */
static void cell_md(const char *text)
{
    for (; *text; text++) {
        if (*text == '|' || *text == '<')
            putchar('\\');
        putchar(*text);
    }
}

static void print_markdown(const ry_setting_info *list, uint32_t n)
{
    puts(
        "# Settings\n\n"
        "Made by `railyard info --settings md`; do not edit.\n\n"
        "A setting is a variable of the environment, or a line `NAME = VALUE` of the "
        "configuration\n"
        "file (there `RAILYARD_` may be left out). The caller of the library goes before the\n"
        "environment, the environment before another library's name, that before the file. Sizes:\n"
        "K, M, G = 1024. Rates: 1e9 bytes a second is 1GB/s. *Job-wide* settings must be the same\n"
        "on all PEs, and are compared when the job starts.");
    for (uint32_t i = 0; i < n; i++) {
        const ry_setting_info *s = &list[i];

        if (s->group)
            printf("\n## %s\n\n| setting | values | default | meaning |\n|---|---|---|---|\n",
                   s->group);
        printf("| `RAILYARD_%s` | ", s->name);
        cell_md(s->form);
        printf(" | %s | ", s->initial);
        cell_md(s->help);
        if (s->job_wide)
            printf(". *Job-wide*");
        if (s->alias)
            printf(". `%s` is accepted too", s->alias);
        puts(" |");
    }
}

/* roff: a hyphen that is meant to be typed is \-. */
static void roff(const char *text)
{
    for (; *text; text++) {
        if (*text == '-')
            putchar('\\');
        if (*text == '\\')
            fputs("\\e", stdout);
        else
            putchar(*text);
    }
}

static void print_man(const ry_setting_info *list, uint32_t n)
{
    puts(".\\\" Made by railyard info --settings man; do not edit.\n"
         ".TH RAILYARD.CONF 5 \"2026-11-29\" \"railyard\" \"railyard manual\"\n"
         ".SH NAME\nrailyard.conf \\- settings of railyard\n"
         ".SH DESCRIPTION\n"
         "A setting is a variable of the environment, or a line\n.B NAME = VALUE\n"
         "of the configuration file\n.I ~/.config/railyard.conf\n"
         "(or what\n.B RAILYARD_CONFIG\nnames), where\n.B RAILYARD_\nmay be left out and lines "
         "that\n"
         "begin with # have no effect. The caller of the library goes before the environment, the\n"
         "environment before another library's name, that before the file.\n"
         "Sizes take K, M and G, powers of 1024; rates are decimal (100MB/s, 400Gb/s); times need "
         "a\n"
         "unit (50ms).");
    for (uint32_t i = 0; i < n; i++) {
        const ry_setting_info *s = &list[i];

        if (s->group) {
            printf(".SS ");
            roff(s->group);
            putchar('\n');
        }
        printf(".TP\n.B RAILYARD_%s\n", s->name);
        roff(s->help);
        printf(".\nValues: ");
        roff(s->form);
        printf("; default: ");
        roff(s->initial[0] ? s->initial : "empty");
        puts(".");
        if (s->job_wide)
            puts("Must be the same on all PEs.");
        if (s->alias)
            printf(".B %s\nis accepted too.\n", s->alias);
    }
    puts(".SH SEE ALSO\n.BR railyard (1)");
}

static int print_settings(const char *form)
{
    ry_setting_info *list = NULL;
    uint32_t n = 0;

    if (strcmp(form, "md") != 0 && strcmp(form, "man") != 0)
        return ry_tool_error("info", "--settings: '%s' is neither md nor man", form);
    if (ry_config_list(NULL, 0, &list, &n) < 0)
        return ry_tool_error("info", "%s", ry_last_error());
    if (strcmp(form, "md") == 0)
        print_markdown(list, n);
    else
        print_man(list, n);
    free(list);
    return TOOL_OK;
}

static json_t *settings_json(const ry_setting_info *list, uint32_t n)
{
    json_t *all = json_object();

    for (uint32_t i = 0; all && i < n; i++) {
        if (!list[i].launch)
            json_object_set_new(all, list[i].name,
                                json_pack("{s:s, s:s, s:s}", "value", list[i].value, "source",
                                          list[i].source, "default", list[i].initial));
    }
    return all;
}

static int print_info(const char *json)
{
    ry_setting_info *list = NULL;
    uint32_t n = 0, changed = 0;

    if (ry_config_list(NULL, 0, &list, &n) < 0)
        return ry_tool_error("info", "%s", ry_last_error());
    int code = TOOL_OK;

    if (json) {
        json_t *j =
            json_pack("{s:s, s:s, s:o}", "version", ry_version(), "build", ry_build(), "settings",
                      settings_json(list, n));

        code = ry_tool_write_json("info", json, j);
    }
    if (!json || strcmp(json, "-") != 0) {
        printf("railyard %s, built with %s\n", ry_version(), ry_build());
        for (uint32_t i = 0; i < n; i++) {
            if (list[i].launch || strcmp(list[i].source, "default") == 0)
                continue;
            printf("  %-24s %-20s from %s\n", list[i].name, list[i].value, list[i].source);
            changed++;
        }
        if (changed == 0)
            puts("  all settings are at their defaults: railyard info --config shows them");
    }
    free(list);
    return code;
}

static int print_plan(const char *pes, const char *json)
{
    uint64_t n;
    ry_job_size z;
    char rings[24], state[24], heap[24];

    if (ry_tool_count("info", "--plan", pes, 1, 1 << 20, &n) != TOOL_OK)
        return TOOL_BAD_INPUT;
    if (ry_ctx_size(NULL, 0, (uint32_t)n, &z) != RY_OK)
        return ry_tool_error("info", "%s", ry_last_error());
    if (!json || strcmp(json, "-") != 0) {
        printf("each of %" PRIu64 " PEs, all others on other nodes:\n", n);
        printf("  %u rails, %u channels to each of %u peers, %u %s each\n", z.rails, z.channels,
               z.peers, z.paths, z.paths == 1 ? "path" : "paths");
        printf("  %" PRIu64 " queue pairs, %" PRIu64 " connections\n", z.queue_pairs,
               z.connections);
        printf("  %s of send rings, %s of channels, %s of heap\n",
               ry_bytes_text((double)z.ring_bytes, rings, sizeof(rings)),
               ry_bytes_text((double)z.state_bytes, state, sizeof(state)),
               ry_bytes_text((double)z.heap_bytes, heap, sizeof(heap)));
    }
    if (!json)
        return TOOL_OK;
    return ry_tool_write_json(
        "info", json,
        json_pack("{s:I, s:i, s:i, s:i, s:I, s:I, s:I, s:I, s:I}", "pes", (json_int_t)n, "rails",
                  (int)z.rails, "channels", (int)z.channels, "paths", (int)z.paths, "queue_pairs",
                  (json_int_t)z.queue_pairs, "connections", (json_int_t)z.connections, "ring_bytes",
                  (json_int_t)z.ring_bytes, "state_bytes", (json_int_t)z.state_bytes, "heap_bytes",
                  (json_int_t)z.heap_bytes));
}

int ry_command_info(int argc, char **argv)
{
    int config = 0, devices = 0, code = TOOL_OK;
    const char *json = NULL, *settings = NULL, *plan = NULL;
    const struct ry_tool_flag flags[] = {
        {"--config", NULL, &config, "print the settings in effect as a configuration file"},
        {"--devices", NULL, &devices, "show the ports of this machine's RDMA devices"},
        {"-d", NULL, &devices, "the same"},
        {"--plan", &plan, NULL, "PES: what each PE takes in a job of this size"},
        {"--settings", &settings, NULL, "print the manual's table of settings, as md or man"},
        {"--json", &json, NULL, "write JSON to this file, - for stdout"},
        {NULL, NULL, NULL, NULL},
    };
    int at = ry_tool_flags(argc, argv, flags, usage, &code);

    if (at < 0)
        return code;
    if (at < argc)
        return ry_tool_error("info", "'%s' is not expected: type railyard info --help", argv[at]);
    if (config + devices + (settings != NULL) + (plan != NULL) > 1)
        return ry_tool_error("info",
                             "--config, --devices, --settings and --plan are each a page of "
                             "its own: give one");
    if (config)
        return print_config();
    if (devices)
        return ry_print_devices(json);
    if (plan)
        return print_plan(plan, json);
    return settings ? print_settings(settings) : print_info(json);
}
