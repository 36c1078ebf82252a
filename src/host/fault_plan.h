/* SPDX-License-Identifier: Apache-2.0 */
/* A fault plan at work: when an event is due the NIC is told, and what channels then do is timed.
 * The agent's thread injects and measures; others only leave word of iterations and plans. */
#ifndef RY_HOST_FAULT_PLAN_H
#define RY_HOST_FAULT_PLAN_H

#include "host/ctx.h"

/* Agent: inject what is due, look at what was injected; returns when to call again. */
uint64_t ry_fault_tick(struct ry_ctx *ctx, uint64_t now_ns);
/* Agent, with the context's lock held: a channel left `rail`, or came back. */
void ry_fault_saw(struct ry_ctx *ctx, const ry_event *ev);
/* Plan a text whose moments count from now on. */
int ry_fault_plan_now(struct ry_ctx *ctx, const char *spec, uint64_t seed);
void ry_fault_plan_free(struct ry_ctx *ctx);

#endif
