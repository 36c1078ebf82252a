/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda/yard.h"

#include <string.h>

#include "core/token.h"
#include "cuda/ep_far.h"
#include "cuda/yard_check.h"

enum { WRONG_BYTES = 4096 * 4 }; /* a count, and one for each expert of a PE */

static struct check_job job_of(const struct yard *y, uint32_t pe)
{
    struct check_job j;

    memset(&j, 0, sizeof(j));
    j.place.experts = y->attr.experts;
    j.place.pes = y->pes;
    j.place.nodes = y->nodes;
    j.seed = y->seed;
    j.row_bytes = y->row_bytes;
    j.pe = pe;
    j.hidden = y->attr.hidden;
    j.topk = y->attr.topk;
    j.tokens_max = y->attr.tokens_max;
    j.fp8 = y->attr.dtype == RY_FP8;
    j.scale_kind = (int)y->attr.scale;
    j.ht = y->attr.mode == RY_EP_HT;
    j.idx_bytes = y->idx_bytes;
    return j;
}

static void pe_open(struct yard *y, uint32_t p)
{
    struct yard_pe *e = &y->pe[p];
    const ry_ep_attr *a = &y->attr;
    uint64_t pairs = (uint64_t)a->tokens_max * a->topk,
             values = (uint64_t)a->tokens_max * a->hidden;

    CHECK_CUDA(cudaStreamCreateWithFlags(&e->stream, cudaStreamNonBlocking));
    CHECK_CUDA(cudaEventCreate(&e->begin));
    CHECK_CUDA(cudaEventCreate(&e->end));
    CHECK_CUDA(cudaMalloc(&e->wrong, WRONG_BYTES));
    CHECK_CUDA(cudaMalloc(&e->x, values * 2));
    CHECK_CUDA(cudaMalloc(&e->out, values * 2));
    CHECK_CUDA(cudaMalloc(&e->decoded, values * 2));
    CHECK_CUDA(cudaMalloc(&e->expect_row, a->tokens_max * y->row_bytes));
    CHECK_CUDA(cudaMalloc(&e->y, y->y_rows * a->hidden * 2));
    CHECK_CUDA(cudaMalloc(&e->ids, pairs * 8));
    CHECK_CUDA(cudaMalloc(&e->weights, pairs * 4));
    e->ids_host = (int32_t *)malloc(pairs * 4);
    e->weights_host = (float *)malloc(pairs * 4);
    CHECK_CUDA(cudaDeviceSynchronize());
}

/* All that needs no exchange. */
static ry_gpu_ep_attr yard_begin(struct yard *y, const ry_ep_attr *attr, uint32_t pes, int devices,
                                 uint32_t sms, int idx_bytes)
{
    struct ry_place place = {attr->experts, pes, 1};
    ry_gpu_ep_attr a;

    memset(y, 0, sizeof(*y));
    y->attr = *attr;
    y->pes = pes;
    y->nodes = 1;
    y->sms = sms;
    y->idx_bytes = idx_bytes;
    y->row_bytes = ry_row_bytes(attr->hidden, attr->dtype == RY_FP8, (int)attr->scale);
    y->y_rows = (uint64_t)pes * attr->tokens_max *
                (attr->mode == RY_EP_LL ? ry_place_expert_count_max(&place) : 1);
    for (int d = 0; d < devices; d++) {
        CHECK_CUDA(cudaSetDevice(d));
        for (int o = 0; o < devices; o++)
            if (o != d && cudaDeviceEnablePeerAccess(o, 0) != cudaSuccess)
                (void)cudaGetLastError(); /* already on */
    }
    CHECK_CUDA(cudaHostAlloc(&y->from, sizeof(*y->from), cudaHostAllocPortable));
    memset(&a, 0, sizeof(a));
    a.ep = *attr;
    a.n_pes = pes;
    a.sms = sms;
    for (uint32_t p = 0; p < pes; p++) {
        y->pe[p].device = (int)p % devices;
        CHECK_CUDA(cudaSetDevice(y->pe[p].device));
        pe_open(y, p);
    }
    return a;
}

