/* SPDX-License-Identifier: Apache-2.0 */
/* A job whose PEs are threads of the test: every PE runs `body` with a context of its own. */
#ifndef RY_TEST_THREADS_H
#define RY_TEST_THREADS_H

#include <pthread.h>
#include <railyard/heap.h>
#include <railyard/rma.h>
#include <stdio.h>
#include <stdlib.h>

struct ry_test_pe {
    ry_hub *hub;
    uint32_t pe;
    const char *const *settings;
    uint32_t n_settings;
    void (*body)(ry_ctx *ctx, void *arg);
    void *arg;
    int rc;
    char error[512];
};

static inline void *ry_test_pe_main(void *arg)
{
    struct ry_test_pe *t = arg;
    ry_ctx_attr attr = {
        .hub = t->hub, .hub_pe = t->pe, .settings = t->settings, .n_settings = t->n_settings};
    ry_ctx *ctx = NULL;

    t->rc = ry_ctx_create(&attr, &ctx);
    snprintf(t->error, sizeof(t->error), "%s", t->rc ? ry_last_error() : "");
    if (t->rc == RY_OK)
        t->body(ctx, t->arg);
    ry_ctx_destroy(ctx);
    return NULL;
}

/* Worst status of ry_ctx_create over all PEs. The body checks with RY_CHECK. */
static inline int ry_test_job(uint32_t n_pes, uint32_t n_nodes, const char *const *settings,
                              uint32_t n_settings, void (*body)(ry_ctx *, void *), void *arg)
{
    struct ry_test_pe pe[64] = {{0}};
    pthread_t thread[64];
    ry_hub *hub = NULL;
    int worst = ry_hub_create(n_pes, n_nodes, &hub);

    if (worst)
        return worst;
    for (uint32_t i = 0; i < n_pes; i++) {
        pe[i] = (struct ry_test_pe){hub, i, settings, n_settings, body, arg, 0, ""};
        pthread_create(&thread[i], NULL, ry_test_pe_main, &pe[i]);
    }
    for (uint32_t i = 0; i < n_pes; i++) {
        pthread_join(thread[i], NULL);
        if (pe[i].rc) {
            fprintf(stderr, "pe %u: %s\n", i, pe[i].error);
            worst = pe[i].rc;
        }
    }
    ry_hub_destroy(hub);
    return worst;
}

/* cmocka's assertions belong to the main thread: PEs end the program instead. */
#define RY_CHECK(cond)                                                                             \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: %s does not hold (%s)\n", __FILE__, __LINE__, #cond,           \
                    ry_last_error());                                                              \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#endif
