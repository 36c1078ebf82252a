/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of bf16 added up in f32: the steps of combine as include/railyard/reference.h defines
 * them. */
#ifndef RY_EP_REDUCE_H
#define RY_EP_REDUCE_H

#include <stddef.h>
#include <stdint.h>

/* acc[i] += weight * row[i], product and sum rounded one by one. */
void ry_reduce_add_weighted(float *acc, const uint16_t *row, float weight, size_t hidden);

/* acc[i] += row[i]. */
void ry_reduce_add_row(float *acc, const uint16_t *row, size_t hidden);

/* acc[i] += part[i]. */
void ry_reduce_add_f32(float *acc, const float *part, size_t hidden);

#endif
