/* SPDX-License-Identifier: Apache-2.0 */
/* Settings from text: one value, a file, the environment. */
#include "host/config.h"

#include <railyard/config.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/config_table.h"
#include "host/error.h"

extern char **environ;

__attribute__((format(printf, 2, 3))) static void warn(struct ry_config *c, const char *form, ...)
{
    size_t used = strlen(c->warnings), room = sizeof(c->warnings) - used;
    va_list args;

    if (room < 160) /* what does not fit whole is left out */
        return;
    va_start(args, form);
    int n = vsnprintf(c->warnings + used, room, form, args);

    va_end(args);
    if (n < 0 || (size_t)n + 2 > room)
        c->warnings[used] = '\0';
    else
        memcpy(c->warnings + used + n, "\n", 2);
}

static int out_of_range(const struct ry_setting *s, const char *text)
{
    char form[128];

    ry_setting_form(s, form, sizeof(form));
    return ry_fail(RY_ERR_INVALID, "'%.64s' is not one of: %s", text, form);
}

static bool wants_auto(const struct ry_setting *s, const char *text)
{
    return (s->flags & RY_SET_AUTO) && strcasecmp(text, "auto") == 0;
}

static int parse_number(const struct ry_setting *s, const char *text, int64_t *out)
{
    char *end = NULL;

    errno = 0;
    long long v = strtoll(text, &end, s->type == RY_SET_HEX32 ? 16 : 0);

    if (end == text || *end || errno || v < s->min || v > s->max)
        return out_of_range(s, text);
    if ((s->flags & RY_SET_POW2) && (v & (v - 1)) != 0)
        return ry_fail(RY_ERR_INVALID, "%lld is no power of two", v);
    *out = v;
    return RY_OK;
}

static int parse_switch(const char *text, bool *out)
{
    static const char *const yes[] = {"on", "1", "yes", "true"};
    static const char *const no[] = {"off", "0", "no", "false"};

    for (size_t i = 0; i < 4; i++) {
        if (strcasecmp(text, yes[i]) == 0 || strcasecmp(text, no[i]) == 0) {
            *out = strcasecmp(text, yes[i]) == 0;
            return RY_OK;
        }
    }
    return ry_fail(RY_ERR_INVALID, "'%.64s' is neither on nor off", text);
}

static int parse_choice(const struct ry_setting *s, const char *text, uint32_t *out)
{
    for (uint32_t i = 0; s->choices[i]; i++) {
        if (strcasecmp(s->choices[i], text) == 0) {
            *out = i;
            return RY_OK;
        }
    }
    return out_of_range(s, text);
}

static int parse_unit(const struct ry_setting *s, const char *text, uint64_t *out)
{
    uint64_t v = 0;
    int rc = s->type == RY_SET_SIZE   ? ry_parse_size(text, &v)
             : s->type == RY_SET_TIME ? ry_parse_time(text, &v)
                                      : ry_parse_rate(text, &v);

    if (rc < 0)
        return rc;
    if (v < (uint64_t)s->min || v > (uint64_t)s->max)
        return out_of_range(s, text);
    *out = v;
    return RY_OK;
}

static int parse_list(const struct ry_setting *s, const char *text, struct ry_config_list *out)
{
    struct ry_config_list list = {0};
    struct ry_setting entry = *s;

    entry.type = s->type == RY_SET_RATE_LIST ? RY_SET_RATE : RY_SET_U32;
    while (true) {
        size_t len = strcspn(text, ",");
        char item[64];
        int64_t v = 0;

        if (len >= sizeof(item) || list.n == RY_CONFIG_LIST)
            return ry_fail(RY_ERR_INVALID, "a list of more than %d entries, or an overlong entry",
                           RY_CONFIG_LIST);
        memcpy(item, text, len);
        item[len] = '\0';
        int rc = s->type == RY_SET_LIST ? parse_number(&entry, item, &v)
                                        : parse_unit(&entry, item, &list.v[list.n]);

        if (rc < 0)
            return rc;
        if (s->type == RY_SET_LIST)
            list.v[list.n] = (uint64_t)v;
        list.n++;
        if (text[len] == '\0')
            break;
        text += len + 1;
    }
    *out = list;
    return RY_OK;
}

