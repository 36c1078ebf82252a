/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "xml.h"

enum {
    XML_DEPTH = 64,      /* nested elements */
    XML_OBJECTS = 40000, /* objects in all */
    XML_ATTRIBUTES = 24, /* attributes of one element */
    XML_VALUE = 1100,    /* bytes of one value: a set of 4096 CPUs */
    XML_NUMBER = 1 << 16 /* greatest CPU, node or bus number */
};

struct span {
    const char *at;
    size_t len;
};

struct element {
    struct span name;
    unsigned attribute_count;
    int closes; /* </name> */
    int empty;  /* <name/> */
    struct span keys[XML_ATTRIBUTES];
    struct span values[XML_ATTRIBUTES];
};

struct reader {
    const char *start;
    const char *at;
    struct ry_text *out;
    char *why;
    size_t why_bytes;
    unsigned depth;
    unsigned skipped; /* depth below an element that is left out, 0: none is */
    unsigned objects;
    unsigned machine_objects; /* Machine elements, one is right */
    struct span open[XML_DEPTH];
};

static int span_is(struct span span, const char *text)
{
    return strlen(text) == span.len && memcmp(span.at, text, span.len) == 0;
}

static int is_one_of(struct span span, const char *const *list)
{
    for (; *list; list++) {
        if (span_is(span, *list))
            return 1;
    }
    return 0;
}

static int fail(struct reader *r, const char *what)
{
    unsigned line = 1;
    for (const char *c = r->start; c < r->at; c++)
        line += *c == '\n';
    if (r->why)
        snprintf(r->why, r->why_bytes, "topology.xml line %u: %s", line, what);
    return RY_ERR_INVALID;
}

static void skip_space(struct reader *r)
{
    r->at += strspn(r->at, " \t\r\n");
}

static int is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static struct span take_name(struct reader *r)
{
    struct span name = {r->at, 0};
    while (is_name_char(r->at[name.len]))
        name.len++;
    r->at += name.len;
    return name;
}

/* Reads one tag from "<" to ">". */
static int take_element(struct reader *r, struct element *e)
{
    *e = (struct element){0};
    r->at++;
    if (*r->at == '/') {
        e->closes = 1;
        r->at++;
    }
    e->name = take_name(r);
    if (e->name.len == 0)
        return fail(r, "a tag without a name");
    for (;;) {
        skip_space(r);
        if (*r->at == '/') {
            e->empty = 1;
            r->at++;
        }
        if (*r->at == '>') {
            r->at++;
            return RY_OK;
        }
        struct span key = take_name(r);
        if (key.len == 0 || e->closes || e->empty || r->at[0] != '=' || r->at[1] != '"')
            return fail(r, "a tag that does not end");
        r->at += 2;
        struct span value = {r->at, strcspn(r->at, "\"<>")};
        if (value.at[value.len] != '"')
            return fail(r, "a value that does not end");
        r->at += value.len + 1;
        if (e->attribute_count == XML_ATTRIBUTES)
            return fail(r, "too many attributes");
        e->keys[e->attribute_count] = key;
        e->values[e->attribute_count++] = value;
    }
}

static struct span value_of(const struct element *e, const char *key)
{
    for (unsigned i = 0; i < e->attribute_count; i++) {
        if (span_is(e->keys[i], key))
            return e->values[i];
    }
    return (struct span){"", 0};
}

/* Only digits of the given kind and separators. */
static int made_of(struct span value, const char *set)
{
    for (size_t i = 0; i < value.len; i++) {
        if (!memchr(set, value.at[i], strlen(set)))
            return 0;
    }
    return value.len > 0;
}

static int number_ok(struct span value, unsigned long long most)
{
    return made_of(value, "0123456789") && value.len < 19 && strtoull(value.at, NULL, 10) <= most;
}

/* "0x0000ffff,0x00000001": words of at most 8 hex digits, the highest first. */
static int bitmap_ok(struct span value)
{
    size_t digits = 0;
    if (value.len > XML_VALUE || !made_of(value, "0123456789abcdefx,"))
        return 0;
    for (size_t i = 0; i < value.len; i++) {
        char c = value.at[i];
        if (c == ',') {
            digits = 0;
        } else if (c == 'x') {
            if (digits != 1 || value.at[i - 1] != '0')
                return 0;
            digits = 0;
        } else if (++digits > 8) {
            return 0;
        }
    }
    return 1;
}

