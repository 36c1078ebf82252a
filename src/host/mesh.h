/* SPDX-License-Identifier: Apache-2.0 */
/* The mesh: this PE's rails, its peers, and the channels and path slots between them. It has no
 * thread, no clock and no socket of its own: time comes from env, control messages go through a
 * boot ops table, so that the simulator runs the very same code. ry_ctx adds the operating system.
 *
 * Who does what: plan.c decides which rails a path uses; setup.c makes and connects queue pairs at
 * the start; agent*.c watches, fences, rebuilds and returns; post.c and wait.c are what callers
 * use. */
#ifndef RY_HOST_MESH_H
#define RY_HOST_MESH_H

#include <pthread.h>

#include "core/move.h"
#include "core/route.h"
#include "core/signal.h"
#include "host/boot.h"
#include "host/set.h"
#include "nic/nic.h"

enum { RY_MRS_MAX = 4, RY_CTL_VERSION = 2 };

/* What a PE tells all others before anything connects; also what must not contradict. */
struct ry_rail_wire {
    char name[RY_NIC_NAME_BYTES];
    uint8_t gid[RY_GID_BYTES];
    uint64_t rate_bps;
    uint32_t nic;
    uint32_t backup; /* the rail that the topology names to stand in; RY_RAILS_MAX: none */
    uint32_t distance;
    uint32_t rkey;       /* heap */
    uint32_t up, downs;  /* downs: how often it has gone down */
    uint32_t link_layer; /* as in nic.h */
};

/* What the machine's topology says of a rail; where it says nothing the backend's word counts. */
struct ry_rail_place {
    bool known;
    uint32_t distance; /* to this PE's GPU */
    uint32_t backup;   /* RY_RAILS_MAX: none among this PE's rails */
};

struct ry_hello {
    uint32_t layout_version, ctl_version;
    char version[16];
    uint64_t heap_bytes, heap_base;
    uint64_t seg_bytes, seg_base;
    uint32_t node, incarnation;
    uint32_t channels; /* setting; 0 = one per rail */
    uint32_t failover;
    uint64_t barrier_count; /* rejoin: what the survivors' barrier is at, and their ry_mallocs */
    uint64_t mallocs;
    /* rejoin: digest of everybody's incarnation as this PE expects them; 0: it expects nothing */
    uint64_t view;
    uint32_t p2p;
    uint32_t rails;
    uint64_t homes; /* rails on which channels live, a bit each; 0: all */
    char nic[16];   /* backend */
    struct ry_rail_wire rail[RY_RAILS_MAX];
};

/* Settings the mesh needs, from ry_config. Times in ns. */
struct ry_mesh_cfg {
    uint32_t channels; /* to each peer; 0 = as many as the larger rail count */
    uint32_t depth;
    uint32_t chunk_bytes; /* of one message, at most; 0: as large as may be */
    enum ry_handler handler;
    bool failover;
    uint64_t path_timeout_ns, timeout_ns, check_ns, recovery_ns, recovery_ns_max;
    uint32_t failure_threshold; /* silent intervals in a row before a path fails */
    uint32_t probes;            /* good probes before a path is offered again */
    uint64_t seed;
    uint64_t epoch_first; /* of every slot: 1, but the simulator begins near a wrap */
    uint64_t seq_first;   /* of every channel */
};

enum ry_out_state {
    RY_OUT_EMPTY,    /* no queue pair */
    RY_OUT_ARMING,   /* ARM sent, waiting for ARMED */
    RY_OUT_PROBING,  /* connected; the agent reads through it */
    RY_OUT_ARMED,    /* offered to movers */
    RY_OUT_FLUSHING, /* left by failure: QP in ERR, waiting for flushes */
    RY_OUT_FENCING,  /* FAILED sent, waiting for FENCED */
};

/* One path slot of a channel of ours: the agent's side. host is what core/ sees of it. */
struct ry_out_slot {
    struct ry_slot_host host;
    enum ry_out_state state;
    uint32_t rail, peer_rail;
    uint64_t epoch; /* of the life that is being made or is armed */
    struct ry_nic_qp *qp;
    struct ry_qp_addr addr;
    struct ry_wqe *wqe; /* depth blocks */
    struct ry_cqe *cqe;
    uint32_t *dbr;
    uint64_t *uar, *pslot, *pecho;
    uint32_t rkeys[RY_MRS_MAX]; /* of this life: a cut gives the rail new ones */
    uint64_t proxy_last;
    uint64_t since_ns;  /* in this state */
    uint64_t next_ns;   /* when to act again (send, probe) */
    uint64_t until_ns;  /* give up arming or probing */
    uint32_t probe_idx; /* ring blocks used by probes */
    uint32_t probes_good;
    bool condemned; /* by the agent; waits until no mover can have picked it */
    bool unfenced;  /* the peer's end of its last life was never given back */
};

