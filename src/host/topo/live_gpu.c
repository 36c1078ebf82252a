/* SPDX-License-Identifier: Apache-2.0 */
/* Run-time facts from the GPU and RDMA libraries, which are opened only where they are: a machine
 * without them has no such facts. */
#include "live.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GPUS = 64, LINKS = 18 };

/* The part of NVML that is used; layouts and names are those of its public header. */
struct nvml_pci {
    char bus_legacy[16];
    unsigned domain, bus, device, pci_device, pci_subsystem;
    char bus_id[32];
};

struct nvml {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    int (*count)(unsigned *count);
    int (*handle)(unsigned index, void **device);
    int (*pci)(void *device, struct nvml_pci *pci);
    int (*name)(void *device, char *name, unsigned len);
    int (*capability)(void *device, int *major, int *minor);
    int (*link_state)(void *device, unsigned link, unsigned *active);
    int (*link_remote)(void *device, unsigned link, struct nvml_pci *pci);
    int (*driver)(char *version, unsigned len);
};

/* The C standard has no conversion from void * to a function; POSIX promises that this works. */
static int bind_symbol(void *library, const char *name, void *function_pointer)
{
    void *symbol = dlsym(library, name);
    memcpy(function_pointer, &symbol, sizeof symbol);
    return symbol != NULL;
}

static int open_nvml(struct nvml *nvml)
{
    *nvml = (struct nvml){.library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)};
    void *library = nvml->library;
    if (!library)
        return -1;
    int ok = bind_symbol(library, "nvmlInit_v2", &nvml->init) &&
             bind_symbol(library, "nvmlShutdown", &nvml->shutdown) &&
             bind_symbol(library, "nvmlDeviceGetCount_v2", &nvml->count) &&
             bind_symbol(library, "nvmlDeviceGetHandleByIndex_v2", &nvml->handle) &&
             bind_symbol(library, "nvmlDeviceGetPciInfo_v3", &nvml->pci) &&
             bind_symbol(library, "nvmlDeviceGetName", &nvml->name) &&
             bind_symbol(library, "nvmlDeviceGetCudaComputeCapability", &nvml->capability) &&
             bind_symbol(library, "nvmlDeviceGetNvLinkState", &nvml->link_state) &&
             bind_symbol(library, "nvmlDeviceGetNvLinkRemotePciInfo_v2", &nvml->link_remote) &&
             bind_symbol(library, "nvmlSystemGetDriverVersion", &nvml->driver);
    if (ok && nvml->init() == 0)
        return 0;
    dlclose(library);
    return -1;
}

struct gpu {
    void *device;
    struct nvml_pci pci;
    unsigned links_to[GPUS]; /* straight to another GPU */
    unsigned to_switch;      /* to what is no GPU */
};

static void read_links(const struct nvml *nvml, struct gpu *gpus, unsigned count, unsigned i)
{
    for (unsigned link = 0; link < LINKS; link++) {
        unsigned active = 0, j = 0;
        struct nvml_pci remote;
        if (nvml->link_state(gpus[i].device, link, &active) != 0 || !active)
            continue;
        if (nvml->link_remote(gpus[i].device, link, &remote) != 0) {
            gpus[i].to_switch++;
            continue;
        }
        while (j < count && (gpus[j].pci.domain != remote.domain ||
                             gpus[j].pci.bus != remote.bus || gpus[j].pci.device != remote.device))
            j++;
        if (j < count)
            gpus[i].links_to[j]++;
        else
            gpus[i].to_switch++;
    }
}

