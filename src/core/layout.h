/* SPDX-License-Identifier: Apache-2.0 */
/* Every word that two observers share, its one writer, and the structs they stand in.
 *
 * A channel is an ordered stream of operations from this PE to one peer. It has RY_SLOTS path
 * slots. A slot has a send ring, its memory, and word number `slot` in every signal sector: a slot
 * becomes a target only when its last life is fenced or quiesced, so that rule gives its word to
 * one life at a time too (design rule 2). The active slot's ring is the log of what is not
 * released.
 *
 * A sequence number counts 64-byte blocks over the whole life of a channel; ring index = sequence -
 * base.
 *
 * Packed words: bits 0..47 sequence, bit 48 CLOSED, bits 49..63 number of the move that opened the
 * ring.
 *
 * | word                        | writer                                                         |
 * |-----------------------------|-----------------------------------------------------------------|
 * | ring.resv_head              | initiator: compare-and-swap; mover: CLOSED, reset               |
 * | ring.ready_head             | initiator that has the turn (reads its own start); mover: reset |
 * | ring.prod                   | initiator that has the turn (handler gpu); mover                |
 * | ring.base, first, wqe[]     | initiator; mover, while the ring is closed                      |
 * | *ring.dbr, *ring.uar        | handler gpu: who has the turn; cpu modes: proxy thread          |
 * | *ring.pslot                 | initiator that has the turn (cpu modes); mover: CLOSED, reset   |
 * | *ring.pecho                 | proxy thread (cpu modes)                                        |
 * | *ring.cqe                   | NIC (and the agent while no QP is attached)                     |
 * | ring.cons                   | initiator that waits, by compare-and-swap of the same move      |
 * | ring.epoch, carried, failed_epoch | mover                                                     |
 * | ring.proven (packed)        | mover; the initiator that saw the proof, within the same move   |
 * | channel.state               | mover, elected by compare-and-swap GOOD or PARKED -> MOVING     |
 * | channel.released, probe[]   | initiator, by max; mover                                        |
 * | channel.dirty, parked_ns    | mover                                                           |
 * | slot_host.armed_epoch ...   | agent                                                           |
 * | hint                        | agent                                                           |
 * | signal sector word `slot`   | the peer's NIC, for the one path life that holds the slot       |
 */
#ifndef RY_CORE_LAYOUT_H
#define RY_CORE_LAYOUT_H

#include "core/cqe.h"
#include "core/wqe.h"

enum {
    RY_LAYOUT_VERSION = 1,
    RY_SLOTS = 4,           /* path slots of a channel = words of a signal sector */
    RY_DEPTH_MAX = 1 << 15, /* blocks of a ring (rule 5: 16-bit distances) */
    RY_DEPTH_MIN = 16,
    RY_RING_SPARE = 4, /* blocks no message may use: the mover's reads */
    RY_PROBES = 4,     /* outstanding proofs of a channel */
    RY_RAILS_MAX = 16,
};

/* --- packed words --- */

#define RY_SEQ_BITS   48
#define RY_SEQ_MASK   ((1ull << RY_SEQ_BITS) - 1)
#define RY_CLOSED     (1ull << RY_SEQ_BITS)
#define RY_MOVE_SHIFT 49
#define RY_MOVE_MASK  0x7fffu

RY_FN uint64_t ry_pack(uint32_t move, uint64_t seq)
{
    return ((uint64_t)(move & RY_MOVE_MASK) << RY_MOVE_SHIFT) | (seq & RY_SEQ_MASK);
}
RY_FN uint64_t ry_packed_seq(uint64_t v) { return v & RY_SEQ_MASK; }
RY_FN uint32_t ry_packed_move(uint64_t v) { return (uint32_t)(v >> RY_MOVE_SHIFT) & RY_MOVE_MASK; }
RY_FN bool ry_packed_closed(uint64_t v) { return (v & RY_CLOSED) != 0; }

/* Sequences wrap at 2^48: distances are signed within it. */
RY_FN int64_t ry_seq_diff(uint64_t a, uint64_t b)
{
    return (int64_t)((a - b) << (64 - RY_SEQ_BITS)) >> (64 - RY_SEQ_BITS);
}
RY_FN uint64_t ry_seq_add(uint64_t a, uint64_t n) { return (a + n) & RY_SEQ_MASK; }
RY_FN bool ry_seq_ge(uint64_t a, uint64_t b) { return ry_seq_diff(a, b) >= 0; }
RY_FN uint64_t ry_seq_max(uint64_t a, uint64_t b) { return ry_seq_ge(a, b) ? a : b; }

