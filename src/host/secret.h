/* SPDX-License-Identifier: Apache-2.0 */
/* The job's secret and the keyed hash that proves knowledge of it.
 *
 * The hash is SipHash-2-4 with 128 bits of output (Aumasson and Bernstein, "SipHash: a fast
 * short-input PRF", 2012, and the 128-bit variant of its reference code). It keeps strangers out of
 * a job; it does not hide what is sent. */
#ifndef RY_HOST_SECRET_H
#define RY_HOST_SECRET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RY_SECRET_BYTES = 16, RY_MAC_BYTES = 16, RY_NONCE_BYTES = 16, RY_SECRET_HEX = 33 };

struct ry_secret {
    uint8_t key[RY_SECRET_BYTES];
};

/* 0 or RY_ERR_SYSTEM. */
int ry_random(void *buf, size_t len);

/* 32 hexadecimal digits are the secret itself, any other text is hashed to one. */
void ry_secret_from_text(const char *text, struct ry_secret *out);
void ry_secret_to_hex(const struct ry_secret *s, char hex[RY_SECRET_HEX]);

struct ry_mac_part {
    const void *data;
    size_t len;
};

/* Hash of the parts one after the other. Where lengths vary the caller puts them into a part. */
void ry_mac(const struct ry_secret *s, const struct ry_mac_part *parts, size_t n,
            uint8_t out[RY_MAC_BYTES]);

/* Takes the same time wherever the two differ. */
bool ry_mac_equal(const uint8_t a[RY_MAC_BYTES], const uint8_t b[RY_MAC_BYTES]);

#endif
