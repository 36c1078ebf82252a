/* SPDX-License-Identifier: Apache-2.0 */
/* PEs as threads that put all the time, each with its own clock. Run by bench/unreachable.sh and
 * bench/drain.sh.
 *
 * bench_live pair: PE 0 of four loses both its rails after 300 ms, with RAILYARD_TIMEOUT 1 s.
 * Prints when PE 0 and PE 1 were told (us after the loss), and how many puts between PEs 2 and 3
 * failed. bench_live drain: PE 0 of two drains one of two rails under load. Prints by how much the
 * batches of the next 500 ms exceeded their time on the rail that is left, added up (us). */
#include <pthread.h>
#include <railyard/context.h>
#include <railyard/fault.h>
#include <railyard/heap.h>
#include <railyard/rma.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { PES_MAX = 4, BYTES = 64 << 10, BATCH = 8, RATE = 200000000 };
static const double LOSS_S = 0.3, END_S = 2.0;

struct pe {
    ry_hub *hub;
    uint32_t number, pes;
    bool drain;
    int rc;
    double told_us, excess_us;
    uint64_t failed;
};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* 0 and 1 put to each other, 2 and 3 too. */
static void pair(struct pe *p, ry_ctx *ctx, char *at)
{
    double start = now_s();
    int rc = ry_fault_plan(ctx, "port-down@300ms:pe0/rail0;port-down@300ms:pe0/rail1", 1);
    ry_fault_start(ctx);
    while (rc == RY_OK && now_s() - start < END_S) {
        rc = ry_put(ctx, at, at + BYTES, 4096, p->number ^ 1);
        if (rc != RY_OK && p->number < 2) {
            p->told_us = (now_s() - start - LOSS_S) * 1e6;
            return;
        }
        p->failed += rc != RY_OK;
    }
    p->rc = rc;
}

static double batch(struct pe *p, ry_ctx *ctx, char *at)
{
    double start = now_s();
    for (uint32_t i = 0; p->rc == RY_OK && i < BATCH; i++)
        p->rc = ry_put_nbi(ctx, at, at + BYTES, BYTES, 1);
    if (p->rc == RY_OK)
        p->rc = ry_quiet(ctx);
    return now_s() - start;
}

static void drain(struct pe *p, ry_ctx *ctx, char *at)
{
    const double due_s = (double)BATCH * BYTES / RATE;
    double start = now_s();
    while (p->rc == RY_OK && now_s() - start < LOSS_S)
        batch(p, ctx, at);
    for (uint32_t i = 0; p->rc == RY_OK && i < BATCH; i++)
        p->rc = ry_put_nbi(ctx, at, at + BYTES, BYTES, 1);
    if (p->rc == RY_OK)
        p->rc = ry_drain(ctx, 1);
    start = now_s();
    if (p->rc == RY_OK)
        p->rc = ry_quiet(ctx);
    double first = now_s() - start;
    p->excess_us = first > due_s ? (first - due_s) * 1e6 : 0;
    while (p->rc == RY_OK && now_s() - start < 0.5) {
        double s = batch(p, ctx, at);
        p->excess_us += s > 1.1 * due_s ? (s - due_s) * 1e6 : 0;
    }
}

static void *pe_main(void *arg)
{
    struct pe *p = arg;
    const char *settings[] = {"RAILS=2", "P2P=off", "HEAP_SIZE=8M", "TIMEOUT=1s",
                              p->drain ? "LINK_RATE=200MB/s" : "CHANNELS=2"};
    ry_ctx_attr attr = {.hub = p->hub, .hub_pe = p->number, .settings = settings, .n_settings = 5};
    ry_ctx *ctx = NULL;
    void *at = NULL;

    p->rc = ry_ctx_create(&attr, &ctx);
    if (p->rc == RY_OK)
        p->rc = ry_malloc(ctx, 2 * BYTES, &at);
    if (p->rc == RY_OK)
        p->rc = ry_barrier(ctx);
    if (p->rc == RY_OK && !p->drain)
        pair(p, ctx, at);
    else if (p->rc == RY_OK && p->number == 0)
        drain(p, ctx, at);
    if (p->rc != RY_OK)
        fprintf(stderr, "bench_live: pe %u: %s\n", p->number, ry_last_error());
    if (p->drain)
        ry_barrier(ctx);
    ry_ctx_destroy(ctx);
    return NULL;
}

int main(int argc, char **argv)
{
    bool draining = argc == 2 && strcmp(argv[1], "drain") == 0;
    uint32_t n = draining ? 2 : PES_MAX;
    pthread_t thread[PES_MAX];
    struct pe pe[PES_MAX] = {{0}};
    ry_hub *hub;
    int rc = 0;

    if (argc != 2 || (!draining && strcmp(argv[1], "pair") != 0)) {
        fprintf(stderr, "usage: bench_live pair|drain\n");
        return 2;
    }
    if (ry_hub_create(n, n, &hub) != RY_OK)
        return 1;
    for (uint32_t i = 0; i < n; i++) {
        pe[i] = (struct pe){.hub = hub, .number = i, .pes = n, .drain = draining, .told_us = -1};
        if (pthread_create(&thread[i], NULL, pe_main, &pe[i]) != 0)
            return 1;
    }
    for (uint32_t i = 0; i < n; i++) {
        pthread_join(thread[i], NULL);
        rc |= pe[i].rc != RY_OK;
    }
    if (draining)
        printf("%.0f\n", pe[0].excess_us);
    else
        printf("%.0f %.0f %llu\n", pe[0].told_us, pe[1].told_us,
               (unsigned long long)(pe[2].failed + pe[3].failed));
    ry_hub_destroy(hub);
    return rc;
}
