/* SPDX-License-Identifier: Apache-2.0 */
/* railyard ep: a mixture-of-experts layer's exchange, every byte of it checked. */
#include "ep.h"

#include <railyard/routing.h>
#include <railyard/tune.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "timeline.h"

static const char usage[] =
    "usage: railyard ep [FLAG...]\n\n"
    "Exchanges tokens between PEs as a mixture-of-experts layer does, dispatch and combine, and\n"
    "compares every byte with a reference. Without flags: 8 PEs on 2 nodes, 2 rails each, routing\n"
    "by a built-in gate over text.";

struct ep_flags {
    const char *tokens, *hidden, *experts, *topk, *mode, *dtype, *iters, *warmup, *routing;
};

static int read_numbers(const struct ep_flags *f, struct ep_job *job)
{
    const struct {
        const char *name, *text;
        uint64_t least, most, initial;
    } numbers[] = {
        {"--tokens", f->tokens, 1, 1 << 18, 128}, {"--hidden", f->hidden, 8, 1 << 20, 2048},
        {"--experts", f->experts, 1, 65536, 0},   {"--topk", f->topk, 1, 1024, 0},
        {"--iters", f->iters, 1, 1ull << 40, 50}, {"--warmup", f->warmup, 0, 1 << 20, 2},
    };
    uint64_t v[6];
    for (uint32_t i = 0; i < 6; i++) {
        v[i] = numbers[i].initial;
        if (numbers[i].text && ry_tool_count("ep", numbers[i].name, numbers[i].text,
                                             numbers[i].least, numbers[i].most, &v[i]) != TOOL_OK)
            return TOOL_BAD_INPUT;
    }
    job->tokens = (uint32_t)v[0];
    job->attr = (ry_ep_attr){.hidden = (uint32_t)v[1],
                             .experts = (uint32_t)v[2],
                             .topk = (uint32_t)v[3],
                             .tokens_max = (uint32_t)v[0]};
    job->iters = v[4];
    job->warmup = v[5];
    return TOOL_OK;
}

static int read_shape(const struct ep_flags *f, struct ep_job *job)
{
    static const char *const modes[] = {"ll", "ht", NULL};
    static const char *const dtypes[] = {"bf16", "fp8", NULL};
    uint32_t mode = RY_EP_LL, dtype = RY_BF16;
    if (f->mode && ry_tool_choice("ep", "--mode", f->mode, modes, &mode) != TOOL_OK)
        return TOOL_BAD_INPUT;
    if (f->dtype && ry_tool_choice("ep", "--dtype", f->dtype, dtypes, &dtype) != TOOL_OK)
        return TOOL_BAD_INPUT;
    job->attr.mode = (enum ry_ep_mode)mode;
    job->attr.dtype = (enum ry_dtype)dtype;
    if (job->attr.hidden % 8 != 0)
        return ry_tool_error("ep",
                             "--hidden %u is %u bytes a row in bf16, not a multiple of 16: use a "
                             "multiple of 8",
                             job->attr.hidden, 2 * job->attr.hidden);
    if (dtype == RY_FP8 && job->attr.hidden % 128 != 0)
        return ry_tool_error("ep",
                             "--hidden %u with fp8 is no multiple of 128, the channels of one "
                             "scale: use one, or --dtype bf16",
                             job->attr.hidden);
    return TOOL_OK;
}

/* Experts and top-k as the routing has them; every bad line of a recording is found here. */
static int read_routing(struct ep_job *job)
{
    ry_routing_attr attr = {.experts = job->attr.experts, .topk = job->attr.topk};
    ry_routing *routing;
    ry_routing_info info;
    if (attr.experts && attr.topk && attr.experts < attr.topk)
        return ry_tool_error("ep", "--experts %u is less than --topk %u: a token needs that many",
                             attr.experts, attr.topk);
    if (ry_routing_open(job->routing, &attr, &routing) != RY_OK)
        return ry_tool_error("ep", "%s", ry_last_error());
    ry_routing_get_info(routing, &info);
    job->attr.experts = info.experts;
    job->attr.topk = info.topk;
    snprintf(job->source, sizeof job->source, "%s, %llu tokens", info.source,
             (unsigned long long)info.tokens);
    ry_routing_close(routing);
    return TOOL_OK;
}

/* A heap that holds the buffers, unless the user says how large it is. */
static int set_heap(struct ry_tool_job *shared, const struct ep_job *job)
{
    size_t bytes = ry_ep_heap_bytes(&job->attr, shared->n_pes, shared->n_nodes);
    if (shared->launched || bytes == 0)
        return TOOL_OK;
    return ry_tool_job_set(shared, true, "HEAP_SIZE=%zuM", ((bytes + bytes / 16) >> 20) + 16);
}

