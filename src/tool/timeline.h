/* SPDX-License-Identifier: Apache-2.0 */
/* What went wrong and what was done about it, as text, JSON and a picture. */
#ifndef RY_TOOL_TIMELINE_H
#define RY_TOOL_TIMELINE_H

#include "start.h"

void ry_timeline_print(const struct ry_run *run);
json_t *ry_timeline_json(const struct ry_run *run);
/* Bytes per rail over time with the faults marked; the caller's, NULL without memory. */
char *ry_timeline_svg(const struct ry_run *run, const char *title);

/* All rails of all PEs: [{pe, name, bytes}]. */
json_t *ry_rails_json(const struct ry_run *run);
void ry_rails_print(const struct ry_run *run);

/* "123.4 MB", decimal. */
const char *ry_bytes_text(double bytes, char *buf, size_t cap);
/* "12.3 us", "4.56 ms", "1.20 s", "-" below 0. */
const char *ry_us_text(double us, char *buf, size_t cap);

/* The JSON and SVG that the flags ask for; prints errors. */
int ry_run_write(const struct ry_run *run, json_t *json, const char *title);

#endif
