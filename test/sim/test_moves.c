/* SPDX-License-Identifier: Apache-2.0 */
/* What a move refuses, what it gives up, whom it blames, and how it ends when somebody else has
 * stopped: one channel and a scripted NIC. */
#include "sim/yard.h"

static struct yard y;

/* A planned move needs a target: none, or none but a drained one, and the channel stays. */
static bool planned_needs_a_target(void)
{
    yard_open(&y, 16, RY_HANDLER_GPU, 1);
    if (ry_channel_move(&y.ch, RY_MOVE_PLANNED, y.ch.state, &y.env) != RY_ERR_NOT_FOUND)
        return false;
    yard_open(&y, 16, RY_HANDLER_GPU, 2);
    y.host[1].retire_epoch = 1;
    return ry_channel_move(&y.ch, RY_MOVE_PLANNED, y.ch.state, &y.env) == RY_ERR_NOT_FOUND &&
           ry_state_of(y.ch.state) == RY_CH_GOOD && yard_post(&y, 0x1000, 1, NULL) == RY_OK;
}

/* A failure takes a drained path before none, and never one that is not to be used at all. */
static bool failure_takes_the_last_resort(void)
{
    yard_open(&y, 16, RY_HANDLER_GPU, 3);
    y.host[1].preferred = 0;
    y.host[2].retire_epoch = 1;
    yard_post(&y, 0x1000, 1, NULL);
    return yard_fail(&y) == RY_OK && ry_state_active(y.ch.state) == 2 &&
           yard_find(&y, 2, 0x1000) >= 0;
}

/* The target dies while the planned move reads through the old path: that one goes on. */
static void answer_and_lose_target(struct yard *at)
{
    at->host[1].condemn_epoch = at->host[1].armed_epoch;
    yard_done(at, 0, at->rung[0]);
}
static bool planned_goes_back(void)
{
    uint64_t move;

    yard_open(&y, 16, RY_HANDLER_GPU, 2);
    yard_post(&y, 0x1000, 1, NULL);
    move = ry_state_move(y.ch.state);
    y.relax = answer_and_lose_target;
    if (ry_channel_move(&y.ch, RY_MOVE_PLANNED, y.ch.state, &y.env) != RY_ERR_NOT_FOUND)
        return false;
    y.relax = NULL;
    return ry_state_of(y.ch.state) == RY_CH_GOOD && ry_state_active(y.ch.state) == 0 &&
           ry_state_move(y.ch.state) > move && yard_post(&y, 0x2000, 2, NULL) == RY_OK &&
           yard_find(&y, 0, 0x2000) == 3 && yard_find(&y, 1, 0x1000) < 0;
}

/* The read through the old path is not answered: an ordinary move, with everything. */
static bool planned_becomes_a_failure(void)
{
    yard_open(&y, 16, RY_HANDLER_GPU, 2);
    yard_post(&y, 0x1000, 1, NULL);
    return ry_channel_move(&y.ch, RY_MOVE_PLANNED, y.ch.state, &y.env) == RY_OK &&
           ry_state_active(y.ch.state) == 1 && yard_find(&y, 1, 0x1000) >= 0 &&
           y.ch.moves_planned == 0 && y.ch.failed_ns != 0;
}

/* Who may not move: of a dead channel, of one that is moving, or as planned of a parked one. */
static bool not_everybody_moves(void)
{
    yard_open(&y, 16, RY_HANDLER_GPU, 2);
    y.ch.state = ry_state_pack(RY_CH_MOVING, 0, 1);
    if (ry_channel_move(&y.ch, RY_MOVE_ERROR, y.ch.state, &y.env) != RY_ERR_AGAIN)
        return false;
    y.ch.state = ry_state_pack(RY_CH_PARKED, 0, 1);
    if (ry_channel_move(&y.ch, RY_MOVE_PLANNED, y.ch.state, &y.env) != RY_ERR_AGAIN)
        return false;
    y.ch.state = ry_state_pack(RY_CH_DEAD, 0, 1);
    return ry_channel_move(&y.ch, RY_MOVE_ERROR, y.ch.state, &y.env) == RY_ERR_UNREACHABLE;
}

/* Parked for longer than an operation waits, and nothing waits: not dead, and a path is used. */
static bool parked_and_empty(void)
{
    uint64_t acked;

    yard_open(&y, 16, RY_HANDLER_GPU, 1);
    if (yard_fail(&y) != RY_ERR_PATH)
        return false;
    y.now += 2 * y.env.lost_ns_max;
    if (ry_channel_progress(&y.ch, &y.env, &acked) != RY_ERR_AGAIN ||
        ry_state_of(y.ch.state) != RY_CH_PARKED)
        return false;
    y.host[1].armed_epoch = 1;
    ry_channel_progress(&y.ch, &y.env, &acked);
    return ry_state_of(y.ch.state) == RY_CH_GOOD && yard_post(&y, 0x1000, 1, NULL) == RY_OK;
}

/* An initiator has stopped with a reservation: whoever must move says that the context is broken,
 * for whatever reason it moves. */
