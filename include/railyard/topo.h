/* SPDX-License-Identifier: Apache-2.0 */
/* Topology: which NIC ports a GPU should use, and what stands in for each when it dies.
 *
 * Distances are those that `nvidia-smi topo -m` prints. A port is one physical port of one RDMA
 * device; ports and GPUs are numbered from 0 in the order of their names and of NVML. Loading
 * reads facts once; afterwards an object never changes and may be read by any number of threads.
 */
#ifndef RAILYARD_TOPO_H
#define RAILYARD_TOPO_H

#include <stddef.h>
#include <stdint.h>

#include <railyard/facts.h>
#include <railyard/status.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    RY_TOPO_GPUS = 64,   /* GPUs of one machine, at most */
    RY_TOPO_PORTS = 256, /* ports of one machine, at most */
    RY_TOPO_RAILS = 16   /* rails of one GPU, at most */
};

typedef enum ry_distance {
    RY_DISTANCE_SELF = 0, /* the same device */
    RY_DISTANCE_PIX,      /* at most one PCIe bridge between them */
    RY_DISTANCE_PXB,      /* several PCIe bridges, no host bridge */
    RY_DISTANCE_PHB,      /* a PCIe host bridge */
    RY_DISTANCE_NODE,     /* several host bridges of one NUMA node */
    RY_DISTANCE_SYS       /* the link between NUMA nodes */
} ry_distance;

typedef struct ry_topo_gpu {
    uint32_t index;       /* as NVML numbers it */
    char name[64];        /* product name, "GPU" if unknown */
    char bus[24];         /* PCI address, dddd:bb:dd.f */
    char cpus[128];       /* nearest CPUs, as a Linux list */
    int32_t numa;         /* nearest NUMA node, -1 if unknown */
    uint32_t sm;          /* 90 for compute capability 9.0; 0 if unknown */
    uint32_t shared_with; /* how many other GPUs use one of its ports */
} ry_topo_gpu;

typedef enum ry_link_layer {
    RY_LINK_UNKNOWN = 0,
    RY_LINK_INFINIBAND,
    RY_LINK_ETHERNET
} ry_link_layer;

typedef enum ry_exclusion {
    RY_EXCLUDED_NOT = 0,
    RY_EXCLUDED_BY_USER, /* by `hca` of the options */
    RY_EXCLUDED_VIRTUAL  /* a virtual function beside the card it belongs to, which is used itself
                          */
} ry_exclusion;

typedef struct ry_topo_port {
    char device[40];       /* RDMA device, for example mlx5_0 */
    char bus[24];          /* PCI address of the function */
    char cpus[128];        /* nearest CPUs, as a Linux list */
    uint32_t nic;          /* number of the RDMA device, in order of names */
    uint32_t card;         /* functions of one card have the same number */
    uint32_t port;         /* 1.. within the device */
    uint32_t device_ports; /* ports of that device */
    int32_t numa;          /* -1 if unknown */
    uint32_t rate_mbps;    /* 0 if unknown */
    ry_link_layer layer;
    uint8_t active;     /* state ACTIVE, or no state to be read */
    uint8_t is_virtual; /* a virtual function */
    uint8_t is_bond;    /* a bond of ports, shown as one device */
    uint8_t excluded;   /* why it may not be used, see ry_exclusion */
} ry_topo_port;

/* What the user wants instead of the nearest; a zeroed one asks for nothing. */
typedef struct ry_topo_options {
    const char *hca;         /* as RAILYARD_HCA: "mlx5_0:1,mlx5_3", or "^mlx5_2" to leave out */
    const char *gpu_nic_map; /* as RAILYARD_GPU_NIC_MAP: "0:mlx5_0:1,0:mlx5_1:1,1:mlx5_2" */
} ry_topo_options;

typedef struct ry_topo ry_topo;

/* Loads the topology of this machine (root NULL) or of the record directory `root`.
 * The caller owns *out. Errors: RY_ERR_INVALID for a record that cannot be read as one,
 * RY_ERR_INVALID for options that name a device that is not there or cannot be parsed;
 * `why` (may be NULL) then holds one line that says what and where. */
RY_API int ry_topo_load(const char *root, const ry_topo_options *options, ry_topo **out, char *why,
                        size_t why_bytes);

