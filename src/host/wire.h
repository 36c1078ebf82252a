/* SPDX-License-Identifier: Apache-2.0 */
/* Frames on a stream between a PE and the meeting point of its job, and what is in them.
 *
 * Everything is little endian. A frame is a header of 16 bytes and `len` bytes of body; who reads
 * says how long a body may be, and a longer one is refused from its header alone. Handshake:
 *
 *   meeting point -> PE   CHALLENGE  nonce, job
 *   PE -> meeting point   HELLO      who I am, my nonce, keyed hash over both
 *   meeting point -> PE   ACCEPT     keyed hash the other way round; or REFUSE status, text
 *   PE -> meeting point   READY      my sockets are bound
 *   meeting point -> PE   WELCOME    the table of all PEs, once all are ready
 *
 * then PART/RESULT for collectives, EVENT, ABORT, BYE. */
#ifndef RY_HOST_WIRE_H
#define RY_HOST_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "host/secret.h"

enum {
    RY_WIRE_MAGIC = 0x31425952, /* "RYB1" */
    RY_WIRE_HEADER = 16,
    RY_WIRE_SHORT =
        1024, /* greatest body before the other end has proved that it knows the secret */
    RY_WIRE_TEXT = 400,
    RY_WIRE_PES_MAX = 4096,
};

enum ry_wire_type {
    RY_WIRE_CHALLENGE = 1,
    RY_WIRE_HELLO,
    RY_WIRE_ACCEPT,
    RY_WIRE_REFUSE, /* arg: status, body: text */
    RY_WIRE_READY,
    RY_WIRE_WELCOME,
    RY_WIRE_PART,   /* arg: sequence; body: kind (4 bytes), data */
    RY_WIRE_RESULT, /* arg: sequence; body: n lengths (8 bytes each), data */
    RY_WIRE_FAILED, /* arg: sequence; body: status (4 bytes), text */
    RY_WIRE_EVENT,  /* arg: type; body: pe (4 bytes), entry */
    RY_WIRE_ABORT,  /* arg: status, body: text */
    RY_WIRE_REPORT, /* body: a result for the launcher */
    RY_WIRE_ACK,
    RY_WIRE_BYE, /* PE: I leave. Meeting point: I close, and that is no failure */
};

enum ry_wire_kind { RY_PART_ALLGATHER, RY_PART_ALLGATHERV, RY_PART_BARRIER, RY_PART_KINDS };

struct ry_wire_frame {
    uint16_t type;
    uint32_t arg;
    uint32_t len;
    uint8_t *body; /* the reader's; ry_wire_steal takes it away */
};

void ry_put16(uint8_t *p, uint16_t v);
void ry_put32(uint8_t *p, uint32_t v);
void ry_put64(uint8_t *p, uint64_t v);
uint16_t ry_get16(const uint8_t *p);
uint32_t ry_get32(const uint8_t *p);
uint64_t ry_get64(const uint8_t *p);

/* --- reading --- */

struct ry_wire_in {
    uint8_t header[RY_WIRE_HEADER];
    uint32_t have; /* bytes of header and body so far */
    uint32_t limit;
    struct ry_wire_frame frame;
};

/* Reads what is there without blocking, a frame at a time. 1: in->frame is whole and stays until
 * the next call. 0: no more now. RY_ERR_UNREACHABLE: the stream ended. RY_ERR_PROTOCOL: bad magic
 * or a body over in->limit. RY_ERR_NO_MEMORY. */
int ry_wire_read(struct ry_wire_in *in, int fd);

/* The same from memory: takes what it needs from *data (for tests). */
int ry_wire_feed(struct ry_wire_in *in, const uint8_t **data, size_t *len);
uint8_t *ry_wire_steal(struct ry_wire_in *in);
void ry_wire_in_free(struct ry_wire_in *in);

/* --- writing --- */

/* Bytes that several queues may hold. Touched by one thread. */
struct ry_blob {
    uint32_t users;
    size_t len;
    uint8_t bytes[];
};

struct ry_blob *ry_blob_new(size_t len);
void ry_blob_drop(struct ry_blob *b);

struct ry_wire_item {
    struct ry_wire_item *next;
    uint8_t header[RY_WIRE_HEADER];
    size_t done;
    struct ry_blob *blob; /* or NULL */
};

struct ry_wire_out {
    struct ry_wire_item *first, **last;
};

void ry_wire_header(uint8_t *header, uint16_t type, uint32_t arg, uint32_t len);

/* Queue a frame whose body is the blob (may be NULL; a user is added). 0 or RY_ERR_NO_MEMORY. */
int ry_wire_queue(struct ry_wire_out *out, uint16_t type, uint32_t arg, struct ry_blob *blob);
int ry_wire_queue_bytes(struct ry_wire_out *out, uint16_t type, uint32_t arg, const void *body,
                        size_t len);

/* Writes without blocking. 1: all gone, 0: more to write, RY_ERR_UNREACHABLE: nobody reads. */
int ry_wire_flush(struct ry_wire_out *out, int fd);
void ry_wire_out_free(struct ry_wire_out *out);

/* --- bodies --- */

enum { RY_HOST_ID_BYTES = 16, RY_WIRE_ENTRY = 64, RY_WIRE_HELLO_BYTES = 128 };

/* One PE as the others must know it. */
struct ry_wire_entry {
    uint8_t host[RY_HOST_ID_BYTES];
    uint8_t ip[16]; /* IPv6, or IPv4 mapped into it; all zero: on the meeting point's host */
    uint16_t udp_port;
    uint32_t incarnation;
    uint32_t node, n_nodes;
    bool here;
};

enum ry_wire_role { RY_ROLE_PE = 1, RY_ROLE_REPORT = 2 };

struct ry_wire_hello {
    uint32_t role;
    uint32_t pe, n_pes, incarnation;
    uint16_t udp_port;
    uint8_t host[RY_HOST_ID_BYTES];
    uint8_t nonce[RY_NONCE_BYTES];
    char version[16];
};

struct ry_wire_challenge {
    uint8_t nonce[RY_NONCE_BYTES];
    uint64_t job;
};

void ry_wire_put_entry(uint8_t *p, const struct ry_wire_entry *e);
void ry_wire_get_entry(const uint8_t *p, struct ry_wire_entry *e);

/* A HELLO with its proof. get: 0, RY_ERR_PROTOCOL, or RY_ERR_AUTH where the proof is wrong. */
void ry_wire_put_hello(uint8_t *p, const struct ry_wire_hello *h, const struct ry_secret *s,
                       const uint8_t *nonce);
int ry_wire_get_hello(const uint8_t *p, size_t len, struct ry_wire_hello *h,
                      const struct ry_secret *s, const uint8_t *nonce);

/* The meeting point's proof in ACCEPT. */
void ry_wire_accept_mac(const struct ry_secret *s, const uint8_t *pe_nonce, const uint8_t *nonce,
                        uint8_t *mac);

/* Body of RESULT: do n lengths and their data fill it exactly? offs (n + 1 entries) counts from the
 * body's first byte. */
int ry_wire_get_result(const uint8_t *body, size_t len, uint32_t n, size_t *offs);

/* Text from the other end, made safe to print. */
void ry_wire_text(const uint8_t *body, size_t len, char *out, size_t cap);

#endif
