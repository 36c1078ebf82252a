/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated world: PEs, their emulated NICs, their agents and proxies, in one thread with
 * virtual time and a seeded scheduler. It runs the product's core/, nic/emu, host and ep code;
 * waits and shared accesses yield to the scheduler (RY_SIM). */
#ifndef RY_SIM_WORLD_H
#define RY_SIM_WORLD_H

#include "host/ctx.h"
#include "nic/emu/emu.h"
#include "sim/coro.h"

enum {
    RY_SIM_PES = 4,
    RY_SIM_TASKS_A_PE = 4, /* application, second initiator, agent, proxy */
    RY_SIM_TASKS = RY_SIM_PES * RY_SIM_TASKS_A_PE,
    RY_SIM_HEAP = 160 << 10,
    RY_SIM_HEAP_PLAIN = 32 << 10, /* without dispatch and combine */
    RY_SIM_CTL = 128,             /* control messages on their way to one PE */
    RY_SIM_TRACE = 400,
    RY_SIM_FAULTS = 12,
    RY_SIM_SLOW_NS = 1000000, /* longest sleep of a slow thread */
    RY_SIM_LOSSES = 2,        /* of PEs in one run */
    RY_SIM_LEFT = 16,         /* processes that have ended in one run */
    RY_SIM_EVENTS = 40,       /* news of the bootstrap for one PE */
};
#define RY_SIM_NEVER UINT64_MAX

/* Tasks of a PE, in their order. */
enum ry_sim_role { RY_SIM_APP, RY_SIM_SECOND, RY_SIM_AGENT, RY_SIM_PROXY };

struct ry_sim_task {
    struct ry_coro coro;
    uint32_t relaxed; /* relaxes in a row: their sleep grows */
    bool slow;        /* sleeps at RY_SLOW */
    uint32_t pe;
};

struct ry_sim_ctl {
    uint64_t due_ns;
    uint32_t from;
    uint32_t len;
    uint8_t msg[192];
};

struct ry_sim_fault {
    uint64_t at_ns;
    uint32_t pe;
    struct ry_nic_fault f;
    bool done;
};

/* A PE ends, or is only stopped; in ns. */
struct ry_sim_loss {
    uint32_t at; /* so long after the start; 0: none does */
    uint32_t pe;
    uint32_t back;  /* and a replacement comes so much later; 0: none does */
    uint32_t lives; /* or it was only stopped, and goes on so much later; 0: it is dead */
};

/* Families of plans: few faults, rare pairs of them, and those in which a PE is always lost. */
enum ry_sim_family { RY_SIM_FEW, RY_SIM_SWARM, RY_SIM_LOSSY };

/* What one run is: all of it follows from the seed. */
struct ry_sim_plan {
    uint64_t seed;
    uint64_t sched; /* seed of the scheduler */
    uint32_t pes, rails;
    enum ry_handler handler;
    uint32_t depth;
    uint32_t ops;        /* of each application */
    bool ep;             /* with dispatch and combine rounds */
    bool ht;             /* of the high-throughput mode */
    uint32_t nodes;      /* of several PEs, or each PE on a node of its own */
    bool second;         /* a second initiator on each PE */
    bool hot;            /* all of a PE's operations go to one peer */
    uint32_t slots;      /* buffers in rotation: 2 or 8 */
    bool amo_only;       /* nothing but atomics */
    uint32_t bad_op;     /* at this operation PE 1 posts a request that is refused; 0: never */
    uint32_t stall_ns;   /* longest time that a preempted task sleeps */
    uint32_t point_p;    /* a shared access yields: 1/65536 */
    uint32_t stall_p;    /* and then it is preempted for long */
    uint32_t slow_p;     /* a thread sleeps where that is most dangerous (RY_SLOW): 1/65536 */
    bool slow_agents;    /* nobody but agents does */
    uint32_t bits;       /* that a NIC's counters count for: 16, or as few as a ring needs */
    uint32_t ctl_loss_p; /* a control message is lost, or doubled */
    struct ry_sim_loss loss[RY_SIM_LOSSES]; /* the second one only where there is a first */
    struct ry_emu_chaos chaos;
    uint64_t seq_first, epoch_first;
    uint32_t n_faults;
    struct ry_sim_fault fault[RY_SIM_FAULTS];
};

struct ry_sim_pe {
    struct ry_ctx *ctx;
    struct ry_boot boot;
    void *heap;
    uint64_t nic_due_ns;
    struct ry_sim_ctl ctl[RY_SIM_CTL]; /* control messages to it, in no order */
    uint32_t n_ctl;
    uint64_t told;                             /* how often its proxy was told to look */
    struct ry_boot_event event[RY_SIM_EVENTS]; /* PEs lost, and come: for the agent, at event_ns */
    uint64_t event_ns[RY_SIM_EVENTS];
    uint32_t n_events, seen_events;
    void *model; /* the workload's account */
    bool finished;
    bool stepping; /* its agent is at work */
    int rc;
    char error[256];
};

struct ry_sim_meet {     /* one collective of the bootstrap under way; sets of PEs are a bit each */
    uint32_t here, left; /* who waits in it; who has its result to take */
    uint32_t generation;
    uint32_t asleep;   /* in it */
    uint32_t failed;   /* who was told that it cannot be complete */
    uint32_t dead;     /* lost, and nobody has come in their place */
    uint32_t arriving; /* replacements before their first */
    size_t len[RY_SIM_PES];
    void *part[RY_SIM_PES]; /* a copy: who gave it may end */
};

