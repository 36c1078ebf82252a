/* SPDX-License-Identifier: Apache-2.0 */
/* railyard plan: what of a DeepEP/NVSHMEM/railyard stack is there, and a script for the rest. */
#include "plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "record.h"

static const char usage[] =
    "usage: railyard plan [--script] [FLAG...]\n\n"
    "Shows the phases of an install: done, needed or blocked. With --script prints a shell script\n"
    "that does what is needed and may be run again at any time.";

static const char *const state_names[] = {"done", "needed", "blocked"};

static void print_plan(const struct ry_plan *plan)
{
    char gpu[16] = "no GPU";
    if (plan->sm)
        snprintf(gpu, sizeof gpu, "sm_%u", plan->sm);
    printf("versions %s on %s, %s, into %s\n\n", plan->set->name, plan->distribution_text, gpu,
           plan->prefix);
    for (unsigned i = 0; i < RY_PHASES; i++)
        printf("%-8s %-19s %s\n", state_names[plan->states[i]], ry_plan_names[i],
               plan->reasons[i]);
}

static json_t *plan_to_json(const struct ry_plan *plan)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < RY_PHASES; i++)
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:s}", "name", ry_plan_names[i], "state",
                                        state_names[plan->states[i]], "reason", plan->reasons[i]));
    return json_pack("{s:s, s:s, s:i, s:o}", "versions", plan->set->name, "distribution",
                     plan->distribution_text, "sm", (int)plan->sm, "phases", list);
}

struct options {
    const char *root, *json, *set, *phase, *handler, *prefix;
    int script, sets;
};

static int check_prefix(const char *prefix)
{
    size_t plain = strspn(prefix, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "/._-");
    return prefix[0] == '/' && prefix[plain] == '\0' && plain < 190;
}

static int find_phase(const char *name, unsigned *phase)
{
    for (*phase = 0; *phase < RY_PHASES; (*phase)++) {
        if (!name || strcmp(ry_plan_names[*phase], name) == 0)
            break;
    }
    if (!name)
        *phase = RY_PHASES;
    return name && *phase == RY_PHASES ? -1 : 0;
}

static int make_plan(const struct options *options, unsigned only)
{
    struct ry_plan plan = {.set = ry_plan_find_set(options->set)};
    ry_facts *facts;
    ry_topo *topo;
    snprintf(plan.prefix, sizeof plan.prefix, "%s", options->prefix);
    plan.wants_gdrdrv = options->handler && strcmp(options->handler, "cpu") == 0;
    int code = ry_tool_open("plan", options->root, &facts);
    if (code != TOOL_OK)
        return code;
    code = ry_tool_topo("plan", facts, &topo);
    if (code == TOOL_OK) {
        ry_plan_judge(&plan, facts, topo);
        ry_topo_free(topo);
        if (options->script && !plan.distribution)
            code = ry_tool_error("plan",
                                 "no recipe for %s: supported are ubuntu 22.04 and 24.04, "
                                 "debian 12",
                                 plan.distribution_text);
        else if (options->script)
            ry_plan_write_script(&plan, only, stdout);
        else if (!options->json || strcmp(options->json, "-") != 0)
            print_plan(&plan);
        if (options->json && code == TOOL_OK)
            code = ry_tool_write_json("plan", options->json, plan_to_json(&plan));
    }
    ry_facts_close(facts);
    return code;
}

int ry_command_plan(int argc, char **argv)
{
    struct options options = {.prefix = "/opt/railyard"};
    const struct ry_tool_flag flags[] = {
        {"--script", NULL, &options.script, "print the script for what is needed"},
        {"--phase", &options.phase, NULL, "only this phase, with --script"},
        {"--root", &options.root, NULL, "read this record (folder or archive), not the machine"},
        {"--json", &options.json, NULL, "write JSON to this file, - is stdout"},
        {"--versions", &options.set, NULL, "the set of versions"},
        {"--list-versions", NULL, &options.sets, "list the sets of versions"},
        {"--handler", &options.handler, NULL, "handler wanted; cpu also needs gdrdrv"},
        {"--prefix", &options.prefix, NULL, "where things go (/opt/railyard)"},
        {NULL, NULL, NULL, NULL},
    };
    int code;
    unsigned only;
    int at = ry_tool_flags(argc, argv, flags, usage, &code);
    if (at < 0)
        return code;
    if (at < argc)
        return ry_tool_error("plan", "unexpected '%s': plan takes flags only", argv[at]);
    if (options.sets) {
        ry_plan_list_sets();
        return TOOL_OK;
    }
    if (!ry_plan_find_set(options.set))
        return ry_tool_error("plan",
                             "unknown set of versions '%s': type railyard plan "
                             "--list-versions",
                             options.set);
    if (!check_prefix(options.prefix))
        return ry_tool_error("plan",
                             "--prefix '%s' is no plain absolute path: use letters, digits "
                             "and /._-",
                             options.prefix);
    if (find_phase(options.phase, &only) != 0)
        return ry_tool_error("plan", "unknown phase '%s': type railyard plan for their names",
                             options.phase);
    if (options.script && options.json && strcmp(options.json, "-") == 0)
        return ry_tool_error("plan", "--script and --json - both write to stdout: give --json a "
                                     "file");
    return make_plan(&options, only);
}
