/* SPDX-License-Identifier: Apache-2.0 */
/* PEs that are threads: collectives, descriptors, datagrams, a PE that ends, dies or comes back. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>
#include <railyard/status.h>

#include "host/boot.h"
#include "host/boot_hub.h"
#include "host/clock.h"

enum { N = 5, ROUNDS = 200 };

static uint64_t in_ms(uint64_t ms) { return ry_clock_ns() + ms * 1000000u; }

struct worker {
    struct ry_hub *hub;
    uint32_t pe;
    int wrong;
    int rc;
    char text[256];
};

typedef void *body_fn(void *);

/* Runs one thread a PE, but not for PEs from `first_absent` on. */
static void run(struct worker *w, uint32_t n, body_fn *body)
{
    pthread_t threads[N];

    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, body, &w[i]), 0);
    for (uint32_t i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
}

static void prepare(struct worker *w, struct ry_hub *hub)
{
    for (uint32_t i = 0; i < N; i++)
        w[i] = (struct worker){.hub = hub, .pe = i};
}

static void *all_collectives(void *arg)
{
    struct worker *w = arg;
    struct ry_boot *b = NULL;

    if (ry_boot_open(w->hub, w->pe, in_ms(5000), &b) < 0) {
        w->wrong = 1;
        return NULL;
    }
    for (uint32_t r = 0; r < ROUNDS; r++) {
        uint32_t mine[3] = {w->pe, r, w->pe * r}, all[N][3];
        size_t offs[N + 1];
        char text[64];
        void *varied = NULL;

        w->wrong += b->ops->allgather(b, mine, sizeof(mine), all, in_ms(5000)) != RY_OK;
        for (uint32_t i = 0; i < N; i++)
            w->wrong += all[i][0] != i || all[i][1] != r || all[i][2] != i * r;
        memset(text, 'a' + (int)w->pe, sizeof(text));
        w->wrong += b->ops->allgatherv(b, text, w->pe * 3, &varied, offs, in_ms(5000)) != RY_OK;
        for (uint32_t i = 0; i < N; i++) {
            w->wrong += offs[i + 1] - offs[i] != i * 3;
            for (size_t k = offs[i]; k < offs[i + 1]; k++)
                w->wrong += ((char *)varied)[k] != 'a' + (int)i;
        }
        free(varied);
        w->wrong += b->ops->barrier(b, in_ms(5000)) != RY_OK;
    }
    b->ops->close(b);
    return NULL;
}

static void collectives_give_every_pe_the_same_in_pe_order(void **state)
{
    struct worker w[N];
    struct ry_hub *hub = NULL;

    (void)state;
    assert_int_equal(ry_hub_create(N, 2, &hub), RY_OK);
    prepare(w, hub);
    run(w, N, all_collectives);
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(w[i].wrong, 0);
    ry_hub_destroy(hub);
}

static void *shares_memory(void *arg)
{
    struct worker *w = arg;
    struct ry_boot *b = NULL;
    int fds[N * RY_BOOT_FDS_MAX];
    int mine = memfd_create("test", MFD_CLOEXEC);
    char byte = (char)('0' + w->pe);

    w->wrong += mine < 0 || write(mine, &byte, 1) != 1;
    w->wrong += ry_boot_open(w->hub, w->pe, in_ms(5000), &b) != RY_OK;
    w->wrong += b->ops->share_fds(b, &mine, 1, fds, in_ms(5000)) != RY_OK;
    close(mine); /* what the others got must outlive it */
    w->wrong += b->ops->barrier(b, in_ms(5000)) != RY_OK;
    for (uint32_t i = 0; i < N; i++) {
        char got = 0;

        w->wrong += pread(fds[i * RY_BOOT_FDS_MAX], &got, 1, 0) != 1 || got != (char)('0' + i);
        w->wrong += fds[i * RY_BOOT_FDS_MAX + 1] != -1;
        close(fds[i * RY_BOOT_FDS_MAX]);
    }
    b->ops->close(b);
    return NULL;
}

static void descriptors_reach_every_pe_and_are_its_own(void **state)
{
    struct worker w[N];
    struct ry_hub *hub = NULL;

    (void)state;
    assert_int_equal(ry_hub_create(N, 1, &hub), RY_OK);
    prepare(w, hub);
    run(w, N, shares_memory);
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(w[i].wrong, 0);
    ry_hub_destroy(hub);
}

