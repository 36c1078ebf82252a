/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA runtime is linked statically and loads the driver (libcuda.so.1) by itself when it is
 * first used, so this library starts on machines without a GPU too. What is here turns the absence
 * of a GPU, and memory that two processes share, into this library's terms. */
#include <cuda_runtime_api.h>
#include <railyard/gpu.h>

#include <string.h>

#include "cuda/host/driver.h"
#include "host/error.h"

_Static_assert(sizeof(cudaIpcMemHandle_t) == RY_GPU_HANDLE_BYTES, "a handle is 64 bytes");

int ry_gpu_fail(int cuda_error, const char *what)
{
    return ry_fail(RY_ERR_DEVICE, "%s: the gpu's runtime says: %s; look at nvidia-smi", what,
                   cudaGetErrorString((cudaError_t)cuda_error));
}

int ry_gpu_count(void)
{
    int n = 0;

    if (cudaGetDeviceCount(&n) != cudaSuccess) {
        (void)cudaGetLastError(); /* no driver or no GPU is an answer, not an error */
        return 0;
    }
    return n;
}

int ry_gpu_enter(int device)
{
    cudaError_t rc;
    int n = ry_gpu_count();

    if (device < 0 || device >= n)
        return ry_fail(RY_ERR_DEVICE, "no gpu %d: %d can be used here", device, n);
    rc = cudaSetDevice(device);
    return rc == cudaSuccess ? RY_OK : ry_gpu_fail(rc, "cannot use the gpu");
}

int ry_gpu_export(void *block, void *handle)
{
    cudaIpcMemHandle_t h;
    cudaError_t rc = cudaIpcGetMemHandle(&h, block);

    if (rc != cudaSuccess)
        return ry_gpu_fail(rc, "cannot share device memory");
    memcpy(handle, &h, sizeof(h));
    return RY_OK;
}

int ry_gpu_open(int device, const void *handle, void **block)
{
    cudaIpcMemHandle_t h;
    cudaError_t rc;
    int status = ry_gpu_enter(device);

    if (status != RY_OK)
        return status;
    memcpy(&h, handle, sizeof(h));
    rc = cudaIpcOpenMemHandle(block, h, cudaIpcMemLazyEnablePeerAccess);
    return rc == cudaSuccess ? RY_OK : ry_gpu_fail(rc, "cannot map a peer's device memory");
}

void ry_gpu_close(void *block)
{
    if (block)
        cudaIpcCloseMemHandle(block);
}
