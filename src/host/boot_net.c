/* SPDX-License-Identifier: Apache-2.0 */
/* The bootstrap's ops for PEs that are processes. */
#include "host/boot_net.h"

#include <railyard/status.h>

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/boot_net_inside.h"
#include "host/clock.h"
#include "host/error.h"

static struct net_boot *net_of(struct ry_boot *b) { return (struct net_boot *)b; }

static const char *const kind_names[] = {"allgather", "allgatherv", "barrier"};

/* On success the caller owns n->result. */
static int collective(struct net_boot *n, enum ry_wire_kind kind, const void *in, size_t len,
                      uint64_t deadline_ns)
{
    struct ry_wire_out out = {0};

    if (len > RY_BOOT_BYTES_MAX)
        return ry_fail(RY_ERR_PROTOCOL, "%s: %zu bytes are more than the %d that one pe may give",
                       kind_names[kind], len, RY_BOOT_BYTES_MAX);
    struct ry_blob *b = ry_blob_new(4 + len);

    if (!b)
        return ry_fail(RY_ERR_NO_MEMORY, "%s: no memory for %zu bytes", kind_names[kind], len);
    ry_put32(b->bytes, kind);
    if (len)
        memcpy(b->bytes + 4, in, len);
    pthread_mutex_lock(&n->lock);
    free(n->result);
    n->result = NULL;
    n->answer = 0;
    n->answer_seq = ++n->seq;
    pthread_mutex_unlock(&n->lock);
    int rc = ry_wire_queue(&out, RY_WIRE_PART, n->seq, b);

    ry_blob_drop(b);
    if (rc == RY_OK)
        rc = ry_net_send_all(n, &out, kind_names[kind], deadline_ns);
    ry_wire_out_free(&out);
    if (rc == RY_OK)
        rc = ry_net_wait_for(n, NULL, &n->answer, kind_names[kind], deadline_ns);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&n->lock);
    if (n->answer < 0 && n->failed) /* what ended all says more than what it did to this round */
        rc = ry_fail(n->failed, "%s", n->failed_text);
    else
        rc =
            n->answer == 1 ? RY_OK : ry_fail(n->answer, "%s: %s", kind_names[kind], n->answer_text);
    pthread_mutex_unlock(&n->lock);
    return rc;
}

/* Offsets of the parts in the result, which is then this thread's. */
static int parts_of(struct net_boot *n, size_t *offs)
{
    return ry_wire_get_result(n->result, n->result_len, n->boot.n_pes, offs);
}

static int net_allgatherv(struct ry_boot *b, const void *in, size_t len, void **out, size_t *offs,
                          uint64_t deadline_ns)
{
    struct net_boot *n = net_of(b);
    size_t *at = malloc((b->n_pes + 1) * sizeof(*at));

    if (!at)
        return ry_fail(RY_ERR_NO_MEMORY, "allgatherv: no memory");
    int rc = collective(n, RY_PART_ALLGATHERV, in, len, deadline_ns);

    if (rc == RY_OK)
        rc = parts_of(n, at);
    if (rc == RY_OK) {
        size_t total = at[b->n_pes] - at[0];

        memmove(n->result, n->result + at[0], total);
        for (uint32_t i = 0; i <= b->n_pes; i++)
            offs[i] = at[i] - at[0];
        *out = n->result;
        n->result = NULL;
    }
    free(at);
    return rc;
}

static int net_allgather(struct ry_boot *b, const void *in, size_t len, void *out,
                         uint64_t deadline_ns)
{
    struct net_boot *n = net_of(b);
    size_t head = (size_t)b->n_pes * 8;
    int rc = collective(n, RY_PART_ALLGATHER, in, len, deadline_ns);

    if (rc < 0)
        return rc;
    if (n->result_len != head + len * b->n_pes)
        return ry_fail(RY_ERR_PROTOCOL, "allgather: a result of %zu bytes", n->result_len);
    if (len > 0)
        memcpy(out, n->result + head, len * b->n_pes);
    return RY_OK;
}

static int net_barrier(struct ry_boot *b, uint64_t deadline_ns)
{
    return collective(net_of(b), RY_PART_BARRIER, NULL, 0, deadline_ns);
}

static void close_fds(int *fds, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
        fds[i] = -1;
    }
}

/* Sends to all of this host whose queue has room; returns how many are left, or an error. */
static int send_sets(struct net_boot *n, const int *mine, int count, bool *sent)
{
    int left = 0;

    for (uint32_t i = 0; i < n->boot.n_pes; i++) {
        if (sent[i])
            continue;
        int rc = ry_ctl_send_fds(&n->ctl, i, n->fds_round, mine, count);

        if (rc < 0)
            return rc;
        sent[i] = rc == 1;
        left += rc == 0;
    }
    return left;
}

static int recv_sets(struct net_boot *n, int *fds, bool *got)
{
    int set[RY_BOOT_FDS_MAX], rc;
    uint32_t from = 0, round = 0;

    while ((rc = ry_ctl_recv_fds(&n->ctl, &from, &round, set)) == 1) {
        if (round != n->fds_round || got[from]) {
            close_fds(set, RY_BOOT_FDS_MAX);
            continue;
        }
        memcpy(fds + (size_t)from * RY_BOOT_FDS_MAX, set, sizeof(set));
        got[from] = true;
    }
    if (rc < 0)
        return rc;
    int left = 0;

    for (uint32_t i = 0; i < n->boot.n_pes; i++)
        left += !got[i];
    return left;
}

