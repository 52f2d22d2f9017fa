/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kernels whose memory holds anything: what they write into the queues, calls, heads and lines that
 * they share with the proxy harms their own sockets at most. And systems and slabs that are short
 * of memory. GPUNET_TEST_SEED: another sequence of writes.
 */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <gpunet/dev/socket.h>
#include <gpunet/gpunet.h>

#include "kernel_pair.h"

#include "base/log.h"
#include "base/sys.h"
#include "fake_ring.h"

#define SOCKETS 32

static gpunet_t *net_open(unsigned threads, size_t slab)
{
	struct gpunet_options o = GPUNET_OPTIONS_INIT;
	gpunet_t *g = NULL;

	o.device = "cpu";
	o.proxy_threads = threads;
	o.max_sockets = SOCKETS;
	o.slab_bytes = slab;
	o.segment_bytes = 64 << 10;
	o.linger_ms = 100;
	assert_int_equal(gpunet_open(&g, &o), 0);
	return g;
}

static void pause_ms(long ms)
{
	const struct timespec t = { 0, ms * 1000000 };

	nanosleep(&t, NULL);
}

/* ---- one rule each ----------------------------------------------------------------------------- */

/* The head is where bytes lay that the line does not hold any more, and no ring does. */
static void a_head_before_the_lines_bytes_fails_the_socket(void **state)
{
	gpunet_t *g = net_open(1, 64 << 10);
	gnet_t *n = gpunet_device(g);
	char buf[200] = "";
	struct gnet_borrow b;
	int host, fd = pair(n, &host), i;

	(void)state;
	/* The only segment is the send side's from here on. */
	assert_int_equal(gsend_reserve(n, fd, &b, sizeof(buf), 0), 0);
	for (i = 0; i < 20; i++) {
		assert_int_equal(write(host, "0123456789", 10), 10);
		assert_int_equal(grecv(n, fd, buf, 10, GNET_MSG_WAITALL), 10);
	}
	__atomic_store_n(&n->bus[GNET_FD_SLOT(fd)].head, 100, __ATOMIC_RELEASE);
	assert_int_equal(write(host, "x", 1), 1);
	assert_int_equal(grecv(n, fd, buf, 10, 0), -EIO);
	gsend_commit(n, fd, 0);
	gclose(n, fd);
	close(host);
	assert_int_equal(gpunet_close(g, 5000), 0);
}

/* The accept ring names descriptors that were never given out. */
static void a_listener_closes_with_anything_in_its_ring(void **state)
{
	gpunet_t *g = net_open(2, 1 << 20);
	gnet_t *n = gpunet_device(g);
	struct sockaddr_in a = { .sin_family = AF_INET };
	uint32_t len = sizeof(a);
	int l, fd, host, i;
	uint64_t *cell;
	char c;

	(void)state;
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	l = gsocket(n, GNET_AF_INET, GNET_SOCK_STREAM, 0);
	assert_int_equal(gbind(n, l, &a, sizeof(a)), 0);
	assert_int_equal(glisten(n, l, 5), 0);
	assert_int_equal(ggetsockname(n, l, &a, &len), 0);
	host = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(connect(host, (struct sockaddr *)&a, len), 0);
	cell = &n->bus[GNET_FD_SLOT(l)].line.cell[1];
	for (i = 0; !__atomic_load_n(cell, __ATOMIC_ACQUIRE) && i < 5000; i++)
		pause_ms(1);
	__atomic_store_n(cell, (uint64_t)GNET_FD(SOCKETS - 1, 5) << 8 | 1, __ATOMIC_RELAXED);
	assert_int_equal(gclose(n, l), 0);
	/* All that it cost is this connection's end, which now comes with the network's. */
	fd = gsocket(n, GNET_AF_INET, GNET_SOCK_STREAM, 0);
	assert_true(fd >= 0);
	assert_int_equal(gclose(n, fd), 0);
	assert_int_equal(gpunet_close(g, 5000), 0);
	assert_int_equal(read(host, &c, 1), 0);
	close(host);
}

