/* SPDX-License-Identifier: BSD-3-Clause */
/* gsetsockopt and ggetsockopt: what a new socket has, what can be set, what is refused, SO_ERROR. */
#include "opt.h"

#define SO_RCVLOWAT_ 18      /* would give the rings' bytes another meaning */
#define SO_ATTACH_FILTER_ 26 /* a pointer */
#define SO_TIMESTAMP_ 29

enum { AT };

GNET_DEV int defaults(struct test_args *a, struct test_report *r, int fd)
{
	int family = a->want->a.sa.sa_family, tcp = family != GNET_AF_UNIX;
	gnet_t *net = a->net;

	K_EQ(r, opt_get(net, fd, GNET_SOL_SOCKET, GNET_SO_TYPE), GNET_SOCK_STREAM);
	K_EQ(r, opt_get(net, fd, GNET_SOL_SOCKET, GNET_SO_DOMAIN), family);
	K_EQ(r, opt_get(net, fd, GNET_SOL_SOCKET, GNET_SO_PROTOCOL), tcp ? GNET_IPPROTO_TCP : 0);
	K_EQ(r, opt_get(net, fd, GNET_SOL_SOCKET, GNET_SO_ACCEPTCONN), 0);
	K_EQ(r, opt_get(net, fd, GNET_SOL_SOCKET, GNET_SO_ERROR), 0);
	K_EQ(r, opt_get(net, fd, GNET_SOL_SOCKET, GNET_SO_REUSEADDR), tcp);
	if (tcp)
		K_EQ(r, opt_get(net, fd, GNET_IPPROTO_TCP, GNET_TCP_NODELAY), 1);
	else
		K_EQ(r, opt_get(net, fd, GNET_IPPROTO_TCP, GNET_TCP_NODELAY), -EOPNOTSUPP);
	return 0;
}

GNET_DEV int changes(struct test_args *a, struct test_report *r, int fd)
{
	int tcp = a->want->a.sa.sa_family != GNET_AF_UNIX;
	gnet_t *net = a->net;
	int before = opt_get(net, fd, GNET_SOL_SOCKET, GNET_SO_RCVBUF), after;

	/* Linux doubles what it is asked for. */
	K_EQ(r, before > 0, 1);
	K_EQ(r, opt_set(net, fd, GNET_SOL_SOCKET, GNET_SO_RCVBUF, 20000), 0);
	after = opt_get(net, fd, GNET_SOL_SOCKET, GNET_SO_RCVBUF);
	K_EQ(r, after, 40000);
	K_EQ(r, opt_set(net, fd, GNET_SOL_SOCKET, GNET_SO_SNDBUF, 20000), 0);
	K_EQ(r, opt_get(net, fd, GNET_SOL_SOCKET, GNET_SO_SNDBUF), 40000);
	K_EQ(r, opt_set(net, fd, GNET_SOL_SOCKET, GNET_SO_KEEPALIVE, 1), 0);
	K_EQ(r, opt_get(net, fd, GNET_SOL_SOCKET, GNET_SO_KEEPALIVE), 1);
	if (tcp) {
		K_EQ(r, opt_set(net, fd, GNET_SOL_SOCKET, GNET_SO_REUSEPORT, 1), 0);
		K_EQ(r, opt_get(net, fd, GNET_SOL_SOCKET, GNET_SO_REUSEPORT), 1);
		K_EQ(r, opt_set(net, fd, GNET_IPPROTO_TCP, GNET_TCP_NODELAY, 0), 0);
		K_EQ(r, opt_get(net, fd, GNET_IPPROTO_TCP, GNET_TCP_NODELAY), 0);
		K_EQ(r, opt_set(net, fd, GNET_IPPROTO_TCP, GNET_TCP_NODELAY, 1), 0);
	}
	if (a->want->a.sa.sa_family == GNET_AF_INET6) {
		K_EQ(r, opt_get(net, fd, GNET_IPPROTO_IPV6, GNET_IPV6_V6ONLY) >= 0, 1);
		K_EQ(r, opt_set(net, fd, GNET_IPPROTO_IPV6, GNET_IPV6_V6ONLY, 1), 0);
		K_EQ(r, opt_get(net, fd, GNET_IPPROTO_IPV6, GNET_IPV6_V6ONLY), 1);
	}
	return 0;
}

