/* SPDX-License-Identifier: Apache-2.0 */
/* The context's threads: the agent, and in the cpu handlers the proxy that rings doorbells. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "host/agent.h"
#include "host/clock.h"
#include "host/control.h"
#include "host/ctx.h"
#include "host/error.h"
#include "nic/prompt.h"

enum {
    DOZE_AFTER_NS = 100 * 1000 * 1000, /* without traffic, the agent's tick gets long */
    PROXY_SPIN = 2000,                 /* looks at all rings without work before the proxy sleeps */
    PROXY_NAP_MS = 10,
};

static bool stopping(struct ry_ctx *ctx) { return __atomic_load_n(&ctx->stop, __ATOMIC_ACQUIRE); }

static void poke(int fd)
{
    uint64_t one = 1;

    if (write(fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
        perror("railyard: eventfd"); /* it counts: only a closed descriptor can fail */
}

static void wake_agent(void *arg) { poke(((struct ry_ctx *)arg)->wake_fd); }
static void wake_proxy(void *arg) { poke(((struct ry_ctx *)arg)->proxy_fd); }

static void drain(int fd)
{
    uint64_t n;

    while (read(fd, &n, sizeof(n)) > 0)
        ;
}

/* Sleep until `until_ns`, a control message, a NIC event or a wake. */
static void agent_sleep(struct ry_ctx *ctx, uint64_t until_ns)
{
    struct pollfd fds[3] = {
        {.fd = ctx->wake_fd, .events = POLLIN},
        {.fd = ctx->boot->ops->wait_fd(ctx->boot), .events = POLLIN},
        {.fd = ctx->mesh.nic->ops->event_fd(ctx->mesh.nic), .events = POLLIN},
    };
    uint64_t now = ry_clock_ns();
    struct timespec left = ry_clock_spec(until_ns > now ? until_ns - now : 0);

    ppoll(fds, 3, &left, NULL);
    if (fds[0].revents)
        drain(ctx->wake_fd);
}

void ry_ctx_boot_events(struct ry_ctx *ctx)
{
    struct ry_boot_event ev;

    while (ctx->boot->ops->poll_event(ctx->boot, &ev) == 1) {
        if (ev.pe >= ctx->mesh.n_pes || ev.pe == ctx->mesh.pe)
            continue;
        struct ry_peer *p = &ctx->mesh.peers[ev.pe];

        if (ev.type == RY_BOOT_PE_LOST) {
            bool known = ry_peer_state(p) == RY_PEER_GONE;

            if (ev.incarnation < p->hello.incarnation)
                continue; /* old news: a life before the one that this PE met */
            __atomic_store_n(&p->fell, ev.incarnation, __ATOMIC_RELEASE);
            ry_agent_peer_lost(&ctx->mesh, ev.pe);
            if (known)
                continue;
            ry_ctx_event(ctx, &ctx->mesh, RY_EVENT_PEER_LOST, ev.pe, 0, 0, 0, NULL);
        }
        if (ev.type == RY_BOOT_PE_JOINED)
            __atomic_store_n(&p->came, ev.incarnation, __ATOMIC_RELEASE);
    }
}

static void *agent_main(void *arg)
{
    struct ry_ctx *ctx = arg;
    struct ry_mesh *m = &ctx->mesh;
    uint64_t seen = 0, busy_ns = ry_clock_ns();

    prctl(PR_SET_NAME, "ry-agent");
    ry_prompt_thread();
    while (!stopping(ctx)) {
        uint64_t now = ry_clock_ns(), next, activity;

        pthread_rwlock_rdlock(&ctx->peers_lock);
        ry_ctx_boot_events(ctx);
        next = ry_agent_step(m, now);
        ry_amo_work(ctx);
        next = ry_min64(next, ry_control_tick(ctx, now));
        next = ry_min64(next, ry_ctx_ports_tick(ctx, now));
        pthread_rwlock_unlock(&ctx->peers_lock);
        activity = __atomic_load_n(&m->activity, __ATOMIC_RELAXED);
        if (activity != seen)
            busy_ns = now;
        seen = activity;
        if (now - busy_ns < DOZE_AFTER_NS) {
            next = ry_min64(next, now + ry_agent_tick_ns(m));
        } else {
            /* agent and poster: one of the two sees the other's word */
            __atomic_store_n(&m->agent_dozes, true, __ATOMIC_SEQ_CST);
            if (__atomic_load_n(&m->activity, __ATOMIC_SEQ_CST) != seen)
                next = now;
        }
        agent_sleep(ctx, next);
        __atomic_store_n(&m->agent_dozes, false, __ATOMIC_RELAXED);
    }
    return NULL;
}

static bool proxy_look(struct ry_ctx *ctx)
{
    bool any;

    pthread_rwlock_rdlock(&ctx->peers_lock);
    any = ry_mesh_proxy_look(&ctx->mesh);
    pthread_rwlock_unlock(&ctx->peers_lock);
    return any;
}

static void *proxy_main(void *arg)
{
    struct ry_ctx *ctx = arg;
    struct ry_mesh *m = &ctx->mesh;
    uint32_t idle = 0;

    prctl(PR_SET_NAME, "ry-proxy");
    while (!stopping(ctx)) {
        struct pollfd fd = {.fd = ctx->proxy_fd, .events = POLLIN};

        idle = proxy_look(ctx) ? 0 : idle + 1;
        if (idle < ctx->proxy_spin)
            continue;
        __atomic_store_n(&m->proxy_dozes, true, __ATOMIC_SEQ_CST);
        if (!proxy_look(ctx) && poll(&fd, 1, PROXY_NAP_MS) > 0)
            drain(ctx->proxy_fd);
        __atomic_store_n(&m->proxy_dozes, false, __ATOMIC_RELAXED);
        idle = 0;
    }
    return NULL;
}

int ry_ctx_threads_start(struct ry_ctx *ctx)
{
    ctx->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ctx->proxy_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (ctx->wake_fd < 0 || ctx->proxy_fd < 0)
        return ry_fail(RY_ERR_SYSTEM, "eventfd: %s", strerror(errno));
    ctx->proxy_spin = ctx->mesh.spin_ns > 10000 ? PROXY_SPIN : PROXY_SPIN / 100;
    ctx->mesh.wake_arg = ctx;
    ctx->mesh.wake_agent = wake_agent;
    ctx->mesh.wake_proxy = wake_proxy;
    if (pthread_create(&ctx->agent, NULL, agent_main, ctx))
        return ry_fail(RY_ERR_SYSTEM, "no thread for the agent: raise the limit on processes");
    ctx->agent_on = true;
    if (ctx->mesh.cfg.handler == RY_HANDLER_GPU)
        return RY_OK;
    if (pthread_create(&ctx->proxy, NULL, proxy_main, ctx))
        return ry_fail(RY_ERR_SYSTEM, "no thread for the proxy: raise the limit on processes");
    ctx->proxy_on = true;
    return RY_OK;
}

void ry_ctx_threads_stop(struct ry_ctx *ctx)
{
    __atomic_store_n(&ctx->stop, true, __ATOMIC_RELEASE);
    if (ctx->agent_on) {
        poke(ctx->wake_fd);
        pthread_join(ctx->agent, NULL);
        ry_ctx_show_ports(ctx); /* what came last counts too */
    }
    if (ctx->proxy_on) {
        poke(ctx->proxy_fd);
        pthread_join(ctx->proxy, NULL);
    }
    if (ctx->wake_fd >= 0)
        close(ctx->wake_fd);
    if (ctx->proxy_fd >= 0)
        close(ctx->proxy_fd);
    ctx->agent_on = ctx->proxy_on = false;
    ctx->wake_fd = ctx->proxy_fd = -1;
}
