/* SPDX-License-Identifier: Apache-2.0 */
/* Recordings: tokens come in order and again from the start, and every way a line can be bad is
 * refused with its number. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ep/routing.h"

#define META "{\"type\": \"meta\", \"top_k\": 2}\n"
#define ROUTE(ids, weights)                                                                        \
    "{\"type\":\"route\",\"topk_ids\":" ids ",\"topk_weights\":" weights ",\"layer\":0}\n"

static int open_text(const char *text, size_t bytes, uint32_t experts, uint32_t topk,
                     struct ry_routing_file **file)
{
    ry_routing_attr attr = {.experts = experts, .topk = topk};
    FILE *stream = tmpfile();
    assert_non_null(stream);
    assert_int_equal(fwrite(text, 1, bytes, stream), bytes);
    rewind(stream);
    return ry_routing_file_open(stream, "name", &attr, file);
}

static void refuse(const char *text, size_t bytes, int status, const char *words)
{
    struct ry_routing_file *file = (void *)1;
    assert_int_equal(open_text(text, bytes, 8, 0, &file), status);
    assert_ptr_equal(file, (void *)1);
    if (!strstr(ry_last_error(), words))
        fail_msg("'%s' does not say '%s'", ry_last_error(), words);
}

static void tokens_come_in_order_and_again(void **state)
{
    static const char text[] =
        META ROUTE("[3,1]", "[0.75,0.25]") "\n \r\n" ROUTE("[-1,-1]", "[0,0]")
            ROUTE("[0,5]", "[1,-2e-3]");
    struct ry_routing_file *file;
    ry_routing_info info;
    (void)state;
    assert_int_equal(open_text(text, sizeof(text) - 2, 0, 2, &file), RY_OK); /* no last newline */
    ry_routing_file_info(file, &info);
    assert_int_equal(info.experts, 6);
    assert_int_equal(info.topk, 2);
    assert_int_equal(info.tokens, 3);
    assert_string_equal(info.source, "name");
    for (int pass = 0; pass < 3; pass++) {
        int32_t ids[3][2];
        float w[3][2];
        for (int t = 0; t < 3; t++)
            assert_int_equal(ry_routing_file_next(file, ids[t], w[t]), RY_OK);
        assert_int_equal(ids[0][0], 3);
        assert_int_equal(ids[0][1], 1);
        assert_int_equal(ids[1][1], -1);
        assert_int_equal(ids[2][1], 5);
        assert_true(w[0][0] == 0.75f && w[0][1] == 0.25f && w[2][0] == 1 && w[2][1] == -2e-3f);
    }
    ry_routing_file_close(file);
}