/* connect(2) takes this family for a wish to have no peer, and says that it succeeded. */
static void a_connect_to_nobody_is_no_connection(void **state)
{
	gpunet_t *g = net_open(1, 1 << 20);
	gnet_t *n = gpunet_device(g);
	struct sockaddr_in a = { .sin_family = AF_UNSPEC };
	int fd = gsocket(n, GNET_AF_INET, GNET_SOCK_STREAM, 0);
	char c;

	(void)state;
	assert_int_equal(gconnect(n, fd, &a, sizeof(a)), -EAFNOSUPPORT);
	assert_int_equal(grecv(n, fd, &c, 1, 0), -ENOTCONN);
	assert_int_equal(gclose(n, fd), 0);
	assert_int_equal(gpunet_close(g, 5000), 0);
}

/* ---- all of it --------------------------------------------------------------------------------- */

static uint64_t seed = 1;

static uint64_t draw(void)
{
	seed ^= seed >> 12;
	seed ^= seed << 25;
	seed ^= seed >> 27;
	return seed * UINT64_C(2685821657736338717);
}

/* Numbers as mistakes make them: small, near a power of two, or anything. */
static uint64_t number(void)
{
	switch (draw() % 4) {
	case 0:
		return draw() % 200;
	case 1:
		return (UINT64_C(1) << draw() % 56) + draw() % 3 - 1;
	case 2:
		return draw() % 2 ? ~UINT64_C(0) : 0;
	default:
		return draw();
	}
}

/* Addresses of this machine or of no machine; names that are no files. */
static void scribble_arg(struct gnet_call *c)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = (uint16_t)draw() };
	sa_family_t family = draw() % 2 ? AF_UNIX : (sa_family_t)(60 + draw() % 1000);
	unsigned i;

	memset(c->arg, 0, sizeof(c->arg));
	for (i = 4; i < sizeof(c->arg); i++)
		c->arg[i] = (uint8_t)draw();
	in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (draw() % 2)
		memcpy(c->arg, &in, sizeof(in));
	else
		memcpy(c->arg, &family, sizeof(family));
}

/* Headers of datagrams, more or less; what lies between them is data. */
static void scribble_ring(gnet_t *n)
{
	uint32_t small[4] = { (uint32_t)draw() % 2000, 0, 0, (uint32_t)draw() };
	uint64_t at = draw() % ((64 << 10) - 16) & ~UINT64_C(15);

	small[1] = draw() % 4 ? small[0] : (uint32_t)number();
	small[2] = (uint32_t)(draw() % 2 ? draw() % 200 | (draw() % 200 & ~UINT64_C(15)) << 16
					 : draw());
	memcpy(n->slab + at, small, sizeof(small));
}

static _Atomic unsigned asked;

/* What a name service would be asked for: texts that end, whatever a kernel wrote. */
static int no_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
			  struct addrinfo **out)
{
	/* Not by cmocka's checks: this is a thread of the library. */
	if ((node && strlen(node) >= GNET_CALL_ARG) ||
	    (service && strlen(service) >= GNET_CALL_ARG))
		abort();
	return atomic_fetch_add(&asked, 1) % 2 ? EAI_NONAME
					       : getaddrinfo("127.0.0.1", NULL, NULL, out);
}

static int any_fd(const int *fds, unsigned n)
{
	return draw() % 8 ? fds[draw() % n] : (int)(number() & 0x7fffffff);
}

