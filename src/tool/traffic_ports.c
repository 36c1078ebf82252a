/* SPDX-License-Identifier: Apache-2.0 */
#include "traffic.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* Counters of data count words of four bytes. */
enum { WORD = 4, DEPTH = 3 };

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* A counter; 0 and *ok = 0 if it cannot be read. */
static uint64_t read_counter(const char *folder, const char *name, int *ok)
{
    char path[480], text[32] = "";
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    *ok = file && fgets(text, sizeof text, file) != NULL;
    if (file)
        fclose(file);
    return *ok ? strtoull(text, NULL, 10) : 0;
}

static struct ry_traffic_port *find_port(struct ry_traffic *traffic, const char *path)
{
    for (unsigned i = 0; i < traffic->count; i++) {
        if (strcmp(traffic->ports[i].path, path) == 0)
            return &traffic->ports[i];
    }
    return NULL;
}

static void add_port(struct ry_traffic *traffic, const char *name, const char *path)
{
    int sent_ok, received_ok;
    if (find_port(traffic, path) || traffic->count == TRAFFIC_PORTS)
        return;
    uint64_t sent = read_counter(path, "port_xmit_data", &sent_ok);
    uint64_t received = read_counter(path, "port_rcv_data", &received_ok);
    if (!sent_ok || !received_ok)
        return;
    struct ry_traffic_port *port = &traffic->ports[traffic->count++];
    *port = (struct ry_traffic_port){0};
    snprintf(port->name, sizeof port->name, "%s", name);
    snprintf(port->path, sizeof port->path, "%s", path);
    if (!traffic->began) {
        port->last_sent = sent;
        port->last_received = received;
    }
}

/* Ports of one device. */
static void add_device(struct ry_traffic *traffic, const char *name, const char *folder)
{
    char path[400], port_name[96];
    DIR *dir = opendir(folder);
    for (struct dirent *d = dir ? readdir(dir) : NULL; d; d = readdir(dir)) {
        if (d->d_name[0] == '.')
            continue;
        int len = snprintf(path, sizeof path, "%s/%s/counters", folder, d->d_name);
        snprintf(port_name, sizeof port_name, "%.60s:%.20s", name, d->d_name);
        if (len > 0 && (size_t)len < sizeof path)
            add_port(traffic, port_name, path);
    }
    if (dir)
        closedir(dir);
}

/* Devices of a folder; a folder that is no device may hold those of one PE. */
static void scan(struct ry_traffic *traffic, const char *folder, const char *prefix, int depth)
{
    char path[400], ports[420], name[96];
    struct stat st;
    DIR *dir = opendir(folder);
    for (struct dirent *d = dir ? readdir(dir) : NULL; d; d = readdir(dir)) {
        int len = snprintf(path, sizeof path, "%s/%s", folder, d->d_name);
        if (d->d_name[0] == '.' || len < 0 || (size_t)len >= sizeof path)
            continue;
        snprintf(ports, sizeof ports, "%s/ports", path);
        snprintf(name, sizeof name, "%.40s%s%.40s", prefix, *prefix ? "/" : "", d->d_name);
        if (stat(ports, &st) == 0)
            add_device(traffic, name, ports);
        else if (depth > 1 && stat(path, &st) == 0 && S_ISDIR(st.st_mode))
            scan(traffic, path, name, depth - 1);
    }
    if (dir)
        closedir(dir);
}

/* A counter that went back was reset: what it says now is what came since. */
static uint64_t step_of(uint64_t last, uint64_t now)
{
    return (now >= last ? now - last : now) * WORD;
}

static int compare_ports(const void *a, const void *b)
{
    const struct ry_traffic_port *x = a, *y = b;
    return strverscmp(x->name, y->name);
}

void ry_traffic_sample(struct ry_traffic *traffic)
{
    uint64_t now = now_ns();
    unsigned before = traffic->count;
    for (unsigned i = 0; i < traffic->root_count; i++)
        scan(traffic, traffic->roots[i], "", DEPTH);
    if (traffic->count != before)
        qsort(traffic->ports, traffic->count, sizeof traffic->ports[0], compare_ports);
    if (!traffic->began) {
        traffic->began = 1;
        traffic->started_ns = traffic->now_ns = now;
        return;
    }
    for (unsigned i = 0; i < traffic->count; i++) {
        struct ry_traffic_port *port = &traffic->ports[i];
        int sent_ok, received_ok;
        uint64_t sent = read_counter(port->path, "port_xmit_data", &sent_ok);
        uint64_t received = read_counter(port->path, "port_rcv_data", &received_ok);
        port->step_sent = sent_ok ? step_of(port->last_sent, sent) : 0;
        port->step_received = received_ok ? step_of(port->last_received, received) : 0;
        port->sent += port->step_sent;
        port->received += port->step_received;
        if (sent_ok)
            port->last_sent = sent;
        if (received_ok)
            port->last_received = received;
    }
    traffic->step_ns = now - traffic->now_ns;
    traffic->now_ns = now;
}

