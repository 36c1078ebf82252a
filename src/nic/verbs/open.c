/* SPDX-License-Identifier: Apache-2.0 */
/* Opening: which ports become rails, and what each of them needs. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "nic/select.h"
#include "nic/verbs/verbs_int.h"

int ry_verbs_fail(struct ry_verbs_nic *n, int status, const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    vsnprintf(n->reason, sizeof(n->reason), format, ap);
    va_end(ap);
    if (n->cfg.report)
        n->cfg.report(n->cfg.report_arg, status, n->reason);
    return status;
}

const char *ry_verbs_reason(struct ry_nic *nic) { return ry_verbs_of(nic)->reason; }

static uint32_t rail_count(struct ry_nic *nic) { return ry_verbs_of(nic)->rails_len; }

static int counters(struct ry_nic *nic, uint32_t rail, struct ry_rail_counters *out)
{
    struct ry_verbs_nic *n = ry_verbs_of(nic);
    const struct ry_rail_counters *c;

    if (rail >= n->rails_len)
        return RY_ERR_INVALID;
    c = &n->rails[rail].counters;
    *out = (struct ry_rail_counters){
        .tx_bytes = __atomic_load_n(&c->tx_bytes, __ATOMIC_RELAXED),
        .rx_bytes = __atomic_load_n(&c->rx_bytes, __ATOMIC_RELAXED),
        .tx_ops = __atomic_load_n(&c->tx_ops, __ATOMIC_RELAXED),
        .errors = __atomic_load_n(&c->errors, __ATOMIC_RELAXED),
    };
    return RY_OK;
}

static int peer_sent(struct ry_nic *nic, uint32_t peer, uint64_t *bytes)
{
    struct ry_verbs_nic *n = ry_verbs_of(nic);

    for (uint32_t k = 0; k < n->rails_len; k++) {
        struct ry_verbs_rail *r = &n->rails[k];

        pthread_mutex_lock(&r->cq_lock);
        bytes[k] = peer < r->sent_len ? r->sent_gone[peer] : 0;
        for (uint32_t i = 0; i < r->qps_len; i++)
            if (r->qps[i] && r->qps[i]->peer == peer)
                bytes[k] += r->qps[i]->tx_bytes;
        pthread_mutex_unlock(&r->cq_lock);
    }
    return RY_OK;
}

static int export_seg(struct ry_nic *nic, struct ry_nic_export *out)
{
    (void)nic;
    *out = (struct ry_nic_export){.fd = -1};
    return RY_OK;
}

static int peer_attach(struct ry_nic *nic, const struct ry_nic_peer *peer)
{
    (void)nic;
    (void)peer;
    return RY_OK;
}

static void peer_detach(struct ry_nic *nic, uint32_t pe)
{
    (void)nic;
    (void)pe;
}

static int fault(struct ry_nic *nic, const struct ry_nic_fault *f)
{
    (void)f;
    return ry_verbs_fail(ry_verbs_of(nic), RY_ERR_UNSUPPORTED,
                         "a real port cannot be broken from here: set its link down");
}

static void close_rail(struct ry_verbs_rail *r)
{
    for (uint32_t i = 0; i < r->qps_len; i++)
        if (r->qps[i])
            ry_verbs_qp_destroy(r->qps[i]);
    free(r->qps);
    free(r->sent_gone);
    while (r->mrs) {
        struct ry_verbs_mr *m = r->mrs;

        r->mrs = m->next;
        ibv_dereg_mr(m->mr);
        free(m);
    }
    if (r->cq)
        ibv_destroy_cq(r->cq);
    if (r->channel)
        ibv_destroy_comp_channel(r->channel);
    if (r->pd)
        ibv_dealloc_pd(r->pd);
    pthread_mutex_destroy(&r->cq_lock);
}

static void close_nic(struct ry_nic *nic)
{
    struct ry_verbs_nic *n = ry_verbs_of(nic);

    for (uint32_t i = 0; i < n->rails_len; i++)
        ry_verbs_poster_stop(&n->rails[i]);
    for (uint32_t i = 0; i < n->rails_len; i++)
        close_rail(&n->rails[i]);
    for (uint32_t i = 0; i < n->devices_len; i++)
        ibv_close_device(n->devices[i]);
    if (n->epoll_fd >= 0)
        close(n->epoll_fd);
    if (n->work_fd >= 0)
        close(n->work_fd);
    if (n->wake_fd >= 0)
        close(n->wake_fd);
    free(n);
}

static const struct ry_nic_ops ops = {
    .name = "verbs",
    .rail_count = rail_count,
    .rail_info = ry_verbs_rail_info,
    .rail_state = ry_verbs_rail_state,
    .counters = counters,
    .peer_sent = peer_sent,
    .mr_reg = ry_verbs_mr_reg,
    .mr_dereg = ry_verbs_mr_dereg,
    .qp_create = ry_verbs_qp_create,
    .qp_connect = ry_verbs_qp_connect,
    .qp_error = ry_verbs_qp_error,
    .qp_flushed = ry_verbs_qp_flushed,
    .qp_fence_begin = ry_verbs_qp_fence_begin,
    .qp_fence_poll = ry_verbs_qp_fence_poll,
    .qp_destroy = ry_verbs_qp_destroy,
    .rail_cut = ry_verbs_rail_cut,
    .kick = ry_verbs_kick,
    .drive = ry_verbs_drive,
    .idle = ry_verbs_idle,
    .wake = ry_verbs_wake,
    .poll_event = ry_verbs_poll_event,
    .event_fd = ry_verbs_event_fd,
    .export_seg = export_seg,
    .peer_attach = peer_attach,
    .peer_detach = peer_detach,
    .fault = fault,
    .close = close_nic,
};

static int check_cfg(struct ry_verbs_nic *n)
{
    struct ry_verbs_cfg *c = &n->cfg;
    uint32_t order;

    if (c->hca && !*c->hca)
        c->hca = NULL;
    if (!c->roce_version)
        c->roce_version = 2;
    if (c->retry_count > 6)
        c->retry_count = 6;
    if (c->rnr_retry > 7)
        c->rnr_retry = 7;
    if (!c->queue_depth)
        c->queue_depth = 1024;
    if (!c->rails_max || c->rails_max > RY_RAILS_MAX)
        c->rails_max = RY_RAILS_MAX;
    if (c->hca && ry_select_takes(c->hca, "", 1, &order) < 0)
        return ry_verbs_fail(n, RY_ERR_CONFIG,
                             "cannot read the device selection '%s': it is a list "
                             "of [^]DEVICE[:PORT] with commas between",
                             c->hca);
    if (c->sl > 15 || c->roce_version > 2)
        return ry_verbs_fail(n, RY_ERR_CONFIG,
                             "service level %u, roce version %u: they take 0 to 15, and 1 or 2",
                             c->sl, c->roce_version);
    if (c->mtu_bytes && ry_verbs_mtu_bytes(ry_verbs_mtu_of(c->mtu_bytes)) != c->mtu_bytes)
        return ry_verbs_fail(n, RY_ERR_CONFIG,
                             "an mtu of %u bytes: it takes 256, 512, 1024, 2048 "
                             "or 4096",
                             c->mtu_bytes);
    if (c->queue_depth < RY_DEPTH_MIN)
        return ry_verbs_fail(n, RY_ERR_CONFIG, "a queue depth of %u: it takes %d or more",
                             c->queue_depth, RY_DEPTH_MIN);
    return RY_OK;
}

/* Any port of this device selected? Its port count is known only once it is open. */
static bool device_wanted(const struct ry_verbs_nic *n, const char *device)
{
    uint32_t order;

    for (uint32_t port = 1; port <= 16; port++)
        if (ry_select_takes(n->cfg.hca, device, port, &order) == 1)
            return true;
    return false;
}