/* What became of one loss of the plan. */
struct ry_sim_lost {
    uint64_t at_ns;                /* 0: not known yet */
    uint64_t back_ns;              /* when a replacement comes; 0: never, or it has */
    uint64_t lives_ns;             /* when it goes on, if it only stopped; 0: never */
    bool down;                     /* it has happened */
    bool stopped;                  /* and it was only stopped: its NIC works on */
    bool called_off;               /* the start of its replacement has failed */
    uint64_t masked_at, joined_at; /* rounds */
};

/* What a process left behind, kept to the end of the run. */
struct ry_sim_left {
    struct ry_sim_pe pe;
    uint64_t system_ns; /* when the system takes its NIC down, 0: it has */
};

struct ry_sim_world {
    struct ry_sim_plan plan;
    uint64_t now_ns, rng, sched_rng;
    uint64_t steps, events, ops, ep_rounds;
    uint32_t skip_max; /* accesses from one that yields to the next, at most */
    uint64_t moves, moves_planned, replayed;
    uint64_t wake_ns[RY_SIM_TASKS]; /* when each task runs next; NEVER: it sleeps, or is no more */
    /* Nothing but the running task runs before this: until then its sleeps only move the clock. */
    uint64_t horizon_ns;
    uint64_t fault_ns; /* the next fault is not due before */
    uint32_t ready;    /* PEs whose start is over */
    uint64_t base_ns;  /* when that of all was; 0: not yet. Times of a plan count from here */
    struct ry_sim_task task[RY_SIM_TASKS];
    struct ry_sim_pe pe[RY_SIM_PES];
    struct ry_sim_meet meet;
    struct ry_sim_lost lost[RY_SIM_LOSSES];
    struct ry_sim_left left[RY_SIM_LEFT];
    uint32_t n_left;
    struct ry_sim_task *running;
    uint32_t live_apps;
    bool settling; /* no application lives, and the agents go on */
    bool failed;   /* an oracle has spoken: the first violation is kept */
    char violation[512];
    char trace[RY_SIM_TRACE][200];
    uint32_t traced;
    bool tracing; /* write the trace; a failing run is run again for it */
    bool verbose; /* doorbells too */
};

/* One world at a time: hooks of core/ have no argument. */
extern struct ry_sim_world *ry_sim;

static inline uint64_t ry_sim_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15ull;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}
/* Below n, n > 0. */
static inline uint64_t ry_sim_below(uint64_t *state, uint64_t n)
{
    return ry_sim_random(state) % n;
}
/* The same without a division, where it is drawn for every access. */
static inline uint64_t ry_sim_draw(uint64_t *state, uint32_t n)
{
    return (ry_sim_random(state) >> 32) * n >> 32;
}
static inline bool ry_sim_chance(uint64_t *state, uint32_t p)
{
    return (ry_sim_random(state) & 0xffff) < p;
}

/* sched.c */
#define ry_sim_trace(...)                                                                          \
    do {                                                                                           \
        if (ry_sim->tracing)                                                                       \
            ry_sim_trace_line(__VA_ARGS__);                                                        \
    } while (0)
void ry_sim_trace_line(const char *form, ...) __attribute__((format(printf, 1, 2)));
void ry_sim_sleep(uint64_t ns);
/* Task `role` of a PE runs at `at_ns` at the latest, if it is there at all. */
void ry_sim_wake(uint32_t pe, enum ry_sim_role role, uint64_t at_ns);
/* The NIC of a PE has something to do now. */
void ry_sim_nic_due(uint32_t pe);
/* The start of the running task's PE is over. */
void ry_sim_ready(struct ry_sim_world *w);
/* Draw when somebody else may run next: at the start, and after each time. */
void ry_sim_skip_draw(struct ry_sim_world *w);
void ry_sim_run_world(struct ry_sim_world *w, uint64_t limit_ns);
void ry_sim_violate(const char *form, ...) __attribute__((format(printf, 1, 2)));

/* world.c: make everything of the plan, run it, take it down. False: an oracle was violated. */
bool ry_sim_once(struct ry_sim_world *w, const struct ry_sim_plan *plan);
/* One PE: its context, and the task that starts it. False: no memory. */
bool ry_sim_pe_make(struct ry_sim_world *w, uint32_t pe);

/* crash.c */
/* Has that PE been lost? Its replacement is another one to the oracles. Has any? */
bool ry_sim_gone(uint32_t pe);
bool ry_sim_any_gone(void);
/* Was it lost, and only stopped? */
bool ry_sim_stopped(uint32_t pe);
/* Is it lost in this run, sooner or later? */
bool ry_sim_mortal(uint32_t pe);
/* Do what is due, and when is the next thing? */
uint64_t ry_sim_crash_step(struct ry_sim_world *w);
/* The start of the running task's PE, a replacement, has failed: another one will come. */
void ry_sim_called_off(struct ry_sim_pe *pe);

/* crash_app.c: what the applications of such a run do. */
void ry_sim_crash_app(struct ry_sim_pe *pe);

/* boot.c */
void ry_sim_boot_init(struct ry_sim_world *w, uint32_t pe);
/* The meeting point notices that a PE has ended; that a replacement of it has come. */
void ry_sim_meet_lost(uint32_t pe);
void ry_sim_meet_came(uint32_t pe);
void ry_sim_meet_clear(struct ry_sim_meet *m);
/* When the next control message to a PE arrives. */
uint64_t ry_sim_ctl_due(uint32_t pe);

/* workload.c: what the tasks of a PE do; called in their coroutines. */
void ry_sim_app(void *arg);
void ry_sim_second(void *arg);
void ry_sim_workload_init(struct ry_sim_world *w, uint32_t pe);
void ry_sim_workload_fini(struct ry_sim_pe *pe);
/* After all applications have ended. */
void ry_sim_check_end(struct ry_sim_world *w);

/* plan.c: everything that follows from a seed. */
void ry_sim_plan_make(struct ry_sim_plan *p, uint64_t seed, enum ry_sim_family family);

#endif
