/* SPDX-License-Identifier: Apache-2.0 */
/* The library on real verbs while links go down and up: PEs as threads, PE i on node i % 2, node 0
 * on rxe_a0 and rxe_a1, node 1 on rxe_b0 and rxe_b1. Every PE sends to every other, round after
 * round, eight messages with signals, checks what it got byte by byte, counts with an atomic, and
 * waits for quiet. Meanwhile the main thread takes a link down, waits until traffic goes on, mends
 * it, and waits until both rails carry again.
 *
 * One line a pull, then one line of sums, and how soon after the first port event of a pull the
 * failures were seen that made channels switch. exit: 0 nothing lost, doubled or corrupted, and
 * every return was seen; 1 otherwise; 2 bad use or set-up. */
#include <getopt.h>
#include <inttypes.h>
#include <net/if.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <railyard/context.h>
#include <railyard/heap.h>
#include <railyard/rma.h>

enum { SIGNALS = 8, WORDS = 1024, PES_MAX = 4, RAILS = 2, DETECTS_MAX = 8192 };

struct job {
    uint32_t pulls, pes, hold_ms;
    uint64_t seed;
    ry_hub *hub;
    int stop; /* main to PEs: the last round is near */
    uint64_t last_round;
    uint64_t rounds[PES_MAX]; /* finished */
    uint64_t corrupted, miscounted, failed;
    /* written by agents, read by main */
    uint64_t down_ns, switch_ns, detect_ns, return_ns[PES_MAX];
    uint64_t detects[DETECTS_MAX]; /* of every switch: when its failure was seen */
    uint32_t n_detects, n_late;
    double
        late_ms[DETECTS_MAX]; /* of every switch of all pulls, from the pull's first port event */
    uint64_t switches, returns, replayed;
    struct ry_rail rails[PES_MAX][RAILS];
};

struct pe {
    struct job *job;
    uint32_t pe;
    ry_ctx *ctx;
    pthread_t thread;
};

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static uint64_t mix(uint64_t z)
{
    z = (z + 0x9e3779b97f4a7c15ull) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static void set_link(const char *netdev, int up)
{
    struct ifreq r;
    int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), rc;

    memset(&r, 0, sizeof(r));
    snprintf(r.ifr_name, sizeof(r.ifr_name), "%s", netdev);
    rc = ioctl(s, SIOCGIFFLAGS, &r);
    r.ifr_flags = (short)(up ? r.ifr_flags | IFF_UP : r.ifr_flags & ~IFF_UP);
    if (rc == 0)
        rc = ioctl(s, SIOCSIFFLAGS, &r);
    close(s);
    if (rc != 0) {
        perror(netdev);
        exit(2);
    }
}

