/* SPDX-License-Identifier: Apache-2.0 */
/* Coroutines: everything in the simulated world runs on one thread, one at a time. */
#ifndef RY_SIM_CORO_H
#define RY_SIM_CORO_H

#include <stdbool.h>
#include <stddef.h>

struct ry_coro {
    void *sp;
    void *stack;
    size_t stack_bytes;
    void (*run)(void *arg);
    void *arg;
    bool done;
};

/* The stack is kept from one use to the next. False: no memory. */
bool ry_coro_start(struct ry_coro *c, void (*run)(void *), void *arg);
/* Run c until it yields or ends; only from outside of coroutines. */
void ry_coro_resume(struct ry_coro *c);
/* Back to who resumed; only from inside. */
void ry_coro_yield(void);

#endif
