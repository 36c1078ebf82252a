/* SPDX-License-Identifier: Apache-2.0 */
/* Finding running jobs and asking their PEs. */
#include <railyard/attach.h>

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "host/boot_ctl.h"
#include "host/clock.h"
#include "host/error.h"

struct listener {
    uint64_t job;
    uint32_t pe;
};

/* One line of /proc/net/unix: does it end in a name that ry_attach_open binds? */
static bool parse_line(const char *line, struct listener *out)
{
    char prefix[48];
    const char *name = strchr(line, '@');
    char *end = NULL;

    snprintf(prefix, sizeof(prefix), "@railyard/%u/", (unsigned)geteuid());
    if (!name || strncmp(name, prefix, strlen(prefix)) != 0)
        return false;
    name += strlen(prefix);
    if (strspn(name, "0123456789abcdef") != 16 || name[16] != '/' || name[17] < '0' ||
        name[17] > '9')
        return false;
    out->job = strtoull(name, NULL, 16);
    out->pe = (uint32_t)strtoul(name + 17, &end, 10);
    return *end == '\n' || *end == '\0';
}

static int compare(const void *a, const void *b)
{
    const struct listener *x = a, *y = b;

    if (x->job != y->job)
        return x->job < y->job ? -1 : 1;
    return x->pe < y->pe ? -1 : x->pe > y->pe;
}

/* A connection to a listener shows under the same name: each is there once in the result. */
static int scan(struct listener **out, size_t *n_out)
{
    FILE *f = fopen("/proc/net/unix", "re");
    struct listener *list = NULL, one;
    size_t n = 0, room = 0;
    char line[512];

    if (!f)
        return ry_fail(RY_ERR_SYSTEM, "cannot read /proc/net/unix: %s", strerror(errno));
    while (fgets(line, sizeof(line), f)) {
        if (!parse_line(line, &one))
            continue;
        if (n == room) {
            room = room ? 2 * room : 64;
            struct listener *more = realloc(list, room * sizeof(*more));

            if (!more) {
                free(list);
                fclose(f);
                return ry_fail(RY_ERR_NO_MEMORY, "no memory");
            }
            list = more;
        }
        list[n++] = one;
    }
    fclose(f);
    size_t kept = 0;

    if (n > 0)
        qsort(list, n, sizeof(*list), compare);
    for (size_t i = 0; i < n; i++) {
        if (kept == 0 || compare(&list[i], &list[kept - 1]) != 0)
            list[kept++] = list[i];
    }
    *out = list;
    *n_out = kept;
    return RY_OK;
}

void ry_attach_jobs_free(ry_attach_job *jobs, uint32_t n_jobs)
{
    for (uint32_t i = 0; jobs && i < n_jobs; i++)
        free(jobs[i].pes);
    free(jobs);
}

int ry_attach_jobs(ry_attach_job **jobs, uint32_t *n_jobs)
{
    struct listener *list = NULL;
    size_t n = 0;
    int rc = scan(&list, &n);
    ry_attach_job *out = rc == RY_OK ? calloc(n + 1, sizeof(*out)) : NULL;
    uint32_t count = 0;

    if (rc < 0)
        return rc;
    for (size_t i = 0; out && i < n;) {
        size_t k = i;

        while (k < n && list[k].job == list[i].job)
            k++;
        ry_attach_job *j = &out[count++];

        j->job = list[i].job;
        j->pes = calloc(k - i, sizeof(*j->pes));
        for (; j->pes && i < k; i++)
            j->pes[j->n_pes++] = list[i].pe;
        if (!j->pes) {
            ry_attach_jobs_free(out, count);
            out = NULL;
        }
    }
    free(list);
    if (!out)
        return ry_fail(RY_ERR_NO_MEMORY, "no memory");
    *jobs = out;
    *n_jobs = count;
    return RY_OK;
}

