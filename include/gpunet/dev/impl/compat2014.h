/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bodies of gpunet/compat/gpunet2014.h. `kind` is the scope of the call, GNET__BLOCK or GNET__THREAD; such a function is named gnet2014_
 * and what the kernel calls it, which the CPU device says when only a part of a block makes the call.
 * Not for direct inclusion.
 */
#ifndef GPUNET_DEV_IMPL_COMPAT2014_H
#define GPUNET_DEV_IMPL_COMPAT2014_H

#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <gpunet/dev/socket.h>

#define GNET__ENETDOWN 100

/* How many connections wait for gaccept: the API of 2014 has no argument for it. */
#define GNET__2014_BACKLOG 1024
/* A connect that failed takes at least so long, or a block that tries again at once keeps the proxy from its work. */
#define GNET__2014_PAUSE_NS 50000
/* No slot has this number, so that every call with it is -EBADF. */
#define GNET__2014_DEAD 0x7fffffff

/* The functions behind the names are called, not inlined: such kernels have many of them, and no launch bounds. */
#ifdef __CUDACC__
static __device__ __attribute__((unused)) gnet_t *gnet__2014_net;
#define GNET__2014_FN static __device__ __noinline__ __attribute__((unused))
#else
static __attribute__((unused)) gnet_t *gnet__2014_net;
#define GNET__2014_FN GNET_DEV
#endif

struct gpollfd {
	int fd;
	short events;
	short revents;
	unsigned rbytes;
	unsigned wbytes;
};

struct gtimeval {
	long tv_sec;
	long tv_usec;
};

/* ---- scopes --------------------------------------------------------------------------------------------------------- */

/* Runs an expression in the calling thread alone. */
#define GNET__2014_ALONE(expr)                  \
	do {                                    \
		gnet_t *net = gnet__2014_net;   \
                                                \
		if (!net)                       \
			return -GNET__ENETDOWN; \
		return (int)(expr);             \
	} while (0)

/* Runs it in thread 0 of the block, or alone; its value is everybody's. */
#define GNET__2014_BY_ONE(kind, expr)           \
	do {                                    \
		gnet_t *net = gnet__2014_net;   \
                                                \
		if (!net)                       \
			return -GNET__ENETDOWN; \
		if ((kind) == GNET__THREAD)     \
			return (int)(expr);     \
		GNET__BY_THREAD_0(expr);        \
	} while (0)

/* The block's scratch, or a thread's own, which begins with whatever a call before has left there. */
GNET_DEV struct gnet__scratch *gnet__2014_scratch(int kind, struct gnet__scratch *own)
{
	if (kind == GNET__BLOCK)
		return gnet__block_scratch();
	gnet__forget(own);
	return own;
}

/* The socket's bits in `life`; 0 for a bad descriptor, which the call itself will report. */
GNET_DEV uint64_t gnet__2014_bits(gnet_t *net, int fd)
{
	struct gnet_sock *sk = gnet__slot(net, fd);

	return sk ? gnet_dev_load(&sk->life) & (GNET_L_2014_NONBLOCK | GNET_L_2014_END) : 0;
}

/* The same, read once for the scope: threads must not differ about whether a call waits. */
GNET_DEV uint64_t gnet__2014_bits_of(struct gnet__scope sc, struct gnet__scratch *s, gnet_t *net,
				     int fd)
{
	uint64_t bits;

	gnet__sync(sc);
	if (sc.tid == 0)
		s->rc = (int64_t)gnet__2014_bits(net, fd);
	gnet__sync(sc);
	bits = (uint64_t)s->rc;
	gnet__sync(sc);
	return bits;
}

GNET_DEV int64_t gnet__2014_set_bits(gnet_t *net, int fd, uint64_t set, uint64_t clear)
{
	struct gnet_sock *sk = gnet__slot(net, fd);
	int64_t rc = gnet__enter(net, fd);

	if (rc)
		return rc;
	gnet_dev_or(&sk->life, set);
	gnet_dev_and(&sk->life, ~clear);
	gnet__leave(sk);
	return 0;
}

/* ---- names and connections ----------------------------------------------------------------------------------------- */

union gnet__2014_addr {
	struct sockaddr_in in;
	struct sockaddr_un un;
};

/* Addresses are taken as the original took them: whatever sin_family says. */
GNET_DEV uint32_t gnet__2014_in(union gnet__2014_addr *a, const struct sockaddr_in *from)
{
	if (!from)
		return 0;
	a->in = *from;
	a->in.sin_family = AF_INET;
	return sizeof(a->in);
}

