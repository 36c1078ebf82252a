/* SPDX-License-Identifier: Apache-2.0 */
/* The agent: hears of ports and of queue pairs in error, condemns, fences, arms slots again, and
 * launches the mover when no kernel acts. It writes slot words (pinned) and copies to the GPU; it
 * never does a read-modify-write on a word that a kernel writes. An engine executes for a queue
 * pair or has reported it stopped, so its report is the fence of both ends. */
#include "cuda/host/fabric_inside.h"

#include <string.h>
#include <time.h>

#include "cuda/host/driver.h"
#include "host/error.h"

enum { TICK_NS = 50000, LINE = 64, MOVER_NS = 3000000 };

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static void nap(uint64_t ns)
{
    struct timespec t = {0, (long)ns};

    nanosleep(&t, NULL);
}

/* Copies a few bytes to a PE's GPU and waits for it; the staging memory is the agent's. */
static void put(struct ry_fabric_pe *p, void *to, const void *from, size_t bytes)
{
    cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, p->copy_stream);
    cudaStreamSynchronize(p->copy_stream);
}

static void put_word(struct ry_fabric_pe *p, uint64_t *to, uint64_t v)
{
    p->pinned->word = v;
    put(p, to, &p->pinned->word, 8);
}

/* Where the doorbell of a life stands: in GPU memory, or with cpu_host_memory where the proxy can
 * write it. Zero, since no one has rung. */
static void slot_bell(struct ry_gpu_fabric *f, uint32_t pe, uint32_t i, uint32_t s, uint64_t epoch,
                      uint8_t *words)
{
    struct ry_fabric_pe *p = &f->pe[pe];
    struct ry_slot_host *h = &p->pinned->slot[i][s];
    struct ry_fabric_bell *bell = &p->pinned->bell[i][s];

    if (f->attr.handler == RY_HANDLER_GPU) {
        put_word(p, (uint64_t *)(words + LINE), 0);
        h->uar = (uint64_t *)(words + LINE);
        h->dbr = (uint32_t *)(words + LINE + 16);
        return;
    }
    h->uar = &bell->half[epoch & 1].uar;
    h->dbr = &bell->half[epoch & 1].dbr;
    h->pslot = &bell->pslot;
    h->pecho = &bell->pecho;
    ry_st_rel64(h->uar, 0);
}

/* The next life of a slot: fresh ring memory, a new number, an empty CQE. */
static void slot_arm(struct ry_gpu_fabric *f, uint32_t pe, uint32_t i, uint32_t s)
{
    struct ry_fabric_pe *p = &f->pe[pe];
    struct ry_fabric_slot *slot = &p->slot[i][s];
    struct ry_slot_host *h = &p->pinned->slot[i][s];
    uint32_t peer = i / f->attr.channels, c = i % f->attr.channels;
    uint32_t port = (c + s) % f->attr.ports, q = i * RY_SLOTS + s;
    uint64_t epoch = slot->epoch + 1, half = q * 2ull + (epoch & 1);
    uint8_t *words = p->words + half * 2 * LINE;
    struct ry_gnic_qp *qp = &p->pinned->staging;
    struct ry_cqe *cqe = (struct ry_cqe *)p->pinned->cqe;

    memset(cqe, 0, sizeof(*cqe));
    cqe->tail = ry_cqe_encode(0, 0, RY_CQE_INVALID, 1);
    put(p, words, cqe, sizeof(*cqe));
    slot_bell(f, pe, i, s, epoch, words);
    memset(qp, 0, sizeof(*qp));
    qp->wqe = (struct ry_wqe *)(p->rings + half * f->attr.depth * RY_WQE_BYTES);
    qp->cqe = (struct ry_cqe *)words;
    qp->uar = h->uar;
    qp->report = &p->pinned->report[i][s];
    qp->mask = f->attr.depth - 1;
    qp->qpn = 0x100u + f->next_qpn++;
    qp->port = pe * f->attr.ports + port;
    qp->peer_port = peer * f->attr.ports + port;
    qp->peer = peer;
    put(p, &p->qp_device[q], qp, offsetof(struct ry_gnic_qp, want));
    put_word(p, &p->qp_device[q].want, epoch);
    slot->epoch = epoch;
    slot->port = qp->port;
    slot->peer_port = qp->peer_port;
    slot->armed = true;
    slot->failed = false;
    h->wqe = qp->wqe;
    h->cqe = qp->cqe;
    h->lkeys = p->keys + (pe * f->attr.ports + port) * RY_GNIC_MRS;
    h->rkeys = p->keys + (peer * f->attr.ports + port) * RY_GNIC_MRS;
    h->qpn = qp->qpn;
    h->next_idx = 0;
    ry_st_rel64(&h->port_up, 1);
    ry_st_rel64(&h->preferred, 100 - s);
    ry_st_rel64(&h->armed_epoch, epoch);
}

