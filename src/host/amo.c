/* SPDX-License-Identifier: Apache-2.0 */
#include "host/amo.h"

#include <railyard/rma.h>
#include <string.h>

#include "host/ctx.h"
#include "host/error.h"

/* --- target: run what arrived, in the source's order, once --- */

static uint64_t run_record(struct ry_ctx *ctx, const struct ry_amo_record *q, uint64_t *status)
{
    uint64_t *word = (uint64_t *)(void *)(ctx->mesh.heap + q->offset), old;

    *status = 0;
    if (q->offset % 8 || q->offset > ctx->mesh.heap_bytes - 8) {
        *status = (uint64_t)-RY_ERR_REMOTE_ACCESS;
        return 0;
    }
    switch (q->op & 0xff) {
    case RY_AMO_ADD:
        return __atomic_fetch_add(word, q->operand, __ATOMIC_ACQ_REL);
    case RY_AMO_SWAP:
        return __atomic_exchange_n(word, q->operand, __ATOMIC_ACQ_REL);
    case RY_AMO_CAS:
        old = q->compare;
        __atomic_compare_exchange_n(word, &old, q->operand, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE);
        return old;
    case RY_AMO_FETCH:
        return __atomic_load_n(word, __ATOMIC_ACQUIRE);
    default:
        *status = (uint64_t)-RY_ERR_REQUEST;
        return 0;
    }
}

/* Answer request number `seq` of `pe`: result and signal, one message. Our record of the answer is
 * reused a window later, when the source has seen the answer to the one before: its request says
 * so. */
static int answer(struct ry_ctx *ctx, uint32_t pe, uint64_t seq, uint64_t value, uint64_t status)
{
    struct ry_mesh *m = &ctx->mesh;
    struct ry_amo_inbox *mine = &ctx->amo.inbox[pe]; /* at the peer: inbox[our pe] */
    struct ry_amo_inbox *there = &ctx->amo.inbox[m->pe];
    struct ry_amo_peer *p = &ctx->amo.peer[pe];
    uint32_t i = (uint32_t)(seq % RY_AMO_WINDOW);
    struct ry_amo_result *r = &mine->back[i];
    struct ry_channel *ch = ry_mesh_channel(m, pe, 0);
    struct ry_req q[2] = {{0}};

    if (seq > RY_AMO_WINDOW) {
        ry_channel_answered(ch, p->back_end[i]);
        if (!ry_channel_reusable(ch, p->back_from[i], p->back_end[i]))
            return RY_ERR_AGAIN;
    }
    *r = (struct ry_amo_result){seq, value, status, 0};
    q[0].opcode = RY_OP_WRITE;
    q[0].bytes = sizeof(*r);
    q[0].laddr = ry_mesh_laddr(m, r);
    q[0].raddr = ry_mesh_raddr(m, pe, &there->result[i]);
    q[1] = ry_signal_req(ry_mesh_raddr(m, pe, &there->results), seq, 0);
    if (ry_channel_post(ch, q, 2, RY_POST_NO_PROOF, &m->env, &p->back_end[i]) != RY_OK)
        return RY_ERR_AGAIN;
    p->back_from[i] = ry_seq_add(p->back_end[i], (uint64_t)0 - 2);
    return RY_OK;
}

/* A result that could not be sent yet is kept: the operation itself never runs again. */
static void serve(struct ry_ctx *ctx, uint32_t pe)
{
    struct ry_amo_inbox *in = &ctx->amo.inbox[pe];
    struct ry_amo_peer *p = &ctx->amo.peer[pe];
    uint64_t have = ry_observe_signal(&in->requests);

    while (p->done < have) {
        uint64_t seq = p->done + 1;
        const struct ry_amo_record *q = &in->record[seq % RY_AMO_WINDOW];

        if (p->ran < seq || RY_MUT(RY_MUT_AMO_REPLAYED)) {
            p->value = run_record(ctx, q, &p->status);
            p->ran = seq;
        }
        if (answer(ctx, pe, seq, p->value, p->status) != RY_OK)
            return;
        p->done = seq;
    }
}

void ry_amo_work(void *arg)
{
    struct ry_ctx *ctx = arg;
    struct ry_mesh *m = &ctx->mesh;

    if (!ctx->amo.inbox || pthread_mutex_trylock(&ctx->amo.lock))
        return;
    for (uint32_t q = 0; q < m->n_pes; q++)
        if (q != m->pe && m->peers[q].out && ry_peer_state(&m->peers[q]) != RY_PEER_GONE)
            serve(ctx, q);
    pthread_mutex_unlock(&ctx->amo.lock);
}

