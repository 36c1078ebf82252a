/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules of completions, replay, release and reuse. The number in a name is the schedule's in
 * doc/proof.md. */
#include "sim/yard.h"

static struct yard y;

/* Executed and answered, the acknowledgement lost: not released, and no buffer to write again. */
static bool s10_answered_not_acknowledged(void)
{
    uint64_t end;

    yard_open(&y, 16, RY_HANDLER_GPU, 2);
    yard_post(&y, 0x1000, 1, &end);
    ry_channel_answered(&y.ch, end);
    if (ry_channel_reusable(&y.ch, 0, end))
        return false;
    return yard_fail(&y) == RY_OK && yard_find(&y, 1, 0x1000) >= 0;
}

/* The link heals after the replay was acknowledged: the old queue pair could read the source. */
static bool s12_old_path_lives(void)
{
    uint64_t end;

    yard_open(&y, 16, RY_HANDLER_GPU, 2);
    yard_post(&y, 0x1000, 1, &end);
    if (yard_fail(&y) != RY_OK)
        return false;
    yard_done(&y, 1, y.rung[1]); /* the replay, and the read behind it */
    yard_acked(&y);
    if (ry_channel_reusable(&y.ch, 0, end))
        return false;
    y.host[0].fenced_epoch = 1;
    return ry_channel_reusable(&y.ch, 0, end);
}

/* Payload acknowledged and not yet in memory; a planned move: the signal of what follows must not
 * pass it. */
static void answer_read(struct yard *at) { yard_done(at, 0, at->rung[0]); }
static bool s14_read_before_planned_move(void)
{
    yard_open(&y, 16, RY_HANDLER_GPU, 2);
    yard_post(&y, 0x1000, 1, NULL);
    yard_done(&y, 0, y.rung[0]);
    yard_acked(&y);
    y.relax = answer_read;
    if (ry_channel_move(&y.ch, RY_MOVE_PLANNED, y.ch.state, &y.env) != RY_OK)
        return false;
    return y.rung[0] == 3 && ry_wqe_opcode(yard_block(&y, 0, 2)) == RY_OP_READ;
}

/* Chunk 1 acknowledged, and lost with its NIC; chunk 2's count would say that both are there. */
static bool s15_acknowledged_and_lost(void)
{
    yard_open(&y, 16, RY_HANDLER_GPU, 2);
    yard_post(&y, 0x1000, 1, NULL);
    yard_post(&y, 0x2000, 2, NULL);
    yard_done(&y, 0, 2);
    yard_acked(&y);
    if (yard_fail(&y) != RY_OK)
        return false;
    return yard_find(&y, 1, 0x1000) >= 0 && yard_find(&y, 1, 0x2000) > yard_find(&y, 1, 0x1000);
}

/* A late copy of signal 1 lands behind signal 2, which came by the other path. */
static bool s17_late_signal(void)
{
    struct ry_sector s = {{0}};
    uint64_t first, second;

    yard_open(&y, 16, RY_HANDLER_GPU, 2);
    yard_post(&y, 0x1000, 1, NULL);
    first = ry_be64(yard_block(&y, 0, 1)->raddr);
    if (yard_fail(&y) != RY_OK)
        return false;
    yard_post(&y, 0x2000, 2, NULL);
    second = ry_be64(yard_block(&y, 1, y.rung[1] - 1)->raddr);
    s.word[(second - 0x9000) / 8] = 2;
    s.word[(first - 0x9000) / 8] = 1;
    return ry_observe_signal(&s) == 2;
}

/* The value is the message's and not the path's: the same on every life. */
static bool s18_no_epoch_in_the_value(void)
{
    yard_open(&y, 16, RY_HANDLER_GPU, 2);
    y.host[1].armed_epoch = 7;
    yard_post(&y, 0x1000, 0x123456789abcull, NULL);
    if (yard_fail(&y) != RY_OK)
        return false;
    for (uint32_t i = 0; i < 8; i++)
        if (yard_block(&y, 0, 1)->u.inl.bytes[i] != yard_block(&y, 1, 1)->u.inl.bytes[i])
            return false;
    return true;
}

/* (g+1, 5) over an unread (g, 17): the greater generation wins, and 5 is not final. */
static bool s19_partial_count_is_not_final(void)
{
    uint64_t old = ry_sig_pack(8, true, 17), part = ry_sig_pack(9, false, 5);
    uint64_t whole = ry_sig_pack(9, true, 5);

    return part > old && whole > part && !(part & RY_SIG_LAST) && (whole & RY_SIG_LAST);
}

