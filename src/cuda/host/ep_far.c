/* SPDX-License-Identifier: Apache-2.0 */
/* Exchanges of which some peers, or all, are reached through channels. */
#include "cuda/ep_far.h"

#include <string.h>

#include "cuda/host/ep_inside.h"
#include "host/error.h"

enum { ALIGN = 256 };

static uint64_t aligned(uint64_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

static uint64_t sectors_bytes(const ry_gpu_ep_attr *attr, uint32_t channels)
{
    return aligned((uint64_t)RY_FAR_STAGES * attr->n_pes * channels * sizeof(struct ry_sector));
}

size_t ry_gpu_ep_far_heap_bytes(const ry_gpu_ep_attr *attr, uint32_t channels, uint32_t far)
{
    uint64_t own = ry_gpu_ep_heap_bytes(attr);

    return own ? sectors_bytes(attr, channels) + own * (1 + far) : 0;
}

size_t ry_gpu_ep_far_own_bytes(const ry_gpu_ep_attr *attr, uint32_t channels)
{
    uint64_t bytes = 0;
    ry_gpu_ep *ep;

    if (ry_gpu_ep_prepare(attr, &ep) != RY_OK)
        return 0;
    bytes = aligned(ry_gpu_ep_own_lay(ep, NULL)) +
            (uint64_t)ep->generations * attr->n_pes * channels * sizeof(struct ry_far_span);
    ry_gpu_ep_destroy(ep);
    return bytes;
}

int ry_gpu_ep_create_far(const ry_gpu_ep_attr *attr, const struct ry_gpu_ep_place *at,
                         ry_gpu_ep **out)
{
    const struct ry_gpu_world *w = at->world;
    uint64_t sectors = sectors_bytes(attr, w->channels), bytes;
    struct ry_gpu_far *far;
    ry_gpu_ep *ep;
    int status = ry_gpu_ep_prepare(attr, &ep);

    if (status != RY_OK)
        return status;
    far = &ep->far;
    far->w = *w;
    far->w.status = at->status;
    far->w.timeout_ns = attr->timeout_ns ? attr->timeout_ns : w->timeout_ns;
    far->sectors_at = (uint64_t)((uint8_t *)at->heap_part - w->heap);
    far->buffers_at = far->sectors_at + sectors; /* of the first generation */
    far->end_blocks = ep->blocks;
    far->sent_blocks = ry_gpu_ep_dispatch_blocks(ep);
    bytes = ep->generations * ep->generation_bytes;
    for (uint32_t p = 0; p < attr->n_pes; p++) {
        uint8_t *mapped = p == attr->pe ? w->heap : w->direct[p];

        if (mapped) {
            ep->heap[p] = mapped + far->buffers_at;
            continue;
        }
        far->peers |= 1u << p;
        far->n++;
        ep->heap[p] = w->heap + far->buffers_at + bytes * far->n;
    }
    ep->spans =
        (struct ry_far_span *)((uint8_t *)at->own + aligned(ry_gpu_ep_own_lay(ep, at->own)));
    ep->status = ep->status_device = at->status;
    ep->ports = at->ports;
    ry_gpu_ep_common(ep);
    *out = ep;
    return RY_OK;
}

void ry_gpu_ep_far_failover(ry_gpu_ep *ep, int on) { ep->far.w.failover = on != 0; }

/* The arguments of this call's buffers. */
static struct ry_gpu_far far_of(const ry_gpu_ep *ep, uint64_t call)
{
    struct ry_gpu_far far = ep->far;
    uint64_t g = call % ep->generations;

    far.buffers_at += g * ep->generation_bytes;
    far.span = ep->spans + g * ep->attr.n_pes * far.w.channels;
    return far;
}

int ry_far_room(const ry_gpu_ep *ep, uint64_t call, void *stream)
{
    struct ry_gpu_far far = far_of(ep, call);

    return ry_gpu_launched(ep, ry_far_room_launch(&far, stream), "room");
}

int ry_far_post(const ry_gpu_ep *ep, const union ry_gpu_args *a, enum ry_far_stage stage,
                uint64_t call, void *stream)
{
    struct ry_gpu_far far = far_of(ep, call);
    int rc = ep->attr.ep.mode == RY_EP_LL ? ry_far_ll_post_launch(&a->ll, &far, stage, stream)
                                          : ry_far_ht_post_launch(&a->ht, &far, stage, stream);

    return ry_gpu_launched(ep, rc, "post");
}

int ry_far_arrive(const ry_gpu_ep *ep, const union ry_gpu_args *a, enum ry_far_stage stage,
                  uint64_t call, void *stream)
{
    struct ry_gpu_far far = far_of(ep, call);
    int rc = ep->attr.ep.mode == RY_EP_LL ? ry_far_ll_arrive_launch(&a->ll, &far, stage, stream)
                                          : ry_far_ht_arrive_launch(&a->ht, &far, stage, stream);

    return ry_gpu_launched(ep, rc, "arrive");
}
