/* SPDX-License-Identifier: Apache-2.0 */
/* The one clock of host/: CLOCK_MONOTONIC in ns, and deadlines on it. */
#ifndef RY_HOST_CLOCK_H
#define RY_HOST_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t ry_clock_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline struct timespec ry_clock_spec(uint64_t at_ns)
{
    struct timespec t = {.tv_sec = (time_t)(at_ns / 1000000000u),
                         .tv_nsec = (long)(at_ns % 1000000000u)};

    if (at_ns / 1000000000u > INT32_MAX)
        t.tv_sec = INT32_MAX;
    return t;
}

/* Time left as poll() takes it: rounded up, at least 0, at most `most_ms`. */
static inline int ry_clock_left_ms(uint64_t deadline_ns, int most_ms)
{
    uint64_t now = ry_clock_ns();
    uint64_t left = deadline_ns > now ? (deadline_ns - now + 999999u) / 1000000u : 0;

    return left > (uint64_t)most_ms ? most_ms : (int)left;
}

#endif
