/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Datagrams: boundaries, lengths from 0 to the largest, sender's addresses, MSG_PEEK and MSG_TRUNC, connected sockets, errors, and
 * more of them than the ring holds. Against a host's socket, UDP and UNIX.
 */
#include "opt.h"

enum { STEP, AT, GOT };

struct dgram_args {
	struct test_args t;
	struct test_addr *host; /* the host's socket */
	struct test_addr *mine; /* to bind; then what the kernel's socket is */
	struct test_addr *none; /* nobody has it */
	struct test_addr *from;
	uint64_t most; /* the longest datagram to send */
};

/* Lengths around what an entry or a line, a cell, and a UDP datagram hold; then others. For kernel and host alike. */
#define DEFINE_LENGTH_OF(where, name)                                          \
	where uint64_t name(uint64_t i, uint64_t most)                         \
	{                                                                      \
		const uint64_t special[] = {                                   \
			0,  1,  15, 16,  17,   63,   64,   65,    72,    73,   \
			80, 81, 89, 105, 1000, 1472, 1473, 16000, 65000, 65507 \
		};                                                             \
		uint64_t n = i < 20 ? special[i] : i * 7919 % 3000;            \
                                                                               \
		return n < most ? n : most;                                    \
	}

DEFINE_LENGTH_OF(GNET_DEV, length_of)
DEFINE_LENGTH_OF(static, host_length_of)

GNET_DEV int bound(struct dgram_args *a, struct test_report *r, int *fd)
{
	__shared__ uint32_t len;

	K_GET(r, *fd, gsocket(a->t.net, a->host->a.sa.sa_family, GNET_SOCK_DGRAM, 0));
	K_EQ(r, opt_get(a->t.net, *fd, GNET_SOL_SOCKET, GNET_SO_TYPE), GNET_SOCK_DGRAM);
	K_EQ(r, gbind(a->t.net, *fd, &a->mine->a, a->mine->len), 0);
	__syncthreads();
	if (threadIdx.x == 0)
		len = sizeof(a->mine->a);
	__syncthreads();
	K_EQ(r, ggetsockname(a->t.net, *fd, &a->mine->a, &len), 0);
	if (threadIdx.x == 0)
		a->mine->len = len;
	__syncthreads();
	return 0;
}

/* Receives one datagram with its sender's address, which must be the host's. */
GNET_DEV int64_t from_host(struct dgram_args *a, struct test_report *r, int fd, uint8_t *buf,
			   uint64_t room, int flags)
{
	__shared__ uint32_t len;
	int64_t n;
	int same = 1;

	__syncthreads();
	if (threadIdx.x == 0)
		len = sizeof(a->from->a);
	__syncthreads();
	n = grecvfrom(a->t.net, fd, buf, room, flags, &a->from->a, &len);
	if (n < 0)
		return n;
	for (uint32_t i = 0; i < a->host->len; i++)
		same &= a->from->a.bytes[i] == a->host->a.bytes[i];
	K_EQ(r, len, a->host->len);
	K_EQ(r, same, 1);
	return n;
}

GNET_DEV int echo(struct dgram_args *a, struct test_report *r, int fd, uint8_t *buf)
{
	for (uint64_t i = 0; i < a->t.n; i++) {
		uint64_t n = length_of(i, a->most);

		test_k_pattern(buf, n, i, 6);
		K_EQ(r, gsendto(a->t.net, fd, buf, n, 0, &a->host->a, a->host->len), n);
		K_EQ(r, from_host(a, r, fd, buf, a->t.room, 0), n);
		K_EQ(r, test_k_wrong(buf, n, i, 7), 0);
	}
	return 0;
}

