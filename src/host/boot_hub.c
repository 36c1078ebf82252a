/* SPDX-License-Identifier: Apache-2.0 */
/* Bootstrap for PEs that are threads of one process.
 *
 * One lock, one condition. A collective is a round with two phases: GATHER, in which every PE
 * leaves a copy of its part, and DRAIN, in which all read and the last one out clears. A PE that
 * runs ahead waits for the drain to end. Control datagrams sit in one bounded ring a PE. */
#include <railyard/context.h> /* exports ry_hub_create and ry_hub_destroy */

#include "host/boot_hub.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "host/boot_node.h"
#include "host/clock.h"
#include "host/error.h"

enum round_kind { ROUND_ALLGATHER, ROUND_ALLGATHERV, ROUND_BARRIER, ROUND_FDS };

static const char *const round_names[] = {"allgather", "allgatherv", "barrier", "share_fds"};

struct message {
    uint32_t from;
    uint32_t len;
    uint8_t bytes[RY_CTL_BYTES_MAX];
};

enum pe_state { PE_ABSENT, PE_OPEN, PE_DEAD, PE_CLOSED };

struct hub_boot {
    struct ry_boot boot;
    struct ry_hub *hub;
    bool owns_hub;
};

struct hub_pe {
    enum pe_state state;
    bool held;    /* its boot has not been closed yet */
    bool settled; /* this incarnation has been through a collective */
    uint32_t incarnation;
    int wake;
    struct message *ring;
    uint32_t head, count;
    struct ry_boot_event *events;
    uint32_t event_head, event_count;
};

struct part {
    void *data;
    size_t len;
    enum round_kind kind;
    bool here;
};

struct ry_hub {
    pthread_mutex_t lock;
    pthread_cond_t change;
    uint32_t n_pes, n_nodes, n_events;
    uint64_t job;
    bool draining;
    uint32_t arrived, left;
    int status; /* of the round that drains */
    uint32_t culprit;
    struct part *parts;
    struct hub_pe *pes;
};

static struct ry_hub *hub_of(struct ry_boot *b) { return ((struct hub_boot *)b)->hub; }

static void wake(struct hub_pe *p)
{
    uint64_t one = 1;

    if (p->wake >= 0 && write(p->wake, &one, sizeof(one)) < 0)
        return; /* the counter is at its top: readable all the same */
}

static void sleep_if_empty(struct hub_pe *p)
{
    uint64_t count;

    if (p->count == 0 && p->event_count == 0 && read(p->wake, &count, sizeof(count)) < 0)
        return; /* it was clear already */
}

static void tell(struct ry_hub *hub, uint32_t to, enum ry_boot_event_type type, uint32_t pe)
{
    struct hub_pe *p = &hub->pes[to];

    if (p->state != PE_OPEN || p->event_count == hub->n_events)
        return;
    uint32_t at = (p->event_head + p->event_count++) % hub->n_events;
    p->events[at] = (struct ry_boot_event){type, pe, hub->pes[pe].incarnation};
    wake(p);
}

static void tell_others(struct ry_hub *hub, enum ry_boot_event_type type, uint32_t pe)
{
    for (uint32_t i = 0; i < hub->n_pes; i++) {
        if (i != pe)
            tell(hub, i, type, pe);
    }
}

static void clear_part(struct part *p)
{
    if (p->kind == ROUND_FDS) {
        for (size_t i = 0; p->data && i < p->len / sizeof(int); i++)
            close(((int *)p->data)[i]);
    }
    free(p->data);
    *p = (struct part){0};
}

/* A copy that the round owns; descriptors are duplicated, so that their owner may close its own. */
static int fill_part(struct part *p, enum round_kind kind, const void *in, size_t len)
{
    p->kind = kind;
    p->len = kind == ROUND_FDS ? 0 : len;
    p->data = len ? malloc(len) : NULL;
    if (len && !p->data)
        return ry_fail(RY_ERR_NO_MEMORY, "%s: no memory for %zu bytes", round_names[kind], len);
    if (len && kind != ROUND_FDS)
        memcpy(p->data, in, len);
    for (size_t i = 0; kind == ROUND_FDS && i < len / sizeof(int); i++) {
        int fd = fcntl(((const int *)in)[i], F_DUPFD_CLOEXEC, 0);

        if (fd < 0)
            return ry_fail(RY_ERR_SYSTEM, "share_fds: cannot duplicate descriptor %d: %s",
                           ((const int *)in)[i], strerror(errno));
        ((int *)p->data)[i] = fd;
        p->len += sizeof(int);
    }
    return RY_OK;
}

