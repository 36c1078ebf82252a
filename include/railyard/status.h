/* SPDX-License-Identifier: Apache-2.0 */
/* Status codes. Every function that can fail returns 0 or a negative ry_status; outputs are set
 * only on success. Codes are grouped by the largest thing that was lost: operation < path < rail <
 * peer < context. */
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

enum ry_status {
    RY_OK = 0,
    /* nothing lost: try again, or the call was wrong */
    RY_ERR_AGAIN = -1,       /* not yet; call again */
    RY_ERR_INVALID = -2,     /* an argument is out of its documented range */
    RY_ERR_NO_MEMORY = -3,   /* memory, heap or descriptors ran out */
    RY_ERR_UNSUPPORTED = -4, /* not in this build or not on this device */
    RY_ERR_EXISTS = -5,
    RY_ERR_NOT_FOUND = -6,
    RY_ERR_BUSY = -7,
    /* one operation */
    RY_ERR_TIMEOUT = -20,       /* its deadline passed; it may still complete */
    RY_ERR_LOCAL_ACCESS = -21,  /* bad local key or bounds */
    RY_ERR_REMOTE_ACCESS = -22, /* bad remote key or bounds */
    RY_ERR_REQUEST = -23,       /* the NIC refuses the request itself */
    /* a path */
    RY_ERR_PATH = -40,
    /* a rail */
    RY_ERR_RAIL = -60,
    /* a peer */
    RY_ERR_UNREACHABLE = -80, /* no usable path to the peer within the time-out */
    RY_ERR_PEER_LOST = -81,   /* the peer was agreed to be lost, and is masked */
    /* the context */
    RY_ERR_CONFIG = -100,   /* setting, file or contradiction between PEs */
    RY_ERR_AUTH = -101,     /* wrong job secret */
    RY_ERR_PROTOCOL = -102, /* a bootstrap or control message that makes no sense */
    RY_ERR_SYSTEM = -103,   /* the operating system refused */
    RY_ERR_DEVICE = -104,   /* no device, or the device refused */
    RY_ERR_STALLED = -105,  /* another initiator stopped in mid-submit */
    RY_ERR_LAUNCH = -106,   /* another PE ended while starting */
};

/* Name and meaning of a status, static strings, never NULL. Thread safe. */
RY_API const char *ry_status_name(int status);
RY_API const char *ry_status_text(int status);

/* Text of the last error that this thread saw: one lowercase line, empty if none; valid until the
 * thread's next railyard call. */
RY_API const char *ry_last_error(void);

/* Library version "major.minor.patch". */
RY_API const char *ry_version(void);
/* What this build was made with and what it lacks: "libibverbs 1.14, pmix 4.2, no cuda". */
RY_API const char *ry_build(void);

#ifdef __cplusplus
}
#endif
#endif
