/* SPDX-License-Identifier: Apache-2.0 */
/* Frames: reading, writing. */
#include "host/wire.h"

#include <railyard/status.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "host/error.h"

void ry_put16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

void ry_put32(uint8_t *p, uint32_t v)
{
    ry_put16(p, (uint16_t)v);
    ry_put16(p + 2, (uint16_t)(v >> 16));
}

void ry_put64(uint8_t *p, uint64_t v)
{
    ry_put32(p, (uint32_t)v);
    ry_put32(p + 4, (uint32_t)(v >> 32));
}

uint16_t ry_get16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }
uint32_t ry_get32(const uint8_t *p) { return ry_get16(p) | (uint32_t)ry_get16(p + 2) << 16; }
uint64_t ry_get64(const uint8_t *p) { return ry_get32(p) | (uint64_t)ry_get32(p + 4) << 32; }

/* Where the next byte goes and how many are wanted. */
static uint8_t *want(struct ry_wire_in *in, size_t *n)
{
    if (in->have < RY_WIRE_HEADER) {
        *n = RY_WIRE_HEADER - in->have;
        return in->header + in->have;
    }
    *n = RY_WIRE_HEADER + in->frame.len - in->have;
    return in->frame.body + (in->have - RY_WIRE_HEADER);
}

static int open_frame(struct ry_wire_in *in)
{
    uint32_t len = ry_get32(in->header + 8);

    if (ry_get32(in->header) != RY_WIRE_MAGIC || ry_get16(in->header + 6) != 0)
        return ry_fail(RY_ERR_PROTOCOL, "what came is no railyard message");
    if (len > in->limit)
        return ry_fail(RY_ERR_PROTOCOL, "a message of %u bytes came, at most %u are taken", len,
                       in->limit);
    in->frame.type = ry_get16(in->header + 4);
    in->frame.arg = ry_get32(in->header + 12);
    in->frame.len = len;
    in->frame.body = malloc(len ? len : 1);
    if (!in->frame.body)
        return ry_fail(RY_ERR_NO_MEMORY, "no memory for a message of %u bytes", len);
    return RY_OK;
}

static bool whole(const struct ry_wire_in *in)
{
    return in->have >= RY_WIRE_HEADER && in->have == RY_WIRE_HEADER + in->frame.len;
}

static void restart(struct ry_wire_in *in)
{
    free(in->frame.body);
    in->frame = (struct ry_wire_frame){0};
    in->have = 0;
}

/* n more bytes have arrived: 1 when they complete a frame. */
static int took(struct ry_wire_in *in, size_t n)
{
    in->have += (uint32_t)n;
    if (in->have == RY_WIRE_HEADER && !in->frame.body) {
        int rc = open_frame(in);

        if (rc < 0)
            return rc;
    }
    return whole(in) && in->frame.body ? 1 : 0;
}

int ry_wire_read(struct ry_wire_in *in, int fd)
{
    size_t n;

    if (whole(in))
        restart(in);
    while (true) {
        uint8_t *at = want(in, &n);
        ssize_t got = recv(fd, at, n, MSG_DONTWAIT);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return 0;
        if (got <= 0)
            return ry_fail(RY_ERR_UNREACHABLE, "the other end closed the connection");
        int rc = took(in, (size_t)got);

        if (rc != 0)
            return rc;
    }
}

int ry_wire_feed(struct ry_wire_in *in, const uint8_t **data, size_t *len)
{
    size_t n;

    if (whole(in))
        restart(in);
    while (*len > 0) {
        uint8_t *at = want(in, &n);

        n = n < *len ? n : *len;
        memcpy(at, *data, n);
        *data += n;
        *len -= n;
        int rc = took(in, n);

        if (rc != 0)
            return rc;
    }
    return 0;
}

uint8_t *ry_wire_steal(struct ry_wire_in *in)
{
    uint8_t *body = in->frame.body;

    in->frame = (struct ry_wire_frame){0};
    in->have = 0;
    return body;
}

void ry_wire_in_free(struct ry_wire_in *in) { restart(in); }

struct ry_blob *ry_blob_new(size_t len)
{
    struct ry_blob *b = malloc(sizeof(*b) + len);

    if (b) {
        b->users = 1;
        b->len = len;
    }
    return b;
}

void ry_blob_drop(struct ry_blob *b)
{
    if (b && --b->users == 0)
        free(b);
}

void ry_wire_header(uint8_t *header, uint16_t type, uint32_t arg, uint32_t len)
{
    ry_put32(header, RY_WIRE_MAGIC);
    ry_put16(header + 4, type);
    ry_put16(header + 6, 0);
    ry_put32(header + 8, len);
    ry_put32(header + 12, arg);
}

int ry_wire_queue(struct ry_wire_out *out, uint16_t type, uint32_t arg, struct ry_blob *blob)
{
    struct ry_wire_item *item = calloc(1, sizeof(*item));

    if (!item)
        return ry_fail(RY_ERR_NO_MEMORY, "no memory for a message");
    ry_wire_header(item->header, type, arg, blob ? (uint32_t)blob->len : 0);
    item->blob = blob;
    if (blob)
        blob->users++;
    if (!out->first)
        out->last = &out->first;
    *out->last = item;
    out->last = &item->next;
    return RY_OK;
}

int ry_wire_queue_bytes(struct ry_wire_out *out, uint16_t type, uint32_t arg, const void *body,
                        size_t len)
{
    struct ry_blob *b = ry_blob_new(len);

    if (!b)
        return ry_fail(RY_ERR_NO_MEMORY, "no memory for a message");
    if (len)
        memcpy(b->bytes, body, len);
    int rc = ry_wire_queue(out, type, arg, b);

    ry_blob_drop(b);
    return rc;
}

static void pop(struct ry_wire_out *out)
{
    struct ry_wire_item *item = out->first;

    out->first = item->next;
    ry_blob_drop(item->blob);
    free(item);
}

int ry_wire_flush(struct ry_wire_out *out, int fd)
{
    while (out->first) {
        struct ry_wire_item *item = out->first;
        size_t body = item->blob ? item->blob->len : 0;
        size_t skip = item->done > RY_WIRE_HEADER ? item->done - RY_WIRE_HEADER : 0;
        size_t left = item->done < RY_WIRE_HEADER ? RY_WIRE_HEADER - item->done : 0;
        struct iovec parts[2] = {
            {item->header + (RY_WIRE_HEADER - left), left},
            {item->blob ? item->blob->bytes + skip : NULL, body - skip},
        };
        struct msghdr m = {.msg_iov = parts, .msg_iovlen = 2};
        ssize_t n = sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return 0;
        if (n < 0)
            return ry_fail(RY_ERR_UNREACHABLE, "the other end closed the connection");
        item->done += (size_t)n;
        if (item->done == RY_WIRE_HEADER + body)
            pop(out);
    }
    return 1;
}

void ry_wire_out_free(struct ry_wire_out *out)
{
    while (out->first)
        pop(out);
}
