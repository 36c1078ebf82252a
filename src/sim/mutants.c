/* SPDX-License-Identifier: Apache-2.0 */
/* Does the simulator notice when a clause of a rule is broken? Each mutant runs in a process of its
 * own: broken code may crash, which counts as noticed, and what it leaves behind is gone with it.
 */
#include <ctype.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/mutant.h"
#include "sim/campaign.h"

enum { RUN_CPU_S = 10 }; /* a run takes some milliseconds; broken code may loop for ever */

struct mutant {
    const char *id, *rule, *what;
};

static const struct mutant mutants[] = {{"NONE", "", ""},
#define RY_MUTANT_ROW(name, rule, what) {#name, rule, what},
                                        RY_MUTANTS(RY_MUTANT_ROW)
#undef RY_MUTANT_ROW
};

/* Nothing of rule 16 shows where nobody is lost. */
static enum ry_sim_family family_of(int id)
{
    return strstr(mutants[id].rule, "16") ? RY_SIM_LOSSY : RY_SIM_SWARM;
}

static const char *family_name(int id) { return family_of(id) == RY_SIM_LOSSY ? "lossy" : "swarm"; }

/* Seeds at which a mutant is known to fall, for the quick check. */
static const struct {
    int id;
    uint64_t seed;
} known[] = {
    {RY_MUT_FORWARD_FORGOTTEN, 5},   {RY_MUT_ONE_WORD, 136},
    {RY_MUT_BASE_AFTER_CQE, 856},    {RY_MUT_NO_PROOF_READ, 136},
    {RY_MUT_REUSE_UNFENCED, 467},    {RY_MUT_RELEASE_ON_ANSWER, 426},
    {RY_MUT_QUIET_NO_SLOTS, 204},    {RY_MUT_BACK_EARLY, 2830},
    {RY_MUT_LAST_UNSIGNALLED, 1121}, {RY_MUT_FENCE_NO_FLUSH, 136},
    {RY_MUT_CUT_LOUD, 7324},         {RY_MUT_RECORDS_KEPT, 71},
    {RY_MUT_ANY_INCARNATION, 1653},  {RY_MUT_OLD_PROBE, 7916},
    {RY_MUT_CUT_UNTOLD, 113},        {RY_MUT_JOIN_UNTOLD, 71},
    {RY_MUT_HALF_MADE, 71},          {RY_MUT_RING_UNCHECKED, 1077},
    {RY_MUT_DOORBELL_STORE, 1077},   {RY_MUT_ROOM_BY_COMPLETION, 1536},
    {RY_MUT_MOVE_WITHOUT_WAIT, 149}, {RY_MUT_MASK_UNFENCED, 41},
    {RY_MUT_MASK_REOPENED, 22},      {RY_MUT_JOIN_OWING, 769},
    {RY_MUT_MASK_ALONE, 173},        {RY_MUT_COUNTS_FORGOTTEN, 133},
    {RY_MUT_OLD_ANSWER, 7257},       {RY_MUT_VOID_ROWS, 3193},
};

struct verdict {
    uint64_t run, seed;
    char violation[160];
};

const char *ry_sim_mutant_name(int id)
{
    static char name[RY_MUT_COUNT][32];
    const char *from = mutants[id].id;
    size_t n = strlen(from);

    for (size_t i = 0; i < n && i + 1 < sizeof(name[0]); i++)
        name[id][i] = from[i] == '_' ? '-' : (char)tolower((unsigned char)from[i]);
    return name[id];
}

int ry_sim_mutant_find(const char *name)
{
    for (int i = 1; i < RY_MUT_COUNT; i++)
        if (!strcmp(name, ry_sim_mutant_name(i)))
            return i;
    return RY_MUT_NONE;
}

static uint64_t first_seed(int id, bool quick)
{
    for (size_t i = 0; quick && i < sizeof(known) / sizeof(known[0]); i++)
        if (known[i].id == id)
            return known[i].seed;
    return 1;
}

