/* SPDX-License-Identifier: Apache-2.0 */
/* A thread for each rail that hands requests to the driver. A NIC takes a doorbell and works by
 * itself; a NIC in software (soft-RoCE) sends on the CPU of the thread that posts, so that one
 * thread that posts to two rails gets no more than one CPU's worth of both. */
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>

#include "nic/verbs/verbs_int.h"

enum {
    RXE_VENDOR = 0xffffff,
    SIW_VENDOR = 0x626d74,
    LONG_NS = 20000000, /* so long a driver in software may be at work for what it was given */
};

bool ry_verbs_in_software(const struct ibv_device_attr *dev)
{
    return dev->vendor_id == RXE_VENDOR || dev->vendor_id == SIW_VENDOR;
}

/* Under p->lock. */
static struct ry_nic_qp *take_first(struct ry_verbs_poster *p)
{
    struct ry_nic_qp *qp = p->first;

    if (qp) {
        p->first = qp->next_given;
        if (!p->first)
            p->last = NULL;
        qp->next_given = NULL;
        qp->given = false;
    }
    return qp;
}

static void *poster_main(void *arg)
{
    struct ry_verbs_poster *p = arg;

    prctl(PR_SET_NAME, "ry-post");
    pthread_mutex_lock(&p->lock);
    while (!p->stop) {
        p->at = take_first(p);
        if (!p->at) {
            pthread_cond_wait(&p->changed, &p->lock);
            continue;
        }
        pthread_mutex_unlock(&p->lock);
        pthread_mutex_lock(&p->at->lock);
        ry_verbs_post(p->at);
        pthread_mutex_unlock(&p->at->lock);
        pthread_mutex_lock(&p->lock);
        if (p->forgets)
            pthread_cond_broadcast(&p->changed);
    }
    p->at = NULL;
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

int ry_verbs_poster_start(struct ry_verbs_rail *r)
{
    struct ry_verbs_poster *p = &r->poster;
    int rc;

    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    rc = pthread_create(&p->thread, NULL, poster_main, p);
    if (rc != 0) {
        pthread_cond_destroy(&p->changed);
        pthread_mutex_destroy(&p->lock);
        return ry_verbs_fail(r->nic, RY_ERR_SYSTEM, "cannot start a thread for %s: %s", r->name,
                             strerror(rc));
    }
    p->runs = true;
    return RY_OK;
}

void ry_verbs_poster_stop(struct ry_verbs_rail *r)
{
    struct ry_verbs_poster *p = &r->poster;

    if (!p->runs)
        return;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    p->runs = false;
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
}

bool ry_verbs_poster_busy(const struct ry_verbs_rail *r, uint64_t now_ns)
{
    return __atomic_load_n(&r->poster.long_ns, __ATOMIC_RELAXED) + LONG_NS > now_ns;
}

void ry_verbs_poster_give(struct ry_nic_qp *qp)
{
    struct ry_verbs_poster *p = &qp->rail->poster;

    pthread_mutex_lock(&p->lock);
    if (!qp->given) {
        qp->given = true;
        if (p->last)
            p->last->next_given = qp;
        else
            p->first = qp;
        p->last = qp;
        if (!p->at)
            pthread_cond_broadcast(&p->changed);
    }
    pthread_mutex_unlock(&p->lock);
}

void ry_verbs_poster_forget(struct ry_nic_qp *qp)
{
    struct ry_verbs_poster *p = &qp->rail->poster;
    struct ry_nic_qp **at, *before = NULL;

    if (!p->runs)
        return;
    pthread_mutex_lock(&p->lock);
    for (at = &p->first; *at && *at != qp; at = &(*at)->next_given)
        before = *at;
    if (*at) {
        *at = qp->next_given;
        if (p->last == qp)
            p->last = before;
    }
    p->forgets++;
    while (p->at == qp)
        pthread_cond_wait(&p->changed, &p->lock);
    p->forgets--;
    pthread_mutex_unlock(&p->lock);
}

/* Worth it where the driver does the NIC's work, for more than one rail, on more than one CPU. */
int ry_verbs_posters_start(struct ry_verbs_nic *n)
{
    cpu_set_t cpus;
    bool many =
        n->rails_len > 1 && sched_getaffinity(0, sizeof(cpus), &cpus) == 0 && CPU_COUNT(&cpus) > 1;
    int rc = RY_OK;

    for (uint32_t i = 0; i < n->rails_len && rc == RY_OK; i++) {
        struct ry_verbs_rail *r = &n->rails[i];

        if (n->cfg.posters == RY_VERBS_POSTERS_ON ||
            (n->cfg.posters == RY_VERBS_POSTERS_AUTO && many && ry_verbs_in_software(&r->dev)))
            rc = ry_verbs_poster_start(r);
    }
    return rc;
}
