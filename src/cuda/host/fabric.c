/* SPDX-License-Identifier: Apache-2.0 */
/* The fabric's memory: who has what, taken at once and given back at once, because nothing may be
 * allocated or freed on a GPU while engines run there. */
#include "cuda/host/fabric_inside.h"

#include <stdlib.h>
#include <string.h>

#include "core/place.h"
#include "cuda/host/driver.h"
#include "host/error.h"

enum {
    LINE = 64,
    SYSTEM_BYTES = 64 << 10,
    RY_FABRIC_BATCH = 32, /* blocks whose doorbell may be left to the next warp */
};

static void *take(uint8_t *base, uint64_t *at, uint64_t bytes)
{
    uint64_t begin = *at;

    *at = (begin + bytes + 255) / 256 * 256;
    return base ? base + begin : NULL;
}

/* A PE's device memory, or with base NULL its size. */
static uint64_t pe_lay(struct ry_gpu_fabric *f, struct ry_fabric_pe *p, uint8_t *base)
{
    uint32_t n = f->attr.pes * f->attr.channels;
    uint64_t at = 0;

    p->ch_device = take(base, &at, n * sizeof(*p->ch_device));
    p->totals = take(base, &at, 64ull * f->attr.pes * 16);
    p->qp_device = take(base, &at, RY_GNIC_QPS_MAX * sizeof(*p->qp_device));
    p->port_device = take(base, &at, f->attr.ports * sizeof(*p->port_device));
    p->down = take(base, &at, (uint64_t)f->attr.pes * f->attr.ports * 8);
    p->stop = take(base, &at, 8);
    p->keys = take(base, &at, (uint64_t)f->attr.pes * f->attr.ports * RY_GNIC_MRS * 4);
    p->engines = take(base, &at, f->attr.ports * f->attr.parts * sizeof(*p->engines));
    p->words = take(base, &at, n * RY_SLOTS * 2ull * 2 * LINE);
    p->rings = take(base, &at, n * RY_SLOTS * 2ull * f->attr.depth * RY_WQE_BYTES);
    p->own = take(base, &at, f->attr.own_bytes);
    return at;
}

static cudaError_t pe_take(struct ry_gpu_fabric *f, struct ry_fabric_pe *p)
{
    uint32_t n = f->attr.pes * f->attr.channels;
    uint64_t bytes = pe_lay(f, p, NULL);
    cudaError_t rc = cudaMalloc(&p->memory, bytes);

    if (rc == cudaSuccess)
        rc = cudaMalloc((void **)&p->heap, f->attr.heap_bytes);
    if (rc == cudaSuccess)
        rc = cudaMemset(p->memory, 0, bytes);
    if (rc == cudaSuccess)
        rc = cudaMemset(p->heap, 0, f->attr.heap_bytes);
    if (rc == cudaSuccess)
        rc = cudaHostAlloc((void **)&p->pinned, sizeof(*p->pinned), cudaHostAllocPortable);
    if (rc == cudaSuccess)
        rc = cudaHostAlloc((void **)&p->ch_host, n * sizeof(*p->ch_host), cudaHostAllocPortable);
    if (rc == cudaSuccess)
        rc = cudaStreamCreateWithFlags(&p->engine_stream, cudaStreamNonBlocking);
    if (rc == cudaSuccess)
        rc = cudaStreamCreateWithFlags(&p->copy_stream, cudaStreamNonBlocking);
    if (rc == cudaSuccess)
        rc = cudaStreamCreateWithFlags(&p->mover_stream, cudaStreamNonBlocking);
    if (rc == cudaSuccess)
        rc = cudaStreamCreateWithFlags(&p->proxy_stream, cudaStreamNonBlocking);
    if (rc == cudaSuccess)
        rc = cudaDeviceSynchronize();
    if (rc != cudaSuccess)
        return rc;
    memset(p->pinned, 0, sizeof(*p->pinned));
    pe_lay(f, p, p->memory);
    return cudaSuccess;
}

