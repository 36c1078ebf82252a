/* SPDX-License-Identifier: Apache-2.0 */
/* The link model in virtual time: what a rate, a cap and sharing come to, to the nanosecond of the
 * model and with no clock of this machine in it. */
#include "nic/emu_yard.h"

enum { MSG = 1 << 20, MSGS = 24 };
#define MB 1000000ull

static void open_rates(struct yard *y, uint32_t pes, uint32_t rails, const uint64_t *rate,
                       uint64_t cap, uint64_t latency)
{
    struct ry_emu_cfg cfg = yard_cfg(y, pes, rails);

    cfg.rate_bps = rate;
    cfg.nic_cap_bps = cap;
    cfg.latency_ns = latency;
    memset(y, 0, sizeof(*y));
    yard_open(y, &cfg);
}

static void load(struct yard_path *p, uint8_t opcode, uint32_t msgs)
{
    for (uint32_t i = 0; i < msgs; i++)
        yard_wqe(p, opcode, (uint64_t)(i % 3) * MSG, (uint64_t)(i % 3) * MSG, MSG, true);
    yard_ring(p);
}

static uint64_t sent(const struct yard *y, uint32_t pe, uint32_t rail)
{
    struct ry_rail_counters c;

    assert_int_equal(y->pe[pe].nic->ops->counters(y->pe[pe].nic, rail, &c), 0);
    return c.tx_bytes;
}

/* Bytes a second over what `paths` carried in the first 100 ms of a full load. */
static double rate_of(struct yard *y, struct yard_path *p, uint32_t n, uint8_t opcode)
{
    uint64_t sum = 0, start = y->now;

    for (uint32_t i = 0; i < n; i++)
        load(&p[i], opcode, MSGS);
    yard_run(y, start + 100000000);
    for (uint32_t pe = 0; pe < y->pes; pe++)
        for (uint32_t r = 0; r < y->pe[pe].nic->ops->rail_count(y->pe[pe].nic); r++)
            sum += sent(y, pe, r);
    return (double)sum * 10.0;
}

static double rails_rate(uint32_t rails, const uint64_t *rate, uint64_t cap, uint8_t opcode)
{
    struct yard y;
    struct yard_path p[4];
    double got;

    open_rates(&y, 2, rails, rate, cap, 0);
    for (uint32_t r = 0; r < rails; r++)
        yard_path_open(&y, &p[r], 0, 1, r, r);
    got = rate_of(&y, p, rails, opcode);
    for (uint32_t r = 0; r < rails; r++)
        yard_path_close(&p[r]);
    yard_close(&y);
    return got;
}

static void near_to(double got, double want, double tolerance)
{
    if (got < want * (1 - tolerance) || got > want * (1 + tolerance))
        fail_msg("rate %.0f, expected %.0f", got, want);
}

static void test_equal_rails(void **state)
{
    const uint64_t rate[4] = {100 * MB, 100 * MB, 100 * MB, 100 * MB};

    (void)state;
    near_to(rails_rate(1, rate, 0, RY_OP_WRITE), 100e6, 0.01);
    near_to(rails_rate(2, rate, 0, RY_OP_WRITE), 200e6, 0.01);
    near_to(rails_rate(4, rate, 0, RY_OP_WRITE), 400e6, 0.01);
    near_to(rails_rate(2, rate, 0, RY_OP_READ), 200e6, 0.01);
}

static void test_unequal_rails(void **state)
{
    const uint64_t rate[2] = {150 * MB, 70 * MB};

    (void)state;
    near_to(rails_rate(2, rate, 0, RY_OP_WRITE), 220e6, 0.01);
}

static void test_cap_of_a_nic(void **state)
{
    const uint64_t rate[4] = {100 * MB, 100 * MB, 100 * MB, 100 * MB};

    (void)state;
    /* two ports of one NIC share its cap; two NICs have two */
    near_to(rails_rate(2, rate, 120 * MB, RY_OP_WRITE), 120e6, 0.01);
    near_to(rails_rate(4, rate, 120 * MB, RY_OP_WRITE), 240e6, 0.01);
    near_to(rails_rate(2, NULL, 120 * MB, RY_OP_WRITE), 120e6, 0.01);
}

static void test_cap_is_shared_fairly(void **state)
{
    const uint64_t rate[2] = {100 * MB, 100 * MB};
    struct yard y;
    struct yard_path p[2];

    (void)state;
    open_rates(&y, 2, 2, rate, 120 * MB, 0);
    yard_path_open(&y, &p[0], 0, 1, 0, 0);
    yard_path_open(&y, &p[1], 0, 1, 1, 1);
    rate_of(&y, p, 2, RY_OP_WRITE);
    near_to((double)sent(&y, 0, 0), (double)sent(&y, 0, 1), 0.02);
    yard_path_close(&p[0]);
    yard_path_close(&p[1]);
    yard_close(&y);
}

