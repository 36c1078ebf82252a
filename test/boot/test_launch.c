/* SPDX-License-Identifier: Apache-2.0 */
/* The launcher's interface: results that PEs hand over, exit codes, replacements. This program
 * starts itself again as PEs; what they do stands in TEST_PART. */
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <railyard/launch.h>

#include "host/boot.h"
#include "host/clock.h"

enum { LARGE = 5 << 20 };

static char **self_argv;

static int report_text(uint32_t pe, uint32_t n_pes)
{
    char text[64];

    snprintf(text, sizeof(text), "result of %u of %u", pe, n_pes);
    return ry_launch_report("an earlier one", 14) || ry_launch_report(text, strlen(text)) ? 1 : 0;
}

static int report_large(uint32_t pe)
{
    char *data = malloc(LARGE);

    memset(data, 'a' + (int)pe, LARGE);
    int rc = ry_launch_report(data, LARGE);

    free(data);
    return rc == RY_OK ? 0 : 1;
}

/* PE 1 dies after the start, as often as it is replaced. */
static int dies(uint32_t pe)
{
    struct ry_boot *b = NULL;
    struct ry_boot_event ev;
    uint64_t until = ry_clock_ns() + 10000000000u;

    if (ry_boot_open(NULL, 0, until, &b) < 0)
        return 1;
    if (b->incarnation == 0 && b->ops->barrier(b, until) < 0)
        return 1;
    if (pe == 1)
        raise(SIGKILL);
    for (int lost = 0; lost < 2 && ry_clock_ns() < until;) {
        if (b->ops->poll_event(b, &ev) == 1)
            lost += ev.type == RY_BOOT_PE_LOST;
        else
            usleep(2000);
    }
    b->ops->close(b);
    return ry_clock_ns() < until ? 0 : 1;
}

static int be_pe(uint32_t pe, uint32_t n_pes)
{
    const char *part = getenv("TEST_PART");

    if (strcmp(part, "report") == 0)
        return report_text(pe, n_pes);
    if (strcmp(part, "large") == 0)
        return report_large(pe);
    if (strcmp(part, "codes") == 0)
        return pe == 2 ? 9 : 0;
    return dies(pe);
}

struct seen {
    uint32_t count;
    size_t bytes;
};

static void on_report(void *arg, uint32_t pe, const void *data, size_t len)
{
    struct seen *s = arg;

    (void)pe;
    (void)data;
    s->count++;
    s->bytes += len;
}

static void start(ry_launch_cfg *cfg, const char *part, ry_launch_result *r)
{
    const char *const env[] = {part, NULL};

    cfg->env = env;
    cfg->quiet = 1;
    assert_int_equal(ry_launch_self(1, self_argv, cfg, r), RY_OK);
}

static void the_last_result_of_each_pe_is_kept(void **state)
{
    struct seen seen = {0};
    ry_launch_cfg cfg = {.n_pes = 3, .on_report = on_report, .arg = &seen};
    ry_launch_result r;

    (void)state;
    start(&cfg, "TEST_PART=report", &r);
    assert_int_equal(r.exit_code, 0);
    assert_int_equal(r.n_pes, 3);
    assert_string_equal(r.pes[2].report, "result of 2 of 3");
    assert_int_equal(r.pes[0].report_bytes, 16);
    assert_int_equal(seen.count, 6);
    ry_launch_result_free(&r);
}

static void large_results_arrive_whole(void **state)
{
    ry_launch_cfg cfg = {.n_pes = 3};
    ry_launch_result r;

    (void)state;
    start(&cfg, "TEST_PART=large", &r);
    assert_int_equal(r.exit_code, 0);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(r.pes[i].report_bytes, LARGE);
        assert_int_equal(r.pes[i].report[0], 'a' + (int)i);
        assert_int_equal(r.pes[i].report[LARGE - 1], 'a' + (int)i);
    }
    ry_launch_result_free(&r);
}

static void exit_codes_are_told_one_by_one(void **state)
{
    ry_launch_cfg cfg = {.n_pes = 3};
    ry_launch_result r;

    (void)state;
    start(&cfg, "TEST_PART=codes", &r);
    assert_int_equal(r.exit_code, 9);
    assert_int_equal(r.pes[2].exit_code, 9);
    assert_null(r.pes[0].report);
    ry_launch_result_free(&r);
}

static void replacements_are_bounded(void **state)
{
    ry_launch_cfg cfg = {.n_pes = 2, .keep_going = 1, .restarts = 1, .restart_delay_ns = 50000000};
    ry_launch_result r;

    (void)state;
    start(&cfg, "TEST_PART=dies", &r);
    assert_int_equal(r.exit_code, 0); /* PE 0 went on, and that was asked for */
    assert_int_equal(r.pes[0].exit_code, 0);
    assert_int_equal(r.pes[1].exit_code, 128 + SIGKILL);
    assert_int_equal(r.pes[1].incarnation, 1);
    assert_int_equal(r.pes[1].lost, 1);
    ry_launch_result_free(&r);
}

static void bad_arguments_give_no_result(void **state)
{
    char *const argv[] = {"/nonexistent/program", NULL};
    ry_launch_cfg cfg = {.n_pes = 0, .argv = argv, .quiet = 1};
    ry_launch_result r;

    (void)state;
    assert_int_equal(ry_launch(&cfg, &r), RY_ERR_INVALID);
    cfg.n_pes = 2;
    cfg.n_nodes = 3;
    assert_int_equal(ry_launch(&cfg, &r), RY_ERR_INVALID);
    cfg.n_nodes = 1;
    assert_int_equal(ry_launch(&cfg, &r), RY_ERR_CONFIG);
    assert_non_null(strstr(ry_last_error(), "/nonexistent/program"));
    assert_int_equal(ry_launch_report("x", 1), RY_ERR_NOT_FOUND); /* we are no PE */
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_result_of_each_pe_is_kept),
        cmocka_unit_test(large_results_arrive_whole),
        cmocka_unit_test(exit_codes_are_told_one_by_one),
        cmocka_unit_test(replacements_are_bounded),
        cmocka_unit_test(bad_arguments_give_no_result),
    };
    uint32_t pe, n_pes;

    (void)argc;
    self_argv = argv;
    if (ry_launched(&pe, &n_pes))
        return be_pe(pe, n_pes);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
