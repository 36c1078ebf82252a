/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/town.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/error.h"

enum {
    STEP_NS = 100,        /* what a wait's turn takes */
    AGENT_NS = 20000,     /* longest sleep of an agent: control messages wake no one here */
    CTL_NS = 500,         /* a control message's way */
    SECONDS_MAX = 60,     /* of a schedule, on the machine's clock */
    MUTANT_SECONDS = 8,   /* broken, it may wait for ever */
    TURNS_MAX = 20000000, /* and turns of its own */
};

int ry_mutant;

uint64_t ry_sim_skip;
uint16_t ry_sim_counter_mask = 0xffff;

void ry_sim_point(void) {}
void ry_sim_proxy_told(void) {}
void ry_sim_slow(void) {}
void ry_sim_opened(void) {}
void ry_sim_mark(const char *name) { (void)name; }

static struct town *town; /* hooks of env have a context only */
static uint64_t turns;

static uint64_t now_ns(void *arg)
{
    (void)arg;
    return town->now;
}

static void agents(struct town *t)
{
    for (uint32_t i = 0; i < t->set.pes; i++) {
        struct town_pe *p = &t->pe[i];
        uint64_t next;

        if (p->agent_busy || p->agent_stopped || p->agent_due_ns > t->now)
            continue;
        p->agent_busy = true; /* a move that it makes waits, and others go on */
        next = ry_agent_step(&p->ctx->mesh, t->now);
        ry_amo_work(p->ctx);
        p->agent_busy = false;
        p->agent_due_ns = ry_min64(next, t->now + AGENT_NS);
        p->agent_due_ns = ry_max64(p->agent_due_ns, t->now + STEP_NS);
    }
}

static void proxies(struct town *t)
{
    for (uint32_t i = 0; i < t->set.pes; i++)
        if (town_mesh(t, i)->cfg.handler != RY_HANDLER_GPU)
            ry_mesh_proxy_look(town_mesh(t, i));
}

/* One turn of everybody, one step of time later. */
static void turn(struct town *t)
{
    if (++turns > TURNS_MAX) {
        if (!ry_mutant)
            fprintf(stderr, "a schedule does not end\n");
        exit(1);
    }
    t->now += STEP_NS;
    if (t->each)
        t->each(t);
    proxies(t);
    for (uint32_t i = 0; i < t->set.pes; i++)
        t->pe[i].ops.drive(town_mesh(t, i)->nic, t->now);
    agents(t);
}

static void relax(void *arg)
{
    (void)arg;
    turn(town);
}

static void kick(void *arg, struct ry_ring *ring, uint32_t prod_idx)
{
    struct ry_ctx *ctx = arg;

    ctx->mesh.nic->ops->kick(ring->nic_qp, prod_idx);
}

void town_run(struct town *t, uint64_t ns)
{
    for (uint64_t until = t->now + ns; t->now < until;)
        turn(t);
}

bool town_until(struct town *t, bool (*pred)(struct town *t), uint64_t ns)
{
    for (uint64_t until = t->now + ns; t->now < until && !pred(t);)
        turn(t);
    return pred(t);
}

void town_fault(struct town *t, uint32_t pe, struct ry_nic_fault f)
{
    struct ry_nic *nic = town_mesh(t, pe)->nic;

    f.peer = -1;
    if (t->pe[pe].ops.fault(nic, &f) != RY_OK) {
        fprintf(stderr, "a fault was refused\n");
        exit(1);
    }
}

void town_mute(struct town *t, uint32_t from, uint32_t to, uint64_t ns)
{
    struct ry_mesh *m = town_mesh(t, from);
    struct ry_req q = {.opcode = RY_OP_READ, .bytes = 8};
    uint64_t end;

    for (uint32_t r = 0; r < t->set.rails; r++) {
        struct ry_nic_fault f = {
            .kind = RY_FAULT_STALL, .rail = r, .peer = (int32_t)to, .for_ns = ns};

        t->pe[from].ops.fault(m->nic, &f);
    }
    q.laddr = ry_proof_req(town_channel(t, from, to)).laddr;
    q.raddr = m->peers[to].hello.heap_base;
    while (ry_channel_post(town_channel(t, from, to), &q, 1, RY_POST_NO_PROOF, &m->env, &end) ==
           RY_OK)
        ;
}

