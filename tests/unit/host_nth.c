/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * In conversation number n between two kernels the n-th system call on a socket fails for good, whichever it is and on whichever
 * side; until a conversation has fewer calls than that. A conversation may fail, with an error that tells of it; it ends, and the one after
 * it succeeds with the same server. Datagrams: what is lost is sent again, and then all arrive. (The shutdown of a connection that
 * is there does not fail.)
 */
#include "../device/opt.h"

#include "base/log.h"
#include "base/sys.h"
#include "fake_ring.h"

#define MOST_CALLS 300 /* of a conversation; it has about forty */
#define TURNS 4
#define LENGTH(i) (((i) % 2 ? 300u : 20u) + 8)

/* Words: conversation to begin; conversation done; what came of it. */
enum { BEGIN, DONE, OUTCOME };

static struct {
	unsigned made, fails_at; /* calls of this conversation; 0: none fails */
	int injected;
} nth;

/* The peer is told of it as by a reset: the bytes under way are lost with the connection. */
static int fails(void)
{
	unsigned at = __atomic_load_n(&nth.fails_at, __ATOMIC_RELAXED);

	if (!at || __atomic_add_fetch(&nth.made, 1, __ATOMIC_RELAXED) != at)
		return 0;
	__atomic_store_n(&nth.injected, 1, __ATOMIC_RELEASE);
	return 1;
}

static int nth_socket(int domain, int type, int protocol)
{
	return fails() ? -EMFILE : sys_real.socket(domain, type, protocol);
}

static int nth_accept(int fd, struct sockaddr *a, socklen_t *n)
{
	return fails() ? -ENFILE : sys_real.accept(fd, a, n);
}

static int nth_connect(int fd, const struct sockaddr *a, socklen_t n)
{
	return fails() ? -ENETUNREACH : sys_real.connect(fd, a, n);
}

static int nth_bind(int fd, const struct sockaddr *a, socklen_t n)
{
	return fails() ? -EADDRNOTAVAIL : sys_real.bind(fd, a, n);
}

static ssize_t nth_sendmsg(int fd, const struct msghdr *m, int flags)
{
	return fails() ? -ECONNRESET : sys_real.sendmsg(fd, m, flags);
}

static ssize_t nth_recvmsg(int fd, struct msghdr *m, int flags)
{
	return fails() ? -ECONNRESET : sys_real.recvmsg(fd, m, flags);
}

static int nth_getsockopt(int fd, int level, int name, void *v, socklen_t *n)
{
	return fails() ? -ENOBUFS : sys_real.getsockopt(fd, level, name, v, n);
}

static int nth_setsockopt(int fd, int level, int name, const void *v, socklen_t n)
{
	return fails() ? -ENOMEM : sys_real.setsockopt(fd, level, name, v, n);
}

static int nth_epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
	return op == EPOLL_CTL_ADD && fails() ? -ENOSPC : sys_real.epoll_ctl(epfd, op, fd, ev);
}

static void install(void)
{
	fake_ring();
	sys.socket = nth_socket;
	sys.accept = nth_accept;
	sys.connect = nth_connect;
	sys.bind = nth_bind;
	sys.sendmsg = nth_sendmsg;
	sys.recvmsg = nth_recvmsg;
	sys.getsockopt = nth_getsockopt;
	sys.setsockopt = nth_setsockopt;
	sys.epoll_ctl = nth_epoll_ctl;
}

/* ---- streams -------------------------------------------------------------------------------------------------------- */

/* Serves whoever comes; only an abort ends it. */
GNET_DEV int serve(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int listener, fd;
	int64_t n;

	K_GET(r, listener, test_k_listen(a->net, a->want, a->where, 4));
	while ((fd = gaccept(a->net, listener, NULL, NULL)) != -ECANCELED) {
		if (fd < 0)
			continue;
		while ((n = grecv(a->net, fd, buf, a->room, 0)) > 0)
			if (gsend(a->net, fd, buf, (uint64_t)n, 0) < n)
				break;
		gclose(a->net, fd);
	}
	return 0;
}

