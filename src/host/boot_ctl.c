/* SPDX-License-Identifier: Apache-2.0 */
/* Control datagrams between processes. Header: magic, from, to, incarnation of both, length, hash.
 */
#include "host/boot_ctl.h"

#include <railyard/status.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/clock.h"
#include "host/error.h"

enum { CTL_MAGIC = 0x43425952, CTL_SIGNED = 24, CTL_TRIES = 64 };

void ry_host_id(uint8_t id[RY_HOST_ID_BYTES])
{
    static const struct ry_secret fixed = {"railyard host"};
    char boot[64] = "", ns[64] = "", uid[32] = "";
    const char *more = getenv("RAILYARD_HOST_ID");
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, boot, sizeof(boot) - 1) : -1;

    if (fd >= 0)
        close(fd);
    if (n < 36 && gethostname(boot, sizeof(boot) - 1) < 0)
        boot[0] = '\0';
    if (readlink("/proc/self/ns/net", ns, sizeof(ns) - 1) < 0)
        ns[0] = '\0';
    snprintf(uid, sizeof(uid), "%u", (unsigned)geteuid());
    const struct ry_mac_part parts[] = {{boot, sizeof(boot)},
                                        {ns, sizeof(ns)},
                                        {uid, sizeof(uid)},
                                        {more ? more : "", more ? strlen(more) : 0}};

    ry_mac(&fixed, parts, 4, id);
}

socklen_t ry_ctl_name(struct sockaddr_un *a, uint64_t job, uint32_t pe, const char *what)
{
    memset(a, 0, sizeof(*a));
    a->sun_family = AF_UNIX;
    int n = snprintf(a->sun_path + 1, sizeof(a->sun_path) - 1, "railyard/%u/%016" PRIx64 "/%u%s",
                     (unsigned)geteuid(), job, pe, what);

    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

/* One IPv6 socket serves both families; where the kernel has no IPv6, an IPv4 one does. */
static int open_udp(uint16_t *port)
{
    struct sockaddr_in6 a6 = {.sin6_family = AF_INET6};
    struct sockaddr_in a4 = {.sin_family = AF_INET};
    struct sockaddr_storage got;
    socklen_t len = sizeof(got);
    const int off = 0;
    int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd >= 0 && (setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) < 0 ||
                    bind(fd, (struct sockaddr *)&a6, sizeof(a6)) < 0)) {
        close(fd);
        fd = -1;
    }
    if (fd < 0) {
        fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd >= 0 && bind(fd, (struct sockaddr *)&a4, sizeof(a4)) < 0) {
            close(fd);
            fd = -1;
        }
    }
    *port = 0;
    if (fd >= 0 && getsockname(fd, (struct sockaddr *)&got, &len) == 0)
        *port = ntohs(got.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&got)->sin6_port
                                                : ((struct sockaddr_in *)&got)->sin_port);
    return fd; /* -1: no network at all; PEs of one host do not need it */
}

int ry_ctl_open(struct ry_ctl *c, uint32_t pe, uint32_t n_pes, uint32_t incarnation,
                uint16_t *udp_port)
{
    *c = (struct ry_ctl){
        .pe = pe, .n_pes = n_pes, .incarnation = incarnation, .ux = -1, .udp = -1, .fds = -1};
    ry_host_id(c->host);
    c->peers = calloc(n_pes, sizeof(*c->peers));
    c->held = malloc(RY_CTL_BACKLOG * sizeof(*c->held));
    if (!c->peers || !c->held)
        return ry_fail(RY_ERR_NO_MEMORY, "bootstrap: no memory");
    pthread_mutex_init(&c->lock, NULL);
    c->has_lock = true;
    c->udp = open_udp(udp_port);
    return RY_OK;
}

