/* SPDX-License-Identifier: Apache-2.0 */
#include "host/fault_spec.h"

#include <errno.h>
#include <railyard/config.h>
#include <railyard/fault.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/error.h"

/* Which keys a kind takes, one bit each. */
enum {
    KEY_FOR = 1,
    KEY_COUNT = 2,
    KEY_PERIOD = 4,
    KEY_P = 8,
    KEY_US = 16,
    KEY_JITTER = 32,
    KEY_SYNDROME = 64,
    KEY_VENDOR = 128,
    KEY_FACTOR = 256,
    KEY_RETURN = 512,
};

static const struct {
    const char *name;
    uint32_t keys;
    bool port; /* of a whole port: no pair as target */
} kinds[RY_SPEC_KINDS] = {
    [RY_SPEC_PORT_DOWN] = {"port-down", KEY_FOR, true},
    [RY_SPEC_FLAP] = {"flap", KEY_COUNT | KEY_PERIOD, true},
    [RY_SPEC_STALL] = {"stall", KEY_FOR, false},
    [RY_SPEC_DROP] = {"drop", KEY_P | KEY_FOR, false},
    [RY_SPEC_ACK_DROP] = {"ack-drop", KEY_P | KEY_FOR, false},
    [RY_SPEC_DELAY] = {"delay", KEY_US | KEY_JITTER | KEY_FOR, false},
    [RY_SPEC_GHOST] = {"ghost", KEY_US | KEY_FOR, false},
    [RY_SPEC_CQE_ERROR] = {"cqe-error", KEY_SYNDROME | KEY_VENDOR, false},
    [RY_SPEC_QP_ERROR] = {"qp-error", 0, false},
    [RY_SPEC_NIC_DOWN] = {"nic-down", KEY_FOR, true},
    [RY_SPEC_SLOW] = {"slow", KEY_FACTOR | KEY_FOR, false},
    [RY_SPEC_GID_CHANGE] = {"gid-change", 0, true},
    [RY_SPEC_KILL] = {"kill", KEY_RETURN, true},
};

static const struct {
    const char *name;
    uint32_t bit;
} keys[] = {
    {"for", KEY_FOR},
    {"count", KEY_COUNT},
    {"period", KEY_PERIOD},
    {"p", KEY_P},
    {"us", KEY_US},
    {"jitter", KEY_JITTER},
    {"syndrome", KEY_SYNDROME},
    {"vendor", KEY_VENDOR},
    {"factor", KEY_FACTOR},
    {"return", KEY_RETURN},
};
enum { N_KEYS = sizeof keys / sizeof keys[0] };

const char *ry_spec_kind_name(enum ry_spec_kind kind)
{
    return kind < RY_SPEC_KINDS ? kinds[kind].name : "unknown";
}

/* A stretch of the text. */
struct word {
    const char *at;
    size_t len;
};

/* Where we are. */
struct reader {
    const char *text, *at;
};

static uint32_t column_of(const struct reader *r, const char *at)
{
    return (uint32_t)(at - r->text) + 1;
}

/* A word as it may stand in a message. */
static const char *shown(struct word w, char *buf, size_t cap)
{
    size_t n = w.len < cap - 1 ? w.len : cap - 1;

    for (size_t i = 0; i < n; i++)
        buf[i] = w.at[i] >= ' ' && w.at[i] <= '~' ? w.at[i] : '?';
    buf[n] = '\0';
    return buf;
}

static int bad(const struct reader *r, struct word w, const char *what)
{
    char buf[48];

    return ry_fail(RY_ERR_INVALID, "fault plan, column %u: '%s': %s", column_of(r, w.at),
                   shown(w, buf, sizeof buf), what);
}

/* Up to one of `ends`, which is not taken. */
static struct word take(struct reader *r, const char *ends)
{
    struct word w = {r->at, strcspn(r->at, ends)};

    r->at += w.len;
    return w;
}

static bool is(struct word w, const char *name)
{
    return strlen(name) == w.len && memcmp(name, w.at, w.len) == 0;
}

/* Decimal digits only, within `most`. */
static bool number(struct word w, uint64_t most, uint64_t *out)
{
    uint64_t v = 0;

    if (w.len == 0)
        return false;
    for (size_t i = 0; i < w.len; i++) {
        uint64_t digit = (uint64_t)(w.at[i] - '0');

        if (w.at[i] < '0' || w.at[i] > '9' || v > (most - digit) / 10)
            return false;
        v = v * 10 + digit;
    }
    *out = v;
    return true;
}

