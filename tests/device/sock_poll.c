/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpoll in every scope: each event as poll(2) tells it on Linux, those that nobody asked for, descriptors that are none, time limits;
 * two hundred sockets and their listener at once; a socket closed, and the network aborted, while somebody polls.
 */
#include "opt.h"

#define MANY 200
#define MANY_RDMA 20 /* each has two segments from its beginning */
#define ROUNDS 60

enum { STEP, AT };
enum { BLOCK, WARP, THREAD };

struct poll_args {
	struct test_args t;
	struct gnet_pollfd *f; /* [MANY + 1], memory of the device */
	int scope, no_reset;
};

GNET_DEV void look_for(struct poll_args *a, uint32_t i, int fd, int events)
{
	__syncthreads();
	if (test_k_tid() == 0) {
		a->f[i].fd = fd;
		a->f[i].events = (short)events;
		a->f[i].revents = 77;
	}
	__syncthreads();
}

/* By the threads that the scope says; the result for all of the block. */
GNET_DEV int polled(struct poll_args *a, uint32_t n, int64_t ms)
{
	__shared__ int result;
	int64_t ns = ms < 0 ? -1 : ms * 1000000;
	int rc = 0;

	__syncthreads();
	if (a->scope == BLOCK)
		return gpoll(a->t.net, a->f, n, ns);
	if (a->scope == WARP && test_k_tid() < 32)
		rc = gpoll_warp(a->t.net, a->f, n, ns);
	else if (a->scope == THREAD && test_k_tid() == 0)
		rc = gpoll_thread(a->t.net, a->f, n, ns);
	if (test_k_tid() == 0)
		result = rc;
	__syncthreads();
	rc = result;
	__syncthreads();
	return rc;
}

/* One descriptor: its events, or a negative errno; 0: none in time. */
GNET_DEV int events_of(struct poll_args *a, int fd, int events, int64_t ms)
{
	int n, r;

	look_for(a, 0, fd, events);
	n = polled(a, 1, ms);
	if (n < 0)
		return n;
	r = a->f[0].revents;
	__syncthreads();
	return n == (r != 0) ? r : -1000;
}

GNET_DEV int limits(struct poll_args *a, struct test_report *r, int fd)
{
	int64_t t;

	K_EQ(r, events_of(a, fd, GNET_POLLIN, 0), 0);
	t = opt_now_ms();
	K_EQ(r, events_of(a, fd, GNET_POLLIN, 20), 0);
	K_EQ(r, opt_now_ms() - t >= 19, 1);
	K_EQ(r, polled(a, 0, 0), 0);
	t = opt_now_ms();
	K_EQ(r, polled(a, 0, 20), 0);
	K_EQ(r, opt_now_ms() - t >= 19, 1);
	return 0;
}

/* Descriptors that are none do not hide one that is. */
GNET_DEV int no_descriptors(struct poll_args *a, struct test_report *r, int fd)
{
	struct poll_args none = *a;
	gnet_t *net = a->t.net;
	int old;

	none.f = 0;
	K_EQ(r, polled(&none, 3, -1), -EINVAL);
	K_EQ(r, polled(&none, 0, 0), 0);
	K_GET(r, old, gsocket(net, GNET_AF_UNIX, GNET_SOCK_STREAM, 0));
	K_EQ(r, events_of(a, old, GNET_POLLIN | GNET_POLLOUT, 0), GNET_POLLOUT | GNET_POLLHUP);
	K_EQ(r, gclose(net, old), 0);
	K_EQ(r, events_of(a, old, GNET_POLLIN, -1), GNET_POLLNVAL);
	K_EQ(r, events_of(a, 0x7fffffff, 0, -1), GNET_POLLNVAL);
	K_EQ(r, events_of(a, -7, GNET_POLLIN | GNET_POLLOUT, 0), 0);
	look_for(a, 0, -1, GNET_POLLOUT);
	look_for(a, 1, fd, GNET_POLLOUT);
	look_for(a, 2, old, GNET_POLLOUT);
	look_for(a, 3, fd, GNET_POLLIN);
	K_EQ(r, polled(a, 4, -1), 2);
	K_EQ(r, a->f[0].revents, 0);
	K_EQ(r, a->f[1].revents, GNET_POLLOUT);
	K_EQ(r, a->f[2].revents, GNET_POLLNVAL);
	K_EQ(r, a->f[3].revents, 0);
	return 0;
}