static int parse_text(const char *text, char *out)
{
    size_t len = strlen(text);

    if (len >= RY_CONFIG_TEXT)
        return ry_fail(RY_ERR_INVALID, "%zu bytes of text, at most %d", len, RY_CONFIG_TEXT - 1);
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)text[i] < ' ' || text[i] == 127)
            return ry_fail(RY_ERR_INVALID, "a control character in the text");
    }
    memcpy(out, text, len + 1);
    return RY_OK;
}

static int set_auto(const struct ry_setting *s, void *field)
{
    if (s->type == RY_SET_TIME)
        *(uint64_t *)field = 0;
    else if (s->type == RY_SET_I32)
        *(int32_t *)field = -1;
    else if (s->type == RY_SET_LIST)
        ((struct ry_config_list *)field)->n = 0;
    else
        *(uint32_t *)field = 0;
    return RY_OK;
}

static int set_field(const struct ry_setting *s, void *field, const char *text)
{
    int64_t v = 0;
    int rc = RY_OK;

    if (wants_auto(s, text))
        return set_auto(s, field);
    switch (s->type) {
    case RY_SET_SIZE:
    case RY_SET_RATE:
    case RY_SET_TIME:
        return parse_unit(s, text, field);
    case RY_SET_SWITCH:
        return parse_switch(text, field);
    case RY_SET_CHOICE:
        return parse_choice(s, text, field);
    case RY_SET_TEXT:
        return parse_text(text, field);
    case RY_SET_LIST:
    case RY_SET_RATE_LIST:
        return parse_list(s, text, field);
    case RY_SET_LAUNCH:
        return ry_fail(RY_ERR_INVALID, "it belongs into the environment only");
    default:
        rc = parse_number(s, text, &v);
    }
    if (rc < 0)
        return rc;
    if (s->type == RY_SET_U64)
        *(uint64_t *)field = (uint64_t)v;
    else if (s->type == RY_SET_I32)
        *(int32_t *)field = (int32_t)v;
    else
        *(uint32_t *)field = (uint32_t)v;
    return RY_OK;
}

static int assign(struct ry_config *c, const struct ry_setting *s, const char *value,
                  enum ry_setting_source from)
{
    int rc = set_field(s, (uint8_t *)c + s->offset, value);

    if (rc == RY_OK)
        c->source[s - ry_settings] = (uint8_t)from;
    return rc;
}

static int unknown(const char *where, const char *name)
{
    return ry_fail(RY_ERR_CONFIG, "%s: no setting is called '%.64s': did you mean %s?", where, name,
                   ry_setting_nearest(name));
}

static int refuse(const char *where, const struct ry_setting *s)
{
    char why[RY_ERROR_BYTES];

    snprintf(why, sizeof(why), "%s", ry_last_error());
    return ry_fail(RY_ERR_CONFIG, "%s: RAILYARD_%s: %.300s", where, s->name, why);
}

static int set_from(struct ry_config *c, const char *name, const char *value, const char *where,
                    enum ry_setting_source from)
{
    const struct ry_setting *s = ry_setting_find(name);

    if (!s)
        return unknown(where, name);
    return assign(c, s, value, from) < 0 ? refuse(where, s) : RY_OK;
}

enum ry_setting_source ry_config_source(const struct ry_config *c, const char *name)
{
    const struct ry_setting *s = ry_setting_find(name);

    return s ? (enum ry_setting_source)c->source[s - ry_settings] : RY_FROM_DEFAULT;
}

int ry_config_set(struct ry_config *c, const char *name, const char *value,
                  enum ry_setting_source from)
{
    return set_from(c, name, value, from == RY_FROM_ENV ? "environment" : "setting", from);
}

