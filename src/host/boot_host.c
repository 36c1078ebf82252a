/* SPDX-License-Identifier: Apache-2.0 */
#include "host/boot_host.h"

#include <railyard/status.h>

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "host/clock.h"
#include "host/error.h"
#include "host/log.h"
#include "host/meet.h"

struct ry_host {
    struct ry_meet *meet;
    struct ry_log log;
    int stop; /* eventfd */
    pthread_t thread;
};

static void on_line(void *arg, const char *text)
{
    struct ry_host *h = arg;

    ry_log(&h->log, RY_DEBUG_WARN, "%s", text);
}

/* Those who still are in their last collective get the time to leave. */
static void farewell(struct ry_host *h)
{
    uint64_t until = ry_clock_ns() + 2000000000u;

    ry_meet_bye(h->meet);
    while (ry_meet_any_here(h->meet) && ry_clock_ns() < until) {
        struct pollfd p = {.fd = ry_meet_fd(h->meet), .events = POLLIN};

        poll(&p, 1, 20);
        ry_meet_step(h->meet);
    }
}

static void *serve(void *arg)
{
    struct ry_host *h = arg;
    bool stopping = false;

    while (!stopping) {
        struct pollfd p[] = {{.fd = ry_meet_fd(h->meet), .events = POLLIN},
                             {.fd = h->stop, .events = POLLIN}};

        poll(p, 2, ry_meet_started(h->meet) ? 1000 : 100);
        ry_meet_step(h->meet);
        stopping = (p[1].revents & POLLIN) != 0;
    }
    farewell(h);
    return NULL;
}

static void destroy(struct ry_host *h)
{
    ry_meet_destroy(h->meet);
    if (h->stop >= 0)
        close(h->stop);
    free(h);
}

/* Signals are the application's: none is taken by this thread. */
static int start_thread(struct ry_host *h)
{
    sigset_t all, old;

    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    int rc = pthread_create(&h->thread, NULL, serve, h);

    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc == 0 ? RY_OK : ry_fail(RY_ERR_SYSTEM, "meeting point: no thread: %s", strerror(rc));
}

int ry_host_open(const struct ry_host_cfg *cfg, const int *fds, uint32_t n_fds,
                 struct ry_host **out)
{
    struct ry_host *h = calloc(1, sizeof(*h));
    struct ry_meet_cfg m = {.n_pes = cfg->n_pes,
                            .n_nodes = cfg->n_nodes,
                            .job = cfg->job,
                            .secret = cfg->secret,
                            .start_deadline_ns = cfg->start_deadline_ns,
                            .arg = h,
                            .on_line = on_line};
    int rc =
        h ? ry_meet_create(&m, &h->meet) : ry_fail(RY_ERR_NO_MEMORY, "meeting point: no memory");

    for (uint32_t i = 0; i < n_fds; i++) {
        if (rc == RY_OK)
            rc = ry_meet_listen(h->meet, fds[i]);
        else
            close(fds[i]);
    }
    if (!h)
        return rc;
    h->log = ry_log_make(RY_DEBUG_WARN, -1);
    h->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (rc == RY_OK && h->stop < 0)
        rc = ry_fail(RY_ERR_SYSTEM, "meeting point: no descriptor: %s", strerror(errno));
    if (rc == RY_OK)
        rc = start_thread(h);
    if (rc < 0) {
        destroy(h);
        return rc;
    }
    *out = h;
    return RY_OK;
}

void ry_host_close(void *host)
{
    struct ry_host *h = host;
    uint64_t one = 1;

    if (write(h->stop, &one, sizeof(one)) < 0)
        return; /* cannot be: its counter is 0 */
    pthread_join(h->thread, NULL);
    destroy(h);
}
