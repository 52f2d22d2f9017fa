/* SPDX-License-Identifier: BSD-3-Clause */
#include "channel/tcp/tcp.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/list.h"
#include "base/sys.h"
#include "proxy/proxy.h"

#ifndef SO_PASSRIGHTS /* Linux 6.16 */
#define SO_PASSRIGHTS 83
#endif

struct tcp {
	struct channel base;
	struct proxy_watch watch;
	struct proxy_grave grave;
	struct proxy_thread *t; /* NULL until started */
	int fd;
	int domain;
	/* Of an accepted connection: accept(2) tells it for nothing, and it stays when the peer has gone. A UNIX socket may be bound later. */
	struct sockaddr_storage peer;
	socklen_t peer_len;
};

static const struct channel_ops tcp_ops, unix_ops, udp_ops, unix_dgram_ops;

static struct tcp *tcp_of(struct channel *c)
{
	return list_entry(c, struct tcp, base);
}

static void on_event(struct proxy_watch *w, uint32_t e)
{
	struct tcp *s = list_entry(w, struct tcp, watch);
	unsigned events = 0;

	if (s->fd < 0)
		return; /* closed earlier in this pass */
	if (e & (EPOLLIN | EPOLLHUP | EPOLLERR | EPOLLRDHUP))
		events |= CHANNEL_IN;
	if (e & (EPOLLHUP | EPOLLERR | EPOLLRDHUP))
		events |= CHANNEL_END;
	if (e & (EPOLLOUT | EPOLLHUP | EPOLLERR))
		events |= CHANNEL_OUT;
	if (e & EPOLLHUP)
		events |= CHANNEL_HUP;
	if (e & EPOLLERR)
		events |= CHANNEL_ERR;
	s->base.event(&s->base, events);
}

static const struct channel_ops *ops_for(int domain, int type)
{
	if (type == SOCK_DGRAM)
		return domain == AF_UNIX ? &unix_dgram_ops : &udp_ops;
	return domain == AF_UNIX ? &unix_ops : &tcp_ops;
}

/* A channel that has no descriptor yet. */
static struct tcp *tcp_new(int domain, int type)
{
	struct tcp *s = sys.alloc(sizeof(*s));

	if (!s)
		return NULL;
	s->base.ops = ops_for(domain, type);
	s->watch.fn = on_event;
	s->fd = -1;
	s->domain = domain;
	return s;
}

/* Options from the start. What is accepted has them from its listener. */
static int preset(int fd, int domain, int type)
{
	int zero = 0, one = 1;

	if (domain == AF_UNIX) {
		/* A peer's descriptors: the last close of a TCP socket that lingers would block the proxy in its recvmsg. Older
		 * systems have no such option. */
		(void)sys.setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &zero, sizeof(zero));
		return 0;
	}
	if (type == SOCK_DGRAM)
		return 0;
	/* Slower without, not wrong. */
	(void)sys.setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return sys.setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
}

int tcp_create(int domain, int type, int protocol, struct channel **out)
{
	struct tcp *s;
	int rc;

	if (domain != AF_INET && domain != AF_INET6 && domain != AF_UNIX)
		return -EAFNOSUPPORT;
	if (type != SOCK_STREAM && type != SOCK_DGRAM)
		return -ESOCKTNOSUPPORT;
	s = tcp_new(domain, type);
	if (!s)
		return -ENOMEM;
	s->fd = sys.socket(domain, type | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol);
	rc = s->fd < 0 ? s->fd : preset(s->fd, domain, type);
	if (rc) {
		if (s->fd >= 0)
			sys.close(s->fd);
		sys.free(s);
		return rc;
	}
	*out = &s->base;
	return 0;
}

static int tcp_bind(struct channel *c, const struct sockaddr *a, socklen_t n)
{
	return sys.bind(tcp_of(c)->fd, a, n);
}

static int tcp_listen(struct channel *c, int backlog)
{
	return sys.listen(tcp_of(c)->fd, backlog);
}

static int tcp_connect(struct channel *c, const struct sockaddr *a, socklen_t n)
{
	int fd = tcp_of(c)->fd, rc = sys.connect(fd, a, n);

	/* Linux tells of an earlier attempt that failed once more, and only then forgets it. */
	if (rc == -ECONNABORTED)
		rc = sys.connect(fd, a, n);
	return rc == -EINTR ? -EINPROGRESS : rc;
}

/* SO_ERROR tells a failure; whether a connection without one exists yet only the peer's name tells. */
static int tcp_connect_result(struct channel *c)
{
	struct tcp *s = tcp_of(c);
	struct sockaddr_storage a;
	socklen_t n = sizeof(int), len = sizeof(a);
	int err = 0, rc;

	rc = sys.getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &err, &n);
	if (rc || err)
		return rc ? rc : -err;
	rc = sys.getpeername(s->fd, (struct sockaddr *)&a, &len);
	return rc == -ENOTCONN ? -EINPROGRESS : rc;
}

/* What can be short is got first: a connection that has left the backlog could only be dropped. */
static int tcp_accept(struct channel *c, struct channel **out)
{
	struct tcp *s = tcp_of(c), *conn = tcp_new(s->domain, SOCK_STREAM);
	socklen_t len;

	if (!conn)
		return -ENOMEM;
	do {
		len = sizeof(conn->peer);
		conn->fd = sys.accept(s->fd, (struct sockaddr *)&conn->peer, &len);
	} while (conn->fd == -EINTR || conn->fd == -ECONNABORTED);
	if (conn->fd < 0) {
		int rc = conn->fd;

		sys.free(conn);
		return rc;
	}
	conn->peer_len = len < sizeof(conn->peer) ? len : sizeof(conn->peer);
	*out = &conn->base;
	return 0;
}

