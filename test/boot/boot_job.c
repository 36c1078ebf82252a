/* SPDX-License-Identifier: Apache-2.0 */
/* A PE for the launch tests: joins the job and does what its first argument says. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <railyard/launch.h>

#include "host/boot.h"
#include "host/boot_env.h"
#include "host/clock.h"
#include "host/wire.h"

enum { ROUNDS = 50, PES_MAX = 64 };

static uint64_t in_s(double s) { return ry_clock_ns() + (uint64_t)(s * 1e9); }

static void need(int ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "boot_job: %s: %s\n", what, ry_last_error());
    exit(1);
}

static struct ry_boot *join(void)
{
    struct ry_boot *b = NULL;
    int rc = ry_boot_open(NULL, 0, in_s(20), &b);

    if (rc < 0) {
        fprintf(stderr, "boot_job: %s: %s\n", ry_status_name(rc), ry_last_error());
        exit(rc == RY_ERR_LAUNCH ? 3 : 2);
    }
    return b;
}

static void collectives(struct ry_boot *b)
{
    for (uint32_t r = 0; r < ROUNDS; r++) {
        uint32_t mine[2] = {b->pe, r}, all[PES_MAX][2];
        size_t offs[PES_MAX + 1], len = (b->pe + r) % 7 * 1000;
        char text[7000];
        void *varied = NULL;

        need(b->ops->allgather(b, mine, sizeof(mine), all, in_s(10)) == 0, "allgather");
        memset(text, 'a' + (int)(b->pe % 26), sizeof(text));
        need(b->ops->allgatherv(b, text, len, &varied, offs, in_s(10)) == 0, "allgatherv");
        for (uint32_t i = 0; i < b->n_pes; i++) {
            need(all[i][0] == i && all[i][1] == r, "allgather's result");
            need(offs[i + 1] - offs[i] == (i + r) % 7 * 1000, "allgatherv's lengths");
            for (size_t k = offs[i]; k < offs[i + 1]; k++)
                need(((char *)varied)[k] == 'a' + (int)(i % 26), "allgatherv's bytes");
        }
        free(varied);
    }
}

static void large_part(struct ry_boot *b)
{
    size_t len = (12 << 20) / b->n_pes, offs[PES_MAX + 1];
    char *mine = malloc(len);
    void *all = NULL;

    memset(mine, (int)b->pe + 1, len);
    need(b->ops->allgatherv(b, mine, len, &all, offs, in_s(20)) == 0, "large allgatherv");
    for (uint32_t i = 0; i < b->n_pes; i++)
        need(((char *)all)[offs[i]] == (char)(i + 1) &&
                 ((char *)all)[offs[i + 1] - 1] == (char)(i + 1),
             "large allgatherv's bytes");
    free(mine);
    free(all);
}

static uint32_t descriptors(struct ry_boot *b)
{
    int fds[PES_MAX * RY_BOOT_FDS_MAX], mine[2];
    char byte = (char)b->pe, got = 0;
    uint32_t near = 0;

    for (int i = 0; i < 2; i++) {
        mine[i] = memfd_create("test", MFD_CLOEXEC);
        byte = (char)(b->pe * 2 + (uint32_t)i);
        need(write(mine[i], &byte, 1) == 1, "memfd");
    }
    for (int round = 0; round < 3; round++) {
        near = 0;
        need(b->ops->share_fds(b, mine, 2, fds, in_s(10)) == 0, "share_fds");
        for (uint32_t i = 0; i < b->n_pes * RY_BOOT_FDS_MAX; i++) {
            uint32_t pe = i / RY_BOOT_FDS_MAX, k = i % RY_BOOT_FDS_MAX;
            int want = b->ops->same_host(b, pe) && k < 2;

            need((fds[i] >= 0) == want, "who gives descriptors");
            if (!want)
                continue;
            need(pread(fds[i], &got, 1, 0) == 1 && got == (char)(pe * 2 + k),
                 "what is behind them");
            close(fds[i]);
            near += k == 0;
        }
    }
    close(mine[0]);
    close(mine[1]);
    return near;
}

/* For 50 ms: tells every other PE a number, and hears theirs. */
static void talk(struct ry_boot *b, int *heard, uint32_t *n_heard)
{
    uint64_t until = in_s(0.05);
    uint32_t from = 0, mine = 1000 + b->pe;

    for (uint32_t i = 0; i < b->n_pes; i++)
        need(i == b->pe || b->ops->ctl_send(b, i, &mine, sizeof(mine)) == 0, "ctl_send");
    while (ry_clock_ns() < until) {
        struct pollfd p = {.fd = b->ops->wait_fd(b), .events = POLLIN};
        unsigned char msg[RY_CTL_BYTES_MAX];
        size_t len = 0;

        poll(&p, 1, 5);
        while (b->ops->ctl_recv(b, &from, msg, &len) == 1) {
            uint32_t want = 1000 + from;

            need(len == sizeof(want) && memcmp(msg, &want, len) == 0, "a datagram's bytes");
            *n_heard += !heard[from];
            heard[from] = 1;
        }
    }
}

/* Until all have heard all, since datagrams may be lost. */
static void datagrams(struct ry_boot *b)
{
    int heard[PES_MAX] = {0};
    uint32_t n_heard = 1, all[PES_MAX], still = 1;
    uint64_t until = in_s(20);

    heard[b->pe] = 1;
    while (still) {
        need(ry_clock_ns() < until, "datagrams from everyone");
        talk(b, heard, &n_heard);
        need(b->ops->allgather(b, &n_heard, sizeof(n_heard), all, in_s(20)) == 0, "allgather");
        still = 0;
        for (uint32_t i = 0; i < b->n_pes; i++)
            still += all[i] < b->n_pes;
    }
}

