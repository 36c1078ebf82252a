/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs backend's arithmetic, without a device: what a WQE becomes, what a completion status
 * becomes, which ports a selection takes, which address a port goes by. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "nic/verbs/verbs_int.h"

static void a_write_names_both_ends(void **state)
{
    struct ibv_send_wr wr;
    struct ibv_sge sge;
    struct ry_wqe w;

    (void)state;
    memset(&w, 0, sizeof(w));
    ry_wqe_head(&w, RY_OP_WRITE, 70000, 0x123456, 3);
    w.fm_ce_se = RY_WQE_SIGNALLED;
    w.raddr = ry_be64(0x1122334455667788);
    w.rkey = ry_be32(0xabcdef01);
    w.u.data.byte_count = ry_be32(7168);
    w.u.data.lkey = ry_be32(0x42);
    w.u.data.addr = ry_be64(0x7f0000001000);
    assert_int_equal(ry_verbs_translate(&w, 70000, 9, &wr, &sge), 0);
    assert_int_equal(wr.opcode, IBV_WR_RDMA_WRITE);
    assert_int_equal(wr.wr_id, 9ull << 32 | 70000);
    assert_int_equal(wr.send_flags, IBV_SEND_SIGNALED);
    assert_int_equal(wr.wr.rdma.remote_addr, 0x1122334455667788);
    assert_int_equal(wr.wr.rdma.rkey, 0xabcdef01);
    assert_int_equal(wr.num_sge, 1);
    assert_ptr_equal(wr.sg_list, &sge);
    assert_int_equal(sge.addr, 0x7f0000001000);
    assert_int_equal(sge.length, 7168);
    assert_int_equal(sge.lkey, 0x42);
    assert_null(wr.next);

    w.fm_ce_se = 0;
    w.u.data.byte_count = 0;
    ry_wqe_head(&w, RY_OP_READ, 1, 0x123456, 3);
    assert_int_equal(ry_verbs_translate(&w, 1, 0, &wr, &sge), 0);
    assert_int_equal(wr.opcode, IBV_WR_RDMA_READ);
    assert_int_equal(wr.send_flags, 0);
    assert_int_equal(wr.num_sge, 0);
}

static void inline_bytes_stay_in_the_ring(void **state)
{
    struct ibv_send_wr wr;
    struct ibv_sge sge;
    struct ry_wqe w;

    (void)state;
    memset(&w, 0, sizeof(w));
    ry_wqe_head(&w, RY_OP_WRITE, 0, 1, 3);
    w.u.inl.byte_count = ry_be32(RY_WQE_INLINE | 16);
    assert_int_equal(ry_verbs_translate(&w, 0, 0, &wr, &sge), 0);
    assert_int_equal(wr.send_flags, IBV_SEND_INLINE);
    assert_int_equal(sge.addr, (uint64_t)(uintptr_t)w.u.inl.bytes);
    assert_int_equal(sge.length, 16);
    w.u.inl.byte_count = ry_be32(RY_WQE_INLINE | (RY_INLINE_MAX_BYTES + 1));
    assert_int_equal(ry_verbs_translate(&w, 0, 0, &wr, &sge), RY_SYN_LOCAL_LENGTH);
    w.u.inl.byte_count = ry_be32(RY_WQE_INLINE | 8);
    ry_wqe_head(&w, RY_OP_READ, 0, 1, 3);
    assert_int_equal(ry_verbs_translate(&w, 0, 0, &wr, &sge), RY_SYN_LOCAL_LENGTH);
}

static void atomics_keep_their_operands(void **state)
{
    struct ibv_send_wr wr;
    struct ibv_sge sge;
    struct ry_wqe w;

    (void)state;
    memset(&w, 0, sizeof(w));
    w.u.atomic.swap_add = ry_be64(5);
    w.u.atomic.compare = ry_be64(6);
    w.u.atomic.byte_count = ry_be32(8);
    w.u.atomic.lkey = ry_be32(0x77);
    w.u.atomic.addr = ry_be64(0x5000);
    ry_wqe_head(&w, RY_OP_ATOMIC_FA, 0, 1, 4);
    assert_int_equal(ry_verbs_translate(&w, 0, 0, &wr, &sge), 0);
    assert_int_equal(wr.opcode, IBV_WR_ATOMIC_FETCH_AND_ADD);
    assert_int_equal(wr.wr.atomic.compare_add, 5);
    assert_int_equal(sge.addr, 0x5000);
    assert_int_equal(sge.lkey, 0x77);
    ry_wqe_head(&w, RY_OP_ATOMIC_CS, 0, 1, 4);
    assert_int_equal(ry_verbs_translate(&w, 0, 0, &wr, &sge), 0);
    assert_int_equal(wr.opcode, IBV_WR_ATOMIC_CMP_AND_SWP);
    assert_int_equal(wr.wr.atomic.compare_add, 6);
    assert_int_equal(wr.wr.atomic.swap, 5);
    w.u.atomic.byte_count = ry_be32(4);
    assert_int_equal(ry_verbs_translate(&w, 0, 0, &wr, &sge), RY_SYN_LOCAL_LENGTH);
}

