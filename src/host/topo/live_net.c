/* SPDX-License-Identifier: Apache-2.0 */
/* Run-time facts of the fabric and of PCIe. */
#include "live.h"

#include <limits.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { COUNTERS = 4096, SAMPLE_MS = 100 };

struct counter {
    char name[96];
    unsigned long long value;
};

struct sample {
    unsigned count;
    struct counter counters[COUNTERS];
};

static int is_wanted_counter(const char *name)
{
    static const char *const wanted[] = {"np_ecn_marked_roce_packets",
                                         "np_cnp_sent",
                                         "rp_cnp_handled",
                                         "out_of_sequence",
                                         "packet_seq_err",
                                         "local_ack_timeout_err",
                                         "rx_discards_phy"};
    unsigned priority;
    int end = 0;
    if ((sscanf(name, "rx_prio%1u_pause%n", &priority, &end) == 1 ||
         sscanf(name, "tx_prio%1u_pause%n", &priority, &end) == 1) &&
        end > 0 && name[end] == '\0')
        return 1;
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        if (strcmp(name, wanted[i]) == 0)
            return 1;
    }
    return 0;
}

static void add_counter(struct sample *sample, const char *port, const char *name,
                        unsigned long long value)
{
    if (sample->count == COUNTERS || !is_wanted_counter(name))
        return;
    struct counter *counter = &sample->counters[sample->count++];
    snprintf(counter->name, sizeof counter->name, "%.48s %.40s", port, name);
    counter->value = value;
}

/* What `ethtool -S` shows: strings and numbers of equal rank. */
static void read_ethtool(struct sample *sample, int fd, const char *port, const char *interface)
{
    struct ifreq request = {0};
    struct ethtool_drvinfo info = {.cmd = ETHTOOL_GDRVINFO};
    snprintf(request.ifr_name, sizeof request.ifr_name, "%.15s", interface);
    request.ifr_data = (char *)&info;
    if (ioctl(fd, SIOCETHTOOL, &request) != 0 || info.n_stats == 0 || info.n_stats > 20000)
        return;
    struct ethtool_gstrings *names =
        calloc(1, sizeof *names + (size_t)info.n_stats * ETH_GSTRING_LEN);
    struct ethtool_stats *values =
        calloc(1, sizeof *values + (size_t)info.n_stats * sizeof(__u64));
    if (names && values) {
        names->cmd = ETHTOOL_GSTRINGS;
        names->string_set = ETH_SS_STATS;
        names->len = info.n_stats;
        values->cmd = ETHTOOL_GSTATS;
        values->n_stats = info.n_stats;
        request.ifr_data = (char *)names;
        int failed = ioctl(fd, SIOCETHTOOL, &request) != 0;
        request.ifr_data = (char *)values;
        failed |= ioctl(fd, SIOCETHTOOL, &request) != 0;
        char name[ETH_GSTRING_LEN + 1] = "";
        for (unsigned i = 0; !failed && i < info.n_stats; i++) {
            memcpy(name, names->data + (size_t)i * ETH_GSTRING_LEN, ETH_GSTRING_LEN);
            add_counter(sample, port, name, values->data[i]);
        }
    }
    free(names);
    free(values);
}

static void read_port(ry_facts *facts, struct sample *sample, int fd, const char *device,
                      const char *number)
{
    char port[64], folder[RY_FACT_PATH];
    char **names;
    snprintf(port, sizeof port, "%.40s:%.8s", device, number);
    snprintf(folder, sizeof folder, "sys/class/infiniband/%.40s/ports/%.8s/hw_counters", device,
             number);
    unsigned count = ry_facts_list(facts, folder, &names);
    for (unsigned i = 0; i < count; i++) {
        char *value =
            is_wanted_counter(names[i]) ? ry_facts_textf(facts, "%s/%s", folder, names[i]) : NULL;
        if (value)
            add_counter(sample, port, names[i], strtoull(value, NULL, 10));
        free(value);
    }
    ry_facts_free_names(names, count);
    snprintf(folder, sizeof folder, "sys/class/infiniband/%.40s/device/net", device);
    count = ry_facts_list(facts, folder, &names);
    for (unsigned i = 0; i < count && fd >= 0; i++)
        read_ethtool(sample, fd, port, names[i]);
    ry_facts_free_names(names, count);
}

static void take_sample(ry_facts *facts, struct sample *sample)
{
    char **devices, **ports;
    char folder[RY_FACT_PATH];
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    unsigned count = ry_facts_list(facts, "sys/class/infiniband", &devices);
    for (unsigned i = 0; i < count; i++) {
        snprintf(folder, sizeof folder, "sys/class/infiniband/%.40s/ports", devices[i]);
        unsigned port_count = ry_facts_list(facts, folder, &ports);
        for (unsigned j = 0; j < port_count; j++)
            read_port(facts, sample, fd, devices[i], ports[j]);
        ry_facts_free_names(ports, port_count);
    }
    ry_facts_free_names(devices, count);
    if (fd >= 0)
        close(fd);
}

