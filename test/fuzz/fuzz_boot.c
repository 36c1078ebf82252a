/* SPDX-License-Identifier: Apache-2.0 */
/* Bootstrap messages as a stranger may send them. Byte 0 chooses the reader: a stream of frames,
 * the body of a greeting or a result, a table entry, a control datagram. Nothing but the real
 * secret may be accepted, and no reader may look beyond its input. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <railyard/status.h>

#include "host/boot_ctl.h"
#include "host/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len_bytes);

static void frames(const uint8_t *data, size_t len)
{
    struct ry_wire_in in = {.limit = RY_WIRE_SHORT};
    int rc;

    while ((rc = ry_wire_feed(&in, &data, &len)) == 1) {
        char text[RY_WIRE_TEXT];

        if (in.frame.len > RY_WIRE_SHORT)
            abort();
        ry_wire_text(in.frame.body, in.frame.len, text, sizeof(text));
        if (strchr(text, '\n'))
            abort();
    }
    ry_wire_in_free(&in);
}

static void greeting(const uint8_t *data, size_t len)
{
    static const struct ry_secret secret = {"a secret of ours"};
    static const uint8_t nonce[RY_NONCE_BYTES] = {7};
    struct ry_wire_hello h;

    if (ry_wire_get_hello(data, len, &h, &secret, nonce) == RY_OK)
        abort(); /* 2^-128 */
}

static void result(const uint8_t *data, size_t len)
{
    size_t offs[9];

    if (ry_wire_get_result(data, len, 8, offs) < 0)
        return;
    for (int i = 0; i < 8; i++) {
        if (offs[i] > offs[i + 1] || offs[i + 1] > len)
            abort();
    }
}

static void entry(const uint8_t *data, size_t len)
{
    uint8_t there[RY_WIRE_ENTRY] = {0}, back[RY_WIRE_ENTRY], again[RY_WIRE_ENTRY];
    struct ry_wire_entry e;

    memcpy(there, data, len < sizeof(there) ? len : sizeof(there));
    ry_wire_get_entry(there, &e);
    ry_wire_put_entry(back, &e);
    ry_wire_get_entry(back, &e);
    ry_wire_put_entry(again, &e);
    if (memcmp(back, again, sizeof(back)) != 0)
        abort();
}

static void datagram(const uint8_t *data, size_t len)
{
    static struct ry_ctl_peer peers[4];
    struct ry_ctl c = {.pe = 1, .n_pes = 4, .secret = {"a secret of ours"}, .peers = peers};
    uint32_t from = 0;

    pthread_mutex_init(&c.lock, NULL);
    if (ry_ctl_check(&c, data, len, &from))
        abort();
    pthread_mutex_destroy(&c.lock);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len_bytes)
{
    static void (*const readers[])(const uint8_t *, size_t) = {frames, greeting, result, entry,
                                                               datagram};
    size_t n = sizeof(readers) / sizeof(readers[0]);

    if (len_bytes == 0)
        return 0;
    /* A copy of exactly its size, so that a sanitizer sees the first byte too many. */
    uint8_t *copy = malloc(len_bytes);

    memcpy(copy, data, len_bytes);
    readers[copy[0] % n](copy + 1, len_bytes - 1);
    free(copy);
    return 0;
}