/* Fail, return, fail: each life has the word of its slot, and a slot is used again when its last
 * life was fenced and the agent has armed another. */
static bool s20_word_of_a_slot(void)
{
    yard_open(&y, 16, RY_HANDLER_GPU, 2);
    yard_post(&y, 0x1000, 1, NULL);
    if (yard_fail(&y) != RY_OK || yard_fail(&y) != RY_ERR_PATH)
        return false; /* nothing is left: slot 0's old life is no target */
    y.host[0].port_up = 1;
    y.host[0].armed_epoch = 2;
    y.host[0].qpn = 0x777;
    if (ry_channel_move(&y.ch, RY_MOVE_CONDEMNED, y.ch.state, &y.env) != RY_OK)
        return false;
    return ry_state_active(y.ch.state) == 0 && ry_wqe_qpn(yard_block(&y, 0, 0)) == 0x777 &&
           yard_find(&y, 0, 0x1000) >= 0;
}

/* The NIC writes an error over the good completion between two looks at it. */
static void error_over_it(struct yard *at) { yard_error(at, 0, 3, RY_SYN_RETRY_EXC); }
static bool s25_error_over_good(void)
{
    for (uint32_t n = 1; n < 12; n++) {
        yard_open(&y, 16, RY_HANDLER_GPU, 2);
        yard_post(&y, 0x1000, 1, NULL);
        yard_post(&y, 0x2000, 2, NULL);
        yard_done(&y, 0, 2);
        yard_at(n, error_over_it, &y);
        if (yard_acked(&y) > 2)
            return false;
    }
    return true;
}

/* Flushes overwrite the first error: none of them proves the read it names. */
static bool s26_flush_is_no_frontier(void)
{
    uint64_t end;

    yard_open(&y, 16, RY_HANDLER_GPU, 2);
    yard_post(&y, 0x1000, 1, NULL);
    ry_channel_post_proof(&y.ch, &y.env, &end);
    yard_error(&y, 0, 2, RY_SYN_FLUSH);
    yard_acked(&y);
    return y.ch.released == 0 && ry_packed_seq(y.ch.ring[0].cons) == 0;
}

/* W reads a counter and sleeps for 65,500 completions. */
static void much_later(struct yard *at)
{
    struct ry_ring *r = &at->ch.ring[0];

    r->cons = ry_pack(ry_packed_move(r->cons), 65500);
    r->ready_head = ry_pack(ry_packed_move(r->ready_head), 65540);
    r->resv_head = r->ready_head;
}
static bool s27_sleeping_waiter(void)
{
    struct ry_ring *r = &y.ch.ring[0];
    uint64_t cons, at;
    uint8_t syn;

    for (uint32_t n = 1; n < 6; n++) {
        yard_open(&y, 64, RY_HANDLER_GPU, 1);
        r->ready_head = ry_pack(ry_packed_move(r->ready_head), 40);
        r->resv_head = r->ready_head;
        yard_done(&y, 0, 1); /* counter 0, which is 65536 by then */
        yard_at(n, much_later, &y);
        ry_queue_poll(r, &cons, &syn, &at);
        if (n > 2 && ry_packed_seq(r->cons) != 65500 && ry_packed_seq(r->cons) != 1)
            return false;
    }
    return true;
}

/* A completion of an earlier life stands in the CQ. */
static bool s28_completion_of_another_life(void)
{
    yard_open(&y, 16, RY_HANDLER_GPU, 2);
    yard_post(&y, 0x1000, 1, NULL);
    ry_publish_cqe(&y.cqe[0], ry_cqe_encode(0x55, 1, RY_CQE_REQ, 0));
    return yard_acked(&y) == 0;
}

/* W loads a good completion; an error comes, the mover takes the frontier; W stores what it had. */
static void fails_now(struct yard *at)
{
    yard_error(at, 0, 3, RY_SYN_RETRY_EXC);
    yard_fail(at);
}
static bool s29_late_store_after_freeze(void)
{
    for (uint32_t n = 1; n < 12; n++) {
        uint64_t released;

        yard_open(&y, 16, RY_HANDLER_GPU, 2);
        yard_post(&y, 0x1000, 1, NULL);
        yard_done(&y, 0, 2);
        yard_at(n, fails_now, &y);
        yard_acked(&y);
        released = y.ch.released;
        if (ry_state_active(y.ch.state) == 1 && (released || yard_find(&y, 1, 0x1000) < 0))
            return false;
    }
    return true;
}

