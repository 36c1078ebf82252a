/* SPDX-License-Identifier: Apache-2.0 */
/* What a link failure looks like through plain verbs, without railyard: an RC QP between two
 * devices of one machine keeps 16 writes of 64 KiB outstanding, a link is broken under it, and one
 * line tells the first bad completion, when it came, what both ports and both QPs said, and how
 * long a rebuild took. faults.sh runs it for every fault of its table.
 * exit: 0 a line was printed, 2 bad use or set-up, 3 a write failed before anything was broken */
#include <errno.h>
#include <getopt.h>
#include <infiniband/verbs.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { WRITE_BYTES = 65536, OUTSTANDING = 16, HEAP_BYTES = WRITE_BYTES * OUTSTANDING };

struct options {
    const char *near, *far, *fault, *undo;
    int timeout, retry;
    int undo_after_ms; /* 0: the fault stays until the end */
    int wait_ms;       /* for the first bad completion */
    int once;          /* one fetch-add and one write, after the fault instead of before */
};

/* One device with its half of the connection. Events are written by its watcher alone. */
struct end {
    struct ibv_context *ctx;
    struct ibv_pd *pd;
    struct ibv_mr *mr;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    unsigned char *heap;
    union ibv_gid gid;
    int gid_index;
    enum ibv_mtu mtu;
    pthread_t watcher;
    unsigned long long port_err_ns, port_active_ns, other_event_ns;
    int other_event;
};

struct fault {
    const struct options *o;
    struct end *me, *you;
    pthread_t thread;
    unsigned long long start_ns, broken_ns, undone_ns;
    int rc;
};

static int ended; /* main to both watchers */

static unsigned long long now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (unsigned long long)t.tv_sec * 1000000000ull + (unsigned long long)t.tv_nsec;
}

static double since_ms(unsigned long long then, unsigned long long start)
{
    return then > start ? (double)(then - start) / 1e6 : 0.0;
}

static void die(const char *what)
{
    fprintf(stderr, "probe: cannot %s: %s\n", what, strerror(errno));
    exit(2);
}

static void must(int error, const char *what)
{
    if (error == 0)
        return;
    if (error > 0)
        errno = error;
    die(what);
}

/* The port set down or up by the system call itself, so that the time is that of the fault and not
 * that of starting a program. */
static int set_link(const char *netdev, int up)
{
    struct ifreq r;
    memset(&r, 0, sizeof(r));
    snprintf(r.ifr_name, sizeof(r.ifr_name), "%s", netdev);
    int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int rc = s < 0 ? -1 : ioctl(s, SIOCGIFFLAGS, &r);
    if (rc == 0) {
        r.ifr_flags = (short)(up ? r.ifr_flags | IFF_UP : r.ifr_flags & ~IFF_UP);
        rc = ioctl(s, SIOCSIFFLAGS, &r);
    }
    if (s >= 0)
        close(s);
    return rc;
}

static int post_write(struct end *me, const struct end *you, uint64_t id, unsigned bytes,
                      uint32_t rkey_error);

/* "down:NETDEV", "up:NETDEV", "qp-error" (the far QP), "bad-key" (one write with a wrong key),
 * "none" or a command of the shell */
static int apply(const char *spec, struct end *me, struct end *you)
{
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};
    if (strcmp(spec, "none") == 0)
        return 0;
    if (strcmp(spec, "qp-error") == 0)
        return ibv_modify_qp(you->qp, &a, IBV_QP_STATE);
    if (strcmp(spec, "bad-key") == 0)
        return post_write(me, you, 0, 64, 0x5500);
    if (strncmp(spec, "down:", 5) == 0)
        return set_link(spec + 5, 0);
    if (strncmp(spec, "up:", 3) == 0)
        return set_link(spec + 3, 1);
    return system(spec);
}

