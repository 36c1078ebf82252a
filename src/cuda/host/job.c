/* SPDX-License-Identifier: Apache-2.0 */
/* An exchange on a fabric with everything around it: memory of tokens and results, and the agent's
 * counts in the public API's terms. */
#include "cuda/host/job_inside.h"

#include <stdlib.h>
#include <string.h>

#include "core/layout.h"
#include "core/place.h"
#include "cuda/ep_far.h"
#include "cuda/host/driver.h"
#include "host/error.h"

enum { DEPTH = 256, RETRY_NS = 50000, EVENT_NS = 300000, HEAP_SPARE = 1 << 20 };
enum { ENGINES = 1 }; /* of a port */

static uint32_t experts_of(const ry_gpu_job *job, uint32_t pe)
{
    const ry_gpu_job_attr *a = &job->attr;
    struct ry_place place = {a->ep.experts, a->n_pes, a->n_nodes};

    return ry_place_expert_count(&place, pe);
}

/* All of a PE's memory, in one block each of host and GPU. */
static void pe_lay(const ry_gpu_job *job, struct ry_job_pe *p, uint8_t *device, uint8_t *host,
                   uint64_t *device_bytes, uint64_t *host_bytes)
{
    const ry_ep_attr *e = &job->attr.ep;
    uint64_t pairs = (uint64_t)e->tokens_max * e->topk, rows = p->rows_max, d = 0, h = 0;
    uint64_t row = 2ull * e->hidden, wide = ry_row_bytes(e->hidden, e->dtype == RY_FP8, e->scale);

    wide += RY_LL_TAIL_BYTES;
    p->x = ry_job_take(device, &d, e->tokens_max * row);
    p->out = ry_job_take(device, &d, e->tokens_max * row);
    p->ids = ry_job_take(device, &d, pairs * 8);
    p->weights = ry_job_take(device, &d, pairs * 4);
    p->y = ry_job_take(device, &d, rows * row);
    p->rows_x = ry_job_take(host, &h, rows * wide);
    p->src_token = ry_job_take(host, &h, rows * 4);
    p->row_source = ry_job_take(host, &h, rows * 4);
    p->topk_idx = ry_job_take(host, &h, rows * e->topk * 4);
    p->topk_weight = ry_job_take(host, &h, rows * e->topk * 4);
    p->count = ry_job_take(host, &h, (uint64_t)p->local * job->attr.n_pes * 4);
    p->expert_rows = ry_job_take(host, &h, (uint64_t)p->local * 4);
    *device_bytes = d;
    *host_bytes = h;
}

void *ry_job_take(uint8_t *base, uint64_t *at, uint64_t bytes)
{
    uint64_t begin = *at;

    *at = (begin + bytes + 255) / 256 * 256;
    return base ? base + begin : NULL;
}

/* All memory is there, and copies of the host's have what the runtime takes for them, before any
 * kernel may keep the GPU busy. */
static int pe_touch(struct ry_job_pe *p, uint64_t device_bytes, uint64_t host_bytes)
{
    uint64_t bytes = device_bytes < host_bytes ? device_bytes : host_bytes;
    cudaError_t rc;

    memset(p->host, 0, host_bytes);
    rc = cudaMemcpyAsync(p->memory, p->host, bytes, cudaMemcpyHostToDevice, p->stream);
    if (rc == cudaSuccess)
        rc = cudaMemcpyAsync(p->host, p->memory, bytes, cudaMemcpyDeviceToHost, p->stream);
    if (rc == cudaSuccess)
        rc = cudaStreamSynchronize(p->stream);
    return rc == cudaSuccess ? RY_OK : ry_gpu_fail(rc, "cannot copy to a pe's memory");
}

