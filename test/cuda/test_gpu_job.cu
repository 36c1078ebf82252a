/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs of many PEs, each a thread, several to a GPU: every one opened anew, since what may go wrong
 * is the first call, whose streams the driver has not seen. Experts give back what they get and
 * weights add up to 1, so that each token comes back as it went.
 * usage: test_gpu_job [JOBS] */
#include <pthread.h>
#include <railyard/gpu_job.h>
#include <string.h>

#include "core/token.h"
#include "cuda/options.h"
#include "cuda/yard.h"

enum { PES = 8, TOKENS = 48, HIDDEN = 512, EXPERTS = 16, TOPK = 4, CALLS = 3 };

struct pe {
    ry_gpu_job *job;
    pthread_t thread;
    uint32_t me, wrong;
    int status;
    char text[200];
};

static uint16_t value(uint64_t seed, uint32_t pe, uint32_t token, uint32_t i)
{
    /* a bf16 of a few bits, so that a quarter of it is exact */
    return (uint16_t)(0x3f00u + ((uint32_t)ry_mix64(seed + pe * 131u + token * 7919u + i) & 0x7eu));
}

static int call(struct pe *p, uint64_t seed, uint16_t *x, int32_t *ids, float *weights,
                uint16_t *out, uint8_t *y)
{
    uint64_t row = 2 * HIDDEN, pairs = EXPERTS / PES * PES;
    ry_ep_input in;
    ry_ep_output got;
    double us;
    int rc;

    for (uint32_t t = 0; t < TOKENS; t++) {
        for (uint32_t i = 0; i < HIDDEN; i++)
            x[t * HIDDEN + i] = value(seed, p->me, t, i);
        for (uint32_t k = 0; k < TOPK; k++) {
            ids[t * TOPK + k] =
                (int32_t)((ry_mix64(seed + p->me * 64 + t) + k * (EXPERTS / TOPK)) % EXPERTS);
            weights[t * TOPK + k] = 0.25f;
        }
    }
    memset(&in, 0, sizeof(in));
    in.x = x;
    in.x_stride = row;
    in.topk_idx = ids;
    in.topk_idx_stride = TOPK * 4;
    in.idx_bytes = 4;
    in.topk_weight = weights;
    in.topk_weight_stride = TOPK * 4;
    in.tokens = TOKENS;
    rc = ry_gpu_job_dispatch(p->job, p->me, &in, &got, &us);
    if (rc != RY_OK)
        return rc;
    for (uint64_t i = 0; i < pairs; i++)
        for (uint64_t s = 0; s < got.count[i]; s++)
            memcpy(y + (i * TOKENS + s) * row,
                   (const uint8_t *)got.x + (i * TOKENS + s) * got.x_stride, row);
    memset(out, 0, TOKENS * row);
    rc = ry_gpu_job_combine(p->job, p->me, y, row, out, row, &us);
    for (uint32_t i = 0; rc == RY_OK && i < TOKENS * HIDDEN; i++)
        p->wrong += out[i] != x[i];
    return rc;
}

static void *pe_run(void *arg)
{
    struct pe *p = (struct pe *)arg;
    uint64_t row = 2 * HIDDEN;
    uint16_t *x = (uint16_t *)malloc(TOKENS * row), *out = (uint16_t *)malloc(TOKENS * row);
    int32_t *ids = (int32_t *)malloc(TOKENS * TOPK * 4);
    float *weights = (float *)malloc(TOKENS * TOPK * 4);
    uint8_t *y = (uint8_t *)malloc((uint64_t)EXPERTS * TOKENS * row);

    for (uint64_t i = 0; i < CALLS && p->status == RY_OK; i++)
        p->status = call(p, i, x, ids, weights, out, y);
    if (p->status != RY_OK)
        snprintf(p->text, sizeof(p->text), "%s", ry_last_error());
    free(x);
    free(out);
    free(ids);
    free(weights);
    free(y);
    return NULL;
}

static uint32_t one_job(uint32_t number)
{
    struct pe pe[PES];
    ry_gpu_job_attr a;
    ry_gpu_job *job;
    uint32_t bad = 0;

    memset(&a, 0, sizeof(a));
    memset(pe, 0, sizeof(pe));
    a.ep.experts = EXPERTS;
    a.ep.topk = TOPK;
    a.ep.hidden = HIDDEN;
    a.ep.tokens_max = TOKENS;
    a.ep.mode = RY_EP_LL;
    a.ep.dtype = RY_BF16;
    a.n_pes = PES;
    a.n_nodes = number % 3 == 0 ? 1 : 2;
    a.rails = 2;
    a.channels = 2;
    a.handler = options_handler() == RY_HANDLER_GPU ? RY_GPU_JOB_GPU : RY_GPU_JOB_CPU_HOST_MEMORY;
    a.p2p = number % 3 != 2;
    a.failover = 1;
    a.timeout_ns = 1000000000;
    CHECK_RY(ry_gpu_job_open(&a, &job));
    for (uint32_t p = 0; p < PES; p++) {
        pe[p].job = job;
        pe[p].me = p;
        if (pthread_create(&pe[p].thread, NULL, pe_run, &pe[p]))
            exit(1);
    }
    for (uint32_t p = 0; p < PES; p++)
        pthread_join(pe[p].thread, NULL);
    for (uint32_t p = 0; p < PES; p++) {
        if (pe[p].status == RY_OK && !pe[p].wrong)
            continue;
        bad++;
        printf("FAIL job %u, pe %u: status %d, %u wrong; %s\n", number, p, pe[p].status,
               pe[p].wrong, pe[p].text);
    }
    ry_gpu_job_close(job);
    return bad;
}

int main(int argc, char **argv)
{
    struct options o = options_read(argc, argv, 18);
    uint32_t bad = 0;

    if (!o.devices)
        return 77;
    for (uint32_t i = 0; i < o.count && bad < PES; i++)
        bad += one_job(i);
    printf("%s: %u jobs of %d pes on %d gpu, %u pes failed\n", bad ? "FAIL" : "ok", o.count, PES,
           o.devices, bad);
    return bad != 0;
}
