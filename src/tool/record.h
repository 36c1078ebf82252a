/* SPDX-License-Identifier: Apache-2.0 */
/* What the operator's commands share: flags, records as folders and archives, output files. */
#ifndef RY_TOOL_RECORD_H
#define RY_TOOL_RECORD_H

#include <jansson.h>
#include <railyard/facts.h>
#include <railyard/topo.h>

enum { TOOL_OK = 0, TOOL_FAILED = 1, TOOL_BAD_INPUT = 2, TOOL_UNREACHABLE = 3, TOOL_SKIPPED = 77 };

/* One flag. With `value` it takes an argument, with `set` it takes none. */
struct ry_tool_flag {
    const char *name;
    const char **value;
    int *set;
    const char *help;
};

/* Reads flags up to the first word that is none, or past "--". Returns its index, or -1 after it
 * has printed help (*exit_code 0) or an error (*exit_code 2). `flags` ends with a name of NULL. */
int ry_tool_flags(int argc, char **argv, const struct ry_tool_flag *flags, const char *usage,
                  int *exit_code);

/* One line on stderr: "railyard COMMAND: ...". Returns TOOL_BAD_INPUT. */
int ry_tool_error(const char *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Facts of this machine (root NULL), of a folder or of an archive. Prints an error and returns
 * TOOL_BAD_INPUT, or TOOL_OK. */
int ry_tool_open(const char *command, const char *root, ry_facts **out);

/* The archive in memory, for the fuzzer too. `why` gets a line. */
int ry_tool_read_archive(const void *data, size_t len_bytes, ry_facts *into, char *why,
                         size_t why_bytes);

/* Writes facts as an archive that ry_tool_open reads. */
int ry_tool_write_archive(const char *command, const char *file, const ry_facts *facts);

/* Writes to `file`, "-" being stdout. Takes over `json`. */
int ry_tool_write_json(const char *command, const char *file, json_t *json);
int ry_tool_write_text(const char *command, const char *file, const char *text);

/* The topology of the facts with the user's settings, which come from `facts/env`. */
int ry_tool_topo(const char *command, ry_facts *facts, ry_topo **out);

/* The value of a setting in facts/env, to be freed; NULL if unset. */
char *ry_tool_setting(ry_facts *facts, const char *name);

/* A number in a flag, with K, M or G; -1 if it is none. */
long long ry_tool_number(const char *text);

#endif
