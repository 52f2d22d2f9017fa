/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The socket calls other than send and receive: thread 0 acts, the block waits at a barrier for its result.
 * Not for direct inclusion.
 */
#ifndef GPUNET_DEV_IMPL_SOCKET_H
#define GPUNET_DEV_IMPL_SOCKET_H

#include <gpunet/dev/impl/dgram.h>
#include <gpunet/dev/impl/stream.h>

/* Runs an expression in thread 0 and returns its value in all threads of the block. */
#define GNET__BY_THREAD_0(expr)                                   \
	do {                                                      \
		struct gnet__scratch *s_ = gnet__block_scratch(); \
		int64_t rc_;                                      \
                                                                  \
		GNET__MEET(__func__);                             \
		if (gnet__tid() == 0)                             \
			s_->rc = (expr);                          \
		GNET__MEET(__func__);                             \
		rc_ = s_->rc;                                     \
		GNET__MEET(__func__);                             \
		return (int)rc_;                                  \
	} while (0)

/* The same by the first thread of a warp, for all of it. */
#define GNET__BY_LANE_0(expr)                                        \
	do {                                                         \
		struct gnet__scope sc_ = gnet__scope_of(GNET__WARP); \
		struct gnet__scratch *s_ = gnet__warp_scratch();     \
		int64_t rc_;                                         \
                                                                     \
		gnet__sync(sc_);                                     \
		if (sc_.tid == 0)                                    \
			s_->rc = (expr);                             \
		gnet__sync(sc_);                                     \
		rc_ = s_->rc;                                        \
		gnet__sync(sc_);                                     \
		return (int)rc_;                                     \
	} while (0)

GNET__COLD int64_t gnet__socket(gnet_t *net, int domain, int type, int protocol)
{
	uint64_t nonblock = type & GNET_SOCK_NONBLOCK ? GNET_L_NONBLOCK : 0;
	int64_t fd = 0;
	uint32_t i, q;

	if (!net)
		return -GNET__EINVAL;
	if (net->magic != GNET_MAGIC || net->version != GNET_ABI_VERSION ||
	    net->size != sizeof(*net))
		return -GNET__EPROTO;
	if (domain & ~0xff)
		return -GNET__EAFNOSUPPORT;
	type &= ~(GNET_SOCK_NONBLOCK | GNET_SOCK_CLOEXEC);
	if ((type | protocol) & ~0xff)
		return -GNET__EINVAL;
	q = (uint32_t)(gnet_dev_add(&net->sqd[0].made, 1) % net->n_queues);
	/* Each proxy thread has its share of the slots: the limit is reached when all are used. */
	for (i = 0; i < net->n_queues; i++) {
		fd = gnet__call(net, (q + i) % net->n_queues, GNET_OP_SOCKET, 0,
				(uint64_t)(domain | type << 8 | protocol << 16), 0);
		if (fd != -GNET__EMFILE)
			break;
	}
	if (fd >= 0) {
		net->socks[GNET_FD_SLOT((int)fd)].domain = (uint64_t)domain;
		gnet__sock_init(net, (int)fd,
				nonblock | (type == GNET_SOCK_DGRAM ? GNET_L_DGRAM : 0));
	}
	return fd;
}

GNET__COLD int64_t gnet__bind(gnet_t *net, int fd, const void *addr, uint32_t len)
{
	int64_t rc = gnet__enter(net, fd);

	if (rc)
		return rc;
	rc = gnet__call_addr(net, GNET_OP_BIND, fd, addr, len, 0);
	gnet__leave(gnet__slot(net, fd));
	return rc;
}

/* Waits for the end of a connect that is under way. */
GNET_DEV int64_t gnet__connect_wait(gnet_t *net, int fd, struct gnet_sock *sk, struct gnet__wait *w)
{
	for (;;) {
		uint32_t flags = gnet__line_flags(net, fd);
		int rc;

		if (!(flags & GNET_LINE_CONNECTING) || (flags & GNET_LINE_CONNECTED)) {
			gnet__turn_over(net, w);
			/* -ECONNABORTED: another call was told why */
			return flags & GNET_LINE_CONNECTED
				       ? 0
				       : gnet__sock_error(net, fd, sk, -GNET__ECONNABORTED);
		}
		rc = gnet_dev_load(&sk->tx) & GNET_L_CLOSING
			     ? -GNET__EBADF
			     : gnet__seen_limited(net, GNET_W_CONNECT, fd, w);
		if (rc == -GNET__EBADF)
			gnet__turn_over(net, w);
		if (rc)
			return rc;
	}
}

