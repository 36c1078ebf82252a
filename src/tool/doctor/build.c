/* SPDX-License-Identifier: Apache-2.0 */
/* Launchers and source trees. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doctor.h"

/* Each PE alone: a launcher started several, and the library cannot talk to that launcher. */
static void check_launcher(struct ry_doctor *doctor, struct ry_result *result)
{
    char *text = ry_facts_text(doctor->facts, "facts/launcher");
    char *build = ry_facts_text(doctor->facts, "facts/build");
    char name[32] = "none";
    int size = 1;
    if (text)
        sscanf(text, "%31s %d", name, &size);
    int by_pmix =
        strcmp(name, "mpi") == 0 || strcmp(name, "pmix") == 0 || strcmp(name, "slurm") == 0;
    int has_pmix = build && strstr(build, "pmix=1");
    const struct ry_lib *host = ry_doctor_lib(doctor, "libnvshmem_host.so.");
    const char *bootstrap = ry_doctor_env(doctor, "NVSHMEM_BOOTSTRAP");
    int wants_mpi = bootstrap && (strcmp(bootstrap, "MPI") == 0 || strcmp(bootstrap, "mpi") == 0);
    free(text);
    free(build);
    if (wants_mpi && host && !ry_doctor_lib(doctor, "nvshmem_bootstrap_mpi.so.")) {
        ry_say(result, RY_VERDICT_FAIL,
               "NVSHMEM_BOOTSTRAP=%s, but its MPI bootstrap is not there: each PE starts alone",
               bootstrap);
        ry_fix(result, "sudo apt-get install -y libopenmpi-dev && cmake -S . -B build "
                       "-DNVSHMEM_MPI_SUPPORT=ON -DMPI_HOME=/usr/lib/x86_64-linux-gnu/openmpi && "
                       "cmake --build build --target install");
    } else if (size < 2 || !by_pmix) {
        ry_say(result, RY_VERDICT_NA, "not started by mpirun, prterun or srun");
    } else if (!has_pmix) {
        ry_say(result, RY_VERDICT_FAIL,
               "%s started %d PEs, but this build has no PMIx: each PE runs alone as PE 0 of 1",
               name, size);
        ry_fix(result, "sudo apt-get install -y libpmix-dev && cmake -S . -B build && cmake "
                       "--build build");
    } else {
        ry_say(result, RY_VERDICT_OK, "%s started %d PEs and PMIx is built in", name, size);
    }
}

/* A field "key=value" of the first source of that kind; NULL text if there is none. */
static long source_field(struct ry_doctor *doctor, const char *kind, const char *key, char *path,
                         size_t cap)
{
    char *text = ry_facts_text(doctor->facts, "facts/sources"), *rest = NULL;
    long value = -1;
    for (char *line = text ? strtok_r(text, "\n", &rest) : NULL; line && value < 0;
         line = strtok_r(NULL, "\n", &rest)) {
        char name[16], where[RY_FACT_PATH], word[32];
        if (sscanf(line, "%15s %239s", name, where) != 2 || (*kind && strcmp(name, kind) != 0))
            continue;
        snprintf(word, sizeof word, " %s=", key);
        const char *at = strstr(line, word);
        if (!at || !ry_is_plain(where))
            continue;
        value = strtol(at + strlen(word), NULL, 10);
        snprintf(path, cap, "%s", where);
    }
    free(text);
    return value;
}

static void check_build_owner(struct ry_doctor *doctor, struct ry_result *result)
{
    char path[RY_FACT_PATH] = "";
    long long uid = ry_doctor_limit(doctor, "uid");
    long owner = source_field(doctor, "", "build_owner", path, sizeof path);
    static const char *const kinds[] = {"deepep", "nvshmem"};
    for (int i = 0; i < 2 && uid >= 0; i++) {
        long other = source_field(doctor, kinds[i], "build_owner", path, sizeof path);
        if (other >= 0 && other != uid && uid != 0) {
            ry_say(result, RY_VERDICT_FAIL,
                   "%s/build belongs to user %ld: a build as user %lld fails half way, or leaves "
                   "old files in place",
                   path, other, uid);
            ry_fix(result, "sudo rm -rf %s/build", path);
            return;
        }
    }
    ry_say(result, owner < 0 ? RY_VERDICT_NA : RY_VERDICT_OK,
           owner < 0 ? "no build folder in sight" : "build folders are one's own");
}

static void check_gdrcopy_headers(struct ry_doctor *doctor, struct ry_result *result)
{
    char path[RY_FACT_PATH] = "";
    long has = source_field(doctor, "nvshmem", "gdrcopy", path, sizeof path);
    const char *home = ry_doctor_env(doctor, "GDRCOPY_HOME");
    if (has < 0) {
        ry_say(result, RY_VERDICT_NA, "no NVSHMEM source tree in sight");
    } else if (has) {
        ry_say(result, RY_VERDICT_OK, "gdrapi.h is where the NVSHMEM build looks");
    } else {
        ry_say(result, RY_VERDICT_FAIL,
               "no gdrapi.h below %s: the NVSHMEM build stops or leaves "
               "out the handler cpu",
               home ? home : "/usr");
        ry_fix(result, "railyard plan --script --phase gdrcopy | bash && export "
                       "GDRCOPY_HOME=/opt/railyard/gdrcopy");
    }
}

static void check_source_clean(struct ry_doctor *doctor, struct ry_result *result)
{
    char path[RY_FACT_PATH] = "";
    static const char *const kinds[] = {"deepep", "nvshmem"};
    int seen = 0;
    for (int i = 0; i < 2; i++) {
        long clean = source_field(doctor, kinds[i], "clean", path, sizeof path);
        seen |= clean >= 0;
        if (clean != 0)
            continue;
        ry_say(result, RY_VERDICT_WARN,
               "%s has changes that no commit holds: what is built cannot "
               "be told from its version",
               path);
        ry_fix(result, "git -C %s stash", path);
        return;
    }
    ry_say(result, seen ? RY_VERDICT_OK : RY_VERDICT_NA,
           seen ? "source trees are clean" : "no source tree in sight");
}

const struct ry_check ry_checks_build[] = {
    {"launcher", "facts/launcher, facts/build, facts/libs, NVSHMEM_BOOTSTRAP",
     "If a build lacks support for the launcher that started it, each PE believes to be alone: "
     "every one reports PE 0 of 1, and nothing is exchanged.",
     check_launcher},
    {"build-owner", "facts/sources, facts/limits",
     "A build folder that root once made cannot be written by a user, and pip then installs what "
     "lay there before.",
     check_build_owner},
    {"gdrcopy-headers", "facts/sources, GDRCOPY_HOME",
     "NVSHMEM looks for gdrapi.h below GDRCOPY_HOME when it is built with GDRCopy.",
     check_gdrcopy_headers},
    {"source-clean", "facts/sources",
     "A source tree with changes of its own (a patch that was tried, a half-applied one) builds "
     "something that no version number describes.",
     check_source_clean},
    {NULL, NULL, NULL, NULL},
};
