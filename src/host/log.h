/* SPDX-License-Identifier: Apache-2.0 */
/* The log: lines on stderr, each written whole by one system call, so that PEs do not mix. */
#ifndef RY_HOST_LOG_H
#define RY_HOST_LOG_H

#include "host/config.h"

/* An object of the context; set once at start, then read by any thread. */
struct ry_log {
    uint32_t level; /* enum ry_debug: what is more than this is not shown */
    int32_t pe;     /* shown before each line; -1: none */
    int fd;
};

static inline struct ry_log ry_log_make(uint32_t level, int32_t pe)
{
    return (struct ry_log){.level = level, .pe = pe, .fd = 2};
}

static inline bool ry_log_wants(const struct ry_log *log, enum ry_debug level)
{
    return (uint32_t)level <= log->level;
}

/* One line: "railyard: pe 3: text". The text is lowercase, without a newline; control characters in
 * it are shown as '?'. Any thread. */
void ry_log(const struct ry_log *log, enum ry_debug level, const char *form, ...)
    __attribute__((format(printf, 3, 4)));

/* Every line of a text as a line of the log. */
void ry_log_lines(const struct ry_log *log, enum ry_debug level, const char *text);

#endif
