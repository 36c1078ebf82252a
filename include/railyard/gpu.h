/* SPDX-License-Identifier: Apache-2.0 */
/* Expert parallelism on the GPU: dispatch and combine as kernels on the caller's stream.
 *
 * One ry_gpu_ep is one PE's end of an exchange. Every PE gives a block of device memory (its heap
 * part) and is told where the others' blocks are mapped: another GPU of the host by peer access or
 * ry_gpu_open, the same GPU by the pointer itself. All PEs make the same calls in the same order.
 *
 * Calls enqueue kernels and return; they never wait for the GPU, and may be captured in a graph
 * (whole dispatch and combine pairs). What goes wrong on the GPU is found by ry_gpu_ep_status:
 * every wait in every kernel has a deadline, after which the kernel ends and the status says who
 * was waited for. `stream` is a cudaStream_t. Strides and addresses of rows are multiples of 16
 * bytes. One thread at a time uses a ry_gpu_ep. */
#ifndef RAILYARD_GPU_H
#define RAILYARD_GPU_H

#include <railyard/ep.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ry_gpu_ep ry_gpu_ep;

enum { RY_GPU_PES_MAX = 16 }; /* PEs that write each other's memory directly */

/* GPUs that this process can use: 0 without a GPU or without its driver, never an error. */
RY_API int ry_gpu_count(void);

typedef struct ry_gpu_ep_attr {
    ry_ep_attr ep;
    uint32_t pe, n_pes;
    uint32_t n_nodes;    /* 0 = 1; ht sums by node, as ry_ep_combine does */
    int device;          /* CUDA ordinal of this PE's GPU */
    /* Most SMs that its kernels take; 0 = what railyard tune found for this shape, else the
     * device's. The same on all PEs. */
    uint32_t sms;
    uint64_t timeout_ns; /* deadline of every wait in a kernel; 0 = 2 s */
} ry_gpu_ep_attr;

/* Bytes of device memory that every PE gives; 0 if attr is invalid (ry_last_error says why). */
RY_API size_t ry_gpu_ep_heap_bytes(const ry_gpu_ep_attr *attr);

/* heaps[p] is PE p's block as this PE's GPU addresses it; heaps[pe] is its own. All of them must be
 * zero before the first PE uses them, which a barrier of the caller's ensures. INVALID,
 * UNSUPPORTED, NO_MEMORY, DEVICE. */
RY_API int ry_gpu_ep_create(const ry_gpu_ep_attr *attr, void *const *heaps, ry_gpu_ep **out);
RY_API void ry_gpu_ep_destroy(ry_gpu_ep *ep); /* accepts NULL; the stream has ended */

/* As ry_ep_dispatch, with device pointers in `in` and `out`. out->rows is not known to the host: it
 * stays 0, and *rows_device receives the place where the kernel writes it. Output pointers are
 * those of one of `generations` buffers, in turn. */
RY_API int ry_gpu_ep_dispatch(ry_gpu_ep *ep, const ry_ep_input *in, ry_ep_output *out,
                              const uint32_t **rows_device, int phase, void *stream);

/* As ry_ep_combine, with device pointers. */
RY_API int ry_gpu_ep_combine(ry_gpu_ep *ep, const void *y, size_t y_stride, void *out,
                             size_t out_stride, int phase, void *stream);

/* What the kernels that have ended left behind: 0, TIMEOUT (peer and place in ry_last_error) or
 * INVALID (token and k of an index out of range or repeated; it counted as -1). */
RY_API int ry_gpu_ep_status(const ry_gpu_ep *ep);

/* Between processes of one host: 64 bytes that name a block of cudaMalloc, and its address in
 * another process. DEVICE: no peer access. */
enum { RY_GPU_HANDLE_BYTES = 64 };
RY_API int ry_gpu_export(void *block, void *handle);
RY_API int ry_gpu_open(int device, const void *handle, void **block);
RY_API void ry_gpu_close(void *block);

#ifdef __cplusplus
}
#endif
#endif