static int bind_name(struct ry_ctl *c, const char *what)
{
    struct sockaddr_un a;
    socklen_t len = ry_ctl_name(&a, c->job, c->pe, what);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return ry_fail(RY_ERR_SYSTEM, "no socket: %s: see ulimit -n", strerror(errno));
    if (bind(fd, (struct sockaddr *)&a, len) < 0) {
        int rc = errno == EADDRINUSE ? RY_ERR_EXISTS : RY_ERR_SYSTEM;

        ry_fail(rc, "cannot bind @%s: %s: is pe %u of this job running already?", a.sun_path + 1,
                strerror(errno), c->pe);
        close(fd);
        return rc;
    }
    return fd;
}

int ry_ctl_bind(struct ry_ctl *c, uint64_t job, const struct ry_secret *secret)
{
    c->job = job;
    c->secret = *secret;
    c->ux = bind_name(c, "/ctl");
    if (c->ux < 0)
        return c->ux;
    c->fds = bind_name(c, "/fds");
    return c->fds < 0 ? c->fds : RY_OK;
}

void ry_ctl_close(struct ry_ctl *c)
{
    if (c->ux >= 0)
        close(c->ux);
    if (c->udp >= 0)
        close(c->udp);
    if (c->fds >= 0)
        close(c->fds);
    c->ux = c->udp = c->fds = -1;
    free(c->peers);
    free(c->held);
    c->peers = NULL;
    c->held = NULL;
    if (c->has_lock)
        pthread_mutex_destroy(&c->lock);
    c->has_lock = false;
}

void ry_ctl_set_peer(struct ry_ctl *c, uint32_t pe, const struct ry_wire_entry *e)
{
    static const uint8_t none[16];
    struct ry_ctl_peer *p = &c->peers[pe];

    pthread_mutex_lock(&c->lock);
    p->entry = *e;
    p->same_host = memcmp(e->host, c->host, sizeof(c->host)) == 0;
    p->addr = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(e->udp_port)};
    if (memcmp(e->ip, none, sizeof(none)) == 0)
        p->addr.sin6_addr = c->meeting_ip;
    else
        memcpy(&p->addr.sin6_addr, e->ip, sizeof(e->ip));
    pthread_mutex_unlock(&c->lock);
}

bool ry_ctl_same_host(struct ry_ctl *c, uint32_t pe)
{
    pthread_mutex_lock(&c->lock);
    bool same = c->peers[pe].same_host;

    pthread_mutex_unlock(&c->lock);
    return same;
}

static void sign(struct ry_ctl *c, uint8_t *d, uint32_t to, const void *msg, size_t len)
{
    pthread_mutex_lock(&c->lock);
    uint32_t to_incarnation = c->peers[to].entry.incarnation;

    pthread_mutex_unlock(&c->lock);
    ry_put32(d, CTL_MAGIC);
    ry_put32(d + 4, c->pe);
    ry_put32(d + 8, to);
    ry_put32(d + 12, c->incarnation);
    ry_put32(d + 16, to_incarnation);
    ry_put32(d + 20, (uint32_t)len);
    if (len)
        memcpy(d + RY_CTL_HEADER, msg, len);
    const struct ry_mac_part parts[] = {{d, CTL_SIGNED}, {msg, len}};

    ry_mac(&c->secret, parts, 2, d + CTL_SIGNED);
}

int ry_ctl_check(struct ry_ctl *c, const uint8_t *d, size_t len, uint32_t *from)
{
    uint8_t mac[RY_MAC_BYTES];

    if (len < RY_CTL_HEADER || ry_get32(d) != CTL_MAGIC || ry_get32(d + 20) != len - RY_CTL_HEADER)
        return 0;
    uint32_t pe = ry_get32(d + 4);

    if (pe >= c->n_pes || ry_get32(d + 8) != c->pe || ry_get32(d + 16) != c->incarnation)
        return 0;
    pthread_mutex_lock(&c->lock);
    bool current = ry_get32(d + 12) == c->peers[pe].entry.incarnation;

    pthread_mutex_unlock(&c->lock);
    const struct ry_mac_part parts[] = {{d, CTL_SIGNED}, {d + RY_CTL_HEADER, len - RY_CTL_HEADER}};

    ry_mac(&c->secret, parts, 2, mac);
    if (!current || !ry_mac_equal(mac, d + CTL_SIGNED))
        return 0;
    *from = pe;
    return 1;
}

