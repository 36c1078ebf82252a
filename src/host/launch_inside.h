/* SPDX-License-Identifier: Apache-2.0 */
/* What launch.c (the launcher's loop) and launch_child.c (processes) share. */
#ifndef RY_HOST_LAUNCH_INSIDE_H
#define RY_HOST_LAUNCH_INSIDE_H

#include <railyard/launch.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

#include "host/meet.h"

enum child_state { CHILD_NONE, CHILD_RUNNING, CHILD_ENDED };

struct child {
    enum child_state state;
    pid_t pid;
    uint32_t incarnation;
    int wait_status;
    bool silent_loss; /* its connection ended, its process has not yet */
    uint64_t loss_ns;
    uint64_t restart_ns; /* 0: no replacement is due */
};

struct launch {
    const ry_launch_cfg *cfg;
    const char *file; /* what is executed */
    bool own;         /* this very program */
    char *const *argv;
    uint32_t n_nodes;
    uint64_t job;
    struct ry_secret secret;
    char hub[108];
    struct ry_meet *meet;
    struct child *children;
    ry_launch_result *result;
    sigset_t old_mask;
    int sigfd;
    pid_t guard;
    int guard_pipe;
    pid_t self;
    uint32_t restarts;
    uint64_t first_join_ns;
    int stop_code;             /* why the job is being stopped, as an exit code; -1: it is not */
    uint64_t term_ns, kill_ns; /* when to be less polite; 0: not */
};

/* A process that waits for the launcher's end and then kills the whole group. It leads the group,
 * so that the group's number cannot be given to others while it lives. */
int ry_guard_start(struct launch *l);
/* Kills the group, the guard included, and waits for the guard. */
void ry_guard_end(struct launch *l);

/* Starts PE `pe`. RY_ERR_CONFIG: the program cannot be executed. */
int ry_child_start(struct launch *l, uint32_t pe);

/* "was killed by signal 9 (Killed)", "ended with exit code 3". */
void ry_child_text(int wait_status, char *buf, size_t cap);
int ry_child_code(int wait_status);

#endif
