/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the verbs backend share. Locks, outermost first:
 *
 *   rail.cq_lock   the completion queue and the table of queue pairs
 *   qp.lock        posting to one queue pair; held as long as the driver takes, so that whoever
 *                  polls does without it
 *   poster.lock    what the rail's posting thread has to do
 *   qp.cqe_lock    writing the one CQE of a queue pair
 *
 * Control calls (nic.h) come from one thread at a time and take a lock only for what kick and drive
 * touch too. */
#ifndef RY_NIC_VERBS_INT_H
#define RY_NIC_VERBS_INT_H

#include <infiniband/verbs.h>
#include <pthread.h>

#include "nic/verbs/verbs.h"
#include "railyard/status.h"

enum {
    RY_VERBS_DEVICES = 64,
    RY_VERBS_BATCH = 32, /* work requests handed over in one call */
    RY_VERBS_POLL = 32,  /* completions taken in one call */
    RY_VERBS_CQ_MAX = 32768,
    RY_VERBS_QPN_MEMORY = 64, /* queue pair numbers not to be met again soon */
    RY_VERBS_RD_ATOMIC = 16,
    RY_VERBS_ASKED = 16, /* peers whose link address is being asked for */
    RY_VERBS_SMALL_BYTES = 16 << 10,
};

/* wr_id: bits 0..31 ring index, 32..55 slot in the rail's table, 63 the drain's last request. */
#define RY_VERBS_DRAIN     (1ull << 63)
#define RY_VERBS_SLOT_MASK 0xffffffu

#define RY_VERBS_FLUSH_NS_MAX 500000000ull /* then RESET instead of waiting for flushes */

struct ry_verbs_nic;
struct ry_verbs_rail;

struct ry_nic_qp {
    struct ry_verbs_rail *rail;
    struct ibv_qp *qp;
    enum ry_qp_kind kind;
    uint32_t slot, psn, peer;
    uint32_t depth; /* of the ring */
    uint32_t room;  /* work requests that the NIC takes */
    struct ry_wqe *ring;
    struct ry_cqe *cqe;
    pthread_mutex_t lock;
    uint32_t want;        /* atomic: ring index behind the newest request, as the caller says */
    uint32_t posted;      /* atomic, written under lock: handed over, or being so */
    uint32_t unsignalled; /* under lock */
    uint32_t retired;     /* atomic, the poller's: behind the newest request whose end is known */
    uint32_t failed;      /* atomic: nothing is posted any more */
    uint32_t draining;    /* control thread: the drain's last request was posted */
    uint32_t drained;     /* atomic: the drain's last request came back */
    pthread_mutex_t cqe_lock;
    uint32_t told; /* under cqe_lock: an error CQE was written */
    /* under the lock of the rail's poster */
    struct ry_nic_qp *next_given;
    bool given;        /* stands in its list */
    uint64_t tx_bytes; /* under cq_lock, like all that the poller counts */
    /* control thread */
    uint64_t error_ns; /* when qp_error was called, 0 never */
    pthread_t worker;  /* moves the queue pair to RESET */
    int worker_runs;
    int worker_rc;
    uint32_t worker_done;
};

struct ry_verbs_mr {
    struct ibv_mr *mr;
    struct ry_verbs_mr *next;
};

/* A peer whose link address the kernel was asked for. */
struct ry_verbs_asked {
    uint8_t gid[RY_GID_BYTES];
    uint64_t at_ns;
};

/* The thread that posts for a rail, where there is one. */
struct ry_verbs_poster {
    pthread_t thread;
    bool runs; /* set before the rail is used */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* under lock */
    struct ry_nic_qp *first, *last; /* queue pairs with something to post */
    struct ry_nic_qp *at;           /* the one that it is posting to */
    uint32_t forgets;               /* threads that wait until it has left theirs */
    bool stop;
    uint64_t long_ns; /* atomic: when it was given something long */
};

struct ry_verbs_rail {
    struct ry_verbs_nic *nic;
    struct ibv_context *ctx;
    uint32_t index, device, port;
    char name[RY_NIC_NAME_BYTES];
    struct ibv_device_attr dev;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel; /* tells a sleeper of completions, once it has asked */
    struct ibv_cq *cq;
    uint32_t budget;   /* requests that may be in flight so that the CQ cannot overflow */
    uint32_t inflight; /* atomic */
    uint32_t waiting;  /* atomic: queue pairs that want to post and had no room */
    union ibv_gid gid; /* control thread: the one that was found last */
    struct ry_verbs_asked asked[RY_VERBS_ASKED]; /* control thread */
    uint32_t asked_next;
    uint16_t pkey_index;
    pthread_mutex_t cq_lock;
    struct ry_nic_qp **qps;
    uint32_t qps_len;
    uint64_t *sent_gone; /* [sent_len] to each peer, by queue pairs that are gone; under cq_lock */
    uint32_t sent_len;
    struct ry_verbs_mr *mrs;
    uint32_t old_qpn[RY_VERBS_QPN_MEMORY];
    uint32_t old_next;
    struct ry_verbs_poster poster;
    struct ry_rail_counters counters; /* atomic */
};

struct ry_verbs_nic {
    struct ry_nic base;
    struct ry_verbs_cfg cfg;
    struct ibv_context *devices[RY_VERBS_DEVICES];
    uint32_t devices_len;
    struct ry_verbs_rail rails[RY_RAILS_MAX];
    uint32_t rails_len;
    int epoll_fd;                         /* asynchronous events */
    int work_fd, wake_fd;                 /* completions that were asked for and wake; wake alone */
    uint64_t idle_last_ns, idle_since_ns; /* atomic: last call of idle; when this wait began */
    uint64_t busy_ns; /* atomic: last time at which something was posted or completed */
    uint64_t random;
    char reason[RY_VERBS_REASON_BYTES];
};

