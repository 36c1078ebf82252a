/* SPDX-License-Identifier: Apache-2.0 */
/* Settings: truth tables of the units, what goes before what, and what is refused in which words.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <railyard/config.h>

#include "host/config.h"
#include "host/config_table.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

struct unit_case {
    const char *text;
    int64_t value; /* -1: refused */
};

typedef int parse_fn(const char *text, uint64_t *out);

static void check_units(parse_fn *parse, const struct unit_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t got = 12345;
        int rc = parse(cases[i].text, &got);

        if (cases[i].value < 0 ? rc != RY_ERR_INVALID || got != 12345
                               : rc != RY_OK || got != (uint64_t)cases[i].value)
            fail_msg("'%s' gave %d, %" PRIu64, cases[i].text, rc, got);
    }
}

static void sizes_are_powers_of_1024(void **state)
{
    static const struct unit_case cases[] = {
        {"0", 0},
        {"1", 1},
        {"64K", 65536},
        {"64k", 65536},
        {"1M", 1 << 20},
        {"2G", 2147483648},
        {"1.5K", 1536},
        {".5m", 524288},
        {"3.1M", 3250585},
        {"1T", 1099511627776},
        {"4KiB", 4096},
        {"7B", 7},
        {"", -1},
        {"K", -1},
        {"-1", -1},
        {"1X", -1},
        {"1kk", -1},
        {"1..5", -1},
        {"0x10", -1},
        {"9999999T", -1},
        {"99999999999999999999", -1},
        {" 1", -1},
        {".", -1},
    };
    (void)state;
    check_units(ry_parse_size, cases, COUNT(cases));
}

static void rates_are_decimal_and_a_small_b_is_a_bit(void **state)
{
    static const struct unit_case cases[] = {
        {"0", 0},
        {"unlimited", 0},
        {"100MB/s", 100000000},
        {"1GB/s", 1000000000},
        {"1.5GB/s", 1500000000},
        {"400Gb/s", 50000000000},
        {"400Gbps", 50000000000},
        {"5000", 5000},
        {"8b/s", 1},
        {"1kB/s", 1000},
        {"1GB", 1000000000},
        {"1gB/s", -1},
        {"fast", -1},
        {"", -1},
        {"/s", -1},
        {"-1MB/s", -1},
        {"1MB/h", -1},
    };
    (void)state;
    check_units(ry_parse_rate, cases, COUNT(cases));
}

static void times_need_a_unit(void **state)
{
    static const struct unit_case cases[] = {
        {"0", 0},          {"50ms", 50000000},  {"1.5s", 1500000000},  {"2us", 2000},
        {"7ns", 7},        {"1m", 60000000000}, {"1h", 3600000000000}, {"5", -1},
        {"5 ms", 5000000}, {"ms", -1},          {"5MS", -1},           {"-1s", -1},
        {"1e3s", -1},
    };
    (void)state;
    check_units(ry_parse_time, cases, COUNT(cases));
}

static void what_is_printed_parses_to_the_same(void **state)
{
    static const uint64_t values[] = {0,    1,     999,     1000,     1024,
                                      1536, 65536, 1000000, 50000000, 1234567891};

    (void)state;
    for (size_t i = 0; i < COUNT(values); i++) {
        char text[64];
        uint64_t back = 1;

        ry_format_size(values[i], text, sizeof(text));
        assert_int_equal(ry_parse_size(text, &back), RY_OK);
        assert_int_equal(back, values[i]);
        ry_format_rate(values[i], text, sizeof(text));
        assert_int_equal(ry_parse_rate(text, &back), RY_OK);
        assert_int_equal(back, values[i]);
        ry_format_time(values[i], text, sizeof(text));
        assert_int_equal(ry_parse_time(text, &back), RY_OK);
        assert_int_equal(back, values[i]);
    }
}

/* No RAILYARD_ variable, no alias, no file. */
static void clean(void)
{
    for (uint32_t i = 0; i < ry_n_settings; i++) {
        char name[80];

        snprintf(name, sizeof(name), "RAILYARD_%s", ry_settings[i].name);
        unsetenv(name);
        if (ry_settings[i].alias)
            unsetenv(ry_settings[i].alias);
    }
    unsetenv("RAILYARD_CHANELS");
    setenv("HOME", "/nonexistent", 1);
}