/* What railyard tune found for this machine and shape, where the user says nothing else. */
static int use_tuned(struct ry_tool_job *shared, const struct ep_flags *f, const struct ep_job *job)
{
    const ry_tune_shape shape = {.mode = f->mode,
                                 .dtype = f->dtype,
                                 .nic = shared->nic,
                                 .rails = shared->rails,
                                 .link_rate = shared->link_rate,
                                 .device = shared->device,
                                 .pes = shared->n_pes,
                                 .nodes = shared->n_nodes,
                                 .tokens = job->tokens,
                                 .hidden = job->attr.hidden,
                                 .experts = job->attr.experts,
                                 .topk = job->attr.topk};
    ry_tune_choice choice;
    if (shared->launched || shared->channels)
        return TOOL_OK;
    int status = ry_tune_load(NULL, &shape, &choice);
    if (status == RY_ERR_NOT_FOUND)
        return TOOL_OK;
    if (status != RY_OK)
        return ry_tool_error("ep", "%s", ry_last_error());
    if (choice.sms) {
        if (!shared->quiet)
            printf("tuned for this shape: %u SMs\n", choice.sms);
        return ry_tool_job_set(shared, true, "SMS=%u", choice.sms);
    }
    if (!shared->quiet && !getenv(JOB_REPORTS)) /* its PEs take it too, in silence */
        printf("tuned for this shape: channels %u, chunk %uK\n", choice.channels,
               choice.chunk_bytes >> 10);
    int code = ry_tool_job_set(shared, true, "CHANNELS=%u", choice.channels);
    return code != TOOL_OK ? code
                           : ry_tool_job_set(shared, true, "CHUNK=%uK", choice.chunk_bytes >> 10);
}

static int finish(struct ry_run *run, const struct ep_job *job)
{
    struct ep_total total;
    ep_total_make(run, &total);
    const struct ry_report *error = ry_run_error(run);
    int code = error ? ry_tool_exit(error->status) : total.ok ? TOOL_OK : TOOL_FAILED;
    bool started = false;
    for (uint32_t i = 0; i < run->n_pes; i++)
        started |= run->reports[i].state != PE_WAITING;
    if (error)
        ry_tool_error("ep", "%s", error->error);
    if (!started)
        return code;
    if (!run->job->quiet && total.iterations > 0)
        ep_print(run, job, &total);
    int wrote = ry_run_write(run, ep_json(run, job, &total), "railyard ep");
    return code != TOOL_OK ? code : wrote;
}

int ry_command_ep(int argc, char **argv)
{
    struct ep_flags f = {0};
    struct ry_tool_job shared = {0};
    struct ep_job job = {0};
    struct ry_tool_flag flags[JOB_FLAGS] = {
        {"--tokens", &f.tokens, NULL, "T: of each PE and iteration (128)"},
        {"--hidden", &f.hidden, NULL, "H: channels of a token (2048)"},
        {"--experts", &f.experts, NULL, "E: over all PEs (as the routing has them)"},
        {"--topk", &f.topk, NULL, "K: experts of a token (as the routing has them)"},
        {"--mode", &f.mode, NULL, "ll (low-latency) or ht (high-throughput)"},
        {"--dtype", &f.dtype, NULL, "bf16 or fp8: what dispatch sends"},
        {"--iters", &f.iters, NULL, "I: iterations that count (50)"},
        {"--warmup", &f.warmup, NULL, "W: iterations before those (2)"},
        {"--routing", &f.routing, NULL, "FILE.jsonl: a recording (a built-in gate)"},
    };
    int code;
    bool printer;
    ry_tool_job_flags(&shared, flags, 9);
    int at = ry_tool_flags(argc, argv, flags, usage, &code);
    if (at < 0)
        return code;
    if (at < argc)
        return ry_tool_error("ep", "unexpected '%s': ep takes flags only", argv[at]);
    job.routing = f.routing;
    if (read_numbers(&f, &job) != TOOL_OK || read_shape(&f, &job) != TOOL_OK ||
        read_routing(&job) != TOOL_OK)
        return TOOL_BAD_INPUT;
    code = ry_tool_job_read(&shared, "ep", 8, 2);
    job.seed = shared.seed_value;
    job.duration_ns = shared.duration_ns;
    if (code == TOOL_OK)
        code = use_tuned(&shared, &f, &job);
    if (code == TOOL_OK)
        code = ry_tool_gpu_read(&shared, &job.gpu);
    job.on_gpu = shared.cuda;
    if (code == TOOL_OK && !shared.cuda) /* GPUs have heaps of their own */
        code = set_heap(&shared, &job);
    if (code == TOOL_OK)
        code = ry_tool_job_check(&shared);
    struct ry_run run = {
        .job = &shared, .body = ep_body, .survives = true, .arg = &job, .total = job.iters};
    if (code == TOOL_OK)
        code = ry_run_start(&run, argc, argv, &printer);
    if (code == TOOL_OK && printer)
        code = finish(&run, &job);
    ry_run_end(&run);
    ry_tool_job_free(&shared);
    return code;
}
