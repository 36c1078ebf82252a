/* SPDX-License-Identifier: Apache-2.0 */
/* Facts: entries kept in memory, laid over a directory or over this machine. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "facts_internal.h"

struct entry {
    char *path;
    char *data; /* NULL hides the path and what is below it */
    size_t len;
};

struct ry_facts {
    int root_fd; /* -1: entries only */
    int live;
    struct entry *entries; /* sorted by path */
    size_t count;
    size_t cap;
    size_t total_bytes;
    ry_facts *recorder;
};

int ry_facts_path_ok(const char *path)
{
    size_t len = strlen(path);
    if (len == 0 || len >= RY_FACT_PATH || path[0] == '/' || path[len - 1] == '/')
        return 0;
    for (const char *part = path; part;) {
        const char *end = strchr(part, '/');
        size_t part_len = end ? (size_t)(end - part) : strlen(part);
        if (part_len == 0 || (part_len == 1 && part[0] == '.') ||
            (part_len == 2 && part[0] == '.' && part[1] == '.'))
            return 0;
        part = end ? end + 1 : NULL;
    }
    for (const char *c = path; *c; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f || *c == '\\')
            return 0;
    }
    return 1;
}

int ry_facts_open_empty(ry_facts **out)
{
    ry_facts *facts = calloc(1, sizeof *facts);
    if (!facts)
        return RY_ERR_NO_MEMORY;
    facts->root_fd = -1;
    *out = facts;
    return RY_OK;
}

