/* SPDX-License-Identifier: Apache-2.0 */
/* RoCE: is the link address of a peer known?
 *
 * Moving a queue pair to RTR makes the kernel ask for it and wait, for a second where nobody
 * answers, and the agent has better things to do meanwhile. So the question is asked here first
 * (any datagram makes the kernel ask), and a queue pair is connected only once the answer is in the
 * kernel's table. Until then the caller is told to come again; an address that was silent for long
 * enough leads nowhere, and is not asked for again for a while. Where the address is not IPv4 the
 * driver decides. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "nic/verbs/verbs_int.h"

#define WAIT_NS_MAX   100000000ull  /* for an address that may well answer */
#define SILENT_NS_MAX 1000000000ull /* how long silence is remembered */

static bool ipv4_of(const uint8_t *gid, struct in_addr *a)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

    if (memcmp(gid, mapped, sizeof(mapped)) != 0)
        return false;
    memcpy(a, gid + 12, sizeof(*a));
    return true;
}

/* Room for one question, and for one answer. */
struct question {
    struct nlmsghdr head;
    struct rtmsg route;
    struct rtattr dst;
    struct in_addr dst_value;
    struct rtattr src;
    struct in_addr src_value;
    struct rtattr oif;
    uint32_t oif_value;
};

/* The kernel's route from own to peer over this interface: the next hop, which is the gateway or
 * the peer itself, or 0 for an address of this machine. The kernel takes a peer that no route
 * covers to be on the link. */
static struct in_addr next_hop(uint32_t interface, struct in_addr own, struct in_addr peer)
{
    struct question q = {
        .head = {.nlmsg_len = sizeof(q), .nlmsg_type = RTM_GETROUTE, .nlmsg_flags = NLM_F_REQUEST},
        .route = {.rtm_family = AF_INET, .rtm_dst_len = 32, .rtm_src_len = 32},
        .dst = {.rta_len = RTA_LENGTH(4), .rta_type = RTA_DST},
        .dst_value = peer,
        .src = {.rta_len = RTA_LENGTH(4), .rta_type = RTA_SRC},
        .src_value = own,
        .oif = {.rta_len = RTA_LENGTH(4), .rta_type = RTA_OIF},
        .oif_value = interface,
    };
    union {
        struct nlmsghdr head;
        uint8_t bytes[1024];
    } a;
    int s = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    ssize_t len = -1;

    if (s >= 0 && send(s, &q, sizeof(q), 0) == (ssize_t)sizeof(q))
        len = recv(s, &a, sizeof(a), 0);
    if (s >= 0)
        close(s);
    if (len >= (ssize_t)NLMSG_LENGTH(sizeof(struct rtmsg)) && a.head.nlmsg_type == RTM_NEWROUTE) {
        struct rtattr *at = RTM_RTA(NLMSG_DATA(&a.head));
        int left = (int)RTM_PAYLOAD(&a.head);

        if (((struct rtmsg *)NLMSG_DATA(&a.head))->rtm_type == RTN_LOCAL)
            return (struct in_addr){0};
        for (; RTA_OK(at, left); at = RTA_NEXT(at, left))
            if (at->rta_type == RTA_GATEWAY && RTA_PAYLOAD(at) == sizeof(peer))
                memcpy(&peer, RTA_DATA(at), sizeof(peer));
    }
    return peer;
}

static bool known(int s, const char *name, struct in_addr peer)
{
    struct arpreq q;
    struct sockaddr_in pa = {.sin_family = AF_INET, .sin_addr = peer};

    memset(&q, 0, sizeof(q));
    memcpy(&q.arp_pa, &pa, sizeof(pa));
    memcpy(q.arp_dev, name, strnlen(name, sizeof(q.arp_dev) - 1));
    return ioctl(s, SIOCGARP, &q) == 0 && (q.arp_flags & ATF_COM);
}

/* The question for this address that is remembered; behind the table: none is. */
static struct ry_verbs_asked *question_for(struct ry_verbs_rail *r, const uint8_t *peer_gid)
{
    struct ry_verbs_asked *a = r->asked;

