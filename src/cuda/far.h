/* SPDX-License-Identifier: Apache-2.0 */
/* Peers that are reached through channels ("far"), beside those whose memory is mapped.
 *
 * A far peer's buffers have a mirror in this PE's heap, laid out alike. The kernels of dispatch and
 * combine write the mirror as they would write the peer, and know nothing of channels. Small
 * kernels between them do the rest:
 *
 *   room     before anything is written: every message that was sent from these mirrors is released
 *            and every path that carried it is proven or fenced
 *   post     sends what stands in the mirrors, by bytes alike over all channels to a peer, and ends
 *            each channel's part with a signal, empty parts too, and a proof read behind it
 *   arrive   waits for the signals of all channels of all far peers, then sets the flags that a
 *            mapped peer would have set
 *
 * So counts, the plan and rows are payload in buffers that rotate by generation, and only signals
 * are words that live on. A signal's value is the generation.
 *
 * | word                    | writer                                                         |
 * |-------------------------|----------------------------------------------------------------|
 * | arrived[stage][s][c]    | PE s through its channel c, one word a path slot               |
 * | span[p][c]              | room (begin), post of a combine (end)                          |
 */
#ifndef RY_CUDA_FAR_H
#define RY_CUDA_FAR_H

#include "cuda/world.h"

enum ry_far_stage { RY_FAR_PLAN, RY_FAR_DISPATCH, RY_FAR_COMBINE, RY_FAR_STAGES };

/* What was sent from one generation's mirror on one channel: sequences. */
struct ry_far_span {
    uint64_t begin, end;
};

struct ry_gpu_far {
    struct ry_gpu_world w;
    uint32_t peers, n;        /* bit p: PE p is far; how many are */
    uint64_t buffers_at;      /* of this generation, from the heap's begin: the same on all PEs */
    uint64_t sectors_at;      /* [RY_FAR_STAGES][pes][channels] */
    struct ry_far_span *span; /* [pes][channels] */
    uint32_t end_blocks;      /* that a peer's combine has */
    uint32_t sent_blocks;     /* that a peer's dispatch has */
};

/* Launches; 0 or a cudaError. */
#ifdef __cplusplus
extern "C" {
#endif
int ry_far_room_launch(const struct ry_gpu_far *f, void *stream);
int ry_far_ll_post_launch(const struct ry_gpu_ll *a, const struct ry_gpu_far *f,
                          enum ry_far_stage stage, void *stream);
int ry_far_ht_post_launch(const struct ry_gpu_ht *a, const struct ry_gpu_far *f,
                          enum ry_far_stage stage, void *stream);
int ry_far_ll_arrive_launch(const struct ry_gpu_ll *a, const struct ry_gpu_far *f,
                            enum ry_far_stage stage, void *stream);
int ry_far_ht_arrive_launch(const struct ry_gpu_ht *a, const struct ry_gpu_far *f,
                            enum ry_far_stage stage, void *stream);
#ifdef __cplusplus
}
#endif

#endif
