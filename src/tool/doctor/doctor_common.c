/* SPDX-License-Identifier: Apache-2.0 */
/* What several checks use. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doctor.h"

const struct ry_family *ry_doctor_families(void)
{
    static const struct ry_family families[] = {
        {"driver", ry_checks_driver},
        {"port", ry_checks_port},
        {"limit", ry_checks_limit},
        {"pcie", ry_checks_pcie},
        {"rail", ry_checks_rail},
        {"fabric", ry_checks_fabric},
        {"library", ry_checks_library},
        {"build", ry_checks_build},
        {"setting", ry_checks_setting},
        {"log", ry_checks_log},
        {NULL, NULL},
    };
    return families;
}

static void read_env(struct ry_doctor *doctor)
{
    char *rest = NULL;
    for (char *line = doctor->env_text ? strtok_r(doctor->env_text, "\n", &rest) : NULL;
         line && doctor->env_count < DOCTOR_ENV; line = strtok_r(NULL, "\n", &rest)) {
        /* values end up in commands to be pasted */
        for (char *c = line; *c; c++) {
            if (strchr("$`;&|<>()'\"\\", *c))
                *c = '?';
        }
        doctor->env[doctor->env_count++] = line;
    }
}

/* Facts of a record end up in a terminal and in commands to be pasted: only plain characters. */
int ry_is_plain(const char *text)
{
    for (; text && *text; text++) {
        if (!isalnum((unsigned char)*text) && !strchr("/._+:=@,-", *text))
            return 0;
    }
    return text != NULL;
}

/* "NAME PATH VERSION ORIGIN" */
static void read_libs(struct ry_doctor *doctor)
{
    char *rest = NULL;
    for (char *line = doctor->lib_text ? strtok_r(doctor->lib_text, "\n", &rest) : NULL;
         line && doctor->lib_count < DOCTOR_LIBS; line = strtok_r(NULL, "\n", &rest)) {
        char *word = NULL;
        struct ry_lib *lib = &doctor->libs[doctor->lib_count];
        lib->name = strtok_r(line, " ", &word);
        lib->path = strtok_r(NULL, " ", &word);
        lib->version = strtok_r(NULL, " ", &word);
        lib->origin = strtok_r(NULL, " ", &word);
        doctor->lib_count += lib->origin && ry_is_plain(lib->name) && ry_is_plain(lib->path) &&
                             ry_is_plain(lib->version);
    }
}

/* "NAME PATH python=TAG sm=LIST ibgda=0|1 version=V" */
static void read_extensions(struct ry_doctor *doctor)
{
    char *rest = NULL;
    for (char *line = doctor->extension_text ? strtok_r(doctor->extension_text, "\n", &rest)
                                             : NULL;
         line && doctor->extension_count < DOCTOR_EXTENSIONS; line = strtok_r(NULL, "\n", &rest)) {
        char *word = NULL;
        struct ry_extension *e = &doctor->extensions[doctor->extension_count];
        *e = (struct ry_extension){.python = "-", .sm = "-", .version = "-"};
        e->name = strtok_r(line, " ", &word);
        e->path = strtok_r(NULL, " ", &word);
        for (char *w = strtok_r(NULL, " ", &word); w; w = strtok_r(NULL, " ", &word)) {
            if (strncmp(w, "python=", 7) == 0)
                e->python = w + 7;
            else if (strncmp(w, "sm=", 3) == 0)
                e->sm = w + 3;
            else if (strncmp(w, "ibgda=", 6) == 0)
                e->ibgda = w[6] == '1';
            else if (strncmp(w, "version=", 8) == 0)
                e->version = w + 8;
        }
        doctor->extension_count += e->path && ry_is_plain(e->path) && ry_is_plain(e->python) &&
                                   ry_is_plain(e->sm) && ry_is_plain(e->version);
    }
}

int ry_doctor_open(struct ry_doctor *doctor, ry_facts *facts, ry_topo *topo)
{
    *doctor = (struct ry_doctor){.facts = facts, .topo = topo, .pes = 64, .tokens = 128};
    doctor->gpus = ry_topo_gpu_count(topo);
    doctor->ports = ry_topo_port_count(topo);
    doctor->env_text = ry_facts_text(facts, "facts/env");
    doctor->lib_text = ry_facts_text(facts, "facts/libs");
    doctor->extension_text = ry_facts_text(facts, "facts/extensions");
    doctor->modules = ry_facts_text(facts, "proc/modules");
    doctor->packages = ry_facts_text(facts, "facts/packages");
    doctor->limits = ry_facts_text(facts, "facts/limits");
    doctor->has_modules = doctor->modules != NULL;
    doctor->has_libs = doctor->lib_text != NULL;
    doctor->has_extensions = doctor->extension_text != NULL;
    read_env(doctor);
    read_libs(doctor);
    read_extensions(doctor);
    const char *handler = ry_doctor_env(doctor, "RAILYARD_HANDLER");
    if (!handler)
        handler = ry_doctor_env(doctor, "NVSHMEM_IBGDA_NIC_HANDLER");
    snprintf(doctor->handler, sizeof doctor->handler, "%.20s", handler ? handler : "auto");
    return RY_OK;
}

