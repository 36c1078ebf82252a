/* SPDX-License-Identifier: Apache-2.0 */
/* General atomics: run once, at the target, by (source, incarnation, sequence), in the source's
 * order.
 *
 * Each source has a window of records in every target's heap. A request is a record and then a
 * signal, one message on channel 0; whoever works for the target (a waiting thread or the agent)
 * runs the records in sequence and answers with the result and a signal of its own. A record that
 * arrives twice has a sequence that was run already. A source reuses a record only when its message
 * is reusable, so that the ghost of an old one cannot land on a new one. */
#ifndef RY_HOST_AMO_H
#define RY_HOST_AMO_H

#include <pthread.h>

#include "core/layout.h"

enum { RY_AMO_WINDOW = 16 };
enum ry_amo_op { RY_AMO_ADD = 1, RY_AMO_SWAP, RY_AMO_CAS, RY_AMO_FETCH };

struct ry_amo_record {
    uint64_t sequence; /* from 1; record (sequence % window) */
    uint64_t op;       /* enum ry_amo_op | source incarnation << 32 */
    uint64_t offset;   /* of the word in the target's heap */
    uint64_t operand, compare;
    uint64_t rsvd[3];
};

struct ry_amo_result {
    uint64_t sequence;
    uint64_t value;  /* the word before the operation */
    uint64_t status; /* 0, or the positive of a ry_status */
    uint64_t rsvd;
};

/* One PE's share of the system area for one other PE: what that PE sends here. */
struct ry_amo_inbox {
    struct ry_amo_record record[RY_AMO_WINDOW]; /* its requests */
    struct ry_amo_result result[RY_AMO_WINDOW]; /* its answers to ours */
    struct ry_sector requests, results;         /* newest sequence of each */
    struct ry_amo_record out[RY_AMO_WINDOW];    /* staging of our requests to it */
    struct ry_amo_result back[RY_AMO_WINDOW];   /* staging of our answers to it */
};

struct ry_amo_peer {
    uint64_t sent;          /* our requests */
    uint64_t ran, done;     /* theirs: run here, and answered */
    uint64_t value, status; /* of the one that was run and not answered yet */
    uint64_t sent_from[RY_AMO_WINDOW], sent_end[RY_AMO_WINDOW]; /* message of each */
    uint64_t back_from[RY_AMO_WINDOW], back_end[RY_AMO_WINDOW];
};

struct ry_amo {
    struct ry_amo_inbox *inbox; /* [n_pes], in the heap */
    struct ry_amo_peer *peer;   /* [n_pes] */
    pthread_mutex_t lock;       /* one executor at a time */
};

struct ry_ctx;
/* Run what has arrived (arg: the ry_ctx). Any thread; a second one at the same time returns at
 * once. */
void ry_amo_work(void *arg);

#endif