/* A path of at most `len` bytes, which may or may not count its end; the length of the address, 0: too long. */
GNET_DEV uint32_t gnet__2014_un(union gnet__2014_addr *a, const char *name, int len)
{
	int room = (int)sizeof(a->un.sun_path) - 1, n = 0;

	if (!name || len < 1)
		return 0;
	/* A name that begins with 0 is abstract and has no other end than its length. */
	while (n < len && (name[n] || !name[0])) {
		if (n == room)
			return 0;
		a->un.sun_path[n] = name[n];
		n++;
	}
	a->un.sun_family = AF_UNIX;
	a->un.sun_path[n] = 0;
	return (uint32_t)offsetof(struct sockaddr_un, sun_path) + (uint32_t)n + (name[0] ? 1 : 0);
}

GNET_DEV int64_t gnet__2014_bind(gnet_t *net, int domain, const union gnet__2014_addr *a,
				 uint32_t len)
{
	int64_t fd = len ? gnet__socket(net, domain, SOCK_STREAM, 0) : -GNET__EINVAL, rc;

	if (fd < 0)
		return fd;
	rc = gnet__bind(net, (int)fd, a, len);
	if (!rc)
		rc = gnet__listen(net, (int)fd, GNET__2014_BACKLOG);
	if (rc)
		gnet__close(net, (int)fd);
	return rc ? rc : fd;
}

GNET_DEV int64_t gnet__2014_try(gnet_t *net, int domain, const union gnet__2014_addr *a,
				uint32_t len)
{
	int64_t fd = len ? gnet__socket(net, domain, SOCK_STREAM, 0) : -GNET__EINVAL, rc;

	if (fd < 0)
		return fd;
	rc = gnet__connect(net, (int)fd, a, len);
	if (rc)
		gnet__close(net, (int)fd);
	return rc ? rc : fd;
}

/* Kernels of that time try until the result is not negative: when the network ends, they must end, too. */
GNET_DEV int64_t gnet__2014_connect(gnet_t *net, int domain, const union gnet__2014_addr *a,
				    uint32_t len)
{
	int64_t fd = gnet__2014_try(net, domain, a, len);

	if (fd >= 0)
		return fd;
	if (fd == -GNET__ECANCELED || gnet_sys_load(&net->ctl->stop))
		return GNET__2014_DEAD;
	__nanosleep(GNET__2014_PAUSE_NS);
	return fd;
}

/* Each by one thread. */
GNET_DEV int64_t gnet__2014_bind_in(gnet_t *net, const struct sockaddr_in *addr)
{
	union gnet__2014_addr a;
	uint32_t len = gnet__2014_in(&a, addr);

	return gnet__2014_bind(net, AF_INET, &a, len);
}

GNET_DEV int64_t gnet__2014_bind_un(gnet_t *net, const char *name, int n)
{
	union gnet__2014_addr a;
	uint32_t len = gnet__2014_un(&a, name, n);

	return gnet__2014_bind(net, AF_UNIX, &a, len);
}

GNET_DEV int64_t gnet__2014_connect_in(gnet_t *net, const struct sockaddr_in *addr)
{
	union gnet__2014_addr a;
	uint32_t len = gnet__2014_in(&a, addr);

	return gnet__2014_connect(net, AF_INET, &a, len);
}

GNET_DEV int64_t gnet__2014_connect_un(gnet_t *net, const char *name, int n)
{
	union gnet__2014_addr a;
	uint32_t len = gnet__2014_un(&a, name, n);

	return gnet__2014_connect(net, AF_UNIX, &a, len);
}

GNET__2014_FN int gnet2014_socket(int domain, int type, int protocol)
{
	GNET__2014_ALONE(gnet__socket(net, domain, type, protocol));
}

GNET__2014_FN int gnet2014_bind_in(const struct sockaddr_in *addr)
{
	GNET__2014_ALONE(gnet__2014_bind_in(net, addr));
}

GNET__2014_FN int gnet2014_bind_un(const char *name, int n)
{
	GNET__2014_ALONE(gnet__2014_bind_un(net, name, n));
}

GNET__2014_FN int gnet2014_gconnect_in(int kind, const struct sockaddr_in *addr)
{
	GNET__2014_BY_ONE(kind, gnet__2014_connect_in(net, addr));
}

GNET__2014_FN int gnet2014_gconnect(int kind, const char *name, int n)
{
	GNET__2014_BY_ONE(kind, gnet__2014_connect_un(net, name, n));
}