int ry_facts_open(const char *root, ry_facts **out)
{
    int live = !root || strcmp(root, "/") == 0;
    int fd = open(live ? "/" : root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return RY_ERR_INVALID;
    ry_facts *facts = NULL;
    int status = ry_facts_open_empty(&facts);
    if (status != RY_OK) {
        close(fd);
        return status;
    }
    facts->root_fd = fd;
    facts->live = live;
    *out = facts;
    return RY_OK;
}

void ry_facts_close(ry_facts *facts)
{
    if (!facts)
        return;
    for (size_t i = 0; i < facts->count; i++) {
        free(facts->entries[i].path);
        free(facts->entries[i].data);
    }
    free(facts->entries);
    if (facts->root_fd >= 0)
        close(facts->root_fd);
    free(facts);
}

int ry_facts_is_live(const ry_facts *facts)
{
    return facts->live;
}

void ry_facts_record(ry_facts *facts, ry_facts *into)
{
    facts->recorder = into;
}

/* Index of the first entry not before `path`. */
static size_t lower_bound(const ry_facts *facts, const char *path)
{
    size_t low = 0, high = facts->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(facts->entries[middle].path, path) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct entry *find_entry(const ry_facts *facts, const char *path)
{
    size_t at = lower_bound(facts, path);
    if (at < facts->count && strcmp(facts->entries[at].path, path) == 0)
        return &facts->entries[at];
    return NULL;
}

/* True if `path` or a folder above it is hidden. A fact laid below a hidden folder shows again. */
static int is_hidden(const ry_facts *facts, const char *path)
{
    char part[RY_FACT_PATH];
    size_t len = strlen(path);
    if (len >= sizeof part)
        return 1;
    memcpy(part, path, len + 1);
    for (;;) {
        const struct entry *entry = find_entry(facts, part);
        if (entry && !entry->data)
            return 1;
        char *slash = strrchr(part, '/');
        if (!slash)
            return 0;
        *slash = '\0';
    }
}

static int insert_entry(ry_facts *facts, size_t at, const char *path)
{
    if (facts->count >= RY_FACT_COUNT)
        return RY_ERR_NO_MEMORY;
    if (facts->count == facts->cap) {
        size_t cap = facts->cap ? 2 * facts->cap : 64;
        struct entry *entries = realloc(facts->entries, cap * sizeof *entries);
        if (!entries)
            return RY_ERR_NO_MEMORY;
        facts->entries = entries;
        facts->cap = cap;
    }
    char *copy = strdup(path);
    if (!copy)
        return RY_ERR_NO_MEMORY;
    memmove(&facts->entries[at + 1], &facts->entries[at],
            (facts->count - at) * sizeof *facts->entries);
    facts->entries[at] = (struct entry){.path = copy};
    facts->count++;
    return RY_OK;
}

/* Forgets entries below `path`, which is to be hidden. */
static void drop_below(ry_facts *facts, const char *path)
{
    size_t len = strlen(path);
    size_t kept = 0;
    for (size_t i = 0; i < facts->count; i++) {
        struct entry *entry = &facts->entries[i];
        if (strncmp(entry->path, path, len) == 0 && entry->path[len] == '/') {
            facts->total_bytes -= entry->len;
            free(entry->path);
            free(entry->data);
        } else {
            facts->entries[kept++] = *entry;
        }
    }
    facts->count = kept;
}

int ry_facts_put(ry_facts *facts, const char *path, const void *data, size_t len_bytes)
{
    if (!ry_facts_path_ok(path))
        return RY_ERR_INVALID;
    if (len_bytes > RY_FACT_MAX || (data && facts->total_bytes + len_bytes > RY_FACT_TOTAL))
        return RY_ERR_NO_MEMORY;
    char *copy = NULL;
    if (data) {
        copy = malloc(len_bytes + 1);
        if (!copy)
            return RY_ERR_NO_MEMORY;
        memcpy(copy, data, len_bytes);
        copy[len_bytes] = '\0';
    } else {
        drop_below(facts, path);
    }
    size_t at = lower_bound(facts, path);
    if (at >= facts->count || strcmp(facts->entries[at].path, path) != 0) {
        int status = insert_entry(facts, at, path);
        if (status != RY_OK) {
            free(copy);
            return status;
        }
    }
    struct entry *entry = &facts->entries[at];
    facts->total_bytes -= entry->len;
    free(entry->data);
    entry->data = copy;
    entry->len = data ? len_bytes : 0;
    facts->total_bytes += entry->len;
    return RY_OK;
}

/* Opens a path below the root. In a record no part may be a link; on this machine /sys is made of
 * them. -1 if there is none. */
static int open_below(const ry_facts *facts, const char *path, int flags)
{
    flags |= O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    if (facts->live)
        return openat(facts->root_fd, path, flags);
    int at = dup(facts->root_fd);
    while (at >= 0) {
        const char *slash = strchr(path, '/');
        char part[RY_FACT_PATH];
        size_t len = slash ? (size_t)(slash - path) : strlen(path);
        memcpy(part, path, len);
        part[len] = '\0';
        int want = slash ? O_RDONLY | O_CLOEXEC | O_DIRECTORY : flags;
        int next = openat(at, part, want | O_NOFOLLOW);
        close(at);
        if (!slash)
            return next;
        at = next;
        path = slash + 1;
    }
    return -1;
}

/* Reads a whole file of at most RY_FACT_MAX bytes. */
static int read_file(const ry_facts *facts, const char *path, struct ry_text *out)
{
    int fd = open_below(facts, path, 0);
    if (fd < 0)
        return -1;
    struct stat st;
    int ok = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    char buffer[8192];
    while (ok) {
        ssize_t got = read(fd, buffer, sizeof buffer);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            ok = got == 0;
            break;
        }
        ry_text_add(out, buffer, (size_t)got);
        if (out->failed)
            ok = 0;
    }
    close(fd);
    return ok ? 0 : -1;
}

/* Gets the bytes at `path`, from the entries, the run-time facts or the files, in this order. */
static int get(ry_facts *facts, const char *path, struct ry_text *out)
{
    const struct entry *entry = find_entry(facts, path);
    if (entry && entry->data) {
        ry_text_add(out, entry->data, entry->len);
        return out->failed ? -1 : 0;
    }
    if (facts->root_fd < 0 || is_hidden(facts, path))
        return -1;
    if (facts->live && ry_facts_is_made(path)) {
        if (ry_facts_make_live(facts, path, out) != 0 || out->failed)
            return -1;
        /* made once: a second reader sees the same */
        ry_facts_put(facts, path, out->data ? out->data : "", out->len);
        return 0;
    }
    return read_file(facts, path, out);
}

static void note(ry_facts *facts, const char *path, const struct ry_text *text)
{
    struct ry_text clean = {0};
    ry_facts_scrub(path, text->data ? text->data : "", text->len, &clean);
    if (!clean.failed)
        ry_facts_put(facts->recorder, path, clean.data ? clean.data : "", clean.len);
    free(clean.data);
}

char *ry_facts_text(ry_facts *facts, const char *path)
{
    if (!ry_facts_path_ok(path))
        return NULL;
    struct ry_text text = {0};
    if (get(facts, path, &text) != 0) {
        free(text.data);
        return NULL;
    }
    if (facts->recorder)
        note(facts, path, &text);
    ry_text_add(&text, "", 1); /* the end of the string */
    if (text.failed || !text.data) {
        free(text.data);
        return NULL;
    }
    size_t len = text.len - 1;
    for (size_t i = 0; i < len; i++) {
        if (text.data[i] == '\0')
            text.data[i] = ' ';
    }
    while (len > 0 && strchr(" \t\r\n", text.data[len - 1]))
        len--;
    text.data[len] = '\0';
    return text.data;
}

char *ry_facts_textf(ry_facts *facts, const char *format, ...)
{
    char path[RY_FACT_PATH];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(path, sizeof path, format, args);
    va_end(args);
    if (len < 0 || (size_t)len >= sizeof path)
        return NULL;
    return ry_facts_text(facts, path);
}

int ry_facts_has(ry_facts *facts, const char *path)
{
    if (!ry_facts_path_ok(path))
        return 0;
    size_t len = strlen(path);
    const struct entry *exact = find_entry(facts, path);
    if (exact)
        return exact->data != NULL;
    for (size_t i = lower_bound(facts, path); i < facts->count; i++) {
        const struct entry *entry = &facts->entries[i];
        if (strncmp(entry->path, path, len) != 0)
            break;
        if (entry->path[len] == '/' && entry->data)
            return 1;
    }
    if (facts->root_fd < 0 || is_hidden(facts, path))
        return 0;
    if (facts->live && ry_facts_is_made(path))
        return 1;
    int fd = open_below(facts, path, O_PATH);
    if (fd < 0)
        return 0;
    close(fd);
    return 1;
}

struct names {
    char **list;
    unsigned count;
    unsigned cap;
};

static void add_name(struct names *names, const char *name, size_t len)
{
    if (len == 0 || names->count >= RY_FACT_NAMES)
        return;
    if (names->count == names->cap) {
        unsigned cap = names->cap ? 2 * names->cap : 32;
        char **list = realloc(names->list, cap * sizeof *list);
        if (!list)
            return;
        names->list = list;
        names->cap = cap;
    }
    char *copy = strndup(name, len);
    if (copy)
        names->list[names->count++] = copy;
}

int ry_names_compare(const char *a, const char *b)
{
    while (*a && *b) {
        if (*a >= '0' && *a <= '9' && *b >= '0' && *b <= '9') {
            char *a_end, *b_end;
            unsigned long x = strtoul(a, &a_end, 10), y = strtoul(b, &b_end, 10);
            if (x != y)
                return x < y ? -1 : 1;
            a = a_end;
            b = b_end;
        } else if (*a != *b) {
            return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
        } else {
            a++;
            b++;
        }
    }
    return *a ? 1 : *b ? -1 : 0;
}

static int compare_names(const void *a, const void *b)
{
    const char *x = *(char *const *)a, *y = *(char *const *)b;
    int order = ry_names_compare(x, y);
    return order ? order : strcmp(x, y);
}

static void list_files(const ry_facts *facts, const char *path, struct names *names)
{
    int fd = open_below(facts, path, O_DIRECTORY);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir) {
        if (fd >= 0)
            close(fd);
        return;
    }
    char full[RY_FACT_PATH];
    for (struct dirent *d = readdir(dir); d && names->count < RY_FACT_NAMES; d = readdir(dir)) {
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
            continue;
        int len = snprintf(full, sizeof full, "%s/%s", path, d->d_name);
        if (len < 0 || (size_t)len >= sizeof full || is_hidden(facts, full))
            continue;
        add_name(names, d->d_name, strlen(d->d_name));
    }
    closedir(dir);
}

