/* SPDX-License-Identifier: Apache-2.0 */
/* An exchange on a fabric: peers that the fabric maps are written directly, all others through its
 * channels. */
#ifndef RY_CUDA_EP_FAR_H
#define RY_CUDA_EP_FAR_H

#include <railyard/gpu.h>

#include "cuda/world.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where it lives: memory that is zero. Nothing is allocated, since engines may be running. */
struct ry_gpu_ep_place {
    const struct ry_gpu_world *world;
    void *heap_part;              /* far_heap_bytes, at the same offset of every PE's heap */
    void *own;                    /* far_own_bytes of this GPU's memory */
    struct ry_gpu_status *status; /* pinned */
    uint32_t ports;               /* of a PE: to name rails */
};

/* `far`: the most peers that any PE reaches through channels. 0: attr is invalid. */
size_t ry_gpu_ep_far_heap_bytes(const ry_gpu_ep_attr *attr, uint32_t channels, uint32_t far);
size_t ry_gpu_ep_far_own_bytes(const ry_gpu_ep_attr *attr, uint32_t channels);
int ry_gpu_ep_create_far(const ry_gpu_ep_attr *attr, const struct ry_gpu_ep_place *at,
                         ry_gpu_ep **out);

/* For calls from now on: 0, and the first failure is the exchange's error. */
void ry_gpu_ep_far_failover(ry_gpu_ep *ep, int on);

#ifdef __cplusplus
}
#endif

#endif
