/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the emulated NIC share. Locks, outermost first:
 *   engine  the timed work: active list, faults, ghosts (one thread at a time, others pass by)
 *   list    tables that calls change: queue pairs, regions, events
 *   qp.lock one queue pair's execution; the fast path takes only this one */
#ifndef RY_NIC_EMU_INT_H
#define RY_NIC_EMU_INT_H

#include <pthread.h>
#include <sys/types.h>

#include "nic/emu/atomic.h"
#include "nic/emu/emu.h"
#include "nic/emu/seg.h"
#include "railyard/status.h"

enum {
    RY_EMU_FLIGHT = 64,     /* segments of one queue pair under way */
    RY_EMU_EVENTS = 256,    /* events not yet polled; older ones are kept */
    RY_EMU_TELLS = 256,     /* bytes: a longer write wakes nobody */
    RY_EMU_CHUNK = 1 << 18, /* longest copy between two looks at the responder's state */
    RY_EMU_FAULT_KINDS = RY_FAULT_CLEAR + 1,
    RY_EMU_LOST = -1, /* no answer came: the try is repeated */
};

#define RY_EMU_NEVER    UINT64_MAX
#define RY_EMU_PSN_MASK 0xffffffu

struct ry_emu;

/* A decoded work request; `bad` is the syndrome of one that the NIC itself refuses. */
struct ry_emu_op {
    uint8_t opcode;
    uint8_t bad;
    bool signalled;
    bool is_inline;
    uint32_t bytes;
    uint32_t lkey, rkey;
    uint64_t laddr, raddr;
    uint64_t operand, compare;                   /* 64-bit atomics */
    uint32_t swap32, cmp32, swap_mask, cmp_mask; /* 32-bit masked forms */
    uint8_t data[RY_INLINE_MAX_BYTES];
};

/* One segment of a message under way (timed mode). */
struct ry_emu_flight {
    uint64_t arrive_ns, ack_ns;
    uint32_t idx, psn, off, len;
    uint8_t last; /* of its message */
    uint8_t err;  /* syndrome that its answer carries */
    uint8_t vendor;
    uint8_t drop;     /* lost on its way */
    uint8_t ack_drop; /* its answer is lost */
};

struct ry_nic_qp {
    struct ry_emu *nic;
    enum ry_qp_kind kind;
    uint32_t slot; /* index in both tables */
    uint32_t qpn, psn;
    uint32_t rail, peer;
    uint32_t gone;                /* destroyed; freed when the engine has let go */
    struct ry_emu_seg_qp *shared; /* responder: its entry in our segment */

    /* initiator */
    struct ry_wqe *ring;
    uint32_t depth;
    struct ry_cqe *cqe;
    uint32_t *dbr;
    uint32_t prod;   /* running index behind the newest request: whoever kicks, by max */
    uint32_t queued; /* on the submit list */
    struct ry_nic_qp *next;
    uint32_t err_req; /* qp_error was called; doorbell_bad: a doorbell made no sense */
    uint32_t doorbell_bad;
    uint32_t timed; /* the engine owns its execution */
    /* under lock */
    uint32_t lock;
    uint32_t state;    /* enum ry_emu_state */
    uint32_t done;     /* running index behind the newest final request */
    uint32_t next_psn; /* of the next message that sends packets: NOPs take none */
    uint32_t remote_qpn, remote_rail;
    uint32_t gid_gen, remote_gid_gen; /* of both ports when it was connected */
    uint32_t cqes;
    uint64_t tx_bytes, tx_ops, rx_bytes, retries_total, errors;
    bool cqe_error_seen;
    /* timed, under lock and engine */
    bool active;
    uint32_t send_idx, send_off, seen_prod;
    uint32_t fhead, fexec, ftail; /* flight: oldest, next to execute, end; running numbers */
    uint32_t retries;
    bool lost, halted;
    uint64_t retry_ns;
    uint64_t ready_ns, last_fin_ns, last_arrive_ns, last_ack_ns;
    struct ry_emu_flight flight[RY_EMU_FLIGHT];
};