/* Which PE keeps the round of this one from ever completing; n_pes if none. A replacement waits in
 * its first collective until nobody is dead. */
static uint32_t gone(const struct ry_hub *hub, uint32_t pe)
{
    bool arrives = hub->pes[pe].incarnation > 0 && !hub->pes[pe].settled;
    uint32_t i = 0;

    while (i < hub->n_pes && hub->pes[i].state != PE_CLOSED &&
           (arrives || hub->pes[i].state != PE_DEAD))
        i++;
    return i;
}

static uint32_t missing(const struct ry_hub *hub)
{
    uint32_t i = 0;

    while (i < hub->n_pes && hub->parts[i].here)
        i++;
    return i;
}

/* Everyone is here: do the parts belong together? */
static int judge(struct ry_hub *hub)
{
    const struct part *first = &hub->parts[0];

    for (uint32_t i = 1; i < hub->n_pes; i++) {
        const struct part *p = &hub->parts[i];

        hub->culprit = i;
        if (p->kind != first->kind || (p->kind == ROUND_ALLGATHER && p->len != first->len))
            return RY_ERR_PROTOCOL;
    }
    return RY_OK;
}

static int wait_change(struct ry_hub *hub, uint64_t deadline_ns)
{
    struct timespec until = ry_clock_spec(deadline_ns);

    return pthread_cond_timedwait(&hub->change, &hub->lock, &until);
}

static int fail_late(struct ry_hub *hub, enum round_kind kind)
{
    if (hub->draining)
        return ry_fail(RY_ERR_TIMEOUT, "%s: a pe still sits in the call before", round_names[kind]);
    return ry_fail(RY_ERR_TIMEOUT, "%s: pe %u did not arrive in time: see what it waits for",
                   round_names[kind], missing(hub));
}

static int fail_gone(struct ry_hub *hub, uint32_t pe, enum round_kind kind)
{
    return ry_fail(RY_ERR_LAUNCH,
                   "%s: pe %u ended while starting: see its own message for the cause",
                   round_names[kind], gone(hub, pe));
}

/* Called with the lock held; returns with it held. RY_OK: the round drains and leave() must follow.
 */
static int enter(struct ry_hub *hub, uint32_t pe, enum round_kind kind, const void *in, size_t len,
                 uint64_t deadline_ns)
{
    while (hub->draining) {
        if (wait_change(hub, deadline_ns) == ETIMEDOUT)
            return fail_late(hub, kind);
    }
    if (gone(hub, pe) < hub->n_pes)
        return fail_gone(hub, pe, kind);
    struct part *p = &hub->parts[pe];
    int rc = fill_part(p, kind, in, len);

    if (rc < 0) {
        clear_part(p);
        return rc;
    }
    p->here = true;
    if (++hub->arrived == hub->n_pes) {
        hub->status = judge(hub);
        hub->draining = true;
        hub->left = 0;
        pthread_cond_broadcast(&hub->change);
    }
    while (!hub->draining) {
        bool dead = gone(hub, pe) < hub->n_pes;

        if (!dead && wait_change(hub, deadline_ns) != ETIMEDOUT)
            continue;
        if (hub->draining)
            break;
        rc = dead ? fail_gone(hub, pe, kind) : fail_late(hub, kind);
        clear_part(p);
        hub->arrived--;
        return rc;
    }
    return RY_OK;
}

static void leave(struct ry_hub *hub)
{
    if (++hub->left < hub->n_pes)
        return;
    for (uint32_t i = 0; i < hub->n_pes; i++)
        clear_part(&hub->parts[i]);
    hub->draining = false;
    hub->arrived = 0;
    pthread_cond_broadcast(&hub->change);
}

typedef int take_fn(struct ry_hub *hub, void *out, size_t *offs);

