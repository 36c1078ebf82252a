/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules of dispatch and combine. The number in a name is the schedule's in doc/proof.md. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "exchange.h"
#include "sim/town.h"

int ry_test_mask_main(void);

enum { FAIL_US = 2000, ITERS = 200 };

/* PE 0 loses a rail in the middle, and what it carried goes by one rail from then on. */
static void *pull_cable(void *arg)
{
    const struct ry_nic_fault f = {.kind = RY_FAULT_PORT_DOWN, .rail = 1, .peer = -1};
    struct ry_ctx *ctx = arg;

    usleep(FAIL_US);
    RY_CHECK(ctx->mesh.nic->ops->fault(ctx->mesh.nic, &f) == RY_OK);
    return NULL;
}

static void exchange_and_fail(ry_ctx *ctx, void *arg)
{
    pthread_t cable;
    uint64_t moves = 0;

    if (ry_pe(ctx) == 0)
        pthread_create(&cable, NULL, pull_cable, ctx);
    ry_test_exchange_body(ctx, arg);
    if (ry_pe(ctx) == 0) {
        pthread_join(cable, NULL);
        for (uint32_t c = 0; c < ctx->mesh.peers[1].n_channels; c++)
            moves += ctx->mesh.peers[1].out[c].ch->moves;
        RY_CHECK(moves > 0);
    }
}

/* Few tokens, many channels, and fewer rails after a failure: every channel says that it was the
 * last, also if it carried nothing, so nobody waits for a word that never comes. */
static bool s23_channels_that_carried_nothing(struct town *t)
{
    struct ry_test_shape s = {.pes = 2,
                              .nodes = 2,
                              .experts = 4,
                              .topk = 1,
                              .hidden = 128,
                              .tokens = 2,
                              .mode = RY_EP_LL,
                              .iters = ITERS,
                              .idx_bytes = 4};
    const char *settings[] = {"P2P=off", "RAILS=2", "CHANNELS=8", "HEAP_SIZE=16M", "TIMEOUT=1s"};

    (void)t;
    return ry_test_job(s.pes, s.nodes, settings, 5, exchange_and_fail, &s) == RY_OK;
}

/* The forwarder has taken tokens for others and dies: they are sent again by another way. */
static bool s43_forwarder_dies(struct town *t)
{
    (void)t;
    cmocka_set_test_filter("ht_two_nodes");
    return ry_test_mask_main() == 0;
}

int main(void)
{
    static const struct town_schedule all[] = {
        {"23 channels that carried nothing", RY_MUT_NO_LAST_WORD,
         s23_channels_that_carried_nothing},
        {"43 forwarder dies", RY_MUT_FORWARD_FORGOTTEN, s43_forwarder_dies},
    };

    return town_run_all("schedule", all, sizeof(all) / sizeof(all[0]));
}
