/* SPDX-License-Identifier: Apache-2.0 */
/* Status codes, and what every other public header needs. */
#ifndef RAILYARD_STATUS_H
#define RAILYARD_STATUS_H

#if defined(__GNUC__)
#define RY_API __attribute__((visibility("default")))
#else
#define RY_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* What a call returns: RY_OK or a negative code. Codes are grouped by the largest thing that was lost,
 * so that `status <= RY_ERR_PEER` asks "is the peer gone, or worse?". Outputs are set on RY_OK only. */
typedef enum ry_status {
    RY_OK = 0,

    /* the operation: nothing else is affected */
    RY_ERR_INVALID = -1,     /* an argument is wrong */
    RY_ERR_RANGE = -2,       /* an address or index lies outside what it indexes */
    RY_ERR_ACCESS = -3,      /* a key does not allow this access */
    RY_ERR_NOMEM = -4,       /* no memory, or the heap is too small */
    RY_ERR_AGAIN = -5,       /* not now, the same call may succeed later */
    RY_ERR_TIMEOUT = -6,     /* the deadline passed */
    RY_ERR_UNSUPPORTED = -7, /* this build, device or mode cannot do it */
    RY_ERR_CANCELED = -8,    /* given up before it ran */

    /* a path: other paths of the channel still work */
    RY_ERR_PATH = -20,        /* the queue pair failed */
    RY_ERR_PATH_SILENT = -21, /* no completion came in time */
    RY_ERR_PATH_CLOSED = -22, /* the ring is closed by a move */

    /* a rail: every path over this port */
    RY_ERR_RAIL = -40,      /* the port or its NIC failed */
    RY_ERR_RAIL_NONE = -41, /* there is no such rail */

    /* a peer: every path to this PE */
    RY_ERR_PEER = -60,        /* the peer is lost or masked */
    RY_ERR_PEER_NOPATH = -61, /* no path to the peer came back in time */
    RY_ERR_PEER_CONFIG = -62, /* the peer's configuration contradicts ours */
    RY_ERR_PEER_AUTH = -63,   /* the peer does not know the job's secret */

    /* the context: nothing can be done with it but to finalize it */
    RY_ERR_CONTEXT = -80,  /* a promise of the library was broken */
    RY_ERR_SYSTEM = -81,   /* the operating system refused a resource */
    RY_ERR_BOOTSTRAP = -82 /* the job could not be formed */
} ry_status;

/* One lowercase English phrase for a status, e.g. "timed out". Never NULL, also for numbers that are no
 * status. Static text, not to be freed. Thread safe. */
RY_API const char *ry_status_text(int status);

/* The library's version, "major.minor.patch". Static text. Thread safe. */
RY_API const char *ry_version(void);

#ifdef __cplusplus
}
#endif

#endif
