/* SPDX-License-Identifier: Apache-2.0 */
/* The oracles' view: what every PE has sent, and what stands in every heap. Each oracle is a file.
 */
#ifndef RY_SIM_ORACLE_H
#define RY_SIM_ORACLE_H

#include "sim/world.h"

enum {
    RY_SIM_SLOTS = 8,
    RY_SIM_CELL_WORDS = 8,
    RY_SIM_COUNTERS = 2,
    RY_SIM_FETCHED = 1024,
};

struct ry_sim_cell {
    uint64_t word[RY_SIM_CELL_WORDS];
};

/* The same layout in every heap. */
struct ry_sim_area {
    struct ry_sector sig[2][RY_SIM_PES];
    struct ry_sim_cell in[2][RY_SIM_PES][RY_SIM_SLOTS], out[2][RY_SIM_PES][RY_SIM_SLOTS];
    struct ry_sim_cell plain_in[RY_SIM_PES][RY_SIM_SLOTS], plain_out[RY_SIM_PES][RY_SIM_SLOTS];
    struct ry_sim_cell fixed, got;
    uint64_t counter[RY_SIM_COUNTERS + 1]; /* the last one: nobody checks it */
};

struct ry_sim_stream {
    uint64_t started, sent, quiet; /* sender: messages begun, posted, proven */
    uint64_t seen;                 /* receiver: greatest value seen */
};

struct ry_sim_model {
    struct ry_sim_area *area;
    bool ready, second_done;
    struct ry_sim_stream stream[2][RY_SIM_PES]; /* to each peer */
    uint64_t seen[2][RY_SIM_PES];               /* from each peer */
    struct ry_sector watched[2][RY_SIM_PES];    /* the signals when they were last looked at */
    uint64_t stamp, ops;
    uint32_t plain_slot[RY_SIM_PES];
    uint64_t plain_stamp[RY_SIM_PES][RY_SIM_SLOTS];
    uint32_t fetched[RY_SIM_COUNTERS];              /* adds that were run here */
    uint8_t taken[RY_SIM_COUNTERS][RY_SIM_FETCHED]; /* old values handed out */
    uint64_t plain_seen[RY_SIM_PES][RY_SIM_SLOTS];  /* greatest stamp seen here */
    uint32_t without;                               /* lost PEs that it has masked, a bit each */
    uint64_t left[RY_SIM_PES];                      /* and what those had written here, mixed */
    bool got_away; /* the last get is over: nothing writes there any more */
    void *ep;      /* struct ry_ep, when the plan has rounds of it */
};

/* Value of a signal; an oracle looks without a point at which others run. */
static inline uint64_t ry_sim_signal(const struct ry_sector *s)
{
    uint64_t best = 0;

    for (int i = 0; i < RY_SLOTS; i++)
        best = ry_max64(best, s->word[i]);
    return best;
}

struct ry_sim_model *ry_sim_model_of(uint32_t pe);

/* oracle_order.c: no signal before its payload, no ghost in a reused buffer. */
void ry_oracle_look(uint32_t pe);
/* Signals alone, at every PE: cheap enough for every step of a NIC. */
void ry_oracle_watch(void);
/* oracle_quiet.c: nothing is reported complete that is not; at the end all is there, once. */
void ry_oracle_quiet(uint32_t pe);
void ry_oracle_final(void);
/* oracle_atomic.c: fetched values are what a sequential order allows. */
void ry_oracle_fetched(uint32_t pe, uint32_t at, uint32_t word, uint64_t old);
void ry_oracle_got(uint32_t pe, uint32_t from);
void ry_oracle_got_away(uint32_t pe);
/* oracle_state.c: states are legal, queues never overrun. */
void ry_oracle_states(void);
/* oracle_agree.c: let the agents come to rest; then both ends agree. */
void ry_oracle_agree(void);
void ry_oracle_needless(uint64_t failed);
/* oracle_mask.c: nothing of a masked PE lands. */
void ry_oracle_masked(uint32_t pe);
/* oracle_spread.c: every channel carries its share. */
void ry_oracle_spread(uint32_t pe);
/* workload.c: the start of an application, and one operation. */
bool ry_sim_prepare(struct ry_sim_pe *pe);
bool ry_sim_one_op(struct ry_sim_pe *pe, uint64_t *rng);
/* ep_round.c: one dispatch and combine, checked bit for bit. */
bool ry_sim_ep_make(struct ry_sim_pe *pe);
bool ry_sim_ep_round(struct ry_sim_pe *pe);
void ry_sim_ep_end(struct ry_sim_pe *pe);

#endif
