/* SPDX-License-Identifier: Apache-2.0 */
/* A PE's talk with the meeting point.
 *
 * Two threads use it: the one that calls collectives, and the agent. Both may read the stream; what
 * one reads for the other is stored under the lock and told through an eventfd. Only the collective
 * thread writes to the stream. */
#include <railyard/status.h>

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/boot_net_inside.h"
#include "host/clock.h"
#include "host/error.h"

enum { WAIT_STEP_MS = 1000, RY_BOOT_RESULT_MAX = 1 << 30 };

void ry_net_signal_fd(int fd)
{
    uint64_t one = 1;

    if (write(fd, &one, sizeof(one)) < 0)
        return; /* full: readable all the same */
}

void ry_net_clear_fd(int fd)
{
    uint64_t count;

    if (read(fd, &count, sizeof(count)) < 0)
        return; /* it was clear */
}

static void push_event(struct net_boot *n, enum ry_boot_event_type type, uint32_t pe, uint32_t inc)
{
    if (n->event_count < n->n_events) {
        uint32_t at = (n->event_head + n->event_count++) % n->n_events;

        n->events[at] = (struct ry_boot_event){type, pe, inc};
    }
    ry_net_signal_fd(n->event_wake);
}

static void fail_all(struct net_boot *n, int status, const char *text)
{
    if (n->failed)
        return;
    n->failed = status;
    snprintf(n->failed_text, sizeof(n->failed_text), "%s", text);
    if (n->welcomed)
        push_event(n, RY_BOOT_ABORT, n->boot.pe, 0);
    ry_net_signal_fd(n->round_wake);
}

static int got_challenge(struct net_boot *n)
{
    if (n->in.frame.len != RY_NONCE_BYTES + 8 || n->challenged)
        return ry_fail(RY_ERR_PROTOCOL, "a greeting of %u bytes", n->in.frame.len);
    memcpy(n->far_nonce, n->in.frame.body, RY_NONCE_BYTES);
    n->job = ry_get64(n->in.frame.body + RY_NONCE_BYTES);
    if (n->cfg.job && n->job != n->cfg.job)
        return ry_fail(RY_ERR_PROTOCOL, "the meeting point is another job's");
    n->challenged = true;
    return RY_OK;
}

static int got_accept(struct net_boot *n)
{
    uint8_t mac[RY_MAC_BYTES];

    ry_wire_accept_mac(&n->cfg.secret, n->nonce, n->far_nonce, mac);
    if (n->in.frame.len != sizeof(mac) || !ry_mac_equal(mac, n->in.frame.body))
        return ry_fail(RY_ERR_AUTH,
                       "the meeting point does not know this job's secret: does another "
                       "job use its address?");
    n->accepted = true;
    n->in.limit = RY_BOOT_RESULT_MAX;
    return RY_OK;
}

static int got_welcome(struct net_boot *n)
{
    uint32_t n_pes = n->boot.n_pes, local = 0, n_local = 0;
    struct ry_wire_entry mine, e;
    const uint8_t *body = n->in.frame.body;

    if (n->in.frame.len != (uint64_t)n_pes * RY_WIRE_ENTRY)
        return ry_fail(RY_ERR_PROTOCOL, "a table of %u bytes for %u pes", n->in.frame.len, n_pes);
    ry_wire_get_entry(body + (size_t)n->boot.pe * RY_WIRE_ENTRY, &mine);
    for (uint32_t i = 0; i < n_pes; i++) {
        ry_wire_get_entry(body + (size_t)i * RY_WIRE_ENTRY, &e);
        ry_ctl_set_peer(&n->ctl, i, &e);
        local += e.node == mine.node && i < n->boot.pe;
        n_local += e.node == mine.node;
    }
    n->boot.node = mine.node;
    n->boot.n_nodes = mine.n_nodes;
    n->boot.local_pe = local;
    n->boot.n_local = n_local;
    n->welcomed = true;
    return RY_OK;
}

static int got_event(struct net_boot *n)
{
    struct ry_wire_entry e;
    uint32_t type = n->in.frame.arg;

    if (n->in.frame.len != 4 + RY_WIRE_ENTRY)
        return ry_fail(RY_ERR_PROTOCOL, "news of %u bytes", n->in.frame.len);
    uint32_t pe = ry_get32(n->in.frame.body);

    if (pe >= n->boot.n_pes || (type != RY_BOOT_PE_LOST && type != RY_BOOT_PE_JOINED))
        return ry_fail(RY_ERR_PROTOCOL, "news %u of pe %u", type, pe);
    ry_wire_get_entry(n->in.frame.body + 4, &e);
    if (type == RY_BOOT_PE_JOINED)
        ry_ctl_set_peer(&n->ctl, pe, &e);
    push_event(n, (enum ry_boot_event_type)type, pe, e.incarnation);
    return RY_OK;
}

