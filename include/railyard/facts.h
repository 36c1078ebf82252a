/* SPDX-License-Identifier: Apache-2.0 */
/* Facts: what a machine says about itself, read through one small door.
 *
 * A fact is a small text under a relative path. Paths under sys/, proc/ and etc/ are the files of
 * that name; topology.xml is hwloc's XML; paths under facts/ are made at run time from what no
 * file shows (GPUs through NVML, limits, libraries in sight, settings). A record is a directory,
 * or a set kept in memory, of the same paths, so that a check cannot tell a record from the
 * machine.
 *
 * A record is not trusted: no path leaves it, links and special files in it are not followed, a
 * file is at most RY_FACT_MAX bytes and a folder at most RY_FACT_NAMES names.
 *
 * Thread safety: an object may be used by one thread at a time. */
#ifndef RAILYARD_FACTS_H
#define RAILYARD_FACTS_H

#include <stddef.h>
#include <stdint.h>

#include <railyard/status.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    RY_FACT_MAX = 8 << 20,    /* bytes of one fact */
    RY_FACT_TOTAL = 64 << 20, /* bytes of all facts kept in memory */
    RY_FACT_NAMES = 4096,     /* names of one folder */
    RY_FACT_COUNT = 32768,    /* facts kept in memory */
    RY_FACT_PATH = 240        /* bytes of one path, its end included */
};

typedef struct ry_facts ry_facts;

/* Opens the facts of this machine (root NULL or "/") or of the record directory `root`.
 * The caller owns *out and closes it. Errors: RY_ERR_INVALID if root is not a directory. */
RY_API int ry_facts_open(const char *root, ry_facts **out);

/* An empty set kept in memory, to be filled by ry_facts_put. */
RY_API int ry_facts_open_empty(ry_facts **out);

RY_API void ry_facts_close(ry_facts *facts);

/* True for the facts of this machine, false for a record. */
RY_API int ry_facts_is_live(const ry_facts *facts);

/* Lays `len_bytes` of `data` over `path` (copied). data NULL hides the path and all below it.
 * Errors: RY_ERR_INVALID for a path that is not plain and relative, RY_ERR_NO_MEMORY past a bound.
 */
RY_API int ry_facts_put(ry_facts *facts, const char *path, const void *data, size_t len_bytes);

/* The fact at `path` as a string that the caller frees: trailing white space is cut and a byte 0
 * inside is shown as a space. NULL where there is none, or it cannot be read, or it is too long.
 */
RY_API char *ry_facts_text(ry_facts *facts, const char *path);

/* The fact at `path`, as printf makes it. */
RY_API char *ry_facts_textf(ry_facts *facts, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* 1 if there is a fact or a folder at `path`, else 0. */
RY_API int ry_facts_has(ry_facts *facts, const char *path);

/* The names in the folder `path`, sorted so that x2 comes before x10; the caller frees them with
 * ry_facts_free_names. *names_out is NULL and the result 0 where there is no such folder. */
RY_API unsigned ry_facts_list(ry_facts *facts, const char *path, char ***names_out);
RY_API void ry_facts_free_names(char **names, unsigned count);

/* From now on, each fact that is read from `facts` is also put into `into` (not owned), with
 * addresses, host names and serial numbers taken out. NULL ends it. */
RY_API void ry_facts_record(ry_facts *facts, ry_facts *into);

/* Calls `each` for every fact laid over or kept in memory, in order of path. Stops at the first
 * result that is not 0 and returns it. */
typedef int (*ry_facts_each_fn)(void *arg, const char *path, const void *data, size_t len_bytes);
RY_API int ry_facts_each(const ry_facts *facts, ry_facts_each_fn each, void *arg);

#ifdef __cplusplus
}
#endif

#endif
