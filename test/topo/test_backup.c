/* SPDX-License-Identifier: Apache-2.0 */
/* On every record: what the library's channels take for a backup is what topo prints. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "host/rail_place.h"
#include "records.h"

/* Rails of one PE with this GPU: every port that topo may use for it, in the order of ports. */
static uint32_t rails_of(const ry_topo *topo, char names[][RY_NIC_NAME_BYTES], uint32_t *ports)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < ry_topo_port_count(topo) && n < RY_RAILS_MAX; i++) {
        const ry_topo_port *p = ry_topo_port_at(topo, i);

        if (!p->active || p->excluded)
            continue;
        snprintf(names[n], RY_NIC_NAME_BYTES, "%.40s:%u", p->device, p->port);
        ports[n++] = i;
    }
    return n;
}

static uint32_t compare(const ry_topo *topo, uint32_t gpu)
{
    char names[RY_RAILS_MAX][RY_NIC_NAME_BYTES];
    struct ry_rail_place place[RY_RAILS_MAX];
    uint32_t ports[RY_RAILS_MAX], compared = 0;
    struct ry_hello h = {.rails = rails_of(topo, names, ports)};

    ry_rail_places(topo, gpu, names, h.rails, place);
    for (uint32_t i = 0; i < h.rails; i++) {
        h.rail[i].nic = ry_topo_port_at(topo, ports[i])->nic;
        h.rail[i].backup = place[i].backup;
        h.rail[i].distance = place[i].distance;
    }
    for (uint32_t i = 0; i < h.rails; i++) {
        uint32_t want, to = RY_RAILS_MAX, to_peer = RY_RAILS_MAX;

        if (ry_topo_backup(topo, gpu, ports[i], &want) == RY_BACKUP_NONE)
            continue;
        if (place[i].backup == RY_RAILS_MAX)
            continue; /* more ports than a PE has rails */
        assert_true(ry_plan_backup(&h, &h, i, i, &to, &to_peer));
        assert_int_equal(ports[to], want);
        assert_int_equal(to, to_peer);
        compared++;
    }
    return compared;
}

static void the_library_and_topo_agree(void **state)
{
    static const char *const records[] = {"b200-bare",    "b200-ready",       "four-port-pxb",
                                          "hgx-h100",     "two-equal",        "two-port-pix",
                                          "two-port-pxb", "virtual-functions"};

    (void)state;
    for (size_t i = 0; i < sizeof(records) / sizeof(*records); i++) {
        const ry_topo_options none = {.hca = NULL};
        char path[512], why[256] = "";
        ry_topo *topo = NULL;
        uint32_t compared = 0;

        if (ry_topo_load(record_path(path, sizeof(path), records[i]), &none, &topo, why,
                         sizeof(why)) != RY_OK)
            fail_msg("%s: %s", records[i], why);
        for (uint32_t g = 0; g < ry_topo_gpu_count(topo); g++)
            compared += compare(topo, g);
        if (!compared)
            fail_msg("%s: no backup was compared", records[i]);
        ry_topo_free(topo);
    }
}

/* Two ports of one device would be each other's backup; the topology's word goes before it. */
static void the_topology_goes_before_the_device(void **state)
{
    struct ry_hello h = {.rails = 4};
    uint32_t to, to_peer;

    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        h.rail[i].nic = i / 2;
        h.rail[i].backup = RY_RAILS_MAX;
    }
    assert_true(ry_plan_backup(&h, &h, 0, 0, &to, &to_peer));
    assert_int_equal(to, 1);
    h.rail[0].backup = 3;
    assert_true(ry_plan_backup(&h, &h, 0, 0, &to, &to_peer));
    assert_int_equal(to, 3);
    assert_int_equal(to_peer, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_library_and_topo_agree),
                                       cmocka_unit_test(the_topology_goes_before_the_device)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