/* --- channel state word: bits 0..1 state, 2..3 active slot, 4..18 move --- */

enum ry_channel_state {
    RY_CH_GOOD = 0,
    RY_CH_MOVING = 1, /* one mover owns the channel */
    RY_CH_PARKED = 2, /* no usable path, or a mover ran out of time: resumable by the next */
    RY_CH_DEAD = 3,   /* the peer was given up; every operation fails until a replacement joins */
};

RY_FN uint64_t ry_state_pack(enum ry_channel_state s, uint32_t active, uint32_t move)
{
    return (uint64_t)s | ((uint64_t)active << 2) | ((uint64_t)(move & RY_MOVE_MASK) << 4);
}
RY_FN enum ry_channel_state ry_state_of(uint64_t w) { return (enum ry_channel_state)(w & 3); }
RY_FN uint32_t ry_state_active(uint64_t w) { return (uint32_t)(w >> 2) & 3; }
RY_FN uint32_t ry_state_move(uint64_t w) { return (uint32_t)(w >> 4) & RY_MOVE_MASK; }

enum ry_handler {
    RY_HANDLER_GPU = 0,             /* the initiator writes doorbells */
    RY_HANDLER_CPU = 1,             /* producer slots in device memory, a proxy rings */
    RY_HANDLER_CPU_HOST_MEMORY = 2, /* producer slots in pinned host memory, a proxy rings */
};

/* The agent's words of one slot. On a GPU they live in pinned host memory: the agent never does a
 * read-modify-write on a word that a kernel writes. Epochs count the path lives of the slot, 64
 * bits. The second and third line describe the life that armed_epoch offers: the agent writes them
 * before it raises armed_epoch, and does not touch them while that life may be in use. */
struct ry_slot_host {
    uint64_t armed_epoch;   /* this life is connected and may carry */
    uint64_t condemn_epoch; /* the agent wants this life left (port event, silence, peer notice) */
    uint64_t retire_epoch;  /* the agent wants a planned move away from this life (drain, return) */
    uint64_t flushed_epoch; /* this life's QP is in ERR and its flushes were seen */
    uint64_t fenced_epoch;  /* and the peer's end is RESET and flushed */
    uint64_t preferred; /* larger is better: order in which a mover tries targets; 0 = not at all */
    uint64_t port_up;   /* the port under this life is up, as far as the agent knows */
    uint64_t rsvd;
    struct ry_wqe *wqe;
    struct ry_cqe *cqe;
    uint32_t *dbr;
    uint64_t *uar;
    uint64_t *pslot;
    uint64_t *pecho;
    const uint32_t *lkeys; /* by local memory region */
    const uint32_t *rkeys; /* by remote memory region */
    void *nic_qp;          /* the backend's handle, host only */
    uint32_t qpn;
    uint32_t next_idx;   /* ring index at which the first record goes: behind the agent's probes */
    uint64_t offered_ns; /* when this life was armed */
    uint64_t rsvd3[5];
};
RY_STATIC_ASSERT(sizeof(struct ry_slot_host) == 192, "agent's words of a slot");

struct ry_ring {
    /* submit: one line */
    uint64_t resv_head;
    uint64_t ready_head;
    uint64_t prod;
    uint64_t rsvd0;
    struct ry_wqe *wqe;
    uint64_t base;
    uint32_t qpn;
    uint32_t mask; /* depth - 1 */
    uint32_t *dbr;
    /* keys, doorbell, completion */
    uint64_t cons;
    uint64_t *uar;
    struct ry_cqe *cqe;
    uint64_t *pslot;
    uint64_t *pecho;
    const uint32_t *lkeys;
    const uint32_t *rkeys;
    void *nic_qp;
    /* life */
    uint64_t epoch;   /* the life that the ring holds: taken from armed_epoch at its first move */
    uint64_t first;   /* sequence of the oldest record of this life */
    uint64_t carried; /* sequence behind the newest record it carried, set when it is left */
    uint64_t proven;  /* packed: all before it that this life carried is visible there */
    uint64_t failed_epoch; /* newest life that was left by failure */
    struct ry_slot_host *host;
    uint64_t rsvd[2];
};
RY_STATIC_ASSERT(sizeof(struct ry_ring) == 192, "ring: three lines");
RY_STATIC_ASSERT(offsetof(struct ry_ring, cons) == 64, "completion words on their own line");

