/* SPDX-License-Identifier: Apache-2.0 */
/* Counts what is lost, doubled or wrong in what a dispatch or combine gave. Each row is compared
 * with the definition, not with another buffer; whatever the numbers in `got` say, nothing is
 * read beyond the rows that its shape allows. */
#include <stdlib.h>
#include <string.h>

#include "ep/reference.h"
#include "host/error.h"

/* Whether row number `row` of got is the received row of the token. */
static bool row_is_right(ry_ref *ref, const ry_ep_output *got, size_t row, uint32_t source,
                         uint32_t token)
{
    ry_ref_received_row(ref, source, token, ref->row, ref->scales);
    if (memcmp((const uint8_t *)got->x + row * got->x_stride, ref->row, ref->row_bytes) != 0)
        return false;
    return ref->scale_bytes == 0 || memcmp((const uint8_t *)got->scales + row * got->scales_stride,
                                           ref->scales, ref->scale_bytes) == 0;
}

/* Tallies a row that claims to be `token`; seen has a byte for each token of its source. Returns
 * whether it is the first good claim. */
static bool claim(uint8_t *seen, bool expected, bool right, ry_ref_tally *tally)
{
    if (!expected) {
        tally->corrupted++;
        return false;
    }
    if (*seen)
        tally->duplicated++;
    else if (!right)
        tally->corrupted++;
    bool first = !*seen;
    *seen = 1;
    return first && right;
}

/* --- low-latency --- */

/* The rows of one (local expert, source). */
static void check_pair(ry_ref *ref, uint32_t expert, uint32_t source, size_t pair,
                       const ry_ep_output *got, uint8_t *seen, ry_ref_tally *tally)
{
    uint32_t tokens = ry_ref_is_active(ref, source) ? ref->job.tokens[source] : 0;
    uint32_t count = got->count[pair];
    size_t base = pair * ref->job.attr.tokens_max;
    memset(seen, 0, tokens);
    if (count > ref->job.attr.tokens_max) {
        tally->corrupted++;
        count = ref->job.attr.tokens_max;
    }
    for (size_t row = base; row < base + count; row++) {
        uint32_t token = got->src_token[row];
        bool expected = token < tokens && ry_ref_chooses(ref, source, token, expert);
        bool right = expected && row_is_right(ref, got, row, source, token);
        claim(expected ? &seen[token] : NULL, expected, right, tally);
    }
    for (uint32_t t = 0; t < tokens; t++) {
        bool due = ry_ref_chooses(ref, source, t, expert);
        tally->checked += due;
        tally->lost += due && !seen[t];
    }
}

static void check_ll(ry_ref *ref, uint32_t pe, const ry_ep_output *got, uint8_t *seen,
                     ry_ref_tally *tally)
{
    uint32_t first = ry_place_expert_first(&ref->place, pe);
    uint64_t rows = 0;
    for (uint32_t e = 0; e < ry_place_expert_count(&ref->place, pe); e++) {
        uint64_t expert_rows = 0;
        for (uint32_t source = 0; source < ref->place.pes; source++) {
            size_t pair = (size_t)e * ref->place.pes + source;
            check_pair(ref, first + e, source, pair, got, seen, tally);
            expert_rows += got->count[pair];
        }
        tally->corrupted += expert_rows != got->expert_rows[e];
        rows += expert_rows;
    }
    tally->corrupted += rows != got->rows;
}

/* --- high-throughput --- */

/* Local ids everywhere, weights where there is an expert; adds to the counts of rows per expert. */
static bool choices_are_right(const ry_ref *ref, uint32_t pe, uint32_t source, uint32_t token,
                              const ry_ep_output *got, size_t row, uint32_t *expert_rows)
{
    bool right = true;
    for (uint32_t k = 0; k < ref->topk; k++) {
        int32_t e = ry_ref_choice(ref, source, token, k);
        bool here = e >= 0 && ry_place_expert_pe(&ref->place, (uint32_t)e) == pe;
        int32_t local = here ? (int32_t)ry_place_expert_local(&ref->place, (uint32_t)e) : -1;
        size_t at = row * ref->topk + k;
        right = right && got->topk_idx[at] == local;
        if (!here)
            continue;
        expert_rows[local]++;
        right = right && memcmp(&got->topk_weight[at],
                                &ref->job.topk_weight[source][(size_t)token * ref->topk + k],
                                sizeof(float)) == 0;
    }
    return right;
}