/* `wild`: closes, too, and heads that fail a socket. */
static void scribble(gnet_t *n, int fd, int wild)
{
	static const uint8_t ops[] = {
		GNET_OP_SEND,        GNET_OP_SEND,        GNET_OP_TX,          GNET_OP_TX,
		GNET_OP_BIND,        GNET_OP_LISTEN,      GNET_OP_CONNECT,     GNET_OP_TX_ATTACH,
		GNET_OP_GETPEERNAME, GNET_OP_GETSOCKNAME, GNET_OP_GETADDRINFO, GNET_OP_SHUTDOWN,
		GNET_OP_SETOPT,      GNET_OP_SOCKET,      GNET_OP_CLOSE,       GNET_OP_NOP
	};
	struct gnet_sock_bus *bus = &n->bus[GNET_FD_SLOT(fd) % SOCKETS];
	uint64_t op = ops[draw() % (wild ? sizeof(ops) : 11)], pos = 0, c1, b = number();
	uint32_t q = draw() % 8 ? gnet__queue(n, fd) : (uint32_t)draw() % n->n_queues;

	/* Not the first calls, which are those of the test's own sockets. */
	c1 = (n->n_calls / 2 + draw() % n->n_calls) | (draw() % 130) << 32;
	if (draw() % 4 == 0 && op < GNET_OP_FIRST_COMMAND)
		c1 = number();
	if (wild && draw() % 8 == 0)
		op = draw() & 0xff;
	/* Options of this machine's sockets, most of them known ones. */
	if (draw() % 4 == 0) {
		op = draw() % 2 ? GNET_OP_SETOPT : GNET_OP_GETOPT;
		b = GNET_OPT(draw() % 2 ? 1 : 6, draw() % 64, draw() % 250);
	}
	scribble_arg(&n->calls[n->n_calls / 2 + draw() % (n->n_calls / 2)]);
	if (wild && draw() % 8 == 0)
		__atomic_store_n(&bus->head, number(), __ATOMIC_RELEASE);
	if (draw() % 2)
		scribble_ring(n);
	if (wild && draw() % 8 == 0)
		__atomic_store_n(&bus->line.cell[draw() % GNET_CELLS], draw(), __ATOMIC_RELAXED);
	assert_int_equal(gnet__reserve(n, q, &pos), 0);
	gnet__put(n, q, pos,
		  op << GNET_SQE0_OP_SHIFT | (uint64_t)(uint32_t)fd << GNET_SQE0_FD_SHIFT |
			  (draw() & 0x7f) << GNET_SQE0_LEN_SHIFT,
		  c1, b, 1);
}

#define ENTRIES 1000