static bool slot_ports_up(const struct ry_gpu_fabric *f, const struct ry_fabric_slot *s)
{
    return !f->port_down[s->port] && !f->port_down[s->peer_port];
}

/* What the agent has heard of a port, to all slots that use it. */
static void port_heard(struct ry_gpu_fabric *f, uint32_t port, bool up)
{
    f->port_down[port] = !up;
    for (uint32_t pe = 0; pe < f->attr.pes; pe++) {
        struct ry_fabric_pe *p = &f->pe[pe];

        cudaSetDevice(p->device);
        for (uint32_t i = 0; i < f->attr.pes * f->attr.channels; i++) {
            for (uint32_t s = 0; s < RY_SLOTS; s++) {
                struct ry_fabric_slot *slot = &p->slot[i][s];

                if (!slot->epoch || (slot->port != port && slot->peer_port != port))
                    continue;
                ry_st_rel64(&p->pinned->slot[i][s].port_up, slot_ports_up(f, slot));
                if (!up && slot->armed) {
                    ry_st_rel64(&p->pinned->slot[i][s].condemn_epoch, slot->epoch);
                    put_word(p, &p->qp_device[i * RY_SLOTS + s].halt, slot->epoch);
                }
            }
        }
        ry_st_rel64(&p->pinned->hint, p->pinned->hint + 1);
    }
}

static void events_hear(struct ry_gpu_fabric *f, uint64_t now)
{
    for (uint32_t pe = 0; pe < f->attr.pes; pe++)
        for (uint32_t r = 0; r < f->attr.ports; r++) {
            uint32_t port = pe * f->attr.ports + r;

            if (__atomic_exchange_n(&f->pe[pe].pinned->tripped[r], 0, __ATOMIC_ACQ_REL)) {
                /* the engine saw it first; the others' copies follow at once */
                for (uint32_t q = 0; q < f->attr.pes; q++) {
                    cudaSetDevice(f->pe[q].device);
                    put_word(&f->pe[q], &f->pe[q].down[port], 1);
                }
                f->event[port] = (struct ry_fabric_event){now + f->attr.event_ns, true, false};
                f->unsettled_until_ns = now + 100000000;
            }
            if (f->event[port].waits && now >= f->event[port].at_ns) {
                f->event[port].waits = false;
                port_heard(f, port, f->event[port].up);
                f->unsettled_until_ns = now + 100000000;
            }
        }
}

/* Engines' reports: a life that has stopped is flushed and fenced. */
static bool reports_read(struct ry_gpu_fabric *f, uint32_t pe)
{
    struct ry_fabric_pe *p = &f->pe[pe];
    bool any = false;

    for (uint32_t i = 0; i < f->attr.pes * f->attr.channels; i++) {
        for (uint32_t s = 0; s < RY_SLOTS; s++) {
            struct ry_fabric_slot *slot = &p->slot[i][s];
            struct ry_slot_host *h = &p->pinned->slot[i][s];
            uint64_t report = ry_ld_acq64(&p->pinned->report[i][s]);

            if (slot->armed && report == (slot->epoch << 2 | RY_GNIC_ERROR)) {
                slot->armed = false;
                slot->failed = true;
                ry_st_rel64(&h->condemn_epoch, slot->epoch);
                ry_st_rel64(&h->flushed_epoch, slot->epoch);
                ry_st_rel64(&h->fenced_epoch, slot->epoch);
            }
            any |= slot->failed;
        }
    }
    return any;
}

