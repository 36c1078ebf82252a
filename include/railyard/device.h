/* SPDX-License-Identifier: Apache-2.0 */
/* RDMA devices of this machine, as the kernel shows them: no job is needed. */
#ifndef RAILYARD_DEVICE_H
#define RAILYARD_DEVICE_H

#include <railyard/status.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One port. Texts end in NUL. */
typedef struct ry_device_port {
    char device[64];
    uint32_t port; /* 1-based */
    char firmware[64];
    uint32_t vendor_id, vendor_part_id, hw_ver;
    uint64_t node_guid;
    int up;              /* health: 1 the port is active */
    char state[16];      /* down, init, armed, active, deferred, unknown */
    char link_layer[16]; /* infiniband or ethernet */
    uint32_t max_mtu_bytes, mtu_bytes;
    uint32_t lid, sm_lid;
    uint64_t rate_bps; /* bytes a second, 0 unknown */
    int32_t
        gid_index; /* of the GID that railyard takes; -1: the port has none that it could take */
    uint8_t gid[16];
    int32_t rail;   /* number of the rail that RAILYARD_HCA makes of it; -1: left out */
    int32_t backup; /* rail that stands in for it; -1: none */
} ry_device_port;

/* All ports of all devices. *out is an array of *n that the caller frees with free(). Thread safe.
 * Errors: DEVICE (no device, or none that may be opened), CONFIG (RAILYARD_HCA cannot be read),
 * UNSUPPORTED (built without libibverbs), NO_MEMORY. */
RY_API int ry_device_ports(ry_device_port **out, uint32_t *n);

#ifdef __cplusplus
}
#endif
#endif
