/* SPDX-License-Identifier: Apache-2.0 */
#include "core/queue.h"
#include "cuda/nic.h"
#include "cuda/ptx.h"

#define RY_GNIC_THREADS 512u
#define RY_GNIC_UNIT    4096u  /* bytes that a warp copies at a time */
#define RY_GNIC_CREDIT  20000u /* ns by which the wire may catch up with the model */
#define RY_GNIC_SHORT   64u    /* bytes of a read that one thread does */

/* One WQE, decoded. */
struct ry_gnic_job {
    uint64_t from, to;
    uint64_t word[3]; /* inline data */
    uint32_t bytes, unit;
    uint8_t op, inlined, signalled, syndrome;
};

/* A block's view of a queue pair. */
struct ry_gnic_seat {
    struct ry_wqe *wqe;
    struct ry_cqe *cqe;
    uint64_t *uar, *report;
    uint64_t epoch;
    uint32_t mask, qpn, port, peer_port, peer;
    uint32_t done; /* WQEs retired in this life */
    bool ours, stopped;
};

struct ry_gnic_block {
    struct ry_gnic_seat seat[RY_GNIC_QPS_MAX];
    struct ry_gnic_job job[RY_GNIC_BATCH];
    uint32_t q, n, units, turn, good;
    bool stop;
};

static __device__ bool ry_gnic_down(const struct ry_gnic_engine *e, uint32_t port)
{
    return ry_word_observe(&e->down[port]) != 0;
}

static __device__ void ry_gnic_say(struct ry_gnic_seat *s, enum ry_gnic_state state)
{
    ry_flag_publish(s->report, s->epoch << 2 | state);
}

/* Take up a new life that the agent offers, or stop one. By the lane that looks after the seat. */
static __device__ void ry_gnic_attend(const struct ry_gnic_engine *e, struct ry_gnic_seat *s,
                                      uint32_t q)
{
    const struct ry_gnic_qp *qp = &e->qp[q];
    uint64_t want = ry_flag_observe(&qp->want);

    if (want != s->epoch && want) {
        s->wqe = (struct ry_wqe *)ry_word_observe((const uint64_t *)&qp->wqe);
        s->cqe = (struct ry_cqe *)ry_word_observe((const uint64_t *)&qp->cqe);
        s->uar = (uint64_t *)ry_word_observe((const uint64_t *)&qp->uar);
        s->report = (uint64_t *)ry_word_observe((const uint64_t *)&qp->report);
        uint64_t two = ry_word_observe((const uint64_t *)&qp->mask);
        uint64_t ports = ry_word_observe((const uint64_t *)&qp->port);
        s->mask = (uint32_t)two;
        s->qpn = (uint32_t)(two >> 32);
        s->port = (uint32_t)ports;
        s->peer_port = (uint32_t)(ports >> 32);
        s->peer = (uint32_t)ry_word_observe((const uint64_t *)&qp->peer);
        s->epoch = want;
        s->done = 0;
        s->stopped = false;
        s->ours = s->port == e->port && q / RY_SLOTS / e->ports % e->parts == e->part;
        if (s->ours)
            ry_gnic_say(s, RY_GNIC_SERVES);
    }
    if (s->ours && !s->stopped && ry_word_observe(&qp->halt) >= s->epoch) {
        s->stopped = true;
        ry_gnic_say(s, RY_GNIC_ERROR);
    }
}

/* WQEs that were posted and not retired: the doorbell word holds the newest one's index. */
static __device__ uint32_t ry_gnic_pending(const struct ry_gnic_seat *s)
{
    uint64_t word;
    uint16_t n;

    if (!s->epoch || !s->ours || s->stopped)
        return 0;
    word = ry_flag_observe(s->uar);
    if (!word || ry_be32((uint32_t)(word >> 32)) >> 8 != s->qpn)
        return 0;
    n = (uint16_t)((ry_be32((uint32_t)word) >> 8 & 0xffffu) + 1 - s->done);
    return n < 1u << 15 ? n : 0;
}