/* AF_UNSPEC takes a socket of datagrams from its peer. */
GNET_DEV void gnet__mark_connected(struct gnet_sock *sk, const void *addr)
{
	const uint8_t *family = (const uint8_t *)addr;

	if (family[0] == GNET_AF_UNSPEC && family[1] == 0) {
		gnet_dev_and(&sk->rx, ~(uint64_t)GNET_L_CONNECTED);
		gnet_dev_and(&sk->tx, ~(uint64_t)GNET_L_CONNECTED);
	} else {
		gnet_dev_or(&sk->rx, GNET_L_CONNECTED);
		gnet_dev_or(&sk->tx, GNET_L_CONNECTED);
	}
}

GNET__COLD int64_t gnet__connect(gnet_t *net, int fd, const void *addr, uint32_t len)
{
	struct gnet_sock *sk = gnet__slot(net, fd);
	int64_t rc = gnet__enter(net, fd);
	struct gnet__wait w;

	if (rc)
		return rc;
	gnet__wait_begin(&w, &sk->snd_limit, 0);
	w.dontwait = !!(gnet_dev_load(&sk->tx) & GNET_L_NONBLOCK);
	rc = gnet__sock_error(net, fd, sk, 0); /* of an attempt before, that nobody was told of */
	if (!rc)
		rc = gnet__call_addr(net, GNET_OP_CONNECT, fd, addr, len, !w.dontwait);
	if (rc == -GNET__EINPROGRESS && !w.dontwait)
		rc = gnet__connect_wait(net, fd, sk, &w);
	if (!rc)
		gnet__mark_connected(sk, addr);
	gnet__leave(sk);
	return rc;
}

GNET__COLD int64_t gnet__listen(gnet_t *net, int fd, int backlog)
{
	struct gnet_sock *sk = gnet__slot(net, fd);
	int64_t rc = gnet__enter(net, fd);

	if (rc)
		return rc;
	rc = gnet__call(net, gnet__queue(net, fd), GNET_OP_LISTEN, fd, 0,
			(uint64_t)(backlog < 0 ? 0 : backlog));
	if (!rc)
		gnet_dev_or(&sk->rx, GNET_L_LISTENING);
	gnet__leave(sk);
	return rc;
}

/* Claims the next connection of a listener whose receive side is held. */
GNET_DEV int64_t gnet__accept_next(gnet_t *net, int fd, struct gnet_sock *sk, struct gnet__wait *w,
				   uint64_t also)
{
	struct gnet_sock_bus *bus = &net->bus[GNET_FD_SLOT(fd)];
	uint64_t p = gnet_dev_load(&sk->rx_head);

	for (;;) {
		uint64_t c = gnet_sys_load_acquire(&bus->line.cell[1 + p % GNET_ACCEPT_RING]);
		int rc;

		if ((c & 0xff) == GNET_ACCEPT_TAG(p)) {
			gnet_dev_store(&sk->rx_head, p + 1);
			gnet_sys_store_release(&bus->head, p + 1);
			gnet__kick(net, gnet__queue(net, fd) | GNET_KICK_ROOM);
			gnet__sock_init(net, (int)(c >> 8), GNET_L_CONNECTED | also);
			return (int64_t)(c >> 8);
		}
		if (w->dontwait)
			return -GNET__EAGAIN;
		rc = gnet__told_spin(net, fd, sk, GNET_WAIT_RX, p, w);
		if (rc)
			return rc;
	}
}

GNET__COLD int64_t gnet__accept(gnet_t *net, int fd, void *addr, uint32_t *len, int flags)
{
	struct gnet_sock *sk = gnet__slot(net, fd);
	struct gnet__wait w;
	int64_t conn;

	if (flags &
	    ~(GNET_MSG_DONTWAIT | GNET_MSG_NOSIGNAL | GNET_SOCK_NONBLOCK | GNET_SOCK_CLOEXEC))
		return -GNET__EOPNOTSUPP;
	if (!sk)
		return -GNET__EBADF;
	gnet__wait_begin(&w, &sk->rcv_limit, flags);
	conn = gnet__take(net, fd, &sk->rx, GNET_L_LISTENING, -GNET__EINVAL, &w);
	if (conn)
		return conn;
	conn = gnet__accept_next(net, fd, sk, &w, flags & GNET_SOCK_NONBLOCK ? GNET_L_NONBLOCK : 0);
	gnet__give(&sk->rx, GNET_L_HELD);
	if (conn >= 0 && addr) {
		int64_t rc = gnet__call_name(net, GNET_OP_GETPEERNAME, (int)conn, addr, len);

		if (rc && len)
			*len = 0; /* the peer has gone already; the connection says so itself */
	}
	return conn;
}

