/* SPDX-License-Identifier: Apache-2.0 */
/* Each record gives the expected matrix, rails, backups and findings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <railyard/topo.h>

#include "records.h"

static ry_topo *load(const char *name, const ry_topo_options *options)
{
    char path[512], why[256] = "";
    ry_topo *topo = NULL;
    int status =
        ry_topo_load(record_path(path, sizeof path, name), options, &topo, why, sizeof why);
    if (status != RY_OK)
        fail_msg("%s: %s", name, why);
    return topo;
}

/* "mlx5_0:1=mlx5_1:1,..." : rails of a GPU and the backup of each. */
static void describe(const ry_topo *topo, uint32_t gpu, char *text, size_t cap)
{
    uint32_t rails[RY_TOPO_RAILS];
    uint32_t count = ry_topo_rails_for_gpu(topo, gpu, rails, RY_TOPO_RAILS);
    size_t len = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < count; i++) {
        const ry_topo_port *port = ry_topo_port_at(topo, rails[i]);
        uint32_t backup = 0;
        ry_backup_why why = ry_topo_backup(topo, gpu, rails[i], &backup);
        len += (size_t)snprintf(text + len, cap - len, "%s%s:%u=", i ? " " : "", port->device,
                                port->port);
        if (why == RY_BACKUP_NONE) {
            len += (size_t)snprintf(text + len, cap - len, "none");
        } else {
            const ry_topo_port *other = ry_topo_port_at(topo, backup);
            len += (size_t)snprintf(text + len, cap - len, "%s:%u/%s", other->device, other->port,
                                    why == RY_BACKUP_SAME_CARD   ? "card"
                                    : why == RY_BACKUP_NEIGHBOUR ? "neighbour"
                                                                 : "nearest");
        }
    }
}

struct expected {
    uint32_t gpu;
    const char *rails;
};

static void check_map(const ry_topo *topo, const struct expected *expected, size_t count)
{
    char text[1024];
    for (size_t i = 0; i < count; i++) {
        describe(topo, expected[i].gpu, text, sizeof text);
        assert_string_equal(text, expected[i].rails);
    }
}

#define CHECK_MAP(topo, ...)                                 \
    do {                                                     \
        static const struct expected list[] = {__VA_ARGS__}; \
        check_map(topo, list, sizeof list / sizeof list[0]); \
    } while (0)

static uint32_t count_issues(const ry_topo *topo, ry_topo_issue_kind kind)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < ry_topo_issue_count(topo); i++)
        count += ry_topo_issue_at(topo, i)->kind == kind;
    return count;
}

static void hgx_gives_each_gpu_its_nic(void **state)
{
    (void)state;
    ry_topo *topo = load("hgx-h100", NULL);
    assert_int_equal(ry_topo_gpu_count(topo), 8);
    assert_int_equal(ry_topo_port_count(topo), 8);
    assert_int_equal(ry_topo_numa_count(topo), 2);
    CHECK_MAP(topo, {0, "mlx5_0:1=mlx5_1:1/neighbour"}, {1, "mlx5_1:1=mlx5_0:1/neighbour"},
              {2, "mlx5_2:1=mlx5_3:1/neighbour"}, {3, "mlx5_3:1=mlx5_2:1/neighbour"},
              {4, "mlx5_4:1=mlx5_5:1/neighbour"}, {7, "mlx5_7:1=mlx5_6:1/neighbour"});
    assert_int_equal(ry_topo_issue_count(topo), 0);
    assert_string_equal(ry_topo_gpu_at(topo, 4)->cpus, "56-111,168-223");
    assert_int_equal(ry_topo_gpu_at(topo, 4)->numa, 1);
    assert_int_equal(ry_topo_gpu_at(topo, 4)->sm, 90);
    ry_topo_free(topo);
}

