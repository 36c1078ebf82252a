/* SPDX-License-Identifier: Apache-2.0 */
#include "host/fault_plan.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "host/error.h"
#include "host/fault_spec.h"

enum {
    RECORDS_MAX = 4096,
    SOON_NS = 100 * 1000,                /* how exactly operation counts are watched */
    WATCH_NS = 1000 * 1000,              /* how often what was injected is looked at */
    FIRST_MOMENT_NS = 100 * 1000 * 1000, /* at most, for the agent to inject what begins at 0 */
};

/* An event of the plan that touches this PE. */
struct planned {
    struct ry_spec_event e;
    uint64_t base_ns; /* its moments count from here; 0: not started */
    uint64_t base_ops;
    uint32_t downs; /* of a flap: how many so far */
    bool watch;     /* it happens at a peer, and what we send there is hit: only a record */
    bool done;
};

/* A channel that used the rail when it was hit. */
struct hit {
    uint32_t peer, channel, incarnation;
    uint64_t base_ns; /* injection, or when the first operation after it was posted */
    uint64_t failed_before;
    bool idle; /* had nothing outstanding at the injection, nor since */
    bool failed, ok, back;
};

struct record {
    ry_fault_record r;
    uint64_t at_ns, rails; /* bit per rail */
    int32_t peer;
    struct hit *hits;
    uint32_t n_hits;
    bool over;
};

struct ry_fault_plan_state {
    uint64_t seed;
    uint64_t iteration; /* 1 + the newest that was told; 0: none */
    struct planned *plan;
    uint32_t n_plan;
    struct record *records;
    uint32_t n_records;
};

static const enum ry_nic_fault_kind nic_kind[RY_SPEC_KINDS] = {
    [RY_SPEC_PORT_DOWN] = RY_FAULT_PORT_DOWN, [RY_SPEC_FLAP] = RY_FAULT_PORT_DOWN,
    [RY_SPEC_STALL] = RY_FAULT_STALL,         [RY_SPEC_DROP] = RY_FAULT_DROP,
    [RY_SPEC_ACK_DROP] = RY_FAULT_ACK_DROP,   [RY_SPEC_DELAY] = RY_FAULT_DELAY,
    [RY_SPEC_GHOST] = RY_FAULT_GHOST,         [RY_SPEC_CQE_ERROR] = RY_FAULT_CQE_ERROR,
    [RY_SPEC_QP_ERROR] = RY_FAULT_QP_ERROR,   [RY_SPEC_NIC_DOWN] = RY_FAULT_NIC_DOWN,
    [RY_SPEC_SLOW] = RY_FAULT_SLOW,           [RY_SPEC_GID_CHANGE] = RY_FAULT_GID_CHANGE,
};

static struct ry_fault_plan_state *state_of(struct ry_ctx *ctx)
{
    if (!ctx->faults)
        ctx->faults = calloc(1, sizeof(*ctx->faults));
    return ctx->faults;
}

/* Rails of any PE at most, for the check of a text. */
static uint32_t rails_most(const struct ry_mesh *m)
{
    uint32_t most = m->hello.rails;

    for (uint32_t q = 0; q < m->n_pes; q++)
        most = q != m->pe && m->peers[q].hello.rails > most ? m->peers[q].hello.rails : most;
    return most;
}

static int possible(const struct ry_ctx *ctx, const struct ry_spec *spec)
{
    bool emulated = strcmp(ctx->mesh.nic->ops->name, "emu") == 0;

    for (uint32_t i = 0; i < spec->n; i++) {
        if (spec->event[i].kind == RY_SPEC_KILL && ctx->threads)
            return ry_fail(RY_ERR_UNSUPPORTED,
                           "fault plan, column %u: kill ends a process, and these pes are threads: "
                           "start them as processes",
                           spec->event[i].column);
        if (spec->event[i].kind != RY_SPEC_KILL && !emulated)
            return ry_fail(RY_ERR_UNSUPPORTED,
                           "fault plan, column %u: %s NICs do not fail to order: use emu",
                           spec->event[i].column, ctx->mesh.nic->ops->name);
    }
    return RY_OK;
}

