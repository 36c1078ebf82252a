/* SPDX-License-Identifier: Apache-2.0 */
/* What the host hands to the kernels, by value, and the words that kernels of several GPUs share.
 *
 * Peers. Kernels write a peer's buffers as if they lay here: over NVLink where they are mapped,
 * into a mirror where the peer is reached through channels (cuda/far.h).
 *
 * Generations. An exchange counts its generations from 1 in device memory (ry_gpu_turn), so that a
 * captured graph goes on counting. A flag holds the generation it was written in and is never
 * reset. The host alternates the buffers of a generation; flags stand in each of them.
 *
 * Reuse. Before a dispatch writes into buffers it has seen the end flags of the combine that used
 * them last (generation `last`) from every peer, so every peer has read its slots; and a combine
 * writes rows after the dispatch arrived from the peer, which sent it when it had read its rows of
 * the last time. No other acknowledgement is needed, and no kernel waits for these flags at its
 * end.
 *
 * | word                                   | writer                                            |
 * |----------------------------------------|---------------------------------------------------|
 * | turn                                   | the last block of a kernel to read it             |
 * | last                                   | the block that reads it                           |
 * | counts[s][e], matrix, histogram        | PE s, one thread; NIC where s is far              |
 * | dispatch_flags[s][b], end_flags[s][b]  | PE s, block b; where s is far, arrive kernel here |
 * | row_flags                              | the PE that sends the row, one warp; likewise     |
 * | status                                 | any thread, by compare-and-swap from 0; host: 0   |
 */
#ifndef RY_CUDA_ARGS_H
#define RY_CUDA_ARGS_H

#include <stddef.h>
#include <stdint.h>

#include "core/place.h"
#include "railyard/gpu.h"

enum {
    RY_GPU_BLOCKS_MAX = 160, /* blocks of one kernel */
    RY_GPU_STATUS_WHAT = 8,
};

/* Where a status came from. */
enum ry_gpu_place {
    RY_AT_NOWHERE = 0,
    RY_AT_INDEX,         /* topk_idx: who = token, detail = k */
    RY_AT_DISPATCH_FLAG, /* who = PE */
    RY_AT_COUNTS,
    RY_AT_COMBINE_ROW,
    RY_AT_COMBINE_END,
    RY_AT_CHANNEL, /* who = PE, detail = rail */
};

/* In mapped host memory; word 0: place:8, status:8 (negated), detail:16, who:32. */
struct ry_gpu_status {
    uint64_t first;
    uint64_t events; /* how many threads had something to say, at least */
};

/* One kind of kernel's count of generations. send and recv differ only between the two phases of a
 * split call. */
struct ry_gpu_turn {
    uint64_t send, recv;
    uint32_t arrived;
    uint32_t rsvd;
};

/* What all kernels need. */
struct ry_gpu_common {
    uint8_t *peer[RY_GPU_PES_MAX]; /* this generation's buffers at each PE */
    struct ry_place place;
    struct ry_gpu_turn *turn;
    struct ry_gpu_status *status;
    uint64_t timeout_ns;
    uint32_t pe, tokens_max;
    uint32_t topk, hidden;
    uint32_t local_count; /* experts here */
    uint32_t combine_blocks;
    uint64_t *last;  /* [block]: generation that used these buffers last, 0 none; ht: one word */
    uint32_t phases; /* bits RY_EP_SEND, RY_EP_RECV */
    int fp8, scale_kind;
};

/* The caller's tokens. */
struct ry_gpu_input {
    const uint8_t *x;
    uint64_t x_stride;
    const uint8_t *ids;
    uint64_t ids_stride;
    const uint8_t *weights;
    uint64_t weights_stride;
    uint32_t tokens;
    int ids_bytes;
};

struct ry_gpu_ll {
    struct ry_gpu_common c;
    struct ry_ll_layout l;
    uint64_t counts_at, dispatch_flags_at, row_flags_at,
        end_flags_at;       /* in a generation's buffers */
    uint32_t counts_stride; /* words of one source's counts */
    int32_t *kept_ids;      /* [tokens_max][topk] */
    float *kept_weights;
    uint32_t *kept_tokens; /* how many */
    uint32_t *count;       /* out: [local][pes] */
    uint32_t *src_token;   /* out: [local][pes][tokens_max] */
    uint32_t *expert_rows; /* out */
    uint32_t *rows;        /* out */
    uint64_t *back;   /* [pes][tokens_max * topk]: generation:32, row:32 of a pair that is here */
    uint32_t senders; /* combine: warps of a block that send */
    struct ry_gpu_input in;
    const uint8_t *y;
    uint64_t y_stride;
    uint8_t *out;
    uint64_t out_stride;
};

/* High throughput: rows lie packed at the receiver, ordered by source, then by token. */
struct ry_gpu_ht_layout {
    uint64_t row_bytes;
    uint64_t rows_at, ids_at, weights_at, src_token_at, row_source_at; /* [pes * tokens_max] */
    uint64_t combine_at;                                               /* [tokens_max][pes] rows */
    uint64_t matrix_at;    /* [pes source][pes target] words */
    uint64_t histogram_at; /* [pes source][local_max] words */
    uint64_t dispatch_flags_at, row_flags_at, end_flags_at;
    uint64_t generation_bytes, total_bytes;
};

struct ry_gpu_ht {
    struct ry_gpu_common c;
    struct ry_gpu_ht_layout l;
    int32_t *rank;    /* [pes][tokens_max]: place of a token among those of its part, -1 none */
    uint32_t *before; /* [parts][pes]: how many tokens of the parts before go to the PE */
    uint32_t *hits;   /* [experts], zero between calls */
    uint32_t *done;   /* parts that are planned, zero between calls */
    int32_t *kept_ids;
    float *kept_weights;
    uint32_t *kept_tokens;
    uint32_t *expert_rows; /* out */
    uint32_t *rows;        /* out */
    uint32_t senders;      /* combine: warps of a block that send */
    uint32_t local_max;
    struct ry_gpu_input in;
    const uint8_t *y;
    uint64_t y_stride;
    uint8_t *out;
    uint64_t out_stride;
};

/* The plan is made in parts of this many tokens. */
#define RY_HT_PART 512u
/* What the plan may hold: a part's ids, five bytes an expert. */
#define RY_HT_PLAN_SHARED_MAX (200u << 10)

/* Words that carry a count: generation:44, count:20. */
#define RY_GPU_COUNT_BITS 20
#define RY_GPU_COUNT_MASK ((1u << RY_GPU_COUNT_BITS) - 1)

/* Launches; 0 or a cudaError. */
#ifdef __cplusplus
extern "C" {
#endif
int ry_gpu_ll_dispatch_launch(const struct ry_gpu_ll *a, uint32_t blocks, void *stream);
int ry_gpu_ll_combine_launch(struct ry_gpu_ll *a, uint32_t blocks, void *stream);
int ry_gpu_ht_plan_launch(const struct ry_gpu_ht *a, uint32_t blocks, void *stream);
int ry_gpu_ht_dispatch_launch(const struct ry_gpu_ht *a, uint32_t blocks, void *stream);
int ry_gpu_ht_combine_launch(struct ry_gpu_ht *a, uint32_t blocks, void *stream);
/* Registers and blocks per SM of every kernel, as lines of text. */
void ry_gpu_print_kernels(void);
#ifdef __cplusplus
}
#endif

#endif