/* The host has sent 300, 20, 0 and 2,000 bytes. */
GNET_DEV int cut(struct dgram_args *a, struct test_report *r, int fd, uint8_t *buf)
{
	gnet_t *net = a->t.net;

	K_EQ(r, from_host(a, r, fd, buf, 100, GNET_MSG_PEEK), 100);
	K_EQ(r, from_host(a, r, fd, buf, 100, GNET_MSG_PEEK | GNET_MSG_TRUNC), 300);
	K_EQ(r, grecv(net, fd, buf, 299, 0), 299);
	K_EQ(r, test_k_wrong(buf, 299, 0, 8), 0);
	K_EQ(r, grecvfrom(net, fd, buf, 10, GNET_MSG_TRUNC, NULL, NULL), 20);
	K_EQ(r, test_k_wrong(buf, 10, 1, 8), 0);
	K_EQ(r, grecv(net, fd, buf, 10, 0), 0);
	K_EQ(r, grecv(net, fd, buf, 0, GNET_MSG_TRUNC), 2000);
	K_EQ(r, grecv(net, fd, buf, 10, GNET_MSG_DONTWAIT), -EAGAIN);
	K_EQ(r, opt_limit_ms(net, fd, GNET_SO_RCVTIMEO, 20), 0);
	K_EQ(r, grecv(net, fd, buf, 10, 0), -ETIMEDOUT);
	K_EQ(r, opt_limit_ms(net, fd, GNET_SO_RCVTIMEO, 0), 0);
	K_EQ(r, grecv(net, fd, buf, 10, 1), -EOPNOTSUPP); /* MSG_OOB */
	return 0;
}

GNET_DEV int refused_lengths(struct dgram_args *a, struct test_report *r, int fd, uint8_t *buf)
{
	gnet_t *net = a->t.net;

	K_EQ(r, gsend(net, fd, buf, 10, 0), -EDESTADDRREQ);
	K_EQ(r, gsendto(net, fd, buf, 10, 0, &a->host->a, 1), -EINVAL);
	K_EQ(r, gsendto(net, fd, buf, 10, 0, &a->host->a, 113), -EINVAL);
	K_EQ(r, grecvfrom(net, fd, buf, 10, 0, &a->from->a, NULL), -EINVAL);
	K_EQ(r, gsendto(net, fd, buf, (uint64_t)1 << 32, 0, &a->host->a, a->host->len), -EMSGSIZE);
	K_EQ(r, gsendto(net, fd, buf, 9 << 20, 0, &a->host->a, a->host->len), -EMSGSIZE);
	if (a->host->a.sa.sa_family == GNET_AF_INET)
		K_EQ(r, gsendto(net, fd, buf, 65508, 0, &a->host->a, a->host->len), -EMSGSIZE);
	K_EQ(r, glisten(net, fd, 5), -EOPNOTSUPP);
	K_EQ(r, gaccept(net, fd, NULL, NULL), -EINVAL);
	K_EQ(r, gshutdown(net, fd, GNET_SHUT_RD), -ENOTCONN);
	return 0;
}

/* One receiver is not there: the next datagram, to another one, is sent all the same, and then a receive is told. */
GNET_DEV int others_go_on(struct dgram_args *a, struct test_report *r, int fd, uint8_t *buf)
{
	__shared__ struct gnet_pollfd p;
	__shared__ uint32_t len;
	gnet_t *net = a->t.net;
	int other;

	K_GET(r, other, gsocket(net, GNET_AF_UNIX, GNET_SOCK_DGRAM, 0));
	K_EQ(r, gbind(net, other, &a->none->a, 2), 0); /* a name that the system finds */
	__syncthreads();
	if (threadIdx.x == 0) {
		len = sizeof(a->from->a);
		p.fd = fd;
		p.events = 0;
	}
	__syncthreads();
	K_EQ(r, ggetsockname(net, other, &a->from->a, &len), 0);
	K_EQ(r, gsendto(net, fd, buf, 10, 0, &a->none->a, a->none->len), 10);
	K_EQ(r, gpoll(net, &p, 1, -1), 1);
	K_EQ(r, p.revents, GNET_POLLERR);
	for (int i = 0; i < 40; i++) {
		K_EQ(r, gsendto(net, fd, buf, 20, 0, &a->from->a, len), 20);
		K_EQ(r, grecv(net, other, buf, 100, 0), 20);
	}
	K_EQ(r, grecv(net, fd, buf, 10, 0), -ECONNREFUSED);
	K_EQ(r, gclose(net, other), 0);
	return 0;
}

