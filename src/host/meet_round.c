/* SPDX-License-Identifier: Apache-2.0 */
/* The meeting point: collectives, and news of PEs that end, die or come back. */
#include <railyard/status.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/boot.h"
#include "host/boot_node.h"
#include "host/error.h"
#include "host/meet_inside.h"

static const char *const kind_names[] = {"allgather", "allgatherv", "barrier"};

bool ry_meet_started(const struct ry_meet *m) { return m->started; }

bool ry_meet_joined(const struct ry_meet *m, uint32_t pe) { return m->slots[pe].joined; }

bool ry_meet_left(const struct ry_meet *m, uint32_t pe) { return m->slots[pe].state == SLOT_ENDED; }

void ry_meet_start_by(struct ry_meet *m, uint64_t deadline_ns)
{
    m->cfg.start_deadline_ns = deadline_ns;
}

bool ry_meet_any_joined(const struct ry_meet *m)
{
    uint32_t i = 0;

    while (i < m->cfg.n_pes && !m->slots[i].joined)
        i++;
    return i < m->cfg.n_pes;
}

bool ry_meet_any_here(const struct ry_meet *m)
{
    uint32_t i = 0;

    while (i < m->cfg.n_pes && !m->slots[i].conn)
        i++;
    return i < m->cfg.n_pes;
}

/* To every PE that has joined. */
static void broadcast(struct ry_meet *m, uint16_t type, uint32_t arg, const void *body, size_t len)
{
    struct ry_blob *b = ry_blob_new(len);

    if (!b)
        return;
    if (len)
        memcpy(b->bytes, body, len);
    for (uint32_t i = 0; i < m->cfg.n_pes; i++) {
        if (m->slots[i].conn)
            ry_meet_send_blob(m, m->slots[i].conn, type, arg, b);
    }
    ry_blob_drop(b);
}

void ry_meet_abort(struct ry_meet *m, int status, const char *text)
{
    if (m->aborted)
        return;
    m->aborted = status;
    snprintf(m->abort_text, sizeof(m->abort_text), "%s", text);
    broadcast(m, RY_WIRE_ABORT, (uint32_t)status, m->abort_text, strlen(m->abort_text));
}

void ry_meet_bye(struct ry_meet *m) { broadcast(m, RY_WIRE_BYE, 0, NULL, 0); }

void ry_meet_drop_part(struct ry_meet *m, struct slot *s)
{
    if (s->has_part)
        m->n_parts--;
    free(s->part);
    s->part = NULL;
    s->has_part = false;
}

/* A replacement before its first collective: it waits there until nobody is missing. */
static bool arriving(const struct slot *s) { return s->incarnation > 0 && !s->settled; }

/* The round cannot be completed: everyone who waits in it is told, or those who do not arrive. */
static void fail_round(struct ry_meet *m, int status, const char *text, bool all)
{
    uint8_t body[4 + RY_WIRE_TEXT];
    size_t len = strnlen(text, RY_WIRE_TEXT);

    ry_put32(body, (uint32_t)status);
    memcpy(body + 4, text, len);
    for (uint32_t i = 0; i < m->cfg.n_pes; i++) {
        struct slot *s = &m->slots[i];

        if (!s->has_part || (!all && arriving(s)))
            continue;
        if (s->conn)
            ry_meet_send(m, s->conn, RY_WIRE_FAILED, s->seq, body, 4 + len);
        ry_meet_drop_part(m, s);
    }
}

static const struct slot *first_in(const struct ry_meet *m, enum slot_state state)
{
    uint32_t i = 0;

    while (i < m->cfg.n_pes && m->slots[i].state != state)
        i++;
    return i < m->cfg.n_pes ? &m->slots[i] : NULL;
}

/* Does somebody keep the round from ever being complete? The dead are named before those who left;
 * but in the place of a dead one somebody may come, for whom who arrives waits too. */
static void fail_if_gone(struct ry_meet *m)
{
    const struct slot *left = first_in(m, SLOT_ENDED), *s = first_in(m, SLOT_DEAD);
    char text[RY_WIRE_TEXT];

    s = s ? s : left;
    if (!s || m->n_parts == 0)
        return;
    snprintf(text, sizeof(text), "pe %u %.200s%s", (unsigned)(s - m->slots), s->text,
             m->started ? "" : " while starting");
    fail_round(m, RY_ERR_LAUNCH, text, left != NULL);
}

