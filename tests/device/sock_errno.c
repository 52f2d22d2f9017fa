/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The errno of each mistake. Addresses come from the host, which knows what is taken, stale or
 * absent.
 */
#include "test.h"

enum address {
	FREE,      /* 127.0.0.1:0 */
	TAKEN,     /* a host program listens there */
	BOUND,     /* a host program has bound it and does not listen */
	NOT_OURS,  /* 192.0.2.1, for documentation */
	V6,        /* [::1]:0 */
	PATH_FREE, /* no such file yet */
	PATH_TAKEN,
	PATH_STALE,
	PATH_NO_DIR,
	PATH_FILE, /* an ordinary file */
	ADDRESSES
};

#define ADDR(i) (&a->where[i].a)
#define LEN(i) (a->where[i].len)

GNET_DEV int descriptors(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	gnet_t *net = a->net;
	int fds[5], used;

	K_GET(r, used, gsocket(net, GNET_AF_INET, GNET_SOCK_STREAM, 0));
	K_EQ(r, gclose(net, used), 0);
	fds[0] = used;
	fds[1] = -1;
	fds[2] = 0;
	fds[3] = 0x7fffffff;
	fds[4] = -0x7fffffff;
	for (int i = 0; i < 5; i++) {
		K_EQ(r, gbind(net, fds[i], ADDR(FREE), LEN(FREE)), -EBADF);
		K_EQ(r, glisten(net, fds[i], 5), -EBADF);
		K_EQ(r, gaccept(net, fds[i], NULL, NULL), -EBADF);
		K_EQ(r, gconnect(net, fds[i], ADDR(TAKEN), LEN(TAKEN)), -EBADF);
		K_EQ(r, gsend(net, fds[i], buf, 1, 0), -EBADF);
		K_EQ(r, grecv(net, fds[i], buf, 1, 0), -EBADF);
		K_EQ(r, gshutdown(net, fds[i], GNET_SHUT_RD), -EBADF);
		K_EQ(r, ggetsockname(net, fds[i], buf, (uint32_t *)(buf + 256)), -EBADF);
		K_EQ(r, ggetpeername(net, fds[i], buf, (uint32_t *)(buf + 256)), -EBADF);
		K_EQ(r, gclose(net, fds[i]), -EBADF);
	}
	return 0;
}

GNET_DEV int kinds(struct test_args *a, struct test_report *r)
{
	K_EQ(r, gsocket(a->net, 99, GNET_SOCK_STREAM, 0), -EAFNOSUPPORT);
	K_EQ(r, gsocket(a->net, 0, GNET_SOCK_STREAM, 0), -EAFNOSUPPORT);
	K_EQ(r, gsocket(a->net, -1, GNET_SOCK_STREAM, 0), -EAFNOSUPPORT);
	K_EQ(r, gsocket(a->net, GNET_AF_INET, 5, 0), -ESOCKTNOSUPPORT);
	K_EQ(r, gsocket(a->net, GNET_AF_UNIX, 9, 0), -ESOCKTNOSUPPORT);
	K_EQ(r, gsocket(a->net, GNET_AF_INET, GNET_SOCK_STREAM, 99), -EPROTONOSUPPORT);
	K_EQ(r, gsocket(a->net, GNET_AF_UNIX, GNET_SOCK_STREAM, 99), -EPROTONOSUPPORT);
	return 0;
}

/* A kernel of other headers than the library's, or a handle that is none, is told at its first call. */
GNET_DEV int versions(struct test_args *a, struct test_report *r)
{
	__shared__ gnet_t other;
	int fd;

	K_EQ(r, gsocket(NULL, GNET_AF_INET, GNET_SOCK_STREAM, 0), -EINVAL);
	for (int wrong = 0; wrong < 4; wrong++) {
		if (threadIdx.x == 0) {
			other = *a->net;
			other.magic += wrong == 1;
			other.version += wrong == 2;
			other.size += wrong == 3;
		}
		__syncthreads();
		fd = gsocket(&other, GNET_AF_INET, GNET_SOCK_STREAM, 0);
		if (wrong) {
			K_EQ(r, fd, -EPROTO);
			continue;
		}
		K_GET(r, fd, fd);
		K_EQ(r, gclose(&other, fd), 0);
	}
	return 0;
}

/* gbind of a fresh socket of `family` to address `i` gives `want`. */
GNET_DEV int bind_gives(struct test_args *a, struct test_report *r, int line, int family, int i,
			uint32_t len, int want)
{
	int fd = gsocket(a->net, family, GNET_SOCK_STREAM, 0), rc;

	if (fd < 0)
		return test_k_bad(r, line, fd, 0);
	rc = gbind(a->net, fd, ADDR(i), len);
	if (rc != want)
		return test_k_bad(r, line, rc, want);
	rc = gclose(a->net, fd);
	return rc ? test_k_bad(r, line, rc, 0) : 0;
}

#define BIND(family, i, len, want) K_CALL(bind_gives(a, r, __LINE__, family, i, len, want))

