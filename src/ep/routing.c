/* SPDX-License-Identifier: Apache-2.0 */
#include "ep/routing.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ep/validate.h"
#include "host/error.h"

enum { GATE_EXPERTS = 64, GATE_TOPK = 8 };

/* One of file and gate is set. */
struct ry_routing {
    struct ry_routing_file *file;
    struct ry_gate *gate;
    ry_routing_info info;
    uint64_t gate_next;
};

static int open_gate(const ry_routing_attr *attr, struct ry_routing *r)
{
    ry_routing_attr want = *attr;
    want.experts = want.experts ? want.experts : GATE_EXPERTS;
    want.topk = want.topk ? want.topk : GATE_TOPK;
    if (want.experts > RY_EP_EXPERTS_MAX || want.topk > RY_EP_TOPK_MAX)
        return ry_fail(RY_ERR_INVALID, "%u experts and top-%u: at most %u and %u are possible",
                       want.experts, want.topk, RY_EP_EXPERTS_MAX, RY_EP_TOPK_MAX);
    if (want.experts < want.topk)
        return ry_fail(RY_ERR_INVALID,
                       "%u experts for top-%u: a token cannot choose more experts than there are; "
                       "raise the experts or lower top-k",
                       want.experts, want.topk);
    int status = ry_gate_open(ry_routing_text, ry_routing_text_bytes, &want, &r->gate);
    if (status != RY_OK)
        return status;
    r->info.experts = want.experts;
    r->info.topk = want.topk;
    r->info.tokens = ry_gate_tokens(r->gate);
    r->info.source = "built-in gate";
    return RY_OK;
}

static int open_file(const char *path, const ry_routing_attr *attr, struct ry_routing *r)
{
    struct stat st;
    FILE *stream = fopen(path, "re");
    if (!stream)
        return ry_fail(RY_ERR_CONFIG, "routing file %s: %s; give a readable file", path,
                       strerror(errno));
    if (fstat(fileno(stream), &st) != 0 || !S_ISREG(st.st_mode)) {
        fclose(stream);
        return ry_fail(
            RY_ERR_CONFIG,
            "routing file %s: not a regular file, and it is read more than once; save it "
            "to a file first",
            path);
    }
    int status = ry_routing_file_open(stream, path, attr, &r->file);
    if (status == RY_OK)
        ry_routing_file_info(r->file, &r->info);
    return status;
}

int ry_routing_open(const char *path, const ry_routing_attr *attr, ry_routing **out)
{
    static const ry_routing_attr none = {0};
    struct ry_routing *r = calloc(1, sizeof(*r));
    if (!r)
        return ry_fail(RY_ERR_NO_MEMORY, "no memory for a routing source");
    attr = attr ? attr : &none;
    int status = path ? open_file(path, attr, r) : open_gate(attr, r);
    if (status != RY_OK) {
        free(r);
        return status;
    }
    *out = r;
    return RY_OK;
}

void ry_routing_close(ry_routing *r)
{
    if (!r)
        return;
    ry_routing_file_close(r->file);
    ry_gate_close(r->gate);
    free(r);
}

void ry_routing_get_info(const ry_routing *r, ry_routing_info *info)
{
    *info = r->info;
}

int ry_routing_next(ry_routing *r, uint32_t tokens, int32_t *topk_idx, float *topk_weight)
{
    size_t topk = r->info.topk;
    for (size_t t = 0; t < tokens; t++) {
        int32_t *ids = topk_idx + t * topk;
        float *weights = topk_weight + t * topk;
        if (r->gate) {
            ry_gate_route(r->gate, r->gate_next, ids, weights);
            r->gate_next = (r->gate_next + 1) % r->info.tokens;
            continue;
        }
        int status = ry_routing_file_next(r->file, ids, weights);
        if (status != RY_OK)
            return status;
    }
    return RY_OK;
}

int ry_routing_seek(ry_routing *r, uint64_t token)
{
    token %= r->info.tokens;
    if (r->file)
        return ry_routing_file_seek(r->file, token);
    r->gate_next = token;
    return RY_OK;
}
