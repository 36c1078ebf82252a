/* SPDX-License-Identifier: Apache-2.0 */
/* Expert choices as a caller may hand them over, against an oracle that compares every pair: byte 0
 * chooses 32 or 64 bits, byte 1 K, bytes 2 and 3 the number of experts, the rest are the ids. */
#include "ep/validate.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len_bytes);

static int64_t oracle_id(const uint8_t *ids, int bits, size_t i)
{
    int64_t wide;
    int32_t narrow;
    if (bits == 64) {
        memcpy(&wide, ids + 8 * i, sizeof(wide));
        return wide;
    }
    memcpy(&narrow, ids + 4 * i, sizeof(narrow));
    return narrow;
}

static int oracle(const uint8_t *ids, int bits, size_t tokens, size_t topk, int64_t experts)
{
    for (size_t t = 0; t < tokens; t++) {
        for (size_t k = 0; k < topk; k++) {
            int64_t id = oracle_id(ids, bits, t * topk + k);
            if (id < -1 || id >= experts)
                return RY_ERR_INVALID;
            for (size_t other = 0; other < k && id >= 0; other++) {
                if (oracle_id(ids, bits, t * topk + other) == id)
                    return RY_ERR_INVALID;
            }
        }
    }
    return RY_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len_bytes)
{
    if (len_bytes < 4)
        return 0;
    int bits = data[0] & 1 ? 64 : 32;
    size_t topk = 1u + data[1] % 16u;
    int64_t experts = 1 + data[2] + 256 * (data[3] % 8);
    if (experts < (int64_t)topk)
        experts = (int64_t)topk;
    size_t bytes = (size_t)bits / 8;
    size_t tokens = (len_bytes - 4) / (bytes * topk);
    uint8_t *ids = malloc(tokens * topk * bytes + 1);
    if (!ids)
        return 0;
    memcpy(ids, data + 4, tokens * topk * bytes);
    const struct ry_topk_view view = {
        .ids = ids,
        .bits = bits,
        .tokens = (int64_t)tokens,
        .topk = (int64_t)topk,
        .stride_token = (int64_t)topk,
        .stride_k = 1,
    };
    int got = ry_ep_topk_check(&view, experts, RY_EP_TOKENS_MAX);
    if (got != oracle(ids, bits, tokens, topk, experts))
        abort();
    free(ids);
    return 0;
}