struct ry_out_channel {
    struct ry_channel *ch;
    struct ry_out_slot slot[RY_SLOTS];
    uint32_t home_rail, home_peer_rail;
    uint32_t weight;
    uint64_t seen_cons, looked_ns, silent_ns; /* silence watch */
    uint64_t since_ns; /* when it last saw progress, or nothing outstanding */
    uint32_t silent;
    uint64_t seen_state; /* for events */
    uint32_t seen_active_rail;
    uint64_t quiet_seq;      /* everything before it was reusable at a quiet */
    uint32_t seen_op_errors; /* of ch->op_errors, told by quiet */
    struct ry_mesh *mesh;
};

enum ry_in_state { RY_IN_NONE, RY_IN_READY, RY_IN_FENCING, RY_IN_FENCED };

/* Receiving end of one slot of a peer's channel. */
struct ry_in_slot {
    enum ry_in_state state;
    uint32_t rail;
    uint64_t epoch;
    struct ry_nic_qp *qp;
    struct ry_qp_addr addr;
    struct ry_qp_addr peer;
    uint64_t since_ns;
    uint32_t ladder;        /* step of rule 7's ladder */
    uint64_t deaf_until_ns; /* an ARM that could not be met is not tried again before */
};

/* Health of one pair of rails towards a peer: back-off of returns. */
struct ry_pair {
    uint64_t not_before_ns;
    uint64_t good_since_ns;
    uint32_t level;
    bool unreachable; /* probed, and never answered */
};

enum ry_peer_state { RY_PEER_UP, RY_PEER_UNREACHABLE, RY_PEER_GONE };

struct ry_peer {
    uint32_t pe;
    enum ry_peer_state state;
    struct ry_hello hello;
    void *heap; /* mapped here (same host), or NULL */
    void *seg;
    bool mapped; /* by us: to be unmapped */
    bool direct; /* may be written by plain stores: same node and p2p on */
    uint32_t n_channels;
    struct ry_out_channel *out; /* [n_channels], ours to them */
    uint8_t *memory;            /* of the rings */
    uint32_t channels_made;     /* that `memory` has room for */
    struct ry_in_slot *in;      /* [n_channels * RY_SLOTS], theirs to us */
    uint64_t rails_up;          /* bit per peer rail: not known to be down */
    uint64_t rails_drained;
    uint8_t rail_downs[RY_RAILS_MAX]; /* as its newest news has it */
    uint32_t news;                    /* number of the newest RAILS message seen */
    uint32_t acked_news;              /* number of ours that it has */
    uint32_t rkeys[RY_RAILS_MAX][RY_MRS_MAX];
    uint32_t weights[RY_CHANNELS_MAX];
    uint32_t weight_sum;
    uint64_t quiet_goal[RY_CHANNELS_MAX]; /* behind the proofs that the quiet under way waits for */
    uint64_t sent[RY_CHANNELS_MAX];       /* bytes of small transfers, for an even split */
    struct ry_pair pair[RY_RAILS_MAX][RY_RAILS_MAX];
    uint64_t heard_ns; /* last control message */
    uint64_t asked_ns; /* a wait wants to know whether the peer is there: since when, 0 = no */
    uint64_t ping_ns;  /* last PING */
    /* the peer is to count as lost, by a waiting thread or by its own word; the agent sees to it */
    bool given_up;
    uint64_t silent_ns; /* how long it has been asked and not heard of: the agent's count */
    uint64_t looked_ns; /* when the agent last looked */
    uint32_t closed;    /* atomic, the agent's: it is lost, and nothing of it can land any more */
    /* atomic, the agent's, as the bootstrap tells: the newest incarnation that came, and the newest
     * that was lost; hello has the one that this PE met */
    uint32_t came, fell;
};

