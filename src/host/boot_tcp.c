/* SPDX-License-Identifier: Apache-2.0 */
/* Bootstrap with torchrun's variables: PE 0 is the meeting point, in a thread of its own.
 *
 * Its port is RAILYARD_BOOT_PORT, else the first free one from MASTER_PORT on (PyTorch's own store
 * may sit on MASTER_PORT itself). The others try the same ports until one answers with this job's
 * greeting. */
#include <railyard/status.h>

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/boot_env.h"
#include "host/boot_host.h"
#include "host/clock.h"
#include "host/error.h"
#include "host/wire.h"

enum { PORTS = 16, PROBE_MS = 300, RETRY_MS = 50 };

struct tcp_env {
    const char *addr;
    uint32_t port, n_ports; /* tried one after the other */
    uint32_t pe, n_pes, n_nodes;
    uint64_t job;
    struct ry_secret secret;
};

/* What all PEs of one start have in common, and other starts have not. */
static void rendezvous(struct tcp_env *e, const char *port)
{
    static const struct ry_secret fixed = {"railyard job"};
    const char *run = getenv("TORCHELASTIC_RUN_ID"), *secret = getenv("RAILYARD_SECRET");
    const char *again = getenv("TORCHELASTIC_RESTART_COUNT");
    char text[512];
    uint8_t mac[RY_MAC_BYTES];

    snprintf(text, sizeof(text), "%.200s %.16s %.200s %.16s", e->addr, port, run ? run : "",
             again ? again : "");
    ry_secret_from_text(secret && *secret ? secret : text, &e->secret);
    const struct ry_mac_part part = {text, strlen(text)};

    ry_mac(&fixed, &part, 1,
           mac); /* the name of the job is no secret: a wrong one is told as such */
    e->job = ry_get64(mac);
}

static int read_env(struct tcp_env *e)
{
    const char *port = getenv("MASTER_PORT");
    int rc = ry_env_u32("WORLD_SIZE", 1, RY_WIRE_PES_MAX, &e->n_pes);

    if (rc >= 0)
        rc = rc == 0 ? 0 : ry_env_u32("RANK", 0, e->n_pes - 1, &e->pe);
    e->addr = getenv("MASTER_ADDR");
    if (rc < 0)
        return rc;
    if (rc == 0 || !e->addr || !*e->addr)
        return ry_fail(RY_ERR_CONFIG,
                       "MASTER_ADDR, RANK and WORLD_SIZE are not all set: start this "
                       "with railyard run, mpirun or torchrun");
    e->port = 29500;
    rc = ry_env_u32("MASTER_PORT", 1, 65535, &e->port);
    if (rc < 0)
        return rc;
    e->n_ports = e->port + PORTS <= 65536 ? PORTS : 65536 - e->port;
    if (getenv("TORCHELASTIC_RUN_ID") && e->n_ports > 1) { /* PyTorch's store has the first */
        e->port++;
        e->n_ports--;
    }
    rc = ry_env_u32("RAILYARD_BOOT_PORT", 1, 65535, &e->port);
    if (rc == 1)
        e->n_ports = 1;
    if (rc >= 0)
        rc = ry_env_u32("RAILYARD_NODES", 1, e->n_pes, &e->n_nodes);
    rendezvous(e, port ? port : "");
    return rc < 0 ? rc : RY_OK;
}

static int resolve(const struct tcp_env *e, uint32_t port, struct addrinfo **out)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    char text[8];

    snprintf(text, sizeof(text), "%u", port);
    int rc = getaddrinfo(e->addr, text, &hints, out);

    if (rc != 0)
        return ry_fail(RY_ERR_CONFIG, "MASTER_ADDR: cannot find '%.200s': %s", e->addr,
                       gai_strerror(rc));
    return RY_OK;
}

static int listen_at(const struct sockaddr *a, socklen_t len)
{
    const int on = 1;
    int fd = socket(a->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, a, len) == 0 && listen(fd, 1024) == 0)
        return fd;
    int cause = errno;

    close(fd);
    errno = cause;
    return -1;
}

/* At MASTER_ADDR itself where that is an address of this machine, else at all its addresses. */
static int listen_port(const struct tcp_env *e, uint32_t port)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct sockaddr_in6 any6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    struct addrinfo *list = NULL;
    int fd = -1;

    if (resolve(e, port, &list) == RY_OK) {
        for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next)
            fd = listen_at(a->ai_addr, a->ai_addrlen);
        freeaddrinfo(list);
    }
    if (fd < 0 && errno == EADDRNOTAVAIL) {
        fd = listen_at((struct sockaddr *)&any6, sizeof(any6));
        if (fd < 0 && errno != EADDRINUSE)
            fd = listen_at((struct sockaddr *)&any, sizeof(any));
    }
    return fd;
}

