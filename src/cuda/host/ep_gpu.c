/* SPDX-License-Identifier: Apache-2.0 */
/* An exchange on the GPU: its memory, its beginning and end, and what its kernels left behind. */
#include <cuda_runtime_api.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/host/driver.h"
#include "cuda/host/ep_inside.h"
#include "host/error.h"

static int attr_check(const ry_gpu_ep_attr *attr)
{
    struct ry_ep_shape shape = ry_gpu_shape(attr);
    bool ht = attr->ep.mode == RY_EP_HT;
    uint64_t row = (ht ? 3ull : 2ull) * 2 * attr->ep.hidden; /* what one sending warp holds */
    uint64_t plan = RY_HT_PART * 4ull * attr->ep.topk + 5ull * attr->ep.experts;

    if (attr->n_pes < 1 || attr->n_pes > RY_GPU_PES_MAX || attr->pe >= attr->n_pes)
        return ry_fail(RY_ERR_INVALID, "pe %u of %u: direct exchange is for 1 to %d pes", attr->pe,
                       attr->n_pes, RY_GPU_PES_MAX);
    if (attr->n_nodes > attr->n_pes)
        return ry_fail(RY_ERR_INVALID, "%u nodes for %u pes: each node needs one", attr->n_nodes,
                       attr->n_pes);
    if (row > 216u << 10)
        return ry_fail(
            RY_ERR_UNSUPPORTED,
            "hidden %u: the rows of a sending warp exceed an sm's shared memory; at most "
            "%u",
            attr->ep.hidden, (216u << 10) / (ht ? 6 : 4));
    if (ht && plan > RY_HT_PLAN_SHARED_MAX)
        return ry_fail(RY_ERR_UNSUPPORTED,
                       "top-%u of %u experts: planning 128 tokens exceeds an sm's shared memory",
                       attr->ep.topk, attr->ep.experts);
    return ry_ep_shape_check(&shape);
}

static int layout_make(const ry_gpu_ep_attr *attr, struct ry_gpu_ll *ll, struct ry_gpu_ht *ht,
                       uint64_t *bytes)
{
    struct ry_ep_shape shape = ry_gpu_shape(attr);
    int status = attr_check(attr);

    if (status != RY_OK)
        return status;
    return attr->ep.mode == RY_EP_LL ? ry_gpu_ll_layout(&shape, ll, bytes)
                                     : ry_gpu_ht_layout(&shape, ht, bytes);
}

size_t ry_gpu_ep_heap_bytes(const ry_gpu_ep_attr *attr)
{
    struct ry_gpu_ll ll;
    struct ry_gpu_ht ht;
    uint64_t bytes;

    if (layout_make(attr, &ll, &ht, &bytes) != RY_OK)
        return 0;
    return bytes * (attr->ep.generations ? attr->ep.generations : 2);
}

/* Takes `bytes` off a block; with base NULL it only counts. */
static void *take(uint8_t *base, uint64_t *at, uint64_t bytes)
{
    uint64_t begin = *at;

    *at = (begin + bytes + 255) / 256 * 256;
    return base ? base + begin : NULL;
}

uint64_t ry_gpu_ep_own_lay(ry_gpu_ep *ep, uint8_t *base)
{
    const ry_ep_attr *e = &ep->attr.ep;
    uint64_t pairs = (uint64_t)e->tokens_max * e->topk, at = 0, pes = ep->attr.n_pes;
    uint64_t local = ry_block_size(e->experts, (uint32_t)pes, 0);
    struct ry_gpu_turn *turns = take(base, &at, K_COUNT * sizeof(*turns));

    ep->args.ll.c.turn = turns;
    for (uint32_t g = 0; g < ep->generations; g++) {
        struct ry_gpu_own *p = &ep->part[g];

        p->kept_ids = take(base, &at, pairs * 4);
        p->kept_weights = take(base, &at, pairs * 4);
        p->kept_tokens = take(base, &at, 4);
        p->rows = take(base, &at, 4);
        p->expert_rows = take(base, &at, local * 4);
        p->last = take(base, &at, RY_GPU_BLOCKS_MAX * 8);
        if (e->mode == RY_EP_LL) {
            p->count = take(base, &at, local * pes * 4);
            p->src_token = take(base, &at, local * pes * e->tokens_max * 4);
            p->back = take(base, &at, pes * pairs * 8);
        } else {
            p->rank = take(base, &at, pes * e->tokens_max * 4);
            p->before = take(base, &at, (e->tokens_max / RY_HT_PART + 1) * pes * 4);
        }
    }
    if (e->mode == RY_EP_HT) {
        ep->args.ht.hits = take(base, &at, e->experts * 4ull);
        ep->args.ht.done = take(base, &at, 4);
    }
    return at;
}

