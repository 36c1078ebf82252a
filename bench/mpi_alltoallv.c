/* SPDX-License-Identifier: Apache-2.0 */
/* High-throughput dispatch and combine beside a plain MPI program that does the same: pack,
 * MPI_Alltoallv, unpack. Both in the same processes, by turns, on the same tokens, and the sums
 * must agree bit by bit.
 *
 *     mpirun -n 8 mpi_alltoallv [FILE.jsonl|-] [TOKENS] [HIDDEN] [ITERATIONS]
 *
 * The MPI program is a good one: a token goes to a PE once, counts go first, one exchange carries
 * rows and what belongs to them. Experts are the identity. Exit 1: sums differ, or railyard is
 * slower. */
#include <mpi.h>
#include <railyard/ep.h>
#include <railyard/reference.h>
#include <railyard/routing.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bench {
    uint32_t pe, n, experts, topk, tokens, hidden;
    uint16_t *x;
    int32_t *ids;
    float *weights;
    size_t record_bytes, row_at;
    uint8_t *send, *recv;
    uint16_t *back, *home; /* rows given back: packed, and at their source */
    int *send_count, *send_at, *recv_count, *recv_at;
    int *row_send, *row_send_at, *row_recv, *row_recv_at; /* of the way back */
    uint32_t *rows;                                       /* [n] records to each PE */
    int32_t *local_idx;                                   /* unpacked */
    float *local_weight;
};

static float up(uint16_t v)
{
    uint32_t bits = (uint32_t)v << 16;
    float f;

    memcpy(&f, &bits, sizeof(f));
    return f;
}

static uint16_t down(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof(bits));
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return 0x7fff;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static uint32_t pe_of(const struct bench *b, int32_t expert)
{
    uint32_t each = b->experts / b->n, more = b->experts % b->n, e = (uint32_t)expert;

    return e < more * (each + 1) ? e / (each + 1) : more + (e - more * (each + 1)) / each;
}

static bool goes(const struct bench *b, uint32_t t, uint32_t pe)
{
    for (uint32_t k = 0; k < b->topk; k++) {
        int32_t e = b->ids[t * b->topk + k];

        if (e >= 0 && pe_of(b, e) == pe)
            return true;
    }
    return false;
}

static void pack(struct bench *b)
{
    uint8_t *at = b->send;

    for (uint32_t p = 0; p < b->n; p++) {
        b->send_at[p] = (int)(at - b->send);
        b->rows[p] = 0;
        for (uint32_t t = 0; t < b->tokens; t++) {
            if (!goes(b, t, p))
                continue;
            memcpy(at, &t, sizeof(t));
            memcpy(at + 16, &b->ids[t * b->topk], b->topk * 4);
            memcpy(at + 16 + b->topk * 4, &b->weights[t * b->topk], b->topk * 4);
            memcpy(at + b->row_at, &b->x[(size_t)t * b->hidden], (size_t)b->hidden * 2);
            at += b->record_bytes;
            b->rows[p]++;
        }
        b->send_count[p] = (int)(at - b->send) - b->send_at[p];
    }
}

static uint32_t by_mpi_dispatch(struct bench *b)
{
    int at = 0;
    uint32_t rows;

    pack(b);
    MPI_Alltoall(b->send_count, 1, MPI_INT, b->recv_count, 1, MPI_INT, MPI_COMM_WORLD);
    for (uint32_t p = 0; p < b->n; p++) {
        b->recv_at[p] = at;
        at += b->recv_count[p];
    }
    MPI_Alltoallv(b->send, b->send_count, b->send_at, MPI_BYTE, b->recv, b->recv_count, b->recv_at,
                  MPI_BYTE, MPI_COMM_WORLD);
    rows = (uint32_t)((size_t)at / b->record_bytes);
    for (uint32_t r = 0; r < rows; r++) {
        const uint8_t *record = b->recv + r * b->record_bytes;

        memcpy(&b->local_idx[r * b->topk], record + 16, b->topk * 4);
        memcpy(&b->local_weight[r * b->topk], record + 16 + b->topk * 4, b->topk * 4);
    }
    return rows;
}

