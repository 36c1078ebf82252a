/* SPDX-License-Identifier: Apache-2.0 */
/* Coverage of rare branches: how often each RY_MARK was met. Names are literals of the source, one
 * for each place or shared by several. */
#include <string.h>

#include "sim/mark.h"

enum { MARKS = 64 };

static struct ry_sim_mark_count marks[MARKS];
static uint32_t n_marks;

void ry_sim_mark(const char *name)
{
    uint32_t i = 0, at;

    while (i < n_marks && strcmp(marks[i].name, name) < 0)
        i++;
    if (i == n_marks || strcmp(marks[i].name, name)) {
        if (n_marks == MARKS)
            return;
        for (at = n_marks++; at > i; at--)
            marks[at] = marks[at - 1];
        marks[i] = (struct ry_sim_mark_count){name, 0};
    }
    marks[i].met++;
}

uint32_t ry_sim_marks(const struct ry_sim_mark_count **all)
{
    *all = marks;
    return n_marks;
}
