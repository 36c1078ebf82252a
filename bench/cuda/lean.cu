/* SPDX-License-Identifier: Apache-2.0 */
/* One kernel of one-sided calls, compiled with failover and (RY_LEAN_OFF) without. */
#if defined(RY_LEAN_OFF)
#define RY_WORLD_FAILOVER(w) ((void)(w), 0u)
#define lean_print           lean_print_off
#define LEAN                 "without"
#else
#define LEAN "with"
#endif

#include <stdio.h>

#include "rma_bench.h"

#include "cuda/rma.h"

static __global__ void __launch_bounds__(256, 3)
lean_kernel(const __grid_constant__ struct ry_gpu_world w, uint8_t *heap,
                                   uint32_t bytes, uint32_t peer, int *out)
{
    struct ry_sector *signal = (struct ry_sector *)heap;
    int rc = ry_dev_put_signal(&w, heap + 65536, heap + 65536, bytes, signal, 1, peer, RY_WARP);

    if (rc == 0)
        rc = ry_dev_signal_wait(&w, signal, 1, peer, RY_WARP);
    if (rc == 0)
        rc = ry_dev_quiet(&w, RY_BLOCK);
    if (rc)
        *out = rc;
}

extern "C" void lean_print(void)
{
    cudaFuncAttributes f;
    int blocks = 0;

    if (cudaFuncGetAttributes(&f, lean_kernel) != cudaSuccess ||
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, lean_kernel, 256, 0) != cudaSuccess)
        return;
    printf("put, signal, wait and quiet, %s failover: %d registers, %zu bytes of local memory, %d "
           "blocks of 256 threads on an SM\n",
           LEAN, f.numRegs, f.localSizeBytes, blocks);
}