GNET_DEV void room(uint32_t *len, uint32_t n)
{
	__syncthreads();
	if (threadIdx.x == 0)
		*len = n;
	__syncthreads();
}

/* A struct of two, and a value that is shorter than the room. */
GNET_DEV int structs(struct test_args *a, struct test_report *r, int fd)
{
	__shared__ int64_t val[4];
	__shared__ uint32_t len;
	gnet_t *net = a->net;

	K_EQ(r, opt_linger(net, fd, 1, 7), 0);
	room(&len, sizeof(val));
	K_EQ(r, ggetsockopt(net, fd, GNET_SOL_SOCKET, GNET_SO_LINGER, val, &len), 0);
	K_EQ(r, len, 8);
	K_EQ(r, val[0], (int64_t)7 << 32 | 1);
	K_EQ(r, opt_linger(net, fd, 0, 0), 0);
	K_EQ(r, opt_set_time(net, fd, GNET_SO_RCVTIMEO, 5, 250000), 0);
	K_EQ(r, opt_set_time(net, fd, GNET_SO_SNDTIMEO, 1, 1), 0);
	room(&len, 8);
	K_EQ(r, ggetsockopt(net, fd, GNET_SOL_SOCKET, GNET_SO_RCVTIMEO, val, &len), 0);
	K_EQ(r, len, 8); /* no more than there was room for */
	K_EQ(r, val[0], 5);
	room(&len, sizeof(val));
	K_EQ(r, ggetsockopt(net, fd, GNET_SOL_SOCKET, GNET_SO_RCVTIMEO, val, &len), 0);
	K_EQ(r, len, 16);
	K_EQ(r, val[0], 5);
	K_EQ(r, val[1], 250000);
	K_EQ(r, opt_set_time(net, fd, GNET_SO_RCVTIMEO, 0, 0), 0);
	K_EQ(r, opt_set_time(net, fd, GNET_SO_SNDTIMEO, 0, 0), 0);
	return 0;
}

GNET_DEV int refused(struct test_args *a, struct test_report *r, int fd)
{
	__shared__ uint32_t len;
	gnet_t *net = a->net;

	K_EQ(r, opt_set_time(net, fd, GNET_SO_RCVTIMEO, 0, 1000000), -EDOM);
	K_EQ(r, opt_set_time(net, fd, GNET_SO_RCVTIMEO, -1, 0), -EDOM);
	K_EQ(r, opt_set(net, fd, GNET_SOL_SOCKET, GNET_SO_RCVTIMEO, 1), -EINVAL); /* too short */
	K_EQ(r, opt_set(net, fd, GNET_SOL_SOCKET, GNET_SO_LINGER, 1), -EINVAL);
	K_EQ(r, opt_set(net, fd, GNET_SOL_SOCKET, GNET_SO_TYPE, 1), -ENOPROTOOPT);
	K_EQ(r, opt_set(net, fd, GNET_SOL_SOCKET, GNET_SO_ERROR, 0), -ENOPROTOOPT);
	K_EQ(r, opt_set(net, fd, GNET_SOL_SOCKET, SO_RCVLOWAT_, 1), -ENOPROTOOPT);
	K_EQ(r, opt_set(net, fd, GNET_SOL_SOCKET, SO_ATTACH_FILTER_, 1), -ENOPROTOOPT);
	K_EQ(r, opt_set(net, fd, GNET_SOL_SOCKET, SO_TIMESTAMP_, 1), -ENOPROTOOPT);
	K_EQ(r, opt_get(net, fd, GNET_SOL_SOCKET, 9999), -ENOPROTOOPT);
	K_EQ(r, opt_get(net, fd, 70000, GNET_SO_TYPE), -ENOPROTOOPT);
	K_EQ(r, opt_get(net, fd, -1, GNET_SO_TYPE), -ENOPROTOOPT);
	K_EQ(r, opt_get(net, -1, GNET_SOL_SOCKET, GNET_SO_TYPE), -EBADF);
	K_EQ(r, opt_set(net, -1, GNET_SOL_SOCKET, GNET_SO_KEEPALIVE, 1), -EBADF);
	K_EQ(r, gsetsockopt(net, fd, GNET_SOL_SOCKET, GNET_SO_KEEPALIVE, NULL, 4), -EINVAL);
	K_EQ(r, ggetsockopt(net, fd, GNET_SOL_SOCKET, GNET_SO_KEEPALIVE, NULL, &len), -EINVAL);
	return 0;
}

