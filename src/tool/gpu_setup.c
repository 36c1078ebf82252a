/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu_setup.h"

#include <railyard/config.h>
#include <railyard/gpu.h>
#include <railyard/gpu_job.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE_NS 10000000000ull

static const char *short_name(const ry_setting_info *s)
{
    return strncmp(s->name, "RAILYARD_", 9) == 0 ? s->name + 9 : s->name;
}

static const char *value_of(const ry_setting_info *list, uint32_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(short_name(&list[i]), name) == 0)
            return list[i].value;
    }
    return "";
}

/* The one number or rate of a list, all of whose entries are alike. */
static bool alike(const char *text, char *one, size_t cap)
{
    size_t len = strcspn(text, ",");
    if (len >= cap)
        return false;
    memcpy(one, text, len);
    one[len] = '\0';
    for (const char *at = text; *at; at += strcspn(at, ",")) {
        at += *at == ',';
        if (strcspn(at, ",") != len || strncmp(at, one, len) != 0)
            return false;
    }
    return true;
}

static int read_handler(const char *command, const char *text, uint32_t *handler)
{
    *handler = RY_GPU_JOB_GPU;
    if (strcmp(text, "cpu") == 0)
        return ry_tool_error(command, "--handler cpu on a gpu needs gdrdrv, which this build does "
                                      "not use: take gpu or cpu_host_memory");
    if (strcmp(text, "cpu_host_memory") == 0)
        *handler = RY_GPU_JOB_CPU_HOST_MEMORY;
    return TOOL_OK;
}

/* Ports of the GPU's NIC go down and come back, by time or iteration; it knows nothing else. */
static int check_fault(const char *command, const char *spec)
{
    static const char *const kinds[] = {"port-down@", "flap@", "nic-down@", NULL};
    for (const char *at = spec; at && *at;) {
        const char *when = strchr(at, '@'), *end = strchr(at, ';');
        bool known = false;
        for (uint32_t i = 0; kinds[i]; i++)
            known |= strncmp(at, kinds[i], strlen(kinds[i])) == 0;
        if (!known || !when || strncmp(when + 1, "op", 2) == 0)
            return ry_tool_error(command,
                                 "--fault '%.*s': with --device cuda ports go down by port-down, "
                                 "flap or nic-down, at a time or an iteration",
                                 (int)strcspn(at, ";"), at);
        at = end ? end + 1 : NULL;
    }
    return TOOL_OK;
}

static int read_rails(const char *command, const ry_setting_info *list, uint32_t n,
                      struct ry_tool_gpu *gpu)
{
    char one[64];
    if (!alike(value_of(list, n, "RAILS"), one, sizeof one))
        return ry_tool_error(command, "--rails %s: PEs on gpus have all the same number of rails",
                             value_of(list, n, "RAILS"));
    gpu->rails = (uint32_t)strtoul(one, NULL, 10); /* auto is 0 */
    gpu->rails = gpu->rails ? gpu->rails : 2;
    if (!alike(value_of(list, n, "LINK_RATE"), one, sizeof one) ||
        ry_parse_rate(one, &gpu->rate_bps) != RY_OK)
        return ry_tool_error(command, "--link-rate %s: ports of gpus have all the same rate",
                             value_of(list, n, "LINK_RATE"));
    gpu->channels = (uint32_t)strtoul(value_of(list, n, "CHANNELS"), NULL, 10);
    if (gpu->channels == 0)
        gpu->channels = gpu->rails > 2 ? gpu->rails : 2;
    return TOOL_OK;
}

static int read_all(struct ry_tool_job *job, const ry_setting_info *list, uint32_t n,
                    struct ry_tool_gpu *gpu)
{
    const char *nic = value_of(list, n, "NIC"), *timeout = value_of(list, n, "TIMEOUT");
    if (strcmp(nic, "verbs") == 0 || strcmp(nic, "mlx5") == 0)
        return ry_tool_error(job->command,
                             "--nic %s with --device cuda: only emu reaches gpu "
                             "memory in this build",
                             nic);
    if (job->launched)
        return ry_tool_error(job->command, "--device cuda is one process: leave out the launcher");
    if (job->pes_as && !job->threads)
        return ry_tool_error(job->command,
                             "--pes-as processes with --device cuda: the emulated nic joins gpus "
                             "of one process only, use threads");
    if (strcmp(value_of(list, n, "FAILOVER"), "both") == 0 && strcmp(job->command, "perf") != 0)
        return ry_tool_error(job->command, "--failover both with --device cuda: say on or off");
    job->threads = true;
    gpu->p2p = strcmp(value_of(list, n, "P2P"), "off") != 0;
    gpu->failover = strcmp(value_of(list, n, "FAILOVER"), "off") != 0;
    gpu->sms = (uint32_t)strtoul(value_of(list, n, "SMS"), NULL, 10);
    if (ry_parse_time(timeout, &gpu->timeout_ns) != RY_OK) {
        /* auto: PEs are threads of one process, and one that is slow is not lost */
        gpu->timeout_ns = PATIENCE_NS;
        if (ry_tool_job_set(job, true, "TIMEOUT=%llus", PATIENCE_NS / 1000000000ull) != TOOL_OK)
            return TOOL_BAD_INPUT;
    }
    if (read_handler(job->command, value_of(list, n, "HANDLER"), &gpu->handler) != TOOL_OK ||
        read_rails(job->command, list, n, gpu) != TOOL_OK ||
        check_fault(job->command, job->fault) != TOOL_OK)
        return TOOL_BAD_INPUT;
    if (ry_gpu_count() == 0)
        return ry_tool_error(job->command, "--device cuda: no gpu can be used here, see nvidia-smi "
                                           "and that this railyard was built with nvcc");
    return TOOL_OK;
}

int ry_tool_gpu_read(struct ry_tool_job *job, struct ry_tool_gpu *gpu)
{
    ry_setting_info *list;
    uint32_t n;
    *gpu = (struct ry_tool_gpu){0};
    if (ry_config_list((const char *const *)job->settings, job->n_settings, &list, &n) != RY_OK)
        return ry_tool_error(job->command, "%s", ry_last_error());
    job->cuda = strcmp(value_of(list, n, "DEVICE"), "cuda") == 0;
    int code = TOOL_OK;
    if (job->cuda) {
        /* kernels that wait for each other: none may be loaded late or queue behind another */
        setenv("CUDA_MODULE_LOADING", "EAGER", 1);
        setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
        code = read_all(job, list, n, gpu);
    }
    free(list);
    return code;
}