static void got_answer(struct net_boot *n)
{
    const struct ry_wire_frame *f = &n->in.frame;

    if (f->arg != n->answer_seq || n->answer != 0)
        return; /* of a collective that was given up */
    if (f->type == RY_WIRE_RESULT) {
        n->result_len = f->len;
        n->result = ry_wire_steal(&n->in);
        n->answer = 1;
    } else {
        n->answer = f->len >= 4 ? (int)ry_get32(f->body) : RY_ERR_PROTOCOL;
        if (n->answer >= 0)
            n->answer = RY_ERR_PROTOCOL;
        ry_wire_text(f->body + (f->len >= 4 ? 4 : f->len), f->len >= 4 ? f->len - 4 : 0,
                     n->answer_text, sizeof(n->answer_text));
    }
    ry_net_signal_fd(n->round_wake);
}

static void got_end(struct net_boot *n)
{
    char text[RY_WIRE_TEXT];
    int status = (int)n->in.frame.arg;

    ry_wire_text(n->in.frame.body, n->in.frame.len, text, sizeof(text));
    fail_all(n, status < 0 ? status : RY_ERR_PROTOCOL, text);
}

/* One frame has come; the lock is held. */
static int handle(struct net_boot *n)
{
    switch (n->in.frame.type) {
    case RY_WIRE_CHALLENGE:
        return got_challenge(n);
    case RY_WIRE_ACK:
        n->acked = true;
        return RY_OK;
    case RY_WIRE_ACCEPT:
        return got_accept(n);
    case RY_WIRE_WELCOME:
        return n->welcomed ? RY_OK : got_welcome(n);
    case RY_WIRE_EVENT:
        return got_event(n);
    case RY_WIRE_RESULT:
    case RY_WIRE_FAILED:
        got_answer(n);
        return RY_OK;
    case RY_WIRE_REFUSE:
    case RY_WIRE_ABORT:
        got_end(n);
        return RY_OK;
    case RY_WIRE_BYE: /* the meeting point closes on purpose: PEs need it no more */
        n->closed = true;
        return RY_OK;
    default:
        return ry_fail(RY_ERR_PROTOCOL, "message %u from the meeting point", n->in.frame.type);
    }
}

static void stream_ended(struct net_boot *n, int rc)
{
    n->eof = true;
    epoll_ctl(n->epfd, EPOLL_CTL_DEL, n->fd, NULL);
    if (rc != RY_ERR_UNREACHABLE) {
        fail_all(n, rc, ry_last_error());
    } else if (!n->closed && (n->cfg.launcher || !n->welcomed)) {
        fail_all(n, RY_ERR_LAUNCH,
                 n->cfg.launcher ? "the launcher has ended: start the job again"
                                 : "pe 0, the meeting point, has ended");
    } else if (!n->closed) {
        push_event(n, RY_BOOT_PE_LOST, 0, 0);
    }
    n->closed = true;
    ry_net_signal_fd(n->round_wake);
}

static int handle_one(struct net_boot *n)
{
    int rc = handle(n);

    return rc < 0 ? rc : 1;
}

void ry_net_pump(struct net_boot *n)
{
    bool open = true;

    pthread_mutex_lock(&n->lock);
    while (open && !n->eof) {
        int rc = ry_wire_read(&n->in, n->fd);

        if (rc == 1)
            rc = handle_one(n);
        if (rc < 0) {
            stream_ended(n, rc);
            shutdown(n->fd, SHUT_RDWR);
            break;
        }
        open = rc == 1;
    }
    pthread_mutex_unlock(&n->lock);
}

/* Has everything ended? Then why, as this thread's error. */
int ry_net_ended(struct net_boot *n, const char *what)
{
    pthread_mutex_lock(&n->lock);
    int rc = n->failed;

    if (rc < 0)
        ry_fail(rc, "%s", n->failed_text);
    else if (n->closed)
        rc = ry_fail(RY_ERR_LAUNCH, "%s: pe 0, the meeting point, has ended", what);
    pthread_mutex_unlock(&n->lock);
    return rc;
}