/* The first warp looks at all seats and picks the next that has work. */
static __device__ void ry_gnic_look(const struct ry_gnic_engine *e, struct ry_gnic_block *b)
{
    uint32_t lane = threadIdx.x;
    uint32_t best = 0xffffffffu, best_n = 0;

    for (uint32_t q = lane; q < e->n; q += 32) {
        uint32_t n;

        ry_gnic_attend(e, &b->seat[q], q);
        n = ry_gnic_pending(&b->seat[q]);
        /* distance from the one served last, so that all have their turn */
        uint32_t key = (q + e->n - 1 - b->turn) % e->n << 16 | q;

        if (n && key < best) {
            best = key;
            best_n = n;
        }
    }
    uint32_t first = __reduce_min_sync(0xffffffffu, best);
    uint32_t n = __reduce_max_sync(0xffffffffu, best == first ? best_n : 0);

    if (lane == 0) {
        b->n = first == 0xffffffffu ? 0 : ry_min32(n, RY_GNIC_BATCH);
        b->q = first & 0xffffu;
        b->turn = b->n ? b->q : b->turn;
        b->stop = ry_word_observe(e->stop) != 0;
    }
}

static __device__ uint8_t ry_gnic_check(const struct ry_gnic_engine *e, struct ry_gnic_job *j,
                                        uint32_t lkey, uint32_t rkey, uint32_t peer)
{
    const struct ry_gnic_mr *r = &e->remote[peer];
    uint64_t remote = j->op == RY_OP_READ ? j->from : j->to;
    uint64_t local = j->op == RY_OP_READ ? j->to : j->from;

    if (j->op == RY_OP_NOP)
        return 0;
    if (j->op != RY_OP_WRITE && j->op != RY_OP_READ)
        return RY_SYN_REMOTE_INVALID_REQ;
    if (rkey != r->key || remote < r->base || j->bytes > r->bytes ||
        remote - r->base > r->bytes - j->bytes)
        return RY_SYN_REMOTE_ACCESS;
    if (j->inlined)
        return 0;
    for (uint32_t i = 0; i < RY_GNIC_MRS; i++) {
        const struct ry_gnic_mr *l = &e->local[i];

        if (lkey == l->key && local >= l->base && j->bytes <= l->bytes &&
            local - l->base <= l->bytes - j->bytes)
            return 0;
    }
    return RY_SYN_LOCAL_PROT;
}

/* One WQE by one thread. */
static __device__ void ry_gnic_decode(const struct ry_gnic_engine *e, const struct ry_gnic_seat *s,
                                      uint32_t index, struct ry_gnic_job *j)
{
    union {
        struct ry_wqe wqe;
        uint64_t word[8];
    } u;
    uint32_t count;

    for (int i = 0; i < 8; i++)
        u.word[i] = ry_word_observe((const uint64_t *)&s->wqe[index & s->mask] + i);
    count = ry_be32(u.wqe.u.data.byte_count);
    j->op = ry_wqe_opcode(&u.wqe);
    j->signalled = ry_wqe_signalled(&u.wqe);
    j->inlined = j->op == RY_OP_WRITE && (count & RY_WQE_INLINE) != 0;
    j->bytes = j->op == RY_OP_NOP ? 0 : count & ~RY_WQE_INLINE;
    if (j->inlined) {
        /* the inline data begins 4 bytes into a word */
        j->word[0] = u.word[4] >> 32 | u.word[5] << 32;
        j->word[1] = u.word[5] >> 32 | u.word[6] << 32;
        j->word[2] = u.word[6] >> 32 | u.word[7] << 32;
    }
    j->to = ry_be64(u.wqe.raddr);
    j->from = j->inlined ? 0 : ry_be64(u.wqe.u.data.addr);
    if (j->op == RY_OP_READ) {
        uint64_t swap = j->to;

        j->to = j->from;
        j->from = swap;
    }
    j->syndrome = ry_gnic_check(e, j, ry_be32(u.wqe.u.data.lkey), ry_be32(u.wqe.rkey), s->peer);
    if (j->inlined && (j->bytes > 24 || j->bytes % 8 || j->to % 8))
        j->syndrome = RY_SYN_LOCAL_QP_OP; /* what this NIC does not do */
}