/* --- source --- */

static int request(struct ry_ctx *ctx, uint32_t pe, const struct ry_amo_record *what, uint64_t *old)
{
    struct ry_mesh *m = &ctx->mesh;
    struct ry_amo_peer *p = &ctx->amo.peer[pe];
    struct ry_amo_inbox *mine = &ctx->amo.inbox[pe], *there = &ctx->amo.inbox[m->pe];
    struct ry_channel *ch = ry_mesh_channel(m, pe, 0);
    uint64_t seq = p->sent + 1, end;
    uint32_t i = (uint32_t)(seq % RY_AMO_WINDOW);
    struct ry_req q[2] = {{0}};
    struct ry_wait w;
    int rc;

    ry_wait_begin(m, &w, pe, 0);
    while (seq > RY_AMO_WINDOW && !ry_channel_reusable(ch, p->sent_from[i], p->sent_end[i])) {
        ry_channel_answered(ch, p->sent_end[i]);
        rc = ry_wait_turn(m, &w);
        if (rc)
            return rc;
    }
    mine->out[i] = *what;
    mine->out[i].sequence = seq;
    mine->out[i].op |= (uint64_t)m->hello.incarnation << 32;
    q[0].opcode = RY_OP_WRITE;
    q[0].bytes = sizeof(mine->out[i]);
    q[0].laddr = ry_mesh_laddr(m, &mine->out[i]);
    q[0].raddr = ry_mesh_raddr(m, pe, &there->record[i]);
    q[1] = ry_signal_req(ry_mesh_raddr(m, pe, &there->requests), seq, 0);
    rc = ry_mesh_post(m, pe, 0, q, 2, RY_POST_NO_PROOF, &end);
    if (rc)
        return rc;
    p->sent = seq;
    p->sent_end[i] = end;
    p->sent_from[i] = ry_seq_add(end, (uint64_t)0 - 2);
    while (ry_observe_signal(&mine->results) < seq) {
        rc = ry_wait_turn(m, &w);
        if (rc)
            return rc;
    }
    ry_channel_answered(ch, end);
    if (old)
        *old = mine->result[i].value;
    return mine->result[i].status
               ? ry_fail(-(int)mine->result[i].status, "atomic on pe %u refused: %s", pe,
                         ry_status_text(-(int)mine->result[i].status))
               : RY_OK;
}

static int amo(struct ry_ctx *ctx, uint64_t op, const uint64_t *dst, uint64_t operand,
               uint64_t compare, uint32_t pe, uint64_t *old)
{
    struct ry_mesh *m = &ctx->mesh;
    struct ry_amo_record q = {.op = op,
                              .offset = (uint64_t)((const uint8_t *)dst - m->heap),
                              .operand = operand,
                              .compare = compare};
    uint64_t value, status;

    if (pe >= m->n_pes || !ry_mesh_in_heap(m, dst, 8) || q.offset % 8)
        return ry_fail(RY_ERR_INVALID,
                       "atomic on %p of pe %u: not an aligned heap word, or no such pe",
                       (const void *)dst, pe);
    if (pe != m->pe) {
        int rc = ry_mesh_has_channels(m, pe);

        return rc ? rc : request(ctx, pe, &q, old);
    }
    value = run_record(ctx, &q, &status); /* one executor per word: the PE that owns it */
    if (old)
        *old = value;
    return RY_OK;
}

int ry_amo_add(ry_ctx *ctx, uint64_t *dst, uint64_t value, uint32_t pe)
{
    return amo(ctx, RY_AMO_ADD, dst, value, 0, pe, NULL);
}

int ry_amo_fetch_add(ry_ctx *ctx, uint64_t *dst, uint64_t value, uint32_t pe, uint64_t *old)
{
    return amo(ctx, RY_AMO_ADD, dst, value, 0, pe, old);
}

int ry_amo_swap(ry_ctx *ctx, uint64_t *dst, uint64_t value, uint32_t pe, uint64_t *old)
{
    return amo(ctx, RY_AMO_SWAP, dst, value, 0, pe, old);
}

int ry_amo_cas(ry_ctx *ctx, uint64_t *dst, uint64_t expect, uint64_t value, uint32_t pe,
               uint64_t *old)
{
    return amo(ctx, RY_AMO_CAS, dst, value, expect, pe, old);
}

int ry_amo_fetch(ry_ctx *ctx, const uint64_t *dst, uint32_t pe, uint64_t *value)
{
    return amo(ctx, RY_AMO_FETCH, dst, 0, 0, pe, value);
}