/* The host writes a byte some time after it was asked to. */
GNET_DEV int readable(struct poll_args *a, struct test_report *r, int fd, uint8_t *buf)
{
	const int all = GNET_POLLIN | GNET_POLLOUT | GNET_POLLRDHUP;

	K_EQ(r, events_of(a, fd, all, -1), GNET_POLLOUT);
	test_k_set(&a->t.word[AT], 1);
	K_EQ(r, events_of(a, fd, GNET_POLLIN | GNET_POLLRDHUP, -1), GNET_POLLIN);
	K_EQ(r, events_of(a, fd, all, 0), GNET_POLLIN | GNET_POLLOUT);
	K_EQ(r, grecv(a->t.net, fd, buf, 100, 0), 1);
	K_EQ(r, events_of(a, fd, GNET_POLLIN, 0), 0);
	return 0;
}

/* The host connects some time after it was asked to. */
GNET_DEV int acceptable(struct poll_args *a, struct test_report *r, int listener, int *fd)
{
	K_EQ(r, events_of(a, listener, GNET_POLLIN | GNET_POLLOUT, 0), 0);
	test_k_set(&a->t.word[AT], 2);
	K_EQ(r, events_of(a, listener, GNET_POLLIN | GNET_POLLOUT, -1), GNET_POLLIN);
	K_GET(r, *fd, gaccept(a->t.net, listener, NULL, NULL));
	K_EQ(r, events_of(a, listener, GNET_POLLIN, 0), 0);
	return 0;
}

/* Full, and then the host reads. */
GNET_DEV int writable(struct poll_args *a, struct test_report *r, int fd, uint8_t *buf)
{
	uint64_t sent = 0;
	int quiet = 0;
	int64_t n;

	do {
		n = gsend(a->t.net, fd, buf, a->t.room, GNET_MSG_DONTWAIT);
		K_EQ(r, n > 0 || n == -EAGAIN, 1);
		sent += n > 0 ? (uint64_t)n : 0;
	} while (!test_k_full(n, &quiet));
	K_EQ(r, events_of(a, fd, GNET_POLLIN | GNET_POLLOUT, 0), 0);
	test_k_set(&a->t.word[STEP], sent);
	test_k_set(&a->t.word[AT], 3);
	K_EQ(r, events_of(a, fd, GNET_POLLIN | GNET_POLLOUT, -1), GNET_POLLOUT);
	return 0;
}

/* The host ends its stream, then this side does; and a connection that the host resets. */
GNET_DEV int ends(struct poll_args *a, struct test_report *r, int fd, int other, uint8_t *buf)
{
	const int all = GNET_POLLIN | GNET_POLLOUT | GNET_POLLRDHUP;
	int unix_ = a->t.want->a.sa.sa_family == GNET_AF_UNIX;

	test_k_set(&a->t.word[AT], 4);
	K_EQ(r, events_of(a, fd, GNET_POLLIN | GNET_POLLRDHUP, -1), GNET_POLLIN | GNET_POLLRDHUP);
	K_EQ(r, events_of(a, fd, GNET_POLLOUT, 0), GNET_POLLOUT);
	K_EQ(r, gshutdown(a->t.net, fd, GNET_SHUT_WR), 0);
	K_EQ(r, events_of(a, fd, all, 0), all | GNET_POLLHUP);
	K_EQ(r, grecv(a->t.net, fd, buf, 1, 0), 0);
	K_EQ(r, events_of(a, fd, GNET_POLLRDHUP, 0), GNET_POLLRDHUP | GNET_POLLHUP);
	test_k_set(&a->t.word[AT], 5);
	if (unix_)
		return 0; /* no reset of this kind */
	if (a->no_reset) {
		K_EQ(r, events_of(a, other, GNET_POLLIN | GNET_POLLRDHUP, -1),
		     GNET_POLLIN | GNET_POLLRDHUP);
		K_EQ(r, grecv(a->t.net, other, buf, 1, 0), 0);
		return 0;
	}
	K_EQ(r, events_of(a, other, GNET_POLLIN, -1), GNET_POLLIN | GNET_POLLERR | GNET_POLLHUP);
	K_EQ(r, events_of(a, other, 0, -1), GNET_POLLERR | GNET_POLLHUP);
	K_EQ(r, grecv(a->t.net, other, buf, 1, 0), -ECONNRESET);
	return 0;
}

