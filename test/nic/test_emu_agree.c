/* SPDX-License-Identifier: Apache-2.0 */
/* The emulated NIC says to a fault what soft-RoCE says: every fault of test/qemu/faults.expect that
 * it can make, with the status numbers of ibv_wc_status. Prints both. */
#include <stdio.h>

#include "nic/emu_yard.h"

enum { TRY_NS = 4000000, BYTES = 65536, SILENT = 0 };

enum how { WITH_FAULT, WITH_BAD_KEY, WITH_FETCH_ADD };

struct fault_case {
    const char *name;
    uint32_t retry; /* as the guest's try has it */
    enum how how;
    uint32_t pe; /* 0 near, 1 far */
    struct ry_nic_fault fault;
};

#define FAULT(k, ...)                                                                              \
    {                                                                                              \
        .kind = (k), .rail = 0, .peer = -1, __VA_ARGS__                                            \
    }
static const struct fault_case cases[] = {
    {"far-down-8-1", 1, WITH_FAULT, 1, FAULT(RY_FAULT_PORT_DOWN, .seed = 1)},
    {"far-down", 3, WITH_FAULT, 1, FAULT(RY_FAULT_PORT_DOWN, .seed = 1)},
    {"far-down-14-6", 6, WITH_FAULT, 1, FAULT(RY_FAULT_PORT_DOWN, .seed = 1)},
    {"far-down-10-7", 7, WITH_FAULT, 1, FAULT(RY_FAULT_PORT_DOWN, .seed = 1)},
    {"near-down", 3, WITH_FAULT, 0, FAULT(RY_FAULT_PORT_DOWN, .seed = 1)},
    {"near-carrier", 3, WITH_FAULT, 0, FAULT(RY_FAULT_PORT_DOWN, .seed = 1)},
    {"far-carrier", 3, WITH_FAULT, 1, FAULT(RY_FAULT_PORT_DOWN, .seed = 1)},
    {"bridge-down", 3, WITH_FAULT, 0, FAULT(RY_FAULT_DROP, .p = 1)},
    {"requests-lost", 3, WITH_FAULT, 0, FAULT(RY_FAULT_DROP, .p = 1)},
    {"acks-lost", 3, WITH_FAULT, 0, FAULT(RY_FAULT_ACK_DROP, .p = 1)},
    {"far-blocked", 3, WITH_FAULT, 0, FAULT(RY_FAULT_DROP, .p = 1)},
    {"near-carrier-flap", 6, WITH_FAULT, 0, FAULT(RY_FAULT_PORT_DOWN, .for_ns = 3 * TRY_NS)},
    {"acks-lost-atomic", 3, WITH_FETCH_ADD, 0, FAULT(RY_FAULT_ACK_DROP, .p = 1)},
    {"far-flap", 6, WITH_FAULT, 1, FAULT(RY_FAULT_PORT_DOWN, .for_ns = 3 * TRY_NS)},
    {"loss-1", 6, WITH_FAULT, 0, FAULT(RY_FAULT_DROP, .p = 0.01)},
    {"delay-10", 6, WITH_FAULT, 0, FAULT(RY_FAULT_DELAY, .delay_ns = 1000000, .jitter_ns = 500000)},
    {"far-qp-error", 3, WITH_FAULT, 1, FAULT(RY_FAULT_QP_ERROR, .seed = 1)},
    {"bad-key", 3, WITH_BAD_KEY, 0, FAULT(RY_FAULT_CLEAR, .seed = 1)},
    {"far-address-gone", 3, WITH_FAULT, 1, FAULT(RY_FAULT_GID_CHANGE, .seed = 1)},
};

/* ibv_wc_status of a syndrome; 99: none has this syndrome */
static int status_of(uint8_t syndrome)
{
    static const uint8_t map[][2] = {
        {RY_SYN_LOCAL_LENGTH, 1},    {RY_SYN_LOCAL_QP_OP, 2},
        {RY_SYN_LOCAL_PROT, 4},      {RY_SYN_FLUSH, 5},
        {RY_SYN_MW_BIND, 6},         {RY_SYN_BAD_RESP, 7},
        {RY_SYN_LOCAL_ACCESS, 8},    {RY_SYN_REMOTE_INVALID_REQ, 9},
        {RY_SYN_REMOTE_ACCESS, 10},  {RY_SYN_REMOTE_OP, 11},
        {RY_SYN_RETRY_EXC, 12},      {RY_SYN_RNR_RETRY_EXC, 13},
        {RY_SYN_REMOTE_ABORTED, 16},
    };

    for (size_t i = 0; i < sizeof(map) / sizeof(map[0]); i++)
        if (map[i][0] == syndrome)
            return map[i][1];
    return 99;
}

struct seen {
    int status;
    const char *event[2];
    uint64_t sum;
    int landed;
};

static const char *port_event(struct ry_nic *nic)
{
    struct ry_nic_event ev;
    const char *seen = "none";

    while (nic->ops->poll_event(nic, &ev) == 1)
        if (ev.type == RY_EV_PORT_DOWN)
            seen = "down";
    return seen;
}

/* One request where an error is to come: the flush of a second would overwrite it in the collapsed
 * completion queue. Many where they are all to arrive. */