/* Takes what touches this PE. A replacement lives in another time: nothing is for it. */
static int take(struct ry_ctx *ctx, const struct ry_spec *spec, uint64_t seed, uint64_t base_ns)
{
    struct ry_fault_plan_state *f = state_of(ctx);
    struct planned *more =
        f ? realloc(f->plan, (f->n_plan + (size_t)spec->n) * sizeof(*more)) : NULL;

    if (!more)
        return ry_fail(RY_ERR_NO_MEMORY, "fault plan: no memory for it");
    f->plan = more;
    f->seed = seed;
    for (uint32_t i = 0; i < spec->n && ctx->boot->incarnation == 0; i++) {
        const struct ry_spec_event *e = &spec->event[i];

        /* a receiving end that fails is seen by those who send to it */
        bool watch = e->kind == RY_SPEC_QP_ERROR && e->pe != RY_SPEC_ANY && e->pe != ctx->mesh.pe &&
                     (e->peer == RY_SPEC_ANY || e->peer == ctx->mesh.pe);

        if (!watch && ((e->pe != RY_SPEC_ANY && e->pe != ctx->mesh.pe) ||
                       (e->rail != RY_SPEC_ANY && e->rail >= ctx->mesh.hello.rails)))
            continue;
        f->plan[f->n_plan++] =
            (struct planned){.e = *e,
                             .base_ns = base_ns,
                             .base_ops = __atomic_load_n(&ctx->mesh.activity, __ATOMIC_RELAXED)};
    }
    return RY_OK;
}

static int plan(struct ry_ctx *ctx, const char *text, uint64_t seed, uint64_t base_ns)
{
    struct ry_spec *spec = malloc(sizeof(*spec));
    int rc = spec ? ry_spec_parse(text, spec)
                  : ry_fail(RY_ERR_NO_MEMORY, "fault plan: no memory for it");

    if (rc == RY_OK)
        rc = ry_spec_fits(spec, ctx->mesh.n_pes, rails_most(&ctx->mesh));
    if (rc == RY_OK)
        rc = possible(ctx, spec);
    if (rc == RY_OK) {
        pthread_mutex_lock(&ctx->lock);
        rc = take(ctx, spec, seed, base_ns);
        pthread_mutex_unlock(&ctx->lock);
    }
    free(spec);
    return rc;
}

int ry_fault_plan(ry_ctx *ctx, const char *spec, uint64_t seed)
{
    if (!spec)
        return ry_fail(RY_ERR_INVALID, "fault plan: no text");
    return plan(ctx, spec, seed, ctx->fault_base_ns);
}

int ry_fault_plan_now(struct ry_ctx *ctx, const char *spec, uint64_t seed)
{
    return plan(ctx, spec, seed, ry_now(&ctx->mesh.env));
}

/* What is to be there from the first moment on, on this PE, and is not yet. */
static bool first_moment_due(ry_ctx *ctx)
{
    bool due = false;

    pthread_mutex_lock(&ctx->lock);
    for (uint32_t i = 0; ctx->faults && i < ctx->faults->n_plan; i++) {
        const struct planned *p = &ctx->faults->plan[i];

        due |= !p->done && p->downs == 0 && p->e.when == RY_SPEC_AT_TIME && p->e.at == 0;
    }
    pthread_mutex_unlock(&ctx->lock);
    return due;
}

void ry_fault_start(ry_ctx *ctx)
{
    const struct timespec moment = {.tv_nsec = 20000};
    uint64_t until_ns;

    pthread_mutex_lock(&ctx->lock);
    ctx->fault_base_ns = ry_now(&ctx->mesh.env);
    for (uint32_t i = 0; ctx->faults && i < ctx->faults->n_plan; i++) {
        struct planned *p = &ctx->faults->plan[i];

        if (p->base_ns == 0) {
            p->base_ns = ctx->fault_base_ns;
            p->base_ops = __atomic_load_n(&ctx->mesh.activity, __ATOMIC_RELAXED);
        }
    }
    pthread_mutex_unlock(&ctx->lock);
    if (!ctx->mesh.wake_agent)
        return;
    ctx->mesh.wake_agent(ctx->mesh.wake_arg);
    until_ns = ry_now(&ctx->mesh.env) + FIRST_MOMENT_NS;
    while (first_moment_due(ctx) && ry_now(&ctx->mesh.env) < until_ns)
        nanosleep(&moment, NULL);
}