/* Four queue pairs of one port get a quarter each; messages do not block each other. */
static void test_queue_pairs_share_a_port(void **state)
{
    const uint64_t rate[1] = {100 * MB};
    struct yard y;
    struct yard_path p[4];
    uint64_t small;

    (void)state;
    open_rates(&y, 5, 1, rate, 0, 0);
    for (uint32_t i = 0; i < 4; i++)
        yard_path_open(&y, &p[i], 0, i + 1, 0, 0);
    near_to(rate_of(&y, p, 4, RY_OP_WRITE), 100e6, 0.01);
    for (uint32_t i = 0; i < 4; i++) {
        struct ry_rail_counters c;

        assert_int_equal(y.pe[i + 1].nic->ops->counters(y.pe[i + 1].nic, 0, &c), 0);
        near_to((double)c.rx_bytes, 2.5e6, 0.02);
    }
    /* a signal behind three long queues waits for a few segments, not for megabytes */
    yard_path_close(&p[3]);
    yard_path_open(&y, &p[3], 0, 4, 0, 0);
    yard_inline(&p[3], 0, "12345678", 8, true);
    small = y.now;
    yard_ring(&p[3]);
    assert_int_equal(yard_await(&p[3], 0, 100000000), RY_CQE_REQ);
    assert_true(y.now - small < 2000000);
    for (uint32_t i = 0; i < 4; i++)
        yard_path_close(&p[i]);
    yard_close(&y);
}

/* Three senders into one port: the receiver's rate holds, and each gets a third. */
static void test_incast(void **state)
{
    const uint64_t rate[1] = {90 * MB};
    struct yard y;
    struct yard_path p[3];

    (void)state;
    open_rates(&y, 4, 1, rate, 0, 0);
    for (uint32_t i = 0; i < 3; i++)
        yard_path_open(&y, &p[i], i + 1, 0, 0, 0);
    near_to(rate_of(&y, p, 3, RY_OP_WRITE), 90e6, 0.01);
    for (uint32_t i = 0; i < 3; i++)
        near_to((double)sent(&y, i + 1, 0), 3e6, 0.03);
    for (uint32_t i = 0; i < 3; i++)
        yard_path_close(&p[i]);
    yard_close(&y);
}

static void test_latency(void **state)
{
    const uint64_t rate[1] = {100 * MB};
    struct yard y;
    struct yard_path p;

    (void)state;
    open_rates(&y, 2, 1, rate, 0, 5000);
    yard_path_open(&y, &p, 0, 1, 0, 0);
    y.pe[0].heap[0] = 9;
    yard_wqe(&p, RY_OP_WRITE, 0, 0, 10000, true); /* 100 us on the link */
    yard_ring(&p);
    yard_run(&y, 104999);
    assert_int_equal(y.pe[1].heap[0], 0);
    yard_run(&y, 105000); /* visible after the link and one latency */
    assert_int_equal(y.pe[1].heap[0], 9);
    yard_run(&y, 109999);
    assert_int_equal(yard_cqe(&p).opcode, RY_CQE_INVALID);
    yard_run(&y, 110000); /* acknowledged after another */
    assert_int_equal(yard_cqe(&p).opcode, RY_CQE_REQ);
    yard_path_close(&p);
    yard_close(&y);
}

/* Messages do not wait for each other's acknowledgement. */
static void test_latency_is_pipelined(void **state)
{
    struct yard y;
    struct yard_path p;

    (void)state;
    open_rates(&y, 2, 1, NULL, 0, 50000);
    yard_path_open(&y, &p, 0, 1, 0, 0);
    for (uint32_t i = 0; i < 32; i++)
        yard_wqe(&p, RY_OP_WRITE, 0, 0, 8, true);
    yard_ring(&p);
    yard_run(&y, 100000);
    assert_int_equal(yard_cqe(&p).counter, 31);
    yard_path_close(&p);
    yard_close(&y);
}

/* A message of more segments than may be under way at once. */
static void test_long_message(void **state)
{
    struct yard y;
    struct yard_path p;

    (void)state;
    open_rates(&y, 2, 1, NULL, 0, 1000);
    yard_path_open(&y, &p, 0, 1, 0, 0);
    memset(y.pe[0].heap, 3, YARD_HEAP);
    yard_wqe(&p, RY_OP_WRITE, 0, 0, YARD_HEAP, false);
    yard_wqe(&p, RY_OP_WRITE, 0, 0, YARD_HEAP, true);
    yard_ring(&p);
    assert_int_equal(yard_await(&p, 1, 1000000), RY_CQE_REQ);
    assert_memory_equal(y.pe[0].heap, y.pe[1].heap, YARD_HEAP);
    yard_path_close(&p);
    yard_close(&y);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_rails),
        cmocka_unit_test(test_unequal_rails),
        cmocka_unit_test(test_cap_of_a_nic),
        cmocka_unit_test(test_cap_is_shared_fairly),
        cmocka_unit_test(test_queue_pairs_share_a_port),
        cmocka_unit_test(test_incast),
        cmocka_unit_test(test_latency),
        cmocka_unit_test(test_latency_is_pipelined),
        cmocka_unit_test(test_long_message),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
