/* SPDX-License-Identifier: Apache-2.0 */
/* The operator's commands; main.c has the table. Each returns the exit code. */
#ifndef RY_TOOL_COMMANDS_H
#define RY_TOOL_COMMANDS_H

int ry_command_ep(int argc, char **argv);
int ry_command_perf(int argc, char **argv);
int ry_command_run(int argc, char **argv);
int ry_command_status(int argc, char **argv);
int ry_command_fault(int argc, char **argv);
int ry_command_drain(int argc, char **argv);
int ry_command_undrain(int argc, char **argv);
int ry_command_info(int argc, char **argv);
int ry_command_topo(int argc, char **argv);
int ry_command_doctor(int argc, char **argv);
int ry_command_env(int argc, char **argv);
int ry_command_plan(int argc, char **argv);
int ry_command_traffic(int argc, char **argv);
int ry_command_sim(int argc, char **argv);
int ry_command_tune(int argc, char **argv);

#endif
