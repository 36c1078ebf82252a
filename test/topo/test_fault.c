/* SPDX-License-Identifier: Apache-2.0 */
/* One planted fault: a record, what is broken in it, the one verdict that must follow, the fix
 * that must be printed, and what that fix changes, after which all is as before. The file says it
 * in lines: record NAME            handler|pes|tokens VALUE       expect CHECK FAIL|WARN set PATH
 * TEXT          add PATH TEXT (a line)         sub PATH /old/new/ hide PATH              fix TEXT
 * (part of the command) mend (what follows is the fix's effect) */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "records.h"
#include "tool/doctor/doctor.h"

enum { CHECKS = 128 };

struct outcome {
    unsigned count;
    const char *ids[CHECKS];
    struct ry_result results[CHECKS];
};

struct fault {
    ry_facts *facts;
    const char *write_to; /* folder to make the broken record in, instead of judging it */
    char handler[24];
    unsigned pes, tokens;
    struct outcome before, broken, mended;
    unsigned expected_count;
    char expected[4][2][32]; /* check, verdict */
    char fix[256];
};

static const char *const verdicts[] = {"OK", "WARN", "FAIL", "n.a."};

static void die(const char *what, const char *detail)
{
    printf("not as planted: %s: %s\n", what, detail);
    exit(1);
}

static void examine(struct fault *fault, struct outcome *outcome)
{
    char why[256] = "", hca[256] = "", map[256] = "";
    struct ry_doctor doctor;
    ry_topo *topo = NULL;
    char *env = ry_facts_text(fault->facts, "facts/env");
    const char *at = env ? strstr(env, "RAILYARD_HCA=") : NULL;
    if (at)
        sscanf(at, "RAILYARD_HCA=%255[^\n]", hca);
    at = env ? strstr(env, "RAILYARD_GPU_NIC_MAP=") : NULL;
    if (at)
        sscanf(at, "RAILYARD_GPU_NIC_MAP=%255[^\n]", map);
    free(env);
    ry_topo_options options = {.hca = hca, .gpu_nic_map = map};
    if (ry_topo_from_facts(fault->facts, &options, &topo, why, sizeof why) != RY_OK)
        die("no topology", why);
    ry_doctor_open(&doctor, fault->facts, topo);
    if (fault->handler[0])
        memcpy(doctor.handler, fault->handler, sizeof doctor.handler);
    if (fault->pes)
        doctor.pes = fault->pes;
    if (fault->tokens)
        doctor.tokens = fault->tokens;
    outcome->count = 0;
    for (const struct ry_family *f = ry_doctor_families(); f->name; f++) {
        for (const struct ry_check *c = f->checks; c->id && outcome->count < CHECKS; c++) {
            struct ry_result *result = &outcome->results[outcome->count];
            *result = (struct ry_result){.verdict = RY_VERDICT_NA};
            outcome->ids[outcome->count++] = c->id;
            c->run(&doctor, result);
        }
    }
    ry_doctor_close(&doctor);
    ry_topo_free(topo);
}

static int is_bad(const struct ry_result *result)
{
    return result->verdict == RY_VERDICT_WARN || result->verdict == RY_VERDICT_FAIL;
}

static int find(const struct outcome *outcome, const char *id)
{
    for (unsigned i = 0; i < outcome->count; i++) {
        if (strcmp(outcome->ids[i], id) == 0)
            return (int)i;
    }
    die("no such check", id);
    return -1;
}

/* "\n" in the file stands for a line's end. */
static void unescape(char *text)
{
    char *to = text;
    for (char *from = text; *from; from++) {
        if (from[0] == '\\' && from[1] == 'n') {
            *to++ = '\n';
            from++;
        } else {
            *to++ = *from;
        }
    }
    *to = '\0';
}

/* The same change in the folder of --write. */
static void write_fact(const struct fault *fault, const char *path, const char *text)
{
    char full[1024], command[2300];
    snprintf(full, sizeof full, "%s/%s", fault->write_to, path);
    snprintf(command, sizeof command, "rm -rf '%s' && mkdir -p \"$(dirname '%s')\"", full, full);
    if (system(command) != 0)
        die("cannot change", full);
    FILE *file = text ? fopen(full, "w") : NULL;
    if (text && (!file || fputs(text, file) < 0))
        die("cannot write", full);
    if (file)
        fclose(file);
}

static void put(struct fault *fault, const char *path, const char *text)
{
    if (fault->write_to)
        write_fact(fault, path, text);
    if (ry_facts_put(fault->facts, path, text, strlen(text)) != RY_OK)
        die("cannot set", path);
}

static void substitute(struct fault *fault, const char *path, char *rule)
{
    char *rest = NULL, *old = strtok_r(rule, "|", &rest), *new = strtok_r(NULL, "|", &rest);
    char *text = ry_facts_text(fault->facts, path);
    char *at = text && old ? strstr(text, old) : NULL;
    char *changed = NULL;
    size_t len;
    if (!at)
        die("nothing to substitute", path);
    FILE *out = open_memstream(&changed, &len);
    while (at) { /* every place */
        fprintf(out, "%.*s%s", (int)(at - text), text, new ? new : "");
        memmove(text, at + strlen(old), strlen(at + strlen(old)) + 1);
        at = strstr(text, old);
    }
    fprintf(out, "%s\n", text);
    fclose(out);
    put(fault, path, changed);
    free(changed);
    free(text);
}

