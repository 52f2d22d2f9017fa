/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A kernel of calls that do not wait, or only for a moment, is told of gpunet_abort as well: with -ECANCELED, in every scope, whether they
 * find nothing again and again or a busy peer keeps them supplied. gpunet_close, which aborts, succeeds then.
 */
#include "opt.h"

/* Roles of the blocks, for which the words are: the host sees that each has begun. */
enum {
	ACCEPT,
	RECV,
	RECV_WARPS,
	RECV_THREADS,
	RECV_MOMENT,
	BORROW,
	SEND,
	RESERVE,
	POLL,
	POLL_MOMENT,
	DGRAM,
	CONNECT,
	ECHO, /* with a client of the host that goes on and on */
	NEAR, /* the same with the block of the next role */
	NEAR_TOO,
	ROLES
};

/* Words: descriptor + 1. */
enum { LISTENER = ROLES, QUIET, LIMITED, STUFFED, BUSY };

struct unwaited_args {
	struct test_args t;
	struct test_addr *full;
	struct test_addr *near; /* of role NEAR: to bind, to connect to */
};

GNET_DEV int published(struct unwaited_args *a, int which)
{
	test_k_wait(&a->t.word[which], 1);
	return (int)gnet_sys_load_acquire(&a->t.word[which]) - 1;
}

/* Block 0: the host connects four times. */
GNET_DEV int make_all(struct unwaited_args *a, struct test_report *r)
{
	gnet_t *net = a->t.net;
	int listener, fd;

	K_GET(r, listener, test_k_listen(net, a->t.want, a->t.where, 5));
	for (int which = QUIET; which <= BUSY; which++) {
		K_GET(r, fd, gaccept(net, listener, NULL, NULL));
		if (which == LIMITED)
			K_EQ(r, opt_set_time(net, fd, GNET_SO_RCVTIMEO, 0, 20), 0);
		test_k_set(&a->t.word[which], (uint64_t)fd + 1);
	}
	test_k_set(&a->t.word[LISTENER], (uint64_t)listener + 1);
	return 0;
}

/* The socket of the block's role. */
GNET_DEV int descriptor(struct unwaited_args *a)
{
	gnet_t *net = a->t.net;
	int fd;

	switch (blockIdx.x) {
	case ACCEPT:
		return published(a, LISTENER);
	case RECV_MOMENT:
		return published(a, LIMITED);
	case SEND:
	case RESERVE:
		return published(a, STUFFED);
	case DGRAM:
		return gsocket(net, GNET_AF_INET, GNET_SOCK_DGRAM | GNET_SOCK_NONBLOCK, 0);
	case CONNECT:
		return gsocket(net, a->full->a.sa.sa_family, GNET_SOCK_STREAM | GNET_SOCK_NONBLOCK,
			       0);
	case ECHO:
		return published(a, BUSY);
	case NEAR:
		fd = test_k_listen(net, a->near, a->near + 1, 1);
		return fd < 0 ? fd : gaccept(net, fd, NULL, NULL);
	case NEAR_TOO:
		return test_k_connect(net, a->near + 1);
	default:
		return published(a, QUIET);
	}
}

/* As often as it takes. Each thread of the block has an answer of its own from a call of its scope. */
#define AGAIN(call)                                                             \
	do                                                                      \
		n = (call);                                                     \
	while (n == -EAGAIN || n == -ETIMEDOUT || n == -EINPROGRESS || n >= 0); \
	return n

GNET_DEV int64_t polls(gnet_t *net, int fd, int64_t timeout_ns)
{
	__shared__ struct gnet_pollfd p;
	int64_t n;

	if (threadIdx.x == 0) {
		p.fd = fd;
		p.events = GNET_POLLIN;
	}
	AGAIN(gpoll(net, &p, 1, timeout_ns));
}

GNET_DEV int64_t reserves(gnet_t *net, int fd)
{
	__shared__ struct gnet_borrow b;
	int64_t n;

	do {
		n = gsend_reserve(net, fd, &b, 1000, GNET_MSG_DONTWAIT);
		if (n == 0)
			n = gsend_commit(net, fd, 1000);
	} while (n == 0 || n == -EAGAIN);
	return n;
}

GNET_DEV int64_t borrows(gnet_t *net, int fd)
{
	__shared__ struct gnet_borrow b;
	int64_t n;

	AGAIN(grecv_borrow(net, fd, &b, 100, GNET_MSG_DONTWAIT));
}

GNET_DEV int64_t connects(struct unwaited_args *a, int fd, uint8_t *buf)
{
	int64_t n;

	do /* a UNIX socket is not under way: it is told to try again */
		n = gconnect(a->t.net, fd, &a->full->a, a->full->len);
	while (n == -EAGAIN);
	if (n != -EINPROGRESS)
		return n;
	AGAIN(gsend(a->t.net, fd, buf, 1, 0));
}