/* A row of a source that was lost in mid-dispatch: it may stand there as long as it chooses
 * nothing. */
static bool is_absent(const ry_ref *ref, const ry_ep_output *got, size_t row)
{
    uint32_t source = got->row_source[row];
    bool none = source < ref->place.pes && !ry_ref_is_active(ref, source);
    for (uint32_t k = 0; k < ref->topk; k++)
        none = none && got->topk_idx[row * ref->topk + k] < 0;
    return none;
}

/* seen has tokens_max bytes a source. */
static void check_rows(ry_ref *ref, uint32_t pe, const ry_ep_output *got, uint8_t *seen,
                       uint32_t *expert_rows, ry_ref_tally *tally)
{
    size_t stride = ref->job.attr.tokens_max;
    size_t room = (size_t)ref->place.pes * stride;
    size_t rows = got->rows;
    int64_t before = -1;
    if (rows > room) {
        tally->corrupted++;
        rows = room;
    }
    for (size_t row = 0; row < rows; row++) {
        uint32_t source = got->row_source[row], token = got->src_token[row];
        if (is_absent(ref, got, row))
            continue;
        bool expected = source < ref->place.pes && ry_ref_is_active(ref, source) &&
                        token < ref->job.tokens[source] && ry_ref_goes_to(ref, source, token, pe);
        size_t at = expected ? source * stride + token : 0;
        bool right = expected && row_is_right(ref, got, row, source, token) &&
                     choices_are_right(ref, pe, source, token, got, row, expert_rows);
        if (claim(expected ? &seen[at] : NULL, expected, right, tally)) {
            tally->corrupted += (int64_t)at < before;
            before = (int64_t)at;
        }
    }
}

static void check_ht(ry_ref *ref, uint32_t pe, const ry_ep_output *got, uint8_t *seen,
                     uint32_t *expert_rows, ry_ref_tally *tally)
{
    ry_ref_tally before = *tally;
    check_rows(ref, pe, got, seen, expert_rows, tally);
    for (uint32_t source = 0; source < ref->place.pes; source++) {
        uint32_t tokens = ry_ref_is_active(ref, source) ? ref->job.tokens[source] : 0;
        for (uint32_t t = 0; t < tokens; t++) {
            bool due = ry_ref_goes_to(ref, source, t, pe);
            tally->checked += due;
            tally->lost += due && !seen[(size_t)source * ref->job.attr.tokens_max + t];
        }
    }
    if (before.lost != tally->lost || before.duplicated != tally->duplicated ||
        before.corrupted != tally->corrupted)
        return; /* rows are wrong already, so counts of them say nothing more */
    for (uint32_t e = 0; e < ry_place_expert_count(&ref->place, pe); e++)
        tally->corrupted += expert_rows[e] != got->expert_rows[e];
}

int ry_ref_check_dispatch(ry_ref *ref, uint32_t pe, const ry_ep_output *got, ry_ref_tally *tally)
{
    uint8_t *seen = calloc(ref->place.pes, ref->job.attr.tokens_max);
    uint32_t *expert_rows =
        calloc(ry_place_expert_count(&ref->place, pe) + 1u, sizeof(*expert_rows));
    int status = RY_OK;
    if (!seen || !expert_rows)
        status = ry_fail(RY_ERR_NO_MEMORY, "no memory to check a dispatch to pe %u", pe);
    else if (ref->job.attr.mode == RY_EP_LL)
        check_ll(ref, pe, got, seen, tally);
    else
        check_ht(ref, pe, got, seen, expert_rows, tally);
    free(expert_rows);
    free(seen);
    return status;
}

void ry_ref_check_combine(ry_ref *ref, uint32_t pe, const void *out, size_t out_stride,
                          ry_ref_tally *tally)
{
    for (uint32_t t = 0; t < ref->job.tokens[pe]; t++) {
        ry_ref_combined_row(ref, pe, t, ref->y);
        tally->checked++;
        tally->corrupted +=
            memcmp((const uint8_t *)out + t * out_stride, ref->y, 2 * ref->hidden) != 0;
    }
}
