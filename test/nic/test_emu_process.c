/* SPDX-License-Identifier: Apache-2.0 */
/* Two processes: segments and heaps as memfds. A write crosses; a sleeper in the other process
 * wakes; an initiator that is killed in mid-copy does not hold up the fence; a killed peer is
 * out of reach. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/mem.h"
#include "nic/emu/seg.h"
#include "nic/emu_yard.h"

enum { HEAP = 64 << 20 };

/* What each side tells the other through plain shared memory; in the product the bootstrap does. */
struct side {
    uint32_t ready;
    int fd, heap_fd;
    pid_t pid;
    uint64_t seg_len, heap_base;
    struct ry_mr mr;
    struct ry_qp_addr initiator, responder;
};

static struct side *sides;

static uint64_t real_clock(void *arg)
{
    struct timespec ts;

    (void)arg;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

struct end {
    uint32_t me;
    struct ry_nic *nic;
    char *heap;
    struct ry_mr mr;
    struct ry_nic_qp *initiator, *responder;
    struct ry_wqe *ring;
    struct ry_cqe *cqe;
    uint32_t dbr, prod;
    uint64_t uar;
};

static bool wait_ready(uint32_t *word)
{
    struct timespec nap = {.tv_nsec = 1000000};

    for (int i = 0; i < 10000 && __atomic_load_n(word, __ATOMIC_ACQUIRE) == 0; i++)
        nanosleep(&nap, NULL);
    return __atomic_load_n(word, __ATOMIC_ACQUIRE) != 0;
}

/* The other process's descriptor, through /proc: a test's short way for SCM_RIGHTS. */
static void *map_of(const struct side *s, int fd, uint64_t len)
{
    char path[64];
    void *p;
    int mine;

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)s->pid, fd);
    mine = open(path, O_RDWR | O_CLOEXEC);
    if (mine < 0)
        return NULL;
    p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, mine, 0);
    close(mine);
    return p == MAP_FAILED ? NULL : p;
}

/* Opens this process's end and connects it to the other's. 0 or the line that failed. */
static int end_open(struct end *e, uint32_t me)
{
    struct ry_emu_cfg cfg = {.pe = me,
                             .n_pes = 2,
                             .rails = 1,
                             .ports_per_nic = 1,
                             .retry_count = 1,
                             .retry_ns = 20000000,
                             .seed = 5,
                             .now_ns = real_clock};
    struct side *mine = &sides[me], *other = &sides[1 - me];
    struct ry_qp_attr attr = {.kind = RY_QP_RESPONDER, .peer = 1 - me};
    struct ry_nic_peer peer;
    struct ry_nic_export ex;

    memset(e, 0, sizeof(*e));
    e->me = me;
    if (ry_emu_open(&cfg, &e->nic) != 0)
        return __LINE__;
    mine->heap_fd = memfd_create("heap", MFD_CLOEXEC);
    if (mine->heap_fd < 0 || ftruncate(mine->heap_fd, HEAP) != 0)
        return __LINE__;
    e->heap = mmap(NULL, HEAP, PROT_READ | PROT_WRITE, MAP_SHARED, mine->heap_fd, 0);
    e->ring = aligned_alloc(64, 64 * 64);
    e->cqe = aligned_alloc(64, 64);
    if (e->heap == MAP_FAILED || e->ring == NULL || e->cqe == NULL)
        return __LINE__;
    memset(e->cqe, 0xff, 64);
    if (e->nic->ops->mr_reg(e->nic, 0, e->heap, HEAP, true, &e->mr) != 0 ||
        e->nic->ops->export_seg(e->nic, &ex) != 0 ||
        e->nic->ops->qp_create(e->nic, &attr, &e->responder, &mine->responder) != 0)
        return __LINE__;
    attr.kind = RY_QP_INITIATOR;
    attr.ring = e->ring;
    attr.depth = 64;
    attr.cqe = e->cqe;
    attr.dbr = &e->dbr;
    attr.uar = &e->uar;
    if (e->nic->ops->qp_create(e->nic, &attr, &e->initiator, &mine->initiator) != 0)
        return __LINE__;
    mine->fd = ex.fd;
    mine->pid = getpid();
    mine->seg_len = ex.len_bytes;
    mine->heap_base = (uint64_t)(uintptr_t)e->heap;
    mine->mr = e->mr;
    __atomic_store_n(&mine->ready, 1, __ATOMIC_RELEASE);
    if (!wait_ready(&other->ready))
        return __LINE__;
    peer = (struct ry_nic_peer){.pe = 1 - me,
                                .seg = map_of(other, other->fd, other->seg_len),
                                .seg_len_bytes = other->seg_len,
                                .heap = map_of(other, other->heap_fd, HEAP),
                                .heap_len_bytes = HEAP,
                                .heap_base = other->heap_base};
    if (peer.seg == NULL || peer.heap == NULL || e->nic->ops->peer_attach(e->nic, &peer) != 0 ||
        e->nic->ops->qp_connect(e->responder, &other->initiator) != 0 ||
        e->nic->ops->qp_connect(e->initiator, &other->responder) != 0)
        return __LINE__;
    return 0;
}

