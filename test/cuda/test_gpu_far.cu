/* SPDX-License-Identifier: Apache-2.0 */
/* Dispatch and combine with peers that are reached through channels, all of them or those of other
 * nodes, and ports that go down under them. Every row and every sum is compared, bit for bit.
 * usage: test_gpu_far [PULLS [IDS_FILE TOPK EXPERTS]] */
#include <string.h>
#include <time.h>

#include "core/token.h"
#include "cuda/options.h"
#include "cuda/yard.h"

static uint64_t failures;

static void fail(const char *what, uint64_t n)
{
    failures++;
    printf("FAIL %s: %llu\n", what, (unsigned long long)n);
}

static void nap_us(uint64_t us)
{
    struct timespec t = {(time_t)(us / 1000000), (long)(us % 1000000 * 1000)};

    nanosleep(&t, NULL);
}

static struct ry_gpu_fabric_attr fabric_of(uint32_t ports, uint32_t channels, uint32_t nodes,
                                           uint64_t rate_bps, uint64_t timeout_ns)
{
    struct ry_gpu_fabric_attr f;

    memset(&f, 0, sizeof(f));
    f.ports = ports;
    f.channels = channels;
    f.nodes = nodes;
    f.depth = 256;
    f.parts = 1;
    f.rate_bps = rate_bps;
    f.retry_ns = 50000;
    f.timeout_ns = timeout_ns;
    f.direct = nodes > 1;
    f.failover = 1;
    f.failback = 1;
    f.event_ns = 300000;
    f.handler = options_handler();
    return f;
}

static ry_ep_attr attr_of(ry_ep_mode mode, int kind, uint32_t experts, uint32_t topk,
                          uint32_t hidden, uint32_t tokens)
{
    ry_ep_attr a;

    memset(&a, 0, sizeof(a));
    a.experts = experts;
    a.topk = topk;
    a.hidden = hidden;
    a.tokens_max = tokens;
    a.mode = mode;
    a.dtype = kind == 3 ? RY_BF16 : RY_FP8;
    a.scale = (ry_scale)(kind % 3);
    return a;
}

static void once(struct yard *y, int split)
{
    int first = split ? RY_EP_SEND : RY_EP_BOTH;

    yard_poison(y);
    yard_mark(y, 0);
    yard_dispatch(y, first);
    if (split)
        yard_dispatch(y, RY_EP_RECV);
    yard_experts(y);
    yard_combine(y, first);
    if (split)
        yard_combine(y, RY_EP_RECV);
    yard_mark(y, 1);
}

static void check(struct yard *y, const char *what)
{
    uint32_t dispatch = yard_check_dispatch(y), combine = yard_check_combine(y);

    if (dispatch + combine) {
        fail(what, dispatch + combine);
        printf("  %u of dispatch, %u of combine; %s, %u pes on %u nodes\n", dispatch, combine,
               y->attr.mode == RY_EP_LL ? "ll" : "ht", y->pes, y->nodes);
    }
    for (uint32_t p = 0; p < y->pes; p++)
        if (ry_gpu_ep_status(y->pe[p].ep) != RY_OK) {
            fail(what, p);
            printf("  %s\n", ry_last_error());
        }
}

/* All far, and mixed; odd numbers of everything; the host's reference too. */
static void test_shapes(int devices)
{
    static const uint32_t shapes[][6] = {/* experts topk hidden tokens pes nodes */
                                         {13, 4, 256, 9, 3, 1},
                                         {64, 6, 1024, 70, 2, 1},
                                         {5, 2, 2048, 17, 4, 2},
                                         {32, 8, 512, 40, 4, 2},
                                         {7, 3, 384, 33, 3, 2}};
    uint64_t before = failures;

    for (int i = 0; i < 5 * 2; i++) {
        const uint32_t *s = shapes[i / 2];
        ry_ep_attr a = attr_of((ry_ep_mode)(i % 2), (i / 2 + i) % 4, s[0], s[1], s[2], s[3]);
        struct ry_gpu_fabric_attr f = fabric_of(2, s[4] > 2 ? 2 : 3, s[5], 0, 2000000000);
        struct yard y;

        yard_open_far(&y, &a, s[4], devices, 16, &f);
        for (uint64_t seed = 0; seed < 4; seed++) {
            yard_draw(&y, seed * 100 + i, a.tokens_max, seed > 0, NULL, 0);
            once(&y, seed & 1);
            if (yard_reference(&y))
                fail("host reference", seed);
            check(&y, "shapes");
        }
        yard_close(&y);
    }
    printf("shapes on %d gpu: 10 jobs of 4 rounds, %llu failures\n", devices,
           (unsigned long long)(failures - before));
}

