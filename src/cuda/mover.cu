/* SPDX-License-Identifier: Apache-2.0 */
/* What the agent launches when no kernel may be there to act: a warp that looks at every channel
 * and moves what must move, until nothing is outstanding or its time is over. GOOD -> MOVING has
 * one winner, so that a kernel that is there after all does no harm. */
#include "cuda/fabric.h"
#include "cuda/rma.h"

static __device__ bool ry_mover_busy(const struct ry_channel *ch)
{
    uint64_t st = ry_observe_state(ch);
    const struct ry_ring *r = &ch->ring[ry_state_active(st)];

    return ry_state_of(st) != RY_CH_DEAD &&
           (ry_state_of(st) != RY_CH_GOOD ||
            ry_packed_seq(ry_observe_cons(r)) != ry_packed_seq(ry_observe_ready(r)));
}

extern "C" __global__ void ry_mover_kernel(const __grid_constant__ struct ry_gpu_world w,
                                           uint64_t for_ns, uint32_t planned)
{
    uint64_t until = ry_global_ns() + for_ns;

    for (uint32_t i = threadIdx.x; i < w.pes * w.channels; i += blockDim.x) {
        struct ry_channel *ch = &w.ch[i];
        uint64_t acked;

        if (i / w.channels == w.pe)
            continue;
        if (planned >> i & 1)
            ry_channel_move(ch, RY_MOVE_PLANNED, ry_observe_state(ch), &w.env);
        do {
            ry_channel_progress(ch, &w.env, &acked);
        } while (ry_mover_busy(ch) && ry_global_ns() < until);
    }
}

extern "C" int ry_mover_launch(const struct ry_gpu_world *w, uint64_t for_ns, uint32_t planned,
                               void *stream)
{
    ry_mover_kernel<<<1, 32, 0, (cudaStream_t)stream>>>(*w, for_ns, planned);
    return (int)cudaGetLastError();
}