static int all(struct ry_boot *b)
{
    char text[200];
    uint32_t near;

    collectives(b);
    large_part(b);
    near = descriptors(b);
    need(b->ops->barrier(b, in_s(10)) == 0, "barrier");
    datagrams(b);
    snprintf(text, sizeof(text), "pe %u of %u, node %u of %u, local %u of %u, near %u", b->pe,
             b->n_pes, b->node, b->n_nodes, b->local_pe, b->n_local, near);
    puts(text);
    fflush(stdout);
    int rc = ry_launch_report(text, strlen(text));

    need(rc == 0 || rc == RY_ERR_NOT_FOUND, "report");
    return 0;
}

static void wait_event(struct ry_boot *b, enum ry_boot_event_type type, uint32_t pe, uint32_t inc)
{
    uint64_t until = in_s(10);
    struct ry_boot_event ev;

    while (b->ops->poll_event(b, &ev) == 0) {
        struct pollfd p = {.fd = b->ops->wait_fd(b), .events = POLLIN};

        need(ry_clock_ns() < until, "an event in time");
        poll(&p, 1, 100);
    }
    need(ev.type == type && ev.pe == pe && ev.incarnation == inc, "the event that came");
}

static int die_starting(struct ry_boot *b, uint32_t pe)
{
    uint32_t mine = 1, theirs[PES_MAX];
    uint64_t since = ry_clock_ns();

    if (b->pe == pe)
        raise(SIGKILL);
    int rc = b->ops->allgather(b, &mine, sizeof(mine), theirs, in_s(30));

    printf("pe %u: %s after %s: %s\n", b->pe, ry_status_name(rc),
           ry_clock_ns() - since < 5000000000u ? "less than 5 s" : "too long", ry_last_error());
    fflush(stdout);
    b->ops->close(b);
    return 3;
}

static int die_late(struct ry_boot *b, uint32_t pe)
{
    need(b->ops->barrier(b, in_s(10)) == 0, "barrier");
    usleep(100000); /* the others get through it */
    if (b->pe == pe)
        raise(SIGKILL);
    wait_event(b, RY_BOOT_PE_LOST, pe, 0);
    int rc = b->ops->barrier(b, in_s(10));

    need(rc == RY_ERR_LAUNCH, "a barrier that fails");
    printf("pe %u goes on: %s\n", b->pe, ry_last_error());
    return 0;
}

static int replace(struct ry_boot *b, uint32_t pe)
{
    if (b->pe != pe || b->incarnation == 0)
        need(b->ops->barrier(b, in_s(10)) == 0, "barrier");
    if (b->pe == pe && b->incarnation == 0)
        raise(SIGKILL);
    if (b->pe != pe) {
        wait_event(b, RY_BOOT_PE_LOST, pe, 0);
        wait_event(b, RY_BOOT_PE_JOINED, pe, 1);
    }
    descriptors(b); /* the replacement counts its rounds anew */
    datagrams(b);
    printf("pe %u incarnation %u, node %u of %u\n", b->pe, b->incarnation, b->node, b->n_nodes);
    return 0;
}

/* A message of 256 MiB as its header says it. */
static int oversize(void)
{
    struct ry_net_cfg cfg = {0};
    unsigned char header[RY_WIRE_HEADER];
    char answer[512] = "";
    int fd = ry_boot_launch_connect(&cfg);

    need(fd >= 0, "connect");
    ry_wire_header(header, RY_WIRE_HELLO, 0, 256 << 20);
    need(write(fd, header, sizeof(header)) == sizeof(header), "write");
    ssize_t n, got = 0;

    while (got < (ssize_t)sizeof(answer) - 1 &&
           (n = read(fd, answer + got, sizeof(answer) - 1 - (size_t)got)) > 0)
        got += n;
    for (ssize_t i = 0; i < got; i++)
        answer[i] = answer[i] < ' ' ? '.' : answer[i];
    puts(answer);
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    uint32_t pe = argc > 2 ? (uint32_t)atoi(argv[2]) : 0;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (strcmp(what, "oversize") == 0)
        return oversize();
    if (strcmp(what, "wrong-secret") == 0 && strcmp(getenv("RAILYARD_PE"), argv[2]) == 0)
        setenv("RAILYARD_SECRET", "00112233445566778899aabbccddeeff", 1);
    if (strcmp(what, "die-before") == 0 && strcmp(getenv("RAILYARD_PE"), argv[2]) == 0)
        raise(SIGKILL);
    struct ry_boot *b = join();
    int rc = 2;

    need(b->n_pes <= PES_MAX, "at most 64 pes");
    if (strcmp(what, "all") == 0)
        rc = all(b);
    else if (strcmp(what, "die-starting") == 0)
        return die_starting(b, pe);
    else if (strcmp(what, "die-late") == 0)
        rc = die_late(b, pe);
    else if (strcmp(what, "replace") == 0)
        rc = replace(b, pe);
    else if (strcmp(what, "wait") == 0) {
        need(b->ops->barrier(b, in_s(10)) == 0, "barrier");
        printf("pe %u waits as %d\n", b->pe, (int)getpid());
        pause();
    } else if (strcmp(what, "fail") == 0) {
        need(b->ops->barrier(b, in_s(10)) == 0, "barrier");
        rc = b->pe == pe ? 7 : 0;
    }
    b->ops->close(b);
    return rc;
}
