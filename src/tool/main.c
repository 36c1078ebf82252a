/* SPDX-License-Identifier: Apache-2.0 */
/* The railyard command: finds the subcommand and runs it. */
#include <railyard/status.h>

#include <stdio.h>
#include <string.h>

#include "commands.h"

/* Exit codes, the same for every subcommand. */
enum { EXIT_OK = 0, EXIT_BAD_INPUT = 2 };

struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
};

/* One line a subcommand. */
static const struct command commands[] = {
    {"ep", ry_command_ep, "exchange tokens of a mixture-of-experts layer, every byte checked"},
    {"perf", ry_command_perf, "measure put, get, signals, atomics between two PEs"},
    {"run", ry_command_run, "starts a program as the PEs of a job"},
    {"status", ry_command_status, "rails and paths of a running job"},
    {"fault", ry_command_fault, "let something go wrong in a running job"},
    {"drain", ry_command_drain, "move traffic away from a port before its cable is pulled"},
    {"undrain", ry_command_undrain, "let traffic return to a drained port"},
    {"info", ry_command_info, "version, build, settings in effect"},
    {"topo", ry_command_topo, "which ports each GPU uses, what backs them, what is wrong"},
    {"doctor", ry_command_doctor, "is this machine ready; cause and fix of what is not"},
    {"env", ry_command_env, "export lines for this machine: railyard, nvshmem, deepep, nccl"},
    {"plan", ry_command_plan, "what of an install is done, needed or blocked; a script for it"},
    {"tune", ry_command_tune, "find the best channels and chunks for a shape"},
    {"traffic", ry_command_traffic, "run a command and see which ports carry its bytes"},
    {"sim", ry_command_sim, "try to break exactly-once in a simulated world; seeds repeat"},
    {NULL, NULL, NULL},
};

static void print_help(void)
{
    puts("usage: railyard COMMAND [FLAG...]\n"
         "       railyard --version | --help\n");
    for (const struct command *c = commands; c->name; c++)
        printf("  %-10s %s\n", c->name, c->summary);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fputs("railyard: no command given: type railyard --help for the list\n", stderr);
        return EXIT_BAD_INPUT;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("railyard %s\n", ry_version());
        return EXIT_OK;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_help();
        return EXIT_OK;
    }
    for (const struct command *c = commands; c->name; c++) {
        if (strcmp(argv[1], c->name) == 0)
            return c->run(argc - 1, argv + 1);
    }
    fprintf(stderr, "railyard: unknown command '%s': type railyard --help for the list\n", argv[1]);
    return EXIT_BAD_INPUT;
}