void ry_fault_iteration(ry_ctx *ctx, uint64_t iteration)
{
    bool wake = false;

    pthread_mutex_lock(&ctx->lock);
    if (ctx->faults) {
        ctx->faults->iteration = iteration + 1;
        for (uint32_t i = 0; i < ctx->faults->n_plan && !wake; i++) {
            const struct planned *p = &ctx->faults->plan[i];

            wake = !p->done && p->e.when == RY_SPEC_AT_ITERATION && p->e.at <= iteration;
        }
    }
    pthread_mutex_unlock(&ctx->lock);
    if (wake && ctx->mesh.wake_agent)
        ctx->mesh.wake_agent(ctx->mesh.wake_arg);
}

/* When is it due: a time; 0: now; UINT64_MAX: when something else happens. */
static uint64_t due_ns(const struct ry_ctx *ctx, const struct planned *p)
{
    uint64_t ops = __atomic_load_n(&ctx->mesh.activity, __ATOMIC_RELAXED);

    if (p->base_ns == 0)
        return UINT64_MAX;
    if (p->e.kind == RY_SPEC_FLAP && p->downs > 0)
        return p->base_ns + p->downs * p->e.period_ns;
    switch (p->e.when) {
    case RY_SPEC_AT_TIME:
        return p->base_ns + p->e.at;
    case RY_SPEC_AT_OP:
        return ops - p->base_ops >= p->e.at ? 0 : UINT64_MAX;
    default:
        return ctx->faults->iteration > p->e.at ? 0 : UINT64_MAX;
    }
}

/* Rails that an event on `rail` takes with it. */
static uint64_t rails_hit(const struct ry_mesh *m, const struct ry_spec_event *e, uint32_t rail)
{
    uint64_t rails = 0;

    for (uint32_t r = 0; r < m->hello.rails; r++) {
        if (r == rail ||
            (e->kind == RY_SPEC_NIC_DOWN && m->hello.rail[r].nic == m->hello.rail[rail].nic))
            rails |= 1ull << r;
    }
    return rails;
}

static bool busy(const struct ry_channel *ch, uint32_t active)
{
    const struct ry_ring *r = &ch->ring[active];

    return ry_packed_seq(ry_observe_cons(r)) != ry_packed_seq(ry_observe_ready(r));
}

static void find_hits(struct ry_mesh *m, struct record *rec, uint32_t peer_rail)
{
    uint32_t n = 0;

    for (uint32_t q = 0; q < m->n_pes; q++)
        n += m->peers[q].n_channels;
    rec->hits = calloc(n ? n : 1, sizeof(*rec->hits));
    for (uint32_t q = 0; rec->hits && q < m->n_pes; q++) {
        if (q == m->pe || (rec->peer >= 0 && q != (uint32_t)rec->peer))
            continue;
        for (uint32_t c = 0; c < m->peers[q].n_channels; c++) {
            const struct ry_out_channel *oc = &m->peers[q].out[c];
            uint32_t active = ry_state_active(ry_observe_state(oc->ch));

            if (!(rec->rails >> oc->slot[active].rail & 1) ||
                (peer_rail != RY_SPEC_ANY && oc->slot[active].peer_rail != peer_rail))
                continue;
            rec->hits[rec->n_hits++] =
                (struct hit){.peer = q,
                             .incarnation = m->peers[q].hello.incarnation,
                             .channel = c,
                             .base_ns = rec->at_ns,
                             .failed_before = ry_ld_acq64(&oc->ch->failed_ns),
                             .idle = !busy(oc->ch, active)};
        }
    }
}

static void open_record(struct ry_ctx *ctx, const struct planned *p, uint32_t rail, uint64_t now_ns)
{
    const struct ry_spec_event *e = &p->e;
    struct ry_fault_plan_state *f = ctx->faults;
    struct record *more =
        f->n_records < RECORDS_MAX ? realloc(f->records, (f->n_records + 1) * sizeof(*more)) : NULL;

    if (!more)
        return;
    f->records = more;
    struct record *rec = &f->records[f->n_records++];
    *rec = (struct record){.at_ns = now_ns,
                           .rails = rails_hit(&ctx->mesh, e, rail),
                           .peer = p->watch                 ? (int32_t)e->pe
                                   : e->peer == RY_SPEC_ANY ? -1
                                                            : (int32_t)e->peer};
    snprintf(rec->r.kind, sizeof(rec->r.kind), "%s", ry_spec_kind_name(e->kind));
    rec->r.pe = ctx->mesh.pe;
    rec->r.rail = rail;
    rec->r.at_us = (double)(now_ns - (ctx->fault_base_ns ? ctx->fault_base_ns : p->base_ns)) * 1e-3;
    rec->r.detect_us = rec->r.switch_us = rec->r.failback_us = -1;
    find_hits(&ctx->mesh, rec, p->watch ? e->rail : RY_SPEC_ANY);
    if (p->watch && rec->n_hits == 0) { /* nothing of ours goes there */
        free(rec->hits);
        f->n_records--;
    }
}

