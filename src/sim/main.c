/* SPDX-License-Identifier: Apache-2.0 */
/* railyard sim: runs seeds, prints what they did, and for a failing one its seed, its trace and the
 * command that repeats it. Standard output follows from the arguments alone. */
#include <inttypes.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "sim/campaign.h"

enum { BAD_INPUT = 2, SHORT_TRACE = 60, TICK_RUNS = 256, KEEP_BYTES = 64 << 20 };

struct options {
    uint64_t seed, runs;
    enum ry_sim_family family;
    bool trace, no_shrink, mutants, quick, runs_set;
    const char *json, *plan;
};

static const char usage[] =
    "usage: railyard sim [FLAG...]\n\n"
    "runs the product's protocol code in a simulated world: four PEs, their NICs, links and\n"
    "agents in one thread, with virtual time and faults that follow from a seed. The same\n"
    "arguments give the same output on every machine.\n\n"
    "  --seed S       first seed (1)\n"
    "  --runs N       runs, one seed each (100)\n"
    "  --swarm        more faults a run, in random subsets\n"
    "  --lossy        as --swarm, and every run loses one PE or two\n"
    "  --plan TEXT    exactly this plan, as a failing run prints it, once; with --runs under as\n"
    "                 many schedules\n"
    "  --mutant NAME  with one clause of one rule broken\n"
    "  --mutants      every mutant (or that of --mutant) until it falls, at most --runs\n"
    "                 (10000) runs each; those of rule 16 in lossy runs\n"
    "  --quick        with --mutants: begin at seeds known to make each one fall\n"
    "  --trace        the whole trace of a failing run; of a single run always\n"
    "  --no-shrink    leave a failing run as long as it is\n"
    "  --json FILE    the totals as JSON too; - is standard output\n"
    "  --help         this text\n\n"
    "exit status: 0 no violation (every mutant fell), 1 a violation (a mutant survives), 2 bad\n"
    "input";

static int bad(const char *what, const char *why)
{
    fprintf(stderr, "railyard sim: '%s' %s: type railyard sim --help for the list\n", what, why);
    return BAD_INPUT;
}

static int number(const char *flag, const char *text, uint64_t *out)
{
    char *end = NULL;

    *out = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end)
        return bad(flag, "wants a whole number");
    return 0;
}

/* A flag with a value: 1 and *rc; 0: not one of them. */
static int with_value(const char *flag, const char *value, struct options *o, int *rc)
{
    const bool known = !strcmp(flag, "--seed") || !strcmp(flag, "--runs") ||
                       !strcmp(flag, "--json") || !strcmp(flag, "--plan") ||
                       !strcmp(flag, "--mutant");

    *rc = 0;
    if (!known)
        return 0;
    if (!value) {
        *rc = bad(flag, "wants a value");
    } else if (!strcmp(flag, "--seed")) {
        *rc = number(flag, value, &o->seed);
    } else if (!strcmp(flag, "--runs")) {
        *rc = number(flag, value, &o->runs);
        o->runs_set = true;
    } else if (!strcmp(flag, "--json")) {
        o->json = value;
    } else if (!strcmp(flag, "--plan")) {
        o->plan = value;
    } else {
        ry_mutant = ry_sim_mutant_find(value);
        if (!ry_mutant)
            *rc = bad(value, "is no mutant (railyard sim --mutants --runs 0 names them)");
    }
    return 1;
}

static int parse(int argc, char **argv, struct options *o)
{
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i];
        int rc;

        if (with_value(a, i + 1 < argc ? argv[i + 1] : NULL, o, &rc)) {
            if (rc)
                return rc;
            i++;
        } else if (!strcmp(a, "--swarm")) {
            o->family = RY_SIM_SWARM;
        } else if (!strcmp(a, "--lossy")) {
            o->family = RY_SIM_LOSSY;
        } else if (!strcmp(a, "--trace")) {
            o->trace = true;
        } else if (!strcmp(a, "--shrink")) {
            o->no_shrink = false;
        } else if (!strcmp(a, "--no-shrink")) {
            o->no_shrink = true;
        } else if (!strcmp(a, "--mutants")) {
            o->mutants = true;
        } else if (!strcmp(a, "--quick")) {
            o->quick = true;
        } else {
            return bad(a, "is no flag");
        }
    }
    return 0;
}

