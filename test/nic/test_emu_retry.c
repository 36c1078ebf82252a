/* SPDX-License-Identifier: Apache-2.0 */
/* What gets no answer is tried again, at the given interval, the given number of times;
 * doorbells that make no sense; flushing. */
#include "nic/emu_yard.h"

enum { TRY_NS = 1000000 };

static struct yard y;
static struct yard_path p;

static void open_retry(uint32_t retry_count)
{
    struct ry_emu_cfg cfg = yard_cfg(&y, 2, 2);

    cfg.retry_count = retry_count;
    cfg.retry_ns = TRY_NS;
    memset(&y, 0, sizeof(y));
    yard_open(&y, &cfg);
}

static void close_all(void)
{
    yard_path_close(&p);
    yard_close(&y);
}

static void post(uint8_t value)
{
    y.pe[0].heap[0] = (char)value;
    yard_wqe(&p, RY_OP_WRITE, 0, 0, 1, true);
    yard_ring(&p);
}

static void check_exceeded_at(uint64_t at)
{
    yard_run(&y, at - 1);
    assert_int_equal(yard_cqe(&p).opcode, RY_CQE_INVALID);
    yard_run(&y, at);
    assert_int_equal(yard_cqe(&p).opcode, RY_CQE_REQ_ERR);
    assert_int_equal(yard_syndrome(&p), RY_SYN_RETRY_EXC);
}

static void test_far_port_down(void **state)
{
    (void)state;
    open_retry(3);
    yard_path_open(&y, &p, 0, 1, 0, 1);
    yard_fault(&y, 1, (struct ry_nic_fault){.kind = RY_FAULT_PORT_DOWN, .rail = 1, .peer = -1});
    post(1);
    check_exceeded_at(4 * TRY_NS); /* the first try and three more */
    assert_int_equal(y.pe[1].heap[0], 0);
    close_all();
}

static void test_own_port_down(void **state)
{
    struct ry_nic_event ev;

    (void)state;
    open_retry(1);
    yard_path_open(&y, &p, 0, 1, 0, 1);
    yard_fault(&y, 0, (struct ry_nic_fault){.kind = RY_FAULT_PORT_DOWN, .rail = 0, .peer = -1});
    assert_int_equal(y.pe[0].nic->ops->rail_state(y.pe[0].nic, 0), RY_PORT_DOWN);
    assert_int_equal(y.pe[0].nic->ops->poll_event(y.pe[0].nic, &ev), 1);
    assert_int_equal(ev.type, RY_EV_PORT_DOWN);
    assert_int_equal(ev.rail, 0);
    assert_int_equal(y.pe[1].nic->ops->poll_event(y.pe[1].nic, &ev), 0); /* own side only */
    post(1);
    check_exceeded_at(2 * TRY_NS);
    close_all();
}

/* The link heals between two tries: nothing was lost, and the source is read when it is sent. */
static void test_heals(void **state)
{
    (void)state;
    open_retry(3);
    yard_path_open(&y, &p, 0, 1, 0, 0);
    yard_fault(&y, 0, (struct ry_nic_fault){
                          .kind = RY_FAULT_PORT_DOWN, .rail = 0, .peer = -1, .for_ns = 1500000});
    post(1);
    yard_run(&y, TRY_NS);
    y.pe[0].heap[0] = 2;
    yard_run(&y, 2 * TRY_NS);
    assert_int_equal(yard_cqe(&p).opcode, RY_CQE_REQ);
    assert_int_equal(y.pe[1].heap[0], 2);
    close_all();
}

static void test_seven_is_for_ever(void **state)
{
    struct ry_rail_counters c;

    (void)state;
    open_retry(7);
    yard_path_open(&y, &p, 0, 1, 0, 0);
    yard_fault(&y, 1, (struct ry_nic_fault){.kind = RY_FAULT_PORT_DOWN, .rail = 0, .peer = -1});
    post(1);
    yard_run(&y, 100 * TRY_NS);
    assert_int_equal(yard_cqe(&p).opcode, RY_CQE_INVALID);
    assert_int_equal(y.pe[0].nic->ops->counters(y.pe[0].nic, 0, &c), 0);
    assert_true(c.retries >= 99);
    close_all();
}