/* --- the bootstrap: collectives between threads at the start, datagrams ever after --- */

static struct {
    pthread_barrier_t all;
    const void *part[TOWN_PES];
    size_t len[TOWN_PES];
} meeting;

static void meet(const struct ry_boot *b, const void *in, size_t len)
{
    meeting.part[b->pe] = in;
    meeting.len[b->pe] = len;
    pthread_barrier_wait(&meeting.all);
}

static int allgatherv(struct ry_boot *b, const void *in, size_t len, void **out, size_t *offs,
                      uint64_t deadline_ns)
{
    size_t total = 0;
    uint8_t *all;

    (void)deadline_ns;
    meet(b, in, len);
    for (uint32_t i = 0; i < b->n_pes; total += meeting.len[i++])
        offs[i] = total;
    offs[b->n_pes] = total;
    all = malloc(total + 1);
    for (uint32_t i = 0; all && i < b->n_pes; i++)
        memcpy(all + offs[i], meeting.part[i], meeting.len[i]);
    *out = all;
    pthread_barrier_wait(&meeting.all);
    return all ? RY_OK : RY_ERR_NO_MEMORY;
}

static int allgather(struct ry_boot *b, const void *in, size_t len, void *out, uint64_t deadline_ns)
{
    (void)deadline_ns;
    meet(b, in, len);
    for (uint32_t i = 0; i < b->n_pes; i++)
        memcpy((uint8_t *)out + i * len, meeting.part[i], len);
    pthread_barrier_wait(&meeting.all);
    return RY_OK;
}

static int barrier(struct ry_boot *b, uint64_t deadline_ns)
{
    (void)deadline_ns;
    meet(b, NULL, 0);
    pthread_barrier_wait(&meeting.all);
    return RY_OK;
}

static void put(struct town *t, uint32_t from, uint32_t to, const void *msg, size_t len,
                uint64_t due_ns)
{
    for (uint32_t i = 0; i < TOWN_CTL; i++) {
        struct town_ctl *c = &t->ctl[i];

        if (c->len)
            continue;
        *c = (struct town_ctl){.due_ns = due_ns, .from = from, .to = to, .len = (uint32_t)len};
        memcpy(c->msg, msg, len);
        return;
    }
}

static int ctl_send(struct ry_boot *b, uint32_t pe, const void *msg, size_t len)
{
    if (len == sizeof(struct ry_msg) && town->hear && !town->hear(town, b->pe, pe, msg))
        return RY_OK;
    put(town, b->pe, pe, msg, len, town->now + CTL_NS);
    return RY_OK;
}

static int ctl_recv(struct ry_boot *b, uint32_t *from, void *msg, size_t *len)
{
    for (uint32_t i = 0; i < TOWN_CTL; i++) {
        struct town_ctl *c = &town->ctl[i];

        if (!c->len || c->to != b->pe || c->due_ns > town->now)
            continue;
        *from = c->from;
        *len = c->len;
        memcpy(msg, c->msg, c->len);
        c->len = 0;
        return 1;
    }
    return 0;
}

void town_say(struct town *t, uint32_t from, uint32_t to, const struct ry_msg *msg)
{
    put(t, from, to, msg, sizeof(*msg), t->now);
    t->pe[to].agent_due_ns = t->now;
    turn(t);
}

static int none(struct ry_boot *b, struct ry_boot_event *ev)
{
    (void)b, (void)ev;
    return 0;
}

static const struct ry_boot_ops boot_ops = {
    .allgather = allgather,
    .allgatherv = allgatherv,
    .barrier = barrier,
    .ctl_send = ctl_send,
    .ctl_recv = ctl_recv,
    .poll_event = none,
};

/* --- opening and closing --- */

