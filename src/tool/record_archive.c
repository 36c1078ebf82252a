/* SPDX-License-Identifier: Apache-2.0 */
/* Records as archives. An archive is read into memory only and not trusted. */
#include <archive.h>
#include <archive_entry.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "record.h"

static int say(char *why, size_t why_bytes, const char *what)
{
    snprintf(why, why_bytes, "%s", what);
    return RY_ERR_INVALID;
}

/* Reads one entry, whose size the archive may lie about. */
static int read_entry(struct archive *in, const char *path, ry_facts *into, char *why,
                      size_t why_bytes)
{
    size_t cap = 4096, len = 0;
    char *data = malloc(cap);
    la_ssize_t got = 1;
    while (data && got > 0) {
        if (len == cap) {
            char *bigger = cap < RY_FACT_MAX ? realloc(data, 2 * cap) : NULL;
            if (!bigger)
                break;
            data = bigger;
            cap *= 2;
        }
        got = archive_read_data(in, data + len, cap - len);
        if (got > 0)
            len += (size_t)got;
    }
    int status;
    if (got != 0)
        status = say(why, why_bytes,
                     got < 0 ? "it is cut off or damaged" : "a file in it is too large");
    else
        status = ry_facts_put(into, path, data, len);
    if (status == RY_ERR_NO_MEMORY)
        say(why, why_bytes, "it holds too much for a record");
    else if (got == 0 && status == RY_ERR_INVALID)
        say(why, why_bytes, "a path in it leads outside or is not plain");
    free(data);
    return status;
}

static int read_entries(struct archive *in, ry_facts *into, char *why, size_t why_bytes)
{
    struct archive_entry *entry;
    unsigned count = 0;
    for (;;) {
        int result = archive_read_next_header(in, &entry);
        if (result == ARCHIVE_EOF)
            return count ? RY_OK : say(why, why_bytes, "it is empty");
        if (result != ARCHIVE_OK && result != ARCHIVE_WARN)
            return say(why, why_bytes, "it is no archive, cut off or damaged");
        if (++count > RY_FACT_COUNT)
            return say(why, why_bytes, "it holds too many files for a record");
        const char *path = archive_entry_pathname(entry);
        if (!path)
            return say(why, why_bytes, "a path in it cannot be read");
        while (strncmp(path, "./", 2) == 0)
            path += 2;
        if (archive_entry_filetype(entry) == AE_IFDIR)
            continue;
        if (archive_entry_filetype(entry) != AE_IFREG || archive_entry_hardlink(entry))
            return say(why, why_bytes, "it holds a link or a special file");
        int status = read_entry(in, path, into, why, why_bytes);
        if (status != RY_OK)
            return status;
    }
}

/* An archive may hold the record's folder instead of what is in it. */
static int find_folder(void *arg, const char *path, const void *data, size_t len_bytes)
{
    (void)data, (void)len_bytes;
    char *folder = arg;
    const char *slash = strchr(path, '/');
    if (!slash || strcmp(slash, "/topology.xml") != 0)
        return 0;
    memcpy(folder, path, (size_t)(slash - path) + 1);
    folder[slash - path + 1] = '\0';
    return 1;
}

struct lift {
    const char *folder;
    ry_facts *into;
};

static int lift_one(void *arg, const char *path, const void *data, size_t len_bytes)
{
    const struct lift *lift = arg;
    size_t len = strlen(lift->folder);
    if (strncmp(path, lift->folder, len) == 0)
        return ry_facts_put(lift->into, path + len, data, len_bytes);
    return 0;
}

static int lift_folder(ry_facts *from, ry_facts *into, char *why, size_t why_bytes)
{
    char folder[RY_FACT_PATH] = "";
    if (!ry_facts_has(from, "topology.xml") && !ry_facts_each(from, find_folder, folder))
        return say(why, why_bytes, "it is no record: it has no topology.xml");
    struct lift lift = {folder, into};
    return ry_facts_each(from, lift_one, &lift) ? say(why, why_bytes, "it holds too much") : RY_OK;
}

int ry_tool_read_archive(const void *data, size_t len_bytes, ry_facts *into, char *why,
                         size_t why_bytes)
{
    struct archive *in = archive_read_new();
    ry_facts *raw = NULL;
    why[0] = '\0';
    if (!in || ry_facts_open_empty(&raw) != RY_OK) {
        archive_read_free(in);
        return RY_ERR_NO_MEMORY;
    }
    archive_read_support_format_tar(in);
    archive_read_support_filter_gzip(in);
    int status;
    if (len_bytes == 0)
        status = say(why, why_bytes, "it is empty");
    else if (archive_read_open_memory(in, data, len_bytes) != ARCHIVE_OK)
        status = say(why, why_bytes, "it is no archive (tar, also with gzip)");
    else
        status = read_entries(in, raw, why, why_bytes);
    if (status == RY_OK)
        status = lift_folder(raw, into, why, why_bytes);
    archive_read_free(in);
    ry_facts_close(raw);
    if (status != RY_OK && !why[0])
        say(why, why_bytes, ry_status_text(status));
    return status;
}

static int write_one(void *arg, const char *path, const void *data, size_t len_bytes)
{
    struct archive *out = arg;
    struct archive_entry *entry = archive_entry_new();
    if (!entry)
        return 1;
    archive_entry_set_pathname(entry, path);
    archive_entry_set_size(entry, (la_int64_t)len_bytes);
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_perm(entry, 0644);
    archive_entry_set_mtime(entry, 0, 0);
    int failed = archive_write_header(out, entry) != ARCHIVE_OK ||
                 archive_write_data(out, data, len_bytes) != (la_ssize_t)len_bytes;
    archive_entry_free(entry);
    return failed;
}

int ry_tool_write_archive(const char *command, const char *file, const ry_facts *facts)
{
    struct archive *out = archive_write_new();
    if (!out)
        return ry_tool_error(command, "cannot write '%s': no memory", file);
    archive_write_set_format_ustar(out);
    archive_write_add_filter_gzip(out);
    archive_write_set_options(out, "gzip:!timestamp");
    int failed = archive_write_open_filename(out, file) != ARCHIVE_OK ||
                 ry_facts_each(facts, write_one, out) != 0 ||
                 archive_write_close(out) != ARCHIVE_OK;
    int code = TOOL_OK;
    if (failed) {
        const char *text = archive_error_string(out);
        code = ry_tool_error(command, "cannot write '%s': %s", file, text ? text : "no memory");
    }
    archive_write_free(out);
    return code;
}
