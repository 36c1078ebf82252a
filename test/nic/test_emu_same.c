/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual time is deterministic: a seed gives one run, with everything that can go wrong
 * switched on, and another seed another. The chaos itself is checked besides. */
#include "nic/emu_yard.h"

static uint64_t mix(uint64_t h, uint64_t v) { return (h ^ v) * 0x100000001b3ull; }

/* A run of two PEs, two rails, under all of it; everything that can be seen goes into one
 * number. */
static uint64_t run(uint64_t seed)
{
    struct yard y;
    struct ry_emu_cfg cfg = yard_cfg(&y, 2, 2);
    struct yard_path p[2];
    uint64_t h = 14695981039346656037ull;

    cfg.seed = seed;
    cfg.latency_ns = 1500;
    cfg.retry_count = 7;
    cfg.retry_ns = 20000;
    cfg.chaos = (struct ry_emu_chaos){.visible_delay_ns_max = 9000,
                                      .exec_delay_ns_max = 3000,
                                      .ack_delay_ns_max = 4000,
                                      .reorder_p = 20000,
                                      .lost_cqe_p = 5000};
    memset(&y, 0, sizeof(y));
    yard_open(&y, &cfg);
    for (uint32_t r = 0; r < 2; r++)
        yard_path_open(&y, &p[r], 0, 1, r, r);
    yard_fault(&y, 0, (struct ry_nic_fault){
                          .kind = RY_FAULT_DROP, .rail = 0, .peer = -1, .p = 0.1, .seed = seed});
    yard_fault(&y, 0, (struct ry_nic_fault){.kind = RY_FAULT_DELAY,
                                            .rail = 1,
                                            .peer = -1,
                                            .delay_ns = 100,
                                            .jitter_ns = 5000,
                                            .seed = seed});
    for (uint32_t i = 0; i < 40; i++) {
        for (uint32_t r = 0; r < 2; r++) {
            uint64_t v = i + 1;

            yard_inline(&p[r], 64 * r, &v, 8, true);
            yard_ring(&p[r]);
        }
        for (int n = 0; n < 4; n++) {
            yard_run(&y, y.now + 1000);
            for (uint32_t r = 0; r < 2; r++) {
                h = mix(h, p[r].cqe->tail);
                h = mix(h, (uint8_t)y.pe[1].heap[64 * r]);
            }
        }
    }
    for (uint32_t r = 0; r < 2; r++)
        yard_path_close(&p[r]);
    yard_close(&y);
    return h;
}

static void test_one_seed_one_run(void **state)
{
    (void)state;
    for (uint64_t s = 1; s < 6; s++)
        assert_int_equal(run(s), run(s));
}

static void test_other_seed_other_run(void **state)
{
    (void)state;
    assert_int_not_equal(run(1), run(2));
}

static void test_lost_completions(void **state)
{
    struct yard y;
    struct ry_emu_cfg cfg = yard_cfg(&y, 2, 1);
    struct yard_path p;
    uint32_t lost = 0;

    (void)state;
    cfg.chaos.lost_cqe_p = 32768;
    memset(&y, 0, sizeof(y));
    yard_open(&y, &cfg);
    yard_path_open(&y, &p, 0, 1, 0, 0);
    for (uint32_t i = 0; i < 64; i++) {
        uint8_t v = (uint8_t)(i + 1);

        yard_inline(&p, 0, &v, 1, true);
        yard_ring(&p);
        yard_run(&y, y.now + 10000);
        assert_int_equal(y.pe[1].heap[0], v); /* executed all the same */
        lost += yard_cqe(&p).opcode == RY_CQE_INVALID || yard_cqe(&p).counter != i;
    }
    assert_in_range(lost, 10, 54);
    yard_path_close(&p);
    yard_close(&y);
}

static void test_chaos_is_for_virtual_time(void **state)
{
    struct yard y = {0};
    struct ry_emu_cfg cfg = yard_cfg(&y, 2, 1);
    struct ry_nic *nic;

    (void)state;
    cfg.virtual_time = false;
    cfg.threads = true;
    cfg.chaos.lost_cqe_p = 1;
    assert_int_equal(ry_emu_open(&cfg, &nic), RY_ERR_INVALID);
}

static void test_bad_configurations(void **state)
{
    struct yard y = {0};
    struct ry_nic *nic;

    (void)state;
    for (int i = 0; i < 6; i++) {
        struct ry_emu_cfg cfg = yard_cfg(&y, 2, 1);

        switch (i) {
        case 0: cfg.rails = 0; break;
        case 1: cfg.rails = RY_RAILS_MAX + 1; break;
        case 2: cfg.ports_per_nic = 0; break;
        case 3: cfg.pe = 2; break;
        case 4: cfg.retry_count = 8; break;
        default: cfg.now_ns = NULL; break;
        }
        assert_int_equal(ry_emu_open(&cfg, &nic), RY_ERR_INVALID);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_seed_one_run),
        cmocka_unit_test(test_other_seed_other_run),
        cmocka_unit_test(test_lost_completions),
        cmocka_unit_test(test_chaos_is_for_virtual_time),
        cmocka_unit_test(test_bad_configurations),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
