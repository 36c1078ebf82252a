/* SPDX-License-Identifier: Apache-2.0 */
/* The bootstrap of a PE that is a process: a stream to the job's meeting point, datagrams to its
 * peers. The launcher, torchrun's variables and PMIx differ only in how the stream is found. */
#ifndef RY_HOST_BOOT_NET_H
#define RY_HOST_BOOT_NET_H

#include <stdbool.h>

#include "host/boot.h"
#include "host/secret.h"

struct ry_net_cfg {
    uint32_t pe, n_pes, incarnation;
    struct ry_secret secret;
    uint64_t job;           /* must be the meeting point's; 0: whatever it says */
    bool launcher;          /* the meeting point is the launcher: its end is the job's end */
    uint8_t meeting_ip[16]; /* IPv6 or mapped; zero on a Unix socket */
    /* Called at the very end of close, for who keeps the meeting point or PMIx; may be NULL. */
    void (*at_close)(void *arg);
    void *arg;
};

/* Joins through a connected stream, which is then owned (closed on failure, too). On failure
 * at_close is not called. */
int ry_net_open(const struct ry_net_cfg *cfg, int fd, uint64_t deadline_ns, struct ry_boot **out);

/* Reads the meeting point's challenge only: is it one, of this job (0: any)? The bytes stay unread
 * for ry_net_open. 1 yes, 0 not within wait_ms or not ours. */
int ry_net_probe(int fd, uint64_t job, int wait_ms);

/* Hands a result to the launcher over a stream of its own (owned, closed). */
int ry_net_report(const struct ry_net_cfg *cfg, int fd, const void *data, size_t len,
                  uint64_t deadline_ns);

#endif
