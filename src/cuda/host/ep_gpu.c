/* SPDX-License-Identifier: Apache-2.0 */
/* The host's side of an exchange on the GPU: it lays out memory, fills in arguments and launches.
 */
#include <cuda_runtime_api.h>
#include <railyard/gpu.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/host/driver.h"
#include "cuda/host/layout.h"
#include "host/error.h"

enum ry_gpu_kernel { K_DISPATCH, K_COMBINE, K_PLAN, K_COUNT };

/* A PE's own device memory of one generation, beside its heap part. */
struct ry_gpu_own {
    int32_t *kept_ids;
    float *kept_weights;
    uint32_t *kept_tokens;
    uint32_t *count;     /* ll: [local][pes] */
    uint32_t *src_token; /* ll */
    uint64_t *back;      /* ll */
    int32_t *rank;       /* ht */
    uint32_t *before;    /* ht */
    uint32_t *expert_rows;
    uint32_t *rows;
    uint64_t *last;
};

struct ry_gpu_ep {
    ry_gpu_ep_attr attr;
    uint32_t generations;
    uint64_t generation_bytes;
    uint8_t *heap[RY_GPU_PES_MAX];
    void *own; /* one allocation */
    struct ry_gpu_own part[RY_EP_GENERATIONS_MAX];
    struct ry_gpu_status *status;        /* pinned */
    struct ry_gpu_status *status_device; /* the same, as the GPU addresses it */
    uint32_t blocks;
    union {
        struct ry_gpu_ll ll;
        struct ry_gpu_ht ht;
    } args; /* what all launches have in common */
    uint64_t dispatch_sent, dispatch_received, combine_sent, combine_received;
};

static int attr_check(const ry_gpu_ep_attr *attr)
{
    struct ry_ep_shape shape = ry_gpu_shape(attr);
    bool ht = attr->ep.mode == RY_EP_HT;
    uint64_t row = (ht ? 3ull : 2ull) * 2 * attr->ep.hidden; /* what one sending warp holds */
    uint64_t plan = RY_HT_PART * 4ull * attr->ep.topk + 5ull * attr->ep.experts;

    if (attr->n_pes < 1 || attr->n_pes > RY_GPU_PES_MAX || attr->pe >= attr->n_pes)
        return ry_fail(RY_ERR_INVALID, "pe %u of %u: direct exchange is for 1 to %d pes", attr->pe,
                       attr->n_pes, RY_GPU_PES_MAX);
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

static uint64_t own_lay(ry_gpu_ep *ep, uint8_t *base)
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
    uint64_t bytes = own_lay(ep, NULL);
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
    own_lay(ep, ep->own);
    return RY_OK;
}

static void common_fill(ry_gpu_ep *ep, struct ry_gpu_common *c)
{
    const ry_ep_attr *e = &ep->attr.ep;

    c->place = (struct ry_place){e->experts, ep->attr.n_pes, 1};
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

int ry_gpu_ep_create(const ry_gpu_ep_attr *attr, void *const *heaps, ry_gpu_ep **out)
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
    if (status == RY_OK)
        status = own_make(ep);
    if (status != RY_OK) {
        ry_gpu_ep_destroy(ep);
        return status;
    }
    ep->blocks = attr->sms && attr->sms < (uint32_t)sms ? attr->sms : (uint32_t)sms;
    ep->blocks = ry_min32(ep->blocks, RY_GPU_BLOCKS_MAX);
    for (uint32_t p = 0; p < attr->n_pes; p++)
        ep->heap[p] = heaps[p];
    common_fill(ep, &ep->args.ll.c); /* the union's members begin alike */
    *out = ep;
    return RY_OK;
}

void ry_gpu_ep_destroy(ry_gpu_ep *ep)
{
    if (!ep)
        return;
    if (ep->own)
        cudaFree(ep->own);
    if (ep->status)
        cudaFreeHost(ep->status);
    free(ep);
}

/* Arguments of the kernel of kind `k` for the buffers of call number `call`. */
static struct ry_gpu_own *common_aim(ry_gpu_ep *ep, struct ry_gpu_common *c, enum ry_gpu_kernel k,
                                     uint64_t call, int phase)
{
    uint32_t g = (uint32_t)(call % ep->generations);

    c->turn += k;
    c->phases = phase == RY_EP_BOTH ? RY_EP_SEND | RY_EP_RECV : (uint32_t)phase;
    for (uint32_t p = 0; p < ep->attr.n_pes; p++)
        c->peer[p] = ep->heap[p] + g * ep->generation_bytes;
    c->combine_blocks = ep->blocks;
    c->last = ep->part[g].last;
    return &ep->part[g];
}

static struct ry_gpu_ll ll_args(ry_gpu_ep *ep, enum ry_gpu_kernel k, uint64_t call, int phase)
{
    struct ry_gpu_ll a = ep->args.ll;
    const struct ry_gpu_own *own = common_aim(ep, &a.c, k, call, phase);