static __device__ void ry_gnic_copy(const uint8_t *from, uint8_t *to, uint32_t bytes)
{
    uint32_t lane = threadIdx.x & 31u;

    if ((((uint64_t)from | (uint64_t)to | bytes) & 15u) == 0) {
        uint4 v[8];

#pragma unroll
        for (int i = 0; i < 8; i++)
            if ((i * 32 + lane) * 16 < bytes)
                v[i] = ry_load16(from + (i * 32 + lane) * 16);
#pragma unroll
        for (int i = 0; i < 8; i++)
            if ((i * 32 + lane) * 16 < bytes)
                ry_store16(to + (i * 32 + lane) * 16, v[i]);
        return;
    }
    for (uint32_t i = lane; i < bytes; i += 32)
        to[i] = ((const volatile uint8_t *)from)[i];
}

/* Payload of all jobs before `good`, by the whole block. */
static __device__ void ry_gnic_carry(struct ry_gnic_block *b)
{
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x & 31u;

    for (uint32_t u = warp; u < b->units; u += RY_GNIC_THREADS / 32) {
        uint32_t begins = lane < b->n ? b->job[lane].unit : 0xffffffffu;
        const struct ry_gnic_job *j = &b->job[__popc(__ballot_sync(0xffffffffu, begins <= u)) - 1];
        uint32_t at = (u - j->unit) * RY_GNIC_UNIT;

        ry_gnic_copy((const uint8_t *)j->from + at, (uint8_t *)j->to + at,
                     ry_min32(j->bytes - at, RY_GNIC_UNIT));
    }
}

/* Until the wire, at its rate, has carried `bytes` more. */
static __device__ void ry_gnic_pace(const struct ry_gnic_engine *e, uint64_t bytes)
{
    uint64_t cost = e->rate_bps ? bytes * 1000 / (e->rate_bps / 1000000) : 0;
    uint64_t now = ry_global_ns(), old = ry_word_observe(&e->shared->free_ns), end;

    for (;;) {
        uint64_t found;

        end = ry_max64(old, now - RY_GNIC_CREDIT) + cost;
        found = atomicCAS((unsigned long long *)&e->shared->free_ns, old, end);
        if (found == old)
            break;
        old = found;
    }
    while (e->rate_bps && ry_global_ns() < end)
        ;
}

/* A read that all warps do. */
static __device__ bool ry_gnic_long_read(const struct ry_gnic_job *j)
{
    return j->op == RY_OP_READ && (j->bytes > RY_GNIC_SHORT || ((j->bytes | j->to | j->from) & 7u));
}

/* Signals and short reads in order, by one thread; payload is visible already. */
static __device__ void ry_gnic_retire(struct ry_gnic_block *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct ry_gnic_job *j = &b->job[i];

        if (j->inlined) {
            for (uint32_t k = 0; k < j->bytes / 8; k++)
                ry_flag_publish((uint64_t *)j->to + k, j->word[k]);
        } else if (j->op == RY_OP_READ && !ry_gnic_long_read(j)) {
            __threadfence_system(); /* writes before the read, to whoever trusts its answer */
            for (uint32_t k = 0; k < j->bytes / 8; k++)
                ((uint64_t *)j->to)[k] = ry_flag_observe((const uint64_t *)j->from + k);
        }
    }
}

static __device__ void ry_gnic_error(struct ry_gnic_seat *s, uint32_t index, uint8_t syndrome)
{
    s->cqe->syndrome = syndrome;
    ry_publish_cqe(s->cqe, ry_cqe_encode(s->qpn, (uint16_t)index, RY_CQE_REQ_ERR, 0));
    s->stopped = true;
    ry_gnic_say(s, RY_GNIC_ERROR);
}