struct ry_emu_peer {
    uint32_t attached; /* taken back before seg is, so that who passed the test may use seg */
    struct ry_emu_seg *seg;
    uint64_t seg_len;
    char *heap;
    uint64_t heap_len, heap_base;
    uint32_t qp_mask;
    pid_t pid;
    int pidfd;
    uint32_t lost;       /* its process is gone */
    uint64_t checked_ns; /* when that was last looked at */
    struct ry_emu_seg_mr *mrs;
    struct ry_emu_seg_qp *qps;
    uint64_t sent_gone[RY_RAILS_MAX]; /* by queue pairs that are gone; under list */
};

struct ry_emu_fault_slot {
    bool on;
    struct ry_nic_fault f;
    uint64_t until_ns;
    uint64_t rng;
};

struct ry_emu_rail {
    uint32_t slow; /* the fast path may not be used: rate, latency or a fault of this side */
    uint32_t nic, port;
    bool cut; /* every key was taken away; registering anew makes it whole */
    uint64_t rate_bps;
    struct ry_emu_fault_slot fault[RY_EMU_FAULT_KINDS];
    uint64_t errors_gone, retries_gone, tx_bytes_gone, tx_ops_gone, rx_bytes_gone, rx_ops_gone;
};

struct ry_emu_ghost {
    uint64_t due_ns;
    uint64_t raddr;
    uint32_t peer, rail, remote_rail, remote_qpn, qpn, rkey;
    uint32_t psn;
    bool last;    /* the end of its message */
    uint32_t len; /* 0: free */
    uint8_t *data;
};

enum { RY_EMU_GHOSTS = 256, RY_EMU_GHOST_BYTES = 16 << 10 };

struct ry_emu {
    struct ry_nic base;
    struct ry_emu_cfg cfg;
    struct ry_emu_seg *seg;
    struct ry_emu_seg_mr *mrs;
    struct ry_emu_seg_qp *sqps;
    int fd;
    uint64_t id;     /* tells this object from another, also from an earlier one at its address */
    uint32_t faults; /* how many are on */
    struct ry_emu_rail rail[RY_RAILS_MAX];
    struct ry_emu_peer *peers;

    pthread_mutex_t list;
    struct ry_nic_qp **qps; /* by slot */
    uint32_t qpn_next;
    uint32_t mr_gen[RY_EMU_MRS];
    uint32_t mr_next;
    uint64_t rng;       /* of everything timed; under engine */
    uint64_t rng_names; /* of numbers; under list */

    struct ry_nic_event events[RY_EMU_EVENTS];
    uint32_t ev_head, ev_tail;
    uint32_t fatal_seen;
    int event_fd;

    /* engine */
    uint32_t engine;      /* lock */
    uint32_t engine_wait; /* calls that want it: its work makes way for them */
    uint32_t engine_work; /* something is, or may be, due some day */
    struct ry_nic_qp *submit;
    struct ry_nic_qp **active;
    uint32_t actives, rr;
    uint64_t next_due;
    bool far_stall; /* something waits for a peer's stall to end, which nobody tells us */
    struct ry_emu_ghost *ghosts; /* NULL until a ghost fault */
    uint32_t ghost_count;
    uint64_t exec_ns; /* arrival time of what is being executed (virtual time) */
    /* its thread */
    pthread_mutex_t thread_lock;
    pthread_t thread;
    uint32_t thread_on, thread_stop;
    uint32_t poke; /* futex */
    uint64_t sleep_until;

    uint32_t arm_next; /* idle.c: names of armings */
};

static inline struct ry_emu *ry_emu_of(struct ry_nic *nic) { return (struct ry_emu *)(void *)nic; }
static inline uint64_t ry_emu_now(struct ry_emu *e) { return e->cfg.now_ns(e->cfg.clock_arg); }

/* open.c */
uint64_t ry_emu_random(uint64_t *rng);

