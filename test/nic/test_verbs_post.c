/* SPDX-License-Identifier: Apache-2.0 */
/* Posting, without a device: a driver that this file plays takes requests and gives completions
 * back. Whoever posts, the caller or the rail's own thread, requests go over once and in order,
 * room is never overrun, and a queue pair can be taken away at any moment. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "nic/verbs/verbs_int.h"

enum { DEPTH = 64, ROOM = 16, LARGE = RY_VERBS_SMALL_BYTES + 1, QPN = 7 };

struct driver {
    pthread_mutex_t lock;
    struct ibv_context ctx;
    struct ibv_cq cq;
    struct ibv_qp ibqp;
    struct ry_verbs_nic nic;
    struct ry_nic_qp qp;
    struct ry_wqe ring[DEPTH];
    struct ry_cqe cqe;
    /* under lock */
    uint32_t next, done; /* index that must come next; behind the last that was completed */
    uint32_t wrong, overrun, capacity;
    uint32_t signalled[DEPTH];
    pthread_t poster;  /* who posted last */
    bool held, inside; /* the driver is slow: it does not return while it is held */
};

static struct driver *d;

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    int rc = 0;

    (void)qp;
    pthread_mutex_lock(&d->lock);
    for (; wr && rc == 0; wr = wr->next) {
        if (d->next - d->done >= d->capacity) {
            *bad = wr;
            rc = ENOMEM;
            break;
        }
        d->wrong += (uint32_t)wr->wr_id != d->next;
        d->overrun += d->next - d->done >= ROOM;
        d->signalled[d->next++ % DEPTH] = wr->send_flags & IBV_SEND_SIGNALED;
    }
    d->poster = pthread_self();
    d->inside = true;
    while (d->held) {
        pthread_mutex_unlock(&d->lock);
        usleep(100);
        pthread_mutex_lock(&d->lock);
    }
    d->inside = false;
    pthread_mutex_unlock(&d->lock);
    return rc;
}

/* Completes all that was posted, up to the last one that is signalled. */
static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
    int got = 0;

    (void)cq;
    pthread_mutex_lock(&d->lock);
    for (uint32_t i = d->done; i != d->next && got < n; i++) {
        if (!d->signalled[i % DEPTH])
            continue;
        wc[got++] = (struct ibv_wc){.wr_id = i, .status = IBV_WC_SUCCESS, .qp_num = QPN};
        d->done = i + 1;
    }
    pthread_mutex_unlock(&d->lock);
    return got;
}

static int set_up(void **state)
{
    static struct ry_nic_qp *table[1];
    struct ry_verbs_rail *r;

    d = calloc(1, sizeof(*d));
    assert_non_null(d);
    r = &d->nic.rails[0];
    pthread_mutex_init(&d->lock, NULL);
    d->capacity = ROOM;
    d->ctx.ops.post_send = post_send;
    d->ctx.ops.poll_cq = poll_cq;
    d->cq.context = d->ibqp.context = &d->ctx;
    d->ibqp.qp_num = QPN;
    d->nic.rails_len = 1;
    r->nic = &d->nic;
    r->cq = &d->cq;
    r->budget = 1000;
    pthread_mutex_init(&r->cq_lock, NULL);
    table[0] = &d->qp;
    r->qps = table;
    r->qps_len = 1;
    d->qp.rail = r;
    d->qp.qp = &d->ibqp;
    d->qp.kind = RY_QP_INITIATOR;
    d->qp.depth = DEPTH;
    d->qp.room = ROOM;
    d->qp.ring = d->ring;
    d->qp.cqe = &d->cqe;
    pthread_mutex_init(&d->qp.lock, NULL);
    pthread_mutex_init(&d->qp.cqe_lock, NULL);
    (void)state;
    return 0;
}

static int tear_down(void **state)
{
    ry_verbs_poster_stop(&d->nic.rails[0]);
    free(d);
    (void)state;
    return 0;
}

static void write_request(uint32_t index, uint32_t bytes, bool signalled)
{
    struct ry_wqe *w = &d->ring[index % DEPTH];

    memset(w, 0, sizeof(*w));
    ry_wqe_head(w, RY_OP_WRITE, index, QPN, 3);
    w->fm_ce_se = signalled ? RY_WQE_SIGNALLED : 0;
    w->u.data.byte_count = ry_be32(bytes);
}

static void look(void)
{
    bool busy;

    ry_verbs_look(&d->nic, ry_verbs_now(), &busy);
}

/* Until `index` is behind all that is known to have ended; false after ten seconds. */
static bool retired(uint32_t index)
{
    for (int i = 0; i < 100000; i++) {
        look();
        if (__atomic_load_n(&d->qp.retired, __ATOMIC_ACQUIRE) == index)
            return true;
        usleep(100);
    }
    return false;
}