static int bus_ok(struct span value)
{
    unsigned domain, bus, device, function;
    char tail;
    char text[24];
    if (value.len >= sizeof text)
        return 0;
    memcpy(text, value.at, value.len);
    text[value.len] = '\0';
    return sscanf(text, "%8x:%2x:%2x.%1x%c", &domain, &bus, &device, &function, &tail) == 4 &&
           device < 32 && function < 8;
}

static int attribute_ok(struct span key, struct span value)
{
    static const char *const bitmaps[] = {"cpuset",  "complete_cpuset",  "allowed_cpuset",
                                          "nodeset", "complete_nodeset", "allowed_nodeset",
                                          NULL};
    static const char *const numbers[] = {"os_index", "gp_index", "depth",      "cache_linesize",
                                          "kind",     "subkind",  "dont_merge", NULL};
    static const char *const sizes[] = {"cache_size", "local_memory", NULL};
    if (is_one_of(key, bitmaps))
        return bitmap_ok(value);
    if (is_one_of(key, numbers))
        return number_ok(value, XML_NUMBER);
    if (is_one_of(key, sizes))
        return number_ok(value, 1ull << 50);
    if (span_is(key, "cache_type") || span_is(key, "osdev_type"))
        return value.len == 1 && made_of(value, "0123456");
    if (span_is(key, "cache_associativity"))
        return made_of(value, "-0123456789") && value.len < 6;
    if (span_is(key, "pci_busid"))
        return bus_ok(value);
    if (span_is(key, "bridge_type"))
        return span_is(value, "0-1") || span_is(value, "1-1");
    if (span_is(key, "bridge_pci"))
        return made_of(value, "0123456789abcdef:[]-") && value.len == strlen("0000:[00-00]");
    if (span_is(key, "pci_type"))
        return made_of(value, "0123456789abcdef:[] ") && value.len < 40;
    if (span_is(key, "pci_link_speed"))
        return made_of(value, "0123456789.") && value.len < 16;
    return 1; /* type, subtype, name: looked at by the caller */
}

static int is_known_attribute(struct span key)
{
    static const char *const known[] = {"type",
                                        "os_index",
                                        "cpuset",
                                        "complete_cpuset",
                                        "allowed_cpuset",
                                        "nodeset",
                                        "complete_nodeset",
                                        "allowed_nodeset",
                                        "gp_index",
                                        "cache_size",
                                        "depth",
                                        "cache_linesize",
                                        "cache_associativity",
                                        "cache_type",
                                        "local_memory",
                                        "bridge_type",
                                        "bridge_pci",
                                        "pci_busid",
                                        "pci_type",
                                        "pci_link_speed",
                                        "osdev_type",
                                        "name",
                                        "kind",
                                        "subkind",
                                        "dont_merge",
                                        NULL};
    return is_one_of(key, known);
}

/* A value goes out again without what XML or a terminal could take for more than text. */
static void put_value(struct ry_text *out, struct span value)
{
    for (size_t i = 0; i < value.len; i++) {
        unsigned char c = (unsigned char)value.at[i];
        char safe = c >= 0x20 && c < 0x7f && c != '&' && c != '\'' ? (char)c : ' ';
        ry_text_add(out, &safe, 1);
    }
}

static int put_object(struct reader *r, const struct element *e)
{
    ry_text_addf(r->out, "<object");
    for (unsigned i = 0; i < e->attribute_count; i++) {
        if (!is_known_attribute(e->keys[i]))
            continue;
        if (e->values[i].len > XML_VALUE || !attribute_ok(e->keys[i], e->values[i]))
            return fail(r, "a value out of range");
        for (unsigned j = 0; j < i; j++) {
            if (e->keys[j].len == e->keys[i].len &&
                memcmp(e->keys[j].at, e->keys[i].at, e->keys[i].len) == 0)
                return fail(r, "an attribute given twice");
        }
        ry_text_addf(r->out, " %.*s=\"", (int)e->keys[i].len, e->keys[i].at);
        put_value(r->out, e->values[i]);
        ry_text_add(r->out, "\"", 1);
    }
    ry_text_addf(r->out, e->empty ? "/>\n" : ">\n");
    return RY_OK;
}

static int wants_sets(struct span type)
{
    static const char *const with_sets[] = {"Machine", "Package", "Die", "NUMANode", NULL};
    return is_one_of(type, with_sets);
}

