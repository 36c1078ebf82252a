/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs backend on real devices, in the guest that guest.sh draws: the ops table alone, without
 * channels or agent. PE 0 has rxe_a0 and rxe_a1, PE 1 has rxe_b0 and rxe_b1. */
#include <pwd.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "nic/verbs/verbs.h"
#include "railyard/status.h"

enum { HEAP_BYTES = 1 << 20, DEPTH = 256, BIG = 65536, RAILS = 2 };

struct path {
    struct ry_nic_qp *from, *to;
    struct ry_wqe *ring;
    struct ry_cqe cqe;
    uint32_t qpn, next, dbr;
    uint64_t uar;
};

struct pair {
    struct ry_nic *a, *b;
    uint8_t *heap_a, *heap_b;
    struct ry_mr mr_a[RAILS], mr_b[RAILS];
};

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static void sh(const char *command) { assert_int_equal(system(command), 0); }

static struct ry_nic *open_nic(const char *hca)
{
    struct ry_verbs_cfg cfg = {
        .hca = hca, .gid_index = -1, .retry_ns = 16000000, .retry_count = 2, .queue_depth = 64};
    char why[RY_VERBS_REASON_BYTES] = "";
    struct ry_nic *nic = NULL;
    int rc = ry_verbs_open(&cfg, &nic, why, sizeof(why));

    if (rc != RY_OK)
        print_message("%s\n", why);
    assert_int_equal(rc, RY_OK);
    return nic;
}

static int set_up(void **state)
{
    struct pair *p = calloc(1, sizeof(*p));

    p->a = open_nic("rxe_a0:1,rxe_a1");
    p->b = open_nic("rxe_b0,rxe_b1");
    p->heap_a = aligned_alloc(4096, HEAP_BYTES);
    p->heap_b = aligned_alloc(4096, HEAP_BYTES);
    memset(p->heap_a, 0, HEAP_BYTES);
    memset(p->heap_b, 0, HEAP_BYTES);
    for (uint32_t r = 0; r < RAILS; r++) {
        assert_int_equal(p->a->ops->mr_reg(p->a, r, p->heap_a, HEAP_BYTES, true, &p->mr_a[r]), 0);
        assert_int_equal(p->b->ops->mr_reg(p->b, r, p->heap_b, HEAP_BYTES, true, &p->mr_b[r]), 0);
    }
    *state = p;
    return 0;
}

static int tear_down(void **state)
{
    struct pair *p = *state;

    p->a->ops->close(p->a);
    p->b->ops->close(p->b);
    free(p->heap_a);
    free(p->heap_b);
    free(p);
    return 0;
}

/* Waits, driving both NICs, until cond is true; fails after so many milliseconds of a CPU of one's
 * own: this one is emulated and shared. */
