/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes, rates and times as text. Whole-number arithmetic: no locale, no rounding surprises. */
#include <railyard/config.h>

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "host/error.h"

struct unit {
    const char *name;
    uint64_t factor, divisor;
};

static const struct unit size_units[] = {
    {"", 1, 1},
    {"B", 1, 1},
    {"K", 1ull << 10, 1},
    {"KB", 1ull << 10, 1},
    {"KiB", 1ull << 10, 1},
    {"M", 1ull << 20, 1},
    {"MB", 1ull << 20, 1},
    {"MiB", 1ull << 20, 1},
    {"G", 1ull << 30, 1},
    {"GB", 1ull << 30, 1},
    {"GiB", 1ull << 30, 1},
    {"T", 1ull << 40, 1},
    {"TB", 1ull << 40, 1},
    {"TiB", 1ull << 40, 1},
    {NULL, 0, 0},
};

static const struct unit rate_units[] = {
    {"", 1, 1},
    {"B", 1, 1},
    {"kB", 1000, 1},
    {"KB", 1000, 1},
    {"MB", 1000000, 1},
    {"GB", 1000000000, 1},
    {"TB", 1000000000000, 1},
    {"b", 1, 8},
    {"kb", 1000, 8},
    {"Kb", 1000, 8},
    {"Mb", 1000000, 8},
    {"Gb", 1000000000, 8},
    {"Tb", 1000000000000, 8},
    {NULL, 0, 0},
};

static const struct unit time_units[] = {
    {"ns", 1, 1},          {"us", 1000, 1},         {"ms", 1000000, 1},      {"s", 1000000000, 1},
    {"m", 60000000000, 1}, {"min", 60000000000, 1}, {"h", 3600000000000, 1}, {NULL, 0, 0},
};

__extension__ typedef unsigned __int128 wide;

static bool digit(char c) { return c >= '0' && c <= '9'; }

/* "12", "1.5", ".5": whole part and up to nine decimals. Returns what follows, NULL if no number.
 */
static const char *number(const char *text, uint64_t *whole, uint64_t *nano)
{
    const char *p = text;
    uint64_t scale = 100000000;
    bool any = false;

    *whole = *nano = 0;
    for (; digit(*p); p++, any = true) {
        if (__builtin_mul_overflow(*whole, 10, whole) ||
            __builtin_add_overflow(*whole, (uint64_t)(*p - '0'), whole))
            return NULL;
    }
    if (*p == '.') {
        for (p++; digit(*p); p++, any = true) {
            *nano += (uint64_t)(*p - '0') * scale;
            scale /= 10;
        }
    }
    return any ? p : NULL;
}

static int parse(const char *text, const struct unit *units, bool ignore_case, const char *form,
                 uint64_t *out)
{
    uint64_t whole, nano;
    const char *rest = number(text, &whole, &nano);
    const struct unit *u = units;

    if (!rest)
        return ry_fail(RY_ERR_INVALID, "'%.64s' is no %s", text, form);
    while (*rest == ' ')
        rest++;
    while (u->name && (ignore_case ? strcasecmp(rest, u->name) : strcmp(rest, u->name)) != 0)
        u++;
    if (!u->name)
        return ry_fail(RY_ERR_INVALID, "'%.64s' has no unit of a %s", text, form);
    wide v = (wide)whole * u->factor + (wide)nano * u->factor / 1000000000u;

    v /= u->divisor;
    if (v > INT64_MAX)
        return ry_fail(RY_ERR_INVALID, "'%.64s' is too large", text);
    *out = (uint64_t)v;
    return RY_OK;
}

int ry_parse_size(const char *text, uint64_t *bytes)
{
    return parse(text, size_units, true, "size (64K, 1.5G)", bytes);
}

int ry_parse_rate(const char *text, uint64_t *bytes_per_s)
{
    char plain[64];
    size_t len = strlen(text);

    if (strcmp(text, "unlimited") == 0) {
        *bytes_per_s = 0;
        return RY_OK;
    }
    if (len >= sizeof(plain))
        return ry_fail(RY_ERR_INVALID, "'%.64s' is no rate (100MB/s, 400Gb/s)", text);
    memcpy(plain, text, len + 1);
    if (len > 2 && (strcmp(plain + len - 2, "/s") == 0 || strcmp(plain + len - 2, "ps") == 0))
        plain[len - 2] = '\0';
    return parse(plain, rate_units, false, "rate (100MB/s, 400Gb/s)", bytes_per_s);
}

int ry_parse_time(const char *text, uint64_t *ns)
{
    if (strcmp(text, "0") == 0) {
        *ns = 0;
        return RY_OK;
    }
    return parse(text, time_units, false, "time (50ms, 2s)", ns);
}

/* The largest unit of which the value is a whole multiple. */
static void format(uint64_t v, const char *const *names, const uint64_t *factors, size_t n,
                   char *buf, size_t cap)
{
    size_t i = n - 1;

    while (i > 0 && (v == 0 || v % factors[i] != 0))
        i--;
    snprintf(buf, cap, "%" PRIu64 "%s", v / factors[i], names[i]);
}

void ry_format_size(uint64_t bytes, char *buf, size_t cap)
{
    static const char *const names[] = {"", "K", "M", "G", "T"};
    static const uint64_t factors[] = {1, 1ull << 10, 1ull << 20, 1ull << 30, 1ull << 40};

    format(bytes, names, factors, 5, buf, cap);
}

void ry_format_rate(uint64_t bytes_per_s, char *buf, size_t cap)
{
    static const char *const names[] = {"B/s", "KB/s", "MB/s", "GB/s"};
    static const uint64_t factors[] = {1, 1000, 1000000, 1000000000};

    if (bytes_per_s == 0)
        snprintf(buf, cap, "unlimited");
    else
        format(bytes_per_s, names, factors, 4, buf, cap);
}

void ry_format_time(uint64_t ns, char *buf, size_t cap)
{
    static const char *const names[] = {"ns", "us", "ms", "s"};
    static const uint64_t factors[] = {1, 1000, 1000000, 1000000000};

    if (ns == 0)
        snprintf(buf, cap, "0");
    else
        format(ns, names, factors, 4, buf, cap);
}
