/* SPDX-License-Identifier: Apache-2.0 */
/* Failures that others have met in public, replayed: each comment names the report (owner,
 * repository, number) and says what is right. Those that need an agent and a NIC are in
 * test_reports_agent.c. */
#include "core/route.h"
#include "sim/yard.h"

static struct yard y, z;

/* NVIDIA/nccl#2383: one queue pair gets syndrome 0x15, its companion is flushed, the kernel waits
 * for ever. Right: both leave their path at once, whatever the syndrome, and lose nothing. */
static bool nccl_2383(void)
{
    uint64_t acked;

    yard_open(&y, 16, RY_HANDLER_GPU, 2);
    yard_post(&y, 0x1000, 1, NULL);
    yard_error(&y, 0, 0, RY_SYN_RETRY_EXC);
    ry_channel_progress(&y.ch, &y.env, &acked);
    yard_open(&z, 16, RY_HANDLER_GPU, 2);
    yard_post(&z, 0x2000, 1, NULL);
    yard_error(&z, 0, 1, RY_SYN_FLUSH);
    ry_channel_progress(&z.ch, &z.env, &acked);
    return ry_state_active(y.ch.state) == 1 && yard_find(&y, 1, 0x1000) >= 0 &&
           ry_state_active(z.ch.state) == 1 && yard_find(&z, 1, 0x2000) >= 0;
}

/* deepseek-ai/DeepEP#558: the wqe_counter of an error completion looks like work that is done.
 * Right: the opcode is believed before the counter. */
static bool deepep_558(void)
{
    yard_open(&y, 16, RY_HANDLER_GPU, 2);
    yard_post(&y, 0x1000, 1, NULL);
    yard_error(&y, 0, 1, RY_SYN_RETRY_EXC);
    return yard_acked(&y) == 0 && y.ch.released == 0;
}

/* NVIDIA/nccl#2334: good completions meet request slots that are not in use. Right: a completion of
 * nothing that was posted changes nothing. */
static bool nccl_2334(void)
{
    yard_open(&y, 16, RY_HANDLER_GPU, 1);
    yard_post(&y, 0x1000, 1, NULL);
    yard_done(&y, 0, 2);
    if (yard_acked(&y) != 2)
        return false;
    yard_done(&y, 0, 5);
    return yard_acked(&y) == 2;
}

/* NVIDIA/nccl#2157: both ends start their recovery at different times, and five attempts are used
 * up. Right: as many failures as there may be, each on a fresh life, and the record stays whole. */
static bool nccl_2157(void)
{
    yard_open(&y, 16, RY_HANDLER_GPU, 2);
    yard_post(&y, 0x1000, 1, NULL);
    for (uint32_t i = 0; i < 20; i++) {
        uint32_t left = ry_state_active(y.ch.state);

        if (yard_fail(&y) != RY_OK || yard_find(&y, ry_state_active(y.ch.state), 0x1000) < 0)
            return false;
        y.host[left].fenced_epoch = y.host[left].armed_epoch;
        y.rung[left] = 0;
        y.host[left].port_up = 1;
        y.host[left].qpn += 16;
        y.host[left].armed_epoch++;
    }
    return y.ch.moves == 20;
}

/* kvcache-ai/Mooncake#3523: a link is down for minutes, requests hang without an error while
 * 780,000 reroutes go nowhere. Right: the channel waits where it is, moves not once while there is
 * no path, takes one at once when there is, and else fails when its time is over. */
static bool mooncake_3523(void)
{
    uint64_t acked;

    yard_open(&y, 16, RY_HANDLER_GPU, 1);
    yard_post(&y, 0x1000, 1, NULL);
    if (yard_fail(&y) != RY_ERR_PATH)
        return false;
    for (int i = 0; i < 50; i++)
        ry_channel_progress(&y.ch, &y.env, &acked);
    if (y.ch.moves != 0 || ry_state_of(y.ch.state) != RY_CH_PARKED)
        return false;
    y.now += y.env.lost_ns_max;
    return ry_channel_progress(&y.ch, &y.env, &acked) == RY_ERR_UNREACHABLE;
}

/* kvcache-ai/Mooncake#2908: a local queue pair operation error. Right: that life is left, and the
 * request is not blamed for it. */
