/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RY_TOOL_DOCTOR_RUN_H
#define RY_TOOL_DOCTOR_RUN_H

#include <railyard/facts.h>

/* Runs the command to its end; what it prints goes to stderr and into facts/log. Prints the error:
 * TOOL_OK or TOOL_BAD_INPUT. How the command ended is told, and changes nothing. */
int ry_doctor_run(char **argv, ry_facts *facts);

#endif
