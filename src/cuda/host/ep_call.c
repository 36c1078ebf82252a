/* SPDX-License-Identifier: Apache-2.0 */
/* Dispatch and combine: each call fills in the arguments of its kernels and launches them. */
#include <cuda_runtime_api.h>

#include <stdbool.h>

#include "cuda/host/driver.h"
#include "cuda/host/ep_inside.h"
#include "host/error.h"

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

static union ry_gpu_args args_of(ry_gpu_ep *ep, enum ry_gpu_kernel k, uint64_t call, int phase)
{
    union ry_gpu_args a = ep->args;
    const struct ry_gpu_own *own = common_aim(ep, &a.ll.c, k, call, phase);

    if (ep->attr.ep.mode == RY_EP_LL) {
        a.ll.kept_ids = own->kept_ids;
        a.ll.kept_weights = own->kept_weights;
        a.ll.kept_tokens = own->kept_tokens;
        a.ll.expert_rows = own->expert_rows;
        a.ll.rows = own->rows;
        a.ll.count = own->count;
        a.ll.src_token = own->src_token;
        a.ll.back = own->back;
    } else {
        a.ht.kept_ids = own->kept_ids;
        a.ht.kept_weights = own->kept_weights;
        a.ht.kept_tokens = own->kept_tokens;
        a.ht.expert_rows = own->expert_rows;
        a.ht.rows = own->rows;
        a.ht.rank = own->rank;
        a.ht.before = own->before;
    }
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

int ry_gpu_launched(const ry_gpu_ep *ep, int cuda_error, const char *what)
{
    if (cuda_error)
        return ry_gpu_fail(cuda_error, what);
    if (ep->launched)
        ep->launched(ep->launched_arg);
    return RY_OK;
}

/* ll: as many tokens to every block. Of fp8, whose rows are soon sent, two where there are many:
 * the loads of the second are under way with the stores of the first, and flags are half as
 * many. */
uint32_t ry_gpu_ep_dispatch_blocks(const ry_gpu_ep *ep)
{
    const ry_ep_attr *e = &ep->attr.ep;
    uint32_t each = (e->tokens_max + ep->blocks - 1) / ep->blocks;

    if (e->mode != RY_EP_LL)
        return ep->blocks;
    if (each == 1 && e->dtype == RY_FP8 && e->tokens_max >= 128)
        each = 2;
    return (e->tokens_max + each - 1) / each;
}

/* The kernel of a stage. */
static int stage_launch(const ry_gpu_ep *ep, union ry_gpu_args *a, enum ry_far_stage stage,
                        void *stream)
{
    bool ll = ep->attr.ep.mode == RY_EP_LL;
    uint32_t blocks = ry_gpu_ep_dispatch_blocks(ep);
    int rc;

    if (stage == RY_FAR_PLAN)
        rc = ry_gpu_ht_plan_launch(&a->ht, ep->blocks, stream);
    else if (stage == RY_FAR_DISPATCH)
        rc = ll ? ry_gpu_ll_dispatch_launch(&a->ll, blocks, stream)
                : ry_gpu_ht_dispatch_launch(&a->ht, blocks, stream);
    else
        rc = ll ? ry_gpu_ll_combine_launch(&a->ll, ep->blocks, stream)
                : ry_gpu_ht_combine_launch(&a->ht, ep->blocks, stream);
    return ry_gpu_launched(ep, rc, stage == RY_FAR_COMBINE ? "combine" : "dispatch");
}

/* Where peers are far the two phases are kernels of their own, with the channels' between them. */
static int stage_run(const ry_gpu_ep *ep, union ry_gpu_args *a, enum ry_far_stage stage, int phase,
                     uint64_t call, void *stream)
{
    int status = RY_OK;

    if (!ep->far.n)
        return stage_launch(ep, a, stage, stream);
    if (phase != RY_EP_RECV) {
        a->ll.c.phases = RY_EP_SEND;
        status = stage_launch(ep, a, stage, stream);
        if (status == RY_OK)
            status = ry_far_post(ep, a, stage, call, stream);
    }
    if (phase != RY_EP_SEND && status == RY_OK) {
        a->ll.c.phases = RY_EP_RECV;
        status = ry_far_arrive(ep, a, stage, call, stream);
        if (status == RY_OK)
            status = stage_launch(ep, a, stage, stream);
    }
    return status;
}

/* Every PE's plan, at every PE: one kernel does both. */
static int ht_plan(ry_gpu_ep *ep, const struct ry_gpu_input *in, uint64_t call, void *stream)
{
    union ry_gpu_args plan = args_of(ep, K_PLAN, call, RY_EP_BOTH);
    int status;

    plan.ht.in = *in;
    status = stage_launch(ep, &plan, RY_FAR_PLAN, stream);
    if (status == RY_OK && ep->far.n)
        status = ry_far_post(ep, &plan, RY_FAR_PLAN, call, stream);
    if (status == RY_OK && ep->far.n)
        status = ry_far_arrive(ep, &plan, RY_FAR_PLAN, call, stream);
    return status;
}

static int dispatch(ry_gpu_ep *ep, const ry_ep_input *in, ry_ep_output *out, const uint32_t **rows,
                    int phase, uint64_t call, void *stream)
{
    union ry_gpu_args a = args_of(ep, K_DISPATCH, call, phase);
    bool ll = ep->attr.ep.mode == RY_EP_LL;
    int status = RY_OK;

    if (in) {
        input_fill(ll ? &a.ll.in : &a.ht.in, in);
        if (ep->far.n)
            status = ry_far_room(ep, call, stream);
        if (status == RY_OK && !ll)
            status = ht_plan(ep, &a.ht.in, call, stream);
    }
    if (out) {
        if (ll)
            ll_output(&a.ll, out);
        else
            ht_output(&a.ht, out);
        *rows = ll ? a.ll.rows : a.ht.rows;
    }
    return status == RY_OK ? stage_run(ep, &a, RY_FAR_DISPATCH, phase, call, stream) : status;
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
    status =
        dispatch(ep, sends ? in : NULL, receives ? out : NULL, rows_device, phase, call, stream);
    if (status != RY_OK)
        return status;
    ep->dispatch_sent += sends;
    ep->dispatch_received += receives;
    return RY_OK;
}

static int combine(ry_gpu_ep *ep, const void *y, size_t y_stride, void *out, size_t out_stride,
                   int phase, uint64_t call, void *stream)
{
    union ry_gpu_args a = args_of(ep, K_COMBINE, call, phase);

    if (ep->attr.ep.mode == RY_EP_LL) {
        a.ll.y = y;
        a.ll.y_stride = y_stride;
        a.ll.out = out;
        a.ll.out_stride = out_stride;
    } else {
        a.ht.y = y;
        a.ht.y_stride = y_stride;
        a.ht.out = out;
        a.ht.out_stride = out_stride;
    }
    return stage_run(ep, &a, RY_FAR_COMBINE, phase, call, stream);
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
        status = combine(ep, y, y_stride, out, out_stride, phase, call, stream);
    if (status != RY_OK)
        return status;
    ep->combine_sent += sends;
    ep->combine_received += receives;
    return RY_OK;
}
