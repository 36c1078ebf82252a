/* SPDX-License-Identifier: Apache-2.0 */
/* Mapping peers: their heaps and what their NICs show, where they are on this host. */
#include <stdlib.h>
#include <unistd.h>

#include "host/ctx.h"
#include "host/error.h"
#include "host/heap_map.h"

static int map_by_pointer(struct ry_peer *p)
{
    p->heap = (void *)(uintptr_t)p->hello.heap_base;
    p->seg = (void *)(uintptr_t)p->hello.seg_base;
    return RY_OK;
}

static int map_by_fd(struct ry_ctx *ctx, struct ry_peer *p, const int *fds)
{
    int rc = RY_OK;

    if (fds[0] >= 0)
        rc = ry_map_attach(fds[0], ctx->mesh.heap_bytes, &p->heap);
    if (rc == RY_OK && fds[1] >= 0 && p->hello.seg_bytes)
        rc = ry_map_attach(fds[1], p->hello.seg_bytes, &p->seg);
    p->mapped = true;
    return rc;
}

static int map_peer(struct ry_ctx *ctx, struct ry_peer *p, const int *fds)
{
    struct ry_boot *b = ctx->boot;
    int rc = b->ops->same_process(b, p->pe) ? map_by_pointer(p)
             : b->ops->same_host(b, p->pe)  ? map_by_fd(ctx, p, fds)
                                            : RY_OK;

    p->direct = ctx->mesh.hello.p2p && p->heap && p->hello.node == ctx->mesh.hello.node;
    return rc;
}

int ry_ctx_map_peers(struct ry_ctx *ctx, const struct ry_nic_export *ex, const uint64_t *set,
                     uint64_t deadline_ns)
{
    uint32_t n = ctx->mesh.n_pes;
    int mine[2] = {ctx->heap_fd, ex->fd}, rc = RY_OK;
    int *fds = malloc(sizeof(int) * n * RY_BOOT_FDS_MAX);

    if (!fds)
        return ry_fail(RY_ERR_NO_MEMORY, "no memory for the descriptors of %u pes", n);
    for (uint32_t i = 0; i < n * RY_BOOT_FDS_MAX; i++)
        fds[i] = -1;
    if (ctx->heap_fd >= 0)
        rc = ctx->boot->ops->share_fds(ctx->boot, mine, ex->fd >= 0 ? 2 : 1, fds, deadline_ns);
    for (uint32_t q = 0; rc == RY_OK && q < n; q++)
        if (q != ctx->mesh.pe && ry_set_within(set, q))
            rc = map_peer(ctx, &ctx->mesh.peers[q], &fds[q * RY_BOOT_FDS_MAX]);
    for (uint32_t i = 0; i < n * RY_BOOT_FDS_MAX; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    free(fds);
    return rc;
}

void ry_ctx_unmap_peer(struct ry_ctx *ctx, struct ry_peer *p)
{
    if (p->mapped) {
        ry_map_release(p->heap, ctx->mesh.heap_bytes);
        ry_map_release(p->seg, p->hello.seg_bytes);
    }
    p->heap = p->seg = NULL;
    p->mapped = false;
}