struct ry_mesh {
    uint32_t pe, n_pes;
    struct ry_nic *nic;
    struct ry_boot *boot;
    struct ry_mesh_cfg cfg;
    struct ry_env env;
    uint8_t *heap;
    uint64_t heap_bytes;
    uint64_t sys_bytes; /* front of the heap: landing words, amo records, barrier sectors */
    struct ry_hello hello;
    uint32_t lkeys[RY_RAILS_MAX][RY_MRS_MAX];
    struct ry_mr mrs[RY_RAILS_MAX];
    struct ry_rail_place place[RY_RAILS_MAX]; /* before ry_mesh_hello */
    struct ry_peer *peers;                    /* [n_pes] */
    uint64_t rails_up, rails_drained, rails_cut;
    uint32_t rails_news; /* number of our newest RAILS message */
    uint32_t rails_told; /* and of the one that was sent to all */
    uint64_t rails_repeat_ns;
    uint32_t peers_news; /* pieces of news that peers have told */
    uint32_t hurried;    /* the agent's: of both, when it last looked in a hurry */
    uint64_t watch_ns;   /* the agent's, within a step: when a silence will have lasted too long */
    uint8_t rail_downs[RY_RAILS_MAX]; /* how often each has gone down */
    uint64_t hint;
    bool virtual_time; /* the simulator's: waits never sleep, relax is the scheduler */
    void *ring_memory;
    size_t ring_memory_bytes;
    uint64_t activity; /* messages posted, for the agent's tick */
    bool agent_dozes;  /* atomic: the agent sleeps longer than its tick, wake it at a post */
    bool proxy_dozes;  /* atomic: so does the proxy (cpu handlers) */
    void (*wake_agent)(void *arg);
    void (*wake_proxy)(void *arg);
    void *wake_arg;
    bool crowded;     /* more PEs than cores: a wait that spins yields */
    uint64_t spin_ns; /* how long a wait spins before it sleeps */
    uint64_t nap_ns;  /* longest sleep of a wait between two looks at everything */
    /* what else a waiting thread does for this PE (its atomics) */
    void (*work)(void *arg);
    void *work_arg;
    /* told by the agent, or by the thread that moved a channel */
    void (*on_event)(void *arg, const struct ry_mesh *m, int type, uint32_t peer, uint32_t channel,
                     uint32_t rail, uint32_t to_rail, const struct ry_channel *ch);
    void *event_arg;
    bool leaves; /* atomic: this PE has left the job's exchanges; the agent tells all */
    bool left;   /* told */
};

/* --- plan.c: pure functions of both ends' rails, the same answer at both ends --- */

uint32_t ry_plan_channels(const struct ry_hello *a, const struct ry_hello *b, uint32_t wanted);
void ry_plan_home(const struct ry_hello *a, const struct ry_hello *b, uint32_t channel,
                  uint32_t *rail, uint32_t *peer_rail);
/* Weights of all channels from a to b, 1..65535, by the share of the slower end's rail. */
void ry_plan_weights(const struct ry_hello *a, const struct ry_hello *b, uint32_t n,
                     uint32_t *weight);
/* The part that each of our rails is meant to carry of what goes to `pe`. */
void ry_mesh_shares(const struct ry_mesh *m, uint32_t pe, double *share);
/* Cost of (rail, peer_rail) as a stand-in for (from, from_peer); the smallest is the best.
 * UINT32_MAX: the pair itself. */
uint32_t ry_plan_cost(const struct ry_hello *a, const struct ry_hello *b, uint32_t from,
                      uint32_t from_peer, uint32_t rail, uint32_t peer_rail);
/* Best stand-in by cost. False: there is none. */
bool ry_plan_backup(const struct ry_hello *a, const struct ry_hello *b, uint32_t rail,
                    uint32_t peer_rail, uint32_t *to, uint32_t *to_peer);

/* --- setup.c --- */

/* Collective, two steps. hello: register the heap, tell and learn rails and settings, find
 * contradictions. The caller has filled nic, boot, cfg, env, heap* and hello.{heap_base, node,
 * channels, failover, p2p, nic, seg_*}. Between the two it maps what it can: peers[].heap, .seg,
 * .direct. connect: queue pairs, one exchange of all addresses, connections, home rings open. On
 * failure call teardown. */
int ry_mesh_hello(struct ry_mesh *m, uint64_t deadline_ns);
int ry_mesh_connect(struct ry_mesh *m, uint64_t deadline_ns);
/* Queue pairs and attachments first, then (peers may be unmapped) all the rest. */
void ry_mesh_teardown_qps(struct ry_mesh *m);
void ry_mesh_teardown(struct ry_mesh *m);
/* Replacements join under the ranks of lost PEs, all that are missing at once: `set` has a bit for
 * each PE that is let in. The survivors' steps, with the collectives of hello and connect in the
 * same order. forget: destroy what the predecessor had (its memory is unmapped after it); rehello:
 * LAUNCH, on every PE alike, where one came back whom not all expect; reconnect: `lock` is taken
 * for writing where agent and proxy must not look. */
void ry_mesh_forget(struct ry_mesh *m, uint32_t pe);
/* Before each of those collectives: LAUNCH where this PE knows that one more is lost. The others'
 * has failed then, and they have gone on; when a replacement of that one has come, the meeting
 * point would take this PE's part for one of theirs. */
int ry_mesh_none_lost(const struct ry_mesh *m, const uint64_t *set);
int ry_mesh_rehello(struct ry_mesh *m, const uint64_t *set, uint64_t deadline_ns);
int ry_mesh_reconnect(struct ry_mesh *m, const uint64_t *set, pthread_rwlock_t *lock,
                      uint64_t deadline_ns);

