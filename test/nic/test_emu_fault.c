/* SPDX-License-Identifier: Apache-2.0 */
/* Each kind of fault does what it says and ends when it says. */
#include <poll.h>

#include "nic/emu_yard.h"

enum { TRY_NS = 1000000 };

static struct yard y;
static struct yard_path p;

static void open_with(uint32_t retry_count, uint64_t rate)
{
    struct ry_emu_cfg cfg = yard_cfg(&y, 3, 2);
    uint64_t rates[2] = {rate, rate};

    cfg.retry_count = retry_count;
    cfg.retry_ns = TRY_NS;
    cfg.rate_bps = rates;
    memset(&y, 0, sizeof(y));
    yard_open(&y, &cfg);
    yard_path_open(&y, &p, 0, 1, 0, 0);
}

static void close_all(void)
{
    yard_path_close(&p);
    yard_close(&y);
}

static void post(struct yard_path *path, uint8_t value)
{
    yard_inline(path, value, &value, 1, true);
    yard_ring(path);
}

static uint64_t retries(void)
{
    struct ry_rail_counters c;

    assert_int_equal(y.pe[0].nic->ops->counters(y.pe[0].nic, 0, &c), 0);
    return c.retries;
}

static void test_port_down_for(void **state)
{
    const struct ry_nic_ops *ops;
    struct ry_nic_event ev;

    (void)state;
    open_with(7, 0);
    ops = y.pe[0].nic->ops;
    yard_fault(&y, 0, (struct ry_nic_fault){
                          .kind = RY_FAULT_PORT_DOWN, .rail = 0, .peer = -1, .for_ns = 5 * TRY_NS});
    assert_int_equal(ops->rail_state(y.pe[0].nic, 0), RY_PORT_DOWN);
    assert_int_equal(ops->rail_state(y.pe[0].nic, 1), RY_PORT_UP);
    yard_run(&y, 5 * TRY_NS);
    assert_int_equal(ops->rail_state(y.pe[0].nic, 0), RY_PORT_UP);
    assert_int_equal(ops->poll_event(y.pe[0].nic, &ev), 1);
    assert_int_equal(ev.type, RY_EV_PORT_DOWN);
    assert_int_equal(ops->poll_event(y.pe[0].nic, &ev), 1);
    assert_int_equal(ev.type, RY_EV_PORT_UP);
    assert_int_equal(ev.at_ns, 5 * TRY_NS);
    close_all();
}

static bool readable(int fd)
{
    struct pollfd p_fd = {.fd = fd, .events = POLLIN};

    return poll(&p_fd, 1, 0) == 1;
}

/* In real time the agent sleeps on the descriptor: it tells of an event once, and is silent when
 * there is nothing left to take. Else the agent would never sleep again. */
static void test_descriptor_is_silent_again(void **state)
{
    struct ry_emu_cfg cfg = yard_cfg(&y, 3, 2);
    const struct ry_nic_ops *ops;
    struct ry_nic_event ev;
    struct ry_nic *nic;
    int fd;

    (void)state;
    memset(&y, 0, sizeof(y));
    cfg.virtual_time = false;
    yard_open(&y, &cfg);
    yard_path_open(&y, &p, 0, 1, 0, 0);
    nic = y.pe[1].nic;
    ops = nic->ops;
    fd = ops->event_fd(nic);
    assert_false(readable(fd));
    yard_fault(&y, 1, (struct ry_nic_fault){.kind = RY_FAULT_PORT_DOWN, .rail = 1, .peer = -1});
    assert_true(readable(fd));
    assert_int_equal(ops->poll_event(nic, &ev), 1);
    assert_int_equal(ops->poll_event(nic, &ev), 0);
    assert_false(readable(fd));
    yard_fault(&y, 1, (struct ry_nic_fault){.kind = RY_FAULT_QP_ERROR, .rail = 0, .peer = 0});
    while (ops->poll_event(nic, &ev) == 1)
        ;
    assert_false(readable(fd));
    yard_fault(&y, 1, (struct ry_nic_fault){.kind = RY_FAULT_QP_ERROR, .rail = 0, .peer = 0});
    assert_int_equal(ops->poll_event(nic, &ev), 0); /* nothing is left that could fail */
    assert_false(readable(fd));
    close_all();
}

