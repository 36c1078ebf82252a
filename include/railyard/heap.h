/* SPDX-License-Identifier: Apache-2.0 */
/* The symmetric heap: memory that every PE has at the same offset and that peers may read and
 * write. */
#ifndef RAILYARD_HEAP_H
#define RAILYARD_HEAP_H

#include <railyard/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Collective: every PE asks for the same size (checked). Aligned to 256 bytes, zeroed on first use.
 * Errors: NO_MEMORY (ry_last_error says how much the heap lacks), CONFIG (sizes differ). Freed by
 * ry_free in any order, or with the context. */
RY_API int ry_malloc(ry_ctx *ctx, size_t bytes, void **out);
RY_API int ry_free(ry_ctx *ctx, void *ptr);

/* The same object in `pe`'s heap, as a plain pointer of this process: NULL where the PE cannot be
 * reached that way (another node, or RAILYARD_P2P=off). For ptr outside the heap: NULL. */
RY_API void *ry_ptr(const ry_ctx *ctx, const void *ptr, uint32_t pe);

RY_API size_t ry_heap_bytes(const ry_ctx *ctx);
RY_API size_t ry_heap_used(const ry_ctx *ctx);

#ifdef __cplusplus
}
#endif
#endif