/* The end of a batch, by one thread: retire, complete, or fail. */
static __device__ void ry_gnic_finish(const struct ry_gnic_engine *e, struct ry_gnic_block *b,
                                      uint64_t bytes)
{
    struct ry_gnic_seat *s = &b->seat[b->q];
    uint64_t before = atomicAdd((unsigned long long *)&e->shared->wqes, b->n);
    uint64_t trip = ry_word_observe(&e->shared->trip);
    int last = -1;

    if (trip && before + b->n >= trip) {
        e->shared->trip = 0;
        ry_word_publish(&e->down[e->port], 1);
        ry_flag_publish(e->tripped, 1);
    }
    ry_gnic_pace(e, bytes);
    if (ry_gnic_down(e, s->port) || ry_gnic_down(e, s->peer_port)) {
        /* some batches arrive and only their acknowledgement is lost */
        if (ry_global_ns() >> 5 & 1)
            ry_gnic_retire(b, b->good);
        for (uint64_t until = ry_global_ns() + e->retry_ns; ry_global_ns() < until;)
            __nanosleep(200);
        ry_gnic_error(s, s->done, RY_SYN_RETRY_EXC);
        return;
    }
    ry_gnic_retire(b, b->good);
    atomicAdd((unsigned long long *)&e->shared->bytes, bytes);
    for (uint32_t i = 0; i < b->good; i++)
        if (b->job[i].signalled)
            last = (int)i;
    if (last >= 0)
        ry_publish_cqe(s->cqe,
                       ry_cqe_encode(s->qpn, (uint16_t)(s->done + (uint32_t)last), RY_CQE_REQ, 0));
    s->done += b->good;
    if (b->good < b->n)
        ry_gnic_error(s, s->done, b->job[b->good].syndrome);
}

/* Units of the good jobs, and what the wire must carry, by one thread. A port that is down carries
 * nothing. */
static __device__ uint64_t ry_gnic_plan(const struct ry_gnic_engine *e, struct ry_gnic_block *b)
{
    const struct ry_gnic_seat *s = &b->seat[b->q];
    uint64_t bytes = 0;
    uint32_t units = 0, good = 0;

    if (ry_gnic_down(e, s->port) || ry_gnic_down(e, s->peer_port))
        b->job[0].syndrome = RY_SYN_RETRY_EXC;

    for (uint32_t i = 0; i < b->n; i++) {
        struct ry_gnic_job *j = &b->job[i];
        bool alone = ry_gnic_long_read(j);

        if (alone)
            b->n = i ? i : 1; /* alone: it sees what is before it, and what is behind it waits */
        if (i >= b->n)
            break;
        j->unit = units;
        if (good < i || j->syndrome)
            continue;
        good = i + 1;
        bytes += j->bytes;
        if (alone || (j->op == RY_OP_WRITE && !j->inlined))
            units += (j->bytes + RY_GNIC_UNIT - 1) / RY_GNIC_UNIT;
    }
    b->units = units;
    b->good = good;
    return bytes;
}

extern "C" __global__ void __launch_bounds__(RY_GNIC_THREADS, 1)
    ry_gnic_kernel(const struct ry_gnic_engine *engines)
{
    extern __shared__ __align__(16) uint8_t shared[];
    struct ry_gnic_block *b = (struct ry_gnic_block *)shared;
    __shared__ struct ry_gnic_engine e;
    uint64_t bytes = 0;

    if (threadIdx.x == 0) {
        e = engines[blockIdx.x];
        b->turn = 0;
    }
    for (uint32_t i = threadIdx.x; i < RY_GNIC_QPS_MAX; i += blockDim.x) {
        b->seat[i].epoch = 0;
        b->seat[i].ours = b->seat[i].stopped = false;
    }
    __syncthreads(); /* the block's memory, to all */
    for (;;) {
        if (threadIdx.x < 32)
            ry_gnic_look(&e, b);
        __syncthreads(); /* what was found, and the acquire of its doorbell, to all */
        if (b->stop)
            return;
        if (b->n == 0) {
            __syncthreads(); /* n is read before it is written again */
            continue;
        }
        if (threadIdx.x < b->n)
            ry_gnic_decode(&e, &b->seat[b->q], b->seat[b->q].done + threadIdx.x,
                           &b->job[threadIdx.x]);
        __syncthreads(); /* jobs, to the planner */
        if (threadIdx.x == 0)
            bytes = ry_gnic_plan(&e, b);
        __syncthreads(); /* units, to all who copy */
        ry_gnic_carry(b);
        __threadfence_system(); /* each thread's payload, to the receiver of any signal behind it */
        __syncthreads();        /* all payload, to the thread that retires */
        if (threadIdx.x == 0)
            ry_gnic_finish(&e, b, bytes);
        __syncthreads(); /* the batch is over */
    }
}

extern "C" int ry_gnic_launch(const struct ry_gnic_engine *e, uint32_t n, void *stream)
{
    ry_gnic_kernel<<<n, RY_GNIC_THREADS, sizeof(struct ry_gnic_block), (cudaStream_t)stream>>>(e);
    return (int)cudaGetLastError();
}