/* A completion for a block that nobody has posted. */
static bool s30_completion_of_nothing(void)
{
    yard_open(&y, 16, RY_HANDLER_GPU, 1);
    yard_post(&y, 0x1000, 1, NULL);
    yard_done(&y, 0, 9);
    return yard_acked(&y) == 0;
}

/* W sees that a read was answered and sleeps across two moves, into the slot's next life. */
static void two_moves(struct yard *at)
{
    if (yard_fail(at) != RY_OK)
        return;
    at->host[0].fenced_epoch = 1;
    at->host[0].port_up = 1;
    at->host[0].qpn = 0x777;
    ry_publish_cqe(&at->cqe[0], ry_cqe_encode(0, 0, RY_CQE_INVALID, 1));
    at->host[0].armed_epoch = 2;
    yard_fail(at);
}
static bool s29_late_proof(void)
{
    for (uint32_t n = 1; n < 30; n++) {
        uint64_t end, acked;

        yard_open(&y, 16, RY_HANDLER_GPU, 2);
        yard_post(&y, 0x1000, 1, NULL);
        ry_channel_post_proof(&y.ch, &y.env, &end);
        yard_done(&y, 0, 3);
        yard_at(n, two_moves, &y);
        ry_channel_poll(&y.ch, &y.env, &acked);
        if (y.ch.ring[0].epoch == 2 && ry_state_active(y.ch.state) == 0 &&
            ry_packed_seq(y.ch.ring[0].proven) > ry_packed_seq(y.ch.ring[0].first))
            return false;
    }
    return true;
}

/* One request is refused wherever it goes: it becomes NOPs and an error, the paths live. */
static uint32_t refused_on;
static void refuse(struct yard *at)
{
    for (uint32_t i = 1; i < RY_SLOTS; i++) {
        if (at->rung[i] == 0 || (refused_on & 1u << i))
            continue;
        for (uint32_t k = 0; k < at->rung[i]; k++)
            if (ry_wqe_opcode(yard_block(at, i, k)) == RY_OP_WRITE &&
                ry_be64(yard_block(at, i, k)->raddr) == 0xbad) {
                yard_error(at, i, k, RY_SYN_REMOTE_ACCESS);
                refused_on |= 1u << i;
                return;
            }
        yard_done(at, i, at->rung[i]);
    }
}
static bool s41_bad_request(void)
{
    uint64_t acked;

    yard_open(&y, 16, RY_HANDLER_GPU, 4);
    for (uint32_t i = 1; i < RY_SLOTS; i++)
        y.host[i].offered_ns = 1000000; /* armed after the suspicion */
    refused_on = 0;
    y.relax = refuse;
    yard_post(&y, 0x1000, 1, NULL);
    yard_post(&y, 0xbad, 2, NULL);
    yard_post(&y, 0x3000, 3, NULL);
    yard_error(&y, 0, 2, RY_SYN_REMOTE_ACCESS);
    for (int i = 0; i < 10 && ry_state_of(y.ch.state) == RY_CH_GOOD; i++) {
        ry_channel_progress(&y.ch, &y.env, &acked);
        y.env.relax(&y);
    }
    return y.ch.op_errors == 1 && ry_state_of(y.ch.state) == RY_CH_GOOD &&
           yard_find(&y, ry_state_active(y.ch.state), 0x3000) >= 0;
}

/* 1 was acknowledged on P and is still in its NIC; the answer comes from its copy on P'. 46, and 47
 * with a second failure between. */
static bool answered_by_copy(uint32_t failures)
{
    uint64_t end;

    yard_open(&y, 16, RY_HANDLER_GPU, 1 + failures);
    yard_post(&y, 0x1000, 1, &end);
    yard_done(&y, 0, 2);
    yard_acked(&y);
    for (uint32_t i = 0; i < failures; i++)
        if (yard_fail(&y) != RY_OK)
            return false;
    yard_done(&y, failures, y.rung[failures]);
    yard_acked(&y);
    ry_channel_answered(&y.ch, end);
    for (uint32_t i = 0; i < failures; i++) {
        if (ry_channel_reusable(&y.ch, 0, end))
            return false;
        y.host[i].fenced_epoch = 1;
    }
    return ry_channel_reusable(&y.ch, 0, end);
}
static bool s46_answer_from_the_copy(void) { return answered_by_copy(1); }
static bool s47_answer_from_the_second_copy(void) { return answered_by_copy(2); }

