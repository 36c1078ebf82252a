/* SPDX-License-Identifier: Apache-2.0 */
/* Asynchronous events, and how a thread waits for them or for work. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "nic/verbs/verbs_int.h"

enum {
    SPIN_NS = 1000000,  /* after the last work a waiter does not sleep for this long */
    NAP_NS_MIN = 50000, /* then it naps: a peer's write wakes nobody */
    NAP_NS_MAX = 2000000,
    NAP_SHARE = 16, /* a nap is at most this share of the time that it has waited */
};

uint64_t ry_verbs_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static struct ry_verbs_rail *rail_of_port(struct ry_verbs_nic *n, uint32_t device, int port)
{
    for (uint32_t i = 0; i < n->rails_len; i++)
        if (n->rails[i].device == device && (port < 0 || n->rails[i].port == (uint32_t)port))
            return &n->rails[i];
    return NULL;
}

static struct ry_verbs_rail *rail_of_cq(struct ry_verbs_nic *n, const struct ibv_cq *cq)
{
    for (uint32_t i = 0; i < n->rails_len; i++)
        if (n->rails[i].cq == cq)
            return &n->rails[i];
    return NULL;
}

/* Any entry of the table may have changed: is it the one that the rail uses? */
static bool moved(struct ry_verbs_rail *r)
{
    struct ibv_port_attr attr;
    union ibv_gid gid = {{0}};
    uint32_t index;
    bool differs;

    if (ibv_query_port(r->ctx, (uint8_t)r->port, &attr) != 0)
        return true;
    if (ry_verbs_find_gid(&r->nic->cfg, r->ctx, r->port, attr.link_layer, &gid, &index) != RY_OK)
        memset(&gid, 0, sizeof(gid));
    differs = memcmp(&gid, &r->gid, sizeof(gid)) != 0;
    r->gid = gid;
    return differs;
}

/* True when it concerns a rail of ours; *ev then has type, rail and queue pair. */
static bool understand(struct ry_verbs_nic *n, uint32_t device, const struct ibv_async_event *a,
                       struct ry_nic_event *ev)
{
    struct ry_verbs_rail *r = NULL;

    switch (a->event_type) {
    case IBV_EVENT_PORT_ERR:
        ev->type = RY_EV_PORT_DOWN;
        r = rail_of_port(n, device, a->element.port_num);
        break;
    case IBV_EVENT_PORT_ACTIVE:
        ev->type = RY_EV_PORT_UP;
        r = rail_of_port(n, device, a->element.port_num);
        break;
    case IBV_EVENT_GID_CHANGE:
        ev->type = RY_EV_GID_CHANGE;
        r = rail_of_port(n, device, a->element.port_num);
        if (r && !moved(r))
            r = NULL;
        break;
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
        ev->type = RY_EV_GID_CHANGE;
        r = rail_of_port(n, device, a->element.port_num);
        break;
    case IBV_EVENT_DEVICE_FATAL:
        ev->type = RY_EV_NIC_FATAL;
        r = rail_of_port(n, device, -1);
        break;
    case IBV_EVENT_CQ_ERR:
        ev->type = RY_EV_NIC_FATAL;
        r = rail_of_cq(n, a->element.cq);
        break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
        ev->type = RY_EV_QP_FATAL;
        ev->qpn = a->element.qp->qp_num;
        r = rail_of_cq(n, a->element.qp->send_cq);
        break;
    default:
        return false;
    }
    if (r)
        ev->rail = r->index;
    return r != NULL;
}

int ry_verbs_poll_event(struct ry_nic *nic, struct ry_nic_event *ev)
{
    struct ry_verbs_nic *n = ry_verbs_of(nic);

    for (uint32_t i = 0; i < n->devices_len; i++) {
        struct ibv_async_event a;

        while (ibv_get_async_event(n->devices[i], &a) == 0) {
            struct ry_nic_event e = {.at_ns = ry_verbs_now()};
            bool ours = understand(n, i, &a, &e);

            ibv_ack_async_event(&a);
            if (ours) {
                *ev = e;
                return 1;
            }
        }
    }
    return 0;
}

