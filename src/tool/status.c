/* SPDX-License-Identifier: Apache-2.0 */
/* railyard status: rails and paths of a running job. */
#include <inttypes.h>
#include <railyard/config.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "attached.h"
#include "balance.h"
#include "commands.h"
#include "metrics.h"
#include "timeline.h"

static const char usage[] =
    "usage: railyard status [FLAG...]\n\n"
    "Shows every rail and every path of a running job: state, use, epoch, moves, messages\n"
    "replayed, duration of the last switch.";

static void print_rails(const struct attached_job *job)
{
    printf("%-5s %-6s %-16s %-8s %12s %12s %12s\n", "pe", "rail", "name", "state", "rate", "sent",
           "received");
    for (uint32_t i = 0; i < job->n_pes; i++) {
        for (uint32_t k = 0; k < job->pes[i].n_rails; k++) {
            const struct attached_rail *r = &job->pes[i].rails[k];
            char rate[32] = "-", sent[32], received[32];
            if (r->rate_bps)
                ry_format_rate(r->rate_bps, rate, sizeof rate);
            printf("%-5u %-6u %-16s %-8s %12s %12s %12s\n", job->pes[i].pe, r->rail, r->name,
                   r->state, rate, ry_bytes_text((double)r->tx_bytes, sent, sizeof sent),
                   ry_bytes_text((double)r->rx_bytes, received, sizeof received));
        }
    }
}

/* One pair's lines stand together: so many from `at` on. */
static uint32_t pair_lines(const struct attached_pe *pe, uint32_t at)
{
    uint32_t n = 1;
    while (at + n < pe->n_sent && pe->sent[at + n].peer == pe->sent[at].peer)
        n++;
    return n;
}

static void print_balance(const struct attached_job *job)
{
    struct ry_balance balance = {0};
    for (uint32_t i = 0; i < job->n_pes; i++) {
        const struct attached_pe *pe = &job->pes[i];
        for (uint32_t at = 0, n; at < pe->n_sent; at += n) {
            uint64_t bytes[REPORT_RAILS];
            double share[REPORT_RAILS];
            n = pair_lines(pe, at);
            for (uint32_t k = 0; k < n && k < REPORT_RAILS; k++) {
                bytes[k] = pe->sent[at + k].bytes;
                share[k] = pe->sent[at + k].share;
            }
            ry_balance_add(&balance, pe->pe, pe->sent[at].peer, bytes, share,
                           n < REPORT_RAILS ? n : REPORT_RAILS);
        }
    }
    ry_balance_print(&balance);
}

static void print_paths(const struct attached_job *job)
{
    printf("\n%-5s %-5s %-8s %-14s %-12s %-8s %-7s %6s %6s %9s %12s %9s\n", "pe", "to", "channel",
           "rails", "state", "use", "role", "epoch", "moves", "replayed", "last switch", "for s");
    for (uint32_t i = 0; i < job->n_pes; i++) {
        for (uint32_t k = 0; k < job->pes[i].n_paths; k++) {
            const struct attached_path *p = &job->pes[i].paths[k];
            char rails[32], moved[32];
            snprintf(rails, sizeof rails, "%u -> %u", p->rail, p->peer_rail);
            printf("%-5u %-5u %-8u %-14s %-12s %-8s %-7s %6" PRIu64 " %6" PRIu64 " %9" PRIu64
                   " %12s %9.1f\n",
                   job->pes[i].pe, p->peer, p->channel, rails, p->health, p->use, p->role, p->epoch,
                   p->moves, p->replayed, ry_us_text(p->last_switch_us, moved, sizeof moved),
                   p->since_s);
        }
    }
}

