/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of the symmetric heap: first fit, the same calls in the same order give the same offsets
 * on every PE. */
#include <inttypes.h>
#include <railyard/heap.h>
#include <stdlib.h>
#include <string.h>

#include "host/clock.h"
#include "host/ctx.h"
#include "host/error.h"

enum { ALIGN = 256 };

int ry_heap_init(struct ry_ctx *ctx)
{
    struct ry_heap_block *b = calloc(1, sizeof(*b));

    if (!b)
        return ry_fail(RY_ERR_NO_MEMORY, "no memory for the heap's list");
    b->offset = (ctx->mesh.sys_bytes + ALIGN - 1) / ALIGN * ALIGN;
    b->bytes = ctx->mesh.heap_bytes - b->offset;
    ctx->blocks = b;
    return RY_OK;
}

void ry_heap_fini(struct ry_ctx *ctx)
{
    while (ctx->blocks) {
        struct ry_heap_block *next = ctx->blocks->next;

        free(ctx->blocks);
        ctx->blocks = next;
    }
}

/* Sizes must be the same on all PEs, else offsets would differ from here on. */
static int same_everywhere(struct ry_ctx *ctx, uint64_t bytes)
{
    uint64_t *all = calloc(ctx->mesh.n_pes, sizeof(*all));
    int rc = all ? RY_OK : ry_fail(RY_ERR_NO_MEMORY, "no memory for %u sizes", ctx->mesh.n_pes);

    if (rc == RY_OK)
        rc = ctx->boot->ops->allgather(ctx->boot, &bytes, sizeof(bytes), all,
                                       ry_now(&ctx->mesh.env) + ctx->start_timeout_ns);
    for (uint32_t p = 1; rc == RY_OK && p < ctx->mesh.n_pes; p++)
        if (all[p] != all[0])
            rc = ry_fail(RY_ERR_CONFIG,
                         "ry_malloc is collective: pe 0 asks for %" PRIu64 " bytes and pe %u "
                         "for %" PRIu64,
                         all[0], p, all[p]);
    free(all);
    return rc;
}

static struct ry_heap_block *first_fit(struct ry_ctx *ctx, uint64_t bytes)
{
    for (struct ry_heap_block *b = ctx->blocks; b; b = b->next)
        if (!b->used && b->bytes >= bytes)
            return b;
    return NULL;
}

static int take(struct ry_ctx *ctx, struct ry_heap_block *b, uint64_t bytes)
{
    if (b->bytes > bytes) {
        struct ry_heap_block *rest = malloc(sizeof(*rest));

        if (!rest)
            return ry_fail(RY_ERR_NO_MEMORY, "no memory for the heap's list");
        *rest = (struct ry_heap_block){b->offset + bytes, b->bytes - bytes, false, b->next};
        b->next = rest;
        b->bytes = bytes;
    }
    b->used = true;
    ctx->heap_used += bytes;
    return RY_OK;
}

int ry_malloc(ry_ctx *ctx, size_t bytes, void **out)
{
    uint64_t want = ((uint64_t)bytes + ALIGN - 1) / ALIGN * ALIGN;
    struct ry_heap_block *b;
    int rc;

    if (bytes == 0 || want < bytes)
        return ry_fail(RY_ERR_INVALID, "ry_malloc of %zu bytes", bytes);
    rc = ctx->mallocs < ctx->mallocs_theirs ? RY_OK : same_everywhere(ctx, bytes);
    if (rc)
        return rc;
    b = first_fit(ctx, want);
    if (!b)
        return ry_fail(RY_ERR_NO_MEMORY,
                       "heap too small: %zu bytes are asked for, %" PRIu64 " of %" PRIu64
                       " are in use: set RAILYARD_HEAP_SIZE to at least %" PRIu64,
                       bytes, ctx->mesh.sys_bytes + ctx->heap_used, ctx->mesh.heap_bytes,
                       ctx->mesh.sys_bytes + ctx->heap_used + want);
    rc = take(ctx, b, want);
    if (rc)
        return rc;
    ctx->mallocs++;
    *out = ctx->mesh.heap + b->offset;
    return RY_OK;
}

/* Join a free block with its free neighbour behind it. */
static void join(struct ry_heap_block *b)
{
    while (b && b->next) {
        struct ry_heap_block *n = b->next;

        if (b->used || n->used) {
            b = n;
            continue;
        }
        b->bytes += n->bytes;
        b->next = n->next;
        free(n);
    }
}

int ry_free(ry_ctx *ctx, void *ptr)
{
    if (!ptr)
        return RY_OK;
    for (struct ry_heap_block *b = ctx->blocks; b; b = b->next) {
        if (b->used && ctx->mesh.heap + b->offset == (uint8_t *)ptr) {
            b->used = false;
            ctx->heap_used -= b->bytes;
            join(ctx->blocks);
            return RY_OK;
        }
    }
    return ry_fail(RY_ERR_INVALID, "ry_free of %p, which ry_malloc did not give", ptr);
}

void *ry_ptr(const ry_ctx *ctx, const void *ptr, uint32_t pe)
{
    const struct ry_mesh *m = &ctx->mesh;
    uint64_t off = (uint64_t)((const uint8_t *)ptr - m->heap);

    if (pe >= m->n_pes || !ry_mesh_in_heap(m, ptr, 1))
        return NULL;
    if (pe == m->pe)
        return m->heap + off;
    return m->peers[pe].direct ? (uint8_t *)m->peers[pe].heap + off : NULL;
}

size_t ry_heap_bytes(const ry_ctx *ctx) { return ctx->mesh.heap_bytes; }
size_t ry_heap_used(const ry_ctx *ctx) { return ctx->mesh.sys_bytes + ctx->heap_used; }