static void channel_init(struct ry_gpu_fabric *f, uint32_t pe, uint32_t peer, uint32_t c)
{
    struct ry_fabric_pe *p = &f->pe[pe];
    uint32_t i = peer * f->attr.channels + c;
    struct ry_channel *ch = &p->ch_host[i];

    memset(ch, 0, sizeof(*ch));
    ch->state = ry_state_pack(RY_CH_PARKED, 0, 0);
    ch->peer = peer;
    ch->id = c;
    ch->depth = f->attr.depth;
    ch->handler = f->attr.handler;
    ch->hint = &p->pinned->hint;
    ch->read_laddr = (uint64_t)(p->heap + LINE + 8ull * i);
    ch->read_raddr = (uint64_t)f->pe[peer].heap;
    ch->probe_next = f->attr.depth / RY_PROBES;
    ch->first_ok_ns = 1;
    for (uint32_t s = 0; s < RY_SLOTS; s++) {
        struct ry_ring *r = &ch->ring[s];

        r->host = &p->pinned->slot[i][s];
        r->pslot = &p->pinned->bell[i][s].pslot; /* the first move closes a ring without a life */
        r->pecho = &p->pinned->bell[i][s].pecho;
        r->mask = f->attr.depth - 1;
        r->resv_head = RY_CLOSED;
    }
}

static bool reaches(const struct ry_gpu_fabric *f, uint32_t pe, uint32_t q)
{
    struct ry_place place = {0, f->attr.pes, f->attr.nodes ? f->attr.nodes : 1};

    return q == pe || (f->attr.direct && ry_place_node(&place, q) == ry_place_node(&place, pe));
}

static void world_fill(struct ry_gpu_fabric *f, uint32_t pe)
{
    struct ry_fabric_pe *p = &f->pe[pe];
    struct ry_gpu_world *w = &p->world;

    w->ch = p->ch_device;
    w->heap = p->heap;
    for (uint32_t q = 0; q < f->attr.pes; q++) {
        w->raddr[q] = (uint64_t)f->pe[q].heap;
        w->direct[q] = reaches(f, pe, q) ? f->pe[q].heap : NULL;
    }
    w->totals = p->totals;
    w->status = &p->pinned->status;
    w->env.ready_ns_max = 100000000;
    w->env.move_ns_max = 2000000;
    w->env.lost_ns_max = f->attr.timeout_ns;
    w->env.width = 1;
    w->env.batch = RY_FABRIC_BATCH;
    w->timeout_ns = f->attr.timeout_ns;
    w->pe = pe;
    w->pes = f->attr.pes;
    w->channels = f->attr.channels;
    w->failover = (uint32_t)f->attr.failover;
}

/* Keys are made up, but they differ, so that a wrong one is noticed. */
static uint32_t key_of(uint32_t pe, uint32_t port, uint32_t region)
{
    return 0x4000u | pe << 8 | port << 4 | region;
}

