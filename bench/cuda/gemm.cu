/* SPDX-License-Identifier: Apache-2.0 */
#include "gemm.h"

#include <cuda_bf16.h>
#include <mma.h>

using namespace nvcuda;

enum { TILE = 64, DEPTH = 32 };

/* A block of four warps makes a 64 x 64 tile, a warp a 32 x 32 quarter of it. */
static __global__ void __launch_bounds__(128)
    gemm_kernel(const __nv_bfloat16 *a, const __nv_bfloat16 *b, float *c, int n)
{
    __shared__ __align__(32) __nv_bfloat16 ta[TILE][DEPTH + 8], tb[DEPTH][TILE + 8];
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc[2][2];
    int row = blockIdx.y * TILE, col = blockIdx.x * TILE, warp = threadIdx.x / 32;

    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++)
            wmma::fill_fragment(acc[i][j], 0.0f);
    for (int k = 0; k < n; k += DEPTH) {
        __syncthreads();
        for (int i = threadIdx.x; i < TILE * DEPTH / 8; i += 128) {
            int r = i / (DEPTH / 8), d = i % (DEPTH / 8) * 8;
            int s = i / (TILE / 8), e = i % (TILE / 8) * 8;

            *(uint4 *)&ta[r][d] = *(const uint4 *)&a[(size_t)(row + r) * n + k + d];
            *(uint4 *)&tb[s][e] = *(const uint4 *)&b[(size_t)(k + s) * n + col + e];
        }
        __syncthreads();
        for (int d = 0; d < DEPTH; d += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> fa[2];
            wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::row_major> fb[2];

            for (int i = 0; i < 2; i++) {
                wmma::load_matrix_sync(fa[i], &ta[warp / 2 * 32 + i * 16][d], DEPTH + 8);
                wmma::load_matrix_sync(fb[i], &tb[d][warp % 2 * 32 + i * 16], TILE + 8);
            }
            for (int i = 0; i < 2; i++)
                for (int j = 0; j < 2; j++)
                    wmma::mma_sync(acc[i][j], fa[i], fb[j], acc[i][j]);
        }
    }
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++)
            wmma::store_matrix_sync(
                &c[(size_t)(row + warp / 2 * 32 + i * 16) * n + col + warp % 2 * 32 + j * 16],
                acc[i][j], n, wmma::mem_row_major);
}

static __global__ void nothing_kernel(void) {}

void gemm_run(const void *a, const void *b, float *c, int n, cudaStream_t stream)
{
    gemm_kernel<<<dim3(n / TILE, n / TILE), 128, 0, stream>>>((const __nv_bfloat16 *)a,
                                                              (const __nv_bfloat16 *)b, c, n);
}

void gemm_nothing(cudaStream_t stream) { nothing_kernel<<<1, 32, 0, stream>>>(); }