static void test_stall(void **state)
{
    (void)state;
    open_with(1, 0);
    yard_fault(&y, 0, (struct ry_nic_fault){
                          .kind = RY_FAULT_STALL, .rail = 0, .peer = -1, .for_ns = 50 * TRY_NS});
    post(&p, 1);
    yard_run(&y, 50 * TRY_NS - 1);
    assert_int_equal(yard_cqe(&p).opcode, RY_CQE_INVALID); /* longer than any retry: no error */
    assert_int_equal(y.pe[1].heap[1], 0);
    yard_run(&y, 50 * TRY_NS);
    assert_int_equal(yard_cqe(&p).opcode, RY_CQE_REQ);
    assert_int_equal(y.pe[1].heap[1], 1);
    close_all();
}

static void test_stall_at_the_far_end(void **state)
{
    (void)state;
    open_with(1, 0);
    yard_fault(&y, 1, (struct ry_nic_fault){.kind = RY_FAULT_STALL, .rail = 0, .peer = -1});
    post(&p, 1);
    yard_run(&y, 50 * TRY_NS);
    assert_int_equal(yard_cqe(&p).opcode, RY_CQE_INVALID);
    yard_fault(&y, 1, (struct ry_nic_fault){.kind = RY_FAULT_CLEAR, .rail = 0, .peer = -1});
    assert_int_equal(yard_await(&p, 0, TRY_NS), RY_CQE_REQ);
    close_all();
}

static void test_only_towards_a_peer(void **state)
{
    struct yard_path q;

    (void)state;
    open_with(0, 0);
    yard_path_open(&y, &q, 0, 2, 0, 0);
    yard_fault(&y, 0, (struct ry_nic_fault){.kind = RY_FAULT_DROP, .rail = 0, .peer = 1, .p = 1.0});
    post(&p, 1);
    post(&q, 1);
    assert_int_equal(yard_await(&q, 0, TRY_NS * 2), RY_CQE_REQ);
    assert_int_equal(yard_await(&p, 0, TRY_NS * 2), RY_CQE_REQ_ERR);
    yard_path_close(&q);
    close_all();
}

static void test_drop_half(void **state)
{
    (void)state;
    open_with(7, 0);
    yard_fault(&y, 0, yard_drop(0, 0.5));
    for (uint8_t i = 0; i < 60; i++)
        post(&p, i);
    assert_int_equal(yard_await(&p, 59, 1000 * (uint64_t)TRY_NS), RY_CQE_REQ);
    for (int i = 0; i < 60; i++)
        assert_int_equal(y.pe[1].heap[i], i);
    assert_true(retries() > 10);
    close_all();
}

/* A NOP sends nothing, so nothing of it can be lost. */
static void test_drop_spares_nops(void **state)
{
    (void)state;
    open_with(0, 0);
    yard_fault(&y, 0, yard_drop(0, 1.0));
    ry_wqe_nop(&p.ring[0], 0, p.addr.qpn, 0, true);
    p.prod = 1;
    yard_ring(&p);
    assert_int_equal(yard_await(&p, 0, TRY_NS * 2), RY_CQE_REQ);
    close_all();
}

static void test_drop_all(void **state)
{
    (void)state;
    open_with(2, 0);
    yard_fault(&y, 0, yard_drop(0, 1.0));
    post(&p, 1);
    assert_int_equal(yard_await(&p, 0, 10 * TRY_NS), RY_CQE_REQ_ERR);
    assert_int_equal(yard_syndrome(&p), RY_SYN_RETRY_EXC);
    assert_int_equal(y.pe[1].heap[1], 0);
    close_all();
}