static int collective(struct ry_boot *b, enum round_kind kind, const void *in, size_t len,
                      take_fn *take, void *out, size_t *offs, uint64_t deadline_ns)
{
    struct ry_hub *hub = hub_of(b);

    if (len > RY_BOOT_BYTES_MAX)
        return ry_fail(RY_ERR_PROTOCOL, "%s: %zu bytes are more than the %d that one pe may give",
                       round_names[kind], len, RY_BOOT_BYTES_MAX);
    pthread_mutex_lock(&hub->lock);
    int rc = enter(hub, b->pe, kind, in, len, deadline_ns);

    if (rc == RY_OK) {
        rc = hub->status;
        if (rc < 0)
            rc = ry_fail(rc, "%s: pe %u called %s with %zu bytes: all pes must make the same calls",
                         round_names[kind], hub->culprit,
                         round_names[hub->parts[hub->culprit].kind], hub->parts[hub->culprit].len);
        pthread_mutex_unlock(&hub->lock); /* parts do not change before the last one leaves */
        if (rc == RY_OK && take)
            rc = take(hub, out, offs);
        pthread_mutex_lock(&hub->lock);
        hub->pes[b->pe].settled = true;
        leave(hub);
    }
    pthread_mutex_unlock(&hub->lock);
    return rc;
}

static int take_equal(struct ry_hub *hub, void *out, size_t *offs)
{
    (void)offs;
    for (uint32_t i = 0; i < hub->n_pes; i++) {
        size_t len = hub->parts[i].len;

        if (len)
            memcpy((uint8_t *)out + i * len, hub->parts[i].data, len);
    }
    return RY_OK;
}

static int take_varied(struct ry_hub *hub, void *out, size_t *offs)
{
    size_t total = 0;

    for (uint32_t i = 0; i < hub->n_pes; i++)
        total += hub->parts[i].len;
    uint8_t *all = malloc(total ? total : 1);

    if (!all)
        return ry_fail(RY_ERR_NO_MEMORY, "allgatherv: no memory for %zu bytes", total);
    offs[0] = 0;
    for (uint32_t i = 0; i < hub->n_pes; i++) {
        if (hub->parts[i].len)
            memcpy(all + offs[i], hub->parts[i].data, hub->parts[i].len);
        offs[i + 1] = offs[i] + hub->parts[i].len;
    }
    *(void **)out = all;
    return RY_OK;
}

static int take_fds(struct ry_hub *hub, void *out, size_t *offs)
{
    int *fds = out;

    (void)offs;
    for (size_t i = 0; i < (size_t)hub->n_pes * RY_BOOT_FDS_MAX; i++)
        fds[i] = -1;
    for (uint32_t i = 0; i < hub->n_pes; i++) {
        const struct part *p = &hub->parts[i];

        for (size_t k = 0; k < p->len / sizeof(int); k++) {
            int fd = fcntl(((int *)p->data)[k], F_DUPFD_CLOEXEC, 0);

            if (fd < 0) {
                int cause = errno;

                for (size_t u = 0; u < (size_t)hub->n_pes * RY_BOOT_FDS_MAX; u++) {
                    if (fds[u] >= 0)
                        close(fds[u]);
                    fds[u] = -1;
                }
                return ry_fail(RY_ERR_SYSTEM,
                               "share_fds: cannot duplicate a descriptor: %s: see "
                               "ulimit -n",
                               strerror(cause));
            }
            fds[i * RY_BOOT_FDS_MAX + k] = fd;
        }
    }
    return RY_OK;
}

static int hub_allgather(struct ry_boot *b, const void *in, size_t len, void *out,
                         uint64_t deadline_ns)
{
    return collective(b, ROUND_ALLGATHER, in, len, take_equal, out, NULL, deadline_ns);
}

static int hub_allgatherv(struct ry_boot *b, const void *in, size_t len, void **out, size_t *offs,
                          uint64_t deadline_ns)
{
    return collective(b, ROUND_ALLGATHERV, in, len, take_varied, out, offs, deadline_ns);
}

static int hub_barrier(struct ry_boot *b, uint64_t deadline_ns)
{
    return collective(b, ROUND_BARRIER, NULL, 0, NULL, NULL, NULL, deadline_ns);
}

static int hub_share_fds(struct ry_boot *b, const int *mine, int n, int *fds, uint64_t deadline_ns)
{
    if (n < 0 || n > RY_BOOT_FDS_MAX)
        return ry_fail(RY_ERR_INVALID, "share_fds: %d descriptors, at most %d", n, RY_BOOT_FDS_MAX);
    return collective(b, ROUND_FDS, mine, (size_t)n * sizeof(int), take_fds, fds, NULL,
                      deadline_ns);
}

static int hub_same(struct ry_boot *b, uint32_t pe) { return pe < b->n_pes; }

