/* SPDX-License-Identifier: Apache-2.0 */
/* railyard sim: runs seeds, prints what they did, and for a failing one its seed, trace and
 * command. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sim/world.h"

struct totals {
    uint64_t runs, events, steps, moves, planned, replayed;
};

static void show_failure(const struct ry_sim_world *w, bool swarm)
{
    uint32_t from = w->traced > (w->verbose ? RY_SIM_TRACE : 60) ? w->traced - (w->verbose ? RY_SIM_TRACE : 60) : 0;

    printf("seed %llu: %s\n", (unsigned long long)w->plan.seed, w->violation);
    printf("  %u pes, %u rails, handler %d, depth %u, %u faults, second initiator %s\n",
           w->plan.pes, w->plan.rails, (int)w->plan.handler, w->plan.depth, w->plan.n_faults,
           w->plan.second ? "yes" : "no");
    for (uint32_t i = from; i < w->traced; i++)
        printf("  %s\n", w->trace[i % RY_SIM_TRACE]);
    printf("again: railyard sim --seed %llu --runs 1%s%s\n", (unsigned long long)w->plan.seed,
           swarm ? " --swarm" : "", ry_mutant ? " --mutant N" : "");
}

int main(int argc, char **argv)
{
    static struct ry_sim_world world;
    struct totals t = {0};
    uint64_t seed = 1, runs = 100;
    bool swarm = false;
    struct timespec a, b;

    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--swarm"))
            swarm = true;
        else if (!strcmp(argv[i], "--seed") && i + 1 < argc)
            seed = strtoull(argv[++i], NULL, 0);
        else if (!strcmp(argv[i], "--runs") && i + 1 < argc)
            runs = strtoull(argv[++i], NULL, 0);
        else if (!strcmp(argv[i], "--trace"))
            world.verbose = true;
        else if (!strcmp(argv[i], "--mutant") && i + 1 < argc)
            ry_mutant = atoi(argv[++i]);
        else
            return 2;
    }
    clock_gettime(CLOCK_MONOTONIC, &a);
    for (uint64_t k = 0; k < runs; k++) {
        struct ry_sim_plan plan;

        ry_sim_plan_make(&plan, seed + k, swarm);
        if (!ry_sim_once(&world, &plan)) {
            show_failure(&world, swarm);
            return 1;
        }
        t.runs++;
        t.events += world.events;
        t.steps += world.steps;
    }
    clock_gettime(CLOCK_MONOTONIC, &b);
    printf("%llu runs, %llu events, %llu steps, 0 violations\n", (unsigned long long)t.runs,
           (unsigned long long)t.events, (unsigned long long)t.steps);
    fprintf(stderr, "%.0f runs a second\n",
            (double)t.runs /
                ((double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec)));
    return 0;
}
