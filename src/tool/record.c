/* SPDX-License-Identifier: Apache-2.0 */
#include "record.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int ry_tool_error(const char *command, const char *format, ...)
{
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    /* One call is one write: PEs of a job share stderr, and their lines must not mix. */
    fprintf(stderr, "railyard %s: %s\n", command, line);
    return TOOL_BAD_INPUT;
}

static void print_help(const struct ry_tool_flag *flags, const char *usage)
{
    puts(usage);
    if (flags->name)
        puts("");
    for (; flags->name; flags++)
        printf("  %-18s %s\n", flags->name, flags->help);
}

static const struct ry_tool_flag *find_flag(const struct ry_tool_flag *flags, const char *word)
{
    size_t len = strcspn(word, "=");
    for (; flags->name; flags++) {
        if (strlen(flags->name) == len && strncmp(flags->name, word, len) == 0)
            return flags;
    }
    return NULL;
}

int ry_tool_flags(int argc, char **argv, const struct ry_tool_flag *flags, const char *usage,
                  int *exit_code)
{
    int at = 1;
    *exit_code = TOOL_OK;
    for (; at < argc && argv[at][0] == '-' && argv[at][1] != '\0'; at++) {
        if (strcmp(argv[at], "--") == 0)
            return at + 1;
        if (strcmp(argv[at], "--help") == 0 || strcmp(argv[at], "-h") == 0) {
            print_help(flags, usage);
            return -1;
        }
        const struct ry_tool_flag *flag = find_flag(flags, argv[at]);
        const char *value = strchr(argv[at], '=');
        *exit_code = TOOL_BAD_INPUT;
        if (!flag) {
            ry_tool_error(argv[0], "unknown flag '%s': type railyard %s --help for the list",
                          argv[at], argv[0]);
            return -1;
        }
        if (flag->set && value) {
            ry_tool_error(argv[0], "flag %s takes no value: write it alone", flag->name);
            return -1;
        }
        if (flag->set) {
            *flag->set = 1;
        } else if (value) {
            *flag->value = value + 1;
        } else if (at + 1 < argc) {
            *flag->value = argv[++at];
        } else {
            ry_tool_error(argv[0], "flag %s needs a value: %s", flag->name, flag->help);
            return -1;
        }
        *exit_code = TOOL_OK;
    }
    return at;
}

static char *read_whole(const char *path, size_t *len)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    char *data = malloc(RY_FACT_TOTAL);
    *len = data ? fread(data, 1, RY_FACT_TOTAL, file) : 0;
    int failed = ferror(file);
    fclose(file);
    if (data && failed) {
        free(data);
        data = NULL;
    }
    return data;
}

static int open_archive(const char *command, const char *path, ry_facts **out)
{
    size_t len;
    char why[256];
    char *data = read_whole(path, &len);
    if (!data)
        return ry_tool_error(command, "cannot read the record '%s': %s", path, strerror(errno));
    if (len == RY_FACT_TOTAL) {
        free(data);
        return ry_tool_error(command, "the record '%s' is too large: at most %d MiB", path,
                             RY_FACT_TOTAL >> 20);
    }
    ry_facts *facts = NULL;
    int status = ry_facts_open_empty(&facts);
    if (status == RY_OK) {
        status = ry_tool_read_archive(data, len, facts, why, sizeof why);
        if (status != RY_OK)
            ry_facts_close(facts);
    } else {
        snprintf(why, sizeof why, "%s", ry_status_text(status));
    }
    free(data);
    if (status != RY_OK)
        return ry_tool_error(command, "cannot read the record '%s': %s", path, why);
    *out = facts;
    return TOOL_OK;
}

int ry_tool_open(const char *command, const char *root, ry_facts **out)
{
    struct stat st;
    if (root && stat(root, &st) != 0)
        return ry_tool_error(command, "cannot open the record '%s': %s", root, strerror(errno));
    if (root && S_ISREG(st.st_mode))
        return open_archive(command, root, out);
    int status = ry_facts_open(root, out);
    if (status == RY_OK && root && !ry_facts_is_live(*out) &&
        !ry_facts_has(*out, "topology.xml")) {
        ry_facts_close(*out);
        return ry_tool_error(command,
                             "'%s' is no record, it has no topology.xml: make one with railyard "
                             "doctor --capture FILE",
                             root);
    }
    if (status != RY_OK)
        return ry_tool_error(command, "cannot open the record '%s': neither folder nor file",
                             root ? root : "/");
    return TOOL_OK;
}

int ry_tool_write_text(const char *command, const char *file, const char *text)
{
    if (strcmp(file, "-") == 0) {
        fputs(text, stdout);
        return fflush(stdout) == 0 ? TOOL_OK : TOOL_BAD_INPUT;
    }
    FILE *out = fopen(file, "w");
    if (!out)
        return ry_tool_error(command, "cannot write '%s': %s", file, strerror(errno));
    int failed = fputs(text, out) < 0;
    failed |= fclose(out) != 0;
    return failed ? ry_tool_error(command, "cannot write '%s': %s", file, strerror(errno))
                  : TOOL_OK;
}

int ry_tool_write_json(const char *command, const char *file, json_t *json)
{
    char *text = json_dumps(json, JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(9));
    json_decref(json);
    if (!text)
        return ry_tool_error(command, "cannot write '%s': no memory", file);
    int code = ry_tool_write_text(command, file, text);
    if (code == TOOL_OK && strcmp(file, "-") == 0)
        putchar('\n');
    free(text);
    return code;
}

char *ry_tool_setting(ry_facts *facts, const char *name)
{
    char *text = ry_facts_text(facts, "facts/env");
    char *rest = NULL, *found = NULL;
    size_t len = strlen(name);
    for (char *line = text ? strtok_r(text, "\n", &rest) : NULL; line && !found;
         line = strtok_r(NULL, "\n", &rest)) {
        if (strncmp(line, name, len) == 0 && line[len] == '=')
            found = strdup(line + len + 1);
    }
    free(text);
    return found;
}

int ry_tool_topo(const char *command, ry_facts *facts, ry_topo **out)
{
    char why[256] = "";
    char *hca = ry_tool_setting(facts, "RAILYARD_HCA");
    char *map = ry_tool_setting(facts, "RAILYARD_GPU_NIC_MAP");
    ry_topo_options options = {.hca = hca, .gpu_nic_map = map};
    int status = ry_topo_from_facts(facts, &options, out, why, sizeof why);
    free(hca);
    free(map);
    if (status != RY_OK)
        return ry_tool_error(command, "%s", why[0] ? why : ry_status_text(status));
    return TOOL_OK;
}

long long ry_tool_number(const char *text)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
    if (shift)
        end++;
    if (end == text || *end || errno || value < 0 || value > (1ll << 40) >> shift)
        return -1;
    return value << shift;
}