int ry_net_send_all(struct net_boot *n, struct ry_wire_out *out, const char *what,
                    uint64_t deadline_ns)
{
    while (true) {
        int rc = ry_wire_flush(out, n->fd);

        if (rc == 1)
            return RY_OK;
        ry_net_pump(n); /* a refusal says more than a broken pipe */
        int why = ry_net_ended(n, what);

        if (why < 0)
            return why;
        if (rc < 0)
            return rc;
        struct pollfd p = {.fd = n->fd, .events = POLLOUT | POLLIN};

        if (poll(&p, 1, ry_clock_left_ms(deadline_ns, WAIT_STEP_MS)) == 0 &&
            ry_clock_ns() >= deadline_ns)
            return ry_fail(RY_ERR_TIMEOUT, "%s: the meeting point does not read", what);
    }
}

/* Waits until *flag is set, or everything has ended. `flag` is read under the lock. */
int ry_net_wait_for(struct net_boot *n, const bool *flag, const int *answer, const char *what,
                    uint64_t deadline_ns)
{
    while (true) {
        ry_net_pump(n);
        pthread_mutex_lock(&n->lock);
        bool done = flag ? *flag : *answer != 0;
        bool over = n->eof;

        pthread_mutex_unlock(&n->lock);
        if (done)
            return RY_OK;
        int rc = ry_net_ended(n, what);

        if (rc < 0)
            return rc;
        if (ry_clock_ns() >= deadline_ns)
            return ry_fail(RY_ERR_TIMEOUT, "%s: not all pes came in time: see what they wait for",
                           what);
        struct pollfd p[] = {{.fd = over ? -1 : n->fd, .events = POLLIN},
                             {.fd = n->round_wake, .events = POLLIN}};

        poll(p, 2, ry_clock_left_ms(deadline_ns, WAIT_STEP_MS));
        ry_net_clear_fd(n->round_wake);
    }
}

void ry_net_destroy(struct net_boot *n)
{
    if (n->fd >= 0)
        close(n->fd);
    if (n->epfd >= 0)
        close(n->epfd);
    if (n->round_wake >= 0)
        close(n->round_wake);
    if (n->event_wake >= 0)
        close(n->event_wake);
    ry_wire_in_free(&n->in);
    ry_ctl_close(&n->ctl);
    pthread_mutex_destroy(&n->lock);
    free(n->result);
    free(n->events);
    free(n);
}

static struct net_boot *make(const struct ry_net_cfg *cfg, int fd)
{
    struct net_boot *n = calloc(1, sizeof(*n));
    struct epoll_event ev = {.events = EPOLLIN};

    if (!n) {
        close(fd);
        ry_fail(RY_ERR_NO_MEMORY, "bootstrap: no memory");
        return NULL;
    }
    n->cfg = *cfg;
    n->fd = fd;
    n->ctl.ux = n->ctl.udp = n->ctl.fds = -1;
    n->in.limit = RY_WIRE_SHORT;
    pthread_mutex_init(&n->lock, NULL);
    n->boot = (struct ry_boot){.pe = cfg->pe, .n_pes = cfg->n_pes, .incarnation = cfg->incarnation};
    n->n_events = 4 * cfg->n_pes + 16;
    n->events = malloc(n->n_events * sizeof(*n->events));
    n->epfd = epoll_create1(EPOLL_CLOEXEC);
    n->round_wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    n->event_wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!n->events || n->epfd < 0 || n->round_wake < 0 || n->event_wake < 0 ||
        epoll_ctl(n->epfd, EPOLL_CTL_ADD, fd, &ev) < 0 ||
        epoll_ctl(n->epfd, EPOLL_CTL_ADD, n->event_wake, &ev) < 0) {
        ry_net_destroy(n);
        ry_fail(RY_ERR_SYSTEM, "bootstrap: no memory or descriptor: see ulimit -n");
        return NULL;
    }
    return n;
}

static int send_one(struct net_boot *n, uint16_t type, const void *body, size_t len,
                    uint64_t deadline_ns)
{
    struct ry_wire_out out = {0};
    int rc = ry_wire_queue_bytes(&out, type, 0, body, len);

    if (rc == RY_OK)
        rc = ry_net_send_all(n, &out, "joining the job", deadline_ns);
    ry_wire_out_free(&out);
    return rc;
}