void yard_open(struct yard *y, const ry_ep_attr *attr, uint32_t pes, int devices, uint32_t sms,
               int idx_bytes, uint64_t timeout_ns)
{
    ry_gpu_ep_attr a = yard_begin(y, attr, pes, devices, sms, idx_bytes);
    void *heaps[RY_GPU_PES_MAX];

    a.timeout_ns = timeout_ns;
    for (uint32_t p = 0; p < pes; p++) {
        CHECK_CUDA(cudaSetDevice(y->pe[p].device));
        CHECK_CUDA(cudaMalloc(&y->pe[p].heap, ry_gpu_ep_heap_bytes(&a)));
        CHECK_CUDA(cudaMemset(y->pe[p].heap, 0, ry_gpu_ep_heap_bytes(&a)));
        CHECK_CUDA(cudaDeviceSynchronize());
        heaps[p] = y->pe[p].heap;
    }
    for (uint32_t p = 0; p < pes; p++) {
        a.pe = p;
        a.device = y->pe[p].device;
        CHECK_RY(ry_gpu_ep_create(&a, heaps, &y->pe[p].ep));
    }
}

void yard_open_far(struct yard *y, const ry_ep_attr *attr, uint32_t pes, int devices, uint32_t sms,
                   const struct ry_gpu_fabric_attr *f)
{
    ry_gpu_ep_attr a = yard_begin(y, attr, pes, devices, sms, 4);
    struct ry_gpu_fabric_attr fabric = *f;

    a.n_nodes = y->nodes = f->nodes ? f->nodes : 1;
    a.timeout_ns = f->timeout_ns;
    fabric.pes = pes;
    fabric.devices = (uint32_t)devices;
    fabric.heap_bytes = (1 << 20) + ry_gpu_ep_far_heap_bytes(&a, f->channels, pes - 1);
    fabric.own_bytes = ry_gpu_ep_far_own_bytes(&a, f->channels);
    CHECK_RY(ry_gpu_fabric_open(&fabric, &y->fabric));
    for (uint32_t p = 0; p < pes; p++) {
        const struct ry_gpu_world *w = ry_gpu_fabric_world(y->fabric, p);
        struct ry_gpu_ep_place at = {w, ry_gpu_fabric_heap(y->fabric, p),
                                     ry_gpu_fabric_own(y->fabric, p), w->status, f->ports};

        a.pe = p;
        a.device = y->pe[p].device;
        CHECK_RY(ry_gpu_ep_create_far(&a, &at, &y->pe[p].ep));
    }
}

void yard_close(struct yard *y)
{
    yard_sync(y);
    for (uint32_t p = 0; p < y->pes; p++)
        ry_gpu_ep_destroy(y->pe[p].ep);
    if (y->fabric)
        ry_gpu_fabric_close(y->fabric); /* before anything is freed: engines run until then */
    CHECK_CUDA(cudaFreeHost(y->from));
    for (uint32_t p = 0; p < y->pes; p++) {
        struct yard_pe *e = &y->pe[p];
        void *blocks[] = {e->heap, e->x,   e->out,     e->decoded, e->expect_row,
                          e->y,    e->ids, e->weights, e->wrong};

        CHECK_CUDA(cudaSetDevice(e->device));
        for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++)
            CHECK_CUDA(cudaFree(blocks[i]));
        CHECK_CUDA(cudaEventDestroy(e->begin));
        CHECK_CUDA(cudaEventDestroy(e->end));
        CHECK_CUDA(cudaStreamDestroy(e->stream));
        free(e->ids_host);
        free(e->weights_host);
    }
}