int ry_attach_find(const char *text, uint64_t *job)
{
    ry_attach_job *jobs = NULL;
    uint32_t n = 0, hits = 0, at = 0;
    char list[256] = "", id[20];
    size_t len = text ? strlen(text) : 0;
    int rc = ry_attach_jobs(&jobs, &n);

    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < n; i++) {
        snprintf(id, sizeof(id), "%016" PRIx64, jobs[i].job);
        if (len > 16 || strncmp(id, text ? text : "", len) != 0)
            continue;
        hits++;
        at = i;
        if (strlen(list) + 20 < sizeof(list))
            strcat(strcat(list, " "), id);
    }
    if (hits == 1)
        *job = jobs[at].job;
    ry_attach_jobs_free(jobs, n);
    if (hits == 1)
        return RY_OK;
    if (hits > 1)
        return ry_fail(RY_ERR_INVALID, "several jobs run here:%s: say which with --job", list);
    return n > 0 && len > 0
               ? ry_fail(RY_ERR_NOT_FOUND, "no job '%.20s' of this user runs on this machine", text)
               : ry_fail(RY_ERR_NOT_FOUND, "no job of this user runs on this machine");
}

static int open_pe(uint64_t job, uint32_t pe)
{
    struct sockaddr_un name;
    struct ucred who;
    socklen_t len = ry_ctl_name(&name, job, pe, ""), who_len = sizeof(who);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return ry_fail(RY_ERR_SYSTEM, "no socket: %s", strerror(errno));
    int rc =
        connect(fd, (struct sockaddr *)&name, len) == 0
            ? RY_OK
            : ry_fail(RY_ERR_NOT_FOUND, "pe %u of job %016" PRIx64 " does not run here", pe, job);

    if (rc == RY_OK &&
        (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &who_len) < 0 || who.uid != geteuid()))
        rc = ry_fail(RY_ERR_AUTH, "pe %u of job %016" PRIx64 " is another user's", pe, job);
    if (rc == RY_OK)
        return fd;
    close(fd);
    return rc;
}

/* All until the other end closes. */
static int read_all(int fd, uint64_t deadline_ns, char **out, size_t *out_len)
{
    size_t room = 8192, len = 0;
    char *buf = malloc(room);

    while (buf) {
        struct pollfd p = {.fd = fd, .events = POLLIN};

        if (len + 1 == room) {
            char *more = room < 2 * (size_t)RY_ATTACH_ANSWER_MAX ? realloc(buf, 2 * room) : NULL;

            if (!more)
                break;
            buf = more;
            room *= 2;
        }
        if (poll(&p, 1, ry_clock_left_ms(deadline_ns, 60000)) == 0) {
            free(buf);
            return ry_fail(RY_ERR_TIMEOUT, "no answer in time: is the pe stopped?");
        }
        ssize_t n = recv(fd, buf + len, room - 1 - len, 0);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            buf[len] = '\0';
            *out = buf;
            *out_len = len;
            return RY_OK;
        }
        len += (size_t)n;
    }
    free(buf);
    return ry_fail(RY_ERR_NO_MEMORY, "no memory for the answer");
}

int ry_attach_request(uint64_t job, uint32_t pe, const char *request, uint64_t timeout_ns,
                      char **answer)
{
    uint64_t deadline = ry_clock_ns() + timeout_ns;
    char line[RY_ATTACH_REQUEST_MAX + 1];
    size_t len = strlen(request), got = 0, want = 0;
    char *text = NULL;
    int head = 0, status = 0;

    if (len >= RY_ATTACH_REQUEST_MAX || strchr(request, '\n'))
        return ry_fail(RY_ERR_INVALID, "a request of %zu bytes: one line of at most %d", len,
                       RY_ATTACH_REQUEST_MAX - 1);
    int fd = open_pe(job, pe);

    if (fd < 0)
        return fd;
    memcpy(line, request, len);
    line[len] = '\n';
    int rc = send(fd, line, len + 1, MSG_NOSIGNAL) == (ssize_t)len + 1
                 ? read_all(fd, deadline, &text, &got)
                 : ry_fail(RY_ERR_UNREACHABLE, "pe %u does not listen: %s", pe, strerror(errno));

    close(fd);
    if (rc < 0)
        return rc;
    if (sscanf(text, "%d %zu%n", &status, &want, &head) != 2 || text[head] != '\n' ||
        got - (size_t)head - 1 != want) {
        free(text);
        return ry_fail(RY_ERR_PROTOCOL, "the answer of pe %u makes no sense", pe);
    }
    memmove(text, text + head + 1, want + 1);
    if (status < 0) {
        rc = ry_fail(status, "pe %u: %.400s", pe, text);
        free(text);
        return rc;
    }
    *answer = text;
    return RY_OK;
}
