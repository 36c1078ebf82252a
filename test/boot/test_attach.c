/* SPDX-License-Identifier: Apache-2.0 */
/* Attaching to a running job: found, asked, answered; bounded, and dropped if it does not behave.
 */
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
#include <railyard/attach.h>

#include "host/attach.h"
#include "host/boot_ctl.h"
#include "host/error.h"
#include "host/secret.h"

struct server {
    struct ry_attach *a;
    atomic_bool stop;
    pthread_t thread;
    uint32_t pe;
};

static int answer(void *arg, const char *request, struct ry_attach_answer *out)
{
    struct server *s = arg;

    if (strcmp(request, "large") == 0) {
        for (int i = 0; i < 100000; i++)
            ry_attach_print(out, "line %d of a long answer\n", i);
        return RY_OK;
    }
    if (strncmp(request, "echo ", 5) != 0)
        return ry_fail(RY_ERR_INVALID, "no request is called '%.20s'", request);
    ry_attach_print(out, "pe %u: %s", s->pe, request + 5);
    return RY_OK;
}

static void *serve(void *arg)
{
    struct server *s = arg;

    while (!atomic_load(&s->stop)) {
        struct pollfd p = {.fd = ry_attach_fd(s->a), .events = POLLIN};

        poll(&p, 1, 20);
        ry_attach_serve(s->a);
    }
    return NULL;
}

static void begin(struct server *s, uint64_t job, uint32_t pe)
{
    s->pe = pe;
    atomic_store(&s->stop, false);
    assert_int_equal(ry_attach_open(job, pe, answer, s, &s->a), RY_OK);
    assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
}

static void end(struct server *s)
{
    atomic_store(&s->stop, true);
    pthread_join(s->thread, NULL);
    ry_attach_close(s->a);
}

static uint64_t random_job(void)
{
    uint64_t job = 0;

    assert_int_equal(ry_random(&job, sizeof(job)), 0);
    return job;
}

enum { SECOND = 1000000000 };

static void a_request_gets_its_answer_from_the_pe_it_names(void **state)
{
    struct server s[2];
    uint64_t job = random_job();
    char *text = NULL;

    (void)state;
    begin(&s[0], job, 0);
    begin(&s[1], job, 5);
    assert_int_equal(ry_attach_request(job, 5, "echo hello", 5ull * SECOND, &text), RY_OK);
    assert_string_equal(text, "pe 5: hello");
    free(text);
    assert_int_equal(ry_attach_request(job, 0, "large", 5ull * SECOND, &text), RY_OK);
    assert_true(strlen(text) > 2000000);
    assert_non_null(strstr(text, "line 99999 of a long answer\n"));
    free(text);
    assert_int_equal(ry_attach_request(job, 0, "nonsense", 5ull * SECOND, &text), RY_ERR_INVALID);
    assert_string_equal(ry_last_error(), "pe 0: no request is called 'nonsense'");
    assert_int_equal(ry_attach_request(job, 3, "echo x", SECOND, &text), RY_ERR_NOT_FOUND);
    assert_int_equal(ry_attach_request(job, 0, "two\nlines", SECOND, &text), RY_ERR_INVALID);
    struct ry_attach *again = NULL;

    assert_int_equal(ry_attach_open(job, 5, answer, &s[0], &again), RY_ERR_EXISTS);
    end(&s[0]);
    end(&s[1]);
}

static void jobs_of_this_user_are_found_by_the_start_of_their_id(void **state)
{
    struct server s[2];
    uint64_t job = random_job(), found = 0;
    ry_attach_job *jobs = NULL;
    uint32_t n = 0, seen = 0;
    char id[20];

    (void)state;
    begin(&s[0], job, 3);
    begin(&s[1], job, 1);
    assert_int_equal(ry_attach_jobs(&jobs, &n), RY_OK);
    for (uint32_t i = 0; i < n; i++) {
        if (jobs[i].job != job)
            continue;
        seen++;
        assert_int_equal(jobs[i].n_pes, 2);
        assert_int_equal(jobs[i].pes[0], 1);
        assert_int_equal(jobs[i].pes[1], 3);
    }
    ry_attach_jobs_free(jobs, n);
    assert_int_equal(seen, 1);
    snprintf(id, sizeof(id), "%016" PRIx64, job);
    assert_int_equal(ry_attach_find(id, &found), RY_OK);
    assert_true(found == job);
    id[9] = '\0';
    assert_int_equal(ry_attach_find(id, &found), RY_OK);
    assert_true(found == job);
    end(&s[0]);
    end(&s[1]);
    assert_int_equal(ry_attach_find(id, &found), RY_ERR_NOT_FOUND);
    assert_int_equal(ry_attach_find("what", &found), RY_ERR_NOT_FOUND);
}

static int bare(uint64_t job)
{
    struct sockaddr_un a;
    socklen_t len = ry_ctl_name(&a, job, 0, "");
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(connect(fd, (struct sockaddr *)&a, len), 0);
    return fd;
}

static void who_sends_too_much_or_nothing_is_dropped(void **state)
{
    static char endless[RY_ATTACH_REQUEST_MAX + 1];
    struct server s;
    uint64_t job = random_job();
    char byte, *text = NULL;
    int idle[8];

    (void)state;
    begin(&s, job, 0);
    memset(endless, 'x', sizeof(endless));
    int fd = bare(job);

    assert_int_equal(send(fd, endless, sizeof(endless), MSG_NOSIGNAL), sizeof(endless));
    assert_true(recv(fd, &byte, 1, 0) <= 0); /* closed without a word */
    close(fd);
    for (int i = 0; i < 8; i++)
        idle[i] = bare(job); /* all places are taken, for two seconds */
    assert_true(recv(idle[0], &byte, 1, 0) <= 0);
    assert_int_equal(ry_attach_request(job, 0, "echo again", 5ull * SECOND, &text), RY_OK);
    free(text);
    for (int i = 0; i < 8; i++)
        close(idle[i]);
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_gets_its_answer_from_the_pe_it_names),
        cmocka_unit_test(jobs_of_this_user_are_found_by_the_start_of_their_id),
        cmocka_unit_test(who_sends_too_much_or_nothing_is_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