static int hub_ctl_send(struct ry_boot *b, uint32_t pe, const void *msg, size_t len)
{
    struct ry_hub *hub = hub_of(b);

    if (pe >= b->n_pes || len > RY_CTL_BYTES_MAX)
        return ry_fail(RY_ERR_INVALID, "control message: pe %u of %u, %zu bytes of at most %d", pe,
                       b->n_pes, len, RY_CTL_BYTES_MAX);
    pthread_mutex_lock(&hub->lock);
    struct hub_pe *p = &hub->pes[pe];
    bool sane = hub->pes[b->pe].state == PE_OPEN && hub->pes[b->pe].incarnation == b->incarnation;

    if (sane && p->state == PE_OPEN && p->count < RY_HUB_QUEUE) {
        struct message *m = &p->ring[(p->head + p->count++) % RY_HUB_QUEUE];

        m->from = b->pe;
        m->len = (uint32_t)len;
        if (len)
            memcpy(m->bytes, msg, len);
        wake(p);
    }
    pthread_mutex_unlock(&hub->lock);
    return RY_OK;
}

static int hub_ctl_recv(struct ry_boot *b, uint32_t *from, void *msg, size_t *len)
{
    struct ry_hub *hub = hub_of(b);
    struct hub_pe *p = &hub->pes[b->pe];
    int got = 0;

    pthread_mutex_lock(&hub->lock);
    if (p->incarnation == b->incarnation && p->count > 0) {
        const struct message *m = &p->ring[p->head];

        *from = m->from;
        *len = m->len;
        memcpy(msg, m->bytes, m->len);
        p->head = (p->head + 1) % RY_HUB_QUEUE;
        p->count--;
        got = 1;
    }
    sleep_if_empty(p);
    pthread_mutex_unlock(&hub->lock);
    return got;
}

static int hub_poll_event(struct ry_boot *b, struct ry_boot_event *ev)
{
    struct ry_hub *hub = hub_of(b);
    struct hub_pe *p = &hub->pes[b->pe];
    int got = 0;

    pthread_mutex_lock(&hub->lock);
    if (p->incarnation == b->incarnation && p->event_count > 0) {
        *ev = p->events[p->event_head];
        p->event_head = (p->event_head + 1) % hub->n_events;
        p->event_count--;
        got = 1;
    }
    sleep_if_empty(p);
    pthread_mutex_unlock(&hub->lock);
    return got;
}

static int hub_wait_fd(struct ry_boot *b) { return hub_of(b)->pes[b->pe].wake; }

static void hub_close(struct ry_boot *b)
{
    struct hub_boot *hb = (struct hub_boot *)b;
    struct ry_hub *hub = hb->hub;

    pthread_mutex_lock(&hub->lock);
    struct hub_pe *p = &hub->pes[b->pe];

    if (p->state == PE_OPEN)
        p->state = PE_CLOSED;
    p->held = false;
    pthread_cond_broadcast(&hub->change); /* who waits for this PE must stop */
    pthread_mutex_unlock(&hub->lock);
    if (hb->owns_hub)
        ry_hub_destroy(hub);
    free(hb);
}

static const struct ry_boot_ops hub_ops = {
    .allgather = hub_allgather,
    .allgatherv = hub_allgatherv,
    .barrier = hub_barrier,
    .share_fds = hub_share_fds,
    .same_process = hub_same,
    .same_host = hub_same,
    .ctl_send = hub_ctl_send,
    .ctl_recv = hub_ctl_recv,
    .poll_event = hub_poll_event,
    .wait_fd = hub_wait_fd,
    .close = hub_close,
};

static int open_pe(struct ry_hub *hub, struct hub_pe *p)
{
    p->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (p->wake < 0)
        return ry_fail(RY_ERR_SYSTEM, "hub: no descriptor: %s: see ulimit -n", strerror(errno));
    p->ring = malloc(RY_HUB_QUEUE * sizeof(*p->ring));
    p->events = malloc(hub->n_events * sizeof(*p->events));
    if (!p->ring || !p->events)
        return ry_fail(RY_ERR_NO_MEMORY, "hub: no memory");
    return RY_OK;
}

static void init_sync(struct ry_hub *hub)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&hub->change, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&hub->lock, NULL);
}