/* 0, an errno, or 1: the end of the stream came too early. A wrong byte is never right. */
GNET_DEV int64_t converse(struct test_args *a, struct test_report *r, int fd, uint8_t *buf)
{
	int64_t n;

	for (uint32_t i = 0; i < TURNS; i++) {
		test_k_pattern(buf, LENGTH(i), i, 7);
		n = gsend(a->net, fd, buf, LENGTH(i), 0);
		if (n < 0)
			return n;
		n = grecv(a->net, fd, buf, LENGTH(i), GNET_MSG_WAITALL);
		if (n < 0)
			return n;
		if (test_k_wrong(buf, (uint64_t)n, i, 7))
			return test_k_bad(r, __LINE__, i, n) - 1000;
		if ((uint64_t)n < LENGTH(i))
			return 1;
	}
	n = gshutdown(a->net, fd, GNET_SHUT_WR);
	return n ? n : grecv(a->net, fd, buf, 1, 0);
}

GNET_DEV int ask(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	for (uint64_t round = 1; round <= a->n; round++) {
		int64_t rc;
		int fd;

		test_k_wait(&a->word[BEGIN], round);
		rc = fd = test_k_connect(a->net, a->where);
		if (fd >= 0) {
			rc = converse(a, r, fd, buf);
			K_EQ(r, gclose(a->net, fd), 0);
		}
		test_k_set(&a->word[OUTCOME], (uint64_t)rc);
		test_k_set(&a->word[DONE], round);
		if (rc <= -1000)
			return -1;
	}
	return 0;
}

/* ---- datagrams ------------------------------------------------------------------------------------------------------ */

GNET_DEV int dgram_serve(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	__shared__ struct test_addr from;
	__shared__ uint32_t len;
	int64_t n;
	int fd;

	K_GET(r, fd, gsocket(a->net, a->want->a.sa.sa_family, GNET_SOCK_DGRAM, 0));
	K_EQ(r, gbind(a->net, fd, &a->want->a, a->want->len), 0);
	if (test_k_tid() == 0)
		a->where->len = sizeof(a->where->a);
	__syncthreads();
	K_EQ(r, ggetsockname(a->net, fd, &a->where->a, &a->where->len), 0);
	test_k_set(&a->where->ready, 1);
	do {
		__syncthreads();
		if (test_k_tid() == 0)
			len = sizeof(from.a);
		__syncthreads();
		n = grecvfrom(a->net, fd, buf, a->room, 0, &from.a, &len);
		if (n >= 0)
			n = gsendto(a->net, fd, buf, (uint64_t)n, 0, &from.a, len);
	} while (n != -ECANCELED);
	return 0;
}

/* Number i, until it has come back: older ones that come late are passed over. */
GNET_DEV int64_t dgram_turn(struct test_args *a, int fd, uint8_t *buf, uint32_t i)
{
	int64_t n = 0;

	for (int tries = 0; tries < 10; tries++) {
		test_k_pattern(buf, LENGTH(i), i, 7);
		n = gsend(a->net, fd, buf, LENGTH(i), 0);
		if (n < 0)
			continue;
		do
			n = grecv(a->net, fd, buf, a->room, 0);
		while (n >= 0 && (n != LENGTH(i) || test_k_wrong(buf, LENGTH(i), i, 7)));
		if (n > 0)
			return 0;
	}
	return n;
}

GNET_DEV int64_t dgram_converse(struct test_args *a, int fd, uint8_t *buf)
{
	int unix_ = a->want->a.sa.sa_family == GNET_AF_UNIX;
	int64_t rc = unix_ ? gbind(a->net, fd, &a->want->a, 2) : 0; /* the system finds a name */

	if (rc == 0)
		rc = opt_limit_ms(a->net, fd, GNET_SO_RCVTIMEO, 50 * TEST_SLOW);
	if (rc == 0)
		rc = gconnect(a->net, fd, &a->where->a, a->where->len);
	for (uint32_t i = 0; i < TURNS && rc == 0; i++)
		rc = dgram_turn(a, fd, buf, i) ? -1000 : 0;
	return rc;
}