static bool broken_by_a_reserver(void)
{
    struct ry_grant g;
    uint64_t acked;

    yard_open(&y, 16, RY_HANDLER_GPU, 2);
    ry_queue_reserve(&y.ch, 2, &g);
    yard_error(&y, 0, 0, RY_SYN_RETRY_EXC);
    if (ry_channel_progress(&y.ch, &y.env, &acked) != RY_ERR_STALLED)
        return false;
    if (ry_channel_progress(&y.ch, &y.env, &acked) != RY_ERR_STALLED) /* parked, and still so */
        return false;
    yard_open(&y, 16, RY_HANDLER_GPU, 2);
    ry_queue_reserve(&y.ch, 2, &g);
    y.host[0].condemn_epoch = 1;
    return ry_channel_progress(&y.ch, &y.env, &acked) == RY_ERR_STALLED;
}

/* And by one that has the turn and stops before it rings, for those who post, move, or read
 * through. */
static bool broken_by_a_ringer(void)
{
    struct ry_grant g;

    yard_open(&y, 16, RY_HANDLER_GPU, 2);
    ry_queue_reserve(&y.ch, 2, &g);
    if (yard_post(&y, 0x1000, 1, NULL) != RY_ERR_STALLED || yard_fail(&y) != RY_ERR_STALLED)
        return false;
    yard_open(&y, 16, RY_HANDLER_GPU, 2);
    yard_post(&y, 0x1000, 1, NULL);
    ry_queue_reserve(&y.ch, 2, &g);
    return ry_channel_move(&y.ch, RY_MOVE_PLANNED, y.ch.state, &y.env) == RY_ERR_STALLED;
}

/* And by a proxy that echoes nothing. */
static uint64_t nowhere;
static bool broken_by_a_proxy(void)
{
    yard_open(&y, 16, RY_HANDLER_CPU, 2);
    yard_post(&y, 0x1000, 1, NULL);
    y.ch.ring[0].pecho = &nowhere;
    return yard_fail(&y) == RY_ERR_STALLED && ry_state_of(y.ch.state) == RY_CH_PARKED;
}

/* A move that begins under the eyes of who asks answers no; asked again, it is yes. */
static bool moved_meanwhile;
static void fail_now(struct yard *at) { moved_meanwhile = yard_fail(at) == RY_OK; }
static bool reusable_meets_a_move(void)
{
    uint32_t no = 0;

    for (uint32_t n = 1; n < 25; n++) {
        uint64_t end;

        yard_open(&y, 16, RY_HANDLER_GPU, 3);
        yard_post(&y, 0x1000, 1, &end);
        if (yard_fail(&y) != RY_OK)
            return false;
        yard_done(&y, 1, y.rung[1]);
        yard_acked(&y);
        y.host[0].fenced_epoch = 1;
        moved_meanwhile = false;
        yard_at(n, fail_now, &y);
        if (!ry_channel_reusable(&y.ch, 0, end)) {
            if (!moved_meanwhile)
                return false;
            no++;
        }
        yard_at(0, NULL, &y);
        if (!ry_channel_reusable(&y.ch, 0, end))
            return false;
    }
    return no > 0;
}

/* The syndrome of an error that flushes overwrite under the reader's eyes is not believed. */
static void flush_over_it(struct yard *at) { yard_error(at, 0, 2, RY_SYN_FLUSH); }
static bool syndrome_overwritten(void)
{
    bool blamed = false, spared = false;

    for (uint32_t n = 1; n < 12; n++) {
        yard_open(&y, 16, RY_HANDLER_GPU, 2);
        yard_post(&y, 0x1000, 1, NULL);
        yard_post(&y, 0x2000, 2, NULL);
        yard_error(&y, 0, 0, RY_SYN_REMOTE_ACCESS);
        yard_at(n, flush_over_it, &y);
        yard_acked(&y);
        if (y.ch.blame_set && (y.ch.blame_set != RY_SYN_REMOTE_ACCESS || y.ch.blame_seq != 0))
            return false;
        blamed |= y.ch.blame_set != 0;
        spared |= y.ch.blame_set == 0;
    }
    return blamed && spared;
}

/* --- whom an error blames (rule 12) --- */

static uint8_t syndrome;
static uint32_t refused_on;
static void refuse(struct yard *at)
{
    for (uint32_t i = 1; i < RY_SLOTS; i++) {
        int k = yard_find(at, i, 0xbad);

        if (at->rung[i] == 0 || (refused_on & 1u << i))
            continue;
        if (k >= 0) {
            yard_error(at, i, (uint32_t)k, syndrome);
            refused_on |= 1u << i;
            return;
        }
        yard_done(at, i, at->rung[i]);
    }
}