void ry_doctor_close(struct ry_doctor *doctor)
{
    free(doctor->env_text);
    free(doctor->lib_text);
    free(doctor->extension_text);
    free(doctor->modules);
    free(doctor->packages);
    free(doctor->limits);
}

static void make_printable(char *text)
{
    for (; *text; text++) {
        if ((unsigned char)*text < 0x20 || (unsigned char)*text > 0x7e)
            *text = '?';
    }
}

void ry_say(struct ry_result *result, enum ry_verdict verdict, const char *format, ...)
{
    va_list args;
    result->verdict = verdict;
    va_start(args, format);
    vsnprintf(result->cause, sizeof result->cause, format, args);
    va_end(args);
    make_printable(result->cause);
}

void ry_fix(struct ry_result *result, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(result->fix, sizeof result->fix, format, args);
    va_end(args);
    make_printable(result->fix);
}

const char *ry_doctor_env(const struct ry_doctor *doctor, const char *name)
{
    size_t len = strlen(name);
    for (unsigned i = 0; i < doctor->env_count; i++) {
        const char *line = doctor->env[i];
        if (strncmp(line, name, len) == 0 && line[len] == '=' && line[len + 1])
            return line + len + 1;
    }
    return NULL;
}

/* Whether some line of `text` begins with `word`, followed by a space if `whole`. */
static int has_line(const char *text, const char *word, int whole)
{
    size_t len = strlen(word);
    for (const char *line = text; line && *line;) {
        if (strncmp(line, word, len) == 0 && (!whole || line[len] == ' '))
            return 1;
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
    return 0;
}

int ry_doctor_module(const struct ry_doctor *doctor, const char *name)
{
    return has_line(doctor->modules, name, 1);
}

int ry_doctor_package(const struct ry_doctor *doctor, const char *prefix)
{
    return has_line(doctor->packages, prefix, 0);
}

const struct ry_lib *ry_doctor_lib(const struct ry_doctor *doctor, const char *name)
{
    for (unsigned i = 0; i < doctor->lib_count; i++) {
        if (strcmp(doctor->libs[i].name, name) == 0)
            return &doctor->libs[i];
    }
    size_t len = strlen(name);
    for (unsigned i = 0; name[len - 1] == '.' && i < doctor->lib_count; i++) {
        if (strncmp(doctor->libs[i].name, name, len) == 0)
            return &doctor->libs[i];
    }
    return NULL;
}

long long ry_doctor_limit(const struct ry_doctor *doctor, const char *name)
{
    size_t len = strlen(name);
    for (const char *line = doctor->limits; line && *line;) {
        if (strncmp(line, name, len) == 0 && line[len] == ' ')
            return strncmp(line + len + 1, "unlimited", 9) == 0
                       ? -1
                       : strtoll(line + len + 1, NULL, 10);
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
    return -2;
}

int ry_version_compare(const char *a, const char *b)
{
    while (*a || *b) {
        char *a_end, *b_end;
        unsigned long x = strtoul(a, &a_end, 10), y = strtoul(b, &b_end, 10);
        if (x != y)
            return x < y ? -1 : 1;
        if (a_end == a && b_end == b)
            return 0;
        a = *a_end == '.' || *a_end == '-' ? a_end + 1 : "";
        b = *b_end == '.' || *b_end == '-' ? b_end + 1 : "";
    }
    return 0;
}

int ry_needs_gpu(const struct ry_doctor *doctor, struct ry_result *result)
{
    if (doctor->gpus == 0)
        ry_say(result, RY_VERDICT_NA, "no GPU here");
    return doctor->gpus == 0;
}

int ry_needs_port(const struct ry_doctor *doctor, struct ry_result *result)
{
    if (doctor->ports == 0)
        ry_say(result, RY_VERDICT_NA, "no RDMA port here");
    return doctor->ports == 0;
}

int ry_needs_both(const struct ry_doctor *doctor, struct ry_result *result)
{
    return ry_needs_gpu(doctor, result) || ry_needs_port(doctor, result);
}

void ry_doctor_interface(const struct ry_doctor *doctor, const char *device, char *name,
                         size_t cap)
{
    char folder[RY_FACT_PATH];
    char **names;
    name[0] = '\0';
    snprintf(folder, sizeof folder, "sys/class/infiniband/%s/device/net", device);
    unsigned count = ry_facts_list(doctor->facts, folder, &names);
    if (count && ry_is_plain(names[0]))
        snprintf(name, cap, "%s", names[0]);
    ry_facts_free_names(names, count);
}