GNET_DEV int events(struct poll_args *a, struct test_report *r, uint8_t *buf)
{
	int listener, fd, other;

	K_GET(r, listener, test_k_listen(a->t.net, a->t.want, a->t.where, 5));
	K_GET(r, fd, gaccept(a->t.net, listener, NULL, NULL));
	K_CALL(limits(a, r, fd));
	K_CALL(no_descriptors(a, r, fd));
	K_CALL(readable(a, r, fd, buf));
	K_CALL(acceptable(a, r, listener, &other));
	K_CALL(writable(a, r, fd, buf));
	K_CALL(ends(a, r, fd, other, buf));
	K_EQ(r, gclose(a->t.net, other), 0);
	K_EQ(r, gclose(a->t.net, fd), 0);
	K_EQ(r, gclose(a->t.net, listener), 0);
	return 0;
}

GNET_KERNEL(events_kernel, struct poll_args, a)
{
	test_k_done(a.t.report, events(&a, a.t.report, a.t.buf));
}

/* ---- many --------------------------------------------------------------------------------------------------------------- */

/* The connections come while the first of them send already; each byte says how many bytes its connection has had. */
GNET_DEV int many(struct poll_args *a, struct test_report *r, uint8_t *buf)
{
	uint32_t n = 1, bytes = 0;
	int listener, fd;

	K_GET(r, listener, test_k_listen(a->t.net, a->t.want, a->t.where, 64));
	look_for(a, 0, listener, GNET_POLLIN);
	while (bytes < a->t.n) {
		uint32_t ready = 0, i, now = n;
		int got = polled(a, n, -1);

		for (i = 0; i < now; i++)
			ready += a->f[i].revents != 0;
		K_EQ(r, got, ready);
		K_EQ(r, got > 0, 1);
		for (i = 1; i < now; i++) {
			if (!a->f[i].revents)
				continue;
			K_EQ(r, a->f[i].revents, GNET_POLLIN);
			K_EQ(r, grecv(a->t.net, a->f[i].fd, buf + 4096, 1, GNET_MSG_DONTWAIT), 1);
			K_EQ(r, buf[4096], buf[i]);
			__syncthreads();
			if (test_k_tid() == 0)
				buf[i]++;
			bytes++;
		}
		if (a->f[0].revents) {
			K_GET(r, fd, gaccept(a->t.net, listener, NULL, NULL));
			look_for(a, n++, fd, GNET_POLLIN);
		}
		__syncthreads();
	}
	for (uint32_t i = 0; i < n; i++)
		K_EQ(r, gclose(a->t.net, a->f[i].fd), 0);
	return 0;
}

GNET_KERNEL(many_kernel, struct poll_args, a)
{
	test_k_done(a.t.report, many(&a, a.t.report, a.t.buf));
}

/* ---- ends of a wait ------------------------------------------------------------------------------------------------------ */

/* Block 0 polls; block 1 closes what it polls, and then the host aborts. */
GNET_DEV int ended(struct poll_args *a, struct test_report *r)
{
	gnet_t *net = a->t.net;
	int fd;

	if (blockIdx.x == 1) {
		test_k_wait(&a->t.word[STEP], 1);
		test_k_sleep(20000);
		K_EQ(r, gclose(net, (int)gnet_sys_load_acquire(&a->t.word[STEP]) - 1), 0);
		return 0;
	}
	K_GET(r, fd, test_k_listen(net, a->t.want, a->t.where, 1));
	test_k_set(&a->t.word[STEP], (uint64_t)fd + 1);
	K_EQ(r, events_of(a, fd, GNET_POLLIN, -1), GNET_POLLNVAL);
	test_k_set(&a->t.word[AT], 1);
	K_EQ(r, events_of(a, -1, GNET_POLLIN, -1), -ECANCELED);
	return 0;
}

GNET_KERNEL(ended_kernel, struct poll_args, a)
{
	test_k_done(&a.t.report[blockIdx.x], ended(&a, &a.t.report[blockIdx.x]));
}

/* ---- host ---------------------------------------------------------------------------------------------------------------- */

static struct poll_args set_up(gpunet_t *g, enum test_kind kind, unsigned blocks, int scope)
{
	struct poll_args a;

	memset(&a, 0, sizeof(a));
	a.t = test_setup(g, kind, blocks, 32 << 10);
	a.f = (struct gnet_pollfd *)test_device((MANY + 1) * sizeof(*a.f));
	a.scope = scope;
	a.no_reset = test_rdma() != NULL; /* rsockets know none */
	return a;
}

