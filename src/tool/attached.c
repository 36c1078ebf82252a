/* SPDX-License-Identifier: Apache-2.0 */
#include "attached.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINES_MAX = 1 << 20 };
#define ASK_NS 3000000000u

int attached_find(const char *command, const char *text, ry_attach_job *job)
{
    ry_attach_job *list;
    uint32_t n;
    uint64_t id;
    if (ry_attach_find(text, &id) != RY_OK || ry_attach_jobs(&list, &n) != RY_OK)
        return ry_tool_error(command, "%s", ry_last_error());
    for (uint32_t i = 0; i < n; i++) {
        if (list[i].job != id || list[i].n_pes == 0)
            continue;
        *job = list[i];
        list[i].pes = NULL; /* moved */
        ry_attach_jobs_free(list, n);
        return TOOL_OK;
    }
    ry_attach_jobs_free(list, n);
    return ry_tool_error(command, "the job has just ended: nothing to ask");
}

int attached_ask(const char *command, const ry_attach_job *job, uint32_t pe, const char *request,
                 char **answer)
{
    int rc = ry_attach_request(job->job, pe, request, ASK_NS, answer);
    if (rc == RY_OK)
        return TOOL_OK;
    ry_tool_error(command, "%s", ry_last_error());
    return rc == RY_ERR_TIMEOUT || rc == RY_ERR_NOT_FOUND ? TOOL_UNREACHABLE : TOOL_BAD_INPUT;
}

static bool parse_rail(const char *line, struct attached_rail *r)
{
    unsigned long long rate, tx, rx;
    if (sscanf(line, "rail %u %63s nic %u %15s %llu %llu %llu", &r->rail, r->name, &r->nic,
               r->state, &rate, &tx, &rx) != 7)
        return false;
    r->rate_bps = rate;
    r->tx_bytes = tx;
    r->rx_bytes = rx;
    return true;
}

static bool parse_path(const char *line, struct attached_path *p)
{
    unsigned long long epoch, moves, replayed;
    if (sscanf(line, "path %u %u %u %u %u %15s %15s %15s %llu %llu %llu %lf %lf", &p->peer,
               &p->channel, &p->slot, &p->rail, &p->peer_rail, p->health, p->use, p->role, &epoch,
               &moves, &replayed, &p->last_switch_us, &p->since_s) != 13)
        return false;
    p->epoch = epoch;
    p->moves = moves;
    p->replayed = replayed;
    return true;
}

static bool parse_sent(const char *line, struct attached_sent *s)
{
    unsigned long long bytes;
    if (sscanf(line, "sent %u %u %llu %lf", &s->peer, &s->rail, &bytes, &s->share) != 4)
        return false;
    s->bytes = bytes;
    return true;
}

static void free_pe(struct attached_pe *pe)
{
    free(pe->rails);
    free(pe->sent);
    free(pe->paths);
}

bool attached_parse(const char *text, struct attached_pe *out)
{
    size_t lines = 1;
    *out = (struct attached_pe){0};
    for (const char *c = text; *c; c++)
        lines += *c == '\n';
    if (lines > LINES_MAX || sscanf(text, "pe %u of %u node %u of %u", &out->pe, &out->pes,
                                    &out->node, &out->nodes) != 4)
        return false;
    out->rails = calloc(lines, sizeof *out->rails);
    out->sent = calloc(lines, sizeof *out->sent);
    out->paths = calloc(lines, sizeof *out->paths);
    bool good = out->rails && out->sent && out->paths;
    for (const char *line = strchr(text, '\n'); good && line && line[1];
         line = strchr(line + 1, '\n')) {
        if (strncmp(line + 1, "rail ", 5) == 0)
            good = parse_rail(line + 1, &out->rails[out->n_rails++]);
        else if (strncmp(line + 1, "sent ", 5) == 0)
            good = parse_sent(line + 1, &out->sent[out->n_sent++]);
        else if (strncmp(line + 1, "path ", 5) == 0)
            good = parse_path(line + 1, &out->paths[out->n_paths++]);
    }
    if (!good) {
        free_pe(out);
        *out = (struct attached_pe){0};
    }
    return good;
}

int attached_read(const char *command, const ry_attach_job *job, struct attached_job *out)
{
    int code = TOOL_OK;
    *out = (struct attached_job){.id = job->job};
    out->pes = calloc(job->n_pes, sizeof *out->pes);
    if (!out->pes)
        return ry_tool_error(command, "no memory for %u PEs: free some", job->n_pes);
    for (uint32_t i = 0; i < job->n_pes; i++) {
        char *answer = NULL;
        int rc = attached_ask(command, job, job->pes[i], "status", &answer);
        if (rc == TOOL_OK && !attached_parse(answer, &out->pes[out->n_pes]))
            rc = ry_tool_error(
                command, "pe%u answered what is no status: is it another version of railyard?",
                job->pes[i]);
        else if (rc == TOOL_OK)
            out->n_pes++;
        code = code == TOOL_OK ? rc : code;
        free(answer);
    }
    return code;
}

void attached_free(struct attached_job *job)
{
    for (uint32_t i = 0; i < job->n_pes; i++)
        free_pe(&job->pes[i]);
    free(job->pes);
    *job = (struct attached_job){0};
}