static void post(struct yard_path *p, const struct fault_case *c)
{
    uint32_t writes = c->fault.kind == RY_FAULT_DROP && c->fault.p < 1 ? 48 : 1;

    p->y->pe[0].heap[BYTES - 1] = 0x5a;
    if (c->how == WITH_FETCH_ADD)
        yard_wqe(p, RY_OP_ATOMIC_FA, 0, 0, 8, true)->u.atomic.swap_add = ry_be64(1);
    for (uint32_t i = 0; i < writes && c->how != WITH_FETCH_ADD; i++) {
        struct ry_wqe *w = yard_wqe(p, RY_OP_WRITE, i * BYTES, i * BYTES, BYTES, true);

        if (c->how == WITH_BAD_KEY)
            w->rkey = ry_be32(ry_be32(w->rkey) ^ 0x5500);
    }
    yard_ring(p);
}

static struct seen try_case(const struct fault_case *c)
{
    static struct yard y;
    struct yard_path p;
    struct ry_emu_cfg cfg = yard_cfg(&y, 2, 2);
    struct seen s = {.status = SILENT};
    struct ry_cqe_tail t;

    cfg.retry_count = c->retry;
    cfg.retry_ns = TRY_NS;
    memset(&y, 0, sizeof(y));
    yard_open(&y, &cfg);
    yard_path_open(&y, &p, 0, 1, 0, 0);
    if (c->how != WITH_BAD_KEY)
        yard_fault(&y, c->pe, c->fault);
    post(&p, c);
    yard_run(&y, 40 * TRY_NS);
    t = yard_cqe(&p);
    if (t.opcode == RY_CQE_REQ_ERR)
        s.status = status_of(yard_syndrome(&p));
    s.event[0] = port_event(y.pe[0].nic);
    s.event[1] = port_event(y.pe[1].nic);
    memcpy(&s.sum, y.pe[1].heap, sizeof(s.sum));
    s.landed = y.pe[1].heap[BYTES - 1] == 0x5a;
    yard_path_close(&p);
    yard_close(&y);
    return s;
}

static bool allowed(const char *list, const char *value)
{
    size_t len = strlen(value);

    if (strcmp(list, "-") == 0)
        return true;
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, value, len) == 0 && (at[len] == ',' || at[len] == '\0'))
            return true;
    }
    return false;
}

/* The expectation's first three columns; fails if the file has no such fault. */
static void expectation(const char *name, char want[3][32])
{
    const char *tree = getenv("RY_TEST_SOURCE");
    char path[4096], line[256], found[32];
    FILE *f;

    snprintf(path, sizeof(path), "%s/test/qemu/faults.expect", tree ? tree : ".");
    f = fopen(path, "r");
    if (!f)
        fail_msg("cannot read %s", path);
    while (f && fgets(line, sizeof(line), f)) {
        if (sscanf(line, "%31s %31s %31s %31s", found, want[0], want[1], want[2]) == 4 &&
            strcmp(found, name) == 0) {
            fclose(f);
            return;
        }
    }
    fail_msg("%s has no fault %s", path, name);
}

static void every_fault_is_answered_as_on_soft_roce(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct seen s = try_case(&cases[i]);
        char want[3][32] = {"", "", ""}, status[8];

        expectation(cases[i].name, want);
        snprintf(status, sizeof(status), "%d", s.status);
        print_message("%-18s rxe %-8s emu %-3s events rxe %s/%s emu %s/%s\n", cases[i].name,
                      want[0], status, want[1], want[2], s.event[0], s.event[1]);
        assert_true(allowed(want[0], status));
        assert_true(allowed(want[1], s.event[0]));
        assert_true(allowed(want[2], s.event[1]));
        if (cases[i].how == WITH_FETCH_ADD)
            assert_int_equal(s.sum, 1);
        if (strcmp(cases[i].name, "acks-lost") == 0)
            assert_true(s.landed);
        if (strcmp(cases[i].name, "requests-lost") == 0)
            assert_false(s.landed);
    }
}

/* Its links keep what is on them in order, as the cables that they stand for do. */
static const char *const cannot[] = {"reorder-10"};

static bool compared(const char *name)
{
    bool found = false;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        found |= strcmp(cases[i].name, name) == 0;
    for (size_t i = 0; i < sizeof(cannot) / sizeof(cannot[0]); i++)
        found |= strcmp(cannot[i], name) == 0;
    return found;
}

static void no_fault_is_left_out(void **state)
{
    const char *tree = getenv("RY_TEST_SOURCE");
    char path[4096], line[256], name[32];
    uint32_t n = 0;
    FILE *f;

    (void)state;
    snprintf(path, sizeof(path), "%s/test/qemu/faults.expect", tree ? tree : ".");
    f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof(line), f)) {
        if (line[0] == '#' || sscanf(line, "%31s", name) != 1)
            continue;
        if (!compared(name))
            fail_msg("%s was tried on soft-RoCE and not on the emulated NIC", name);
        n++;
    }
    fclose(f);
    assert_true(n >= sizeof(cases) / sizeof(cases[0]));
}

static void a_wrong_answer_would_be_seen(void **state)
{
    (void)state;
    assert_true(allowed("12,9", "9"));
    assert_false(allowed("12,9", "2"));
    assert_false(allowed("12", "1"));
    assert_false(allowed("none", "down"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_fault_is_answered_as_on_soft_roce),
        cmocka_unit_test(no_fault_is_left_out),
        cmocka_unit_test(a_wrong_answer_would_be_seen),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
