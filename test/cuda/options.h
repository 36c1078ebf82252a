/* SPDX-License-Identifier: Apache-2.0 */
/* What the GPU programs read from their command line and environment, and how they begin. */
#ifndef RY_TEST_CUDA_OPTIONS_H
#define RY_TEST_CUDA_OPTIONS_H

#include <stdint.h>

struct options {
    int devices;    /* 0: there is no GPU, which was printed; at most 2 */
    uint32_t count; /* first argument */
    int32_t *ids;   /* recorded routing, [n_ids][topk]; NULL: none */
    uint32_t n_ids, topk, experts;
};

/* PROGRAM [COUNT [IDS_FILE TOPK EXPERTS]]. Sets what CUDA must know before its first call. */
struct options options_read(int argc, char **argv, uint32_t count);

/* RY_TEST_HANDLER: who rings doorbells, enum ry_handler. */
uint32_t options_handler(void);

#endif