static void cloud_pairs_split_equally_near_nics(void **state)
{
    (void)state;
    ry_topo *topo = load("b200-ready", NULL);
    CHECK_MAP(topo, {0, "mlx5_0:1=mlx5_1:1/nearest"}, {1, "mlx5_1:1=mlx5_0:1/nearest"},
              {6, "mlx5_6:1=mlx5_7:1/nearest"}, {7, "mlx5_7:1=mlx5_6:1/nearest"});
    assert_int_equal(ry_topo_gpu_port(topo, 0, 1), RY_DISTANCE_PIX);
    assert_int_equal(ry_topo_issue_count(topo), 0);
    ry_topo_free(topo);
    topo = load("b200-bare", NULL);
    CHECK_MAP(topo, {0, "rocep145s0:1=rocep155s0:1/nearest"},
              {7, "rocep215s0:1=rocep205s0:1/nearest"});
    ry_topo_free(topo);
}

static void two_ports_of_a_card_back_each_other(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        ry_distance distance;
    } records[] = {{"two-port-pix", RY_DISTANCE_PIX}, {"two-port-pxb", RY_DISTANCE_PXB}};
    for (int i = 0; i < 2; i++) {
        ry_topo *topo = load(records[i].name, NULL);
        assert_int_equal(ry_topo_port_count(topo), 16);
        assert_int_equal(ry_topo_gpu_port(topo, 3, 6), records[i].distance);
        assert_int_equal(ry_topo_port_port(topo, 6, 7), RY_DISTANCE_PIX);
        CHECK_MAP(topo, {0, "mlx5_0:1=mlx5_1:1/card mlx5_1:1=mlx5_0:1/card"},
                  {3, "mlx5_6:1=mlx5_7:1/card mlx5_7:1=mlx5_6:1/card"},
                  {7, "mlx5_14:1=mlx5_15:1/card mlx5_15:1=mlx5_14:1/card"});
        assert_int_equal(ry_topo_issue_count(topo), 0);
        ry_topo_free(topo);
    }
}

static void odd_and_even_gpus_take_different_halves(void **state)
{
    (void)state;
    ry_topo *topo = load("four-port-pxb", NULL);
    CHECK_MAP(topo, {0, "mlx5_0:1=mlx5_1:1/card mlx5_1:1=mlx5_0:1/card"},
              {1, "mlx5_2:1=mlx5_3:1/card mlx5_3:1=mlx5_2:1/card"},
              {6, "mlx5_12:1=mlx5_13:1/card mlx5_13:1=mlx5_12:1/card"},
              {7, "mlx5_14:1=mlx5_15:1/card mlx5_15:1=mlx5_14:1/card"});
    for (uint32_t port = 0; port < 4; port++) {
        assert_int_equal(ry_topo_gpu_port(topo, 0, port), RY_DISTANCE_PXB);
        assert_int_equal(ry_topo_gpu_port(topo, 1, port), RY_DISTANCE_PXB);
    }
    ry_topo_free(topo);
}

static void two_equal_nics_go_one_each(void **state)
{
    (void)state;
    ry_topo *topo = load("two-equal", NULL);
    CHECK_MAP(topo, {0, "mlx5_0:1=mlx5_1:1/nearest"}, {1, "mlx5_1:1=mlx5_0:1/nearest"});
    assert_int_equal(ry_topo_gpu_port(topo, 1, 0), RY_DISTANCE_PHB);
    ry_topo_free(topo);
}

static void bonds_and_virtual_functions(void **state)
{
    (void)state;
    ry_topo *topo = load("bond", NULL);
    assert_true(ry_topo_port_at(topo, 0)->is_bond);
    CHECK_MAP(topo, {0, "mlx5_bond_0:1=mlx5_bond_1:1/nearest"});
    ry_topo_free(topo);
    topo = load("virtual-functions", NULL);
    assert_false(ry_topo_port_at(topo, 0)->is_virtual);
    assert_true(ry_topo_port_at(topo, 1)->is_virtual);
    assert_int_equal(ry_topo_port_at(topo, 2)->card, ry_topo_port_at(topo, 0)->card);
    CHECK_MAP(topo, {0, "mlx5_0:1=mlx5_3:1/nearest"}, {1, "mlx5_3:1=mlx5_0:1/nearest"});
    ry_topo_free(topo);
}

