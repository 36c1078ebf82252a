/* SPDX-License-Identifier: Apache-2.0 */
/* What a campaign did. Nothing here depends on the machine: no address, no clock. */
#include <inttypes.h>
#include <string.h>

#include "sim/campaign.h"
#include "sim/mark.h"

void ry_sim_totals_add(struct ry_sim_totals *t, const struct ry_sim_world *w)
{
    t->runs++;
    t->with_ep += w->ep_rounds > 0;
    t->ops += w->ops;
    t->events += w->events;
    t->steps += w->steps;
    t->moves += w->moves;
    t->planned += w->moves_planned;
    t->failed += w->moves - w->moves_planned;
    t->replayed += w->replayed;
    t->violations += w->failed;
    for (uint32_t i = 0; i < w->plan.n_faults; i++)
        t->faults[w->plan.fault[i].f.kind] += w->plan.fault[i].done;
}

void ry_sim_totals_print(const struct ry_sim_totals *t)
{
    const struct ry_sim_mark_count *marks;
    uint32_t n = ry_sim_marks(&marks);

    printf("runs        %" PRIu64 ", %" PRIu64 " with dispatch and combine\n", t->runs, t->with_ep);
    printf("operations  %" PRIu64 "\n", t->ops);
    printf("events      %" PRIu64 "\n", t->events);
    printf("switches    %" PRIu64 "\n", t->steps);
    printf("moves       %" PRIu64 " planned, %" PRIu64 " after a failure\n", t->planned, t->failed);
    printf("replayed    %" PRIu64 " messages\n", t->replayed);
    printf("faults\n");
    for (int i = 0; i <= RY_FAULT_CLEAR; i++)
        if (t->faults[i])
            printf("  %-24s %10" PRIu64 "\n", ry_sim_fault_name((enum ry_nic_fault_kind)i),
                   t->faults[i]);
    printf("rare branches\n");
    for (uint32_t i = 0; i < n; i++)
        printf("  %-24s %10" PRIu64 "\n", marks[i].name, marks[i].met);
    printf("violations  %" PRIu64 "\n", t->violations);
}

bool ry_sim_totals_json(const struct ry_sim_totals *t, uint64_t seed, enum ry_sim_family family,
                        const char *path)
{
    const struct ry_sim_mark_count *marks;
    uint32_t n = ry_sim_marks(&marks);
    bool to_stdout = !strcmp(path, "-"), first = true;
    FILE *f = to_stdout ? stdout : fopen(path, "w");

    if (!f)
        return false;
    fprintf(f,
            "{\"seed\": %" PRIu64 ", \"swarm\": %s, \"lossy\": %s, \"runs\": %" PRIu64
            ", \"ep_runs\": %" PRIu64 ", \"operations\": %" PRIu64 ", \"events\": %" PRIu64
            ", \"switches\": %" PRIu64 ", \"moves_planned\": %" PRIu64
            ", \"moves_failed\": %" PRIu64 ", \"replayed\": %" PRIu64 ", \"violations\": %" PRIu64
            ", \"faults\": {",
            seed, family == RY_SIM_SWARM ? "true" : "false",
            family == RY_SIM_LOSSY ? "true" : "false", t->runs, t->with_ep, t->ops, t->events,
            t->steps, t->planned, t->failed, t->replayed, t->violations);
    for (int i = 0; i <= RY_FAULT_CLEAR; i++) {
        if (t->faults[i]) {
            fprintf(f, "%s\"%s\": %" PRIu64, first ? "" : ", ",
                    ry_sim_fault_name((enum ry_nic_fault_kind)i), t->faults[i]);
            first = false;
        }
    }
    fprintf(f, "}, \"rare\": {");
    for (uint32_t i = 0; i < n; i++)
        fprintf(f, "%s\"%s\": %" PRIu64, i ? ", " : "", marks[i].name, marks[i].met);
    fprintf(f, "}}\n");
    return (to_stdout ? fflush(f) : fclose(f)) == 0;
}