static void test_responder_not_ready(void **state)
{
    (void)state;
    open_retry(1);
    yard_path_make(&y, &p, 0, 1, 0, 0);
    assert_int_equal(y.pe[0].nic->ops->qp_connect(p.qp, &p.far_addr), 0);
    post(1);
    yard_run(&y, TRY_NS + 1);
    assert_int_equal(y.pe[1].heap[0], 0);
    check_exceeded_at(2 * TRY_NS);
    close_all();
}

/* A responder that was set up for another queue pair, or another start number, hears nothing. */
static void test_wrong_partner(void **state)
{
    struct ry_qp_addr wrong;

    (void)state;
    for (int which = 0; which < 2; which++) {
        open_retry(0);
        yard_path_make(&y, &p, 0, 1, 0, 0);
        wrong = p.addr;
        if (which == 0)
            wrong.qpn++;
        else
            wrong.psn = (wrong.psn + 0x800000) & 0xffffff;
        assert_int_equal(y.pe[1].nic->ops->qp_connect(p.far, &wrong), 0);
        assert_int_equal(y.pe[0].nic->ops->qp_connect(p.qp, &p.far_addr), 0);
        post(1);
        check_exceeded_at(y.now + TRY_NS);
        assert_int_equal(y.pe[1].heap[0], 0);
        close_all();
    }
}

static void test_peer_taken_away(void **state)
{
    (void)state;
    open_retry(0);
    yard_path_open(&y, &p, 0, 1, 0, 0);
    y.pe[0].nic->ops->peer_detach(y.pe[0].nic, 1);
    post(1);
    check_exceeded_at(TRY_NS);
    close_all();
}

static void test_doorbell_backward(void **state)
{
    (void)state;
    open_retry(0);
    yard_path_open(&y, &p, 0, 1, 0, 0);
    post(1);
    post(2);
    assert_int_equal(yard_await(&p, 1, 1000), RY_CQE_REQ);
    p.prod = 1;
    yard_ring(&p);
    yard_run(&y, y.now + 1000);
    assert_int_equal(yard_cqe(&p).opcode, RY_CQE_REQ_ERR);
    assert_int_equal(yard_syndrome(&p), RY_SYN_LOCAL_QP_OP);
    close_all();
}

/* A kick whose thread was slow carries an older index than the record: that is no error. */
static void test_late_kick(void **state)
{
    (void)state;
    open_retry(0);
    yard_path_open(&y, &p, 0, 1, 0, 0);
    post(1);
    post(2);
    y.pe[0].nic->ops->kick(p.qp, 1);
    assert_int_equal(yard_await(&p, 1, 1000), RY_CQE_REQ);
    post(3);
    assert_int_equal(yard_await(&p, 2, 1000), RY_CQE_REQ);
    close_all();
}

static void test_doorbell_overruns(void **state)
{
    (void)state;
    open_retry(0);
    yard_path_open(&y, &p, 0, 1, 0, 0);
    p.prod = YARD_DEPTH + 1;
    yard_ring(&p);
    yard_run(&y, 1000);
    assert_int_equal(yard_cqe(&p).opcode, RY_CQE_REQ_ERR);
    assert_int_equal(yard_syndrome(&p), RY_SYN_LOCAL_QP_OP);
    close_all();
}

/* Index and record are 16 bits: a ring works on across their wrap. */
static void test_wraps(void **state)
{
    (void)state;
    open_retry(0);
    yard_path_open(&y, &p, 0, 1, 0, 0);
    for (uint32_t i = 0; i < 70000; i++) {
        ry_wqe_nop(&p.ring[p.prod & (YARD_DEPTH - 1)], p.prod, p.addr.qpn, 0, true);
        p.prod++;
        if (i % 32 == 31) {
            yard_ring(&p);
            yard_run(&y, y.now);
        }
    }
    yard_ring(&p);
    post(5);
    assert_int_equal(yard_await(&p, 70000, 1000), RY_CQE_REQ);
    assert_int_equal(y.pe[1].heap[0], 5);
    close_all();
}

