/* SPDX-License-Identifier: Apache-2.0 */
/* Names of the mutants: each breaks one clause of one rule where RY_MUT(name) stands. Only the
 * proof build (RY_SIM) has them; in the product they are the constant 0. */
#ifndef RY_CORE_MUTANT_H
#define RY_CORE_MUTANT_H

enum ry_mutant_id {
    RY_MUT_NONE = 0,
    RY_MUT_CLOSE_OUTSIDE,       /* 15: CLOSED is not looked at by the reservation */
    RY_MUT_RESERVE_BEFORE_ROOM, /* 15: reserve without room */
    RY_MUT_RING_UNCHECKED,      /* move: ring without looking at CLOSED and the move number */
    RY_MUT_DOORBELL_STORE,      /* 14: producer slot stored, not raised */
    RY_MUT_BASE_AFTER_CQE,      /* 5: base index read after the CQE */
    RY_MUT_QPN_UNCHECKED,       /* 5: a completion of another life is believed */
    RY_MUT_OPCODE_UNCHECKED,    /* 5: an error completion reads as success */
    RY_MUT_STALE_DISTANCE,      /* 5: a distance of 2^15 or more is believed */
    RY_MUT_ONE_WORD,            /* 2: every life writes word 0 */
    RY_MUT_REPLAY_FROM_ACKED,   /* 3, 6: replay begins behind what was acknowledged */
    RY_MUT_NO_PROOF_READ,       /* 6: no read behind a replay */
    RY_MUT_REUSE_UNFENCED,      /* 6: reuse does not ask the other paths */
    RY_MUT_RELEASE_ON_ANSWER,   /* 6: released by the answer alone */
    RY_MUT_RELEASE_ON_ACK,      /* 6: released by the acknowledgement alone */
    RY_MUT_NO_FENCE,            /* 7: FENCED without RESET */
    RY_MUT_FENCE_NO_FLUSH,      /* 7: RESET without the NIC's flush */
    RY_MUT_SAME_QPN,            /* 7: a rebuild keeps QPN and PSN */
    RY_MUT_PLANNED_NO_READ,     /* 10: a planned move does not read through the old path */
    RY_MUT_TARGET_UNFENCED,     /* 2, 11: a slot whose last life is not fenced is armed again */
    RY_MUT_RESET_BEFORE_COPY, /* 11: the doorbell of the new ring rings before the copy is whole */
    RY_MUT_MOVE_WITHOUT_WAIT, /* move: does not wait for reserved blocks to be ready */
    RY_MUT_NO_DEADLINE,       /* 12: silence is never noticed */
    RY_MUT_NO_ALONE,          /* 12: a request at fault takes path after path */
    RY_MUT_TWO_MOVERS,        /* 13: GOOD -> MOVING by store */
    RY_MUT_STALE_NEWS,        /* 9: older epochs are believed */
    RY_MUT_FENCED_ONCE,       /* 9: a repeated FAILED is not answered */
    RY_MUT_MASK_UNFENCED,     /* 16: mask before RESET */
    RY_MUT_AMO_REPLAYED,      /* 8: an atomic runs each time it is sent */
    RY_MUT_GET_EARLY,         /* 8: a replayed get completes with its old QP alive */
    RY_MUT_FRONTIER_FROM_FLUSH, /* 5: a flush moves the frontier */
    RY_MUT_NO_LAST_WORD,        /* 4: a channel that carried nothing says nothing */
    RY_MUT_SIGNAL_OTHER_RAIL,   /* 3: a signal goes by another channel than its payload */
    RY_MUT_QUIET_NO_SLOTS,      /* 6: quiet returns on acknowledgement */
    RY_MUT_LATE_PROOF,          /* 6: a proof of an earlier life counts for the next */
    RY_MUT_COUNT
};

#endif
