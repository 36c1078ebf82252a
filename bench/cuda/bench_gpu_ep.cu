/* SPDX-License-Identifier: Apache-2.0 */
/* Dispatch and combine on two GPUs over NVLink. Every figure is a median over graph replays, taken
 * between events before and after the kernels of one call (launch gaps included; an empty kernel
 * between the same events is printed beside them), the slower PE of the two.
 * usage: bench_gpu_ep [REPLAYS [ll|ht]] (ll, ht: only what is compared with others over NVLink) */
#include <string.h>

#include "cuda/ep_far.h"
#include "cuda/yard.h"
#include "gemm.h"

enum { ROUNDS = 16, PES = 2 };

static int compare(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

struct series {
    float *us;
    uint32_t n, room;
};

static void add(struct series *s, float us)
{
    if (s->n == s->room) {
        s->room = s->room ? 2 * s->room : 1024;
        s->us = (float *)realloc(s->us, s->room * sizeof(float));
    }
    s->us[s->n++] = us;
}

static float at(struct series *s, double q)
{
    if (!s->n)
        return -1;
    qsort(s->us, s->n, sizeof(float), compare);
    return s->us[(uint32_t)(q * (s->n - 1))];
}

/* Rows that a PE sends to others (`far`) and to itself. */
static void count_rows(const struct yard *y, uint32_t p, uint64_t *far, uint64_t *near)
{
    uint32_t local = y->attr.experts / y->pes, topk = y->attr.topk;

    *far = *near = 0;
    for (uint32_t t = 0; t < y->pe[p].tokens; t++) {
        uint64_t seen = 0;

        for (uint32_t k = 0; k < topk; k++) {
            uint32_t to = (uint32_t)y->pe[p].ids_host[t * topk + k] / local;

            if (y->attr.mode == RY_EP_HT && seen >> to & 1)
                continue;
            seen |= 1ull << to;
            *(to == p ? near : far) += 1;
        }
    }
}

static uint32_t wrong_in_all;
static cudaEvent_t events[PES][ROUNDS][3];

/* ROUNDS dispatches and combines in a row. `marks`: events around each call; else only before the
 * third round and behind the last, so that nothing stands between two calls. */
static cudaGraphExec_t capture(struct yard *y, uint32_t p, int marks)
{
    struct yard_pe *e = &y->pe[p];
    uint64_t row = 2ull * y->attr.hidden;
    cudaGraphExec_t exec;
    cudaGraph_t graph;

    CHECK_CUDA(cudaSetDevice(e->device));
    CHECK_CUDA(cudaStreamBeginCapture(e->stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < ROUNDS; i++) {
        if (marks || i == 2)
            CHECK_CUDA(
                cudaEventRecordWithFlags(events[p][i][0], e->stream, cudaEventRecordExternal));
        CHECK_RY(ry_gpu_ep_dispatch(e->ep, &e->in, &e->got, &e->rows, RY_EP_BOTH, e->stream));
        if (marks)
            CHECK_CUDA(
                cudaEventRecordWithFlags(events[p][i][1], e->stream, cudaEventRecordExternal));
        CHECK_RY(ry_gpu_ep_combine(e->ep, e->y, row, e->out, row, RY_EP_BOTH, e->stream));
        if (marks || i == ROUNDS - 1)
            CHECK_CUDA(
                cudaEventRecordWithFlags(events[p][i][2], e->stream, cudaEventRecordExternal));
    }
    CHECK_CUDA(cudaStreamEndCapture(e->stream, &graph));
    CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CHECK_CUDA(cudaGraphDestroy(graph));
    return exec;
}

static void launch(struct yard *y, cudaGraphExec_t *exec)
{
    for (uint32_t p = 0; p < PES; p++) {
        CHECK_CUDA(cudaSetDevice(y->pe[p].device));
        CHECK_CUDA(cudaGraphLaunch(exec[p], y->pe[p].stream));
    }
    yard_sync(y);
}

/* Time of a dispatch and its combine, of many in a row: the slower PE. */
static float replay_pairs(struct yard *y, cudaGraphExec_t *exec)
{
    float longest = 0;

    launch(y, exec);
    for (uint32_t p = 0; p < PES; p++) {
        float ms;

        CHECK_CUDA(cudaEventElapsedTime(&ms, events[p][2][0], events[p][ROUNDS - 1][2]));
        longest = ms > longest ? ms : longest;
    }
    return longest * 1000 / (ROUNDS - 2);
}

static void replay(struct yard *y, cudaGraphExec_t *exec, struct series *out)
{
    launch(y, exec);
    for (int i = 2; i < ROUNDS; i++) {
        float us[PES][2];

        for (uint32_t p = 0; p < PES; p++)
            for (int k = 0; k < 2; k++) {
                CHECK_CUDA(cudaEventElapsedTime(&us[p][k], events[p][i][k], events[p][i][k + 1]));
                us[p][k] *= 1000;
            }
        for (int k = 0; k < 2; k++)
            add(&out[k], us[0][k] > us[1][k] ? us[0][k] : us[1][k]);
    }
}

static void yard_round(struct yard *y, uint32_t tokens, uint32_t *wrong)
{
    yard_draw(y, 42, tokens, 0, NULL, 0);
    yard_poison(y);
    yard_dispatch(y, RY_EP_BOTH);
    yard_experts(y);
    yard_combine(y, RY_EP_BOTH);
    *wrong += yard_check_dispatch(y) + yard_check_combine(y);
}

/* The yard of one line of the table; f NULL: over NVLink. */
static void yard_of(struct yard *y, ry_ep_mode mode, ry_dtype dtype, ry_scale scale,
                    uint32_t tokens, uint32_t experts, uint32_t sms, int devices,
                    const struct ry_gpu_fabric_attr *f)
{
    ry_ep_attr a;

    memset(&a, 0, sizeof(a));
    a.experts = experts;
    a.topk = 8;
    a.hidden = 7168;
    a.tokens_max = tokens;
    a.mode = mode;
    a.dtype = dtype;
    a.scale = scale;
    if (f)
        yard_open_far(y, &a, PES, devices, sms, f);
    else
        yard_open(y, &a, PES, devices, sms, 8, 0);
    y->plain = 1;
}

static void bench(ry_ep_mode mode, ry_dtype dtype, ry_scale scale, uint32_t tokens,
                  uint32_t experts, uint32_t sms, int replays, int devices,
                  const struct ry_gpu_fabric_attr *f)
{
    static const char *const kinds[] = {"fp8 f32", "fp8 pow2", "fp8 ue8m0"};
    struct series s[2], pairs;
    cudaGraphExec_t exec[PES], chain[PES];
    uint64_t far, near;
    uint32_t wrong = 0;
    struct yard y;

    memset(s, 0, sizeof(s));
    memset(&pairs, 0, sizeof(pairs));
    yard_of(&y, mode, dtype, scale, tokens, experts, sms, devices, f);
    yard_round(&y, tokens, &wrong);
    for (uint32_t p = 0; p < PES; p++) {
        exec[p] = capture(&y, p, 1);
        chain[p] = capture(&y, p, 0);
    }
    for (int r = 0; r < replays + 2; r++) {
        struct series none[2];
        float us = replay_pairs(&y, chain);

        memset(none, 0, sizeof(none));
        replay(&y, exec, r < 2 ? none : s);
        if (r >= 2)
            add(&pairs, us);
    }
    for (uint32_t p = 0; p < PES; p++)
        wrong += ry_gpu_ep_status(y.pe[p].ep) != RY_OK;
    wrong_in_all += wrong;
    count_rows(&y, 0, &far, &near);
    for (int k = 0; k < 2; k++) {
        double bytes = k == 0 ? (double)y.row_bytes : 2.0 * y.attr.hidden;
        double us = at(&s[k], 0.5);

        printf("| %s%s | %s | %s | %3u | %6.1f | %6.1f | %6.1f | %5.0f | %5.0f | %u |\n",
               mode == RY_EP_LL ? "ll" : "ht", f ? " by channels" : "",
               k == 0 ? "dispatch" : "combine", dtype == RY_BF16 || k == 1 ? "bf16" : kinds[scale],
               sms, us, at(&s[k], 0.1), at(&s[k], 0.99), (double)(far + near) * bytes / us / 1e3,
               (double)far * bytes / us / 1e3, wrong);
        free(s[k].us);
    }
    printf("| %s%s | both, in a row | | %3u | %6.1f | %6.1f | %6.1f | | | |\n",
           mode == RY_EP_LL ? "ll" : "ht", f ? " by channels" : "", sms, at(&pairs, 0.5),
           at(&pairs, 0.1), at(&pairs, 0.99));
    free(pairs.us);
    for (uint32_t p = 0; p < PES && !f; p++) { /* beside engines nothing may be freed */
        CHECK_CUDA(cudaGraphExecDestroy(exec[p]));
        CHECK_CUDA(cudaGraphExecDestroy(chain[p]));
    }
    yard_close(&y);
}

/* Through the emulated NIC of two ports of 50 GB/s; and what failover costs where nothing fails:
 * graphs with and without it in turn, in swapping order. */
static void bench_far(ry_ep_mode mode, uint32_t tokens, uint32_t experts, int replays, int devices)
{
    struct ry_gpu_fabric_attr f;
    cudaGraphExec_t exec[2][PES];
    struct series ratio;
    uint32_t wrong = 0;
    struct yard y;

    memset(&f, 0, sizeof(f));
    memset(&ratio, 0, sizeof(ratio));
    f.ports = 2;
    f.channels = 4;
    f.depth = 1024;
    f.parts = 4;
    f.rate_bps = 50000000000ull;
    f.retry_ns = 50000;
    f.timeout_ns = 2000000000;
    f.failover = 1;
    f.event_ns = 300000;
    bench(mode, RY_FP8, RY_SCALE_F32, tokens, experts, 48, replays, devices, &f);
    yard_of(&y, mode, RY_FP8, RY_SCALE_F32, tokens, experts, 48, devices, &f);
    yard_round(&y, tokens, &wrong);
    for (int on = 0; on < 2; on++)
        for (uint32_t p = 0; p < PES; p++) {
            ry_gpu_ep_far_failover(y.pe[p].ep, on);
            exec[on][p] = capture(&y, p, 0);
        }
    for (int r = 0; r < 4 * replays; r++) {
        float us[2];

        for (int k = 0; k < 2; k++)
            us[(k + r) & 1] = replay_pairs(&y, exec[(k + r) & 1]);
        if (r >= 2)
            add(&ratio, us[1] / us[0]);
    }
    wrong_in_all += wrong;
    printf("failover on against off, %s by channels, %d pairs of blocks of %d: median %+.2f %%, %u "
           "wrong\n",
           mode == RY_EP_LL ? "ll" : "ht", 4 * replays - 2, ROUNDS - 2,
           100 * ((double)at(&ratio, 0.5) - 1), wrong);
    free(ratio.us);
    yard_close(&y);
}

/* The copy engine, both directions at once: what NVLink carries at best. */
static void bench_copy_engine(void)
{
    size_t bytes = 512u << 20;
    cudaStream_t stream[PES];
    cudaEvent_t begin[PES], end[PES];
    void *from[PES], *to[PES];

    for (int d = 0; d < PES; d++) {
        CHECK_CUDA(cudaSetDevice(d));
        if (cudaDeviceEnablePeerAccess(1 - d, 0) != cudaSuccess)
            (void)cudaGetLastError(); /* already on */
        CHECK_CUDA(cudaMalloc(&from[d], bytes));
        CHECK_CUDA(cudaMemset(from[d], 0x5a + d, bytes));
        CHECK_CUDA(cudaMalloc(&to[d], bytes));
        CHECK_CUDA(cudaStreamCreateWithFlags(&stream[d], cudaStreamNonBlocking));
        CHECK_CUDA(cudaEventCreate(&begin[d]));
        CHECK_CUDA(cudaEventCreate(&end[d]));
        CHECK_CUDA(cudaDeviceSynchronize());
    }
    for (int r = 0; r < 3; r++) {
        for (int d = 0; d < PES; d++) {
            CHECK_CUDA(cudaSetDevice(d));
            CHECK_CUDA(cudaEventRecord(begin[d], stream[d]));
            for (int i = 0; i < 8; i++)
                CHECK_CUDA(cudaMemcpyPeerAsync(to[1 - d], 1 - d, from[d], d, bytes, stream[d]));
            CHECK_CUDA(cudaEventRecord(end[d], stream[d]));
        }
        for (int d = 0; d < PES; d++)
            CHECK_CUDA(cudaStreamSynchronize(stream[d]));
    }
    for (int d = 0; d < PES; d++) {
        float ms;

        CHECK_CUDA(cudaEventElapsedTime(&ms, begin[d], end[d]));
        printf("copy engine, gpu %d out, both directions at once: %.0f GB/s\n", d,
               8.0 * (double)bytes / ms / 1e6);
        CHECK_CUDA(cudaSetDevice(d));
        CHECK_CUDA(cudaFree(from[d]));
        CHECK_CUDA(cudaFree(to[d]));
    }
}

static void bench_nothing(void)
{
    struct series s;
    cudaEvent_t e[2];
    cudaGraphExec_t exec;
    cudaGraph_t graph;
    cudaStream_t stream;

    memset(&s, 0, sizeof(s));
    CHECK_CUDA(cudaSetDevice(0));
    CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK_CUDA(cudaEventCreate(&e[0]));
    CHECK_CUDA(cudaEventCreate(&e[1]));
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    gemm_nothing(stream);
    CHECK_CUDA(cudaEventRecordWithFlags(e[0], stream, cudaEventRecordExternal));
    gemm_nothing(stream);
    CHECK_CUDA(cudaEventRecordWithFlags(e[1], stream, cudaEventRecordExternal));
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    for (int r = 0; r < 100; r++) {
        float ms;

        CHECK_CUDA(cudaGraphLaunch(exec, stream));
        CHECK_CUDA(cudaStreamSynchronize(stream));
        CHECK_CUDA(cudaEventElapsedTime(&ms, e[0], e[1]));
        add(&s, ms * 1000);
    }
    printf("an empty kernel between two events of a graph: %.1f us\n", at(&s, 0.5));
}

/* A GEMM between send and receive against the same GEMM alone, in turn. */
static void bench_overlap(ry_ep_mode mode, uint32_t tokens, uint32_t experts, int devices)
{
    enum { N = 4096, TURNS = 40 };
    void *a[PES], *b[PES];
    float *c[PES];
    struct series with, alone;
    cudaEvent_t e[PES][2];
    struct yard y;
    ry_ep_attr attr;

    memset(&attr, 0, sizeof(attr));
    memset(&with, 0, sizeof(with));
    memset(&alone, 0, sizeof(alone));
    attr.experts = experts;
    attr.topk = 8;
    attr.hidden = 7168;
    attr.tokens_max = tokens;
    attr.mode = mode;
    attr.dtype = RY_FP8;
    yard_open(&y, &attr, PES, devices, mode == RY_EP_LL ? 0 : 24, 8, 0);
    y.plain = 1;
    yard_draw(&y, 7, tokens, 0, NULL, 0);
    for (uint32_t p = 0; p < PES; p++) {
        CHECK_CUDA(cudaSetDevice(y.pe[p].device));
        CHECK_CUDA(cudaMalloc(&a[p], N * N * 2));
        CHECK_CUDA(cudaMalloc(&b[p], N * N * 2));
        CHECK_CUDA(cudaMalloc(&c[p], N * N * 4));
        CHECK_CUDA(cudaMemset(a[p], 0x3c, N * N * 2));
        CHECK_CUDA(cudaMemset(b[p], 0x3d, N * N * 2));
        CHECK_CUDA(cudaEventCreate(&e[p][0]));
        CHECK_CUDA(cudaEventCreate(&e[p][1]));
    }
    for (int turn = 0; turn < 2 * TURNS; turn++) {
        int beside = turn & 1;

        if (beside)
            yard_dispatch(&y, RY_EP_SEND);
        for (uint32_t p = 0; p < PES; p++) {
            CHECK_CUDA(cudaSetDevice(y.pe[p].device));
            CHECK_CUDA(cudaEventRecord(e[p][0], y.pe[p].stream));
            gemm_run(a[p], b[p], c[p], N, y.pe[p].stream);
            CHECK_CUDA(cudaEventRecord(e[p][1], y.pe[p].stream));
        }
        if (beside) {
            yard_dispatch(&y, RY_EP_RECV);
            yard_combine(&y, RY_EP_BOTH);
        }
        yard_sync(&y);
        for (uint32_t p = 0; p < PES && turn >= 10; p++) {
            float ms;

            CHECK_CUDA(cudaEventElapsedTime(&ms, e[p][0], e[p][1]));
            add(beside ? &with : &alone, ms * 1000);
        }
    }
    printf("overlap, %s: gemm alone %.1f us, between send and receive %.1f us: %.4f\n",
           mode == RY_EP_LL ? "ll" : "ht", at(&alone, 0.5), at(&with, 0.5),
           at(&with, 0.5) / at(&alone, 0.5));
    for (uint32_t p = 0; p < PES; p++) {
        CHECK_CUDA(cudaSetDevice(y.pe[p].device));
        CHECK_CUDA(cudaFree(a[p]));
        CHECK_CUDA(cudaFree(b[p]));
        CHECK_CUDA(cudaFree(c[p]));
    }
    yard_close(&y);
}

static void bench_ll(int lines, int replays)
{
    static const uint32_t sms[] = {132, 64, 32};

    for (int i = 0; i < lines; i++) {
        bench(RY_EP_LL, RY_FP8, RY_SCALE_F32, 128, 288, sms[i], replays, PES, NULL);
        bench(RY_EP_LL, RY_BF16, RY_SCALE_F32, 128, 288, sms[i], replays, PES, NULL);
    }
}

static void bench_ht(int lines, int replays)
{
    static const uint32_t sms[] = {24, 12, 48};

    for (int i = 0; i < lines; i++) {
        bench(RY_EP_HT, RY_FP8, RY_SCALE_F32, 4096, 256, sms[i], replays, PES, NULL);
        bench(RY_EP_HT, RY_BF16, RY_SCALE_F32, 4096, 256, sms[i], replays, PES, NULL);
    }
}

int main(int argc, char **argv)
{
    int replays = argc > 1 ? atoi(argv[1]) : 20, devices;
    const char *only = argc > 2 ? argv[2] : "";

    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    setvbuf(stdout, NULL, _IOLBF, 0);
    devices = ry_gpu_count();
    if (devices < PES) {
        printf("needs two gpus, %d here\n", devices);
        return 77;
    }
    bench_copy_engine();
    bench_nothing();
    for (uint32_t p = 0; p < PES; p++) {
        CHECK_CUDA(cudaSetDevice((int)p));
        for (int i = 0; i < ROUNDS; i++)
            for (int k = 0; k < 3; k++)
                CHECK_CUDA(cudaEventCreate(&events[p][i][k]));
    }
    printf("| mode | call | rows | SMs | us p50 | us p10 | us p99 | GB/s | GB/s NVLink | wrong |\n"
           "|---|---|---|---|---|---|---|---|---|---|\n");
    if (*only) {
        if (strcmp(only, "ll") == 0)
            bench(RY_EP_LL, RY_FP8, RY_SCALE_F32, 128, 288, 132, replays, PES, NULL);
        else
            bench_ht(2, replays);
        return wrong_in_all != 0;
    }
    bench_ll(3, replays);
    bench(RY_EP_LL, RY_FP8, RY_SCALE_UE8M0, 128, 288, 132, replays, PES, NULL);
    bench_ht(3, replays);
    bench_far(RY_EP_LL, 128, 288, replays, PES);
    bench_far(RY_EP_HT, 4096, 256, replays / 2, PES);
    bench_overlap(RY_EP_LL, 128, 288, PES);
    bench_overlap(RY_EP_HT, 4096, 256, PES);
    return wrong_in_all != 0;
}
