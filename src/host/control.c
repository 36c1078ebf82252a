/* SPDX-License-Identifier: Apache-2.0 */
#include "host/control.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/attach.h"
#include "host/error.h"
#include "host/fault_plan.h"

/* Paths as the agent's thread sees them, for a thread that asks. */
struct ry_control {
    struct ry_attach *attach;
    pthread_mutex_t lock;
    pthread_cond_t answered;
    uint64_t asked, done; /* questions */
    ry_path_status *paths;
    uint32_t n_paths;
};

static enum ry_path_health health_of(const struct ry_out_channel *oc, uint32_t slot, uint64_t st)
{
    const struct ry_out_slot *s = &oc->slot[slot];

    if (ry_state_of(st) == RY_CH_DEAD)
        return RY_PATH_UNREACHABLE;
    switch (s->state) {
    case RY_OUT_ARMED:
        if (s->condemned)
            return RY_PATH_FAILED;
        return slot == ry_state_active(st) && oc->silent > 0 ? RY_PATH_SUSPECTED : RY_PATH_GOOD;
    case RY_OUT_FLUSHING:
    case RY_OUT_FENCING:
        return RY_PATH_FAILED;
    default:
        return RY_PATH_RECOVERING;
    }
}

static void path_of(const struct ry_out_channel *oc, uint32_t peer, uint32_t channel, uint32_t slot,
                    uint64_t now_ns, ry_path_status *out)
{
    const struct ry_out_slot *s = &oc->slot[slot];
    uint64_t st = ry_observe_state(oc->ch), failed = ry_ld_acq64(&oc->ch->failed_ns);
    uint64_t ok = ry_ld_acq64(&oc->ch->first_ok_ns);
    bool active = slot == ry_state_active(st);
    bool left = !active && ry_ld_acq64(&oc->ch->ring[slot].failed_epoch) > 0;

    *out = (ry_path_status){
        .peer = peer,
        .channel = channel,
        .slot = slot,
        .rail = s->rail,
        .peer_rail = s->peer_rail,
        .health = health_of(oc, slot, st),
        .active = active,
        .home = s->rail == oc->home_rail && s->peer_rail == oc->home_peer_rail,
        .epoch = s->epoch,
        .moves = ry_state_move(st),
        .replayed = ry_ld_acq64(&oc->ch->replayed),
        .last_switch_us = left && ok >= failed ? (double)(ok - failed) * 1e-3 : -1,
        .since_s = now_ns > s->since_ns ? (double)(now_ns - s->since_ns) * 1e-9 : 0,
    };
}

/* All paths; the agent's thread. The caller frees. */
static ry_path_status *all_paths(const struct ry_mesh *m, uint64_t now_ns, uint32_t *n)
{
    size_t most = 1;

    *n = 0;
    for (uint32_t q = 0; q < m->n_pes; q++)
        most += (size_t)m->peers[q].n_channels * RY_SLOTS;
    ry_path_status *list = calloc(most, sizeof(*list));
    for (uint32_t q = 0; list && q < m->n_pes; q++) {
        const struct ry_peer *p = &m->peers[q];

        if (q == m->pe)
            continue;
        for (uint32_t c = 0; c < p->n_channels; c++) {
            for (uint32_t s = 0; s < RY_SLOTS; s++) {
                if (p->out[c].slot[s].state != RY_OUT_EMPTY)
                    path_of(&p->out[c], q, c, s, now_ns, &list[(*n)++]);
            }
        }
    }
    return list;
}

/* "sent PEER RAIL BYTES SHARE" for each peer that a NIC has carried something to. */
static void print_sent(struct ry_ctx *ctx, struct ry_attach_answer *a)
{
    uint64_t bytes[RY_RAILS_MAX];
    double share[RY_RAILS_MAX];
    const struct ry_mesh *m = &ctx->mesh;

    for (uint32_t q = 0; q < m->n_pes; q++) {
        uint64_t sum = 0;

        if (q == m->pe || ry_sent_to(ctx, q, bytes, share) != RY_OK)
            continue;
        for (uint32_t r = 0; r < m->hello.rails; r++)
            sum += bytes[r];
        for (uint32_t r = 0; sum > 0 && r < m->hello.rails; r++)
            ry_attach_print(a, "sent %u %u %llu %.6f\n", q, r, (unsigned long long)bytes[r],
                            share[r]);
    }
}

static void print_status(struct ry_ctx *ctx, struct ry_attach_answer *a)
{
    const struct ry_mesh *m = &ctx->mesh;
    uint32_t n = 0;

    ry_attach_print(a, "pe %u of %u node %u of %u\n", m->pe, m->n_pes, ctx->boot->node,
                    ctx->boot->n_nodes);
    for (uint32_t r = 0; r < m->hello.rails; r++) {
        struct ry_rail_counters k = {0};
        bool up = m->nic->ops->rail_state(m->nic, r) == RY_PORT_UP;

        m->nic->ops->counters(m->nic, r, &k);
        ry_attach_print(a, "rail %u %s nic %u %s %llu %llu %llu\n", r, m->hello.rail[r].name,
                        m->hello.rail[r].nic,
                        m->rails_drained >> r & 1 ? "drained"
                        : up                      ? "up"
                                                  : "down",
                        (unsigned long long)m->hello.rail[r].rate_bps,
                        (unsigned long long)k.tx_bytes, (unsigned long long)k.rx_bytes);
    }
    print_sent(ctx, a);
    ry_path_status *list = all_paths(m, ry_now(&m->env), &n);
    for (uint32_t i = 0; list && i < n; i++)
        ry_attach_print(a, "path %u %u %u %u %u %s %s %s %llu %llu %llu %.1f %.3f\n", list[i].peer,
                        list[i].channel, list[i].slot, list[i].rail, list[i].peer_rail,
                        ry_path_health_name(list[i].health), list[i].active ? "active" : "standby",
                        list[i].home ? "home" : "backup", (unsigned long long)list[i].epoch,
                        (unsigned long long)list[i].moves, (unsigned long long)list[i].replayed,
                        list[i].last_switch_us, list[i].since_s);
    free(list);
}