static bool real(struct word w, double least, double most, double *out)
{
    char buf[32], *end;

    if (w.len == 0 || w.len >= sizeof buf || strspn(w.at, "0123456789.e+-") < w.len)
        return false;
    memcpy(buf, w.at, w.len);
    buf[w.len] = '\0';
    double v = strtod(buf, &end);
    if (*end != '\0' || !(v >= least && v <= most))
        return false;
    *out = v;
    return true;
}

static bool duration(struct word w, uint64_t *ns)
{
    char buf[32];

    if (w.len == 0 || w.len >= sizeof buf)
        return false;
    memcpy(buf, w.at, w.len);
    buf[w.len] = '\0';
    return ry_parse_time(buf, ns) == RY_OK;
}

/* 0..255, decimal or with 0x. */
static bool byte(struct word w, uint32_t *out)
{
    uint64_t v = 0;

    if (w.len > 2 && w.len <= 4 && w.at[0] == '0' && w.at[1] == 'x') {
        for (size_t i = 2; i < w.len; i++) {
            const char *digits = "0123456789abcdef";
            char c = (char)(w.at[i] >= 'A' && w.at[i] <= 'F' ? w.at[i] + 32 : w.at[i]);
            const char *d = c != '\0' ? strchr(digits, c) : NULL;

            if (d == NULL)
                return false;
            v = v * 16 + (uint64_t)(d - digits);
        }
    } else if (!number(w, 255, &v)) {
        return false;
    }
    *out = (uint32_t)v;
    return true;
}

static int read_kind(struct reader *r, struct ry_spec_event *e)
{
    struct word w = take(r, "@:;");

    for (uint32_t k = 0; k < RY_SPEC_KINDS; k++) {
        if (!is(w, kinds[k].name))
            continue;
        e->kind = (enum ry_spec_kind)k;
        if (*r->at != '@')
            return bad(r, w, "has no '@': write KIND@WHEN:TARGET, as in port-down@200ms:pe0/rail1");
        r->at++;
        return RY_OK;
    }
    return bad(r, w,
               "unknown kind: use port-down, flap, stall, drop, ack-drop, delay, ghost, cqe-error, "
               "qp-error, nic-down, slow, gid-change or kill");
}

static int read_when(struct reader *r, struct ry_spec_event *e)
{
    struct word w = take(r, ":;"), rest = w;
    bool good;

    if (w.len > 2 && memcmp(w.at, "op", 2) == 0) {
        rest = (struct word){w.at + 2, w.len - 2};
        e->when = RY_SPEC_AT_OP;
        good = number(rest, INT64_MAX, &e->at);
    } else if (w.len > 4 && memcmp(w.at, "iter", 4) == 0) {
        rest = (struct word){w.at + 4, w.len - 4};
        e->when = RY_SPEC_AT_ITERATION;
        good = number(rest, INT64_MAX, &e->at);
    } else {
        e->when = RY_SPEC_AT_TIME;
        good = duration(w, &e->at);
    }
    if (!good)
        return bad(r, w, "not a moment: use a time (200ms), an operation (op5000) or iter10");
    if (*r->at != ':')
        return bad(r, w, "has no target: write KIND@WHEN:TARGET, as in port-down@200ms:pe0/rail1");
    r->at++;
    return RY_OK;
}

/* "pe" or "rail" and a number. */
static bool named(struct word w, const char *prefix, uint32_t *out)
{
    size_t n = strlen(prefix);
    uint64_t v;

    if (w.len <= n || memcmp(w.at, prefix, n) != 0 ||
        !number((struct word){w.at + n, w.len - n}, 1000000, &v))
        return false;
    *out = (uint32_t)v;
    return true;
}

