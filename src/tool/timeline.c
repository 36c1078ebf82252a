/* SPDX-License-Identifier: Apache-2.0 */
#include "timeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "balance.h"

const char *ry_bytes_text(double bytes, char *buf, size_t cap)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    uint32_t u = 0;
    while (bytes >= 1000 && u + 1 < sizeof units / sizeof units[0]) {
        bytes /= 1000;
        u++;
    }
    snprintf(buf, cap, "%.*f %s",
             u == 0        ? 0
             : bytes < 10  ? 2
             : bytes < 100 ? 1
                           : 0,
             bytes, units[u]);
    return buf;
}

const char *ry_us_text(double us, char *buf, size_t cap)
{
    if (us < 0)
        snprintf(buf, cap, "-");
    else if (us < 1000)
        snprintf(buf, cap, "%.1f us", us);
    else if (us < 1e6)
        snprintf(buf, cap, "%.2f ms", us * 1e-3);
    else
        snprintf(buf, cap, "%.2f s", us * 1e-6);
    return buf;
}

/* All records in order of time. The caller frees. */
static const ry_fault_record **in_order(const struct ry_run *run, uint32_t *n)
{
    size_t most = 0;
    *n = 0;
    for (uint32_t i = 0; i < run->n_pes; i++)
        most += run->reports[i].n_faults;
    const ry_fault_record **list = malloc((most + 1) * sizeof *list);
    for (uint32_t i = 0; list && i < run->n_pes; i++) {
        for (uint32_t k = 0; k < run->reports[i].n_faults; k++) {
            const ry_fault_record *f = &run->reports[i].faults[k];
            uint32_t at = (*n)++;
            for (; at > 0 && list[at - 1]->at_us > f->at_us; at--)
                list[at] = list[at - 1];
            list[at] = f;
        }
    }
    return list;
}

void ry_timeline_print(const struct ry_run *run)
{
    enum { SHOWN = 12 };
    uint32_t n;
    const ry_fault_record **list = in_order(run, &n);
    if (n > 0)
        printf("\n%-12s %-10s %-12s %10s %10s %10s %9s\n", "fault", "where", "at", "seen after",
               "switch", "back after", "replayed");
    for (uint32_t i = 0; i < n && i < SHOWN; i++) {
        const ry_fault_record *f = list[i];
        char where[24], at[24], seen[24], moved[24], back[24];
        snprintf(where, sizeof where, "pe%u/rail%u", f->pe, f->rail);
        printf("%-12s %-10s %-12s %10s %10s %10s %9llu\n", f->kind, where,
               ry_us_text(f->at_us, at, sizeof at), ry_us_text(f->detect_us, seen, sizeof seen),
               ry_us_text(f->switch_us, moved, sizeof moved),
               ry_us_text(f->failback_us, back, sizeof back), (unsigned long long)f->replayed);
    }
    if (n > SHOWN)
        printf("... and %u more: --json has all\n", n - SHOWN);
    free(list);
}

json_t *ry_timeline_json(const struct ry_run *run)
{
    uint32_t n;
    json_t *array = json_array();
    const ry_fault_record **list = in_order(run, &n);
    for (uint32_t i = 0; i < n; i++) {
        const ry_fault_record *f = list[i];
        json_array_append_new(
            array, json_pack("{s:s, s:i, s:i, s:f, s:f, s:f, s:f, s:I}", "kind", f->kind, "pe",
                             (int)f->pe, "rail", (int)f->rail, "at_us", f->at_us, "detect_us",
                             f->detect_us, "switch_us", f->switch_us, "failback_us", f->failback_us,
                             "replayed", (json_int_t)f->replayed));
    }
    free(list);
    return array;
}

json_t *ry_rails_json(const struct ry_run *run)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < run->n_pes; i++) {
        const struct ry_report *r = &run->reports[i];
        for (uint32_t k = 0; k < r->n_rails; k++)
            json_array_append_new(array, json_pack("{s:i, s:s, s:I}", "pe", (int)i, "name",
                                                   r->rails[k].name, "bytes",
                                                   (json_int_t)r->rails[k].bytes));
    }
    return array;
}

void ry_rails_print(const struct ry_run *run)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < run->n_pes; i++)
        most = run->reports[i].n_rails > most ? run->reports[i].n_rails : most;
    if (most == 0)
        return;
    printf("\n%-6s", "sent");
    for (uint32_t k = 0; k < most; k++) {
        char name[16];
        snprintf(name, sizeof name, "rail%u", k);
        printf(" %20s", name);
    }
    printf("   least/greatest\n");
    for (uint32_t i = 0; i < run->n_pes; i++) {
        const struct ry_report *r = &run->reports[i];
        uint64_t greatest = 0, least = UINT64_MAX;
        char pe[16];
        snprintf(pe, sizeof pe, "pe%u", i);
        printf("%-6s", pe);
        if (ry_run_lost_pe(run, i)) {
            puts("                 lost");
            continue;
        }
        for (uint32_t k = 0; k < most; k++) {
            char bytes[24], cell[96] = "-";
            if (k < r->n_rails) {
                snprintf(cell, sizeof cell, "%.24s %s", r->rails[k].name,
                         ry_bytes_text((double)r->rails[k].bytes, bytes, sizeof bytes));
                greatest = r->rails[k].bytes > greatest ? r->rails[k].bytes : greatest;
                least = r->rails[k].bytes < least ? r->rails[k].bytes : least;
            }
            printf(" %20s", cell);
        }
        if (greatest > 0 && r->n_rails > 1)
            printf("   %.1f %%", 100.0 * (double)least / (double)greatest);
        putchar('\n');
    }
    struct ry_balance balance;
    ry_balance_run(&balance, run);
    ry_balance_print(&balance);
}

int ry_run_write(const struct ry_run *run, json_t *json, const char *title)
{
    const struct ry_tool_job *job = run->job;
    int code = TOOL_OK;
    if (job->json)
        code = ry_tool_write_json(job->command, job->json, json);
    else
        json_decref(json);
    if (!job->svg || code != TOOL_OK)
        return code;
    char *svg = ry_timeline_svg(run, title);
    if (!svg)
        return ry_tool_error(job->command, "cannot draw: no memory");
    code = ry_tool_write_text(job->command, job->svg, svg);
    free(svg);
    return code;
}