#define WAIT(p, ms, cond)                                                                          \
    do {                                                                                           \
        uint64_t wait_end = now_ns() + (ms)*1000000ull;                                            \
        while (!(cond)) {                                                                          \
            if (now_ns() > wait_end)                                                               \
                fail_msg("not within %d ms: %s", (int)(ms), #cond);                                \
            (p)->a->ops->drive((p)->a, now_ns());                                                  \
            (p)->b->ops->drive((p)->b, now_ns());                                                  \
            usleep(100);                                                                           \
        }                                                                                          \
    } while (0)

/* -1 while the other end cannot be reached yet. */
static int connect_path(struct pair *p, struct path *t, uint32_t rail_a, uint32_t rail_b)
{
    struct ry_qp_addr here, there;
    struct ry_qp_attr attr = {.kind = RY_QP_INITIATOR, .rail = rail_a, .peer = 1, .depth = DEPTH};
    int rc;

    memset(t, 0, sizeof(*t));
    t->ring = aligned_alloc(64, DEPTH * sizeof(*t->ring));
    attr.ring = t->ring;
    attr.cqe = &t->cqe;
    attr.dbr = &t->dbr;
    attr.uar = &t->uar;
    assert_int_equal(p->a->ops->qp_create(p->a, &attr, &t->from, &here), 0);
    attr = (struct ry_qp_attr){.kind = RY_QP_RESPONDER, .rail = rail_b};
    assert_int_equal(p->b->ops->qp_create(p->b, &attr, &t->to, &there), 0);
    t->qpn = here.qpn;
    assert_int_equal(ry_observe_cqe(&t->cqe).opcode, RY_CQE_INVALID);
    do {
        rc = p->b->ops->qp_connect(t->to, &here);
        if (rc == 0)
            rc = p->a->ops->qp_connect(t->from, &there);
    } while (rc == RY_ERR_AGAIN); /* the network is being asked where they are */
    return rc;
}

static void drop_path(struct pair *p, struct path *t)
{
    p->a->ops->qp_destroy(t->from);
    p->b->ops->qp_destroy(t->to);
    free(t->ring);
}

/* Writes one WQE; kick says when the NIC may have it. */
static struct ry_wqe *put_wqe(struct path *t, uint8_t opcode, bool signalled, uint64_t raddr,
                              uint32_t rkey)
{
    struct ry_wqe *w = &t->ring[t->next % DEPTH];

    memset(w, 0, sizeof(*w));
    ry_wqe_head(w, opcode, t->next++, t->qpn, 3);
    w->fm_ce_se = signalled ? RY_WQE_SIGNALLED : 0;
    w->raddr = ry_be64(raddr);
    w->rkey = ry_be32(rkey);
    return w;
}

static void put_data(struct ry_wqe *w, const void *addr, uint32_t bytes, uint32_t lkey)
{
    w->u.data.addr = ry_be64((uint64_t)(uintptr_t)addr);
    w->u.data.byte_count = ry_be32(bytes);
    w->u.data.lkey = ry_be32(lkey);
}

static uint64_t far_addr(const struct pair *p, uint64_t offset)
{
    return (uint64_t)(uintptr_t)(p->heap_b + offset);
}

static void kick(struct pair *p, struct path *t) { p->a->ops->kick(t->from, t->next); }

static bool done(const struct path *t)
{
    struct ry_cqe_tail c = ry_observe_cqe(&t->cqe);

    return c.qpn == t->qpn && c.opcode == RY_CQE_REQ && c.counter == (uint16_t)(t->next - 1);
}

static bool broken(const struct path *t)
{
    struct ry_cqe_tail c = ry_observe_cqe(&t->cqe);

    return c.qpn == t->qpn && c.opcode == RY_CQE_REQ_ERR;
}

/* A write of `bytes` from one offset to the same, signalled. */
static void write_at(struct pair *p, struct path *t, uint32_t rail, uint64_t offset, uint32_t bytes)
{
    struct ry_wqe *w = put_wqe(t, RY_OP_WRITE, true, far_addr(p, offset), p->mr_b[rail].rkey);

    put_data(w, p->heap_a + offset, bytes, p->mr_a[rail].lkey);
}

static void rails_are_described(void **state)
{
    struct pair *p = *state;
    static const char *const names[] = {"rxe_a0:1", "rxe_a1:1"};

    assert_int_equal(p->a->ops->rail_count(p->a), 2);
    for (uint32_t r = 0; r < RAILS; r++) {
        struct ry_rail_info info;
        const uint8_t want[RY_GID_BYTES] = {[10] = 0xff, 0xff, 10, 0, (uint8_t)r, 1};

        assert_int_equal(p->a->ops->rail_info(p->a, r, &info), 0);
        assert_string_equal(info.name, names[r]);
        assert_int_equal(info.nic, r);
        assert_int_equal(info.mtu_bytes, 4096);
        assert_int_equal(info.link_layer, 2);
        assert_memory_equal(info.gid, want, sizeof(want));
        assert_int_equal(p->a->ops->rail_state(p->a, r), RY_PORT_UP);
    }
}

static void every_opcode_does_what_it_says(void **state)
{
    struct pair *p = *state;

    for (uint32_t r = 0; r < RAILS; r++) {
        struct path t;
        struct ry_wqe *w;
        uint64_t *near = (uint64_t *)(void *)(p->heap_a + 512);
        uint64_t *far = (uint64_t *)(void *)(p->heap_b + 1024);

        assert_int_equal(connect_path(p, &t, r, r), 0);
        for (int i = 0; i < BIG; i++)
            p->heap_a[4096 + i] = (uint8_t)(i * 7 + (int)r);
        write_at(p, &t, r, 4096, BIG);
        t.ring[0].fm_ce_se = 0;
        w = put_wqe(&t, RY_OP_WRITE, true, far_addr(p, 0), p->mr_b[r].rkey);
        w->u.inl.byte_count = ry_be32(RY_WQE_INLINE | 8);
        memcpy(w->u.inl.bytes, "railyard", 8);
        kick(p, &t);
        WAIT(p, 2000, done(&t));
        assert_memory_equal(p->heap_b + 4096, p->heap_a + 4096, BIG);
        assert_memory_equal(p->heap_b, "railyard", 8);

        far[0] = 40;
        w = put_wqe(&t, RY_OP_ATOMIC_FA, true, far_addr(p, 1024), p->mr_b[r].rkey);
        w->u.atomic.swap_add = ry_be64(2);
        w->u.atomic.byte_count = ry_be32(8);
        w->u.atomic.lkey = ry_be32(p->mr_a[r].lkey);
        w->u.atomic.addr = ry_be64((uint64_t)(uintptr_t)&near[0]);
        w = put_wqe(&t, RY_OP_ATOMIC_CS, true, far_addr(p, 1024), p->mr_b[r].rkey);
        w->u.atomic.swap_add = ry_be64(77);
        w->u.atomic.compare = ry_be64(42);
        w->u.atomic.byte_count = ry_be32(8);
        w->u.atomic.lkey = ry_be32(p->mr_a[r].lkey);
        w->u.atomic.addr = ry_be64((uint64_t)(uintptr_t)&near[1]);
        w = put_wqe(&t, RY_OP_READ, true, far_addr(p, 1024), p->mr_b[r].rkey);
        put_data(w, &near[2], 8, p->mr_a[r].lkey);
        ry_wqe_nop(&t.ring[t.next % DEPTH], t.next, t.qpn, 0, true);
        t.next++;
        kick(p, &t);
        WAIT(p, 2000, done(&t));
        assert_int_equal(near[0], 40);
        assert_int_equal(near[1], 42);
        assert_int_equal(near[2], 77);
        drop_path(p, &t);
    }
}

/* More than the NIC's own queue takes at once, most unsignalled, twenty times round the ring. */
static void a_long_stream_is_whole_and_in_order(void **state)
{
    struct pair *p = *state;
    struct ry_rail_counters c0, c1;
    struct path t;

    assert_int_equal(connect_path(p, &t, 0, 0), 0);
    p->a->ops->counters(p->a, 0, &c0);
    for (uint64_t round = 0; round < 40; round++) {
        for (uint32_t i = 0; i < DEPTH / 2; i++) {
            struct ry_wqe *w = put_wqe(&t, RY_OP_WRITE, i == DEPTH / 2 - 1,
                                       far_addr(p, 2048 + i * 8), p->mr_b[0].rkey);
            uint64_t value = round << 32 | i;

            w->u.inl.byte_count = ry_be32(RY_WQE_INLINE | 8);
            memcpy(w->u.inl.bytes, &value, 8);
            if (i % 5 == 0)
                kick(p, &t);
        }
        kick(p, &t);
        WAIT(p, 5000, done(&t));
        for (uint32_t i = 0; i < DEPTH / 2; i++) {
            uint64_t value;

            memcpy(&value, p->heap_b + 2048 + i * 8, 8);
            assert_int_equal(value, round << 32 | i);
        }
    }
    p->a->ops->counters(p->a, 0, &c1);
    assert_int_equal(c1.tx_bytes - c0.tx_bytes, 40 * DEPTH / 2 * 8);
    drop_path(p, &t);
}

static void a_wrong_key_blames_the_request(void **state)
{
    struct pair *p = *state;
    struct path t;

    assert_int_equal(connect_path(p, &t, 0, 0), 0);
    write_at(p, &t, 0, 0, 64);
    put_data(put_wqe(&t, RY_OP_WRITE, true, far_addr(p, 0), p->mr_b[0].rkey ^ 0x5500), p->heap_a,
             64, p->mr_a[0].lkey);
    write_at(p, &t, 0, 0, 64);
    kick(p, &t);
    WAIT(p, 2000, broken(&t));
    assert_int_equal(t.cqe.syndrome, RY_SYN_REMOTE_ACCESS);
    assert_int_equal(ry_observe_cqe(&t.cqe).counter, 1);
    assert_int_equal(p->a->ops->qp_error(t.from), 0);
    WAIT(p, 1500, p->a->ops->qp_flushed(t.from) == 1);
    assert_int_equal(t.cqe.syndrome, RY_SYN_REMOTE_ACCESS); /* no flush covers it */
    drop_path(p, &t);
}

static void what_plain_verbs_lacks_is_refused(void **state)
{
    struct pair *p = *state;
    struct path t;

    assert_int_equal(connect_path(p, &t, 0, 0), 0);
    put_wqe(&t, RY_OP_ATOMIC_MASKED_FA, true, far_addr(p, 0), p->mr_b[0].rkey);
    kick(p, &t);
    WAIT(p, 1000, broken(&t));
    assert_int_equal(t.cqe.syndrome, RY_SYN_REMOTE_INVALID_REQ);
    drop_path(p, &t);
}

static bool next_event(struct ry_nic *nic, enum ry_nic_event_type type, uint32_t rail)
{
    struct ry_nic_event ev;

    while (nic->ops->poll_event(nic, &ev) == 1)
        if (ev.type == type && ev.rail == rail)
            return true;
    return false;
}

static void forget_events(struct pair *p)
{
    struct ry_nic_event ev;

    while (p->a->ops->poll_event(p->a, &ev) == 1)
        ;
    while (p->b->ops->poll_event(p->b, &ev) == 1)
        ;
}

/* A rebuilt path has new queue pairs; the first try after link up may come too early. */
static void come_back(struct pair *p, struct path *t, uint32_t rail)
{
    uint64_t end = now_ns() + 8000000000ull;
    uint32_t old = t->qpn;

    for (;;) {
        drop_path(p, t);
        if (connect_path(p, t, rail, rail) == 0) {
            assert_int_not_equal(t->qpn, old);
            p->heap_a[100]++;
            write_at(p, t, rail, 100, 1);
            kick(p, t);
            WAIT(p, 4000, done(t) || broken(t));
            if (done(t))
                break;
        }
        assert_true(now_ns() < end);
        usleep(20000);
    }
    assert_int_equal(p->heap_b[100], p->heap_a[100]);
}

/* Link down at one end under a stream; then stop, fence, mend, rebuild. */
static void pull(struct pair *p, uint32_t rail, const char *port, bool near)
{
    struct ry_nic *seer = near ? p->a : p->b;
    char command[64];
    struct path t;

    forget_events(p);
    assert_int_equal(connect_path(p, &t, rail, rail), 0);
    write_at(p, &t, rail, 0, BIG);
    kick(p, &t);
    WAIT(p, 2000, done(&t));
    snprintf(command, sizeof(command), "/sbin/ip link set %s down", port);
    sh(command);
    for (int i = 0; i < 16; i++)
        write_at(p, &t, rail, 0, BIG);
    kick(p, &t);
    WAIT(p, 1000, next_event(seer, RY_EV_PORT_DOWN, rail));
    assert_int_equal(seer->ops->rail_state(seer, rail), RY_PORT_DOWN);
    if (!near) { /* one's own port may die in silence */
        WAIT(p, 2000, broken(&t));
        assert_int_equal(t.cqe.syndrome, RY_SYN_RETRY_EXC);
    }
    assert_int_equal(p->a->ops->qp_error(t.from), 0);
    WAIT(p, 2000, p->a->ops->qp_flushed(t.from) == 1);
    assert_int_equal(p->b->ops->qp_fence_begin(t.to), 0);
    WAIT(p, 2000, p->b->ops->qp_fence_poll(t.to) == 1);
    snprintf(command, sizeof(command), "/sbin/ip link set %s up", port);
    sh(command);
    WAIT(p, 2000, next_event(seer, RY_EV_PORT_UP, rail));
    come_back(p, &t, rail);
    drop_path(p, &t);
}

static void far_link_down_and_up(void **state) { pull(*state, 0, "b0", false); }
static void near_link_down_and_up(void **state) { pull(*state, 1, "a1", true); }

/* Everything that was posted before the fence is in memory, and nothing lands after it. */
static void a_fence_ends_what_the_peer_writes(void **state)
{
    struct pair *p = *state;

    for (int turn = 0; turn < 10; turn++) {
        uint8_t seen[64];
        struct path t;

        assert_int_equal(connect_path(p, &t, 0, 0), 0);
        for (int i = 0; i < 48; i++) {
            p->heap_a[8192 + i] = (uint8_t)(turn * 48 + i + 1);
            write_at(p, &t, 0, 8192 + (uint64_t)i, 1);
        }
        kick(p, &t);
        usleep((useconds_t)turn * 100);
        assert_int_equal(p->b->ops->qp_fence_begin(t.to), 0);
        WAIT(p, 2000, p->b->ops->qp_fence_poll(t.to) == 1);
        memcpy(seen, p->heap_b + 8192, sizeof(seen));
        usleep(30000);
        assert_memory_equal(p->heap_b + 8192, seen, sizeof(seen));
        assert_int_equal(p->a->ops->qp_error(t.from), 0);
        WAIT(p, 2000, p->a->ops->qp_flushed(t.from) == 1);
        drop_path(p, &t);
    }
}

static void a_moved_address_is_told_and_found_again(void **state)
{
    struct pair *p = *state;
    struct path t;
    struct ry_rail_info info;

    forget_events(p);
    assert_int_equal(connect_path(p, &t, 1, 1), 0);
    sh("/sbin/ip addr add 10.0.1.12/24 dev b1; /sbin/ip addr del 10.0.1.2/24 dev b1;"
       "/sbin/ip addr show dev b1 | grep -q 10.0.1.12 || /sbin/ip addr add 10.0.1.12/24 dev b1");
    WAIT(p, 2000, next_event(p->b, RY_EV_GID_CHANGE, 1));
    WAIT(p, 2000, p->b->ops->rail_info(p->b, 1, &info) == 0 && info.gid[15] == 12);
    come_back(p, &t, 1);
    drop_path(p, &t);
    sh("/sbin/ip addr add 10.0.1.2/24 dev b1; /sbin/ip addr del 10.0.1.12/24 dev b1;"
       "/sbin/ip addr show dev b1 | grep -q 10.0.1.2/ || /sbin/ip addr add 10.0.1.2/24 dev b1");
    WAIT(p, 2000, p->b->ops->rail_info(p->b, 1, &info) == 0 && info.gid[15] == 2);
}

/* Rails are subnets of their own: connecting across must end, one way or the other. */
static void a_cross_pair_ends(void **state)
{
    struct pair *p = *state;
    uint64_t start = now_ns();
    struct path t;
    int rc = connect_path(p, &t, 0, 1);

    print_message("a0 to b1: %s after %.0f ms%s%s\n", ry_status_name(rc),
                  (double)(now_ns() - start) / 1e6, rc ? ": " : "",
                  rc ? ry_verbs_reason(*ry_verbs_reason(p->b) ? p->b : p->a) : "");
    assert_true(rc == RY_OK || rc == RY_ERR_PATH);
    if (rc == RY_OK) {
        struct ry_wqe *w = put_wqe(&t, RY_OP_WRITE, true, far_addr(p, 0), p->mr_b[1].rkey);

        put_data(w, p->heap_a, 64, p->mr_a[0].lkey);
        kick(p, &t);
        WAIT(p, 3000, done(&t) || broken(&t));
        print_message("a0 to b1: a write %s\n", done(&t) ? "arrives" : "fails");
    }
    drop_path(p, &t);
}

static void a_cut_rail_takes_no_write(void **state)
{
    struct pair *p = *state;
    struct path t;
    struct ry_mr mr;

    assert_int_equal(connect_path(p, &t, 1, 1), 0);
    assert_int_equal(p->b->ops->rail_cut(p->b, 1), 0);
    p->heap_b[0] = 1;
    p->heap_a[0] = 2;
    write_at(p, &t, 1, 0, 1);
    kick(p, &t);
    WAIT(p, 3000, broken(&t));
    assert_int_equal(t.cqe.syndrome, RY_SYN_REMOTE_ACCESS);
    assert_int_equal(p->heap_b[0], 1);
    drop_path(p, &t);
    assert_int_equal(p->b->ops->mr_reg(p->b, 1, p->heap_b, HEAP_BYTES, true, &mr), 0);
    assert_int_not_equal(mr.rkey, p->mr_b[1].rkey);
    p->mr_b[1] = mr;
    assert_int_equal(connect_path(p, &t, 1, 1), 0);
    write_at(p, &t, 1, 0, 1);
    kick(p, &t);
    WAIT(p, 3000, done(&t));
    assert_int_equal(p->heap_b[0], 2);
    drop_path(p, &t);
}

static int try_open(const char *hca, char *why)
{
    struct ry_verbs_cfg cfg = {.hca = hca, .gid_index = -1};
    struct ry_nic *nic = NULL;
    int rc = ry_verbs_open(&cfg, &nic, why, RY_VERBS_REASON_BYTES);

    if (rc == RY_OK)
        nic->ops->close(nic);
    return rc;
}

/* Ports follow their network interface a little later. */
static void opens_with(const char *hca, int want, const char *text)
{
    uint64_t end = now_ns() + 5000000000ull;
    char why[RY_VERBS_REASON_BYTES] = "";
    int rc;

    while ((rc = try_open(hca, why)) != want && now_ns() < end)
        usleep(10000);
    assert_int_equal(rc, want);
    if (text && !strstr(why, text))
        fail_msg("'%s' does not say '%s'", why, text);
}

static void a_bad_selection_or_port_is_named(void **state)
{
    (void)state;
    opens_with("mlx5_0", RY_ERR_CONFIG, "mlx5_0");
    opens_with("rxe_a0:2", RY_ERR_CONFIG, "rxe_a0:2");
    opens_with("rxe_a0,,", RY_ERR_CONFIG, "cannot read the device selection");
    sh("/sbin/ip link set a0 down; /sbin/ip link set a1 down");
    opens_with("rxe_a0,rxe_a1", RY_ERR_DEVICE, "is down");
    sh("/sbin/ip link set a0 up");
    opens_with("rxe_a0,rxe_a1", RY_OK, NULL); /* one of two cables is enough */
    sh("/sbin/ip link set a1 up; /sbin/ip addr flush dev a0");
    opens_with("rxe_a0", RY_ERR_DEVICE, "no RoCEv2 address");
    sh("/sbin/ip addr add 10.0.0.1/24 dev a0");
    opens_with("rxe_a0", RY_OK, NULL);
}

/* As nobody: first with too little memory to lock, then without access to the devices at all. */
static int poor_child(void)
{
    struct rlimit lim = {65536, 65536};
    char why[RY_VERBS_REASON_BYTES] = "";
    struct ry_verbs_cfg cfg = {.hca = "rxe_a0", .gid_index = -1};
    void *heap = aligned_alloc(4096, HEAP_BYTES);
    struct ry_nic *nic = NULL;
    struct ry_mr mr;

    if (setrlimit(RLIMIT_MEMLOCK, &lim) != 0 || setuid(65534) != 0)
        return 10;
    if (ry_verbs_open(&cfg, &nic, why, sizeof(why)) != RY_OK)
        return 11;
    if (nic->ops->mr_reg(nic, 0, heap, HEAP_BYTES, true, &mr) != RY_ERR_NO_MEMORY) {
        fprintf(stderr, "not refused for its size: '%s'\n", ry_verbs_reason(nic));
        return 12;
    }
    if (!strstr(ry_verbs_reason(nic), "the limit on locked memory is 65536"))
        return 13;
    if (system("true") != 0)
        return 14;
    return 0;
}

static int barred_child(void)
{
    char why[RY_VERBS_REASON_BYTES] = "";

    if (setuid(65534) != 0)
        return 10;
    if (try_open("rxe_a0", why) != RY_ERR_DEVICE)
        return 11;
    if (strstr(why, "no permission to open rxe_a0"))
        return 0;
    fprintf(stderr, "not for want of permission: '%s'\n", why);
    return 12;
}

static void in_child(int (*body)(void))
{
    pid_t pid = fork();
    int status = -1;

    assert_true(pid >= 0);
    if (pid == 0)
        _exit(body());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(WIFEXITED(status) ? WEXITSTATUS(status) : 99, 0);
}

static void too_little_memory_or_permission_is_named(void **state)
{
    (void)state;
    sh("chmod 666 /dev/infiniband/uverbs*");
    in_child(poor_child);
    sh("chmod 600 /dev/infiniband/uverbs*");
    in_child(barred_child);
}

static void a_dmabuf_is_refused_where_there_is_none(void **state)
{
    struct pair *p = *state;
    struct ry_mr mr;

    assert_int_equal(ry_verbs_mr_reg_dmabuf(p->a, 7, 0, 0, 4096, 0, &mr), RY_ERR_INVALID);
    assert_int_equal(ry_verbs_mr_reg_dmabuf(p->a, 0, -1, 0, 4096, 0, &mr), RY_ERR_INVALID);
    assert_int_equal(ry_verbs_mr_reg_dmabuf(p->a, 0, 0, UINT64_MAX, 4096, 0, &mr), RY_ERR_INVALID);
    assert_int_equal(ry_verbs_mr_reg_dmabuf(p->a, 0, 0, 0, 4096, 0, &mr), RY_ERR_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rails_are_described),
        cmocka_unit_test(every_opcode_does_what_it_says),
        cmocka_unit_test(a_long_stream_is_whole_and_in_order),
        cmocka_unit_test(a_wrong_key_blames_the_request),
        cmocka_unit_test(what_plain_verbs_lacks_is_refused),
        cmocka_unit_test(a_fence_ends_what_the_peer_writes),
        cmocka_unit_test(far_link_down_and_up),
        cmocka_unit_test(near_link_down_and_up),
        cmocka_unit_test(a_moved_address_is_told_and_found_again),
        cmocka_unit_test(a_cross_pair_ends),
        cmocka_unit_test(a_dmabuf_is_refused_where_there_is_none),
        cmocka_unit_test(a_cut_rail_takes_no_write),
        cmocka_unit_test(a_bad_selection_or_port_is_named),
        cmocka_unit_test(too_little_memory_or_permission_is_named),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
