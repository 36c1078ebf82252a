/* SPDX-License-Identifier: Apache-2.0 */
/* The meeting point and PEs that talk to it over sockets, here all in one process: what is taken,
 * what is refused, and in which words. ThreadSanitizer sees both ends. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>
#include <railyard/status.h>

#include "host/boot_host.h"
#include "host/boot_net.h"
#include "host/boot_net_inside.h"
#include "host/clock.h"
#include "host/wire.h"

enum { N = 4, ROUNDS = 60 };

static uint64_t in_ms(uint64_t ms) { return ry_clock_ns() + ms * 1000000u; }

struct yard {
    struct ry_host *host;
    struct ry_secret secret;
    uint64_t job;
    struct sockaddr_un name;
    socklen_t name_len;
};

static void open_yard(struct yard *y, uint32_t n_pes, uint64_t start_ms)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    *y = (struct yard){.name = {.sun_family = AF_UNIX}};
    assert_int_equal(ry_random(&y->job, sizeof(y->job)), 0);
    assert_int_equal(ry_random(&y->secret, sizeof(y->secret)), 0);
    int n = snprintf(y->name.sun_path + 1, 80, "railyard-test/%016" PRIx64, y->job);

    y->name_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    assert_int_equal(bind(fd, (struct sockaddr *)&y->name, y->name_len), 0);
    assert_int_equal(listen(fd, 64), 0);
    const struct ry_host_cfg cfg = {.n_pes = n_pes,
                                    .n_nodes = 1,
                                    .job = y->job,
                                    .secret = y->secret,
                                    .start_deadline_ns = in_ms(start_ms)};

    assert_int_equal(ry_host_open(&cfg, &fd, 1, &y->host), 0);
}

static int stream(const struct yard *y)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(connect(fd, (const struct sockaddr *)&y->name, y->name_len), 0);
    return fd;
}

struct worker {
    struct yard *y;
    uint32_t pe, n_pes;
    int wrong, rc;
    char text[512];
};

static int join(struct worker *w, struct ry_boot **b)
{
    const struct ry_net_cfg cfg = {
        .pe = w->pe, .n_pes = w->n_pes, .secret = w->y->secret, .job = w->y->job};

    return ry_net_open(&cfg, stream(w->y), in_ms(8000), b);
}

static void run(struct yard *y, struct worker *w, uint32_t n, void *(*body)(void *))
{
    pthread_t threads[N];

    for (uint32_t i = 0; i < n; i++) {
        w[i] = (struct worker){.y = y, .pe = i, .n_pes = n};
        assert_int_equal(pthread_create(&threads[i], NULL, body, &w[i]), 0);
    }
    for (uint32_t i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
}

struct agent {
    struct ry_boot *b;
    atomic_bool stop;
    int heard, wrong;
};

/* Beside the collectives: sends to everyone, receives, looks for events. */
static void *agent_body(void *arg)
{
    struct agent *a = arg;

    for (uint32_t i = 0; !atomic_load(&a->stop); i++) {
        uint32_t from = 0, number = a->b->pe;
        unsigned char msg[RY_CTL_BYTES_MAX];
        size_t len = 0;
        struct ry_boot_event ev;
        struct pollfd p = {.fd = a->b->ops->wait_fd(a->b), .events = POLLIN};

        a->b->ops->ctl_send(a->b, i % N, &number, sizeof(number));
        poll(&p, 1, 1);
        while (a->b->ops->ctl_recv(a->b, &from, msg, &len) == 1) {
            a->heard++;
            a->wrong += len != sizeof(from) || memcmp(msg, &from, len) != 0;
        }
        a->wrong += a->b->ops->poll_event(a->b, &ev) != 0;
    }
    return NULL;
}

