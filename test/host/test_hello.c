/* SPDX-License-Identifier: Apache-2.0 */
/* What two PEs tell each other before anything connects, and what must not contradict: each
 * contradiction ends in one line that names both. The NIC and the bootstrap are played here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "host/mesh.h"
#include "railyard/status.h"

enum { PES = 2, HEAP = 4096 };

static uint32_t layers[2]; /* of this PE's two rails */
static struct ry_hello peer;
static void (*change)(struct ry_hello *h);

static uint32_t rail_count(struct ry_nic *nic)
{
    (void)nic;
    return 2;
}

static int rail_info(struct ry_nic *nic, uint32_t rail, struct ry_rail_info *info)
{
    (void)nic;
    *info = (struct ry_rail_info){.link_layer = layers[rail], .rate_bps = 1000};
    memcpy(info->name, rail ? "here1:1" : "here0:1", 8);
    return RY_OK;
}

static enum ry_port_state rail_state(struct ry_nic *nic, uint32_t rail)
{
    (void)nic;
    (void)rail;
    return RY_PORT_UP;
}

static int mr_reg(struct ry_nic *nic, uint32_t rail, void *base, uint64_t len, bool remote,
                  struct ry_mr *out)
{
    (void)nic;
    (void)base;
    (void)len;
    (void)remote;
    *out = (struct ry_mr){rail, rail};
    return RY_OK;
}

/* The peer says what this PE says, but for what the test changes. */
static int allgather(struct ry_boot *b, const void *in, size_t len, void *out, uint64_t deadline)
{
    (void)b;
    (void)deadline;
    assert_int_equal(len, sizeof(peer));
    memcpy(&peer, in, len);
    memcpy(peer.rail[0].name, "there0:1", 9);
    if (change)
        change(&peer);
    memcpy(out, in, len);
    memcpy((uint8_t *)out + len, &peer, len);
    return RY_OK;
}

static int hello(void)
{
    static const struct ry_nic_ops nic_ops = {.rail_count = rail_count,
                                              .rail_info = rail_info,
                                              .rail_state = rail_state,
                                              .mr_reg = mr_reg};
    static const struct ry_boot_ops boot_ops = {.allgather = allgather};
    static uint8_t heap[HEAP];
    struct ry_nic nic = {.ops = &nic_ops};
    struct ry_boot boot = {.ops = &boot_ops, .n_pes = PES};
    struct ry_mesh m = {.n_pes = PES, .nic = &nic, .boot = &boot, .heap = heap, .heap_bytes = HEAP};
    int rc = ry_mesh_hello(&m, 0);

    free(m.peers);
    return rc;
}

static void refused(void (*how)(struct ry_hello *h), const char *first, const char *second)
{
    change = how;
    assert_int_equal(hello(), RY_ERR_CONFIG);
    change = NULL;
    assert_non_null(strstr(ry_last_error(), first));
    assert_non_null(strstr(ry_last_error(), second));
    assert_null(strchr(ry_last_error(), '\n'));
}

static void other_version(struct ry_hello *h) { memcpy(h->version, "9.8.7", 6); }
static void other_layout(struct ry_hello *h) { h->layout_version++; }
static void other_heap(struct ry_hello *h) { h->heap_bytes *= 2; }
static void other_nic(struct ry_hello *h) { memcpy(h->nic, "emu", 4); }
static void other_layers(struct ry_hello *h) { h->rail[0].link_layer = h->rail[1].link_layer = 1; }
static void one_other_layer(struct ry_hello *h) { h->rail[0].link_layer = 1; }

static void who_agrees_is_welcome(void **state)
{
    (void)state;
    layers[0] = layers[1] = 2;
    assert_int_equal(hello(), RY_OK);
}

static void contradictions_are_named(void **state)
{
    (void)state;
    layers[0] = layers[1] = 2;
    refused(other_version, "pe 1 runs 9.8.7", "install one version");
    refused(other_layout, "pe 0 runs railyard", "install one version");
    refused(other_heap, "RAILYARD_HEAP_SIZE", "pe 1 has 8192");
    refused(other_nic, "pe 1 has emu", "RAILYARD_NIC");
}

/* InfiniBand at one end and Ethernet at the other; one kind in common is enough. */
static void link_layers_must_meet(void **state)
{
    (void)state;
    layers[0] = layers[1] = 2;
    refused(other_layers, "here0:1 of pe 0 is ethernet", "there0:1 of pe 1 is infiniband");
    change = one_other_layer;
    assert_int_equal(hello(), RY_OK);
    change = NULL;
    layers[0] = 1;
    assert_int_equal(hello(), RY_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_agrees_is_welcome),
        cmocka_unit_test(contradictions_are_named),
        cmocka_unit_test(link_layers_must_meet),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
