/* SPDX-License-Identifier: Apache-2.0 */
/* One-sided calls from kernels over emulated ports, and ports that go down under running kernels.
 * usage: test_gpu_rma [PULLS [LL_PULLS]] */
#include <string.h>
#include <time.h>

#include "core/token.h"
#include "cuda/options.h"
#include "cuda/soak.h"
#include "cuda/yard.h"

enum { PES = 2 };

static uint64_t failures;

struct bench_yard {
    struct ry_gpu_fabric *f;
    cudaStream_t stream[PES];
    struct soak_result *r[PES]; /* pinned */
    uint8_t *heap[PES];
    int device[PES];
};

static void nap_us(uint64_t us)
{
    struct timespec t = {(time_t)(us / 1000000), (long)(us % 1000000 * 1000)};

    nanosleep(&t, NULL);
}

static void fail(const char *what, uint64_t n)
{
    failures++;
    printf("FAIL %s: %llu\n", what, (unsigned long long)n);
}

static void yard_make(struct bench_yard *y, int devices, int direct, uint32_t ports,
                      uint64_t rate_bps, uint64_t timeout_ns)
{
    struct ry_gpu_fabric_attr a;

    memset(&a, 0, sizeof(a));
    a.pes = PES;
    a.ports = ports;
    a.channels = 4;
    a.depth = 256;
    a.devices = (uint32_t)devices;
    a.parts = ports > 2 ? 1 : 2;
    a.heap_bytes = SOAK_HEAP + (1 << 20);
    a.rate_bps = rate_bps;
    a.retry_ns = 50000;
    a.timeout_ns = timeout_ns;
    a.direct = direct;
    a.failover = 1;
    a.failback = 1;
    a.event_ns = 300000;
    a.handler = options_handler();
    for (int p = 0; p < PES; p++) {
        y->device[p] = p % devices;
        CHECK_CUDA(cudaSetDevice(y->device[p]));
        CHECK_CUDA(cudaStreamCreateWithFlags(&y->stream[p], cudaStreamNonBlocking));
        CHECK_CUDA(cudaHostAlloc(&y->r[p], sizeof(*y->r[p]), cudaHostAllocPortable));
        memset(y->r[p], 0, sizeof(*y->r[p]));
    }
    CHECK_RY(ry_gpu_fabric_open(&a, &y->f));
    for (uint32_t p = 0; p < PES; p++)
        y->heap[p] = (uint8_t *)ry_gpu_fabric_heap(y->f, p);
}

static void yard_free(struct bench_yard *y)
{
    ry_gpu_fabric_close(y->f);
    for (int p = 0; p < PES; p++) {
        CHECK_CUDA(cudaSetDevice(y->device[p]));
        CHECK_CUDA(cudaStreamDestroy(y->stream[p]));
        CHECK_CUDA(cudaFreeHost(y->r[p]));
    }
}

static void wait_all(struct bench_yard *y, const char *what)
{
    for (uint32_t p = 0; p < PES; p++) {
        uint32_t peer, channel, rail;
        int status;

        CHECK_CUDA(cudaSetDevice(y->device[p]));
        CHECK_CUDA(cudaStreamSynchronize(y->stream[p]));
        status = ry_gpu_fabric_status(y->f, p, &peer, &channel, &rail);
        if (y->r[p]->wrong || y->r[p]->failed || status) {
            fail(what, y->r[p]->wrong + y->r[p]->failed);
            printf("  pe %u: %llu wrong, %llu failed, status %d of peer %u channel %u rail %u\n", p,
                   (unsigned long long)y->r[p]->wrong, (unsigned long long)y->r[p]->failed, status,
                   peer, channel, rail);
        }
        memset(y->r[p], 0, sizeof(*y->r[p]));
    }
}

static void exchange(struct bench_yard *y, uint32_t from, uint32_t rounds, uint32_t warps)
{
    for (uint32_t p = 0; p < PES; p++) {
        CHECK_CUDA(cudaSetDevice(y->device[p]));
        soak_exchange(ry_gpu_fabric_world(y->f, p), y->heap[p], 1 - p, from, rounds, warps, y->r[p],
                      y->stream[p]);
        CHECK_CUDA(cudaGetLastError());
    }
}