GNET_DEV int dgram_ask(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	test_k_wait(&a->where->ready, 1);
	for (uint64_t round = 1; round <= a->n; round++) {
		int64_t rc;
		int fd;

		test_k_wait(&a->word[BEGIN], round);
		rc = fd = gsocket(a->net, a->want->a.sa.sa_family, GNET_SOCK_DGRAM, 0);
		if (fd >= 0) {
			rc = dgram_converse(a, fd, buf);
			K_EQ(r, gclose(a->net, fd), 0);
		}
		test_k_set(&a->word[OUTCOME], (uint64_t)rc);
		test_k_set(&a->word[DONE], round);
	}
	return 0;
}

GNET_DEV int streams(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	return blockIdx.x ? ask(a, r, buf) : serve(a, r, buf);
}

GNET_DEV int datagrams(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	return blockIdx.x ? dgram_ask(a, r, buf) : dgram_serve(a, r, buf);
}

TEST_KERNEL(streams_kernel, streams)
TEST_KERNEL(datagrams_kernel, datagrams)

/* ---- host ----------------------------------------------------------------------------------------------------------- */

static int tells(int64_t outcome)
{
	static const int may_be[] = { EMFILE, ENFILE, ENETUNREACH, EADDRNOTAVAIL, ECONNRESET,
				      EPIPE,  ENOMEM, ENOBUFS,     ENOSPC,        ENOTCONN };

	for (unsigned i = 0; i < sizeof(may_be) / sizeof(may_be[0]); i++)
		if (outcome == -may_be[i])
			return 1;
	return outcome == 0 || outcome == 1;
}

/* One conversation with its n-th call failing (0: none): what came of it. */
static int64_t conversation(struct test_args *a, uint64_t round, unsigned n)
{
	__atomic_store_n(&nth.made, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&nth.injected, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&nth.fails_at, n, __ATOMIC_RELEASE);
	test_word_set(&a->word[BEGIN], round);
	test_word_wait(&a->word[DONE], round, a->report);
	__atomic_store_n(&nth.fails_at, 0, __ATOMIC_RELEASE);
	return (int64_t)__atomic_load_n(&a->word[OUTCOME], __ATOMIC_ACQUIRE);
}

static void run(enum test_kind kind, int dgram)
{
	gpunet_t *g = test_open(NULL);
	struct test_args a = test_setup(g, kind, 2, 4096);
	unsigned n, failed = 0;
	uint64_t round = 0;

	a.n = 2 * MOST_CALLS;
	if (dgram)
		TEST_LAUNCH(g, datagrams_kernel, a, 2, 32);
	else
		TEST_LAUNCH(g, streams_kernel, a, 2, 32);
	test_addr_wait(a.where, a.report);
	CHECK_EQ(conversation(&a, ++round, 0), 0);
	for (n = 1; n < MOST_CALLS - 1; n++) {
		int64_t rc = conversation(&a, ++round, n);

		if (!__atomic_load_n(&nth.injected, __ATOMIC_ACQUIRE))
			break;
		if (!tells(rc))
			FAIL("call %u fails: the conversation ends with %lld", n, (long long)rc);
		failed += rc != 0;
		CHECK_EQ(conversation(&a, ++round, 0), 0);
	}
	fprintf(stderr, "%s of kind %d: %u calls failed in turn, %u conversations with them\n",
		dgram ? "datagrams" : "a stream", kind, n - 1, failed);
	CHECK(n > 10 && n < MOST_CALLS - 1 && failed > 0);
	gpunet_abort(g);
	test_word_set(&a.word[BEGIN], a.n); /* whoever still asks is told of the abort */
	CHECK_EQ(gpunet_sync(g, 20000 * TEST_SLOW), 0);
	test_close(g);
	test_teardown(&a);
}

int main(void)
{
	test_begin(100);
	log_set_level(LOG_ERROR);
	install();
	run(TEST_TCP, 0);
	run(TEST_UNIX, 0);
	run(TEST_TCP, 1);
	run(TEST_UNIX, 1);
	return 0;
}