static void *break_link(void *arg)
{
    struct fault *f = arg;
    int rc = apply(f->o->fault, f->me, f->you);
    __atomic_store_n(&f->broken_ns, now_ns(), __ATOMIC_RELEASE);
    if (rc == 0 && f->o->undo_after_ms > 0) {
        usleep((useconds_t)f->o->undo_after_ms * 1000);
        rc = apply(f->o->undo, f->me, f->you);
        __atomic_store_n(&f->undone_ns, now_ns(), __ATOMIC_RELEASE);
    }
    f->rc = rc;
    return NULL;
}

static void *watch(void *arg)
{
    struct end *e = arg;
    struct pollfd p = {.fd = e->ctx->async_fd, .events = POLLIN};
    while (!__atomic_load_n(&ended, __ATOMIC_ACQUIRE)) {
        struct ibv_async_event ev;
        if (poll(&p, 1, 20) <= 0 || ibv_get_async_event(e->ctx, &ev) != 0)
            continue;
        unsigned long long t = now_ns();
        if (ev.event_type == IBV_EVENT_PORT_ERR) {
            if (!e->port_err_ns)
                __atomic_store_n(&e->port_err_ns, t, __ATOMIC_RELEASE);
        } else if (ev.event_type == IBV_EVENT_PORT_ACTIVE) {
            __atomic_store_n(&e->port_active_ns, t, __ATOMIC_RELEASE);
        } else if (ev.event_type != IBV_EVENT_GID_CHANGE) {
            e->other_event = (int)ev.event_type;
            __atomic_store_n(&e->other_event_ns, t, __ATOMIC_RELEASE);
        }
        ibv_ack_async_event(&ev);
    }
    return NULL;
}

static struct ibv_context *open_device(const char *name)
{
    int n = 0;
    struct ibv_context *ctx = NULL;
    struct ibv_device **list = ibv_get_device_list(&n);
    for (int i = 0; list && i < n; i++)
        if (strcmp(ibv_get_device_name(list[i]), name) == 0)
            ctx = ibv_open_device(list[i]);
    if (list)
        ibv_free_device_list(list);
    return ctx;
}

/* RoCEv2 with an IPv4 address: the index moves with the addresses, the type does not. */
static int find_gid(struct end *e)
{
    struct ibv_port_attr port;
    must(ibv_query_port(e->ctx, 1, &port), "query the port");
    e->mtu = port.active_mtu;
    for (int i = 0; i < port.gid_tbl_len; i++) {
        struct ibv_gid_entry g;
        if (ibv_query_gid_ex(e->ctx, 1, (uint32_t)i, &g, 0) != 0)
            continue;
        static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
        if (g.gid_type == IBV_GID_TYPE_ROCE_V2 && memcmp(g.gid.raw, mapped, 12) == 0) {
            e->gid = g.gid;
            e->gid_index = i;
            return 0;
        }
    }
    return -1;
}