struct candidate {
    uint32_t device, port, order, link_layer;
    const char *name;
};

/* Does this port become a candidate? RY_OK also for one that is passed over, with a reason. */
static int consider(struct ry_verbs_nic *n, uint32_t device, const char *name, uint32_t port,
                    struct candidate *list, uint32_t *len)
{
    bool named = ry_select_names(n->cfg.hca, name);
    struct ibv_port_attr attr;
    union ibv_gid gid;
    uint32_t index, order;
    int rc;

    if (ry_select_takes(n->cfg.hca, name, port, &order) != 1)
        return RY_OK;
    if (ibv_query_port(n->devices[device], (uint8_t)port, &attr) != 0)
        return ry_verbs_fail(n, RY_ERR_DEVICE, "cannot query %s:%u: %s", name, port,
                             strerror(errno));
    rc = ry_verbs_find_gid(&n->cfg, n->devices[device], port, attr.link_layer, &gid, &index);
    if (rc != RY_OK && n->cfg.gid_index >= 0)
        return ry_verbs_fail(n, RY_ERR_CONFIG, "%s:%u has no address in entry %d of its gid table",
                             name, port, n->cfg.gid_index);
    if (rc != RY_OK) {
        ry_verbs_fail(n, RY_ERR_DEVICE,
                      "%s:%u has no RoCEv%u address: give its network interface "
                      "an IP address and set it up",
                      name, port, n->cfg.roce_version);
        return named ? RY_ERR_DEVICE : RY_OK;
    }
    if (*len == RY_RAILS_MAX * 4)
        return RY_OK;
    list[(*len)++] = (struct candidate){device, port, order, attr.link_layer, name};
    return RY_OK;
}