static bool mooncake_2908(void)
{
    uint64_t acked;

    yard_open(&y, 16, RY_HANDLER_GPU, 2);
    yard_post(&y, 0x1000, 1, NULL);
    yard_error(&y, 0, 0, RY_SYN_LOCAL_QP_OP);
    ry_channel_progress(&y.ch, &y.env, &acked);
    return ry_state_active(y.ch.state) == 1 && y.ch.op_errors == 0 && !y.ch.blame_set &&
           yard_find(&y, 1, 0x1000) >= 0;
}

/* deepseek-ai/DeepEP#20: a flag passes its payload. Right: one message on one queue pair, payload
 * first, also when it is sent again although the payload had been acknowledged. */
static bool deepep_20(void)
{
    int payload, signal;

    yard_open(&y, 16, RY_HANDLER_GPU, 2);
    yard_post(&y, 0x1000, 1, NULL);
    yard_done(&y, 0, 1); /* the payload alone */
    yard_acked(&y);
    if (yard_fail(&y) != RY_OK)
        return false;
    payload = yard_find(&y, 1, 0x1000);
    signal = yard_find(&y, 1, 0x9000 + 8);
    return payload >= 0 && signal == payload + 1;
}

/* deepseek-ai/DeepEP#650: the second half of the queue pair pool is never used. Right: small
 * messages go round all channels, by weight. */
static bool deepep_650(void)
{
    uint32_t weights[8];
    uint64_t sent[8] = {0};

    for (int i = 0; i < 8; i++)
        weights[i] = 100;
    for (int i = 0; i < 800; i++)
        ry_route_pick(weights, sent, 8, 64);
    for (int i = 0; i < 8; i++)
        if (sent[i] != 100 * 64)
            return false;
    return true;
}

/* deepseek-ai/DeepEP#427, deepseek-ai/DeepEP#301: the send queue overruns under imbalance. Right:
 * room is taken before anything is written, and what is not there is not taken. */
static bool deepep_427(void)
{
    yard_open(&y, 16, RY_HANDLER_GPU, 1);
    for (int i = 0; i < 40; i++)
        yard_post(&y, 0x1000 + (uint64_t)i, 1, NULL);
    return ry_packed_seq(y.ch.ring[0].resv_head) <= 16 && yard_find(&y, 0, 0x1000) == 0;
}

/* deepseek-ai/DeepEP#677: a submission that the proxy does not see. Right: each raise of the
 * producer slot is a new value, and the proxy rings for it. */
static bool deepep_677(void)
{
    yard_open(&y, 16, RY_HANDLER_CPU_HOST_MEMORY, 2);
    for (uint32_t i = 1; i <= 3; i++) {
        yard_post(&y, 0x1000, i, NULL);
        if (y.rung[0] != 2 * i)
            return false;
    }
    if (yard_fail(&y) != RY_OK)
        return false;
    yard_post(&y, 0x2000, 4, NULL);
    return yard_find(&y, 1, 0x2000) >= 0;
}

int main(void)
{
    static const struct schedule all[] = {
        {"nccl 2383", RY_MUT_OPCODE_UNCHECKED, nccl_2383},
        {"DeepEP 558", RY_MUT_OPCODE_UNCHECKED, deepep_558},
        {"nccl 2334", RY_MUT_STALE_DISTANCE, nccl_2334},
        {"nccl 2157", RY_MUT_RESET_BEFORE_COPY, nccl_2157},
        {"Mooncake 3523", RY_MUT_NO_GIVE_UP, mooncake_3523},
        {"Mooncake 2908", RY_MUT_OPCODE_UNCHECKED, mooncake_2908},
        {"DeepEP 20", RY_MUT_REPLAY_FROM_ACKED, deepep_20},
        {"DeepEP 650", RY_MUT_ROUTE_HALF, deepep_650},
        {"DeepEP 427, 301", RY_MUT_RESERVE_BEFORE_ROOM, deepep_427},
        {"DeepEP 677", RY_MUT_PROXY_SHORT_LOOK, deepep_677},
    };

    return yard_run("report", all, sizeof(all) / sizeof(all[0]));
}
