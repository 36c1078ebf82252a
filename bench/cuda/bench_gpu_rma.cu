/* SPDX-License-Identifier: Apache-2.0 */
/* What a kernel pays for a post, and what emulated ports carry. Engines run on other SMs and are
 * not in the cycles that are counted; they are in round trips and rates.
 * usage: bench_gpu_rma [BLOCKS] */
#include <string.h>

#include "cuda/fabric.h"
#include "cuda/rma.h"
#include "cuda/yard.h"
#include "minimal.h"
#include "rma_bench.h"

enum { PES = 2, TRIPS = 64 };

struct timings {
    struct post_times post;
    uint64_t failed, ns;
};

/* Warp w of all puts `bytes` over and over; one quiet at the end of each block. */
static __global__ void __launch_bounds__(512, 1)
put_kernel(const __grid_constant__ struct ry_gpu_world w, uint8_t *heap, uint32_t bytes,
           uint32_t times, struct timings *out)
{
    uint32_t warps = gridDim.x * blockDim.x / 32;
    uint32_t warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;

    for (uint32_t i = 0; i < times; i++) {
        uint32_t places = (64u << 20) / bytes;
        uint64_t at = (uint64_t)((warp + warps * i) % places) * bytes;

        if (ry_dev_put(&w, heap + (64 << 20) + at, heap + at, bytes, 1, RY_WARP) != RY_OK)
            out->failed = 1;
    }
    if (ry_dev_quiet(&w, RY_BLOCK) != RY_OK)
        out->failed = 1;
}

/* 8-byte put-signal there and back, TRIPS times; PE 0 measures. */
static __global__ void trip_kernel(const __grid_constant__ struct ry_gpu_world w, uint8_t *heap,
                                   uint32_t peer, uint32_t from, int minimal, struct timings *out)
{
    struct ry_channel *ch = ry_world_channel(&w, peer, 0);
    struct minimal m = minimal_take(&ch->ring[ry_state_active(ry_observe_state(ch))]);
    struct ry_sector *signal = (struct ry_sector *)heap;
    uint64_t raddr = ry_world_raddr(&w, peer, heap), begin = 0;
    struct ry_line line;

    ry_line_begin(&w, peer, 0, &line);
    for (uint32_t i = 0; i <= TRIPS; i++) {
        uint64_t value = from + i + 1;

        if (i == 1)
            begin = ry_global_ns();
        for (uint32_t turn = 0; turn < 2; turn++) {
            if (turn == w.pe) {
                if (minimal)
                    minimal_post(&m, 2 * (from + i), raddr + 4096, (uint64_t)heap + 8192, raddr,
                                 value);
                else if (ry_line_put_signal(&w, &line, heap + 4096, heap + 8192, 8, signal, value))
                    out->failed = 1;
            } else if (minimal) {
                while (!ry_signal_reached(signal, value))
                    ;
            } else if (ry_dev_signal_wait(&w, signal, value, peer, RY_THREAD)) {
                out->failed = 1;
            }
        }
    }
    out->ns = (ry_global_ns() - begin) / TRIPS;
    if (!minimal)
        ry_world_quiet(&w, peer, 0);
}

struct setup {
    struct ry_gpu_fabric *f;
    struct ry_gpu_world world[PES];
    uint8_t *heap[PES];
    cudaStream_t stream[PES];
    struct timings *t[PES]; /* pinned */
    int devices;
};

static void make(struct setup *s, int devices, uint32_t ports, uint32_t channels,
                 uint64_t rate_bps, uint32_t handler)
{
    struct ry_gpu_fabric_attr a;

    memset(&a, 0, sizeof(a));
    a.pes = PES;
    a.ports = ports;
    a.channels = channels;
    a.depth = 1024;
    a.devices = (uint32_t)devices;
    a.parts = 4;
    a.heap_bytes = 160u << 20;
    a.rate_bps = rate_bps;
    a.retry_ns = 50000;
    a.timeout_ns = 2000000000;
    a.failover = 1;
    a.event_ns = 300000;
    a.handler = handler;
    s->devices = devices;
    for (uint32_t p = 0; p < PES; p++) {
        CHECK_CUDA(cudaSetDevice((int)p % devices));
        CHECK_CUDA(cudaStreamCreateWithFlags(&s->stream[p], cudaStreamNonBlocking));
        CHECK_CUDA(cudaHostAlloc(&s->t[p], sizeof(*s->t[p]), cudaHostAllocPortable));
        memset(s->t[p], 0, sizeof(*s->t[p]));
    }
    CHECK_RY(ry_gpu_fabric_open(&a, &s->f));
    for (uint32_t p = 0; p < PES; p++) {
        s->world[p] = *ry_gpu_fabric_world(s->f, p);
        s->heap[p] = (uint8_t *)ry_gpu_fabric_heap(s->f, p);
    }
}