/* Executed and never acknowledged: the error comes although the byte is there. */
static void test_ack_drop_all(void **state)
{
    (void)state;
    open_with(2, 0);
    yard_fault(&y, 0,
               (struct ry_nic_fault){.kind = RY_FAULT_ACK_DROP, .rail = 0, .peer = -1, .p = 1.0});
    post(&p, 1);
    assert_int_equal(yard_await(&p, 0, 10 * TRY_NS), RY_CQE_REQ_ERR);
    assert_int_equal(yard_syndrome(&p), RY_SYN_RETRY_EXC);
    assert_int_equal(y.pe[1].heap[1], 1);
    close_all();
}

/* An atomic whose answer was lost is known again by its number: the queue pair runs it once. */
static void test_ack_drop_atomic(void **state)
{
    uint64_t v;

    (void)state;
    open_with(7, 0);
    yard_fault(&y, 0,
               (struct ry_nic_fault){
                   .kind = RY_FAULT_ACK_DROP, .rail = 0, .peer = -1, .p = 0.9, .seed = 3});
    for (uint64_t i = 0; i < 40; i++)
        yard_wqe(&p, RY_OP_ATOMIC_FA, 64, 512 + i * 8, 8, true)->u.atomic.swap_add = ry_be64(1);
    yard_ring(&p);
    assert_int_equal(yard_await(&p, 39, 2000 * (uint64_t)TRY_NS), RY_CQE_REQ);
    memcpy(&v, y.pe[1].heap + 64, 8);
    assert_int_equal(v, 40);
    for (uint64_t i = 0; i < 40; i++) {
        memcpy(&v, y.pe[0].heap + 512 + i * 8, 8);
        assert_int_equal(v, i);
    }
    assert_true(retries() > 0);
    close_all();
}

static void test_delay(void **state)
{
    (void)state;
    open_with(0, 0);
    yard_fault(&y, 0, (struct ry_nic_fault){.kind = RY_FAULT_DELAY,
                                            .rail = 0,
                                            .peer = -1,
                                            .delay_ns = 30000,
                                            .jitter_ns = 10000});
    post(&p, 1);
    yard_run(&y, 29999);
    assert_int_equal(y.pe[1].heap[1], 0);
    yard_run(&y, 40000);
    assert_int_equal(y.pe[1].heap[1], 1);
    assert_int_equal(yard_cqe(&p).opcode, RY_CQE_REQ);
    close_all();
}

/* A write that is taken for lost; it lands half a millisecond later if nothing is in its way. */
static void ghost_begin(uint64_t for_ns)
{
    open_with(7, 0);
    yard_fault(&y, 0,
               (struct ry_nic_fault){.kind = RY_FAULT_GHOST,
                                     .rail = 0,
                                     .peer = -1,
                                     .delay_ns = TRY_NS * 3,
                                     .for_ns = for_ns});
    post(&p, 1);
    yard_run(&y, TRY_NS / 2);
    assert_int_equal(y.pe[1].heap[1], 0);
}

static void test_ghost_after_error(void **state)
{
    (void)state;
    ghost_begin(0);
    assert_int_equal(y.pe[0].nic->ops->qp_error(p.qp), 0);
    yard_run(&y, TRY_NS * 3 - 1000);
    assert_int_equal(y.pe[1].heap[1], 0);
    yard_run(&y, TRY_NS * 4);
    assert_int_equal(y.pe[1].heap[1], 1);
    close_all();
}

/* The initiator's end in ERR does not stop what is in the fabric; the responder's RESET does. */
static void test_ghost_meets_reset(void **state)
{
    const struct ry_nic_ops *ops;

    (void)state;
    ghost_begin(0);
    ops = y.pe[1].nic->ops;
    assert_int_equal(y.pe[0].nic->ops->qp_error(p.qp), 0);
    assert_int_equal(y.pe[0].nic->ops->qp_flushed(p.qp), 1);
    assert_int_equal(ops->qp_fence_begin(p.far), 0);
    assert_int_equal(ops->qp_fence_poll(p.far), 1);
    yard_run(&y, TRY_NS * 4);
    assert_int_equal(y.pe[1].heap[1], 0);
    close_all();
}

