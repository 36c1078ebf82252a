/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/coro.h"

#include <stdint.h>
#include <stdlib.h>

enum { STACK_BYTES = 256 << 10 };

/* One thread, one world: what runs now and where to go back to. */
static struct ry_coro *current;
static void *outside_sp;

/* Save callee-saved registers and the stack pointer in *from, go on at `to`. */
void ry_coro_switch(void **from, void *to);

#if defined(__x86_64__)
__asm__(".text\n"
        ".globl ry_coro_switch\n"
        ".type ry_coro_switch,@function\n"
        "ry_coro_switch:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size ry_coro_switch,.-ry_coro_switch\n");
enum { FRAME_WORDS = 7, RETURN_WORD = 6 };
#elif defined(__aarch64__)
__asm__(".text\n"
        ".globl ry_coro_switch\n"
        ".type ry_coro_switch,%function\n"
        "ry_coro_switch:\n"
        "    sub sp, sp, #160\n"
        "    stp x19, x20, [sp, #0]\n    stp x21, x22, [sp, #16]\n    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n    stp x27, x28, [sp, #64]\n    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n    stp d10, d11, [sp, #112]\n"
        "    stp d12, d13, [sp, #128]\n    stp d14, d15, [sp, #144]\n"
        "    mov x9, sp\n    str x9, [x0]\n    mov sp, x1\n"
        "    ldp x19, x20, [sp, #0]\n    ldp x21, x22, [sp, #16]\n    ldp x23, x24, [sp, #32]\n"
        "    ldp x25, x26, [sp, #48]\n    ldp x27, x28, [sp, #64]\n    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n    ldp d10, d11, [sp, #112]\n"
        "    ldp d12, d13, [sp, #128]\n    ldp d14, d15, [sp, #144]\n"
        "    add sp, sp, #160\n"
        "    ret\n"
        ".size ry_coro_switch,.-ry_coro_switch\n");
enum { FRAME_WORDS = 20, RETURN_WORD = 11 };
#else
#error "the simulator's coroutines know x86-64 and aarch64"
#endif

static void entry(void)
{
    struct ry_coro *self = current;

    self->run(self->arg);
    self->done = true;
    ry_coro_yield();
    abort(); /* a coroutine that ended is never resumed */
}

bool ry_coro_start(struct ry_coro *c, void (*run)(void *), void *arg)
{
    uintptr_t top;
    void **frame;

    if (!c->stack) {
        c->stack = malloc(STACK_BYTES);
        c->stack_bytes = STACK_BYTES;
    }
    if (!c->stack)
        return false;
    c->run = run;
    c->arg = arg;
    c->done = false;
    top = ((uintptr_t)c->stack + c->stack_bytes) & ~(uintptr_t)63;
    frame = (void **)(top - 8) - FRAME_WORDS; /* entry finds the stack aligned as after a call */
    for (int i = 0; i < FRAME_WORDS; i++)
        frame[i] = NULL;
    frame[RETURN_WORD] = (void *)(uintptr_t)entry;
    c->sp = frame;
    return true;
}

void ry_coro_resume(struct ry_coro *c)
{
    current = c;
    ry_coro_switch(&outside_sp, c->sp);
    current = NULL;
}

void ry_coro_yield(void)
{
    struct ry_coro *self = current;

    ry_coro_switch(&self->sp, outside_sp);
}