/* Distinct choices, one in sixteen -1; every eighth choice falls on the first few experts. */
static void choose(const struct yard *y, int32_t *ids, float *weights, uint64_t h)
{
    for (uint32_t k = 0; k < y->attr.topk; k++) {
        uint32_t e;
        bool again;

        do {
            h = ry_mix64(h);
            e = (uint32_t)((h >> 16) % y->attr.experts);
            if (h % 8 == 0 && !y->plain)
                e %= 1 + y->attr.experts / 16;
            again = false;
            for (uint32_t i = 0; i < k; i++)
                again |= ids[i] == (int32_t)e;
        } while (again);
        ids[k] = (h >> 8) % 16 == 0 && !y->plain ? -1 : (int32_t)e;
        weights[k] = (float)(int32_t)(h >> 40 & 0xffff) / 65536.0f;
    }
}

void yard_draw(struct yard *y, uint64_t seed, uint32_t tokens, int uneven, const int32_t *ids,
               uint32_t n_ids)
{
    y->seed = seed;
    for (uint32_t p = 0; p < y->pes; p++) {
        struct yard_pe *e = &y->pe[p];
        uint32_t topk = y->attr.topk;
        int64_t *wide = (int64_t *)malloc((size_t)(tokens + 1) * topk * 8);
        struct check_job j = job_of(y, p);
        size_t pairs;

        e->tokens = tokens;
        if (uneven)
            e->tokens = (uint32_t)(ry_mix64(seed + p) % (tokens + 1));
        pairs = (size_t)e->tokens * topk;
        for (uint32_t t = 0; t < e->tokens; t++) {
            choose(y, e->ids_host + t * topk, e->weights_host + t * topk,
                   ry_mix64(seed * 1000003 + p) + t);
            if (ids)
                memcpy(e->ids_host + t * topk, ids + (ry_mix64(seed + p) + t) % n_ids * topk,
                       topk * 4);
        }
        for (size_t i = 0; i < pairs; i++)
            wide[i] = e->ids_host[i];
        CHECK_CUDA(cudaSetDevice(e->device));
        CHECK_CUDA(cudaMemcpyAsync(e->ids, y->idx_bytes == 8 ? (void *)wide : e->ids_host,
                                   pairs * y->idx_bytes, cudaMemcpyHostToDevice, e->stream));
        CHECK_CUDA(cudaMemcpyAsync(e->weights, e->weights_host, pairs * 4, cudaMemcpyHostToDevice,
                                   e->stream));
        check_draw(&j, e->x, e->tokens, e->stream);
        check_encode(&j, e->x, e->expect_row, e->decoded, e->tokens, e->stream);
        CHECK_CUDA(cudaStreamSynchronize(e->stream));
        free(wide);
        e->in.x = e->x;
        e->in.x_stride = 2ull * y->attr.hidden;
        e->in.topk_idx = e->ids;
        e->in.topk_idx_stride = (size_t)topk * y->idx_bytes;
        e->in.idx_bytes = y->idx_bytes;
        e->in.topk_weight = e->weights;
        e->in.topk_weight_stride = (size_t)topk * 4;
        e->in.tokens = e->tokens;
    }
}

void yard_poison(struct yard *y)
{
    for (uint32_t p = 0; p < y->pes; p++) {
        struct yard_pe *e = &y->pe[p];

        CHECK_CUDA(cudaSetDevice(e->device));
        CHECK_CUDA(cudaMemsetAsync(e->out, 0xa5, (size_t)y->attr.tokens_max * y->attr.hidden * 2,
                                   e->stream));
        CHECK_CUDA(cudaMemsetAsync(e->y, 0xa5, y->y_rows * y->attr.hidden * 2, e->stream));
        if (e->got.x) /* these buffers wait for the next dispatch but one */
            CHECK_CUDA(
                cudaMemsetAsync((void *)e->got.x, 0xa5, y->y_rows * e->got.x_stride, e->stream));
    }
}

void yard_dispatch(struct yard *y, int phase)
{
    for (uint32_t p = 0; p < y->pes; p++) {
        struct yard_pe *e = &y->pe[p];

        CHECK_CUDA(cudaSetDevice(e->device));
        CHECK_RY(ry_gpu_ep_dispatch(e->ep, &e->in, &e->got, &e->rows, phase, e->stream));
    }
}

