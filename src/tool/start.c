/* SPDX-License-Identifier: Apache-2.0 */
#include "start.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <railyard/config.h>
#include <railyard/launch.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t reports_bytes(uint32_t n_pes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (n_pes * sizeof(struct ry_report) + page - 1) / page * page;
}

static int map_reports(struct ry_run *run, int fd)
{
    void *at = mmap(NULL, reports_bytes(run->n_pes), PROT_READ | PROT_WRITE,
                    fd >= 0 ? MAP_SHARED : MAP_SHARED | MAP_ANONYMOUS, fd, 0);
    if (at == MAP_FAILED)
        return ry_tool_error(run->job->command, "no memory for the reports of %u PEs: use fewer",
                             run->n_pes);
    run->reports = at;
    return TOOL_OK;
}

static void on_event(void *arg, const ry_event *ev)
{
    struct ry_report *r = arg;
    uint32_t at = __atomic_fetch_add(&r->n_events, 1, __ATOMIC_RELAXED);
    if (at < REPORT_EVENTS)
        snprintf(r->events[at], sizeof r->events[at], "%s", ev->text ? ev->text : "");
}

/* The emulated NIC's threads are made later and stay on the PE's core. Where the NIC is real, only
 * the thread that works is pinned, when all others are there: what they do should not wait for it.
 */
static void pin(const struct ry_run *run, uint32_t pe)
{
    cpu_set_t all, mine;
    uint32_t seen = 0;
    if (!run->pin || run->n_pes != 2 || sched_getaffinity(0, sizeof all, &all) != 0 ||
        CPU_COUNT(&all) < 2)
        return;
    CPU_ZERO(&mine);
    for (uint32_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &all) && seen++ == pe)
            CPU_SET(cpu, &mine);
    }
    sched_setaffinity(0, sizeof mine, &mine); /* without it the figures are worse, not wrong */
}

/* One PE, from its start to its end. */
static void be_pe(const struct ry_run *run, ry_hub *hub, uint32_t pe, struct ry_report *report)
{
    const struct ry_tool_job *job = run->job;
    ry_ctx_attr attr = {.hub = hub,
                        .hub_pe = pe,
                        .settings = (const char *const *)job->settings,
                        .n_settings = job->n_settings};
    ry_ctx *ctx = NULL;
    if (job->emulated)
        pin(run, pe);
    int rc = ry_ctx_create(&attr, &ctx);
    if (rc != RY_OK) {
        if (report->state == PE_WAITING) /* else a replacement came too late: its PE stays lost */
            ry_report_fail(report, rc);
        return;
    }
    if (!job->emulated)
        pin(run, pe);
    report->job = ry_job(ctx);
    report->incarnation = ry_incarnation(ctx);
    report->pe = ry_pe(ctx);
    report->n_pes = ry_n_pes(ctx);
    report->node = ry_node(ctx);
    report->n_nodes = ry_n_nodes(ctx);
    __atomic_store_n(&report->state, PE_RUNNING, __ATOMIC_RELEASE);
    if (hub && pe == 0) /* processes are announced by their launcher */
        fprintf(stderr, "railyard: job %016" PRIx64 ": %u pes on %u %s, threads of one process\n",
                report->job, report->n_pes, report->n_nodes,
                report->n_nodes == 1 ? "node" : "nodes");
    ry_on_event(ctx, on_event, report);
    if (job->fault)
        rc = ry_fault_plan(ctx, job->fault, job->seed_value);
    if (rc != RY_OK)
        ry_report_fail(report, rc);
    else
        run->body(ctx, run, report);
    ry_report_collect(report, ctx);
    ry_on_event(ctx, NULL, NULL);
    ry_ctx_destroy(ctx);
    __atomic_store_n(&report->state, PE_DONE, __ATOMIC_RELEASE);
}

struct pe_thread {
    const struct ry_run *run;
    ry_hub *hub;
    uint32_t pe;
    pthread_t thread;
};

static void *thread_main(void *arg)
{
    struct pe_thread *t = arg;
    be_pe(t->run, t->hub, t->pe, &t->run->reports[t->pe]);
    return NULL;
}

static int run_threads(struct ry_run *run)
{
    const struct ry_tool_job *job = run->job;
    run->n_pes = job->n_pes;
    struct pe_thread *threads = calloc(job->n_pes, sizeof *threads);
    ry_hub *hub = NULL;
    if (!threads || ry_hub_create(job->n_pes, job->n_nodes, &hub) != RY_OK) {
        free(threads);
        return ry_tool_error(job->command, "no memory for %u PEs: use fewer", job->n_pes);
    }
    int code = map_reports(run, -1);
    uint32_t started = 0;
    while (code == TOOL_OK && started < job->n_pes) {
        struct pe_thread *t = &threads[started];
        *t = (struct pe_thread){.run = run, .hub = hub, .pe = started};
        if (pthread_create(&t->thread, NULL, thread_main, t) != 0)
            break;
        started++;
    }
    if (code == TOOL_OK && started < job->n_pes)
        code = ry_tool_error(job->command, "no thread for pe%u: see ulimit -u", started);
    for (uint32_t i = 0; i < started; i++)
        pthread_join(threads[i].thread, NULL);
    ry_hub_destroy(hub);
    free(threads);
    return code;
}

/* [n_pes], when replacements come for PEs that the plan kills; NULL: no memory. */
static uint64_t *returns_of(const struct ry_tool_job *job)
{
    uint64_t *ns = calloc(job->n_pes, sizeof *ns);
    if (ns && job->fault && ry_fault_returns(job->fault, job->n_pes, ns) != RY_OK) {
        free(ns);
        return NULL;
    }
    return ns;
}

