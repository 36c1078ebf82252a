/* SPDX-License-Identifier: Apache-2.0 */
/* Keys, bounds and nonsense in the ring: each gets the syndrome that a real NIC gives, and no byte
 * outside the registered memory changes. */
#include "nic/emu_yard.h"

static struct yard y;
static struct yard_path p;

static int setup(void **state)
{
    struct ry_emu_cfg cfg = yard_cfg(&y, 2, 2);

    (void)state;
    memset(&y, 0, sizeof(y));
    yard_open(&y, &cfg);
    yard_path_open(&y, &p, 0, 1, 0, 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    yard_path_close(&p);
    yard_close(&y);
    return 0;
}

/* Rings one bad request and a good one behind it: the first fails with `syndrome`, the other is
 * flushed, and the peer's memory is as it was. */
static void fails(uint8_t syndrome)
{
    char *before = malloc(YARD_HEAP);

    assert_non_null(before);
    memcpy(before, y.pe[1].heap, YARD_HEAP);
    yard_ring(&p);
    assert_int_equal(yard_await(&p, p.prod - 1, 1000000), RY_CQE_REQ_ERR);
    assert_int_equal(yard_syndrome(&p), syndrome);
    assert_int_equal(yard_cqe(&p).qpn, p.addr.qpn);
    memset(y.pe[0].heap, 0x5a, 64);
    yard_wqe(&p, RY_OP_WRITE, 0, 0, 64, false);
    yard_ring(&p);
    assert_int_equal(yard_await(&p, p.prod - 1, 1000000), RY_CQE_REQ_ERR);
    assert_int_equal(yard_syndrome(&p), RY_SYN_FLUSH);
    assert_memory_equal(before, y.pe[1].heap, YARD_HEAP);
    free(before);
}

static void test_bad_lkey(void **state)
{
    (void)state;
    yard_wqe(&p, RY_OP_WRITE, 0, 0, 64, true)->u.data.lkey = ry_be32(12345);
    fails(RY_SYN_LOCAL_PROT);
}

static void test_local_bounds(void **state)
{
    (void)state;
    yard_wqe(&p, RY_OP_WRITE, 0, YARD_HEAP - 63, 64, true);
    fails(RY_SYN_LOCAL_PROT);
}

static void test_lkey_of_another_rail(void **state)
{
    (void)state;
    yard_wqe(&p, RY_OP_WRITE, 0, 0, 64, true)->u.data.lkey = ry_be32(y.pe[0].mr[1].lkey);
    fails(RY_SYN_LOCAL_PROT);
}

static void test_bad_rkey(void **state)
{
    struct ry_nic_event ev;

    (void)state;
    yard_wqe(&p, RY_OP_WRITE, 0, 0, 64, true)->rkey = ry_be32(0x80000000u);
    fails(RY_SYN_REMOTE_ACCESS);
    /* the responder's end is dead too, and its owner hears of it */
    assert_int_equal(y.pe[1].nic->ops->poll_event(y.pe[1].nic, &ev), 1);
    assert_int_equal(ev.type, RY_EV_QP_FATAL);
    assert_int_equal(ev.qpn, p.far_addr.qpn);
    assert_int_equal(y.pe[1].nic->ops->poll_event(y.pe[1].nic, &ev), 0);
}

static void test_rkey_of_another_rail(void **state)
{
    (void)state;
    yard_wqe(&p, RY_OP_WRITE, 0, 0, 64, true)->rkey = ry_be32(y.pe[1].mr[1].rkey);
    fails(RY_SYN_REMOTE_ACCESS);
}

static void test_remote_bounds(void **state)
{
    (void)state;
    yard_wqe(&p, RY_OP_WRITE, YARD_HEAP - 63, 0, 64, true);
    fails(RY_SYN_REMOTE_ACCESS);
}

static void test_remote_bounds_overflow(void **state)
{
    (void)state;
    yard_wqe(&p, RY_OP_WRITE, 0, 0, 64, true)->raddr = ry_be64(UINT64_MAX - 31);
    fails(RY_SYN_REMOTE_ACCESS);
}

static void test_read_before_the_heap(void **state)
{
    (void)state;
    yard_wqe(&p, RY_OP_READ, (uint64_t)-8, 0, 64, true);
    fails(RY_SYN_REMOTE_ACCESS);
}

static void test_stale_rkey(void **state)
{
    const struct ry_nic_ops *ops = y.pe[1].nic->ops;
    struct ry_mr old = y.pe[1].mr[0], again;

    (void)state;
    assert_int_equal(ops->mr_dereg(y.pe[1].nic, 0, old), 0);
    assert_int_equal(ops->mr_dereg(y.pe[1].nic, 0, old), RY_ERR_NOT_FOUND);
    /* the same place comes round: its generation tells them apart */
    for (int i = 0; i < 3000; i++) {
        assert_int_equal(ops->mr_reg(y.pe[1].nic, 0, y.pe[1].heap, YARD_HEAP, true, &again), 0);
        assert_int_not_equal(again.rkey, old.rkey);
        assert_int_equal(ops->mr_dereg(y.pe[1].nic, 0, again), 0);
    }
    assert_int_equal(ops->mr_reg(y.pe[1].nic, 0, y.pe[1].heap, YARD_HEAP, true, &again), 0);
    yard_wqe(&p, RY_OP_WRITE, 0, 0, 64, true);
    fails(RY_SYN_REMOTE_ACCESS);
}

static void test_not_remote(void **state)
{
    const struct ry_nic_ops *ops = y.pe[1].nic->ops;
    struct ry_mr mine;

    (void)state;
    assert_int_equal(ops->mr_reg(y.pe[1].nic, 0, y.pe[1].heap, 4096, false, &mine), 0);
    assert_int_equal(mine.rkey, 0);
    yard_wqe(&p, RY_OP_WRITE, 0, 0, 64, true)->rkey = ry_be32(mine.lkey);
    fails(RY_SYN_REMOTE_ACCESS);
}

static void test_rail_cut(void **state)
{
    (void)state;
    assert_int_equal(y.pe[1].nic->ops->rail_cut(y.pe[1].nic, 0), 0);
    yard_wqe(&p, RY_OP_WRITE, 0, 0, 64, true);
    fails(RY_SYN_REMOTE_ACCESS);
}

static void test_bad_opcode(void **state)
{
    (void)state;
    yard_wqe(&p, 0x3f, 0, 0, 64, true);
    fails(RY_SYN_LOCAL_QP_OP);
}

static void test_ds_zero(void **state)
{
    struct ry_wqe *w = yard_wqe(&p, RY_OP_WRITE, 0, 0, 64, true);

    (void)state;
    ry_wqe_head(w, RY_OP_WRITE, 0, p.addr.qpn, 0);
    fails(RY_SYN_LOCAL_QP_OP);
}

static void test_more_than_a_block(void **state)
{
    struct ry_wqe *w = yard_wqe(&p, RY_OP_WRITE, 0, 0, 64, true);

    (void)state;
    ry_wqe_head(w, RY_OP_WRITE, 0, p.addr.qpn, 5);
    fails(RY_SYN_LOCAL_QP_OP);
}

static void test_inline_too_long(void **state)
{
    struct ry_wqe *w = yard_inline(&p, 0, "abc", 3, true);

    (void)state;
    w->u.inl.byte_count = ry_be32(29 | RY_WQE_INLINE);
    fails(RY_SYN_LOCAL_QP_OP);
}

static void test_another_queue_pairs_number(void **state)
{
    struct ry_wqe *w = yard_wqe(&p, RY_OP_WRITE, 0, 0, 64, true);

    (void)state;
    ry_wqe_head(w, RY_OP_WRITE, 0, p.addr.qpn + 1, 3);
    fails(RY_SYN_LOCAL_QP_OP);
}

static void test_atomic_unaligned(void **state)
{
    (void)state;
    yard_wqe(&p, RY_OP_ATOMIC_FA, 4, 0, 8, true);
    fails(RY_SYN_REMOTE_INVALID_REQ);
}

/* What stands before the error is done, and its completion is not lost in the error's. */
static void test_good_before_bad(void **state)
{
    struct ry_rail_counters c;

    (void)state;
    y.pe[0].heap[5] = 77;
    yard_wqe(&p, RY_OP_WRITE, 5, 5, 1, true);
    yard_wqe(&p, RY_OP_WRITE, 0, 0, 64, true)->rkey = 0;
    yard_ring(&p);
    assert_int_equal(yard_await(&p, 1, 1000000), RY_CQE_REQ_ERR);
    assert_int_equal(y.pe[1].heap[5], 77);
    assert_int_equal(y.pe[0].nic->ops->counters(y.pe[0].nic, 0, &c), 0);
    assert_int_equal(c.tx_ops, 1);
    assert_int_equal(c.errors, 1);
}

/* Of an error CQE only four fields may be believed: the rest must not look like a zeroed one. */
static void test_rubbish_elsewhere(void **state)
{
    bool any = false;

    (void)state;
    memset(p.cqe, 0, 52);
    yard_wqe(&p, RY_OP_WRITE, 0, 0, 64, true)->rkey = 0;
    yard_ring(&p);
    assert_int_equal(yard_await(&p, 0, 1000000), RY_CQE_REQ_ERR);
    for (int i = 0; i < 48; i++)
        any |= p.cqe->rsvd[i] != 0;
    assert_true(any);
}

#define KEY_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        KEY_TEST(test_bad_lkey),
        KEY_TEST(test_local_bounds),
        KEY_TEST(test_lkey_of_another_rail),
        KEY_TEST(test_bad_rkey),
        KEY_TEST(test_rkey_of_another_rail),
        KEY_TEST(test_remote_bounds),
        KEY_TEST(test_remote_bounds_overflow),
        KEY_TEST(test_read_before_the_heap),
        KEY_TEST(test_stale_rkey),
        KEY_TEST(test_not_remote),
        KEY_TEST(test_rail_cut),
        KEY_TEST(test_bad_opcode),
        KEY_TEST(test_ds_zero),
        KEY_TEST(test_more_than_a_block),
        KEY_TEST(test_inline_too_long),
        KEY_TEST(test_another_queue_pairs_number),
        KEY_TEST(test_atomic_unaligned),
        KEY_TEST(test_good_before_bad),
        KEY_TEST(test_rubbish_elsewhere),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
