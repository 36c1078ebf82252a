/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel modules, their options, and the driver stack of the NICs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doctor.h"

static int kernel_has_dmabuf(struct ry_doctor *doctor)
{
    char *kernel = ry_facts_text(doctor->facts, "proc/sys/kernel/osrelease");
    char *driver = ry_facts_text(doctor->facts, "proc/driver/nvidia/version");
    int ok = kernel && driver && ry_version_compare(kernel, "5.12") >= 0 &&
             strstr(driver, "Open Kernel Module") != NULL;
    free(kernel);
    free(driver);
    return ok;
}

static void check_peer_memory(struct ry_doctor *doctor, struct ry_result *result)
{
    if (ry_needs_both(doctor, result))
        return;
    if (!doctor->has_modules) {
        ry_say(result, RY_VERDICT_NA, "the list of kernel modules cannot be read");
    } else if (ry_doctor_module(doctor, "nv_peer_mem")) {
        ry_say(result, RY_VERDICT_FAIL,
               "the old nv_peer_mem is loaded; the driver brings nvidia_peermem, and the old one "
               "stands in its way");
        ry_fix(result, "sudo modprobe -r nv_peer_mem && sudo modprobe nvidia_peermem");
    } else if (ry_doctor_module(doctor, "nvidia_peermem")) {
        ry_say(result, RY_VERDICT_OK, "nvidia_peermem is loaded");
    } else if (kernel_has_dmabuf(doctor)) {
        ry_say(result, RY_VERDICT_OK, "no peer memory module, but dmabuf works here");
    } else {
        ry_say(result, RY_VERDICT_FAIL,
               "neither nvidia_peermem nor dmabuf: no NIC can reach GPU memory");
        ry_fix(result, "sudo modprobe nvidia_peermem");
    }
}

static const char option_line[] =
    "options nvidia NVreg_EnableStreamMemOPs=1 NVreg_RegistryDwords=\"PeerMappingOverride=1;\"";

/* Whether a file in /etc/modprobe.d asks for the options, so that only a reboot is missing. */
static int options_are_configured(struct ry_doctor *doctor)
{
    char **names;
    unsigned count = ry_facts_list(doctor->facts, "etc/modprobe.d", &names);
    int found = 0;
    for (unsigned i = 0; i < count; i++) {
        char *text = ry_facts_textf(doctor->facts, "etc/modprobe.d/%s", names[i]);
        found |= text && strstr(text, "PeerMappingOverride=1") &&
                 strstr(text, "NVreg_EnableStreamMemOPs=1");
        free(text);
    }
    ry_facts_free_names(names, count);
    return found;
}

static void check_handler_options(struct ry_doctor *doctor, struct ry_result *result)
{
    if (ry_needs_both(doctor, result))
        return;
    char *params = ry_facts_text(doctor->facts, "proc/driver/nvidia/params");
    /* the driver shows the value as it was written, or in hexadecimal */
    int mapping = params && (strstr(params, "PeerMappingOverride=1") ||
                             strstr(params, "PeerMappingOverride=0x1"));
    int stream = params && strstr(params, "EnableStreamMemOPs: 1");
    int automatic = strcmp(doctor->handler, "auto") == 0;
    if (strncmp(doctor->handler, "cpu", 3) == 0) {
        ry_say(result, RY_VERDICT_NA, "the wanted handler is %s, it needs no driver options",
               doctor->handler);
    } else if (!params) {
        ry_say(result, RY_VERDICT_NA, "the driver's parameters cannot be read");
    } else if (mapping && stream) {
        ry_say(result, RY_VERDICT_OK, "PeerMappingOverride and EnableStreamMemOPs are on");
    } else {
        int configured = options_are_configured(doctor);
        ry_say(result, automatic ? RY_VERDICT_WARN : RY_VERDICT_FAIL, "%s%s%s off%s: %s",
               mapping ? "" : "PeerMappingOverride", mapping || stream ? "" : " and ",
               stream    ? " is"
               : mapping ? "EnableStreamMemOPs is"
                         : "EnableStreamMemOPs are",
               configured ? ", though configured" : "",
               automatic ? "the handler falls back to a CPU thread, which is slower"
                         : "the handler gpu cannot map the NIC's doorbell");
        if (configured)
            ry_fix(result, "sudo update-initramfs -u && sudo reboot");
        else
            ry_fix(result,
                   "echo '%s' | sudo tee /etc/modprobe.d/nvidia-railyard.conf && sudo "
                   "update-initramfs -u && sudo reboot",
                   option_line);
    }
    free(params);
}

/* NVSHMEM 3.4.5 and later has a CPU handler that needs no gdrdrv. */
static void check_gdrdrv(struct ry_doctor *doctor, struct ry_result *result)
{
    const struct ry_lib *host = ry_doctor_lib(doctor, "libnvshmem_host.so.");
    if (ry_needs_both(doctor, result))
        return;
    if (strcmp(doctor->handler, "cpu") != 0)
        ry_say(result, RY_VERDICT_NA, "the wanted handler is %s, it needs no gdrdrv",
               doctor->handler);
    else if (ry_doctor_module(doctor, "gdrdrv"))
        ry_say(result, RY_VERDICT_OK, "gdrdrv is loaded for the handler cpu");
    else if (!doctor->has_modules)
        ry_say(result, RY_VERDICT_NA, "the list of kernel modules cannot be read");
    else {
        int old = !host || ry_version_compare(host->version, "3.4.5") < 0;
        ry_say(result, old ? RY_VERDICT_FAIL : RY_VERDICT_WARN,
               "the handler cpu is wanted and gdrdrv is not loaded%s",
               old ? "" : ": NVSHMEM falls back to pinned host memory");
        ry_fix(
            result,
            "railyard plan --script --handler cpu --phase gdrcopy | bash && sudo modprobe gdrdrv");
    }
}