static void *one_barrier(void *arg)
{
    struct worker *w = arg;
    struct ry_boot *b = NULL;

    w->wrong += ry_boot_open(w->hub, w->pe, in_ms(5000), &b) != RY_OK;
    if (w->pe == 3) { /* opens, then ends before the others' barrier */
        b->ops->close(b);
        return NULL;
    }
    w->rc = b->ops->barrier(b, in_ms(5000));
    snprintf(w->text, sizeof(w->text), "%s", ry_last_error());
    b->ops->close(b);
    return NULL;
}

static void a_pe_that_ends_early_is_named_to_those_who_wait(void **state)
{
    struct worker w[N];
    struct ry_hub *hub = NULL;

    (void)state;
    assert_int_equal(ry_hub_create(N, 1, &hub), RY_OK);
    prepare(w, hub);
    run(w, N, one_barrier);
    for (uint32_t i = 0; i < N; i++) {
        assert_int_equal(w[i].wrong, 0);
        if (i == 3)
            continue;
        assert_int_equal(w[i].rc, RY_ERR_LAUNCH);
        assert_non_null(strstr(w[i].text, "pe "));
        assert_non_null(strstr(w[i].text, "ended while starting"));
    }
    ry_hub_destroy(hub);
}

static void an_absent_pe_means_a_timeout_that_names_it(void **state)
{
    struct ry_hub *hub = NULL;
    struct ry_boot *b = NULL;
    uint64_t before = ry_clock_ns();

    (void)state;
    assert_int_equal(ry_hub_create(2, 1, &hub), RY_OK);
    assert_int_equal(ry_boot_open(hub, 0, in_ms(1000), &b), RY_OK);
    assert_int_equal(b->ops->barrier(b, in_ms(30)), RY_ERR_TIMEOUT);
    assert_non_null(strstr(ry_last_error(), "pe 1"));
    assert_true(ry_clock_ns() - before >= 29000000u);
    b->ops->close(b);
    ry_hub_destroy(hub);
}

static void *different_lengths(void *arg)
{
    struct worker *w = arg;
    struct ry_boot *b = NULL;
    uint8_t mine[8] = {0}, all[N * 8];

    w->wrong += ry_boot_open(w->hub, w->pe, in_ms(5000), &b) != RY_OK;
    w->rc = b->ops->allgather(b, mine, w->pe == 2 ? 8 : 4, all, in_ms(5000));
    w->wrong += b->ops->barrier(b, in_ms(5000)) != RY_OK; /* the round after a bad one is good */
    b->ops->close(b);
    return NULL;
}

static void contradicting_calls_are_refused_by_all(void **state)
{
    struct worker w[N];
    struct ry_hub *hub = NULL;

    (void)state;
    assert_int_equal(ry_hub_create(N, 1, &hub), RY_OK);
    prepare(w, hub);
    run(w, N, different_lengths);
    for (uint32_t i = 0; i < N; i++) {
        assert_int_equal(w[i].wrong, 0);
        assert_int_equal(w[i].rc, RY_ERR_PROTOCOL);
    }
    ry_hub_destroy(hub);
}

static void an_oversized_part_is_refused_in_one_line(void **state)
{
    struct ry_hub *hub = NULL;
    struct ry_boot *b = NULL;
    uint8_t byte = 0;

    (void)state;
    assert_int_equal(ry_hub_create(1, 1, &hub), RY_OK);
    assert_int_equal(ry_boot_open(hub, 0, in_ms(1000), &b), RY_OK);
    size_t too_much = (size_t)RY_BOOT_BYTES_MAX + 1;

    assert_int_equal(b->ops->allgather(b, &byte, too_much, &byte, in_ms(1000)), RY_ERR_PROTOCOL);
    assert_non_null(strstr(ry_last_error(), "67108865"));
    b->ops->close(b);
    ry_hub_destroy(hub);
}

