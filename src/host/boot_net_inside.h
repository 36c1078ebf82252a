/* SPDX-License-Identifier: Apache-2.0 */
/* What boot_stream.c (talk with the meeting point) and boot_net.c (the ops) share. */
#ifndef RY_HOST_BOOT_NET_INSIDE_H
#define RY_HOST_BOOT_NET_INSIDE_H

#include <pthread.h>

#include "host/boot_ctl.h"
#include "host/boot_net.h"
#include "host/wire.h"

struct net_boot {
    struct ry_boot boot;
    struct ry_net_cfg cfg;
    struct ry_ctl ctl;
    int fd, epfd;
    int round_wake; /* for the collective thread */
    int event_wake; /* for the agent */
    uint32_t seq, fds_round;
    uint32_t n_events;
    pthread_mutex_t lock;
    /* under the lock */
    struct ry_wire_in in;
    bool challenged, accepted, welcomed, acked;
    bool closed; /* the meeting point has left, by intent or not */
    bool eof;    /* nothing more comes from the stream */
    uint64_t job;
    uint8_t nonce[RY_NONCE_BYTES], far_nonce[RY_NONCE_BYTES];
    int failed; /* status of what ended everything */
    char failed_text[RY_WIRE_TEXT];
    uint32_t answer_seq;
    int answer; /* 0 none yet, 1 a result, < 0 a status */
    uint8_t *result;
    size_t result_len;
    char answer_text[RY_WIRE_TEXT];
    struct ry_boot_event *events;
    uint32_t event_head, event_count;
};

/* Reads all that is there. Any of the two threads. */
void ry_net_pump(struct net_boot *n);
/* Has everything ended? Then why, as this thread's error. */
int ry_net_ended(struct net_boot *n, const char *what);
int ry_net_send_all(struct net_boot *n, struct ry_wire_out *out, const char *what,
                    uint64_t deadline_ns);
/* Waits until *flag, or *answer, is not 0, or everything has ended. */
int ry_net_wait_for(struct net_boot *n, const bool *flag, const int *answer, const char *what,
                    uint64_t deadline_ns);
void ry_net_clear_fd(int fd);
void ry_net_destroy(struct net_boot *n);
int ry_net_start(const struct ry_net_cfg *cfg, int fd, uint64_t deadline_ns, struct net_boot **out);

#endif