/* A peer that resets: the error is there without a receive, once, and a later call sees the end. */
GNET_DEV int error(struct test_args *a, struct test_report *r, int fd, uint8_t *buf)
{
	int64_t err;

	K_EQ(r, gsend(a->net, fd, buf, 10, 0), 10);
	test_k_set(&a->word[AT], 2);
	do
		K_GET(r, err, opt_get(a->net, fd, GNET_SOL_SOCKET, GNET_SO_ERROR));
	while (err == 0);
	K_EQ(r, err, ECONNRESET);
	K_EQ(r, opt_get(a->net, fd, GNET_SOL_SOCKET, GNET_SO_ERROR), 0);
	K_EQ(r, grecv(a->net, fd, buf, 10, 0), 0);
	K_EQ(r, gsend(a->net, fd, buf, 10, 0), -EPIPE);
	return 0;
}

GNET_DEV int options(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int listener, fd, tcp = a->want->a.sa.sa_family != GNET_AF_UNIX;

	K_GET(r, fd, gsocket(a->net, a->want->a.sa.sa_family, GNET_SOCK_STREAM, a->want->protocol));
	K_CALL(defaults(a, r, fd));
	K_CALL(changes(a, r, fd));
	K_CALL(structs(a, r, fd));
	K_CALL(refused(a, r, fd));
	K_EQ(r, gclose(a->net, fd), 0);
	K_EQ(r, opt_get(a->net, fd, GNET_SOL_SOCKET, GNET_SO_TYPE), -EBADF);

	K_GET(r, listener, test_k_listen(a->net, a->want, a->where, 5));
	K_EQ(r, opt_get(a->net, listener, GNET_SOL_SOCKET, GNET_SO_ACCEPTCONN), 1);
	test_k_set(&a->word[AT], 1);
	K_GET(r, fd, gaccept(a->net, listener, NULL, NULL));
	if (tcp)
		K_EQ(r, opt_get(a->net, fd, GNET_IPPROTO_TCP, GNET_TCP_NODELAY), 1);
	K_CALL(error(a, r, fd, buf));
	K_EQ(r, gclose(a->net, fd), 0);
	K_EQ(r, gclose(a->net, listener), 0);
	return 0;
}

TEST_KERNEL(options_kernel, options)

static void run(gpunet_t *g, enum test_kind kind, unsigned threads)
{
	struct linger hard = { 1, 0 };
	struct test_args a = test_setup(g, kind, 1, 4096);
	struct pollfd in = { -1, POLLIN, 0 };
	int fd;

	TEST_LAUNCH(g, options_kernel, a, 1, threads);
	test_word_wait(&a.word[AT], 1, a.report);
	fd = test_connect(a.where);
	in.fd = fd;
	test_word_wait(&a.word[AT], 2, a.report);
	/* A UNIX socket resets when it is closed with bytes that it has not read. */
	CHECK_EQ(poll(&in, 1, 10000), 1);
	CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard)), 0);
	close(fd);
	test_sync(g, a.report, 1);
	test_teardown(&a);
}

int main(void)
{
	gpunet_t *g;

	test_begin(30);
	g = test_open(NULL);
	CHECK_EQ(GPUNET_PREPARE(options_kernel), 0);
	run(g, TEST_TCP, 64);
	run(g, TEST_UNIX, 7);
	if (test_has_ipv6())
		run(g, TEST_TCP6, 32);
	test_close(g);
	return 0;
}