static void a_laptop_has_nothing(void **state)
{
    (void)state;
    ry_topo *topo = load("laptop", NULL);
    assert_int_equal(ry_topo_gpu_count(topo), 0);
    assert_int_equal(ry_topo_port_count(topo), 0);
    assert_int_equal(ry_topo_issue_count(topo), 0);
    ry_topo_free(topo);
}

/* nvidia-smi's matrix for the HGX machine, cell by cell. */
static void hgx_matrix_is_that_of_nvidia_smi(void **state)
{
    (void)state;
    char path[512], line[1024];
    ry_topo *topo = load("hgx-h100", NULL);
    FILE *file = fopen(record_path(path, sizeof path, "hgx-h100/expect/nvidia-smi-topo.txt"), "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    for (uint32_t i = 0; i < 16; i++) {
        char *rest = NULL;
        assert_non_null(fgets(line, sizeof line, file));
        assert_non_null(strtok_r(line, "\t\n", &rest));
        for (uint32_t j = 0; j < 16; j++) {
            uint32_t a = i < j ? i : j, b = i < j ? j : i;
            char cell[16];
            if (b < 8 && a != b)
                snprintf(cell, sizeof cell, "NV%u", ry_topo_nvlinks(topo, a, b));
            else
                snprintf(cell, sizeof cell, "%s",
                         ry_distance_name(b < 8   ? ry_topo_gpu_gpu(topo, a, b)
                                          : a < 8 ? ry_topo_gpu_port(topo, a, b - 8)
                                                  : ry_topo_port_port(topo, a - 8, b - 8)));
            assert_string_equal(cell, strtok_r(NULL, "\t\n", &rest));
        }
        if (i < 8)
            assert_string_equal(ry_topo_gpu_at(topo, i)->cpus, strtok_r(NULL, "\t\n", &rest));
    }
    fclose(file);
    ry_topo_free(topo);
}

static void settings_choose(void **state)
{
    (void)state;
    ry_topo_options options = {.hca = "^mlx5_1,^mlx5_2:1"};
    ry_topo *topo = load("hgx-h100", &options);
    /* the two GPUs without their own NIC share the two that are left in their socket */
    CHECK_MAP(topo, {0, "mlx5_0:1=mlx5_3:1/nearest"}, {1, "mlx5_0:1=mlx5_3:1/nearest"},
              {2, "mlx5_3:1=mlx5_0:1/nearest"}, {3, "mlx5_3:1=mlx5_0:1/nearest"});
    assert_int_equal(count_issues(topo, RY_TOPO_SHARED_PORT), 2);
    assert_int_equal(count_issues(topo, RY_TOPO_FEWER_PORTS), 1);
    assert_int_equal(count_issues(topo, RY_TOPO_UNUSED_PORT), 2);
    ry_topo_free(topo);
    options = (ry_topo_options){.gpu_nic_map = "0:mlx5_1:1,0:mlx5_2,1:mlx5_0"};
    topo = load("hgx-h100", &options);
    CHECK_MAP(topo, {0, "mlx5_1:1=mlx5_0:1/nearest mlx5_2:1=mlx5_0:1/nearest"},
              {1, "mlx5_0:1=mlx5_1:1/nearest"});
    ry_topo_free(topo);
}

static void wrong_settings_are_refused(void **state)
{
    (void)state;
    static const ry_topo_options wrong[] = {
        {.hca = "mlx5_9"},      {.hca = "mlx5_0:2"},          {.hca = ",,"},
        {.gpu_nic_map = "0"},   {.gpu_nic_map = "8:mlx5_0"},  {.gpu_nic_map = "0:mlx5_0:3"},
        {.gpu_nic_map = "x:y"}, {.gpu_nic_map = "0:nic:1,1"},
    };
    char path[512], why[256];
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        ry_topo *topo = NULL;
        why[0] = '\0';
        assert_int_equal(ry_topo_load(record_path(path, sizeof path, "hgx-h100"), &wrong[i], &topo,
                                      why, sizeof why),
                         RY_ERR_INVALID);
        assert_null(topo);
        assert_true(strlen(why) > 10);
    }
}

