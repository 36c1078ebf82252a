/* SPDX-License-Identifier: Apache-2.0 */
#include "host/secret.h"

#include <railyard/status.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "host/error.h"

struct sip {
    uint64_t v[4];
    uint8_t tail[8];
    uint64_t total;
};

static uint64_t load64(const uint8_t *p)
{
    uint64_t v = 0;

    for (int i = 7; i >= 0; i--)
        v = v << 8 | p[i];
    return v;
}

static uint64_t rotl(uint64_t v, int by) { return v << by | v >> (64 - by); }

static void rounds(uint64_t *v, int n)
{
    while (n-- > 0) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = rotl(v[1], 13) ^ v[0];
        v[3] = rotl(v[3], 16) ^ v[2];
        v[0] = rotl(v[0], 32) + v[3];
        v[2] += v[1];
        v[3] = rotl(v[3], 21) ^ v[0];
        v[1] = rotl(v[1], 17) ^ v[2];
        v[2] = rotl(v[2], 32);
    }
}

static void absorb(struct sip *s, uint64_t word)
{
    s->v[3] ^= word;
    rounds(s->v, 2);
    s->v[0] ^= word;
}

static void update(struct sip *s, const uint8_t *data, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        s->tail[s->total++ % 8] = data[i];
        if (s->total % 8 == 0)
            absorb(s, load64(s->tail));
    }
}

static void store64(uint8_t *p, uint64_t v)
{
    for (int i = 0; i < 8; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}

void ry_mac(const struct ry_secret *key, const struct ry_mac_part *parts, size_t n,
            uint8_t out[RY_MAC_BYTES])
{
    uint64_t k0 = load64(key->key), k1 = load64(key->key + 8);
    struct sip s = {.v = {k0 ^ 0x736f6d6570736575ull, k1 ^ 0x646f72616e646f6dull ^ 0xee,
                          k0 ^ 0x6c7967656e657261ull, k1 ^ 0x7465646279746573ull}};

    for (size_t i = 0; i < n; i++)
        update(&s, parts[i].data, parts[i].len);
    uint8_t last[8] = {0};

    memcpy(last, s.tail, s.total % 8);
    last[7] = (uint8_t)s.total;
    absorb(&s, load64(last));
    s.v[2] ^= 0xee;
    rounds(s.v, 4);
    store64(out, s.v[0] ^ s.v[1] ^ s.v[2] ^ s.v[3]);
    s.v[1] ^= 0xdd;
    rounds(s.v, 4);
    store64(out + 8, s.v[0] ^ s.v[1] ^ s.v[2] ^ s.v[3]);
}

bool ry_mac_equal(const uint8_t a[RY_MAC_BYTES], const uint8_t b[RY_MAC_BYTES])
{
    volatile uint8_t differ = 0;

    for (int i = 0; i < RY_MAC_BYTES; i++)
        differ = (uint8_t)(differ | (a[i] ^ b[i]));
    return differ == 0;
}

int ry_random(void *buf, size_t len)
{
    uint8_t *p = buf;

    while (len > 0) {
        ssize_t n = getrandom(p, len, 0);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return ry_fail(RY_ERR_SYSTEM, "no random numbers: %s", strerror(errno));
        p += n;
        len -= (size_t)n;
    }
    return RY_OK;
}

static int nibble(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return -1;
}

void ry_secret_from_text(const char *text, struct ry_secret *out)
{
    static const struct ry_secret fixed = {"railyard secret"};
    size_t len = strlen(text);
    bool hex = len == 2 * RY_SECRET_BYTES;

    for (size_t i = 0; hex && i < len; i++)
        hex = nibble(text[i]) >= 0;
    for (size_t i = 0; hex && i < RY_SECRET_BYTES; i++)
        out->key[i] = (uint8_t)(nibble(text[2 * i]) << 4 | nibble(text[2 * i + 1]));
    if (!hex)
        ry_mac(&fixed, &(struct ry_mac_part){text, len}, 1, out->key);
}

void ry_secret_to_hex(const struct ry_secret *s, char hex[RY_SECRET_HEX])
{
    for (size_t i = 0; i < RY_SECRET_BYTES; i++)
        snprintf(hex + 2 * i, 3, "%02x", s->key[i]);
}