static int own_make(ry_gpu_ep *ep)
{
    uint64_t bytes = ry_gpu_ep_own_lay(ep, NULL);
    cudaError_t rc = cudaMalloc(&ep->own, bytes);

    if (rc == cudaErrorMemoryAllocation)
        return ry_fail(RY_ERR_NO_MEMORY, "no %llu bytes of device memory: lower tokens or experts",
                       (unsigned long long)bytes);
    if (rc == cudaSuccess)
        rc = cudaMemset(ep->own, 0, bytes);
    if (rc == cudaSuccess)
        rc = cudaHostAlloc((void **)&ep->status, sizeof(*ep->status), cudaHostAllocMapped);
    if (rc == cudaSuccess) {
        memset(ep->status, 0, sizeof(*ep->status));
        rc = cudaHostGetDevicePointer((void **)&ep->status_device, ep->status, 0);
    }
    if (rc == cudaSuccess)
        rc = cudaDeviceSynchronize(); /* zeros are there before the first kernel */
    if (rc != cudaSuccess)
        return ry_gpu_fail(rc, "cannot take device memory");
    ry_gpu_ep_own_lay(ep, ep->own);
    return RY_OK;
}

void ry_gpu_ep_common(ry_gpu_ep *ep)
{
    struct ry_gpu_common *c = &ep->args.ll.c; /* the union's members begin alike */
    const ry_ep_attr *e = &ep->attr.ep;

    c->place =
        (struct ry_place){e->experts, ep->attr.n_pes, ep->attr.n_nodes ? ep->attr.n_nodes : 1};
    c->status = ep->status_device;
    c->timeout_ns = ep->attr.timeout_ns ? ep->attr.timeout_ns : 2000000000ull;
    c->pe = ep->attr.pe;
    c->tokens_max = e->tokens_max;
    c->topk = e->topk;
    c->hidden = e->hidden;
    c->local_count = ry_place_expert_count(&c->place, c->pe);
    c->fp8 = e->dtype == RY_FP8;
    c->scale_kind = (int)e->scale;
}

int ry_gpu_ep_prepare(const ry_gpu_ep_attr *attr, ry_gpu_ep **out)
{
    ry_gpu_ep *ep = calloc(1, sizeof(*ep));
    int status, sms = 0;

    if (!ep)
        return ry_fail(RY_ERR_NO_MEMORY, "no memory for an exchange");
    ep->attr = *attr;
    ep->generations = attr->ep.generations ? attr->ep.generations : 2;
    status = layout_make(attr, &ep->args.ll, &ep->args.ht, &ep->generation_bytes);
    if (status == RY_OK)
        status = ry_gpu_enter(attr->device);
    if (status == RY_OK &&
        cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, attr->device) != cudaSuccess)
        status = ry_fail(RY_ERR_DEVICE, "gpu %d does not say how many sms it has", attr->device);
    if (status != RY_OK) {
        free(ep);
        return status;
    }
    ep->blocks = attr->sms ? attr->sms : ry_gpu_ep_tuned(attr);
    ep->blocks = ep->blocks && ep->blocks < (uint32_t)sms ? ep->blocks : (uint32_t)sms;
    ep->blocks = ry_min32(ep->blocks, RY_GPU_BLOCKS_MAX);
    *out = ep;
    return RY_OK;
}

int ry_gpu_ep_create(const ry_gpu_ep_attr *attr, void *const *heaps, ry_gpu_ep **out)
{
    ry_gpu_ep *ep;
    int status = ry_gpu_ep_prepare(attr, &ep);

    if (status != RY_OK)
        return status;
    status = own_make(ep);
    if (status != RY_OK) {
        ry_gpu_ep_destroy(ep);
        return status;
    }
    for (uint32_t p = 0; p < attr->n_pes; p++)
        ep->heap[p] = heaps[p];
    ry_gpu_ep_common(ep);
    *out = ep;
    return RY_OK;
}

void ry_gpu_ep_destroy(ry_gpu_ep *ep)
{
    if (!ep)
        return;
    if (ep->own) {
        cudaFree(ep->own);
        cudaFreeHost(ep->status);
    }
    free(ep);
}

static const char *place_name(uint32_t place)
{
    static const char *const names[] = {
        "nowhere", "an index", "dispatch", "counts", "combine row", "combine end", "channel",
    };

    return place < sizeof(names) / sizeof(names[0]) ? names[place] : "?";
}

int ry_gpu_ep_status(const ry_gpu_ep *ep)
{
    uint64_t word = __atomic_load_n(&ep->status->first, __ATOMIC_ACQUIRE);
    uint32_t place = word & 0xff, who = (uint32_t)(word >> 32), detail = word >> 16 & 0xffff;
    int status = -(int)(word >> 8 & 0xff);

    if (!word)
        return RY_OK;
    if (status == RY_ERR_INVALID)
        return ry_fail(status,
                       "topk_idx of token %u, k %u is out of range or repeated: it counts as -1",
                       who, detail);
    if (place == RY_AT_CHANNEL) /* detail: channel << 4 | path slot */
        return ry_fail(status, "pe %u is not reached through rail %u (%s): see which ports are up",
                       who, (detail / 16 + (detail & 3)) % (ep->ports ? ep->ports : 1),
                       ry_status_name(status));
    return ry_fail(status, "waited too long for pe %u (%s): see whether it runs", who,
                   place_name(place));
}