static int tcp_descriptor(struct channel *c)
{
	return tcp_of(c)->fd;
}

/* ---- datagrams -------------------------------------------------------------------------------------------------------- */

static ssize_t dgram_send_to(struct channel *c, const struct iovec *iov, int n,
			     const struct sockaddr *a, socklen_t len)
{
	struct msghdr m = { .msg_name = (void *)(uintptr_t)a,
			    .msg_namelen = a ? len : 0,
			    .msg_iov = (struct iovec *)(uintptr_t)iov,
			    .msg_iovlen = (size_t)n };

	return sys.sendmsg(tcp_of(c)->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static ssize_t dgram_recv_from(struct channel *c, const struct iovec *iov, int n,
			       struct sockaddr *a, socklen_t *len)
{
	struct msghdr m = { .msg_name = a,
			    .msg_namelen = *len,
			    .msg_iov = (struct iovec *)(uintptr_t)iov,
			    .msg_iovlen = (size_t)n };
	ssize_t rc = sys.recvmsg(tcp_of(c)->fd, &m, MSG_DONTWAIT | MSG_TRUNC);

	*len = m.msg_namelen;
	return rc;
}

static ssize_t dgram_next(struct channel *c)
{
	struct msghdr m = { 0 };

	return sys.recvmsg(tcp_of(c)->fd, &m, MSG_DONTWAIT | MSG_TRUNC | MSG_PEEK);
}

static ssize_t no_send_to(struct channel *c, const struct iovec *iov, int n,
			  const struct sockaddr *a, socklen_t len)
{
	return -EOPNOTSUPP;
}

static ssize_t no_recv_from(struct channel *c, const struct iovec *iov, int n, struct sockaddr *a,
			    socklen_t *len)
{
	return -EOPNOTSUPP;
}

static ssize_t no_next(struct channel *c)
{
	return -EOPNOTSUPP;
}

static int tcp_shutdown(struct channel *c, int how)
{
	return sys.shutdown(tcp_of(c)->fd, how);
}

static int tcp_name_of(struct channel *c, int peer, struct sockaddr *a, socklen_t *n)
{
	struct tcp *s = tcp_of(c);

	if (!peer)
		return sys.getsockname(s->fd, a, n);
	if (!s->peer_len || (s->domain == AF_UNIX && peer != CHANNEL_PEER_THEN))
		return sys.getpeername(s->fd, a, n);
	memcpy(a, &s->peer, s->peer_len < *n ? s->peer_len : *n);
	*n = s->peer_len;
	return 0;
}

static int tcp_set_option(struct channel *c, int level, int name, const void *v, socklen_t n)
{
	return sys.setsockopt(tcp_of(c)->fd, level, name, v, n);
}

static int tcp_get_option(struct channel *c, int level, int name, void *v, socklen_t *n)
{
	return sys.getsockopt(tcp_of(c)->fd, level, name, v, n);
}

static int tcp_start(struct channel *c, struct proxy_thread *t)
{
	struct tcp *s = tcp_of(c);
	int rc;

	s->t = t;
	rc = proxy_watch(t, s->fd, &s->watch);
	if (rc)
		s->t = NULL;
	return rc;
}

static void grave_free(struct proxy_grave *g)
{
	sys.free(list_entry(g, struct tcp, grave));
}

static void tcp_close(struct channel *c, int abort)
{
	struct tcp *s = tcp_of(c);
	struct linger reset = { .l_onoff = 1, .l_linger = 0 };

	if (abort)
		(void)sys.setsockopt(s->fd, SOL_SOCKET, SO_LINGER, &reset,
				     sizeof(reset)); /* best effort */
	if (s->t)
		proxy_unwatch(s->t, s->fd);
	sys.close(s->fd);
	s->fd = -1;
	s->grave.fn = grave_free;
	if (s->t)
		proxy_bury(s->t, &s->grave);
	else
		sys.free(s);
}

#define TCP_OPS(...)                                                                            \
	{                                                                                       \
		.bind = tcp_bind, .listen = tcp_listen, .connect = tcp_connect,                 \
		.connect_result = tcp_connect_result, .accept = tcp_accept,                     \
		.descriptor = tcp_descriptor, .shutdown = tcp_shutdown, .name_of = tcp_name_of, \
		.set_option = tcp_set_option, .get_option = tcp_get_option, .start = tcp_start, \
		.close = tcp_close, __VA_ARGS__                                                 \
	}
#define NO_DATAGRAMS .send_to = no_send_to, .recv_from = no_recv_from, .next = no_next
#define DATAGRAMS .send_to = dgram_send_to, .recv_from = dgram_recv_from, .next = dgram_next

static const struct channel_ops tcp_ops = TCP_OPS(.name = "tcp", .end_is_last = true, NO_DATAGRAMS);
/* Linux tells poll(2) nothing of the SHUT_RD of a UNIX stream's peer but by EPOLLOUT, which a full socket has not. */
static const struct channel_ops unix_ops =
	TCP_OPS(.name = "unix", .hides_deaf = true, NO_DATAGRAMS);
static const struct channel_ops udp_ops = TCP_OPS(.name = "udp", DATAGRAMS);
static const struct channel_ops unix_dgram_ops = TCP_OPS(.name = "unix-dgram", DATAGRAMS);