static void inject(struct ry_ctx *ctx, const struct planned *p, uint32_t rail, uint64_t now_ns)
{
    struct ry_nic *nic = ctx->mesh.nic;
    const struct ry_spec_event *e = &p->e;
    struct ry_nic_fault fault = {
        .kind = nic_kind[e->kind],
        .rail = rail,
        .peer = e->peer == RY_SPEC_ANY ? -1 : (int32_t)e->peer,
        .p = e->p,
        .for_ns = e->kind == RY_SPEC_FLAP ? e->period_ns / 2 : e->for_ns,
        .delay_ns = e->delay_ns,
        .jitter_ns = e->jitter_ns,
        .factor = e->factor,
        .syndrome = (uint8_t)e->syndrome,
        .vendor = (uint8_t)e->vendor,
        .seed = ctx->faults->seed + e->column * 0x9e3779b97f4a7c15ull + p->downs,
    };

    open_record(ctx, p, rail, now_ns);
    if (p->watch)
        return;
    int rc = nic->ops->fault ? nic->ops->fault(nic, &fault) : RY_ERR_UNSUPPORTED;
    if (rc)
        ry_log(&ctx->log, RY_DEBUG_WARN, "fault %s on rail %u could not be injected: %s",
               ry_spec_kind_name(e->kind), rail, ry_status_text(rc));
    else
        ry_log(&ctx->log, RY_DEBUG_INFO, "fault %s injected on rail %s", ry_spec_kind_name(e->kind),
               ctx->mesh.hello.rail[rail].name);
}

/* One event, now. */
static void happen(struct ry_ctx *ctx, struct planned *p, uint64_t now_ns)
{
    const struct ry_mesh *m = &ctx->mesh;
    uint64_t nics = 0;

    if (p->e.kind == RY_SPEC_KILL) {
        ry_log(&ctx->log, RY_DEBUG_INFO, "fault kill: this pe ends");
        kill(getpid(), SIGKILL);
        return;
    }
    for (uint32_t r = 0; r < m->hello.rails; r++) {
        uint32_t nic = m->hello.rail[r].nic % 64;

        if (!p->watch && p->e.rail != RY_SPEC_ANY && p->e.rail != r)
            continue;
        if (p->e.kind == RY_SPEC_NIC_DOWN && (nics >> nic & 1))
            continue; /* this NIC is down already */
        nics |= 1ull << nic;
        inject(ctx, p, r, now_ns);
    }
    if (p->e.kind == RY_SPEC_FLAP && p->downs == 0 && p->e.when != RY_SPEC_AT_TIME)
        p->base_ns = now_ns; /* the next downs count from the first */
    else if (p->e.kind == RY_SPEC_FLAP && p->downs == 0)
        p->base_ns += p->e.at;
    p->downs++;
    p->done = p->e.kind != RY_SPEC_FLAP || p->downs >= p->e.count;
}

/* A lost peer's channels go when a replacement is let in. */
static bool same_life(const struct ry_peer *p, const struct hit *h)
{
    return p->out && p->hello.incarnation == h->incarnation;
}

