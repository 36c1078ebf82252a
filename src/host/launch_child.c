/* SPDX-License-Identifier: Apache-2.0 */
/* The launcher's processes: one guard and the PEs, all in one process group. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/error.h"
#include "host/launch_inside.h"

extern char **environ;

/* Only calls that are safe after fork in a process that had threads. */
static void guard_main(int pipe_end)
{
    sigset_t all;
    char byte;
    ssize_t n;

    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    do
        n = read(pipe_end, &byte, 1);
    while (n > 0 || (n < 0 && errno == EINTR));
    kill(0, SIGKILL); /* the group, itself included */
    _exit(0);
}

int ry_guard_start(struct launch *l)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0)
        return ry_fail(RY_ERR_SYSTEM, "launcher: no pipe: %s: see ulimit -n", strerror(errno));
    pid_t pid = fork();

    if (pid == 0) {
        setpgid(0, 0);
        prctl(PR_SET_NAME, "railyard-guard");
        close(ends[1]);
        /* Nobody may wait for this process's copy of what the launcher was given. */
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);

        for (int fd = 0; null >= 0 && fd < 3; fd++)
            dup2(null, fd);
        guard_main(ends[0]);
    }
    close(ends[0]);
    if (pid < 0) {
        close(ends[1]);
        return ry_fail(RY_ERR_SYSTEM, "launcher: no process: %s", strerror(errno));
    }
    setpgid(pid, pid); /* whichever comes first, its own or this */
    l->guard = pid;
    l->guard_pipe = ends[1];
    return RY_OK;
}

void ry_guard_end(struct launch *l)
{
    if (l->guard <= 0)
        return;
    kill(-l->guard, SIGKILL);
    close(l->guard_pipe);
    while (waitpid(l->guard, NULL, 0) < 0 && errno == EINTR)
        continue;
    l->guard = 0;
}

struct env_list {
    char **v;
    size_t n;
};

/* Puts NAME=VALUE in, over what has the same name. The text is the list's from then on. */
static int env_put(struct env_list *e, char *entry)
{
    size_t name = entry ? strcspn(entry, "=") + 1 : 0;
    size_t i = 0;

    if (!entry)
        return RY_ERR_NO_MEMORY;
    while (i < e->n && strncmp(e->v[i], entry, name) != 0)
        i++;
    if (i < e->n) {
        free(e->v[i]);
        e->v[i] = entry;
        return RY_OK;
    }
    char **more = realloc(e->v, (e->n + 2) * sizeof(*more));

    if (!more) {
        free(entry);
        return RY_ERR_NO_MEMORY;
    }
    e->v = more;
    e->v[e->n++] = entry;
    e->v[e->n] = NULL;
    return RY_OK;
}

static void env_free(struct env_list *e)
{
    for (size_t i = 0; i < e->n; i++)
        free(e->v[i]);
    free(e->v);
}

__attribute__((format(printf, 2, 3))) static int env_print(struct env_list *e, const char *form,
                                                           ...)
{
    char *text = NULL;
    va_list args;

    va_start(args, form);
    if (vasprintf(&text, form, args) < 0)
        text = NULL;
    va_end(args);
    return env_put(e, text);
}

static int make_env(struct launch *l, uint32_t pe, struct env_list *e)
{
    char hex[RY_SECRET_HEX];
    int rc = RY_OK;

    for (char **v = environ; rc == RY_OK && v && *v; v++)
        rc = env_put(e, strdup(*v));
    for (const char *const *v = l->cfg->env; rc == RY_OK && v && *v; v++)
        rc = env_put(e, strdup(*v));
    ry_secret_to_hex(&l->secret, hex);
    if (rc == RY_OK)
        rc = env_print(e, "RAILYARD_BOOT=launch:%s", l->hub);
    if (rc == RY_OK)
        rc = env_print(e, "RAILYARD_PE=%u", pe);
    if (rc == RY_OK)
        rc = env_print(e, "RAILYARD_PES=%u", l->cfg->n_pes);
    if (rc == RY_OK)
        rc = env_print(e, "RAILYARD_NODES=%u", l->n_nodes);
    if (rc == RY_OK)
        rc = env_print(e, "RAILYARD_JOB=%016" PRIx64, l->job);
    if (rc == RY_OK)
        rc = env_print(e, "RAILYARD_SECRET=%s", hex);
    if (rc == RY_OK)
        rc = env_print(e, "RAILYARD_INCARNATION=%u", l->children[pe].incarnation);
    return rc == RY_OK ? RY_OK : ry_fail(RY_ERR_NO_MEMORY, "launcher: no memory");
}

/* In the child; never returns. */
static void child_main(struct launch *l, char **env, int report, int null_fd)
{
    int cause;

    setpgid(0, l->guard);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != l->self)
        _exit(128 + SIGKILL); /* the launcher ended before the line above */
    if (null_fd >= 0)
        dup2(null_fd, 0);
    sigprocmask(SIG_SETMASK, &l->old_mask, NULL);
    execvpe(l->file, l->argv, env);
    cause = errno;
    if (write(report, &cause, sizeof(cause)) < 0)
        _exit(126);
    _exit(127);
}

/* PE 0 reads what the launcher was given, unless that is a terminal: the job has no terminal of its
 * own, and reading would stop it. */
static int input_of(uint32_t pe)
{
    return pe == 0 && !isatty(0) ? -1 : open("/dev/null", O_RDONLY | O_CLOEXEC);
}

int ry_child_start(struct launch *l, uint32_t pe)
{
    struct env_list env = {0};
    int ends[2] = {-1, -1}, cause = 0, null_fd = -1;
    int rc = make_env(l, pe, &env);

    if (rc == RY_OK && pipe2(ends, O_CLOEXEC) < 0)
        rc = ry_fail(RY_ERR_SYSTEM, "launcher: no pipe: %s: see ulimit -n", strerror(errno));
    if (rc < 0) {
        env_free(&env);
        return rc;
    }
    null_fd = input_of(pe);
    pid_t pid = fork();

    if (pid == 0)
        child_main(l, env.v, ends[1], null_fd);
    close(ends[1]);
    if (null_fd >= 0)
        close(null_fd);
    env_free(&env);
    if (pid < 0) {
        close(ends[0]);
        return ry_fail(RY_ERR_SYSTEM, "launcher: no process: %s: see ulimit -u", strerror(errno));
    }
    ssize_t n;

    do
        n = read(ends[0], &cause, sizeof(cause));
    while (n < 0 && errno == EINTR);
    close(ends[0]);
    if (n == (ssize_t)sizeof(cause)) {
        waitpid(pid, NULL, 0);
        return ry_fail(RY_ERR_CONFIG, "cannot start '%s': %s", l->file, strerror(cause));
    }
    l->children[pe].pid = pid;
    l->children[pe].state = CHILD_RUNNING;
    return RY_OK;
}

void ry_child_text(int wait_status, char *buf, size_t cap)
{
    if (WIFSIGNALED(wait_status))
        snprintf(buf, cap, "was killed by signal %d (%s)", WTERMSIG(wait_status),
                 strsignal(WTERMSIG(wait_status)));
    else
        snprintf(buf, cap, "ended with exit code %d", WEXITSTATUS(wait_status));
}

int ry_child_code(int wait_status)
{
    return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}
