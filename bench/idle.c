/* SPDX-License-Identifier: Apache-2.0 */
/* PEs that wait for a signal: how much of a core each takes after the first 100 ms. PE 0 sends the
 * signal after three seconds. Run by bench/idle.sh under railyard run. */
#include <railyard/heap.h>
#include <railyard/rma.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>

static double cpu_s(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int fail(void)
{
    fprintf(stderr, "idle: %s\n", ry_last_error());
    return 1;
}

int main(void)
{
    ry_ctx *ctx;
    void *at;
    if (ry_ctx_create(NULL, &ctx) != RY_OK || ry_malloc(ctx, sizeof(ry_signal), &at) != RY_OK ||
        ry_barrier(ctx) != RY_OK)
        return fail();
    ry_signal *sig = at;
    double used = 0, took = 0;
    int rc = RY_OK;
    if (ry_pe(ctx) == 0) {
        struct timespec nap = {.tv_sec = 3, .tv_nsec = 200000000};
        nanosleep(&nap, NULL);
        for (uint32_t p = 1; rc == RY_OK && p < ry_n_pes(ctx); p++)
            rc = ry_put_signal_nbi(ctx, NULL, NULL, 0, sig, 1, p);
    } else {
        /* the first 100 ms may be spent looking */
        ry_signal_wait(ctx, sig, 1, 0, 100000000);
        double t0 = now_s(), c0 = cpu_s();
        rc = ry_signal_wait(ctx, sig, 1, 0, 0);
        used = cpu_s() - c0;
        took = now_s() - t0;
    }
    double mine = took > 0 ? 100 * used / took : 0, all[1024];
    if (rc != RY_OK || ry_allgather(ctx, &mine, sizeof mine, all) != RY_OK)
        return fail();
    double worst = 0;
    for (uint32_t p = 1; p < ry_n_pes(ctx); p++)
        worst = all[p] > worst ? all[p] : worst;
    if (ry_pe(ctx) == 0)
        printf("%.2f\n", worst);
    ry_ctx_destroy(ctx);
    return 0;
}