/* What one channel made of it. */
static void look_at_hit(struct ry_mesh *m, struct record *rec, struct hit *h)
{
    const struct ry_out_channel *oc = &m->peers[h->peer].out[h->channel];
    uint64_t st = ry_observe_state(oc->ch), failed = ry_ld_acq64(&oc->ch->failed_ns);
    uint32_t active = ry_state_active(st);
    bool home = oc->slot[active].rail == oc->home_rail;

    if (!h->failed && (failed == h->failed_before || failed < rec->at_ns)) {
        if (h->idle) /* nothing was outstanding: the watch says since when there is something */
            h->base_ns = oc->since_ns > rec->at_ns ? oc->since_ns : rec->at_ns;
        h->idle &= !busy(oc->ch, active);
        return;
    }
    if (!h->failed) {
        double us = failed > h->base_ns ? (double)(failed - h->base_ns) * 1e-3 : 0;

        h->failed = true;
        if (rec->r.detect_us < 0 || us < rec->r.detect_us)
            rec->r.detect_us = us;
    }
    uint64_t ok = ry_ld_acq64(&oc->ch->first_ok_ns);
    if (!h->ok && ok >= failed && ok != 0) {
        double us = (double)(ok - failed) * 1e-3;

        h->ok = true;
        rec->r.switch_us = us > rec->r.switch_us ? us : rec->r.switch_us;
    }
    h->back = ry_state_of(st) == RY_CH_GOOD && home;
}

static void look_at(struct ry_mesh *m, struct record *rec, uint64_t now_ns)
{
    bool failed = false, back = true;

    for (uint32_t i = 0; rec->hits && i < rec->n_hits; i++) {
        struct hit *h = &rec->hits[i];

        if (!h->back && same_life(&m->peers[h->peer], h))
            look_at_hit(m, rec, h);
        else
            h->back = true;
        failed |= h->failed;
        back &= !h->failed || h->back;
    }
    if (failed && back && rec->n_hits > 0) {
        if (rec->r.failback_us < 0)
            rec->r.failback_us = (double)(now_ns - rec->at_ns) * 1e-3;
        rec->over = true;
    }
}

uint64_t ry_fault_tick(struct ry_ctx *ctx, uint64_t now_ns)
{
    uint64_t next = UINT64_MAX;

    pthread_mutex_lock(&ctx->lock);
    struct ry_fault_plan_state *f = ctx->faults;
    for (uint32_t i = 0; f && i < f->n_plan; i++) {
        struct planned *p = &f->plan[i];
        uint64_t due = p->done ? UINT64_MAX : due_ns(ctx, p);

        if (due <= now_ns)
            happen(ctx, p, now_ns);
        due = p->done ? UINT64_MAX : due_ns(ctx, p);
        if (!p->done && p->base_ns && p->e.when == RY_SPEC_AT_OP && due == UINT64_MAX)
            due = now_ns + SOON_NS;
        next = due < next ? due : next;
    }
    for (uint32_t i = 0; f && i < f->n_records; i++) {
        struct record *rec = &f->records[i];

        if (rec->over)
            continue;
        look_at(&ctx->mesh, rec, now_ns);
        if (now_ns - rec->at_ns < 10000000000ull) /* a later return need not be timed as well */
            next = now_ns + WATCH_NS < next ? now_ns + WATCH_NS : next;
    }
    pthread_mutex_unlock(&ctx->lock);
    return next;
}

void ry_fault_saw(struct ry_ctx *ctx, const ry_event *ev)
{
    struct ry_fault_plan_state *f = ctx->faults;

    if (!f || ev->type != RY_EVENT_SWITCH)
        return;
    /* the newest record of that rail that was there when the failure was seen */
    for (uint32_t i = f->n_records; i-- > 0;) {
        struct record *rec = &f->records[i];

        if (!(rec->rails >> ev->rail & 1) || rec->at_ns > ev->detect_ns)
            continue;
        if (!rec->over && (rec->peer < 0 || (uint32_t)rec->peer == ev->peer))
            rec->r.replayed += ev->replayed;
        return;
    }
}

uint32_t ry_fault_records(ry_ctx *ctx, ry_fault_record *out, uint32_t max)
{
    uint32_t n = 0;

    pthread_mutex_lock(&ctx->lock);
    if (ctx->faults) {
        n = ctx->faults->n_records;
        for (uint32_t i = 0; i < n && i < max; i++)
            out[i] = ctx->faults->records[i].r;
    }
    pthread_mutex_unlock(&ctx->lock);
    return n;
}

void ry_fault_plan_free(struct ry_ctx *ctx)
{
    struct ry_fault_plan_state *f = ctx->faults;

    for (uint32_t i = 0; f && i < f->n_records; i++)
        free(f->records[i].hits);
    if (f) {
        free(f->records);
        free(f->plan);
    }
    free(f);
    ctx->faults = NULL;
}
