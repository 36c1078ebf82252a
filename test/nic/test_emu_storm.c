/* SPDX-License-Identifier: Apache-2.0 */
/* Real time, threads, and everything at once: two PEs write to each other while a third thread
 * lets ports flap, packets vanish and NICs die. Every queue pair ends in a state, every rebuilt
 * one works, nothing hangs. Meant for the sanitizers. */
#include <pthread.h>
#include <time.h>

#include "core/mem.h"
#include "nic/emu_yard.h"

enum { FAULTS = 60, RAILS = 2, BURST = 8, WAIT_NS = 2000000000 };

static struct yard y;
static uint32_t stop, faults;

static uint64_t real_clock(void *arg)
{
    struct timespec ts;

    (void)arg;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Waits for the completion of request idx, or an error, or for 5 ms. */
static uint8_t settle(struct yard_path *p, uint32_t idx)
{
    struct ry_nic *nic = y.pe[p->from].nic;
    uint64_t end = real_clock(NULL) + 5000000;
    struct ry_cqe_tail t = yard_cqe(p);

    while (real_clock(NULL) < end) {
        t = yard_cqe(p);
        if (t.opcode == RY_CQE_REQ_ERR || (t.opcode == RY_CQE_REQ && t.counter == (uint16_t)idx))
            return t.opcode;
        nic->ops->drive(nic, real_clock(NULL));
        nic->ops->idle(nic, end);
    }
    return RY_CQE_INVALID;
}

/* ERR and flush at one end, RESET at the other; a dead NIC refuses and is given time to return. */
static bool leave(struct yard_path *p)
{
    const struct ry_nic_ops *ops = y.pe[p->from].nic->ops;
    uint64_t end = real_clock(NULL) + WAIT_NS;
    struct timespec nap = {.tv_nsec = 100000};
    int flushed, fenced;

    ops->qp_error(p->qp);
    do {
        flushed = ops->qp_flushed(p->qp);
        if (flushed != 1)
            nanosleep(&nap, NULL);
    } while (flushed == 0 && real_clock(NULL) < end);
    while (ops->qp_fence_begin(p->far) != 0 && real_clock(NULL) < end)
        nanosleep(&nap, NULL);
    do {
        fenced = ops->qp_fence_poll(p->far);
        if (fenced != 1)
            nanosleep(&nap, NULL);
    } while (fenced != 1 && real_clock(NULL) < end);
    return flushed != 0 && fenced == 1;
}

static bool connect_again(struct yard_path *p, uint32_t from, uint32_t rail)
{
    uint64_t end = real_clock(NULL) + WAIT_NS;
    struct timespec nap = {.tv_nsec = 100000};
    const struct ry_nic_ops *ops = y.pe[from].nic->ops;

    for (;;) {
        yard_path_make(&y, p, from, 1 - from, rail, rail);
        if (ops->qp_connect(p->far, &p->addr) == 0 && ops->qp_connect(p->qp, &p->far_addr) == 0)
            return true;
        yard_path_close(p);
        if (real_clock(NULL) > end)
            return false;
        nanosleep(&nap, NULL);
    }
}

struct sender {
    uint32_t pe;
    uint32_t rounds, good, bad, silent;
    bool failed;
};

/* One thread does both ends' calls of its direction; rail 0 belongs to PE 0, rail 1 to PE 1. */
static void *send_on(void *arg)
{
    struct sender *s = arg;
    struct yard_path p;

    for (; __atomic_load_n(&faults, __ATOMIC_ACQUIRE) < FAULTS && !s->failed; s->rounds++) {
        uint8_t end = RY_CQE_REQ;

        if (!connect_again(&p, s->pe, s->pe)) {
            s->failed = true;
            break;
        }
        for (int burst = 0; burst < 6 && end == RY_CQE_REQ; burst++) {
            for (int i = 0; i < BURST; i++)
                yard_wqe(&p, RY_OP_WRITE, (uint64_t)i << 16, (uint64_t)i << 16, 20000,
                         i + 1 == BURST);
            yard_ring(&p);
            end = settle(&p, p.prod - 1);
        }
        s->good += end == RY_CQE_REQ;
        s->bad += end == RY_CQE_REQ_ERR;
        s->silent += end == RY_CQE_INVALID;
        s->failed |= !leave(&p);
        yard_path_close(&p);
    }
    return NULL;
}

static void *trouble(void *arg)
{
    static const enum ry_nic_fault_kind kinds[] = {RY_FAULT_PORT_DOWN, RY_FAULT_DROP,
                                                   RY_FAULT_ACK_DROP,  RY_FAULT_DELAY,
                                                   RY_FAULT_STALL,     RY_FAULT_GHOST,
                                                   RY_FAULT_NIC_DOWN,  RY_FAULT_CQE_ERROR,
                                                   RY_FAULT_QP_ERROR,  RY_FAULT_SLOW};
    uint32_t n = 0;

    (void)arg;
    while (__atomic_load_n(&stop, __ATOMIC_ACQUIRE) == 0) {
        struct timespec nap = {.tv_nsec = 1500000};
        struct ry_nic_fault f = {.kind = kinds[n % 10],
                                 .rail = (n / 10) % RAILS,
                                 .peer = -1,
                                 .p = 0.3,
                                 .for_ns = 1000000,
                                 .delay_ns = 200000,
                                 .jitter_ns = 50000,
                                 .factor = 8.0,
                                 .syndrome = 0x15,
                                 .seed = n};
        struct ry_nic *nic = y.pe[(n / 3) % 2].nic;
        struct ry_nic_event ev;

        nic->ops->fault(nic, &f);
        nanosleep(&nap, NULL);
        for (int i = 0; i < 2; i++)
            while (y.pe[i].nic->ops->poll_event(y.pe[i].nic, &ev) == 1)
                continue;
        __atomic_store_n(&faults, ++n, __ATOMIC_RELEASE);
    }
    return NULL;
}

/* The weather is over: a new pair works at once. */
static void calm(uint32_t pe)
{
    struct yard_path p;
    uint64_t end = real_clock(NULL) + 5 * (uint64_t)WAIT_NS;

    for (uint32_t r = 0; r < RAILS; r++) {
        const struct ry_nic_fault clear = {.kind = RY_FAULT_CLEAR, .rail = r, .peer = -1};

        yard_fault(&y, pe, clear);
        yard_fault(&y, 1 - pe, clear);
    }
    assert_true(connect_again(&p, pe, pe));
    y.pe[1 - pe].heap[9] = 0;
    yard_inline(&p, 9, "x", 1, true);
    yard_ring(&p);
    while (settle(&p, 0) == RY_CQE_INVALID && real_clock(NULL) < end)
        continue;
    assert_int_equal(yard_cqe(&p).opcode, RY_CQE_REQ);
    assert_int_equal(y.pe[1 - pe].heap[9], 'x');
    assert_true(leave(&p));
    yard_path_close(&p);
}

static void storm(const uint64_t *rates)
{
    struct ry_emu_cfg cfg = yard_cfg(&y, 2, RAILS);
    struct sender s[2] = {{.pe = 0}, {.pe = 1}};
    pthread_t thread[3];

    cfg.virtual_time = false;
    cfg.threads = true;
    cfg.now_ns = real_clock;
    cfg.rate_bps = rates;
    cfg.retry_count = 2;
    cfg.retry_ns = 300000;
    cfg.ports_per_nic = 1;
    memset(&y, 0, sizeof(y));
    stop = faults = 0;
    yard_open(&y, &cfg);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, send_on, &s[i]), 0);
    assert_int_equal(pthread_create(&thread[2], NULL, trouble, NULL), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    pthread_join(thread[2], NULL);
    for (int i = 0; i < 2; i++) {
        assert_false(s[i].failed);
        assert_int_equal(s[i].good + s[i].bad + s[i].silent, s[i].rounds);
        assert_true(s[i].rounds > 0);
        calm(i);
    }
    yard_close(&y);
}

static void test_at_once(void **state)
{
    (void)state;
    storm(NULL);
}

static void test_with_rates(void **state)
{
    const uint64_t rates[RAILS] = {400000000, 400000000};

    (void)state;
    storm(rates);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_at_once),
        cmocka_unit_test(test_with_rates),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
