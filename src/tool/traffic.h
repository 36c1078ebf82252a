/* SPDX-License-Identifier: Apache-2.0 */
/* Port counters from folders in the form of /sys/class/infiniband. */
#ifndef RY_TOOL_TRAFFIC_H
#define RY_TOOL_TRAFFIC_H

#include <stdint.h>
#include <stdio.h>

enum { TRAFFIC_PORTS = 512, TRAFFIC_ROOTS = 4 };

struct ry_traffic_port {
    char name[96];  /* device:port, or folder/device:port where PEs have folders of their own */
    char path[400]; /* of its counters */
    uint64_t sent, received;           /* bytes since the beginning */
    uint64_t last_sent, last_received; /* what the counters said last */
    uint64_t step_sent, step_received; /* bytes of the last interval */
};

struct ry_traffic {
    const char *roots[TRAFFIC_ROOTS];
    unsigned root_count;
    unsigned count;
    uint64_t started_ns, now_ns, step_ns;
    int began; /* counters that are new after the beginning count from zero */
    struct ry_traffic_port ports[TRAFFIC_PORTS];
};

/* Reads all counters; the first call sets the beginning. */
void ry_traffic_sample(struct ry_traffic *traffic);

/* A table of bytes, rates and shares; of the last interval if `step`, else of the whole time. */
void ry_traffic_print(const struct ry_traffic *traffic, int step, FILE *out);

/* The verdict: one line for each idle port, or one that all carried traffic. */
void ry_traffic_judge(const struct ry_traffic *traffic, FILE *out);

/* True if the port carried less than a hundredth of what a fair share is. */
int ry_traffic_is_idle(const struct ry_traffic *traffic, unsigned port);

/* The largest distance of a port from the mean of its owner's ports (a PE's, or the machine's), in
 * percent of that mean; 0 without traffic. */
double ry_traffic_spread(const struct ry_traffic *traffic);

#endif
