/* SPDX-License-Identifier: Apache-2.0 */
/* Bootstrap under mpirun, prterun or srun: PMIx tells PE number and count, and carries one text
 * from PE 0 to the others, namely where its meeting point is and the job's secret. The rest goes as
 * with TCP. */
#include <railyard/status.h>

#include "host/boot_env.h"
#include "host/error.h"

#if defined(RY_HAVE_PMIX)

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pmix.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/boot_ctl.h"
#include "host/boot_host.h"
#include "host/clock.h"

enum { CARD_BYTES = 2048 };
static const char key[] = "railyard.meeting";

struct pmix_job {
    pmix_proc_t self;
    uint32_t n_pes;
    struct ry_host *host;
};

bool ry_boot_pmix_built(void) { return true; }

static void close_job(void *arg)
{
    struct pmix_job *j = arg;

    if (j->host)
        ry_host_close(j->host);
    PMIx_Finalize(NULL, 0);
    free(j);
}

static int job_size(struct pmix_job *j)
{
    pmix_proc_t all = j->self;
    pmix_value_t *v = NULL;

    all.rank = PMIX_RANK_WILDCARD;
    int rc = PMIx_Get(&all, PMIX_JOB_SIZE, NULL, 0, &v);

    if (rc != PMIX_SUCCESS || !v || v->type != PMIX_UINT32)
        return ry_fail(RY_ERR_PROTOCOL, "pmix does not tell the size of the job: %s",
                       PMIx_Error_string(rc));
    j->n_pes = v->data.uint32;
    PMIX_VALUE_RELEASE(v);
    return RY_OK;
}

/* "job secret port address address ...", addresses of all interfaces that are up. */
static int make_card(char *card, uint64_t job, const struct ry_secret *secret, uint16_t port)
{
    struct ifaddrs *list = NULL;
    char hex[RY_SECRET_HEX], text[INET6_ADDRSTRLEN];

    ry_secret_to_hex(secret, hex);
    int used = snprintf(card, CARD_BYTES, "%016" PRIx64 " %s %u", job, hex, port);

    if (getifaddrs(&list) < 0)
        return ry_fail(RY_ERR_SYSTEM, "cannot list network interfaces: %s", strerror(errno));
    for (struct ifaddrs *i = list; i; i = i->ifa_next) {
        const void *ip = NULL;

        if (!i->ifa_addr || !(i->ifa_flags & IFF_UP))
            continue;
        if (i->ifa_addr->sa_family == AF_INET)
            ip = &((struct sockaddr_in *)(void *)i->ifa_addr)->sin_addr;
        else if (i->ifa_addr->sa_family == AF_INET6)
            ip = &((struct sockaddr_in6 *)(void *)i->ifa_addr)->sin6_addr;
        if (!ip || !inet_ntop(i->ifa_addr->sa_family, ip, text, sizeof(text)) ||
            (i->ifa_addr->sa_family == AF_INET6 &&
             IN6_IS_ADDR_LINKLOCAL((const struct in6_addr *)ip)))
            continue;
        if (used + (int)strlen(text) + 2 < CARD_BYTES)
            used += snprintf(card + used, CARD_BYTES - (size_t)used, " %s", text);
    }
    freeifaddrs(list);
    return RY_OK;
}

static int listen_free_port(uint16_t *port)
{
    struct sockaddr_in6 a6 = {.sin6_family = AF_INET6};
    struct sockaddr_in a4 = {.sin_family = AF_INET};
    struct sockaddr_storage got;
    socklen_t len = sizeof(got);
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd >= 0 && bind(fd, (struct sockaddr *)&a6, sizeof(a6)) < 0) {
        close(fd);
        fd = -1;
    }
    if (fd < 0) {
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd >= 0 && bind(fd, (struct sockaddr *)&a4, sizeof(a4)) < 0) {
            close(fd);
            fd = -1;
        }
    }
    if (fd < 0 || listen(fd, 1024) < 0 || getsockname(fd, (struct sockaddr *)&got, &len) < 0) {
        if (fd >= 0)
            close(fd);
        return ry_fail(RY_ERR_SYSTEM, "pe 0 cannot listen: %s", strerror(errno));
    }
    *port = ntohs(got.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&got)->sin6_port
                                            : ((struct sockaddr_in *)&got)->sin_port);
    return fd;
}

/* PE 0: open the meeting point, and write the card. */
static int hold_meeting(struct pmix_job *j, uint32_t n_nodes, uint64_t deadline_ns, char *card)
{
    struct ry_host_cfg cfg = {
        .n_pes = j->n_pes, .n_nodes = n_nodes, .start_deadline_ns = deadline_ns};
    uint16_t port = 0;
    int rc = ry_random(&cfg.job, sizeof(cfg.job));

    if (rc == RY_OK)
        rc = ry_random(&cfg.secret, sizeof(cfg.secret));
    int fd = rc < 0 ? rc : listen_free_port(&port);

    if (fd < 0)
        return fd;
    rc = make_card(card, cfg.job, &cfg.secret, port);
    if (rc < 0) {
        close(fd);
        return rc;
    }
    return ry_host_open(&cfg, &fd, 1, &j->host);
}

