/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a set of facts, shared by facts.c, the live facts and the scrubber. */
#ifndef RY_HOST_TOPO_FACTS_INTERNAL_H
#define RY_HOST_TOPO_FACTS_INTERNAL_H

#include <railyard/facts.h>

/* A growing text; once `failed` it stays as it is and counts as no fact. */
struct ry_text {
    char *data;
    size_t len;
    size_t cap;
    int failed;
};

void ry_text_addf(struct ry_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void ry_text_add(struct ry_text *text, const char *data, size_t len_bytes);

/* True for a plain relative path: no empty, "." or ".." part, no control character, not too long.
 */
int ry_facts_path_ok(const char *path);

/* Makes the run-time fact `path`, 0 if it could; the set is passed so that one fact may use
 * others. */
int ry_facts_make_live(ry_facts *facts, const char *path, struct ry_text *out);

/* True if `path` is a run-time fact, whether or not it can be made here. */
int ry_facts_is_made(const char *path);

/* Takes addresses, host names and serial numbers out of a fact before it is recorded. */
void ry_facts_scrub(const char *path, const char *data, size_t len_bytes, struct ry_text *out);

/* Order of names in which x2 comes before x10. */
int ry_names_compare(const char *a, const char *b);

#endif