/* Opens a record and changes one fact before the topology is made. */
static ry_topo *load_changed(const char *name, const char *fact, const char *text)
{
    char path[512];
    ry_facts *facts = NULL;
    ry_topo *topo = NULL;
    assert_int_equal(ry_facts_open(record_path(path, sizeof path, name), &facts), RY_OK);
    assert_int_equal(ry_facts_put(facts, fact, text, text ? strlen(text) : 0), RY_OK);
    assert_int_equal(ry_topo_from_facts(facts, NULL, &topo, NULL, 0), RY_OK);
    ry_facts_close(facts);
    return topo;
}

static void a_dead_port_is_no_rail_and_no_backup(void **state)
{
    (void)state;
    ry_topo *topo =
        load_changed("two-port-pix", "sys/class/infiniband/mlx5_1/ports/1/state", "1: DOWN");
    CHECK_MAP(topo, {0, "mlx5_0:1=mlx5_2:1/nearest"});
    assert_int_equal(count_issues(topo, RY_TOPO_DOWN_PORT), 1);
    ry_topo_free(topo);
    topo = load_changed("two-equal", "sys/class/infiniband/mlx5_1", NULL);
    CHECK_MAP(topo, {0, "mlx5_0:1=none"}, {1, "mlx5_0:1=none"});
    assert_int_equal(count_issues(topo, RY_TOPO_NO_BACKUP), 2);
    assert_int_equal(count_issues(topo, RY_TOPO_SHARED_PORT), 1);
    assert_int_equal(count_issues(topo, RY_TOPO_FEWER_PORTS), 1);
    ry_topo_free(topo);
}

static void another_fabric_is_no_backup(void **state)
{
    (void)state;
    ry_topo *topo =
        load_changed("two-equal", "sys/class/infiniband/mlx5_1/ports/1/link_layer", "Ethernet");
    CHECK_MAP(topo, {0, "mlx5_0:1=none"}, {1, "mlx5_1:1=none"});
    ry_topo_free(topo);
}

static void unequal_rates_are_found(void **state)
{
    (void)state;
    ry_topo *topo = load_changed("hgx-h100", "sys/class/infiniband/mlx5_5/ports/1/rate",
                                 "200 Gb/sec (4X HDR)");
    assert_int_equal(count_issues(topo, RY_TOPO_UNEQUAL_RATES), 1);
    assert_string_equal(ry_topo_issue_at(topo, 0)->text,
                        "rails differ in rate: mlx5_0:1 has 400 Gb/s, mlx5_5:1 has 200 Gb/s");
    ry_topo_free(topo);
}

static void gpus_are_found_without_nvml(void **state)
{
    (void)state;
    ry_topo *topo = load_changed("hgx-h100", "facts/gpus", NULL);
    assert_int_equal(ry_topo_gpu_count(topo), 8);
    CHECK_MAP(topo, {5, "mlx5_5:1=mlx5_4:1/neighbour"});
    assert_int_equal(ry_topo_nvlinks(topo, 0, 1), 0);
    assert_int_equal(ry_topo_gpu_gpu(topo, 0, 1), RY_DISTANCE_NODE);
    assert_int_equal(ry_topo_gpu_gpu(topo, 0, 7), RY_DISTANCE_SYS);
    ry_topo_free(topo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hgx_gives_each_gpu_its_nic),
        cmocka_unit_test(cloud_pairs_split_equally_near_nics),
        cmocka_unit_test(two_ports_of_a_card_back_each_other),
        cmocka_unit_test(odd_and_even_gpus_take_different_halves),
        cmocka_unit_test(two_equal_nics_go_one_each),
        cmocka_unit_test(bonds_and_virtual_functions),
        cmocka_unit_test(a_laptop_has_nothing),
        cmocka_unit_test(hgx_matrix_is_that_of_nvidia_smi),
        cmocka_unit_test(settings_choose),
        cmocka_unit_test(wrong_settings_are_refused),
        cmocka_unit_test(a_dead_port_is_no_rail_and_no_backup),
        cmocka_unit_test(another_fabric_is_no_backup),
        cmocka_unit_test(unequal_rates_are_found),
        cmocka_unit_test(gpus_are_found_without_nvml),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