GNET__COLD int64_t gnet__shutdown(gnet_t *net, int fd, int how)
{
	struct gnet_sock *sk = gnet__slot(net, fd);
	struct gnet__wait w;
	int64_t rc;

	if (how < GNET_SHUT_RD || how > GNET_SHUT_RDWR)
		return -GNET__EINVAL;
	rc = gnet__enter(net, fd);
	if (rc)
		return rc;
	if (!(gnet_dev_load(&sk->tx) & GNET_L_CONNECTED) &&
	    !(gnet__line_flags(net, fd) & GNET_LINE_CONNECTED)) {
		rc = -GNET__ENOTCONN;
	} else if (how != GNET_SHUT_RD) {
		/* A sender that waits sees the mark and ends; what it announced goes before the shutdown. */
		gnet_dev_or(&sk->tx, GNET_L_SHUT_WR);
		gnet__wait_begin(&w, 0, 0);
		rc = gnet__take(net, fd, &sk->tx, GNET_L_SHUT_WR, 0, &w);
	}
	if (!rc) {
		rc = gnet__call(net, gnet__queue(net, fd), GNET_OP_SHUTDOWN, fd, (uint64_t)how, 0);
		if (how != GNET_SHUT_RD)
			gnet__give(&sk->tx, GNET_L_HELD);
		gnet__hint(net, fd);
	}
	gnet__leave(sk);
	return rc;
}

/* Is a call in a side? A borrower is none: it may be the closer, or never come back. */
GNET_DEV int gnet__side_in_use(const uint64_t *side)
{
	return (gnet_dev_load_acquire(side) & (GNET_L_HELD | GNET_L_BORROWED)) == GNET_L_HELD;
}

/* Is any call but the closer's in the socket? */
GNET_DEV int gnet__in_use(struct gnet_sock *sk)
{
	return (gnet_dev_load_acquire(&sk->life) & GNET_L_USERS) > 1 ||
	       gnet__side_in_use(&sk->rx) || gnet__side_in_use(&sk->tx);
}

/* N3: the socket lingers. Its slot is the closer's until it says CLOSE once more. */
GNET_DEV int64_t gnet__close_linger(gnet_t *net, int fd)
{
	uint64_t turn = 0;
	int rc;

	while (!(gnet__line_flags(net, fd) & GNET_LINE_GONE)) {
		rc = gnet__seen_spin(net, GNET_W_CLOSE, fd, 0, &turn, 0);
		if (rc)
			return rc;
	}
	gnet__seen_end(net, turn);
	return gnet__call(net, gnet__queue(net, fd), GNET_OP_CLOSE, fd, 0, 0);
}

/* The last one in a socket that is being closed gives it up. */
GNET__COLD int64_t gnet__close_finish(gnet_t *net, int fd, struct gnet_sock *sk)
{
	uint64_t rx = gnet_dev_load(&sk->rx), claimed;
	int64_t rc;

	/* K3: positions that were stored last must not arrive when the slot is used again. */
	rc = gnet__settle(net, &sk->rx, rx);
	if (!rc)
		rc = gnet__settle(net, &sk->tx, gnet_dev_load(&sk->tx));
	if (rc)
		return rc;
	gnet__settle_head(net, fd, gnet_sys_load(&net->bus[GNET_FD_SLOT(fd)].head), rx);
	claimed = rx & GNET_L_LISTENING ? gnet_dev_load(&sk->rx_head) : 0;
	gnet_dev_store_release(&sk->rx, 0);
	gnet_dev_store_release(&sk->tx, 0);
	gnet_dev_store_release(&sk->life, 0);
	rc = gnet__call(net, gnet__queue(net, fd), GNET_OP_CLOSE, fd, 0, claimed);
	return rc == -GNET__EINPROGRESS ? gnet__close_linger(net, fd) : rc;
}

