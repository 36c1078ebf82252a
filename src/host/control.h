/* SPDX-License-Identifier: Apache-2.0 */
/* What `railyard status`, `fault`, `drain` and `undrain` ask of a running PE, and the state of its
 * paths. Requests, one line each:
 *   status        the PE, its rails and its paths
 *   fault SPEC    moments count from now
 *   drain railM   undrain railM
 * The answer to status: lines of words, each line begins with what it tells of:
 *   pe N of PES node M of NODES
 *   rail M NAME nic K up|down|drained RATE TX_BYTES RX_BYTES
 *   path PEER CHANNEL SLOT RAIL PEER_RAIL HEALTH active|standby home|backup EPOCH MOVES REPLAYED
 *        LAST_SWITCH_US SINCE_S */
#ifndef RY_HOST_CONTROL_H
#define RY_HOST_CONTROL_H

#include "host/ctx.h"

/* Listen for requests, and take the plan of RAILYARD_FAULT; before the agent's thread starts.
 * INVALID, UNSUPPORTED: the plan; a job that cannot be attached to is no error. */
int ry_control_start(struct ry_ctx *ctx);
/* The agent's thread: serve what is asked, let planned faults happen; returns when to call again.
 */
uint64_t ry_control_tick(struct ry_ctx *ctx, uint64_t now_ns);
void ry_control_stop(struct ry_ctx *ctx); /* after the agent's thread has ended */

#endif