/* Acknowledged and answered on P, replayed on P' before the answer is seen: the replay may still
 * land. */
static bool s48_replay_still_lands(void)
{
    uint64_t end;

    yard_open(&y, 16, RY_HANDLER_GPU, 2);
    yard_post(&y, 0x1000, 1, &end);
    yard_done(&y, 0, 2);
    yard_acked(&y);
    if (yard_fail(&y) != RY_OK)
        return false;
    y.host[0].fenced_epoch = 1;
    ry_channel_answered(&y.ch, end); /* the replay is not acknowledged */
    if (ry_channel_reusable(&y.ch, 0, end))
        return false;
    yard_done(&y, 1, y.rung[1]); /* the replay, and the read behind it */
    yard_acked(&y);
    return y.rung[1] == 3 && ry_channel_reusable(&y.ch, 0, end);
}

/* 1 went through P and is proven there by the planned move; P' dies with 2: P is a target. */
static bool s49_emptied_ring_is_a_target(void)
{
    yard_open(&y, 16, RY_HANDLER_GPU, 2);
    yard_post(&y, 0x1000, 1, NULL);
    y.relax = answer_read;
    if (ry_channel_move(&y.ch, RY_MOVE_PLANNED, y.ch.state, &y.env) != RY_OK)
        return false;
    yard_post(&y, 0x2000, 2, NULL);
    if (yard_fail(&y) != RY_OK)
        return false;
    return ry_state_active(y.ch.state) == 0 && yard_find(&y, 0, 0x2000) > 0 &&
           y.ch.last_replayed == 1;
}

int main(void)
{
    static const struct schedule all[] = {
        {"10 answered, not acknowledged", RY_MUT_RELEASE_ON_ANSWER, s10_answered_not_acknowledged},
        {"11 source behind an answer", RY_MUT_RELEASE_ON_ANSWER, s10_answered_not_acknowledged},
        {"12 old path lives", RY_MUT_REUSE_UNFENCED, s12_old_path_lives},
        {"14 read before planned move", RY_MUT_PLANNED_NO_READ, s14_read_before_planned_move},
        {"15 acknowledged and lost", RY_MUT_REPLAY_FROM_ACKED, s15_acknowledged_and_lost},
        {"17 late signal", RY_MUT_ONE_WORD, s17_late_signal},
        {"18 no epoch in the value", RY_MUT_NONE, s18_no_epoch_in_the_value},
        {"19 partial count is not final", RY_MUT_NONE, s19_partial_count_is_not_final},
        {"20 word of a slot", RY_MUT_NONE, s20_word_of_a_slot},
        {"25 error over good", RY_MUT_OPCODE_EARLY, s25_error_over_good},
        {"26 flush is no frontier", RY_MUT_FRONTIER_FROM_FLUSH, s26_flush_is_no_frontier},
        {"27 sleeping waiter", RY_MUT_BASE_AFTER_CQE, s27_sleeping_waiter},
        {"28 completion of another life", RY_MUT_NONE, s28_completion_of_another_life},
        {"29 late store after freeze", RY_MUT_RELEASE_ON_ACK, s29_late_store_after_freeze},
        {"29 late proof", RY_MUT_LATE_PROOF, s29_late_proof},
        {"30 completion of nothing", RY_MUT_STALE_DISTANCE, s30_completion_of_nothing},
        {"41 bad request", RY_MUT_NO_ALONE, s41_bad_request},
        {"46 answer from the copy", RY_MUT_REUSE_UNFENCED, s46_answer_from_the_copy},
        {"47 answer from the second copy", RY_MUT_REUSE_UNFENCED, s47_answer_from_the_second_copy},
        {"48 replay still lands", RY_MUT_NO_PROOF_READ, s48_replay_still_lands},
        {"49 emptied ring is a target", RY_MUT_NONE, s49_emptied_ring_is_a_target},
    };

    return yard_run("schedule", all, sizeof(all) / sizeof(all[0]));
}