/* Challenge, greeting, proof. */
static int greet(struct net_boot *n, enum ry_wire_role role, uint16_t udp_port,
                 uint64_t deadline_ns)
{
    uint8_t body[RY_WIRE_HELLO_BYTES];
    struct ry_wire_hello h = {.role = role,
                              .pe = n->cfg.pe,
                              .n_pes = n->cfg.n_pes,
                              .incarnation = n->cfg.incarnation,
                              .udp_port = udp_port};
    int rc = ry_random(n->nonce, sizeof(n->nonce));

    if (rc == RY_OK)
        rc = ry_net_wait_for(n, &n->challenged, NULL, "joining the job", deadline_ns);
    if (rc < 0)
        return rc;
    memcpy(h.host, n->ctl.host, sizeof(h.host));
    memcpy(h.nonce, n->nonce, sizeof(h.nonce));
    snprintf(h.version, sizeof(h.version), "%s", ry_version());
    ry_wire_put_hello(body, &h, &n->cfg.secret, n->far_nonce);
    rc = send_one(n, RY_WIRE_HELLO, body, sizeof(body), deadline_ns);
    if (rc == RY_OK)
        rc = ry_net_wait_for(n, &n->accepted, NULL, "joining the job", deadline_ns);
    return rc;
}

static int watch_ctl(struct net_boot *n)
{
    struct epoll_event ev = {.events = EPOLLIN};

    if (epoll_ctl(n->epfd, EPOLL_CTL_ADD, n->ctl.ux, &ev) < 0 ||
        (n->ctl.udp >= 0 && epoll_ctl(n->epfd, EPOLL_CTL_ADD, n->ctl.udp, &ev) < 0))
        return ry_fail(RY_ERR_SYSTEM, "bootstrap: cannot watch a socket: %s", strerror(errno));
    return RY_OK;
}

static int join(struct net_boot *n, uint64_t deadline_ns)
{
    uint16_t port = 0;
    int rc = ry_ctl_open(&n->ctl, n->cfg.pe, n->cfg.n_pes, n->cfg.incarnation, &port);

    memcpy(&n->ctl.meeting_ip, n->cfg.meeting_ip, sizeof(n->cfg.meeting_ip));
    if (rc == RY_OK)
        rc = greet(n, RY_ROLE_PE, port, deadline_ns);
    if (rc == RY_OK) {
        n->boot.job = n->job;
        rc = ry_ctl_bind(&n->ctl, n->job, &n->cfg.secret);
    }
    if (rc == RY_OK)
        rc = watch_ctl(n);
    if (rc == RY_OK)
        rc = send_one(n, RY_WIRE_READY, NULL, 0, deadline_ns);
    if (rc == RY_OK)
        rc = ry_net_wait_for(n, &n->welcomed, NULL, "joining the job", deadline_ns);
    return rc;
}

int ry_net_start(const struct ry_net_cfg *cfg, int fd, uint64_t deadline_ns, struct net_boot **out)
{
    struct net_boot *n = make(cfg, fd);
    int rc = n ? join(n, deadline_ns) : RY_ERR_SYSTEM;

    if (rc < 0) {
        if (n)
            ry_net_destroy(n);
        return rc;
    }
    *out = n;
    return RY_OK;
}

int ry_net_report(const struct ry_net_cfg *cfg, int fd, const void *data, size_t len,
                  uint64_t deadline_ns)
{
    struct net_boot *n = make(cfg, fd);

    if (!n)
        return RY_ERR_SYSTEM;
    int rc = greet(n, RY_ROLE_REPORT, 0, deadline_ns);

    if (rc == RY_OK)
        rc = send_one(n, RY_WIRE_REPORT, data, len, deadline_ns);
    if (rc == RY_OK)
        rc = ry_net_wait_for(n, &n->acked, NULL, "report", deadline_ns);
    ry_net_destroy(n);
    return rc;
}

int ry_net_probe(int fd, uint64_t job, int wait_ms)
{
    uint8_t b[RY_WIRE_HEADER + RY_NONCE_BYTES + 8];
    uint64_t until = ry_clock_ns() + (uint64_t)wait_ms * 1000000u;
    ssize_t got = 0;

    while (got < (ssize_t)sizeof(b)) {
        struct pollfd p = {.fd = fd, .events = POLLIN};

        if (poll(&p, 1, ry_clock_left_ms(until, wait_ms)) <= 0 && ry_clock_ns() >= until)
            return 0;
        ssize_t n = recv(fd, b, sizeof(b), MSG_DONTWAIT | MSG_PEEK);

        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
            return 0;
        if (n > 0 && n < (ssize_t)sizeof(b) && n == got)
            usleep(1000); /* a part only: poll says readable at once */
        got = n > 0 ? n : 0;
    }
    return ry_get32(b) == RY_WIRE_MAGIC && ry_get16(b + 4) == RY_WIRE_CHALLENGE &&
           (job == 0 || ry_get64(b + RY_WIRE_HEADER + RY_NONCE_BYTES) == job);
}