static int open_nic(struct town *t, uint32_t i)
{
    struct ry_mesh *m = town_mesh(t, i);
    uint64_t rates[RY_RAILS_MAX];
    struct ry_emu_cfg cfg = {.pe = i,
                             .n_pes = t->set.pes,
                             .rails = t->set.rails,
                             .ports_per_nic = 2,
                             .rate_bps = t->set.rate_bps ? rates : NULL,
                             .latency_ns = 300,
                             .retry_count = 3,
                             .retry_ns = 8 * TOWN_US,
                             .seed = 1 + i,
                             .virtual_time = true,
                             .threads = true,
                             .now_ns = now_ns,
                             .chaos = t->set.chaos};
    int rc;

    for (uint32_t r = 0; r < RY_RAILS_MAX; r++)
        rates[r] = t->set.rate_bps;
    rc = ry_emu_open(&cfg, &m->nic);
    if (rc)
        return rc;
    t->pe[i].ops = *m->nic->ops;
    m->nic->ops = &t->pe[i].ops;
    for (uint32_t r = 0; i == 0 && r < t->set.rails; r++)
        if (t->set.down >> r & 1)
            town_fault(t, 0, (struct ry_nic_fault){.kind = RY_FAULT_PORT_DOWN, .rail = r});
    return RY_OK;
}

static void settings(struct ry_config *c, const struct town_setting *s)
{
    ry_config_defaults(c);
    c->qp_depth = s->depth;
    c->channels = s->channels;
    c->handler = s->handler == RY_HANDLER_GPU   ? RY_USE_GPU
                 : s->handler == RY_HANDLER_CPU ? RY_USE_CPU
                                                : RY_USE_CPU_HOST_MEMORY;
    c->p2p = false;
    c->failover = RY_FAILOVER_ON;
    c->path_timeout_ns = s->path_timeout_ns;
    c->timeout_ns = 500 * s->path_timeout_ns;
    c->recovery_interval_ns = 100 * TOWN_US;
    c->recovery_interval_max_ns = 1600 * TOWN_US;
    c->recovery_probes = 2;
    c->failure_threshold = 2;
}

static int prepare(struct town *t, uint32_t i)
{
    struct ry_ctx *ctx = t->pe[i].ctx;
    struct ry_mesh *m = &ctx->mesh;

    settings(ctx->config, &t->set);
    ctx->boot = &t->pe[i].boot;
    ctx->threads = true;
    ctx->heap_fd = ctx->wake_fd = ctx->proxy_fd = -1;
    pthread_mutex_init(&ctx->lock, NULL);
    pthread_mutex_init(&ctx->amo.lock, NULL);
    m->pe = i;
    m->n_pes = t->set.pes;
    m->boot = ctx->boot;
    m->heap = aligned_alloc(4096, t->set.heap_bytes);
    if (!m->heap)
        return RY_ERR_NO_MEMORY;
    memset(m->heap, 0, t->set.heap_bytes);
    m->heap_bytes = t->set.heap_bytes;
    m->sys_bytes = ry_ctx_sys_layout(ctx, true);
    ctx->amo.peer = calloc(m->n_pes, sizeof(*ctx->amo.peer));
    if (!ctx->amo.peer || ry_heap_init(ctx))
        return RY_ERR_NO_MEMORY;
    ry_ctx_fill_cfg(ctx);
    m->virtual_time = true;
    m->on_event = NULL;
    m->env.now_ns = now_ns;
    m->env.relax = relax;
    m->env.kick = kick;
    m->env.move_ns_max = 2 * t->set.path_timeout_ns;
    return open_nic(t, i);
}

/* In a thread of its own: the start is a meeting of all. */
static void *join(void *arg)
{
    struct town_pe *p = arg;
    struct ry_mesh *m = &p->ctx->mesh;
    struct ry_nic_export ex = {.fd = -1};

    p->rc = m->nic->ops->export_seg(m->nic, &ex);
    strcpy(m->hello.nic, "town");
    m->hello.seg_bytes = ex.len_bytes;
    m->hello.seg_base = (uint64_t)(uintptr_t)ex.base;
    if (p->rc == RY_OK)
        p->rc = ry_mesh_hello(m, UINT64_MAX);
    for (uint32_t q = 0; p->rc == RY_OK && q < m->n_pes; q++) {
        m->peers[q].heap = (void *)(uintptr_t)m->peers[q].hello.heap_base;
        m->peers[q].seg = (void *)(uintptr_t)m->peers[q].hello.seg_base;
    }
    if (p->rc == RY_OK)
        p->rc = ry_mesh_connect(m, UINT64_MAX);
    return NULL;
}