/* mr.c */
int ry_emu_mr_reg(struct ry_nic *nic, uint32_t rail, void *base, uint64_t len_bytes, bool remote,
                  struct ry_mr *out);
int ry_emu_mr_dereg(struct ry_nic *nic, uint32_t rail, struct ry_mr mr);
int ry_emu_rail_cut(struct ry_nic *nic, uint32_t rail);
bool ry_emu_mr_local(const struct ry_emu *e, uint32_t rail, uint32_t lkey, uint64_t addr,
                     uint64_t len_bytes);
bool ry_emu_mr_remote(const struct ry_emu_peer *p, uint32_t rail, uint32_t rkey, uint64_t addr,
                      uint64_t len_bytes);

/* qp.c, fence.c */
int ry_emu_qp_create(struct ry_nic *nic, const struct ry_qp_attr *attr, struct ry_nic_qp **out,
                     struct ry_qp_addr *addr);
int ry_emu_qp_connect(struct ry_nic_qp *qp, const struct ry_qp_addr *remote);
void ry_emu_qp_destroy(struct ry_nic_qp *qp);
int ry_emu_qp_error(struct ry_nic_qp *qp);
int ry_emu_qp_flushed(struct ry_nic_qp *qp);
int ry_emu_qp_fence_begin(struct ry_nic_qp *qp);
int ry_emu_qp_fence_poll(struct ry_nic_qp *qp);
void ry_emu_gid(const struct ry_emu_seg *seg, uint32_t rail, uint8_t *gid);
bool ry_emu_quiet(struct ry_emu *e, const struct ry_emu_seg_qp *q, uint32_t pe);

/* decode.c */
void ry_emu_decode(const struct ry_wqe *w, uint32_t qpn, struct ry_emu_op *op);

/* exec.c: executes bytes [off, off + len) of a request at the peer. 0, RY_EMU_LOST or a
 * syndrome. */
int ry_emu_exec(struct ry_nic_qp *qp, const struct ry_emu_op *op, uint32_t psn, uint32_t off,
                uint32_t len, bool last);
struct ry_emu_peer *ry_emu_reach(struct ry_emu *e, uint32_t rail, uint32_t pe,
                                 uint32_t remote_rail);
uint8_t ry_emu_local_check(const struct ry_nic_qp *qp, const struct ry_emu_op *op, uint32_t off,
                           uint32_t len);
uint64_t ry_emu_op_bytes(const struct ry_emu_op *op);

/* kick.c: doorbells, the fast path, completions. All but kick with the queue pair's lock held. */
void ry_emu_kick(struct ry_nic_qp *qp, uint32_t prod_idx);
void ry_emu_run(struct ry_nic_qp *qp);
bool ry_emu_slow(const struct ry_nic_qp *qp);
void ry_emu_complete(struct ry_nic_qp *qp, uint32_t idx, bool signalled);
void ry_emu_fail(struct ry_nic_qp *qp, uint32_t idx, uint8_t syndrome, uint8_t vendor);
void ry_emu_flush(struct ry_nic_qp *qp);
bool ry_emu_halt(struct ry_nic_qp *qp);
void ry_emu_peer_watch(struct ry_nic_qp *qp);

/* engine.c */
void ry_emu_submit(struct ry_nic_qp *qp);
uint64_t ry_emu_drive(struct ry_nic *nic, uint64_t now_ns);
int ry_emu_engine_start(struct ry_emu *e);
void ry_emu_engine_stop(struct ry_emu *e);
void ry_emu_engine_poke(struct ry_emu *e, uint64_t due_ns);
void ry_emu_engine_leave(struct ry_nic_qp *qp);
void ry_emu_engine_lock(struct ry_emu *e);
void ry_emu_engine_unlock(struct ry_emu *e);
/* sched.c: one queue pair's timed work, with engine and lock held. */
uint64_t ry_emu_advance(struct ry_nic_qp *qp, uint64_t now_ns, bool *moved);
bool ry_emu_admit(struct ry_nic_qp *qp, uint64_t now_ns, uint64_t *next);
/* links.c */
uint64_t ry_emu_reserve(struct ry_nic_qp *qp, bool inbound, uint64_t from_ns, uint64_t bytes);
void ry_emu_links_refresh(struct ry_emu *e, uint32_t rail);

