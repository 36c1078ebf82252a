/* SPDX-License-Identifier: Apache-2.0 */
/* The launcher: starts the PEs, is their meeting point, sees them end.
 *
 * How a PE's end is taken: before the job has started, any end that is not exit 0 of a program that
 * never joined stops the job. Afterwards exit 0 is an end, everything else a loss: the PE is
 * replaced, or the others go on (keep_going), or the job is stopped. Stopping is SIGTERM, then
 * SIGKILL. */
#include <railyard/launch.h>

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/clock.h"
#include "host/error.h"
#include "host/launch_inside.h"
#include "host/wire.h"

#define MS 1000000ull
enum { SAY_BYTES = 640, LOSS_MS = 300, LEAVE_MS = 1500, KILL_MS = 1500 };

__attribute__((format(printf, 1, 2))) static void say(const char *form, ...)
{
    char line[SAY_BYTES];
    va_list args;
    size_t used = (size_t)snprintf(line, sizeof(line), "railyard: ");

    va_start(args, form);
    vsnprintf(line + used, sizeof(line) - used - 1, form, args);
    va_end(args);
    strcat(line, "\n");
    if (write(2, line, strlen(line)) < 0)
        return; /* nobody reads it */
}

static void stop(struct launch *l, int code, uint64_t polite_ms)
{
    uint64_t now = ry_clock_ns();

    if (l->stop_code >= 0)
        return;
    l->stop_code = code;
    l->term_ns = now + polite_ms * MS;
    l->kill_ns = l->term_ns + KILL_MS * MS;
}

static void on_line(void *arg, const char *text)
{
    (void)arg;
    say("%s", text);
}

/* The connection ended without a word: most likely the process did, and its status says more. */
static void on_lost(void *arg, uint32_t pe)
{
    struct launch *l = arg;
    struct child *c = &l->children[pe];

    if (c->state != CHILD_RUNNING)
        return;
    c->silent_loss = true;
    c->loss_ns = ry_clock_ns() + LOSS_MS * MS;
}

static void on_report(void *arg, uint32_t pe, const void *data, size_t len)
{
    struct launch *l = arg;
    ry_launch_pe *p = &l->result->pes[pe];
    char *copy = malloc(len + 1);

    if (!copy) {
        say("no memory for the result of pe %u", pe);
        return;
    }
    memcpy(copy, data, len);
    copy[len] = '\0';
    free(p->report);
    p->report = copy;
    p->report_bytes = len;
    if (l->cfg->on_report)
        l->cfg->on_report(l->cfg->arg, pe, copy, len);
}

static int listen_hub(struct launch *l)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int n = snprintf(l->hub, sizeof(l->hub), "railyard/%u/%016" PRIx64 "/hub", (unsigned)geteuid(),
                     l->job);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    memcpy(a.sun_path + 1, l->hub, (size_t)n);
    if (fd < 0 ||
        bind(fd, (struct sockaddr *)&a,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) < 0 ||
        listen(fd, 1024) < 0) {
        int rc =
            ry_fail(RY_ERR_SYSTEM, "launcher: cannot listen at @%s: %s", l->hub, strerror(errno));

        if (fd >= 0)
            close(fd);
        return rc;
    }
    return ry_meet_listen(l->meet, fd);
}

static int begin(struct launch *l)
{
    struct ry_meet_cfg m = {.n_pes = l->cfg->n_pes,
                            .n_nodes = l->n_nodes,
                            .arg = l,
                            .on_line = on_line,
                            .on_lost = on_lost,
                            .on_report = on_report};
    sigset_t mask;
    int rc = ry_random(&l->job, sizeof(l->job));

    if (rc == RY_OK)
        rc = ry_random(&l->secret, sizeof(l->secret));
    m.job = l->job;
    m.secret = l->secret;
    l->result->job = l->job;
    if (rc == RY_OK)
        rc = ry_meet_create(&m, &l->meet);
    if (rc == RY_OK)
        rc = listen_hub(l);
    sigemptyset(&mask);
    sigaddset(&mask, SIGINT);
    sigaddset(&mask, SIGTERM);
    sigaddset(&mask, SIGHUP);
    sigaddset(&mask, SIGCHLD);
    sigprocmask(SIG_BLOCK, &mask, &l->old_mask);
    if (rc == RY_OK) {
        l->sigfd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
        if (l->sigfd < 0)
            rc = ry_fail(RY_ERR_SYSTEM, "launcher: no descriptor: %s", strerror(errno));
    }
    return rc == RY_OK ? ry_guard_start(l) : rc;
}

static void on_signals(struct launch *l)
{
    struct signalfd_siginfo s;

    while (read(l->sigfd, &s, sizeof(s)) == (ssize_t)sizeof(s)) {
        if (s.ssi_signo == SIGCHLD)
            continue;
        if (l->stop_code >= 0) { /* asked twice */
            l->kill_ns = ry_clock_ns();
            continue;
        }
        say("signal %u: stopping the job", s.ssi_signo);
        kill(-l->guard, (int)s.ssi_signo); /* the guard blocks it */
        stop(l, 128 + (int)s.ssi_signo, LEAVE_MS);
    }
}