static void first(uint64_t *word, uint64_t v)
{
    uint64_t none = 0;

    __atomic_compare_exchange_n(word, &none, v, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

static void on_event(void *arg, const ry_event *ev)
{
    struct pe *p = arg;
    struct job *j = p->job;

    uint32_t n;

    switch (ev->type) {
    case RY_EVENT_RAIL_DOWN:
        first(&j->down_ns, ev->at_ns);
        break;
    case RY_EVENT_SWITCH:
        first(&j->switch_ns, ev->at_ns);
        first(&j->detect_ns, ev->detect_ns);
        n = __atomic_fetch_add(&j->n_detects, 1, __ATOMIC_ACQ_REL);
        if (n < DETECTS_MAX)
            __atomic_store_n(&j->detects[n], ev->detect_ns, __ATOMIC_RELEASE);
        __atomic_add_fetch(&j->switches, 1, __ATOMIC_RELAXED);
        __atomic_add_fetch(&j->replayed, ev->replayed, __ATOMIC_RELAXED);
        break;
    case RY_EVENT_RETURN:
        __atomic_store_n(&j->return_ns[p->pe], ev->at_ns, __ATOMIC_RELEASE);
        __atomic_add_fetch(&j->returns, 1, __ATOMIC_RELAXED);
        break;
    default:
        break;
    }
}

static uint64_t word_of(uint32_t from, uint32_t to, uint64_t round, uint32_t s, uint32_t i)
{
    return mix(round << 20 ^ (uint64_t)from << 60 ^ (uint64_t)to << 56 ^ (uint64_t)s << 16 ^ i);
}

struct memory {
    uint64_t *src, *dst; /* [pe][signal][word] */
    ry_signal *sig;      /* [from][signal] */
    uint64_t *count;     /* [from] */
};

static size_t at(uint32_t pe, uint32_t s) { return ((size_t)pe * SIGNALS + s) * WORDS; }

static int fail(struct pe *p, const char *what, uint64_t round)
{
    fprintf(stderr, "pe %u, round %" PRIu64 ": %s: %s\n", p->pe, round, what, ry_last_error());
    __atomic_add_fetch(&p->job->failed, 1, __ATOMIC_RELAXED);
    return -1;
}

static int send_round(struct pe *p, const struct memory *m, uint64_t round)
{
    for (uint32_t q = 0; q < p->job->pes; q++) {
        if (q == p->pe)
            continue;
        for (uint32_t s = 0; s < SIGNALS; s++) {
            for (uint32_t i = 0; i < WORDS; i++)
                m->src[at(q, s) + i] = word_of(p->pe, q, round, s, i);
            if (ry_put_signal_nbi(p->ctx, &m->dst[at(p->pe, s)], &m->src[at(q, s)],
                                  WORDS * sizeof(uint64_t), &m->sig[p->pe * SIGNALS + s], round,
                                  q) != RY_OK)
                return fail(p, "put", round);
        }
        if (ry_amo_add(p->ctx, &m->count[p->pe], 1, q) != RY_OK)
            return fail(p, "count", round);
    }
    return 0;
}

static int check_round(struct pe *p, const struct memory *m, uint64_t round)
{
    for (uint32_t q = 0; q < p->job->pes; q++) {
        if (q == p->pe)
            continue;
        for (uint32_t s = 0; s < SIGNALS; s++) {
            uint64_t bad = 0;

            if (ry_signal_wait(p->ctx, &m->sig[q * SIGNALS + s], round, q, 0) != RY_OK)
                return fail(p, "wait", round);
            bad += ry_signal_read(p->ctx, &m->sig[q * SIGNALS + s]) != round;
            for (uint32_t i = 0; i < WORDS; i++)
                bad += m->dst[at(q, s) + i] != word_of(q, p->pe, round, s, i);
            __atomic_add_fetch(&p->job->corrupted, bad, __ATOMIC_RELAXED);
        }
    }
    return 0;
}

static int get_memory(struct pe *p, struct memory *m)
{
    size_t words = (size_t)p->job->pes * SIGNALS * WORDS;

    return ry_malloc(p->ctx, words * 8, (void **)&m->src) ||
           ry_malloc(p->ctx, words * 8, (void **)&m->dst) ||
           ry_malloc(p->ctx, sizeof(ry_signal) * SIGNALS * p->job->pes, (void **)&m->sig) ||
           ry_malloc(p->ctx, 8 * PES_MAX, (void **)&m->count);
}

/* Rounds until the one that PE 0 announces as the last. A round ends in a barrier, which includes
 * quiet, so that nobody writes what another has not checked. */
static int rounds(struct pe *p, const struct memory *m)
{
    struct job *j = p->job;

    for (uint64_t round = 1;; round++) {
        if (p->pe == 0 && __atomic_load_n(&j->stop, __ATOMIC_ACQUIRE) && !j->last_round)
            __atomic_store_n(&j->last_round, round, __ATOMIC_RELEASE);
        if (send_round(p, m, round) != 0 || check_round(p, m, round) != 0)
            return -1;
        if (ry_barrier(p->ctx) != RY_OK)
            return fail(p, "barrier", round);
        __atomic_store_n(&j->rounds[p->pe], round, __ATOMIC_RELEASE);
        for (uint32_t r = 0; r < RAILS; r++) {
            ry_rail rail;

            if (ry_rail_get(p->ctx, r, &rail) == RY_OK)
                __atomic_store_n(&j->rails[p->pe][r].tx_bytes, rail.tx_bytes, __ATOMIC_RELEASE);
        }
        if (round == __atomic_load_n(&j->last_round, __ATOMIC_ACQUIRE))
            break;
        if (ry_barrier(p->ctx) != RY_OK) /* all have seen whether it was the last */
            return fail(p, "barrier", round);
    }
    for (uint32_t q = 0; q < j->pes; q++)
        if (q != p->pe && m->count[q] != j->last_round)
            __atomic_add_fetch(&j->miscounted, 1, __ATOMIC_RELAXED);
    return 0;
}

/* The emulated CPU is slow and shared: timers that fit real hardware would find paths dead that are
 * only late, so those of the transport and of silence are longer here. And pulling a link every
 * second is flapping, for which returns are held back ever longer: here at most so long. */
static void *pe_main(void *arg)
{
    static const char *const hca[] = {"HCA=rxe_a0,rxe_a1", "HCA=rxe_b0,rxe_b1"};
    struct pe *p = arg;
    const char *settings[] = {"NIC=verbs",
                              hca[p->pe % 2],
                              "HEAP_SIZE=8M",
                              "P2P=off",
                              "RETRY_TIME=33ms",
                              "PATH_TIMEOUT=500ms",
                              "RECOVERY_INTERVAL_MAX=400ms",
                              "DEBUG=warn"};
    ry_ctx_attr attr = {.hub = p->job->hub, .hub_pe = p->pe, .settings = settings, .n_settings = 8};
    struct memory m;

    if (ry_ctx_create(&attr, &p->ctx) != RY_OK) {
        fail(p, "start", 0);
        return NULL;
    }
    ry_on_event(p->ctx, on_event, p);
    if (get_memory(p, &m) != 0 || ry_barrier(p->ctx) != RY_OK)
        fail(p, "memory", 0);
    else
        rounds(p, &m);
    ry_on_event(p->ctx, NULL, NULL);
    ry_ctx_destroy(p->ctx);
    return NULL;
}

static uint64_t slowest(const struct job *j)
{
    uint64_t least = UINT64_MAX;

    for (uint32_t i = 0; i < j->pes; i++) {
        uint64_t r = __atomic_load_n(&j->rounds[i], __ATOMIC_ACQUIRE);

        least = r < least ? r : least;
    }
    return least;
}

/* Waits until every PE has finished so many rounds more. Milliseconds, or -1 after the limit. */
static double rounds_go_on(const struct job *j, uint64_t more, uint64_t limit_ms)
{
    uint64_t start = now_ns(), from = slowest(j);

    while (slowest(j) < from + more) {
        if (__atomic_load_n(&j->failed, __ATOMIC_ACQUIRE) ||
            now_ns() - start > limit_ms * 1000000ull)
            return -1;
        usleep(1000);
    }
    return (double)(now_ns() - start) / 1e6;
}

/* Until every PE's two rails both carry: their counts grow together again. */
static double both_carry(const struct job *j, uint64_t limit_ms)
{
    uint64_t start = now_ns(), was[PES_MAX][RAILS];

    while (now_ns() - start < limit_ms * 1000000ull) {
        bool all = true;

        for (uint32_t i = 0; i < j->pes; i++)
            for (uint32_t r = 0; r < RAILS; r++)
                was[i][r] = __atomic_load_n(&j->rails[i][r].tx_bytes, __ATOMIC_ACQUIRE);
        if (rounds_go_on(j, 3, limit_ms) < 0)
            return -1;
        for (uint32_t i = 0; i < j->pes; i++)
            for (uint32_t r = 0; r < RAILS; r++)
                all &= __atomic_load_n(&j->rails[i][r].tx_bytes, __ATOMIC_ACQUIRE) >
                       was[i][r] + 3 * WORDS * 8;
        if (all)
            return (double)(now_ns() - start) / 1e6;
    }
    return -1;
}

static double after_ms(const uint64_t *word, uint64_t start)
{
    uint64_t t = __atomic_load_n(word, __ATOMIC_ACQUIRE);

    return t == 0 ? -1 : t > start ? (double)(t - start) / 1e6 : 0;
}

/* How long after the first port event each switch of this pull saw its failure; what saw it by an
 * error completion may have been first. */
static void note_detects(struct job *j)
{
    uint64_t down = __atomic_load_n(&j->down_ns, __ATOMIC_ACQUIRE);
    uint32_t n = __atomic_load_n(&j->n_detects, __ATOMIC_ACQUIRE);

    for (uint32_t i = 0; down && i < n && i < DETECTS_MAX && j->n_late < DETECTS_MAX; i++) {
        uint64_t t = __atomic_load_n(&j->detects[i], __ATOMIC_ACQUIRE);

        if (t)
            j->late_ms[j->n_late++] = t > down ? (double)(t - down) / 1e6 : 0;
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double quantile(struct job *j, double q)
{
    qsort(j->late_ms, j->n_late, sizeof(*j->late_ms), by_value);
    return j->n_late ? j->late_ms[(uint32_t)(q * (j->n_late - 1) + 0.5)] : -1;
}

/* One pull. 0 when traffic went on and came back to both rails. */
static int pull(struct job *j, uint32_t i)
{
    static const char *const ends[] = {"a0", "b0", "a1", "b1", "a0+b0", "a1+b1"};
    uint64_t dice = mix(j->seed * 1000 + i);
    const char *which = ends[dice % 6];
    char near[3] = {which[0], which[1], 0}, far[3] = {0};
    uint64_t start;
    double on, back;

    if (strlen(which) == 5)
        memcpy(far, which + 3, 2);
    usleep((useconds_t)(20000 + dice / 6 % 200000));
    j->down_ns = j->switch_ns = j->detect_ns = 0;
    __atomic_store_n(&j->n_detects, 0, __ATOMIC_RELEASE);
    start = now_ns();
    set_link(near, 0);
    if (far[0])
        set_link(far, 0);
    on = rounds_go_on(j, 2, 20000);
    usleep(j->hold_ms * 1000);
    note_detects(j);
    set_link(near, 1);
    if (far[0])
        set_link(far, 1);
    back = on < 0 ? -1 : both_carry(j, 20000);
    printf("pull=%u link=%s event_ms=%.1f detect_ms=%.1f switch_ms=%.1f resumed_ms=%.1f "
           "back_ms=%.1f\n",
           i, which, after_ms(&j->down_ns, start), after_ms(&j->detect_ns, start),
           after_ms(&j->switch_ns, start), on, back);
    fflush(stdout);
    return on >= 0 && back >= 0 ? 0 : -1;
}

static int parse(int argc, char **argv, struct job *j)
{
    for (int c; (c = getopt(argc, argv, "n:p:s:d:")) != -1;) {
        switch (c) {
        case 'n':
            j->pulls = (uint32_t)atoi(optarg);
            break;
        case 'p':
            j->pes = (uint32_t)atoi(optarg);
            break;
        case 's':
            j->seed = (uint64_t)atoll(optarg);
            break;
        case 'd':
            j->hold_ms = (uint32_t)atoi(optarg);
            break;
        default:
            return -1;
        }
    }
    return j->pes >= 2 && j->pes <= PES_MAX ? 0 : -1;
}

int main(int argc, char **argv)
{
    static struct job j = {.pulls = 10, .pes = 2, .seed = 1, .hold_ms = 200};
    struct pe pe[PES_MAX] = {{0}};
    uint32_t unhealed = 0;

    if (parse(argc, argv, &j) != 0) {
        fprintf(stderr, "mesh_pull: say [-n PULLS] [-p PES (2 to 4)] [-s SEED] [-d HOLD_MS]\n");
        return 2;
    }
    if (ry_hub_create(j.pes, 2, &j.hub) != RY_OK)
        return 2;
    for (uint32_t i = 0; i < j.pes; i++) {
        pe[i] = (struct pe){.job = &j, .pe = i};
        pthread_create(&pe[i].thread, NULL, pe_main, &pe[i]);
    }
    if (rounds_go_on(&j, 3, 60000) < 0) {
        fprintf(stderr, "mesh_pull: no traffic after 60 s\n");
        return 2;
    }
    for (uint32_t i = 0; i < j.pulls && !j.failed; i++)
        unhealed += pull(&j, i) != 0;
    __atomic_store_n(&j.stop, 1, __ATOMIC_RELEASE);
    for (uint32_t i = 0; i < j.pes; i++)
        pthread_join(pe[i].thread, NULL);
    printf("pulls=%u rounds=%" PRIu64 " corrupted=%" PRIu64 " miscounted=%" PRIu64
           " failed=%" PRIu64 " unhealed=%u switches=%" PRIu64 " returns=%" PRIu64
           " replayed=%" PRIu64 "\n",
           j.pulls, j.last_round, j.corrupted, j.miscounted, j.failed, unhealed, j.switches,
           j.returns, j.replayed);
    printf("detected after the port event, %u switches: p50 %.2f ms, p99 %.2f ms, worst %.2f ms\n",
           j.n_late, quantile(&j, 0.5), quantile(&j, 0.99), quantile(&j, 1));
    ry_hub_destroy(j.hub);
    return j.corrupted || j.miscounted || j.failed || unhealed;
}
