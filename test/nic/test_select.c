/* SPDX-License-Identifier: Apache-2.0 */
/* What a device selection takes, and in which order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "nic/select.h"

static void a_selection_takes_and_leaves_out(void **state)
{
    static const struct {
        const char *hca, *device;
        uint32_t port;
        int takes;
        uint32_t order;
    } cases[] = {
        {NULL, "mlx5_0", 1, 1, 0},
        {"mlx5_0", "mlx5_0", 2, 1, 1},
        {"mlx5_0", "mlx5_01", 1, 0, 0},
        {"mlx5_1:2,mlx5_0:1", "mlx5_0", 1, 1, 2},
        {"mlx5_1:2,mlx5_0:1", "mlx5_0", 2, 0, 0},
        {"^mlx5_2", "mlx5_0", 1, 1, 0},
        {"^mlx5_2", "mlx5_2", 1, 0, 0},
        {"^mlx5_2:1", "mlx5_2", 2, 1, 0},
        {"mlx5_2,^mlx5_2:1", "mlx5_2", 1, 0, 1},
        {"mlx5_2,^mlx5_2:1", "mlx5_2", 2, 1, 1},
        {"", "mlx5_0", 1, 1, 0},
        {"mlx5_0,", "mlx5_0", 1, -1, 1},
        {",mlx5_0", "mlx5_0", 1, -1, 0},
        {"mlx5_0:", "mlx5_0", 1, -1, 0},
        {"mlx5_0:0", "mlx5_0", 1, -1, 0},
        {"mlx5_0:256", "mlx5_0", 1, -1, 0},
        {"mlx5_0:1x", "mlx5_0", 1, -1, 0},
        {"mlx5 0", "mlx5_0", 1, -1, 0},
        {"^", "mlx5_0", 1, -1, 0},
        {"mlx5_*", "mlx5_10", 2, 1, 1},
        {"mlx5_*", "mlx5_", 1, 1, 1},
        {"mlx5_*", "mlx4_0", 1, 0, 0},
        {"mlx5_*:2", "mlx5_3", 1, 0, 0},
        {"mlx5_1,mlx5_*,^mlx5_2", "mlx5_0", 1, 1, 2},
        {"mlx5_1,mlx5_*,^mlx5_2", "mlx5_2", 1, 0, 0},
        {"^mlx5_*:1", "mlx5_2", 1, 0, 0},
        {"^mlx5_*:1", "rocep1", 1, 1, 0},
        {"mlx5_0,^mlx5_1", "mlx5_2", 1, 0, 0},
        {"^mlx5_0,mlx5_1", "mlx5_1", 1, 1, 1},
        {"*", "mlx5_0", 1, -1, 0},
        {"mlx5_*0", "mlx5_0", 1, -1, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint32_t order = 99;

        assert_int_equal(ry_select_takes(cases[i].hca, cases[i].device, cases[i].port, &order),
                         cases[i].takes);
        if (cases[i].takes == 1)
            assert_int_equal(order, cases[i].order);
    }
    assert_true(ry_select_names("a,b:1", "b"));
    assert_false(ry_select_names("^b", "b"));
    assert_false(ry_select_names("b*", "b"));
    assert_false(ry_select_names(NULL, "b"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_selection_takes_and_leaves_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
