/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules of closing, reserving and ringing. The number in a name is the schedule's in
 * doc/proof.md. */
#include "sim/yard.h"

static struct yard y;

static void move_away(struct yard *at) { yard_fail(at); }

/* W has loaded the active ring; the mover closes and leaves it; W reserves. */
static bool s01_reserve_behind_close(void)
{
    struct ry_grant g = {0};
    int rc;

    yard_open(&y, 16, RY_HANDLER_GPU, 2);
    yard_at(2, move_away, &y);
    rc = ry_queue_reserve(&y.ch, 2, &g);
    return rc == RY_ERR_AGAIN && ry_queue_reserve(&y.ch, 2, &g) == RY_OK &&
           g.ring == &y.ch.ring[1];
}

/* The ring is full when the path dies: who waits for room must not keep the mover waiting. */
static bool s02_full_ring_dies(void)
{
    struct ry_grant g;
    int rc;

    yard_open(&y, 16, RY_HANDLER_GPU, 2);
    while (yard_post(&y, 0x1000, 1, NULL) == RY_OK)
        if (y.rung[0] > 14)
            return false;
    rc = ry_queue_reserve(&y.ch, 2, &g);
    return rc == RY_ERR_BUSY && yard_fail(&y) == RY_OK;
}

static int other_rc;
static void reserve_too(struct yard *at)
{
    struct ry_grant g;

    other_rc = ry_queue_reserve(&at->ch, 1, &g);
}

/* Two see the last free block, and both take it. */
static bool s03_two_see_one_room(void)
{
    struct ry_grant g;
    uint32_t met = 0;

    for (uint32_t n = 1; n < 20; n++) { /* wherever the other comes between look and swap */
        int rc;

        yard_open(&y, 16, RY_HANDLER_GPU, 1);
        for (int i = 0; i < 5; i++)
            yard_post(&y, 0x1000, 1, NULL); /* and one proof read: 11 of 12 blocks */
        other_rc = RY_ERR_NOT_FOUND;
        yard_at(n, reserve_too, &y);
        rc = ry_queue_reserve(&y.ch, 1, &g);
        if (other_rc == RY_ERR_NOT_FOUND)
            continue;
        met++;
        if ((rc == RY_OK) + (other_rc == RY_OK) != 1)
            return false;
    }
    return met > 3;
}

/* A reserver gives up: its blocks become NOPs, and the channel goes on. */
static bool s04_reserver_gives_up(void)
{
    struct ry_grant g;

    yard_open(&y, 16, RY_HANDLER_GPU, 1);
    if (ry_queue_reserve(&y.ch, 3, &g) != RY_OK || ry_channel_abandon(&y.ch, &g, &y.env) != RY_OK)
        return false;
    return yard_post(&y, 0x1000, 1, NULL) == RY_OK && y.rung[0] == 5 &&
           ry_wqe_opcode(yard_block(&y, 0, 1)) == RY_OP_NOP;
}

/* A reservation that nobody fills: the mover ends, and may be followed by another. */
static bool s05_reservation_in_the_way(void)
{
    struct ry_req q = ry_proof_req(&y.ch);
    struct ry_grant g;

    yard_open(&y, 16, RY_HANDLER_GPU, 2);
    if (ry_queue_reserve(&y.ch, 1, &g) != RY_OK || yard_fail(&y) != RY_ERR_STALLED ||
        ry_state_of(y.ch.state) != RY_CH_PARKED)
        return false;
    ry_queue_write(&g, 0, &q, 0);
    if (ry_queue_publish(&y.ch, &g, &y.env) != RY_OK)
        return false;
    return yard_fail(&y) == RY_OK && ry_state_active(y.ch.state) == 1 && y.rung[1] >= 1;
}

static uint32_t bells_then;
static void move_and_count(struct yard *at)
{
    if (yard_fail(at) == RY_OK) /* not while W holds the doorbell: the mover gives up then */
        bells_then = at->bells[0];
}

