/* SPDX-License-Identifier: Apache-2.0 */
/* The engine: everything that happens at a time. One thread at a time does its work, whoever comes
 * (drive, kick, the engine's own thread); the own thread exists only in real time and only once
 * something needs a time, and sleeps until the next thing is due. */
#include <signal.h>
#include <sys/prctl.h>

#include "nic/emu/emu_int.h"
#include "nic/prompt.h"

enum { PASSES = 64, SENT_MAX = 4096, SPIN_NS = 20000, SLEEP_MAX_NS = 1000000000 };

/* Put a queue pair before the engine. Any thread; wait-free but for the list's compare-and-swap. */
static void submit_push(struct ry_nic_qp *qp)
{
    struct ry_emu *e = qp->nic;
    struct ry_nic_qp *head;

    if (RY_XCHG(&qp->queued, 1u) != 0)
        return;
    head = RY_LD_RLX(&e->submit);
    do {
        qp->next = head;
    } while (!RY_CAS(&e->submit, &head, qp));
    RY_ST_SEQ(&e->engine_work, 1u);
}

static void submit_drain(struct ry_emu *e)
{
    struct ry_nic_qp *qp = RY_XCHG(&e->submit, NULL), *in_order = NULL;

    while (qp != NULL) { /* the list is newest first */
        struct ry_nic_qp *next = qp->next;

        qp->next = in_order;
        in_order = qp;
        qp = next;
    }
    for (qp = in_order; qp != NULL;) {
        struct ry_nic_qp *next = qp->next;

        RY_ST_SEQ(&qp->queued, 0u);
        if (!qp->active) {
            qp->active = true;
            e->active[e->actives++] = qp;
        }
        qp = next;
    }
}

/* In virtual time there is one thread, and the simulator makes millions of these. */
static void take(struct ry_nic_qp *qp)
{
    if (!qp->nic->cfg.virtual_time)
        ry_emu_lock(&qp->lock);
}

static void drop(struct ry_nic_qp *qp)
{
    if (!qp->nic->cfg.virtual_time)
        ry_emu_unlock(&qp->lock);
}

/* The engine lets go of a queue pair that has nothing under way and needs no time any more. */
static bool release(struct ry_nic_qp *qp)
{
    bool idle = qp->fhead == qp->ftail && !qp->lost && qp->send_off == 0 &&
                qp->send_idx == qp->done;

    if (!idle || (qp->state == RY_EMU_RTS && qp->done != RY_LD_SEQ(&qp->prod) &&
                  (qp->nic->cfg.virtual_time || ry_emu_slow(qp))))
        return false;
    RY_ST_SEQ(&qp->timed, 0u);
    return true;
}

static uint64_t advance_all(struct ry_emu *e, uint64_t now, bool *moved)
{
    uint64_t next = RY_EMU_NEVER;

    for (uint32_t i = 0; i < e->actives; i++) {
        struct ry_nic_qp *qp = e->active[i];
        bool gone, left;

        take(qp);
        if (RY_LD_ACQ(&qp->timed) == 0) {
            qp->send_idx = qp->seen_prod = qp->done;
            qp->send_off = 0;
            RY_ST_SEQ(&qp->timed, 1u);
        }
        next = ry_min64(next, ry_emu_advance(qp, now, moved));
        gone = release(qp);
        left = qp->state == RY_EMU_RTS;
        drop(qp);
        if (!gone)
            continue;
        qp->active = false;
        e->active[i--] = e->active[--e->actives];
        if (!left || RY_LD_SEQ(&qp->done) == RY_LD_SEQ(&qp->prod))
            continue;
        if (e->cfg.virtual_time)
            submit_push(qp);
        else
            ry_emu_run(qp); /* what came while it was ours */
        *moved = true;
    }
    return next;
}

/* One segment at a time, and the next turn begins behind who had the last one, also in the next
 * pass: that is what shares a port fairly. */
static bool admit_all(struct ry_emu *e, uint64_t now, uint64_t *next)
{
    uint32_t refused = 0, sent = 0;

    while (refused < e->actives && sent < SENT_MAX) {
        struct ry_nic_qp *qp = e->active[e->rr % e->actives];
        bool one;

        take(qp);
        one = ry_emu_admit(qp, now, next);
        drop(qp);
        e->rr = (e->rr + 1) % e->actives;
        refused = one ? 0 : refused + 1;
        sent += one;
    }
    return sent != 0;
}

/* With the engine's lock. */
static uint64_t process(struct ry_emu *e, uint64_t now)
{
    uint64_t next = RY_EMU_NEVER;

    for (int pass = 0; pass < PASSES; pass++) {
        bool moved = false;

        submit_drain(e);
        RY_ST_RLX(&e->far_stall, false);
        next = ry_emu_faults_expire(e, now);
        next = ry_min64(next, ry_emu_land_due(e, now));
        next = ry_min64(next, ry_emu_ghosts_due(e, now));
        next = ry_min64(next, advance_all(e, now, &moved));
        moved |= admit_all(e, now, &next);
        if ((!moved && next > now && RY_LD_SEQ(&e->submit) == NULL) ||
            RY_LD_RLX(&e->engine_wait) != 0)
            break;
    }
    if (next == RY_EMU_NEVER && e->actives == 0) {
        RY_ST_SEQ(&e->engine_work, 0u);
        if (RY_LD_SEQ(&e->submit) != NULL)
            RY_ST_SEQ(&e->engine_work, 1u);
    }
    RY_ST_SEQ(&e->next_due, next);
    return next;
}

