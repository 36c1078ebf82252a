/* SPDX-License-Identifier: Apache-2.0 */
/* What the simulated applications do. Every PE has, towards every peer, a stream of put-signals
 * into rotating slots, plain puts that it proves by quiet, gets, and atomics; each op has a stamp
 * that no other op has. The oracles (oracle_*.c) look at heaps directly. */
#include <railyard/heap.h>
#include <railyard/rma.h>
#include <stdlib.h>
#include <string.h>

#include "sim/oracle.h"

void ry_sim_workload_init(struct ry_sim_world *w, uint32_t pe)
{
    w->pe[pe].model = calloc(1, sizeof(struct ry_sim_model));
}

void ry_sim_workload_fini(struct ry_sim_pe *pe)
{
    free(pe->model);
    pe->model = NULL;
}

struct ry_sim_model *ry_sim_model_of(uint32_t pe) { return ry_sim->pe[pe].model; }

static bool alive(struct ry_sim_pe *pe, int rc, const char *what)
{
    ry_sim->running->relaxed = 0;
    if (rc == RY_OK)
        return true;
    if (rc == RY_ERR_PEER_LOST && ry_sim_any_gone())
        return true; /* for the others it was done */
    if (!ry_sim->failed)
        ry_sim_violate("reach: pe %u: %s failed though every peer is reachable: %s (%s)",
                       pe->boot.pe, what, ry_status_name(rc), ry_last_error());
    return false;
}

static void fill(struct ry_sim_cell *c, uint64_t stamp)
{
    for (uint32_t i = 0; i < RY_SIM_CELL_WORDS; i++)
        c->word[i] = stamp * 0x9e3779b97f4a7c15ull + i;
    c->word[0] = stamp;
}

/* Stream s of the two initiators; slot reuse waits for a quiet, as the API asks. */
static bool put_signal(struct ry_sim_pe *pe, uint32_t s, uint32_t to)
{
    struct ry_sim_model *m = pe->model;
    struct ry_sim_stream *st = &m->stream[s][to];
    struct ry_sim_area *a = m->area;
    uint64_t k = st->sent + 1;
    uint32_t slot = (uint32_t)(k % (s ? RY_SIM_SLOTS : ry_sim->plan.slots));
    struct ry_sim_cell *src = &a->out[s][to][slot];
    int rc;

    st->started = k;
    fill(src, k << 8 | pe->boot.pe << 4 | s);
    rc = ry_put_signal_nbi(pe->ctx, &a->in[s][pe->boot.pe][slot], src, sizeof(*src),
                           (ry_signal *)&a->sig[s][pe->boot.pe], k, to);
    if (!alive(pe, rc, "put-signal"))
        return false;
    st->sent = k;
    return true;
}

/* A put that quiet will prove, to a place of its own. */
static bool put_plain(struct ry_sim_pe *pe, uint32_t to)
{
    struct ry_sim_model *m = pe->model;
    struct ry_sim_area *a = m->area;
    uint32_t slot = m->plain_slot[to]++ % (ry_sim->plan.slots / 2);
    uint64_t stamp = ++m->stamp << 8 | pe->boot.pe << 4 | 2;
    int rc;

    fill(&a->plain_out[to][slot], stamp);
    rc = ry_put_nbi(pe->ctx, &a->plain_in[pe->boot.pe][slot], &a->plain_out[to][slot],
                    sizeof(struct ry_sim_cell), to);
    m->plain_stamp[to][slot] = stamp;
    return alive(pe, rc, "put");
}

/* Quiet, then the sources are free: they are overwritten at once, so that a late reader shows. */
static bool quiet(struct ry_sim_pe *pe)
{
    struct ry_sim_model *m = pe->model;

    if (!alive(pe, ry_quiet(pe->ctx), "quiet"))
        return false;
    ry_oracle_quiet(pe->boot.pe);
    memset(m->area->plain_out, 0xdd, sizeof(m->area->plain_out));
    memset(m->area->out[0], 0xdd, sizeof(m->area->out[0]));
    for (uint32_t q = 0; q < ry_sim->plan.pes; q++)
        m->stream[0][q].quiet = m->stream[0][q].sent;
    return true;
}

