/* SPDX-License-Identifier: Apache-2.0 */
/* The PE's end of railyard/attach.h. One thread (the agent) calls these. */
#ifndef RY_HOST_ATTACH_H
#define RY_HOST_ATTACH_H

#include <stddef.h>
#include <stdint.h>

struct ry_attach;

/* What a request is answered with; grows up to RY_ATTACH_ANSWER_MAX, what is more is cut. */
struct ry_attach_answer {
    char *text;
    size_t len, room;
};

void ry_attach_print(struct ry_attach_answer *a, const char *form, ...)
    __attribute__((format(printf, 2, 3)));

/* Handles one request (a line without its newline). 0, or a status; then the answer's text is the
 * reason, ry_last_error() if it is empty. */
typedef int ry_attach_fn(void *arg, const char *request, struct ry_attach_answer *answer);

/* Listens as PE `pe` of `job`. EXISTS: somebody does already. */
int ry_attach_open(uint64_t job, uint32_t pe, ry_attach_fn *fn, void *arg, struct ry_attach **out);
/* Readable when ry_attach_serve has something to do. */
int ry_attach_fd(struct ry_attach *a);
/* Does what there is without blocking; call it when the descriptor is readable, and now and then.
 */
void ry_attach_serve(struct ry_attach *a);
void ry_attach_close(struct ry_attach *a);

#endif
