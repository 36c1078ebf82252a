/* SPDX-License-Identifier: Apache-2.0 */
/* What every file of core/ starts from: fixed-width types, the function mark, byte order.
 *
 * core/ is one source for three compilers: gcc and clang (C11) and nvcc (device code). It uses no
 * libc, no allocation, no system call and no clock; time enters through struct ry_env. */
#ifndef RY_CORE_BASE_H
#define RY_CORE_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__CUDACC__)
#define RY_FN                        __device__ __host__ static inline
#define RY_STATIC_ASSERT(cond, text) static_assert(cond, text)
/* What is seldom needed and long: a kernel has one copy of it, out of the way. */
#define RY_COLD_FN __device__ __host__ static __noinline__ __attribute__((unused))
#else
#define RY_COLD_FN                   RY_FN
#define RY_FN                        static inline __attribute__((unused))
#define RY_STATIC_ASSERT(cond, text) _Static_assert(cond, text)
#endif

#if defined(__CUDA_ARCH__)
#define RY_ON_GPU 1
#else
#define RY_ON_GPU 0
#endif

#define RY_LIKELY(x)   __builtin_expect(!!(x), 1)
#define RY_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* The simulator compiles this same source with RY_SIM: every shared access is then a point at which
 * it may run another coroutine. Of most points nothing comes: ry_sim_skip counts down to the next
 * one that it wants to hear of. Coverage marks (ry_mark) tell it which rare branches a run has met;
 * a producer slot that was written, that its proxy has something to look at. Where a thread that
 * sleeps is most dangerous stands RY_SLOW: some runs let it sleep there, often until a ring was
 * opened. RY_COUNTER_MASK: the NIC's counters have 16 bits, and in some runs count for fewer, so
 * that they wrap within a run. */
#if defined(RY_SIM)
#ifdef __cplusplus
extern "C" {
#endif
extern uint64_t ry_sim_skip;
void ry_sim_point(void);
void ry_sim_mark(const char *name);
void ry_sim_proxy_told(void);
void ry_sim_slow(void);
void ry_sim_opened(void);
extern uint16_t ry_sim_counter_mask;
#ifdef __cplusplus
}
#endif
#define RY_TOLD()       ry_sim_proxy_told()
#define RY_SLOW()       ry_sim_slow()
#define RY_OPENED()     ry_sim_opened()
#define RY_COUNTER_MASK ry_sim_counter_mask
#define RY_POINT()      (RY_UNLIKELY(ry_sim_skip-- == 0) ? ry_sim_point() : (void)0)
#define RY_MARK(name)   ry_sim_mark(name)
#else
#define RY_TOLD()       ((void)0)
#define RY_SLOW()       ((void)0)
#define RY_OPENED()     ((void)0)
#define RY_COUNTER_MASK 0xffffu
#define RY_POINT()      ((void)0)
#define RY_MARK(name)   ((void)0)
#endif

/* Mutation switches: the proof build defines RY_MUTANT to a variable; a mutant breaks one clause of
 * one rule where its name stands. In the product the condition is the constant 0 and vanishes. */
#if defined(RY_SIM)
#ifdef __cplusplus
extern "C" {
#endif
extern int ry_mutant;
#ifdef __cplusplus
}
#endif
#define RY_MUT(id) RY_UNLIKELY(ry_mutant == (id))
#else
#define RY_MUT(id) 0
#endif

RY_FN uint16_t ry_be16(uint16_t v) { return (uint16_t)((v << 8) | (v >> 8)); }

RY_FN uint32_t ry_be32(uint32_t v)
{
#if RY_ON_GPU
    return __byte_perm(v, 0, 0x0123);
#else
    return __builtin_bswap32(v);
#endif
}

RY_FN uint64_t ry_be64(uint64_t v)
{
#if RY_ON_GPU
    return ((uint64_t)ry_be32((uint32_t)v) << 32) | ry_be32((uint32_t)(v >> 32));
#else
    return __builtin_bswap64(v);
#endif
}

RY_FN uint64_t ry_min64(uint64_t a, uint64_t b) { return a < b ? a : b; }
RY_FN uint64_t ry_max64(uint64_t a, uint64_t b) { return a > b ? a : b; }
RY_FN uint32_t ry_min32(uint32_t a, uint32_t b) { return a < b ? a : b; }

#endif