    a.kept_ids = own->kept_ids;
    a.kept_weights = own->kept_weights;
    a.kept_tokens = own->kept_tokens;
    a.count = own->count;
    a.src_token = own->src_token;
    a.back = own->back;
    a.expert_rows = own->expert_rows;
    a.rows = own->rows;
    return a;
}

static struct ry_gpu_ht ht_args(ry_gpu_ep *ep, enum ry_gpu_kernel k, uint64_t call, int phase)
{
    struct ry_gpu_ht a = ep->args.ht;
    const struct ry_gpu_own *own = common_aim(ep, &a.c, k, call, phase);

    a.kept_ids = own->kept_ids;
    a.kept_weights = own->kept_weights;
    a.kept_tokens = own->kept_tokens;
    a.expert_rows = own->expert_rows;
    a.rank = own->rank;
    a.before = own->before;
    a.rows = own->rows;
    return a;
}

static int input_check(const ry_gpu_ep *ep, const ry_ep_input *in)
{
    const ry_ep_attr *e = &ep->attr.ep;

    if (in->tokens > e->tokens_max)
        return ry_fail(RY_ERR_INVALID, "%u tokens: tokens_max is %u", in->tokens, e->tokens_max);
    if (in->idx_bytes != 4 && in->idx_bytes != 8)
        return ry_fail(RY_ERR_INVALID, "topk_idx of %d bytes: give 4 or 8", in->idx_bytes);
    if (in->tokens && (!in->x || !in->topk_idx || !in->topk_weight))
        return ry_fail(RY_ERR_INVALID, "x, topk_idx and topk_weight must be given");
    if (((uintptr_t)in->x | in->x_stride) % 16 || in->x_stride < 2ull * e->hidden)
        return ry_fail(RY_ERR_INVALID, "x: rows of %u bf16 must be 16-byte aligned and not overlap",
                       e->hidden);
    return RY_OK;
}

static void input_fill(struct ry_gpu_input *to, const ry_ep_input *in)
{
    *to = (struct ry_gpu_input){
        .x = in->x,
        .x_stride = in->x_stride,
        .ids = in->topk_idx,
        .ids_stride = in->topk_idx_stride,
        .weights = (const uint8_t *)in->topk_weight,
        .weights_stride = in->topk_weight_stride,
        .tokens = in->tokens,
        .ids_bytes = in->idx_bytes,
    };
}

static void ll_output(const struct ry_gpu_ll *a, ry_ep_output *out)
{
    const uint8_t *slots = a->c.peer[a->c.pe] + a->l.slots_at;

    *out = (ry_ep_output){
        .x = slots,
        .x_stride = a->l.slot_bytes,
        .scales = a->c.fp8 ? slots + a->c.hidden : NULL,
        .scales_stride = a->c.fp8 ? a->l.slot_bytes : 0,
        .count = a->count,
        .src_token = a->src_token,
        .expert_rows = a->expert_rows,
    };
}

static void ht_output(const struct ry_gpu_ht *a, ry_ep_output *out)
{
    const uint8_t *mine = a->c.peer[a->c.pe];

    *out = (ry_ep_output){
        .x = mine + a->l.rows_at,
        .x_stride = a->l.row_bytes,
        .scales = a->c.fp8 ? mine + a->l.rows_at + a->c.hidden : NULL,
        .scales_stride = a->c.fp8 ? a->l.row_bytes : 0,
        .src_token = (const uint32_t *)(mine + a->l.src_token_at),
        .row_source = (const uint32_t *)(mine + a->l.row_source_at),
        .topk_idx = (const int32_t *)(mine + a->l.ids_at),
        .topk_weight = (const float *)(mine + a->l.weights_at),
        .expert_rows = a->expert_rows,
    };
}

static int launched(int cuda_error, const char *what)
{
    return cuda_error ? ry_gpu_fail(cuda_error, what) : RY_OK;
}

static uint32_t dispatch_blocks(const ry_gpu_ep *ep)
{
    return ep->attr.ep.mode == RY_EP_LL ? ry_min32(ep->blocks, ep->attr.ep.tokens_max) : ep->blocks;
}

static int ll_dispatch(ry_gpu_ep *ep, const ry_ep_input *in, ry_ep_output *out,
                       const uint32_t **rows, int phase, uint64_t call, void *stream)
{
    struct ry_gpu_ll a = ll_args(ep, K_DISPATCH, call, phase);

    if (in)
        input_fill(&a.in, in);
    if (out) {
        ll_output(&a, out);
        *rows = a.rows;
    }
    return launched(ry_gpu_ll_dispatch_launch(&a, dispatch_blocks(ep), stream), "dispatch");
}