/* One network: connections, listeners and fresh sockets, scribbled at, the peers sending all along. */
static void scribble_round(void)
{
	/* With segments for all, or for one. */
	gpunet_t *g = net_open(2, draw() % 2 ? 1 << 20 : 64 << 10);
	gnet_t *n = gpunet_device(g);
	struct gpunet_stats stats = { .size = sizeof(stats) };
	struct sockaddr_un any = { .sun_family = AF_UNIX };
	char junk[300] = "";
	struct sockaddr_in at;
	uint32_t len = sizeof(at);
	int host[8], fds[16];
	unsigned i;

	for (i = 0; i < 8; i++)
		fds[i] = pair(n, &host[i]);
	for (; i < 14; i++)
		assert_true((fds[i] = gsocket(n, GNET_AF_UNIX, GNET_SOCK_STREAM, 0)) > 0);
	for (i = 11; i < 14; i++) {
		struct sockaddr_in in = { .sin_family = AF_INET,
					  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

		assert_int_equal(gclose(n, fds[i]), 0);
		assert_true((fds[i] = gsocket(n, GNET_AF_INET, GNET_SOCK_DGRAM, 0)) > 0);
		assert_int_equal(gbind(n, fds[i], &in, sizeof(in)), 0);
		if (i > 11)
			assert_int_equal(gconnect(n, fds[i], &at, len), 0);
		assert_int_equal(ggetsockname(n, fds[i], &at, &len), 0);
	}
	fds[14] = GNET_FD(14, 1);
	fds[15] = GNET_FD(31, 1);
	assert_int_equal(gbind(n, fds[8], &any, sizeof(any.sun_family)), 0);
	assert_int_equal(glisten(n, fds[8], 5), 0);
	for (i = 0; i < ENTRIES; i++) {
		scribble(n, any_fd(fds, 16), i > ENTRIES / 2);
		if (i % 4 == 0 && send(host[i / 4 % 8], junk, draw() % sizeof(junk),
				       MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
			continue;
	}
	/* Every entry is taken, whatever it was. */
	for (i = 0; i < 10000; i++) {
		assert_int_equal(gpunet_get_stats(g, &stats), 0);
		if (stats.commands >= n->sqd[0].tail + n->sqd[1].tail)
			break;
		pause_ms(1);
	}
	assert_true(stats.commands >= ENTRIES);
	assert_int_equal(stats.commands, n->sqd[0].tail + n->sqd[1].tail);
	assert_int_equal(gpunet_close(g, 300), 0);
	for (i = 0; i < 8; i++)
		close(host[i]);
}

static void the_network_survives_anything_in_shared_memory(void **state)
{
	unsigned i;

	(void)state;
	for (i = 0; i < 40; i++)
		scribble_round();
}

/* ---- a system short of memory ------------------------------------------------------------------ */

static _Atomic int short_sends, short_receives;

static ssize_t short_sendmsg(int fd, const struct msghdr *m, int flags)
{
	if (atomic_load(&short_sends) > 0 && atomic_fetch_sub(&short_sends, 1) > 0)
		return -ENOBUFS;
	return sys_real.sendmsg(fd, m, flags);
}

static ssize_t short_recvmsg(int fd, struct msghdr *m, int flags)
{
	if (atomic_load(&short_receives) > 0 && atomic_fetch_sub(&short_receives, 1) > 0)
		return -ENOMEM;
	return sys_real.recvmsg(fd, m, flags);
}

/* No event tells that there is memory again: the proxy tries by itself. */
static void bytes_go_on_when_there_is_memory_again(void **state)
{
	gpunet_t *g = net_open(1, 1 << 20);
	gnet_t *n = gpunet_device(g);
	int host, fd = pair(n, &host);
	struct gnet_pollfd f = { fd, GNET_POLLIN, 0 };
	struct pollfd h = { host, POLLIN, 0 };
	char buf[8];

	(void)state;
	pause_ms(20);
	atomic_store(&short_receives, 3);
	assert_int_equal(write(host, "hello", 5), 5);
	assert_int_equal(gpoll(n, &f, 1, INT64_C(10000000000)), 1);
	assert_int_equal(grecv(n, fd, buf, 5, 0), 5);
	pause_ms(20);
	atomic_store(&short_sends, 3);
	assert_int_equal(gsend(n, fd, "hello", 5, 0), 5);
	assert_int_equal(poll(&h, 1, 10000), 1);
	assert_int_equal(read(host, buf, 5), 5);
	/* Also behind a close. */
	atomic_store(&short_sends, 3);
	assert_int_equal(gsend(n, fd, "hello", 5, 0), 5);
	assert_int_equal(gclose(n, fd), 0);
	assert_int_equal(recv(host, buf, 5, MSG_WAITALL), 5);
	assert_int_equal(read(host, buf, 1), 0);
	close(host);
	assert_int_equal(gpunet_close(g, 5000), 0);
}

/* All segments are with readers that have read everything: a long send gets one of them. */
static void a_sender_gets_an_idle_readers_segment(void **state)
{
	gpunet_t *g = net_open(1, 128 << 10);
	gnet_t *n = gpunet_device(g);
	struct gpunet_stats stats = { .size = sizeof(stats) };
	int host[3], fd[3], i, k;
	char buf[500] = "";
	uint64_t entries;

	(void)state;
	for (i = 0; i < 3; i++)
		fd[i] = pair(n, &host[i]);
	for (i = 0; i < 2; i++) {
		assert_int_equal(write(host[i], buf, sizeof(buf)), sizeof(buf));
		for (k = 0; k < 5000 && (int)stats.slab_segments_used <= i; k++) {
			pause_ms(1);
			assert_int_equal(gpunet_get_stats(g, &stats), 0);
		}
		assert_int_equal(stats.slab_segments_used, i + 1);
		assert_int_equal(grecv(n, fd[i], buf, sizeof(buf), GNET_MSG_WAITALL), sizeof(buf));
	}
	assert_int_equal(stats.slab_segments, 2);
	entries = n->sqd[0].tail;
	assert_int_equal(gsend(n, fd[2], buf, sizeof(buf), 0), sizeof(buf));
	/* Attach, tail, detach; inline it would be five of its own. */
	assert_true(n->sqd[0].tail - entries <= 3);
	for (i = 0; i < 3; i++) {
		assert_int_equal(write(host[i], buf, sizeof(buf)), sizeof(buf));
		assert_int_equal(grecv(n, fd[i], buf, sizeof(buf), GNET_MSG_WAITALL), sizeof(buf));
		assert_int_equal(gclose(n, fd[i]), 0);
		close(host[i]);
	}
	assert_int_equal(gpunet_close(g, 5000), 0);
}

static int64_t send_parts(gnet_t *n, int fd, char *buf, uint64_t len)
{
	struct gnet_iovec v[2] = { { buf, len / 2 }, { buf + len / 2, len - len / 2 } };
	struct gnet_msghdr m = { .iov = v, .iovlen = 2 };

	return gsendmsg(n, fd, &m, 0);
}

/* Twice as many have sent long messages as there are segments, in one piece or two, and are idle now. */
static void idle_senders_do_not_keep_the_segments(void **state)
{
	enum { SEGMENTS = 8, PAIRS = 2 * SEGMENTS, LONG = 60000 };
	gpunet_t *g = net_open(1, SEGMENTS * (64 << 10));
	gnet_t *n = gpunet_device(g);
	static char buf[LONG], got[LONG];
	int host[PAIRS], fd[PAIRS], i;
	uint64_t entries;

	(void)state;
	for (i = 0; i < LONG; i++)
		buf[i] = (char)(i * 7 + i / 251);
	for (i = 0; i < PAIRS; i++) {
		fd[i] = pair(n, &host[i]);
		assert_int_equal(i % 2 ? gsend(n, fd[i], buf, 1000, 0)
				       : send_parts(n, fd[i], buf, 1000),
				 1000);
		assert_int_equal(recv(host[i], got, 1000, MSG_WAITALL), 1000);
	}
	/* The last first, who found none left if others kept theirs. */
	for (i = PAIRS - 1; i >= 0; i--) {
		entries = n->sqd[0].tail;
		assert_int_equal(gsend(n, fd[i], buf, LONG, 0), LONG);
		/* Inline it would be 572. */
		assert_true(n->sqd[0].tail - entries < 100);
		/* Behind it, while it may be unsent and its segment let go of. */
		assert_int_equal(gsend(n, fd[i], buf, 50, 0), 50);
		assert_int_equal(recv(host[i], got, LONG, MSG_WAITALL), LONG);
		assert_memory_equal(got, buf, LONG);
		assert_int_equal(recv(host[i], got, 50, MSG_WAITALL), 50);
		assert_memory_equal(got, buf, 50);
	}
	for (i = 0; i < PAIRS; i++) {
		assert_int_equal(gclose(n, fd[i]), 0);
		close(host[i]);
	}
	assert_int_equal(gpunet_close(g, 5000), 0);
}

/* The same with sockets of datagrams, which cannot do without a segment: the ninth got -ENOBUFS. */
static void idle_senders_of_datagrams_do_not_keep_the_segments(void **state)
{
	enum { SEGMENTS = 8, SENDERS = 2 * SEGMENTS, LONG = 5000 };
	gpunet_t *g = net_open(1, SEGMENTS * (64 << 10));
	gnet_t *n = gpunet_device(g);
	struct sockaddr_in to = { .sin_family = AF_INET };
	socklen_t len = sizeof(to);
	int host = socket(AF_INET, SOCK_DGRAM, 0), i;
	char buf[LONG] = "", got[LONG + 1];

	(void)state;
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(host, (struct sockaddr *)&to, len), 0);
	assert_int_equal(getsockname(host, (struct sockaddr *)&to, &len), 0);
	for (i = 0; i < SENDERS; i++) {
		int fd = gsocket(n, AF_INET, SOCK_DGRAM, 0);

		assert_true(fd >= 0);
		assert_int_equal(gsendto(n, fd, buf, LONG, 0, &to, len), LONG);
		assert_int_equal(recv(host, got, sizeof(got), 0), LONG);
	}
	close(host);
	assert_int_equal(gpunet_close(g, 5000), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_head_before_the_lines_bytes_fails_the_socket),
		cmocka_unit_test(a_listener_closes_with_anything_in_its_ring),
		cmocka_unit_test(a_connect_to_nobody_is_no_connection),
		cmocka_unit_test(a_sender_gets_an_idle_readers_segment),
		cmocka_unit_test(idle_senders_do_not_keep_the_segments),
		cmocka_unit_test(idle_senders_of_datagrams_do_not_keep_the_segments),
		cmocka_unit_test(bytes_go_on_when_there_is_memory_again),
		cmocka_unit_test(the_network_survives_anything_in_shared_memory),
	};

	alarm(600);
	if (getenv("GPUNET_TEST_SEED"))
		seed = strtoull(getenv("GPUNET_TEST_SEED"), NULL, 0) | 1;
	sys.getaddrinfo = no_getaddrinfo;
	fake_ring();
	sys.sendmsg = short_sendmsg;
	sys.recvmsg = short_recvmsg;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
