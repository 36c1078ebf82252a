/* SPDX-License-Identifier: Apache-2.0 */
/* `railyard doctor -- COMMAND`: the command runs, and what it prints is the log that is judged. */
#include "doctor_run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <railyard/facts.h>

#include "record.h"

/* All that the pipe gives goes to stderr as it comes; the last RY_FACT_MAX bytes are kept. */
static void copy(int fd, char *log, size_t *len)
{
    char part[4096];
    for (;;) {
        ssize_t n = read(fd, part, sizeof part);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return;
        if (write(STDERR_FILENO, part, (size_t)n) < 0 && errno == EPIPE)
            return;
        if (*len + (size_t)n > RY_FACT_MAX) {
            size_t keep = RY_FACT_MAX / 2 < *len ? RY_FACT_MAX / 2 : *len;
            memmove(log, log + *len - keep, keep);
            *len = keep;
        }
        memcpy(log + *len, part, (size_t)n);
        *len += (size_t)n;
    }
}

static void be_command(char **argv, const int *ends)
{
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    execvp(argv[0], argv);
    fprintf(stderr, "railyard doctor: cannot run '%s': %s\n", argv[0], strerror(errno));
    _exit(127);
}

int ry_doctor_run(char **argv, ry_facts *facts)
{
    int ends[2], status = 0;
    size_t len = 0;
    char *log = malloc(RY_FACT_MAX);
    if (!log || pipe(ends) != 0) {
        free(log);
        return ry_tool_error("doctor", "cannot run '%s': no memory or descriptor", argv[0]);
    }
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        be_command(argv, ends);
    close(ends[1]);
    if (child > 0)
        copy(ends[0], log, &len);
    close(ends[0]);
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    int rc = child > 0 ? ry_facts_put(facts, "facts/log", log, len) : RY_ERR_SYSTEM;
    free(log);
    if (rc != RY_OK)
        return ry_tool_error("doctor", "cannot run '%s': %s", argv[0], ry_status_text(rc));
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return TOOL_BAD_INPUT; /* said already */
    if (WIFSIGNALED(status))
        fprintf(stderr, "railyard doctor: '%s' was ended by signal %d\n", argv[0],
                WTERMSIG(status));
    else if (WEXITSTATUS(status) != 0)
        fprintf(stderr, "railyard doctor: '%s' ended with exit code %d\n", argv[0],
                WEXITSTATUS(status));
    return TOOL_OK;
}