static void test_calls(int devices, int direct)
{
    struct bench_yard y;

    yard_make(&y, devices, direct, 2, 0, 2000000000);
    for (uint32_t p = 0; p < PES; p++) {
        CHECK_CUDA(cudaSetDevice(y.device[p]));
        soak_calls(ry_gpu_fabric_world(y.f, p), y.heap[p], 1 - p, y.r[p], y.stream[p]);
    }
    wait_all(&y, "calls");
    for (uint32_t p = 0; p < PES; p++) {
        CHECK_CUDA(cudaSetDevice(y.device[p]));
        soak_adds(ry_gpu_fabric_world(y.f, p), y.heap[p], 1 - p, 20, y.r[p], y.stream[p]);
    }
    wait_all(&y, "adds");
    exchange(&y, 0, 200, SOAK_WARPS);
    wait_all(&y, "exchange without faults");
    yard_free(&y);
    printf("calls, %s: done\n", direct ? "direct" : "over channels");
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* A port goes down under the kernels, `pulls` times: by itself after a random number of WQEs, or by
 * the host at a random moment. With `two` there are four ports, and the one that takes over first
 * goes down as well, after some of its own WQEs. */
static void test_pulls(int devices, uint32_t pulls, int two, uint64_t rate_bps)
{
    uint64_t *switches = (uint64_t *)calloc(pulls + 1, 8);
    struct ry_gpu_fabric_counts before[PES], after;
    uint32_t seen = 0, moved = 0;
    uint64_t replayed = 0;
    struct bench_yard y;

    yard_make(&y, devices, 0, two ? 4 : 2, rate_bps, 2000000000);
    memset(before, 0, sizeof(before));
    for (uint32_t i = 0; i < pulls && failures < 5; i++) {
        uint64_t h = ry_mix64(i + 1000 * two), longest = 0, alone = 0, parks = 0;
        uint32_t pe = h & 1, port = h >> 1 & 1, rounds = 60;
        uint32_t next = (port + 1) % (two ? 4 : 2);
        int by_engine = h >> 2 & 1 || two;

        if (by_engine)
            ry_gpu_fabric_port(y.f, pe, port, 0, 20 + (h >> 8) % 700);
        if (two)
            ry_gpu_fabric_port(y.f, pe, next, 0, 1 + (h >> 20) % 200);
        exchange(&y, i * rounds, rounds, SOAK_WARPS);
        if (!by_engine) {
            nap_us((h >> 8) % 900);
            ry_gpu_fabric_port(y.f, pe, port, 0, 0);
        }
        wait_all(&y, two ? "two ports pulled" : "a port pulled");
        ry_gpu_fabric_port(y.f, pe, port, 1, 0);
        ry_gpu_fabric_port(y.f, pe, next, 1, 0);
        if (ry_gpu_fabric_settle(y.f, 1000000000) != RY_OK)
            fail("settle", i);
        for (uint32_t p = 0; p < PES; p++) {
            ry_gpu_fabric_count(y.f, p, &after);
            if (after.moves > before[p].moves && after.switch_ns_max > longest) {
                longest = after.switch_ns_max;
                alone = after.alone - before[p].alone;
                parks = after.parks - before[p].parks;
            }
            moved += (uint32_t)(after.moves - before[p].moves);
            replayed += after.replayed - before[p].replayed;
            before[p] = after;
        }
        if (longest)
            switches[seen++] = longest;
        if (longest > 1000000)
            printf("  event %u: %.0f us, %llu records ran alone, %llu times no path\n", i,
                   (double)longest / 1e3, (unsigned long long)alone, (unsigned long long)parks);
    }
    qsort(switches, seen, 8, compare);
    printf("pulls%s: %u events, %u moves (%llu messages replayed), failure seen to first good "
           "completion: p50 %.0f us, p99 %.0f us, longest %.0f us\n",
           two ? " of two ports" : "", pulls, moved, (unsigned long long)replayed,
           seen ? switches[seen / 2] / 1e3 : -1, seen ? switches[seen * 99 / 100] / 1e3 : -1,
           seen ? switches[seen - 1] / 1e3 : -1);
    if (moved < pulls / 4)
        fail("too few moves to have tested anything", moved);
    yard_free(&y);
    free(switches);
}

/* The kernel has ended with sends unacknowledged when its port dies: the agent sees to them. */
static void test_left(int devices, uint32_t times)
{
    struct ry_gpu_fabric_counts c;
    struct bench_yard y;

    yard_make(&y, devices, 0, 2, 2000000000, 2000000000);
    for (uint32_t i = 0; i < times; i++) {
        uint32_t port = i & 1, bad = 0;

        ry_gpu_fabric_port(y.f, 0, port, 0, 4 + i % 20);
        CHECK_CUDA(cudaSetDevice(y.device[0]));
        soak_leave(ry_gpu_fabric_world(y.f, 0), y.heap[0], 1, i, 64, y.r[0], y.stream[0]);
        CHECK_CUDA(cudaStreamSynchronize(y.stream[0]));
        for (int tries = 0; tries < 100; tries++) {
            nap_us(1000);
            memset(y.r[1], 0, sizeof(*y.r[1]));
            CHECK_CUDA(cudaSetDevice(y.device[1]));
            soak_left(y.heap[1], i, 64, y.r[1], y.stream[1]);
            CHECK_CUDA(cudaStreamSynchronize(y.stream[1]));
            bad = y.r[1]->wrong != 0;
            if (!bad)
                break;
        }
        if (bad || y.r[0]->failed)
            fail("left behind", i);
        ry_gpu_fabric_port(y.f, 0, port, 1, 0);
        ry_gpu_fabric_settle(y.f, 1000000000);
        memset(y.r[0], 0, sizeof(*y.r[0]));
        memset(y.r[1], 0, sizeof(*y.r[1]));
    }
    ry_gpu_fabric_count(y.f, 0, &c);
    printf("left behind by kernels: %u times, %llu moves, %llu messages replayed\n", times,
           (unsigned long long)c.moves, (unsigned long long)c.replayed);
    if (c.replayed == 0)
        fail("nothing was replayed, so nothing was tested", 0);
    yard_free(&y);
}

/* No port is left: the kernel ends by its deadline and says which peer and rail. */
static void test_all_down(int devices)
{
    uint32_t peer, channel, rail;
    struct timespec a, b;
    struct bench_yard y;
    double ms;
    int status;

    yard_make(&y, devices, 0, 2, 0, 100000000);
    ry_gpu_fabric_port(y.f, 0, 0, 0, 100);
    ry_gpu_fabric_port(y.f, 0, 1, 0, 150);
    clock_gettime(CLOCK_MONOTONIC, &a);
    exchange(&y, 0, 1000, SOAK_WARPS);
    CHECK_CUDA(cudaSetDevice(y.device[0]));
    CHECK_CUDA(cudaStreamSynchronize(y.stream[0]));
    clock_gettime(CLOCK_MONOTONIC, &b);
    ms = (double)(b.tv_sec - a.tv_sec) * 1e3 + (double)(b.tv_nsec - a.tv_nsec) / 1e6;
    status = ry_gpu_fabric_status(y.f, 0, &peer, &channel, &rail);
    printf("all ports down: ended after %.0f ms with %d, peer %u, rail %u; %llu warps gave up\n",
           ms, status, peer, rail, (unsigned long long)y.r[0]->failed);
    if ((status != RY_ERR_UNREACHABLE && status != RY_ERR_TIMEOUT) || peer != 1 || ms > 1000 ||
        !y.r[0]->failed)
        fail("all ports down", (uint64_t)ms);
    CHECK_CUDA(cudaSetDevice(y.device[1]));
    CHECK_CUDA(cudaStreamSynchronize(y.stream[1]));
    yard_free(&y);
}

int main(int argc, char **argv)
{
    struct options o = options_read(argc, argv, 20);
    uint32_t pulls = o.count;
    int devices = o.devices;

    if (!devices)
        return 77;
    for (int d = 1; d <= devices; d++) {
        test_calls(d, 1);
        test_calls(d, 0);
    }
    test_pulls(devices, pulls, 0, 0);
    test_pulls(devices, pulls, 1, 0);
    test_pulls(1, pulls / 2, 0, 10000000000);
    test_left(devices, pulls / 4 + 4);
    test_all_down(devices);
    printf("%s: %llu failures\n", failures ? "FAIL" : "ok", (unsigned long long)failures);
    return failures != 0;
}
