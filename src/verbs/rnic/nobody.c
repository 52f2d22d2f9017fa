/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What this machine knows of a peer that does not answer. The kernel resolves the address of each packet, and tells a socket that
 * is not connected nothing when it fails; it says so when it is asked.
 */
#include "verbs/rnic/internal.h"

#include <errno.h>
#include <linux/neighbour.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <string.h>

#include "base/sys.h"
#include "wire/frame.h"
#include "wire/roce.h"

/* A question to the kernel, and then its answer. */
union talk {
	struct nlmsghdr h;
	uint8_t bytes[4096];
};

/* Where packets to a peer go first. */
struct hop {
	bool local;
	int family, oif;
	uint8_t addr[16];
	size_t len;
};

static void *start(union talk *t, uint16_t type, size_t body)
{
	memset(t, 0, sizeof(*t));
	t->h.nlmsg_type = type;
	t->h.nlmsg_flags = NLM_F_REQUEST;
	t->h.nlmsg_len = (uint32_t)NLMSG_LENGTH(body);
	return t->bytes + NLMSG_HDRLEN;
}

static void add_attr(union talk *t, uint16_t type, const void *data, size_t n)
{
	size_t at = NLMSG_ALIGN(t->h.nlmsg_len);
	struct rtattr a = { .rta_len = (uint16_t)RTA_LENGTH(n), .rta_type = type };

	memcpy(t->bytes + at, &a, sizeof(a));
	memcpy(t->bytes + at + RTA_LENGTH(0), data, n);
	t->h.nlmsg_len = (uint32_t)(at + RTA_LENGTH(n));
}

/* True: the answer, of this type and with a body of at least `body`, is there instead of the question. */
static bool ask(union talk *t, uint16_t type, size_t body)
{
	struct iovec iov = { t->bytes, t->h.nlmsg_len };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	int fd = sys.socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	ssize_t n;

	if (fd < 0)
		return false;
	n = sys.sendmsg(fd, &m, 0);
	iov.iov_len = sizeof(*t);
	if (n > 0)
		n = sys.recvmsg(fd, &m, MSG_DONTWAIT);
	sys.close(fd);
	return n >= (ssize_t)NLMSG_LENGTH(body) && t->h.nlmsg_len <= (size_t)n &&
	       t->h.nlmsg_len >= NLMSG_LENGTH(body) && t->h.nlmsg_type == type;
}

/* An attribute of the answer: its bytes, up to `n` of them; how many there are, 0: none. */
static size_t get_attr(const union talk *t, size_t body, uint16_t type, void *out, size_t n)
{
	size_t at = NLMSG_SPACE(body);
	struct rtattr a;

	for (; at + sizeof(a) <= t->h.nlmsg_len; at += RTA_ALIGN(a.rta_len)) {
		memcpy(&a, t->bytes + at, sizeof(a));
		if (a.rta_len < sizeof(a) || at + a.rta_len > t->h.nlmsg_len)
			return 0;
		if (a.rta_type != type)
			continue;
		if (n > a.rta_len - RTA_LENGTH(0))
			n = a.rta_len - RTA_LENGTH(0);
		memcpy(out, t->bytes + at + RTA_LENGTH(0), n);
		return n;
	}
	return 0;
}

static bool first_hop(const struct vaddr *from, const uint8_t dst[16], struct hop *out)
{
	bool v4 = wire_gid_is_v4(dst);
	union talk t;
	struct rtmsg *r = start(&t, RTM_GETROUTE, sizeof(*r));

	out->family = v4 ? AF_INET : AF_INET6;
	out->len = v4 ? 4 : 16;
	memcpy(out->addr, dst + 16 - out->len, out->len);
	r->rtm_family = (uint8_t)out->family;
	r->rtm_dst_len = (uint8_t)(8 * out->len);
	add_attr(&t, RTA_DST, out->addr, out->len);
	/* Rules may go by the source, to which our socket is bound. */
	r->rtm_src_len = r->rtm_dst_len;
	add_attr(&t, RTA_SRC, from->gid + 16 - out->len, out->len);
	if (from->scope)
		add_attr(&t, RTA_OIF, &from->scope, sizeof(from->scope));
	if (!ask(&t, RTM_NEWROUTE, sizeof(*r)) ||
	    get_attr(&t, sizeof(*r), RTA_OIF, &out->oif, sizeof(out->oif)) != sizeof(out->oif))
		return false;
	out->local = r->rtm_type == RTN_LOCAL;
	get_attr(&t, sizeof(*r), RTA_GATEWAY, out->addr, out->len);
	return true;
}

static bool is_unresolved(const struct hop *h)
{
	union talk t;
	struct ndmsg *nd = start(&t, RTM_GETNEIGH, sizeof(*nd));

	nd->ndm_family = (uint8_t)h->family;
	nd->ndm_ifindex = h->oif;
	add_attr(&t, NDA_DST, h->addr, h->len);
	return ask(&t, RTM_NEWNEIGH, sizeof(*nd)) && (nd->ndm_state & NUD_FAILED);
}

/* An address of this machine where nobody has the port: the kernel says so to whoever sends there from a socket that is connected. */
static bool is_closed(const struct vaddr *from, const uint8_t dst[16], int family)
{
	struct sockaddr_storage to;
	socklen_t len = vaddr_to_sockaddr(dst, from->scope, WIRE_ROCE_PORT, family, &to);
	struct msghdr nothing = { 0 };
	int fd = sys.socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	ssize_t n;

	if (fd < 0)
		return false;
	n = sys.connect(fd, (struct sockaddr *)&to, len);
	if (!n)
		n = sys.sendmsg(fd, &nothing, MSG_DONTWAIT);
	if (!n)
		n = sys.recvmsg(fd, &nothing, MSG_DONTWAIT);
	sys.close(fd);
	return n == -ECONNREFUSED;
}

int vaddr_nobody(const struct vaddr *from, const uint8_t dst[16])
{
	struct hop h;

	if (!first_hop(from, dst, &h))
		return 0;
	if (h.local)
		return is_closed(from, dst, h.family) ? -ECONNREFUSED : 0;
	return is_unresolved(&h) ? -EHOSTUNREACH : 0;
}
