/* SPDX-License-Identifier: Apache-2.0 */
/* Dispatch and combine on the GPU: bit for bit what the host's reference and a plain recomputation
 * give, for every dtype, scale and index width, odd shapes, split phases, graphs, bad indices and a
 * peer that never comes. usage: test_gpu_ep [ITERATIONS [IDS_FILE TOPK EXPERTS]] */
#include <string.h>

#include "core/token.h"
#include "cuda/args.h"
#include "cuda/options.h"
#include "cuda/yard.h"

static uint64_t failures;

static void expect(uint64_t wrong, const char *what, const ry_ep_attr *a, uint32_t pes)
{
    if (!wrong)
        return;
    failures++;
    printf("FAIL %s: %llu wrong (mode %d dtype %d scale %d, %u experts top-%u, hidden %u, %u "
           "tokens, %u pes)\n",
           what, (unsigned long long)wrong, a->mode, a->dtype, a->scale, a->experts, a->topk,
           a->hidden, a->tokens_max, pes);
}

static ry_ep_attr attr_of(ry_ep_mode mode, ry_dtype dtype, ry_scale scale, uint32_t experts,
                          uint32_t topk, uint32_t hidden, uint32_t tokens)
{
    ry_ep_attr a;

    memset(&a, 0, sizeof(a));
    a.experts = experts;
    a.topk = topk;
    a.hidden = hidden;
    a.tokens_max = tokens;
    a.mode = mode;
    a.dtype = dtype;
    a.scale = scale;
    return a;
}

static void statuses(struct yard *y, int want)
{
    for (uint32_t p = 0; p < y->pes; p++) {
        int got = ry_gpu_ep_status(y->pe[p].ep);

        if (got != want) {
            failures++;
            printf("FAIL status of pe %u: %d %s, wanted %d\n", p, got, ry_last_error(), want);
        }
    }
}

static void once(struct yard *y, int split)
{
    yard_poison(y);
    if (split) {
        yard_dispatch(y, RY_EP_SEND);
        yard_dispatch(y, RY_EP_RECV);
    } else {
        yard_dispatch(y, RY_EP_BOTH);
    }
    yard_experts(y);
    if (split) {
        yard_combine(y, RY_EP_SEND);
        yard_combine(y, RY_EP_RECV);
    } else {
        yard_combine(y, RY_EP_BOTH);
    }
}

/* Shapes small enough for the host's reference. */
static void test_reference(int devices)
{
    static const uint32_t shapes[][5] = {/* experts topk hidden tokens pes */
                                         {13, 4, 256, 9, 3},  {8, 8, 128, 33, 2},
                                         {5, 1, 384, 1, 1},   {64, 6, 1024, 70, 2},
                                         {3, 2, 2048, 17, 4}, {288, 8, 7168, 5, 2}};

    for (int i = 0; i < 6 * 2 * 4; i++) {
        const uint32_t *s = shapes[i / 8];
        int kind = i % 4;
        ry_ep_attr a = attr_of((ry_ep_mode)(i / 4 % 2), kind == 3 ? RY_BF16 : RY_FP8,
                               (ry_scale)(kind % 3), s[0], s[1], s[2], s[3]);
        uint32_t pes = s[4];
        struct yard y;

        yard_open(&y, &a, pes, devices, 24, i % 3 ? 4 : 8, 0);
        for (uint64_t seed = 0; seed < 4; seed++) {
            yard_draw(&y, seed * 100 + i, a.tokens_max, seed > 0, NULL, 0);
            once(&y, seed & 1);
            expect(yard_reference(&y), "host reference", &a, pes);
            expect(yard_check_dispatch(&y), "dispatch", &a, pes);
            expect(yard_check_combine(&y), "combine", &a, pes);
        }
        statuses(&y, RY_OK);
        yard_close(&y);
    }
    printf("reference: 48 jobs of 4 rounds, %llu failures\n", (unsigned long long)failures);
}