static void *talks(void *arg)
{
    struct worker *w = arg;
    struct agent a = {0};
    pthread_t thread;

    if (join(w, &a.b) < 0) {
        w->wrong = 1;
        return NULL;
    }
    pthread_create(&thread, NULL, agent_body, &a);
    for (uint32_t r = 0; r < ROUNDS; r++) {
        uint64_t mine = w->pe * 1000 + r, all[N];

        w->wrong += a.b->ops->allgather(a.b, &mine, sizeof(mine), all, in_ms(8000)) != 0;
        for (uint32_t i = 0; i < N; i++)
            w->wrong += all[i] != i * 1000 + r;
        w->wrong += a.b->ops->barrier(a.b, in_ms(8000)) != 0;
    }
    atomic_store(&a.stop, true);
    pthread_join(thread, NULL);
    w->wrong += a.wrong || a.heard == 0;
    w->wrong += a.b->ops->barrier(a.b, in_ms(8000)) != 0;
    a.b->ops->close(a.b);
    return NULL;
}

static void collectives_and_agents_do_not_disturb_each_other(void **state)
{
    struct worker w[N];
    struct yard y;

    (void)state;
    open_yard(&y, N, 8000);
    run(&y, w, N, talks);
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(w[i].wrong, 0);
    ry_host_close(y.host);
}

static void *contradicts(void *arg)
{
    struct worker *w = arg;
    struct ry_boot *b = NULL;
    uint8_t mine[16] = {0}, all[N * 16];

    w->wrong += join(w, &b) != 0;
    w->rc = b->ops->allgather(b, mine, w->pe == 2 ? 16 : 8, all, in_ms(8000));
    snprintf(w->text, sizeof(w->text), "%s", ry_last_error());
    w->wrong += b->ops->barrier(b, in_ms(8000)) != 0;
    b->ops->close(b);
    return NULL;
}

static void contradicting_calls_are_refused_by_all(void **state)
{
    struct worker w[N];
    struct yard y;

    (void)state;
    open_yard(&y, N, 8000);
    run(&y, w, N, contradicts);
    for (uint32_t i = 0; i < N; i++) {
        assert_int_equal(w[i].wrong, 0);
        assert_int_equal(w[i].rc, RY_ERR_PROTOCOL);
        assert_non_null(strstr(w[i].text,
                               "pe 0 called allgather with 8 bytes but pe 2 called allgather "
                               "with 16"));
    }
    ry_host_close(y.host);
}

/* One bare connection that greets as it likes. Returns the status it is refused with, 0: accepted.
 */
static int greet(struct yard *y, struct ry_wire_hello *h, const struct ry_secret *s, char *why)
{
    struct ry_wire_in in = {.limit = 4096};
    uint8_t body[RY_WIRE_HELLO_BYTES], header[RY_WIRE_HEADER];
    int fd = stream(y), rc = 1;
    struct pollfd p = {.fd = fd, .events = POLLIN};

    while (ry_wire_read(&in, fd) == 0)
        poll(&p, 1, 1000);
    assert_int_equal(in.frame.type, RY_WIRE_CHALLENGE);
    if (!h->version[0])
        snprintf(h->version, sizeof(h->version), "%s", ry_version());
    ry_wire_put_hello(body, h, s, in.frame.body);
    ry_wire_header(header, RY_WIRE_HELLO, 0, sizeof(body));
    assert_int_equal(write(fd, header, sizeof(header)), sizeof(header));
    assert_int_equal(write(fd, body, sizeof(body)), sizeof(body));
    while ((rc = ry_wire_read(&in, fd)) == 0)
        poll(&p, 1, 1000);
    assert_int_equal(rc, 1);
    rc = in.frame.type == RY_WIRE_ACCEPT ? 0 : (int)in.frame.arg;
    ry_wire_text(in.frame.body, in.frame.len, why, 512);
    ry_wire_in_free(&in);
    close(fd);
    return rc;
}