static void by_mpi_combine(struct bench *b, uint32_t rows, uint16_t *out)
{
    size_t row_bytes = (size_t)b->hidden * 2;
    uint32_t *next = calloc(b->n, sizeof(*next));

    for (uint32_t r = 0; r < rows; r++)
        memcpy(&b->back[(size_t)r * b->hidden], b->recv + r * b->record_bytes + b->row_at,
               row_bytes);
    for (uint32_t p = 0; p < b->n; p++) {
        b->row_send[p] = (int)((size_t)b->recv_count[p] / b->record_bytes * row_bytes);
        b->row_send_at[p] = (int)((size_t)b->recv_at[p] / b->record_bytes * row_bytes);
        b->row_recv[p] = (int)(b->rows[p] * row_bytes);
        b->row_recv_at[p] = p ? b->row_recv_at[p - 1] + b->row_recv[p - 1] : 0;
    }
    MPI_Alltoallv(b->back, b->row_send, b->row_send_at, MPI_BYTE, b->home, b->row_recv,
                  b->row_recv_at, MPI_BYTE, MPI_COMM_WORLD);
    for (uint32_t t = 0; t < b->tokens; t++) {
        float sum[512];
        const uint16_t *part[256];
        uint32_t parts = 0;

        for (uint32_t p = 0; p < b->n; p++)
            if (goes(b, t, p))
                part[parts++] =
                    b->home + (size_t)b->row_recv_at[p] / 2 + (size_t)next[p]++ * b->hidden;
        for (uint32_t c = 0; c < b->hidden; c += 512) {
            uint32_t width = b->hidden - c < 512 ? b->hidden - c : 512;

            memset(sum, 0, sizeof(sum));
            for (uint32_t i = 0; i < parts; i++)
                for (uint32_t j = 0; j < width; j++)
                    sum[j] += up(part[i][c + j]);
            for (uint32_t j = 0; j < width; j++)
                out[(size_t)t * b->hidden + c + j] = down(sum[j]);
        }
    }
    free(next);
}

static int by_railyard(struct bench *b, ry_ep *ep, uint16_t *out)
{
    ry_ep_input in = {b->x,       (size_t)b->hidden * 2, b->ids,   b->topk * 4, 4,
                      b->weights, b->topk * 4,           b->tokens};
    ry_ep_output got;
    int rc = ry_ep_dispatch(ep, &in, &got, RY_EP_BOTH);

    return rc ? rc : ry_ep_combine(ep, got.x, got.x_stride, out, (size_t)b->hidden * 2, RY_EP_BOTH);
}

static bool make(struct bench *b)
{
    size_t most = (size_t)b->tokens * b->n, row = b->hidden;

    b->row_at = 16 + (size_t)b->topk * 8;
    b->record_bytes = b->row_at + row * 2;
    b->x = malloc(b->tokens * row * 2);
    b->ids = malloc((size_t)b->tokens * b->topk * 4);
    b->weights = malloc((size_t)b->tokens * b->topk * 4);
    b->send = malloc(most * b->record_bytes);
    b->recv = malloc(most * b->record_bytes);
    b->back = malloc(most * row * 2);
    b->home = malloc(most * row * 2);
    b->local_idx = malloc(most * b->topk * 4);
    b->local_weight = malloc(most * b->topk * 4);
    b->rows = calloc(b->n, sizeof(*b->rows));
    b->send_count = calloc(8 * (size_t)b->n, sizeof(int));
    b->send_at = b->send_count + b->n;
    b->recv_count = b->send_at + b->n;
    b->recv_at = b->recv_count + b->n;
    b->row_send = b->recv_at + b->n;
    b->row_send_at = b->row_send + b->n;
    b->row_recv = b->row_send_at + b->n;
    b->row_recv_at = b->row_recv + b->n;
    return b->x && b->ids && b->weights && b->send && b->recv && b->back && b->home &&
           b->local_idx && b->local_weight && b->rows && b->send_count;
}

static int order(const void *a, const void *b)
{
    double d = *(const double *)a - *(const double *)b;

    return d < 0 ? -1 : d > 0;
}

static double median(double *v, uint32_t n)
{
    qsort(v, n, sizeof(*v), order);
    return v[n / 2];
}

/* The slowest PE's time since `from`. */
static double slowest(double from)
{
    double mine = MPI_Wtime() - from, most;

    MPI_Allreduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return most;
}

