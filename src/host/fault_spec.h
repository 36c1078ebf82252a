/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a fault plan as a table of events. Pure: no context, no clock.
 *
 *   SPEC   = EVENT[;EVENT...]
 *   EVENT  = KIND@WHEN:TARGET[:KEY=VALUE,...]
 *   WHEN   = 200ms (time) | op5000 (posted by the target PE) | iter10
 *   TARGET = peN/railM | peN | railM (of all PEs) | peN-peM/railK (what peN sends to peM there) */
#ifndef RY_HOST_FAULT_SPEC_H
#define RY_HOST_FAULT_SPEC_H

#include <stdbool.h>
#include <stdint.h>

enum { RY_SPEC_EVENTS_MAX = 256, RY_SPEC_BYTES_MAX = 64 << 10 };
#define RY_SPEC_ANY UINT32_MAX

enum ry_spec_kind {
    RY_SPEC_PORT_DOWN,
    RY_SPEC_FLAP,
    RY_SPEC_STALL,
    RY_SPEC_DROP,
    RY_SPEC_ACK_DROP,
    RY_SPEC_DELAY,
    RY_SPEC_GHOST,
    RY_SPEC_CQE_ERROR,
    RY_SPEC_QP_ERROR,
    RY_SPEC_NIC_DOWN,
    RY_SPEC_SLOW,
    RY_SPEC_GID_CHANGE,
    RY_SPEC_KILL,
    RY_SPEC_KINDS
};

enum ry_spec_when { RY_SPEC_AT_TIME, RY_SPEC_AT_OP, RY_SPEC_AT_ITERATION };

struct ry_spec_event {
    enum ry_spec_kind kind;
    enum ry_spec_when when;
    uint64_t at;             /* ns, operations or iteration */
    uint32_t pe, peer, rail; /* RY_SPEC_ANY: not named */
    uint32_t column;         /* of the event's first character in the text, from 1 */
    uint32_t pe_column, peer_column, rail_column;
    uint64_t for_ns;              /* 0: until the end */
    uint64_t period_ns;           /* flap: down for the first half of each period */
    uint32_t count;               /* flap: periods */
    double p;                     /* drop, ack-drop */
    uint64_t delay_ns, jitter_ns; /* delay, ghost */
    double factor;                /* slow */
    uint32_t syndrome, vendor;    /* cqe-error */
    uint64_t return_ns;           /* kill: a replacement comes after this; 0: none */
};

struct ry_spec {
    uint32_t n;
    struct ry_spec_event event[RY_SPEC_EVENTS_MAX];
};

/* INVALID, and ry_last_error() names the column. *out is set only on success. */
int ry_spec_parse(const char *text, struct ry_spec *out);

/* Every PE and rail that is named exists in a job of this shape; else INVALID with the column. */
int ry_spec_fits(const struct ry_spec *spec, uint32_t n_pes, uint32_t rails);

const char *ry_spec_kind_name(enum ry_spec_kind kind);

#endif
