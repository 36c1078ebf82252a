/* SPDX-License-Identifier: Apache-2.0 */
/* Every opcode does what its name says, in virtual time and at once (threads). */
#include <time.h>

#include "nic/emu_yard.h"

static uint64_t real_clock(void *arg)
{
    struct timespec ts;

    (void)arg;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void open_mode(struct yard *y, bool real)
{
    struct ry_emu_cfg cfg = yard_cfg(y, 2, 2);

    if (real) {
        cfg.virtual_time = false;
        cfg.threads = true;
        cfg.now_ns = real_clock;
    }
    memset(y, 0, sizeof(*y));
    yard_open(y, &cfg);
}

static uint64_t word(const struct yard *y, uint32_t pe, uint64_t off)
{
    uint64_t v;

    memcpy(&v, y->pe[pe].heap + off, 8);
    return v;
}

static void set_word(struct yard *y, uint32_t pe, uint64_t off, uint64_t v)
{
    memcpy(y->pe[pe].heap + off, &v, 8);
}

static void check_moves(bool real)
{
    struct yard y;
    struct yard_path p;
    uint64_t value[2] = {0x1122334455667788ull, 42};

    open_mode(&y, real);
    yard_path_open(&y, &p, 0, 1, 1, 0);
    for (uint32_t i = 0; i < 70000; i++)
        y.pe[0].heap[4096 + i] = (char)(i * 7 + 1);
    yard_wqe(&p, RY_OP_WRITE, 8200, 4096, 70000, false);
    yard_inline(&p, 128, value, 16, false);
    yard_inline(&p, 161, "unaligned", 9, false);
    yard_wqe(&p, RY_OP_READ, 8201, 200000, 69999, true);
    yard_ring(&p);
    assert_int_equal(yard_await(&p, 3, 1000000), RY_CQE_REQ);
    assert_memory_equal(y.pe[1].heap + 8200, y.pe[0].heap + 4096, 70000);
    assert_int_equal(word(&y, 1, 128), value[0]);
    assert_int_equal(word(&y, 1, 136), value[1]);
    assert_memory_equal(y.pe[1].heap + 161, "unaligned", 9);
    assert_memory_equal(y.pe[0].heap + 200000, y.pe[0].heap + 4097, 69999);
    assert_int_equal(yard_cqe(&p).qpn, p.addr.qpn);
    yard_path_close(&p);
    yard_close(&y);
}

static void test_moves_virtual(void **state)
{
    (void)state;
    check_moves(false);
}

static void test_moves_real(void **state)
{
    (void)state;
    check_moves(true);
}

static void test_atomics(void **state)
{
    struct yard y;
    struct yard_path p;
    struct ry_wqe *w;

    (void)state;
    open_mode(&y, true);
    yard_path_open(&y, &p, 0, 1, 0, 0);
    set_word(&y, 1, 64, 100);
    w = yard_wqe(&p, RY_OP_ATOMIC_FA, 64, 512, 8, false);
    w->u.atomic.swap_add = ry_be64(5);
    w = yard_wqe(&p, RY_OP_ATOMIC_CS, 64, 520, 8, false);
    w->u.atomic.swap_add = ry_be64(7);
    w->u.atomic.compare = ry_be64(105);
    w = yard_wqe(&p, RY_OP_ATOMIC_CS, 64, 528, 8, true);
    w->u.atomic.swap_add = ry_be64(9);
    w->u.atomic.compare = ry_be64(105);
    yard_ring(&p);
    assert_int_equal(yard_await(&p, 2, 1000000), RY_CQE_REQ);
    assert_int_equal(word(&y, 0, 512), 100);
    assert_int_equal(word(&y, 0, 520), 105);
    assert_int_equal(word(&y, 0, 528), 7); /* did not match: the old value, nothing changed */
    assert_int_equal(word(&y, 1, 64), 7);
    yard_path_close(&p);
    yard_close(&y);
}

static void masked(struct ry_wqe *w, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    w->opmod_idx_opcode |= ry_be32(0x08000000u);
    w->u.atomic.swap_add = ry_be64(((uint64_t)a << 32) | b);
    w->u.atomic.compare = ry_be64(((uint64_t)c << 32) | d);
}

static void test_masked(void **state)
{
    struct yard y;
    struct yard_path p;
    uint32_t v;

    (void)state;
    open_mode(&y, true);
    yard_path_open(&y, &p, 0, 1, 0, 0);
    set_word(&y, 1, 64, 0x00ff00ffu);
    /* two 16-bit fields: the low one's carry stays out of the high one */
    masked(yard_wqe(&p, RY_OP_ATOMIC_MASKED_FA, 64, 512, 4, false), 0x0001ff01u, 0x80008000u, 0, 0);
    masked(yard_wqe(&p, RY_OP_ATOMIC_MASKED_CS, 64, 516, 4, true), 0xabcd0000u, 0x01000000u,
           0x00ff0000u, 0xffff0000u);
    yard_ring(&p);
    assert_int_equal(yard_await(&p, 1, 1000000), RY_CQE_REQ);
    memcpy(&v, y.pe[0].heap + 512, 4);
    assert_int_equal(v, 0x00ff00ffu);
    memcpy(&v, y.pe[0].heap + 516, 4);
    assert_int_equal(v, 0x01000000u);
    memcpy(&v, y.pe[1].heap + 64, 4);
    assert_int_equal(v, 0x01cd0000u); /* only the swap mask's bits */
    yard_path_close(&p);
    yard_close(&y);
}

static void test_unsignalled_says_nothing(void **state)
{
    struct yard y;
    struct yard_path p;

    (void)state;
    open_mode(&y, true);
    yard_path_open(&y, &p, 0, 1, 0, 0);
    yard_wqe(&p, RY_OP_WRITE, 0, 0, 64, false);
    yard_ring(&p);
    assert_int_equal(yard_cqe(&p).opcode, RY_CQE_INVALID);
    ry_wqe_nop(&p.ring[p.prod & (p.depth - 1)], p.prod, p.addr.qpn, 0, true);
    p.prod++;
    yard_ring(&p);
    assert_int_equal(yard_cqe(&p).opcode, RY_CQE_REQ);
    assert_int_equal(yard_cqe(&p).counter, 1);
    yard_path_close(&p);
    yard_close(&y);
}

static void test_counters(void **state)
{
    struct yard y;
    struct yard_path p;
    struct ry_rail_counters c;

    (void)state;
    open_mode(&y, true);
    yard_path_open(&y, &p, 0, 1, 1, 0);
    yard_wqe(&p, RY_OP_WRITE, 0, 0, 1000, false);
    yard_wqe(&p, RY_OP_READ, 0, 8192, 300, true);
    yard_ring(&p);
    yard_await(&p, 1, 1000000);
    assert_int_equal(y.pe[0].nic->ops->counters(y.pe[0].nic, 1, &c), 0);
    assert_int_equal(c.tx_bytes, 1000);
    assert_int_equal(c.rx_bytes, 300);
    yard_path_close(&p); /* counts outlive the queue pair */
    assert_int_equal(y.pe[1].nic->ops->counters(y.pe[1].nic, 0, &c), 0);
    assert_int_equal(c.rx_bytes, 1000);
    assert_int_equal(c.tx_bytes, 300);
    yard_close(&y);
}

/* Bytes to each peer by rail, answers to reads included; they outlive queue pairs too. */
static void test_peer_sent(void **state)
{
    struct yard y;
    struct yard_path p, q;
    uint64_t bytes[RY_RAILS_MAX] = {0};

    (void)state;
    open_mode(&y, true);
    yard_path_open(&y, &p, 0, 1, 1, 0);
    yard_path_open(&y, &q, 0, 0, 0, 1);
    yard_wqe(&p, RY_OP_WRITE, 0, 0, 1000, false);
    yard_wqe(&p, RY_OP_READ, 0, 8192, 300, true);
    yard_ring(&p);
    yard_await(&p, 1, 1000000);
    yard_wqe(&q, RY_OP_WRITE, 0, 0, 50, true);
    yard_ring(&q);
    yard_await(&q, 0, 1000000);
    for (int turn = 0; turn < 2; turn++) {
        const struct ry_nic_ops *ops = y.pe[0].nic->ops;

        assert_int_equal(ops->peer_sent(y.pe[0].nic, 1, bytes), 0);
        assert_int_equal(bytes[0], 0);
        assert_int_equal(bytes[1], 1000);
        assert_int_equal(ops->peer_sent(y.pe[0].nic, 0, bytes), 0);
        assert_int_equal(bytes[0], 50);
        assert_int_equal(bytes[1], 0);
        assert_int_equal(ops->peer_sent(y.pe[1].nic, 0, bytes), 0);
        assert_int_equal(bytes[0], 300);
        assert_int_equal(ops->peer_sent(y.pe[0].nic, 99, bytes), RY_ERR_INVALID);
        if (turn == 0) {
            yard_path_close(&p);
            yard_path_close(&q);
        }
    }
    yard_close(&y);
}

/* PEs that are threads have one mapping of each other's memory. One that closes its NIC and goes
 * leaves the others an error, not a hole. */
static void test_one_leaves_before(void **state)
{
    struct timespec nap = {.tv_nsec = 200000};
    const struct ry_nic_ops *ops;
    struct yard_path p;
    struct yard y;
    uint32_t naps = 0;

    (void)state;
    open_mode(&y, true);
    yard_path_open(&y, &p, 0, 1, 0, 0);
    yard_wqe(&p, RY_OP_WRITE, 0, 0, 64, true);
    yard_ring(&p);
    assert_int_equal(yard_await(&p, 0, 1000000), RY_CQE_REQ);
    ops = y.pe[0].nic->ops;
    ops->qp_destroy(p.far);
    ops->close(y.pe[1].nic);
    yard_wqe(&p, RY_OP_WRITE, 0, 0, 64, true);
    yard_ring(&p);
    while (yard_cqe(&p).opcode == RY_CQE_REQ && naps++ < 10000)
        nanosleep(&nap, NULL);
    assert_int_equal(yard_cqe(&p).opcode, RY_CQE_REQ_ERR);
    ops->qp_destroy(p.qp);
    ops->close(y.pe[0].nic);
    for (int i = 0; i < 2; i++)
        free(y.pe[i].heap);
    free(p.ring);
    free(p.cqe);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_moves_virtual),
        cmocka_unit_test(test_moves_real),
        cmocka_unit_test(test_atomics),
        cmocka_unit_test(test_masked),
        cmocka_unit_test(test_unsignalled_says_nothing),
        cmocka_unit_test(test_counters),
        cmocka_unit_test(test_peer_sent),
        cmocka_unit_test(test_one_leaves_before),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