/* All parts are here: do they belong together, and what do they add up to? */
static int judge_round(struct ry_meet *m, uint64_t *total, char *text, size_t cap)
{
    const struct slot *first = &m->slots[0];

    *total = (uint64_t)m->cfg.n_pes * 8;
    for (uint32_t i = 0; i < m->cfg.n_pes; i++) {
        const struct slot *s = &m->slots[i];

        *total += s->len;
        if (s->kind == first->kind && (s->kind != RY_PART_ALLGATHER || s->len == first->len))
            continue;
        snprintf(text, cap,
                 "pe 0 called %s with %u bytes but pe %u called %s with %u: all pes must "
                 "make the same calls",
                 kind_names[first->kind], first->len, i, kind_names[s->kind], s->len);
        return RY_ERR_PROTOCOL;
    }
    if (*total > RY_MEET_TOTAL_MAX) {
        snprintf(text, cap, "%s of %llu bytes in all, at most %d", kind_names[first->kind],
                 (unsigned long long)*total, RY_MEET_TOTAL_MAX);
        return RY_ERR_PROTOCOL;
    }
    return RY_OK;
}

static struct ry_blob *join_parts(struct ry_meet *m, uint64_t total)
{
    struct ry_blob *b = ry_blob_new(total);
    size_t at = (size_t)m->cfg.n_pes * 8;

    for (uint32_t i = 0; b && i < m->cfg.n_pes; i++) {
        const struct slot *s = &m->slots[i];

        ry_put64(b->bytes + (size_t)i * 8, s->len);
        memcpy(b->bytes + at, s->part + 4, s->len);
        at += s->len;
    }
    return b;
}

static void finish_round(struct ry_meet *m)
{
    char text[RY_WIRE_TEXT];
    uint64_t total = 0;
    int rc = judge_round(m, &total, text, sizeof(text));
    struct ry_blob *b = rc == RY_OK ? join_parts(m, total) : NULL;

    if (rc == RY_OK && !b) {
        rc = RY_ERR_NO_MEMORY;
        snprintf(text, sizeof(text), "the meeting point has no memory for a collective");
    }
    if (rc < 0) {
        fail_round(m, rc, text, true);
        return;
    }
    m->started = m->started || m->slots[0].kind == RY_PART_BARRIER;
    for (uint32_t i = 0; i < m->cfg.n_pes; i++) {
        struct slot *s = &m->slots[i];

        ry_meet_drop_part(m, s);
        s->settled = true;
        if (s->conn)
            ry_meet_send_blob(m, s->conn, RY_WIRE_RESULT, s->seq, b);
    }
    ry_blob_drop(b);
}

int ry_meet_part(struct ry_meet *m, struct conn *c)
{
    struct slot *s = &m->slots[c->pe];
    uint32_t len = c->in.frame.len, kind = len >= 4 ? ry_get32(c->in.frame.body) : RY_PART_KINDS;

    if (kind >= RY_PART_KINDS || !m->welcomed)
        return ry_fail(RY_ERR_PROTOCOL, "a collective that makes no sense");
    ry_meet_drop_part(m, s); /* one that timed out at its sender is replaced */
    s->seq = c->in.frame.arg;
    s->kind = kind;
    s->len = len - 4;
    s->part = ry_wire_steal(&c->in);
    s->has_part = true;
    m->n_parts++;
    if (m->n_parts == m->cfg.n_pes)
        finish_round(m);
    else
        fail_if_gone(m);
    return RY_OK;
}

/* Nodes: as the launcher says, else one for each host, in order of its first PE. */
static void assign_nodes(struct ry_meet *m)
{
    uint32_t n_nodes = 0;

    for (uint32_t i = 0; i < m->cfg.n_pes; i++) {
        struct ry_wire_entry *e = &m->slots[i].entry;
        uint32_t k = 0;

        while (k < i && memcmp(m->slots[k].entry.host, e->host, sizeof(e->host)) != 0)
            k++;
        e->node = k < i ? m->slots[k].entry.node : n_nodes++;
    }
    for (uint32_t i = 0; i < m->cfg.n_pes; i++) {
        struct ry_wire_entry *e = &m->slots[i].entry;

        e->n_nodes = m->cfg.n_nodes ? m->cfg.n_nodes : n_nodes;
        if (m->cfg.n_nodes)
            e->node = ry_node_index(i, m->cfg.n_pes, m->cfg.n_nodes);
    }
}