/* On a healthy pair the repeat comes first: the late packet is a duplicate. */
static void test_ghost_is_a_duplicate(void **state)
{
    (void)state;
    ghost_begin(TRY_NS);
    assert_int_equal(yard_await(&p, 0, TRY_NS * 2), RY_CQE_REQ);
    assert_int_equal(y.pe[1].heap[1], 1);
    y.pe[1].heap[1] = 99; /* the buffer has a new use */
    yard_run(&y, TRY_NS * 5);
    assert_int_equal(y.pe[1].heap[1], 99);
    close_all();
}

/* A request that its own end refuses leaves no ghost: it never left. */
static void test_no_ghost_of_a_bad_request(void **state)
{
    (void)state;
    open_with(7, 0);
    yard_fault(&y, 0,
               (struct ry_nic_fault){
                   .kind = RY_FAULT_GHOST, .rail = 0, .peer = -1, .delay_ns = TRY_NS * 3});
    yard_wqe(&p, RY_OP_WRITE, 0, YARD_HEAP - 8, 64, true);
    yard_ring(&p);
    assert_int_equal(yard_await(&p, 0, TRY_NS), RY_CQE_REQ_ERR);
    assert_int_equal(yard_syndrome(&p), RY_SYN_LOCAL_PROT);
    close_all();
}

static void test_cqe_error(void **state)
{
    (void)state;
    open_with(0, 0);
    yard_fault(&y, 0, (struct ry_nic_fault){.kind = RY_FAULT_CQE_ERROR,
                                            .rail = 0,
                                            .peer = -1,
                                            .syndrome = 0x22,
                                            .vendor = 0x7b});
    post(&p, 1);
    assert_int_equal(yard_await(&p, 0, 1000), RY_CQE_REQ_ERR);
    assert_int_equal(yard_syndrome(&p), 0x22);
    assert_int_equal(p.cqe->vendor_syndrome, 0x7b);
    assert_int_equal(p.cqe->syndrome, 0x22);
    yard_path_close(&p);
    yard_path_open(&y, &p, 0, 1, 0, 0); /* once only */
    post(&p, 2);
    assert_int_equal(yard_await(&p, 0, 1000), RY_CQE_REQ);
    close_all();
}

static void test_qp_error(void **state)
{
    struct ry_nic_event ev;

    (void)state;
    open_with(1, 0);
    yard_fault(&y, 1, (struct ry_nic_fault){.kind = RY_FAULT_QP_ERROR, .rail = 0, .peer = 0});
    post(&p, 1);
    assert_int_equal(yard_await(&p, 0, 10 * TRY_NS), RY_CQE_REQ_ERR);
    assert_int_equal(yard_syndrome(&p), RY_SYN_RETRY_EXC);
    assert_int_equal(y.pe[1].heap[1], 0);
    assert_int_equal(y.pe[1].nic->ops->poll_event(y.pe[1].nic, &ev), 1);
    assert_int_equal(ev.type, RY_EV_QP_FATAL);
    assert_int_equal(ev.qpn, p.far_addr.qpn);
    close_all();
}

static void test_nic_down(void **state)
{
    const struct ry_nic_ops *ops;
    struct ry_nic_event ev;

    (void)state;
    open_with(0, 0);
    ops = y.pe[0].nic->ops;
    yard_fault(&y, 0, (struct ry_nic_fault){
                          .kind = RY_FAULT_NIC_DOWN, .rail = 1, .peer = -1, .for_ns = 5 * TRY_NS});
    assert_int_equal(ops->rail_state(y.pe[0].nic, 0), RY_PORT_DOWN); /* all its ports */
    assert_int_equal(ops->rail_state(y.pe[0].nic, 1), RY_PORT_DOWN);
    assert_int_equal(ops->poll_event(y.pe[0].nic, &ev), 1);
    assert_int_equal(ev.type, RY_EV_NIC_FATAL);
    post(&p, 1);
    yard_run(&y, 4 * TRY_NS);
    assert_int_equal(yard_cqe(&p).opcode, RY_CQE_INVALID); /* a dead NIC says nothing */
    assert_int_equal(ops->qp_error(p.qp), 0);
    assert_true(ops->qp_flushed(p.qp) < 0);
    assert_true(ops->qp_connect(p.qp, &p.far_addr) < 0);
    yard_run(&y, 5 * TRY_NS);
    assert_int_equal(ops->rail_state(y.pe[0].nic, 0), RY_PORT_UP);
    yard_path_close(&p); /* its queue pairs are gone; new ones work */
    yard_path_open(&y, &p, 0, 1, 0, 0);
    post(&p, 2);
    assert_int_equal(yard_await(&p, 0, 1000), RY_CQE_REQ);
    close_all();
}

