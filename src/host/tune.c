/* SPDX-License-Identifier: Apache-2.0 */
/* The file of railyard tune: {"entries": [{"machine", "shape", "channels", "chunk_bytes", ...}]}.
 */
#include <errno.h>
#include <jansson.h>
#include <railyard/topo.h>
#include <railyard/tune.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/error.h"

enum { TUNE_BYTES = 1 << 20, TUNE_ENTRIES = 4096, TUNE_PATH = 4096, TUNE_LINE = 256 };

void ry_tune_file(char *path, size_t cap)
{
    const char *named = getenv("RAILYARD_TUNE_FILE"), *home = getenv("HOME");

    path[0] = '\0';
    if (named && *named)
        snprintf(path, cap, "%s", named);
    else if (home && *home)
        snprintf(path, cap, "%s/.config/railyard-tune.json", home);
}

void ry_tune_machine(char *text, size_t cap)
{
    ry_topo *topo = NULL;
    uint32_t gpus = 0, ports = 0;
    const char *gpu = "none";
    uint32_t rate = 0;

    if (ry_topo_load(NULL, NULL, &topo, NULL, 0) == RY_OK) {
        gpus = ry_topo_gpu_count(topo);
        ports = ry_topo_port_count(topo);
        if (gpus)
            gpu = ry_topo_gpu_at(topo, 0)->name;
        if (ports)
            rate = ry_topo_port_at(topo, 0)->rate_mbps;
    }
    snprintf(text, cap, "cpus=%ld gpus=%u (%s) ports=%u x %u Mb/s", sysconf(_SC_NPROCESSORS_ONLN),
             gpus, gpu, ports, rate);
    ry_topo_free(topo);
}

void ry_tune_shape_text(const ry_tune_shape *s, char *text, size_t cap)
{
    snprintf(text, cap,
             "%smode=%s dtype=%s nic=%s rails=%s link-rate=%s pes=%u nodes=%u tokens=%u hidden=%u "
             "experts=%u topk=%u",
             s->device && strcmp(s->device, "cuda") == 0 ? "device=cuda " : "",
             s->mode ? s->mode : "ll", s->dtype ? s->dtype : "bf16", s->nic ? s->nic : "auto",
             s->rails ? s->rails : "auto", s->link_rate ? s->link_rate : "auto", s->pes, s->nodes,
             s->tokens, s->hidden, s->experts, s->topk);
}

/* The file's object, a new one where there is no file, NULL after an error. */
static json_t *read_file(const char *path, int *rc)
{
    json_error_t error;
    struct stat st;
    FILE *file = fopen(path, "r");

    if (!file) {
        *rc = errno == ENOENT
                  ? RY_ERR_NOT_FOUND
                  : ry_fail(RY_ERR_CONFIG, "%s: cannot be opened: %s", path, strerror(errno));
        return NULL;
    }
    json_t *json = NULL;
    if (fstat(fileno(file), &st) == 0 && S_ISREG(st.st_mode) && st.st_size <= TUNE_BYTES)
        json = json_loadf(file, JSON_REJECT_DUPLICATES, &error);
    fclose(file);
    json_t *entries = json_object_get(json, "entries");
    if (json_is_array(entries) && json_array_size(entries) <= TUNE_ENTRIES) {
        *rc = RY_OK;
        return json;
    }
    json_decref(json);
    *rc = ry_fail(RY_ERR_CONFIG, "%s: no file of railyard tune: remove it, or name another", path);
    return NULL;
}

static int is_entry(const json_t *entry, const char *machine, const char *shape)
{
    const char *m = json_string_value(json_object_get(entry, "machine"));
    const char *s = json_string_value(json_object_get(entry, "shape"));

    return m && s && strcmp(m, machine) == 0 && strcmp(s, shape) == 0;
}