static void test_odd_hidden(int devices)
{
    ry_ep_attr a = attr_of(RY_EP_LL, RY_BF16, RY_SCALE_F32, 7, 3, 8, 20);

    for (int mode = 0; mode < 2; mode++) {
        for (uint32_t hidden = 8; hidden < 4200; hidden = hidden * 3 + 8) {
            struct yard y;

            a.mode = (ry_ep_mode)mode;
            a.hidden = hidden;
            yard_open(&y, &a, 2, devices, 7, 4, 0);
            yard_draw(&y, hidden, 20, 0, NULL, 0);
            once(&y, 0);
            expect(yard_reference(&y), "odd hidden", &a, 2);
            yard_close(&y);
        }
    }
}

/* Many rounds of a real shape, checked on the GPU. */
static void test_rounds(int devices, ry_ep_mode mode, int kind, uint32_t rounds, const int32_t *ids,
                        uint32_t n_ids, uint32_t topk, uint32_t experts)
{
    uint32_t tokens = mode == RY_EP_LL ? 128 : 512;
    ry_ep_attr a = attr_of(mode, kind == 3 ? RY_BF16 : RY_FP8, (ry_scale)(kind % 3), experts, topk,
                           7168, tokens);
    uint64_t before = failures;
    struct yard y;

    yard_open(&y, &a, 2, devices, 48, 4, 0);
    for (uint32_t r = 0; r < rounds; r++) {
        yard_draw(&y, r, tokens, r % 3 == 2, ids, n_ids);
        once(&y, r % 5 == 4);
        expect(yard_check_dispatch(&y), "rounds: dispatch", &a, 2);
        expect(yard_check_combine(&y), "rounds: combine", &a, 2);
        if (failures > before + 3)
            break;
    }
    statuses(&y, RY_OK);
    yard_close(&y);
    printf("rounds: %s kind %d, %u rounds of %u tokens, %s routing, %llu failures\n",
           mode == RY_EP_LL ? "ll" : "ht", kind, rounds, tokens, ids ? "recorded" : "random",
           (unsigned long long)(failures - before));
}

/* A captured pair of rounds, replayed: generations go on counting. */
static void test_graph(int devices, ry_ep_mode mode)
{
    ry_ep_attr a = attr_of(mode, RY_FP8, RY_SCALE_F32, 32, 4, 1024, 64);
    cudaGraphExec_t exec[2];
    struct yard y;

    yard_open(&y, &a, 2, devices, 24, 8, 0);
    yard_draw(&y, 5, 64, 0, NULL, 0);
    once(&y, 0); /* loads every kernel */
    yard_sync(&y);
    for (uint32_t p = 0; p < 2; p++) {
        struct yard_pe *e = &y.pe[p];
        cudaGraph_t graph;

        CHECK_CUDA(cudaSetDevice(e->device));
        CHECK_CUDA(cudaStreamBeginCapture(e->stream, cudaStreamCaptureModeThreadLocal));
        for (int i = 0; i < 2; i++) {
            CHECK_RY(ry_gpu_ep_dispatch(e->ep, &e->in, &e->got, &e->rows, RY_EP_BOTH, e->stream));
            CHECK_RY(ry_gpu_ep_combine(e->ep, e->y, 2048, e->out, 2048, RY_EP_BOTH, e->stream));
        }
        CHECK_CUDA(cudaStreamEndCapture(e->stream, &graph));
        CHECK_CUDA(cudaGraphInstantiate(&exec[p], graph, 0));
        CHECK_CUDA(cudaGraphDestroy(graph));
    }
    for (int r = 0; r < 20; r++) {
        yard_draw(&y, 100 + r, 64, 0, NULL, 0);
        for (uint32_t p = 0; p < 2; p++) {
            CHECK_CUDA(cudaSetDevice(y.pe[p].device));
            CHECK_CUDA(cudaGraphLaunch(exec[p], y.pe[p].stream));
        }
        yard_sync(&y);
        expect(yard_check_dispatch(&y), "graph: dispatch", &a, 2);
    }
    statuses(&y, RY_OK);
    for (uint32_t p = 0; p < 2; p++)
        CHECK_CUDA(cudaGraphExecDestroy(exec[p]));
    yard_close(&y);
}

