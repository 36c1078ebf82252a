/* SPDX-License-Identifier: Apache-2.0 */
/* Memory verbs: the only way in which core/ touches a shared word.
 *
 * The primitives below (ry_ld_acq64 ...) are private to this file and to layout.h's named verbs;
 * the protocol calls verbs named for their use, so that a reader sees which two observers an access
 * orders. On the host they are __atomic acquire/release on the word itself (no stand-alone fence),
 * so that ThreadSanitizer can judge them; on the GPU they are PTX with .sys scope, because the
 * other observer may be a NIC or the host. */
#ifndef RY_CORE_MEM_H
#define RY_CORE_MEM_H

#include "core/base.h"

RY_FN uint64_t ry_ld_rlx64(const uint64_t *p)
{
    RY_POINT();
#if RY_ON_GPU
    uint64_t v;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
#else
    return __atomic_load_n(p, __ATOMIC_RELAXED);
#endif
}

RY_FN uint32_t ry_ld_rlx32(const uint32_t *p)
{
    RY_POINT();
#if RY_ON_GPU
    uint32_t v;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
#else
    return __atomic_load_n(p, __ATOMIC_RELAXED);
#endif
}

RY_FN uint64_t ry_ld_acq64(const uint64_t *p)
{
    RY_POINT();
#if RY_ON_GPU
    uint64_t v;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
#else
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
#endif
}

RY_FN uint32_t ry_ld_acq32(const uint32_t *p)
{
    RY_POINT();
#if RY_ON_GPU
    uint32_t v;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
#else
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
#endif
}

RY_FN void ry_st_rel64(uint64_t *p, uint64_t v)
{
    RY_POINT();
#if RY_ON_GPU
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
#else
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
#endif
}

RY_FN void ry_st_rel32(uint32_t *p, uint32_t v)
{
    RY_POINT();
#if RY_ON_GPU
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
#else
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
#endif
}

/* Compare-and-swap, acquire and release; true when *p was `expect` and now is `want`. On failure
 * the value that was found is left in *found. */
RY_FN bool ry_cas64(uint64_t *p, uint64_t expect, uint64_t want, uint64_t *found)
{
    RY_POINT();
#if RY_ON_GPU
    uint64_t old;
    asm volatile("atom.acq_rel.sys.global.cas.b64 %0, [%1], %2, %3;"
                 : "=l"(old)
                 : "l"(p), "l"(expect), "l"(want)
                 : "memory");
    *found = old;
    return old == expect;
#else
    *found = expect;
    return __atomic_compare_exchange_n(p, found, want, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
#endif
}

RY_FN uint64_t ry_or64(uint64_t *p, uint64_t bits)
{
    RY_POINT();
#if RY_ON_GPU
    uint64_t old;
    asm volatile("atom.acq_rel.sys.global.or.b64 %0, [%1], %2;"
                 : "=l"(old)
                 : "l"(p), "l"(bits)
                 : "memory");
    return old;
#else
    return __atomic_fetch_or(p, bits, __ATOMIC_ACQ_REL);
#endif
}

/* The same three for words that only the initiators and movers of one PE share, all of them on one
 * GPU: on the GPU the scope is the GPU's, which costs a third. An order made of these and of the
 * ones above holds for whoever is behind the last. The take does not release: what its thread wrote
 * before is published by a later store. */
RY_FN uint64_t ry_ld_acq64_pe(const uint64_t *p)
{
#if RY_ON_GPU
    uint64_t v;
    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
#else
    return ry_ld_acq64(p);
#endif
}

RY_FN void ry_st_rel64_pe(uint64_t *p, uint64_t v)
{
#if RY_ON_GPU
    asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
#else
    ry_st_rel64(p, v);
#endif
}

RY_FN bool ry_take64_pe(uint64_t *p, uint64_t expect, uint64_t want, uint64_t *found)
{
#if RY_ON_GPU
    uint64_t old;
    asm volatile("atom.acquire.gpu.global.cas.b64 %0, [%1], %2, %3;"
                 : "=l"(old)
                 : "l"(p), "l"(expect), "l"(want)
                 : "memory");
    *found = old;
    return old == expect;
#else
    return ry_cas64(p, expect, want, found);
#endif
}

/* A look whose acquire is the looker's next release: on the GPU a fence stands before every release
 * store, so that several looks may be under way at once; on the host it acquires by itself. */
RY_FN uint64_t ry_look64_pe(const uint64_t *p)
{
#if RY_ON_GPU
    uint64_t v;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
#else
    return ry_ld_acq64(p);
#endif
}

RY_FN uint32_t ry_look32_pe(const uint32_t *p)
{
#if RY_ON_GPU
    uint32_t v;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
#else
    return ry_ld_acq32(p);
#endif
}

/* The same of a word that holds a pointer. */
RY_FN void *ry_look_ptr_pe(const void *p)
{
#if RY_ON_GPU
    return (void *)ry_look64_pe((const uint64_t *)p);
#else
    return __atomic_load_n((void *const *)p, __ATOMIC_ACQUIRE);
#endif
}

RY_FN void ry_st_ptr(void *p, const void *v)
{
#if RY_ON_GPU
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
#else
    __atomic_store_n((const void **)p, v, __ATOMIC_RELAXED);
#endif
}

/* As ry_take64_pe for a word whose value is all that the taker learns: on the GPU it orders
 * nothing, and goes on its way while the caller does other things. The former value, `expect` when
 * the word was taken. */
RY_FN uint64_t ry_claim64_pe(uint64_t *p, uint64_t expect, uint64_t want)
{
    uint64_t old;
#if RY_ON_GPU
    asm volatile("atom.relaxed.gpu.global.cas.b64 %0, [%1], %2, %3;"
                 : "=l"(old)
                 : "l"(p), "l"(expect), "l"(want)
                 : "memory");
#else
    if (ry_cas64(p, expect, want, &old))
        old = expect;
#endif
    return old;
}

/* What the thread did and what it has looked at, to an observer of what it stores next, who may be
 * a NIC. On the host the store itself releases. */
RY_FN void ry_fence_sys(void)
{
#if RY_ON_GPU
    asm volatile("fence.acq_rel.sys;" ::: "memory");
#endif
}

RY_FN void ry_st_fenced32(uint32_t *p, uint32_t v)
{
    RY_POINT();
#if RY_ON_GPU
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
#else
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
#endif
}

RY_FN void ry_st_fenced64(uint64_t *p, uint64_t v)
{
    RY_POINT();
#if RY_ON_GPU
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
#else
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
#endif
}

#endif
