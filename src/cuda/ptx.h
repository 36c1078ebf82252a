/* SPDX-License-Identifier: Apache-2.0 */
/* The instructions that kernels use by name: memory order of flags, wide loads and stores, the bulk
 * copy engine (TMA) and its barriers. Source of all of them: the PTX ISA, version 8.
 *
 * Order. A flag is published with ry_flag_publish (release, system scope) by a thread that has met
 * the threads whose stores it covers at a barrier of the block or warp; release is cumulative, so
 * that one release by one thread covers the whole block. A flag is seen with ry_flag_observe
 * (acquire), and the threads that a barrier joins to the observer then see the payload too. */
#ifndef RY_CUDA_PTX_H
#define RY_CUDA_PTX_H

#include <stdint.h>

#define RY_DEV __device__ static inline
/* What is seldom needed, kept out of the way of what is often: a kernel has one copy of it. */
#define RY_DEV_COLD __device__ static __noinline__ __attribute__((unused))

/* Sender to receiver, who may be another GPU. */
RY_DEV void ry_flag_publish(uint64_t *p, uint64_t v)
{
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}

RY_DEV uint64_t ry_flag_observe(const uint64_t *p)
{
    uint64_t v;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}

/* A word that says all by itself (generation and value together), ordered with nothing. */
RY_DEV void ry_word_publish(uint64_t *p, uint64_t v)
{
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}

RY_DEV uint64_t ry_word_observe(const uint64_t *p)
{
    uint64_t v;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}

RY_DEV uint64_t ry_global_ns(void)
{
    uint64_t t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t)::"memory");
    return t;
}

/* 16 bytes. Payload passes L1 by: it is used once, and a line that a peer writes must not stay. */
RY_DEV uint4 ry_load16(const void *p)
{
    uint4 v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p)
                 : "memory");
    return v;
}

/* The same for what no one writes while the kernel runs. */
RY_DEV uint4 ry_load16_const(const void *p)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

RY_DEV void ry_store16(void *p, uint4 v)
{
    asm volatile("st.global.L1::no_allocate.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.x),
                 "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}

/* --- bulk copies --- */

RY_DEV uint32_t ry_shared_addr(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

RY_DEV void ry_bar_init(uint64_t *bar)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(ry_shared_addr(bar)) : "memory");
}

/* Initialised barriers, to the copy engine. */
RY_DEV void ry_bar_init_fence(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* Global to shared memory; `bar` completes a phase when all bytes are there. 16-byte multiples. */
RY_DEV void ry_bulk_load(void *to, const void *from, uint32_t bytes, uint64_t *bar)
{
    uint32_t b = ry_shared_addr(bar);

    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(b), "r"(bytes)
                 : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
        "[%3];" ::"r"(ry_shared_addr(to)),
        "l"(from), "r"(bytes), "r"(b)
        : "memory");
}

/* The barrier's memory is to be something else: nobody waits on it any more. */
RY_DEV void ry_bar_end(uint64_t *bar)
{
    asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(ry_shared_addr(bar)) : "memory");
}

RY_DEV void ry_bar_wait(uint64_t *bar, uint32_t parity)
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
                 "@p bra done;\n"
                 "bra again;\n"
                 "done:\n"
                 "}\n" ::"r"(ry_shared_addr(bar)),
                 "r"(parity)
                 : "memory");
}

/* Shared to global memory, of this GPU or a peer. */
RY_DEV void ry_bulk_store(void *to, const void *from, uint32_t bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                 "r"(ry_shared_addr(from)), "r"(bytes)
                 : "memory");
}

RY_DEV void ry_bulk_commit(void) { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

/* Sources of all but the newest group may be overwritten. */
RY_DEV void ry_bulk_wait_read0(void)
{
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
RY_DEV void ry_bulk_wait_read1(void)
{
    asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
}

/* All groups (all but the newest) are written, and this thread may publish that. */
RY_DEV void ry_bulk_wait0(void) { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
RY_DEV void ry_bulk_wait1(void) { asm volatile("cp.async.bulk.wait_group 1;" ::: "memory"); }

/* What threads wrote to shared memory by plain stores, to the copy engine that reads it next. */
RY_DEV void ry_shared_to_bulk(void) { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

#endif
