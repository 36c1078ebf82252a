/* SPDX-License-Identifier: Apache-2.0 */
/* What meet.c (connections, greeting) and meet_round.c (collectives, news) share. */
#ifndef RY_HOST_MEET_INSIDE_H
#define RY_HOST_MEET_INSIDE_H

#include "host/meet.h"
#include "host/wire.h"

/* Lines for the log: anyone may cause some, nobody many. */
enum { RY_MEET_GREETING_MS = 5000, RY_MEET_TOTAL_MAX = 1 << 30, RY_MEET_LINES = 16 };

enum conn_state { CONN_CHALLENGED, CONN_ACCEPTED, CONN_JOINED, CONN_REPORT, CONN_CLOSING };

struct conn {
    struct conn *next;
    int fd;
    enum conn_state state;
    uint32_t pe;
    uint64_t until_ns; /* greeting, or last words, must be over by then */
    bool dead;         /* to be freed at the end of the step */
    bool wants_out;
    uint8_t nonce[RY_NONCE_BYTES];
    uint8_t ip[16];
    struct ry_wire_in in;
    struct ry_wire_out out;
};

enum slot_state { SLOT_ABSENT, SLOT_JOINING, SLOT_READY, SLOT_ENDED, SLOT_DEAD };

struct slot {
    enum slot_state state;
    bool joined; /* this incarnation has connected at some time */
    struct conn *conn;
    struct ry_wire_entry entry;
    uint32_t incarnation;
    bool settled;            /* this incarnation has been through a collective */
    char text[RY_WIRE_TEXT]; /* how it ended */
    bool has_part;
    uint32_t kind, seq, len;
    uint8_t *part; /* a PART body: kind, then data */
};

struct ry_meet {
    struct ry_meet_cfg cfg;
    int epfd;
    int listeners[4];
    uint32_t n_listeners;
    struct conn *conns;
    uint32_t n_conns;
    struct slot *slots;
    uint32_t n_parts;
    uint32_t n_lines;
    bool welcomed, started;
    int aborted; /* status, 0: no */
    char abort_text[RY_WIRE_TEXT];
};

/* Queue a frame and write what goes; a failure marks the connection. */
void ry_meet_send(struct ry_meet *m, struct conn *c, uint16_t type, uint32_t arg, const void *body,
                  size_t len);
void ry_meet_send_blob(struct ry_meet *m, struct conn *c, uint16_t type, uint32_t arg,
                       struct ry_blob *blob);
void ry_meet_line(struct ry_meet *m, const char *form, ...) __attribute__((format(printf, 2, 3)));

/* meet_round.c */
void ry_meet_ready(struct ry_meet *m, struct conn *c);
int ry_meet_part(struct ry_meet *m, struct conn *c);
void ry_meet_ended(struct ry_meet *m, uint32_t pe);
void ry_meet_drop_part(struct ry_meet *m, struct slot *s);

#endif