GNET_DEV int binds(struct test_args *a, struct test_report *r)
{
	int fd;

	BIND(GNET_AF_INET, FREE, LEN(FREE), 0);
	BIND(GNET_AF_INET, FREE, 0, -EINVAL);
	BIND(GNET_AF_INET, FREE, 7, -EINVAL);
	BIND(GNET_AF_INET, FREE, 100000, -EINVAL);
	BIND(GNET_AF_INET, V6, LEN(V6), -EAFNOSUPPORT);
	BIND(GNET_AF_INET, TAKEN, LEN(TAKEN), -EADDRINUSE);
	BIND(GNET_AF_INET, NOT_OURS, LEN(NOT_OURS), -EADDRNOTAVAIL);
	BIND(GNET_AF_UNIX, PATH_TAKEN, LEN(PATH_TAKEN), -EADDRINUSE);
	BIND(GNET_AF_UNIX, PATH_STALE, LEN(PATH_STALE), -EADDRINUSE);
	BIND(GNET_AF_UNIX, PATH_FILE, LEN(PATH_FILE), -EADDRINUSE);
	BIND(GNET_AF_UNIX, PATH_NO_DIR, LEN(PATH_NO_DIR), -ENOENT);
	BIND(GNET_AF_UNIX, PATH_FREE, LEN(PATH_FREE), 0);
	K_GET(r, fd, gsocket(a->net, GNET_AF_INET, GNET_SOCK_STREAM, 0));
	K_EQ(r, gbind(a->net, fd, NULL, LEN(FREE)), -EINVAL);
	K_EQ(r, gbind(a->net, fd, ADDR(FREE), LEN(FREE)), 0);
	K_EQ(r, gbind(a->net, fd, ADDR(FREE), LEN(FREE)), -EINVAL);
	K_EQ(r, gclose(a->net, fd), 0);
	return 0;
}

/* gconnect of a fresh socket gives `want`; it can be closed afterwards. */
GNET_DEV int connect_gives(struct test_args *a, struct test_report *r, int line, int family, int i,
			   uint32_t len, int want)
{
	int fd = gsocket(a->net, family, GNET_SOCK_STREAM, 0), rc;

	if (fd < 0)
		return test_k_bad(r, line, fd, 0);
	rc = gconnect(a->net, fd, ADDR(i), len);
	if (rc != want)
		return test_k_bad(r, line, rc, want);
	rc = gclose(a->net, fd);
	return rc ? test_k_bad(r, line, rc, 0) : 0;
}

#define CONNECT(family, i, len, want) K_CALL(connect_gives(a, r, __LINE__, family, i, len, want))

GNET_DEV int connects(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int fd;

	CONNECT(GNET_AF_INET, TAKEN, LEN(TAKEN), 0);
	CONNECT(GNET_AF_INET, TAKEN, 3, -EINVAL);
	CONNECT(GNET_AF_INET, TAKEN, 100000, -EINVAL);
	CONNECT(GNET_AF_INET, BOUND, LEN(BOUND), -ECONNREFUSED);
	CONNECT(GNET_AF_INET, V6, LEN(V6), -EAFNOSUPPORT);
	CONNECT(GNET_AF_UNIX, PATH_TAKEN, LEN(PATH_TAKEN), 0);
	CONNECT(GNET_AF_UNIX, PATH_STALE, LEN(PATH_STALE), -ECONNREFUSED);
	CONNECT(GNET_AF_UNIX, PATH_FILE, LEN(PATH_FILE), -ECONNREFUSED);
	CONNECT(GNET_AF_UNIX, PATH_NO_DIR, LEN(PATH_NO_DIR), -ENOENT);
	/* A refusal leaves the socket usable for a second attempt, as on Linux. */
	K_GET(r, fd, gsocket(a->net, GNET_AF_INET, GNET_SOCK_STREAM, 0));
	K_EQ(r, gconnect(a->net, fd, ADDR(BOUND), LEN(BOUND)), -ECONNREFUSED);
	K_EQ(r, gsend(a->net, fd, buf, 1, 0), -ENOTCONN);
	K_EQ(r, gconnect(a->net, fd, ADDR(TAKEN), LEN(TAKEN)), 0);
	K_EQ(r, gconnect(a->net, fd, ADDR(TAKEN), LEN(TAKEN)), -EISCONN);
	K_EQ(r, gaccept(a->net, fd, NULL, NULL), -EINVAL);
	K_EQ(r, glisten(a->net, fd, 5), -EINVAL);
	K_EQ(r, gsend(a->net, fd, buf, 1, 0), 1);
	K_EQ(r, gclose(a->net, fd), 0);
	return 0;
}