/* The same for this one, which says -EAGAIN until somebody comes. */
GNET_DEV int64_t gnet__2014_accept_nb(gnet_t *net, int fd)
{
	int64_t conn = gnet__accept(net, fd, 0, 0, GNET_MSG_DONTWAIT);

	return conn == -GNET__ECANCELED || conn == -GNET__EIO ? GNET__2014_DEAD : conn;
}

GNET__2014_FN int gnet2014_gaccept(int kind, int fd)
{
	GNET__2014_BY_ONE(kind, gnet__accept(net, fd, 0, 0, 0));
}

GNET__2014_FN int gnet2014_gaccept_nb(int kind, int fd)
{
	GNET__2014_BY_ONE(kind, gnet__2014_accept_nb(net, fd));
}

GNET__2014_FN int gnet2014_shutdown(int fd, int how)
{
	GNET__2014_ALONE(gnet__shutdown(net, fd, how));
}

GNET__2014_FN int gnet2014_close(int fd)
{
	GNET__2014_ALONE(gnet__close(net, fd));
}

/* ---- blocking or not ------------------------------------------------------------------------------------------------ */

GNET__2014_FN int gnet2014_gsetsock_block(int kind, int fd, int blocking)
{
	GNET__2014_BY_ONE(kind, gnet__2014_set_bits(net, fd, blocking ? 0 : GNET_L_2014_NONBLOCK,
						    blocking ? GNET_L_2014_NONBLOCK : 0));
}

GNET_DEV int64_t gnet__2014_blocks(gnet_t *net, int fd)
{
	int64_t rc = gnet__enter(net, fd);

	if (rc)
		return rc;
	rc = !(gnet__2014_bits(net, fd) & GNET_L_2014_NONBLOCK);
	gnet__leave(gnet__slot(net, fd));
	return rc;
}

GNET__2014_FN int gnet2014_ggetsock_block(int kind, int fd)
{
	GNET__2014_BY_ONE(kind, gnet__2014_blocks(net, fd));
}

/* ---- bytes ----------------------------------------------------------------------------------------------------------- */

GNET__2014_FN int gnet2014_gsend(int kind, int fd, const void *buf, int size)
{
	struct gnet__scope sc = gnet__scope_of(kind);
	struct gnet__scratch own;
	struct gnet__scratch *s = gnet__2014_scratch(kind, &own);
	gnet_t *net = gnet__2014_net;
	uint64_t bits;

	if (!net)
		return -GNET__ENETDOWN;
	if (size < 0 || (size && !buf))
		return -GNET__EINVAL;
	bits = gnet__2014_bits_of(sc, s, net, fd);
	return (int)gnet__send(sc, s, net, fd, buf, (uint64_t)size,
			       bits & GNET_L_2014_NONBLOCK ? GNET_MSG_DONTWAIT : 0);
}

/* The end of the stream is 0 once. Kernels of that time add up what is not negative, and would do so for ever. */
GNET__2014_FN int gnet2014_grecv(int kind, int fd, void *buf, int size, int flags)
{
	struct gnet__scope sc = gnet__scope_in(kind, flags ? "gnet2014_grecv_nb" : __func__);
	struct gnet__scratch own;
	struct gnet__scratch *s = gnet__2014_scratch(kind, &own);
	gnet_t *net = gnet__2014_net;
	uint64_t bits;
	int64_t rc;

	if (!net)
		return -GNET__ENETDOWN;
	if (size < 0 || (size && !buf))
		return -GNET__EINVAL;
	bits = gnet__2014_bits_of(sc, s, net, fd);
	if (bits & GNET_L_2014_NONBLOCK)
		flags |= GNET_MSG_DONTWAIT;
	rc = gnet__recv(sc, s, net, fd, buf, (uint64_t)size, flags);
	if (rc || !size)
		return (int)rc;
	if (bits & GNET_L_2014_END)
		return -GNET__EPIPE;
	if (sc.tid == 0)
		gnet__2014_set_bits(net, fd, GNET_L_2014_END, 0);
	return 0;
}

/* ---- poll ------------------------------------------------------------------------------------------------------------ */