/* Gives back what comes. */
GNET_DEV int64_t echoes(gnet_t *net, int fd, uint8_t *buf)
{
	int64_t n = 0;

	if (blockIdx.x == NEAR_TOO)
		n = gsend(net, fd, buf, 300, 0);
	while (n >= 0) {
		n = grecv(net, fd, buf, 1000, 0);
		if (n > 0)
			n = gsend(net, fd, buf, (uint64_t)n, 0);
	}
	return n;
}

GNET_DEV int64_t in_role(struct unwaited_args *a, int fd, uint8_t *buf)
{
	const int now = GNET_MSG_DONTWAIT;
	gnet_t *net = a->t.net;
	int64_t n;

	switch (blockIdx.x) {
	case ACCEPT:
		AGAIN(gaccept4(net, fd, NULL, NULL, now));
	case RECV_WARPS:
		AGAIN(grecv_warp(net, fd, buf + threadIdx.x / 32, 1, now));
	case RECV_THREADS:
		AGAIN(grecv_thread(net, fd, buf + threadIdx.x, 1, now));
	case RECV_MOMENT:
		AGAIN(grecv(net, fd, buf, 100, 0));
	case BORROW:
		return borrows(net, fd);
	case SEND:
		AGAIN(gsend(net, fd, buf, 1000, now));
	case RESERVE:
		return reserves(net, fd);
	case POLL:
		return polls(net, fd, 0);
	case POLL_MOMENT:
		return polls(net, fd, 3000);
	case DGRAM:
		AGAIN(grecvfrom(net, fd, buf, 100, 0, NULL, NULL));
	case CONNECT:
		return connects(a, fd, buf);
	case ECHO:
	case NEAR:
	case NEAR_TOO:
		return echoes(net, fd, buf);
	default:
		AGAIN(grecv(net, fd, buf, 100, now));
	}
}

GNET_DEV int be_told(struct unwaited_args *a, struct test_report *r, uint8_t *buf)
{
	int64_t n;
	int fd;

	if (blockIdx.x == 0)
		K_CALL(make_all(a, r));
	K_GET(r, fd, descriptor(a));
	test_k_set(&a->t.word[blockIdx.x], 1); /* from now on the host may abort */
	n = in_role(a, fd, buf);
	K_EQ(r, n, -ECANCELED);
	/* Each thread's. */
	K_EQ(r, __syncthreads_count(n != -ECANCELED), 0);
	return 0;
}

GNET_KERNEL(unwaited_kernel, struct unwaited_args, a)
{
	struct test_report *r = &a.t.report[blockIdx.x];

	test_k_done(r, be_told(&a, r, a.t.buf + a.t.room * blockIdx.x));
}

/* The client of role ECHO: until its connection ends. */
static void *is_busy(void *arg)
{
	char data[8] = "a round";
	int fd = *(int *)arg;

	while (send(fd, data, sizeof(data), MSG_NOSIGNAL) > 0 &&
	       test_read_some(fd, data, sizeof(data)) > 0)
		;
	return NULL;
}

static void run(enum test_kind kind, unsigned threads, int close_aborts)
{
	struct gpunet_options opt = GPUNET_OPTIONS_INIT;
	struct unwaited_args a;
	struct test_full full;
	pthread_t busy;
	int peer[4];
	gpunet_t *g;

	opt.linger_ms = 200; /* what the stuffed connection still has to send is given up soon */
	g = test_open(&opt);
	CHECK_EQ(GPUNET_PREPARE(unwaited_kernel), 0);
	a.t = test_setup(g, kind, ROLES, 1024);
	test_full_open(&full, kind);
	a.full = full.addr;
	a.near = (struct test_addr *)test_shared(2 * sizeof(*a.near));
	test_addr_make(a.near, kind);
	TEST_LAUNCH(g, unwaited_kernel, a, ROLES, threads);
	test_addr_wait(a.t.where, a.t.report);
	for (int i = 0; i < 4; i++)
		peer[i] = test_connect(a.t.where);
	CHECK_EQ(pthread_create(&busy, NULL, is_busy, &peer[3]), 0);
	for (int i = 0; i < ROLES; i++)
		test_word_wait(&a.t.word[i], 1, a.t.report);
	test_sleep_ms(100);
	if (close_aborts) {
		test_close(g);
		test_reports(a.t.report, ROLES);
	} else {
		gpunet_abort(g);
		test_sync(g, a.t.report, ROLES);
		test_close(g);
	}
	CHECK_EQ(pthread_join(busy, NULL), 0);
	for (int i = 0; i < 4; i++)
		close(peer[i]);
	test_full_close(&full);
	test_addr_remove(a.near);
	test_shared_free(a.near);
	test_teardown(&a.t);
}

int main(void)
{
	test_begin(60);
	run(TEST_TCP, 64, 0);
	run(TEST_UNIX, 32, 1);
	run(TEST_TCP, 1, 0);
	return 0;
}
