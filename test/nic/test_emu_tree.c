/* SPDX-License-Identifier: Apache-2.0 */
/* The port tree reads like /sys/class/infiniband. */
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nic/emu_yard.h"

static char root[64];

static void reads(const char *name, const char *want)
{
    char path[256], text[256] = "";
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", root, name);
    f = fopen(path, "r");
    assert_non_null(f);
    assert_non_null(fgets(text, sizeof(text), f));
    fclose(f);
    assert_string_equal(text, want);
}

static void remove_root(void)
{
    char cmd[128];

    snprintf(cmd, sizeof(cmd), "rm -r '%s'", root);
    assert_int_equal(system(cmd), 0);
}

static void test_tree(void **state)
{
    uint64_t rate[3] = {12500000000, 12500000000, 1250000000};
    struct yard y;
    struct ry_emu_cfg cfg = yard_cfg(&y, 2, 3);
    struct yard_path p;
    struct stat st;

    (void)state;
    strcpy(root, "/tmp/ry-tree-XXXXXX");
    assert_non_null(mkdtemp(root));
    strcat(root, "/ib");
    cfg.rate_bps = rate;
    memset(&y, 0, sizeof(y));
    yard_open(&y, &cfg);
    yard_path_open(&y, &p, 0, 1, 2, 2);
    yard_wqe(&p, RY_OP_WRITE, 0, 0, 4000, true);
    yard_ring(&p);
    assert_int_equal(yard_await(&p, 0, 100000), RY_CQE_REQ);
    yard_fault(&y, 0, (struct ry_nic_fault){.kind = RY_FAULT_PORT_DOWN, .rail = 1, .peer = -1});
    assert_int_equal(ry_emu_tree_write(y.pe[0].nic, root), 0);
    assert_int_equal(stat(root, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    reads("emu0/ports/1/state", "4: ACTIVE\n");
    reads("emu0/ports/2/state", "1: DOWN\n");
    reads("emu0/ports/1/rate", "100 Gb/sec (4X)\n");
    reads("emu1/ports/1/rate", "10 Gb/sec (4X)\n");
    reads("emu1/ports/1/counters/port_xmit_data", "1000\n"); /* words of 4 bytes */
    reads("emu1/ports/1/counters/port_xmit_packets", "1\n");
    reads("emu0/ports/1/counters/port_xmit_data", "0\n");
    yard_fault(&y, 0, (struct ry_nic_fault){.kind = RY_FAULT_CLEAR, .rail = 1, .peer = -1});
    assert_int_equal(ry_emu_tree_write(y.pe[0].nic, root), 0);
    reads("emu0/ports/2/state", "4: ACTIVE\n");
    yard_path_close(&p);
    yard_close(&y);
    root[strlen(root) - 3] = '\0';
    remove_root();
}

static void test_no_place(void **state)
{
    struct yard y;
    struct ry_emu_cfg cfg = yard_cfg(&y, 1, 1);

    (void)state;
    memset(&y, 0, sizeof(y));
    yard_open(&y, &cfg);
    assert_int_equal(ry_emu_tree_write(y.pe[0].nic, "/proc/no/such/place"), RY_ERR_SYSTEM);
    assert_int_equal(ry_emu_tree_write(y.pe[0].nic, NULL), RY_ERR_INVALID);
    yard_close(&y);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tree),
        cmocka_unit_test(test_no_place),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