/* Each counter twice, a moment apart: one that stands high may be old, one that grows is now. */
int ry_live_counters(ry_facts *facts, struct ry_text *out)
{
    if (!ry_facts_has(facts, "sys/class/infiniband"))
        return -1;
    struct sample *before = calloc(2, sizeof *before), *after = before + 1;
    if (!before)
        return -1;
    take_sample(facts, before);
    if (before->count) {
        struct timespec wait = {.tv_nsec = SAMPLE_MS * 1000000L};
        nanosleep(&wait, NULL);
        take_sample(facts, after);
    }
    for (unsigned i = 0; i < before->count && i < after->count; i++) {
        if (strcmp(before->counters[i].name, after->counters[i].name) == 0)
            ry_text_addf(out, "%s %llu %llu\n", before->counters[i].name,
                         before->counters[i].value, after->counters[i].value);
    }
    free(before);
    return 0;
}

static unsigned word(const unsigned char *config, size_t at, int bytes)
{
    unsigned value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (unsigned)config[at + (size_t)i] << 8 * i;
    return value;
}

/* Device Control of the PCI Express capability (id 0x10), bit 4; -1 if there is none. */
static int relaxed_ordering(const unsigned char *config, size_t len)
{
    size_t at = word(config, 0x34, 1) & 0xfc;
    for (int steps = 0; at >= 0x40 && at + 10 <= len && steps < 48; steps++) {
        if (config[at] == 0x10)
            return (word(config, at + 8, 2) >> 4) & 1;
        at = config[at + 1] & 0xfc;
    }
    return -1;
}

/* Control of the Access Control Services capability (id 0x000d); 0 if there is none. */
static unsigned acs_control(const unsigned char *config, size_t len)
{
    size_t at = 0x100;
    for (int steps = 0; at >= 0x100 && at + 8 <= len && steps < 64; steps++) {
        unsigned header = word(config, at, 4);
        if ((header & 0xffff) == 0x000d)
            return word(config, at + 6, 2);
        at = header >> 20;
    }
    return 0;
}

static void add_function(struct ry_text *out, const char *bus)
{
    char path[96];
    unsigned char config[4096];
    if (out->data && memmem(out->data, out->len, bus, strlen(bus)))
        return;
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%.20s/config", bus);
    FILE *file = fopen(path, "rb");
    if (!file)
        return;
    size_t len = fread(config, 1, sizeof config, file);
    fclose(file);
    int relaxed = len > 64 ? relaxed_ordering(config, len) : -1;
    if (relaxed < 0)
        return; /* without root only 64 bytes are shown */
    ry_text_addf(out, "%s acs=0x%04x relaxed=%d\n", bus, acs_control(config, len), relaxed);
}

/* A device and all bridges above it: the folders of its path in /sys/devices. */
static void add_chain(struct ry_text *out, const char *bus)
{
    char path[96], real[PATH_MAX];
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%.20s", bus);
    if (!realpath(path, real))
        return;
    char *rest = NULL;
    for (char *part = strtok_r(real, "/", &rest); part; part = strtok_r(NULL, "/", &rest)) {
        unsigned domain, number, device, function;
        if (sscanf(part, "%x:%x:%x.%x", &domain, &number, &device, &function) == 4)
            add_function(out, part);
    }
}

int ry_live_pcie(ry_facts *facts, struct ry_text *out)
{
    char **names, bus[24];
    unsigned count = ry_facts_list(facts, "sys/class/infiniband", &names);
    for (unsigned i = 0; i < count; i++) {
        char *text = ry_facts_textf(facts, "sys/class/infiniband/%s/device/uevent", names[i]);
        const char *at = text ? strstr(text, "PCI_SLOT_NAME=") : NULL;
        if (at && sscanf(at, "PCI_SLOT_NAME=%23s", bus) == 1)
            add_chain(out, bus);
        free(text);
    }
    ry_facts_free_names(names, count);
    char *text = ry_facts_text(facts, "facts/gpus"), *rest = NULL;
    for (char *line = text ? strtok_r(text, "\n", &rest) : NULL; line;
         line = strtok_r(NULL, "\n", &rest)) {
        unsigned index;
        if (sscanf(line, "gpu %u %23s", &index, bus) == 2)
            add_chain(out, bus);
    }
    free(text);
    return out->len ? 0 : -1;
}
