/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RY_SIM_MARK_H
#define RY_SIM_MARK_H

#include <stdint.h>

struct ry_sim_mark_count {
    const char *name;
    uint64_t met;
};

/* Met so far in this process, by name. */
uint32_t ry_sim_marks(const struct ry_sim_mark_count **all);

#endif
