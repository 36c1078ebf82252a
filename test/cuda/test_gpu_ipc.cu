/* SPDX-License-Identifier: Apache-2.0 */
/* Two processes, each with a heap of its own on its GPU (the same one where there is only one),
 * which the other maps: every call of every scope, directly. usage: test_gpu_ipc */
#include <sys/socket.h>
#include <sys/wait.h>

#include <string.h>
#include <unistd.h>

#include "cuda/soak.h"
#include "cuda/world.h"
#include "cuda/yard.h"

static void trade(int fd, const void *mine, void *other, size_t bytes)
{
    if (write(fd, mine, bytes) != (ssize_t)bytes || read(fd, other, bytes) != (ssize_t)bytes) {
        printf("the other process is gone\n");
        exit(1);
    }
}

/* One process. 77: no GPU. */
static int pe_run(uint32_t pe, int fd)
{
    uint8_t mine[RY_GPU_HANDLE_BYTES], other[RY_GPU_HANDLE_BYTES];
    int devices = ry_gpu_count(), device = devices > 1 ? (int)pe : 0;
    struct ry_gpu_world w;
    struct soak_result *r;
    void *heap, *peer;
    char ready = 1, go;

    if (!devices)
        return 77;
    CHECK_CUDA(cudaSetDevice(device));
    CHECK_CUDA(cudaMalloc(&heap, SOAK_HEAP));
    CHECK_CUDA(cudaMemset(heap, 0, SOAK_HEAP));
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK_CUDA(cudaHostAlloc(&r, sizeof(*r), 0));
    memset(r, 0, sizeof(*r));
    memset(&w, 0, sizeof(w));
    CHECK_CUDA(cudaHostAlloc(&w.status, sizeof(*w.status), 0));
    memset(w.status, 0, sizeof(*w.status));
    CHECK_RY(ry_gpu_export(heap, mine));
    trade(fd, mine, other, sizeof(mine));
    CHECK_RY(ry_gpu_open(device, other, &peer));
    w.heap = (uint8_t *)heap;
    w.direct[pe] = w.heap;
    w.direct[1 - pe] = (uint8_t *)peer;
    w.pe = pe;
    w.pes = 2;
    w.channels = 1;
    w.timeout_ns = 10000000000ull; /* one card is shared by time slices */
    trade(fd, &ready, &go, 1);
    soak_calls(&w, w.heap, 1 - pe, r, NULL);
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaDeviceSynchronize());
    printf("pe %u on gpu %d: %llu wrong, %llu failed\n", pe, device, (unsigned long long)r->wrong,
           (unsigned long long)r->failed);
    trade(fd, &ready, &go, 1); /* nobody looks at the other's heap any more */
    ry_gpu_close(peer);
    CHECK_CUDA(cudaFree(heap));
    return r->wrong || r->failed || w.status->first;
}

int main(void)
{
    int fd[2], status[2], worst = 0;
    pid_t child[2];

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd))
        return 1;
    for (uint32_t pe = 0; pe < 2; pe++) { /* before anybody has touched a GPU */
        child[pe] = fork();
        if (child[pe] == 0) {
            close(fd[1 - pe]);
            exit(pe_run(pe, fd[pe]));
        }
    }
    close(fd[0]);
    close(fd[1]);
    for (uint32_t pe = 0; pe < 2; pe++) {
        if (child[pe] < 0 || waitpid(child[pe], &status[pe], 0) != child[pe])
            return 1;
        status[pe] = WIFEXITED(status[pe]) ? WEXITSTATUS(status[pe]) : 1;
        worst = status[pe] > worst ? status[pe] : worst;
    }
    printf("%s\n", worst == 77 ? "no gpu here" : worst ? "FAIL" : "ok: heaps between processes");
    return worst;
}