void ry_config_defaults(struct ry_config *out)
{
    memset(out, 0, sizeof(*out));
    for (uint32_t i = 0; i < ry_n_settings; i++) {
        const struct ry_setting *s = &ry_settings[i];

        if (s->type != RY_SET_LAUNCH && assign(out, s, s->initial, RY_FROM_DEFAULT) < 0)
            abort(); /* the table contradicts itself: a bug of ours, seen by the first test */
    }
}

static bool blank(char ch) { return ch == ' ' || ch == '\t' || ch == '\r'; }

/* Cuts blanks off both ends; in place. */
static char *trim(char *text)
{
    while (blank(*text))
        text++;
    size_t len = strlen(text);

    while (len > 0 && blank(text[len - 1]))
        text[--len] = '\0';
    return text;
}

static int parse_line(struct ry_config *c, char *line, const char *where)
{
    char *name = trim(line);

    if (*name == '#' || *name == '\0')
        return RY_OK;
    char *equals = strchr(name, '=');

    if (!equals)
        return ry_fail(RY_ERR_CONFIG, "%s: no '=' in the line: write NAME = VALUE", where);
    *equals = '\0';
    return set_from(c, trim(name), trim(equals + 1), where, RY_FROM_FILE);
}

int ry_config_parse(struct ry_config *c, const char *text, size_t len, const char *where)
{
    char line[RY_CONFIG_TEXT + 64], place[320];
    size_t at = 0;

    for (unsigned number = 1; at < len; number++) {
        const char *newline = memchr(text + at, '\n', len - at);
        size_t n = newline ? (size_t)(newline - text) - at : len - at;

        snprintf(place, sizeof(place), "%.256s:%u", where, number);
        if (n >= sizeof(line))
            return ry_fail(RY_ERR_CONFIG, "%s: a line of %zu bytes, at most %zu", place, n,
                           sizeof(line) - 1);
        if (memchr(text + at, '\0', n))
            return ry_fail(RY_ERR_CONFIG, "%s: a byte 0 in the line: is this a text file?", place);
        memcpy(line, text + at, n);
        line[n] = '\0';
        int rc = parse_line(c, line, place);

        if (rc < 0)
            return rc;
        at += n + 1;
    }
    return RY_OK;
}

static int read_whole(int fd, const char *path, char *buf, size_t *len)
{
    struct stat st;

    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return ry_fail(RY_ERR_CONFIG, "%s: no regular file: see RAILYARD_CONFIG", path);
    *len = 0;
    while (*len <= RY_CONFIG_FILE_MAX) {
        ssize_t n = read(fd, buf + *len, (size_t)RY_CONFIG_FILE_MAX + 1 - *len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return ry_fail(RY_ERR_CONFIG, "%s: cannot be read: %s", path, strerror(errno));
        if (n == 0)
            return RY_OK;
        *len += (size_t)n;
    }
    return ry_fail(RY_ERR_CONFIG, "%s: more than %d bytes", path, RY_CONFIG_FILE_MAX);
}

static int load_file(struct ry_config *c)
{
    const char *named = getenv("RAILYARD_CONFIG"), *home = getenv("HOME");
    char path[sizeof(c->file)];
    int n = named && *named
                ? snprintf(path, sizeof(path), "%s", named)
                : snprintf(path, sizeof(path), "%s/.config/railyard.conf", home ? home : "");

    if (n < 0 || (size_t)n >= sizeof(path))
        return ry_fail(RY_ERR_CONFIG, "RAILYARD_CONFIG: a path of more than %zu bytes",
                       sizeof(path) - 1);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd < 0 && !(named && *named))
        return RY_OK;
    if (fd < 0)
        return ry_fail(RY_ERR_CONFIG, "%s: cannot be opened: %s: see RAILYARD_CONFIG", path,
                       strerror(errno));
    char *text = malloc((size_t)RY_CONFIG_FILE_MAX + 1);
    size_t len = 0;
    int rc = text ? read_whole(fd, path, text, &len) : ry_fail(RY_ERR_NO_MEMORY, "no memory");

    if (rc == RY_OK)
        rc = ry_config_parse(c, text, len, path);
    if (rc == RY_OK)
        memcpy(c->file, path, sizeof(path));
    free(text);
    close(fd);
    return rc;
}

