/* SPDX-License-Identifier: Apache-2.0 */
/* Leaving a reason behind: whoever first sees an error writes its line, once. */
#ifndef RY_HOST_ERROR_H
#define RY_HOST_ERROR_H

#include <railyard/status.h>

enum { RY_ERROR_BYTES = 512 };

/* Sets this thread's ry_last_error() text (one lowercase line: what failed, why, what to do) and
 * returns `status`, so that a failure is one statement: return ry_fail(RY_ERR_CONFIG, "...",
 * ...). */
int ry_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