static void test_rounds(int devices, ry_ep_mode mode, int kind, uint32_t rounds,
                        const struct options *o)
{
    uint32_t tokens = mode == RY_EP_LL ? 128 : 512;
    ry_ep_attr a =
        attr_of(mode, kind, o->ids ? o->experts : 288, o->ids ? o->topk : 8, 7168, tokens);
    struct ry_gpu_fabric_attr f = fabric_of(2, 4, 1, 50000000000ull, 2000000000);
    uint64_t before = failures;
    struct yard y;

    yard_open_far(&y, &a, 2, devices, 48, &f);
    for (uint32_t r = 0; r < rounds && failures < before + 3; r++) {
        yard_draw(&y, r, tokens, r % 3 == 2, o->ids, o->n_ids);
        once(&y, r % 5 == 4);
        check(&y, "rounds");
    }
    yard_close(&y);
    printf("rounds: %s kind %d, %u of %u tokens, %s routing, %llu failures\n",
           mode == RY_EP_LL ? "ll" : "ht", kind, rounds, tokens, o->ids ? "recorded" : "random",
           (unsigned long long)(failures - before));
}

/* Moves so far, of both PEs, and messages that they sent again. */
struct account {
    uint64_t moved, replayed;
};

static struct account account_of(struct ry_gpu_fabric *f)
{
    struct account c = {0, 0};

    for (uint32_t p = 0; p < 2; p++) {
        struct ry_gpu_fabric_counts now;

        ry_gpu_fabric_count(f, p, &now);
        c.moved += now.moves - now.planned;
        c.replayed += now.replayed;
    }
    return c;
}