static void list_gpus(const struct nvml *nvml, struct ry_text *out)
{
    unsigned count = 0;
    char text[96];
    struct gpu *gpus = calloc(GPUS, sizeof *gpus);
    if (!gpus || nvml->count(&count) != 0)
        count = 0;
    if (count > GPUS)
        count = GPUS;
    for (unsigned i = 0; i < count; i++) {
        int major = 0, minor = 0;
        if (nvml->handle(i, &gpus[i].device) != 0 || nvml->pci(gpus[i].device, &gpus[i].pci) != 0)
            continue;
        nvml->capability(gpus[i].device, &major, &minor);
        if (nvml->name(gpus[i].device, text, sizeof text) != 0)
            snprintf(text, sizeof text, "GPU");
        ry_text_addf(out, "gpu %u %04x:%02x:%02x.0 %d %s\n", i, gpus[i].pci.domain,
                     gpus[i].pci.bus, gpus[i].pci.device, major * 10 + minor, text);
    }
    for (unsigned i = 0; i < count; i++)
        read_links(nvml, gpus, count, i);
    for (unsigned i = 0; i < count; i++) {
        for (unsigned j = i + 1; j < count; j++) {
            unsigned through =
                gpus[i].to_switch < gpus[j].to_switch ? gpus[i].to_switch : gpus[j].to_switch;
            unsigned links = gpus[i].links_to[j] + through;
            if (links)
                ry_text_addf(out, "nvlink %u %u %u\n", i, j, links);
        }
    }
    if (nvml->driver(text, sizeof text) == 0)
        ry_text_addf(out, "driver %s\n", text);
    free(gpus);
}

int ry_live_gpus(ry_facts *facts, struct ry_text *out)
{
    (void)facts;
    struct nvml nvml;
    if (open_nvml(&nvml) != 0)
        return -1;
    list_gpus(&nvml, out);
    nvml.shutdown();
    dlclose(nvml.library);
    return 0;
}

#if defined(__has_include)
#if __has_include(<infiniband/verbs.h>)
#define RY_VERBS_HEADER 1
#endif
#endif

#ifdef RY_VERBS_HEADER
#include <infiniband/verbs.h>
#undef ibv_reg_mr /* a macro in the header; the library has the function too */

struct verbs {
    void *library;
    struct ibv_device **(*list)(int *count);
    void (*free_list)(struct ibv_device **list);
    const char *(*name)(struct ibv_device *device);
    struct ibv_context *(*open)(struct ibv_device *device);
    int (*close)(struct ibv_context *context);
    int (*query)(struct ibv_context *context, struct ibv_device_attr *attr);
    struct ibv_pd *(*alloc_pd)(struct ibv_context *context);
    int (*free_pd)(struct ibv_pd *pd);
    struct ibv_mr *(*reg)(struct ibv_pd *pd, void *address, size_t length, int access);
    int (*dereg)(struct ibv_mr *mr);
};

static int open_verbs(struct verbs *verbs)
{
    *verbs = (struct verbs){.library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL)};
    void *library = verbs->library;
    if (!library)
        return -1;
    if (bind_symbol(library, "ibv_get_device_list", &verbs->list) &&
        bind_symbol(library, "ibv_free_device_list", &verbs->free_list) &&
        bind_symbol(library, "ibv_get_device_name", &verbs->name) &&
        bind_symbol(library, "ibv_open_device", &verbs->open) &&
        bind_symbol(library, "ibv_close_device", &verbs->close) &&
        bind_symbol(library, "ibv_query_device", &verbs->query) &&
        bind_symbol(library, "ibv_alloc_pd", &verbs->alloc_pd) &&
        bind_symbol(library, "ibv_dealloc_pd", &verbs->free_pd) &&
        bind_symbol(library, "ibv_reg_mr", &verbs->reg) &&
        bind_symbol(library, "ibv_dereg_mr", &verbs->dereg))
        return 0;
    dlclose(library);
    return -1;
}

/* Calls `each` with every device that opens. */
static int each_device(ry_facts *facts, struct ry_text *out,
                       void (*each)(const struct verbs *, struct ibv_context *, const char *,
                                    struct ry_text *, unsigned long long),
                       unsigned long long address)
{
    struct verbs verbs;
    if (!ry_facts_has(facts, "sys/class/infiniband") || open_verbs(&verbs) != 0)
        return -1;
    int count = 0;
    struct ibv_device **list = verbs.list(&count);
    for (int i = 0; list && i < count; i++) {
        struct ibv_context *context = verbs.open(list[i]);
        if (!context)
            continue;
        each(&verbs, context, verbs.name(list[i]), out, address);
        verbs.close(context);
    }
    if (list)
        verbs.free_list(list);
    dlclose(verbs.library);
    return 0;
}