static void greetings_that_do_not_fit_are_refused_with_their_reason(void **state)
{
    struct ry_secret other = {{1, 2, 3}};
    struct yard y;
    char why[512];
    struct {
        struct ry_wire_hello h;
        const struct ry_secret *secret;
        int rc;
        const char *words;
    } cases[] = {
        {{.role = 1, .pe = 0, .n_pes = 2}, &other, RY_ERR_AUTH, "wrong job secret"},
        {{.role = 1, .pe = 2, .n_pes = 2}, NULL, RY_ERR_CONFIG, "pe 2 of 2 does not fit"},
        {{.role = 1, .pe = 0, .n_pes = 3}, NULL, RY_ERR_CONFIG, "pe 0 of 3 does not fit"},
        {{.role = 1, .pe = 0, .n_pes = 2, .incarnation = 4}, NULL, RY_ERR_PEER_LOST, "given up"},
        {{.role = 9, .pe = 0, .n_pes = 2}, NULL, RY_ERR_PROTOCOL, "something unknown"},
        {{.role = 1, .pe = 1, .n_pes = 2, .version = "9.8.7"},
         NULL,
         RY_ERR_CONFIG,
         "pe 1 runs railyard 9.8.7 but the job runs"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        open_yard(&y, 2, 8000);
        int rc = greet(&y, &cases[i].h, cases[i].secret ? cases[i].secret : &y.secret, why);

        if (rc != cases[i].rc || !strstr(why, cases[i].words))
            fail_msg("case %zu: %d, '%s'", i, rc, why);
        ry_host_close(y.host);
    }
}

static void a_right_greeting_is_accepted_and_a_second_is_not(void **state)
{
    struct ry_wire_hello h = {.role = RY_ROLE_PE, .pe = 1, .n_pes = 2};
    struct yard y;
    char why[512];

    (void)state;
    open_yard(&y, 2, 8000);
    assert_int_equal(greet(&y, &h, &y.secret, why), 0);
    /* its connection has closed, which ended the start: nobody may join any more */
    int rc = greet(&y, &h, &y.secret, why);

    assert_true(rc == RY_ERR_PEER_LOST || rc == RY_ERR_EXISTS || rc == RY_ERR_LAUNCH);
    ry_host_close(y.host);
}

static void noise_and_silence_do_not_keep_others_out(void **state)
{
    static const char noise[] = "GET / HTTP/1.1\r\nHost: here\r\n\r\n and more than a header";
    struct worker w = {.pe = 0, .n_pes = 1};
    struct ry_boot *b = NULL;
    struct yard y;
    int fds[40];

    (void)state;
    open_yard(&y, 1, 8000);
    w.y = &y;
    for (int i = 0; i < 40; i++) {
        fds[i] = stream(&y);
        if (i % 2)
            assert_int_equal(send(fds[i], noise, sizeof(noise), MSG_NOSIGNAL), sizeof(noise));
    }
    assert_int_equal(join(&w, &b), 0);
    assert_int_equal(b->ops->barrier(b, in_ms(8000)), 0);
    b->ops->close(b);
    for (int i = 0; i < 40; i++)
        close(fds[i]);
    ry_host_close(y.host);
}

static void a_pe_that_never_comes_is_named(void **state)
{
    struct worker w = {.pe = 0, .n_pes = 2};
    struct ry_boot *b = NULL;
    struct yard y;

    (void)state;
    open_yard(&y, 2, 300);
    w.y = &y;
    assert_int_equal(join(&w, &b), RY_ERR_TIMEOUT);
    assert_non_null(strstr(ry_last_error(), "pe 1 did not join in time"));
    ry_host_close(y.host);
}

static void *oversized(void *arg)
{
    struct worker *w = arg;
    struct ry_boot *b = NULL;
    uint8_t byte = 0;

    w->wrong += join(w, &b) != 0;
    if (w->pe == 1) {
        struct net_boot *n = (struct net_boot *)b;
        uint8_t header[RY_WIRE_HEADER];

        w->rc = b->ops->allgather(b, &byte, (size_t)RY_BOOT_BYTES_MAX + 1, &byte, in_ms(8000));
        w->wrong += w->rc != RY_ERR_PROTOCOL; /* refused before it is sent; so send it by hand */
        ry_wire_header(header, RY_WIRE_PART, 1, RY_BOOT_BYTES_MAX + 5);
        w->wrong += write(n->fd, header, sizeof(header)) != sizeof(header);
    }
    w->rc = b->ops->barrier(b, in_ms(8000));
    snprintf(w->text, sizeof(w->text), "%s", ry_last_error());
    b->ops->close(b);
    return NULL;
}

static void an_oversized_part_ends_the_start_with_one_line(void **state)
{
    struct worker w[2];
    struct yard y;

    (void)state;
    open_yard(&y, 2, 8000);
    run(&y, w, 2, oversized);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(w[i].wrong, 0);
        assert_int_equal(w[i].rc, RY_ERR_PROTOCOL);
        assert_non_null(strstr(w[i].text,
                               "pe 1 was cut off: a message of 67108869 bytes came, at most "
                               "67108868 are taken"));
    }
    ry_host_close(y.host);
}