    while (a < r->asked + RY_VERBS_ASKED && memcmp(a->gid, peer_gid, RY_GID_BYTES) != 0)
        a++;
    return a;
}

/* It was answered: should the kernel forget the address, that is no silence. */
static void forget(struct ry_verbs_rail *r, const uint8_t *peer_gid)
{
    struct ry_verbs_asked *a = question_for(r, peer_gid);

    if (a < r->asked + RY_VERBS_ASKED)
        memset(a, 0, sizeof(*a));
}

/* What to do, now that there is no answer. OK: ask; AGAIN: wait; PATH: it is silent. */
static int ask(struct ry_verbs_rail *r, const uint8_t *peer_gid, uint64_t now)
{
    struct ry_verbs_asked *a = question_for(r, peer_gid);

    if (a < r->asked + RY_VERBS_ASKED && now - a->at_ns < WAIT_NS_MAX)
        return RY_ERR_AGAIN;
    if (a < r->asked + RY_VERBS_ASKED && now - a->at_ns < WAIT_NS_MAX + SILENT_NS_MAX)
        return RY_ERR_PATH;
    if (a == r->asked + RY_VERBS_ASKED)
        a = &r->asked[r->asked_next++ % RY_VERBS_ASKED];
    memcpy(a->gid, peer_gid, RY_GID_BYTES);
    a->at_ns = now;
    return RY_OK;
}

/* A datagram socket of this interface, towards the peer's discard port. */
static int open_towards(const char *name, struct in_addr own, struct in_addr peer)
{
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr = own};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr = peer};
    int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (s < 0)
        return -1;
    if (setsockopt(s, SOL_SOCKET, SO_BINDTODEVICE, name, (socklen_t)strlen(name)) == 0 &&
        bind(s, (struct sockaddr *)&from, sizeof(from)) == 0 &&
        connect(s, (struct sockaddr *)&to, sizeof(to)) == 0)
        return s;
    close(s);
    return -1;
}

static int unreachable(struct ry_verbs_rail *r, struct in_addr peer, const char *why)
{
    char text[INET_ADDRSTRLEN] = "";

    inet_ntop(AF_INET, &peer, text, sizeof(text));
    return ry_verbs_fail(r->nic, RY_ERR_PATH, "cannot reach %s from %s: %s", text, r->name, why);
}

int ry_verbs_resolve(struct ry_verbs_rail *r, uint32_t gid_index, const union ibv_gid *gid,
                     const uint8_t *peer_gid)
{
    static const uint8_t none[RY_GID_BYTES];
    struct ibv_gid_entry e;
    struct in_addr own, peer, hop;
    char name[IF_NAMESIZE];
    int s, rc = RY_OK;

    if (memcmp(peer_gid, none, sizeof(none)) == 0)
        return ry_verbs_fail(r->nic, RY_ERR_PATH,
                             "cannot connect %s: the peer's port has no address", r->name);
    if (!ipv4_of(gid->raw, &own) || !ipv4_of(peer_gid, &peer) ||
        ibv_query_gid_ex(r->ctx, r->port, gid_index, &e, 0) != 0 ||
        !if_indextoname(e.ndev_ifindex, name))
        return RY_OK;
    s = open_towards(name, own, peer);
    if (s < 0 && (errno == ENETUNREACH || errno == EHOSTUNREACH || errno == ENETDOWN))
        return unreachable(r, peer, "no route there: is the port down?");
    if (s < 0)
        return RY_OK;
    hop = next_hop(e.ndev_ifindex, own, peer);
    if (hop.s_addr == 0 || known(s, name, hop)) {
        forget(r, peer_gid);
    } else {
        rc = ask(r, peer_gid, ry_verbs_now());
        if (rc == RY_ERR_PATH)
            unreachable(r, peer, "nobody answers there; is it in another subnet?");
        if (rc == RY_OK) {
            (void)send(s, "", 0, 0); /* its only use is the question that goes before it */
            rc = RY_ERR_AGAIN;
        }
    }
    close(s);
    return rc;
}
