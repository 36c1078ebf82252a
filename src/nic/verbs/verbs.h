/* SPDX-License-Identifier: Apache-2.0 */
/* The libibverbs backend: any RDMA NIC, InfiniBand or RoCE; the host posts. Everything after
 * opening goes through nic.h's ops table.
 *
 * The caller writes WQEs in the core's format into its ring as on any other NIC. kick turns what is
 * new into one ibv_post_send list; drive polls the rail's completion queue and writes the collapsed
 * CQE. So there is one protocol and one failover engine for every backend. */
#ifndef RY_NIC_VERBS_H
#define RY_NIC_VERBS_H

#include <stddef.h>

#include "nic/nic.h"

enum { RY_VERBS_REASON_BYTES = 256 };

/* Who hands requests to the driver: the thread that writes them, or one thread for each rail. */
enum ry_verbs_posters {
    RY_VERBS_POSTERS_AUTO, /* a thread where the driver does the NIC's work, and more rails than one
                            */
    RY_VERBS_POSTERS_OFF,
    RY_VERBS_POSTERS_ON,
};

/* Members are taken as they stand; 0 means "the default" where a default is named. */
struct ry_verbs_cfg {
    uint32_t pe;           /* own number, put into addresses */
    const char *hca;       /* RAILYARD_HCA: "mlx5_0:1,^mlx5_2"; NULL or "": every port */
    uint32_t rails_max;    /* take the first so many of what was selected; all */
    uint32_t mtu_bytes;    /* path MTU, at most the port's active one; the port's */
    int32_t gid_index;     /* < 0: by type, an IPv4 address first */
    uint32_t roce_version; /* of the GID that is looked for: 1 or 2; 2 */
    uint8_t sl;            /* service level */
    uint8_t traffic_class;
    uint16_t pkey; /* wherever it stands in the port's table; 0: the table's first */
    /* One try; rounded up to 4.096 us * 2^n. 4 ms; 67 ms in software, which is late by itself and
     * loses its place in a message of many packets that is sent again. */
    uint64_t retry_ns;
    uint8_t retry_count; /* 7 counts as 6: some devices take it as for ever and never tell */
    uint8_t rnr_retry;   /* receiver not ready */
    /* Told every failure of a call, one lowercase line; NULL: nobody. */
    void (*report)(void *arg, int status, const char *line);
    void *report_arg;
    uint32_t queue_depth; /* work requests of one queue pair inside the NIC; 1024 */
    enum ry_verbs_posters posters;
    bool crowded; /* more PEs than cores: a waiter never polls without a pause */
};

/* Opens every selected port as a rail, in the order of the selection. Errors, each with one line in
 * reason: DEVICE (no device, no permission, no port with an address), CONFIG (a selection that
 * names nothing, an option out of range), SYSTEM, NO_MEMORY. */
int ry_verbs_open(const struct ry_verbs_cfg *cfg, struct ry_nic **out, char *reason,
                  size_t reason_bytes);

/* Why the last call on this NIC failed: one lowercase line, "" if none did. Valid until the next.
 * */
const char *ry_verbs_reason(struct ry_nic *nic);

/* Memory of a GPU, exported as a dmabuf: bytes [offset, offset + len) of fd appear at the address
 * iova. UNSUPPORTED where the driver has no dmabuf. */
int ry_verbs_mr_reg_dmabuf(struct ry_nic *nic, uint32_t rail, int fd, uint64_t offset, uint64_t len,
                           uint64_t iova, struct ry_mr *out);

/* What a port is, for `info`: no rail is opened. */
struct ry_verbs_port {
    char device[RY_NIC_NAME_BYTES];
    uint32_t port, ports;
    char firmware[64];
    uint32_t vendor_id, vendor_part_id, hw_ver;
    uint64_t node_guid;  /* host byte order */
    uint32_t state;      /* enum ibv_port_state: 1 down, 4 active */
    uint32_t link_layer; /* 1 InfiniBand, 2 Ethernet */
    uint32_t mtu_max_bytes, mtu_bytes;
    uint32_t lid, sm_lid;
    uint64_t rate_bps;
    int32_t gid_index; /* -1: none that can be used */
    uint8_t gid[RY_GID_BYTES];
};

/* Fills at most max entries, *count says how many ports there are. DEVICE with a reason if none. */
int ry_verbs_list(struct ry_verbs_port *out, uint32_t max, uint32_t *count, char *reason,
                  size_t reason_bytes);

#endif
