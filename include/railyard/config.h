/* SPDX-License-Identifier: Apache-2.0 */
/* Settings as a program sees them, and the units that all of railyard takes.
 *
 * Thread safety: every call may be made from any thread; those that read the environment must not
 * race with setenv. */
#ifndef RAILYARD_CONFIG_H
#define RAILYARD_CONFIG_H

#include <railyard/status.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Sizes: bytes, with K, M, G or T = powers of 1024 ("64K", "1.5G"). Rates: bytes a second, with
 * decimal prefixes: "100MB/s" is 1e8, "400Gb/s" (bits) is 5e10, 0 or "unlimited" is 0. Times: ns,
 * us, ms, s, m or h ("50ms"); 0 needs no unit. Errors: INVALID, and ry_last_error() says what was
 * wrong. */
RY_API int ry_parse_size(const char *text, uint64_t *bytes);
RY_API int ry_parse_rate(const char *text, uint64_t *bytes_per_s);
RY_API int ry_parse_time(const char *text, uint64_t *ns);

/* The shortest text that parses to the same value; writes at most cap bytes, NUL included. */
RY_API void ry_format_size(uint64_t bytes, char *buf, size_t cap);
RY_API void ry_format_rate(uint64_t bytes_per_s, char *buf, size_t cap);
RY_API void ry_format_time(uint64_t ns, char *buf, size_t cap);

/* The settings in effect as a valid configuration file: every setting with its help; those at their
 * default are commented out. `settings` as in ry_ctx_attr. *text is malloc'd and the caller's, and
 * so is *warnings (lines, may be empty). Errors: CONFIG, NO_MEMORY. */
RY_API int ry_config_text(const char *const *settings, uint32_t n_settings, char **text,
                          char **warnings);

/* One setting: its name in the environment, form ("time", "on, off"), default and help; value and
 * source as they are in effect. Static strings but for value and source, which live in the struct.
 */
typedef struct ry_setting_info {
    const char *name;
    const char *group; /* the heading it stands under; NULL: that of the one before */
    const char *initial;
    const char *alias; /* another library's name that is accepted, or NULL */
    const char *help;
    int job_wide; /* must be the same on all PEs */
    int launch;   /* a variable that launchers set; not in the configuration file */
    char form[128];
    char value[1024];
    char source[320]; /* "default", "environment", "NVSHMEM_QP_DEPTH", the file's name, ... */
} ry_setting_info;

/* *list is malloc'd and the caller's. Errors: CONFIG, NO_MEMORY. */
RY_API int ry_config_list(const char *const *settings, uint32_t n_settings, ry_setting_info **list,
                          uint32_t *n_list);

#ifdef __cplusplus
}
#endif
#endif
