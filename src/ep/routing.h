/* SPDX-License-Identifier: Apache-2.0 */
/* The two sources behind include/railyard/routing.h. */
#ifndef RY_EP_ROUTING_H
#define RY_EP_ROUTING_H

#include <railyard/routing.h>

#include <stdio.h>

#define RY_ROUTING_LINE_MAX 65536u        /* bytes of one line */
#define RY_ROUTING_LINES_MAX (4u << 20)   /* lines of one file */

struct ry_routing_file; /* routing_file.c: a recording */
struct ry_gate;         /* routing_gate.c: a gate over text */

/* Takes `stream`, which must allow seeking, and closes it at once on error, else in close. name is
 * copied and stands in messages. attr as in ry_routing_open. */
int ry_routing_file_open(FILE *stream, const char *name, const ry_routing_attr *attr,
                         struct ry_routing_file **out);
void ry_routing_file_close(struct ry_routing_file *file);
void ry_routing_file_info(const struct ry_routing_file *file, ry_routing_info *info);
int ry_routing_file_next(struct ry_routing_file *file, int32_t *ids, float *weights);
int ry_routing_file_seek(struct ry_routing_file *file, uint64_t token);

/* text need not outlive the call. attr->experts and attr->topk are set and within bounds. */
int ry_gate_open(const unsigned char *text, size_t bytes, const ry_routing_attr *attr,
                 struct ry_gate **out);
void ry_gate_close(struct ry_gate *gate);
uint64_t ry_gate_tokens(const struct ry_gate *gate);
void ry_gate_route(const struct ry_gate *gate, uint64_t token, int32_t *ids, float *weights);

/* Written by cmake/RyEmbed.cmake at build time: the project's documents, one after another. */
extern const unsigned char ry_routing_text[];
extern const size_t ry_routing_text_bytes;

#endif
