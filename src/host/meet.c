/* SPDX-License-Identifier: Apache-2.0 */
/* The meeting point: connections and the greeting. Whoever has not shown that it knows the secret
 * gets little: one short message, five seconds, and a bounded number of places. */
#include "host/meet.h"

#include <railyard/status.h>

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/boot.h"
#include "host/clock.h"
#include "host/error.h"
#include "host/meet_inside.h"

void ry_meet_line(struct ry_meet *m, const char *form, ...)
{
    char text[RY_ERROR_BYTES];
    va_list args;

    if (!m->cfg.on_line || m->n_lines > RY_MEET_LINES)
        return;
    if (m->n_lines++ == RY_MEET_LINES) {
        m->cfg.on_line(m->cfg.arg, "more of the same is not shown");
        return;
    }
    va_start(args, form);
    vsnprintf(text, sizeof(text), form, args);
    va_end(args);
    m->cfg.on_line(m->cfg.arg, text);
}

static void watch(struct ry_meet *m, struct conn *c, bool out)
{
    struct epoll_event ev = {.events = EPOLLIN | (out ? EPOLLOUT : 0), .data.ptr = c};

    if (c->wants_out != out)
        epoll_ctl(m->epfd, EPOLL_CTL_MOD, c->fd, &ev);
    c->wants_out = out;
}

static void flush(struct ry_meet *m, struct conn *c)
{
    int rc = ry_wire_flush(&c->out, c->fd);

    if (rc == 1 && c->state == CONN_CLOSING)
        shutdown(c->fd, SHUT_WR); /* closing with input unread would take the last words away */
    if (rc < 0)
        c->dead = true;
    else
        watch(m, c, rc == 0);
}

void ry_meet_send_blob(struct ry_meet *m, struct conn *c, uint16_t type, uint32_t arg,
                       struct ry_blob *blob)
{
    if (c->dead)
        return;
    if (ry_wire_queue(&c->out, type, arg, blob) < 0)
        c->dead = true;
    else
        flush(m, c);
}

void ry_meet_send(struct ry_meet *m, struct conn *c, uint16_t type, uint32_t arg, const void *body,
                  size_t len)
{
    struct ry_blob *b = ry_blob_new(len);

    if (!b) {
        c->dead = true;
        return;
    }
    if (len)
        memcpy(b->bytes, body, len);
    ry_meet_send_blob(m, c, type, arg, b);
    ry_blob_drop(b);
}

/* Last words; the connection closes once they are written. */
static void refuse(struct ry_meet *m, struct conn *c, int status, const char *text)
{
    c->state = CONN_CLOSING;
    c->until_ns = ry_clock_ns() + 1000000000u;
    ry_meet_send(m, c, RY_WIRE_REFUSE, (uint32_t)status, text, strlen(text));
}

static void far_address(int fd, uint8_t ip[16])
{
    struct sockaddr_storage a;
    socklen_t len = sizeof(a);

    memset(ip, 0, 16);
    if (getpeername(fd, (struct sockaddr *)&a, &len) < 0)
        return;
    if (a.ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)&a;

        if ((ntohl(in->sin_addr.s_addr) >> 24) == 127)
            return;
        ip[10] = ip[11] = 0xff;
        memcpy(ip + 12, &in->sin_addr, 4);
    } else if (a.ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&a;
        const uint8_t *p = in6->sin6_addr.s6_addr;
        bool mapped = IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr);

        if (!IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr) && !(mapped && p[12] == 127))
            memcpy(ip, p, 16);
    }
}

/* On a Unix socket the kernel says who it is. */
static bool same_user(int fd)
{
    struct ucred who;
    socklen_t len = sizeof(who);
    int domain = 0;
    socklen_t domain_len = sizeof(domain);

    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &domain_len) < 0)
        return false;
    if (domain != AF_UNIX)
        return true;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0 && who.uid == geteuid();
}

static void tune(int fd)
{
    const int on = 1, idle_s = 5, between_s = 2, probes = 3;

    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) < 0)
        return; /* a Unix socket: it needs none of this */
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &between_s, sizeof(between_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
}

static void challenge(struct ry_meet *m, struct conn *c)
{
    uint8_t body[RY_NONCE_BYTES + 8];

    memcpy(body, c->nonce, RY_NONCE_BYTES);
    ry_put64(body + RY_NONCE_BYTES, m->cfg.job);
    ry_meet_send(m, c, RY_WIRE_CHALLENGE, 0, body, sizeof(body));
}