/* Dead before the job had started: nobody can go on. */
static void died_early(struct launch *l, uint32_t pe, const char *how, int code)
{
    if (!l->own || code >= 128) /* who starts itself says itself why it left */
        say("pe %u %s while starting: the job is stopped", pe, how);
    ry_meet_dead(l->meet, pe, how);
    stop(l, code ? code : 1, LEAVE_MS);
}

/* Does a replacement follow? */
static bool returns(const struct launch *l, uint32_t pe, uint64_t *delay_ns)
{
    const ry_launch_cfg *cfg = l->cfg;

    *delay_ns = cfg->return_ns ? cfg->return_ns[pe] : cfg->restart_delay_ns;
    if (cfg->return_ns)
        return *delay_ns && l->children[pe].incarnation == 0;
    return l->restarts < cfg->restarts;
}

static void died_late(struct launch *l, uint32_t pe, const char *how, int code)
{
    struct child *c = &l->children[pe];
    uint64_t delay_ns;

    ry_meet_dead(l->meet, pe, how);
    if (returns(l, pe, &delay_ns)) {
        l->restarts++;
        c->restart_ns = ry_clock_ns() + delay_ns + 1;
        say("pe %u %s: a replacement follows", pe, how);
    } else if (l->cfg->keep_going) {
        l->result->pes[pe].lost = 1;
        say("pe %u %s: the others go on", pe, how);
    } else {
        say("pe %u %s: the job is stopped", pe, how);
        stop(l, code, 100);
    }
}

/* A process has ended. A program that never joins is any program: only its exit code counts. */
static void child_ended(struct launch *l, uint32_t pe, int wait_status)
{
    struct child *c = &l->children[pe];
    int code = ry_child_code(wait_status);
    char how[128];

    for (uint32_t i = 0; i <= l->cfg->n_pes / 64; i++)
        ry_meet_step(l->meet); /* its last words, before its end */
    bool left = ry_meet_left(l->meet, pe), joined = ry_meet_joined(l->meet, pe);

    c->state = CHILD_ENDED;
    c->silent_loss = false;
    c->wait_status = wait_status;
    ry_child_text(wait_status, how, sizeof(how));
    if (l->stop_code >= 0 || (code == 0 && left))
        return;
    if (code == 0 && !joined && !ry_meet_any_joined(l->meet))
        return;              /* looked at again when one joins */
    if (code != 0 && left) { /* its own verdict, after it had left in order */
        if (!l->cfg->keep_going || !ry_meet_started(l->meet))
            stop(l, code, 2 * LEAVE_MS);
        return;
    }
    if (ry_meet_started(l->meet) && (joined || c->incarnation > 0))
        died_late(l, pe, how, code ? code : 1);
    else if (ry_meet_any_joined(l->meet) || code != 0)
        died_early(l, pe, how, code);
}

static void reap(struct launch *l)
{
    for (uint32_t i = 0; i < l->cfg->n_pes; i++) {
        struct child *c = &l->children[i];
        int status = 0;

        if (c->state == CHILD_RUNNING && waitpid(c->pid, &status, WNOHANG) == c->pid)
            child_ended(l, i, status);
    }
}

static void check_times(struct launch *l)
{
    uint64_t now = ry_clock_ns();

    for (uint32_t i = 0; i < l->cfg->n_pes; i++) {
        struct child *c = &l->children[i];

        if (c->silent_loss && now >= c->loss_ns) {
            c->silent_loss = false;
            ry_meet_dead(l->meet, i, "closed its connection to the launcher");
        }
        if (c->restart_ns && now >= c->restart_ns && l->stop_code < 0) {
            c->restart_ns = 0;
            c->incarnation = ry_meet_expect(l->meet, i);
            if (ry_child_start(l, i) < 0) {
                say("%s", ry_last_error());
                stop(l, 2, 0);
            }
        }
        if (c->state == CHILD_ENDED && !ry_meet_joined(l->meet, i) && l->stop_code < 0 &&
            !ry_meet_started(l->meet) && ry_meet_any_joined(l->meet))
            died_early(l, i, "ended without joining the job", ry_child_code(c->wait_status));
    }
    if (l->first_join_ns == 0 && ry_meet_any_joined(l->meet)) {
        l->first_join_ns = now;
        ry_meet_start_by(l->meet,
                         now + (l->cfg->start_timeout_ns ? l->cfg->start_timeout_ns : 60000 * MS));
    }
    if (l->stop_code >= 0 && now >= l->term_ns && l->term_ns) {
        l->term_ns = 0;
        for (uint32_t i = 0; i < l->cfg->n_pes; i++) {
            if (l->children[i].state == CHILD_RUNNING)
                kill(l->children[i].pid, SIGTERM);
        }
    }
    if (l->stop_code >= 0 && now >= l->kill_ns) {
        for (uint32_t i = 0; i < l->cfg->n_pes; i++) {
            if (l->children[i].state == CHILD_RUNNING)
                kill(l->children[i].pid, SIGKILL);
        }
    }
}

