/* SPDX-License-Identifier: Apache-2.0 */
/* What a kernel pays for a post, and what emulated ports carry. Engines run on other SMs and are
 * not in the cycles that are counted; they are in round trips and rates.
 * usage: bench_gpu_rma [BLOCKS] */
#include <string.h>

#include "cuda/fabric.h"
#include "cuda/rma.h"
#include "cuda/yard.h"

enum { PES = 2, POSTS = 512, TRIPS = 64 };

struct timings {
    uint32_t cycles[POSTS];
    uint64_t failed, ns;
};

/* Warp w of all puts `bytes` over and over; one quiet at the end. */
static __global__ void put_kernel(const __grid_constant__ struct ry_gpu_world w, uint8_t *heap,
                                  uint32_t bytes, uint32_t times, struct timings *out)
{
    uint32_t warp = threadIdx.x / 32, warps = blockDim.x / 32;

    for (uint32_t i = 0; i < times; i++) {
        uint32_t at = (warp + warps * (i % 8)) * bytes;

        if (ry_dev_put(&w, heap + (64 << 20) + at, heap + at, bytes, 1, RY_WARP) != RY_OK)
            out->failed = 1;
    }
    if (ry_dev_quiet(&w, RY_BLOCK) != RY_OK)
        out->failed = 1;
}

/* A hand-written post: the queue pair is this thread's alone, nothing can fail, no one else posts.
 */
static __device__ void minimal_post(struct ry_ring *r, uint32_t idx, uint64_t to, uint64_t from,
                                    uint64_t signal, uint64_t value, uint32_t lkey, uint32_t rkey)
{
    struct ry_wqe *a = &r->wqe[idx & r->mask], *b = &r->wqe[(idx + 1) & r->mask];

    a->opmod_idx_opcode = ry_be32((idx & 0xffffu) << 8 | RY_OP_WRITE);
    a->qpn_ds = ry_be32(r->qpn << 8 | 3);
    *(uint64_t *)&a->signature = 0;
    a->raddr = ry_be64(to);
    *(uint64_t *)&a->rkey = ry_be32(rkey);
    a->u.data.byte_count = ry_be32(8);
    a->u.data.lkey = ry_be32(lkey);
    a->u.data.addr = ry_be64(from);
    b->opmod_idx_opcode = ry_be32(((idx + 1) & 0xffffu) << 8 | RY_OP_WRITE);
    b->qpn_ds = ry_be32(r->qpn << 8 | 3);
    *(uint64_t *)&b->signature = (uint64_t)RY_WQE_SIGNALLED << 24;
    b->raddr = ry_be64(signal);
    *(uint64_t *)&b->rkey = ry_be32(rkey);
    b->u.inl.byte_count = ry_be32(RY_WQE_INLINE | 8);
    b->u.words[0] = (b->u.words[0] & 0xffffffffu) | value << 32;
    b->u.words[1] = value >> 32;
    ry_publish_dbr(r->dbr, idx + 2);
    ry_ring_doorbell(r->uar, ry_wqe_doorbell(b));
}

/* Call to return, whose last step is the doorbell, one thread. */
static __global__ void post_kernel(const __grid_constant__ struct ry_gpu_world w, uint8_t *heap,
                                   int minimal, struct timings *out)
{
    struct ry_channel *ch = ry_world_channel(&w, 1, 0);
    struct ry_ring *r = &ch->ring[ry_state_active(ry_observe_state(ch))];
    struct ry_sector *signal = (struct ry_sector *)heap; /* channel 0 */
    uint32_t lkey = r->lkeys[0], rkey = r->rkeys[0];
    uint64_t raddr = ry_world_raddr(&w, 1, heap);

    for (uint32_t i = 0; i < POSTS; i++) {
        uint64_t begin, end;

        if (i % 16 == 0 && !minimal)
            ry_world_quiet(&w, 1, 0);
        if (i % 16 == 0 && minimal && i)
            while (ry_observe_cqe(r->cqe).counter != (uint16_t)(2 * i - 1))
                ;
        begin = (uint64_t)clock64();
        if (minimal)
            minimal_post(r, 2 * i, raddr + 4096, (uint64_t)heap + 8192, raddr, i + 1, lkey, rkey);
        else if (ry_dev_put_signal(&w, heap + 4096, heap + 8192, 8, signal, i + 1, 1, RY_THREAD))
            out->failed = 1;
        end = (uint64_t)clock64();
        out->cycles[i] = (uint32_t)(end - begin);
    }
}

