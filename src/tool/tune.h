/* SPDX-License-Identifier: Apache-2.0 */
/* The flags of `railyard tune`: the shape, handed on to `ep`, and its own. */
#ifndef RY_TOOL_TUNE_H
#define RY_TOOL_TUNE_H

#include <railyard/tune.h>
#include <stdint.h>

enum { RY_TUNE_ARGS = 32 };

struct ry_tune_flags {
    /* of the shape */
    const char *tokens, *hidden, *experts, *topk, *mode, *dtype, *routing;
    const char *pes, *nodes, *rails, *nic, *link_rate, *device, *p2p;
    /* of tune */
    const char *iters, *time, *file, *json;
};

/* Reads and checks them. -1 after help or an error, with the exit code. */
int ry_tune_read_flags(int argc, char **argv, const char *usage, struct ry_tune_flags *flags,
                       ry_tune_shape *shape, uint64_t *time_ns, int *exit_code);

/* The words of the shape for `ep`; at most RY_TUNE_ARGS. Returns how many. */
unsigned ry_tune_arguments(const struct ry_tune_flags *flags, const char **argv);

#endif