void ry_emu_engine_poke(struct ry_emu *e, uint64_t due_ns)
{
    if (e->cfg.virtual_time || due_ns == RY_EMU_NEVER)
        return;
    if (RY_LD_SEQ(&e->thread_on) == 0 && ry_emu_engine_start(e) != 0)
        return; /* drive() is then all there is; every wait calls it */
    if (due_ns < RY_LD_SEQ(&e->sleep_until)) {
        RY_ADD(&e->poke, 1u);
        ry_emu_futex_wake(&e->poke);
    }
}

/* For calls that change what the engine works on. */
void ry_emu_engine_lock(struct ry_emu *e)
{
    RY_ADD(&e->engine_wait, 1u);
    ry_emu_lock(&e->engine);
    RY_SUB(&e->engine_wait, 1u);
}

/* Work may have been left on the list meanwhile, or the engine was cut short: let its thread
 * look. */
void ry_emu_engine_unlock(struct ry_emu *e)
{
    ry_emu_unlock(&e->engine);
    if (RY_LD_SEQ(&e->submit) != NULL || RY_LD_SEQ(&e->engine_work) != 0)
        ry_emu_engine_poke(e, 0);
}

static uint64_t drive_now(struct ry_emu *e, uint64_t now)
{
    uint64_t next;

    do {
        if (RY_LD_RLX(&e->engine_wait) != 0 || !ry_emu_trylock(&e->engine))
            return RY_LD_ACQ(&e->next_due); /* whoever has it looks at the list after letting go */
        next = process(e, now);
        ry_emu_unlock(&e->engine);
    } while (RY_LD_SEQ(&e->submit) != NULL);
    ry_emu_engine_poke(e, next);
    return next;
}

void ry_emu_submit(struct ry_nic_qp *qp)
{
    struct ry_emu *e = qp->nic;

    submit_push(qp);
    if (!e->cfg.virtual_time)
        drive_now(e, ry_emu_now(e));
}

uint64_t ry_emu_drive(struct ry_nic *nic, uint64_t now_ns)
{
    struct ry_emu *e = ry_emu_of(nic);

    uint64_t next;

    if (RY_LIKELY(RY_LD_ACQ(&e->engine_work) == 0 && e->seg->land_used == 0))
        return RY_EMU_NEVER;
    next = ry_min64(RY_LD_SEQ(&e->next_due), e->seg->land_min_ns);
    if (next > now_ns && RY_LD_SEQ(&e->submit) == NULL && !RY_LD_RLX(&e->far_stall))
        return next; /* whoever changes what is due sets next_due back, or submits */
    return drive_now(e, now_ns);
}

static void *engine_main(void *arg)
{
    struct ry_emu *e = arg;

    prctl(PR_SET_TIMERSLACK, 1000ul);
    prctl(PR_SET_NAME, "ry-emu");
    ry_prompt_thread();
    while (RY_LD_SEQ(&e->thread_stop) == 0) {
        uint32_t poke = RY_LD_SEQ(&e->poke);
        uint64_t next, now = ry_emu_now(e);

        RY_ST_SEQ(&e->sleep_until, 0ull); /* awake: nobody need wake us, we look again below */
        if (RY_LD_RLX(&e->engine_wait) == 0 && ry_emu_trylock(&e->engine)) {
            next = process(e, now);
            ry_emu_unlock(&e->engine);
        } else {
            next = now + 2 * SPIN_NS;
        }
        now = ry_emu_now(e);
        if (RY_LD_SEQ(&e->submit) != NULL || next <= now)
            continue;
        RY_ST_SEQ(&e->sleep_until, next);
        if (RY_LD_SEQ(&e->next_due) < next || RY_LD_SEQ(&e->submit) != NULL)
            continue;
        if (next - now <= SPIN_NS)
            sched_yield();
        else
            ry_emu_futex_wait(&e->poke, poke, ry_min64(next - now, SLEEP_MAX_NS));
    }
    return NULL;
}

int ry_emu_engine_start(struct ry_emu *e)
{
    sigset_t all, old;
    int rc = 0;

    if (e->cfg.virtual_time)
        return 0;
    pthread_mutex_lock(&e->thread_lock);
    if (e->thread_on == 0 && e->thread_stop == 0) {
        sigfillset(&all); /* signals are the application's */
        pthread_sigmask(SIG_SETMASK, &all, &old);
        rc = pthread_create(&e->thread, NULL, engine_main, e) == 0 ? 0 : RY_ERR_SYSTEM;
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        if (rc == 0)
            RY_ST_SEQ(&e->thread_on, 1u);
    }
    pthread_mutex_unlock(&e->thread_lock);
    return rc;
}

void ry_emu_engine_stop(struct ry_emu *e)
{
    uint32_t on;

    pthread_mutex_lock(&e->thread_lock);
    on = e->thread_on;
    RY_ST_SEQ(&e->thread_stop, 1u);
    pthread_mutex_unlock(&e->thread_lock);
    if (on == 0)
        return;
    RY_ADD(&e->poke, 1u);
    ry_emu_futex_wake(&e->poke);
    pthread_join(e->thread, NULL);
    RY_ST_SEQ(&e->thread_on, 0u);
}

/* Destroying: after this the engine holds no pointer to the queue pair. */
void ry_emu_engine_leave(struct ry_nic_qp *qp)
{
    struct ry_emu *e = qp->nic;

    ry_emu_engine_lock(e);
    submit_drain(e);
    for (uint32_t i = 0; i < e->actives; i++) {
        if (e->active[i] != qp)
            continue;
        e->active[i] = e->active[--e->actives];
        break;
    }
    ry_emu_engine_unlock(e);
}