/* Caches, cores and threads say nothing about distances; they go, what is inside moves up. */
static int take_object(struct reader *r, const struct element *e)
{
    static const char *const kept[] = {"Machine",  "Package",  "Die",      "NUMANode", "Bridge",
                                       "PCIDev",   "OSDev",    "PU",       "Core",     "Group",
                                       "L1Cache",  "L2Cache",  "L3Cache",  "L4Cache",  "L5Cache",
                                       "L1iCache", "L2iCache", "L3iCache", NULL};
    struct span type = value_of(e, "type");
    if (!is_one_of(type, kept)) {
        r->skipped = r->depth;
        return RY_OK;
    }
    if (++r->objects > XML_OBJECTS)
        return fail(r, "too many objects");
    if (wants_sets(type) && (value_of(e, "cpuset").len == 0 || value_of(e, "nodeset").len == 0))
        return fail(r, "an object without cpuset or nodeset");
    if ((span_is(type, "PU") || span_is(type, "NUMANode")) && value_of(e, "os_index").len == 0)
        return fail(r, "an object without os_index");
    if (span_is(type, "PCIDev") && value_of(e, "pci_busid").len == 0)
        return fail(r, "a PCI device without its address");
    if (span_is(type, "Bridge") &&
        (value_of(e, "bridge_type").len == 0 || value_of(e, "bridge_pci").len == 0))
        return fail(r, "a bridge without its type or buses");
    int is_root = r->depth == 2;
    if (span_is(type, "Machine") != is_root || (is_root && ++r->machine_objects > 1))
        return fail(r, "not exactly one machine at the top");
    return put_object(r, e);
}

static int take_open(struct reader *r, const struct element *e)
{
    if (r->depth == XML_DEPTH)
        return fail(r, "nested too deep");
    r->open[r->depth++] = e->name;
    int status = RY_OK;
    if (r->depth == 1) {
        if (!span_is(e->name, "topology"))
            return fail(r, "not hwloc's topology");
        ry_text_addf(r->out, "<topology version=\"2.0\">\n");
    } else if (!r->skipped) {
        if (span_is(e->name, "object"))
            status = take_object(r, e);
        else
            r->skipped = r->depth;
    }
    return status;
}

static int take_close(struct reader *r, struct span name, int was_empty)
{
    if (r->depth == 0)
        return fail(r, "an end without a beginning");
    struct span open = r->open[r->depth - 1];
    if (open.len != name.len || memcmp(open.at, name.at, name.len) != 0)
        return fail(r, "an end that does not fit its beginning");
    if (!r->skipped && !was_empty)
        ry_text_addf(r->out, "</%.*s>\n", (int)name.len, name.at);
    if (r->skipped == r->depth)
        r->skipped = 0;
    r->depth--;
    return RY_OK;
}

static int take_prologue(struct reader *r)
{
    skip_space(r);
    while (strncmp(r->at, "<?", 2) == 0 || strncmp(r->at, "<!", 2) == 0) {
        size_t len = strcspn(r->at, ">[");
        if (r->at[len] != '>')
            return fail(r, "a prologue that does not end");
        r->at += len + 1;
        skip_space(r);
    }
    return RY_OK;
}

int ry_xml_reduce(const char *xml, struct ry_text *out, char *why, size_t why_bytes)
{
    struct reader r = {.start = xml, .at = xml, .out = out, .why = why, .why_bytes = why_bytes};
    ry_text_addf(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
                      "<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n");
    int status = take_prologue(&r);
    while (status == RY_OK) {
        skip_space(&r);
        if (*r.at != '<')
            break;
        struct element e;
        status = take_element(&r, &e);
        if (status == RY_OK && e.closes) {
            status = take_close(&r, e.name, 0);
        } else if (status == RY_OK) {
            status = take_open(&r, &e);
            if (status == RY_OK && e.empty)
                status = take_close(&r, e.name, 1);
        }
        if (status == RY_OK && r.depth == 0)
            break;
    }
    if (status != RY_OK)
        return status;
    skip_space(&r);
    if (*r.at != '\0' || r.depth != 0 || r.machine_objects != 1)
        return fail(&r, r.depth ? "it ends too early" : "not hwloc's topology");
    return out->failed ? RY_ERR_NO_MEMORY : RY_OK;
}