static int read_target(struct reader *r, struct ry_spec_event *e)
{
    static const char form[] = "not a target: use peN/railM, peN, railM or peN-peM/railK";
    struct word whole = {r->at, strcspn(r->at, ":;")};
    struct word w = take(r, ":;/-");

    e->pe = e->peer = e->rail = RY_SPEC_ANY;
    if (named(w, "rail", &e->rail)) {
        e->rail_column = column_of(r, w.at);
    } else if (named(w, "pe", &e->pe)) {
        e->pe_column = column_of(r, w.at);
        if (*r->at == '-') {
            r->at++;
            w = take(r, ":;/-");
            e->peer_column = column_of(r, w.at);
            if (!named(w, "pe", &e->peer) || *r->at != '/')
                return bad(r, whole, form);
        }
        if (*r->at == '/') {
            r->at++;
            w = take(r, ":;/-");
            e->rail_column = column_of(r, w.at);
            if (!named(w, "rail", &e->rail))
                return bad(r, whole, form);
        }
    } else {
        return bad(r, whole, form);
    }
    if (*r->at != ':' && *r->at != ';' && *r->at != '\0')
        return bad(r, whole, form);
    if (e->peer != RY_SPEC_ANY && kinds[e->kind].port)
        return bad(r, whole, "this kind hits a whole port: name peN/railM, no pair");
    if (e->peer != RY_SPEC_ANY && e->peer == e->pe)
        return bad(r, whole, "a PE and itself are no pair: name two PEs");
    if (e->kind == RY_SPEC_KILL && (e->rail != RY_SPEC_ANY || e->pe == RY_SPEC_ANY))
        return bad(r, whole, "kill takes a PE: use peN");
    return RY_OK;
}

/* NULL, or what a good value would be. */
static const char *set_key(struct ry_spec_event *e, uint32_t key, struct word v)
{
    uint64_t n;
    double d;

    switch (key) {
    case KEY_FOR:
        return duration(v, &e->for_ns) && e->for_ns > 0 ? NULL : "a time above 0, as in 300ms";
    case KEY_PERIOD:
        return duration(v, &e->period_ns) && e->period_ns >= 2000 ? NULL : "a time of 2us at least";
    case KEY_RETURN:
        return duration(v, &e->return_ns) && e->return_ns > 0 ? NULL : "a time above 0, as in 1s";
    case KEY_COUNT:
        if (!number(v, 100000, &n) || n == 0)
            return "a number from 1 to 100000";
        e->count = (uint32_t)n;
        return NULL;
    case KEY_P:
        return real(v, 0, 1, &e->p) ? NULL : "a probability from 0 to 1";
    case KEY_US:
        if (!real(v, 0, 1e10, &d))
            return "microseconds, 0 to 1e10";
        e->delay_ns = (uint64_t)(d * 1000);
        return NULL;
    case KEY_JITTER:
        if (!real(v, 0, 1e10, &d))
            return "microseconds, 0 to 1e10";
        e->jitter_ns = (uint64_t)(d * 1000);
        return NULL;
    case KEY_SYNDROME:
        return byte(v, &e->syndrome) ? NULL : "a byte, as in 0x15";
    case KEY_VENDOR:
        return byte(v, &e->vendor) ? NULL : "a byte, as in 0x81";
    default:
        return real(v, 1, 1e6, &e->factor) ? NULL : "a factor from 1 to 1e6";
    }
}

static int read_key(struct reader *r, struct ry_spec_event *e, uint32_t *seen)
{
    struct word k = take(r, "=,;:");
    uint32_t i = 0;
    char text[96];

    while (i < N_KEYS && !is(k, keys[i].name))
        i++;
    if (i == N_KEYS || (kinds[e->kind].keys & keys[i].bit) == 0) {
        size_t len = 0;

        text[0] = '\0';
        for (uint32_t j = 0; j < N_KEYS; j++) {
            if (kinds[e->kind].keys & keys[j].bit)
                len += (size_t)snprintf(text + len, sizeof text - len, " %s=", keys[j].name);
        }
        char buf[48];
        return ry_fail(RY_ERR_INVALID,
                       "fault plan, column %u: '%s': %s has no such key: it takes%s",
                       column_of(r, k.at), shown(k, buf, sizeof buf), kinds[e->kind].name,
                       len > 0 ? text : " none");
    }
    if (*r->at != '=')
        return bad(r, k, "has no value: write KEY=VALUE");
    if (*seen & keys[i].bit)
        return bad(r, k, "stands there twice: give it once");
    *seen |= keys[i].bit;
    r->at++;
    struct word v = take(r, ",;");
    const char *want = set_key(e, keys[i].bit, v);
    if (want != NULL) {
        snprintf(text, sizeof text, "bad value of %s: use %s", keys[i].name, want);
        return bad(r, v, text);
    }
    return RY_OK;
}

