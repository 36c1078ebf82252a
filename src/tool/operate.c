/* SPDX-License-Identifier: Apache-2.0 */
/* railyard fault, drain and undrain: an operator's hand on a running job. */
#include <inttypes.h>
#include <railyard/fault.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attached.h"
#include "commands.h"

static const char fault_usage[] =
    "usage: railyard fault [FLAG...] SPEC\n\n"
    "Lets something go wrong in a running job; times count from now. Several events are parted by\n"
    "semicolons:\n"
    "  KIND@WHEN:TARGET[:KEY=VALUE,...]\n"
    "  WHEN    200ms, op5000 (posted by the target PE) or iter10\n"
    "  TARGET  pe0/rail1, pe0, rail1 (of all PEs) or pe0-pe1/rail0 (what pe0 sends to pe1)\n"
    "  KIND    port-down for=        flap count= period=   nic-down for=\n"
    "          stall for=            drop p= for=          ack-drop p= for=\n"
    "          delay us= jitter=     ghost us=             slow factor=\n"
    "          cqe-error syndrome= vendor=                 qp-error, gid-change\n"
    "          kill return=\n"
    "Example: railyard fault 'port-down@0:pe0/rail1:for=300ms'";

static const char drain_usage[] =
    "usage: railyard drain [FLAG...] peN/railM | railM\n\n"
    "Moves traffic away from a port before its cable is pulled; nothing is replayed. railM drains\n"
    "that rail of every PE. railyard undrain lets it return.";

static const char undrain_usage[] = "usage: railyard undrain [FLAG...] peN/railM | railM\n\n"
                                    "Lets traffic return to a port that was drained.";

/* Flags, then exactly one word. */
static int read_words(int argc, char **argv, const char *usage, const char *what, const char **job,
                      const char **word)
{
    const struct ry_tool_flag flags[] = {
        {"--job", job, NULL, "ID: as the job prints it at its start (the only one)"},
        {NULL, NULL, NULL, NULL},
    };
    int code;
    int at = ry_tool_flags(argc, argv, flags, usage, &code);
    if (at < 0)
        return code == TOOL_OK ? -1 : code;
    if (at == argc)
        return ry_tool_error(argv[0], "nothing is named: give %s", what);
    *word = argv[at];
    char *kept = argv[at];
    argv[at] = argv[0];
    int more = ry_tool_flags(argc - at, argv + at, flags, usage, &code);
    argv[at] = kept;
    if (more < 0)
        return code == TOOL_OK ? -1 : code;
    if (at + more < argc)
        return ry_tool_error(argv[0], "unexpected '%s': one %s at a time", argv[at + more], what);
    return TOOL_OK;
}

int ry_command_fault(int argc, char **argv)
{
    const char *text = NULL, *spec = NULL;
    ry_attach_job job;
    int code = read_words(argc, argv, fault_usage, "SPEC, see railyard fault --help", &text, &spec);
    if (code != TOOL_OK)
        return code < 0 ? TOOL_OK : code;
    if (ry_fault_check(spec, UINT32_MAX, UINT32_MAX) != RY_OK)
        return ry_tool_error("fault", "%s", ry_last_error());
    if (strlen(spec) + 8 > RY_ATTACH_REQUEST_MAX || strchr(spec, '\n'))
        return ry_tool_error("fault",
                             "the plan has more than %d bytes or several lines: send it in "
                             "parts",
                             RY_ATTACH_REQUEST_MAX - 8);
    code = attached_find("fault", text, &job);
    if (code != TOOL_OK)
        return code;
    char *request = malloc(strlen(spec) + 8);
    if (!request)
        code = ry_tool_error("fault", "no memory: free some");
    else
        sprintf(request, "fault %s", spec);
    for (uint32_t i = 0; code == TOOL_OK && i < job.n_pes; i++) {
        char *answer = NULL;
        code = attached_ask("fault", &job, job.pes[i], request, &answer);
        free(answer);
    }
    if (code == TOOL_OK)
        printf("job %016" PRIx64 ": planned\n", job.job);
    free(request);
    free(job.pes);
    return code;
}

/* "pe0/rail1" or "rail1". */
static bool read_port(const char *word, int64_t *pe, uint32_t *rail)
{
    char end;
    unsigned p;
    *pe = -1;
    if (sscanf(word, "rail%u%c", rail, &end) == 1)
        return true;
    if (sscanf(word, "pe%u/rail%u%c", &p, rail, &end) != 2)
        return false;
    *pe = p;
    return true;
}

static int drain(int argc, char **argv, const char *usage)
{
    const char *text = NULL, *word = NULL, *command = argv[0];
    ry_attach_job job;
    int64_t pe;
    uint32_t rail, asked = 0;
    char request[64];
    int code = read_words(argc, argv, usage, "peN/railM", &text, &word);
    if (code != TOOL_OK)
        return code < 0 ? TOOL_OK : code;
    if (!read_port(word, &pe, &rail))
        return ry_tool_error(command, "'%s' is no port: write pe0/rail1, or rail1 for all PEs",
                             word);
    code = attached_find(command, text, &job);
    if (code != TOOL_OK)
        return code;
    snprintf(request, sizeof request, "%s rail%u", command, rail);
    for (uint32_t i = 0; code == TOOL_OK && i < job.n_pes; i++) {
        char *answer = NULL;
        if (pe >= 0 && job.pes[i] != (uint32_t)pe)
            continue;
        asked++;
        code = attached_ask(command, &job, job.pes[i], request, &answer);
        free(answer);
    }
    if (code == TOOL_OK && asked == 0)
        code = ry_tool_error(command, "pe%lld is not on this machine: the job has %u PEs here",
                             (long long)pe, job.n_pes);
    else if (code == TOOL_OK)
        printf("job %016" PRIx64 ": %s %s; railyard status shows which paths are in use\n",
               job.job, command, word);
    free(job.pes);
    return code;
}

int ry_command_drain(int argc, char **argv) { return drain(argc, argv, drain_usage); }
int ry_command_undrain(int argc, char **argv) { return drain(argc, argv, undrain_usage); }