/* Before engines run: nothing may be allocated then. */
static int pe_open(ry_gpu_job *job, uint32_t pe)
{
    struct ry_job_pe *p = &job->pe[pe];
    const ry_ep_attr *e = &job->attr.ep;
    struct ry_place place = {e->experts, job->attr.n_pes, job->attr.n_nodes};
    uint64_t device_bytes, host_bytes;
    cudaError_t rc;
    int status;

    p->device = (int)(pe % (uint32_t)job->gpus);
    p->local = experts_of(job, pe);
    p->rows_max = (uint64_t)job->attr.n_pes * e->tokens_max;
    if (e->mode == RY_EP_LL)
        p->rows_max *= ry_place_expert_count_max(&place);
    pe_lay(job, p, NULL, NULL, &device_bytes, &host_bytes);
    status = ry_gpu_enter(p->device);
    if (status != RY_OK)
        return status;
    p->host = malloc(host_bytes);
    if (!p->host)
        return ry_fail(RY_ERR_NO_MEMORY, "no memory for the results of pe %u", pe);
    rc = cudaMalloc(&p->memory, device_bytes);
    if (rc == cudaSuccess)
        rc = cudaStreamCreateWithFlags(&p->stream, cudaStreamNonBlocking);
    if (rc == cudaSuccess)
        rc = cudaEventCreate(&p->begin);
    if (rc == cudaSuccess)
        rc = cudaEventCreate(&p->end);
    if (rc != cudaSuccess)
        return ry_gpu_fail(rc, "cannot take a pe's memory");
    pe_lay(job, p, p->memory, p->host, &device_bytes, &host_bytes);
    return pe_touch(p, device_bytes, host_bytes);
}

static void pe_close(struct ry_job_pe *p)
{
    if (!p->host)
        return;
    cudaSetDevice(p->device);
    if (p->begin)
        cudaEventDestroy(p->begin);
    if (p->end)
        cudaEventDestroy(p->end);
    if (p->stream)
        cudaStreamDestroy(p->stream);
    cudaFree(p->memory);
    free(p->host);
}

static int attr_check(const ry_gpu_job_attr *a)
{
    if (a->n_pes < 2 || a->n_pes > RY_GPU_PES_MAX)
        return ry_fail(RY_ERR_INVALID, "%u pes on gpus: from 2 to %d in one process", a->n_pes,
                       RY_GPU_PES_MAX);
    if (a->rails < 1 || a->rails > RY_GPU_JOB_RAILS)
        return ry_fail(RY_ERR_INVALID, "%u rails: the gpu's emulated nic has 1 to %d", a->rails,
                       RY_GPU_JOB_RAILS);
    if (a->channels < 1 || a->n_pes * a->channels * RY_SLOTS > RY_GNIC_QPS_MAX)
        return ry_fail(RY_ERR_INVALID,
                       "%u channels to each of %u pes: the gpu's emulated nic takes %d in all, so "
                       "at most %d here",
                       a->channels, a->n_pes, RY_GNIC_QPS_MAX / RY_SLOTS,
                       RY_GNIC_QPS_MAX / RY_SLOTS / (int)a->n_pes);
    return RY_OK;
}

static uint32_t far_max(const ry_gpu_job_attr *a)
{
    uint32_t least = a->n_pes / a->n_nodes; /* the smallest node */

    return a->p2p ? a->n_pes - least : a->n_pes - 1;
}

/* SMs that a PE's kernels may take: those of PEs that share a GPU wait for each other, so that all
 * of them must fit beside the engines and a mover. */
static uint32_t sms_for(const ry_gpu_job *job)
{
    uint32_t gpus = (uint32_t)job->gpus, together = (job->attr.n_pes + gpus - 1) / gpus, most;
    int sms = 0;

    cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0);
    most = (uint32_t)sms - together * job->attr.rails * ENGINES - 2;
    most = most / together ? most / together : 1;
    return job->attr.sms && job->attr.sms < most ? job->attr.sms : most;
}