/* W sleeps between publishing and ringing; the path is left meanwhile. */
static bool s06_rings_after_the_move(void)
{
    for (uint32_t n = 1; n < 60; n++) { /* wherever it sleeps, it does not ring what was left */
        yard_open(&y, 16, RY_HANDLER_GPU, 2);
        bells_then = UINT32_MAX;
        yard_at(n, move_and_count, &y);
        yard_post(&y, 0x1000, 1, NULL);
        if (bells_then != UINT32_MAX && y.bells[0] != bells_then)
            return false;
    }
    return true;
}

static void post_too(struct yard *at) { yard_post(at, 0x2000, 2, NULL); }

/* Two ring, the slower one for less. */
static bool s07_doorbell_goes_back(void)
{
    for (uint32_t n = 1; n < 60; n++) {
        yard_open(&y, 16, RY_HANDLER_CPU, 1);
        yard_at(n, post_too, &y);
        yard_post(&y, 0x1000, 1, NULL);
        if (ry_packed_seq(y.pslot[0]) != ry_packed_seq(y.ch.ring[0].ready_head))
            return false;
    }
    return true;
}

/* Two halves fill a ring; more than a half is refused before it takes anything. */
static bool s08_half_ring(void)
{
    struct ry_req q[16] = {{0}};
    uint32_t max;
    uint64_t end;

    yard_open(&y, 16, RY_HANDLER_GPU, 1);
    max = ry_channel_message_max(&y.ch);
    for (uint32_t i = 0; i < 16; i++)
        q[i] = ry_signal_req(0x9000, i, 0);
    if (ry_channel_post(&y.ch, q, max + 1, RY_POST_NO_PROOF, &y.env, &end) != RY_ERR_INVALID)
        return false;
    return ry_channel_post(&y.ch, q, max, RY_POST_NO_PROOF, &y.env, &end) == RY_OK &&
           ry_channel_post(&y.ch, q, max, RY_POST_NO_PROOF, &y.env, &end) == RY_OK;
}

/* The target dies too: the record is still whole. */
static bool s09_target_dies(void)
{
    yard_open(&y, 16, RY_HANDLER_GPU, 3);
    yard_post(&y, 0x1000, 1, NULL);
    yard_post(&y, 0x2000, 2, NULL);
    if (yard_fail(&y) != RY_OK || yard_fail(&y) != RY_OK)
        return false;
    return ry_state_active(y.ch.state) == 2 && yard_find(&y, 2, 0x1000) >= 0 &&
           yard_find(&y, 2, 0x2000) > yard_find(&y, 2, 0x1000);
}

/* Payload was acknowledged, its blocks are not free before the message is released. */
static bool s16_acknowledged_is_not_free(void)
{
    struct ry_grant g;
    int n = 0;

    yard_open(&y, 16, RY_HANDLER_GPU, 1);
    while (yard_post(&y, 0x1000, 1, NULL) == RY_OK && n++ < 20)
        ;
    yard_done(&y, 0, 8); /* no proof read is among them */
    yard_acked(&y);
    return ry_queue_reserve(&y.ch, 2, &g) == RY_ERR_BUSY;
}

/* A busy channel returns home: closed at a message boundary, one read, nothing replayed. */
static void answer_read(struct yard *at) { yard_done(at, 0, at->rung[0]); }
static bool s39_busy_channel_returns(void)
{
    yard_open(&y, 16, RY_HANDLER_GPU, 2);
    yard_post(&y, 0x1000, 1, NULL);
    yard_post(&y, 0x2000, 2, NULL);
    y.relax = answer_read;
    if (ry_channel_move(&y.ch, RY_MOVE_PLANNED, y.ch.state, &y.env) != RY_OK)
        return false;
    return y.ch.replayed == 0 && y.ch.moves_planned == 1 && ry_state_active(y.ch.state) == 1 &&
           ry_wqe_opcode(yard_block(&y, 0, y.rung[0] - 1)) == RY_OP_READ && y.bells[1] == 0;
}

