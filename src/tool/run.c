/* SPDX-License-Identifier: Apache-2.0 */
/* railyard run: starts a program as the PEs of a job on this machine. */
#include <railyard/config.h>
#include <railyard/launch.h>

#include <stdio.h>
#include <stdlib.h>

#include "commands.h"
#include "record.h"

static const char usage[] = "usage: railyard run -n PES [FLAG...] [--] PROGRAM [ARGUMENT...]\n\n"
                            "starts PES processes that form one job; ends with the exit code of\n"
                            "the first that fails";

static int number(const char *flag, const char *text, uint32_t min, uint32_t max, uint32_t *out)
{
    char *end = NULL;
    unsigned long v = strtoul(text, &end, 10);

    if (*text < '0' || *text > '9' || *end || v < min || v > max)
        return ry_tool_error("run", "%s: '%s' is no number from %u to %u", flag, text, min, max);
    *out = (uint32_t)v;
    return TOOL_OK;
}

int ry_command_run(int argc, char **argv)
{
    ry_launch_cfg cfg = {0};
    ry_launch_result result;
    const char *pes = NULL, *nodes = "1", *restarts = "0", *delay = "0", *patience = "60s";
    const struct ry_tool_flag flags[] = {
        {"-n", &pes, NULL, "number of processes"},
        {"--pes", &pes, NULL, "the same"},
        {"--nodes", &nodes, NULL, "logical nodes that they are split into (1)"},
        {"--keep-going", NULL, &cfg.keep_going, "the others go on when one dies after the start"},
        {"--restarts", &restarts, NULL, "replacements in all for PEs that die after the start (0)"},
        {"--restart-delay", &delay, NULL, "time before a replacement starts (0)"},
        {"--start-timeout", &patience, NULL, "time from the first PE that joins to the last (60s)"},
        {"--quiet", NULL, &cfg.quiet, "no line with the job's id"},
        {NULL, NULL, NULL, NULL},
    };
    int code = TOOL_OK;
    int at = ry_tool_flags(argc, argv, flags, usage, &code);

    if (at < 0)
        return code;
    if (!pes || at >= argc)
        code = ry_tool_error("run", "%s is given: write railyard run -n 4 ./app",
                             pes ? "no program" : "no number of processes");
    if (code == TOOL_OK)
        code = number("-n", pes, 1, 4096, &cfg.n_pes);
    if (code == TOOL_OK)
        code = number("--nodes", nodes, 1, cfg.n_pes, &cfg.n_nodes);
    if (code == TOOL_OK)
        code = number("--restarts", restarts, 0, 1000000, &cfg.restarts);
    if (code == TOOL_OK && (ry_parse_time(delay, &cfg.restart_delay_ns) < 0 ||
                            ry_parse_time(patience, &cfg.start_timeout_ns) < 0))
        code = ry_tool_error("run", "%s", ry_last_error());
    if (code == TOOL_OK) {
        cfg.argv = argv + at;
        if (ry_launch(&cfg, &result) < 0) {
            code = ry_tool_error("run", "%s", ry_last_error());
        } else {
            code = result.exit_code;
            ry_launch_result_free(&result);
        }
    }
    return code;
}
