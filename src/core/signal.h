/* SPDX-License-Identifier: Apache-2.0 */
/* Reading signals: the greatest of a sector's words. Writing them is an inline WRITE whose address
 * the queue completes with the slot (RY_TAG_SIGNAL). */
#ifndef RY_CORE_SIGNAL_H
#define RY_CORE_SIGNAL_H

#include "core/layout.h"
#include "core/mem.h"
#include "core/mutant.h"

/* Peer's NIC to waiter: everything before the signal on its channel is visible after this load. */
RY_FN uint64_t ry_observe_signal(const struct ry_sector *s)
{
    uint64_t best = 0;

    for (int i = 0; i < RY_SLOTS; i++)
        best = ry_max64(best, ry_ld_acq64(&s->word[i]));
    return best;
}

/* Is the signal at least `value`? If so, the same holds. On the GPU the four looks are under way
 * together and only the word that says yes is read with its acquire. */
RY_FN bool ry_signal_reached(const struct ry_sector *s, uint64_t value)
{
#if RY_ON_GPU
    uint64_t w[RY_SLOTS];

    for (int i = 0; i < RY_SLOTS; i++)
        w[i] = ry_ld_rlx64(&s->word[i]);
    for (int i = 0; i < RY_SLOTS; i++)
        if (w[i] >= value)
            return ry_ld_acq64(&s->word[i]) >= value;
    return false;
#else
    return ry_observe_signal(s) >= value;
#endif
}

RY_FN uint64_t ry_observe_wide_signal(const struct ry_wide_sector *s)
{
    uint64_t best = 0;

    for (int i = 0; i < RY_SLOTS; i++)
        best = ry_max64(best, ry_ld_acq64(&s->w[i].value));
    return best;
}

RY_FN uint64_t ry_observe_answer(const struct ry_wide_sector *s)
{
    uint64_t best = 0;

    for (int i = 0; i < RY_SLOTS; i++)
        best = ry_max64(best, ry_ld_acq64(&s->w[i].answer));
    return best;
}

/* Request for a signal write; raddr is the sector's address at the peer. */
RY_FN struct ry_req ry_signal_req(uint64_t sector_raddr, uint64_t value, uint32_t rmr)
{
    struct ry_req q = {0};

    q.opcode = RY_OP_WRITE;
    q.inline_bytes = 8;
    q.bytes = 8;
    q.flags = RY_REQ_SIGNALLED;
    q.tag = RY_TAG_SIGNAL | (rmr << RY_TAG_RMR_SHIFT);
    q.raddr = sector_raddr;
    q.operand[0] = value;
    return q;
}

RY_FN struct ry_req ry_wide_signal_req(uint64_t sector_raddr, uint64_t value, uint64_t answer,
                                       uint32_t rmr)
{
    struct ry_req q = ry_signal_req(sector_raddr, value, rmr);

    q.inline_bytes = 16;
    q.bytes = 16;
    q.tag |= RY_TAG_WIDE;
    q.operand[1] = answer;
    return q;
}

#endif