/* 8-byte put-signal there and back, TRIPS times; PE 0 measures. */
static __global__ void trip_kernel(const __grid_constant__ struct ry_gpu_world w, uint8_t *heap,
                                   uint32_t peer, uint32_t from, int minimal, struct timings *out)
{
    struct ry_channel *ch = ry_world_channel(&w, peer, 0);
    struct ry_ring *r = &ch->ring[ry_state_active(ry_observe_state(ch))];
    struct ry_sector *signal = (struct ry_sector *)heap;
    uint32_t lkey = r->lkeys[0], rkey = r->rkeys[0];
    uint64_t raddr = ry_world_raddr(&w, peer, heap), begin = 0;

    for (uint32_t i = 0; i <= TRIPS; i++) {
        uint64_t value = from + i + 1;

        if (i == 1)
            begin = ry_global_ns();
        for (uint32_t turn = 0; turn < 2; turn++) {
            if (turn == w.pe) {
                if (minimal)
                    minimal_post(r, 2 * (from + i), raddr + 4096, (uint64_t)heap + 8192, raddr,
                                 value, lkey, rkey);
                else if (ry_dev_put_signal(&w, heap + 4096, heap + 8192, 8, signal, value, peer,
                                           RY_THREAD))
                    out->failed = 1;
            } else if (minimal) {
                while (ry_observe_signal(signal) < value)
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

static void make(struct setup *s, int devices, uint32_t ports, uint64_t rate_bps)
{
    struct ry_gpu_fabric_attr a;

    memset(&a, 0, sizeof(a));
    a.pes = PES;
    a.ports = ports;
    a.channels = 4;
    a.depth = 1024;
    a.devices = (uint32_t)devices;
    a.parts = 4;
    a.heap_bytes = 160u << 20;
    a.rate_bps = rate_bps;
    a.retry_ns = 50000;
    a.timeout_ns = 2000000000;
    a.failover = 1;
    a.event_ns = 300000;
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
        if (s->t[p]->failed)
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

static double rate(int devices, uint32_t ports, uint64_t rate_bps, uint32_t bytes)
{
    uint32_t times = (512u << 20) / (16 * bytes);
    cudaEvent_t begin, end;
    double gbps[5];
    struct setup s;

    make(&s, devices, ports, rate_bps);
    CHECK_CUDA(cudaSetDevice(0));
    CHECK_CUDA(cudaEventCreate(&begin));
    CHECK_CUDA(cudaEventCreate(&end));
    for (int i = 0; i < 5; i++) {
        float ms;

        CHECK_CUDA(cudaEventRecord(begin, s.stream[0]));
        put_kernel<<<1, 512, 0, s.stream[0]>>>(s.world[0], s.heap[0], bytes, times, s.t[0]);
        CHECK_CUDA(cudaEventRecord(end, s.stream[0]));
        join(&s);
        CHECK_CUDA(cudaEventElapsedTime(&ms, begin, end));
        gbps[i] = 16.0 * bytes * times / ms / 1e6;
    }
    unmake(&s);
    return median(gbps, 5);
}

static void bench_rates(int devices)
{
    const uint32_t sizes[] = {7168, 65536, 524288};

    for (int i = 0; i < 3; i++) {
        for (uint64_t limit = 50000000000ull; limit >= 20000000000ull; limit /= 2) {
            double one = rate(devices, 1, limit, sizes[i]), two = rate(devices, 2, limit, sizes[i]);

            printf("put of %u bytes from 16 warps, ports of %.0f GB/s: one port %.1f GB/s, two "
                   "%.1f: %.3f x\n",
                   sizes[i], (double)limit / 1e9, one, two, two / one);
        }
    }
}

static double post_cycles(int devices, int minimal)
{
    double v[POSTS];
    struct setup s;

    make(&s, devices, 2, 0);
    CHECK_CUDA(cudaSetDevice(0));
    post_kernel<<<1, 1, 0, s.stream[0]>>>(s.world[0], s.heap[0], minimal, s.t[0]);
    join(&s);
    for (uint32_t i = 0; i < POSTS; i++)
        v[i] = s.t[0]->cycles[i];
    unmake(&s);
    return median(v, POSTS);
}

static void trip(struct setup *s, uint32_t from, int minimal)
{
    for (uint32_t p = 0; p < PES; p++) {
        CHECK_CUDA(cudaSetDevice((int)p % s->devices));
        trip_kernel<<<1, 1, 0, s->stream[p]>>>(s->world[p], s->heap[p], 1 - p, from, minimal,
                                               s->t[p]);
    }
    join(s);
}

static double trips(int devices, int minimal)
{
    double v[40];
    struct setup s;

    make(&s, devices, 2, 0);
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

    make(&s, devices, 2, 0);
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
    double ours = post_cycles(devices, 0), minimal = post_cycles(devices, 1);

    printf("call to doorbell, 8-byte put-signal by one thread: %.0f cycles, hand-written minimal "
           "post %.0f: %.2f x\n",
           ours, minimal, ours / minimal);
    ours = trips(devices, 0);
    minimal = trips(devices, 1);
    printf("8-byte put-signal round trip through two engines: %.0f ns, minimal post %.0f: %.2f x\n",
           ours, minimal, ours / minimal);
    bench_failover(devices, blocks);
    bench_rates(devices);
    return 0;
}
