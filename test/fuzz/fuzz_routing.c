/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a routing recording: it is read to the end, served twice over and sought in, or it
 * is refused with one line of printable text. An odd length asks for eight experts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ep/routing.h"
#include "ep/validate.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void require(int good)
{
    if (!good)
        abort();
}

static void check_message(void)
{
    const char *text = ry_last_error();
    require(text[0] != '\0');
    for (; *text; text++)
        require(*text >= ' ' && *text <= '~');
}

static void check_token(const ry_routing_info *info, const int32_t *ids)
{
    for (uint32_t k = 0; k < info->topk; k++) {
        require(ids[k] >= -1 && ids[k] < (int64_t)info->experts);
        for (uint32_t j = 0; j < k; j++)
            require(ids[k] == -1 || ids[k] != ids[j]);
    }
}

static void serve(struct ry_routing_file *file)
{
    static int32_t ids[RY_EP_TOPK_MAX], first[RY_EP_TOPK_MAX];
    static float weights[RY_EP_TOPK_MAX];
    ry_routing_info info;
    ry_routing_file_info(file, &info);
    require(info.tokens > 0 && info.topk > 0 && info.topk <= info.experts);
    for (uint64_t t = 0; t < 2 * info.tokens + 1; t++) {
        require(ry_routing_file_next(file, ids, weights) == RY_OK);
        check_token(&info, ids);
        if (t == 0)
            memcpy(first, ids, info.topk * sizeof(*ids));
        if (t == info.tokens)
            require(memcmp(first, ids, info.topk * sizeof(*ids)) == 0);
    }
    require(ry_routing_file_seek(file, info.tokens - 1) == RY_OK);
    require(ry_routing_file_next(file, ids, weights) == RY_OK);
    require(ry_routing_file_next(file, ids, weights) == RY_OK);
    require(memcmp(first, ids, info.topk * sizeof(*ids)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    ry_routing_attr attr = {0};
    struct ry_routing_file *file = NULL;
    if (bytes < 2)
        return 0;
    attr.experts = bytes % 2 ? 8 : 0;
    FILE *stream = fmemopen((void *)(uintptr_t)data, bytes, "r");
    if (!stream)
        return 0;
    if (ry_routing_file_open(stream, "fuzz", &attr, &file) != RY_OK) {
        check_message();
        return 0;
    }
    serve(file);
    ry_routing_file_close(file);
    return 0;
}