static int run_processes(struct ry_run *run, int argc, char **argv)
{
    const struct ry_tool_job *job = run->job;
    char variable[64];
    run->n_pes = job->n_pes;
    int fd = memfd_create("railyard-reports", 0); /* the PEs are to have it */
    if (fd < 0 || ftruncate(fd, (off_t)reports_bytes(run->n_pes)) != 0) {
        if (fd >= 0)
            close(fd);
        return ry_tool_error(job->command, "no memory for the reports of %u PEs: use fewer",
                             run->n_pes);
    }
    int code = map_reports(run, fd);
    snprintf(variable, sizeof variable, JOB_REPORTS "=%d:%u", fd, run->n_pes);
    const char *const env[] = {variable, NULL};
    uint64_t *returns = returns_of(job);
    ry_launch_cfg cfg = {.n_pes = job->n_pes,
                         .n_nodes = job->n_nodes,
                         .env = env,
                         .keep_going = run->survives || (job->fault && strstr(job->fault, "kill@")),
                         .return_ns = returns};
    ry_launch_result result;
    if (code == TOOL_OK && !returns)
        code = ry_tool_error(job->command, "no memory for %u PEs: use fewer", run->n_pes);
    if (code == TOOL_OK && ry_launch_self(argc + 1, argv - 1, &cfg, &result) != RY_OK)
        code = ry_tool_error(job->command, "%s", ry_last_error());
    free(returns);
    close(fd);
    if (code != TOOL_OK)
        return code;
    for (uint32_t i = 0; i < run->n_pes; i++) {
        struct ry_report *r = &run->reports[i];
        bool killed = result.pes[i].lost && result.pes[i].exit_code == 128 + SIGKILL;
        if (r->state == PE_DONE || r->status != RY_OK || killed)
            continue;
        if (result.pes[i].incarnation > 0) /* it found the job at its end */
            continue;
        r->status = RY_ERR_LAUNCH;
        snprintf(r->error, sizeof r->error, "pe%u ended before its work was done (exit code %d)", i,
                 result.pes[i].exit_code);
    }
    ry_launch_result_free(&result);
    return TOOL_OK;
}

/* One of the processes that run_processes started: exits. */
static void be_child(struct ry_run *run, const char *where)
{
    int fd;
    uint32_t pe, n;
    if (sscanf(where, "%d:%u", &fd, &n) != 2 || ry_launched(&pe, NULL) == 0 || pe >= n)
        exit(ry_tool_error(run->job->command, JOB_REPORTS " is not for you to set: unset it"));
    run->n_pes = n;
    unsetenv(JOB_REPORTS);
    if (map_reports(run, fd) != TOOL_OK)
        exit(TOOL_BAD_INPUT);
    close(fd);
    struct ry_report *mine = &run->reports[pe];
    be_pe(run, NULL, pe, mine);
    exit(ry_tool_exit(mine->status));
}

/* A PE of somebody else's launcher: PE 0 gets all reports through the job itself. */
struct gather {
    struct ry_run *run;
    void (*body)(ry_ctx *ctx, const struct ry_run *run, struct ry_report *report);
};

static void body_and_gather(ry_ctx *ctx, const struct ry_run *run, struct ry_report *report)
{
    const struct gather *g = run->arg;
    struct ry_run inner = *g->run;
    inner.body(ctx, &inner, report);
    ry_report_collect(report, ctx);
    report->state = PE_DONE;
    g->run->n_pes = ry_n_pes(ctx);
    if (map_reports(g->run, -1) == TOOL_OK &&
        ry_allgather(ctx, report, sizeof *report, g->run->reports) != RY_OK) {
        g->run->reports[0] = *report; /* better one than none */
        g->run->n_pes = 1;
    }
}

static int run_launched(struct ry_run *run, bool *printer)
{
    struct gather gather = {.run = run};
    struct ry_run outer = *run;
    struct ry_report *mine = calloc(1, sizeof *mine);
    if (!mine)
        return ry_tool_error(run->job->command, "no memory for a report: free some");
    outer.arg = &gather;
    outer.body = body_and_gather;
    be_pe(&outer, NULL, 0, mine);
    int code = TOOL_OK;
    if (!run->reports)
        code = ry_tool_error(run->job->command, "%s", mine->error),
        code = ry_tool_exit(mine->status);
    *printer = mine->pe == 0;
    if (code == TOOL_OK && !*printer)
        code = ry_tool_exit(mine->status);
    free(mine);
    return code;
}

int ry_run_start(struct ry_run *run, int argc, char **argv, bool *printer)
{
    const char *where = getenv(JOB_REPORTS);
    *printer = true;
    if (where)
        be_child(run, where);
    if (run->job->launched)
        return run_launched(run, printer);
    return run->job->threads ? run_threads(run) : run_processes(run, argc, argv);
}

void ry_run_end(struct ry_run *run)
{
    if (run->reports)
        munmap(run->reports, reports_bytes(run->n_pes));
    run->reports = NULL;
}

bool ry_run_lost_pe(const struct ry_run *run, uint32_t pe)
{
    const struct ry_report *r = &run->reports[pe];
    return r->state != PE_DONE && r->status == RY_OK;
}

const struct ry_report *ry_run_error(const struct ry_run *run)
{
    const struct ry_report *second = NULL;
    for (uint32_t i = 0; i < run->n_pes; i++) {
        const struct ry_report *r = &run->reports[i];
        if (r->status == RY_OK)
            continue;
        if (r->status != RY_ERR_LAUNCH && r->status != RY_ERR_TIMEOUT)
            return r;
        second = second ? second : r;
    }
    return second;
}
