/* SPDX-License-Identifier: Apache-2.0 */
/* The built-in gate: repeatable to the bit, skewed as recorded models are, and well formed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "ep/routing.h"
#include "ep/validate.h"

static const unsigned char text[] =
    "The mover closes a channel at a message boundary, reads once through the old path, and moves; "
    "the read's answer proves all before it. Nothing is replayed, and the OLD ring is emptied.";

static struct ry_gate *gate_open(uint32_t experts, uint32_t topk, uint64_t seed)
{
    ry_routing_attr attr = {experts, topk, seed};
    struct ry_gate *gate = NULL;
    assert_int_equal(ry_gate_open(text, sizeof(text) - 1, &attr, &gate), RY_OK);
    return gate;
}

/* FNV-1a over ids and weight bits of a pass. */
static uint64_t fingerprint(uint32_t experts, uint32_t topk, uint64_t seed)
{
    struct ry_gate *gate = gate_open(experts, topk, seed);
    uint64_t hash = 0xcbf29ce484222325u;
    int32_t ids[64];
    float weights[64];
    for (uint64_t t = 0; t < ry_gate_tokens(gate); t++) {
        ry_gate_route(gate, t, ids, weights);
        for (uint32_t k = 0; k < topk; k++) {
            uint32_t bits;
            memcpy(&bits, &weights[k], 4);
            hash = (hash ^ (uint32_t)ids[k]) * 0x100000001b3u;
            hash = (hash ^ bits) * 0x100000001b3u;
        }
    }
    ry_gate_close(gate);
    return hash;
}

/* The numbers are those of the first machine this ran on; any other must find the same. */
static void every_machine_routes_alike(void **state)
{
    (void)state;
    assert_int_equal(fingerprint(64, 8, 0), 0xe720d3862b30877);
    assert_int_equal(fingerprint(60, 4, 7), 0x7c74e091e35b81d);
    assert_int_not_equal(fingerprint(64, 8, 1), fingerprint(64, 8, 0));
}

static void words_are_what_the_text_has(void **state)
{
    struct ry_gate *gate = gate_open(16, 2, 3);
    int32_t a[2], b[2];
    float w[2];
    (void)state;
    assert_int_equal(ry_gate_tokens(gate), 34);
    ry_gate_route(gate, 0, a, w); /* "The" and, after "and", "the": the same word at other places */
    ry_gate_route(gate, 29, b, w);
    assert_int_equal(a[0], b[0]);
    ry_gate_close(gate);
}

static void a_text_without_words_is_refused(void **state)
{
    ry_routing_attr attr = {16, 2, 0};
    struct ry_gate *gate = NULL;
    (void)state;
    assert_int_equal(ry_gate_open((const unsigned char *)" .,-", 4, &attr, &gate), RY_ERR_INVALID);
    assert_null(gate);
}

static void routes_are_well_formed(void **state)
{
    static const uint32_t shapes[][2] = {{64, 8}, {60, 4}, {8, 8}, {1, 1}, {300, 10}};
    (void)state;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        uint32_t experts = shapes[i][0], topk = shapes[i][1];
        struct ry_gate *gate = gate_open(experts, topk, i);
        for (uint64_t t = 0; t < ry_gate_tokens(gate); t++) {
            int32_t ids[16];
            float weights[16], sum = 0;
            ry_gate_route(gate, t, ids, weights);
            struct ry_topk_view view = {ids, 32, 1, topk, topk, 1};
            assert_int_equal(ry_ep_topk_check(&view, experts, 1), RY_OK);
            for (uint32_t k = 0; k < topk; k++) {
                assert_true(ids[k] >= 0 && weights[k] > 0);
                assert_true(k == 0 || weights[k] <= weights[k - 1]);
                sum += weights[k];
            }
            assert_true(sum > 0.9999f && sum < 1.0001f);
        }
        ry_gate_close(gate);
    }
}

/* The built-in source, over the documents: the busiest expert has 2 to 5 times the mean. */
static void built_in_routing_is_skewed(void **state)
{
    static const uint32_t shapes[][2] = {{64, 8}, {60, 4}, {256, 8}, {16, 2}};
    (void)state;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        ry_routing_attr attr = {shapes[i][0], shapes[i][1], 0};
        ry_routing_info info;
        ry_routing *routing;
        uint32_t load[256] = {0}, busiest = 0;
        int32_t ids[8];
        float weights[8];
        assert_int_equal(ry_routing_open(NULL, &attr, &routing), RY_OK);
        ry_routing_get_info(routing, &info);
        assert_true(info.tokens > 200);
        for (uint64_t t = 0; t < info.tokens; t++) {
            assert_int_equal(ry_routing_next(routing, 1, ids, weights), RY_OK);
            for (uint32_t k = 0; k < attr.topk; k++)
                load[ids[k]]++;
        }
        for (uint32_t e = 0; e < attr.experts; e++)
            busiest = load[e] > busiest ? load[e] : busiest;
        double ratio = (double)busiest * attr.experts / ((double)info.tokens * attr.topk);
        assert_true(ratio >= 2 && ratio <= 5);
        ry_routing_close(routing);
    }
}

static void built_in_tokens_start_again(void **state)
{
    ry_routing_info info;
    ry_routing *routing;
    int32_t first[16], again[16];
    float w1[16], w2[16];
    (void)state;
    assert_int_equal(ry_routing_open(NULL, NULL, &routing), RY_OK);
    ry_routing_get_info(routing, &info);
    assert_int_equal(info.experts, 64);
    assert_int_equal(info.topk, 8);
    assert_string_equal(info.source, "built-in gate");
    assert_int_equal(ry_routing_next(routing, 2, first, w1), RY_OK);
    assert_int_equal(ry_routing_seek(routing, info.tokens), RY_OK);
    assert_int_equal(ry_routing_next(routing, 2, again, w2), RY_OK);
    assert_memory_equal(first, again, sizeof(first));
    assert_int_equal(ry_routing_seek(routing, info.tokens - 1), RY_OK);
    assert_int_equal(ry_routing_next(routing, 2, again, w2), RY_OK);
    assert_memory_equal(first, again + 8, 8 * sizeof(*first));
    assert_memory_equal(w1, w2 + 8, 8 * sizeof(*w1));
    ry_routing_close(routing);
}

static void impossible_gates_are_refused(void **state)
{
    ry_routing_attr attr = {.experts = 4, .topk = 5};
    ry_routing *routing;
    (void)state;
    assert_int_equal(ry_routing_open(NULL, &attr, &routing), RY_ERR_INVALID);
    assert_non_null(strstr(ry_last_error(), "4 experts for top-5"));
    attr.experts = RY_EP_EXPERTS_MAX + 1;
    assert_int_equal(ry_routing_open(NULL, &attr, &routing), RY_ERR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_machine_routes_alike),
        cmocka_unit_test(words_are_what_the_text_has),
        cmocka_unit_test(a_text_without_words_is_refused),
        cmocka_unit_test(routes_are_well_formed),
        cmocka_unit_test(built_in_routing_is_skewed),
        cmocka_unit_test(built_in_tokens_start_again),
        cmocka_unit_test(impossible_gates_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
