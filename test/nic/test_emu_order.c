/* SPDX-License-Identifier: Apache-2.0 */
/* Two threads, two PEs: a signal is never seen before its payload, and a sleeper is woken. Run
 * under ThreadSanitizer too: the payload is read with plain loads, so only the signal orders it. */
#include <pthread.h>
#include <time.h>

#include "core/mem.h"
#include "nic/emu_yard.h"

enum { ROUNDS = 4000, BYTES = 1000, SIGNAL_OFF = 8192, BACK_OFF = 16384 };

static struct yard y;
static struct yard_path there, back;

static uint64_t real_clock(void *arg)
{
    struct timespec ts;

    (void)arg;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void open_real(uint64_t rate)
{
    struct ry_emu_cfg cfg = yard_cfg(&y, 2, 1);

    cfg.virtual_time = false;
    cfg.threads = true;
    cfg.now_ns = real_clock;
    cfg.rate_bps = rate != 0 ? &rate : NULL;
    memset(&y, 0, sizeof(y));
    yard_open(&y, &cfg);
    yard_path_open(&y, &there, 0, 1, 0, 0);
    yard_path_open(&y, &back, 1, 0, 0, 0);
}

static void close_all(void)
{
    yard_path_close(&there);
    yard_path_close(&back);
    yard_close(&y);
}

/* Wait, sleeping, until a word of a PE's heap has reached `want`. False: ten seconds passed. */
static bool wait_word(uint32_t pe, uint64_t off, uint64_t want)
{
    const uint64_t *w = (const uint64_t *)(const void *)(y.pe[pe].heap + off);
    uint64_t end = real_clock(NULL) + 10000000000u;

    while (ry_ld_acq64(w) < want) {
        y.pe[pe].nic->ops->drive(y.pe[pe].nic, real_clock(NULL));
        y.pe[pe].nic->ops->idle(y.pe[pe].nic, end);
        if (real_clock(NULL) > end)
            return false;
    }
    return true;
}

static void signal_to(struct yard_path *p, uint64_t off, uint64_t value)
{
    yard_inline(p, off, &value, 8, true);
    yard_ring(p);
}

struct receiver {
    uint64_t rounds;
    uint32_t wrong;
    bool late;
};

static void *receive(void *arg)
{
    struct receiver *r = arg;

    for (uint64_t i = 1; i <= r->rounds; i++) {
        if (!wait_word(1, SIGNAL_OFF, i)) {
            r->late = true;
            break;
        }
        for (int b = 0; b < BYTES; b++)
            r->wrong += (uint8_t)y.pe[1].heap[b] != (uint8_t)i;
        signal_to(&back, BACK_OFF, i);
    }
    return NULL;
}

static void exchange(uint64_t rate, uint64_t rounds)
{
    struct receiver r = {.rounds = rounds};
    pthread_t thread;

    open_real(rate);
    assert_int_equal(pthread_create(&thread, NULL, receive, &r), 0);
    for (uint64_t i = 1; i <= rounds; i++) {
        memset(y.pe[0].heap, (int)(i & 0xff), BYTES);
        yard_wqe(&there, RY_OP_WRITE, 0, 0, BYTES, false);
        signal_to(&there, SIGNAL_OFF, i);
        if (!wait_word(0, BACK_OFF, i))
            break;
    }
    pthread_join(thread, NULL);
    assert_false(r.late);
    assert_int_equal(r.wrong, 0);
    close_all();
}

static void test_at_once(void **state)
{
    (void)state;
    exchange(0, ROUNDS);
}

static void test_with_a_rate(void **state)
{
    (void)state;
    exchange(200000000, ROUNDS / 10);
}

static void *idle_until(void *arg)
{
    uint64_t *cpu = arg;
    struct timespec ts;

    while (!wait_word(1, SIGNAL_OFF, 1))
        continue;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    *cpu = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
    return NULL;
}

static void test_sleeping_costs_nothing(void **state)
{
    struct timespec nap = {.tv_nsec = 300000000};
    uint64_t cpu = 0;
    pthread_t thread;

    (void)state;
    open_real(0);
    assert_int_equal(pthread_create(&thread, NULL, idle_until, &cpu), 0);
    nanosleep(&nap, NULL);
    signal_to(&there, SIGNAL_OFF, 1);
    pthread_join(thread, NULL);
    assert_true(cpu < 15000000); /* 5 % of the time it slept */
    close_all();
}

static void *wake_often(void *arg)
{
    struct timespec nap = {.tv_nsec = 5000000};
    uint32_t *stop = arg;

    while (__atomic_load_n(stop, __ATOMIC_ACQUIRE) == 0) {
        nanosleep(&nap, NULL);
        y.pe[1].nic->ops->wake(y.pe[1].nic);
    }
    return NULL;
}

/* Asleep for a second idle returns ten times; woken every 5 ms, far more often. */
static void test_wake(void **state)
{
    uint64_t end;
    uint32_t stop = 0, calls = 0;
    pthread_t thread;

    (void)state;
    open_real(0);
    assert_int_equal(pthread_create(&thread, NULL, wake_often, &stop), 0);
    end = real_clock(NULL) + 1000000000;
    for (; real_clock(NULL) < end; calls++)
        y.pe[1].nic->ops->idle(y.pe[1].nic, end);
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    assert_true(calls > 20);
    close_all();
}

/* Many threads on one queue pair: every write arrives, one thread does the others' work. */
enum { POSTERS = 4, POSTS = 2000 };
static pthread_mutex_t post_lock = PTHREAD_MUTEX_INITIALIZER;

static void *poster(void *arg)
{
    uint64_t me = (uint64_t)(uintptr_t)arg;

    for (uint64_t i = 1; i <= POSTS; i++) {
        uint32_t prod;

        pthread_mutex_lock(&post_lock);
        while (there.prod - (uint32_t)ry_ld_acq64((uint64_t *)(void *)(y.pe[1].heap + 4096)) > 32)
            y.pe[0].nic->ops->kick(there.qp, there.prod);
        yard_wqe(&there, RY_OP_ATOMIC_FA, 64 + me * 64, 512 + me * 64, 8, false)
            ->u.atomic.swap_add = ry_be64(1);
        yard_wqe(&there, RY_OP_ATOMIC_FA, 4096, 1024, 8, true)->u.atomic.swap_add = ry_be64(2);
        prod = there.prod;
        __atomic_store_n(&there.dbr, ry_be32(prod & 0xffff), __ATOMIC_RELEASE);
        pthread_mutex_unlock(&post_lock);
        y.pe[0].nic->ops->kick(there.qp, prod);
    }
    return NULL;
}

static void test_many_posters(void **state)
{
    pthread_t thread[POSTERS];

    (void)state;
    open_real(0);
    for (uintptr_t i = 0; i < POSTERS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, poster, (void *)i), 0);
    for (int i = 0; i < POSTERS; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < POSTERS; i++)
        assert_int_equal(ry_ld_acq64((uint64_t *)(void *)(y.pe[1].heap + 64 + i * 64)), POSTS);
    assert_int_equal(yard_cqe(&there).counter, (POSTERS * POSTS * 2 - 1) & 0xffff);
    close_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_at_once),
        cmocka_unit_test(test_with_a_rate),
        cmocka_unit_test(test_sleeping_costs_nothing),
        cmocka_unit_test(test_wake),
        cmocka_unit_test(test_many_posters),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
