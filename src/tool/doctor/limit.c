/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of the process and of the devices against what a job of the given size asks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doctor.h"

enum { MIN_FILES = 65536, MIN_SHM = 1 << 30, QPS_PER_PEER = 24 };

static void check_memlock(struct ry_doctor *doctor, struct ry_result *result)
{
    long long limit = ry_doctor_limit(doctor, "memlock");
    if (ry_needs_port(doctor, result))
        return;
    if (limit == -2) {
        ry_say(result, RY_VERDICT_NA, "the limit cannot be read");
    } else if (limit == -1) {
        ry_say(result, RY_VERDICT_OK, "memory may be locked without limit");
    } else {
        ry_say(result, RY_VERDICT_FAIL,
               "only %lld KiB may be locked: queues and heaps do not register", limit >> 10);
        ry_fix(result,
               "printf '* soft memlock unlimited\\n* hard memlock unlimited\\n' | sudo tee "
               "/etc/security/limits.d/railyard.conf; then log in again");
    }
}

static void check_nofile(struct ry_doctor *doctor, struct ry_result *result)
{
    long long limit = ry_doctor_limit(doctor, "nofile");
    if (ry_needs_port(doctor, result))
        return;
    if (limit == -2) {
        ry_say(result, RY_VERDICT_NA, "the limit cannot be read");
    } else if (limit == -1 || limit >= MIN_FILES) {
        ry_say(result, RY_VERDICT_OK, "enough files may be open");
    } else {
        ry_say(result, RY_VERDICT_WARN, "only %lld files may be open, large jobs need %d", limit,
               MIN_FILES);
        ry_fix(result, "printf '* soft nofile 1048576\\n* hard nofile 1048576\\n' | sudo tee "
                       "/etc/security/limits.d/railyard-files.conf; then log in again");
    }
}

static void check_shm(struct ry_doctor *doctor, struct ry_result *result)
{
    long long size = ry_doctor_limit(doctor, "shm");
    if (ry_needs_gpu(doctor, result))
        return;
    if (size == -2) {
        ry_say(result, RY_VERDICT_NA, "/dev/shm cannot be read");
    } else if (size >= MIN_SHM) {
        ry_say(result, RY_VERDICT_OK, "/dev/shm has %lld GiB", size >> 30);
    } else {
        ry_say(result, RY_VERDICT_FAIL,
               "/dev/shm has %lld MiB: NCCL and NVSHMEM need more (a container's default is 64)",
               size >> 20);
        ry_fix(result, "sudo mount -o remount,size=16G /dev/shm   # docker run: --shm-size=16g");
    }
}

/* A number of a device's line in facts/devices; -1 if unknown. */
static long long device_limit(struct ry_doctor *doctor, const char *key, char *device, size_t cap)
{
    char *text = ry_facts_text(doctor->facts, "facts/devices"), *rest = NULL;
    long long least = -1;
    for (char *line = text ? strtok_r(text, "\n", &rest) : NULL; line;
         line = strtok_r(NULL, "\n", &rest)) {
        const char *at = strstr(line, key);
        long long value = at ? strtoll(at + strlen(key), NULL, 10) : -1;
        if (value < 0 || (least >= 0 && value >= least))
            continue;
        least = value;
        snprintf(device, cap, "%.*s", (int)strcspn(line, " "), line);
    }
    free(text);
    return least;
}

static unsigned number_setting(struct ry_doctor *doctor, const char *name, unsigned otherwise)
{
    const char *value = ry_doctor_env(doctor, name);
    unsigned long number = value ? strtoul(value, NULL, 10) : 0;
    return number > 0 && number < 100000 ? (unsigned)number : otherwise;
}

static void check_qp_limit(struct ry_doctor *doctor, struct ry_result *result)
{
    char device[64] = "";
    if (ry_needs_port(doctor, result))
        return;
    long long most = device_limit(doctor, "max_qp=", device, sizeof device);
    unsigned per_peer = number_setting(doctor, "NVSHMEM_IBGDA_NUM_RC_PER_PE", QPS_PER_PEER);
    long long need = (long long)(doctor->pes > 0 ? doctor->pes - 1 : 0) * per_peer;
    long long fits = most > 0 && doctor->pes > 1 ? most / (doctor->pes - 1) : 0;
    if (most < 0) {
        ry_say(result, RY_VERDICT_NA, "the devices' limits cannot be read without libibverbs");
    } else if (need <= most) {
        ry_say(result, RY_VERDICT_OK, "%u PEs need %lld queue pairs, %s has %lld", doctor->pes,
               need, device, most);
    } else {
        ry_say(result, RY_VERDICT_FAIL,
               "%u PEs need %lld queue pairs (%u each), %s has %lld: \"QP creation failed\"",
               doctor->pes, need, per_peer, device, most);
        ry_fix(result, "export NVSHMEM_IBGDA_NUM_RC_PER_PE=%lld", fits > 0 ? fits : 1);
    }
}