static void datagrams_of_strangers_and_predecessors_are_dropped(void **state)
{
    struct ry_ctl a = {0}, b = {0};
    struct ry_wire_entry e = {0};
    struct ry_secret right = {{1}}, wrong = {{2}};
    uint64_t job = 0;
    uint32_t from = 9;
    uint16_t port = 0;
    uint8_t msg[RY_CTL_BYTES_MAX];
    size_t len = 0;

    (void)state;
    assert_int_equal(ry_random(&job, sizeof(job)), 0);
    assert_int_equal(ry_ctl_open(&a, 0, 2, 0, &port), 0);
    assert_int_equal(ry_ctl_open(&b, 1, 2, 3, &port), 0);
    assert_int_equal(ry_ctl_bind(&a, job, &right), 0);
    assert_int_equal(ry_ctl_bind(&b, job, &right), 0);
    memcpy(e.host, a.host, sizeof(e.host));
    ry_ctl_set_peer(&b, 0, &e);
    e.incarnation = 3;
    ry_ctl_set_peer(&a, 1, &e);

    assert_int_equal(ry_ctl_send(&a, 1, "one", 3), 0);
    assert_int_equal(ry_ctl_recv(&b, &from, msg, &len), 1);
    assert_int_equal(from, 0);
    assert_memory_equal(msg, "one", 3);
    a.secret = wrong;
    assert_int_equal(ry_ctl_send(&a, 1, "two", 3), 0);
    assert_int_equal(ry_ctl_recv(&b, &from, msg, &len), 0);
    a.secret = right;
    a.incarnation = 1; /* not the one that b knows */
    assert_int_equal(ry_ctl_send(&a, 1, "three", 5), 0);
    assert_int_equal(ry_ctl_recv(&b, &from, msg, &len), 0);
    a.incarnation = 0;
    e.incarnation = 2; /* meant for b's predecessor */
    ry_ctl_set_peer(&a, 1, &e);
    assert_int_equal(ry_ctl_send(&a, 1, "four", 4), 0);
    assert_int_equal(ry_ctl_recv(&b, &from, msg, &len), 0);
    ry_ctl_close(&a);
    ry_ctl_close(&b);
}

static void a_full_queue_is_tried_again(void **state)
{
    struct ry_ctl a = {0}, b = {0};
    struct ry_wire_entry e = {0};
    struct ry_secret s = {{1}};
    uint64_t job = 0;
    uint32_t from = 9, got = 0;
    uint16_t port = 0;
    uint8_t msg[RY_CTL_BYTES_MAX];
    size_t len = 0;

    (void)state;
    assert_int_equal(ry_random(&job, sizeof(job)), 0);
    assert_int_equal(ry_ctl_open(&a, 0, 2, 0, &port), 0);
    assert_int_equal(ry_ctl_open(&b, 1, 2, 0, &port), 0);
    assert_int_equal(ry_ctl_bind(&a, job, &s), 0);
    assert_int_equal(ry_ctl_bind(&b, job, &s), 0);
    memcpy(e.host, a.host, sizeof(e.host));
    ry_ctl_set_peer(&a, 1, &e);
    ry_ctl_set_peer(&b, 0, &e);
    for (uint32_t i = 0; i < 200; i++)
        assert_int_equal(ry_ctl_send(&a, 1, &i, sizeof(i)), 0);
    for (int tries = 0; tries < 400 && got < 200; tries++) {
        while (ry_ctl_recv(&b, &from, msg, &len) == 1) {
            assert_memory_equal(msg, &got, sizeof(got)); /* in order, too */
            got++;
        }
        usleep(1100);
        ry_ctl_recv(&a, &from, msg, &len); /* the sender's agent comes by */
    }
    assert_int_equal(got, 200);
    ry_ctl_close(&a);
    ry_ctl_close(&b);
}

