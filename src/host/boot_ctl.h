/* SPDX-License-Identifier: Apache-2.0 */
/* What PEs in different processes send each other without the meeting point: control datagrams and
 * descriptors. On one host through abstract Unix datagram sockets (the kernel removes them with
 * their process), between hosts through UDP. Every datagram carries a keyed hash.
 *
 * The table of PEs is guarded by a lock of its own: news of a replacement arrives on one thread
 * while the agent sends on another. */
#ifndef RY_HOST_BOOT_CTL_H
#define RY_HOST_BOOT_CTL_H

#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "host/boot.h"
#include "host/wire.h"

enum { RY_CTL_HEADER = 40, RY_CTL_BACKLOG = 256, RY_CTL_RETRY_NS = 1000000 };

struct ry_ctl_peer {
    struct ry_wire_entry entry;
    bool same_host;
    struct sockaddr_in6 addr; /* between hosts */
    uint32_t n_held;          /* datagrams that wait for room in its queue; agent thread only */
    bool full;                /* in this pass */
};

struct ry_ctl_held {
    uint32_t pe;
    uint32_t len;
    uint8_t bytes[RY_CTL_HEADER + RY_CTL_BYTES_MAX];
};

struct ry_ctl {
    uint64_t job;
    struct ry_secret secret;
    uint32_t pe, n_pes, incarnation;
    uint8_t host[RY_HOST_ID_BYTES];
    struct in6_addr meeting_ip; /* where PEs on the meeting point's host are */
    int ux, udp, fds;
    pthread_mutex_t lock;
    bool has_lock;
    struct ry_ctl_peer *peers;
    struct ry_ctl_held *held; /* full queue at the receiver: tried again; agent thread only */
    uint32_t held_head, n_held;
    uint64_t retried_ns;
};

/* What tells hosts apart: the kernel's boot id, the network namespace (abstract sockets belong to
 * one), the user, and RAILYARD_HOST_ID. */
void ry_host_id(uint8_t id[RY_HOST_ID_BYTES]);

/* The UDP socket comes first: its port is in the greeting. */
int ry_ctl_open(struct ry_ctl *c, uint32_t pe, uint32_t n_pes, uint32_t incarnation,
                uint16_t *udp_port);
/* The job is known: bind the Unix sockets. */
int ry_ctl_bind(struct ry_ctl *c, uint64_t job, const struct ry_secret *secret);
void ry_ctl_close(struct ry_ctl *c);

void ry_ctl_set_peer(struct ry_ctl *c, uint32_t pe, const struct ry_wire_entry *e);
bool ry_ctl_same_host(struct ry_ctl *c, uint32_t pe);

int ry_ctl_send(struct ry_ctl *c, uint32_t pe, const void *msg, size_t len);
int ry_ctl_recv(struct ry_ctl *c, uint32_t *from, void *msg, size_t *len);

/* Is this datagram one of ours for this PE? Header and payload as they came. 1 yes, 0 no. */
int ry_ctl_check(struct ry_ctl *c, const uint8_t *d, size_t len, uint32_t *from);

/* Sends descriptors to one PE of this host, with a round number. 1 sent, 0 try again soon, or an
 * error. recv: 1 one set (fds[0..RY_BOOT_FDS_MAX-1], -1 behind them), 0 none. */
int ry_ctl_send_fds(struct ry_ctl *c, uint32_t pe, uint32_t round, const int *fds, int n);
int ry_ctl_recv_fds(struct ry_ctl *c, uint32_t *from, uint32_t *round, int *fds);

/* Abstract name of a PE's socket: "railyard/UID/JOB/PE" and `what`. Returns the address's length.
 */
socklen_t ry_ctl_name(struct sockaddr_un *a, uint64_t job, uint32_t pe, const char *what);

#endif