static void test_error_flushes(void **state)
{
    const struct ry_nic_ops *ops;

    (void)state;
    open_retry(7);
    yard_path_open(&y, &p, 0, 1, 0, 0);
    ops = y.pe[0].nic->ops;
    assert_int_equal(ops->qp_flushed(p.qp), 0); /* nobody asked for it */
    yard_fault(&y, 1, (struct ry_nic_fault){.kind = RY_FAULT_PORT_DOWN, .rail = 0, .peer = -1});
    for (int i = 0; i < 5; i++)
        post(1);
    yard_run(&y, 10 * TRY_NS);
    assert_int_equal(ops->qp_error(p.qp), 0);
    yard_run(&y, y.now);
    assert_int_equal(ops->qp_flushed(p.qp), 1);
    assert_int_equal(yard_cqe(&p).opcode, RY_CQE_REQ_ERR);
    assert_int_equal(yard_cqe(&p).counter, 4);
    assert_int_equal(yard_syndrome(&p), RY_SYN_FLUSH);
    /* the port is back, and still nothing of this queue pair is sent */
    yard_fault(&y, 1, (struct ry_nic_fault){.kind = RY_FAULT_PORT_UP, .rail = 0, .peer = -1});
    post(1);
    yard_run(&y, y.now + 10 * TRY_NS);
    assert_int_equal(y.pe[1].heap[0], 0);
    assert_int_equal(yard_cqe(&p).counter, 5);
    assert_int_equal(yard_syndrome(&p), RY_SYN_FLUSH);
    close_all();
}

static void test_old_gid(void **state)
{
    struct ry_nic_event ev;
    struct ry_rail_info info;

    (void)state;
    open_retry(0);
    yard_path_make(&y, &p, 0, 1, 0, 0);
    yard_fault(&y, 1, (struct ry_nic_fault){.kind = RY_FAULT_GID_CHANGE, .rail = 0, .peer = -1});
    assert_int_equal(y.pe[1].nic->ops->poll_event(y.pe[1].nic, &ev), 1);
    assert_int_equal(ev.type, RY_EV_GID_CHANGE);
    assert_int_equal(y.pe[0].nic->ops->qp_connect(p.qp, &p.far_addr), RY_ERR_PATH);
    assert_int_equal(y.pe[1].nic->ops->rail_info(y.pe[1].nic, 0, &info), 0);
    assert_memory_not_equal(info.gid, p.far_addr.gid, RY_GID_BYTES);
    memcpy(p.far_addr.gid, info.gid, RY_GID_BYTES);
    assert_int_equal(y.pe[0].nic->ops->qp_connect(p.qp, &p.far_addr), 0);
    close_all();
}

static void test_numbers_are_new(void **state)
{
    struct ry_qp_attr attr = {.kind = RY_QP_RESPONDER, .rail = 0, .peer = 1};
    const struct ry_nic_ops *ops;
    uint32_t last = 0;

    (void)state;
    open_retry(0);
    ops = y.pe[0].nic->ops;
    for (int i = 0; i < 3000; i++) {
        struct ry_nic_qp *qp;
        struct ry_qp_addr a;

        assert_int_equal(ops->qp_create(y.pe[0].nic, &attr, &qp, &a), 0);
        assert_true(a.qpn > last);
        last = a.qpn;
        ops->qp_destroy(qp);
    }
    yard_close(&y);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_far_port_down),
        cmocka_unit_test(test_own_port_down),
        cmocka_unit_test(test_heals),
        cmocka_unit_test(test_seven_is_for_ever),
        cmocka_unit_test(test_responder_not_ready),
        cmocka_unit_test(test_wrong_partner),
        cmocka_unit_test(test_peer_taken_away),
        cmocka_unit_test(test_doorbell_backward),
        cmocka_unit_test(test_late_kick),
        cmocka_unit_test(test_doorbell_overruns),
        cmocka_unit_test(test_wraps),
        cmocka_unit_test(test_error_flushes),
        cmocka_unit_test(test_old_gid),
        cmocka_unit_test(test_numbers_are_new),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
