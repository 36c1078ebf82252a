/* SPDX-License-Identifier: Apache-2.0 */
/* Answering `railyard status` and the like: a few connections, one line in, one text out. The
 * answer is "STATUS LENGTH\n" and then the text. Who sends or reads nothing for two seconds is
 * dropped. */
#include "host/attach.h"

#include <railyard/attach.h>

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "host/boot_ctl.h"
#include "host/clock.h"
#include "host/error.h"

enum { GUESTS = 8, IDLE_NS = 2000000000 };

struct guest {
    int fd; /* -1: free */
    uint64_t until_ns;
    char line[RY_ATTACH_REQUEST_MAX + 1];
    size_t have;
    char *answer;
    size_t len, sent;
};

struct ry_attach {
    int listener, epfd;
    ry_attach_fn *fn;
    void *arg;
    struct guest guests[GUESTS];
};

void ry_attach_print(struct ry_attach_answer *a, const char *form, ...)
{
    va_list args;

    va_start(args, form);
    int n = vsnprintf(NULL, 0, form, args);

    va_end(args);
    if (n < 0 || a->len + (size_t)n > RY_ATTACH_ANSWER_MAX)
        return;
    if (a->len + (size_t)n + 1 > a->room) {
        size_t room = (a->len + (size_t)n + 1) * 2;
        char *more = realloc(a->text, room);

        if (!more)
            return;
        a->text = more;
        a->room = room;
    }
    va_start(args, form);
    vsnprintf(a->text + a->len, a->room - a->len, form, args);
    va_end(args);
    a->len += (size_t)n;
}

static void leave(struct ry_attach *a, struct guest *g)
{
    epoll_ctl(a->epfd, EPOLL_CTL_DEL, g->fd, NULL);
    close(g->fd);
    free(g->answer);
    *g = (struct guest){.fd = -1};
}

static bool same_user(int fd)
{
    struct ucred who;
    socklen_t len = sizeof(who);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0 &&
           (who.uid == geteuid() || who.uid == 0);
}

static void admit(struct ry_attach *a)
{
    struct epoll_event ev = {.events = EPOLLIN};
    int fd;

    while ((fd = accept4(a->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
        struct guest *g = a->guests;

        while (g < a->guests + GUESTS && g->fd >= 0)
            g++;
        ev.data.ptr = g;
        if (g == a->guests + GUESTS || !same_user(fd) ||
            epoll_ctl(a->epfd, EPOLL_CTL_ADD, fd, &ev) < 0) {
            close(fd);
            continue;
        }
        g->fd = fd;
        g->until_ns = ry_clock_ns() + IDLE_NS;
    }
}

static void write_some(struct ry_attach *a, struct guest *g)
{
    while (g->sent < g->len) {
        ssize_t n = send(g->fd, g->answer + g->sent, g->len - g->sent, MSG_DONTWAIT | MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            struct epoll_event ev = {.events = EPOLLOUT, .data.ptr = g};

            epoll_ctl(a->epfd, EPOLL_CTL_MOD, g->fd, &ev);
            return;
        }
        if (n < 0)
            break;
        g->sent += (size_t)n;
        g->until_ns = ry_clock_ns() + IDLE_NS;
    }
    leave(a, g);
}

static void reply(struct ry_attach *a, struct guest *g)
{
    struct ry_attach_answer out = {0}, all = {0};
    int rc = a->fn(a->arg, g->line, &out);

    if (rc < 0 && out.len == 0)
        ry_attach_print(&out, "%s", ry_last_error());
    ry_attach_print(&all, "%d %zu\n", rc, out.len);
    if (out.len > 0)
        ry_attach_print(&all, "%s", out.text);
    free(out.text);
    g->answer = all.text;
    g->len = all.len;
    write_some(a, g);
}

static void read_some(struct ry_attach *a, struct guest *g)
{
    ssize_t n = recv(g->fd, g->line + g->have, sizeof(g->line) - g->have, MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return;
    if (n <= 0) {
        leave(a, g);
        return;
    }
    char *end = memchr(g->line + g->have, '\n', (size_t)n);

    g->have += (size_t)n;
    if (end) {
        *end = '\0';
        reply(a, g);
    } else if (g->have == sizeof(g->line)) {
        leave(a, g); /* longer than any request */
    }
}

int ry_attach_fd(struct ry_attach *a) { return a->epfd; }

void ry_attach_serve(struct ry_attach *a)
{
    struct epoll_event events[GUESTS + 1];
    int n = epoll_wait(a->epfd, events, GUESTS + 1, 0);
    uint64_t now = ry_clock_ns();

    for (int i = 0; i < n; i++) {
        struct guest *g = events[i].data.ptr;

        if (!g)
            admit(a);
        else if (g->fd >= 0 && g->answer)
            write_some(a, g);
        else if (g->fd >= 0)
            read_some(a, g);
    }
    for (int i = 0; i < GUESTS; i++) {
        if (a->guests[i].fd >= 0 && now > a->guests[i].until_ns)
            leave(a, &a->guests[i]);
    }
}

static int listen_as(uint64_t job, uint32_t pe)
{
    struct sockaddr_un name;
    socklen_t len = ry_ctl_name(&name, job, pe, "");
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return ry_fail(RY_ERR_SYSTEM, "no socket: %s: see ulimit -n", strerror(errno));
    if (bind(fd, (struct sockaddr *)&name, len) < 0 || listen(fd, GUESTS) < 0) {
        int rc = errno == EADDRINUSE ? RY_ERR_EXISTS : RY_ERR_SYSTEM;

        ry_fail(rc, "cannot listen at @%s: %s", name.sun_path + 1, strerror(errno));
        close(fd);
        return rc;
    }
    return fd;
}

int ry_attach_open(uint64_t job, uint32_t pe, ry_attach_fn *fn, void *arg, struct ry_attach **out)
{
    struct ry_attach *a = calloc(1, sizeof(*a));
    struct epoll_event ev = {.events = EPOLLIN};

    if (!a)
        return ry_fail(RY_ERR_NO_MEMORY, "attach: no memory");
    for (int i = 0; i < GUESTS; i++)
        a->guests[i].fd = -1;
    a->fn = fn;
    a->arg = arg;
    a->listener = listen_as(job, pe);
    a->epfd = epoll_create1(EPOLL_CLOEXEC);
    int rc = a->listener < 0 ? a->listener : RY_OK;

    if (rc == RY_OK && (a->epfd < 0 || epoll_ctl(a->epfd, EPOLL_CTL_ADD, a->listener, &ev) < 0))
        rc = ry_fail(RY_ERR_SYSTEM, "attach: no descriptor: see ulimit -n");
    if (rc < 0) {
        ry_attach_close(a);
        return rc;
    }
    *out = a;
    return RY_OK;
}

void ry_attach_close(struct ry_attach *a)
{
    if (!a)
        return;
    for (int i = 0; i < GUESTS; i++) {
        if (a->guests[i].fd >= 0)
            leave(a, &a->guests[i]);
    }
    if (a->listener >= 0)
        close(a->listener);
    if (a->epfd >= 0)
        close(a->epfd);
    free(a);
}