static void drop_doubles(struct names *names)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < names->count; i++) {
        if (kept > 0 && strcmp(names->list[kept - 1], names->list[i]) == 0)
            free(names->list[i]);
        else
            names->list[kept++] = names->list[i];
    }
    names->count = kept;
}

unsigned ry_facts_list(ry_facts *facts, const char *path, char ***names_out)
{
    struct names names = {0};
    *names_out = NULL;
    if (!ry_facts_path_ok(path))
        return 0;
    if (facts->root_fd >= 0 && !is_hidden(facts, path))
        list_files(facts, path, &names);
    size_t len = strlen(path);
    for (size_t i = lower_bound(facts, path); i < facts->count; i++) {
        const struct entry *entry = &facts->entries[i];
        if (strncmp(entry->path, path, len) != 0)
            break;
        if (entry->path[len] == '/' && entry->data)
            add_name(&names, entry->path + len + 1, strcspn(entry->path + len + 1, "/"));
    }
    if (names.count == 0) {
        free(names.list);
        return 0;
    }
    qsort(names.list, names.count, sizeof *names.list, compare_names);
    drop_doubles(&names);
    *names_out = names.list;
    return names.count;
}

void ry_facts_free_names(char **names, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        free(names[i]);
    free(names);
}

int ry_facts_each(const ry_facts *facts, ry_facts_each_fn each, void *arg)
{
    for (size_t i = 0; i < facts->count; i++) {
        const struct entry *entry = &facts->entries[i];
        int result = entry->data ? each(arg, entry->path, entry->data, entry->len) : 0;
        if (result)
            return result;
    }
    return 0;
}
