/* SPDX-License-Identifier: Apache-2.0 */
/* Control messages to an agent, as a peer out of its mind may send them: any content, any order.
 * The agent stays within its tables, and lives go forward only. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "host/agent.h"
#include "nic/emu/emu.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len_bytes);

enum { CHANNELS = 2, DEPTH = 16, SLOTS = CHANNELS * RY_SLOTS };

static const uint8_t *rest;
static size_t left;
static uint64_t now;

static uint64_t now_ns(void *arg)
{
    (void)arg;
    return now += 1000;
}

static void relax(void *arg) { (void)arg; }

static void kick(void *arg, struct ry_ring *ring, uint32_t prod_idx)
{
    (void)arg, (void)ring, (void)prod_idx;
}

static int ctl_send(struct ry_boot *b, uint32_t pe, const void *msg, size_t len)
{
    (void)b, (void)msg;
    return pe == 1 && len == sizeof(struct ry_msg) ? RY_OK : RY_ERR_INVALID;
}

/* One message: a byte says how long it is, and whether its first words are what they should be. */
static int ctl_recv(struct ry_boot *b, uint32_t *from, void *msg, size_t *len)
{
    uint32_t version = RY_CTL_VERSION;
    struct ry_msg *m = msg;
    size_t n;
    uint8_t how;

    (void)b;
    if (left < 1)
        return 0;
    how = *rest++;
    left--;
    n = how & 1 ? sizeof(struct ry_msg) : how;
    if (n > *len)
        n = *len;
    memset(msg, 0, *len);
    memcpy(msg, rest, n < left ? n : left);
    rest += n < left ? n : left;
    left -= n < left ? n : left;
    if (how & 2)
        memcpy(&m->version, &version, sizeof(version));
    if (how & 4)
        m->incarnation = m->to_incarnation = 0;
    *from = how & 8 ? 1 : how >> 4;
    *len = n;
    return 1;
}

static void make(struct ry_mesh *m, struct ry_peer *peers, struct ry_boot *boot)
{
    static const struct ry_boot_ops ops = {.ctl_send = ctl_send, .ctl_recv = ctl_recv};
    static struct ry_channel ch[CHANNELS];
    static struct ry_in_slot in[SLOTS];
    static struct ry_out_channel out[CHANNELS];
    static uint8_t heap[4096];

    memset(m, 0, sizeof(*m));
    memset(peers, 0, 2 * sizeof(*peers));
    memset(ch, 0, sizeof(ch));
    memset(in, 0, sizeof(in));
    memset(out, 0, sizeof(out));
    boot->ops = &ops;
    m->boot = boot;
    m->n_pes = 2;
    m->peers = peers;
    m->heap = heap;
    m->heap_bytes = sizeof(heap);
    m->hello.rails = peers[1].hello.rails = 2;
    m->cfg.depth = DEPTH;
    m->cfg.path_timeout_ns = m->cfg.timeout_ns = 1000000;
    m->cfg.recovery_ns = m->cfg.recovery_ns_max = 1000000;
    m->env = (struct ry_env){.now_ns = now_ns, .relax = relax, .kick = kick};
    peers[1].pe = 1;
    peers[1].n_channels = CHANNELS;
    peers[1].in = in;
    peers[1].out = out;
    for (uint32_t i = 0; i < CHANNELS; i++) {
        out[i].ch = &ch[i];
        for (uint32_t s = 0; s < RY_SLOTS; s++)
            ch[i].ring[s].host = &out[i].slot[s].host;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len_bytes)
{
    static struct ry_mesh m;
    static struct ry_peer peers[2];
    struct ry_boot boot = {.n_pes = 2};
    struct ry_emu_cfg cfg = {.n_pes = 2,
                             .rails = 2,
                             .ports_per_nic = 2,
                             .virtual_time = true,
                             .threads = true,
                             .now_ns = now_ns};
    uint64_t epoch[SLOTS] = {0};

    now = 1000000;
    make(&m, peers, &boot);
    if (ry_emu_open(&cfg, &m.nic) != RY_OK)
        return 0;
    for (rest = data, left = len_bytes; left > 0;) {
        ry_agent_receive(&m, now_ns(NULL));
        for (uint32_t i = 0; i < SLOTS; i++) {
            ry_agent_in(&m, &peers[1], i, now_ns(NULL));
            if (peers[1].in[i].epoch < epoch[i])
                abort();
            epoch[i] = peers[1].in[i].epoch;
        }
    }
    for (uint32_t i = 0; i < SLOTS; i++)
        if (peers[1].in[i].qp)
            m.nic->ops->qp_destroy(peers[1].in[i].qp);
    m.nic->ops->close(m.nic);
    return 0;
}
