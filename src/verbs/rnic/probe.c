/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How large a packet may be on the way to a peer and back. Linux takes whatever path MTU our REQ asks for, and what is larger than
 * its own interface's then never arrives, here without a sign. So a peer on another machine is asked, before it is connected to,
 * by an ICMP echo as large as the largest packet: a path MTU above 1024 is used when the echo came back whole. Who answers in
 * fragments has a smaller MTU; who does not answer may have one, or answers to no echo at all, and 1024 serves every Ethernet.
 *
 * The answers are the kernel's, so a peer needs no part in this. Sockets of ICMP need no privilege where
 * net.ipv4.ping_group_range says so, as most systems have it; else CAP_NET_RAW.
 */
#include "verbs/rnic/internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/icmp.h>
#include <netinet/icmp6.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"
#include "base/sys.h"
#include "wire/frame.h"
#include "wire/icmp.h"
#include "wire/roce.h"

enum {
	SAFE = 3,     /* code of 1024 bytes */
	HEADERS = 80, /* as host.c counts them */
	LARGEST = WIRE_MTU_MAX + HEADERS,
	BATCH = 16,
};

#define AGAIN_NS UINT64_C(100000000)
#define PATIENCE_NS UINT64_C(300000000)
#define FRESH_NS UINT64_C(60000000000)

/* --- the socket --------------------------------------------------------------------------------- */

static int set_up(struct vhost *h, int fd, bool v4, bool raw)
{
	struct icmp_filter f4 = { ~(1u << ICMP_ECHOREPLY) };
	struct icmp6_filter f6;
	struct sockaddr_storage ss;
	socklen_t n =
		vaddr_to_sockaddr(h->addr.gid, h->addr.scope, 0, v4 ? AF_INET : AF_INET6, &ss);
	int probe = v4 ? IP_PMTUDISC_PROBE : IPV6_PMTUDISC_PROBE, one = 1, rc;
	int level = v4 ? IPPROTO_IP : IPPROTO_IPV6;

	ICMP6_FILTER_SETBLOCKALL(&f6);
	ICMP6_FILTER_SETPASS(ICMP6_ECHO_REPLY, &f6);
	rc = sys.bind(fd, (struct sockaddr *)&ss, n);
	if (!rc)
		rc = sys.setsockopt(fd, level, v4 ? IP_MTU_DISCOVER : IPV6_MTU_DISCOVER, &probe,
				    sizeof(probe));
	if (!rc)
		rc = sys.setsockopt(fd, level, v4 ? IP_RECVFRAGSIZE : IPV6_RECVFRAGSIZE, &one,
				    sizeof(one));
	if (!rc && raw && v4)
		rc = sys.setsockopt(fd, SOL_RAW, ICMP_FILTER, &f4, sizeof(f4));
	else if (!rc && raw)
		rc = sys.setsockopt(fd, IPPROTO_ICMPV6, ICMP6_FILTER, &f6, sizeof(f6));
	return rc;
}

static int open_socket(struct vhost *h)
{
	bool v4 = wire_gid_is_v4(h->addr.gid);
	int family = v4 ? AF_INET : AF_INET6, protocol = v4 ? IPPROTO_ICMP : IPPROTO_ICMPV6;
	int fd = sys.socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol), rc;

	h->probe.raw = fd < 0;
	if (fd < 0)
		fd = sys.socket(family, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol);
	if (fd < 0)
		return fd;
	rc = set_up(h, fd, v4, h->probe.raw);
	if (!rc)
		rc = vhost_watch(h, fd);
	if (rc) {
		sys.close(fd);
		return rc;
	}
	h->probe.fd = fd;
	return 0;
}

/* --- what is known ------------------------------------------------------------------------------- */

static struct vprobe_known *known(struct vhost *h, const uint8_t gid[16], uint64_t now)
{
	struct vprobe_known *k;
	unsigned i;

	for (i = 0; i < VPROBE_KNOWN; i++) {
		k = &h->probe.known[i];
		if (k->code && now < k->until && memcmp(k->gid, gid, 16) == 0)
			return k;
	}
	return NULL;
}

