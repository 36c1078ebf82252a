/* SPDX-License-Identifier: Apache-2.0 */
/* Talking to a running job of this user on this machine: what `railyard status`, `fault` and
 * `drain` use. A PE listens on an abstract Unix socket and answers one line with a text; the
 * kernel's word says who asks. Any thread. */
#ifndef RAILYARD_ATTACH_H
#define RAILYARD_ATTACH_H

#include <railyard/status.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { RY_ATTACH_REQUEST_MAX = 4096, RY_ATTACH_ANSWER_MAX = 16 << 20 };

typedef struct ry_attach_job {
    uint64_t job;
    uint32_t n_pes; /* that listen on this machine */
    uint32_t *pes;  /* their numbers, ascending */
} ry_attach_job;

/* The jobs of this user that run here, ordered by id. *jobs is the caller's, freed by
 * ry_attach_jobs_free; no job at all is RY_OK and *n_jobs 0. Errors: NO_MEMORY, SYSTEM. */
RY_API int ry_attach_jobs(ry_attach_job **jobs, uint32_t *n_jobs);
RY_API void ry_attach_jobs_free(ry_attach_job *jobs, uint32_t n_jobs);

/* The job that --job names: 16 hexadecimal digits or their first few; NULL or "": the only one that
 * runs. Errors: NOT_FOUND (none, or no such), INVALID (several: the line lists them). */
RY_API int ry_attach_find(const char *text, uint64_t *job);

/* Ask PE `pe` of a job. *answer is malloc'd, ends in NUL and is the caller's. Errors: INVALID (the
 * request has a newline or is too long), NOT_FOUND (no such PE here), TIMEOUT, AUTH (the listener
 * is another user's), PROTOCOL, or the status with which the PE refused; then ry_last_error() has
 * its text. */
RY_API int ry_attach_request(uint64_t job, uint32_t pe, const char *request, uint64_t timeout_ns,
                             char **answer);

#ifdef __cplusplus
}
#endif
#endif