static int exchange(struct net_boot *n, const int *mine, int count, int *fds, bool *sent, bool *got,
                    uint64_t deadline_ns)
{
    while (true) {
        int out = send_sets(n, mine, count, sent), in = out < 0 ? out : recv_sets(n, fds, got);

        if (in < 0)
            return in;
        if (in == 0 && out == 0)
            return RY_OK;
        ry_net_pump(n);
        int rc = ry_net_ended(n, "share_fds");

        if (rc < 0)
            return rc;
        if (ry_clock_ns() >= deadline_ns)
            return ry_fail(RY_ERR_TIMEOUT, "share_fds: %d pes of this host sent nothing in time",
                           in);
        struct pollfd p[] = {{.fd = n->ctl.fds, .events = POLLIN}, {.fd = n->fd, .events = POLLIN}};

        poll(p, 2, ry_clock_left_ms(deadline_ns, out > 0 ? 2 : 200));
    }
}

/* The barriers keep rounds apart: no PE sends before all are in this round, none leaves early. */
static int net_share_fds(struct ry_boot *b, const int *mine, int count, int *fds,
                         uint64_t deadline_ns)
{
    struct net_boot *n = net_of(b);
    size_t all = (size_t)b->n_pes * RY_BOOT_FDS_MAX;

    if (count < 0 || count > RY_BOOT_FDS_MAX)
        return ry_fail(RY_ERR_INVALID, "share_fds: %d descriptors, at most %d", count,
                       RY_BOOT_FDS_MAX);
    bool *flags = calloc(b->n_pes, 2 * sizeof(*flags));

    if (!flags)
        return ry_fail(RY_ERR_NO_MEMORY, "share_fds: no memory");
    for (size_t i = 0; i < all; i++)
        fds[i] = -1;
    uint32_t mine_round = n->fds_round + 1;
    uint32_t *rounds = malloc(b->n_pes * sizeof(*rounds));
    int rc = rounds ? net_allgather(b, &mine_round, sizeof(mine_round), rounds, deadline_ns)
                    : ry_fail(RY_ERR_NO_MEMORY, "share_fds: no memory");

    for (uint32_t i = 0; rc == RY_OK && i < b->n_pes; i++) {
        mine_round =
            rounds[i] > mine_round ? rounds[i] : mine_round; /* a replacement counts anew */
        flags[i] = flags[b->n_pes + i] = !ry_ctl_same_host(&n->ctl, i);
    }
    free(rounds);
    n->fds_round = mine_round;
    if (rc == RY_OK)
        rc = exchange(n, mine, count, fds, flags, flags + b->n_pes, deadline_ns);
    if (rc == RY_OK)
        rc = net_allgather(b, NULL, 0, NULL, deadline_ns);
    if (rc < 0)
        close_fds(fds, all);
    free(flags);
    return rc;
}

static int net_same_process(struct ry_boot *b, uint32_t pe) { return pe == b->pe; }

static int net_same_host(struct ry_boot *b, uint32_t pe)
{
    return pe < b->n_pes && ry_ctl_same_host(&net_of(b)->ctl, pe);
}

static int net_ctl_send(struct ry_boot *b, uint32_t pe, const void *msg, size_t len)
{
    return ry_ctl_send(&net_of(b)->ctl, pe, msg, len);
}

static int net_ctl_recv(struct ry_boot *b, uint32_t *from, void *msg, size_t *len)
{
    return ry_ctl_recv(&net_of(b)->ctl, from, msg, len);
}

static int net_poll_event(struct ry_boot *b, struct ry_boot_event *ev)
{
    struct net_boot *n = net_of(b);
    int got = 0;

    ry_net_pump(n);
    pthread_mutex_lock(&n->lock);
    if (n->event_count > 0) {
        *ev = n->events[n->event_head];
        n->event_head = (n->event_head + 1) % n->n_events;
        n->event_count--;
        got = 1;
    }
    if (n->event_count == 0)
        ry_net_clear_fd(n->event_wake);
    pthread_mutex_unlock(&n->lock);
    return got;
}

static int net_wait_fd(struct ry_boot *b) { return net_of(b)->epfd; }

static void net_close(struct ry_boot *b)
{
    struct net_boot *n = net_of(b);
    struct ry_net_cfg cfg = n->cfg;
    struct ry_wire_out out = {0};

    if (ry_wire_queue(&out, RY_WIRE_BYE, 0, NULL) == RY_OK)
        ry_net_send_all(n, &out, "leaving", ry_clock_ns() + 1000000000u);
    ry_wire_out_free(&out);
    ry_net_destroy(n);
    if (cfg.at_close)
        cfg.at_close(cfg.arg);
}

static const struct ry_boot_ops net_ops = {
    .allgather = net_allgather,
    .allgatherv = net_allgatherv,
    .barrier = net_barrier,
    .share_fds = net_share_fds,
    .same_process = net_same_process,
    .same_host = net_same_host,
    .ctl_send = net_ctl_send,
    .ctl_recv = net_ctl_recv,
    .poll_event = net_poll_event,
    .wait_fd = net_wait_fd,
    .close = net_close,
};

int ry_net_open(const struct ry_net_cfg *cfg, int fd, uint64_t deadline_ns, struct ry_boot **out)
{
    struct net_boot *n = NULL;
    int rc = ry_net_start(cfg, fd, deadline_ns, &n);

    if (rc < 0)
        return rc;
    n->boot.ops = &net_ops;
    *out = &n->boot;
    return RY_OK;
}