/* Two see one failure: one of them moves. */
static void other_moves(struct yard *at)
{
    other_rc = ry_channel_move(&at->ch, RY_MOVE_ERROR, at->ch.state, &at->env);
}
static bool s38_two_movers(void)
{
    uint64_t seen;
    int rc;

    yard_open(&y, 16, RY_HANDLER_GPU, 4);
    yard_post(&y, 0x1000, 1, NULL);
    seen = y.ch.state;
    yard_at(1, other_moves, &y);
    rc = ry_channel_move(&y.ch, RY_MOVE_ERROR, seen, &y.env);
    return other_rc == RY_OK && rc == RY_ERR_AGAIN && y.ch.moves == 1;
}

/* Three look at a ring that is not half full, and each leaves the proof to the next; nobody
 * answers. Then a message and its proof have no room, and nothing under way will give any. */
static uint32_t third_at, all_in;
static void post_third(struct yard *at) { all_in += yard_post(at, 0x3000, 3, NULL) == RY_OK; }
static void post_second(struct yard *at)
{
    yard_at(third_at, post_third, at);
    all_in += yard_post(at, 0x2000, 2, NULL) == RY_OK;
}
static bool goes_on(void)
{
    uint64_t acked;

    while (yard_post(&y, 0x1000, 1, NULL) == RY_OK)
        ;
    yard_done(&y, 0, y.rung[0]);
    ry_channel_poll(&y.ch, &y.env, &acked);
    return yard_post(&y, 0x1000, 1, NULL) == RY_OK;
}
static bool s51_proof_left_to_the_next(void)
{
    uint32_t met = 0;

    for (uint32_t n = 0; n < 400; n++) { /* wherever the others come */
        yard_open(&y, 16, RY_HANDLER_GPU, 1);
        yard_post(&y, 0x1000, 1, NULL);
        yard_post(&y, 0x1000, 1, NULL);
        third_at = 1 + n % 20;
        all_in = 0;
        yard_at(1 + n / 20, post_second, &y);
        all_in += yard_post(&y, 0x1000, 1, NULL) == RY_OK;
        if (all_in < 3) /* not there, or behind a swap whose blocks are not published yet */
            continue;
        met++;
        if (!goes_on())
            return false;
    }
    return met > 9;
}

int main(void)
{
    static const struct schedule all[] = {
        {"1 reserve behind close", RY_MUT_CLOSE_OUTSIDE, s01_reserve_behind_close},
        {"2 full ring dies", RY_MUT_RESERVE_BEFORE_ROOM, s02_full_ring_dies},
        {"3 two see one room", RY_MUT_RESERVE_BEFORE_ROOM, s03_two_see_one_room},
        {"4 reserver gives up", RY_MUT_NONE, s04_reserver_gives_up},
        {"5 reservation in the way", RY_MUT_MOVE_WITHOUT_WAIT, s05_reservation_in_the_way},
        {"6 rings after the move", RY_MUT_RING_UNCHECKED, s06_rings_after_the_move},
        {"7 doorbell goes back", RY_MUT_DOORBELL_STORE, s07_doorbell_goes_back},
        {"8 half a ring", RY_MUT_NONE, s08_half_ring},
        {"9 target dies", RY_MUT_RESET_BEFORE_COPY, s09_target_dies},
        {"16 acknowledged is not free", RY_MUT_ROOM_BY_COMPLETION, s16_acknowledged_is_not_free},
        {"38 two movers", RY_MUT_TWO_MOVERS, s38_two_movers},
        {"39 busy channel returns", RY_MUT_PLANNED_NO_READ, s39_busy_channel_returns},
        {"51 proof left to the next", RY_MUT_PROOF_OLD_HEAD, s51_proof_left_to_the_next},
    };

    return yard_run("schedule", all, sizeof(all) / sizeof(all[0]));
}