static int stack_is_installed(const struct ry_doctor *doctor)
{
    return ry_doctor_package(doctor, "doca-") || ry_doctor_package(doctor, "mlnx-ofed");
}

/* Letters before the first digit: rocep145s0 -> rocep. */
static size_t prefix_length(const char *name)
{
    return strcspn(name, "0123456789");
}

static void check_driver_stack(struct ry_doctor *doctor, struct ry_result *result)
{
    const char *renamed = NULL;
    if (ry_needs_port(doctor, result))
        return;
    for (uint32_t i = 0; i < doctor->ports && !renamed; i++) {
        const char *device = ry_topo_port_at(doctor->topo, i)->device;
        if (strncmp(device, "roce", 4) == 0 || strncmp(device, "ibp", 3) == 0)
            renamed = device;
    }
    const char *prefix = ry_doctor_env(doctor, "NVSHMEM_HCA_PREFIX");
    if (!renamed) {
        ry_say(result, RY_VERDICT_OK, "devices have their driver's names");
    } else if (!stack_is_installed(doctor)) {
        ry_say(result, RY_VERDICT_FAIL,
               "%s is named by udev and no vendor driver stack is installed: NVSHMEM finds no "
               "device, and GPU memory registers with none",
               renamed);
        ry_fix(result, "sudo apt-get install -y doca-ofed && sudo /etc/init.d/openibd restart");
    } else if (prefix && strncmp(renamed, prefix, strlen(prefix)) == 0) {
        ry_say(result, RY_VERDICT_OK, "devices are renamed (%s) and the prefix %s is set", renamed,
               prefix);
    } else {
        ry_say(result, RY_VERDICT_FAIL,
               "%s is a renamed device: NVSHMEM looks for names that begin with %s", renamed,
               prefix ? prefix : "mlx5");
        ry_fix(result, "export NVSHMEM_HCA_PREFIX=%.*s", (int)prefix_length(renamed), renamed);
    }
}

static void check_libmlx5(struct ry_doctor *doctor, struct ry_result *result)
{
    const struct ry_lib *link = ry_doctor_lib(doctor, "libmlx5.so");
    const struct ry_lib *real = ry_doctor_lib(doctor, "libmlx5.so.1");
    if (ry_needs_both(doctor, result))
        return;
    if (!doctor->has_libs) {
        ry_say(result, RY_VERDICT_NA, "libraries cannot be listed");
    } else if (link) {
        ry_say(result, RY_VERDICT_OK, "libmlx5.so is at %s", link->path);
    } else if (real) {
        ry_say(result, RY_VERDICT_FAIL,
               "%s is there but not the link libmlx5.so, by which NVSHMEM opens it", real->path);
        ry_fix(result, "sudo ln -s libmlx5.so.1 %.*s/libmlx5.so && sudo ldconfig",
               (int)(strrchr(real->path, '/') ? strrchr(real->path, '/') - real->path : 0),
               real->path);
    } else {
        ry_say(result, RY_VERDICT_FAIL, "libmlx5 is not installed");
        ry_fix(result, "sudo apt-get install -y ibverbs-providers libibverbs-dev");
    }
}

const struct ry_check ry_checks_driver[] = {
    {"peer-memory", "proc/modules, proc/driver/nvidia/version, proc/sys/kernel/osrelease",
     "A NIC reads and writes GPU memory through nvidia_peermem, or through dmabuf (open kernel "
     "module, Linux 5.12 or later). nv_peer_mem is an old module of the same purpose; while it is "
     "loaded the new one is not used, and registration of GPU memory fails or is slow.",
     check_peer_memory},
    {"handler-options", "proc/driver/nvidia/params, etc/modprobe.d",
     "When GPU code rings a NIC's doorbell (handler gpu), the driver must map the NIC's registers "
     "into the GPU: PeerMappingOverride=1 and EnableStreamMemOPs=1. Without them the handler gpu "
     "fails and the handler auto silently becomes a CPU thread. The options take effect when the "
     "module is loaded, so after a reboot.",
     check_handler_options},
    {"gdrdrv", "proc/modules, facts/libs",
     "The handler cpu keeps its producer index in GPU memory and reads it through gdrdrv. "
     "NVSHMEM before 3.4.5 cannot do without; later ones fall back to pinned host memory.",
     check_gdrdrv},
    {"driver-stack", "sys/class/infiniband, facts/packages, NVSHMEM_HCA_PREFIX",
     "Inbox drivers and udev name RDMA devices rocep145s0 or ibp12s0; the vendor's stack names "
     "them mlx5_0. NVSHMEM takes only devices whose names begin with NVSHMEM_HCA_PREFIX (mlx5), so "
     "renamed ones are skipped, with a warning that is easily missed. Install the stack, or set "
     "the prefix if it is installed and renaming is wanted.",
     check_driver_stack},
    {"libmlx5-link", "facts/libs",
     "NVSHMEM's IBGDA transport opens libmlx5.so by that very name, which is a link that only "
     "development packages bring. Without it the transport is not loaded and the job falls back or "
     "ends.",
     check_libmlx5},
    {NULL, NULL, NULL, NULL},
};