static void child(int id, uint64_t first, uint64_t runs, int fd)
{
    static struct ry_sim_world world;
    struct verdict v;

    ry_mutant = id;
    for (uint64_t k = 0; k < runs; k++) {
        const struct itimerval longest = {.it_value.tv_sec = RUN_CPU_S};
        struct ry_sim_plan plan;
        bool ok;

        setitimer(ITIMER_VIRTUAL, &longest, NULL);
        memset(&v, 0, sizeof(v));
        v.run = k + 1;
        v.seed = first + k;
        ry_sim_plan_make(&plan, v.seed, family_of(id));
        ok = ry_sim_once(&world, &plan);
        if (!ok)
            snprintf(v.violation, sizeof(v.violation), "%.159s", world.violation);
        if (write(fd, &v, sizeof(v)) != sizeof(v))
            _exit(2);
        if (!ok)
            _exit(1);
    }
    _exit(0);
}

/* True: it fell, *v says where. */
static bool judge(int id, uint64_t first, uint64_t runs, struct verdict *v)
{
    int fds[2], status = 0;
    struct verdict next;
    pid_t pid;

    memset(v, 0, sizeof(*v));
    v->seed = first - 1;
    fflush(stdout);
    if (pipe(fds))
        return false;
    pid = fork();
    if (pid == 0) {
        close(fds[0]);
        child(id, first, runs, fds[1]);
    }
    close(fds[1]);
    while (pid > 0 && read(fds[0], &next, sizeof(next)) == sizeof(next))
        *v = next;
    close(fds[0]);
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return false;
    if (WIFSIGNALED(status)) {
        v->run++;
        v->seed++;
        if (WTERMSIG(status) == SIGVTALRM)
            snprintf(v->violation, sizeof(v->violation), "progress: the run does not end");
        else
            snprintf(v->violation, sizeof(v->violation), "crash: signal %d", WTERMSIG(status));
    }
    return v->violation[0] != '\0';
}

/* Mutants that a run meets too seldom and a named schedule (test/sim/test_schedules_*.c) always. */
static const char *by_schedule(int id)
{
    switch (id) {
    case RY_MUT_LATE_PROOF: /* one that sleeps across two moves and a fence */
        return "schedule 29";
    case RY_MUT_NO_HOLD_BACK: /* a path that comes back too often is harmless, and slow */
        return "Mooncake 3596";
    case RY_MUT_PROOF_OLD_HEAD: /* a ring that fills up with nothing but answers, once in 269,147 */
        return "schedule 51";
    case RY_MUT_NO_PATIENCE: /* links have no rate */
        return "schedule 40";
    case RY_MUT_FENCE_BOTH_WAYS: /* one more failure among many */
        return "schedule 24";
    case RY_MUT_NO_GIVE_UP: /* no outage is that long */
        return "Mooncake 3523";
    default:
        return NULL;
    }
}

/* One row of the table. False: it survives. */
static bool show(int id, uint64_t runs, bool quick)
{
    const char *oracle = by_schedule(id), *in = oracle ? "-" : family_name(id);
    char run[24] = "-", seed[24] = "-", spoke[32];
    struct verdict v = {0};

    if (!oracle && judge(id, first_seed(id, quick), runs, &v)) {
        snprintf(run, sizeof(run), "%" PRIu64, v.run);
        snprintf(seed, sizeof(seed), "%" PRIu64, v.seed);
        ry_sim_oracle_name(v.violation, spoke, sizeof(spoke));
        oracle = spoke;
    }
    printf("%-20s %-6s %-6s %6s %8s  %-13s %s\n", ry_sim_mutant_name(id), mutants[id].rule, in, run,
           seed, oracle ? oracle : "SURVIVES", mutants[id].what);
    return oracle != NULL;
}

int ry_sim_mutants(uint64_t runs, bool quick, int only)
{
    int survivors = 0, judged = 0;

    printf("%-20s %-6s %-6s %6s %8s  %-13s %s\n", "mutant", "rule", "family", "run", "seed",
           "oracle", "clause");
    for (int id = 1; id < RY_MUT_COUNT; id++) {
        if (only && id != only)
            continue;
        judged++;
        survivors += !show(id, runs, quick);
        fflush(stdout);
    }
    printf("%d mutants, %d survive\n", judged, survivors);
    return survivors != 0;
}
