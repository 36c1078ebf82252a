/* SPDX-License-Identifier: Apache-2.0 */
/* How evenly the rails carry what one PE sends to one other. */
#ifndef RY_TOOL_BALANCE_H
#define RY_TOOL_BALANCE_H

#include "start.h"

/* A pair that has sent less says nothing: a message or two make all the difference. */
enum { BALANCE_LEAST_BYTES = 1 << 20 };

struct ry_balance {
    uint32_t pairs;       /* that were judged */
    uint32_t pe, peer;    /* of the worst */
    uint32_t least, most; /* its rails */
    double worst; /* 0: as meant; 0.05: one rail carried 5 % less of its part than another */
};

/* bytes and share of n rails, as ry_sent_to has them. */
void ry_balance_add(struct ry_balance *b, uint32_t pe, uint32_t peer, const uint64_t *bytes,
                    const double *share, uint32_t n);
/* All pairs of a run; lost PEs are left out. */
void ry_balance_run(struct ry_balance *b, const struct ry_run *run);
/* [{pe, peer, bytes[]}], a number for each rail of pe; pairs that used no NIC are left out. */
json_t *ry_pairs_json(const struct ry_run *run);
/* One line, or nothing where no pair was judged. */
void ry_balance_print(const struct ry_balance *b);

#endif