static void defaults_are_what_the_table_says(void **state)
{
    struct ry_config c;

    (void)state;
    clean();
    assert_int_equal(ry_config_load(&c, NULL, 0), RY_OK);
    assert_int_equal(c.qp_depth, 1024);
    assert_int_equal(c.channels, 0);
    assert_int_equal(c.gid_index, -1);
    assert_int_equal(c.gpu, -1);
    assert_int_equal(c.pkey, 0xffff);
    assert_int_equal(c.heap_size_bytes, 256 << 20);
    assert_int_equal(c.recovery_interval_ns, 100000000);
    assert_int_equal(c.recovery_interval_max_ns, 30000000000);
    assert_int_equal(c.failover, RY_FAILOVER_ON);
    assert_true(c.p2p);
    assert_int_equal(ry_config_at(&c.rails, 3, 2), 2);
    assert_int_equal(ry_config_at(&c.link_rate_bps, 3, 9), 0);
    assert_string_equal(c.warnings, "");
}

static void every_setting_prints_what_it_takes(void **state)
{
    struct ry_config c, again;

    (void)state;
    clean();
    assert_int_equal(ry_config_load(&c, NULL, 0), RY_OK);
    for (uint32_t i = 0; i < ry_n_settings; i++) {
        char text[RY_CONFIG_TEXT], back[RY_CONFIG_TEXT];

        if (ry_settings[i].type == RY_SET_LAUNCH)
            continue;
        ry_config_defaults(&again);
        ry_setting_format(&ry_settings[i], &c, text, sizeof(text));
        assert_int_equal(ry_config_set(&again, ry_settings[i].name, text, RY_FROM_CALL), RY_OK);
        ry_setting_format(&ry_settings[i], &again, back, sizeof(back));
        assert_string_equal(text, back);
    }
}

static char *make_file(const char *text)
{
    static char path[] = "/tmp/ry-test-config-XXXXXX";

    strcpy(path + sizeof(path) - 7, "XXXXXX");
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    setenv("RAILYARD_CONFIG", path, 1);
    return path;
}

static void caller_before_environment_before_alias_before_file(void **state)
{
    struct ry_config c;
    const char *const call[] = {"QP_DEPTH=128"};
    const char *file = make_file("# a comment\n\n  QP_DEPTH = 16 \nRAILYARD_SL=3\r\n");

    (void)state;
    clean();
    setenv("RAILYARD_CONFIG", file, 1);
    assert_int_equal(ry_config_load(&c, NULL, 0), RY_OK);
    assert_int_equal(c.qp_depth, 16);
    assert_int_equal(c.sl, 3);
    assert_string_equal(c.file, file);
    setenv("NVSHMEM_QP_DEPTH", "32", 1);
    assert_int_equal(ry_config_load(&c, NULL, 0), RY_OK);
    assert_int_equal(c.qp_depth, 32);
    setenv("RAILYARD_QP_DEPTH", "64", 1);
    assert_int_equal(ry_config_load(&c, NULL, 0), RY_OK);
    assert_int_equal(c.qp_depth, 64);
    assert_int_equal(ry_config_load(&c, call, 1), RY_OK);
    assert_int_equal(c.qp_depth, 128);
    unlink(file);
    assert_int_equal(ry_config_load(&c, call, 1), RY_ERR_CONFIG);
    assert_non_null(strstr(ry_last_error(), "RAILYARD_CONFIG"));
}

