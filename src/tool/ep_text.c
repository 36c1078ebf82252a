/* SPDX-License-Identifier: Apache-2.0 */
/* Results of `railyard ep`, for people and as JSON. */
#include <stdio.h>
#include <stdlib.h>

#include "balance.h"
#include "ep.h"
#include "timeline.h"

static struct ry_samples *samples_of(struct ry_report *r, uint32_t which)
{
    return which == 0 ? &r->dispatch.time : which == 1 ? &r->combine.time : &r->step;
}

static void make_phase(const struct ry_run *run, uint32_t which, struct ep_phase_total *t)
{
    struct ry_samples **s = calloc(run->n_pes, sizeof(struct ry_samples *));
    double rail = 0, local = 0, seconds = 0;
    uint32_t counted = 0;
    *t = (struct ep_phase_total){0};
    for (uint32_t i = 0; s && i < run->n_pes; i++) {
        struct ry_report *r = &run->reports[i];
        s[i] = samples_of(r, which);
        t->us_worst = s[i]->worst > t->us_worst ? s[i]->worst : t->us_worst;
        seconds += s[i]->sum * 1e-6;
        counted += s[i]->n > 0;
        if (which == 2)
            continue;
        const struct ry_phase *p = which == 0 ? &r->dispatch : &r->combine;
        rail += (double)p->rail_bytes;
        local += (double)p->local_bytes;
    }
    if (s && counted > 0 && seconds > 0) {
        t->us_p50 = ry_samples_quantile(s, run->n_pes, 0.5);
        t->us_p99 = ry_samples_quantile(s, run->n_pes, 0.99);
        t->rail_gbps = rail / (seconds / counted) * 1e-9;
        t->local_gbps = local / (seconds / counted) * 1e-9;
        t->gbps = t->rail_gbps + t->local_gbps;
    }
    free(s);
}

void ep_total_make(const struct ry_run *run, struct ep_total *t)
{
    *t = (struct ep_total){0};
    for (uint32_t i = 0; i < run->n_pes; i++) {
        const struct ry_report *r = &run->reports[i];
        t->lost_pes += ry_run_lost_pe(run, i);
        t->replaced_pes += r->state == PE_DONE && r->incarnation > 0;
        t->checked += r->checked;
        t->lost += r->lost;
        t->duplicated += r->duplicated;
        t->corrupted += r->corrupted;
        t->masked += r->masked;
        t->dispatch_bytes += r->dispatch.rail_bytes;
        t->minimum_bytes += r->minimum_bytes;
        t->iterations = r->at > t->iterations ? r->at : t->iterations;
    }
    make_phase(run, 0, &t->dispatch);
    make_phase(run, 1, &t->combine);
    make_phase(run, 2, &t->step);
    t->ok = !ry_run_error(run) && t->iterations > 0 && t->checked > 0 && t->lost == 0 &&
            t->duplicated == 0 && t->corrupted == 0;
}

static void print_phase(const char *name, const struct ep_phase_total *t)
{
    printf("%-9s %11.1f %11.1f %9.3f %9.3f %9.3f\n", name, t->us_p50, t->us_p99, t->gbps,
           t->rail_gbps, t->local_gbps);
}

static void print_usage(const struct ry_run *run, const struct ep_total *t)
{
    struct ry_usage first = {0}, last = {0};
    uint64_t rss = 0;
    uint32_t files = 0, threads = 0;
    char a[24], b[24], c[24], p50[24], p99[24], worst[24];
    for (uint32_t i = 0; i < run->n_pes; i++) {
        const struct ry_report *r = &run->reports[i];
        if (r->last.rss_bytes >= last.rss_bytes) {
            first = r->first;
            last = r->last;
        }
        rss = r->rss_most > rss ? r->rss_most : rss;
        files = r->descriptors_most > files ? r->descriptors_most : files;
        threads = r->threads_most > threads ? r->threads_most : threads;
    }
    printf("\nstep      p50 %s, p99 %s, worst %s\n", ry_us_text(t->step.us_p50, p50, sizeof p50),
           ry_us_text(t->step.us_p99, p99, sizeof p99),
           ry_us_text(t->step.us_worst, worst, sizeof worst));
    printf("memory    %s at first, %s at last, %s at most (largest %s)\n",
           ry_bytes_text((double)first.rss_bytes, a, sizeof a),
           ry_bytes_text((double)last.rss_bytes, b, sizeof b),
           ry_bytes_text((double)rss, c, sizeof c), run->job->threads ? "process" : "PE");
    printf("open      %u descriptors at first, %u at last; %u threads at first, %u at last\n",
           first.descriptors, last.descriptors, first.threads, last.threads);
}

