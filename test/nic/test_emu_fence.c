/* SPDX-License-Identifier: Apache-2.0 */
/* The fence: what a responder took before RESET is in memory when the fence says done, and nothing
 * comes after. In virtual time with data held back, and in real time against a copy under way. */
#include <pthread.h>
#include <time.h>

#include "nic/emu_yard.h"

static struct yard y;
static struct yard_path p;

static uint64_t real_clock(void *arg)
{
    struct timespec ts;

    (void)arg;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void open_held(void)
{
    struct ry_emu_cfg cfg = yard_cfg(&y, 2, 2);

    cfg.chaos.visible_delay_ns_max = 50000;
    memset(&y, 0, sizeof(y));
    yard_open(&y, &cfg);
    yard_path_open(&y, &p, 0, 1, 0, 0);
}

static void close_all(void)
{
    yard_path_close(&p);
    yard_close(&y);
}

static void post(uint64_t off, uint8_t value)
{
    yard_inline(&p, off, &value, 1, true);
    yard_ring(&p);
}

static void drive(uint32_t pe) { y.pe[pe].nic->ops->drive(y.pe[pe].nic, y.now); }

/* Some acknowledged write is not yet visible: over a few tries the delay cannot always be 0. */
static bool acked_but_invisible(void)
{
    for (uint32_t i = 0; i < 32; i++) {
        post(i, 7);
        drive(0);
        assert_int_equal(yard_cqe(&p).counter, p.prod - 1);
        if (y.pe[1].heap[i] == 0)
            return true;
    }
    return false;
}

static void test_acknowledged_is_not_visible(void **state)
{
    (void)state;
    open_held();
    assert_true(acked_but_invisible());
    yard_run(&y, 200000);
    assert_int_equal(y.pe[1].heap[p.prod - 1], 7);
    close_all();
}

/* A read behind it on the same path pushes it into memory. */
static void test_read_proves(void **state)
{
    uint32_t at;

    (void)state;
    open_held();
    assert_true(acked_but_invisible());
    at = p.prod - 1;
    yard_wqe(&p, RY_OP_READ, 4096, 4096, 8, true);
    yard_ring(&p);
    drive(0);
    assert_int_equal(yard_cqe(&p).counter, at + 1);
    assert_int_equal(y.pe[1].heap[at], 7);
    close_all();
}

/* A read on another path proves nothing. */
static void test_read_elsewhere_does_not(void **state)
{
    struct yard_path q;
    uint32_t at;

    (void)state;
    open_held();
    yard_path_open(&y, &q, 0, 1, 1, 1);
    assert_true(acked_but_invisible());
    at = p.prod - 1;
    yard_wqe(&q, RY_OP_READ, 4096, 4096, 8, true);
    yard_ring(&q);
    drive(0);
    assert_int_equal(yard_cqe(&q).opcode, RY_CQE_REQ);
    assert_int_equal(y.pe[1].heap[at], 0);
    yard_path_close(&q);
    close_all();
}

static void test_fence_lands_what_was_taken(void **state)
{
    const struct ry_nic_ops *ops;
    uint32_t at;

    (void)state;
    open_held();
    ops = y.pe[1].nic->ops;
    assert_true(acked_but_invisible());
    at = p.prod - 1;
    assert_int_equal(ops->qp_fence_begin(p.far), 0);
    assert_int_equal(ops->qp_fence_poll(p.far), 0); /* not yet: it still holds something */
    post(100, 9);                                   /* after RESET: not taken */
    while (ops->qp_fence_poll(p.far) == 0) {
        y.now += 1000;
        drive(0);
        drive(1);
        assert_true(y.now < 1000000);
    }
    assert_int_equal(ops->qp_fence_poll(p.far), 1);
    assert_int_equal(y.pe[1].heap[at], 7);
    yard_run(&y, 10000000);
    assert_int_equal(y.pe[1].heap[100], 0);
    close_all();
}

/* Two messages of one queue pair become visible in order, whatever their delays. */
static void test_one_path_keeps_order(void **state)
{
    (void)state;
    open_held();
    for (uint32_t i = 0; i < 50; i++) {
        uint8_t v = (uint8_t)(i + 1);

        yard_inline(&p, 0, &v, 1, false);
        yard_inline(&p, 64, &v, 1, true);
        yard_ring(&p);
        for (int n = 0; n < 20; n++) {
            drive(0);
            drive(1);
            assert_true((uint8_t)y.pe[1].heap[0] >= (uint8_t)y.pe[1].heap[64]);
            y.now += 1000;
        }
    }
    close_all();
}

/* What a NIC held when it died is lost, though it was acknowledged. */
static void test_nic_down_loses_what_it_held(void **state)
{
    uint32_t at;

    (void)state;
    open_held();
    assert_true(acked_but_invisible());
    at = p.prod - 1;
    yard_fault(&y, 1, (struct ry_nic_fault){.kind = RY_FAULT_NIC_DOWN, .rail = 0, .peer = -1});
    yard_run(&y, 1000000);
    assert_int_equal(y.pe[1].heap[at], 0);
    close_all();
}

static void test_fence_wants_reset(void **state)
{
    (void)state;
    open_held();
    assert_int_equal(y.pe[1].nic->ops->qp_fence_poll(p.far), RY_ERR_INVALID);
    assert_int_equal(y.pe[0].nic->ops->qp_fence_begin(p.qp), RY_ERR_INVALID);
    close_all();
}

struct writer {
    uint32_t stop;
    uint32_t posted;
};

/* Writes large messages until its queue pair is in ERR. */
static void *write_on(void *arg)
{
    struct writer *w = arg;

    while (__atomic_load_n(&w->stop, __ATOMIC_ACQUIRE) == 0) {
        struct ry_cqe_tail t;

        yard_wqe(&p, RY_OP_WRITE, 0, 0, 2 << 20, true);
        yard_ring(&p);
        t = yard_cqe(&p);
        if (t.opcode == RY_CQE_REQ && t.counter == (uint16_t)(p.prod - 1))
            __atomic_add_fetch(&w->posted, 1, __ATOMIC_RELEASE);
        else
            break;
    }
    return NULL;
}

/* RESET in the middle of a copy: once the fence is done the memory is ours and stays as we leave
 * it. */
static void test_fence_against_a_copy(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        struct ry_emu_cfg cfg = yard_cfg(&y, 2, 1);
        struct timespec nap = {.tv_nsec = 200000};
        struct writer w = {0};
        pthread_t thread;
        int rc;

        cfg.virtual_time = false;
        cfg.threads = true;
        cfg.now_ns = real_clock;
        cfg.retry_count = 7;
        memset(&y, 0, sizeof(y));
        yard_open(&y, &cfg);
        yard_path_open(&y, &p, 0, 1, 0, 0);
        memset(y.pe[0].heap, 0x11, 2 << 20);
        assert_int_equal(pthread_create(&thread, NULL, write_on, &w), 0);
        while (__atomic_load_n(&w.posted, __ATOMIC_ACQUIRE) < 1)
            nanosleep(&nap, NULL);
        assert_int_equal(y.pe[1].nic->ops->qp_fence_begin(p.far), 0);
        while ((rc = y.pe[1].nic->ops->qp_fence_poll(p.far)) == 0)
            nanosleep(&nap, NULL);
        assert_int_equal(rc, 1);
        memset(y.pe[1].heap, 0x22, 2 << 20);
        for (int i = 0; i < 5; i++)
            nanosleep(&nap, NULL);
        for (uint32_t i = 0; i < 2 << 20; i += 64)
            assert_int_equal(y.pe[1].heap[i], 0x22);
        __atomic_store_n(&w.stop, 1, __ATOMIC_RELEASE);
        pthread_join(thread, NULL);
        assert_int_equal(y.pe[0].nic->ops->qp_error(p.qp), 0);
        while (y.pe[0].nic->ops->qp_flushed(p.qp) == 0)
            nanosleep(&nap, NULL);
        close_all();
    }
}