static void other_libraries_names_keep_their_meaning(void **state)
{
    struct ry_config c;
    ry_setting_info *list = NULL;
    uint32_t n = 0, seen = 0;

    (void)state;
    clean();
    setenv("NVSHMEM_DISABLE_P2P", "1", 1);
    setenv("NVSHMEM_IBGDA_NUM_RC_PER_PE", "0", 1);
    setenv("NVSHMEM_SYMMETRIC_SIZE", "3.5M", 1);
    setenv("NVSHMEM_DEBUG", "VERSION", 1); /* says nothing to us: mentioned, not refused */
    setenv("DEEP_EP_DEVICE_TO_HCA_MAPPING", "0:mlx5_0:1,1:mlx5_1:1", 1);
    assert_int_equal(ry_config_load(&c, NULL, 0), RY_OK);
    assert_false(c.p2p);
    assert_int_equal(c.channels, 0);
    assert_int_equal(c.heap_size_bytes, 3670016);
    assert_string_equal(c.gpu_nic_map, "0:mlx5_0:1,1:mlx5_1:1");
    assert_int_equal(c.debug, RY_DEBUG_WARN);
    assert_non_null(strstr(c.warnings, "NVSHMEM_DEBUG is not taken"));
    assert_int_equal(ry_config_list(NULL, 0, &list, &n), RY_OK);
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(list[i].name, "P2P") == 0) {
            assert_string_equal(list[i].source, "NVSHMEM_DISABLE_P2P");
            seen++;
        }
    }
    assert_int_equal(seen, 1);
    free(list);
}

static void unknown_variables_are_warned_about_with_the_nearest_name(void **state)
{
    struct ry_config c;

    (void)state;
    clean();
    setenv("RAILYARD_CHANELS", "4", 1);
    assert_int_equal(ry_config_load(&c, NULL, 0), RY_OK);
    assert_string_equal(c.warnings,
                        "RAILYARD_CHANELS is no setting: did you mean RAILYARD_CHANNELS?\n");
    unsetenv("RAILYARD_CHANELS");
}

static void bad_values_name_setting_place_and_choices(void **state)
{
    static const struct {
        const char *setting, *words;
    } cases[] = {
        {"QP_DEPTH=100", "power of two"},
        {"QP_DEPTH=8", "16 to 32768"},
        {"BUFFERS=4", "2 to 3"},
        {"HANDLER=fpga", "auto, gpu, cpu, cpu_host_memory"},
        {"P2P=maybe", "neither on nor off"},
        {"TIMEOUT=5", "no unit"},
        {"TIMEOUT=2h", "1us to 1h"},
        {"LINK_RATE=1GB/s,slow", "slow"},
        {"RAILS=2,17", "17"},
        {"RAILS=", "not one of"},
        {"HEAP_SIZE=1K", "at least 64K"},
        {"NOISE=1", "did you mean"},
        {"RECOVERY_INTERVAL=40s", "RECOVERY_INTERVAL_MAX"},
        {"SECRET=x", "environment only"},
        {"HCA", "NAME=VALUE"},
    };
    struct ry_config c = {.sl = 77};

    (void)state;
    clean();
    for (size_t i = 0; i < COUNT(cases); i++) {
        if (ry_config_load(&c, &cases[i].setting, 1) != RY_ERR_CONFIG ||
            !strstr(ry_last_error(), cases[i].words))
            fail_msg("%s: %s", cases[i].setting, ry_last_error());
        assert_int_equal(c.sl, 77); /* untouched */
    }
}

static void a_bad_file_is_refused_with_its_line(void **state)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"SL = 1\nSL = 99\n", "here:2: RAILYARD_SL"},
        {"SL\n", "here:1: no '='"},
        {"\n\nLATENZY = 1us\n", "here:3: no setting is called 'LATENZY': did you mean LATENCY?"},
        {"JOB = 5\n", "environment only"},
    };
    static char lines[RY_CONFIG_TEXT + 200];
    struct ry_config c;

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        ry_config_defaults(&c);
        assert_int_equal(ry_config_parse(&c, cases[i].text, strlen(cases[i].text), "here"),
                         RY_ERR_CONFIG);
        assert_non_null(strstr(ry_last_error(), cases[i].words));
    }
    memset(lines, 'x', sizeof(lines));
    assert_int_equal(ry_config_parse(&c, lines, sizeof(lines), "here"), RY_ERR_CONFIG);
    assert_int_equal(ry_config_parse(&c, "SL = 1\0\n", 8, "here"), RY_ERR_CONFIG);
    assert_int_equal(ry_config_parse(&c, "SL = 2", 6, "here"), RY_OK); /* no newline at the end */
    assert_int_equal(c.sl, 2);
}