/* The library looks for the node in several places, so its errno may be that of the last of them.
 */
static int cannot_open(struct ry_verbs_nic *n, struct ibv_device *dev, int error)
{
    const char *name = ibv_get_device_name(dev);
    char node[sizeof(dev->dev_name) + 32];

    snprintf(node, sizeof(node), "/dev/infiniband/%s", dev->dev_name);
    if (access(node, F_OK) == 0 && access(node, R_OK | W_OK) != 0)
        return ry_verbs_fail(n, RY_ERR_DEVICE,
                             "no permission to open %s: %s must be readable and writable for "
                             "this user",
                             name, node);
    return ry_verbs_fail(n, RY_ERR_DEVICE, "cannot open %s: %s", name, strerror(error));
}

static int open_device(struct ry_verbs_nic *n, struct ibv_device *dev, struct candidate *list,
                       uint32_t *len)
{
    const char *name = ibv_get_device_name(dev);
    struct ibv_device_attr attr;
    struct ibv_context *ctx;
    int rc = RY_OK;

    ctx = ibv_open_device(dev);
    if (!ctx)
        return cannot_open(n, dev, errno);
    n->devices[n->devices_len++] = ctx;
    if (ibv_query_device(ctx, &attr) != 0)
        return ry_verbs_fail(n, RY_ERR_DEVICE, "cannot query %s: %s", name, strerror(errno));
    for (uint32_t port = 1; port <= attr.phys_port_cnt && rc == RY_OK; port++)
        rc = consider(n, n->devices_len - 1, name, port, list, len);
    return rc;
}

static int by_order(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;

    if (x->order != y->order)
        return x->order < y->order ? -1 : 1;
    if (x->device != y->device)
        return x->device < y->device ? -1 : 1;
    return x->port < y->port ? -1 : x->port > y->port;
}

static int open_rail(struct ry_verbs_nic *n, const struct candidate *c)
{
    struct ry_verbs_rail *r = &n->rails[n->rails_len];
    uint32_t index;
    int cqe;

    memset(r, 0, sizeof(*r));
    r->nic = n;
    r->ctx = n->devices[c->device];
    r->index = n->rails_len;
    r->device = c->device;
    r->port = c->port;
    snprintf(r->name, sizeof(r->name), "%.*s:%u", (int)sizeof(r->name) - 5, c->name, c->port);
    pthread_mutex_init(&r->cq_lock, NULL);
    n->rails_len++; /* close_nic takes back what follows, complete or not */
    if (ibv_query_device(r->ctx, &r->dev) != 0)
        return ry_verbs_fail(n, RY_ERR_DEVICE, "cannot query %s: %s", r->name, strerror(errno));
    if (ry_verbs_find_pkey(r->ctx, r->port, n->cfg.pkey, &r->pkey_index) != RY_OK)
        return ry_verbs_fail(n, RY_ERR_CONFIG, "%s has no partition key %#x", r->name, n->cfg.pkey);
    (void)ry_verbs_find_gid(&n->cfg, r->ctx, r->port, c->link_layer, &r->gid, &index);
    r->pd = ibv_alloc_pd(r->ctx);
    cqe = r->dev.max_cqe < RY_VERBS_CQ_MAX ? r->dev.max_cqe : RY_VERBS_CQ_MAX;
    r->channel = ibv_create_comp_channel(r->ctx);
    if (r->pd && r->channel)
        r->cq = ibv_create_cq(r->ctx, cqe, NULL, r->channel, 0);
    if (!r->pd || !r->channel || !r->cq)
        return ry_verbs_fail(n, errno == ENOMEM ? RY_ERR_NO_MEMORY : RY_ERR_DEVICE,
                             "cannot set up %s: %s", r->name, strerror(errno));
    r->budget = (uint32_t)(r->cq->cqe - r->cq->cqe / 8); /* the rest is for drains */
    return RY_OK;
}

static int any_port_up(struct ry_verbs_nic *n)
{
    for (uint32_t i = 0; i < n->rails_len; i++)
        if (ry_verbs_rail_state(&n->base, i) == RY_PORT_UP)
            return RY_OK;
    return ry_verbs_fail(n, RY_ERR_DEVICE, "%s%s is down: set its link up or plug in its cable",
                         n->rails[0].name,
                         n->rails_len > 1 ? ", as every port of the selection," : "");
}

