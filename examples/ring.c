/* SPDX-License-Identifier: Apache-2.0 */
/* A hundred lines on the public interface: every PE passes blocks to its right neighbour, a window
 * of them under way, checks each that arrives behind its signal, and counts it at PE 0.
 *
 *     railyard run -n 4 ./ring                          one machine, emulated NIC or real verbs
 *     mpirun -n 4 ./ring                                through PMIx
 *     MASTER_ADDR=... MASTER_PORT=... RANK=... WORLD_SIZE=... ./ring      as torchrun sets them */
#include <railyard/context.h>
#include <railyard/heap.h>
#include <railyard/rma.h>
#include <stdio.h>

enum { WORDS = 4096, WINDOW = 4, BLOCKS = 64 };

struct memory {
    uint64_t *out;   /* [WINDOW][WORDS] blocks on their way to the right */
    uint64_t *in;    /* [BLOCKS][WORDS] blocks from the left */
    ry_signal *sig;  /* how many of those are there */
    uint64_t *count; /* at PE 0: good blocks of all PEs */
};

static uint64_t word(uint32_t from, uint64_t block, uint64_t i)
{
    return (from + 1) * 0x9e3779b97f4a7c15u ^ block << 32 ^ i;
}

static int make_memory(ry_ctx *ctx, struct memory *m)
{
    int rc = ry_malloc(ctx, WINDOW * WORDS * sizeof(uint64_t), (void **)&m->out);

    if (rc == RY_OK)
        rc = ry_malloc(ctx, BLOCKS * WORDS * sizeof(uint64_t), (void **)&m->in);
    if (rc == RY_OK)
        rc = ry_malloc(ctx, sizeof(*m->sig), (void **)&m->sig);
    if (rc == RY_OK)
        rc = ry_malloc(ctx, sizeof(*m->count), (void **)&m->count);
    return rc == RY_OK ? ry_barrier(ctx) : rc;
}

static int send_blocks(ry_ctx *ctx, const struct memory *m, uint32_t right)
{
    ry_mark mark[WINDOW];
    int rc = RY_OK;

    for (uint64_t b = 0; rc == RY_OK && b < BLOCKS; b++) {
        uint64_t *src = m->out + b % WINDOW * WORDS;

        if (b >= WINDOW) /* its source is written again */
            rc = ry_mark_wait(ctx, &mark[b % WINDOW]);
        for (uint64_t i = 0; i < WORDS; i++)
            src[i] = word(ry_pe(ctx), b, i);
        if (rc == RY_OK)
            rc = ry_put_signal_nbi(ctx, m->in + b * WORDS, src, WORDS * sizeof(uint64_t), m->sig,
                                   b + 1, right);
        if (rc == RY_OK)
            rc = ry_mark_nbi(ctx, right, &mark[b % WINDOW]);
    }
    return rc;
}

static int check_blocks(ry_ctx *ctx, const struct memory *m, uint32_t left)
{
    int rc = RY_OK;

    for (uint64_t b = 0; rc == RY_OK && b < BLOCKS; b++) {
        uint64_t wrong = 0;

        rc = ry_signal_wait(ctx, m->sig, b + 1, left, 0);
        for (uint64_t i = 0; rc == RY_OK && i < WORDS; i++)
            wrong += m->in[b * WORDS + i] != word(left, b, i);
        if (rc == RY_OK && wrong == 0)
            rc = ry_amo_add(ctx, m->count, 1, 0);
    }
    return rc;
}

int main(void)
{
    ry_ctx *ctx = NULL;
    struct memory m;
    int rc = ry_ctx_create(NULL, &ctx);

    if (rc == RY_OK)
        rc = make_memory(ctx, &m);
    if (rc == RY_OK) {
        uint32_t me = ry_pe(ctx), n = ry_n_pes(ctx);

        rc = send_blocks(ctx, &m, (me + 1) % n);
        if (rc == RY_OK)
            rc = check_blocks(ctx, &m, (me + n - 1) % n);
        if (rc == RY_OK)
            rc = ry_barrier(ctx);
        if (rc == RY_OK && me == 0)
            printf("%u PEs, %llu of %u blocks good\n", n, (unsigned long long)*m.count, n * BLOCKS);
    }
    if (rc != RY_OK)
        fprintf(stderr, "ring: %s\n", ry_last_error());
    ry_ctx_destroy(ctx);
    return rc == RY_OK ? 0 : 1;
}
