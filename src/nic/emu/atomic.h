/* SPDX-License-Identifier: Apache-2.0 */
/* Atomic accesses of the emulated NIC, short names for the __atomic builtins, and its small
 * lock.
 *
 * They are not core/'s verbs: those are points of the simulator, which must not switch inside
 * the NIC. */
#ifndef RY_NIC_EMU_ATOMIC_H
#define RY_NIC_EMU_ATOMIC_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#define RY_LD_RLX(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define RY_LD_ACQ(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define RY_LD_SEQ(p) __atomic_load_n((p), __ATOMIC_SEQ_CST)
#define RY_ST_RLX(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define RY_ST_REL(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define RY_ST_SEQ(p, v) __atomic_store_n((p), (v), __ATOMIC_SEQ_CST)
#define RY_ADD(p, v) __atomic_fetch_add((p), (v), __ATOMIC_SEQ_CST)
#define RY_SUB(p, v) __atomic_fetch_sub((p), (v), __ATOMIC_SEQ_CST)
#define RY_XCHG(p, v) __atomic_exchange_n((p), (v), __ATOMIC_SEQ_CST)

/* Strong compare-and-swap; *found is what stood there. */
#define RY_CAS(p, found, want) \
    __atomic_compare_exchange_n((p), (found), (want), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)

/* A counter with one writer at a time (the holder of a lock) and any number of readers. */
#define RY_BUMP(p, v) RY_ST_RLX((p), RY_LD_RLX(p) + (v))

/* The lock's values. Who executes looks for more work after letting go, so that who finds it
 * taken may leave his work there; a visitor does not, so that one waits for him. */
enum { RY_EMU_FREE = 0, RY_EMU_EXECUTES = 1, RY_EMU_VISITS = 2 };

static inline bool ry_emu_trylock_as(uint32_t *lock, uint32_t who)
{
    uint32_t found = RY_EMU_FREE;

    return RY_LD_RLX(lock) == RY_EMU_FREE && RY_CAS(lock, &found, who);
}

static inline bool ry_emu_trylock(uint32_t *lock)
{
    return ry_emu_trylock_as(lock, RY_EMU_EXECUTES);
}

/* Waits for one work request to end at most; yields, because the holder may not be running. */
static inline void ry_emu_lock(uint32_t *lock)
{
    while (!ry_emu_trylock_as(lock, RY_EMU_EXECUTES))
        sched_yield();
}

static inline void ry_emu_visit(uint32_t *lock)
{
    while (!ry_emu_trylock_as(lock, RY_EMU_VISITS))
        sched_yield();
}

/* Sequentially consistent: the holder then looks for work that came while a try failed (kick.c). */
static inline void ry_emu_unlock(uint32_t *lock) { RY_ST_SEQ(lock, (uint32_t)RY_EMU_FREE); }

#endif
