/* SPDX-License-Identifier: Apache-2.0 */
/* The facts layer: records stay inside their folder and within bounds, overlays hide and show. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <railyard/topo.h>

#include "host/topo/facts_internal.h"
#include "records.h"

static ry_facts *open_folder(const char *path)
{
    ry_facts *facts = NULL;
    assert_int_equal(ry_facts_open(path, &facts), RY_OK);
    return facts;
}

static void assert_fact(ry_facts *facts, const char *path, const char *expected)
{
    char *text = ry_facts_text(facts, path);
    if (expected)
        assert_string_equal(text, expected);
    else
        assert_null(text);
    free(text);
}

static void make_folder(char *path, size_t cap)
{
    snprintf(path, cap, "/tmp/ry-facts-XXXXXX");
    assert_non_null(mkdtemp(path));
}

static void write_file(const char *folder, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void remove_folder(const char *folder)
{
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
}

static void paths_that_lead_outside_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"",   "/etc/passwd", "../x", "a/../b", "a//b",   "a/./b",
                                      "a/", "a\nb",        ".",    "..",     "a/b/..", "a\\b"};
    ry_facts *facts = NULL;
    assert_int_equal(ry_facts_open_empty(&facts), RY_OK);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(ry_facts_put(facts, bad[i], "x", 1), RY_ERR_INVALID);
        assert_null(ry_facts_text(facts, bad[i]));
        assert_false(ry_facts_has(facts, bad[i]));
    }
    char *long_path = malloc(5000);
    memset(long_path, 'a', 4999);
    long_path[4999] = '\0';
    assert_int_equal(ry_facts_put(facts, long_path, "x", 1), RY_ERR_INVALID);
    assert_null(ry_facts_textf(facts, "%s", long_path));
    free(long_path);
    ry_facts_close(facts);
}

static void links_and_special_files_are_not_followed(void **state)
{
    (void)state;
    char folder[64], path[512];
    make_folder(folder, sizeof folder);
    write_file(folder, "plain", "yes\n\n");
    snprintf(path, sizeof path, "%s/link", folder);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    snprintf(path, sizeof path, "%s/up", folder);
    assert_int_equal(symlink("/etc", path), 0);
    snprintf(path, sizeof path, "%s/pipe", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    snprintf(path, sizeof path, "%s/device", folder);
    ry_facts *facts = open_folder(folder);
    assert_fact(facts, "plain", "yes");
    assert_fact(facts, "link", NULL);
    assert_fact(facts, "up/passwd", NULL);
    assert_fact(facts, "pipe", NULL);
    assert_fact(facts, "plain/below", NULL);
    char **names;
    assert_int_equal(ry_facts_list(facts, "up", &names), 0);
    ry_facts_close(facts);
    remove_folder(folder);
}

static void a_huge_file_is_no_fact(void **state)
{
    (void)state;
    char folder[64], path[512];
    make_folder(folder, sizeof folder);
    write_file(folder, "huge", "x");
    snprintf(path, sizeof path, "%s/huge", folder);
    assert_int_equal(truncate(path, (off_t)1 << 40), 0);
    ry_facts *facts = open_folder(folder);
    assert_fact(facts, "huge", NULL);
    ry_facts_close(facts);
    remove_folder(folder);
}

static void overlays_show_and_hide(void **state)
{
    (void)state;
    char path[512];
    char **names;
    ry_facts *facts = open_folder(record_path(path, sizeof path, "hgx-h100"));
    assert_int_equal(ry_facts_list(facts, "sys/class/infiniband", &names), 8);
    ry_facts_free_names(names, 8);
    assert_fact(facts, "sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE");
    ry_facts_put(facts, "sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n", 8);
    assert_fact(facts, "sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN");
    ry_facts_put(facts, "sys/class/infiniband/mlx5_0", NULL, 0);
    assert_fact(facts, "sys/class/infiniband/mlx5_0/ports/1/state", NULL);
    assert_false(ry_facts_has(facts, "sys/class/infiniband/mlx5_0/ports"));
    ry_facts_put(facts, "sys/class/infiniband/mlx5_10/ports/1/state", "4: ACTIVE", 9);
    ry_facts_put(facts, "sys/class/infiniband/mlx5_9/x", "", 0);
    unsigned count = ry_facts_list(facts, "sys/class/infiniband", &names);
    assert_int_equal(count, 9);
    assert_string_equal(names[0], "mlx5_1");
    assert_string_equal(names[7], "mlx5_9");
    assert_string_equal(names[8], "mlx5_10");
    ry_facts_free_names(names, count);
    assert_true(ry_facts_has(facts, "sys/class/infiniband/mlx5_9"));
    ry_facts_close(facts);
}

static void memory_is_bounded(void **state)
{
    (void)state;
    ry_facts *facts = NULL;
    assert_int_equal(ry_facts_open_empty(&facts), RY_OK);
    char *big = calloc(1, RY_FACT_MAX + 1);
    assert_int_equal(ry_facts_put(facts, "big", big, RY_FACT_MAX + 1), RY_ERR_NO_MEMORY);
    char name[16];
    int status = RY_OK;
    for (int i = 0; i < 16 && status == RY_OK; i++) {
        snprintf(name, sizeof name, "big%d", i);
        status = ry_facts_put(facts, name, big, RY_FACT_MAX);
    }
    assert_int_equal(status, RY_ERR_NO_MEMORY);
    free(big);
    ry_facts_close(facts);
}

static void what_is_recorded_names_nobody(void **state)
{
    (void)state;
    char host[256] = "", text[1200];
    gethostname(host, sizeof host - 1);
    snprintf(text, sizeof text,
             "A=10.1.2.3\nB=00:1a:2b:3c:4d:5e\nC=fe80:0000:0000:0000:0a1b:2c3d:4e5f:6071\n"
             "D=%s/venv/lib:/usr/lib\nE=GPU-12345678-1234-1234-1234-123456789abc\n"
             "F=mlx5_0:1,mlx5_1:1\nG=2.27.7 3.5.19-1 570.124.06\nH=%s\n",
             "/home"
             "/alice",
             host);
    struct ry_text out = {0};
    ry_facts_scrub("facts/env", text, strlen(text), &out);
    ry_text_add(&out, "", 1);
    assert_null(strstr(out.data, "12345678"));
    assert_null(strstr(out.data, "alice"));
    assert_non_null(strstr(out.data, "A=192.0.2.1\nB=192.0.2.1\nC=192.0.2.1\nD=/home"
                                     "/user/venv/lib:"));
    assert_non_null(strstr(out.data, "F=mlx5_0:1,mlx5_1:1\nG=2.27.7 3.5.19-1 570.124.06\n"));
    if (strlen(host) > 1)
        assert_non_null(strstr(out.data, "H=host\n"));
    free(out.data);
}

static void gids_and_kernel_lines_are_cut(void **state)
{
    (void)state;
    static const struct {
        const char *path, *text, *expected;
    } cases[] = {
        {"sys/class/infiniband/a/ports/1/gids/3", "0000:0000:0000:0000:0000:ffff:0a01:0203\n",
         "0000:0000:0000:0000:0000:ffff:c000:0201\n"},
        {"sys/class/infiniband/a/ports/1/gids/0", "fe80:0000:0000:0000:0a1b:2c3d:4e5f:6071\n",
         "fe80:0000:0000:0000:0000:0000:0000:0001\n"},
        {"sys/class/infiniband/a/ports/1/gids/9", "0000:0000:0000:0000:0000:0000:0000:0000\n",
         "0000:0000:0000:0000:0000:0000:0000:0000\n"},
        {"proc/cmdline", "root=UUID=aa ip=10.0.0.1 iommu=pt intel_iommu=on quiet\n",
         "iommu=pt intel_iommu=on \n"},
        {"proc/modules", "nvidia 1 2 - Live 0xffffffffc0a5b000\n", "nvidia 0 0 - Live 0x0\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ry_text out = {0};
        ry_facts_scrub(cases[i].path, cases[i].text, strlen(cases[i].text), &out);
        ry_text_add(&out, "", 1);
        assert_string_equal(out.data, cases[i].expected);
        free(out.data);
    }
}

/* Damaged XML is refused with a line that says where; none of it reaches hwloc. */
static void damaged_xml_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "<",
        "<topology>",
        "<?xml",
        "<topology version=\"2.0\"></topology>",
        "<a></a>",
        "<topology><object type=\"Machine\" cpuset=\"0x1\" nodeset=\"0x1\"/></topology>x",
        "<topology><object type=\"PU\" os_index=\"0\" cpuset=\"0x1\"/></topology>",
        "<topology><object type=\"Machine\" cpuset=\"0xf...f\" nodeset=\"0x1\"/></topology>",
        "<topology><object type=\"Machine\"/></topology>",
        "<topology><object type=\"Machine\" cpuset=\"0x1\" nodeset=\"0x1\"></topology>",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ry_facts *facts = NULL;
        ry_topo *topo = NULL;
        char why[200] = "";
        assert_int_equal(ry_facts_open_empty(&facts), RY_OK);
        assert_int_equal(ry_facts_put(facts, "topology.xml", bad[i], strlen(bad[i])), RY_OK);
        assert_int_equal(ry_topo_from_facts(facts, NULL, &topo, why, sizeof why), RY_ERR_INVALID);
        assert_true(strlen(why) > 10);
        ry_facts_close(facts);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths_that_lead_outside_are_refused),
        cmocka_unit_test(links_and_special_files_are_not_followed),
        cmocka_unit_test(a_huge_file_is_no_fact),
        cmocka_unit_test(overlays_show_and_hide),
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(what_is_recorded_names_nobody),
        cmocka_unit_test(gids_and_kernel_lines_are_cut),
        cmocka_unit_test(damaged_xml_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