/* 1: gone, or lost for ever; 0: the receiver's queue is full. */
static int try_send(struct ry_ctl *c, uint32_t pe, const uint8_t *d, size_t len)
{
    struct sockaddr_un un;
    struct sockaddr_in6 to;
    struct sockaddr_in to4 = {.sin_family = AF_INET};
    ssize_t n;

    pthread_mutex_lock(&c->lock);
    bool near = c->peers[pe].same_host;

    to = c->peers[pe].addr;
    pthread_mutex_unlock(&c->lock);
    if (near) {
        socklen_t un_len = ry_ctl_name(&un, c->job, pe, "/ctl");

        n = sendto(c->ux, d, len, MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&un, un_len);
    } else {
        n = sendto(c->udp, d, len, MSG_DONTWAIT, (struct sockaddr *)&to, sizeof(to));
        if (n < 0 && (errno == EAFNOSUPPORT || errno == EINVAL)) { /* an IPv4 socket */
            to4.sin_port = to.sin6_port;
            memcpy(&to4.sin_addr, to.sin6_addr.s6_addr + 12, 4);
            n = sendto(c->udp, d, len, MSG_DONTWAIT, (struct sockaddr *)&to4, sizeof(to4));
        }
    }
    return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS) ? 0 : 1;
}

/* Datagrams that found a full queue: one try a PE that is still full, and the rest in order. */
static void retry(struct ry_ctl *c)
{
    uint32_t n = c->n_held;
    uint64_t now = ry_clock_ns();

    if (now - c->retried_ns < RY_CTL_RETRY_NS)
        return; /* every datagram that is read calls here */
    c->retried_ns = now;
    for (uint32_t i = 0; i < n; i++)
        c->peers[c->held[(c->held_head + i) % RY_CTL_BACKLOG].pe].full = false;
    for (uint32_t i = 0; i < n; i++) {
        struct ry_ctl_held *h = &c->held[c->held_head];
        struct ry_ctl_peer *p = &c->peers[h->pe];

        c->held_head = (c->held_head + 1) % RY_CTL_BACKLOG;
        c->n_held--;
        p->full = p->full || try_send(c, h->pe, h->bytes, h->len) == 0;
        if (p->full)
            c->held[(c->held_head + c->n_held++) % RY_CTL_BACKLOG] = *h;
        else
            p->n_held--;
    }
}

static void hold(struct ry_ctl *c, uint32_t pe, const uint8_t *d, size_t len)
{
    if (c->n_held == RY_CTL_BACKLOG)
        return;
    struct ry_ctl_held *h = &c->held[(c->held_head + c->n_held++) % RY_CTL_BACKLOG];

    c->peers[pe].n_held++;
    h->pe = pe;
    h->len = (uint32_t)len;
    memcpy(h->bytes, d, len);
}

int ry_ctl_send(struct ry_ctl *c, uint32_t pe, const void *msg, size_t len)
{
    uint8_t d[RY_CTL_HEADER + RY_CTL_BYTES_MAX];

    if (pe >= c->n_pes || len > RY_CTL_BYTES_MAX)
        return ry_fail(RY_ERR_INVALID, "control message: pe %u of %u, %zu bytes of at most %d", pe,
                       c->n_pes, len, RY_CTL_BYTES_MAX);
    sign(c, d, pe, msg, len);
    if (c->peers[pe].n_held > 0 || try_send(c, pe, d, RY_CTL_HEADER + len) == 0)
        hold(c, pe, d, RY_CTL_HEADER + len);
    return RY_OK;
}

