/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a record. An input that begins with "facts\n" is a list of facts, each a line
 * "== PATH" and the lines of its text; any other input is an archive. Either is refused with one
 * printable line, or topology, doctor and plan say something printable about it. */
#include <stdlib.h>
#include <string.h>

#include "tool/doctor/doctor.h"
#include "tool/plan/plan.h"
#include "tool/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void require(int good)
{
    if (!good)
        abort();
}

static void check_text(const char *text)
{
    for (; *text; text++)
        require(*text >= ' ' && *text <= '~');
}

/* Text of the facts "== PATH\nTEXT" one after the other. */
static void put_facts(ry_facts *facts, const char *at, const char *end)
{
    while (at < end) {
        char path[RY_FACT_PATH] = "";
        const char *line = memchr(at, '\n', (size_t)(end - at));
        size_t len = line ? (size_t)(line - at) : (size_t)(end - at);
        if (len > 3 && len - 3 < sizeof path && memcmp(at, "== ", 3) == 0)
            memcpy(path, at + 3, len - 3);
        at = line ? line + 1 : end;
        const char *next = at;
        while (next < end && !(end - next > 3 && memcmp(next, "== ", 3) == 0)) {
            const char *stop = memchr(next, '\n', (size_t)(end - next));
            next = stop ? stop + 1 : end;
        }
        ry_facts_put(facts, path, at, (size_t)(next - at));
        at = next;
    }
}

static void examine_rails(const ry_topo *topo)
{
    for (uint32_t gpu = 0; gpu < ry_topo_gpu_count(topo); gpu++) {
        uint32_t rails[RY_TOPO_RAILS];
        uint32_t count = ry_topo_rails_for_gpu(topo, gpu, rails, RY_TOPO_RAILS);
        require(count <= RY_TOPO_RAILS);
        for (uint32_t i = 0; i < count; i++) {
            uint32_t backup = UINT32_MAX;
            require(rails[i] < ry_topo_port_count(topo));
            if (ry_topo_backup(topo, gpu, rails[i], &backup) != RY_BACKUP_NONE)
                require(backup < ry_topo_port_count(topo) && backup != rails[i]);
        }
    }
    for (uint32_t i = 0; i < ry_topo_issue_count(topo); i++)
        check_text(ry_topo_issue_at(topo, i)->text);
}

static void examine(ry_facts *facts, ry_topo *topo)
{
    struct ry_doctor doctor;
    ry_doctor_open(&doctor, facts, topo);
    for (const struct ry_family *f = ry_doctor_families(); f->name; f++) {
        for (const struct ry_check *c = f->checks; c->id; c++) {
            struct ry_result result = {.verdict = RY_VERDICT_NA};
            c->run(&doctor, &result);
            require(result.cause[0] != '\0');
            check_text(result.cause);
            check_text(result.fix);
        }
    }
    ry_doctor_close(&doctor);
    struct ry_plan plan = {.set = ry_plan_find_set(NULL), .prefix = "/opt/railyard"};
    ry_plan_judge(&plan, facts, topo);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char mark[] = "facts\n";
    ry_facts *facts = NULL, *record = NULL;
    ry_topo *topo = NULL;
    char why[256] = "";
    require(ry_facts_open_empty(&facts) == RY_OK && ry_facts_open_empty(&record) == RY_OK);
    int status = RY_OK;
    if (bytes >= sizeof mark - 1 && memcmp(data, mark, sizeof mark - 1) == 0)
        put_facts(facts, (const char *)data + sizeof mark - 1, (const char *)data + bytes);
    else
        status = ry_tool_read_archive(data, bytes, facts, why, sizeof why);
    if (status == RY_OK) {
        ry_facts_record(facts, record); /* the scrubber sees all that is read */
        status = ry_topo_from_facts(facts, NULL, &topo, why, sizeof why);
    }
    if (status != RY_OK) {
        require(why[0] != '\0' || status == RY_ERR_NO_MEMORY);
        check_text(why);
    } else {
        examine_rails(topo);
        examine(facts, topo);
        ry_topo_free(topo);
    }
    ry_facts_close(facts);
    ry_facts_close(record);
    return 0;
}
