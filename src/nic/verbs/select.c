/* SPDX-License-Identifier: Apache-2.0 */
/* Which ports a selection takes: "mlx5_0:1,mlx5_1,^mlx5_2". A part is DEVICE or DEVICE:PORT; ^
 * before it leaves it out. Without a part that takes something, everything not left out is taken.
 * */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "nic/verbs/verbs_int.h"

struct part {
    char device[RY_NIC_NAME_BYTES];
    uint32_t port; /* 0: every port */
    bool leave_out;
};

/* The part at *p; moves *p behind it and its comma. 1 a part, 0 the end, -1 malformed. */
static int next_part(const char **p, struct part *out)
{
    const char *s = *p;
    size_t len = strcspn(s, ",");
    const char *colon = memchr(s, ':', len);
    size_t name;

    if (!*s)
        return 0;
    *out = (struct part){0};
    if (*s == '^') {
        out->leave_out = true;
        s++;
        len--;
    }
    name = colon ? (size_t)(colon - s) : len;
    if (name == 0 || name >= sizeof(out->device))
        return -1;
    memcpy(out->device, s, name);
    for (size_t i = 0; i < name; i++)
        if (!isalnum((unsigned char)s[i]) && !strchr("_-.", s[i]))
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
    *p = s;
    return 1;
}

int ry_verbs_selects(const char *hca, const char *device, uint32_t port, uint32_t *order)
{
    struct part part;
    uint32_t place = 0;
    int rc, takes = 0, found = 0, out = 0;

    *order = 0;
    if (!hca)
        return 1;
    while ((rc = next_part(&hca, &part)) == 1) {
        bool match = strcmp(part.device, device) == 0 && (part.port == 0 || part.port == port);

        if (part.leave_out) {
            out |= match;
            continue;
        }
        takes = 1;
        place++;
        if (match && !found) {
            found = 1;
            *order = place;
        }
    }
    if (rc < 0)
        return -1;
    return !out && (found || !takes);
}

int ry_verbs_names(const char *hca, const char *device)
{
    struct part part;

    if (!hca)
        return 0;
    while (next_part(&hca, &part) == 1)
        if (!part.leave_out && strcmp(part.device, device) == 0)
            return 1;
    return 0;
}
