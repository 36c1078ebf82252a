/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RY_CUDA_DRIVER_H
#define RY_CUDA_DRIVER_H

/* RY_ERR_DEVICE and a line that says what the runtime said. */
int ry_gpu_fail(int cuda_error, const char *what);

/* Makes `device` this thread's GPU. RY_ERR_DEVICE: there is none of that number. */
int ry_gpu_enter(int device);

#endif