static void write_to(struct end *e, uint64_t to, uint64_t from, uint32_t bytes)
{
    const struct side *other = &sides[1 - e->me];
    struct ry_wqe *w = &e->ring[e->prod & 63];

    memset(w, 0, sizeof(*w));
    ry_wqe_head(w, RY_OP_WRITE, e->prod, sides[e->me].initiator.qpn, 3);
    w->fm_ce_se = RY_WQE_SIGNALLED;
    w->raddr = ry_be64(other->heap_base + to);
    w->rkey = ry_be32(other->mr.rkey);
    w->u.data.byte_count = ry_be32(bytes);
    w->u.data.lkey = ry_be32(e->mr.lkey);
    w->u.data.addr = ry_be64((uint64_t)(uintptr_t)e->heap + from);
    e->prod++;
    __atomic_store_n(&e->dbr, ry_be32(e->prod & 0xffff), __ATOMIC_RELEASE);
    e->nic->ops->kick(e->initiator, e->prod);
}

static bool wait_word(struct end *e, uint64_t off, uint64_t want)
{
    uint64_t *w = (uint64_t *)(void *)(e->heap + off), end = real_clock(NULL) + 10000000000u;

    while (ry_ld_acq64(w) != want && real_clock(NULL) < end)
        e->nic->ops->idle(e->nic, end);
    return ry_ld_acq64(w) == want;
}

static void end_close(struct end *e)
{
    e->nic->ops->close(e->nic);
    free(e->ring);
    free(e->cqe);
    munmap(e->heap, HEAP);
    close(sides[e->me].heap_fd);
}

/* Child: answers a word, then copies without end until it is killed. */
static void child(void)
{
    struct end e;
    int rc;

    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nobody behind */
    rc = end_open(&e, 1);
    if (rc != 0 || !wait_word(&e, 0, 41))
        _exit(1);
    *(uint64_t *)(void *)(e.heap + 64) = 42;
    write_to(&e, 8, 64, 8);
    for (;;)
        write_to(&e, 4096, 4096, HEAP - 4096);
}

static int setup(void **state)
{
    (void)state;
    sides = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return sides == MAP_FAILED ? -1 : 0;
}

static void test_two_processes(void **state)
{
    struct timespec nap = {.tv_nsec = 1000000};
    struct ry_emu_seg_qp *shared;
    struct ry_nic_export ex;
    struct ry_cqe_tail t;
    struct end e;
    uint64_t end;
    pid_t pid;
    int rc, status;

    (void)state;
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        child();
    rc = end_open(&e, 0);
    assert_int_equal(rc, 0);
    *(uint64_t *)(void *)(e.heap + 64) = 41;
    write_to(&e, 0, 64, 8);
    assert_true(wait_word(&e, 8, 42));

    /* killed in mid-copy: the count stays up, and he who counted is a zombie */
    assert_int_equal(e.nic->ops->export_seg(e.nic, &ex), 0);
    shared = ry_emu_seg_qps(ex.base);
    shared += sides[0].responder.qpn & ((struct ry_emu_seg *)ex.base)->qp_mask;
    end = real_clock(NULL) + 10000000000u;
    do {
        kill(pid, SIGCONT);
        nanosleep(&nap, NULL);
        kill(pid, SIGSTOP);
        nanosleep(&nap, NULL);
    } while (__atomic_load_n(&shared->inflight, __ATOMIC_SEQ_CST) == 0 && real_clock(NULL) < end);
    assert_int_equal(__atomic_load_n(&shared->inflight, __ATOMIC_SEQ_CST), 1);
    assert_int_equal(e.nic->ops->qp_fence_begin(e.responder), 0);
    assert_int_equal(e.nic->ops->qp_fence_poll(e.responder), 0); /* stopped, not gone */
    kill(pid, SIGKILL);
    end = real_clock(NULL) + 5000000000u;
    while ((rc = e.nic->ops->qp_fence_poll(e.responder)) == 0 && real_clock(NULL) < end)
        nanosleep(&nap, NULL);
    assert_int_equal(rc, 1);

    /* its NIC died with it: no answer, although its memory is still mapped here */
    nap.tv_nsec = 10000000;
    nanosleep(&nap, NULL);
    write_to(&e, 0, 64, 8);
    end = real_clock(NULL) + 5000000000u;
    do {
        nanosleep(&nap, NULL);
        t = ry_observe_cqe(e.cqe);
    } while (t.opcode != RY_CQE_REQ_ERR && real_clock(NULL) < end);
    assert_int_equal(t.opcode, RY_CQE_REQ_ERR);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    end_close(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup(test_two_processes, setup)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
