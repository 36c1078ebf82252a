/* SPDX-License-Identifier: Apache-2.0 */
/* Settings to text: values, the configuration file, the list for tools, the check between PEs. */
#include <railyard/config.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/config_table.h"
#include "host/error.h"

static void format_list(const struct ry_setting *s, const struct ry_config_list *l, char *buf,
                        size_t cap)
{
    size_t used = 0;

    buf[0] = '\0';
    for (uint32_t i = 0; i < l->n && used + 32 < cap; i++) {
        char item[32];

        if (s->type == RY_SET_RATE_LIST)
            ry_format_rate(l->v[i], item, sizeof(item));
        else
            snprintf(item, sizeof(item), "%" PRIu64, l->v[i]);
        used += (size_t)snprintf(buf + used, cap - used, "%s%s", i ? "," : "", item);
    }
}

static bool is_auto(const struct ry_setting *s, const void *field)
{
    if (!(s->flags & RY_SET_AUTO))
        return false;
    if (s->type == RY_SET_TIME)
        return *(const uint64_t *)field == 0;
    if (s->type == RY_SET_I32)
        return *(const int32_t *)field == -1;
    if (s->type == RY_SET_LIST)
        return ((const struct ry_config_list *)field)->n == 0;
    return *(const uint32_t *)field == 0;
}

void ry_setting_format(const struct ry_setting *s, const struct ry_config *c, char *buf, size_t cap)
{
    const void *field = (const uint8_t *)c + s->offset;

    if (is_auto(s, field)) {
        snprintf(buf, cap, "auto");
        return;
    }
    switch (s->type) {
    case RY_SET_U32:
        snprintf(buf, cap, "%" PRIu32, *(const uint32_t *)field);
        return;
    case RY_SET_HEX32:
        snprintf(buf, cap, "0x%" PRIx32, *(const uint32_t *)field);
        return;
    case RY_SET_I32:
        snprintf(buf, cap, "%" PRId32, *(const int32_t *)field);
        return;
    case RY_SET_U64:
        snprintf(buf, cap, "%" PRIu64, *(const uint64_t *)field);
        return;
    case RY_SET_SIZE:
        ry_format_size(*(const uint64_t *)field, buf, cap);
        return;
    case RY_SET_RATE:
        ry_format_rate(*(const uint64_t *)field, buf, cap);
        return;
    case RY_SET_TIME:
        ry_format_time(*(const uint64_t *)field, buf, cap);
        return;
    case RY_SET_SWITCH:
        snprintf(buf, cap, "%s", *(const bool *)field ? "on" : "off");
        return;
    case RY_SET_CHOICE:
        snprintf(buf, cap, "%s", s->choices[*(const uint32_t *)field]);
        return;
    case RY_SET_TEXT:
        snprintf(buf, cap, "%s", (const char *)field);
        return;
    case RY_SET_LIST:
    case RY_SET_RATE_LIST:
        format_list(s, field, buf, cap);
        return;
    case RY_SET_LAUNCH:
        snprintf(buf, cap, "%s", "");
    }
}

void ry_setting_form(const struct ry_setting *s, char *buf, size_t cap)
{
    static const char *const kinds[] = {
        [RY_SET_SIZE] = "size",   [RY_SET_RATE] = "rate",
        [RY_SET_TIME] = "time",   [RY_SET_SWITCH] = "on, off",
        [RY_SET_TEXT] = "text",   [RY_SET_RATE_LIST] = "rates with commas between",
        [RY_SET_LAUNCH] = "text",
    };
    const char *more = s->flags & RY_SET_AUTO ? ", auto" : "";
    char low[32], high[32];
    size_t used = 0;

    if (s->type == RY_SET_CHOICE) {
        buf[0] = '\0';
        for (uint32_t i = 0; s->choices[i] && used < cap; i++)
            used += (size_t)snprintf(buf + used, cap - used, "%s%s", i ? ", " : "", s->choices[i]);
    } else if (s->type == RY_SET_TIME && s->min > 0) {
        ry_format_time((uint64_t)s->min, low, sizeof(low));
        snprintf(buf, cap, "time of %s to 1h%s", low, more);
    } else if (s->type == RY_SET_SIZE) {
        ry_format_size((uint64_t)s->min, low, sizeof(low));
        snprintf(buf, cap, "size of at least %s", low);
    } else if (s->type < sizeof(kinds) / sizeof(kinds[0]) && kinds[s->type]) {
        snprintf(buf, cap, "%s%s", kinds[s->type], more);
    } else if (s->type == RY_SET_U64) {
        snprintf(buf, cap, "number");
    } else {
        const char *form = s->type == RY_SET_HEX32 ? "0x%" PRIx64 : "%" PRIu64;

        snprintf(low, sizeof(low), form, (uint64_t)s->min);
        snprintf(high, sizeof(high), form, (uint64_t)s->max);
        snprintf(buf, cap, "%s to %s%s%s", low, high, more,
                 s->type == RY_SET_LIST ? ", with commas between" : "");
    }
}

static const char *source_text(const struct ry_config *c, const struct ry_setting *s)
{
    switch ((enum ry_setting_source)c->source[s - ry_settings]) {
    case RY_FROM_FILE:
        return c->file;
    case RY_FROM_ALIAS:
        return s->alias;
    case RY_FROM_ENV:
        return "environment";
    case RY_FROM_CALL:
        return "caller";
    case RY_FROM_DEFAULT:
        break;
    }
    return "default";
}