static int read_event(struct reader *r, struct ry_spec_event *e)
{
    uint32_t seen = 0;
    int rc;

    *e = (struct ry_spec_event){
        .column = column_of(r, r->at),
        .period_ns = 200000000,
        .count = 1,
        .p = 0.01,
        .delay_ns = 1000000,
        .factor = 10,
        .syndrome = 0x15, /* transport retry counter exceeded */
        .vendor = 0x81,
    };
    rc = read_kind(r, e);
    if (rc == RY_OK)
        rc = read_when(r, e);
    if (rc == RY_OK)
        rc = read_target(r, e);
    if (rc != RY_OK || *r->at != ':')
        return rc;
    do {
        r->at++;
        rc = read_key(r, e, &seen);
    } while (rc == RY_OK && *r->at == ',');
    return rc;
}

int ry_spec_parse(const char *text, struct ry_spec *out)
{
    struct reader r = {text, text};
    int rc = RY_OK;

    if (strnlen(text, RY_SPEC_BYTES_MAX + 1) > RY_SPEC_BYTES_MAX)
        return ry_fail(RY_ERR_INVALID, "fault plan of more than %d bytes: make it shorter",
                       RY_SPEC_BYTES_MAX);
    struct ry_spec *spec = malloc(sizeof *spec);
    if (spec == NULL)
        return ry_fail(RY_ERR_NO_MEMORY, "fault plan: no memory for it");
    spec->n = 0;
    while (rc == RY_OK) {
        if (spec->n == RY_SPEC_EVENTS_MAX) {
            rc = ry_fail(RY_ERR_INVALID, "fault plan, column %u: more than %d events: use fewer",
                         column_of(&r, r.at), RY_SPEC_EVENTS_MAX);
            break;
        }
        rc = read_event(&r, &spec->event[spec->n]);
        spec->n += rc == RY_OK;
        if (*r.at != ';')
            break;
        r.at++;
        if (*r.at == '\0') /* a last semicolon does no harm */
            break;
    }
    if (rc == RY_OK)
        *out = *spec;
    free(spec);
    return rc;
}

int ry_spec_fits(const struct ry_spec *spec, uint32_t n_pes, uint32_t rails)
{
    for (uint32_t i = 0; i < spec->n; i++) {
        const struct ry_spec_event *e = &spec->event[i];

        if (e->pe != RY_SPEC_ANY && e->pe >= n_pes)
            return ry_fail(RY_ERR_INVALID,
                           "fault plan, column %u: pe%u does not exist: the job has pe0 to pe%u",
                           e->pe_column, e->pe, n_pes - 1);
        if (e->peer != RY_SPEC_ANY && e->peer >= n_pes)
            return ry_fail(RY_ERR_INVALID,
                           "fault plan, column %u: pe%u does not exist: the job has pe0 to pe%u",
                           e->peer_column, e->peer, n_pes - 1);
        if (e->rail != RY_SPEC_ANY && e->rail >= rails)
            return ry_fail(RY_ERR_INVALID,
                           "fault plan, column %u: rail%u does not exist: each PE has rail0 to "
                           "rail%u at most",
                           e->rail_column, e->rail, rails - 1);
    }
    return RY_OK;
}

int ry_fault_check(const char *spec, uint32_t n_pes, uint32_t rails)
{
    if (spec == NULL || n_pes == 0 || rails == 0)
        return ry_fail(RY_ERR_INVALID, "fault plan: no text, or a job without PEs or rails");
    struct ry_spec *parsed = malloc(sizeof *parsed);
    if (parsed == NULL)
        return ry_fail(RY_ERR_NO_MEMORY, "fault plan: no memory for it");
    int rc = ry_spec_parse(spec, parsed);
    if (rc == RY_OK)
        rc = ry_spec_fits(parsed, n_pes, rails);
    free(parsed);
    return rc;
}

int ry_fault_returns(const char *spec, uint32_t n_pes, uint64_t *return_ns)
{
    struct ry_spec *parsed = malloc(sizeof *parsed);
    if (parsed == NULL)
        return ry_fail(RY_ERR_NO_MEMORY, "fault plan: no memory for it");
    int rc = ry_spec_parse(spec, parsed);
    memset(return_ns, 0, n_pes * sizeof *return_ns);
    for (uint32_t i = 0; rc == RY_OK && i < parsed->n; i++) {
        const struct ry_spec_event *e = &parsed->event[i];
        if (e->kind == RY_SPEC_KILL && e->pe < n_pes)
            return_ns[e->pe] = e->return_ns;
    }
    free(parsed);
    return rc;
}