static bool atomic_add(struct ry_sim_pe *pe, uint32_t to, uint64_t *rng)
{
    struct ry_sim_model *m = pe->model;
    uint32_t word = (uint32_t)ry_sim_below(rng, RY_SIM_COUNTERS);
    uint64_t old = 0;
    int rc = ry_amo_fetch_add(pe->ctx, &m->area->counter[word], 1, to, &old);

    if (!alive(pe, rc, "fetch-add"))
        return false;
    ry_oracle_fetched(pe->boot.pe, to, word, old);
    return true;
}

/* By a PE that will crash: nobody knows whether its last one was run. */
static bool atomic_in_vain(struct ry_sim_pe *pe, uint32_t to)
{
    struct ry_sim_model *m = pe->model;

    return alive(pe, ry_amo_add(pe->ctx, &m->area->counter[RY_SIM_COUNTERS], 1, to), "add");
}

static bool get(struct ry_sim_pe *pe, uint32_t to)
{
    struct ry_sim_model *m = pe->model;
    struct ry_sim_area *a = m->area;
    int rc;

    m->got_away = false;
    rc = ry_get(pe->ctx, &a->got, &a->fixed, sizeof(a->got), to);

    if (!alive(pe, rc, "get"))
        return false;
    ry_oracle_got(pe->boot.pe, to);
    memset(&a->got, 0xee, sizeof(a->got)); /* a late response would write here */
    m->got_away = true;
    return true;
}

/* A request that the peer's NIC refuses (beyond its memory): quiet names it, and only it (rule 12).
 */
static bool bad_put(struct ry_sim_pe *pe, uint32_t to)
{
    struct ry_mesh *m = &pe->ctx->mesh;
    struct ry_sim_area *a = ((struct ry_sim_model *)pe->model)->area;
    struct ry_req q = {0};
    uint64_t end;
    int rc;

    q.opcode = RY_OP_WRITE;
    q.bytes = 8;
    q.flags = RY_REQ_SIGNALLED;
    q.laddr = ry_mesh_laddr(m, &a->fixed);
    q.raddr = ry_mesh_raddr(m, to, m->heap) + m->heap_bytes + 4096;
    if (!alive(pe, ry_mesh_post(m, to, 0, &q, 1, 0, &end), "a bad put"))
        return false;
    rc = ry_quiet(pe->ctx);
    ry_sim->running->relaxed = 0;
    if (rc != RY_ERR_REMOTE_ACCESS)
        ry_sim_violate("blame: pe %u's bad request to pe %u ended as %s", pe->boot.pe, to,
                       ry_status_name(rc));
    return quiet(pe);
}

/* Nobody asks anything of a PE that will be lost. */
bool ry_sim_one_op(struct ry_sim_pe *pe, uint64_t *rng)
{
    struct ry_sim_model *m = pe->model;
    uint32_t n = ry_sim->plan.pes, me = pe->boot.pe;
    uint32_t to = (me + 1 + (uint32_t)ry_sim_below(rng, n - 1)) % n;
    bool mortal = ry_sim_mortal(me) && !pe->boot.incarnation;

    if (ry_sim->plan.hot)
        to = (me + 1) % n;
    while (to == me || ry_sim_mortal(to))
        to = (to + 1) % n;
    ry_sim->ops++;
    ry_oracle_look(me);
    ry_oracle_got_away(me);
    if (ry_sim_any_gone())
        ry_oracle_masked(me);
    if (me == 0)
        ry_oracle_states();
    if (ry_sim->plan.bad_op && ry_sim->plan.bad_op == m->ops++ && me == 1)
        return bad_put(pe, to);
    if (ry_sim->plan.amo_only) /* answers alone release: no quiet, no get, no plain put */
        return atomic_add(pe, to, rng);
    switch (ry_sim_below(rng, 10)) {
    case 0:
        return mortal ? atomic_in_vain(pe, to) : atomic_add(pe, to, rng);
    case 1:
        return quiet(pe);
    case 2:
        return get(pe, to);
    case 3:
    case 4:
    case 5:
        return put_plain(pe, to) &&
               (m->plain_slot[to] % (ry_sim->plan.slots / 2) != 0 || quiet(pe));
    default:
        if (m->stream[0][to].sent - m->stream[0][to].quiet >= ry_sim->plan.slots - 1 && !quiet(pe))
            return false;
        return put_signal(pe, 0, to);
    }
}

