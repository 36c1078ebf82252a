/* SPDX-License-Identifier: Apache-2.0 */
#include "tune.h"

#include <railyard/config.h>
#include <railyard/routing.h>
#include <stdlib.h>
#include <string.h>

#include "record.h"

static int read_number(const char *flag, const char *text, uint32_t *value)
{
    long long number = ry_tool_number(text);
    if (number < 1 || number > 1 << 20)
        return ry_tool_error("tune", "%s '%s' is no number from 1 to 1M", flag, text), -1;
    *value = (uint32_t)number;
    return 0;
}

/* Experts and top-k as the routing has them, which is what `ep` asks the file for. */
static int read_routing(const struct ry_tune_flags *flags, ry_tune_shape *shape)
{
    ry_routing_attr attr = {.experts = shape->experts, .topk = shape->topk};
    ry_routing *routing;
    ry_routing_info info;
    if (ry_routing_open(flags->routing, &attr, &routing) != RY_OK)
        return ry_tool_error("tune", "%s", ry_last_error()), -1;
    ry_routing_get_info(routing, &info);
    shape->experts = info.experts;
    shape->topk = info.topk;
    ry_routing_close(routing);
    return 0;
}

static int read_shape(const struct ry_tune_flags *flags, ry_tune_shape *shape)
{
    *shape = (ry_tune_shape){.mode = flags->mode,
                             .dtype = flags->dtype,
                             .nic = flags->nic,
                             .rails = flags->rails,
                             .link_rate = flags->link_rate,
                             .device = flags->device};
    if (strcmp(flags->mode, "ll") != 0 && strcmp(flags->mode, "ht") != 0)
        return ry_tool_error("tune", "--mode '%s' is not ll or ht", flags->mode), -1;
    if (flags->device && strcmp(flags->device, "host") != 0 && strcmp(flags->device, "cuda") != 0)
        return ry_tool_error("tune", "--device '%s' is not host or cuda", flags->device), -1;
    if (strcmp(flags->dtype, "bf16") != 0 && strcmp(flags->dtype, "fp8") != 0)
        return ry_tool_error("tune", "--dtype '%s' is not bf16 or fp8", flags->dtype), -1;
    if (read_number("--pes", flags->pes, &shape->pes) != 0 ||
        read_number("--nodes", flags->nodes, &shape->nodes) != 0 ||
        read_number("--tokens", flags->tokens, &shape->tokens) != 0 ||
        read_number("--hidden", flags->hidden, &shape->hidden) != 0 ||
        (flags->experts && read_number("--experts", flags->experts, &shape->experts) != 0) ||
        (flags->topk && read_number("--topk", flags->topk, &shape->topk) != 0))
        return -1;
    return read_routing(flags, shape);
}

int ry_tune_read_flags(int argc, char **argv, const char *usage, struct ry_tune_flags *f,
                       ry_tune_shape *shape, uint64_t *time_ns, int *exit_code)
{
    *f = (struct ry_tune_flags){.tokens = "128",
                                .hidden = "2048",
                                .mode = "ll",
                                .dtype = "bf16",
                                .pes = "8",
                                .nodes = "2",
                                .iters = "20",
                                .time = "60s"};
    const struct ry_tool_flag flags[] = {
        {"--tokens", &f->tokens, NULL, "T: of each PE and iteration (128)"},
        {"--hidden", &f->hidden, NULL, "H: channels of a token (2048)"},
        {"--experts", &f->experts, NULL, "E: over all PEs (as the routing has them)"},
        {"--topk", &f->topk, NULL, "K: experts of a token (as the routing has them)"},
        {"--mode", &f->mode, NULL, "ll (low-latency) or ht (high-throughput)"},
        {"--dtype", &f->dtype, NULL, "bf16 or fp8: what dispatch sends"},
        {"--routing", &f->routing, NULL, "FILE.jsonl: a recording (a built-in gate)"},
        {"--pes", &f->pes, NULL, "N: PEs to start (8)"},
        {"--nodes", &f->nodes, NULL, "M: nodes that they are split into (2)"},
        {"--rails", &f->rails, NULL, "R or R0,R1,...: rails of a PE, or one number a node"},
        {"--nic", &f->nic, NULL, "emu, verbs or mlx5"},
        {"--link-rate", &f->link_rate, NULL, "RATE or RATE0,RATE1,...: of each rail"},
        {"--device", &f->device, NULL, "host, or cuda: SM counts are swept"},
        {"--p2p", &f->p2p, NULL, "on or off, as ep takes it"},
        {"--iters", &f->iters, NULL, "I: iterations of one try (20)"},
        {"--time", &f->time, NULL, "TIME: for all tries together (60s)"},
        {"--file", &f->file, NULL, "FILE: of results (RAILYARD_TUNE_FILE)"},
        {"--json", &f->json, NULL, "write JSON to this file, - is stdout"},
        {NULL, NULL, NULL, NULL},
    };
    uint32_t iters;
    int at = ry_tool_flags(argc, argv, flags, usage, exit_code);
    if (at < 0)
        return -1;
    *exit_code = TOOL_BAD_INPUT;
    if (at < argc)
        return ry_tool_error("tune", "unexpected '%s': tune takes flags only", argv[at]), -1;
    if (ry_parse_time(f->time, time_ns) != RY_OK || *time_ns == 0)
        return ry_tool_error("tune", "--time '%s' is no time: write 60s or 2m", f->time), -1;
    if (read_number("--iters", f->iters, &iters) != 0 || read_shape(f, shape) != 0)
        return -1;
    *exit_code = TOOL_OK;
    return 0;
}

unsigned ry_tune_arguments(const struct ry_tune_flags *f, const char **argv)
{
    const struct {
        const char *name, *value;
    } words[] = {
        {"--tokens", f->tokens},   {"--hidden", f->hidden}, {"--experts", f->experts},
        {"--topk", f->topk},       {"--mode", f->mode},     {"--dtype", f->dtype},
        {"--routing", f->routing}, {"--pes", f->pes},       {"--nodes", f->nodes},
        {"--rails", f->rails},     {"--nic", f->nic},       {"--link-rate", f->link_rate},
        {"--device", f->device},   {"--p2p", f->p2p},
    };
    unsigned n = 0;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (words[i].value) {
            argv[n++] = words[i].name;
            argv[n++] = words[i].value;
        }
    }
    return n;
}