struct ry_channel {
    uint64_t state;
    uint64_t released;  /* sequence: blocks before it may be overwritten in the log */
    uint64_t dirty;     /* sequence: reuse of anything before it must ask every slot (rule 6) */
    uint64_t parked_ns; /* when the last usable path was lost */
    uint32_t peer;
    uint32_t id; /* channel number towards this peer */
    uint32_t depth;
    uint32_t handler; /* enum ry_handler */
    uint64_t *hint;
    int32_t op_error; /* status of the newest operation that was turned into NOPs (rule 12) */
    uint32_t op_errors;
    uint64_t read_laddr;       /* 8 bytes that a proof read may overwrite */
    uint64_t read_raddr;       /* 8 bytes of the peer's heap that it reads */
    uint64_t probe[RY_PROBES]; /* sequence behind a posted proof read; old ones do no harm */
    uint64_t probe_next;       /* sequence at which the next proof read is due */
    uint64_t blame_seq;        /* record that an error CQE named, valid when blame_set */
    uint32_t blame_set;
    uint32_t streak; /* failures in a row with the frontier unmoved */
    uint64_t streak_seq;
    /* counts, for status: written by the mover */
    uint64_t moves;
    uint64_t moves_planned;
    uint64_t replayed;    /* messages copied by moves that were not planned */
    uint64_t ops;         /* messages posted, initiator */
    uint64_t failed_ns;   /* when the last failure was seen */
    uint64_t first_ok_ns; /* first good completion after it: 0 until then */
    uint64_t op_error_seq;
    uint64_t last_replayed; /* by the newest move */
    uint64_t blame_ns;      /* when the suspicion began */
    uint64_t alone;         /* records that ran before the rest because of a suspicion */
    uint64_t parks;         /* times without a usable path */
    uint64_t rsvd[3];
    struct ry_ring ring[RY_SLOTS];
};
RY_STATIC_ASSERT(offsetof(struct ry_channel, ring) == 256, "channel words: four lines");

/* --- signals --- */

/* A signal: one word per path slot, the receiver takes the greatest. */
struct ry_sector {
    uint64_t word[RY_SLOTS];
};
RY_STATIC_ASSERT(sizeof(struct ry_sector) == 32, "one 32-byte sector");

/* A signal that carries the sender's answer to the receiver's own messages beside its value. */
struct ry_wide_sector {
    struct {
        uint64_t value;
        uint64_t answer;
    } w[RY_SLOTS];
};
RY_STATIC_ASSERT(sizeof(struct ry_wide_sector) == 64, "one line");

/* Value of a channel's signal in a collective: generation:44, last:1, count:19. */
#define RY_SIG_COUNT_MASK ((1ull << 19) - 1)
#define RY_SIG_LAST       (1ull << 19)
#define RY_SIG_GEN_SHIFT  20

RY_FN uint64_t ry_sig_pack(uint64_t gen, bool last, uint32_t count)
{
    return (gen << RY_SIG_GEN_SHIFT) | (last ? RY_SIG_LAST : 0) | (count & RY_SIG_COUNT_MASK);
}
RY_FN uint64_t ry_sig_gen(uint64_t v) { return v >> RY_SIG_GEN_SHIFT; }
RY_FN bool ry_sig_last(uint64_t v) { return (v & RY_SIG_LAST) != 0; }
RY_FN uint32_t ry_sig_count(uint64_t v) { return (uint32_t)(v & RY_SIG_COUNT_MASK); }

/* --- what core/ needs of its surroundings --- */

/* Time, patience and the NIC's doorbell enter through here. On the host every member is set; on the
 * GPU only arg and the deadline scale are used, and time is %globaltimer. Nothing here is shared.
 */
struct ry_env {
    uint64_t (*now_ns)(void *arg);
    /* Called in every turn of a wait: lets the NIC, the scheduler or the processor go on. */
    void (*relax)(void *arg);
    /* A doorbell was written for this ring (emulated NIC and verbs; real mlx5 needs none). */
    void (*kick)(void *arg, struct ry_ring *ring, uint32_t prod_idx);
    void *arg;
    uint64_t ready_ns_max; /* longest wait for another initiator inside submit */
    uint64_t move_ns_max;  /* longest time one mover works before it parks the channel */
    uint64_t
        lost_ns_max; /* RAILYARD_TIMEOUT: without any usable path for this long, the peer is lost */
    uint32_t lane, width; /* cooperation: {0, 1} on the host */
    uint32_t batch; /* power of two: blocks whose bell may be left to the next poster; 0: none */
    uint32_t rsvd;
};

#endif
