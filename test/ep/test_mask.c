/* SPDX-License-Identifier: Apache-2.0 */
/* A PE is lost in every phase of an exchange: the others finish with the right sums, agree on the
 * mask and go on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "death.h"

static void lose(enum ry_ep_mode mode, uint32_t pes, uint32_t nodes, const char *p2p)
{
    for (int when = 0; when < WHENS; when++) {
        struct ry_test_death d = {.victim = when % 2 ? pes - 1 : 1,
                                  .when = (enum ry_test_when)when};

        d.shape = (struct ry_test_shape){.pes = pes,
                                         .nodes = nodes,
                                         .experts = 13,
                                         .topk = 4,
                                         .hidden = 128,
                                         .tokens = 16,
                                         .mode = mode,
                                         .idx_bytes = 4};
        d.shape.settings[0] = "HEAP_SIZE=16M";
        d.shape.settings[1] = p2p;
        ry_test_death_run(&d);
    }
}

static void ll(void **state)
{
    (void)state;
    lose(RY_EP_LL, 4, 2, NULL);
    lose(RY_EP_LL, 4, 2, "P2P=off");
}
static void ht_one_node(void **state)
{
    (void)state;
    lose(RY_EP_HT, 3, 1, NULL);
    lose(RY_EP_HT, 3, 1, "P2P=off");
}
static void ht_two_nodes(void **state)
{
    (void)state;
    lose(RY_EP_HT, 4, 2, NULL);
    lose(RY_EP_HT, 4, 2, "P2P=off");
}
static void ht_uneven(void **state)
{
    (void)state;
    lose(RY_EP_HT, 5, 2, NULL);
    lose(RY_EP_HT, 7, 3, NULL);
    lose(RY_EP_HT, 7, 3, "P2P=off");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ll),
        cmocka_unit_test(ht_one_node),
        cmocka_unit_test(ht_two_nodes),
        cmocka_unit_test(ht_uneven),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
