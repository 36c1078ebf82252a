/* SPDX-License-Identifier: Apache-2.0 */
/* The whole grammar of fault plans, and what is said of a bad one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <railyard/fault.h>

#include "host/fault_spec.h"

static struct ry_spec spec;

static void good(const char *text)
{
    if (ry_spec_parse(text, &spec) != RY_OK)
        fail_msg("%s", ry_last_error());
}

static void kinds_and_keys(void **state)
{
    (void)state;
    good("port-down@200ms:pe0/rail1:for=300ms;flap@0:pe1/rail0:count=3,period=50ms;"
         "stall@op5000:rail2:for=1s;drop@iter10:pe3:p=0.25;ack-drop@1s:pe0-pe1/rail0:p=1;"
         "delay@1us:pe0/rail0:us=50,jitter=12.5;ghost@2ms:pe0/rail0:us=900;"
         "cqe-error@op1:pe0/rail0:syndrome=0x15,vendor=7;qp-error@op2:pe0/rail0;"
         "nic-down@5ms:pe2/rail0:for=1s;slow@0:rail1:factor=8;gid-change@3ms:pe0/rail0;"
         "kill@iter7:pe5:return=2s");
    assert_int_equal(spec.n, 13);
    for (uint32_t i = 0; i < spec.n; i++)
        assert_int_equal(spec.event[i].kind, i);
    assert_int_equal(spec.event[0].at, 200000000);
    assert_int_equal(spec.event[0].pe, 0);
    assert_int_equal(spec.event[0].rail, 1);
    assert_int_equal(spec.event[0].for_ns, 300000000);
    assert_int_equal(spec.event[1].count, 3);
    assert_int_equal(spec.event[1].period_ns, 50000000);
    assert_int_equal(spec.event[2].when, RY_SPEC_AT_OP);
    assert_int_equal(spec.event[2].at, 5000);
    assert_int_equal(spec.event[2].pe, RY_SPEC_ANY);
    assert_int_equal(spec.event[3].when, RY_SPEC_AT_ITERATION);
    assert_int_equal(spec.event[3].rail, RY_SPEC_ANY);
    assert_true(spec.event[3].p == 0.25);
    assert_int_equal(spec.event[4].peer, 1);
    assert_int_equal(spec.event[5].delay_ns, 50000);
    assert_int_equal(spec.event[5].jitter_ns, 12500);
    assert_int_equal(spec.event[7].syndrome, 0x15);
    assert_int_equal(spec.event[7].vendor, 7);
    assert_true(spec.event[10].factor == 8);
    assert_int_equal(spec.event[12].return_ns, 2000000000);
}

static void bad(const char *text, const char *part)
{
    struct ry_spec before = spec;
    int rc = ry_spec_parse(text, &spec);

    assert_int_equal(rc, RY_ERR_INVALID);
    assert_memory_equal(&before, &spec, sizeof spec);
    if (strstr(ry_last_error(), part) == NULL)
        fail_msg("'%s' is not in '%s'", part, ry_last_error());
}

static void errors_name_the_column(void **state)
{
    (void)state;
    bad("", "column 1: ''");
    bad("prot-down@1ms:pe0", "column 1: 'prot-down': unknown kind");
    bad("port-down", "has no '@'");
    bad("port-down@soon:pe0", "column 11: 'soon': not a moment");
    bad("port-down@op:pe0", "column 11");
    bad("port-down@1ms", "has no target");
    bad("port-down@1ms:eth0", "column 15: 'eth0': not a target");
    bad("port-down@1ms:pe0/", "column 15: 'pe0/'");
    bad("port-down@1ms:pe0/rail0/rail1", "not a target");
    bad("port-down@1ms:pe0-pe1", "not a target");
    bad("stall@1ms:pe1-pe1/rail0", "no pair");
    bad("port-down@1ms:pe0-pe1/rail0", "whole port");
    bad("port-down@1ms:pe0/rail0:p=1", "column 25: 'p': port-down has no such key: it takes for=");
    bad("qp-error@1ms:pe0/rail0:for=1s", "it takes none");
    bad("port-down@1ms:pe0/rail0:for", "has no value");
    bad("port-down@1ms:pe0/rail0:for=-1s", "column 29: '-1s': bad value of for");
    bad("port-down@1ms:pe0/rail0:for=1s,for=2s", "twice");
    bad("drop@1ms:pe0:p=1.5", "0 to 1");
    bad("drop@1ms:pe0:p=nan", "0 to 1");
    bad("slow@1ms:pe0:factor=0.5", "from 1");
    bad("cqe-error@1ms:pe0:syndrome=0x155", "a byte");
    bad("flap@1ms:pe0:count=0", "from 1");
    bad("kill@1ms:pe0/rail1", "kill takes a PE");
    bad("kill@1ms:rail1", "kill takes a PE");
    bad("qp-error@1ms:pe0;;", "column 18: ''");
    bad("port-down@1ms:pe99999999999999999999", "not a target");
}

static void fits_the_job(void **state)
{
    (void)state;
    assert_int_equal(ry_fault_check("port-down@1ms:pe7/rail1", 8, 2), RY_OK);
    assert_int_equal(ry_fault_check("port-down@1ms:pe8/rail1", 8, 2), RY_ERR_INVALID);
    assert_string_equal(ry_last_error(), "fault plan, column 15: pe8 does not exist: the job has "
                                         "pe0 to pe7");
    assert_int_equal(ry_fault_check("port-down@1ms:pe7/rail2", 8, 2), RY_ERR_INVALID);
    assert_non_null(strstr(ry_last_error(), "column 19: rail2 does not exist"));
    assert_int_equal(ry_fault_check("stall@1ms:pe0-pe9/rail0", 8, 2), RY_ERR_INVALID);
    assert_non_null(strstr(ry_last_error(), "column 15: pe9"));
}

static void too_many(void **state)
{
    static char text[RY_SPEC_EVENTS_MAX * 20 + 40];
    size_t len = 0;

    (void)state;
    for (uint32_t i = 0; i < RY_SPEC_EVENTS_MAX; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, "%sstall@1ms:pe0", i ? ";" : "");
    good(text);
    assert_int_equal(spec.n, RY_SPEC_EVENTS_MAX);
    snprintf(text + len, sizeof text - len, ";stall@1ms:pe0");
    bad(text, "more than 256 events");
}

static void kills_return_each_in_its_time(void **state)
{
    uint64_t ns[4] = {7, 7, 7, 7};

    (void)state;
    assert_int_equal(ry_fault_returns("kill@iter9:pe1;port-down@1ms:pe0/rail1;"
                                      "kill@iter7:pe3:return=2s;kill@1ms:pe2:return=30ms",
                                      4, ns),
                     RY_OK);
    assert_int_equal(ns[0], 0);
    assert_int_equal(ns[1], 0);
    assert_int_equal(ns[2], 30000000);
    assert_int_equal(ns[3], 2000000000);
    assert_int_equal(ry_fault_returns("kill@", 4, ns), RY_ERR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_and_keys),
        cmocka_unit_test(errors_name_the_column),
        cmocka_unit_test(fits_the_job),
        cmocka_unit_test(too_many),
        cmocka_unit_test(kills_return_each_in_its_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