static void channels_copy(struct ry_gpu_fabric *f, struct ry_fabric_pe *p)
{
    cudaMemcpyAsync(p->ch_host, p->ch_device, f->attr.pes * f->attr.channels * sizeof(*p->ch_host),
                    cudaMemcpyDeviceToHost, p->copy_stream);
    cudaStreamSynchronize(p->copy_stream);
}

/* After failures: arm what may be armed, and see whether somebody must move who does not. */
static void channels_mend(struct ry_gpu_fabric *f, uint32_t pe)
{
    struct ry_fabric_pe *p = &f->pe[pe];
    uint32_t planned = 0;
    bool stuck = false;

    channels_copy(f, p);
    for (uint32_t i = 0; i < f->attr.pes * f->attr.channels; i++) {
        const struct ry_channel *ch = &p->ch_host[i];
        enum ry_channel_state st = ry_state_of(ch->state);
        uint32_t active = ry_state_active(ch->state);

        if (i / f->attr.channels == pe || st == RY_CH_DEAD)
            continue;
        for (uint32_t s = 0; s < RY_SLOTS; s++)
            if (p->slot[i][s].failed && st != RY_CH_MOVING && active != s &&
                slot_ports_up(f, &p->slot[i][s]))
                slot_arm(f, pe, i, s);
        stuck |= st == RY_CH_PARKED || (st == RY_CH_GOOD && p->slot[i][active].failed);
        if (f->attr.failback && st == RY_CH_GOOD && active != 0 && p->slot[i][0].armed)
            planned |= 1u << i;
    }
    if ((stuck || planned) && cudaStreamQuery(p->mover_stream) == cudaSuccess)
        ry_mover_launch(&p->world, MOVER_NS, planned, p->mover_stream);
}

static void *agent_run(void *arg)
{
    struct ry_gpu_fabric *f = arg;

    for (;;) {
        pthread_mutex_lock(&f->lock);
        if (f->stop) {
            pthread_mutex_unlock(&f->lock);
            return NULL;
        }
        events_hear(f, now_ns());
        for (uint32_t pe = 0; pe < f->attr.pes; pe++) {
            cudaSetDevice(f->pe[pe].device);
            if (reports_read(f, pe) || now_ns() < f->unsettled_until_ns)
                channels_mend(f, pe);
        }
        pthread_mutex_unlock(&f->lock);
        nap(TICK_NS);
    }
}

int ry_fabric_agent_start(struct ry_gpu_fabric *f)
{
    uint64_t until = now_ns() + 2000000000ull;
    bool good = false;

    for (uint32_t pe = 0; pe < f->attr.pes; pe++) {
        cudaSetDevice(f->pe[pe].device);
        for (uint32_t i = 0; i < f->attr.pes * f->attr.channels; i++)
            for (uint32_t s = 0; s < (f->attr.failover ? (uint32_t)RY_SLOTS : 1u); s++)
                if (i / f->attr.channels != pe)
                    slot_arm(f, pe, i, s);
        ry_mover_launch(&f->pe[pe].world, 1000000000, 0, f->pe[pe].mover_stream);
    }
    while (!good && now_ns() < until) {
        good = true;
        for (uint32_t pe = 0; pe < f->attr.pes; pe++) {
            cudaSetDevice(f->pe[pe].device);
            channels_copy(f, &f->pe[pe]);
            for (uint32_t i = 0; i < f->attr.pes * f->attr.channels; i++)
                good &= i / f->attr.channels == pe ||
                        ry_state_of(f->pe[pe].ch_host[i].state) == RY_CH_GOOD;
        }
    }
    if (!good)
        return ry_fail(RY_ERR_TIMEOUT, "the fabric's channels did not come up: is the gpu busy?");
    if (pthread_create(&f->thread, NULL, agent_run, f))
        return ry_fail(RY_ERR_SYSTEM, "cannot start the agent's thread");
    f->running = true;
    return RY_OK;
}