static void test_nic_down_has_no_fence(void **state)
{
    const struct ry_nic_ops *ops;

    (void)state;
    open_with(0, 0);
    ops = y.pe[1].nic->ops;
    yard_fault(&y, 1, (struct ry_nic_fault){.kind = RY_FAULT_NIC_DOWN, .rail = 0, .peer = -1});
    assert_true(ops->qp_fence_begin(p.far) < 0);
    assert_true(ops->qp_fence_poll(p.far) < 0);
    assert_int_equal(ops->rail_cut(y.pe[1].nic, 0), 0); /* the ladder's last step can */
    assert_int_equal(ops->qp_fence_poll(p.far), 1);
    close_all();
}

static void test_slow(void **state)
{
    (void)state;
    open_with(0, 100000000);
    yard_fault(&y, 0,
               (struct ry_nic_fault){.kind = RY_FAULT_SLOW, .rail = 0, .peer = -1, .factor = 4.0});
    yard_wqe(&p, RY_OP_WRITE, 0, 0, 10000, true);
    yard_ring(&p);
    yard_run(&y, 399999);
    assert_int_equal(yard_cqe(&p).opcode, RY_CQE_INVALID);
    yard_run(&y, 400000);
    assert_int_equal(yard_cqe(&p).opcode, RY_CQE_REQ);
    close_all();
}

static void test_bad_faults(void **state)
{
    struct ry_nic_fault f = {.kind = RY_FAULT_DROP, .rail = 9, .peer = -1, .p = 0.5};

    (void)state;
    open_with(0, 0);
    assert_int_equal(y.pe[0].nic->ops->fault(y.pe[0].nic, &f), RY_ERR_INVALID);
    f.rail = 0;
    f.p = 1.5;
    assert_int_equal(y.pe[0].nic->ops->fault(y.pe[0].nic, &f), RY_ERR_INVALID);
    f.p = 0.5;
    f.peer = 3;
    assert_int_equal(y.pe[0].nic->ops->fault(y.pe[0].nic, &f), RY_ERR_INVALID);
    f = (struct ry_nic_fault){.kind = RY_FAULT_SLOW, .peer = -1, .factor = 0.0};
    assert_int_equal(y.pe[0].nic->ops->fault(y.pe[0].nic, &f), RY_ERR_INVALID);
    close_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_port_down_for),
        cmocka_unit_test(test_descriptor_is_silent_again),
        cmocka_unit_test(test_stall),
        cmocka_unit_test(test_stall_at_the_far_end),
        cmocka_unit_test(test_only_towards_a_peer),
        cmocka_unit_test(test_drop_half),
        cmocka_unit_test(test_drop_spares_nops),
        cmocka_unit_test(test_drop_all),
        cmocka_unit_test(test_ack_drop_all),
        cmocka_unit_test(test_ack_drop_atomic),
        cmocka_unit_test(test_delay),
        cmocka_unit_test(test_ghost_after_error),
        cmocka_unit_test(test_ghost_meets_reset),
        cmocka_unit_test(test_ghost_is_a_duplicate),
        cmocka_unit_test(test_no_ghost_of_a_bad_request),
        cmocka_unit_test(test_cqe_error),
        cmocka_unit_test(test_qp_error),
        cmocka_unit_test(test_nic_down),
        cmocka_unit_test(test_nic_down_has_no_fence),
        cmocka_unit_test(test_slow),
        cmocka_unit_test(test_bad_faults),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