static const char *const family_flags[] = {
    [RY_SIM_FEW] = "", [RY_SIM_SWARM] = " --swarm", [RY_SIM_LOSSY] = " --lossy"};

static void show_trace(const struct ry_sim_world *w, uint32_t lines)
{
    uint32_t kept = w->traced < RY_SIM_TRACE ? w->traced : RY_SIM_TRACE;
    uint32_t from = w->traced - (kept < lines ? kept : lines);

    for (uint32_t i = from; i < w->traced; i++)
        printf("  %s\n", w->trace[i % RY_SIM_TRACE]);
}

static void show_command(const struct ry_sim_plan *p)
{
    char text[RY_SIM_PLAN_TEXT];

    ry_sim_plan_print(p, text, sizeof(text));
    printf("again: railyard sim%s%s --plan '%s'\n", ry_mutant ? " --mutant " : "",
           ry_mutant ? ry_sim_mutant_name(ry_mutant) : "", text);
}

static void show_failure(struct ry_sim_world *w, const struct options *o)
{
    struct ry_sim_plan plan = w->plan;
    uint32_t n;

    w->tracing = true;
    ry_sim_once(w, &plan);
    printf("seed %" PRIu64 ": %s\n", plan.seed, w->violation);
    show_trace(w, o->trace ? RY_SIM_TRACE : SHORT_TRACE);
    if (!o->plan)
        printf("again: railyard sim --seed %" PRIu64 " --runs 1%s%s%s\n", plan.seed,
               family_flags[o->family], ry_mutant ? " --mutant " : "",
               ry_mutant ? ry_sim_mutant_name(ry_mutant) : "");
    if (o->no_shrink) {
        show_command(&plan);
        return;
    }
    n = ry_sim_shrink(w, &plan);
    printf("shortened in %u runs to %u faults, %u operations a PE:\n", n, plan.n_faults, plan.ops);
    printf("%s\n", w->violation);
    show_trace(w, o->trace ? RY_SIM_TRACE : SHORT_TRACE);
    show_command(&plan);
}

static void progress(uint64_t k, uint64_t runs)
{
    if (k % TICK_RUNS == 0 && isatty(STDERR_FILENO))
        fprintf(stderr, "\r%" PRIu64 " of %" PRIu64 " runs", k, runs);
}

static int campaign(const struct options *o)
{
    static struct ry_sim_world world;
    struct ry_sim_totals t = {0};
    struct ry_sim_plan plan;
    struct timespec a, b;

    world.tracing = world.verbose = o->trace;
    clock_gettime(CLOCK_MONOTONIC, &a);
    for (uint64_t k = 0; k < o->runs && !t.violations; k++) {
        progress(k, o->runs);
        if (!o->plan)
            ry_sim_plan_make(&plan, o->seed + k, o->family);
        else if (!ry_sim_plan_parse(&plan, o->plan))
            return bad(o->plan, "is no plan of the simulator");
        else
            plan.sched += k;
        ry_sim_once(&world, &plan);
        ry_sim_totals_add(&t, &world);
    }
    clock_gettime(CLOCK_MONOTONIC, &b);
    fprintf(stderr, "%s%.0f runs a second\n", isatty(STDERR_FILENO) ? "\r" : "",
            (double)t.runs /
                ((double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec)));
    ry_sim_totals_print(&t);
    if (o->json && !ry_sim_totals_json(&t, o->seed, o->family, o->json))
        return bad(o->json, "cannot be written");
    if (t.violations)
        show_failure(&world, o);
    else if (o->trace && o->runs == 1)
        show_trace(&world, RY_SIM_TRACE);
    return t.violations != 0;
}

int main(int argc, char **argv)
{
    struct options o = {.seed = 1, .runs = 100};
    int rc;

    if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
        puts(usage);
        return 0;
    }
    rc = parse(argc, argv, &o);
    if (rc)
        return rc;
    mallopt(M_MMAP_THRESHOLD, KEEP_BYTES); /* a run's memory is the next one's */
    mallopt(M_TRIM_THRESHOLD, KEEP_BYTES);
    if (o.mutants)
        return ry_sim_mutants(o.runs_set ? o.runs : 10000, o.quick, ry_mutant);
    if (o.plan && !o.runs_set)
        o.runs = 1;
    return campaign(&o);
}
