/* SPDX-License-Identifier: Apache-2.0 */
/* A growing text with the bound of one fact. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "facts_internal.h"

void ry_text_add(struct ry_text *text, const char *data, size_t len_bytes)
{
    if (text->failed)
        return;
    if (len_bytes > (size_t)RY_FACT_MAX + 1 - text->len) {
        text->failed = 1;
        return;
    }
    if (text->len + len_bytes > text->cap) {
        size_t cap = text->cap ? text->cap : 256;
        while (cap < text->len + len_bytes)
            cap *= 2;
        char *bigger = realloc(text->data, cap);
        if (!bigger) {
            text->failed = 1;
            return;
        }
        text->data = bigger;
        text->cap = cap;
    }
    if (len_bytes)
        memcpy(text->data + text->len, data, len_bytes);
    text->len += len_bytes;
}

void ry_text_addf(struct ry_text *text, const char *format, ...)
{
    char *line = NULL;
    va_list args;
    va_start(args, format);
    int len = vasprintf(&line, format, args);
    va_end(args);
    if (len < 0) {
        text->failed = 1;
        return;
    }
    ry_text_add(text, line, (size_t)len);
    free(line);
}