static int exchange_open(ry_gpu_job *job)
{
    const ry_gpu_job_attr *a = &job->attr;
    ry_gpu_ep_attr e = {.ep = a->ep,
                        .n_pes = a->n_pes,
                        .n_nodes = a->n_nodes,
                        .sms = sms_for(job),
                        .timeout_ns = a->timeout_ns};
    struct ry_gpu_fabric_attr f = {
        .pes = a->n_pes,
        .nodes = a->n_nodes,
        .ports = a->rails,
        .channels = a->channels,
        .depth = DEPTH,
        .devices = (uint32_t)job->gpus,
        .parts = ENGINES,
        .heap_bytes = HEAP_SPARE + ry_gpu_ep_far_heap_bytes(&e, a->channels, far_max(a)),
        .own_bytes = ry_gpu_ep_far_own_bytes(&e, a->channels),
        .rate_bps = a->rate_bps,
        .retry_ns = RETRY_NS,
        .timeout_ns = a->timeout_ns,
        .direct = a->p2p,
        .failover = a->failover,
        .failback = 1,
        .handler = a->handler,
        .event_ns = EVENT_NS,
    };
    int status;

    if (f.heap_bytes == HEAP_SPARE || !f.own_bytes)
        return RY_ERR_INVALID; /* and said why */
    status = ry_gpu_fabric_open(&f, &job->fabric);
    for (uint32_t pe = 0; pe < a->n_pes && status == RY_OK; pe++) {
        const struct ry_gpu_world *w = ry_gpu_fabric_world(job->fabric, pe);
        struct ry_gpu_ep_place at = {w, ry_gpu_fabric_heap(job->fabric, pe),
                                     ry_gpu_fabric_own(job->fabric, pe), w->status, a->rails};

        e.pe = pe;
        e.device = job->pe[pe].device;
        status = ry_gpu_ep_create_far(&e, &at, &job->pe[pe].ep);
    }
    return status;
}

int ry_gpu_job_open(const ry_gpu_job_attr *attr, ry_gpu_job **out)
{
    int status = attr_check(attr);
    ry_gpu_job *job;

    if (status != RY_OK)
        return status;
    /* kernels that wait for each other must not queue behind each other, nor be loaded late */
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
    job = calloc(1, sizeof(*job));
    if (!job)
        return ry_fail(RY_ERR_NO_MEMORY, "no memory for a job");
    job->attr = *attr;
    job->attr.n_nodes = attr->n_nodes ? attr->n_nodes : 1;
    job->attr.timeout_ns = attr->timeout_ns ? attr->timeout_ns : 2000000000ull;
    job->gpus = ry_gpu_count();
    if (job->gpus == 0)
        status = ry_fail(RY_ERR_DEVICE, "no gpu can be used here: see nvidia-smi");
    if (job->gpus > (int)attr->n_pes)
        job->gpus = (int)attr->n_pes;
    for (uint32_t pe = 0; pe < attr->n_pes && status == RY_OK; pe++)
        status = pe_open(job, pe);
    if (status == RY_OK)
        status = exchange_open(job);
    if (status != RY_OK) {
        ry_gpu_job_close(job);
        return status;
    }
    *out = job;
    return RY_OK;
}

void ry_gpu_job_close(ry_gpu_job *job)
{
    if (!job)
        return;
    for (uint32_t pe = 0; pe < job->attr.n_pes; pe++)
        ry_gpu_ep_destroy(job->pe[pe].ep);
    if (job->fabric)
        ry_gpu_fabric_close(job->fabric); /* engines run until then: nothing is freed before */
    for (uint32_t pe = 0; pe < job->attr.n_pes; pe++)
        pe_close(&job->pe[pe]);
    free(job);
}

int ry_gpu_job_port(ry_gpu_job *job, uint32_t pe, uint32_t rail, int up)
{
    if (pe >= job->attr.n_pes || rail >= job->attr.rails)
        return ry_fail(RY_ERR_INVALID, "pe%u/rail%u is not in this job", pe, rail);
    return ry_gpu_fabric_port(job->fabric, pe, rail, up, 0);
}

int ry_gpu_job_count(ry_gpu_job *job, uint32_t pe, ry_gpu_job_counts *out)
{
    struct ry_gpu_fabric_counts c;
    int status;

    if (pe >= job->attr.n_pes)
        return ry_fail(RY_ERR_INVALID, "pe %u of %u", pe, job->attr.n_pes);
    status = ry_gpu_fabric_count(job->fabric, pe, &c);
    if (status != RY_OK)
        return status;
    *out = (ry_gpu_job_counts){.moves = c.moves - c.planned,
                               .replayed = c.replayed,
                               .switch_us = (double)c.switch_ns_max * 1e-3};
    for (uint32_t r = 0; r < job->attr.rails; r++)
        out->rail_bytes[r] = c.port_bytes[r];
    return RY_OK;
}