static void a_nop_is_a_write_of_nothing_and_the_rest_is_refused(void **state)
{
    static const uint8_t refused[] = {RY_OP_WRITE_IMM, RY_OP_ATOMIC_MASKED_CS,
                                      RY_OP_ATOMIC_MASKED_FA, 0x3f};
    struct ibv_send_wr wr;
    struct ibv_sge sge;
    struct ry_wqe w;

    (void)state;
    memset(&w, 0xee, sizeof(w));
    ry_wqe_nop(&w, 3, 1, 0, true);
    assert_int_equal(ry_verbs_translate(&w, 3, 0, &wr, &sge), 0);
    assert_int_equal(wr.opcode, IBV_WR_RDMA_WRITE);
    assert_int_equal(wr.num_sge, 0);
    assert_int_equal(wr.send_flags, IBV_SEND_SIGNALED);
    for (size_t i = 0; i < sizeof(refused); i++) {
        ry_wqe_head(&w, refused[i], 3, 1, 3);
        assert_int_equal(ry_verbs_translate(&w, 3, 0, &wr, &sge), RY_SYN_REMOTE_INVALID_REQ);
    }
}

static void a_status_blames_the_request_only_if_it_must(void **state)
{
    (void)state;
    assert_int_equal(ry_verbs_syndrome(IBV_WC_RETRY_EXC_ERR, RY_OP_WRITE), RY_SYN_RETRY_EXC);
    assert_int_equal(ry_verbs_syndrome(IBV_WC_WR_FLUSH_ERR, RY_OP_WRITE), RY_SYN_FLUSH);
    assert_int_equal(ry_verbs_syndrome(IBV_WC_REM_ACCESS_ERR, RY_OP_WRITE), RY_SYN_REMOTE_ACCESS);
    /* rxe says this of a path that loses packets: faults.md */
    assert_false(
        ry_syndrome_blames_request(ry_verbs_syndrome(IBV_WC_REM_INV_REQ_ERR, RY_OP_WRITE)));
    assert_true(
        ry_syndrome_blames_request(ry_verbs_syndrome(IBV_WC_REM_INV_REQ_ERR, RY_OP_ATOMIC_FA)));
    for (int s = IBV_WC_SUCCESS + 1; s <= IBV_WC_GENERAL_ERR; s++)
        assert_int_not_equal(ry_verbs_syndrome((enum ibv_wc_status)s, RY_OP_WRITE), 0);
}

static void an_ipv4_address_is_the_best(void **state)
{
    struct ibv_gid_entry v4 = {.gid.raw = {[10] = 0xff, 0xff, 10, 0, 0, 1}};
    struct ibv_gid_entry v6 = {.gid.raw = {0x20, 1, [15] = 1}};
    struct ibv_gid_entry local = {.gid.raw = {0xfe, 0x80, [15] = 1}};
    struct ibv_gid_entry none = {.gid.raw = {0}};

    (void)state;
    assert_true(ry_verbs_gid_rank(&v4) > ry_verbs_gid_rank(&v6));
    assert_true(ry_verbs_gid_rank(&v6) > ry_verbs_gid_rank(&local));
    assert_true(ry_verbs_gid_rank(&local) > ry_verbs_gid_rank(&none));
    assert_int_equal(ry_verbs_gid_rank(&none), 0);
}

static void numbers_of_a_port(void **state)
{
    (void)state;
    assert_int_equal(ry_verbs_mtu_bytes(IBV_MTU_4096), 4096);
    assert_int_equal(ry_verbs_mtu_of(1500), IBV_MTU_1024);
    assert_int_equal(ry_verbs_mtu_of(4096), IBV_MTU_4096);
    assert_int_equal(ry_verbs_mtu_of(1), IBV_MTU_256);
    assert_int_equal(ry_verbs_rate_bps(2, 128), 50000000000ull); /* 4x NDR: 400 Gbit/s */
    assert_int_equal(ry_verbs_rate_bps(2, 64), 25000000000ull);
    assert_int_equal(ry_verbs_rate_bps(3, 64), 0); /* no such width */
    assert_int_equal(ry_verbs_timeout(4096), 1);
    assert_int_equal(ry_verbs_timeout(4096ull << 14), 14);
    assert_int_equal(ry_verbs_timeout((4096ull << 14) + 1), 15);
    assert_int_equal(ry_verbs_timeout(UINT64_MAX), 31);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_write_names_both_ends),
        cmocka_unit_test(inline_bytes_stay_in_the_ring),
        cmocka_unit_test(atomics_keep_their_operands),
        cmocka_unit_test(a_nop_is_a_write_of_nothing_and_the_rest_is_refused),
        cmocka_unit_test(a_status_blames_the_request_only_if_it_must),
        cmocka_unit_test(an_ipv4_address_is_the_best),
        cmocka_unit_test(numbers_of_a_port),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