GNET_DEV int listeners(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int fd, rc;

	K_GET(r, fd, gsocket(a->net, GNET_AF_INET, GNET_SOCK_STREAM, 0));
	K_EQ(r, gaccept(a->net, fd, NULL, NULL), -EINVAL);
	K_EQ(r, gaccept4(a->net, fd, NULL, NULL, GNET_MSG_DONTWAIT), -EINVAL);
	K_EQ(r, gaccept4(a->net, fd, NULL, NULL, GNET_MSG_PEEK), -EOPNOTSUPP);
	K_EQ(r, gbind(a->net, fd, ADDR(FREE), LEN(FREE)), 0);
	K_EQ(r, gaccept(a->net, fd, NULL, NULL), -EINVAL);
	K_EQ(r, glisten(a->net, fd, 0), 0);
	K_EQ(r, glisten(a->net, fd, 10), 0);
	K_EQ(r, grecv(a->net, fd, buf, 1, 0), -ENOTCONN);
	K_EQ(r, grecv(a->net, fd, buf, 1, GNET_MSG_DONTWAIT), -ENOTCONN);
	K_EQ(r, gsend(a->net, fd, buf, 1, 0), -ENOTCONN);
	rc = gconnect(a->net, fd, ADDR(TAKEN), LEN(TAKEN));
	if (rc != -EISCONN && rc != -EINVAL && rc != -EOPNOTSUPP)
		return test_k_bad(r, __LINE__, rc, -EISCONN);
	K_EQ(r, gbind(a->net, fd, ADDR(FREE), LEN(FREE)), -EINVAL);
	K_EQ(r, gclose(a->net, fd), 0);
	/* A UNIX socket that was not bound cannot listen. */
	K_GET(r, fd, gsocket(a->net, GNET_AF_UNIX, GNET_SOCK_STREAM, 0));
	K_EQ(r, glisten(a->net, fd, 5), -EINVAL);
	K_EQ(r, gclose(a->net, fd), 0);
	return 0;
}

GNET_DEV int mistakes(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	K_CALL(descriptors(a, r, buf));
	K_CALL(kinds(a, r));
	K_CALL(versions(a, r));
	K_CALL(binds(a, r));
	K_CALL(connects(a, r, buf));
	K_CALL(listeners(a, r, buf));
	return 0;
}

TEST_KERNEL(errno_kernel, mistakes)

static int make_in(struct test_addr *a, int listening)
{
	socklen_t len = sizeof(a->a);
	int fd;

	test_addr_make(a, TEST_TCP);
	if (listening)
		return test_listen(a, 50);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(fd >= 0);
	CHECK_EQ(bind(fd, &a->a.sa, a->len), 0);
	CHECK_EQ(getsockname(fd, &a->a.sa, &len), 0);
	return fd;
}

/* Returns the descriptors to close at the end. */
static void make_addresses(struct test_addr *a, int fds[4])
{
	FILE *file;

	test_addr_make(&a[FREE], TEST_TCP);
	fds[0] = make_in(&a[TAKEN], 1);
	fds[1] = make_in(&a[BOUND], 0);
	a[NOT_OURS] = a[FREE];
	a[NOT_OURS].a.in.sin_addr.s_addr = htonl(0xc0000201u);
	test_addr_make(&a[V6], TEST_TCP6);
	test_addr_make(&a[PATH_FREE], TEST_UNIX);
	test_addr_make(&a[PATH_TAKEN], TEST_UNIX);
	fds[2] = test_listen(&a[PATH_TAKEN], 50);
	test_addr_make(&a[PATH_STALE], TEST_UNIX);
	fds[3] = test_listen(&a[PATH_STALE], 50);
	close(fds[3]);
	test_addr_make(&a[PATH_FILE], TEST_UNIX);
	file = fopen(a[PATH_FILE].a.un.sun_path, "w");
	CHECK(file != NULL);
	fclose(file);
	test_addr_make(&a[PATH_NO_DIR], TEST_UNIX);
	memcpy(a[PATH_NO_DIR].a.un.sun_path, "/tmp/gpn-none/x", 16);
	a[PATH_NO_DIR].len = (uint32_t)(offsetof(struct sockaddr_un, sun_path) + 16);
}

int main(void)
{
	struct test_args a;
	struct test_addr *addresses;
	gpunet_t *g;
	int fds[4];

	test_begin(30);
	g = test_open(NULL);
	CHECK_EQ(GPUNET_PREPARE(errno_kernel), 0);
	a = test_setup(g, TEST_TCP, 1, 4096);
	addresses = (struct test_addr *)test_shared(ADDRESSES * sizeof(*addresses));
	make_addresses(addresses, fds);
	a.where = addresses;
	for (unsigned threads = 1; threads <= 64; threads *= 64) {
		TEST_LAUNCH(g, errno_kernel, a, 1, threads);
		test_sync(g, a.report, 1);
		test_addr_remove(&addresses[PATH_FREE]);
	}
	for (int i = 0; i < ADDRESSES; i++)
		test_addr_remove(&addresses[i]);
	for (int i = 0; i < 3; i++)
		close(fds[i]);
	test_teardown(&a);
	test_shared_free(addresses);
	test_close(g);
	return 0;
}
