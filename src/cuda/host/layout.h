/* SPDX-License-Identifier: Apache-2.0 */
/* Where the buffers and flags of a GPU exchange lie in a PE's heap part. */
#ifndef RY_CUDA_LAYOUT_H
#define RY_CUDA_LAYOUT_H

#include "cuda/args.h"
#include "ep/place.h"
#include "ep/validate.h"

/* The shape of an exchange whose PEs all reach each other's memory. */
struct ry_ep_shape ry_gpu_shape(const struct ry_gpu_ep_attr *attr);

/* Fill in the layout; *generation_bytes is what one generation takes, a multiple of 256. INVALID:
 * as ry_ep_shape_check. */
int ry_gpu_ll_layout(const struct ry_ep_shape *s, struct ry_gpu_ll *a, uint64_t *generation_bytes);
int ry_gpu_ht_layout(const struct ry_ep_shape *s, struct ry_gpu_ht *a, uint64_t *generation_bytes);

#endif
