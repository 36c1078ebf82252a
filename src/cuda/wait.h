/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting in a kernel: always until a deadline, and then a status in mapped memory, never a trap.
 */
#ifndef RY_CUDA_WAIT_H
#define RY_CUDA_WAIT_H

#include "cuda/args.h"
#include "cuda/ptx.h"

RY_DEV void ry_status_report(struct ry_gpu_status *s, int status, enum ry_gpu_place place,
                             uint32_t who, uint32_t detail)
{
    uint64_t word = (uint64_t)who << 32 | (uint64_t)(detail & 0xffffu) << 16 |
                    (uint64_t)((uint32_t)-status & 0xffu) << 8 | (uint64_t)place;

    /* the first report stands: host memory has no GPU atomics on every machine, so look, then
     * write; two reports at once leave one of them whole, because it is one store */
    if (ry_word_observe(&s->first) == 0)
        ry_word_publish(&s->first, word);
    s->events = 1;
}

/* The moment at which a wait that starts now has lasted too long; 0: the clock is not read until
 * the first turn that finds nothing. */
struct ry_patience {
    uint64_t until_ns;
    uint32_t turns;
};

/* True while there is time left; looks at the clock every 64th turn. After one time-out the
 * exchange is lost, so nobody else waits his own. */
RY_DEV bool ry_patience_turn(struct ry_patience *p, const struct ry_gpu_common *c)
{
    if (++p->turns & 63u)
        return true;
    if (!p->until_ns)
        p->until_ns = ry_global_ns() + c->timeout_ns;
    if ((p->turns & 4095u) == 0 && (ry_word_observe(&c->status->first) & 0xffu) > RY_AT_INDEX)
        return false;
    return ry_global_ns() < p->until_ns;
}

/* Wait until a flag's generation is at least gen. False: the deadline passed, and the status says
 * who was waited for. */
RY_DEV bool ry_wait_flag(const struct ry_gpu_common *c, const uint64_t *flag, uint64_t gen,
                         enum ry_gpu_place place, uint32_t who)
{
    struct ry_patience p = {0, 0};

    while (ry_flag_observe(flag) < gen) {
        if (!ry_patience_turn(&p, c)) {
            ry_status_report(c->status, RY_ERR_TIMEOUT, place, who, 0);
            return false;
        }
    }
    return true;
}

/* Wait for a count word of generation gen; 0 when the deadline passed. */
RY_DEV uint32_t ry_wait_count(const struct ry_gpu_common *c, const uint64_t *word, uint64_t gen,
                              uint32_t who)
{
    struct ry_patience p = {0, 0};
    uint64_t v;

    while ((v = ry_word_observe(word)) >> RY_GPU_COUNT_BITS < gen) {
        if (!ry_patience_turn(&p, c)) {
            ry_status_report(c->status, RY_ERR_TIMEOUT, RY_AT_COUNTS, who, 0);
            return 0;
        }
    }
    return (uint32_t)v & RY_GPU_COUNT_MASK;
}

RY_DEV uint64_t ry_count_word(uint64_t gen, uint32_t count)
{
    return gen << RY_GPU_COUNT_BITS | (count & RY_GPU_COUNT_MASK);
}

/* Generation of this kernel, the same in all its blocks; the last block to ask moves the count on
 * for the next kernel. Meets the block at a barrier, and does not wait for the others to ask. */
RY_DEV uint64_t ry_turn_take(struct ry_gpu_turn *t, uint32_t phases)
{
    __shared__ uint64_t shown;
    uint64_t send = 0, recv = 0, gen;

    if (threadIdx.x == blockDim.x - 1) {
        send = ry_word_observe(&t->send);
        recv = ry_word_observe(&t->recv);
        shown = (phases & RY_EP_SEND ? send : recv) + 1;
    }
    __syncthreads(); /* the generation, to all */
    gen = shown;
    if (threadIdx.x == blockDim.x - 1) {
        uint32_t before;

        /* acq_rel: the loads above come before, for whoever arrives last */
        asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
                     : "=r"(before)
                     : "l"(&t->arrived)
                     : "memory");
        if (before == gridDim.x - 1) {
            t->arrived = 0;
            if (phases & RY_EP_SEND)
                t->send = send + 1;
            if (phases & RY_EP_RECV)
                t->recv = recv + 1;
        }
    }
    return gen;
}

/* The buffers of a generation may be written again once every block of every PE has said that it
 * ended the combine that used them last; by the whole block, which a barrier must follow. */
RY_DEV void ry_wait_ends(const struct ry_gpu_common *c, const uint64_t *ends, uint64_t gen)
{
    uint32_t n = c->place.pes * c->combine_blocks;

    if (!gen)
        return;
    /* from the last thread on: the first warps have other things to do */
    for (uint32_t i = blockDim.x - 1 - threadIdx.x; i < n; i += blockDim.x) {
        uint32_t pe = i / c->combine_blocks, block = i - pe * c->combine_blocks;

        if (!ry_wait_flag(c, ends + pe * RY_GPU_BLOCKS_MAX + block, gen, RY_AT_COMBINE_END, pe))
            return;
    }
}

/* One entry of the caller's topk_idx as it stands. */
RY_DEV int64_t ry_input_raw(const struct ry_gpu_input *in, uint32_t token, uint32_t k)
{
    const uint8_t *row = in->ids + token * in->ids_stride;

    return in->ids_bytes == 8 ? ((const int64_t *)row)[k] : (int64_t)((const int32_t *)row)[k];
}

/* The same: an expert, or -1 for none and for what is out of range. */
RY_DEV int32_t ry_input_id(const struct ry_gpu_input *in, uint32_t experts, uint32_t token,
                           uint32_t k)
{
    int64_t id = ry_input_raw(in, token, k);

    return id >= 0 && id < (int64_t)experts ? (int32_t)id : -1;
}

#endif