bool ry_sim_prepare(struct ry_sim_pe *pe)
{
    struct ry_sim_model *m = pe->model;
    void *area;

    if (!alive(pe, ry_malloc(pe->ctx, sizeof(*m->area), &area), "malloc"))
        return false;
    m->area = area; /* the heap was cleared; a peer's second initiator may have written here */
    fill(&m->area->fixed, 0xf00d00 | pe->boot.pe);
    m->ready = true;
    if (!pe->boot.incarnation && !alive(pe, ry_barrier(pe->ctx), "barrier"))
        return false;
    if (ry_sim->plan.ep && !ry_sim_ep_make(pe))
        return false;
    if (!pe->boot.incarnation)
        ry_sim_ready(ry_sim);
    else
        ry_sim->live_apps++;
    return true;
}

static void end(struct ry_sim_pe *pe)
{
    struct ry_sim_model *m = pe->model;
    struct ry_sim_world *w = ry_sim;

    while (w->plan.second && !m->second_done && !w->failed)
        ry_sim_sleep(500);
    if (m->ep && !w->failed)
        ry_sim_ep_end(pe);
    if (!pe->rc && !w->failed && quiet(pe))
        alive(pe, ry_barrier(pe->ctx), "barrier");
    ry_oracle_look(pe->boot.pe);
    pe->finished = true;
    if (!ry_sim_stopped(pe->boot.pe)) /* that one is not waited for */
        w->live_apps--;
}

void ry_sim_app(void *arg)
{
    struct ry_sim_pe *pe = arg;
    uint64_t rng = ry_sim->plan.seed * 31 + pe->boot.pe;
    bool ok = true;

    if (ry_sim->plan.loss[0].at) {
        ry_sim_crash_app(pe);
        if (pe->rc != RY_ERR_LAUNCH) /* its start was called off */
            end(pe);
        return;
    }
    ok = ry_sim_prepare(pe);
    for (uint32_t i = 0; ok && i < ry_sim->plan.ops && !ry_sim->failed; i++)
        ok = ry_sim_one_op(pe, &rng) && (!ry_sim->plan.ep || i % 12 != 4 || ry_sim_ep_round(pe));
    end(pe);
}

/* A second initiator of the same PE, on the same channels at the same time. It has no quiet of its
 * own: its slots are never reused. */
void ry_sim_second(void *arg)
{
    struct ry_sim_pe *pe = arg;
    struct ry_sim_model *m = pe->model;
    uint64_t rng = ry_sim->plan.seed * 77 + pe->boot.pe;
    uint32_t n = ry_sim->plan.pes, me = pe->boot.pe;

    while (!m->ready && !ry_sim->failed)
        ry_sim_sleep(300);
    for (uint32_t i = 0; i + 1 < RY_SIM_SLOTS && !ry_sim->failed && !pe->rc; i++) {
        ry_sim_sleep(ry_sim_below(&rng, 60000) + 1);
        ry_sim->ops++;
        if (!put_signal(pe, 1, (me + 1 + (uint32_t)ry_sim_below(&rng, n - 1)) % n))
            break;
    }
    m->second_done = true;
    ry_sim->live_apps--;
}