static void add_conn(struct ry_meet *m, int fd)
{
    struct conn *c = calloc(1, sizeof(*c));
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = c};

    if (!c || ry_random(c->nonce, sizeof(c->nonce)) < 0 ||
        epoll_ctl(m->epfd, EPOLL_CTL_ADD, fd, &ev) < 0) {
        free(c);
        close(fd);
        return;
    }
    tune(fd);
    c->fd = fd;
    c->pe = UINT32_MAX;
    c->in.limit = RY_WIRE_SHORT;
    c->until_ns = ry_clock_ns() + RY_MEET_GREETING_MS * 1000000ull;
    c->next = m->conns;
    m->conns = c;
    m->n_conns++;
    far_address(fd, c->ip);
    challenge(m, c);
}

static void accept_all(struct ry_meet *m, int listener)
{
    for (int i = 0; i < 64; i++) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd < 0)
            return;
        if (m->n_conns >= 2 * m->cfg.n_pes + 64 || !same_user(fd))
            close(fd);
        else
            add_conn(m, fd);
    }
}

/* Does what the greeting says fit this job? NULL, or what does not. */
static int judge(struct ry_meet *m, const struct ry_wire_hello *h, char *why, size_t cap)
{
    const struct slot *s = h->pe < m->cfg.n_pes ? &m->slots[h->pe] : NULL;

    why[0] = '\0';
    if (strncmp(h->version, ry_version(), sizeof(h->version)) != 0) {
        snprintf(why, cap,
                 "pe %u runs railyard %.15s but the job runs %s: install the same on both", h->pe,
                 h->version, ry_version());
        return RY_ERR_CONFIG;
    }
    if (!s || h->n_pes != m->cfg.n_pes) {
        snprintf(why, cap, "pe %u of %u does not fit a job of %u pes: see the launcher's settings",
                 h->pe, h->n_pes, m->cfg.n_pes);
        return RY_ERR_CONFIG;
    }
    if (h->role == RY_ROLE_REPORT)
        return RY_OK;
    if (h->role != RY_ROLE_PE) {
        snprintf(why, cap, "pe %u greets as something unknown", h->pe);
        return RY_ERR_PROTOCOL;
    }
    if (s->state == SLOT_DEAD || h->incarnation != s->incarnation) {
        snprintf(why, cap, "pe %u has been given up: only a replacement may join in its place",
                 h->pe);
        return RY_ERR_PEER_LOST;
    }
    if (s->state != SLOT_ABSENT) {
        snprintf(why, cap, "pe %u is there already: two processes have the same number", h->pe);
        return RY_ERR_EXISTS;
    }
    return RY_OK;
}

static void accept_pe(struct ry_meet *m, struct conn *c, const struct ry_wire_hello *h)
{
    uint8_t mac[RY_MAC_BYTES];
    struct slot *s = &m->slots[h->pe];

    c->pe = h->pe;
    c->in.limit = RY_BOOT_BYTES_MAX + 4;
    c->state = h->role == RY_ROLE_PE ? CONN_ACCEPTED : CONN_REPORT;
    c->until_ns = ry_clock_ns() + 30000000000u; /* for a report to arrive */
    if (h->role == RY_ROLE_PE) {
        s->state = SLOT_JOINING;
        s->joined = true;
        s->conn = c;
        s->entry.udp_port = h->udp_port; /* node and n_nodes stay its predecessor's */
        s->entry.incarnation = h->incarnation;
        memcpy(s->entry.host, h->host, sizeof(s->entry.host));
        memcpy(s->entry.ip, c->ip, sizeof(s->entry.ip));
    }
    ry_wire_accept_mac(&m->cfg.secret, h->nonce, c->nonce, mac);
    ry_meet_send(m, c, RY_WIRE_ACCEPT, 0, mac, sizeof(mac));
}

