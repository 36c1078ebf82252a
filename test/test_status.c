/* SPDX-License-Identifier: Apache-2.0 */
/* Every status has its own text, and its group says what was lost. */
#include <railyard/status.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void every_status_has_a_text_of_its_own(void **state)
{
    (void)state;
    static const int codes[] = {
        RY_OK,           RY_ERR_AGAIN,        RY_ERR_INVALID,       RY_ERR_NO_MEMORY,
        RY_ERR_UNSUPPORTED, RY_ERR_EXISTS,    RY_ERR_NOT_FOUND,     RY_ERR_BUSY,
        RY_ERR_TIMEOUT,  RY_ERR_LOCAL_ACCESS, RY_ERR_REMOTE_ACCESS, RY_ERR_REQUEST,
        RY_ERR_PATH,     RY_ERR_RAIL,         RY_ERR_UNREACHABLE,   RY_ERR_PEER_LOST,
        RY_ERR_CONFIG,   RY_ERR_AUTH,         RY_ERR_PROTOCOL,      RY_ERR_SYSTEM,
        RY_ERR_DEVICE,   RY_ERR_STALLED,      RY_ERR_LAUNCH,
    };
    size_t n = sizeof(codes) / sizeof(codes[0]);
    for (size_t i = 0; i < n; i++) {
        assert_string_not_equal(ry_status_text(codes[i]), "unknown status");
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(ry_status_text(codes[i]), ry_status_text(codes[k]));
    }
}

static void a_number_that_is_no_status_is_said_to_be_unknown(void **state)
{
    (void)state;
    assert_string_equal(ry_status_text(1), "unknown status");
    assert_string_equal(ry_status_text(INT32_MIN), "unknown status");
}

static void version_has_three_parts(void **state)
{
    (void)state;
    assert_int_equal(strspn(ry_version(), "0123456789."), strlen(ry_version()));
    const char *dot = strchr(ry_version(), '.');
    assert_non_null(dot);
    assert_non_null(strchr(dot + 1, '.'));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_a_text_of_its_own),
        cmocka_unit_test(a_number_that_is_no_status_is_said_to_be_unknown),
        cmocka_unit_test(version_has_three_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