/* Everyone's card goes to all; only PE 0's is not empty. */
static int exchange_card(struct pmix_job *j, char *card)
{
    pmix_proc_t zero = j->self;
    pmix_value_t v = {.type = PMIX_STRING}, *got = NULL;
    pmix_info_t collect;
    bool yes = true;
    int rc = PMIX_SUCCESS;

    if (j->self.rank == 0) {
        v.data.string = card;
        rc = PMIx_Put(PMIX_GLOBAL, key, &v);
        if (rc == PMIX_SUCCESS)
            rc = PMIx_Commit();
    }
    PMIX_INFO_CONSTRUCT(&collect);
    PMIX_INFO_LOAD(&collect, PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
    if (rc == PMIX_SUCCESS)
        rc = PMIx_Fence(NULL, 0, &collect, 1);
    PMIX_INFO_DESTRUCT(&collect);
    zero.rank = 0;
    if (rc == PMIX_SUCCESS)
        rc = PMIx_Get(&zero, key, NULL, 0, &got);
    if (rc != PMIX_SUCCESS || !got || got->type != PMIX_STRING)
        return ry_fail(RY_ERR_PROTOCOL, "pmix did not bring the address of pe 0: %s",
                       PMIx_Error_string(rc));
    snprintf(card, CARD_BYTES, "%s", got->data.string);
    PMIX_VALUE_RELEASE(got);
    return RY_OK;
}

static int try_address(const char *text, uint16_t port, uint64_t job, uint8_t ip[16])
{
    struct sockaddr_in6 a6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    struct sockaddr_in a4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    bool six = inet_pton(AF_INET6, text, &a6.sin6_addr) == 1;
    const int on = 1;

    if (!six && inet_pton(AF_INET, text, &a4.sin_addr) != 1)
        return -1;
    int fd = socket(six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int rc = fd < 0 ? -1
             : six  ? connect(fd, (struct sockaddr *)&a6, sizeof(a6))
                    : connect(fd, (struct sockaddr *)&a4, sizeof(a4));

    if (fd < 0 || (rc < 0 && errno != EINPROGRESS) || ry_net_probe(fd, job, 1000) != 1) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    memset(ip, 0, 16);
    if (six) {
        memcpy(ip, &a6.sin6_addr, 16);
    } else {
        ip[10] = ip[11] = 0xff;
        memcpy(ip + 12, &a4.sin_addr, 4);
    }
    return fd;
}

/* A stream to PE 0 by the first of its addresses that answers as this job's. */
static int follow_card(char *card, struct ry_net_cfg *cfg)
{
    char *save = NULL;
    const char *job = strtok_r(card, " ", &save), *secret = strtok_r(NULL, " ", &save);
    const char *port = strtok_r(NULL, " ", &save), *ip;

    if (!job || !secret || !port)
        return ry_fail(RY_ERR_PROTOCOL, "the address of pe 0 makes no sense");
    cfg->job = strtoull(job, NULL, 16);
    ry_secret_from_text(secret, &cfg->secret);
    while ((ip = strtok_r(NULL, " ", &save))) {
        int fd = try_address(ip, (uint16_t)atoi(port), cfg->job, cfg->meeting_ip);

        if (fd >= 0)
            return fd;
    }
    return ry_fail(RY_ERR_UNREACHABLE,
                   "none of the addresses of pe 0 answers: do the hosts share a "
                   "network?");
}

int ry_boot_pmix_open(uint64_t deadline_ns, struct ry_boot **out)
{
    struct pmix_job *j = calloc(1, sizeof(*j));
    char card[CARD_BYTES] = "";
    uint32_t n_nodes = 0;

    if (!j)
        return ry_fail(RY_ERR_NO_MEMORY, "bootstrap: no memory");
    int rc = PMIx_Init(&j->self, NULL, 0);

    if (rc != PMIX_SUCCESS) {
        free(j);
        return ry_fail(RY_ERR_SYSTEM,
                       "pmix does not start: %s: start this with mpirun, prterun or "
                       "srun --mpi=pmix",
                       PMIx_Error_string(rc));
    }
    rc = job_size(j);
    if (rc == RY_OK)
        rc = ry_env_u32("RAILYARD_NODES", 1, j->n_pes, &n_nodes) < 0 ? RY_ERR_CONFIG : RY_OK;
    if (rc == RY_OK && j->self.rank == 0)
        rc = hold_meeting(j, n_nodes, deadline_ns, card);
    if (rc == RY_OK)
        rc = exchange_card(j, card);
    if (rc == RY_OK) {
        struct ry_net_cfg cfg = {
            .pe = j->self.rank, .n_pes = j->n_pes, .at_close = close_job, .arg = j};
        int fd = follow_card(card, &cfg);

        rc = fd < 0 ? fd : ry_net_open(&cfg, fd, deadline_ns, out);
    }
    if (rc < 0)
        close_job(j);
    return rc;
}

#else

bool ry_boot_pmix_built(void) { return false; }

int ry_boot_pmix_open(uint64_t deadline_ns, struct ry_boot **out)
{
    (void)deadline_ns;
    (void)out;
    return ry_fail(RY_ERR_UNSUPPORTED, "this railyard was built without PMIx: install libpmix-dev "
                                       "and build again, or use railyard run");
}

#endif