static void frames_are_read_in_any_pieces(void **state)
{
    struct ry_wire_in in = {.limit = 64};
    uint8_t stream_bytes[2 * RY_WIRE_HEADER + 5];

    (void)state;
    ry_wire_header(stream_bytes, RY_WIRE_PART, 77, 5);
    memcpy(stream_bytes + RY_WIRE_HEADER, "hello", 5);
    ry_wire_header(stream_bytes + RY_WIRE_HEADER + 5, RY_WIRE_BYE, 0, 0);
    for (size_t piece = 1; piece <= sizeof(stream_bytes); piece++) {
        int frames = 0;

        for (size_t at = 0; at < sizeof(stream_bytes); at += piece) {
            const uint8_t *data = stream_bytes + at;
            size_t len = sizeof(stream_bytes) - at < piece ? sizeof(stream_bytes) - at : piece;

            while (ry_wire_feed(&in, &data, &len) == 1) {
                assert_int_equal(in.frame.type, frames == 0 ? RY_WIRE_PART : RY_WIRE_BYE);
                if (frames++ == 0)
                    assert_memory_equal(in.frame.body, "hello", 5);
            }
        }
        assert_int_equal(frames, 2);
    }
    const uint8_t *data = stream_bytes;
    size_t len = sizeof(stream_bytes);

    in.limit = 4;
    assert_int_equal(ry_wire_feed(&in, &data, &len), RY_ERR_PROTOCOL);
    ry_wire_in_free(&in);
}

/* The vector of SipHash's authors for 128 bits: key 00..0f, message 00..0e. */
static void the_keyed_hash_is_siphash(void **state)
{
    static const uint8_t want[16] = {0x54, 0x93, 0xe9, 0x99, 0x33, 0xb0, 0xa8, 0x11,
                                     0x7e, 0x08, 0xec, 0x0f, 0x97, 0xcf, 0xc3, 0xd9};
    struct ry_secret key;
    uint8_t message[15], mac[16];

    (void)state;
    for (uint8_t i = 0; i < 16; i++)
        key.key[i] = i;
    for (uint8_t i = 0; i < 15; i++)
        message[i] = i;
    const struct ry_mac_part parts[] = {{message, 7}, {message + 7, 8}};

    ry_mac(&key, parts, 2, mac);
    assert_memory_equal(mac, want, sizeof(want));
}

static void a_secret_is_hex_or_any_text(void **state)
{
    struct ry_secret a, b;
    char hex[RY_SECRET_HEX];

    (void)state;
    assert_int_equal(ry_random(&a, sizeof(a)), 0);
    ry_secret_to_hex(&a, hex);
    ry_secret_from_text(hex, &b);
    assert_memory_equal(&a, &b, sizeof(a));
    ry_secret_from_text("sesame", &a);
    ry_secret_from_text("sesam", &b);
    assert_memory_not_equal(&a, &b, sizeof(a));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_and_agents_do_not_disturb_each_other),
        cmocka_unit_test(contradicting_calls_are_refused_by_all),
        cmocka_unit_test(greetings_that_do_not_fit_are_refused_with_their_reason),
        cmocka_unit_test(a_right_greeting_is_accepted_and_a_second_is_not),
        cmocka_unit_test(noise_and_silence_do_not_keep_others_out),
        cmocka_unit_test(a_pe_that_never_comes_is_named),
        cmocka_unit_test(an_oversized_part_ends_the_start_with_one_line),
        cmocka_unit_test(datagrams_of_strangers_and_predecessors_are_dropped),
        cmocka_unit_test(a_full_queue_is_tried_again),
        cmocka_unit_test(frames_are_read_in_any_pieces),
        cmocka_unit_test(the_keyed_hash_is_siphash),
        cmocka_unit_test(a_secret_is_hex_or_any_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