static cudaError_t engines_start(struct ry_gpu_fabric *f, uint32_t pe)
{
    struct ry_fabric_pe *p = &f->pe[pe];
    uint32_t n = 0, keys[RY_GNIC_PES_MAX * RY_GNIC_PORTS_MAX * RY_GNIC_MRS];
    struct ry_gnic_engine e[RY_GNIC_PORTS_MAX * RY_FABRIC_PARTS_MAX];
    cudaError_t rc;

    memset(e, 0, sizeof(e));
    memset(keys, 0, sizeof(keys));
    for (uint32_t q = 0; q < f->attr.pes; q++)
        for (uint32_t port = 0; port < f->attr.ports; port++)
            for (uint32_t r = 0; r < RY_GNIC_MRS; r++)
                keys[(q * f->attr.ports + port) * RY_GNIC_MRS + r] = key_of(q, port, r);
    for (uint32_t port = 0; port < f->attr.ports; port++) {
        for (uint32_t part = 0; part < f->attr.parts; part++, n++) {
            e[n].qp = p->qp_device;
            e[n].shared = &p->port_device[port];
            e[n].down = p->down;
            e[n].stop = p->stop;
            e[n].tripped = &p->pinned->tripped[port];
            e[n].local[0] =
                (struct ry_gnic_mr){(uint64_t)p->heap, f->attr.heap_bytes, key_of(pe, port, 0), 0};
            for (uint32_t q = 0; q < f->attr.pes; q++)
                e[n].remote[q] = (struct ry_gnic_mr){(uint64_t)f->pe[q].heap, f->attr.heap_bytes,
                                                     key_of(q, port, 0), 0};
            e[n].n = f->attr.pes * f->attr.channels * RY_SLOTS;
            e[n].port = pe * f->attr.ports + port;
            e[n].part = part;
            e[n].parts = f->attr.parts;
            e[n].ports = f->attr.ports;
            e[n].rate_bps = f->attr.rate_bps;
            e[n].retry_ns = f->attr.retry_ns;
        }
    }
    rc = cudaMemcpy(p->keys, keys, sizeof(keys[0]) * f->attr.pes * f->attr.ports * RY_GNIC_MRS,
                    cudaMemcpyHostToDevice);
    if (rc == cudaSuccess)
        rc = cudaMemcpy(p->engines, e, n * sizeof(*e), cudaMemcpyHostToDevice);
    if (rc == cudaSuccess)
        rc = cudaMemcpy(p->ch_device, p->ch_host,
                        f->attr.pes * f->attr.channels * sizeof(*p->ch_host),
                        cudaMemcpyHostToDevice);
    if (rc == cudaSuccess)
        rc = (cudaError_t)ry_gnic_launch(p->engines, n, p->engine_stream);
    return rc;
}

static int attr_check(const struct ry_gpu_fabric_attr *a)
{
    if (a->pes < 2 || a->pes > RY_GNIC_PES_MAX || a->ports < 1 || a->ports > RY_GNIC_PORTS_MAX ||
        a->parts < 1 || a->parts > RY_FABRIC_PARTS_MAX || a->channels < 1 ||
        a->pes * a->channels * RY_SLOTS > RY_GNIC_QPS_MAX)
        return ry_fail(RY_ERR_INVALID,
                       "fabric of %u pes, %u ports, %u channels: at most %d queue "
                       "pairs a pe",
                       a->pes, a->ports, a->channels, RY_GNIC_QPS_MAX);
    if (a->handler != RY_HANDLER_GPU && a->handler != RY_HANDLER_CPU_HOST_MEMORY)
        return ry_fail(RY_ERR_UNSUPPORTED,
                       "handler cpu keeps its slots in gpu memory that the host maps, which needs "
                       "gdrdrv: use gpu or cpu_host_memory");
    if (a->nodes > a->pes)
        return ry_fail(RY_ERR_INVALID, "fabric of %u nodes for %u pes: each node needs one",
                       a->nodes, a->pes);
    if (a->depth < RY_DEPTH_MIN || a->depth > RY_DEPTH_MAX || (a->depth & (a->depth - 1)))
        return ry_fail(RY_ERR_INVALID, "depth %u: a power of two from %d to %d", a->depth,
                       RY_DEPTH_MIN, RY_DEPTH_MAX);
    if (a->heap_bytes < SYSTEM_BYTES)
        return ry_fail(RY_ERR_INVALID, "heap of %llu bytes: at least %d",
                       (unsigned long long)a->heap_bytes, SYSTEM_BYTES);
    return RY_OK;
}

static int peers_enable(uint32_t devices)
{
    for (uint32_t d = 0; d < devices; d++) {
        int rc = ry_gpu_enter((int)d);

        if (rc != RY_OK)
            return rc;
        for (uint32_t o = 0; o < devices; o++) {
            cudaError_t e = o == d ? cudaSuccess : cudaDeviceEnablePeerAccess((int)o, 0);

            if (e != cudaSuccess && e != cudaErrorPeerAccessAlreadyEnabled)
                return ry_gpu_fail(e, "the gpus do not reach each other");
            (void)cudaGetLastError();
        }
    }
    return RY_OK;
}

