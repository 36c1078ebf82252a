/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of `railyard topo`. */
#ifndef RY_TOOL_TOPO_H
#define RY_TOOL_TOPO_H

#include <jansson.h>
#include <railyard/topo.h>

/* The name of row `i` of the matrix: GPUs first, then ports. */
void ry_topo_row_name(const ry_topo *topo, uint32_t i, char *name, size_t cap);

/* A cell of the matrix, as nvidia-smi writes it. */
void ry_topo_cell(const ry_topo *topo, uint32_t row, uint32_t column, char *cell, size_t cap);

/* Why a backup was chosen, in words. */
const char *ry_topo_why_text(ry_backup_why why);

/* The whole topology as JSON, and as a picture. Both are the caller's, NULL without memory. */
json_t *ry_topo_to_json(const ry_topo *topo);
char *ry_topo_to_svg(const ry_topo *topo);

#endif