/* Nobody is there: a later call is told, once, and the socket goes on. */
GNET_DEV int errors(struct dgram_args *a, struct test_report *r, uint8_t *buf)
{
	int unix_ = a->host->a.sa.sa_family == GNET_AF_UNIX, fd;
	gnet_t *net = a->t.net;
	int64_t n;

	K_GET(r, fd, gsocket(net, a->host->a.sa.sa_family, GNET_SOCK_DGRAM, 0));
	n = gconnect(net, fd, &a->none->a, a->none->len);
	if (unix_) {
		K_EQ(r, n, -ECONNREFUSED);
		K_EQ(r, gsendto(net, fd, buf, 10, 0, &a->none->a, a->none->len), 10);
	} else {
		K_EQ(r, n, 0);
		K_EQ(r, gsend(net, fd, buf, 10, 0), 10);
	}
	K_EQ(r, grecv(net, fd, buf, 10, 0), -ECONNREFUSED);
	K_EQ(r, opt_get(net, fd, GNET_SOL_SOCKET, GNET_SO_ERROR), 0);
	K_EQ(r, grecv(net, fd, buf, 10, GNET_MSG_DONTWAIT), -EAGAIN);
	for (int i = 0; i < 3; i++) {
		K_EQ(r, gsendto(net, fd, buf, 10, 0, &a->none->a, a->none->len), 10);
		do
			n = opt_get(net, fd, GNET_SOL_SOCKET, GNET_SO_ERROR);
		while (n == 0);
		K_EQ(r, n, ECONNREFUSED);
	}
	if (unix_)
		K_CALL(others_go_on(a, r, fd, buf));
	K_EQ(r, gclose(net, fd), 0);
	return 0;
}

/* Connected: sends without an address, receives from that peer only; then not connected any more. */
GNET_DEV int connected(struct dgram_args *a, struct test_report *r, uint8_t *buf)
{
	__shared__ uint8_t unspec[16];
	gnet_t *net = a->t.net;
	int fd;

	K_CALL(bound(a, r, &fd));
	K_EQ(r, gconnect(net, fd, &a->host->a, a->host->len), 0);
	K_EQ(r, gconnect(net, fd, &a->host->a, a->host->len), 0);
	for (uint64_t i = 0; i < 25; i++) {
		uint64_t n = length_of(i, a->most);

		test_k_pattern(buf, n, i, 6);
		K_EQ(r, gsend(net, fd, buf, n, 0), n);
		K_EQ(r, grecv(net, fd, buf, a->t.room, 0), n);
		K_EQ(r, test_k_wrong(buf, n, i, 7), 0);
	}
	if (threadIdx.x < 16)
		unspec[threadIdx.x] = 0;
	__syncthreads();
	if (a->host->a.sa.sa_family != GNET_AF_UNIX) {
		K_EQ(r, gconnect(net, fd, unspec, 16), 0);
		K_EQ(r, gsend(net, fd, buf, 1, 0), -EDESTADDRREQ);
	}
	K_EQ(r, gclose(net, fd), 0);
	return 0;
}

/* The host sends faster than anybody reads: all that its socket accepted arrives, in order, nothing twice. */
GNET_DEV int flood(struct dgram_args *a, struct test_report *r, int fd, uint8_t *buf)
{
	test_k_set(&a->t.word[AT], 3);
	test_k_wait(&a->t.word[STEP], 3);
	for (uint64_t i = 0; i < a->t.n; i++) {
		uint64_t n = 40 + i * 7919 % 3000;

		K_EQ(r, from_host(a, r, fd, buf, a->t.room, 0), n);
		K_EQ(r, test_k_wrong(buf, n, i, 9), 0);
		test_k_set(&a->t.word[GOT], i + 1);
	}
	K_EQ(r, grecv(a->t.net, fd, buf, 10, GNET_MSG_DONTWAIT), -EAGAIN);
	return 0;
}

GNET_DEV int all(struct dgram_args *a, struct test_report *r, uint8_t *buf)
{
	int fd;

	K_CALL(bound(a, r, &fd));
	test_k_set(&a->t.word[AT], 1);
	K_CALL(refused_lengths(a, r, fd, buf));
	K_CALL(echo(a, r, fd, buf));
	test_k_set(&a->t.word[AT], 2);
	test_k_wait(&a->t.word[STEP], 2);
	K_CALL(cut(a, r, fd, buf));
	K_CALL(flood(a, r, fd, buf));
	K_EQ(r, gclose(a->t.net, fd), 0);
	K_CALL(errors(a, r, buf));
	test_k_wait(&a->t.word[STEP], 4);
	return connected(a, r, buf);
}

GNET_KERNEL(dgram_kernel, struct dgram_args, a)
{
	test_k_done(a.t.report, all(&a, a.t.report, a.t.buf));
}

