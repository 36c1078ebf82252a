/* SPDX-License-Identifier: Apache-2.0 */
/* Two PEs as threads; PE 0 posts many small puts. Run by bench/instructions.sh under callgrind,
 * which counts what a post takes. usage: bench_submit on|off POSTS */
#include <pthread.h>
#include <railyard/context.h>
#include <railyard/heap.h>
#include <railyard/rma.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PES = 2, BETWEEN = 64 };

struct pe {
    ry_hub *hub;
    uint32_t number;
    uint64_t posts;
    const char *failover;
    int rc;
};

static int post_all(ry_ctx *ctx, uint64_t posts, uint64_t *word)
{
    int rc = RY_OK;
    for (uint64_t i = 0; rc == RY_OK && i < posts; i++) {
        rc = ry_put_nbi(ctx, word, word + 1, sizeof *word, 1);
        if (rc == RY_OK && i % BETWEEN == BETWEEN - 1)
            rc = ry_quiet(ctx);
    }
    return rc;
}

static void *pe_main(void *arg)
{
    struct pe *p = arg;
    const char *settings[] = {p->failover, "RAILS=2", "P2P=off", "HEAP_SIZE=4M"};
    ry_ctx_attr attr = {.hub = p->hub, .hub_pe = p->number, .settings = settings, .n_settings = 4};
    ry_ctx *ctx = NULL;
    void *word = NULL;

    p->rc = ry_ctx_create(&attr, &ctx);
    if (p->rc == RY_OK)
        p->rc = ry_malloc(ctx, 4096, &word);
    if (p->rc == RY_OK)
        p->rc = ry_barrier(ctx);
    if (p->rc == RY_OK && p->number == 0)
        p->rc = post_all(ctx, p->posts, word);
    if (p->rc == RY_OK)
        p->rc = ry_barrier(ctx);
    if (p->rc != RY_OK)
        fprintf(stderr, "bench_submit: %s\n", ry_last_error());
    ry_ctx_destroy(ctx);
    return NULL;
}

int main(int argc, char **argv)
{
    bool on = argc == 3 && strcmp(argv[1], "on") == 0;
    uint64_t posts = argc == 3 ? strtoull(argv[2], NULL, 10) : 0;
    pthread_t thread[PES];
    struct pe pe[PES];
    ry_hub *hub;

    if (posts == 0 || (!on && strcmp(argv[1], "off") != 0)) {
        fprintf(stderr, "usage: bench_submit on|off POSTS\n");
        return 2;
    }
    if (ry_hub_create(PES, PES, &hub) != RY_OK)
        return 1;
    for (uint32_t i = 0; i < PES; i++) {
        pe[i] = (struct pe){hub, i, posts, on ? "FAILOVER=on" : "FAILOVER=off", RY_OK};
        if (pthread_create(&thread[i], NULL, pe_main, &pe[i]) != 0)
            return 1;
    }
    for (uint32_t i = 0; i < PES; i++)
        pthread_join(thread[i], NULL);
    ry_hub_destroy(hub);
    return pe[0].rc != RY_OK || pe[1].rc != RY_OK;
}
