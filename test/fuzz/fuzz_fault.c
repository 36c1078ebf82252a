/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a fault plan: a table within its bounds, or one line of printable text that names a
 * column inside the text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <railyard/status.h>

#include "host/fault_spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void require(int good)
{
    if (!good)
        abort();
}

static void check_message(size_t len)
{
    const char *text = ry_last_error();
    unsigned column;

    if (sscanf(text, "fault plan, column %u:", &column) == 1)
        require(column >= 1 && column <= len + 1);
    else
        require(strstr(text, "more than") != NULL);
    for (; *text; text++)
        require(*text >= ' ' && *text <= '~');
}

static void check_event(const struct ry_spec_event *e, size_t len)
{
    require(e->kind < RY_SPEC_KINDS && e->column >= 1 && e->column <= len);
    require(e->p >= 0 && e->p <= 1 && e->factor >= 1 && e->count >= 1 && e->period_ns >= 2000);
    require(e->syndrome <= 255 && e->vendor <= 255);
    require(e->pe != RY_SPEC_ANY || e->rail != RY_SPEC_ANY);
    require(e->kind != RY_SPEC_KILL || (e->pe != RY_SPEC_ANY && e->rail == RY_SPEC_ANY));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct ry_spec spec;
    char *text = malloc(bytes + 1);

    require(text != NULL);
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    size_t len = strlen(text);
    if (ry_spec_parse(text, &spec) != RY_OK) {
        check_message(len);
    } else {
        require(spec.n >= 1 && spec.n <= RY_SPEC_EVENTS_MAX);
        for (uint32_t i = 0; i < spec.n; i++)
            check_event(&spec.event[i], len);
    }
    free(text);
    return 0;
}