static void the_printed_file_is_valid_and_means_the_same(void **state)
{
    struct ry_config a, b;
    const char *const call[] = {"RAILS=4,2", "LINK_RATE=400MB/s,234MB/s", "TIMEOUT=3s", "SL=5"};
    char *text = NULL, *warnings = NULL, block[2][RY_CONFIG_JOB_BYTES];

    (void)state;
    clean();
    assert_int_equal(ry_config_text(call, 4, &text, &warnings), RY_OK);
    assert_int_equal(ry_config_load(&a, call, 4), RY_OK);
    ry_config_defaults(&b);
    assert_int_equal(ry_config_parse(&b, text, strlen(text), "printed"), RY_OK);
    assert_int_equal(b.rails.n, 2);
    assert_int_equal(b.rails.v[1], 2);
    assert_int_equal(ry_config_at(&b.link_rate_bps, 7, 0), 234000000);
    assert_int_equal(b.timeout_ns, 3000000000);
    assert_int_equal(b.sl, 5);
    ry_config_job(&a, block[0]);
    ry_config_job(&b, block[1]);
    assert_memory_equal(block[0], block[1], RY_CONFIG_JOB_BYTES);
    free(text);
    free(warnings);
}

static void pes_that_contradict_each_other_are_named_with_both_values(void **state)
{
    static char blocks[3 * RY_CONFIG_JOB_BYTES];
    struct ry_config c;

    (void)state;
    clean();
    assert_int_equal(ry_config_load(&c, NULL, 0), RY_OK);
    ry_config_job(&c, blocks);
    ry_config_job(&c, blocks + RY_CONFIG_JOB_BYTES);
    assert_int_equal(ry_config_set(&c, "RAILS", "5", RY_FROM_CALL), RY_OK);
    ry_config_job(&c, blocks + 2 * RY_CONFIG_JOB_BYTES); /* rail counts may differ */
    assert_int_equal(ry_config_agree(blocks, 3), RY_OK);
    assert_int_equal(ry_config_set(&c, "CHANNELS", "12", RY_FROM_CALL), RY_OK);
    ry_config_job(&c, blocks + 2 * RY_CONFIG_JOB_BYTES);
    assert_int_equal(ry_config_agree(blocks, 3), RY_ERR_CONFIG);
    assert_non_null(strstr(ry_last_error(), "pe 0 has RAILYARD_CHANNELS=auto but pe 2 has "
                                            "RAILYARD_CHANNELS=12"));
    memset(blocks + RY_CONFIG_JOB_BYTES, 'x', RY_CONFIG_JOB_BYTES);
    assert_int_equal(ry_config_agree(blocks, 3), RY_ERR_PROTOCOL);
    snprintf(blocks + RY_CONFIG_JOB_BYTES, RY_CONFIG_JOB_BYTES, "VERSION=9.9.9\n");
    memset(blocks + RY_CONFIG_JOB_BYTES + 20, 0, RY_CONFIG_JOB_BYTES - 20);
    assert_int_equal(ry_config_agree(blocks, 3), RY_ERR_CONFIG);
    assert_non_null(strstr(ry_last_error(), "9.9.9"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_powers_of_1024),
        cmocka_unit_test(rates_are_decimal_and_a_small_b_is_a_bit),
        cmocka_unit_test(times_need_a_unit),
        cmocka_unit_test(what_is_printed_parses_to_the_same),
        cmocka_unit_test(defaults_are_what_the_table_says),
        cmocka_unit_test(every_setting_prints_what_it_takes),
        cmocka_unit_test(caller_before_environment_before_alias_before_file),
        cmocka_unit_test(other_libraries_names_keep_their_meaning),
        cmocka_unit_test(unknown_variables_are_warned_about_with_the_nearest_name),
        cmocka_unit_test(bad_values_name_setting_place_and_choices),
        cmocka_unit_test(a_bad_file_is_refused_with_its_line),
        cmocka_unit_test(the_printed_file_is_valid_and_means_the_same),
        cmocka_unit_test(pes_that_contradict_each_other_are_named_with_both_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
