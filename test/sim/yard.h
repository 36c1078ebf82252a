/* SPDX-License-Identifier: Apache-2.0 */
/* One channel with four path slots and a scripted NIC: a schedule says what the NIC does, and at
 * which shared access somebody else runs. The protocol is compiled with its points and mutants. */
#ifndef RY_TEST_SIM_YARD_H
#define RY_TEST_SIM_YARD_H

#include "core/move.h"
#include "core/signal.h"

enum { YARD_DEPTH_MAX = 64, YARD_QPN = 0x100 };

struct yard {
    struct ry_channel ch;
    struct ry_slot_host host[RY_SLOTS];
    struct ry_wqe wqe[RY_SLOTS][YARD_DEPTH_MAX];
    struct ry_cqe cqe[RY_SLOTS];
    uint32_t dbr[RY_SLOTS];
    uint64_t uar[RY_SLOTS], pslot[RY_SLOTS], pecho[RY_SLOTS], last[RY_SLOTS];
    uint32_t keys[4];
    struct ry_env env;
    uint64_t now;
    uint32_t rung[RY_SLOTS];              /* doorbells, and the index of the newest */
    uint32_t bells[RY_SLOTS];
    void (*relax)(struct yard *y);        /* what others do while somebody waits */
};

/* Slots 0..armed-1 are connected, 0 is active; the channel begins at sequence 0. */
void yard_open(struct yard *y, uint32_t depth, enum ry_handler handler, uint32_t armed);
/* At the n-th shared access from now `run` is called, once. */
void yard_at(uint32_t n, void (*run)(struct yard *y), struct yard *y);
/* Post one message of a put to `raddr` and a signal `value`; status of the post. */
int yard_post(struct yard *y, uint64_t raddr, uint64_t value, uint64_t *end);
/* The NIC completes everything of a slot up to the block before ring index `idx`. */
void yard_done(struct yard *y, uint32_t slot, uint32_t idx);
void yard_error(struct yard *y, uint32_t slot, uint32_t idx, uint8_t syndrome);
/* Leave the active path, whose port has failed. */
int yard_fail(struct yard *y);
/* Sequence words of the active ring. */
uint64_t yard_acked(struct yard *y);
/* The block of ring index idx, and whether `slot` was rung that far. */
const struct ry_wqe *yard_block(const struct yard *y, uint32_t slot, uint32_t idx);
/* Is a write to raddr among the blocks that slot was rung for? Its ring index, or -1. */
int yard_find(const struct yard *y, uint32_t slot, uint64_t raddr);

/* One schedule: true when the outcome is right. With its mutant it must be wrong. */
struct schedule {
    const char *name;
    int mutant;
    bool (*right)(void);
};
int yard_run(const char *group, const struct schedule *all, size_t n);

#endif