void ry_fabric_agent_stop(struct ry_gpu_fabric *f)
{
    if (!f->running)
        return;
    pthread_mutex_lock(&f->lock);
    f->stop = true;
    pthread_mutex_unlock(&f->lock);
    pthread_join(f->thread, NULL);
    f->running = false;
}

int ry_gpu_fabric_port(struct ry_gpu_fabric *f, uint32_t pe, uint32_t port, int up, uint64_t after)
{
    uint32_t number = pe * f->attr.ports + port;

    pthread_mutex_lock(&f->lock);
    if (!up && after) {
        struct ry_fabric_pe *p = &f->pe[pe];
        struct ry_gnic_port now;

        cudaSetDevice(p->device);
        cudaMemcpyAsync(&now, &p->port_device[port], sizeof(now), cudaMemcpyDeviceToHost,
                        p->copy_stream);
        cudaStreamSynchronize(p->copy_stream);
        put_word(p, &p->port_device[port].trip, now.wqes + after);
    } else {
        for (uint32_t q = 0; q < f->attr.pes; q++) {
            cudaSetDevice(f->pe[q].device);
            if (up && q == pe)
                put_word(&f->pe[q], &f->pe[q].port_device[port].trip, 0);
            put_word(&f->pe[q], &f->pe[q].down[number], !up);
        }
        f->event[number] = (struct ry_fabric_event){now_ns() + f->attr.event_ns, true, up};
    }
    pthread_mutex_unlock(&f->lock);
    return RY_OK;
}

int ry_gpu_fabric_settle(struct ry_gpu_fabric *f, uint64_t timeout_ns)
{
    uint64_t until = now_ns() + timeout_ns;
    bool settled = false;

    while (!settled && now_ns() < until) {
        nap(TICK_NS);
        pthread_mutex_lock(&f->lock);
        settled = true;
        for (uint32_t port = 0; port < f->attr.pes * f->attr.ports; port++)
            settled &= !f->event[port].waits;
        for (uint32_t pe = 0; pe < f->attr.pes; pe++)
            for (uint32_t i = 0; i < f->attr.pes * f->attr.channels; i++)
                for (uint32_t s = 0; s < RY_SLOTS; s++)
                    settled &=
                        !f->pe[pe].slot[i][s].failed || !slot_ports_up(f, &f->pe[pe].slot[i][s]);
        pthread_mutex_unlock(&f->lock);
    }
    return settled ? RY_OK : ry_fail(RY_ERR_TIMEOUT, "slots were not armed again in time");
}

int ry_gpu_fabric_count(struct ry_gpu_fabric *f, uint32_t pe, struct ry_gpu_fabric_counts *out)
{
    struct ry_gnic_port ports[RY_GNIC_PORTS_MAX];
    struct ry_fabric_pe *p = &f->pe[pe];

    memset(out, 0, sizeof(*out));
    pthread_mutex_lock(&f->lock);
    cudaSetDevice(p->device);
    cudaMemcpyAsync(ports, p->port_device, f->attr.ports * sizeof(*ports), cudaMemcpyDeviceToHost,
                    p->copy_stream);
    channels_copy(f, p);
    for (uint32_t i = 0; i < f->attr.pes * f->attr.channels; i++) {
        const struct ry_channel *ch = &p->ch_host[i];

        out->moves += ch->moves;
        out->planned += ch->moves_planned;
        out->replayed += ch->replayed;
        out->alone += ch->alone;
        out->parks += ch->parks;
        if (ch->failed_ns == p->failed_ns[i])
            continue;
        p->failed_ns[i] = ch->failed_ns;
        if (ch->first_ok_ns > ch->failed_ns)
            out->switch_ns_max = ry_max64(out->switch_ns_max, ch->first_ok_ns - ch->failed_ns);
    }
    for (uint32_t r = 0; r < f->attr.ports; r++)
        out->port_bytes[r] = ports[r].bytes;
    pthread_mutex_unlock(&f->lock);
    return RY_OK;
}
