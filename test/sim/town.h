/* SPDX-License-Identifier: Apache-2.0 */
/* Two or three PEs in one thread: the product's contexts, agents and emulated NICs in virtual time,
 * compiled with their mutants. Nothing happens by chance: a schedule says which fault comes when,
 * which control message is lost, held or said again, and whose agent is stopped. */
#ifndef RY_TEST_SIM_TOWN_H
#define RY_TEST_SIM_TOWN_H

#include "host/agent.h"
#include "host/ctx.h"
#include "nic/emu/emu.h"
#include "railyard/heap.h"
#include "railyard/rma.h"

enum { TOWN_PES = 3, TOWN_CTL = 512, TOWN_US = 1000, TOWN_MS = 1000000 };

struct town_setting {
    uint32_t pes, rails, depth, channels; /* 0: 2, 2, 64, 1 */
    uint64_t heap_bytes;                  /* 0: 512 KiB */
    uint64_t rate_bps, path_timeout_ns;   /* 0: not limited, 60 us */
    enum ry_handler handler;
    struct ry_emu_chaos chaos;
    uint32_t down; /* rails of PE 0 that are down from the start, a bit each */
};

struct town_ctl {
    uint64_t due_ns;
    uint32_t from, to, len; /* len 0: free */
    uint8_t msg[RY_CTL_BYTES_MAX];
};

struct town_pe {
    struct ry_ctx *ctx;
    struct ry_boot boot;
    struct ry_nic_ops ops; /* of its NIC, for a schedule to change */
    uint64_t agent_due_ns;
    bool agent_busy;
    bool agent_stopped; /* by the schedule */
    int rc;
};

struct town {
    struct town_setting set;
    uint64_t now;
    struct town_pe pe[TOWN_PES];
    struct town_ctl ctl[TOWN_CTL];
    /* Called for every control message that is sent; false: it is lost. */
    bool (*hear)(struct town *t, uint32_t from, uint32_t to, const struct ry_msg *msg);
    void (*each)(struct town *t); /* called in every turn */
};

/* Opens all PEs; false: one could not start. close after it in any case. */
bool town_open(struct town *t, const struct town_setting *set);
void town_close(struct town *t);
/* Let everybody go on for so long. Calls of the API do so by themselves while they wait. */
void town_run(struct town *t, uint64_t ns);
/* Until what `pred` says, at most so long; its answer. */
bool town_until(struct town *t, bool (*pred)(struct town *t), uint64_t ns);
void town_fault(struct town *t, uint32_t pe, struct ry_nic_fault f);
/* For so long nothing that `from` sends to `to` is taken up, and its ring is full; the other way
 * works. */
void town_mute(struct town *t, uint32_t from, uint32_t to, uint64_t ns);
/* A control message as `from` would send it; heard by `to` at once. */
void town_say(struct town *t, uint32_t from, uint32_t to, const struct ry_msg *msg);
/* The same bytes of everybody's heap; zeroed. */
void *town_alloc(struct town *t, size_t bytes);
/* What stands for p, an address of PE 0's heap, in PE pe's. */
void *town_at(struct town *t, uint32_t pe, void *p);

static inline struct ry_ctx *town_ctx(struct town *t, uint32_t pe) { return t->pe[pe].ctx; }
static inline struct ry_mesh *town_mesh(struct town *t, uint32_t pe)
{
    return &t->pe[pe].ctx->mesh;
}
static inline struct ry_out_channel *town_out(struct town *t, uint32_t from, uint32_t to,
                                              uint32_t channel)
{
    return &town_mesh(t, from)->peers[to].out[channel];
}
static inline struct ry_channel *town_channel(struct town *t, uint32_t from, uint32_t to)
{
    return town_out(t, from, to, 0)->ch;
}
static inline struct ry_out_slot *town_active(struct town *t, uint32_t from, uint32_t to)
{
    return &town_out(t, from, to, 0)->slot[ry_state_active(town_channel(t, from, to)->state)];
}

/* One schedule: true when the outcome is right. With its mutant it must be wrong: RY_MUT_NONE where
 * no mutant breaks it. Each runs in a process of its own: broken code may crash or never end. */
struct town_schedule {
    const char *name;
    int mutant;
    bool (*right)(struct town *t);
};
int town_run_all(const char *group, const struct town_schedule *all, size_t n);

#endif