static int ht_dispatch(ry_gpu_ep *ep, const ry_ep_input *in, ry_ep_output *out,
                       const uint32_t **rows, int phase, uint64_t call, void *stream)
{
    struct ry_gpu_ht a = ht_args(ep, K_DISPATCH, call, phase);
    int status = RY_OK;

    if (in) {
        struct ry_gpu_ht plan = ht_args(ep, K_PLAN, call, RY_EP_BOTH);

        input_fill(&a.in, in);
        plan.in = a.in;
        status = launched(ry_gpu_ht_plan_launch(&plan, ep->blocks, stream), "dispatch");
    }
    if (out) {
        ht_output(&a, out);
        *rows = a.rows;
    }
    return status != RY_OK
               ? status
               : launched(ry_gpu_ht_dispatch_launch(&a, dispatch_blocks(ep), stream), "dispatch");
}

int ry_gpu_ep_dispatch(ry_gpu_ep *ep, const ry_ep_input *in, ry_ep_output *out,
                       const uint32_t **rows_device, int phase, void *stream)
{
    bool sends = phase != RY_EP_RECV, receives = phase != RY_EP_SEND;
    uint64_t call = sends ? ep->dispatch_sent : ep->dispatch_received;
    int status = RY_OK;

    if (sends && ep->dispatch_sent - ep->combine_received >= ep->generations)
        return ry_fail(RY_ERR_BUSY,
                       "%u dispatches wait for their combine: combine first, or use more "
                       "generations",
                       ep->generations);
    if (!sends && ep->dispatch_received == ep->dispatch_sent)
        return ry_fail(RY_ERR_INVALID, "nothing to receive: no dispatch was sent");
    if (phase == RY_EP_BOTH && ep->dispatch_received != ep->dispatch_sent)
        return ry_fail(RY_ERR_INVALID, "receive the dispatch that was sent before this one");
    if ((sends && !in) || (receives && (!out || !rows_device)))
        return ry_fail(RY_ERR_INVALID, "dispatch: what is sent needs `in`, what is received `out`");
    if (sends)
        status = input_check(ep, in);
    if (status == RY_OK)
        status = ry_gpu_enter(ep->attr.device);
    if (status != RY_OK)
        return status;
    status = (ep->attr.ep.mode == RY_EP_LL ? ll_dispatch : ht_dispatch)(
        ep, sends ? in : NULL, receives ? out : NULL, rows_device, phase, call, stream);
    if (status != RY_OK)
        return status;
    ep->dispatch_sent += sends;
    ep->dispatch_received += receives;
    return RY_OK;
}

static int ll_combine(ry_gpu_ep *ep, const void *y, size_t y_stride, void *out, size_t out_stride,
                      int phase, uint64_t call, void *stream)
{
    struct ry_gpu_ll a = ll_args(ep, K_COMBINE, call, phase);

    a.y = y;
    a.y_stride = y_stride;
    a.out = out;
    a.out_stride = out_stride;
    return launched(ry_gpu_ll_combine_launch(&a, ep->blocks, stream), "combine");
}

static int ht_combine(ry_gpu_ep *ep, const void *y, size_t y_stride, void *out, size_t out_stride,
                      int phase, uint64_t call, void *stream)
{
    struct ry_gpu_ht a = ht_args(ep, K_COMBINE, call, phase);

    a.y = y;
    a.y_stride = y_stride;
    a.out = out;
    a.out_stride = out_stride;
    return launched(ry_gpu_ht_combine_launch(&a, ep->blocks, stream), "combine");
}

int ry_gpu_ep_combine(ry_gpu_ep *ep, const void *y, size_t y_stride, void *out, size_t out_stride,
                      int phase, void *stream)
{
    bool sends = phase != RY_EP_RECV, receives = phase != RY_EP_SEND;
    uint64_t call = sends ? ep->combine_sent : ep->combine_received;
    uint64_t row = 2ull * ep->attr.ep.hidden;
    int status;

    if (sends && ep->combine_sent == ep->dispatch_received)
        return ry_fail(RY_ERR_INVALID, "combine without a dispatch that was received");
    if (!sends && ep->combine_received == ep->combine_sent)
        return ry_fail(RY_ERR_INVALID, "nothing to receive: no combine was sent");
    if (sends && (((uintptr_t)y | y_stride) % 16 || y_stride < row))
        return ry_fail(RY_ERR_INVALID, "y: rows must be 16-byte aligned and not overlap");
    if (receives && (((uintptr_t)out | out_stride) % 16 || out_stride < row))
        return ry_fail(RY_ERR_INVALID, "out: rows must be 16-byte aligned and not overlap");
    status = ry_gpu_enter(ep->attr.device);
    if (status == RY_OK)
        status = (ep->attr.ep.mode == RY_EP_LL ? ll_combine : ht_combine)(
            ep, y, y_stride, out, out_stride, phase, call, stream);
    if (status != RY_OK)
        return status;
    ep->combine_sent += sends;
    ep->combine_received += receives;
    return RY_OK;
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
    return ry_fail(status, "waited too long for pe %u (%s): see whether it runs", who,
                   place_name(place));
}
