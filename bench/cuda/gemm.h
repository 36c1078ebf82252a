/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RY_BENCH_CUDA_GEMM_H
#define RY_BENCH_CUDA_GEMM_H

#include <cuda_runtime.h>

/* c[n][n] += a[n][n] * b[n][n], bf16 in, f32 out; n a multiple of 64. Work that fills the SMs with
 * tensor-core arithmetic, for measuring what runs beside it; no attempt to be the fastest. */
void gemm_run(const void *a, const void *b, float *c, int n, cudaStream_t stream);

/* A kernel that does nothing. */
void gemm_nothing(cudaStream_t stream);

#endif
