/* SPDX-License-Identifier: Apache-2.0 */
/* Makers of run-time facts. Each writes its text and returns 0, or returns -1 where this machine
 * has nothing to say. None may block or take longer than a few tens of milliseconds. */
#ifndef RY_HOST_TOPO_LIVE_H
#define RY_HOST_TOPO_LIVE_H

#include "facts_internal.h"

int ry_live_topology(ry_facts *facts, struct ry_text *out);
int ry_live_env(ry_facts *facts, struct ry_text *out);
int ry_live_limits(ry_facts *facts, struct ry_text *out);
int ry_live_packages(ry_facts *facts, struct ry_text *out);
int ry_live_python(ry_facts *facts, struct ry_text *out);
int ry_live_build(ry_facts *facts, struct ry_text *out);
int ry_live_launcher(ry_facts *facts, struct ry_text *out);
int ry_live_gpus(ry_facts *facts, struct ry_text *out);
int ry_live_register(ry_facts *facts, struct ry_text *out);
int ry_live_devices(ry_facts *facts, struct ry_text *out);
int ry_live_counters(ry_facts *facts, struct ry_text *out);
int ry_live_pcie(ry_facts *facts, struct ry_text *out);
int ry_live_libs(ry_facts *facts, struct ry_text *out);
int ry_live_extensions(ry_facts *facts, struct ry_text *out);
int ry_live_torch(ry_facts *facts, struct ry_text *out);
int ry_live_sources(ry_facts *facts, struct ry_text *out);

/* Calls each folder in which Python packages may lie, in the order in which they are looked up. */
typedef void (*ry_site_fn)(void *arg, const char *folder);
void ry_live_each_site(ry_site_fn each, void *arg);

#endif