static json_t *pe_json(const struct attached_pe *pe)
{
    json_t *rails = json_array(), *sent = json_array(), *paths = json_array();
    for (uint32_t k = 0; k < pe->n_rails; k++) {
        const struct attached_rail *r = &pe->rails[k];
        json_array_append_new(
            rails,
            json_pack("{s:i, s:s, s:i, s:s, s:I, s:I, s:I}", "rail", (int)r->rail, "name", r->name,
                      "nic", (int)r->nic, "state", r->state, "rate_bps", (json_int_t)r->rate_bps,
                      "tx_bytes", (json_int_t)r->tx_bytes, "rx_bytes", (json_int_t)r->rx_bytes));
    }
    for (uint32_t at = 0, n; at < pe->n_sent; at += n) {
        json_t *bytes = json_array();
        n = pair_lines(pe, at);
        for (uint32_t k = 0; k < n; k++)
            json_array_append_new(bytes, json_integer((json_int_t)pe->sent[at + k].bytes));
        json_array_append_new(
            sent, json_pack("{s:i, s:o}", "peer", (int)pe->sent[at].peer, "bytes", bytes));
    }
    for (uint32_t k = 0; k < pe->n_paths; k++) {
        const struct attached_path *p = &pe->paths[k];
        json_array_append_new(
            paths,
            json_pack("{s:i, s:i, s:i, s:i, s:i, s:s, s:s, s:s, s:I, s:I, s:I, s:f, s:f}", "peer",
                      (int)p->peer, "channel", (int)p->channel, "slot", (int)p->slot, "rail",
                      (int)p->rail, "peer_rail", (int)p->peer_rail, "state", p->health, "use",
                      p->use, "role", p->role, "epoch", (json_int_t)p->epoch, "moves",
                      (json_int_t)p->moves, "replayed", (json_int_t)p->replayed, "last_switch_us",
                      p->last_switch_us, "since_s", p->since_s));
    }
    return json_pack("{s:i, s:i, s:o, s:o, s:o}", "pe", (int)pe->pe, "node", (int)pe->node, "rails",
                     rails, "sent", sent, "paths", paths);
}

static json_t *job_json(const struct attached_job *job)
{
    char id[32];
    json_t *pes = json_array();
    snprintf(id, sizeof id, "%016" PRIx64, job->id);
    for (uint32_t i = 0; i < job->n_pes; i++)
        json_array_append_new(pes, pe_json(&job->pes[i]));
    return json_pack("{s:s, s:o}", "job", id, "pes", pes);
}

static int show(const ry_attach_job *found, const char *json, int metrics)
{
    struct attached_job job;
    int code = attached_read("status", found, &job);
    if (job.n_pes > 0 && metrics) {
        metrics_print(&job, stdout);
    } else if (job.n_pes > 0 && !(json && strcmp(json, "-") == 0)) {
        printf("job %016" PRIx64 ": %u of %u PEs on this machine\n\n", job.id, job.n_pes,
               job.pes[0].pes);
        print_rails(&job);
        print_balance(&job);
        print_paths(&job);
    }
    if (job.n_pes > 0 && json) {
        int wrote = ry_tool_write_json("status", json, job_json(&job));
        code = code == TOOL_OK ? wrote : code;
    }
    attached_free(&job);
    return code;
}

int ry_command_status(int argc, char **argv)
{
    const char *text = NULL, *json = NULL, *every = NULL;
    int metrics = 0, code;
    uint64_t every_ns = 0;
    const struct ry_tool_flag flags[] = {
        {"--job", &text, NULL, "ID: as the job prints it at its start (the only one)"},
        {"--json", &json, NULL, "FILE: write JSON there, - is stdout"},
        {"--metrics", NULL, &metrics, "print OpenMetrics"},
        {"--every", &every, NULL, "TIME: show it again and again until the job ends"},
        {NULL, NULL, NULL, NULL},
    };
    int at = ry_tool_flags(argc, argv, flags, usage, &code);
    if (at < 0)
        return code;
    if (at < argc)
        return ry_tool_error("status", "unexpected '%s': status takes flags only", argv[at]);
    if (metrics && json)
        return ry_tool_error("status", "--metrics and --json are two forms of the same: give one");
    if (every && (ry_parse_time(every, &every_ns) != RY_OK || every_ns < 10000000))
        return ry_tool_error("status", "--every '%s' is no time of 10ms or more: write 1s", every);
    ry_attach_job job;
    code = attached_find("status", text, &job);
    if (code != TOOL_OK)
        return code;
    code = show(&job, json, metrics);
    while (code == TOOL_OK && every_ns) {
        struct timespec t = {.tv_sec = (time_t)(every_ns / 1000000000u),
                             .tv_nsec = (long)(every_ns % 1000000000u)};
        nanosleep(&t, NULL);
        ry_attach_job *list;
        uint32_t n, alive = 0;
        if (ry_attach_jobs(&list, &n) != RY_OK)
            break;
        for (uint32_t i = 0; i < n; i++)
            alive += list[i].job == job.job && list[i].n_pes == job.n_pes;
        ry_attach_jobs_free(list, n);
        if (alive == 0)
            break;
        putchar('\n');
        code = show(&job, json, metrics);
    }
    free(job.pes);
    return code;
}
