/* SPDX-License-Identifier: Apache-2.0 */
/* Memory regions. Every rail has a protection domain and registrations of its own, so that one
 * rail's keys can be taken away without the others noticing (the last step of a fence). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "nic/verbs/verbs_int.h"

static int explain(struct ry_verbs_nic *n, const struct ry_verbs_rail *r, uint64_t len, int error)
{
    struct rlimit lim;

    if ((error == ENOMEM || error == EPERM || error == EAGAIN) &&
        getrlimit(RLIMIT_MEMLOCK, &lim) == 0 && lim.rlim_cur != RLIM_INFINITY &&
        lim.rlim_cur < len + (len >> 3))
        return ry_verbs_fail(n, RY_ERR_NO_MEMORY,
                             "cannot register %llu bytes on %s: the limit on locked memory is %llu "
                             "bytes; raise it with 'ulimit -l unlimited' or LimitMEMLOCK=infinity",
                             (unsigned long long)len, r->name, (unsigned long long)lim.rlim_cur);
    return ry_verbs_fail(n, error == ENOMEM ? RY_ERR_NO_MEMORY : RY_ERR_DEVICE,
                         "cannot register %llu bytes on %s: %s", (unsigned long long)len, r->name,
                         strerror(error));
}

static int keep(struct ry_verbs_nic *n, struct ry_verbs_rail *r, struct ibv_mr *mr,
                struct ry_mr *out)
{
    struct ry_verbs_mr *m = malloc(sizeof(*m));

    if (!m) {
        ibv_dereg_mr(mr);
        return ry_verbs_fail(n, RY_ERR_NO_MEMORY, "out of memory");
    }
    m->mr = mr;
    m->next = r->mrs;
    r->mrs = m;
    out->lkey = mr->lkey;
    out->rkey = mr->rkey;
    return RY_OK;
}

int ry_verbs_mr_reg(struct ry_nic *nic, uint32_t rail, void *base, uint64_t len_bytes, bool remote,
                    struct ry_mr *out)
{
    struct ry_verbs_nic *n = ry_verbs_of(nic);
    int access = IBV_ACCESS_LOCAL_WRITE;
    struct ry_verbs_rail *r;
    struct ibv_mr *mr;

    if (rail >= n->rails_len || !base || len_bytes == 0)
        return ry_verbs_fail(n, RY_ERR_INVALID, "cannot register %llu bytes on rail %u of %u",
                             (unsigned long long)len_bytes, rail, n->rails_len);
    r = &n->rails[rail];
    if (remote)
        access |= IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    mr = ibv_reg_mr(r->pd, base, len_bytes, access);
    if (!mr)
        return explain(n, r, len_bytes, errno);
    return keep(n, r, mr, out);
}

int ry_verbs_mr_reg_dmabuf(struct ry_nic *nic, uint32_t rail, int fd, uint64_t offset, uint64_t len,
                           uint64_t iova, struct ry_mr *out)
{
    struct ry_verbs_nic *n = ry_verbs_of(nic);
    struct ry_verbs_rail *r;
    struct ibv_mr *mr;

    if (rail >= n->rails_len)
        return ry_verbs_fail(n, RY_ERR_INVALID, "no rail %u of %u", rail, n->rails_len);
    if (fd < 0 || len == 0 || offset + len < offset)
        return ry_verbs_fail(n, RY_ERR_INVALID,
                             "cannot register a dmabuf: descriptor %d, offset %llu, length %llu",
                             fd, (unsigned long long)offset, (unsigned long long)len);
    r = &n->rails[rail];
    mr = ibv_reg_dmabuf_mr(r->pd, offset, len, iova, fd,
                           IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                               IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
    if (!mr && (errno == EOPNOTSUPP || errno == ENOSYS))
        return ry_verbs_fail(n, RY_ERR_UNSUPPORTED,
                             "%s cannot register a dmabuf: load nvidia_peermem instead", r->name);
    if (!mr)
        return explain(n, r, len, errno);
    return keep(n, r, mr, out);
}

/* A key that rail_cut has taken back already is not found, which the caller may ignore. */
int ry_verbs_mr_dereg(struct ry_nic *nic, uint32_t rail, struct ry_mr mr)
{
    struct ry_verbs_nic *n = ry_verbs_of(nic);
    struct ry_verbs_mr **at, *m;
    int rc;

    if (rail >= n->rails_len)
        return ry_verbs_fail(n, RY_ERR_INVALID, "no rail %u of %u", rail, n->rails_len);
    for (at = &n->rails[rail].mrs; *at && (*at)->mr->lkey != mr.lkey; at = &(*at)->next)
        ;
    if (!*at)
        return ry_verbs_fail(n, RY_ERR_NOT_FOUND, "no registration with key %#x on %s", mr.lkey,
                             n->rails[rail].name);
    m = *at;
    rc = ibv_dereg_mr(m->mr);
    if (rc != 0)
        return ry_verbs_fail(n, RY_ERR_DEVICE, "cannot deregister memory on %s: %s",
                             n->rails[rail].name, strerror(rc));
    *at = m->next;
    free(m);
    return RY_OK;
}

/* No key that this rail gave out is valid afterwards, so no write of a peer can land. The rail is
 * usable again once memory is registered anew. */
int ry_verbs_rail_cut(struct ry_nic *nic, uint32_t rail)
{
    struct ry_verbs_nic *n = ry_verbs_of(nic);
    struct ry_verbs_rail *r;
    int rc = 0;

    if (rail >= n->rails_len)
        return ry_verbs_fail(n, RY_ERR_INVALID, "no rail %u of %u", rail, n->rails_len);
    r = &n->rails[rail];
    ry_verbs_fail(n, RY_ERR_RAIL, "every key of %s is taken back, so that no late write can land",
                  r->name);
    while (r->mrs) {
        struct ry_verbs_mr *m = r->mrs;
        int one = ibv_dereg_mr(m->mr);

        if (one != 0 && rc == 0)
            rc = one;
        r->mrs = m->next;
        free(m);
    }
    if (rc != 0)
        return ry_verbs_fail(n, RY_ERR_RAIL, "cannot take back the keys of %s: %s", r->name,
                             strerror(rc));
    return RY_OK;
}