static const struct {
    const char *text;
    const char *words;
} bad[] = {
    {"", "line 1: the file is empty"},
    {"\n\n", "line 1: the file is empty"},
    {"hello\n", "line 1: not json"},
    {"[1]\n", "line 1: type is missing"},
    {"null\n", "line 1: not json"},
    {"{\"type\":7}\n", "line 1: type is missing"},
    {ROUTE("[0,1]", "[1,1]"), "line 1: type is route where \"meta\" is expected"},
    {"{\"type\":\"meta\"}\n", "line 1: top_k is missing"},
    {"{\"type\":\"meta\",\"top_k\":0}\n", "line 1: top_k is missing or not a number from 1"},
    {"{\"type\":\"meta\",\"top_k\":2.0}\n", "line 1: top_k is missing"},
    {"{\"type\":\"meta\",\"top_k\":1025}\n", "line 1: top_k is missing or not a number from 1"},
    {"{\"type\":\"meta\",\"top_k\":2,\"top_k\":3}\n", "line 1: not json"},
    {META, "line 1: no route line follows"},
    {META "\n" META, "line 3: type is meta where \"route\" is expected"},
    {META "{\"type\":\"route\",\"topk_ids\":[0,1],\"topk_we", "line 2: cut short"},
    {META "{\"type\":\"route\",\"topk_ids\":[0,1]\n}", "line 2: not json"},
    {META ROUTE("[0,1]", "[1,1]") ROUTE("[0]", "[1,1]"), "line 3: topk_ids is not a list of 2"},
    {META ROUTE("[0,1,2]", "[1,1]"), "line 2: topk_ids is not a list of 2"},
    {META ROUTE("7", "[1,1]"), "line 2: topk_ids is not a list of 2"},
    {META ROUTE("[0,8]", "[1,1]"), "line 2: topk_ids[1] must be an id from -1 to 7"},
    {META ROUTE("[-2,1]", "[1,1]"), "line 2: topk_ids[0] must be an id from -1 to 7"},
    {META ROUTE("[0,4294967296]", "[1,1]"), "line 2: topk_ids[1] must be an id"},
    {META ROUTE("[0,99999999999999999999]", "[1,1]"), "line 2: not json"},
    {META ROUTE("[0,1.0]", "[1,1]"), "line 2: topk_ids[1] must be an id"},
    {META ROUTE("[0,\"1\"]", "[1,1]"), "line 2: topk_ids[1] must be an id"},
    {META ROUTE("[5,5]", "[1,1]"), "line 2: topk_ids has expert 5 twice"},
    {META ROUTE("[0,1]", "[1]"), "line 2: topk_weights is not a list of 2"},
    {META ROUTE("[0,1]", "[1,null]"), "line 2: topk_weights[1] is not a number"},
    {META ROUTE("[0,1]", "[1,1e39]"), "line 2: topk_weights[1] is not a number that fits"},
    {META ROUTE("[0,1]", "[1,NaN]"), "line 2: not json"},
    {META "\x1b[31m\n", "line 2: not json"},
    {META "{\"type\":\"\xc3\xa9\xc2\x9b\"}\n", "line 2: type is ???? where"},
};

static void bad_lines_are_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        refuse(bad[i].text, strlen(bad[i].text), RY_ERR_CONFIG, bad[i].words);
    refuse(META "{\"type\":\"route\"\0}\n", sizeof(META) + 17, RY_ERR_CONFIG, "line 2: not json");
}

static void a_message_is_one_printable_line(void **state)
{
    static const char text[] = META "{\"a\x1b\x07\r\": \x01}\n";
    (void)state;
    refuse(text, sizeof(text) - 1, RY_ERR_CONFIG, "line 2");
    for (const char *c = ry_last_error(); *c; c++)
        assert_true(*c >= ' ' && *c <= '~');
}

static void huge_lines_are_refused(void **state)
{
    size_t bytes = RY_ROUTING_LINE_MAX + 100;
    char *text = malloc(bytes);
    (void)state;
    assert_non_null(text);
    memset(text, '[', bytes);
    refuse(text, bytes, RY_ERR_CONFIG, "line 1: longer than 65536 bytes");
    memset(text, ' ', bytes);
    memcpy(text, META, sizeof(META) - 1);
    refuse(text, bytes, RY_ERR_CONFIG, "line 2: longer than 65536 bytes");
    free(text);
}

static void what_is_asked_for_must_agree(void **state)
{
    static const char text[] = META ROUTE("[-1,0]", "[1,1]");
    struct ry_routing_file *file;
    (void)state;
    assert_int_equal(open_text(text, sizeof(text) - 1, 0, 3, &file), RY_ERR_CONFIG);
    assert_non_null(strstr(ry_last_error(), "top_k is 2, not 3 as asked for"));
    assert_int_equal(open_text(text, sizeof(text) - 1, 0, 2, &file), RY_ERR_INVALID);
    assert_non_null(strstr(ry_last_error(), "1 experts for top-2"));
    assert_int_equal(open_text(text, sizeof(text) - 1, 2, 2, &file), RY_OK);
    ry_routing_file_close(file);
}

/* More tokens than marks, so that marks have thinned out; token t goes to expert t % 64, weight
 * t. */