static bool busy(const struct launch *l)
{
    for (uint32_t i = 0; i < l->cfg->n_pes; i++) {
        if (l->children[i].state == CHILD_RUNNING)
            return true;
        if (l->children[i].restart_ns && l->stop_code < 0)
            return true;
    }
    return false;
}

static void run(struct launch *l)
{
    while (busy(l)) {
        struct pollfd p[] = {{.fd = l->sigfd, .events = POLLIN},
                             {.fd = ry_meet_fd(l->meet), .events = POLLIN}};
        bool timed = l->stop_code >= 0 || !ry_meet_started(l->meet) || l->restarts;

        poll(p, 2, timed ? 50 : 1000);
        on_signals(l);
        ry_meet_step(l->meet);
        reap(l);
        check_times(l);
    }
}

/* The worst that counts: why the job was stopped, else the first PE that failed by its own verdict.
 */
static void conclude(struct launch *l)
{
    int code = 0;

    for (uint32_t i = 0; i < l->cfg->n_pes; i++) {
        ry_launch_pe *p = &l->result->pes[i];

        p->exit_code = l->children[i].pid ? ry_child_code(l->children[i].wait_status) : 1;
        p->incarnation = l->children[i].incarnation;
        if (code == 0 && !(p->lost && p->exit_code > 128))
            code = p->exit_code;
    }
    l->result->exit_code = l->stop_code >= 0 ? l->stop_code : code;
}

static void end(struct launch *l)
{
    ry_guard_end(l);
    for (uint32_t i = 0; l->children && i < l->cfg->n_pes; i++) {
        if (l->children[i].state == CHILD_RUNNING)
            waitpid(l->children[i].pid, &l->children[i].wait_status, 0);
    }
    if (l->sigfd >= 0) {
        struct signalfd_siginfo late; /* came in the meantime: not to hit the caller */

        while (read(l->sigfd, &late, sizeof(late)) == (ssize_t)sizeof(late))
            continue;
        close(l->sigfd);
    }
    ry_meet_destroy(l->meet);
    sigprocmask(SIG_SETMASK, &l->old_mask, NULL);
    free(l->children);
}

static int launch(const ry_launch_cfg *cfg, const char *file, char *const *argv,
                  ry_launch_result *result)
{
    struct launch l = {.cfg = cfg,
                       .file = file,
                       .own = argv != cfg->argv,
                       .argv = argv,
                       .n_nodes = cfg->n_nodes ? cfg->n_nodes : 1,
                       .result = result,
                       .sigfd = -1,
                       .self = getpid(),
                       .stop_code = -1};

    if (cfg->n_pes == 0 || cfg->n_pes > RY_WIRE_PES_MAX || l.n_nodes > cfg->n_pes)
        return ry_fail(RY_ERR_INVALID, "a job of %u pes on %u nodes: 1 to %d pes, not more nodes",
                       cfg->n_pes, l.n_nodes, RY_WIRE_PES_MAX);
    *result = (ry_launch_result){.n_pes = cfg->n_pes};
    result->pes = calloc(cfg->n_pes, sizeof(*result->pes));
    l.children = calloc(cfg->n_pes, sizeof(*l.children));
    sigprocmask(SIG_SETMASK, NULL, &l.old_mask);
    int rc =
        result->pes && l.children ? begin(&l) : ry_fail(RY_ERR_NO_MEMORY, "launcher: no memory");

    if (rc == RY_OK && !cfg->quiet)
        say("job %016" PRIx64 ": %u pes on %u %s", l.job, cfg->n_pes, l.n_nodes,
            l.n_nodes == 1 ? "node" : "nodes");
    for (uint32_t i = 0; rc == RY_OK && i < cfg->n_pes; i++)
        rc = ry_child_start(&l, i);
    if (rc == RY_OK) {
        run(&l);
        conclude(&l);
    }
    end(&l);
    if (rc < 0)
        ry_launch_result_free(result);
    return rc;
}

int ry_launch(const ry_launch_cfg *cfg, ry_launch_result *result)
{
    if (!cfg || !result || !cfg->argv || !cfg->argv[0])
        return ry_fail(RY_ERR_INVALID, "launcher: no program is given");
    return launch(cfg, cfg->argv[0], cfg->argv, result);
}

int ry_launch_self(int argc, char *const *argv, const ry_launch_cfg *cfg, ry_launch_result *result)
{
    if (!cfg || !result || argc < 1)
        return ry_fail(RY_ERR_INVALID, "launcher: no arguments are given");
    return launch(cfg, "/proc/self/exe", argv, result);
}

void ry_launch_result_free(ry_launch_result *result)
{
    for (uint32_t i = 0; result->pes && i < result->n_pes; i++)
        free(result->pes[i].report);
    free(result->pes);
    *result = (ry_launch_result){0};
}
