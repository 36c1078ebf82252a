/* SPDX-License-Identifier: Apache-2.0 */
#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "xml.h"

enum {
    XML_DEPTH = 64,      /* nested elements */
    XML_OBJECTS = 40000, /* objects in all */
    XML_ATTRIBUTES = 24, /* attributes of one element */
    XML_VALUE = 3000,    /* bytes of one value: a set of all CPUs */
    XML_NUMBER = 1 << 13 /* CPUs or nodes, at most */
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

/* What is known of an open object. I/O objects have no sets. */
struct open_object {
    struct span name; /* of the element */
    struct span type; /* empty for other elements */
    hwloc_bitmap_t cpus, nodes;
    hwloc_bitmap_t taken; /* CPUs of the children so far, which may not overlap */
    int is_kept;          /* it was written, so its end has to be */
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
    hwloc_bitmap_t all_cpus;  /* of threads seen */
    hwloc_bitmap_t all_nodes; /* of memory nodes seen */
    hwloc_bitmap_t machine_cpus, machine_nodes;
    struct open_object open[XML_DEPTH];
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

/* Attributes of I/O objects that are passed on as they are. */
static int io_attribute_ok(struct span key, struct span value, int *is_known)
{
    *is_known = 1;
    if (span_is(key, "depth"))
        return number_ok(value, XML_DEPTH);
    if (span_is(key, "osdev_type"))
        return value.len == 1 && made_of(value, "0123456");
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
    if (span_is(key, "name"))
        return value.len < 64;
    *is_known = 0;
    return 1;
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

static int put_io_object(struct reader *r, const struct element *e)
{
    ry_text_addf(r->out, "<object gp_index=\"%u\" type=\"%.*s\"", r->objects,
                 (int)value_of(e, "type").len, value_of(e, "type").at);
    for (unsigned i = 0; i < e->attribute_count; i++) {
        int is_known;
        if (!io_attribute_ok(e->keys[i], e->values[i], &is_known))
            return fail(r, "a value out of range");
        for (unsigned j = 0; j < i; j++) {
            if (e->keys[j].len == e->keys[i].len &&
                memcmp(e->keys[j].at, e->keys[i].at, e->keys[i].len) == 0)
                return fail(r, "an attribute given twice");
        }
        if (!is_known)
            continue;
        ry_text_addf(r->out, " %.*s=\"", (int)e->keys[i].len, e->keys[i].at);
        put_value(r->out, e->values[i]);
        ry_text_add(r->out, "\"", 1);
    }
    ry_text_addf(r->out, e->empty ? "/>\n" : ">\n");
    return RY_OK;
}

static int take_io_object(struct reader *r, const struct element *e)
{
    struct span type = value_of(e, "type"), kind = value_of(e, "bridge_type");
    int is_bridge = span_is(type, "Bridge"), is_device = span_is(type, "PCIDev");
    struct span above = r->depth > 1 ? r->open[r->depth - 2].type : (struct span){"", 0};
    if (span_is(above, "OSDev") || (span_is(above, "PCIDev") && !span_is(type, "OSDev")))
        return fail(r, "an I/O object where none can be");
    if (is_device && (value_of(e, "pci_busid").len == 0 || value_of(e, "pci_type").len == 0))
        return fail(r, "a PCI device without its address or type");
    if (is_bridge &&
        (kind.len == 0 || value_of(e, "bridge_pci").len == 0 || value_of(e, "depth").len == 0))
        return fail(r, "a bridge without its type, depth or buses");
    if (is_bridge && span_is(kind, "1-1") &&
        (value_of(e, "pci_busid").len == 0 || value_of(e, "pci_type").len == 0))
        return fail(r, "a PCI bridge without its address or type");
    if (is_bridge && span_is(kind, "0-1") == span_is(above, "Bridge"))
        return fail(r, "a bridge of the wrong kind for its place");
    if (span_is(type, "OSDev") &&
        (value_of(e, "osdev_type").len == 0 || value_of(e, "name").len == 0))
        return fail(r, "an OS device without type or name");
    return put_io_object(r, e);
}

static hwloc_bitmap_t read_set(struct span value)
{
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    char text[XML_VALUE + 1];
    memcpy(text, value.at, value.len);
    text[value.len] = '\0';
    if (set && (hwloc_bitmap_sscanf(set, text) != 0 || hwloc_bitmap_last(set) >= XML_NUMBER)) {
        hwloc_bitmap_free(set);
        return NULL;
    }
    return set;
}

static void put_set(struct ry_text *out, const char *name, hwloc_bitmap_t set)
{
    char *text = NULL;
    if (hwloc_bitmap_asprintf(&text, set) < 0) {
        out->failed = 1;
        return;
    }
    ry_text_addf(out, " %s=\"%s\" complete_%s=\"%s\"", name, text, name, text);
    free(text);
}

/* A thread's and a memory node's own sets are their number; others name theirs. */
static int read_sets(struct reader *r, const struct element *e, struct open_object *object)
{
    struct span cpus = value_of(e, "cpuset"), nodes = value_of(e, "nodeset");
    struct span index = value_of(e, "os_index");
    int is_thread = span_is(object->type, "PU"), is_node = span_is(object->type, "NUMANode");
    unsigned number = 0;
    if ((is_thread || is_node) && !number_ok(index, XML_NUMBER - 1))
        return fail(r, "an object without its number");
    if (index.len && number_ok(index, XML_NUMBER - 1))
        number = (unsigned)strtoul(index.at, NULL, 10);
    if (!bitmap_ok(cpus) || !bitmap_ok(nodes))
        return fail(r, "an object without cpuset or nodeset");
    object->cpus = read_set(cpus);
    object->nodes = read_set(nodes);
    object->taken = hwloc_bitmap_alloc();
    if (!object->cpus || !object->nodes || !object->taken)
        return fail(r, "a cpuset or nodeset out of range");
    hwloc_bitmap_t own = is_thread ? object->cpus : object->nodes;
    hwloc_bitmap_t seen = is_thread ? r->all_cpus : r->all_nodes;
    if (is_thread || is_node) {
        if (hwloc_bitmap_isset(seen, number))
            return fail(r, "a number given twice");
        hwloc_bitmap_only(own, number);
        hwloc_bitmap_set(seen, number);
    }
    return RY_OK;
}

/* Whether an object may stand where it does; notes the CPUs that its parent has given away. */
static int check_place(struct reader *r, const struct open_object *object)
{
    int is_machine = span_is(object->type, "Machine");
    if (r->depth < 2 || (r->depth == 2) != is_machine || (is_machine && ++r->machine_objects > 1))
        return fail(r, "not exactly one machine at the top");
    if (is_machine) {
        r->machine_cpus = hwloc_bitmap_dup(object->cpus);
        r->machine_nodes = hwloc_bitmap_dup(object->nodes);
        return r->machine_cpus && r->machine_nodes ? RY_OK : RY_ERR_NO_MEMORY;
    }
    unsigned at = r->depth - 2;
    while (at > 0 && !r->open[at].is_kept) /* what is left out moves its children up */
        at--;
    struct open_object *above = &r->open[at];
    if (!above->cpus || span_is(above->type, "PU") || span_is(above->type, "NUMANode"))
        return fail(r, "an object where none can be");
    for (unsigned i = 2; i + 1 < r->depth; i++) {
        if (r->open[i].is_kept && r->open[i].type.len == object->type.len &&
            !span_is(object->type, "Group") &&
            memcmp(r->open[i].type.at, object->type.at, object->type.len) == 0)
            return fail(r, "an object inside another of its kind");
    }
    if (!hwloc_bitmap_isincluded(object->cpus, above->cpus) ||
        !hwloc_bitmap_isincluded(object->nodes, above->nodes))
        return fail(r, "an object that is not inside the one above it");
    if (span_is(object->type, "NUMANode"))
        return RY_OK;
    if (hwloc_bitmap_iszero(object->cpus) || hwloc_bitmap_intersects(object->cpus, above->taken))
        return fail(r, "CPUs given twice");
    return hwloc_bitmap_or(above->taken, above->taken, object->cpus) == 0 ? RY_OK
                                                                          : RY_ERR_NO_MEMORY;
}

static int take_normal_object(struct reader *r, const struct element *e,
                              struct open_object *object)
{
    struct span index = value_of(e, "os_index");
    int status = read_sets(r, e, object);
    if (status == RY_OK)
        status = check_place(r, object);
    if (status != RY_OK)
        return status;
    ry_text_addf(r->out, "<object gp_index=\"%u\" type=\"%.*s\"", r->objects,
                 (int)object->type.len, object->type.at);
    if (number_ok(index, XML_NUMBER - 1))
        ry_text_addf(r->out, " os_index=\"%lu\"", strtoul(index.at, NULL, 10));
    put_set(r->out, "cpuset", object->cpus);
    put_set(r->out, "nodeset", object->nodes);
    ry_text_addf(r->out, e->empty ? "/>\n" : ">\n");
    return RY_OK;
}

/* Cores and caches say nothing about distances; they go, what is inside them moves up. */
static int take_object(struct reader *r, const struct element *e, struct open_object *object)
{
    static const char *const normal[] = {"Machine",  "Package", "Die", "Group",
                                         "NUMANode", "PU",      NULL};
    static const char *const io[] = {"Bridge", "PCIDev", "OSDev", NULL};
    static const char *const flat[] = {"Core",    "L1Cache",  "L2Cache",  "L3Cache",  "L4Cache",
                                       "L5Cache", "L1iCache", "L2iCache", "L3iCache", NULL};
    object->type = value_of(e, "type");
    if (++r->objects > XML_OBJECTS)
        return fail(r, "too many objects");
    if (is_one_of(object->type, flat))
        return RY_OK;
    object->is_kept = 1;
    if (is_one_of(object->type, normal))
        return take_normal_object(r, e, object);
    if (is_one_of(object->type, io) && r->depth > 2)
        return take_io_object(r, e);
    object->is_kept = 0;
    r->skipped = r->depth;
    return RY_OK;
}

static int take_open(struct reader *r, const struct element *e)
{
    if (r->depth == XML_DEPTH)
        return fail(r, "nested too deep");
    struct open_object *object = &r->open[r->depth++];
    *object = (struct open_object){.name = e->name};
    if (r->depth == 1) {
        if (!span_is(e->name, "topology") || e->empty)
            return fail(r, "not hwloc's topology");
        ry_text_addf(r->out, "<topology version=\"2.0\">\n");
        object->is_kept = 1;
        return RY_OK;
    }
    if (r->skipped)
        return RY_OK;
    if (span_is(e->name, "object"))
        return take_object(r, e, object);
    r->skipped = r->depth;
    return RY_OK;
}

static void forget(struct open_object *object)
{
    hwloc_bitmap_free(object->cpus);
    hwloc_bitmap_free(object->nodes);
    hwloc_bitmap_free(object->taken);
}

static int take_close(struct reader *r, struct span name, int was_empty)
{
    if (r->depth == 0)
        return fail(r, "an end without a beginning");
    struct open_object *object = &r->open[r->depth - 1];
    if (object->name.len != name.len || memcmp(object->name.at, name.at, name.len) != 0)
        return fail(r, "an end that does not fit its beginning");
    if (object->is_kept && !was_empty)
        ry_text_addf(r->out, "</%.*s>\n", (int)name.len, name.at);
    if (r->skipped == r->depth)
        r->skipped = 0;
    forget(object);
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

static int read_all(struct reader *r)
{
    int status = take_prologue(r);
    while (status == RY_OK) {
        skip_space(r);
        if (*r->at != '<')
            break;
        struct element e;
        status = take_element(r, &e);
        if (status == RY_OK && e.closes) {
            status = take_close(r, e.name, 0);
        } else if (status == RY_OK) {
            status = take_open(r, &e);
            if (status == RY_OK && e.empty)
                status = take_close(r, e.name, 1);
        }
        if (status == RY_OK && r->depth == 0)
            break;
    }
    if (status != RY_OK)
        return status;
    skip_space(r);
    if (*r->at != '\0' || r->depth != 0 || r->machine_objects != 1)
        return fail(r, r->depth ? "it ends too early" : "not hwloc's topology");
    if (!hwloc_bitmap_isequal(r->all_cpus, r->machine_cpus) ||
        !hwloc_bitmap_isequal(r->all_nodes, r->machine_nodes))
        return fail(r, "the machine's sets are not those of its threads and nodes");
    return r->out->failed ? RY_ERR_NO_MEMORY : RY_OK;
}

int ry_xml_reduce(const char *xml, struct ry_text *out, char *why, size_t why_bytes)
{
    struct reader *r = calloc(1, sizeof *r);
    if (!r)
        return RY_ERR_NO_MEMORY;
    *r = (struct reader){.start = xml, .at = xml, .out = out, .why = why, .why_bytes = why_bytes};
    r->all_cpus = hwloc_bitmap_alloc();
    r->all_nodes = hwloc_bitmap_alloc();
    ry_text_addf(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
                      "<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n");
    int status = r->all_cpus && r->all_nodes ? read_all(r) : RY_ERR_NO_MEMORY;
    while (r->depth > 0)
        forget(&r->open[--r->depth]);
    hwloc_bitmap_free(r->all_cpus);
    hwloc_bitmap_free(r->all_nodes);
    hwloc_bitmap_free(r->machine_cpus);
    hwloc_bitmap_free(r->machine_nodes);
    free(r);
    return status;
}