/* fault.c */
int ry_emu_fault(struct ry_nic *nic, const struct ry_nic_fault *f);
uint64_t ry_emu_faults_expire(struct ry_emu *e, uint64_t now_ns);
const struct ry_nic_fault *ry_emu_fault_on(struct ry_emu *e, uint32_t rail, uint32_t peer,
                                           enum ry_nic_fault_kind kind);
bool ry_emu_fault_roll(struct ry_emu *e, uint32_t rail, uint32_t peer, enum ry_nic_fault_kind kind);
uint64_t ry_emu_fault_random(struct ry_emu *e, uint32_t rail, enum ry_nic_fault_kind kind);
void ry_emu_fault_end(struct ry_emu *e, uint32_t rail, enum ry_nic_fault_kind kind);
/* ghost.c */
int ry_emu_ghosts_make(struct ry_emu *e);
void ry_emu_ghost_add(struct ry_nic_qp *qp, const struct ry_emu_op *op,
                      const struct ry_emu_flight *f, uint64_t due_ns);
uint64_t ry_emu_ghosts_due(struct ry_emu *e, uint64_t now_ns);
void ry_emu_ghosts_drop(struct ry_emu *e, uint32_t peer);
/* land.c */
bool ry_emu_land_add(struct ry_nic_qp *qp, struct ry_emu_peer *p, uint64_t raddr, const void *src,
                     uint64_t len);
void ry_emu_land_qp(struct ry_emu_peer *p, uint32_t qpn);
bool ry_emu_land_pending(struct ry_emu_seg *seg, uint32_t qpn);
uint64_t ry_emu_land_due(struct ry_emu *e, uint64_t now_ns);
void ry_emu_land_flush(struct ry_emu *e, uint32_t rail, uint32_t qpn, bool write);

/* event.c */
void ry_emu_event_add(struct ry_emu *e, enum ry_nic_event_type type, uint32_t rail, uint32_t qpn);
int ry_emu_poll_event(struct ry_nic *nic, struct ry_nic_event *ev);
int ry_emu_event_fd(struct ry_nic *nic);
void ry_emu_event_signal(struct ry_emu *e);

/* idle.c */
void ry_emu_idle(struct ry_nic *nic, uint64_t until_ns);
void ry_emu_wake(struct ry_nic *nic);
void ry_emu_wake_peer(struct ry_nic *nic, uint32_t pe);
void ry_emu_wake_seg(struct ry_emu_seg *seg);
int ry_emu_futex_wait(uint32_t *word, uint32_t value, uint64_t wait_ns);
void ry_emu_futex_wake(uint32_t *word);

/* peer.c */
int ry_emu_export_seg(struct ry_nic *nic, struct ry_nic_export *out);
int ry_emu_peer_attach(struct ry_nic *nic, const struct ry_nic_peer *peer);
void ry_emu_peer_detach(struct ry_nic *nic, uint32_t pe);
/* A mapping that is not needed here any more. */
void ry_emu_seg_drop(struct ry_emu *e, struct ry_emu_seg *seg);
bool ry_emu_peer_alive(struct ry_emu *e, struct ry_emu_peer *p);

/* count.c, tree.c */
uint32_t ry_emu_rail_count(struct ry_nic *nic);
int ry_emu_rail_info(struct ry_nic *nic, uint32_t rail, struct ry_rail_info *info);
enum ry_port_state ry_emu_rail_state(struct ry_nic *nic, uint32_t rail);
int ry_emu_counters(struct ry_nic *nic, uint32_t rail, struct ry_rail_counters *out);
int ry_emu_peer_sent(struct ry_nic *nic, uint32_t peer, uint64_t *bytes);
uint64_t ry_emu_qp_sent(const struct ry_nic_qp *qp);

#endif