static struct ry_blob *table(struct ry_meet *m)
{
    struct ry_blob *b = ry_blob_new((size_t)m->cfg.n_pes * RY_WIRE_ENTRY);

    for (uint32_t i = 0; b && i < m->cfg.n_pes; i++) {
        m->slots[i].entry.here = m->slots[i].state == SLOT_READY;
        ry_wire_put_entry(b->bytes + (size_t)i * RY_WIRE_ENTRY, &m->slots[i].entry);
    }
    return b;
}

static void welcome(struct ry_meet *m, struct conn *only)
{
    struct ry_blob *b = table(m);

    if (!b) {
        ry_meet_abort(m, RY_ERR_NO_MEMORY, "the meeting point has no memory");
        return;
    }
    for (uint32_t i = 0; i < m->cfg.n_pes; i++) {
        struct conn *c = m->slots[i].conn;

        if (c && (!only || c == only))
            ry_meet_send_blob(m, c, RY_WIRE_WELCOME, m->cfg.n_pes, b);
    }
    ry_blob_drop(b);
}

static void tell(struct ry_meet *m, enum ry_boot_event_type type, uint32_t pe)
{
    uint8_t body[4 + RY_WIRE_ENTRY];

    ry_put32(body, pe);
    ry_wire_put_entry(body + 4, &m->slots[pe].entry);
    for (uint32_t i = 0; i < m->cfg.n_pes; i++) {
        struct conn *c = m->slots[i].conn;

        if (c && i != pe && c->state == CONN_JOINED)
            ry_meet_send(m, c, RY_WIRE_EVENT, type, body, sizeof(body));
    }
}

void ry_meet_ready(struct ry_meet *m, struct conn *c)
{
    struct slot *s = &m->slots[c->pe];
    uint32_t i = 0;

    s->state = SLOT_READY;
    c->state = CONN_JOINED;
    if (m->welcomed) { /* a replacement, on the host and node of its predecessor or not */
        if (m->cfg.n_nodes)
            s->entry.node = ry_node_index(c->pe, m->cfg.n_pes, m->cfg.n_nodes);
        s->entry.here = true;
        welcome(m, c);
        tell(m, RY_BOOT_PE_JOINED, c->pe);
        return;
    }
    while (i < m->cfg.n_pes && m->slots[i].state == SLOT_READY)
        i++;
    if (i < m->cfg.n_pes)
        return;
    m->welcomed = true;
    assign_nodes(m);
    welcome(m, NULL);
}

void ry_meet_ended(struct ry_meet *m, uint32_t pe)
{
    struct slot *s = &m->slots[pe];
    char text[RY_WIRE_TEXT];

    s->state = SLOT_ENDED;
    snprintf(s->text, sizeof(s->text), "%s", m->started ? "has left the job" : "ended");
    ry_meet_drop_part(m, s);
    if (!m->started) {
        snprintf(text, sizeof(text), "pe %u ended while starting: see its own message", pe);
        ry_meet_abort(m, RY_ERR_LAUNCH, text);
    }
    fail_if_gone(m);
}

void ry_meet_dead(struct ry_meet *m, uint32_t pe, const char *how)
{
    struct slot *s = &m->slots[pe];
    char text[RY_WIRE_TEXT];

    if (s->state == SLOT_DEAD || (s->state == SLOT_ENDED && m->started))
        return;
    s->state = SLOT_DEAD;
    s->entry.here = false;
    snprintf(s->text, sizeof(s->text), "%s", how);
    ry_meet_drop_part(m, s);
    if (!m->started) {
        snprintf(text, sizeof(text), "pe %u %.200s while starting", pe, how);
        ry_meet_abort(m, RY_ERR_LAUNCH, text);
    } else {
        tell(m, RY_BOOT_PE_LOST, pe);
    }
    fail_if_gone(m);
}

uint32_t ry_meet_expect(struct ry_meet *m, uint32_t pe)
{
    struct slot *s = &m->slots[pe];

    s->state = SLOT_ABSENT;
    s->joined = s->settled = false;
    s->text[0] = '\0';
    s->entry.incarnation = ++s->incarnation;
    return s->incarnation;
}