static void greeted(struct ry_meet *m, struct conn *c)
{
    struct ry_wire_hello h;
    char why[RY_WIRE_TEXT];
    int rc = ry_wire_get_hello(c->in.frame.body, c->in.frame.len, &h, &m->cfg.secret, c->nonce);

    if (rc < 0) {
        snprintf(why, sizeof(why), "%s", ry_last_error());
        ry_meet_line(m, "a process that wanted to join was refused: %s", why);
        refuse(m, c, rc, why);
        return;
    }
    rc = judge(m, &h, why, sizeof(why));
    if (rc == RY_OK && m->aborted && h.role == RY_ROLE_PE) {
        refuse(m, c, m->aborted, m->abort_text);
    } else if (rc < 0) {
        ry_meet_line(m, "%s", why);
        refuse(m, c, rc, why);
        if (rc == RY_ERR_CONFIG && !m->started)
            ry_meet_abort(m, rc, why);
    } else {
        accept_pe(m, c, &h);
    }
}

static void reported(struct ry_meet *m, struct conn *c)
{
    if (m->cfg.on_report)
        m->cfg.on_report(m->cfg.arg, c->pe, c->in.frame.body, c->in.frame.len);
    c->state = CONN_CLOSING;
    c->until_ns = ry_clock_ns() + 1000000000u;
    ry_meet_send(m, c, RY_WIRE_ACK, 0, NULL, 0);
}

static int handle(struct ry_meet *m, struct conn *c)
{
    uint16_t type = c->in.frame.type;

    if (c->state == CONN_CHALLENGED && type == RY_WIRE_HELLO)
        greeted(m, c);
    else if (c->state == CONN_ACCEPTED && type == RY_WIRE_READY)
        ry_meet_ready(m, c);
    else if (c->state == CONN_JOINED && type == RY_WIRE_PART)
        return ry_meet_part(m, c);
    else if (c->state == CONN_REPORT && type == RY_WIRE_REPORT)
        reported(m, c);
    else if ((c->state == CONN_JOINED || c->state == CONN_ACCEPTED) && type == RY_WIRE_BYE)
        ry_meet_ended(m, c->pe);
    else
        return ry_fail(RY_ERR_PROTOCOL, "message %u does not belong here", type);
    return RY_OK;
}

static void no_sense(struct ry_meet *m, struct conn *c, int rc)
{
    char why[RY_WIRE_TEXT];
    bool of_pe = c->state == CONN_ACCEPTED || c->state == CONN_JOINED;

    if (of_pe)
        snprintf(why, sizeof(why), "pe %u was cut off: %.300s", c->pe, ry_last_error());
    else
        snprintf(why, sizeof(why), "a process that wanted to join was refused: %.300s",
                 ry_last_error());
    ry_meet_line(m, "%s", why);
    refuse(m, c, rc, why);
    if (of_pe && !m->started)
        ry_meet_abort(m, rc, why);
}

static void drain(struct conn *c)
{
    char scratch[16 << 10];

    for (int i = 0; i < 64; i++) {
        ssize_t n = recv(c->fd, scratch, sizeof(scratch), MSG_DONTWAIT);

        if (n > 0)
            continue;
        c->dead = n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
        return;
    }
}

static void read_all(struct ry_meet *m, struct conn *c)
{
    while (!c->dead && c->state != CONN_CLOSING) {
        int rc = ry_wire_read(&c->in, c->fd);

        if (rc == 1)
            rc = handle(m, c) < 0 ? RY_ERR_PROTOCOL : 1;
        if (rc == RY_ERR_UNREACHABLE)
            c->dead = true;
        else if (rc < 0)
            no_sense(m, c, rc);
        if (rc != 1)
            return;
    }
    if (!c->dead)
        drain(c);
}

static void lost(struct ry_meet *m, uint32_t pe)
{
    struct slot *s = &m->slots[pe];

    s->conn = NULL;
    if (s->state != SLOT_JOINING && s->state != SLOT_READY)
        return;
    if (m->cfg.on_lost)
        m->cfg.on_lost(m->cfg.arg, pe);
    else
        ry_meet_dead(m, pe, "lost its connection");
}

static void free_conn(struct ry_meet *m, struct conn *c)
{
    epoll_ctl(m->epfd, EPOLL_CTL_DEL, c->fd, NULL);
    close(c->fd);
    ry_wire_in_free(&c->in);
    ry_wire_out_free(&c->out);
    free(c);
    m->n_conns--;
}

static bool overdue(const struct conn *c, uint64_t now)
{
    return c->state != CONN_JOINED && c->state != CONN_ACCEPTED && now > c->until_ns;
}

