/* SPDX-License-Identifier: Apache-2.0 */
/* What `railyard tune` found to be best, by machine and shape.
 *
 * Thread safety: every call may be made from any thread; two writers of one file may lose one of
 * two entries, never the file. */
#ifndef RAILYARD_TUNE_H
#define RAILYARD_TUNE_H

#include <railyard/status.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The shape of an exchange. Texts are not kept; NULL stands for what is left to the machine. */
typedef struct ry_tune_shape {
    const char *mode;      /* "ll" or "ht" */
    const char *dtype;     /* "bf16" or "fp8" */
    const char *nic;       /* backend */
    const char *rails;     /* as RAILYARD_RAILS */
    const char *link_rate; /* as RAILYARD_LINK_RATE */
    const char *device;    /* "host" (as NULL) or "cuda" */
    uint32_t pes, nodes;
    uint32_t tokens, hidden, experts, topk;
} ry_tune_shape;

typedef struct ry_tune_choice {
    uint32_t channels;    /* RAILYARD_CHANNELS */
    uint32_t chunk_bytes; /* RAILYARD_CHUNK */
    uint32_t sms;         /* RAILYARD_SMS, of cuda; 0: all */
    double dispatch_us;   /* medians that were measured with it */
    double combine_us;
} ry_tune_choice;

/* The file: RAILYARD_TUNE_FILE, else $HOME/.config/railyard-tune.json. "" if neither is set. */
RY_API void ry_tune_file(char *path, size_t cap);

/* One line that tells machines apart: processors, GPUs, ports and their rates. */
RY_API void ry_tune_machine(char *text, size_t cap);

/* One line that tells shapes apart. */
RY_API void ry_tune_shape_text(const ry_tune_shape *shape, char *text, size_t cap);

/* The entry of this machine for `shape`. file NULL: ry_tune_file. Errors: NOT_FOUND without file
 * or entry, CONFIG for a file that cannot be read as one. */
RY_API int ry_tune_load(const char *file, const ry_tune_shape *shape, ry_tune_choice *choice);

/* Writes or replaces that entry; others stay. Errors: CONFIG for a file that is something else,
 * SYSTEM if it cannot be written. */
RY_API int ry_tune_store(const char *file, const ry_tune_shape *shape,
                         const ry_tune_choice *choice);

#ifdef __cplusplus
}
#endif
#endif