int ry_hub_create(uint32_t n_pes, uint32_t n_nodes, struct ry_hub **out)
{
    if (n_pes == 0 || n_nodes == 0 || n_nodes > n_pes)
        return ry_fail(RY_ERR_INVALID, "hub: %u pes on %u nodes: give at least one pe a node",
                       n_pes, n_nodes);
    struct ry_hub *hub = calloc(1, sizeof(*hub));

    if (!hub)
        return ry_fail(RY_ERR_NO_MEMORY, "hub: no memory");
    init_sync(hub);
    hub->n_events = 4 * n_pes + 16;
    hub->n_nodes = n_nodes;
    hub->parts = calloc(n_pes, sizeof(*hub->parts));
    hub->pes = calloc(n_pes, sizeof(*hub->pes));
    int rc = hub->parts && hub->pes ? RY_OK : ry_fail(RY_ERR_NO_MEMORY, "hub: no memory");

    for (uint32_t i = 0; rc == RY_OK && i < n_pes; i++) {
        hub->n_pes = i + 1;
        rc = open_pe(hub, &hub->pes[i]);
    }
    if (rc == RY_OK && getrandom(&hub->job, sizeof(hub->job), 0) != sizeof(hub->job))
        rc = ry_fail(RY_ERR_SYSTEM, "hub: no random numbers: %s", strerror(errno));
    if (rc < 0) {
        ry_hub_destroy(hub);
        return rc;
    }
    *out = hub;
    return RY_OK;
}

void ry_hub_destroy(struct ry_hub *hub)
{
    if (!hub)
        return;
    for (uint32_t i = 0; i < hub->n_pes; i++) {
        if (hub->pes[i].wake >= 0)
            close(hub->pes[i].wake);
        free(hub->pes[i].ring);
        free(hub->pes[i].events);
        clear_part(&hub->parts[i]);
    }
    free(hub->pes);
    free(hub->parts);
    pthread_cond_destroy(&hub->change);
    pthread_mutex_destroy(&hub->lock);
    free(hub);
}

int ry_hub_open(struct ry_hub *hub, uint32_t pe, struct ry_boot **out)
{
    if (pe >= hub->n_pes)
        return ry_fail(RY_ERR_INVALID, "hub: pe %u of %u", pe, hub->n_pes);
    struct hub_boot *b = calloc(1, sizeof(*b));

    if (!b)
        return ry_fail(RY_ERR_NO_MEMORY, "hub: no memory");
    b->hub = hub;
    b->boot = (struct ry_boot){.ops = &hub_ops, .pe = pe, .n_pes = hub->n_pes, .job = hub->job};
    ry_node_split(&b->boot, hub->n_nodes);
    pthread_mutex_lock(&hub->lock);
    struct hub_pe *p = &hub->pes[pe];
    bool free_slot = p->state == PE_ABSENT && !p->held;

    if (free_slot) {
        b->boot.incarnation = p->incarnation;
        p->state = PE_OPEN;
        p->held = true;
        if (p->incarnation > 0)
            tell_others(hub, RY_BOOT_PE_JOINED, pe);
    }
    pthread_mutex_unlock(&hub->lock);
    if (!free_slot) {
        free(b);
        return ry_fail(RY_ERR_BUSY, "hub: pe %u is open already", pe);
    }
    *out = &b->boot;
    return RY_OK;
}

int ry_hub_solo(struct ry_boot **out)
{
    struct ry_hub *hub = NULL;
    int rc = ry_hub_create(1, 1, &hub);

    if (rc < 0)
        return rc;
    rc = ry_hub_open(hub, 0, out);
    if (rc < 0)
        ry_hub_destroy(hub);
    else
        ((struct hub_boot *)*out)->owns_hub = true;
    return rc;
}

void ry_hub_kill(struct ry_hub *hub, uint32_t pe)
{
    pthread_mutex_lock(&hub->lock);
    if (pe < hub->n_pes && hub->pes[pe].state != PE_DEAD) {
        struct hub_pe *p = &hub->pes[pe];

        p->state = PE_DEAD;
        p->count = 0;
        p->event_count = 0;
        tell_others(hub, RY_BOOT_PE_LOST, pe);
        pthread_cond_broadcast(&hub->change);
    }
    pthread_mutex_unlock(&hub->lock);
}

int ry_hub_revive(struct ry_hub *hub, uint32_t pe)
{
    int rc = RY_OK;

    pthread_mutex_lock(&hub->lock);
    if (pe >= hub->n_pes || hub->pes[pe].state != PE_DEAD || hub->pes[pe].held) {
        rc = ry_fail(RY_ERR_BUSY, "hub: pe %u is not dead and closed", pe);
    } else {
        hub->pes[pe].state = PE_ABSENT;
        hub->pes[pe].incarnation++;
        hub->pes[pe].settled = false;
        hub->pes[pe].event_head = 0;
        hub->pes[pe].head = 0;
    }
    pthread_mutex_unlock(&hub->lock);
    return rc;
}
