/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a job as OpenMetrics text. */
#ifndef RY_TOOL_METRICS_H
#define RY_TOOL_METRICS_H

#include <stdio.h>

#include "attached.h"

void metrics_print(const struct attached_job *job, FILE *out);

#endif
