/* SPDX-License-Identifier: Apache-2.0 */
#include "host/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LINE_BYTES = 1024 };

static void put(int fd, const char *line, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, line, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return; /* nobody reads: the job matters more than its log */
        line += n;
        len -= (size_t)n;
    }
}

void ry_log(const struct ry_log *log, enum ry_debug level, const char *form, ...)
{
    char line[LINE_BYTES];
    va_list args;
    int used = log->pe >= 0 ? snprintf(line, sizeof(line), "railyard: pe %d: ", log->pe)
                            : snprintf(line, sizeof(line), "railyard: ");

    if (!ry_log_wants(log, level))
        return;
    va_start(args, form);
    int n = vsnprintf(line + used, sizeof(line) - (size_t)used, form, args);

    va_end(args);
    if (n < 0)
        return;
    size_t len = strlen(line);

    if (len > sizeof(line) - 2)
        len = sizeof(line) - 2;
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)line[i] < ' ')
            line[i] = '?';
    }
    line[len++] = '\n';
    put(log->fd, line, len);
}

void ry_log_lines(const struct ry_log *log, enum ry_debug level, const char *text)
{
    while (*text) {
        size_t len = strcspn(text, "\n");

        if (len > 0)
            ry_log(log, level, "%.*s", (int)len, text);
        text += len + (text[len] == '\n');
    }
}