/* "drain rail1": the rail, or -1 with the reason left behind. */
static int64_t rail_named(const struct ry_ctx *ctx, const char *text)
{
    unsigned rail;
    char end;

    if (sscanf(text, "rail%u%c", &rail, &end) != 1 || rail >= ctx->mesh.hello.rails) {
        ry_fail(RY_ERR_INVALID, "no rail '%.20s' here: pe %u has rail0 to rail%u", text,
                ctx->mesh.pe, ctx->mesh.hello.rails - 1);
        return -1;
    }
    return rail;
}

static int on_request(void *arg, const char *request, struct ry_attach_answer *a)
{
    struct ry_ctx *ctx = arg;
    bool undrain = strncmp(request, "undrain ", 8) == 0;

    if (strcmp(request, "status") == 0) {
        print_status(ctx, a);
        return RY_OK;
    }
    if (strncmp(request, "fault ", 6) == 0)
        return ry_fault_plan_now(ctx, request + 6, ctx->mesh.cfg.seed);
    if (undrain || strncmp(request, "drain ", 6) == 0) {
        int64_t rail = rail_named(ctx, request + (undrain ? 8 : 6));

        return rail < 0 ? RY_ERR_INVALID : ry_agent_drain(&ctx->mesh, (uint32_t)rail, !undrain);
    }
    return ry_fail(RY_ERR_INVALID, "no request '%.20s': use status, fault, drain or undrain",
                   request);
}

int ry_control_start(struct ry_ctx *ctx)
{
    struct ry_control *k = calloc(1, sizeof(*k));
    int rc = k ? RY_OK : ry_fail(RY_ERR_NO_MEMORY, "no memory for the control of a context");

    if (rc)
        return rc;
    pthread_mutex_init(&k->lock, NULL);
    pthread_cond_init(&k->answered, NULL);
    ctx->control = k;
    if (ry_attach_open(ctx->boot->job, ctx->mesh.pe, on_request, ctx, &k->attach) != RY_OK)
        ry_log(&ctx->log, RY_DEBUG_WARN, "nobody can attach to this pe: %s", ry_last_error());
    if (ctx->config->fault[0]) {
        rc = ry_fault_plan(ctx, ctx->config->fault, ctx->config->seed);
        if (rc == RY_OK)
            ry_fault_start(ctx);
    }
    return rc;
}

static void answer_paths(struct ry_ctx *ctx, uint64_t now_ns)
{
    struct ry_control *k = ctx->control;

    pthread_mutex_lock(&k->lock);
    if (k->asked != k->done) {
        free(k->paths);
        k->paths = all_paths(&ctx->mesh, now_ns, &k->n_paths);
        k->done = k->asked;
        pthread_cond_broadcast(&k->answered);
    }
    pthread_mutex_unlock(&k->lock);
}

uint64_t ry_control_tick(struct ry_ctx *ctx, uint64_t now_ns)
{
    if (ctx->control->attach)
        ry_attach_serve(ctx->control->attach);
    answer_paths(ctx, now_ns);
    return ry_fault_tick(ctx, now_ns);
}

void ry_control_stop(struct ry_ctx *ctx)
{
    struct ry_control *k = ctx->control;

    if (!k)
        return;
    if (k->attach)
        ry_attach_close(k->attach);
    pthread_mutex_destroy(&k->lock);
    pthread_cond_destroy(&k->answered);
    free(k->paths);
    free(k);
    ctx->control = NULL;
    ry_fault_plan_free(ctx);
}

int ry_failover(ry_ctx *ctx, int on)
{
    if (ctx->config->failover == RY_FAILOVER_OFF)
        return ry_fail(RY_ERR_UNSUPPORTED, "failover was off when the job started, so there is no "
                                           "backup: start it with RAILYARD_FAILOVER=both");
    __atomic_store_n(&ctx->mesh.cfg.failover, on != 0, __ATOMIC_RELAXED);
    return RY_OK;
}

uint32_t ry_paths(ry_ctx *ctx, ry_path_status *out, uint32_t max)
{
    struct ry_control *k = ctx->control;
    struct timespec until;
    uint32_t n;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 1;
    pthread_mutex_lock(&k->lock);
    uint64_t mine = ++k->asked;
    ctx->mesh.wake_agent(ctx->mesh.wake_arg);
    while (k->done < mine && pthread_cond_timedwait(&k->answered, &k->lock, &until) == 0)
        continue;
    n = k->paths ? k->n_paths : 0;
    for (uint32_t i = 0; i < n && i < max; i++)
        out[i] = k->paths[i];
    pthread_mutex_unlock(&k->lock);
    return n;
}

const char *ry_path_health_name(enum ry_path_health h)
{
    static const char *const names[] = {"good", "suspected", "failed", "recovering", "unreachable"};

    return (unsigned)h < sizeof(names) / sizeof(names[0]) ? names[h] : "unknown";
}