/* What a stream has to read and how much it takes. */
GNET_DEV void gnet__2014_bytes(gnet_t *net, struct gpollfd *f)
{
	const struct gnet_sock_bus *bus = &net->bus[GNET_FD_SLOT(f->fd)];
	const struct gnet_sock *sk = gnet__slot(net, f->fd);
	uint64_t rx = gnet_dev_load_acquire(&sk->rx), tx = gnet_dev_load(&sk->tx);
	/* The head with acquire: a line that is older than it would seem to have nearly 2^41 bytes. */
	uint64_t head = gnet_sys_load_acquire(&bus->head);
	uint64_t c0 = gnet_sys_load(&bus->line.cell[0]);
	uint64_t txw = gnet_sys_load(&bus->txw), tail = gnet_dev_load(&sk->tx_tail);
	uint64_t window = gnet_dev_load(&sk->tx_seg) & GNET_SOCK_SEG ? (uint64_t)1 << net->seg_log2
								     : GNET_MINI_BYTES;
	uint64_t used = gnet__unsent(tail, txw);

	if (!(rx & GNET_L_CONNECTED))
		return;
	f->rbytes = (unsigned)(gnet__line_tail(c0, head) - head);
	if (!(tx & GNET_L_SHUT_WR) && !(txw >> GNET_TXW_ERR_SHIFT & 0xff) && used < window)
		f->wbytes = (unsigned)(window - used);
}

GNET_DEV short gnet__2014_poll_one(gnet_t *net, struct gpollfd *f)
{
	struct gnet_pollfd p;

	p.fd = f->fd;
	p.events = f->events;
	p.revents = f->fd < 0 ? GNET_POLLNVAL : gnet__poll_one(net, &p);
	f->rbytes = 0;
	f->wbytes = 0;
	if (!(p.revents & GNET_POLLNVAL))
		gnet__2014_bytes(net, f);
	f->revents = p.revents;
	return p.revents;
}

GNET_DEV uint32_t gnet__2014_poll_look(struct gnet__scope sc, gnet_t *net, struct gpollfd *fds,
				       uint64_t n)
{
	uint32_t count = 0;
	uint64_t from;

	for (from = 0; from < n; from += sc.n) {
		uint64_t i = from + sc.tid;

		count += gnet__votes(sc, i < n && gnet__2014_poll_one(net, &fds[i]));
	}
	gnet__sync(sc);
	return count;
}

/* Thread 0: one turn of the wait, 1: look again. Limits are counts of clock64, as they were. */
GNET_DEV uint32_t gnet__2014_poll_turn(gnet_t *net, struct gnet__scratch *s, long long limit,
				       long long end, uint64_t *turn)
{
	s->fail = 0;
	if (limit > 0 && clock64() >= end)
		return 0;
	s->fail = gnet__spin_until(net, turn, limit > 0 ? (uint64_t)end : 0);
	return !s->fail;
}

GNET__2014_FN int gnet2014_gpoll(int kind, struct gpollfd *fds, size_t n, int clocks)
{
	struct gnet__scope sc = gnet__scope_of(kind);
	struct gnet__scratch own;
	struct gnet__scratch *s = gnet__2014_scratch(kind, &own);
	long long end = clock64() + clocks;
	gnet_t *net = gnet__2014_net;
	uint64_t turn = 0;
	uint32_t ready;
	int rc;

	if (!net)
		return -GNET__ENETDOWN;
	own.fail = 0;
	gnet__sync(sc);
	if (sc.tid == 0)
		s->fail = gnet__ended(net);
	gnet__sync(sc);
	if (s->fail)
		return s->fail;
	for (;;) {
		ready = gnet__2014_poll_look(sc, net, fds, n);
		if (ready)
			break;
		if (sc.tid == 0)
			s->again = gnet__2014_poll_turn(net, s, clocks, end, &turn);
		gnet__sync(sc);
		if (!s->again)
			break;
	}
	rc = ready ? (int)ready : s->fail;
	gnet__sync(sc);
	return rc;
}

/* ---- time ------------------------------------------------------------------------------------------------------------ */

GNET__2014_FN int gnet2014_ggettimeofday(int kind, struct gtimeval *tv)
{
	uint64_t now = gnet_time_ns();

	if (kind == GNET__BLOCK)
		__syncthreads();
	if (kind == GNET__THREAD || gnet__tid() == 0) {
		tv->tv_sec = (long)(now / 1000000000u);
		tv->tv_usec = (long)(now / 1000u % 1000000u);
	}
	if (kind == GNET__BLOCK)
		__syncthreads();
	return 0;
}

GNET_DEV void gtimersub(const struct gtimeval *a, const struct gtimeval *b, struct gtimeval *diff)
{
	long us = a->tv_usec - b->tv_usec, s = a->tv_sec - b->tv_sec;

	diff->tv_sec = us < 0 ? s - 1 : s;
	diff->tv_usec = us < 0 ? us + 1000000 : us;
}

#endif