static void fill(struct town_setting *s)
{
    s->pes = s->pes ? s->pes : 2;
    s->rails = s->rails ? s->rails : 2;
    s->depth = s->depth ? s->depth : 64;
    s->channels = s->channels ? s->channels : 1;
    s->heap_bytes = s->heap_bytes ? s->heap_bytes : 512 << 10;
    s->path_timeout_ns = s->path_timeout_ns ? s->path_timeout_ns : 60 * TOWN_US;
}

bool town_open(struct town *t, const struct town_setting *set)
{
    pthread_t thread[TOWN_PES];
    bool good = true;

    memset(t, 0, sizeof(*t));
    town = t;
    t->set = *set;
    fill(&t->set);
    t->now = TOWN_MS;
    pthread_barrier_init(&meeting.all, NULL, t->set.pes);
    for (uint32_t i = 0; i < t->set.pes; i++) {
        struct town_pe *p = &t->pe[i];

        p->boot = (struct ry_boot){.ops = &boot_ops,
                                   .pe = i,
                                   .n_pes = t->set.pes,
                                   .node = i,
                                   .n_nodes = t->set.pes,
                                   .n_local = 1};
        p->ctx = calloc(1, sizeof(*p->ctx));
        if (!p->ctx)
            return false;
        p->ctx->config = calloc(1, sizeof(*p->ctx->config));
        if (!p->ctx->config || prepare(t, i) != RY_OK)
            return false;
    }
    for (uint32_t i = 0; i < t->set.pes; i++)
        pthread_create(&thread[i], NULL, join, &t->pe[i]);
    for (uint32_t i = 0; i < t->set.pes; i++) {
        pthread_join(thread[i], NULL);
        good = good && t->pe[i].rc == RY_OK;
    }
    return good;
}

void town_close(struct town *t)
{
    for (uint32_t i = 0; i < t->set.pes; i++) {
        ry_mesh_teardown_qps(town_mesh(t, i));
        ry_mesh_teardown(town_mesh(t, i));
    }
    for (uint32_t i = 0; i < t->set.pes; i++) {
        struct ry_ctx *ctx = town_ctx(t, i);

        ctx->mesh.nic->ops->close(ctx->mesh.nic);
        ry_heap_fini(ctx);
        free(ctx->mesh.heap);
        free(ctx->amo.peer);
        free(ctx->config);
        free(ctx);
    }
    pthread_barrier_destroy(&meeting.all);
}

void *town_alloc(struct town *t, size_t bytes)
{
    static size_t used;
    uint64_t at = ((town_mesh(t, 0)->sys_bytes + 4095) & ~4095ull) + used;

    used += (bytes + 255) & ~(size_t)255;
    return town_mesh(t, 0)->heap + at;
}

void *town_at(struct town *t, uint32_t pe, void *p)
{
    return town_mesh(t, pe)->heap + ((uint8_t *)p - town_mesh(t, 0)->heap);
}

/* --- running --- */

static bool one(const struct town_schedule *s, int mutant)
{
    static struct town t;
    int status = 0, left = (mutant ? MUTANT_SECONDS : SECONDS_MAX) * 100;
    pid_t pid, ended = 0;

    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        ry_mutant = mutant;
        exit(s->right(&t) ? 0 : 1);
    }
    while (pid > 0 && left-- > 0 && ended == 0) {
        usleep(10000);
        ended = waitpid(pid, &status, WNOHANG);
    }
    if (ended == 0) {
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
    }
    return ended == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int town_run_all(const char *group, const struct town_schedule *all, size_t n)
{
    const char *mutants = getenv("RY_TEST_MUTANTS"); /* off: what they run is no coverage */
    bool with_mutants = !mutants || strcmp(mutants, "off") != 0;
    int wrong = 0;

    for (size_t i = 0; i < n; i++) {
        bool mutant = with_mutants && all[i].mutant;
        bool right = one(&all[i], 0), caught = !mutant || !one(&all[i], all[i].mutant);

        printf("%s %s: %s%s\n", group, all[i].name, right ? "right" : "WRONG",
               !mutant  ? ""
               : caught ? ", and wrong without its rule"
                        : ", AND RIGHT WITHOUT ITS RULE");
        wrong += !right || !caught;
    }
    return wrong != 0;
}
