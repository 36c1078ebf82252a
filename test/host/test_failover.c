/* SPDX-License-Identifier: Apache-2.0 */
/* Failures of ports, queue pairs and completions under one-sided traffic: the data is right,
 * nothing is twice, and the channels return. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "host/ctx.h"
#include "host/threads.h"

enum { WORDS = 4096, ROUNDS = 400 };

struct plan {
    struct ry_nic_fault fault;
    uint32_t pe;      /* that injects it */
    int every;        /* rounds between two injections */
    uint64_t wait_ns; /* pause after each injection */
    bool must_move;
};

static void nap(uint64_t ns)
{
    struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};

    nanosleep(&t, NULL);
}

static uint64_t moves(ry_ctx *ctx)
{
    uint64_t n = 0;

    for (uint32_t q = 0; q < ctx->mesh.n_pes; q++)
        for (uint32_t c = 0; c < ctx->mesh.peers[q].n_channels; c++)
            n += ry_ld_acq64(&ctx->mesh.peers[q].out[c].ch->moves);
    return n;
}

/* Each round: put a block to the right neighbour, signal; check the block from the left; count at
 * 0. */
static void traffic(ry_ctx *ctx, void *arg)
{
    const struct plan *plan = arg;
    uint32_t me = ry_pe(ctx), n = ry_n_pes(ctx), right = (me + 1) % n, left = (me + n - 1) % n;
    uint64_t *src, *dst, *count, old;
    ry_signal *sig;

    RY_CHECK(ry_malloc(ctx, WORDS * 8, (void **)&src) == RY_OK);
    RY_CHECK(ry_malloc(ctx, WORDS * 8, (void **)&dst) == RY_OK);
    RY_CHECK(ry_malloc(ctx, 4096, (void **)&sig) == RY_OK);
    RY_CHECK(ry_malloc(ctx, 64, (void **)&count) == RY_OK);
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        for (int i = 0; i < WORDS; i++)
            src[i] = round << 32 | me << 16 | (uint64_t)i;
        RY_CHECK(ry_put_nbi(ctx, dst, src, WORDS * 8, right) == RY_OK);
        if (me == plan->pe && (int)(round % (uint64_t)plan->every) == plan->every / 2) {
            RY_CHECK(ctx->mesh.nic->ops->fault(ctx->mesh.nic, &plan->fault) == RY_OK);
            nap(plan->wait_ns);
        }
        RY_CHECK(ry_quiet(ctx) == RY_OK);
        RY_CHECK(ry_put_signal_nbi(ctx, NULL, NULL, 0, &sig[0], round, right) == RY_OK);
        RY_CHECK(ry_amo_fetch_add(ctx, count, 1, 0, &old) == RY_OK);
        RY_CHECK(ry_signal_wait(ctx, &sig[0], round, left, 0) == RY_OK);
        for (int i = 0; i < WORDS; i++)
            RY_CHECK(dst[i] == (round << 32 | left << 16 | (uint64_t)i));
        RY_CHECK(ry_put_signal_nbi(ctx, NULL, NULL, 0, &sig[1], round, left) == RY_OK);
        RY_CHECK(ry_signal_wait(ctx, &sig[1], round, right, 0) == RY_OK);
    }
    RY_CHECK(ry_barrier(ctx) == RY_OK);
    RY_CHECK(me != 0 || *count == (uint64_t)ROUNDS * n);
    RY_CHECK(me != plan->pe || !plan->must_move || moves(ctx) > 0);
    RY_CHECK(ry_barrier(ctx) == RY_OK);
}

static void run(struct plan plan, const char *rails, const char *handler)
{
    const char *settings[] = {rails,
                              "P2P=off",
                              "HEAP_SIZE=8M",
                              "QP_DEPTH=64",
                              handler,
                              "RECOVERY_INTERVAL=5ms",
                              "RETRY_TIME=1ms",
                              "RETRY_COUNT=3"};

    assert_int_equal(ry_test_job(2, 2, settings, 8, traffic, &plan), RY_OK);
}

#define FAULT(...) ((struct ry_nic_fault){.peer = -1, __VA_ARGS__})
enum { MS = 1000000 };

static void port_down(void **state)
{
    (void)state;
    run((struct plan){FAULT(.kind = RY_FAULT_PORT_DOWN, .rail = 0, .for_ns = 20 * MS), 0, 40, 0, 1},
        "RAILS=2", "HANDLER=gpu");
}
static void port_down_four_rails(void **state)
{
    (void)state;
    run((struct plan){FAULT(.kind = RY_FAULT_PORT_DOWN, .rail = 1, .for_ns = 20 * MS), 1, 40, 0, 1},
        "RAILS=4", "HANDLER=cpu");
}
static void port_down_unequal(void **state)
{
    (void)state;
    run((struct plan){FAULT(.kind = RY_FAULT_PORT_DOWN, .rail = 1, .for_ns = 20 * MS), 1, 40, 0, 1},
        "RAILS=4,2", "HANDLER=cpu_host_memory");
}
static void cqe_error(void **state)
{
    (void)state;
    run((struct plan){FAULT(.kind = RY_FAULT_CQE_ERROR, .rail = 0, .syndrome = 0x15), 0, 40, 0, 1},
        "RAILS=2", "HANDLER=gpu");
}
static void qp_error(void **state)
{
    (void)state;
    run((struct plan){FAULT(.kind = RY_FAULT_QP_ERROR, .rail = 0), 0, 40, 0, 0}, "RAILS=2",
        "HANDLER=gpu");
}
static void stall(void **state)
{
    (void)state;
    run((struct plan){FAULT(.kind = RY_FAULT_STALL, .rail = 0, .for_ns = 120 * MS), 0, 100, 0, 1},
        "RAILS=2", "HANDLER=gpu");
}
static void ack_drop(void **state)
{
    (void)state;
    run((struct plan){FAULT(.kind = RY_FAULT_ACK_DROP, .rail = 0, .p = 0.3, .for_ns = 20 * MS), 0,
                      100, 0, 0},
        "RAILS=2", "HANDLER=gpu");
}
static void ghost(void **state)
{
    (void)state;
    run((struct plan){FAULT(.kind = RY_FAULT_GHOST, .rail = 0, .delay_ns = 2 * MS,
                            .for_ns = 20 * MS),
                      0, 100, 0, 0},
        "RAILS=2", "HANDLER=gpu");
}
static void nic_down(void **state)
{
    (void)state;
    run((struct plan){FAULT(.kind = RY_FAULT_NIC_DOWN, .rail = 0, .for_ns = 30 * MS), 0, 100, 0, 1},
        "RAILS=4", "HANDLER=gpu");
}
static void only_nic_down(void **state)
{
    (void)state;
    run((struct plan){FAULT(.kind = RY_FAULT_NIC_DOWN, .rail = 0, .for_ns = 100 * MS), 0, 150, 0,
                      0},
        "RAILS=2", "HANDLER=gpu");
}
static void only_port_down(void **state)
{
    (void)state;
    run((struct plan){FAULT(.kind = RY_FAULT_PORT_DOWN, .rail = 0, .for_ns = 50 * MS), 0, 100, 0,
                      0},
        "RAILS=1", "HANDLER=gpu");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(port_down),         cmocka_unit_test(port_down_four_rails),
        cmocka_unit_test(port_down_unequal), cmocka_unit_test(cqe_error),
        cmocka_unit_test(qp_error),          cmocka_unit_test(stall),
        cmocka_unit_test(ack_drop),          cmocka_unit_test(ghost),
        cmocka_unit_test(nic_down),          cmocka_unit_test(only_nic_down),
        cmocka_unit_test(only_port_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
