/* SPDX-License-Identifier: Apache-2.0 */
/* Placement against counting it out, layouts against each other: no two buffers or slots overlap.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "ep/place.h"

static void blocks_tile_every_small_case(void **state)
{
    (void)state;
    for (uint32_t total = 0; total <= 70; total++) {
        for (uint32_t parts = 1; parts <= 20; parts++) {
            uint32_t next = 0;
            for (uint32_t part = 0; part < parts; part++) {
                uint32_t size = ry_block_size(total, parts, part);
                assert_int_equal(ry_block_first(total, parts, part), next);
                assert_int_equal(size, total / parts + (part < total % parts));
                for (uint32_t i = 0; i < size; i++)
                    assert_int_equal(ry_block_of(total, parts, next + i), part);
                next += size;
            }
            assert_int_equal(next, total);
        }
    }
}

static void sixty_experts_on_eight_pes(void **state)
{
    struct ry_place p = {60, 8, 2};
    (void)state;
    assert_int_equal(ry_place_expert_count(&p, 3), 8);
    assert_int_equal(ry_place_expert_count(&p, 4), 7);
    assert_int_equal(ry_place_expert_count_max(&p), 8);
    assert_int_equal(ry_place_expert_pe(&p, 31), 3);
    assert_int_equal(ry_place_expert_pe(&p, 32), 4);
    assert_int_equal(ry_place_expert_local(&p, 59), 6);
    assert_int_equal(ry_place_node(&p, 3), 0);
    assert_int_equal(ry_place_node(&p, 4), 1);
}

static void forwarders_are_rail_aligned(void **state)
{
    struct ry_place p = {64, 8, 2};
    (void)state;
    assert_int_equal(ry_place_forwarder(&p, 1, 1), 5);
    assert_int_equal(ry_place_forwarder(&p, 6, 0), 2);
    assert_int_equal(ry_place_forwarder(&p, 6, 1), 6);
    assert_int_equal(ry_place_forward_places(&p), 1);
}

/* For every small job: a forwarder is in the node asked for, and no two sources share its place. */
static void forward_places_never_collide(void **state)
{
    (void)state;
    for (uint32_t pes = 1; pes <= 13; pes++) {
        for (uint32_t nodes = 1; nodes <= pes; nodes++) {
            struct ry_place p = {64, pes, nodes};
            uint32_t places = ry_place_forward_places(&p);
            uint8_t taken[13][64];
            memset(taken, 0, sizeof(taken));
            assert_true(places <= 64);
            for (uint32_t s = 0; s < pes; s++) {
                for (uint32_t node = 0; node < nodes; node++) {
                    uint32_t f = ry_place_forwarder(&p, s, node);
                    assert_int_equal(ry_place_node(&p, f), node);
                    if (node == ry_place_node(&p, s)) {
                        assert_int_equal(f, s);
                        continue;
                    }
                    uint32_t place = ry_place_forward_place(&p, s, node);
                    assert_true(place < places);
                    assert_false(taken[f][place]);
                    taken[f][place] = 1;
                }
            }
        }
    }
}

static struct ry_ep_shape shape_small(void)
{
    struct ry_ep_shape s = {.pes = 5,
                            .nodes = 2,
                            .experts = 7,
                            .topk = 3,
                            .hidden = 256,
                            .tokens_max = 6,
                            .channels = 2,
                            .generations = 2,
                            .fp8 = 1,
                            .scale_kind = RY_QUANT_UE8M0};
    return s;
}

static void row_bytes_follow_the_dtype(void **state)
{
    (void)state;
    assert_int_equal(ry_row_bytes(7168, 0, 0), 14336);
    assert_int_equal(ry_row_bytes(7168, 1, RY_QUANT_F32), 7168 + 224);
    assert_int_equal(ry_row_bytes(7168, 1, RY_QUANT_UE8M0), 7168 + 64);
    assert_int_equal(ry_row_bytes(128, 1, RY_QUANT_POW2), 128 + 16);
}

/* Marks bytes of the heap: a byte that two things claim, or that lies outside, fails. */
static void claim(uint8_t *heap, uint64_t bytes, uint64_t at, uint64_t size)
{
    assert_true(at + size <= bytes);
    for (uint64_t i = at; i < at + size; i++) {
        assert_int_equal(heap[i], 0);
        heap[i] = 1;
    }
}