static const char *resolve(const char *file, char *path, size_t cap)
{
    if (!file)
        ry_tune_file(path, cap);
    else
        snprintf(path, cap, "%s", file);
    return path;
}

int ry_tune_load(const char *file, const ry_tune_shape *shape, ry_tune_choice *choice)
{
    char path[TUNE_PATH], machine[TUNE_LINE], text[TUNE_LINE];
    int rc = RY_ERR_NOT_FOUND;

    if (!*resolve(file, path, sizeof(path)))
        return RY_ERR_NOT_FOUND;
    json_t *json = read_file(path, &rc);
    if (!json)
        return rc;
    ry_tune_machine(machine, sizeof(machine));
    ry_tune_shape_text(shape, text, sizeof(text));
    json_t *entries = json_object_get(json, "entries"), *entry;
    size_t i;

    rc = RY_ERR_NOT_FOUND;
    json_array_foreach(entries, i, entry)
    {
        json_int_t channels = json_integer_value(json_object_get(entry, "channels"));
        json_int_t chunk = json_integer_value(json_object_get(entry, "chunk_bytes"));

        json_int_t sms = json_integer_value(json_object_get(entry, "sms")); /* absent: 0 */

        if (sms < 0 || sms > 160 || !is_entry(entry, machine, text) || channels < 1 ||
            channels > 64 || chunk < 4096 || chunk > 256 << 10)
            continue;
        choice->channels = (uint32_t)channels;
        choice->chunk_bytes = (uint32_t)chunk;
        choice->sms = (uint32_t)sms;
        choice->dispatch_us = json_number_value(json_object_get(entry, "dispatch_us"));
        choice->combine_us = json_number_value(json_object_get(entry, "combine_us"));
        rc = RY_OK;
    }
    json_decref(json);
    return rc;
}

static int write_file(const char *path, const json_t *json)
{
    char fresh[TUNE_PATH + 8], *slash;

    snprintf(fresh, sizeof(fresh), "%s", path);
    slash = strrchr(fresh, '/');
    if (slash && slash != fresh) {
        *slash = '\0';
        mkdir(fresh, 0700); /* the last folder only; another error shows below */
    }
    snprintf(fresh, sizeof(fresh), "%s.new", path);
    if (json_dump_file(json, fresh,
                       JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(9)) != 0 ||
        rename(fresh, path) != 0) {
        unlink(fresh);
        return ry_fail(RY_ERR_SYSTEM, "%s: cannot be written: %s", path, strerror(errno));
    }
    return RY_OK;
}

int ry_tune_store(const char *file, const ry_tune_shape *shape, const ry_tune_choice *choice)
{
    char path[TUNE_PATH], machine[TUNE_LINE], text[TUNE_LINE];
    int rc = RY_OK;

    if (!*resolve(file, path, sizeof(path)))
        return ry_fail(RY_ERR_CONFIG,
                       "no place for what was tuned: set RAILYARD_TUNE_FILE or HOME");
    json_t *json = read_file(path, &rc);
    if (!json && rc != RY_ERR_NOT_FOUND)
        return rc;
    if (!json)
        json = json_pack("{s:[]}", "entries");
    ry_tune_machine(machine, sizeof(machine));
    ry_tune_shape_text(shape, text, sizeof(text));
    json_t *entries = json_object_get(json, "entries");
    for (size_t i = json_array_size(entries); i > 0; i--)
        if (is_entry(json_array_get(entries, i - 1), machine, text))
            json_array_remove(entries, i - 1);
    json_array_append_new(
        entries, json_pack("{s:s, s:s, s:i, s:i, s:i, s:f, s:f}", "machine", machine, "shape", text,
                           "channels", (int)choice->channels, "chunk_bytes",
                           (int)choice->chunk_bytes, "sms", (int)choice->sms, "dispatch_us",
                           choice->dispatch_us, "combine_us", choice->combine_us));
    rc = write_file(path, json);
    json_decref(json);
    return rc;
}