/* Waits for the calls. 0: nobody is left; 1: borrowers are, and the last of them ends it (B5); or why the wait ended. */
GNET_DEV int gnet__close_wait(gnet_t *net, int fd, struct gnet_sock *sk)
{
	uint64_t turn = 0;
	int rc = -1;

	while (rc < 0) {
		if (!gnet__in_use(sk)) {
			/* Loaded after the sides: a call that turned into a borrow is counted here. */
			uint64_t w = gnet_dev_load_acquire(&sk->life);
			int alone = (w & GNET_L_USERS) == 1;

			if (alone && !(w & GNET_L_LENT_MASK))
				rc = 0;
			else if (alone && gnet_dev_cas(&sk->life, w, w | GNET_L_ORPHAN) == w)
				rc = 1;
		}
		if (rc < 0) {
			int why = gnet__seen_spin(net, GNET_W_CLOSE, fd, 0, &turn, 0);

			if (why)
				return why;
		}
	}
	gnet__seen_end(net, turn);
	return rc;
}

GNET__COLD int64_t gnet__close(gnet_t *net, int fd)
{
	struct gnet_sock *sk = gnet__slot(net, fd);
	uint32_t q = gnet__queue(net, fd);
	int64_t rc = gnet__enter(net, fd);

	if (rc)
		return rc;
	if (gnet_dev_or(&sk->life, GNET_L_CLOSING) & GNET_L_CLOSING) {
		gnet__leave(sk);
		return -GNET__EBADF;
	}
	gnet_dev_or(&sk->rx, GNET_L_CLOSING);
	gnet_dev_or(&sk->tx, GNET_L_CLOSING);
	gnet__hint(net, fd); /* a gpoll may have it among others */
	rc = gnet__close_wait(net, fd, sk);
	if (rc == 1) {
		/* The peer gets the end now. Nothing is there any more if the borrowers were faster. */
		gnet__call(net, q, GNET_OP_SHUTDOWN, fd, GNET_SHUT_RDWR, 0);
		return 0;
	}
	return rc ? rc : gnet__close_finish(net, fd, sk);
}

GNET__COLD int64_t gnet__getname(gnet_t *net, uint32_t op, int fd, void *addr, uint32_t *len)
{
	int64_t rc = gnet__enter(net, fd);

	if (rc)
		return rc;
	rc = gnet__call_name(net, op, fd, addr, len);
	gnet__leave(gnet__slot(net, fd));
	return rc;
}

GNET_DEV int gsocket(gnet_t *net, int domain, int type, int protocol)
{
	GNET__BY_THREAD_0(gnet__socket(net, domain, type, protocol));
}

GNET_DEV int gbind(gnet_t *net, int fd, const void *addr, uint32_t len)
{
	GNET__BY_THREAD_0(gnet__bind(net, fd, addr, len));
}

GNET_DEV int glisten(gnet_t *net, int fd, int backlog)
{
	GNET__BY_THREAD_0(gnet__listen(net, fd, backlog));
}

GNET_DEV int gaccept4(gnet_t *net, int fd, void *addr, uint32_t *len, int flags)
{
	GNET__BY_THREAD_0(gnet__accept(net, fd, addr, len, flags));
}

GNET_DEV int gaccept(gnet_t *net, int fd, void *addr, uint32_t *len)
{
	GNET__BY_THREAD_0(gnet__accept(net, fd, addr, len, 0));
}

GNET_DEV int gconnect(gnet_t *net, int fd, const void *addr, uint32_t len)
{
	GNET__BY_THREAD_0(gnet__connect(net, fd, addr, len));
}

GNET_DEV int gshutdown(gnet_t *net, int fd, int how)
{
	GNET__BY_THREAD_0(gnet__shutdown(net, fd, how));
}

GNET_DEV int gclose(gnet_t *net, int fd)
{
	GNET__BY_THREAD_0(gnet__close(net, fd));
}

GNET_DEV int ggetsockname(gnet_t *net, int fd, void *addr, uint32_t *len)
{
	GNET__BY_THREAD_0(gnet__getname(net, GNET_OP_GETSOCKNAME, fd, addr, len));
}

GNET_DEV int ggetpeername(gnet_t *net, int fd, void *addr, uint32_t *len)
{
	GNET__BY_THREAD_0(gnet__getname(net, GNET_OP_GETPEERNAME, fd, addr, len));
}

#endif