void yard_experts(struct yard *y)
{
    for (uint32_t p = 0; p < y->pes; p++) {
        struct yard_pe *e = &y->pe[p];
        struct check_job j = job_of(y, p);

        CHECK_CUDA(cudaSetDevice(e->device));
        check_experts(&j, &e->got, e->rows, e->y, e->stream);
    }
}

void yard_combine(struct yard *y, int phase)
{
    for (uint32_t p = 0; p < y->pes; p++) {
        struct yard_pe *e = &y->pe[p];

        CHECK_CUDA(cudaSetDevice(e->device));
        CHECK_RY(ry_gpu_ep_combine(e->ep, e->y, 2ull * y->attr.hidden, e->out,
                                   2ull * y->attr.hidden, phase, e->stream));
    }
}

void yard_sync(struct yard *y)
{
    for (uint32_t p = 0; p < y->pes; p++) {
        CHECK_CUDA(cudaSetDevice(y->pe[p].device));
        CHECK_CUDA(cudaStreamSynchronize(y->pe[p].stream));
    }
}

void yard_mark(struct yard *y, int end)
{
    for (uint32_t p = 0; p < y->pes; p++) {
        CHECK_CUDA(cudaSetDevice(y->pe[p].device));
        CHECK_CUDA(cudaEventRecord(end ? y->pe[p].end : y->pe[p].begin, y->pe[p].stream));
    }
}

float yard_took_us(struct yard *y)
{
    float longest = 0;

    yard_sync(y);
    for (uint32_t p = 0; p < y->pes; p++) {
        float ms;

        CHECK_CUDA(cudaEventElapsedTime(&ms, y->pe[p].begin, y->pe[p].end));
        longest = ms * 1000 > longest ? ms * 1000 : longest;
    }
    return longest;
}

static void count_begin(struct yard_pe *e)
{
    CHECK_CUDA(cudaSetDevice(e->device));
    CHECK_CUDA(cudaMemsetAsync(e->wrong, 0, WRONG_BYTES, e->stream));
}

static uint32_t counted(struct yard_pe *e)
{
    uint32_t n;

    CHECK_CUDA(cudaMemcpyAsync(&n, e->wrong, 4, cudaMemcpyDeviceToHost, e->stream));
    CHECK_CUDA(cudaStreamSynchronize(e->stream));
    return n;
}

uint32_t yard_check_dispatch(struct yard *y)
{
    struct check_sources *from = y->from;
    uint32_t sum = 0;

    yard_sync(y);
    for (uint32_t p = 0; p < y->pes; p++) {
        from->rows[p] = y->pe[p].expect_row;
        from->ids[p] = y->pe[p].ids;
        from->weights[p] = y->pe[p].weights;
        from->tokens[p] = y->pe[p].tokens;
    }
    for (uint32_t p = 0; p < y->pes; p++) {
        struct yard_pe *e = &y->pe[p];
        struct check_job j = job_of(y, p);

        count_begin(e);
        check_dispatch(&j, from, &e->got, e->rows, e->wrong, e->stream);
        sum += counted(e);
    }
    return sum;
}

uint32_t yard_check_combine(struct yard *y)
{
    uint32_t sum = 0;

    for (uint32_t p = 0; p < y->pes; p++) {
        struct yard_pe *e = &y->pe[p];
        struct check_job j = job_of(y, p);

        count_begin(e);
        check_combine(&j, e->decoded, e->ids, e->weights, e->out, e->tokens, e->wrong, e->stream);
        sum += counted(e);
    }
    return sum;
}

uint32_t yard_check_codecs(void)
{
    uint32_t *wrong, n;

    CHECK_CUDA(cudaMalloc(&wrong, 4));
    CHECK_CUDA(cudaMemset(wrong, 0, 4));
    check_codecs(wrong);
    CHECK_CUDA(cudaMemcpy(&n, wrong, 4, cudaMemcpyDeviceToHost));
    CHECK_CUDA(cudaFree(wrong));
    return n;
}
