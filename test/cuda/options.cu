/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda/options.h"

#include <string.h>

#include "core/layout.h"
#include "cuda/yard.h"

static void ids_read(struct options *o, const char *file)
{
    FILE *f = fopen(file, "rb");
    long bytes;

    if (!f || fseek(f, 0, SEEK_END) || (bytes = ftell(f)) < (long)o->topk * 4) {
        printf("cannot read %s\n", file);
        exit(1);
    }
    rewind(f);
    o->n_ids = (uint32_t)(bytes / 4 / o->topk);
    o->ids = (int32_t *)malloc((size_t)bytes);
    if (fread(o->ids, 4 * o->topk, o->n_ids, f) != o->n_ids)
        exit(1);
    fclose(f);
}

struct options options_read(int argc, char **argv, uint32_t count)
{
    struct options o;

    memset(&o, 0, sizeof(o));
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
    setvbuf(stdout, NULL, _IOLBF, 0);
    o.count = argc > 1 ? (uint32_t)atoi(argv[1]) : count;
    if (argc > 4) {
        o.topk = (uint32_t)atoi(argv[3]);
        o.experts = (uint32_t)atoi(argv[4]);
        ids_read(&o, argv[2]);
    }
    o.devices = ry_gpu_count();
    if (o.devices == 0)
        printf("no gpu here\n");
    else
        printf("%d gpu\n", o.devices);
    o.devices = o.devices > 2 ? 2 : o.devices;
    return o;
}

uint32_t options_handler(void)
{
    const char *text = getenv("RY_TEST_HANDLER");

    if (!text || strcmp(text, "gpu") == 0)
        return RY_HANDLER_GPU;
    if (strcmp(text, "cpu_host_memory") == 0)
        return RY_HANDLER_CPU_HOST_MEMORY;
    printf("RY_TEST_HANDLER '%s': gpu or cpu_host_memory here; cpu needs gdrdrv\n", text);
    exit(77);
}
