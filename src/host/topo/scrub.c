/* SPDX-License-Identifier: Apache-2.0 */
/* What is recorded may be sent to strangers: no addresses, host names, serial numbers, user names.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "facts_internal.h"
#include "xml.h"

static int ends_with(const char *text, const char *end)
{
    size_t a = strlen(text), b = strlen(end);
    return a >= b && strcmp(text + a - b, end) == 0;
}

/* A GID keeps what checks need: whether it is set, and whether it stands for an IPv4 address. */
static void scrub_gid(const char *data, struct ry_text *out)
{
    if (strspn(data, "0:\n") == strlen(data))
        ry_text_addf(out, "0000:0000:0000:0000:0000:0000:0000:0000\n");
    else if (strncmp(data, "0000:0000:0000:0000:0000:ffff:", 30) == 0)
        ry_text_addf(out, "0000:0000:0000:0000:0000:ffff:c000:0201\n");
    else
        ry_text_addf(out, "fe80:0000:0000:0000:0000:0000:0000:0001\n");
}

/* The kernel's command line: only what checks look at. */
static void scrub_cmdline(const char *data, struct ry_text *out)
{
    static const char *const kept[] = {"iommu", "intel_iommu", "amd_iommu", "pci", "nopat"};
    char *copy = strdup(data), *rest = NULL;
    for (char *word = copy ? strtok_r(copy, " \n", &rest) : NULL; word;
         word = strtok_r(NULL, " \n", &rest)) {
        for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
            if (strncmp(word, kept[i], strcspn(word, "=")) == 0 &&
                strcspn(word, "=") == strlen(kept[i]))
                ry_text_addf(out, "%s ", word);
        }
    }
    ry_text_addf(out, "\n");
    free(copy);
}

/* Of a module only its name: the rest holds kernel addresses. */
static void scrub_modules(const char *data, struct ry_text *out)
{
    while (*data) {
        size_t line = strcspn(data, "\n");
        ry_text_addf(out, "%.*s 0 0 - Live 0x0\n", (int)strcspn(data, " \n"), data);
        data += line + (data[line] == '\n');
    }
}

static int is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '-';
}

/* Length of an address at `at`: IPv4, a MAC, or a GUID in four or more groups. 0 if there is none.
 */
static size_t address_length(const char *at, int with_ipv4)
{
    unsigned a, b, c, d;
    int len = 0;
    if (with_ipv4 && sscanf(at, "%3u.%3u.%3u.%3u%n", &a, &b, &c, &d, &len) == 4 && a < 256 &&
        b < 256 && c < 256 && d < 256 && !is_word(at[len]) && at[len] != '.')
        return (size_t)len;
    size_t span = strspn(at, "0123456789abcdefABCDEF:");
    unsigned colons = 0;
    for (size_t i = 0; i < span; i++)
        colons += at[i] == ':';
    if (colons >= 3 && span >= 15 && !is_word(at[span]) && at[span] != '.')
        return span;
    span = strspn(at, "0123456789abcdefABCDEF-"); /* 8-4-4-4-12 */
    return span == 36 && at[8] == '-' && at[13] == '-' && at[18] == '-' && at[23] == '-' ? span
                                                                                         : 0;
}

static void scrub_text(const char *data, size_t len, int with_ipv4, struct ry_text *out)
{
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    size_t host_len = strlen(host);
    for (size_t i = 0; i < len;) {
        int begins = i == 0 || data[i - 1] == '-' || !is_word(data[i - 1]);
        if (begins && host_len > 1 && strncmp(data + i, host, host_len) == 0 &&
            !is_word(data[i + host_len])) {
            ry_text_addf(out, "host");
            i += host_len;
            continue;
        }
        size_t user =
            i > 5 && strncmp(data + i - 6, "/home/", 6) == 0 ? strcspn(data + i, "/: \n") : 0;
        if (user) {
            ry_text_addf(out, "user");
            i += user;
            continue;
        }
        size_t address =
            begins && (i == 0 || data[i - 1] != '.') ? address_length(data + i, with_ipv4) : 0;
        if (address) {
            ry_text_addf(out, "192.0.2.1");
            i += address;
            continue;
        }
        ry_text_add(out, data + i, 1);
        i++;
    }
}

void ry_facts_scrub(const char *path, const char *data, size_t len_bytes, struct ry_text *out)
{
    char *text = malloc(len_bytes + 1);
    if (!text) {
        out->failed = 1;
        return;
    }
    memcpy(text, data, len_bytes);
    text[len_bytes] = '\0';
    size_t len = strlen(text);
    if (strcmp(path, "topology.xml") == 0) {
        if (ry_xml_reduce(text, out, NULL, 0) != RY_OK)
            out->failed = 1;
    } else if (strstr(path, "/gids/")) {
        scrub_gid(text, out);
    } else if (strcmp(path, "proc/cmdline") == 0) {
        scrub_cmdline(text, out);
    } else if (strcmp(path, "proc/modules") == 0) {
        scrub_modules(text, out);
    } else if (ends_with(path, "uevent") || strcmp(path, "facts/gpus") == 0 ||
               strcmp(path, "facts/pcie") == 0) {
        ry_text_add(out, text, len); /* PCI addresses look like network addresses */
    } else {
        /* elsewhere four numbers with dots are a version */
        int with_ipv4 = strcmp(path, "facts/env") == 0 || strcmp(path, "facts/log") == 0 ||
                        strncmp(path, "etc/", 4) == 0;
        scrub_text(text, len, with_ipv4, out);
    }
    free(text);
}