/* Another library's variable is taken if it makes sense here; it was not written for us, so if not
 * it is only mentioned. */
static void load_alias(struct ry_config *c, const struct ry_setting *s)
{
    const char *value = getenv(s->alias);
    bool on = false;

    if (!value || !*value)
        return;
    if ((s->flags & RY_SET_AUTO) && strcmp(value, "0") == 0 && s->min > 0)
        value = "auto";
    if ((s->flags & RY_SET_AUTO) && strcmp(value, "-1") == 0)
        value = "auto";
    if ((s->flags & RY_SET_INVERT) && parse_switch(value, &on) == RY_OK)
        value = on ? "off" : "on";
    if (assign(c, s, value, RY_FROM_ALIAS) < 0)
        warn(c, "%s is not taken for RAILYARD_%s: %.80s", s->alias, s->name, ry_last_error());
}

static int load_environment(struct ry_config *c)
{
    for (uint32_t i = 0; i < ry_n_settings; i++) {
        if (ry_settings[i].alias)
            load_alias(c, &ry_settings[i]);
    }
    for (char **e = environ; e && *e; e++) {
        const char *equals = strchr(*e, '=');
        char name[80];

        if (strncmp(*e, "RAILYARD_", 9) != 0 || !equals)
            continue;
        snprintf(name, sizeof(name), "%.*s", (int)(equals - *e), *e);
        const struct ry_setting *s = ry_setting_find(name);

        if (!s) {
            warn(c, "%s is no setting: did you mean RAILYARD_%s?", name, ry_setting_nearest(name));
            continue;
        }
        if (s->type == RY_SET_LAUNCH)
            continue;
        int rc = set_from(c, name, equals + 1, "environment", RY_FROM_ENV);

        if (rc < 0)
            return rc;
    }
    return RY_OK;
}

static int load_calls(struct ry_config *c, const char *const *settings, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const char *equals = strchr(settings[i], '=');
        char name[80];

        if (!equals || (size_t)(equals - settings[i]) >= sizeof(name))
            return ry_fail(RY_ERR_CONFIG, "setting '%.64s': write NAME=VALUE", settings[i]);
        memcpy(name, settings[i], (size_t)(equals - settings[i]));
        name[equals - settings[i]] = '\0';
        int rc = ry_config_set(c, name, equals + 1, RY_FROM_CALL);

        if (rc < 0)
            return rc;
    }
    return RY_OK;
}

static int check_whole(const struct ry_config *c)
{
    if (c->recovery_interval_ns > c->recovery_interval_max_ns)
        return ry_fail(RY_ERR_CONFIG,
                       "RAILYARD_RECOVERY_INTERVAL (%" PRIu64 "ns) is greater than "
                       "RAILYARD_RECOVERY_INTERVAL_MAX (%" PRIu64 "ns)",
                       c->recovery_interval_ns, c->recovery_interval_max_ns);
    return RY_OK;
}

int ry_config_load(struct ry_config *out, const char *const *settings, uint32_t n)
{
    struct ry_config *c = malloc(sizeof(*c));

    if (!c)
        return ry_fail(RY_ERR_NO_MEMORY, "no memory for the settings");
    ry_config_defaults(c);
    int rc = load_file(c);

    if (rc == RY_OK)
        rc = load_environment(c);
    if (rc == RY_OK)
        rc = load_calls(c, settings, n);
    if (rc == RY_OK)
        rc = check_whole(c);
    if (rc == RY_OK)
        *out = *c;
    free(c);
    return rc;
}
