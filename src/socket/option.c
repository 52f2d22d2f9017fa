/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Options that reach the host's socket: those in the table, no others. Left out is what would block a proxy thread, change
 * whose the descriptor is, or give its bytes another meaning than the rings have. Time limits and SO_ERROR are the kernels'
 * business and do not come here.
 */
#include "socket/socket.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>

enum { GET = 1, SET = 2, BOTH = GET | SET };

struct option {
	int level, name, may;
};

static const struct option table[] = {
	{ SOL_SOCKET, SO_REUSEADDR, BOTH },
	{ SOL_SOCKET, SO_REUSEPORT, BOTH },
	{ SOL_SOCKET, SO_KEEPALIVE, BOTH },
	{ SOL_SOCKET, SO_BROADCAST, BOTH },
	{ SOL_SOCKET, SO_RCVBUF, BOTH },
	{ SOL_SOCKET, SO_SNDBUF, BOTH },
	{ SOL_SOCKET, SO_PRIORITY, BOTH },
	{ SOL_SOCKET, SO_DONTROUTE, BOTH },
	{ SOL_SOCKET, SO_TYPE, GET },
	{ SOL_SOCKET, SO_DOMAIN, GET },
	{ SOL_SOCKET, SO_PROTOCOL, GET },
	{ SOL_SOCKET, SO_ACCEPTCONN, GET },
	{ SOL_SOCKET, SO_PEERCRED, GET },
	{ SOL_SOCKET, SO_INCOMING_CPU, GET },
	{ IPPROTO_TCP, TCP_NODELAY, BOTH },
	{ IPPROTO_TCP, TCP_MAXSEG, BOTH },
	{ IPPROTO_TCP, TCP_CORK, BOTH },
	{ IPPROTO_TCP, TCP_KEEPIDLE, BOTH },
	{ IPPROTO_TCP, TCP_KEEPINTVL, BOTH },
	{ IPPROTO_TCP, TCP_KEEPCNT, BOTH },
	{ IPPROTO_TCP, TCP_SYNCNT, BOTH },
	{ IPPROTO_TCP, TCP_LINGER2, BOTH },
	{ IPPROTO_TCP, TCP_DEFER_ACCEPT, BOTH },
	{ IPPROTO_TCP, TCP_WINDOW_CLAMP, BOTH },
	{ IPPROTO_TCP, TCP_QUICKACK, BOTH },
	{ IPPROTO_TCP, TCP_CONGESTION, BOTH },
	{ IPPROTO_TCP, TCP_USER_TIMEOUT, BOTH },
	{ IPPROTO_TCP, TCP_NOTSENT_LOWAT, BOTH },
	{ IPPROTO_TCP, TCP_INFO, GET },
	{ IPPROTO_IP, IP_TOS, BOTH },
	{ IPPROTO_IP, IP_TTL, BOTH },
	{ IPPROTO_IP, IP_MTU_DISCOVER, BOTH },
	{ IPPROTO_IP, IP_MTU, GET },
	{ IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, BOTH },
	{ IPPROTO_IP, IP_MULTICAST_TTL, BOTH },
	{ IPPROTO_IP, IP_MULTICAST_LOOP, BOTH },
	{ IPPROTO_IP, IP_MULTICAST_IF, BOTH },
	{ IPPROTO_IP, IP_ADD_MEMBERSHIP, SET },
	{ IPPROTO_IP, IP_DROP_MEMBERSHIP, SET },
	{ IPPROTO_IPV6, IPV6_V6ONLY, BOTH },
	{ IPPROTO_IPV6, IPV6_TCLASS, BOTH },
	{ IPPROTO_IPV6, IPV6_UNICAST_HOPS, BOTH },
	{ IPPROTO_IPV6, IPV6_MTU_DISCOVER, BOTH },
	{ IPPROTO_IPV6, IPV6_MTU, GET },
	{ IPPROTO_IPV6, IPV6_MULTICAST_HOPS, BOTH },
	{ IPPROTO_IPV6, IPV6_MULTICAST_LOOP, BOTH },
	{ IPPROTO_IPV6, IPV6_MULTICAST_IF, BOTH },
	{ IPPROTO_IPV6, IPV6_JOIN_GROUP, SET },
	{ IPPROTO_IPV6, IPV6_LEAVE_GROUP, SET },
};

static bool may(int level, int name, int what)
{
	unsigned i;

	for (i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		if (table[i].level == level && table[i].name == name)
			return table[i].may & what;
	}
	return false;
}

/* Kept here: the host's own linger would have close(2) wait in the proxy thread. */
static int set_linger(struct sock *s, const uint8_t *v, socklen_t n)
{
	struct linger l;

	if (n < sizeof(l))
		return -EINVAL;
	memcpy(&l, v, sizeof(l));
	s->linger = l.l_onoff != 0;
	s->linger_s = l.l_linger < 0 ? UINT16_MAX : (unsigned)l.l_linger;
	return 0;
}

static int64_t get_linger(const struct sock *s, uint8_t *v, socklen_t room)
{
	struct linger l = { s->linger, s->linger_s > INT32_MAX ? INT32_MAX : (int)s->linger_s };
	size_t n = room < sizeof(l) ? room : sizeof(l);

	memcpy(v, &l, n);
	return (int64_t)n;
}

int64_t sock_set_option(struct sock *s, int level, int name, const uint8_t *v, socklen_t n)
{
	if (level == SOL_SOCKET && name == SO_LINGER)
		return set_linger(s, v, n);
	if (!may(level, name, SET))
		return -ENOPROTOOPT;
	return s->ch->ops->set_option(s->ch, level, name, v, n);
}

int64_t sock_get_option(struct sock *s, int level, int name, uint8_t *v, socklen_t room)
{
	int rc;

	if (level == SOL_SOCKET && name == SO_LINGER)
		return get_linger(s, v, room);
	if (!may(level, name, GET))
		return -ENOPROTOOPT;
	rc = s->ch->ops->get_option(s->ch, level, name, v, &room);
	return rc ? rc : (int64_t)room;
}
