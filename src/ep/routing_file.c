/* SPDX-License-Identifier: Apache-2.0 */
/* A recording: JSON lines, read once at opening (every line checked, places marked) and again as
 * its tokens are served. Only one line and a fixed number of marks are held. */
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "ep/routing.h"
#include "ep/validate.h"
#include "host/error.h"

enum { MARKS = 1024, STRIDE_FIRST = 16 };

/* Where the line of token mark_number * stride starts. */
struct mark {
    off_t offset;
    uint64_t lines_before;
};

struct ry_routing_file {
    FILE *stream;
    char *name;
    uint32_t experts; /* 0 while the first pass finds the greatest id */
    uint32_t topk;
    uint64_t tokens;
    uint64_t next; /* token */
    uint64_t line; /* number of the line in `text`, from 1 */
    int64_t greatest;
    bool ends_open; /* the line in `text` has no newline: the file ends with it */
    size_t length;
    uint64_t stride;
    struct mark marks[MARKS];
    char text[RY_ROUTING_LINE_MAX];
};

/* A message about the current line. What it quotes may be hostile, so only printable ASCII
 * passes. */
__attribute__((format(printf, 2, 3))) static int bad_line(const struct ry_routing_file *f,
                                                          const char *format, ...)
{
    char what[RY_ERROR_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    for (char *c = what; *c; c++)
        *c = *c >= ' ' && *c <= '~' ? *c : '?';
    return ry_fail(RY_ERR_CONFIG, "routing file %s: line %llu: %s", f->name,
                   (unsigned long long)f->line, what);
}

/* The next line into text: 1, or 0 at the end, or a status. */
static int line_read(struct ry_routing_file *f)
{
    int c = getc_unlocked(f->stream);
    f->length = 0;
    if (c == EOF)
        return ferror(f->stream) ? bad_line(f, "cannot be read; check the disk") : 0;
    f->line++;
    if (f->line > RY_ROUTING_LINES_MAX)
        return bad_line(f, "more than %u lines; split the file", RY_ROUTING_LINES_MAX);
    for (; c != EOF && c != '\n'; c = getc_unlocked(f->stream)) {
        if (f->length == RY_ROUTING_LINE_MAX)
            return bad_line(f, "longer than %u bytes; is this a routing recording?",
                            RY_ROUTING_LINE_MAX);
        f->text[f->length++] = (char)c;
    }
    f->ends_open = c == EOF;
    return 1;
}

static bool line_is_blank(const struct ry_routing_file *f)
{
    for (size_t i = 0; i < f->length; i++) {
        if (f->text[i] != ' ' && f->text[i] != '\t' && f->text[i] != '\r')
            return false;
    }
    return true;
}

/* The next line that says something: 1, 0 at the end, or a status. */
static int line_next(struct ry_routing_file *f)
{
    int got = line_read(f);
    while (got == 1 && line_is_blank(f))
        got = line_read(f);
    return got;
}

/* The line as a JSON object of the wanted type, or NULL and a message. */
static json_t *line_parse(const struct ry_routing_file *f, const char *type)
{
    json_error_t error;
    json_t *line = json_loadb(f->text, f->length, JSON_REJECT_DUPLICATES, &error);
    if (!line && f->ends_open) {
        bad_line(f, "cut short, the file ends in mid-line; record it again or remove the line");
    } else if (!line) {
        bad_line(f, "not json: %.200s", error.text);
    } else {
        const char *got = json_string_value(json_object_get(line, "type"));
        if (got && strcmp(got, type) == 0)
            return line;
        bad_line(f, "type is %.40s where \"%s\" is expected; is this a routing recording?",
                 got ? got : "missing", type);
    }
    json_decref(line);
    return NULL;
}

static int meta_read(struct ry_routing_file *f, uint32_t topk_wanted)
{
    int got = line_next(f);
    if (got == 0)
        f->line = 1;
    if (got <= 0)
        return got < 0 ? got : bad_line(f, "the file is empty; a meta line is expected");
    json_t *meta = line_parse(f, "meta");
    if (!meta)
        return RY_ERR_CONFIG;
    json_t *topk = json_object_get(meta, "top_k");
    json_int_t value = json_integer_value(topk);
    bool good = json_is_integer(topk) && value >= 1 && value <= (json_int_t)RY_EP_TOPK_MAX;
    json_decref(meta);
    if (!good)
        return bad_line(f, "top_k is missing or not a number from 1 to %u", RY_EP_TOPK_MAX);
    f->topk = (uint32_t)value;
    if (topk_wanted && topk_wanted != f->topk)
        return bad_line(f, "top_k is %u, not %u as asked for; leave out --topk", f->topk,
                        topk_wanted);
    return RY_OK;
}

static int ids_read(struct ry_routing_file *f, const json_t *list, int32_t *ids)
{
    int64_t most = f->experts ? f->experts : RY_EP_EXPERTS_MAX;
    if (!json_is_array(list) || json_array_size(list) != f->topk)
        return bad_line(f, "topk_ids is not a list of %u ids", f->topk);
    for (uint32_t k = 0; k < f->topk; k++) {
        const json_t *item = json_array_get(list, k);
        json_int_t id = json_integer_value(item);
        if (!json_is_integer(item) || id < -1 || id >= most)
            return bad_line(f, "topk_ids[%u] must be an id from -1 to %lld", k,
                            (long long)most - 1);
        for (uint32_t j = 0; id >= 0 && j < k; j++) {
            if (ids[j] == id)
                return bad_line(f, "topk_ids has expert %lld twice; a token may choose it once",
                                (long long)id);
        }
        ids[k] = (int32_t)id;
        f->greatest = id > f->greatest ? id : f->greatest;
    }
    return RY_OK;
}

static int weights_read(const struct ry_routing_file *f, const json_t *list, float *weights)
{
    if (!json_is_array(list) || json_array_size(list) != f->topk)
        return bad_line(f, "topk_weights is not a list of %u numbers", f->topk);
    for (uint32_t k = 0; k < f->topk; k++) {
        const json_t *item = json_array_get(list, k);
        double value = json_number_value(item);
        if (!json_is_number(item) || !(fabs(value) <= 3.4028234663852886e38))
            return bad_line(f, "topk_weights[%u] is not a number that fits a float", k);
        weights[k] = (float)value;
    }
    return RY_OK;
}

/* The route on the current line. */
static int route_parse(struct ry_routing_file *f, int32_t *ids, float *weights)
{
    json_t *route = line_parse(f, "route");
    if (!route)
        return RY_ERR_CONFIG;
    int status = ids_read(f, json_object_get(route, "topk_ids"), ids);
    if (status == RY_OK)
        status = weights_read(f, json_object_get(route, "topk_weights"), weights);
    json_decref(route);
    return status;
}

/* Marks the place of token f->tokens, which line_next will read. With all marks in use every second
 * one is dropped, so that any file needs MARKS of them. */
static int mark_place(struct ry_routing_file *f)
{
    if (f->tokens % f->stride != 0)
        return RY_OK;
    if (f->tokens / f->stride == MARKS) {
        for (size_t i = 0; i < MARKS / 2; i++)
            f->marks[i] = f->marks[2 * i];
        f->stride *= 2;
    }
    struct mark *mark = &f->marks[f->tokens / f->stride];
    mark->offset = ftello(f->stream);
    mark->lines_before = f->line;
    return mark->offset < 0 ? bad_line(f, "cannot be marked; give a regular file") : RY_OK;
}

/* The first pass: every line is checked and the greatest id found. */
static int scan(struct ry_routing_file *f, int32_t *ids, float *weights)
{
    int status = RY_OK;
    while (status == RY_OK) {
        status = mark_place(f);
        if (status != RY_OK)
            return status;
        int got = line_next(f);
        if (got < 0)
            return got;
        if (got == 0)
            break;
        status = route_parse(f, ids, weights);
        f->tokens += status == RY_OK;
    }
    if (status == RY_OK && f->tokens == 0)
        return bad_line(f, "no route line follows; the recording has no tokens");
    return status;
}

static int experts_settle(struct ry_routing_file *f)
{
    uint32_t found = (uint32_t)(f->greatest + 1);
    if (f->experts == 0)
        f->experts = found;
    if (f->experts < f->topk)
        return ry_fail(RY_ERR_INVALID,
                       "routing file %s: %u experts for top-%u: a token cannot choose more experts "
                       "than there are; give the number with --experts",
                       f->name, f->experts, f->topk);
    return RY_OK;
}

static int first_pass(struct ry_routing_file *f, uint32_t topk_wanted)
{
    int status = meta_read(f, topk_wanted);
    if (status != RY_OK)
        return status;
    int32_t *ids = malloc(f->topk * sizeof(*ids));
    float *weights = malloc(f->topk * sizeof(*weights));
    status = ids && weights ? scan(f, ids, weights)
                            : ry_fail(RY_ERR_NO_MEMORY, "no memory for one token's routing");
    free(weights);
    free(ids);
    if (status == RY_OK)
        status = experts_settle(f);
    return status == RY_OK ? ry_routing_file_seek(f, 0) : status;
}

int ry_routing_file_open(FILE *stream, const char *name, const ry_routing_attr *attr,
                         struct ry_routing_file **out)
{
    struct ry_routing_file *f = calloc(1, sizeof(*f));
    char *copy = strdup(name);
    if (!f || !copy) {
        fclose(stream);
        free(copy);
        free(f);
        return ry_fail(RY_ERR_NO_MEMORY, "no memory to read the routing file");
    }
    f->stream = stream;
    f->name = copy;
    f->experts = attr->experts < RY_EP_EXPERTS_MAX ? attr->experts : RY_EP_EXPERTS_MAX;
    f->greatest = -1;
    f->stride = STRIDE_FIRST;
    int status = first_pass(f, attr->topk);
    if (status != RY_OK) {
        ry_routing_file_close(f);
        return status;
    }
    *out = f;
    return RY_OK;
}

void ry_routing_file_close(struct ry_routing_file *f)
{
    if (!f)
        return;
    fclose(f->stream);
    free(f->name);
    free(f);
}

void ry_routing_file_info(const struct ry_routing_file *f, ry_routing_info *info)
{
    info->experts = f->experts;
    info->topk = f->topk;
    info->tokens = f->tokens;
    info->source = f->name;
}

int ry_routing_file_next(struct ry_routing_file *f, int32_t *ids, float *weights)
{
    int got = line_next(f);
    if (got <= 0)
        return got < 0 ? got : bad_line(f, "is missing: the file has become shorter; run again");
    int status = route_parse(f, ids, weights);
    if (status != RY_OK)
        return status;
    f->next++;
    return f->next == f->tokens ? ry_routing_file_seek(f, 0) : RY_OK;
}

int ry_routing_file_seek(struct ry_routing_file *f, uint64_t token)
{
    const struct mark *mark = &f->marks[token / f->stride];
    if (fseeko(f->stream, mark->offset, SEEK_SET) != 0)
        return bad_line(f, "cannot be found again; give a regular file");
    f->line = mark->lines_before;
    for (f->next = token / f->stride * f->stride; f->next < token; f->next++) {
        int got = line_next(f);
        if (got <= 0)
            return got < 0 ? got : bad_line(f, "is missing: the file has become shorter");
    }
    return RY_OK;
}