static void ll_layout_overlaps_nowhere(void **state)
{
    struct ry_ep_shape s = shape_small();
    struct ry_ll_layout l;
    (void)state;
    assert_int_equal(ry_ll_layout_make(&s, &l), RY_OK);
    assert_int_equal(l.local_max, 2);
    assert_int_equal(l.slot_bytes, 256 + 16 + 16);
    assert_int_equal(l.total_bytes, 2 * l.generation_bytes);
    uint8_t *heap = calloc(1, l.generation_bytes);
    assert_non_null(heap);
    for (uint32_t e = 0; e < l.local_max; e++) {
        for (uint32_t p = 0; p < l.pes; p++) {
            for (uint32_t t = 0; t < l.tokens_max; t++)
                claim(heap, l.generation_bytes, ry_ll_slot_at(&l, e, p, t), l.slot_bytes);
            for (uint32_t c = 0; c < l.channels; c++)
                claim(heap, l.generation_bytes, ry_ll_dispatch_signal_at(&l, e, p, c), 32);
        }
    }
    for (uint32_t pair = 0; pair < l.tokens_max * l.topk; pair++)
        claim(heap, l.generation_bytes, ry_ll_combine_row_at(&l, pair), 512);
    for (uint32_t p = 0; p < l.pes; p++)
        for (uint32_t c = 0; c < l.channels; c++)
            claim(heap, l.generation_bytes, ry_ll_combine_signal_at(&l, p, c), 32);
    claim(heap, l.generation_bytes, l.stage_at, l.tokens_max * l.row_bytes);
    claim(heap, l.generation_bytes, l.combine_stage_at, 5ull * 6 * 2 * 512);
    free(heap);
}

static void ht_layout_overlaps_nowhere(void **state)
{
    struct ry_ep_shape s = shape_small();
    struct ry_ht_layout l;
    (void)state;
    assert_int_equal(ry_ht_layout_make(&s, &l), RY_OK);
    assert_int_equal(l.record_bytes, 16 + 16 + 16 + 256 + 16);
    assert_int_equal(l.forward_places, 2);
    assert_int_equal(l.node_pes_max, 3);
    uint64_t n = l.generation_bytes;
    uint8_t *heap = calloc(1, n);
    assert_non_null(heap);
    for (uint32_t t = 0; t < l.tokens_max; t++) {
        for (uint32_t p = 0; p < l.pes; p++)
            claim(heap, n, ry_ht_record_at(&l, p, t), l.record_bytes);
        for (uint32_t f = 0; f < l.forward_places; f++)
            claim(heap, n, ry_ht_forward_at(&l, f, t), l.record_bytes);
        for (uint32_t f = 0; f <= l.forward_places; f++)
            for (uint32_t p = 0; p < l.node_pes_max; p++)
                claim(heap, n, ry_ht_node_row_at(&l, f, t, p), 512);
        for (uint32_t d = 0; d < l.nodes; d++)
            claim(heap, n, ry_ht_crossed_row_at(&l, d, t), 512);
    }
    claim(heap, n, l.record_signals_at, 5ull * 2 * 32);
    claim(heap, n, l.forward_signals_at, 2ull * 2 * 32);
    claim(heap, n, l.node_signals_at, 3ull * 3 * 2 * 32);
    claim(heap, n, l.crossed_signals_at, 2ull * 2 * 32);
    claim(heap, n, l.stage_at, 6 * l.record_bytes);
    claim(heap, n, l.combine_stage_at, 5ull * 6 * 512);
    claim(heap, n, l.cross_stage_at, 2ull * 6 * 512);
    free(heap);
}

static void too_large_a_shape_is_refused(void **state)
{
    struct ry_ep_shape s = {.pes = RY_EP_PES_MAX,
                            .nodes = 1,
                            .experts = RY_EP_EXPERTS_MAX,
                            .topk = 1024,
                            .hidden = RY_EP_HIDDEN_MAX,
                            .tokens_max = RY_EP_TOKENS_MAX,
                            .channels = RY_EP_CHANNELS_MAX,
                            .generations = RY_EP_GENERATIONS_MAX};
    struct ry_ht_layout ht;
    struct ry_ll_layout ll;
    (void)state;
    memset(&ll, 0xa5, sizeof(ll));
    s.experts = 65536;
    s.nodes = 30000; /* uneven, so that forwarders are shared */
    assert_int_equal(ry_ht_layout_make(&s, &ht), RY_ERR_INVALID);
    assert_non_null(strstr(ry_last_error(), "exceed the address space"));
    s.pes = 2;
    s.nodes = 1;
    assert_int_equal(ry_ll_layout_make(&s, &ll), RY_ERR_INVALID);
    assert_int_equal(ll.total_bytes, 0xa5a5a5a5a5a5a5a5u);
}

static void a_small_heap_says_what_it_needs(void **state)
{
    (void)state;
    assert_int_equal(ry_ep_heap_check("low-latency", 5, 5), RY_OK);
    assert_int_equal(ry_ep_heap_check("low-latency", 3 * 1048576 + 1, 1048576), RY_ERR_NO_MEMORY);
    assert_string_equal(ry_last_error(),
                        "heap too small: low-latency needs 3145729 bytes (4M), 1048576 are free; "
                        "make the heap larger or lower tokens or hidden");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_tile_every_small_case),
        cmocka_unit_test(sixty_experts_on_eight_pes),
        cmocka_unit_test(forwarders_are_rail_aligned),
        cmocka_unit_test(forward_places_never_collide),
        cmocka_unit_test(row_bytes_follow_the_dtype),
        cmocka_unit_test(ll_layout_overlaps_nowhere),
        cmocka_unit_test(ht_layout_overlaps_nowhere),
        cmocka_unit_test(too_large_a_shape_is_refused),
        cmocka_unit_test(a_small_heap_says_what_it_needs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