/* A name that meets no device is a mistake, and the port that was meant would idle. */
static int check_names(struct ry_verbs_nic *n, struct ibv_device **devices, int count)
{
    const char *at = n->cfg.hca;
    struct ry_select_part part;

    while (at && ry_select_next(&at, &part) == 1) {
        bool met = false;

        part.port = 0; /* ports are known once a device is open */
        for (int i = 0; i < count && !met; i++)
            met = ry_select_meets(&part, ibv_get_device_name(devices[i]), 1);
        if (!met)
            return ry_verbs_fail(n, RY_ERR_CONFIG,
                                 "the device selection names '%s%s', which is not here: the first "
                                 "device here is %s",
                                 part.device, part.any_rest ? "*" : "",
                                 ibv_get_device_name(devices[0]));
    }
    return RY_OK;
}

static int open_ports(struct ry_verbs_nic *n, struct ibv_device **devices, int count)
{
    struct candidate list[RY_RAILS_MAX * 4];
    uint32_t len = 0, matched = 0;
    int rc = check_names(n, devices, count);

    for (int i = 0; i < count && i < RY_VERBS_DEVICES && rc == RY_OK; i++) {
        if (!device_wanted(n, ibv_get_device_name(devices[i])))
            continue;
        matched++;
        rc = open_device(n, devices[i], list, &len);
    }
    if (rc != RY_OK)
        return rc;
    if (!matched || (len == 0 && !n->reason[0]))
        return ry_verbs_fail(n, RY_ERR_CONFIG,
                             "no port matches the device selection '%s': the "
                             "first device here is %s",
                             n->cfg.hca ? n->cfg.hca : "", ibv_get_device_name(devices[0]));
    if (len == 0)
        return RY_ERR_DEVICE; /* the reason is that of the last port passed over */
    qsort(list, len, sizeof(list[0]), by_order);
    for (uint32_t i = 0; i < len && n->rails_len < n->cfg.rails_max && rc == RY_OK; i++)
        rc = open_rail(n, &list[i]);
    return rc == RY_OK ? any_port_up(n) : rc;
}

static int watch(int epoll_fd, int fd, uint32_t number)
{
    struct epoll_event e = {.events = EPOLLIN, .data.u32 = number};
    int flags = fcntl(fd, F_GETFL);

    return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0
               ? -1
               : epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &e);
}

static int open_watch(struct ry_verbs_nic *n)
{
    int rc = 0;

    n->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    n->work_fd = epoll_create1(EPOLL_CLOEXEC);
    n->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (n->epoll_fd < 0 || n->work_fd < 0 || n->wake_fd < 0 || getrandom(&n->random, 8, 0) != 8)
        return ry_verbs_fail(n, RY_ERR_SYSTEM, "cannot open a descriptor: %s", strerror(errno));
    for (uint32_t i = 0; i < n->devices_len && rc == 0; i++)
        rc = watch(n->epoll_fd, n->devices[i]->async_fd, i);
    for (uint32_t i = 0; i < n->rails_len && rc == 0; i++)
        rc = watch(n->work_fd, n->rails[i].channel->fd, i);
    if (rc == 0)
        rc = watch(n->work_fd, n->wake_fd, RY_RAILS_MAX);
    return rc == 0 ? RY_OK
                   : ry_verbs_fail(n, RY_ERR_SYSTEM, "cannot watch a device: %s", strerror(errno));
}

int ry_verbs_open(const struct ry_verbs_cfg *cfg, struct ry_nic **out, char *reason,
                  size_t reason_bytes)
{
    struct ibv_device **devices;
    struct ry_verbs_nic *n = calloc(1, sizeof(*n));
    int rc, count = 0;

    if (!n)
        return RY_ERR_NO_MEMORY;
    n->base.ops = &ops;
    n->cfg = *cfg;
    n->epoll_fd = n->work_fd = n->wake_fd = -1;
    rc = check_cfg(n);
    devices = rc == RY_OK ? ibv_get_device_list(&count) : NULL;
    if (rc == RY_OK && (!devices || count == 0))
        rc = ry_verbs_fail(n, RY_ERR_DEVICE,
                           "no rdma device on this machine: load its driver, or "
                           "use the emulated nic");
    if (rc == RY_OK)
        rc = open_ports(n, devices, count);
    if (rc == RY_OK)
        rc = open_watch(n);
    if (rc == RY_OK)
        rc = ry_verbs_posters_start(n);
    if (devices)
        ibv_free_device_list(devices);
    n->cfg.hca = NULL; /* the caller's memory */
    if (rc != RY_OK) {
        if (reason_bytes)
            snprintf(reason, reason_bytes, "%s", n->reason);
        close_nic(&n->base);
        return rc;
    }
    n->reason[0] = '\0';
    *out = &n->base;
    return RY_OK;
}
