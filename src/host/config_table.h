/* SPDX-License-Identifier: Apache-2.0 */
/* The table of settings, as the parser, the printer and the manual read it. */
#ifndef RY_HOST_CONFIG_TABLE_H
#define RY_HOST_CONFIG_TABLE_H

#include "host/config.h"

enum ry_setting_type {
    RY_SET_U32,
    RY_SET_I32,
    RY_SET_U64,
    RY_SET_HEX32,
    RY_SET_SIZE,
    RY_SET_RATE,
    RY_SET_TIME,
    RY_SET_SWITCH, /* on, off */
    RY_SET_CHOICE,
    RY_SET_TEXT,
    RY_SET_LIST, /* of numbers */
    RY_SET_RATE_LIST,
    RY_SET_LAUNCH, /* environment only: the launcher sets it, or it says where the file is */
};

enum {
    RY_SET_JOB = 1,    /* must be the same on every PE */
    RY_SET_AUTO = 2,   /* `auto` is a value: 0, or -1 for RY_SET_I32 */
    RY_SET_POW2 = 4,   /* a power of two, or auto */
    RY_SET_INVERT = 8, /* the alias means the opposite */
};

struct ry_setting {
    const char *name; /* without RAILYARD_ */
    enum ry_setting_type type;
    uint32_t flags;
    size_t offset;
    const char *initial;
    int64_t min, max;
    const char *const *choices; /* NULL-terminated, in order of their numbers */
    const char *alias;          /* another library's name, or NULL */
    const char *group;          /* begins a group in the manual, or NULL */
    const char *help;
};

extern const struct ry_setting ry_settings[];
extern const uint32_t ry_n_settings;

const struct ry_setting *ry_setting_find(const char *name);

/* Text of a value as the parser takes it; cut to `cap` bytes. */
void ry_setting_format(const struct ry_setting *s, const struct ry_config *c, char *buf,
                       size_t cap);

/* The units or values of a setting, for the manual: "time", "on, off". */
void ry_setting_form(const struct ry_setting *s, char *buf, size_t cap);

/* The known name that is nearest to a wrong one. */
const char *ry_setting_nearest(const char *name);

#endif
