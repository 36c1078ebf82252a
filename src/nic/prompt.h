/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that must run soon after they are woken, and then for microseconds: the agent, an
 * emulated NIC's engine. A short slice is what the scheduler (EEVDF, Linux 6.12) takes that from:
 * without it a woken thread waits until a spinning one has used up its own, some milliseconds. It
 * needs no privilege; where the kernel does not know it, nothing changes. */
#ifndef RY_NIC_PROMPT_H
#define RY_NIC_PROMPT_H

#include <stdint.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { RY_PROMPT_SLICE_NS = 100000 };

static inline void ry_prompt_thread(void)
{
#ifdef SYS_sched_setattr
    enum { KEEP_POLICY = 0x08 };
    /* struct sched_attr, first version: sched_setattr(2). A library has no header for it. */
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime_ns, deadline_ns, period_ns;
    } attr = {.size = sizeof(attr), .flags = KEEP_POLICY, .runtime_ns = RY_PROMPT_SLICE_NS};

    attr.nice = getpriority(PRIO_PROCESS, 0); /* of this thread; it stays */

    (void)syscall(SYS_sched_setattr, 0, &attr, 0);
#endif
}

#endif