static int compare(struct bench *b, ry_ep *ep, ry_routing *routing, uint32_t iters)
{
    size_t bytes = (size_t)b->tokens * b->hidden * 2;
    uint16_t *ours = malloc(bytes), *theirs = malloc(bytes);
    double *t_ours = calloc(iters, sizeof(double)), *t_theirs = calloc(iters, sizeof(double));
    int wrong = 0, all = 0;
    double ratio;

    if (!ours || !theirs || !t_ours || !t_theirs)
        MPI_Abort(MPI_COMM_WORLD, 1);
    for (uint32_t i = 0; i < iters + 2; i++) { /* two to warm up */
        double from;

        ry_routing_seek(routing, ((uint64_t)i * b->n + b->pe) * b->tokens);
        ry_routing_next(routing, b->tokens, b->ids, b->weights);
        for (uint32_t t = 0; t < b->tokens; t++)
            ry_ref_token(i, b->pe, t, b->hidden, b->x + (size_t)t * b->hidden);
        for (int turn = 0; turn < 2; turn++) { /* who goes first changes */
            MPI_Barrier(MPI_COMM_WORLD);
            from = MPI_Wtime();
            if ((turn ^ (int)i) & 1) {
                by_mpi_combine(b, by_mpi_dispatch(b), theirs);
                t_theirs[i < 2 ? 0 : i - 2] = slowest(from);
            } else {
                if (by_railyard(b, ep, ours)) {
                    fprintf(stderr, "mpi_alltoallv: pe %u: %s\n", b->pe, ry_last_error());
                    MPI_Abort(MPI_COMM_WORLD, 1);
                }
                t_ours[i < 2 ? 0 : i - 2] = slowest(from);
            }
        }
        wrong |= memcmp(ours, theirs, bytes) != 0;
    }
    MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    ratio = median(t_ours, iters) / median(t_theirs, iters);
    if (b->pe == 0)
        printf("tokens %u hidden %u top-%u of %u, %u pes: railyard %.3f ms, mpi %.3f ms, ratio "
               "%.3f%s\n",
               b->tokens, b->hidden, b->topk, b->experts, b->n, median(t_ours, iters) * 1e3,
               median(t_theirs, iters) * 1e3, ratio, all ? ", SUMS DIFFER" : "");
    MPI_Bcast(&ratio, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    free(ours);
    free(theirs);
    free(t_ours);
    free(t_theirs);
    return all || ratio > 1.0;
}

int main(int argc, char **argv)
{
    const char *file = argc > 1 && strcmp(argv[1], "-") ? argv[1] : NULL;
    struct bench b = {.tokens = argc > 2 ? (uint32_t)atoi(argv[2]) : 256,
                      .hidden = argc > 3 ? (uint32_t)atoi(argv[3]) : 2048};
    uint32_t iters = argc > 4 ? (uint32_t)atoi(argv[4]) : 20;
    ry_routing_info info;
    ry_routing *routing = NULL;
    ry_ctx_attr attr = {0};
    ry_ctx *ctx = NULL;
    ry_ep *ep = NULL;
    char heap[64];
    const char *settings[] = {heap};
    ry_ep_attr shape;
    int rank, size, rc;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (ry_routing_open(file, NULL, &routing)) {
        fprintf(stderr, "mpi_alltoallv: %s\n", ry_last_error());
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    ry_routing_get_info(routing, &info);
    b.pe = (uint32_t)rank;
    b.n = (uint32_t)size;
    b.experts = info.experts;
    b.topk = info.topk;
    shape = (ry_ep_attr){.experts = info.experts,
                         .topk = info.topk,
                         .hidden = b.hidden,
                         .tokens_max = b.tokens,
                         .mode = RY_EP_HT};
    snprintf(heap, sizeof(heap), "HEAP_SIZE=%zu", ry_ep_heap_bytes(&shape, b.n, 1) + (64u << 20));
    attr.settings = settings;
    attr.n_settings = 1;
    rc = b.n > 256 || !make(&b) || ry_ctx_create(&attr, &ctx) || ry_ep_create(ctx, &shape, &ep);
    if (rc) {
        fprintf(stderr, "mpi_alltoallv: pe %d: %s\n", rank, ry_last_error());
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    rc = compare(&b, ep, routing, iters);
    ry_ep_destroy(ep);
    ry_ctx_destroy(ctx);
    ry_routing_close(routing);
    MPI_Finalize();
    return rc;
}