/* A request that is refused twice with this syndrome, the second time on a fresh life. */
static bool run_refused(uint8_t syn, bool fresh, bool port_up)
{
    uint64_t acked;

    yard_open(&y, 16, RY_HANDLER_GPU, 4);
    for (uint32_t i = 1; i < RY_SLOTS; i++) {
        y.host[i].offered_ns = fresh ? 1000000 : 0;
        y.host[i].port_up = port_up;
    }
    syndrome = syn;
    refused_on = 0;
    y.relax = refuse;
    yard_post(&y, 0xbad, 2, NULL);
    yard_post(&y, 0x3000, 3, NULL);
    yard_error(&y, 0, 0, syn);
    for (int i = 0; i < 10 && ry_state_of(y.ch.state) == RY_CH_GOOD; i++) {
        ry_channel_progress(&y.ch, &y.env, &acked);
        y.env.relax(&y);
    }
    return y.ch.op_errors == 1;
}

static bool error_of_the_operation(void)
{
    static const struct {
        uint8_t syn;
        int status;
    } all[] = {
        {RY_SYN_LOCAL_LENGTH, RY_ERR_LOCAL_ACCESS},   {RY_SYN_LOCAL_PROT, RY_ERR_LOCAL_ACCESS},
        {RY_SYN_LOCAL_ACCESS, RY_ERR_LOCAL_ACCESS},   {RY_SYN_REMOTE_INVALID_REQ, RY_ERR_REQUEST},
        {RY_SYN_REMOTE_ACCESS, RY_ERR_REMOTE_ACCESS}, {RY_SYN_REMOTE_OP, RY_ERR_REQUEST},
    };

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (!run_refused(all[i].syn, true, true) || y.ch.op_error != all[i].status)
            return false;
    return true;
}

/* Not convicted: an error of the path, keys that may be old, a port that went down meanwhile. */
static bool error_of_the_path(void)
{
    return !run_refused(RY_SYN_RETRY_EXC, true, true) && !run_refused(RY_SYN_FLUSH, true, true) &&
           !run_refused(RY_SYN_REMOTE_ACCESS, false, true) &&
           !run_refused(RY_SYN_REMOTE_ACCESS, true, false);
}

/* An error names a record that was never posted: any of the log is suspected, nothing is lost. */
static bool error_of_nothing(void)
{
    uint64_t acked;

    yard_open(&y, 16, RY_HANDLER_GPU, 2);
    yard_post(&y, 0x1000, 1, NULL);
    yard_error(&y, 0, 2, RY_SYN_REMOTE_ACCESS);
    y.relax = refuse;
    refused_on = 0;
    ry_channel_progress(&y.ch, &y.env, &acked);
    return y.ch.op_errors == 0 && yard_find(&y, 1, 0x1000) >= 0;
}

/* A NIC's own atomics: the block, and its keys on the next path. */
static bool atomics_are_carried(void)
{
    struct ry_req q = {.opcode = RY_OP_ATOMIC_CS, .bytes = 8, .laddr = 0x70, .raddr = 0x80};
    uint32_t keys[4] = {0xabc, 0, 0, 0};
    const struct ry_wqe *w;
    uint64_t end;

    yard_open(&y, 16, RY_HANDLER_GPU, 2);
    y.host[1].lkeys = keys;
    q.operand[0] = 7;
    q.operand[1] = 5;
    if (ry_channel_post(&y.ch, &q, 1, RY_POST_NO_PROOF, &y.env, &end) != RY_OK)
        return false;
    w = yard_block(&y, 0, 0);
    if (ry_wqe_ds(w) != 4 || ry_be64(w->u.atomic.swap_add) != 7 ||
        ry_be64(w->u.atomic.compare) != 5 || ry_be64(w->u.atomic.addr) != 0x70)
        return false;
    if (yard_fail(&y) != RY_OK)
        return false;
    w = yard_block(&y, 1, 0);
    return ry_be32(w->u.atomic.lkey) == 0xabc && ry_be64(w->u.atomic.swap_add) == 7 &&
           ry_be64(w->u.atomic.compare) == 5;
}

int main(void)
{
    static const struct schedule all[] = {
        {"planned needs a target", RY_MUT_NONE, planned_needs_a_target},
        {"failure takes the last resort", RY_MUT_NONE, failure_takes_the_last_resort},
        {"planned goes back", RY_MUT_NONE, planned_goes_back},
        {"planned becomes a failure", RY_MUT_PLANNED_NO_READ, planned_becomes_a_failure},
        {"not everybody moves", RY_MUT_NONE, not_everybody_moves},
        {"parked and empty", RY_MUT_NONE, parked_and_empty},
        {"broken by a reserver", RY_MUT_MOVE_WITHOUT_WAIT, broken_by_a_reserver},
        {"broken by a ringer", RY_MUT_NONE, broken_by_a_ringer},
        {"broken by a proxy", RY_MUT_NONE, broken_by_a_proxy},
        {"reusable meets a move", RY_MUT_NONE, reusable_meets_a_move},
        {"syndrome overwritten", RY_MUT_NO_ALONE, syndrome_overwritten},
        {"error of the operation", RY_MUT_NO_ALONE, error_of_the_operation},
        {"error of the path", RY_MUT_NONE, error_of_the_path},
        {"error of nothing", RY_MUT_NONE, error_of_nothing},
        {"atomics are carried", RY_MUT_NONE, atomics_are_carried},
    };

    return yard_run("move", all, sizeof(all) / sizeof(all[0]));
}
