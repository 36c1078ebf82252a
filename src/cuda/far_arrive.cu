/* SPDX-License-Identifier: Apache-2.0 */
/* The waits for far peers, a warp for each channel: it sees to its own channel's failures while it
 * waits, so that between them nothing is left unseen. */
#include "cuda/far_wire.h"
#include "cuda/nic.h"
#include "cuda/wait.h"

/* A PE's channels to all peers. */
#define RY_FAR_WARPS_MAX (RY_GNIC_QPS_MAX / RY_SLOTS)

/* One turn of a wait on channel c to `pe`; 0: go on. Once anybody's deadline passed the exchange is
 * lost, so nobody else waits for his own. */
static __device__ int ry_far_turn(const struct ry_gpu_far *f, uint32_t pe, uint32_t c,
                                  uint32_t turn, uint64_t *until)
{
    uint64_t acked;
    int rc = ry_world_turn(&f->w, ry_world_channel(&f->w, pe, c), turn, &acked);

    if (!*until)
        *until = ry_global_ns() + f->w.timeout_ns;
    if (rc == RY_OK && ry_global_ns() >= *until)
        rc = RY_ERR_TIMEOUT;
    if (rc == RY_OK && (turn & 63u) == 63u && ry_far_lost(f))
        return RY_ERR_TIMEOUT; /* said already */
    return rc == RY_OK ? rc : ry_world_fail(&f->w, rc, pe, c);
}

/* Until the peer's part by channel c has arrived, and then until those of all other warps have:
 * what was sent by c may still fail, and the others may wait for a peer that waits for it. */
static __device__ int ry_far_await(const struct ry_gpu_far *f, enum ry_far_stage stage, uint32_t pe,
                                   uint32_t c, uint64_t gen, uint32_t *missing)
{
    const struct ry_sector *s =
        (const struct ry_sector *)(f->w.heap + ry_far_sector_at(f, stage, pe, c));
    uint64_t until = 0;
    bool mine = false;
    int rc = RY_OK;

    for (uint32_t turn = 0; rc == RY_OK; turn++) {
        if (!mine && ry_observe_signal(s) >= gen) {
            mine = true;
            atomicSub_block(missing, 1);
        }
        if (mine && *(volatile uint32_t *)missing == 0)
            break;
        if ((turn & 7u) == 7u)
            rc = ry_far_turn(f, pe, c, turn >> 3, &until);
    }
    return rc;
}

/* Until the mirror may be written again: nothing that was sent from it can be read or written by
 * any path any more. A proof read stands behind it; where it was refused or lost, another does. */
static __device__ void ry_far_vacate(const struct ry_gpu_far *f, uint32_t pe, uint32_t c)
{
    struct ry_channel *ch = ry_world_channel(&f->w, pe, c);
    struct ry_far_span *span = &f->span[pe * f->w.channels + c];
    uint64_t until = 0, end, st = ry_observe_state(ch);
    bool asked = false;

    for (uint32_t turn = 0; !ry_channel_reusable(ch, span->begin, span->end); turn++) {
        if (ry_far_turn(f, pe, c, turn, &until) != RY_OK)
            return;
        st = ry_observe_state(ch);
        if (!asked && (turn & 127u) == 127u && ry_state_of(st) == RY_CH_GOOD)
            asked = ry_channel_post_proof(ch, &f->w.env, &end) == RY_OK;
    }
    st = ry_observe_state(ch);
    span->begin = span->end = ry_packed_seq(ry_observe_ready(&ch->ring[ry_state_active(st)]));
}

static __global__ void __launch_bounds__(RY_FAR_WARPS_MAX * 32)
    ry_far_room_kernel(const __grid_constant__ struct ry_gpu_far f)
{
    uint32_t i = threadIdx.x / 32;

    if (threadIdx.x % 32 == 0)
        ry_far_vacate(&f, ry_far_peer(&f, i / f.w.channels), i % f.w.channels);
}

/* By the whole block: true once all that far peers sent in this stage is here. */
static __device__ bool ry_far_arrived(const struct ry_gpu_far *f, enum ry_far_stage stage,
                                      uint64_t gen)
{
    uint32_t i = threadIdx.x / 32;
    __shared__ uint32_t missing;
    int rc = RY_OK;

    if (threadIdx.x == 0)
        missing = blockDim.x / 32;
    __syncthreads(); /* the number, to all who lower it */
    if (threadIdx.x % 32 == 0)
        rc = ry_far_await(f, stage, ry_far_peer(f, i / f->w.channels), i % f->w.channels, gen,
                          &missing);
    return !__syncthreads_or(rc != RY_OK); /* signals' observers, to all who set flags */
}