static int compare(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

static float at(float *us, uint32_t n, double q)
{
    qsort(us, n, sizeof(*us), compare);
    return n ? us[(uint32_t)(q * (n - 1))] : -1;
}

/* The median round when nothing happens. */
static float quiet_round(struct yard *y, uint32_t rounds)
{
    float us[64];

    for (uint32_t r = 0; r < rounds; r++) {
        yard_draw(y, 1000 + r, y->attr.tokens_max, 0, NULL, 0);
        once(y, 0);
        us[r] = yard_took_us(y);
        check(y, "a quiet round");
    }
    return at(us, rounds, 0.5);
}

static void port_up(struct yard *y, uint32_t pe, uint32_t port)
{
    ry_gpu_fabric_port(y->fabric, pe, port, 1, 0);
    if (ry_gpu_fabric_settle(y->fabric, 1000000000) != RY_OK)
        fail("settle", port);
}

/* A port goes down in the middle of a round, by itself after a random number of WQEs or by the host
 * at a random moment; with `two` the one that takes over goes down too, after some of its own. What
 * an event adds is the round's time beyond that of a quiet one. */
static void test_pulls(int devices, ry_ep_mode mode, uint32_t pulls, int two)
{
    ry_ep_attr a = attr_of(mode, two ? 3 : 0, 32, 4, 7168, mode == RY_EP_LL ? 64 : 128);
    uint32_t ports = two ? 4 : 2, seen = 0;
    struct ry_gpu_fabric_attr f = fabric_of(ports, 4, 1, 0, 2000000000);
    float *added = (float *)calloc(pulls + 1, sizeof(*added)), quiet;
    uint64_t before = failures;
    struct account c, last = {0, 0};
    struct yard y;
    char what[64];

    f.parts = two ? 2 : 4;
    snprintf(what, sizeof(what), "%s, %s", mode == RY_EP_LL ? "ll" : "ht",
             two ? "two ports of four pulled" : "a port of two pulled");
    yard_open_far(&y, &a, 2, devices, 24, &f);
    quiet = quiet_round(&y, 15);
    for (uint32_t i = 0; i < pulls && failures < before + 3; i++) {
        uint64_t h = ry_mix64(i + 1000 * two + 77 * mode);
        uint32_t pe = h & 1, port = h >> 1 & 1, next = (port + 1) % ports;
        int by_engine = h >> 2 & 1 || two;
        float us;

        yard_draw(&y, i, a.tokens_max, 0, NULL, 0);
        if (by_engine)
            ry_gpu_fabric_port(y.fabric, pe, port, 0, 1 + (h >> 8) % 120);
        if (two)
            ry_gpu_fabric_port(y.fabric, pe, next, 0, 1 + (h >> 20) % 80);
        once(&y, h >> 3 & 1);
        if (!by_engine) {
            nap_us((h >> 8) % 300);
            ry_gpu_fabric_port(y.fabric, pe, port, 0, 0);
        }
        us = yard_took_us(&y);
        check(&y, what);
        port_up(&y, pe, port);
        port_up(&y, pe, next);
        c = account_of(y.fabric);
        if (c.moved > last.moved)
            added[seen++] = us - quiet;
        last = c;
    }
    printf("%s: %u events, %u of them with moves (%llu, %llu messages replayed); a quiet round "
           "%.0f us, an event adds p50 %.0f us, p99 %.0f us, longest %.0f us\n",
           what, pulls, seen, (unsigned long long)last.moved, (unsigned long long)last.replayed,
           quiet, at(added, seen, 0.5), at(added, seen, 0.99), at(added, seen, 1));
    if (seen < pulls / 4)
        fail("too few moves to have tested anything", seen);
    yard_close(&y);
    free(added);
}

/* The sending kernels have ended with sends unacknowledged when the port dies, and nothing runs on
 * the GPU: the agent sees to them. Then the receive is called. */
static void test_left(int devices, ry_ep_mode mode, uint32_t times)
{
    ry_ep_attr a = attr_of(mode, 3, 32, 4, 7168, 64);
    struct ry_gpu_fabric_attr f = fabric_of(2, 4, 1, 1000000000, 2000000000);
    struct account c;
    struct yard y;

    yard_open_far(&y, &a, 2, devices, 24, &f);
    for (uint32_t i = 0; i < times; i++) {
        uint32_t port = i & 1;

        yard_draw(&y, i, 64, 0, NULL, 0);
        yard_poison(&y);
        ry_gpu_fabric_port(y.fabric, 0, port, 0, 1 + ry_mix64(i) % (mode == RY_EP_LL ? 16 : 8));
        yard_dispatch(&y, RY_EP_SEND);
        yard_sync(&y);
        nap_us(3000);
        yard_dispatch(&y, RY_EP_RECV);
        yard_experts(&y);
        yard_combine(&y, RY_EP_BOTH);
        check(&y, "left behind");
        port_up(&y, 0, port);
    }
    c = account_of(y.fabric);
    printf("%s, left behind by kernels: %u times, %llu moves, %llu messages replayed\n",
           mode == RY_EP_LL ? "ll" : "ht", times, (unsigned long long)c.moved,
           (unsigned long long)c.replayed);
    if (c.replayed == 0)
        fail("nothing was replayed, so nothing was tested", 0);
    yard_close(&y);
}

/* No port is left: every kernel ends by its deadline, and the status names the peer and a rail. */
static void test_all_down(int devices, ry_ep_mode mode)
{
    ry_ep_attr a = attr_of(mode, 0, 32, 4, 1024, 64);
    struct ry_gpu_fabric_attr f = fabric_of(2, 4, 1, 0, 100000000);
    struct timespec from, to;
    struct yard y;
    double ms;
    int status;

    yard_open_far(&y, &a, 2, devices, 24, &f);
    yard_draw(&y, 1, 64, 0, NULL, 0);
    ry_gpu_fabric_port(y.fabric, 0, 0, 0, 5);
    ry_gpu_fabric_port(y.fabric, 0, 1, 0, 7);
    clock_gettime(CLOCK_MONOTONIC, &from);
    once(&y, 0);
    yard_sync(&y);
    clock_gettime(CLOCK_MONOTONIC, &to);
    ms = (double)(to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) / 1e6;
    status = ry_gpu_ep_status(y.pe[0].ep);
    printf("%s, all ports down: ended after %.0f ms with %d: %s\n", mode == RY_EP_LL ? "ll" : "ht",
           ms, status, ry_last_error());
    if ((status != RY_ERR_UNREACHABLE && status != RY_ERR_TIMEOUT) || ms > 1000 ||
        !strstr(ry_last_error(), "pe 1") || !strstr(ry_last_error(), "rail"))
        fail("all ports down", (uint64_t)ms);
    yard_close(&y);
}

int main(int argc, char **argv)
{
    struct options o = options_read(argc, argv, 20);
    uint32_t pulls = o.count;

    if (!o.devices)
        return 77;
    for (int d = 1; d <= o.devices; d++)
        test_shapes(d);
    for (int mode = 0; mode < 2; mode++) {
        ry_ep_mode m = (ry_ep_mode)mode;

        test_all_down(o.devices, m);
        test_left(o.devices, m, pulls / 4 + 4);
        test_pulls(o.devices, m, pulls, 0);
        test_pulls(o.devices, m, pulls / 2, 1);
        test_pulls(1, m, pulls / 4, 0);
        for (int kind = 0; kind < 4 && pulls; kind++)
            test_rounds(o.devices, m, kind, pulls, &o);
    }
    printf("%s: %llu failures\n", failures ? "FAIL" : "ok", (unsigned long long)failures);
    free(o.ids);
    return failures != 0;
}
