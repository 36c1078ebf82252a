/* SPDX-License-Identifier: Apache-2.0 */
/* Many runs: what they did in all, how a failing one is told, shortened and repeated, and whether
 * every mutant falls. */
#ifndef RY_SIM_CAMPAIGN_H
#define RY_SIM_CAMPAIGN_H

#include <stdio.h>

#include "sim/world.h"

enum { RY_SIM_PLAN_TEXT = 4096 };

struct ry_sim_totals {
    uint64_t runs, with_ep, ops, events, steps;
    uint64_t faults[RY_FAULT_CLEAR + 1];
    uint64_t moves, planned, failed, replayed;
    uint64_t violations;
};

/* plan_text.c */
const char *ry_sim_fault_name(enum ry_nic_fault_kind kind);
void ry_sim_plan_print(const struct ry_sim_plan *p, char *to, size_t bytes);
/* False: not a plan, or not one that the simulator can run. */
bool ry_sim_plan_parse(struct ry_sim_plan *p, const char *text);

/* totals.c */
void ry_sim_totals_add(struct ry_sim_totals *t, const struct ry_sim_world *w);
void ry_sim_totals_print(const struct ry_sim_totals *t);
/* False: the file cannot be written. */
bool ry_sim_totals_json(const struct ry_sim_totals *t, uint64_t seed, enum ry_sim_family family,
                        const char *path);

/* shrink.c: drop from a failing plan what it can do without; how many runs that took. */
uint32_t ry_sim_shrink(struct ry_sim_world *w, struct ry_sim_plan *plan);
/* The oracle that spoke: the first word of the violation. */
void ry_sim_oracle_name(const char *violation, char *to, size_t bytes);

/* mutants.c */
int ry_sim_mutant_find(const char *name);
const char *ry_sim_mutant_name(int id);
/* Every mutant (or one) until it falls, at most `runs` runs each; quick: begin at seeds known to
 * kill it. Exit code: 1 when one survives. */
int ry_sim_mutants(uint64_t runs, bool quick, int only);

#endif
