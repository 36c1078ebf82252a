/* SPDX-License-Identifier: Apache-2.0 */
/* railyard sim: the simulator is a program of its own beside this one: it holds the protocol
 * compiled once more, with a scheduler in every shared access. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"

enum { FAILED = 1 };

int ry_command_sim(int argc, char **argv)
{
    static const char name[] = "railyard-sim";
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - sizeof(name));
    char *slash;

    (void)argc;
    if (n > 0) {
        path[n] = '\0';
        slash = strrchr(path, '/');
        if (slash) {
            strcpy(slash + 1, name);
            execv(path, argv);
        }
    }
    fprintf(stderr, "railyard sim: %s beside this command cannot be run: %s: install both\n", name,
            strerror(errno));
    return FAILED;
}