/* port.c */
uint32_t ry_verbs_mtu_bytes(enum ibv_mtu mtu);
enum ibv_mtu ry_verbs_mtu_of(uint32_t bytes);
uint64_t ry_verbs_rate_bps(uint8_t width, uint32_t speed);
uint8_t ry_verbs_timeout(uint64_t ns);
uint64_t ry_verbs_retry_ns(const struct ry_verbs_rail *r);
/* How good an address is on Ethernet: 3 IPv4, 2 a global IPv6, 1 link local, 0 none. */
int ry_verbs_gid_rank(const struct ibv_gid_entry *e);
int ry_verbs_find_gid(const struct ry_verbs_cfg *cfg, struct ibv_context *ctx, uint32_t port,
                      uint32_t link_layer, union ibv_gid *gid, uint32_t *index);
int ry_verbs_find_pkey(struct ibv_context *ctx, uint32_t port, uint16_t pkey, uint16_t *index);
int ry_verbs_rail_info(struct ry_nic *nic, uint32_t rail, struct ry_rail_info *info);
enum ry_port_state ry_verbs_rail_state(struct ry_nic *nic, uint32_t rail);

/* mr.c */
int ry_verbs_mr_reg(struct ry_nic *nic, uint32_t rail, void *base, uint64_t len_bytes, bool remote,
                    struct ry_mr *out);
int ry_verbs_mr_dereg(struct ry_nic *nic, uint32_t rail, struct ry_mr mr);
int ry_verbs_rail_cut(struct ry_nic *nic, uint32_t rail);

/* resolve.c: is the peer's address known to the kernel, so that connecting will not block? AGAIN:
 * it is being asked for; PATH: nobody answers. */
int ry_verbs_resolve(struct ry_verbs_rail *r, uint32_t gid_index, const union ibv_gid *gid,
                     const uint8_t *peer_gid);

/* qp.c */
int ry_verbs_qp_create(struct ry_nic *nic, const struct ry_qp_attr *attr, struct ry_nic_qp **out,
                       struct ry_qp_addr *addr);
int ry_verbs_qp_connect(struct ry_nic_qp *qp, const struct ry_qp_addr *remote);
void ry_verbs_qp_destroy(struct ry_nic_qp *qp);

/* fence.c */
int ry_verbs_qp_error(struct ry_nic_qp *qp);
int ry_verbs_qp_flushed(struct ry_nic_qp *qp);
int ry_verbs_qp_fence_begin(struct ry_nic_qp *qp);
int ry_verbs_qp_fence_poll(struct ry_nic_qp *qp);
void ry_verbs_worker_join(struct ry_nic_qp *qp);

/* post.c */
/* One WQE as a work request; sge and wr belong together. 0, or the syndrome with which the NIC
 * would refuse it. */
uint8_t ry_verbs_translate(const struct ry_wqe *w, uint32_t index, uint32_t slot,
                           struct ibv_send_wr *wr, struct ibv_sge *sge);
void ry_verbs_kick(struct ry_nic_qp *qp, uint32_t prod_idx);
/* Requests of which the driver may be told by whoever writes them, also where a thread posts. */
bool ry_verbs_small(const struct ry_nic_qp *qp, uint32_t from, uint32_t to);
/* Hands over what is wanted and has room; qp->lock is held. */
void ry_verbs_post(struct ry_nic_qp *qp);

/* poster.c */
bool ry_verbs_in_software(const struct ibv_device_attr *dev);
/* Threads for the rails that profit from one, or for all of them if that is asked for. */
int ry_verbs_posters_start(struct ry_verbs_nic *n);
int ry_verbs_poster_start(struct ry_verbs_rail *r);
void ry_verbs_poster_stop(struct ry_verbs_rail *r);
/* Has it been given something long of late, which the driver may still be at work for? */
bool ry_verbs_poster_busy(const struct ry_verbs_rail *r, uint64_t now_ns);
/* There is something to post. */
void ry_verbs_poster_give(struct ry_nic_qp *qp);
/* The queue pair goes: returns when the thread is not at it and will not come back to it. */
void ry_verbs_poster_forget(struct ry_nic_qp *qp);

/* poll.c */
uint8_t ry_verbs_syndrome(enum ibv_wc_status status, uint8_t opcode);
void ry_verbs_write_cqe(struct ry_nic_qp *qp, uint32_t index, uint8_t syndrome, uint8_t vendor);
/* Take what has completed. *busy: something is under way. True when there was any. */
bool ry_verbs_look(struct ry_verbs_nic *n, uint64_t now_ns, bool *busy);
uint64_t ry_verbs_drive(struct ry_nic *nic, uint64_t now_ns);

/* event.c */
int ry_verbs_poll_event(struct ry_nic *nic, struct ry_nic_event *ev);
int ry_verbs_event_fd(struct ry_nic *nic);
void ry_verbs_idle(struct ry_nic *nic, uint64_t until_ns);
void ry_verbs_wake(struct ry_nic *nic);
uint64_t ry_verbs_now(void);

/* Leaves the reason in the NIC and returns status. */
int ry_verbs_fail(struct ry_verbs_nic *n, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static inline struct ry_verbs_nic *ry_verbs_of(struct ry_nic *nic)
{
    return (struct ry_verbs_nic *)nic; /* base is its first member */
}

#endif