static void change(struct fault *fault, const char *verb, char *path, char *text)
{
    unescape(text);
    if (strcmp(verb, "set") == 0) {
        put(fault, path, text);
    } else if (strcmp(verb, "add") == 0) {
        char *old = ry_facts_text(fault->facts, path), *both = NULL;
        if (asprintf(&both, "%s\n%s\n", old ? old : "", text) < 0)
            die("no memory", path);
        put(fault, path, both);
        free(old);
        free(both);
    } else if (strcmp(verb, "sub") == 0) {
        substitute(fault, path, text);
    } else if (strcmp(verb, "hide") == 0) {
        if (fault->write_to)
            write_fact(fault, path, NULL);
        if (ry_facts_put(fault->facts, path, NULL, 0) != RY_OK)
            die("cannot hide", path);
    } else {
        die("no such verb", verb);
    }
}

static void open_record(struct fault *fault, const char *name)
{
    char path[512];
    if (ry_facts_open(record_path(path, sizeof path, name), &fault->facts) != RY_OK)
        die("no such record", name);
    char command[2300];
    snprintf(command, sizeof command, "mkdir -p '%s' && cp -r '%s/.' '%s'",
             fault->write_to ? fault->write_to : "", path, fault->write_to ? fault->write_to : "");
    if (fault->write_to && system(command) != 0)
        die("cannot copy", name);
}

/* Checks what the fault brought and only that, and the printed fix. */
static void judge_broken(struct fault *fault)
{
    examine(fault, &fault->broken);
    for (unsigned i = 0; i < fault->broken.count; i++) {
        const struct ry_result *result = &fault->broken.results[i];
        const char *wanted = NULL;
        for (unsigned e = 0; e < fault->expected_count; e++) {
            if (strcmp(fault->expected[e][0], fault->broken.ids[i]) == 0)
                wanted = fault->expected[e][1];
        }
        if (wanted && strcmp(wanted, verdicts[result->verdict]) != 0)
            die(fault->broken.ids[i], result->cause);
        if (!wanted && is_bad(result) && fault->before.results[i].verdict != result->verdict)
            die("another check complains", result->cause);
    }
    int at = find(&fault->broken, fault->expected[0][0]);
    const struct ry_result *result = &fault->broken.results[at];
    printf("%s %s: %s\nfix: %s\n", verdicts[result->verdict], fault->expected[0][0], result->cause,
           result->fix);
    if (!strstr(result->fix, fault->fix))
        die("the fix is not the one expected", fault->fix);
}

static void judge_mended(struct fault *fault)
{
    examine(fault, &fault->mended);
    for (unsigned e = 0; e < fault->expected_count; e++) {
        int at = find(&fault->mended, fault->expected[e][0]);
        if (fault->mended.results[at].verdict != RY_VERDICT_OK)
            die("not OK after the fix", fault->mended.results[at].cause);
    }
    for (unsigned i = 0; i < fault->mended.count; i++) {
        if (is_bad(&fault->mended.results[i]) && !is_bad(&fault->before.results[i]))
            die("the fix breaks something else", fault->mended.results[i].cause);
    }
}

static void read_line(struct fault *fault, char *line)
{
    char *rest = NULL, *verb = strtok_r(line, " ", &rest);
    char *first = strtok_r(NULL, " ", &rest);
    char none[1] = "";
    char *text = rest ? rest : none;
    if (!verb || verb[0] == '#')
        return;
    if (strcmp(verb, "mend") == 0) {
        if (fault->write_to)
            exit(0);
        judge_broken(fault);
    } else if (!first) {
        die("a line without a value", verb);
    } else if (strcmp(verb, "record") == 0) {
        open_record(fault, first);
    } else if (strcmp(verb, "handler") == 0) {
        snprintf(fault->handler, sizeof fault->handler, "%s", first);
    } else if (strcmp(verb, "pes") == 0) {
        fault->pes = (unsigned)atoi(first);
    } else if (strcmp(verb, "tokens") == 0) {
        fault->tokens = (unsigned)atoi(first);
    } else if (strcmp(verb, "given") == 0) { /* part of the record, not of the fault */
        char *path = strtok_r(NULL, " ", &rest);
        change(fault, first, path ? path : none, rest ? rest : none);
    } else if (strcmp(verb, "expect") == 0 && fault->expected_count < 4) {
        snprintf(fault->expected[fault->expected_count][0], 32, "%s", first);
        snprintf(fault->expected[fault->expected_count++][1], 32, "%s", text);
    } else if (strcmp(verb, "fix") == 0) {
        snprintf(fault->fix, sizeof fault->fix, "%s%s%s", first, *text ? " " : "", text);
    } else {
        if (fault->before.count == 0)
            examine(fault, &fault->before);
        change(fault, verb, first, text);
    }
}

int main(int argc, char **argv)
{
    static struct fault fault;
    char line[2048];
    FILE *file = argc == 2 || argc == 4 ? fopen(argv[1], "r") : NULL;
    if (!file || (argc == 4 && strcmp(argv[2], "--write") != 0))
        die("usage", "test_fault FILE [--write FOLDER]");
    fault.write_to = argc == 4 ? argv[3] : NULL;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        read_line(&fault, line);
    }
    fclose(file);
    if (!fault.expected_count || !fault.broken.count || !fault.fix[0])
        die("the file is incomplete", argv[1]);
    judge_mended(&fault);
    ry_facts_close(fault.facts);
    return 0;
}