static void tear_down(struct poll_args *a)
{
	test_device_free(a->f);
	test_teardown(&a->t);
}

static void run_events(enum test_kind kind, int scope, unsigned threads)
{
	struct linger reset = { 1, 0 };
	gpunet_t *g = test_open(NULL);
	struct poll_args a = set_up(g, kind, 1, scope);
	uint64_t left;
	char data[4096];
	int fd, other;

	TEST_LAUNCH(g, events_kernel, a, 1, threads);
	test_addr_wait(a.t.where, a.t.report);
	fd = test_connect(a.t.where);
	test_word_wait(&a.t.word[AT], 1, a.t.report);
	test_sleep_ms(10);
	test_write(fd, "x", 1);
	test_word_wait(&a.t.word[AT], 2, a.t.report);
	test_sleep_ms(10);
	other = test_connect(a.t.where);
	test_word_wait(&a.t.word[AT], 3, a.t.report);
	for (left = a.t.word[STEP]; left;) {
		ssize_t n = test_read_some(fd, data, sizeof(data));

		CHECK(n > 0);
		left -= (uint64_t)n;
	}
	test_word_wait(&a.t.word[AT], 4, a.t.report);
	test_sleep_ms(10);
	CHECK_EQ(shutdown(fd, SHUT_WR), 0);
	test_word_wait(&a.t.word[AT], 5, a.t.report);
	CHECK_EQ(setsockopt(other, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)), 0);
	close(other);
	test_sync(g, a.t.report, 1);
	close(fd);
	test_close(g);
	tear_down(&a);
}

static void run_many(enum test_kind kind, int scope, unsigned threads)
{
	unsigned rounds = ROUNDS / TEST_SLOW, bytes = 0;
	gpunet_t *g = test_open(NULL);
	struct poll_args a = set_up(g, kind, 1, scope);
	uint8_t had[MANY] = { 0 };
	int fd[MANY], n = 0;

	a.t.n = rounds * 10;
	TEST_LAUNCH(g, many_kernel, a, 1, threads);
	test_addr_wait(a.t.where, a.t.report);
	while (bytes < a.t.n) {
		for (int i = 0; i < 10 && n < (test_rdma() ? MANY_RDMA : MANY); i++)
			fd[n++] = test_connect(a.t.where);
		for (unsigned i = 0; i < 10; i++) {
			int which = (int)((bytes * 7919u + i * 104729u) % (unsigned)n);

			test_write(fd[which], &had[which], 1);
			had[which]++;
			bytes++;
		}
	}
	test_sync(g, a.t.report, 1);
	while (n)
		close(fd[--n]);
	test_close(g);
	tear_down(&a);
}

static void run_ended(int scope, unsigned threads)
{
	gpunet_t *g = test_open(NULL);
	struct poll_args a = set_up(g, TEST_TCP, 2, scope);

	TEST_LAUNCH(g, ended_kernel, a, 2, threads);
	test_word_wait(&a.t.word[AT], 1, a.t.report);
	/* The abort would end the gclose, too: a poll may see it before its answer is there. */
	test_word_wait(&a.t.report[1].done, 1, a.t.report + 1);
	test_sleep_ms(10);
	gpunet_abort(g);
	test_sync(g, a.t.report, 2);
	test_close(g);
	tear_down(&a);
}

int main(void)
{
	test_begin(60);
	test_need_device();
	CHECK_EQ(GPUNET_PREPARE(events_kernel), 0);
	CHECK_EQ(GPUNET_PREPARE(many_kernel), 0);
	CHECK_EQ(GPUNET_PREPARE(ended_kernel), 0);
	if (test_rdma()) {
		run_events(TEST_TCP, BLOCK, 64);
		run_many(TEST_TCP, WARP, 32);
		run_ended(THREAD, 2);
		return 0;
	}
	run_events(TEST_TCP, BLOCK, 64);
	run_events(TEST_UNIX, WARP, 40);
	run_events(TEST_TCP, THREAD, 3);
	run_many(TEST_TCP, BLOCK, 7);
	run_many(TEST_UNIX, BLOCK, 256);
	run_many(TEST_TCP, WARP, 32);
	run_many(TEST_UNIX, THREAD, 1);
	run_ended(BLOCK, 64);
	run_ended(WARP, 33);
	run_ended(THREAD, 2);
	return 0;
}