static void remember(struct vhost *h, const uint8_t gid[16], uint8_t code, uint64_t now)
{
	struct vprobe_known *k = &h->probe.known[h->probe.next++ % VPROBE_KNOWN];

	memcpy(k->gid, gid, 16);
	k->code = code;
	k->until = now + FRESH_NS;
}

static void finish(struct vhost *h, struct verbs_id *id, uint64_t now)
{
	char text[INET6_ADDRSTRLEN] = "?";
	bool v4 = wire_gid_is_v4(id->probe.gid);

	list_del(&id->probe.link);
	id->mtu_code = id->probe.whole ? id->probe.whole : SAFE;
	remember(h, id->probe.gid, id->mtu_code, now);
	if (id->mtu_code < h->mtu_code) {
		inet_ntop(v4 ? AF_INET : AF_INET6, id->probe.gid + (v4 ? 12 : 0), text,
			  sizeof(text));
		log_line(LOG_NOTE, "rnic: path MTU %u to %s, not %u: %s (GPUNET_RNIC_MTU sets it)",
			 wire_mtu_bytes(id->mtu_code), text, wire_mtu_bytes(h->mtu_code),
			 id->probe.cut ? "larger packets come back in pieces"
				       : "no echo of that size has come back");
	}
	vevent_put(&id->ev[VID_RESOLVED], VERBS_EVENT_RESOLVED, 0, 0);
}

/* --- asking --------------------------------------------------------------------------------------- */

/* Length of the ICMP message that makes a packet as large as the largest of a path MTU. */
static size_t echo_len(const struct vhost *h, unsigned code)
{
	return wire_mtu_bytes(code) + HEADERS -
	       (wire_gid_is_v4(h->addr.gid) ? WIRE_IPV4_LEN : WIRE_IPV6_LEN);
}