static void a_full_queue_drops_and_never_blocks(void **state)
{
    struct ry_hub *hub = NULL;
    struct ry_boot *a = NULL, *b = NULL;
    uint32_t from = 9;
    uint8_t msg[RY_CTL_BYTES_MAX];
    size_t len = 0;
    int got = 0;

    (void)state;
    assert_int_equal(ry_hub_create(2, 1, &hub), RY_OK);
    assert_int_equal(ry_boot_open(hub, 0, in_ms(1000), &a), RY_OK);
    assert_int_equal(ry_boot_open(hub, 1, in_ms(1000), &b), RY_OK);
    for (uint32_t i = 0; i < RY_HUB_QUEUE + 10; i++)
        assert_int_equal(a->ops->ctl_send(a, 1, &i, sizeof(i)), RY_OK);
    struct pollfd p = {.fd = b->ops->wait_fd(b), .events = POLLIN};

    assert_int_equal(poll(&p, 1, 0), 1);
    while (b->ops->ctl_recv(b, &from, msg, &len) == 1) {
        assert_int_equal(from, 0);
        assert_int_equal(len, sizeof(uint32_t));
        assert_memory_equal(msg, &(uint32_t){(uint32_t)got}, sizeof(uint32_t));
        got++;
    }
    assert_int_equal(got, RY_HUB_QUEUE);
    assert_int_equal(poll(&p, 1, 0), 0);
    assert_int_equal(a->ops->ctl_send(a, 1, msg, RY_CTL_BYTES_MAX + 1), RY_ERR_INVALID);
    assert_int_equal(a->ops->ctl_send(a, 2, msg, 1), RY_ERR_INVALID);
    a->ops->close(a);
    b->ops->close(b);
    ry_hub_destroy(hub);
}

static void a_killed_pe_is_told_and_its_replacement_too(void **state)
{
    struct ry_hub *hub = NULL;
    struct ry_boot *a = NULL, *b = NULL, *again = NULL;
    struct ry_boot_event ev;

    (void)state;
    assert_int_equal(ry_hub_create(2, 1, &hub), RY_OK);
    assert_int_equal(ry_boot_open(hub, 0, in_ms(1000), &a), RY_OK);
    assert_int_equal(ry_boot_open(hub, 1, in_ms(1000), &b), RY_OK);
    assert_int_equal(a->ops->poll_event(a, &ev), 0);
    ry_hub_kill(hub, 1);
    assert_int_equal(a->ops->poll_event(a, &ev), 1);
    assert_int_equal(ev.type, RY_BOOT_PE_LOST);
    assert_int_equal(ev.pe, 1);
    assert_int_equal(a->ops->barrier(a, in_ms(1000)), RY_ERR_LAUNCH);
    assert_int_equal(ry_hub_revive(hub, 1), RY_ERR_BUSY);
    b->ops->close(b);
    assert_int_equal(ry_hub_revive(hub, 1), RY_OK);
    assert_int_equal(ry_boot_open(hub, 1, in_ms(1000), &again), RY_OK);
    assert_int_equal(again->incarnation, 1);
    assert_int_equal(a->ops->poll_event(a, &ev), 1);
    assert_int_equal(ev.type, RY_BOOT_PE_JOINED);
    assert_int_equal(ev.incarnation, 1);
    assert_int_equal(a->ops->poll_event(a, &ev), 0);
    again->ops->close(again);
    a->ops->close(a);
    ry_hub_destroy(hub);
}

static void nodes_split_evenly_and_a_lone_pe_needs_no_hub(void **state)
{
    struct ry_hub *hub = NULL;
    struct ry_boot *b = NULL;
    static const uint32_t node[7] = {0, 0, 0, 1, 1, 2, 2}, local[7] = {0, 1, 2, 0, 1, 0, 1};

    (void)state;
    assert_int_equal(ry_hub_create(2, 3, &hub), RY_ERR_INVALID);
    assert_int_equal(ry_hub_create(7, 3, &hub), RY_OK);
    for (uint32_t i = 0; i < 7; i++) {
        assert_int_equal(ry_boot_open(hub, i, in_ms(1000), &b), RY_OK);
        assert_int_equal(b->node, node[i]);
        assert_int_equal(b->local_pe, local[i]);
        assert_int_equal(b->n_local, node[i] == 0 ? 3 : 2);
        b->ops->close(b);
    }
    ry_hub_destroy(hub);
    assert_int_equal(ry_hub_solo(&b), RY_OK);
    assert_int_equal(b->n_pes, 1);
    assert_int_equal(b->ops->barrier(b, in_ms(1000)), RY_OK);
    b->ops->close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_give_every_pe_the_same_in_pe_order),
        cmocka_unit_test(descriptors_reach_every_pe_and_are_its_own),
        cmocka_unit_test(a_pe_that_ends_early_is_named_to_those_who_wait),
        cmocka_unit_test(an_absent_pe_means_a_timeout_that_names_it),
        cmocka_unit_test(contradicting_calls_are_refused_by_all),
        cmocka_unit_test(an_oversized_part_is_refused_in_one_line),
        cmocka_unit_test(a_full_queue_drops_and_never_blocks),
        cmocka_unit_test(a_killed_pe_is_told_and_its_replacement_too),
        cmocka_unit_test(nodes_split_evenly_and_a_lone_pe_needs_no_hub),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
