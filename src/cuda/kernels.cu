/* SPDX-License-Identifier: Apache-2.0 */
/* What the compiler made of every kernel, for those who report figures. */
#include <stdio.h>

#include "cuda/args.h"

extern "C" __global__ void ry_ll_dispatch_kernel(const __grid_constant__ struct ry_gpu_ll a);
extern "C" __global__ void ry_ll_combine_kernel(const __grid_constant__ struct ry_gpu_ll a);
extern "C" __global__ void ry_ht_plan_kernel(const __grid_constant__ struct ry_gpu_ht a);
extern "C" __global__ void ry_ht_dispatch_kernel(const __grid_constant__ struct ry_gpu_ht a);
extern "C" __global__ void ry_ht_combine_kernel(const __grid_constant__ struct ry_gpu_ht a);

static void print_kernel(const char *name, const void *kernel)
{
    cudaFuncAttributes f;

    if (cudaFuncGetAttributes(&f, kernel) != cudaSuccess)
        return;
    printf("kernel %-14s %3d registers, %zu bytes of local memory, %zu of shared memory, at most "
           "%d threads\n",
           name, f.numRegs, f.localSizeBytes, f.sharedSizeBytes, f.maxThreadsPerBlock);
}

extern "C" void ry_gpu_print_kernels(void)
{
    print_kernel("ll dispatch", (const void *)ry_ll_dispatch_kernel);
    print_kernel("ll combine", (const void *)ry_ll_combine_kernel);
    print_kernel("ht plan", (const void *)ry_ht_plan_kernel);
    print_kernel("ht dispatch", (const void *)ry_ht_dispatch_kernel);
    print_kernel("ht combine", (const void *)ry_ht_combine_kernel);
}
