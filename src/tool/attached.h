/* SPDX-License-Identifier: Apache-2.0 */
/* Asking the PEs of a running job: what `status`, `fault`, `drain` and `undrain` share. */
#ifndef RY_TOOL_ATTACHED_H
#define RY_TOOL_ATTACHED_H

#include <railyard/attach.h>
#include <stdbool.h>

#include "record.h"

enum { ATTACHED_WORD = 64 };

struct attached_rail {
    uint32_t rail, nic;
    char name[ATTACHED_WORD], state[16];
    uint64_t rate_bps, tx_bytes, rx_bytes;
};

struct attached_sent {
    uint32_t peer, rail;
    uint64_t bytes;
    double share; /* that the rail is meant to carry */
};

struct attached_path {
    uint32_t peer, channel, slot, rail, peer_rail;
    char health[16], use[16], role[16];
    uint64_t epoch, moves, replayed;
    double last_switch_us, since_s;
};

struct attached_pe {
    uint32_t pe, pes, node, nodes;
    uint32_t n_rails, n_sent, n_paths;
    struct attached_rail *rails;
    struct attached_sent *sent; /* by peer, then by rail */
    struct attached_path *paths;
};

struct attached_job {
    uint64_t id;
    uint32_t n_pes; /* that answered, on this machine */
    struct attached_pe *pes;
};

/* Finds the job that `text` names (NULL: the only one). Prints the error. */
int attached_find(const char *command, const char *text, ry_attach_job *job);
/* One request to one PE; prints the error. *answer is the caller's. */
int attached_ask(const char *command, const ry_attach_job *job, uint32_t pe, const char *request,
                 char **answer);

/* The state of all PEs that answer. */
int attached_read(const char *command, const ry_attach_job *job, struct attached_job *out);
void attached_free(struct attached_job *job);

/* From the text of one answer; false if it makes no sense. */
bool attached_parse(const char *text, struct attached_pe *out);

#endif