int ry_gpu_fabric_open(const struct ry_gpu_fabric_attr *attr, struct ry_gpu_fabric **out)
{
    struct ry_gpu_fabric *f = calloc(1, sizeof(*f));
    cudaError_t e = cudaSuccess;
    int rc = attr_check(attr);

    if (!f || rc != RY_OK) {
        free(f);
        return rc != RY_OK ? rc : ry_fail(RY_ERR_NO_MEMORY, "no memory for a fabric");
    }
    f->attr = *attr;
    pthread_mutex_init(&f->lock, NULL);
    rc = peers_enable(attr->devices);
    for (uint32_t p = 0; p < attr->pes && rc == RY_OK && e == cudaSuccess; p++) {
        f->pe[p].device = (int)(p % attr->devices);
        rc = ry_gpu_enter(f->pe[p].device);
        if (rc == RY_OK)
            e = pe_take(f, &f->pe[p]);
    }
    for (uint32_t p = 0; p < attr->pes && rc == RY_OK && e == cudaSuccess; p++) {
        rc = ry_gpu_enter(f->pe[p].device);
        for (uint32_t q = 0; q < attr->pes; q++)
            for (uint32_t c = 0; c < attr->channels; c++)
                channel_init(f, p, q, c);
        world_fill(f, p);
        e = engines_start(f, p);
        f->pe[p].started = e == cudaSuccess;
    }
    if (rc == RY_OK && e != cudaSuccess)
        rc = ry_gpu_fail(e, "cannot open the fabric");
    if (rc == RY_OK && attr->handler == RY_HANDLER_CPU_HOST_MEMORY)
        rc = ry_fabric_proxy_start(f);
    if (rc == RY_OK)
        rc = ry_fabric_agent_start(f);
    if (rc != RY_OK) {
        ry_gpu_fabric_close(f);
        return rc;
    }
    *out = f;
    return RY_OK;
}

void ry_gpu_fabric_close(struct ry_gpu_fabric *f)
{
    uint64_t one = 1;

    ry_fabric_agent_stop(f);
    ry_fabric_proxy_stop(f);
    for (uint32_t i = 0; i < f->attr.pes; i++) {
        struct ry_fabric_pe *p = &f->pe[i];

        cudaSetDevice(p->device);
        if (p->started) {
            cudaMemcpyAsync(p->stop, &one, 8, cudaMemcpyHostToDevice, p->copy_stream);
            cudaStreamSynchronize(p->engine_stream);
        }
    }
    for (uint32_t i = 0; i < f->attr.pes; i++) {
        struct ry_fabric_pe *p = &f->pe[i];

        cudaSetDevice(p->device);
        cudaDeviceSynchronize();
        if (p->engine_stream)
            cudaStreamDestroy(p->engine_stream);
        if (p->copy_stream)
            cudaStreamDestroy(p->copy_stream);
        if (p->mover_stream)
            cudaStreamDestroy(p->mover_stream);
        if (p->proxy_stream)
            cudaStreamDestroy(p->proxy_stream);
        cudaFree(p->memory);
        cudaFree(p->heap);
        cudaFreeHost(p->pinned);
        cudaFreeHost(p->ch_host);
    }
    pthread_mutex_destroy(&f->lock);
    free(f);
}

const struct ry_gpu_world *ry_gpu_fabric_world(const struct ry_gpu_fabric *f, uint32_t pe)
{
    return &f->pe[pe].world;
}

void *ry_gpu_fabric_heap(const struct ry_gpu_fabric *f, uint32_t pe)
{
    return f->pe[pe].heap + SYSTEM_BYTES;
}

void *ry_gpu_fabric_own(const struct ry_gpu_fabric *f, uint32_t pe) { return f->pe[pe].own; }

int ry_gpu_fabric_status(struct ry_gpu_fabric *f, uint32_t pe, uint32_t *peer, uint32_t *channel,
                         uint32_t *rail)
{
    struct ry_fabric_pe *p = &f->pe[pe];
    uint64_t word = __atomic_exchange_n(&p->pinned->status.first, 0, __ATOMIC_ACQ_REL);
    uint32_t slot = word >> 16 & 3;

    *peer = (uint32_t)(word >> 32);
    *channel = word >> 20 & 0xfff;
    *rail = (*channel + slot) % f->attr.ports;
    return -(int)(word >> 8 & 0xff);
}