static void test_bad_index(int devices, ry_ep_mode mode)
{
    ry_ep_attr a = attr_of(mode, RY_BF16, RY_SCALE_F32, 16, 2, 128, 8);
    int32_t bad[2][2] = {{3, 16}, {5, 5}};

    for (int i = 0; i < 2; i++) {
        struct yard y;

        yard_open(&y, &a, 2, devices, 8, 4, 0);
        yard_draw(&y, 1, 8, 0, NULL, 0);
        CHECK_CUDA(cudaMemcpy((int32_t *)y.pe[1].ids + 6, bad[i], 8, cudaMemcpyHostToDevice));
        once(&y, 0);
        yard_sync(&y);
        if (ry_gpu_ep_status(y.pe[1].ep) != RY_ERR_INVALID ||
            !strstr(ry_last_error(), "token 3, k 1") || ry_gpu_ep_status(y.pe[0].ep) != RY_OK) {
            failures++;
            printf("FAIL bad index: %s\n", ry_last_error());
        }
        yard_close(&y);
    }
}

/* A peer that never comes: the kernel ends by its deadline, and the status names it. */
static void test_absent_peer(int devices, ry_ep_mode mode)
{
    ry_ep_attr a = attr_of(mode, RY_FP8, RY_SCALE_UE8M0, 16, 2, 256, 8);
    cudaEvent_t begin, end;
    struct yard_pe *e;
    struct yard y;
    float ms;

    yard_open(&y, &a, 2, devices, 8, 4, 50000000);
    yard_draw(&y, 1, 8, 0, NULL, 0);
    e = &y.pe[1];
    CHECK_CUDA(cudaSetDevice(e->device));
    CHECK_CUDA(cudaEventCreate(&begin));
    CHECK_CUDA(cudaEventCreate(&end));
    CHECK_CUDA(cudaEventRecord(begin, e->stream));
    CHECK_RY(ry_gpu_ep_dispatch(e->ep, &e->in, &e->got, &e->rows, RY_EP_BOTH, e->stream));
    CHECK_CUDA(cudaEventRecord(end, e->stream));
    CHECK_CUDA(cudaStreamSynchronize(e->stream));
    CHECK_CUDA(cudaEventElapsedTime(&ms, begin, end));
    if (ry_gpu_ep_status(e->ep) != RY_ERR_TIMEOUT || !strstr(ry_last_error(), "pe 0") || ms < 45 ||
        ms > 500) {
        failures++;
        printf("FAIL absent peer: %.1f ms, %s\n", ms, ry_last_error());
    } else {
        printf("absent peer: %.1f ms, %s\n", ms, ry_last_error());
    }
    yard_close(&y);
}

int main(int argc, char **argv)
{
    struct options o = options_read(argc, argv, 50);
    uint32_t rounds = o.count;
    int devices = o.devices;

    if (!devices)
        return 77;
    ry_gpu_print_kernels();
    if (yard_check_codecs()) {
        failures++;
        printf("FAIL codecs\n");
    }
    test_reference(devices);
    test_odd_hidden(devices);
    for (int mode = 0; mode < 2; mode++) {
        test_graph(devices, (ry_ep_mode)mode);
        test_bad_index(devices, (ry_ep_mode)mode);
        test_absent_peer(devices, (ry_ep_mode)mode);
    }
    for (int kind = 0; kind < 4 && rounds; kind++) {
        test_rounds(devices, RY_EP_LL, kind, rounds, NULL, 0, 8, 288);
        test_rounds(devices, RY_EP_HT, kind, rounds, NULL, 0, 8, 256);
    }
    if (o.ids) {
        test_rounds(devices, RY_EP_LL, 0, rounds, o.ids, o.n_ids, o.topk, o.experts);
        test_rounds(devices, RY_EP_HT, 3, rounds, o.ids, o.n_ids, o.topk, o.experts);
        free(o.ids);
    }
    printf("%s: %llu failures\n", failures ? "FAIL" : "ok", (unsigned long long)failures);
    return failures != 0;
}