static void ask(struct vhost *h, struct verbs_id *id, uint64_t now)
{
	bool v4 = wire_gid_is_v4(id->probe.gid);
	uint8_t buf[LARGEST];
	struct wire_echo e = { .id = h->probe.id };
	struct sockaddr_storage to;
	struct iovec iov = { .iov_base = buf };
	struct msghdr m = { .msg_name = &to, .msg_iov = &iov, .msg_iovlen = 1 };

	m.msg_namelen =
		vaddr_to_sockaddr(id->probe.gid, id->probe.scope, 0, v4 ? AF_INET : AF_INET6, &to);
	memcpy(e.cookie, id->probe.cookie, sizeof(e.cookie));
	for (e.seq = (uint16_t)h->mtu_code; e.seq > SAFE; e.seq--) {
		iov.iov_len = echo_len(h, e.seq);
		wire_echo_put(buf, iov.iov_len, &e, !v4);
		/* What cannot be sent is not answered. */
		(void)sys.sendmsg(h->probe.fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
	}
	id->probe.again = now + AGAIN_NS;
}

/* --- answers --------------------------------------------------------------------------------------- */

static bool in_pieces(struct msghdr *m)
{
	struct cmsghdr *c;

	for (c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		if ((c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_RECVFRAGSIZE) ||
		    (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_RECVFRAGSIZE))
			return true;
	}
	return false;
}

/* A raw socket of IPv4 shows the IP header, too. */
static size_t header_of(const struct vhost *h, const uint8_t *p, size_t n)
{
	if (!h->probe.raw || !wire_gid_is_v4(h->addr.gid) || n < WIRE_IPV4_LEN)
		return 0;
	return (size_t)(p[0] & 15) * 4;
}

/* All that is larger than what came back whole has come in pieces. */
static bool decided(const struct vhost *h, const struct verbs_id *id)
{
	unsigned code = h->mtu_code;

	while (code > SAFE && id->probe.cut >> code & 1)
		code--;
	return code == SAFE || code == id->probe.whole;
}

/* Counts an answer for whoever it is for. `len`: of the message. */
static void count(struct vhost *h, const uint8_t gid[16], const struct wire_echo *e, size_t len,
		  bool cut, uint64_t now)
{
	struct list *l, *next;

	if (!e->reply || e->seq <= SAFE || e->seq > h->mtu_code || len != echo_len(h, e->seq))
		return;
	for (l = h->probe.asking.next; l != &h->probe.asking; l = next) {
		struct verbs_id *id = list_entry(l, struct verbs_id, probe.link);

		next = l->next;
		if (memcmp(id->probe.gid, gid, 16) != 0 ||
		    memcmp(id->probe.cookie, e->cookie, sizeof(e->cookie)) != 0)
			continue;
		if (cut)
			id->probe.cut |= (uint8_t)(1u << e->seq);
		else if (e->seq > id->probe.whole)
			id->probe.whole = (uint8_t)e->seq;
		if (decided(h, id))
			finish(h, id, now);
	}
}

void vprobe_hear(struct vhost *h, uint64_t now)
{
	_Alignas(struct cmsghdr) uint8_t control[256];
	uint8_t buf[LARGEST + 64], gid[16];
	struct sockaddr_storage from;
	struct wire_echo e;
	uint32_t scope;
	uint16_t port;
	size_t skip;
	bool any;
	int i;

	for (i = 0; i < BATCH; i++) {
		struct iovec iov = { buf, sizeof(buf) };
		struct msghdr m = { .msg_name = &from,
				    .msg_namelen = sizeof(from),
				    .msg_iov = &iov,
				    .msg_iovlen = 1,
				    .msg_control = control,
				    .msg_controllen = sizeof(control) };
		ssize_t n = sys.recvmsg(h->probe.fd, &m, MSG_DONTWAIT);

		if (n < 0)
			return;
		skip = header_of(h, buf, (size_t)n);
		if (skip > (size_t)n ||
		    wire_echo_get(&e, buf + skip, (size_t)n - skip, !wire_gid_is_v4(h->addr.gid)))
			continue;
		if (!vaddr_from_sockaddr((struct sockaddr *)&from, m.msg_namelen, gid, &scope,
					 &port, &any))
			count(h, gid, &e, (size_t)n - skip, in_pieces(&m), now);
	}
}

/* --- calls ----------------------------------------------------------------------------------------- */

void vprobe_open(struct vhost *h)
{
	h->probe.fd = -1;
	list_init(&h->probe.asking);
}

void vprobe_close(struct vhost *h)
{
	if (h->probe.fd >= 0)
		sys.close(h->probe.fd);
}

bool vprobe_start(struct vhost *h, struct verbs_id *id, const uint8_t gid[16], uint32_t scope,
		  uint64_t now)
{
	const struct vprobe_known *k = known(h, gid, now);

	id->mtu_code = (uint8_t)h->mtu_code;
	if (h->mtu_code <= SAFE || h->mtu_forced || vaddr_is_local(gid))
		return false;
	if (k) {
		id->mtu_code = k->code;
		return false;
	}
	id->probe.cut = id->probe.whole = 0;
	memcpy(id->probe.gid, gid, 16);
	id->probe.scope = scope;
	id->probe.end = now + PATIENCE_NS;
	if (getrandom(id->probe.cookie, sizeof(id->probe.cookie), 0) < 0 ||
	    (h->probe.fd < 0 && open_socket(h))) {
		id->mtu_code = SAFE;
		return false;
	}
	memcpy(&h->probe.id, id->probe.cookie, sizeof(h->probe.id));
	list_add_tail(&h->probe.asking, &id->probe.link);
	ask(h, id, now);
	return true;
}

uint64_t vprobe_work(struct vhost *h, uint64_t now)
{
	uint64_t due = UINT64_MAX;
	struct list *l, *next;

	if (list_empty(&h->probe.asking))
		return due;
	vprobe_hear(h, now);
	for (l = h->probe.asking.next; l != &h->probe.asking; l = next) {
		struct verbs_id *id = list_entry(l, struct verbs_id, probe.link);

		next = l->next;
		if (now >= id->probe.end) {
			finish(h, id, now);
			continue;
		}
		if (now >= id->probe.again)
			ask(h, id, now);
		due = id->probe.again < due ? id->probe.again : due;
		due = id->probe.end < due ? id->probe.end : due;
	}
	return due;
}