static void unmake(struct setup *s)
{
    ry_gpu_fabric_close(s->f);
    for (uint32_t p = 0; p < PES; p++) {
        CHECK_CUDA(cudaSetDevice((int)p % s->devices));
        CHECK_CUDA(cudaStreamDestroy(s->stream[p]));
        CHECK_CUDA(cudaFreeHost(s->t[p]));
    }
}

static void join(struct setup *s)
{
    for (uint32_t p = 0; p < PES; p++) {
        CHECK_CUDA(cudaSetDevice((int)p % s->devices));
        CHECK_CUDA(cudaStreamSynchronize(s->stream[p]));
        if (s->t[p]->failed || s->t[p]->post.failed)
            printf("FAIL: pe %u\n", p);
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *v, uint32_t n)
{
    qsort(v, n, sizeof(*v), compare);
    return v[n / 2];
}

static double rate(int devices, uint32_t ports, uint64_t rate_bps, uint32_t bytes, uint32_t warps)
{
    uint64_t total = ry_min64(1ull << 30, bytes * 32768ull);
    uint32_t times = (uint32_t)(total / ((uint64_t)warps * bytes));
    cudaEvent_t begin, end;
    double gbps[5];
    struct setup s;

    make(&s, devices, ports, 8, rate_bps, RY_HANDLER_GPU);
    CHECK_CUDA(cudaSetDevice(0));
    CHECK_CUDA(cudaEventCreate(&begin));
    CHECK_CUDA(cudaEventCreate(&end));
    for (int i = 0; i < 5; i++) {
        float ms;

        CHECK_CUDA(cudaEventRecord(begin, s.stream[0]));
        put_kernel<<<warps / 16, 512, 0, s.stream[0]>>>(s.world[0], s.heap[0], bytes, times,
                                                        s.t[0]);
        CHECK_CUDA(cudaGetLastError());
        CHECK_CUDA(cudaEventRecord(end, s.stream[0]));
        join(&s);
        CHECK_CUDA(cudaEventElapsedTime(&ms, begin, end));
        gbps[i] = (double)warps * bytes * times / ms / 1e6;
    }
    unmake(&s);
    return median(gbps, 5);
}

/* Rate 0: as fast as the engines and the posts go, which bounds the other rows. */
static void bench_rates(int devices)
{
    const uint32_t sizes[] = {1024, 4096, 7168, 16384, 65536, 262144, 524288};
    const uint64_t limits[] = {0, 50000000000ull, 25000000000ull};

    for (uint32_t warps = 16; warps <= 128; warps *= 8)
        for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
            for (uint32_t k = 0; k < 3; k++) {
                double one = rate(devices, 1, limits[k], sizes[i], warps);
                double two = rate(devices, 2, limits[k], sizes[i], warps);

                printf("put of %u bytes from %u warps, ports of %.0f GB/s: one port %.1f GB/s, two "
                       "%.1f: %.3f x\n",
                       sizes[i], warps, (double)limits[k] / 1e9, one, two, two / one);
            }
}

static double median32(const uint32_t *cycles)
{
    double v[POSTS];

    for (uint32_t i = 0; i < POSTS; i++)
        v[i] = cycles[i];
    return median(v, POSTS);
}

static void bench_posts(int devices)
{
    static const char *const names[POST_KINDS] = {"hand-written minimal post",
                                                  "ry_line_put_signal", "ry_dev_put_signal"};
    double bell[POST_KINDS];

    for (int k = 0; k < POST_KINDS; k++) {
        struct setup s;

        make(&s, devices, 2, 4, 0, RY_HANDLER_GPU);
        CHECK_CUDA(cudaSetDevice(0));
        CHECK_CUDA((cudaError_t)post_launch(&s.world[0], s.heap[0], (enum post_kind)k,
                                            &s.t[0]->post, s.stream[0]));
        join(&s);
        bell[k] = median32(s.t[0]->post.bell);
        printf("8-byte put-signal by one thread, %s: call to doorbell %.0f cycles (%.2f x), to "
               "return %.0f\n",
               names[k], bell[k], bell[k] / bell[0], median32(s.t[0]->post.returns));
        unmake(&s);
    }
}

static void bench_parts(void)
{
    uint64_t *words;
    uint32_t *cycles;

    CHECK_CUDA(cudaSetDevice(0));
    CHECK_CUDA(cudaMalloc(&words, 4096));
    CHECK_CUDA(cudaMemset(words, 0, 4096));
    CHECK_CUDA(cudaHostAlloc(&cycles, 4096, 0));
    CHECK_CUDA((cudaError_t)parts_launch(words, cycles, NULL));
    CHECK_CUDA(cudaDeviceSynchronize());
    post_print_parts(cycles);
    CHECK_CUDA(cudaFree(words));
    CHECK_CUDA(cudaFreeHost(cycles));
}

static void trip(struct setup *s, uint32_t from, int minimal)
{
    for (uint32_t p = 0; p < PES; p++) {
        CHECK_CUDA(cudaSetDevice((int)p % s->devices));
        trip_kernel<<<1, 1, 0, s->stream[p]>>>(s->world[p], s->heap[p], 1 - p, from, minimal,
                                               s->t[p]);
        CHECK_CUDA(cudaGetLastError());
    }
    join(s);
}

static double trips(int devices, int minimal, uint32_t handler)
{
    double v[40];
    struct setup s;

    make(&s, devices, 2, 4, 0, handler);
    for (uint32_t i = 0; i < 40; i++) {
        trip(&s, i * (TRIPS + 1), minimal);
        v[i] = (double)s.t[0]->ns;
    }
    unmake(&s);
    return median(v, 40);
}

/* On and off in turn, in swapping order, on one fabric. */
static void bench_failover(int devices, uint32_t blocks)
{
    double *ratio = (double *)calloc(blocks, sizeof(*ratio)), on = 0, off = 0;
    struct setup s;

    make(&s, devices, 2, 4, 0, RY_HANDLER_GPU);
    for (uint32_t i = 0; i < blocks; i++) {
        double ns[2];

        for (uint32_t k = 0; k < 2; k++) {
            uint32_t enabled = (k + i) & 1;

            s.world[0].failover = s.world[1].failover = enabled;
            trip(&s, (2 * i + k) * (TRIPS + 1), 0);
            ns[enabled] = (double)s.t[0]->ns;
        }
        ratio[i] = ns[1] / ns[0];
        on += ns[1];
        off += ns[0];
    }
    printf("failover on against off, 8-byte put-signal round trips, %u pairs of blocks: median "
           "%+.2f %% (mean %.0f ns against %.0f ns)\n",
           blocks, 100 * (median(ratio, blocks) - 1), on / blocks, off / blocks);
    unmake(&s);
    free(ratio);
}

int main(int argc, char **argv)
{
    uint32_t blocks = argc > 1 ? (uint32_t)atoi(argv[1]) : 400;
    int devices;

    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
    setvbuf(stdout, NULL, _IOLBF, 0);
    devices = ry_gpu_count();
    if (devices == 0) {
        printf("no gpu here\n");
        return 77;
    }
    devices = devices > 2 ? 2 : devices;
    printf("%d gpu\n", devices);
    lean_print();
    lean_print_off();
    bench_parts();
    bench_posts(devices);
    double ours = trips(devices, 0, RY_HANDLER_GPU), minimal = trips(devices, 1, RY_HANDLER_GPU);

    printf("8-byte put-signal round trip through two engines: %.0f ns, minimal post %.0f: %.2f x; "
           "handler cpu_host_memory %.0f ns\n",
           ours, minimal, ours / minimal, trips(devices, 0, RY_HANDLER_CPU_HOST_MEMORY));
    bench_failover(devices, blocks);
    bench_rates(devices);
    return 0;
}