static void any_token_is_found_again(void **state)
{
    enum { TOKENS = 40000 };
    struct ry_routing_file *file;
    ry_routing_attr attr = {0};
    int32_t id;
    float weight;
    FILE *stream = tmpfile();
    (void)state;
    assert_non_null(stream);
    fputs("{\"type\":\"meta\",\"top_k\":1}\n", stream);
    for (int t = 0; t < TOKENS; t++)
        fprintf(stream, "{\"type\":\"route\",\"topk_ids\":[%d],\"topk_weights\":[%d]}\n%s", t % 64,
                t, t % 7 ? "" : "\n");
    rewind(stream);
    assert_int_equal(ry_routing_file_open(stream, "long", &attr, &file), RY_OK);
    for (uint64_t t = 0; t < TOKENS; t += 1237) {
        assert_int_equal(ry_routing_file_seek(file, t), RY_OK);
        assert_int_equal(ry_routing_file_next(file, &id, &weight), RY_OK);
        assert_int_equal(id, t % 64);
        assert_true(weight == (float)t);
    }
    assert_int_equal(ry_routing_file_seek(file, TOKENS - 1), RY_OK);
    assert_int_equal(ry_routing_file_next(file, &id, &weight), RY_OK);
    assert_int_equal(ry_routing_file_next(file, &id, &weight), RY_OK);
    assert_true(weight == 0.0f);
    ry_routing_file_close(file);
}

/* Longer than any buffer of stdio, so that what is gone is not still held. */
static void a_file_that_shrinks_is_noticed(void **state)
{
    enum { TOKENS = 4000, LEFT = 100 };
    static const char route[] = ROUTE("[3,1]", "[1,1]");
    char path[] = "/tmp/ry_routing_XXXXXX";
    int32_t ids[2];
    float weights[2];
    ry_routing *routing;
    int fd = mkstemp(path);
    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, META, sizeof(META) - 1), sizeof(META) - 1);
    for (int t = 0; t < TOKENS; t++)
        assert_int_equal(write(fd, route, sizeof(route) - 1), sizeof(route) - 1);
    assert_int_equal(ry_routing_open(path, NULL, &routing), RY_OK);
    assert_int_equal(ftruncate(fd, sizeof(META) - 1 + LEFT * (sizeof(route) - 1) + 9), 0);
    assert_int_equal(ry_routing_seek(routing, LEFT), RY_OK);
    assert_int_equal(ry_routing_next(routing, 1, ids, weights), RY_ERR_CONFIG);
    assert_non_null(strstr(ry_last_error(), "line 102: cut short"));
    assert_int_equal(ry_routing_seek(routing, LEFT + 16), RY_ERR_CONFIG);
    assert_non_null(strstr(ry_last_error(), "the file has become shorter"));
    ry_routing_close(routing);
    close(fd);
    unlink(path);
}

static void what_is_no_file_is_refused(void **state)
{
    ry_routing *routing;
    (void)state;
    assert_int_equal(ry_routing_open("/nonexistent/x.jsonl", NULL, &routing), RY_ERR_CONFIG);
    assert_non_null(strstr(ry_last_error(), "No such file"));
    assert_int_equal(ry_routing_open("/tmp", NULL, &routing), RY_ERR_CONFIG);
    assert_non_null(strstr(ry_last_error(), "not a regular file"));
    assert_int_equal(ry_routing_open("/dev/zero", NULL, &routing), RY_ERR_CONFIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_come_in_order_and_again),
        cmocka_unit_test(bad_lines_are_named),
        cmocka_unit_test(a_message_is_one_printable_line),
        cmocka_unit_test(huge_lines_are_refused),
        cmocka_unit_test(what_is_asked_for_must_agree),
        cmocka_unit_test(any_token_is_found_again),
        cmocka_unit_test(a_file_that_shrinks_is_noticed),
        cmocka_unit_test(what_is_no_file_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