int ry_verbs_event_fd(struct ry_nic *nic) { return ry_verbs_of(nic)->epoll_fd; }

void ry_verbs_wake(struct ry_nic *nic)
{
    if (eventfd_write(ry_verbs_of(nic)->wake_fd, 1) != 0)
        return; /* its counter is full, so a waiter is being woken already */
}

/* How long this NIC's threads have had nothing to do: since the last work, or since a wait began,
 * which is when nobody had waited for a while. */
static uint64_t idle_age(struct ry_verbs_nic *n, uint64_t now)
{
    uint64_t last = __atomic_exchange_n(&n->idle_last_ns, now, __ATOMIC_RELAXED);
    uint64_t since = __atomic_load_n(&n->busy_ns, __ATOMIC_RELAXED);

    if (now > last + 2 * NAP_NS_MAX)
        __atomic_store_n(&n->idle_since_ns, now, __ATOMIC_RELAXED);
    since = ry_max64(since, __atomic_load_n(&n->idle_since_ns, __ATOMIC_RELAXED));
    return now > since ? now - since : 0;
}

/* Ask to be told of the next completion on every rail that has something under way, and look once
 * more, because one may have come before it was asked. True: sleep until one comes. */
static bool ask_for_completions(struct ry_verbs_nic *n, uint64_t now)
{
    bool any = false, busy;

    for (uint32_t i = 0; i < n->rails_len; i++) {
        struct ry_verbs_rail *r = &n->rails[i];

        if (__atomic_load_n(&r->inflight, __ATOMIC_ACQUIRE))
            any |= ibv_req_notify_cq(r->cq, 0) == 0;
    }
    return any && !ry_verbs_look(n, now, &busy) && busy;
}

/* Other threads may have taken what woke this one. */
static void take_wakes(struct ry_verbs_nic *n)
{
    struct epoll_event e[RY_RAILS_MAX + 1];
    int count = epoll_wait(n->work_fd, e, RY_RAILS_MAX + 1, 0);
    eventfd_t ignored;

    for (int i = 0; i < count; i++) {
        struct ibv_cq *cq;
        void *context;

        if (e[i].data.u32 == RY_RAILS_MAX)
            (void)eventfd_read(n->wake_fd, &ignored);
        else if (ibv_get_cq_event(n->rails[e[i].data.u32].channel, &cq, &context) == 0)
            ibv_ack_cq_events(cq, 1);
    }
}

/* Right after work a waiter looks again at once, because the next piece is probably near: with
 * requests of its own under way it polls, unless they are long ones that a driver in software works
 * at, which needs the CPU; with none it gives way to others. Later it sleeps until a
 * request completes. Nothing tells a host that a peer has written into its memory, so it looks
 * again soon all the same; with nothing under way it naps, the longer the longer it waits. */
void ry_verbs_idle(struct ry_nic *nic, uint64_t until_ns)
{
    struct ry_verbs_nic *n = ry_verbs_of(nic);
    uint64_t now = ry_verbs_now(), age = idle_age(n, now), nap;
    struct pollfd p = {.fd = n->work_fd, .events = POLLIN};
    struct timespec t = {0};
    bool busy = false, lets = false;

    if (until_ns <= now)
        return;
    for (uint32_t i = 0; i < n->rails_len; i++) {
        busy |= __atomic_load_n(&n->rails[i].inflight, __ATOMIC_ACQUIRE) != 0;
        lets |= ry_verbs_poster_busy(&n->rails[i], now);
    }
    if (busy && ((age < SPIN_NS && !n->cfg.crowded && !lets) || !ask_for_completions(n, now)))
        return;
    if (!busy && age < SPIN_NS) {
        sched_yield();
        return;
    }
    nap = busy ? NAP_NS_MAX : ry_min64(ry_max64(age / NAP_SHARE, NAP_NS_MIN), NAP_NS_MAX);
    t.tv_nsec = (long)ry_min64(until_ns - now, nap);
    if (ppoll(&p, 1, &t, NULL) == 1)
        take_wakes(n);
    /* a sleep that ended late is no time in which nobody waited */
    __atomic_store_n(&n->idle_last_ns, ry_verbs_now(), __ATOMIC_RELAXED);
}