int ry_ctl_recv(struct ry_ctl *c, uint32_t *from, void *msg, size_t *len)
{
    uint8_t d[RY_CTL_HEADER + RY_CTL_BYTES_MAX + 1];
    const int sockets[] = {c->ux, c->udp};

    if (c->n_held > 0)
        retry(c);
    for (int k = 0; k < 2; k++) {
        for (int i = 0; sockets[k] >= 0 && i < CTL_TRIES; i++) {
            ssize_t n = recv(sockets[k], d, sizeof(d), MSG_DONTWAIT);

            if (n < 0 && errno != EINTR && errno != ECONNREFUSED)
                break;
            if (n < 0 || n == sizeof(d) || !ry_ctl_check(c, d, (size_t)n, from))
                continue; /* not one of ours: a stranger's, a predecessor's */
            *len = (size_t)n - RY_CTL_HEADER;
            memcpy(msg, d + RY_CTL_HEADER, *len);
            return 1;
        }
    }
    return 0;
}

int ry_ctl_send_fds(struct ry_ctl *c, uint32_t pe, uint32_t round, const int *fds, int n)
{
    struct sockaddr_un a;
    union {
        char bytes[CMSG_SPACE(sizeof(int) * RY_BOOT_FDS_MAX)];
        struct cmsghdr align;
    } space = {0};
    uint8_t d[RY_CTL_HEADER + 4], body[4];
    struct iovec part = {d, sizeof(d)};
    struct msghdr m = {.msg_name = &a, .msg_iov = &part, .msg_iovlen = 1};

    ry_put32(body, round);
    sign(c, d, pe, body, sizeof(body));
    m.msg_namelen = ry_ctl_name(&a, c->job, pe, "/fds");
    if (n > 0) {
        m.msg_control = space.bytes;
        m.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)n);
        struct cmsghdr *head = CMSG_FIRSTHDR(&m);

        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)n);
        memcpy(CMSG_DATA(head), fds, sizeof(int) * (size_t)n);
    }
    if (sendmsg(c->fds, &m, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
        return 1;
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ETOOMANYREFS ||
        errno == EINTR)
        return 0;
    if (errno == ECONNREFUSED)
        return ry_fail(RY_ERR_LAUNCH, "share_fds: pe %u ended while starting", pe);
    return ry_fail(RY_ERR_SYSTEM, "share_fds: cannot send descriptors to pe %u: %s", pe,
                   strerror(errno));
}

int ry_ctl_recv_fds(struct ry_ctl *c, uint32_t *from, uint32_t *round, int *fds)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int) * RY_BOOT_FDS_MAX)];
        struct cmsghdr align;
    } space;
    uint8_t d[RY_CTL_HEADER + 4];
    struct iovec part = {d, sizeof(d)};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space.bytes};
    int got = 0;

    m.msg_controllen = sizeof(space.bytes);
    ssize_t n = recvmsg(c->fds, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    if (n < 0)
        return 0;
    for (int i = 0; i < RY_BOOT_FDS_MAX; i++)
        fds[i] = -1;
    struct cmsghdr *head = CMSG_FIRSTHDR(&m);

    if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS) {
        got = (int)((head->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(fds, CMSG_DATA(head), sizeof(int) * (size_t)got);
    }
    if (m.msg_flags & MSG_CTRUNC) {
        for (int i = 0; i < got; i++)
            close(fds[i]);
        return ry_fail(RY_ERR_SYSTEM, "share_fds: no room for descriptors: see ulimit -n");
    }
    if (n == sizeof(d) && ry_ctl_check(c, d, sizeof(d), from)) {
        *round = ry_get32(d + RY_CTL_HEADER);
        return 1;
    }
    for (int i = 0; i < got; i++)
        close(fds[i]);
    return ry_ctl_recv_fds(c, from, round, fds); /* a stranger's: the next one */
}
