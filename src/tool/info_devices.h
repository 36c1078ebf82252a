/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RY_TOOL_INFO_DEVICES_H
#define RY_TOOL_INFO_DEVICES_H

/* Prints the ports of this machine's devices; json: a file for them too, or NULL. Exit code. */
int ry_print_devices(const char *json);

#endif