static void print_setting(FILE *f, const struct ry_config *c, const struct ry_setting *s)
{
    char value[RY_CONFIG_TEXT], form[128];
    bool initial = c->source[s - ry_settings] == RY_FROM_DEFAULT;

    ry_setting_format(s, c, value, sizeof(value));
    ry_setting_form(s, form, sizeof(form));
    if (s->group)
        fprintf(f, "\n# --- %s ---\n", s->group);
    fprintf(f, "\n# %s\n# values: %s; default: %s", s->help, form,
            s->initial[0] ? s->initial : "empty");
    if (s->alias)
        fprintf(f, "; %s is accepted too", s->alias);
    fputs(initial ? "\n" : "", f);
    if (!initial)
        fprintf(f, "\n# from: %s\n", source_text(c, s));
    fprintf(f, "%s%s = %s\n", initial ? "#" : "", s->name, value);
}

int ry_config_text(const char *const *settings, uint32_t n_settings, char **text, char **warnings)
{
    struct ry_config *c = malloc(sizeof(*c));
    char *out = NULL;
    size_t len = 0;

    if (!c)
        return ry_fail(RY_ERR_NO_MEMORY, "no memory for the settings");
    int rc = ry_config_load(c, settings, n_settings);
    char *notes = rc == RY_OK ? strdup(c->warnings) : NULL;
    FILE *f = rc == RY_OK ? open_memstream(&out, &len) : NULL;

    if (f) {
        fputs("# railyard settings. A line that begins with # has no effect: the default holds.\n",
              f);
        for (uint32_t i = 0; i < ry_n_settings; i++) {
            if (ry_settings[i].type != RY_SET_LAUNCH)
                print_setting(f, c, &ry_settings[i]);
        }
        if (fclose(f) != 0) {
            free(out);
            out = NULL;
        }
    }
    free(c);
    if (rc < 0)
        return rc;
    if (!out || !notes) {
        free(out);
        free(notes);
        return ry_fail(RY_ERR_NO_MEMORY, "no memory for the settings");
    }
    *text = out;
    *warnings = notes;
    return RY_OK;
}

static void describe(const struct ry_config *c, const struct ry_setting *s, ry_setting_info *out)
{
    out->name = s->name;
    out->group = s->group;
    out->initial = s->initial;
    out->alias = s->alias;
    out->help = s->help;
    out->job_wide = (s->flags & RY_SET_JOB) != 0;
    out->launch = s->type == RY_SET_LAUNCH;
    ry_setting_form(s, out->form, sizeof(out->form));
    ry_setting_format(s, c, out->value, sizeof(out->value));
    snprintf(out->source, sizeof(out->source), "%s", source_text(c, s));
}

int ry_config_list(const char *const *settings, uint32_t n_settings, ry_setting_info **list,
                   uint32_t *n_list)
{
    struct ry_config *c = malloc(sizeof(*c));
    ry_setting_info *out = calloc(ry_n_settings, sizeof(*out));
    int rc = c && out ? ry_config_load(c, settings, n_settings)
                      : ry_fail(RY_ERR_NO_MEMORY, "no memory for the settings");

    for (uint32_t i = 0; rc == RY_OK && i < ry_n_settings; i++)
        describe(c, &ry_settings[i], &out[i]);
    free(c);
    if (rc < 0) {
        free(out);
        return rc;
    }
    *list = out;
    *n_list = ry_n_settings;
    return RY_OK;
}

/* Lines "NAME=VALUE", each value cut to 64 bytes; first the version. */
void ry_config_job(const struct ry_config *c, char *block)
{
    size_t used = (size_t)snprintf(block, RY_CONFIG_JOB_BYTES, "VERSION=%s\n", ry_version());

    for (uint32_t i = 0; i < ry_n_settings; i++) {
        char value[65];

        if (!(ry_settings[i].flags & RY_SET_JOB))
            continue;
        ry_setting_format(&ry_settings[i], c, value, sizeof(value));
        int n = snprintf(block + used, RY_CONFIG_JOB_BYTES - used, "%s=%s\n", ry_settings[i].name,
                         value);

        used += n < 0 ? 0 : (size_t)n;
    }
    memset(block + used, 0, RY_CONFIG_JOB_BYTES - used);
}

int ry_config_agree(const char *blocks, uint32_t n_pes)
{
    for (uint32_t pe = 1; pe < n_pes; pe++) {
        const char *a = blocks, *b = blocks + (size_t)pe * RY_CONFIG_JOB_BYTES;
        const char *end = b + RY_CONFIG_JOB_BYTES;

        if (memcmp(a, b, RY_CONFIG_JOB_BYTES) == 0)
            continue;
        if (a[RY_CONFIG_JOB_BYTES - 1] || end[-1])
            return ry_fail(RY_ERR_PROTOCOL, "settings of pe %u: they have no end", pe);
        while (*a && strcspn(a, "\n") == strcspn(b, "\n") && memcmp(a, b, strcspn(a, "\n")) == 0 &&
               a[strcspn(a, "\n")]) {
            a += strcspn(a, "\n") + 1;
            b += strcspn(b, "\n") + 1;
        }
        if (strncmp(b, "VERSION=", 8) == 0 && a == blocks)
            return ry_fail(RY_ERR_CONFIG,
                           "pe 0 runs railyard %.*s but pe %u runs %.*s: install the same on both",
                           (int)strcspn(a + 8, "\n"), a + 8, pe, (int)strcspn(b + 8, "\n"), b + 8);
        return ry_fail(RY_ERR_CONFIG,
                       "pe 0 has RAILYARD_%.*s but pe %u has RAILYARD_%.*s: give both the same",
                       (int)strcspn(a, "\n"), a, pe, (int)strcspn(b, "\n"), b);
    }
    return RY_OK;
}
