/* SPDX-License-Identifier: Apache-2.0 */
/* A context: one PE's membership in a job, its rails, its connections. An object, not a global:
 * several PEs may be threads of one process, each with its own context.
 *
 * Thread safety: calls on one context come from one thread at a time unless a call says otherwise;
 * the context's own agent thread works beside them. Calls on different contexts are independent. */
#ifndef RAILYARD_CONTEXT_H
#define RAILYARD_CONTEXT_H

#include <railyard/status.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ry_ctx ry_ctx;
typedef struct ry_hub ry_hub;

/* How to start. Zero it, then set what differs from the defaults. */
typedef struct ry_ctx_attr {
    /* PEs as threads of one process: the hub they share and this thread's number. NULL: one process
     * per PE, found through the launcher's, PMIx's or torchrun's environment. */
    ry_hub *hub;
    uint32_t hub_pe;
    /* Settings that go before the environment and the configuration file, as "NAME=VALUE" without
     * the RAILYARD_ prefix ("RAILS=4"); n_settings of them. Copied. */
    const char *const *settings;
    uint32_t n_settings;
} ry_ctx_attr;

/* Join the job: collective over all PEs. On failure ry_last_error() says in one line what and why.
 * Errors: CONFIG (a bad setting, or PEs that contradict each other), AUTH, LAUNCH (another PE
 * ended), DEVICE, NO_MEMORY, TIMEOUT. The caller owns *out. */
RY_API int ry_ctx_create(const ry_ctx_attr *attr, ry_ctx **out);

/* Leave the job: waits, bounded, until peers need nothing more of this PE's memory; frees
 * everything. Accepts NULL. */
RY_API void ry_ctx_destroy(ry_ctx *ctx);

RY_API int ry_hub_create(uint32_t n_pes, uint32_t n_nodes, ry_hub **out);
RY_API void ry_hub_destroy(ry_hub *hub);

RY_API uint32_t ry_pe(const ry_ctx *ctx);
RY_API uint32_t ry_n_pes(const ry_ctx *ctx);
RY_API uint32_t ry_node(const ry_ctx *ctx);
RY_API uint32_t ry_n_nodes(const ry_ctx *ctx);
RY_API uint32_t ry_node_of(const ry_ctx *ctx, uint32_t pe);
RY_API uint64_t ry_job(const ry_ctx *ctx);
RY_API uint32_t ry_incarnation(const ry_ctx *ctx);

/* All PEs meet; also a point behind which every earlier put of every PE is visible (it includes
 * quiet). Errors: TIMEOUT, UNREACHABLE, PEER_LOST. */
RY_API int ry_barrier(ry_ctx *ctx);

/* Each PE that was lost has a replacement (started by the launcher under its rank) that waits to be
 * let in: the first one's number; -1: nobody is missing, or one still has nobody in its place. Any
 * thread. */
RY_API int ry_joining(const ry_ctx *ctx);
/* Let all of them in: collective over the survivors, at a point that they have agreed on; the
 * replacements are inside ry_ctx_create meanwhile. Afterwards each is a peer like any other, and
 * its memory is new and zero. Objects that all PEs had made by ry_malloc before stand at the same
 * offsets in its heap once it has made the same calls. Errors: AGAIN (nobody waits), LAUNCH (one
 * ended meanwhile, or one more was lost: the job goes on without them, and it may be tried again),
 * TIMEOUT, CONFIG. */
RY_API int ry_rejoin(ry_ctx *ctx);

/* Every PE gives len bytes, out has n_pes * len in PE order. Over the bootstrap: for set-up and
 * results, not for speed. Collective. */
RY_API int ry_allgather(ry_ctx *ctx, const void *in, size_t len, void *out);

/* What one PE of a job of n_pes PEs takes, by the settings in effect, where all PEs are on other
 * nodes. Both ends of its channels are counted. */
typedef struct ry_job_size {
    uint32_t peers, rails, channels; /* channels: to each peer */
    uint32_t paths;                  /* of each channel, connected at the start: home and backup */
    uint64_t queue_pairs;            /* sending and receiving */
    uint64_t connections;            /* paths to and from all peers */
    uint64_t ring_bytes;             /* send rings, those for rebuilt paths included */
    uint64_t state_bytes;            /* channels and receiving ends */
    uint64_t heap_bytes;
} ry_job_size;

/* `settings` as in ry_ctx_attr. Errors: CONFIG; INVALID: n_pes is 0. */
RY_API int ry_ctx_size(const char *const *settings, uint32_t n_settings, uint32_t n_pes,
                       ry_job_size *out);

/* One rail of this PE. Strings are the context's. */
typedef struct ry_rail {
    const char *name; /* device:port */
    uint32_t nic;
    uint64_t rate_bps; /* bytes a second, 0 = not limited */
    int up;
    uint64_t tx_bytes, rx_bytes;
} ry_rail;

RY_API uint32_t ry_rail_count(const ry_ctx *ctx);
RY_API int ry_rail_get(const ry_ctx *ctx, uint32_t rail, ry_rail *out);

/* Payload bytes that each rail of this PE has sent to `peer` since the start, and the part of them
 * that each is meant to carry while all are up (they add up to 1). Arrays of ry_rail_count()
 * numbers; share may be NULL. What goes to a peer without a NIC is not in them. Not while a
 * replacement is let in. Errors: INVALID (no such PE, or this one). */
RY_API int ry_sent_to(const ry_ctx *ctx, uint32_t peer, uint64_t *bytes, double *share);

/* What the application is told. Strings live for the call. */
enum ry_event_type {
    RY_EVENT_SWITCH = 1, /* a channel to `peer` left rail `rail` for `to_rail` */
    RY_EVENT_RETURN = 2, /* and came back to its home rail */
    RY_EVENT_RAIL_DOWN = 3,
    RY_EVENT_RAIL_UP = 4,
    RY_EVENT_PEER_LOST = 5,
    RY_EVENT_PEER_JOINED = 6,
    RY_EVENT_UNREACHABLE = 7, /* no path to `peer` came back within RAILYARD_TIMEOUT */
};

typedef struct ry_event {
    enum ry_event_type type;
    uint32_t peer;
    uint32_t channel;
    uint32_t rail, to_rail;
    uint64_t at_ns;     /* CLOCK_MONOTONIC */
    uint64_t detect_ns; /* when the failure was seen */
    uint64_t replayed;  /* messages */
    const char *text;   /* one lowercase line */
} ry_event;

typedef void (*ry_event_cb)(void *arg, const ry_event *ev);

/* Called from the context's agent thread (or the thread that moved a channel); it must not call
 * back into the context. One callback a context; NULL removes it. */
RY_API void ry_on_event(ry_ctx *ctx, ry_event_cb cb, void *arg);

/* Let the context work (drive software NICs, see events) without waiting for anything. */
RY_API void ry_progress(ry_ctx *ctx);

#ifdef __cplusplus
}
#endif
#endif
