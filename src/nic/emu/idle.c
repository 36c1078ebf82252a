/* SPDX-License-Identifier: Apache-2.0 */
/* Sleeping until this PE's memory changes, at no cost to those who write it while nobody sleeps.
 *
 * A waiter looks at its word, finds nothing and calls idle. The first call only arms the segment
 * and comes back, so that the waiter looks once more; the second call sleeps. A writer stores
 * its data and then looks whether anybody is armed; the waiter arms and then looks at the data:
 * both orders are sequentially consistent (the writer's in-flight subtraction lies between), so
 * one sees the other. Each thread remembers the arming that it saw before its last look: under
 * any other it may not sleep. */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "nic/emu/emu_int.h"

enum { SLEEP_MAX_NS = 100000000 };

int ry_emu_futex_wait(uint32_t *word, uint32_t value, uint64_t wait_ns)
{
    struct timespec ts = {.tv_sec = (time_t)(wait_ns / 1000000000u),
                          .tv_nsec = (long)(wait_ns % 1000000000u)};

    return (int)syscall(SYS_futex, word, FUTEX_WAIT, value, &ts, NULL, 0);
}

void ry_emu_futex_wake(uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void ry_emu_wake_seg(struct ry_emu_seg *seg)
{
    if (RY_LIKELY(RY_LD_SEQ(&seg->armed) == 0))
        return;
    RY_ST_SEQ(&seg->armed, 0u);
    RY_ADD(&seg->wake, 1u);
    ry_emu_futex_wake(&seg->wake);
}

void ry_emu_wake(struct ry_nic *nic)
{
    struct ry_emu *e = ry_emu_of(nic);

    if (e->cfg.virtual_time)
        return;
    RY_ST_SEQ(&e->seg->armed, 0u);
    RY_ADD(&e->seg->wake, 1u);
    ry_emu_futex_wake(&e->seg->wake);
}

/* The addition of nothing stands between the caller's stores and the look: whoever arms after it
 * sees them. */
void ry_emu_wake_peer(struct ry_nic *nic, uint32_t pe)
{
    struct ry_emu *e = ry_emu_of(nic);
    struct ry_emu_peer *p = pe < e->cfg.n_pes ? &e->peers[pe] : NULL;

    if (e->cfg.virtual_time || p == NULL || RY_LD_ACQ(&p->attached) == 0)
        return;
    if (RY_ADD(&p->seg->armed, 0u) != 0)
        ry_emu_wake_seg(p->seg);
}

/* One thread's memory of the arming under which it last looked. */
static _Thread_local struct {
    uint64_t nic_id;
    uint32_t armed;
} ry_emu_seen;

/* The arming now in force; made if there is none. Never 0. */
static uint32_t arm(struct ry_emu *e)
{
    uint32_t id = RY_LD_SEQ(&e->seg->armed), fresh;

    while (id == 0) {
        fresh = RY_ADD(&e->arm_next, 1u) | 1u;
        if (RY_CAS(&e->seg->armed, &id, fresh))
            id = fresh;
    }
    return id;
}

void ry_emu_idle(struct ry_nic *nic, uint64_t until_ns)
{
    struct ry_emu *e = ry_emu_of(nic);
    uint32_t wake, armed;
    uint64_t now;

    if (e->cfg.virtual_time)
        return;
    wake = RY_LD_SEQ(&e->seg->wake);
    armed = arm(e);
    if (ry_emu_seen.nic_id != e->id || ry_emu_seen.armed != armed) {
        ry_emu_seen.nic_id = e->id;
        ry_emu_seen.armed = armed;
        return;
    }
    now = ry_emu_now(e);
    if (until_ns <= now)
        return;
    ry_emu_futex_wait(&e->seg->wake, wake, ry_min64(until_ns - now, SLEEP_MAX_NS));
}