static int host_socket(struct test_addr *a)
{
	int fd = socket(a->a.sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), big = 4 << 20;
	socklen_t len = sizeof(a->a);

	CHECK(fd >= 0);
	CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &big, sizeof(big)), 0);
	if (bind(fd, &a->a.sa, a->len) != 0)
		FAIL("bind: %s", strerror(errno));
	CHECK_EQ(getsockname(fd, &a->a.sa, &len), 0);
	a->len = len;
	return fd;
}

static void send_one(struct dgram_args *a, int fd, uint64_t n, uint64_t pos, uint32_t key)
{
	static uint8_t data[70000];

	test_pattern(data, n, pos, key);
	CHECK_EQ(sendto(fd, data, n, 0, &a->mine->a.sa, a->mine->len), n);
}

static void serve_echo(struct dgram_args *a, int fd, uint64_t count)
{
	static uint8_t data[70000];

	for (uint64_t i = 0; i < count; i++) {
		uint64_t n = host_length_of(i, a->most);
		struct pollfd p = { fd, POLLIN, 0 };

		while (poll(&p, 1, 100) != 1)
			if (__atomic_load_n(&a->t.report->line, __ATOMIC_ACQUIRE))
				test_reports(a->t.report, 1);
		CHECK_EQ(recv(fd, data, sizeof(data), 0), n);
		test_pattern_check(data, n, i, 6);
		send_one(a, fd, n, i, 7);
	}
}

static void serve_flood(struct dgram_args *a, int fd)
{
	test_word_wait(&a->t.word[AT], 3, a->t.report);
	for (uint64_t i = 0; i < a->t.n; i++) {
		if (i == 20)
			test_word_set(&a->t.word[STEP], 3);
		/* UDP drops what the receiving socket has no room for: that it does not come to. */
		if (i >= 20 && a->host->a.sa.sa_family != AF_UNIX)
			test_word_wait(&a->t.word[GOT], i - 20, a->t.report);
		send_one(a, fd, 40 + i * 7919 % 3000, i, 9);
	}
}

static void run(const struct gpunet_options *opt, enum test_kind kind, unsigned threads)
{
	gpunet_t *g = test_open(opt);
	struct test_addr *addr = (struct test_addr *)test_shared(4 * sizeof(*addr));
	struct dgram_args a;
	int fd;

	CHECK_EQ(GPUNET_PREPARE(dgram_kernel), 0);
	a.t = test_setup(g, kind, 1, 80 << 10);
	a.t.n = test_rounds(300, 3000);
	for (int i = 0; i < 3; i++)
		test_addr_make(&addr[i], kind);
	a.host = addr;
	a.mine = addr + 1;
	a.none = addr + 2;
	a.from = addr + 3;
	a.most = opt->segment_bytes && opt->segment_bytes < 128 << 10 ? 16000 : 65507;
	fd = host_socket(a.host);
	close(host_socket(a.none));
	TEST_LAUNCH(g, dgram_kernel, a, 1, threads);
	test_word_wait(&a.t.word[AT], 1, a.t.report);
	serve_echo(&a, fd, a.t.n);
	test_word_wait(&a.t.word[AT], 2, a.t.report);
	send_one(&a, fd, 300, 0, 8);
	send_one(&a, fd, 20, 1, 8);
	send_one(&a, fd, 0, 2, 8);
	send_one(&a, fd, 2000, 3, 8);
	test_word_set(&a.t.word[STEP], 2);
	serve_flood(&a, fd);
	if (kind == TEST_UNIX)
		unlink(a.mine->a.un.sun_path);
	test_word_set(&a.t.word[STEP], 4);
	serve_echo(&a, fd, 25);
	test_sync(g, a.t.report, 1);
	close(fd);
	for (int i = 0; i < 3; i++)
		test_addr_remove(&addr[i]);
	test_close(g);
	test_shared_free(addr);
	test_teardown(&a.t);
}

int main(void)
{
	struct gpunet_options opt = GPUNET_OPTIONS_INIT;

	test_begin(60);
	run(&opt, TEST_TCP, 64);
	run(&opt, TEST_UNIX, 32);
	run(&opt, TEST_TCP, 1);
	if (test_has_ipv6())
		run(&opt, TEST_TCP6, 100);
	opt.segment_bytes = 32 << 10;
	opt.slab_bytes = 64 << 10;
	run(&opt, TEST_TCP, 33);
	run(&opt, TEST_ABSTRACT, 7);
	return 0;
}