/* Without CUDA VMM the heap registers whole; with it, in pieces of NVSHMEM_CUMEM_GRANULARITY. */
static void check_mr_limit(struct ry_doctor *doctor, struct ry_result *result)
{
    char device[64] = "";
    if (ry_needs_port(doctor, result))
        return;
    long long most = device_limit(doctor, "max_mr=", device, sizeof device);
    const char *off = ry_doctor_env(doctor, "NVSHMEM_DISABLE_CUDA_VMM");
    long long pieces = off && *off == '1' ? 1 : 1024;
    long long need = pieces * (doctor->gpus ? doctor->gpus : 1);
    if (most < 0) {
        ry_say(result, RY_VERDICT_NA, "the devices' limits cannot be read without libibverbs");
    } else if (need <= most) {
        ry_say(result, RY_VERDICT_OK, "up to %lld memory regions are asked for, %s has %lld", need,
               device, most);
    } else {
        ry_say(result, RY_VERDICT_FAIL, "up to %lld memory regions are asked for, %s has %lld",
               need, device, most);
        ry_fix(result, "export NVSHMEM_DISABLE_CUDA_VMM=1");
    }
}

/* A low-latency kernel puts a request a token and one more into a queue, and a fence. */
static void check_queue_depth(struct ry_doctor *doctor, struct ry_result *result)
{
    const char *nvshmem = ry_doctor_env(doctor, "NVSHMEM_QP_DEPTH");
    const char *own = ry_doctor_env(doctor, "RAILYARD_QP_DEPTH");
    const char *name = nvshmem ? "NVSHMEM_QP_DEPTH" : "RAILYARD_QP_DEPTH";
    const char *value = nvshmem ? nvshmem : own;
    unsigned need = 2 * (doctor->tokens + 1), round = 1;
    while (round < need)
        round *= 2;
    if (!value) {
        ry_say(result, RY_VERDICT_OK, "the queue depth is left to the libraries");
    } else if (strtoul(value, NULL, 10) >= need) {
        ry_say(result, RY_VERDICT_OK, "%s=%s holds %u tokens at once", name, value,
               doctor->tokens);
    } else {
        ry_say(result, RY_VERDICT_FAIL, "%s=%s, but %u tokens at once need %u", name, value,
               doctor->tokens, need);
        ry_fix(result, "export %s=%u", name, round);
    }
}

const struct ry_check ry_checks_limit[] = {
    {"memlock", "facts/limits",
     "RDMA locks the memory it uses. With a small limit registration fails with ENOMEM, often only "
     "in jobs started by a daemon, whose limits differ from those of a login.",
     check_memlock},
    {"nofile", "facts/limits",
     "Each peer and each device takes file descriptors; large jobs run out of 1024 at start.",
     check_nofile},
    {"shm", "facts/limits",
     "NCCL and NVSHMEM share memory between the processes of a machine through /dev/shm. "
     "Containers give 64 MiB unless told otherwise.",
     check_shm},
    {"qp-limit", "facts/devices, NVSHMEM_IBGDA_NUM_RC_PER_PE, --pes",
     "Each PE connects several queue pairs to each other PE. A device has a fixed number, virtual "
     "functions a small one. Beyond it the job ends with \"QP creation failed\".",
     check_qp_limit},
    {"mr-limit", "facts/devices, NVSHMEM_DISABLE_CUDA_VMM",
     "A heap that grows in pieces registers each piece with each device; a device has a fixed "
     "number of memory regions.",
     check_mr_limit},
    {"queue-depth", "NVSHMEM_QP_DEPTH, RAILYARD_QP_DEPTH, --tokens",
     "All requests of one low-latency dispatch must fit into a queue, since the kernel does not "
     "wait for completions: twice the tokens a PE sends at once, and two more.",
     check_queue_depth},
    {NULL, NULL, NULL, NULL},
};
