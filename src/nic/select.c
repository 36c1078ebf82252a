/* SPDX-License-Identifier: Apache-2.0 */
#include "nic/select.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Letters, digits and "_-." are a name; a * may end it. */
static bool take_device(struct ry_select_part *part, const char *text, size_t len)
{
    if (len > 0 && text[len - 1] == '*') {
        part->any_rest = true;
        len--;
    }
    if (len == 0 || len >= sizeof(part->device))
        return false;
    memcpy(part->device, text, len);
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)text[i]) && !strchr("_-.", text[i]))
            return false;
    return true;
}

int ry_select_next(const char **at, struct ry_select_part *out)
{
    const char *s = *at;
    size_t len = strcspn(s, ",");
    const char *colon = memchr(s, ':', len);

    if (!*s)
        return 0;
    *out = (struct ry_select_part){0};
    if (*s == '^') {
        out->leave_out = true;
        s++;
        len--;
    }
    if (!take_device(out, s, colon ? (size_t)(colon - s) : len))
        return -1;
    if (colon) {
        char *end;
        unsigned long port = strtoul(colon + 1, &end, 10);

        if (!isdigit((unsigned char)colon[1]) || end != s + len || port < 1 || port > 255)
            return -1;
        out->port = (uint32_t)port;
    }
    s += len;
    if (*s == ',') {
        s++;
        if (!*s)
            return -1;
    }
    *at = s;
    return 1;
}

bool ry_select_meets(const struct ry_select_part *part, const char *device, uint32_t port)
{
    size_t len = strlen(part->device);

    return strncmp(part->device, device, len) == 0 && (part->any_rest || device[len] == '\0') &&
           (part->port == 0 || part->port == port);
}

int ry_select_takes(const char *hca, const char *device, uint32_t port, uint32_t *order)
{
    struct ry_select_part part;
    uint32_t place = 0;
    int rc, found = 0, out = 0;

    *order = 0;
    if (!hca)
        return 1;
    while ((rc = ry_select_next(&hca, &part)) == 1) {
        bool met = ry_select_meets(&part, device, port);

        if (part.leave_out) {
            out |= met;
            continue;
        }
        place++;
        if (met && !found) {
            found = 1;
            *order = place;
        }
    }
    if (rc < 0)
        return -1;
    return !out && (found || place == 0);
}

bool ry_select_names(const char *hca, const char *device)
{
    struct ry_select_part part;

    while (hca && ry_select_next(&hca, &part) == 1)
        if (!part.leave_out && !part.any_rest && strcmp(part.device, device) == 0)
            return true;
    return false;
}