void ep_print(const struct ry_run *run, const struct ep_job *job, const struct ep_total *t)
{
    const struct ry_report *r = &run->reports[0];
    printf("%u PEs on %u %s, %u tokens x %u %s each, %u experts, top-%u, %s, %llu iterations\n",
           r->n_pes, r->n_nodes, r->n_nodes == 1 ? "node" : "nodes", job->tokens, job->attr.hidden,
           job->attr.dtype == RY_FP8 ? "fp8" : "bf16", job->attr.experts, job->attr.topk,
           job->attr.mode == RY_EP_HT ? "high-throughput" : "low-latency",
           (unsigned long long)t->iterations);
    printf("routing: %s\n\n", job->source);
    printf("%-9s %11s %11s %9s %9s %9s\n", "", "us p50", "us p99", "GB/s", "by NIC", "direct");
    print_phase("dispatch", &t->dispatch);
    print_phase("combine", &t->combine);
    if (job->duration_ns)
        print_usage(run, t);
    ry_rails_print(run);
    ry_timeline_print(run);
    printf("\n%llu rows checked: %llu lost, %llu duplicated, %llu corrupted",
           (unsigned long long)t->checked, (unsigned long long)t->lost,
           (unsigned long long)t->duplicated, (unsigned long long)t->corrupted);
    if (t->masked > 0)
        printf("; %llu (token, expert) pairs masked with a lost PE", (unsigned long long)t->masked);
    if (t->lost_pes + t->replaced_pes > 0)
        printf("\nlost PEs: %u, of them replaced: %u", t->lost_pes + t->replaced_pes,
               t->replaced_pes);
    printf("\n%s\n", t->ok ? "ok" : "failed");
}

static json_t *phase_json(const struct ep_phase_total *t)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f}", "us_p50", t->us_p50, "us_p99", t->us_p99, "gbps",
                     t->gbps, "rail_gbps", t->rail_gbps, "local_gbps", t->local_gbps);
}

static json_t *usage_json(const struct ry_run *run, const struct ep_total *t)
{
    json_t *pes = json_array();
    for (uint32_t i = 0; i < run->n_pes; i++) {
        const struct ry_report *r = &run->reports[i];
        json_array_append_new(
            pes, json_pack("{s:i, s:I, s:I, s:I, s:I, s:i, s:i, s:i, s:i}", "pe", (int)i,
                           "rss_first_bytes", (json_int_t)r->first.rss_bytes, "rss_half_bytes",
                           (json_int_t)r->half.rss_bytes, "rss_last_bytes",
                           (json_int_t)r->last.rss_bytes, "rss_most_bytes", (json_int_t)r->rss_most,
                           "descriptors_first", (int)r->first.descriptors, "descriptors_last",
                           (int)r->last.descriptors, "threads_first", (int)r->first.threads,
                           "threads_last", (int)r->last.threads));
    }
    return json_pack("{s:f, s:f, s:f, s:o}", "us_p50", t->step.us_p50, "us_p99", t->step.us_p99,
                     "us_worst", t->step.us_worst, "pes", pes);
}

json_t *ep_json(const struct ry_run *run, const struct ep_job *job, const struct ep_total *t)
{
    const struct ry_report *error = ry_run_error(run);
    json_t *json = json_pack("{s:b, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o}", "ok", t->ok,
                             "tokens_checked", (json_int_t)t->checked, "lost", (json_int_t)t->lost,
                             "duplicated", (json_int_t)t->duplicated, "corrupted",
                             (json_int_t)t->corrupted, "masked", (json_int_t)t->masked, "dispatch",
                             phase_json(&t->dispatch), "combine", phase_json(&t->combine), "rails",
                             ry_rails_json(run), "faults", ry_timeline_json(run));
    json_object_set_new(json, "wire",
                        json_pack("{s:I, s:I}", "dispatch_bytes", (json_int_t)t->dispatch_bytes,
                                  "minimum_bytes", (json_int_t)t->minimum_bytes));
    struct ry_balance balance;
    ry_balance_run(&balance, run);
    json_object_set_new(json, "pairs", ry_pairs_json(run));
    json_object_set_new(json, "pair_balance", json_real(balance.pairs > 0 ? balance.worst : -1));
    json_object_set_new(json, "iterations", json_integer((json_int_t)t->iterations));
    json_object_set_new(json, "lost_pes", json_integer(t->lost_pes));
    json_object_set_new(json, "replaced_pes", json_integer(t->replaced_pes));
    json_object_set_new(json, "pes", json_integer(run->reports[0].n_pes));
    json_object_set_new(json, "nodes", json_integer(run->reports[0].n_nodes));
    json_object_set_new(json, "seed", json_integer((json_int_t)job->seed));
    json_object_set_new(json, "step", usage_json(run, t));
    json_object_set_new(json, "error", error ? json_string(error->error) : json_null());
    json_object_set_new(json, "error_at_us", json_real(error ? error->error_at_us : -1));
    return json;
}
