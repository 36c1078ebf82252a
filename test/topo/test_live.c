/* SPDX-License-Identifier: Apache-2.0 */
/* Facts of this machine that can be staged: settings, libraries in sight, extensions and what they
 * were built for, source trees. And which rails channels live on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <railyard/facts.h>

#include "host/mesh.h"

#include "records.h"

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/ry-live-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static void put(const char *name, const void *data, size_t bytes)
{
    char path[256], command[300];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    snprintf(command, sizeof command, "mkdir -p \"$(dirname '%s')\"", path);
    assert_int_equal(system(command), 0);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    fclose(file);
}

static char *live(const char *fact)
{
    ry_facts *facts = NULL;
    assert_int_equal(ry_facts_open(NULL, &facts), RY_OK);
    assert_true(ry_facts_is_live(facts));
    char *text = ry_facts_text(facts, fact);
    ry_facts_close(facts);
    return text;
}

static void only_known_settings_are_read(void **state)
{
    (void)state;
    setenv("NVSHMEM_QP_DEPTH", "2048", 1);
    setenv("RAILYARD_SECRET", "hidden", 1);
    setenv("PASSWORD", "hidden", 1);
    char *text = live("facts/env");
    assert_non_null(strstr(text, "NVSHMEM_QP_DEPTH=2048"));
    assert_null(strstr(text, "hidden"));
    free(text);
    unsetenv("NVSHMEM_QP_DEPTH");
    unsetenv("RAILYARD_SECRET");
    unsetenv("PASSWORD");
}

static void libraries_come_in_the_loaders_order(void **state)
{
    (void)state;
    char list[256], first[128], second[128];
    put("a/libnccl.so.2.21.5", "x", 1);
    put("b/libnccl.so.2.27.7", "x", 1);
    snprintf(first, sizeof first, "%s/a/libnccl.so.2", folder);
    snprintf(second, sizeof second, "%s/b/libnccl.so.2", folder);
    assert_int_equal(symlink("libnccl.so.2.21.5", first), 0);
    assert_int_equal(symlink("libnccl.so.2.27.7", second), 0);
    snprintf(list, sizeof list, "%s/a:%s/b", folder, folder);
    setenv("LD_LIBRARY_PATH", list, 1);
    char *text = live("facts/libs");
    char want[400];
    snprintf(want, sizeof want, "libnccl.so.2 %s 2.21.5 env\nlibnccl.so.2 %s 2.27.7 env", first,
             second);
    assert_non_null(strstr(text, want));
    free(text);
    unsetenv("LD_LIBRARY_PATH");
}

/* One entry of a fat binary: kind, header size, body size, architecture. */
static size_t add_entry(unsigned char *at, uint32_t arch)
{
    uint32_t header = 64;
    uint64_t body = 16;
    memset(at, 0, 80);
    at[0] = 2;
    memcpy(at + 4, &header, sizeof header);
    memcpy(at + 8, &body, sizeof body);
    memcpy(at + 28, &arch, sizeof arch);
    return 80;
}

static void extensions_tell_what_they_were_built_for(void **state)
{
    (void)state;
    static const unsigned char magic[] = {0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0};
    unsigned char file[512] = {0};
    uint64_t size = 160;
    memcpy(file + 40, magic, sizeof magic);
    memcpy(file + 48, &size, sizeof size);
    add_entry(file + 56, 90);
    add_entry(file + 136, 100);
    strcpy((char *)file + 300, "nvshmemi_ibgda_device_state_d");
    put("site/deep_ep_cpp.cpython-312-x86_64-linux-gnu.so", file, sizeof file);
    put("site/deep_ep-1.2.1.dist-info/METADATA", "x", 1);
    char site[128];
    snprintf(site, sizeof site, "%s/site", folder);
    setenv("PYTHONPATH", site, 1);
    char *text = live("facts/extensions");
    assert_non_null(strstr(text, " python=cpython-312 sm=90,100 ibgda=1 version=1.2.1"));
    free(text);

    /* sizes that lie end the search, not the process */
    size = UINT64_MAX;
    memcpy(file + 48, &size, sizeof size);
    memcpy(file + 56 + 8, &size, sizeof size);
    file[300] = 'x';
    put("site/deep_ep_cpp.cpython-312-x86_64-linux-gnu.so", file, sizeof file);
    text = live("facts/extensions");
    assert_non_null(strstr(text, " sm=90 ibgda=0 "));
    free(text);
    unsetenv("PYTHONPATH");
}

static void topology_of_this_machine_is_readable(void **state)
{
    (void)state;
    char *text = live("topology.xml");
    assert_non_null(text);
    assert_non_null(strstr(text, "type=\"Machine\""));
    free(text);
}

static void channels_live_on_the_rails_of_the_map(void **state)
{
    (void)state;
    struct ry_hello *a = calloc(2, sizeof *a), *b = a + 1;
    uint32_t rail, peer_rail, weight[8];
    a->rails = 4;
    b->rails = 2;
    static const uint32_t all[4][2] = {{0, 0}, {1, 1}, {2, 0}, {3, 1}};
    for (uint32_t c = 0; c < 4; c++) {
        ry_plan_home(a, b, c, &rail, &peer_rail);
        assert_int_equal(rail, all[c][0]);
        assert_int_equal(peer_rail, all[c][1]);
    }
    a->homes = 1u << 1 | 1u << 3;
    b->homes = 1u << 1;
    static const uint32_t mapped[4] = {1, 3, 1, 3};
    for (uint32_t c = 0; c < 4; c++) {
        ry_plan_home(a, b, c, &rail, &peer_rail);
        assert_int_equal(rail, mapped[c]);
        assert_int_equal(peer_rail, 1);
    }
    /* a rail twice as fast carries twice as much, also when others are no homes */
    a->homes = 1u << 0 | 1u << 2;
    b->homes = 0;
    for (uint32_t i = 0; i < 4; i++)
        a->rail[i].rate_bps = i == 2 ? 200 : 100;
    ry_plan_weights(a, b, 2, weight);
    assert_int_equal(weight[1], 2 * weight[0]);
    free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_known_settings_are_read),
        cmocka_unit_test(libraries_come_in_the_loaders_order),
        cmocka_unit_test(extensions_tell_what_they_were_built_for),
        cmocka_unit_test(topology_of_this_machine_is_readable),
        cmocka_unit_test(channels_live_on_the_rails_of_the_map),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