/* The same from facts that are already open; `facts` is not kept. */
RY_API int ry_topo_from_facts(ry_facts *facts, const ry_topo_options *options, ry_topo **out,
                              char *why, size_t why_bytes);

RY_API void ry_topo_free(ry_topo *topo);

RY_API uint32_t ry_topo_gpu_count(const ry_topo *topo);
RY_API uint32_t ry_topo_port_count(const ry_topo *topo);
RY_API uint32_t ry_topo_numa_count(const ry_topo *topo);

/* Entry i, or NULL past the last; owned by topo. */
RY_API const ry_topo_gpu *ry_topo_gpu_at(const ry_topo *topo, uint32_t i);
RY_API const ry_topo_port *ry_topo_port_at(const ry_topo *topo, uint32_t i);

/* Distances. Two ports of one card are RY_DISTANCE_PIX apart. */
RY_API ry_distance ry_topo_gpu_port(const ry_topo *topo, uint32_t gpu, uint32_t port);
RY_API ry_distance ry_topo_gpu_gpu(const ry_topo *topo, uint32_t a, uint32_t b);
RY_API ry_distance ry_topo_port_port(const ry_topo *topo, uint32_t a, uint32_t b);

/* NVLinks between two GPUs, through a switch or not; 0 if none. */
RY_API uint32_t ry_topo_nvlinks(const ry_topo *topo, uint32_t a, uint32_t b);

/* "X", "PIX", ... */
RY_API const char *ry_distance_name(ry_distance distance);

/* The number of the port "device" or "device:port", or -1. */
RY_API int32_t ry_topo_find_port(const ry_topo *topo, const char *name);

/* Rails of a GPU, the order being that of its rail numbers. Returns how many there are and writes
 * at most `cap` of them. Nearest first by PCIe distance; equally near GPUs split equally near
 * ports. */
RY_API uint32_t ry_topo_rails_for_gpu(const ry_topo *topo, uint32_t gpu, uint32_t *ports,
                                      uint32_t cap);

typedef enum ry_backup_why {
    RY_BACKUP_NONE = 0,  /* there is no other port that the GPU may use */
    RY_BACKUP_SAME_CARD, /* another port of the same card */
    RY_BACKUP_NEAREST,   /* a nearest port of another card */
    RY_BACKUP_NEIGHBOUR  /* the same, several being equally near: the neighbour in number (i xor 1)
                          */
} ry_backup_why;

/* What stands in when rail `port` of `gpu` dies. `port` need not be one of the GPU's rails. On
 * RY_BACKUP_NONE *backup is not set. Only active ports with the same link layer are taken. */
RY_API ry_backup_why ry_topo_backup(const ry_topo *topo, uint32_t gpu, uint32_t port,
                                    uint32_t *backup);

/* What is wrong with the machine as far as rails go, one entry a finding. */
typedef enum ry_topo_issue_kind {
    RY_TOPO_FEWER_PORTS,   /* fewer usable ports than GPUs */
    RY_TOPO_SHARED_PORT,   /* two GPUs use one port */
    RY_TOPO_SHARED_NIC,    /* two GPUs use the same card, each a port of it */
    RY_TOPO_NO_RAIL,       /* a GPU has no port at all */
    RY_TOPO_NO_BACKUP,     /* a rail has no backup */
    RY_TOPO_UNUSED_PORT,   /* a usable port that no GPU uses */
    RY_TOPO_DOWN_PORT,     /* a port that is not active */
    RY_TOPO_UNEQUAL_RATES, /* rails of one GPU, or of several, differ in rate */
    RY_TOPO_FAR            /* a rail is on another NUMA node than its GPU */
} ry_topo_issue_kind;

typedef struct ry_topo_issue {
    ry_topo_issue_kind kind;
    int32_t gpu;    /* -1 where none is meant */
    int32_t port;   /* -1 where none is meant */
    char text[200]; /* one lowercase line */
} ry_topo_issue;

RY_API uint32_t ry_topo_issue_count(const ry_topo *topo);
RY_API const ry_topo_issue *ry_topo_issue_at(const ry_topo *topo, uint32_t i);

/* "fewer-ports", "shared-port", ... */
RY_API const char *ry_topo_issue_name(ry_topo_issue_kind kind);

#ifdef __cplusplus
}
#endif

#endif
