/* SPDX-License-Identifier: Apache-2.0 */
/* The meeting point of a job: PEs join it, and it runs their collectives and tells them of each
 * other. It lives in the launcher, or in a thread of PE 0 where there is none. It never blocks: the
 * owner waits on ry_meet_fd and calls ry_meet_step.
 *
 * A job is `starting` until its first barrier is complete. A PE that ends before that ends the
 * start of all others; one that ends later is told as RY_BOOT_PE_LOST, and a collective that misses
 * it fails. One thread calls these functions. */
#ifndef RY_HOST_MEET_H
#define RY_HOST_MEET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "host/secret.h"

struct ry_meet;

struct ry_meet_cfg {
    uint32_t n_pes;
    uint32_t n_nodes; /* 0: each host is a node */
    uint64_t job;
    struct ry_secret secret;
    uint64_t start_deadline_ns; /* all PEs must be there by then; 0: no limit */
    void *arg;
    /* Something worth a line in the log. */
    void (*on_line)(void *arg, const char *text);
    /* PE's connection ended without a word. The owner may learn why and then calls ry_meet_dead;
     * NULL: it counts as dead at once. */
    void (*on_lost)(void *arg, uint32_t pe);
    void (*on_report)(void *arg, uint32_t pe, const void *data, size_t len);
};

int ry_meet_create(const struct ry_meet_cfg *cfg, struct ry_meet **out);
void ry_meet_destroy(struct ry_meet *m);

/* Accept from this listening socket, which the meeting point then owns. */
int ry_meet_listen(struct ry_meet *m, int fd);
int ry_meet_fd(struct ry_meet *m);
void ry_meet_step(struct ry_meet *m);

/* `text` says how the PE ended ("was killed by signal 9"). */
void ry_meet_dead(struct ry_meet *m, uint32_t pe, const char *text);
/* A replacement of a dead PE may join; returns its incarnation. */
uint32_t ry_meet_expect(struct ry_meet *m, uint32_t pe);
/* All PEs must be there by then, if it is not 0. */
void ry_meet_start_by(struct ry_meet *m, uint64_t deadline_ns);
void ry_meet_abort(struct ry_meet *m, int status, const char *text);

bool ry_meet_started(const struct ry_meet *m);
/* Has any PE joined, has this one, is any still connected? */
bool ry_meet_any_joined(const struct ry_meet *m);
bool ry_meet_joined(const struct ry_meet *m, uint32_t pe);
/* Has it said that it leaves? */
bool ry_meet_left(const struct ry_meet *m, uint32_t pe);
bool ry_meet_any_here(const struct ry_meet *m);

/* Tell all that the meeting point closes and that this is no failure. */
void ry_meet_bye(struct ry_meet *m);

#endif