static void open_end(struct end *e, const char *name)
{
    memset(e, 0, sizeof(*e));
    e->ctx = open_device(name);
    if (!e->ctx || find_gid(e) != 0) {
        fprintf(stderr, "probe: no device %s with a RoCEv2 address\n", name);
        exit(2);
    }
    e->pd = ibv_alloc_pd(e->ctx);
    e->cq = ibv_create_cq(e->ctx, 4 * OUTSTANDING, NULL, NULL, 0);
    e->heap = calloc(1, HEAP_BYTES);
    if (!e->pd || !e->cq || !e->heap)
        die("set up the device");
    e->mr = ibv_reg_mr(e->pd, e->heap, HEAP_BYTES,
                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
    struct ibv_qp_init_attr init = {.send_cq = e->cq,
                                    .recv_cq = e->cq,
                                    .cap = {.max_send_wr = 2 * OUTSTANDING,
                                            .max_recv_wr = 1,
                                            .max_send_sge = 1,
                                            .max_recv_sge = 1},
                                    .qp_type = IBV_QPT_RC};
    e->qp = ibv_create_qp(e->pd, &init);
    if (!e->mr || !e->qp)
        die("register memory or create a queue pair");
    must(pthread_create(&e->watcher, NULL, watch, e), "start a thread");
}

static int connect_end(struct end *me, const struct end *you, const struct options *o)
{
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_RESET};
    int rc = ibv_modify_qp(me->qp, &a, IBV_QP_STATE);
    a = (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT,
                             .port_num = 1,
                             .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC};
    if (rc == 0)
        rc = ibv_modify_qp(me->qp, &a,
                           IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    a = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTR,
        .path_mtu = me->mtu < you->mtu ? me->mtu : you->mtu,
        .dest_qp_num = you->qp->qp_num,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = 12,
        .ah_attr = {
            .is_global = 1,
            .port_num = 1,
            .grh = {.dgid = you->gid, .sgid_index = (uint8_t)me->gid_index, .hop_limit = 64}}};
    if (rc == 0)
        rc = ibv_modify_qp(me->qp, &a,
                           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                               IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
                             .timeout = (uint8_t)o->timeout,
                             .retry_cnt = (uint8_t)o->retry,
                             .rnr_retry = 6,
                             .max_rd_atomic = 1};
    if (rc == 0)
        rc = ibv_modify_qp(me->qp, &a,
                           IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                               IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    return rc;
}

static int post_write(struct end *me, const struct end *you, uint64_t id, unsigned bytes,
                      uint32_t rkey_error)
{
    size_t at = id % OUTSTANDING * (size_t)WRITE_BYTES;
    struct ibv_sge sge = {
        .addr = (uint64_t)(uintptr_t)(me->heap + at), .length = bytes, .lkey = me->mr->lkey};
    struct ibv_send_wr *bad, wr = {.wr_id = id,
                                   .sg_list = &sge,
                                   .num_sge = 1,
                                   .opcode = IBV_WR_RDMA_WRITE,
                                   .send_flags = IBV_SEND_SIGNALED};
    wr.wr.rdma.remote_addr = (uint64_t)(uintptr_t)(you->heap + at);
    wr.wr.rdma.rkey = you->mr->rkey ^ rkey_error;
    return ibv_post_send(me->qp, &wr, &bad);
}

static int post_add(struct end *me, const struct end *you)
{
    struct ibv_sge sge = {.addr = (uint64_t)(uintptr_t)me->heap, .length = 8, .lkey = me->mr->lkey};
    struct ibv_send_wr *bad, wr = {.sg_list = &sge,
                                   .num_sge = 1,
                                   .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
                                   .send_flags = IBV_SEND_SIGNALED};
    wr.wr.atomic.remote_addr = (uint64_t)(uintptr_t)you->heap;
    wr.wr.atomic.rkey = you->mr->rkey;
    wr.wr.atomic.compare_add = 1;
    return ibv_post_send(me->qp, &wr, &bad);
}

static const char *state_name(struct ibv_qp *qp)
{
    static const char *const names[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
    struct ibv_qp_attr a;
    struct ibv_qp_init_attr i;
    if (ibv_query_qp(qp, &a, IBV_QP_STATE, &i) != 0 || (unsigned)a.qp_state > 6)
        return "unknown";
    return names[a.qp_state];
}

static const char *status_name(int status)
{
    static const char *const names[] = {
        [IBV_WC_SUCCESS] = "none",
        [IBV_WC_LOC_LEN_ERR] = "LOC_LEN_ERR",
        [IBV_WC_LOC_QP_OP_ERR] = "LOC_QP_OP_ERR",
        [IBV_WC_LOC_PROT_ERR] = "LOC_PROT_ERR",
        [IBV_WC_WR_FLUSH_ERR] = "WR_FLUSH_ERR",
        [IBV_WC_REM_INV_REQ_ERR] = "REM_INV_REQ_ERR",
        [IBV_WC_REM_ACCESS_ERR] = "REM_ACCESS_ERR",
        [IBV_WC_REM_OP_ERR] = "REM_OP_ERR",
        [IBV_WC_RETRY_EXC_ERR] = "RETRY_EXC_ERR",
        [IBV_WC_RNR_RETRY_EXC_ERR] = "RNR_RETRY_EXC_ERR",
    };
    size_t n = sizeof(names) / sizeof(names[0]);
    return status >= 0 && (size_t)status < n && names[status] ? names[status] : "other";
}

struct result {
    int status; /* of the first bad completion, 0: none */
    unsigned long long bad_ns, last_good_ns, gap_ns;
    unsigned good, flushed, outstanding;
};

/* One completion: a good one is replaced by another write. */
static void take(struct result *r, const struct ibv_wc *wc, struct end *me, const struct end *you)
{
    unsigned long long t = now_ns();
    r->outstanding--;
    if (wc->status != IBV_WC_SUCCESS) {
        if (!r->status) {
            r->status = (int)wc->status;
            r->bad_ns = t;
        } else if (wc->status == IBV_WC_WR_FLUSH_ERR) {
            r->flushed++;
        }
        return;
    }
    r->good++;
    if (r->last_good_ns && t - r->last_good_ns > r->gap_ns)
        r->gap_ns = t - r->last_good_ns;
    r->last_good_ns = t;
    if (!r->status && post_write(me, you, wc->wr_id, WRITE_BYTES, 0) == 0)
        r->outstanding++;
}

static void poll_some(struct result *r, struct end *me, const struct end *you)
{
    struct ibv_wc wc[OUTSTANDING];
    int n = ibv_poll_cq(me->cq, OUTSTANDING, wc);
    if (n < 0)
        die("poll the completion queue");
    for (int i = 0; i < n; i++)
        take(r, &wc[i], me, you);
    if (n == 0)
        sched_yield();
}

/* Breaks the link under 16 writes (or, once, before a fetch-add and a write) and looks on until the
 * first bad completion has come and the rest is flushed, or until time is up. */
static void run(const struct options *o, struct end *me, struct end *you, struct fault *f,
                struct result *r)
{
    memset(r, 0, sizeof(*r));
    unsigned long long warm = now_ns() + 300000000ull;
    if (!o->once) {
        for (unsigned i = 0; i < OUTSTANDING; i++, r->outstanding++)
            must(post_write(me, you, i, WRITE_BYTES, 0), "post");
        while (now_ns() < warm && !r->status)
            poll_some(r, me, you);
        if (r->status) {
            fprintf(stderr, "probe: completion status %d before the fault\n", r->status);
            exit(3);
        }
    }
    r->gap_ns = 0;
    r->outstanding += strcmp(o->fault, "bad-key") == 0; /* its write is one more */
    f->o = o;
    f->me = me;
    f->you = you;
    f->start_ns = now_ns();
    must(pthread_create(&f->thread, NULL, break_link, f), "start a thread");
    if (o->once) {
        while (!__atomic_load_n(&f->broken_ns, __ATOMIC_ACQUIRE))
            usleep(1000);
        f->start_ns = now_ns();
        me->heap[WRITE_BYTES] = 0x5a;
        must(post_add(me, you), "post a fetch-add");
        must(post_write(me, you, 1, 1, 0), "post");
        r->outstanding = 2;
    }
    unsigned long long end = now_ns() + (unsigned long long)o->wait_ms * 1000000ull;
    while (now_ns() < end && !(r->status && r->outstanding == 0))
        poll_some(r, me, you);
    pthread_join(f->thread, NULL);
    must(f->rc == 0 ? 0 : EIO, "break or mend the link");
}

/* After the link is mended: both ends through RESET to RTS with the GID of now, and a write that
 * arrives. Tried again until it works, as address resolution may take a second. Completions of the
 * time before may still lie in the queue, so only that write's own number counts. */
static double rebuild(const struct options *o, struct end *me, struct end *you)
{
    unsigned long long start = now_ns(), end = start + 8000000000ull;
    for (uint64_t id = 1000; now_ns() < end; id++) {
        if (find_gid(me) != 0 || find_gid(you) != 0 || connect_end(me, you, o) != 0 ||
            connect_end(you, me, o) != 0 || post_write(me, you, id, 64, 0) != 0) {
            usleep(2000);
            continue;
        }
        struct ibv_wc wc = {0};
        while (now_ns() < end && wc.wr_id != id)
            if (ibv_poll_cq(me->cq, 1, &wc) == 0)
                sched_yield();
        if (wc.wr_id == id && wc.status == IBV_WC_SUCCESS)
            return since_ms(now_ns(), start);
    }
    return -1.0;
}

static void print_event(const char *name, const struct end *e, const struct fault *f)
{
    unsigned long long err = __atomic_load_n(&e->port_err_ns, __ATOMIC_ACQUIRE);
    unsigned long long act = __atomic_load_n(&e->port_active_ns, __ATOMIC_ACQUIRE);
    if (err)
        printf(" %s_event=down %s_event_ms=%.1f", name, name, since_ms(err, f->start_ns));
    else
        printf(" %s_event=none %s_event_ms=-1", name, name);
    printf(" %s_up_ms=%.1f", name, act ? since_ms(act, f->start_ns) : -1.0);
    if (__atomic_load_n(&e->other_event_ns, __ATOMIC_ACQUIRE))
        printf(" %s_other_event=%d", name, e->other_event);
}

static int parse(int argc, char **argv, struct options *o)
{
    *o = (struct options){.timeout = 10, .retry = 3, .wait_ms = 1500};
    for (int c; (c = getopt(argc, argv, "n:f:b:u:a:t:r:w:1")) != -1;) {
        switch (c) {
        case 'n':
            o->near = optarg;
            break;
        case 'f':
            o->far = optarg;
            break;
        case 'b':
            o->fault = optarg;
            break;
        case 'u':
            o->undo = optarg;
            break;
        case 'a':
            o->undo_after_ms = atoi(optarg);
            break;
        case 't':
            o->timeout = atoi(optarg);
            break;
        case 'r':
            o->retry = atoi(optarg);
            break;
        case 'w':
            o->wait_ms = atoi(optarg);
            break;
        case '1':
            o->once = 1;
            break;
        default:
            return -1;
        }
    }
    return o->near && o->far && o->fault && o->undo ? 0 : -1;
}

int main(int argc, char **argv)
{
    struct options o;
    if (parse(argc, argv, &o) != 0) {
        fprintf(stderr, "probe: say -n NEAR -f FAR -b FAULT -u UNDO [-a UNDO_AFTER_MS] "
                        "[-t TIMEOUT] [-r RETRY] [-w WAIT_MS] [-1]\n");
        return 2;
    }
    struct end me, you;
    struct fault f = {0};
    struct result r;
    open_end(&me, o.near);
    open_end(&you, o.far);
    must(connect_end(&me, &you, &o), "connect");
    must(connect_end(&you, &me, &o), "connect");
    run(&o, &me, &you, &f, &r);

    printf("timeout=%d retry=%d status=%d name=%s", o.timeout, o.retry, r.status,
           status_name(r.status));
    printf(" first_ms=%.1f silent_ms=%.1f", r.status ? since_ms(r.bad_ns, f.start_ns) : -1.0,
           r.status ? since_ms(r.bad_ns, r.last_good_ns ? r.last_good_ns : f.start_ns) : -1.0);
    printf(" fault_ms=%.1f good=%u flushed=%u left=%u gap_ms=%.1f near_qp=%s far_qp=%s",
           since_ms(f.broken_ns, f.start_ns), r.good, r.flushed, r.outstanding,
           (double)r.gap_ns / 1e6, state_name(me.qp), state_name(you.qp));
    print_event("near", &me, &f);
    print_event("far", &you, &f);
    if (o.once) {
        unsigned long long sum;
        memcpy(&sum, you.heap, sizeof(sum));
        printf(" far_sum=%llu far_landed=%d", sum, you.heap[WRITE_BYTES] == 0x5a);
    }
    if (!o.undo_after_ms && apply(o.undo, &me, &you) != 0)
        die("mend the link");
    printf(" rebuilt_ms=%.1f\n", rebuild(&o, &me, &you));
    fflush(stdout);
    __atomic_store_n(&ended, 1, __ATOMIC_RELEASE);
    pthread_join(me.watcher, NULL);
    pthread_join(you.watcher, NULL);
    return 0; /* the kernel takes back what the process holds */
}