static void add_limits(const struct verbs *verbs, struct ibv_context *context, const char *name,
                       struct ry_text *out, unsigned long long address)
{
    (void)address;
    struct ibv_device_attr attr;
    if (verbs->query(context, &attr) == 0)
        ry_text_addf(out, "%s max_qp=%d max_mr=%d\n", name, attr.max_qp, attr.max_mr);
}

int ry_live_devices(ry_facts *facts, struct ry_text *out)
{
    return each_device(facts, out, add_limits, 0);
}

enum { TRY_BYTES = 2 << 20 };

static void try_registration(const struct verbs *verbs, struct ibv_context *context,
                             const char *name, struct ry_text *out, unsigned long long address)
{
    struct ibv_pd *pd = verbs->alloc_pd(context);
    struct ibv_mr *mr = NULL;
    errno = 0;
    if (pd)
        mr = verbs->reg(pd, (void *)(uintptr_t)address, TRY_BYTES,
                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    if (mr) {
        ry_text_addf(out, "%s:1 ok\n", name);
        verbs->dereg(mr);
    } else {
        const char *text = strerrorname_np(errno);
        ry_text_addf(out, "%s:1 failed %s\n", name, text ? text : "unknown");
    }
    if (pd)
        verbs->free_pd(pd);
}

/* The part of the CUDA driver that is used. */
struct cuda {
    void *library, *context;
    int device;
    int (*init)(unsigned flags);
    int (*get)(int *device, int ordinal);
    int (*retain)(void **context, int device);
    int (*release)(int device);
    int (*set)(void *context);
    int (*alloc)(unsigned long long *address, size_t bytes);
    int (*free_memory)(unsigned long long address);
};

static int open_cuda(struct cuda *cuda)
{
    *cuda = (struct cuda){.library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)};
    void *library = cuda->library;
    if (!library)
        return -1;
    if (bind_symbol(library, "cuInit", &cuda->init) &&
        bind_symbol(library, "cuDeviceGet", &cuda->get) &&
        bind_symbol(library, "cuDevicePrimaryCtxRetain", &cuda->retain) &&
        bind_symbol(library, "cuDevicePrimaryCtxRelease_v2", &cuda->release) &&
        bind_symbol(library, "cuCtxSetCurrent", &cuda->set) &&
        bind_symbol(library, "cuMemAlloc_v2", &cuda->alloc) &&
        bind_symbol(library, "cuMemFree_v2", &cuda->free_memory) && cuda->init(0) == 0 &&
        cuda->get(&cuda->device, 0) == 0 && cuda->retain(&cuda->context, cuda->device) == 0)
        return 0;
    dlclose(library);
    return -1;
}

/* Registers a little GPU memory with each device: the one test that tells for sure. */
int ry_live_register(ry_facts *facts, struct ry_text *out)
{
    struct cuda cuda;
    unsigned long long address = 0;
    if (!ry_facts_has(facts, "sys/class/infiniband") || open_cuda(&cuda) != 0)
        return -1;
    int result = -1;
    if (cuda.set(cuda.context) == 0 && cuda.alloc(&address, TRY_BYTES) == 0) {
        result = each_device(facts, out, try_registration, address);
        cuda.free_memory(address);
    }
    cuda.release(cuda.device);
    dlclose(cuda.library);
    return result;
}

#else

int ry_live_devices(ry_facts *facts, struct ry_text *out)
{
    (void)facts, (void)out;
    return -1;
}

int ry_live_register(ry_facts *facts, struct ry_text *out)
{
    (void)facts, (void)out;
    return -1;
}

#endif
