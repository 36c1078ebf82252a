/* SPDX-License-Identifier: Apache-2.0 */
/* The mutants: each breaks one clause of one rule where RY_MUT(RY_MUT_name) stands. Only the
 * proof build (RY_SIM) has them; in the product they are the constant 0. X(name, rule, clause). */
#ifndef RY_CORE_MUTANT_H
#define RY_CORE_MUTANT_H

#define RY_MUTANTS(X)                                                                              \
    X(SIGNAL_ADDED, "1", "signals are added, not written")                                         \
    X(ONE_WORD, "2", "every life of a channel writes the signal's first word")                     \
    X(SIGNAL_OTHER_RAIL, "3", "a signal goes by another channel than its payload")                 \
    X(REPLAY_FROM_ACKED, "3, 6", "replay begins behind what was acknowledged")                     \
    X(NO_LAST_WORD, "4", "a channel that carried nothing says nothing")                            \
    X(ROUTE_HALF, "4", "half of the channels is never chosen")                                     \
    X(BASE_AFTER_CQE, "5", "base index read after the completion")                                 \
    X(OPCODE_UNCHECKED, "5", "an error completion reads as success")                               \
    X(OPCODE_EARLY, "5", "counter read by a second load, after the opcode")                        \
    X(STALE_DISTANCE, "5", "a distance of 2^15 or more is believed")                               \
    X(FRONTIER_FROM_FLUSH, "5", "a flush moves the frontier")                                      \
    X(LATE_PROOF, "6", "a proof of an earlier life counts for the slot's next one")                \
    X(NO_PROOF_READ, "6", "no read behind a replay")                                               \
    X(REUSE_UNFENCED, "6", "reuse does not ask the other paths")                                   \
    X(RELEASE_ON_ACK, "6", "released by the acknowledgement alone")                                \
    X(RELEASE_ON_ANSWER, "6", "released by the answer alone")                                      \
    X(QUIET_NO_SLOTS, "6, 8", "quiet returns on acknowledgement")                                  \
    X(BACK_EARLY, "6", "a dispatch does not wait for what was sent back")                          \
    X(LAST_UNSIGNALLED, "6", "the end of a message asks for no completion")                        \
    X(NO_FENCE, "7", "FENCED without RESET")                                                       \
    X(FENCE_NO_FLUSH, "7", "RESET without the NIC's flush")                                        \
    X(NO_LADDER, "7", "a fence that cannot be had is waited for")                                  \
    X(CUT_LOUD, "7, 12", "keys go while lives still use them")                                     \
    X(AMO_REPLAYED, "8", "an atomic runs each time it is sent")                                    \
    X(RECORDS_KEPT, "1, 8", "what a predecessor asked for still counts")                           \
    X(STALE_NEWS, "9", "older epochs are believed")                                                \
    X(FENCED_ONCE, "9", "a repeated FAILED is not answered")                                       \
    X(TOLD_ONCE, "9", "FAILED is not repeated")                                                    \
    X(ANY_INCARNATION, "9", "news of another incarnation is believed")                             \
    X(OLD_PROBE, "9", "a probe from before a rail was cut or went down still counts")              \
    X(NEWS_ONCE, "9", "news of ports is not repeated")                                             \
    X(CUT_UNTOLD, "7, 9", "nobody is told that a rail was cut")                                    \
    X(JOIN_UNTOLD, "9", "a replacement is not told what became of ports before it came")           \
    X(HALF_MADE, "9", "an agent looks at a replacement before its paths are open")                 \
    X(OLD_GID, "9", "a rebuild uses the GID of the start")                                         \
    X(PLANNED_NO_READ, "10", "a planned move does not read through the old path")                  \
    X(NO_HOLD_BACK, "10", "a pair that fails again and again is taken back at once")               \
    X(RESET_BEFORE_COPY, "11", "the log is dropped before the copy is whole")                      \
    X(NO_GIVE_UP, "11", "operations without a path wait for ever")                                 \
    X(TARGET_UNFENCED, "2, 11", "a slot whose last life is not fenced is armed again")             \
    X(NO_DEADLINE, "12", "silence is never noticed")                                               \
    X(NO_PATIENCE, "12", "silence is measured without a look at what is queued")                   \
    X(NO_ALONE, "12", "a request at fault takes path after path")                                  \
    X(TWO_MOVERS, "13", "GOOD to MOVING by store: no one winner")                                  \
    X(PARKED_STAYS, "13", "nobody goes on with a parked channel")                                  \
    X(AGENT_LEAVES_MOVES, "13", "the agent leaves moves to callers")                               \
    X(READY_BY_STORE, "14", "ready_head does not wait for earlier reservations")                   \
    X(RING_UNCHECKED, "14", "a doorbell rung after the turn was passed on")                        \
    X(DOORBELL_STORE, "14", "a producer slot stored after the turn was passed on")                 \
    X(PROXY_SHORT_LOOK, "14", "the proxy compares half of the producer slot")                      \
    X(QUIET_WRONG_COUNTER, "14", "quiet looks at what was posted, not at what was done")           \
    X(CLOSE_OUTSIDE, "15", "the reservation does not look at CLOSED")                              \
    X(RESERVE_BEFORE_ROOM, "15", "room is not tested")                                             \
    X(ROOM_BY_COMPLETION, "15", "slots are free by completion, not by release")                    \
    X(PROOF_OLD_HEAD, "15", "whether a proof read is due is asked of an older head")               \
    X(MOVE_WITHOUT_WAIT, "15", "the mover does not wait for reserved blocks")                      \
    X(MASK_UNFENCED, "16", "a mask does not close the ends towards the PE")                        \
    X(MASK_REOPENED, "16", "a masked PE may connect again")                                        \
    X(JOIN_AT_ZERO, "1, 16", "a replacement begins at the first generation")                       \
    X(JOIN_OWING, "16", "a survivor meets a replacement while others wait for its answer")         \
    X(MASK_ALONE, "16", "a survivor masks without the others")                                     \
    X(COUNTS_FORGOTTEN, "16", "rows of a lost PE that only another had heard of get no room")      \
    X(OLD_ANSWER, "6, 16", "an answer from before it was sent again frees a row")                  \
    X(FORWARD_FORGOTTEN, "16", "what a lost forwarder held is not sent again")                     \
    X(VOID_ROWS, "16", "rows of a lost forwarder whose counts nobody has are taken")               \
    X(FENCE_BOTH_WAYS, "move", "a fence of one direction ends the other")

enum ry_mutant_id {
    RY_MUT_NONE = 0,
#define RY_MUTANT_ID(name, rule, what) RY_MUT_##name,
    RY_MUTANTS(RY_MUTANT_ID)
#undef RY_MUTANT_ID
        RY_MUT_COUNT
};

#endif