static void sweep(struct ry_meet *m)
{
    uint64_t now = ry_clock_ns();
    bool again = true;

    while (again) { /* a loss may make others fail */
        again = false;
        for (struct conn **at = &m->conns; *at;) {
            struct conn *c = *at;

            if (!c->dead && !overdue(c, now)) {
                at = &c->next;
                continue;
            }
            *at = c->next;
            uint32_t pe = c->pe;
            bool owner = pe < m->cfg.n_pes && m->slots[pe].conn == c;

            free_conn(m, c);
            if (owner) {
                lost(m, pe);
                again = true;
                break;
            }
        }
    }
}

static void check_start(struct ry_meet *m)
{
    char why[RY_WIRE_TEXT];
    uint32_t pe = 0;

    if (m->welcomed || m->aborted || m->cfg.start_deadline_ns == 0 ||
        ry_clock_ns() < m->cfg.start_deadline_ns)
        return;
    while (pe < m->cfg.n_pes && m->slots[pe].state == SLOT_READY)
        pe++;
    snprintf(why, sizeof(why),
             "pe %u did not join in time: was it started, and with this job's "
             "address and secret?",
             pe);
    ry_meet_line(m, "%s", why);
    ry_meet_abort(m, RY_ERR_TIMEOUT, why);
}

int ry_meet_fd(struct ry_meet *m) { return m->epfd; }

void ry_meet_step(struct ry_meet *m)
{
    struct epoll_event events[64];
    int n = epoll_wait(m->epfd, events, 64, 0);

    for (int i = 0; i < n; i++) {
        int *listener = events[i].data.ptr;

        if (listener >= m->listeners && listener < m->listeners + 4) {
            accept_all(m, *listener);
            continue;
        }
        struct conn *c = events[i].data.ptr;

        if (!c->dead && (events[i].events & EPOLLOUT))
            flush(m, c);
        if (!c->dead && (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
            read_all(m, c);
    }
    check_start(m);
    sweep(m);
}

int ry_meet_listen(struct ry_meet *m, int fd)
{
    struct epoll_event ev = {.events = EPOLLIN};

    if (m->n_listeners == 4) {
        close(fd);
        return ry_fail(RY_ERR_INVALID, "meeting point: more than 4 sockets");
    }
    int *at = &m->listeners[m->n_listeners];

    *at = fd;
    ev.data.ptr = at;
    if (epoll_ctl(m->epfd, EPOLL_CTL_ADD, fd, &ev) < 0) {
        close(fd);
        return ry_fail(RY_ERR_SYSTEM, "meeting point: cannot watch a socket: %s", strerror(errno));
    }
    m->n_listeners++;
    return RY_OK;
}

int ry_meet_create(const struct ry_meet_cfg *cfg, struct ry_meet **out)
{
    if (cfg->n_pes == 0 || cfg->n_pes > RY_WIRE_PES_MAX || cfg->n_nodes > cfg->n_pes)
        return ry_fail(RY_ERR_INVALID, "a job of %u pes on %u nodes: 1 to %d pes, not more nodes",
                       cfg->n_pes, cfg->n_nodes, RY_WIRE_PES_MAX);
    struct ry_meet *m = calloc(1, sizeof(*m));

    if (!m)
        return ry_fail(RY_ERR_NO_MEMORY, "meeting point: no memory");
    m->cfg = *cfg;
    m->slots = calloc(cfg->n_pes, sizeof(*m->slots));
    m->epfd = epoll_create1(EPOLL_CLOEXEC);
    if (!m->slots || m->epfd < 0) {
        int rc = ry_fail(RY_ERR_SYSTEM, "meeting point: no memory or descriptor: see ulimit -n");

        ry_meet_destroy(m);
        return rc;
    }
    *out = m;
    return RY_OK;
}

void ry_meet_destroy(struct ry_meet *m)
{
    if (!m)
        return;
    while (m->conns) {
        struct conn *c = m->conns;

        m->conns = c->next;
        free_conn(m, c);
    }
    for (uint32_t i = 0; i < m->n_listeners; i++)
        close(m->listeners[i]);
    for (uint32_t i = 0; m->slots && i < m->cfg.n_pes; i++)
        free(m->slots[i].part);
    free(m->slots);
    if (m->epfd >= 0)
        close(m->epfd);
    free(m);
}