/* After flushed, the NIC reads no source: it may be overwritten although the link comes back. */
static void test_flushed_reads_no_source(void **state)
{
    struct ry_emu_cfg cfg = yard_cfg(&y, 2, 1);
    const struct ry_nic_ops *ops;

    (void)state;
    cfg.retry_count = 7;
    memset(&y, 0, sizeof(y));
    yard_open(&y, &cfg);
    yard_path_open(&y, &p, 0, 1, 0, 0);
    ops = y.pe[0].nic->ops;
    yard_fault(&y, 0, yard_drop(0, 1.0));
    yard_wqe(&p, RY_OP_WRITE, 0, 0, 4096, true);
    yard_ring(&p);
    yard_run(&y, 3000000);
    assert_int_equal(ops->qp_error(p.qp), 0);
    yard_run(&y, y.now);
    assert_int_equal(ops->qp_flushed(p.qp), 1);
    memset(y.pe[0].heap, 0x77, 4096);
    yard_fault(&y, 0, (struct ry_nic_fault){.kind = RY_FAULT_CLEAR, .rail = 0, .peer = -1});
    yard_run(&y, 30000000);
    for (int i = 0; i < 4096; i++)
        assert_int_equal(y.pe[1].heap[i], 0);
    close_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_acknowledged_is_not_visible),
        cmocka_unit_test(test_read_proves),
        cmocka_unit_test(test_read_elsewhere_does_not),
        cmocka_unit_test(test_fence_lands_what_was_taken),
        cmocka_unit_test(test_one_path_keeps_order),
        cmocka_unit_test(test_nic_down_loses_what_it_held),
        cmocka_unit_test(test_fence_wants_reset),
        cmocka_unit_test(test_fence_against_a_copy),
        cmocka_unit_test(test_flushed_reads_no_source),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