/* Flags of all blocks of all far peers. */
static __device__ void ry_far_flags(const struct ry_gpu_far *f, uint64_t *flags, uint32_t blocks,
                                    uint64_t gen)
{
    for (uint32_t i = 0; i < f->n; i++) {
        uint32_t pe = ry_far_peer(f, i);

        for (uint32_t b = threadIdx.x; b < blocks; b += blockDim.x)
            ry_word_publish(flags + pe * RY_GPU_BLOCKS_MAX + b, gen);
    }
}

static __global__ void __launch_bounds__(RY_FAR_WARPS_MAX * 32)
    ry_far_ll_arrive_kernel(const __grid_constant__ struct ry_gpu_ll a,
                            const __grid_constant__ struct ry_gpu_far f, enum ry_far_stage stage)
{
    uint64_t gen = ry_word_observe(&a.c.turn->recv) + 1;
    uint8_t *mine = a.c.peer[a.c.pe];

    if (!ry_far_arrived(&f, stage, gen))
        return;
    if (stage == RY_FAR_DISPATCH) {
        ry_far_flags(&f, (uint64_t *)(mine + a.dispatch_flags_at), f.sent_blocks, gen);
        return;
    }
    for (uint32_t i = threadIdx.x; i < *a.kept_tokens * a.c.topk; i += blockDim.x) {
        int32_t id = a.kept_ids[i];

        if (id >= 0 && f.peers >> ry_place_expert_pe(&a.c.place, (uint32_t)id) & 1)
            ry_word_publish((uint64_t *)(mine + a.row_flags_at) + i, gen);
    }
    ry_far_flags(&f, (uint64_t *)(mine + a.end_flags_at), f.end_blocks, gen);
}

static __global__ void __launch_bounds__(RY_FAR_WARPS_MAX * 32)
    ry_far_ht_arrive_kernel(const __grid_constant__ struct ry_gpu_ht a,
                            const __grid_constant__ struct ry_gpu_far f, enum ry_far_stage stage)
{
    uint64_t gen = ry_word_observe(&a.c.turn->recv) + (stage != RY_FAR_PLAN);
    uint8_t *mine = a.c.peer[a.c.pe];
    uint32_t pes = a.c.place.pes;

    if (!ry_far_arrived(&f, stage, gen) || stage == RY_FAR_PLAN)
        return; /* a plan's words say their generation themselves */
    if (stage == RY_FAR_DISPATCH) {
        ry_far_flags(&f, (uint64_t *)(mine + a.l.dispatch_flags_at), f.sent_blocks, gen);
        return;
    }
    for (uint32_t i = threadIdx.x; i < *a.kept_tokens * pes; i += blockDim.x) {
        uint32_t pe = i % pes;

        if (f.peers >> pe & 1 && a.rank[pe * a.c.tokens_max + i / pes] >= 0)
            ry_word_publish((uint64_t *)(mine + a.l.row_flags_at) + i, gen);
    }
    ry_far_flags(&f, (uint64_t *)(mine + a.l.end_flags_at), f.end_blocks, gen);
}

extern "C" int ry_far_room_launch(const struct ry_gpu_far *f, void *stream)
{
    ry_far_room_kernel<<<1, f->n * f->w.channels * 32, 0, (cudaStream_t)stream>>>(*f);
    return (int)cudaGetLastError();
}

extern "C" int ry_far_ll_arrive_launch(const struct ry_gpu_ll *a, const struct ry_gpu_far *f,
                                       enum ry_far_stage stage, void *stream)
{
    ry_far_ll_arrive_kernel<<<1, f->n * f->w.channels * 32, 0, (cudaStream_t)stream>>>(*a, *f,
                                                                                       stage);
    return (int)cudaGetLastError();
}

extern "C" int ry_far_ht_arrive_launch(const struct ry_gpu_ht *a, const struct ry_gpu_far *f,
                                       enum ry_far_stage stage, void *stream)
{
    ry_far_ht_arrive_kernel<<<1, f->n * f->w.channels * 32, 0, (cudaStream_t)stream>>>(*a, *f,
                                                                                       stage);
    return (int)cudaGetLastError();
}