static uint64_t carried(const struct ry_traffic_port *port, int step)
{
    return step ? port->step_sent + port->step_received : port->sent + port->received;
}

static uint64_t total(const struct ry_traffic *traffic, int step)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < traffic->count; i++)
        sum += carried(&traffic->ports[i], step);
    return sum;
}

static void print_bytes(FILE *out, uint64_t bytes)
{
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB", "PB"};
    double value = (double)bytes;
    unsigned unit = 0;
    while (value >= 999.5 && unit < 5) {
        value /= 1000;
        unit++;
    }
    fprintf(out, unit ? "%8.2f %-2s" : "%8.0f %-2s", value, units[unit]);
}

void ry_traffic_print(const struct ry_traffic *traffic, int step, FILE *out)
{
    uint64_t ns = step ? traffic->step_ns : traffic->now_ns - traffic->started_ns;
    double seconds = ns ? (double)ns / 1e9 : 1, all = (double)total(traffic, step);
    fprintf(out, "%-24s %11s %11s %14s %7s\n", "port", "sent", "received", "rate", "share");
    for (unsigned i = 0; i < traffic->count; i++) {
        const struct ry_traffic_port *port = &traffic->ports[i];
        fprintf(out, "%-24s ", port->name);
        print_bytes(out, step ? port->step_sent : port->sent);
        fputc(' ', out);
        print_bytes(out, step ? port->step_received : port->received);
        fputc(' ', out);
        print_bytes(out, (uint64_t)((double)carried(port, step) / seconds));
        fprintf(out, "/s %6.1f%%\n", all > 0 ? 100.0 * (double)carried(port, step) / all : 0.0);
    }
}

int ry_traffic_is_idle(const struct ry_traffic *traffic, unsigned port)
{
    double mean = traffic->count ? (double)total(traffic, 0) / traffic->count : 0;
    return (double)carried(&traffic->ports[port], 0) * 100 <= mean;
}

/* Ports of one PE stand under its name ("pe3/"), those of a machine under none: how long that is.
 * What one PE sends is spread over its ports; that another sends more is the job's nature. */
static size_t owner_len(const struct ry_traffic_port *port)
{
    const char *slash = strrchr(port->name, '/');
    return slash ? (size_t)(slash - port->name) : 0;
}

static double owner_mean(const struct ry_traffic *traffic, const struct ry_traffic_port *port)
{
    size_t len = owner_len(port);
    double sum = 0;
    unsigned n = 0;
    for (unsigned i = 0; i < traffic->count; i++) {
        const struct ry_traffic_port *other = &traffic->ports[i];
        if (owner_len(other) != len || strncmp(other->name, port->name, len) != 0)
            continue;
        sum += (double)carried(other, 0);
        n++;
    }
    return sum / n;
}

double ry_traffic_spread(const struct ry_traffic *traffic)
{
    double worst = 0;
    for (unsigned i = 0; i < traffic->count; i++) {
        double mean = owner_mean(traffic, &traffic->ports[i]);
        double off = mean > 0 ? ((double)carried(&traffic->ports[i], 0) - mean) / mean * 100 : 0;
        off = off < 0 ? -off : off;
        worst = off > worst ? off : worst;
    }
    return worst;
}

void ry_traffic_judge(const struct ry_traffic *traffic, FILE *out)
{
    unsigned idle = 0;
    if (traffic->count == 0) {
        fputs("verdict: no port counters were found\n", out);
        return;
    }
    if (total(traffic, 0) == 0) {
        fprintf(out, "verdict: none of %u ports carried anything\n", traffic->count);
        return;
    }
    for (unsigned i = 0; i < traffic->count; i++) {
        if (!ry_traffic_is_idle(traffic, i))
            continue;
        fprintf(out, "verdict: %s is idle\n", traffic->ports[i].name);
        idle++;
    }
    if (!idle)
        fprintf(out,
                "verdict: all %u ports carry traffic, %s differ by at most %.1f%% from "
                "their mean\n",
                traffic->count,
                owner_len(&traffic->ports[0]) > 0 ? "the shares of each PE" : "shares",
                ry_traffic_spread(traffic));
}
