/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the reference share. */
#ifndef RY_EP_REFERENCE_H
#define RY_EP_REFERENCE_H

#include <railyard/reference.h>

#include <stdbool.h>

#include "core/place.h"

struct ry_ref {
    ry_ref_job job;
    struct ry_place place;
    size_t hidden, topk;
    size_t row_bytes;               /* codes or bf16 of a row, without scales */
    size_t scale_bytes;             /* of one row; 0 with bf16 */
    uint16_t *x, *y, *sum16;        /* [hidden] scratch */
    float *pe_sum, *node_sum, *sum; /* [hidden] scratch */
    uint8_t *row, *scales;          /* one received row */
    void *received;                 /* memory of ry_ref_dispatch */
};

/* The expert that a token of `pe` chooses at k, or -1 if none or masked. */
int32_t ry_ref_choice(const struct ry_ref *ref, uint32_t pe, uint32_t token, uint32_t k);

/* Whether a choice of the token lies on PE `target`. */
bool ry_ref_goes_to(const struct ry_ref *ref, uint32_t pe, uint32_t token, uint32_t target);

/* Whether a choice of the token is `expert`. */
bool ry_ref_chooses(const struct ry_ref *ref, uint32_t pe, uint32_t token, uint32_t expert);

/* Whether PE `pe` takes part. */
bool ry_ref_is_active(const struct ry_ref *ref, uint32_t pe);

#endif