static void run(uint32_t many)
{
    uint32_t seed = 1;

    for (uint32_t i = 0; i < many; i++) {
        while (i - __atomic_load_n(&d->qp.retired, __ATOMIC_ACQUIRE) >= DEPTH - 1)
            look();
        seed = seed * 1103515245 + 12345;
        write_request(i, seed >> 16 & 1 ? 8 : LARGE, (seed >> 17 & 3) == 0 || i + 1 == many);
        ry_verbs_kick(&d->qp, i + 1);
    }
    assert_true(retired(many));
    assert_int_equal(d->next, many);
    assert_int_equal(d->wrong, 0);
    assert_int_equal(d->overrun, 0);
    assert_int_equal(ry_observe_cqe(&d->cqe).counter, (uint16_t)(many - 1));
    assert_int_equal(d->nic.rails[0].inflight, 0);
}

static void the_caller_posts_in_order(void **state)
{
    (void)state;
    run(20000);
}

static void a_thread_posts_in_order(void **state)
{
    (void)state;
    assert_int_equal(ry_verbs_poster_start(&d->nic.rails[0]), RY_OK);
    run(20000);
}

static void what_is_small_is_posted_at_once(void **state)
{
    (void)state;
    assert_int_equal(ry_verbs_poster_start(&d->nic.rails[0]), RY_OK);
    write_request(0, 8, true);
    ry_verbs_kick(&d->qp, 1);
    assert_int_equal(d->next, 1); /* here and now, by whoever kicked */
    assert_true(pthread_equal(d->poster, pthread_self()));
    write_request(1, LARGE, true);
    ry_verbs_kick(&d->qp, 2);
    assert_true(retired(2));
    assert_false(pthread_equal(d->poster, pthread_self()));
}

static void whoever_kicks_does_not_wait_for_a_slow_driver(void **state)
{
    bool inside = false;

    (void)state;
    assert_int_equal(ry_verbs_poster_start(&d->nic.rails[0]), RY_OK);
    d->held = true;
    write_request(0, LARGE, true);
    ry_verbs_kick(&d->qp, 1);
    for (int i = 0; i < 100000 && !inside; i++) {
        pthread_mutex_lock(&d->lock);
        inside = d->inside;
        pthread_mutex_unlock(&d->lock);
        usleep(100);
    }
    assert_true(inside);
    for (uint32_t i = 1; i < 4; i++) { /* small or not, it stays in order */
        write_request(i, i == 2 ? LARGE : 8, true);
        ry_verbs_kick(&d->qp, i + 1);
    }
    look(); /* completions are taken meanwhile */
    assert_int_equal(d->qp.retired, 1);
    pthread_mutex_lock(&d->lock);
    d->held = false;
    pthread_mutex_unlock(&d->lock);
    assert_true(retired(4));
    assert_int_equal(d->wrong, 0);
}

static void *forget(void *gone)
{
    ry_verbs_poster_forget(&d->qp);
    __atomic_store_n((uint32_t *)gone, 1, __ATOMIC_RELEASE);
    return NULL;
}

static void a_queue_pair_is_forgotten_when_the_driver_has_let_go(void **state)
{
    bool inside = false;
    uint32_t gone = 0;
    pthread_t t;

    (void)state;
    assert_int_equal(ry_verbs_poster_start(&d->nic.rails[0]), RY_OK);
    d->held = true;
    write_request(0, LARGE, true);
    ry_verbs_kick(&d->qp, 1);
    for (int i = 0; i < 100000 && !inside; i++) {
        pthread_mutex_lock(&d->lock);
        inside = d->inside;
        pthread_mutex_unlock(&d->lock);
        usleep(100);
    }
    write_request(1, LARGE, true); /* stands in the list */
    ry_verbs_kick(&d->qp, 2);
    __atomic_store_n(&d->qp.failed, 1, __ATOMIC_RELEASE);
    assert_int_equal(pthread_create(&t, NULL, forget, &gone), 0);
    usleep(20000);
    assert_int_equal(__atomic_load_n(&gone, __ATOMIC_ACQUIRE), 0);
    pthread_mutex_lock(&d->lock);
    d->held = false;
    pthread_mutex_unlock(&d->lock);
    pthread_join(t, NULL);
    assert_int_equal(gone, 1);
    assert_int_equal(d->next, 1);
    assert_null(d->nic.rails[0].poster.first);
}

/* The driver counts more narrowly than it said: what it refuses is posted when there is room. */
static void a_refusal_for_want_of_room_is_no_error(void **state)
{
    (void)state;
    d->capacity = ROOM - 3;
    run(5000);
    d->capacity = 0; /* and with nothing under way it is one */
    write_request(5000, 8, true);
    ry_verbs_kick(&d->qp, 5001);
    assert_int_equal(ry_observe_cqe(&d->cqe).opcode, RY_CQE_REQ_ERR);
    assert_int_equal(d->cqe.syndrome, RY_SYN_LOCAL_QP_OP);
    assert_int_equal(d->nic.rails[0].inflight, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_caller_posts_in_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_thread_posts_in_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_small_is_posted_at_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(whoever_kicks_does_not_wait_for_a_slow_driver, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_queue_pair_is_forgotten_when_the_driver_has_let_go,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_refusal_for_want_of_room_is_no_error, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
