/* SPDX-License-Identifier: Apache-2.0 */
/* The log: levels, whole lines, nothing that could upset a terminal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/log.h"

static int ends[2];

static const char *logged(void)
{
    static char text[8192];
    ssize_t n = read(ends[0], text, sizeof(text) - 1);

    text[n > 0 ? n : 0] = '\0';
    return text;
}

static void only_what_the_level_wants_is_shown(void **state)
{
    struct ry_log log = ry_log_make(RY_DEBUG_INFO, 3);

    (void)state;
    log.fd = ends[1];
    ry_log(&log, RY_DEBUG_TRACE, "not this");
    ry_log(&log, RY_DEBUG_INFO, "rail %d is up", 2);
    assert_string_equal(logged(), "railyard: pe 3: rail 2 is up\n");
    log.level = RY_DEBUG_OFF;
    ry_log(&log, RY_DEBUG_WARN, "not this");
    log.level = RY_DEBUG_WARN;
    log.pe = -1;
    ry_log(&log, RY_DEBUG_WARN, "this");
    assert_string_equal(logged(), "railyard: this\n");
}

static void a_line_stays_one_line(void **state)
{
    struct ry_log log = ry_log_make(RY_DEBUG_WARN, -1);
    static char endless[5000];

    (void)state;
    log.fd = ends[1];
    ry_log(&log, RY_DEBUG_WARN, "a name\nwith a line, \033[31m and a colour");
    assert_string_equal(logged(), "railyard: a name?with a line, ?[31m and a colour\n");
    memset(endless, 'x', sizeof(endless) - 1);
    ry_log(&log, RY_DEBUG_WARN, "%s", endless);
    const char *text = logged();

    assert_true(strlen(text) <= 1024);
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    ry_log_lines(&log, RY_DEBUG_WARN, "one\ntwo\n");
    assert_string_equal(logged(), "railyard: one\nrailyard: two\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_the_level_wants_is_shown),
        cmocka_unit_test(a_line_stays_one_line),
    };
    if (pipe(ends) < 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
