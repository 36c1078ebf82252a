/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of frames: packing, and unpacking what may come from anyone. */
#include <railyard/status.h>

#include <string.h>

#include "host/error.h"
#include "host/wire.h"

void ry_wire_put_entry(uint8_t *p, const struct ry_wire_entry *e)
{
    memset(p, 0, RY_WIRE_ENTRY);
    memcpy(p, e->host, RY_HOST_ID_BYTES);
    memcpy(p + 16, e->ip, sizeof(e->ip));
    ry_put16(p + 32, e->udp_port);
    ry_put16(p + 34, e->here);
    ry_put32(p + 36, e->incarnation);
    ry_put32(p + 40, e->node);
    ry_put32(p + 44, e->n_nodes);
}

void ry_wire_get_entry(const uint8_t *p, struct ry_wire_entry *e)
{
    memcpy(e->host, p, RY_HOST_ID_BYTES);
    memcpy(e->ip, p + 16, sizeof(e->ip));
    e->udp_port = ry_get16(p + 32);
    e->here = ry_get16(p + 34) != 0;
    e->incarnation = ry_get32(p + 36);
    e->node = ry_get32(p + 40);
    e->n_nodes = ry_get32(p + 44);
}

enum { HELLO_MAC = RY_WIRE_HELLO_BYTES - RY_MAC_BYTES };

static void hello_mac(const uint8_t *p, const struct ry_secret *s, const uint8_t *nonce,
                      uint8_t *mac)
{
    const struct ry_mac_part parts[] = {
        {"pe to meeting point", 19}, {nonce, RY_NONCE_BYTES}, {p, HELLO_MAC}};

    ry_mac(s, parts, 3, mac);
}

void ry_wire_put_hello(uint8_t *p, const struct ry_wire_hello *h, const struct ry_secret *s,
                       const uint8_t *nonce)
{
    memset(p, 0, RY_WIRE_HELLO_BYTES);
    ry_put32(p, h->role);
    ry_put32(p + 4, h->pe);
    ry_put32(p + 8, h->n_pes);
    ry_put32(p + 12, h->incarnation);
    ry_put16(p + 16, h->udp_port);
    memcpy(p + 24, h->host, RY_HOST_ID_BYTES);
    memcpy(p + 40, h->nonce, RY_NONCE_BYTES);
    memcpy(p + 56, h->version, sizeof(h->version));
    hello_mac(p, s, nonce, p + HELLO_MAC);
}

int ry_wire_get_hello(const uint8_t *p, size_t len, struct ry_wire_hello *h,
                      const struct ry_secret *s, const uint8_t *nonce)
{
    uint8_t mac[RY_MAC_BYTES];
    struct ry_wire_hello got = {0};

    if (len != RY_WIRE_HELLO_BYTES)
        return ry_fail(RY_ERR_PROTOCOL, "a greeting of %zu bytes, not %d", len,
                       RY_WIRE_HELLO_BYTES);
    hello_mac(p, s, nonce, mac);
    if (!ry_mac_equal(mac, p + HELLO_MAC))
        return ry_fail(RY_ERR_AUTH, "wrong job secret: give every pe the same RAILYARD_SECRET");
    got.role = ry_get32(p);
    got.pe = ry_get32(p + 4);
    got.n_pes = ry_get32(p + 8);
    got.incarnation = ry_get32(p + 12);
    got.udp_port = ry_get16(p + 16);
    memcpy(got.host, p + 24, RY_HOST_ID_BYTES);
    memcpy(got.nonce, p + 40, RY_NONCE_BYTES);
    memcpy(got.version, p + 56, sizeof(got.version));
    got.version[sizeof(got.version) - 1] = '\0';
    *h = got;
    return RY_OK;
}

void ry_wire_accept_mac(const struct ry_secret *s, const uint8_t *pe_nonce, const uint8_t *nonce,
                        uint8_t *mac)
{
    const struct ry_mac_part parts[] = {
        {"meeting point to pe", 19}, {pe_nonce, RY_NONCE_BYTES}, {nonce, RY_NONCE_BYTES}};

    ry_mac(s, parts, 3, mac);
}

int ry_wire_get_result(const uint8_t *body, size_t len, uint32_t n, size_t *offs)
{
    size_t at = (size_t)n * 8;

    if (len < at)
        return ry_fail(RY_ERR_PROTOCOL, "a result of %zu bytes for %u pes", len, n);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t part = ry_get64(body + (size_t)i * 8);

        offs[i] = at;
        if (part > len - at)
            return ry_fail(RY_ERR_PROTOCOL, "a result whose part %u is longer than the whole", i);
        at += part;
    }
    offs[n] = at;
    if (at != len)
        return ry_fail(RY_ERR_PROTOCOL, "a result with %zu bytes too many", len - at);
    return RY_OK;
}

void ry_wire_text(const uint8_t *body, size_t len, char *out, size_t cap)
{
    size_t n = len < cap - 1 ? len : cap - 1;

    for (size_t i = 0; i < n; i++)
        out[i] = body[i] < ' ' || body[i] == 127 ? '?' : (char)body[i];
    out[n] = '\0';
}
