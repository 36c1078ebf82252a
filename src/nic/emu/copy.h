/* SPDX-License-Identifier: Apache-2.0 */
/* How bytes reach a heap.
 *
 * - An aligned 8-byte word is never torn.
 * - 8 and 16 aligned bytes (signals) are release stores: a waiter's acquire load of them orders
 *   all that
 *   the same queue pair wrote before. Of 16 bytes the first word is stored last, because waiters
 *   look at it first.
 * - Anything else is ordered by the release that follows it: a signal, the completion, or the
 *   in-flight
 *   count. There is no stand-alone fence.
 *
 * Under ThreadSanitizer words that already hold the right value are left alone and the others
 * are stored atomically: a replay writes the same bytes again while the receiver may read them,
 * which is part of the protocol and no race; a payload that is still missing when its signal is
 * seen remains one. */
#ifndef RY_NIC_EMU_COPY_H
#define RY_NIC_EMU_COPY_H

#include <string.h>

#include "nic/emu/atomic.h"

#if defined(__SANITIZE_THREAD__)
#define RY_EMU_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RY_EMU_TSAN 1
#endif
#endif
#ifndef RY_EMU_TSAN
#define RY_EMU_TSAN 0
#endif

#if RY_EMU_TSAN
static inline void ry_emu_copy_bulk(char *dst, const char *src, uint64_t n)
{
    while (n >= 8 && ((uintptr_t)dst & 7) == 0) {
        uint64_t v;

        memcpy(&v, src, 8);
        if (RY_LD_RLX((uint64_t *)(void *)dst) != v)
            RY_ST_RLX((uint64_t *)(void *)dst, v);
        dst += 8;
        src += 8;
        n -= 8;
    }
    for (; n > 0; n--, dst++, src++)
        if (RY_LD_RLX(dst) != *src)
            RY_ST_RLX(dst, *src);
}
#else
static inline void ry_emu_copy_bulk(char *dst, const char *src, uint64_t n) { memcpy(dst, src, n); }
#endif

static inline void ry_emu_put_word(uint64_t *at, uint64_t v)
{
    if (!RY_EMU_TSAN || RY_LD_RLX(at) != v)
        RY_ST_REL(at, v);
}

static inline void ry_emu_copy(void *dst, const void *src, uint64_t n)
{
    char *d = dst;
    const char *s = src;

    if ((n == 8 || n == 16) && ((uintptr_t)d & 7) == 0) {
        uint64_t v[2];

        memcpy(v, s, n);
        if (n == 16)
            ry_emu_put_word((uint64_t *)(void *)(d + 8), v[1]);
        ry_emu_put_word((uint64_t *)(void *)d, v[0]);
        return;
    }
    ry_emu_copy_bulk(d, s, n);
}

/* From a heap that others write: whole words where the place allows it, with acquire, because a
 * read may be of a signal word. */
static inline void ry_emu_fetch(void *dst, const void *src, uint64_t n)
{
    if ((n == 8 || n == 16) && (((uintptr_t)src | (uintptr_t)dst) & 7) == 0) {
        const uint64_t *s = src;
        uint64_t *d = dst, v = RY_LD_ACQ(s);

        if (n == 16)
            RY_ST_RLX(d + 1, RY_LD_ACQ(s + 1));
        RY_ST_REL(d, v);
        return;
    }
    ry_emu_copy_bulk(dst, src, n);
}

#endif