static int listen_any(const struct tcp_env *e)
{
    for (uint32_t i = 0; i < e->n_ports; i++) {
        int fd = listen_port(e, e->port + i);

        if (fd >= 0)
            return fd;
    }
    return ry_fail(RY_ERR_SYSTEM,
                   "pe 0 cannot listen at %.200s, ports %u to %u: %s: set "
                   "RAILYARD_BOOT_PORT to a free one on every pe",
                   e->addr, e->port, e->port + e->n_ports - 1, strerror(errno));
}

static int connect_until(const struct addrinfo *a, uint64_t deadline_ns)
{
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int error = 0;
    socklen_t len = sizeof(error);

    if (fd < 0)
        return -1;
    if (connect(fd, a->ai_addr, a->ai_addrlen) < 0 && errno == EINPROGRESS) {
        struct pollfd p = {.fd = fd, .events = POLLOUT};

        poll(&p, 1, ry_clock_left_ms(deadline_ns, 2000));
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0 || !(p.revents & POLLOUT))
            error = ETIMEDOUT;
    } else if (errno != EINPROGRESS &&
               getpeername(fd, &(struct sockaddr){0}, &(socklen_t){0}) < 0) {
        error = errno;
    }
    if (error == 0)
        return fd;
    close(fd);
    return -1;
}

static void address_of(const struct addrinfo *a, uint8_t ip[16])
{
    memset(ip, 0, 16);
    if (a->ai_family == AF_INET6) {
        memcpy(ip, &((const struct sockaddr_in6 *)(const void *)a->ai_addr)->sin6_addr, 16);
    } else {
        ip[10] = ip[11] = 0xff;
        memcpy(ip + 12, &((const struct sockaddr_in *)(const void *)a->ai_addr)->sin_addr, 4);
    }
}

/* One round over addresses and ports; a stream on which this job's meeting point has greeted, or
 * -1. */
static int find(const struct tcp_env *e, uint8_t ip[16], uint64_t deadline_ns)
{
    for (uint32_t i = 0; i < e->n_ports; i++) {
        struct addrinfo *list = NULL;
        int rc = resolve(e, e->port + i, &list);

        if (rc < 0)
            return rc;
        for (struct addrinfo *a = list; a; a = a->ai_next) {
            int fd = connect_until(a, deadline_ns);

            if (fd >= 0 && ry_net_probe(fd, e->job, PROBE_MS) == 1) {
                const int on = 1;

                setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
                address_of(a, ip);
                freeaddrinfo(list);
                return fd;
            }
            if (fd >= 0)
                close(fd);
        }
        freeaddrinfo(list);
    }
    return -1;
}

static int join(const struct tcp_env *e, struct ry_host *host, uint64_t deadline_ns,
                struct ry_boot **out)
{
    struct ry_net_cfg cfg = {.pe = e->pe,
                             .n_pes = e->n_pes,
                             .secret = e->secret,
                             .job = e->job,
                             .at_close = host ? ry_host_close : NULL,
                             .arg = host};
    int fd;

    while ((fd = find(e, cfg.meeting_ip, deadline_ns)) == -1) {
        if (ry_clock_ns() >= deadline_ns)
            return ry_fail(RY_ERR_TIMEOUT,
                           "pe 0 does not answer at %.200s, ports %u to %u: is it "
                           "started, and is the secret the same?",
                           e->addr, e->port, e->port + e->n_ports - 1);
        usleep(RETRY_MS * 1000);
    }
    return fd < -1 ? fd : ry_net_open(&cfg, fd, deadline_ns, out);
}

int ry_boot_tcp_open(uint64_t deadline_ns, struct ry_boot **out)
{
    struct tcp_env e = {0};
    struct ry_host *host = NULL;
    int rc = read_env(&e);

    if (rc == RY_OK && e.pe == 0) {
        int fd = listen_any(&e);

        rc = fd < 0 ? fd
                    : ry_host_open(&(struct ry_host_cfg){.n_pes = e.n_pes,
                                                         .n_nodes = e.n_nodes,
                                                         .job = e.job,
                                                         .secret = e.secret,
                                                         .start_deadline_ns = deadline_ns},
                                   &fd, 1, &host);
    }
    if (rc < 0)
        return rc;
    rc = join(&e, host, deadline_ns, out);
    if (rc < 0 && host)
        ry_host_close(host);
    return rc;
}