/* --- peers --- */

/* The agent to all threads: what is known of a peer. */
static inline enum ry_peer_state ry_peer_state(const struct ry_peer *p)
{
    return __atomic_load_n(&p->state, __ATOMIC_ACQUIRE);
}
static inline void ry_peer_become(struct ry_peer *p, enum ry_peer_state s)
{
    __atomic_store_n(&p->state, s, __ATOMIC_RELEASE);
}

/* Bytes that one path slot takes for its ring and the words beside it. */
size_t ry_slot_memory_bytes(uint32_t depth);

/* --- addresses --- */

static inline struct ry_channel *ry_mesh_channel(struct ry_mesh *m, uint32_t pe, uint32_t c)
{
    return m->peers[pe].out[c].ch;
}
static inline bool ry_mesh_in_heap(const struct ry_mesh *m, const void *p, uint64_t bytes)
{
    uint64_t off = (uint64_t)((const uint8_t *)p - m->heap);

    return (const uint8_t *)p >= m->heap && off <= m->heap_bytes && bytes <= m->heap_bytes - off;
}
/* Address by which `pe`'s registration names what we know at local address p. */
static inline uint64_t ry_mesh_raddr(const struct ry_mesh *m, uint32_t pe, const void *p)
{
    return m->peers[pe].hello.heap_base + (uint64_t)((const uint8_t *)p - m->heap);
}
static inline uint64_t ry_mesh_laddr(const struct ry_mesh *m, const void *p)
{
    return m->hello.heap_base + (uint64_t)((const uint8_t *)p - m->heap);
}

/* --- post.c: callers' side; waits for room and moves, bounded --- */

/* Why an operation towards the peer must fail now: 0, PEER_LOST, UNREACHABLE (with the line that
 * names peer, rail and cause). */
int ry_mesh_peer_status(struct ry_mesh *m, uint32_t pe);
/* Has it channels? One that was made ready for a replacement, which then did not come in, has none:
 * PEER_LOST. */
int ry_mesh_has_channels(struct ry_mesh *m, uint32_t pe);

/* One message on one channel; *end: sequence behind it. UNREACHABLE, PEER_LOST, STALLED, INVALID.
 */
int ry_mesh_post(struct ry_mesh *m, uint32_t pe, uint32_t channel, const struct ry_req *reqs,
                 uint32_t n, uint32_t flags, uint64_t *end);
int ry_mesh_post_proof(struct ry_mesh *m, uint32_t pe, uint32_t channel, uint64_t *end);

/* --- wait.c --- */

/* One wait: `ry_wait_begin`, then `ry_wait_turn` until the condition holds or it returns non-zero.
 * A turn drives the NIC, sees completions of every channel that has some outstanding, moves what
 * must move, runs this PE's atomics, and after a short spin sleeps until something was written. */
struct ry_wait {
    uint64_t start_ns, deadline_ns, spin_until_ns;
    uint32_t from; /* PE that is waited for, or UINT32_MAX */
    uint32_t turns;
};
void ry_wait_begin(struct ry_mesh *m, struct ry_wait *w, uint32_t from, uint64_t timeout_ns);
/* 0: go on looking; TIMEOUT; PEER_LOST or UNREACHABLE when `from` is; STALLED. */
int ry_wait_turn(struct ry_mesh *m, struct ry_wait *w);
/* Work that any thread may do: NIC, completions, moves. Never sleeps. Worst status of channels to
 * `only` (UINT32_MAX: all peers). */
int ry_mesh_progress(struct ry_mesh *m, uint32_t only);

/* What the proxy thread of the cpu handlers does in one turn: look at every ring of every channel,
 * and ring for what was published. True: there was something. The caller keeps peers from changing.
 */
bool ry_mesh_proxy_look(struct ry_mesh *m);

/* --- agent.c --- */

/* Do everything that is due; returns the time of the next thing. One thread at a time. */
uint64_t ry_agent_step(struct ry_mesh *m, uint64_t now_ns);
int ry_agent_drain(struct ry_mesh *m, uint32_t rail, bool on);
/* From any thread: a peer that does not answer is to count as lost. The agent closes what it could
 * still write through. False: it writes to this PE's heap without a NIC, and cannot be shut out. */
bool ry_mesh_give_up(struct ry_mesh *m, uint32_t pe);
/* From any thread: peers are to count this PE as lost, it will write to nobody any more. */
void ry_mesh_leave(struct ry_mesh *m);
/* The peer is lost: its channels are dead, its memory is not touched again. */
void ry_agent_peer_lost(struct ry_mesh *m, uint32_t pe);
/* Is every responder towards a lost PE RESET, so that nothing of it can land any more? */
bool ry_agent_peer_closed(const struct ry_mesh *m, uint32_t pe);

#endif
