/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sockets that come and go at speed: blocks connect, accept, exchange a little and close in every
 * order, over few slots, so that numbers are used again and again, past the last generation; a socket
 * closed by two blocks at once; a listener closed while connections wait in it.
 */
#include "test.h"

#define SERVERS 3
#define CLIENTS 3

enum { LISTENER };

/* ---- many short connections -------------------------------------------------------------------- */

GNET_DEV int serve(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	__shared__ unsigned long long ticket;
	int listener, fd;
	int64_t n;

	if (blockIdx.x == 0) {
		K_GET(r, listener, test_k_listen(a->net, a->want, a->where, 64));
		test_k_set(&a->word[LISTENER], (uint64_t)listener + 1);
	}
	test_k_wait(&a->word[LISTENER], 1);
	listener = (int)gnet_sys_load_acquire(&a->word[LISTENER]) - 1;
	for (;;) {
		__syncthreads();
		if (threadIdx.x == 0)
			ticket = atomicAdd(&a->dword[0], 1ull);
		__syncthreads();
		if (ticket >= a->n * CLIENTS)
			return 0;
		K_GET(r, fd, gaccept(a->net, listener, NULL, NULL));
		/* Every third connection is closed unread, which is a reset for its client. */
		if (ticket % 3) {
			do {
				n = grecv(a->net, fd, buf, a->room, 0);
				if (n > 0)
					n = gsend(a->net, fd, buf, (uint64_t)n, 0);
			} while (n > 0);
		}
		K_EQ(r, gclose(a->net, fd), 0);
		K_EQ(r, grecv(a->net, fd, buf, 1, 0), -EBADF);
	}
}

/* The socket of a client; there may be none for a moment, since closed ones may still be ending. */
GNET_DEV int connect_some(struct test_args *a, struct test_report *r, int *fd)
{
	do {
		*fd = test_k_connect(a->net, a->where);
		if (*fd == -EMFILE)
			test_k_sleep(1000);
	} while (*fd == -EMFILE);
	K_GET(r, *fd, *fd);
	return 0;
}

GNET_DEV int visit(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int fd, stale = 0;
	int64_t n;

	for (uint32_t i = 0; i < a->n; i++) {
		uint64_t size = i % 5 == 4 ? 700 : 20;

		K_CALL(connect_some(a, r, &fd));
		if (stale)
			K_EQ(r, gsend(a->net, stale, buf, 1, 0), -EBADF);
		test_k_pattern(buf, size, 0, i);
		n = gsend(a->net, fd, buf, size, 0);
		if (n == (int64_t)size && i % 4) {
			n = grecv(a->net, fd, buf, size, GNET_MSG_WAITALL);
			if (n == (int64_t)size)
				K_EQ(r, test_k_wrong(buf, size, 0, i), 0);
		}
		if (n < 0 && n != -ECONNRESET && n != -EPIPE)
			return test_k_bad(r, __LINE__, n, 0);
		K_EQ(r, gclose(a->net, fd), 0);
		stale = fd;
	}
	return 0;
}

GNET_DEV int churn(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	return blockIdx.x < SERVERS ? serve(a, r, buf) : visit(a, r, buf);
}

/* ---- more uses of a slot than there are generations ------------------------------------------- */

GNET_DEV int wrap(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int fd, last = 0;

	for (uint64_t i = 0; i < a->n; i++) {
		K_GET(r, fd, gsocket(a->net, GNET_AF_UNIX, GNET_SOCK_STREAM, 0));
		if (fd == last || fd == 0)
			return test_k_bad(r, __LINE__, fd, last);
		K_EQ(r, gclose(a->net, fd), 0);
		K_EQ(r, gclose(a->net, fd), -EBADF);
		last = fd;
	}
	return 0;
}

/* ---- one close of two ------------------------------------------------------------------------- */

/* Two blocks close each socket at the same time: one of them does it. */
GNET_DEV int close_both(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int fd = 0, rc;

	for (uint64_t i = 1; i <= a->n; i++) {
		if (blockIdx.x == 0) {
			K_GET(r, fd, gsocket(a->net, GNET_AF_INET, GNET_SOCK_STREAM, 0));
			test_k_set(&a->word[1], (uint64_t)fd);
			test_k_set(&a->word[0], i);
		} else {
			test_k_wait(&a->word[0], i);
			fd = (int)gnet_sys_load_acquire(&a->word[1]);
		}
		rc = gclose(a->net, fd);
		if (rc != 0 && rc != -EBADF)
			return test_k_bad(r, __LINE__, rc, 0);
		if (threadIdx.x == 0)
			gnet_dev_add((uint64_t *)&a->dword[0], rc == 0 ? 1 : 1000000);
		/* Both are through, and exactly one had success. */
		if (threadIdx.x == 0)
			while (gnet_dev_load_acquire((uint64_t *)&a->dword[0]) < i * 1000001)
				__nanosleep(1000);
		__syncthreads();
		K_EQ(r, gnet_dev_load_acquire((uint64_t *)&a->dword[0]), i * 1000001);
		/* All threads have seen it, before the other block goes on. */
		__syncthreads();
		if (threadIdx.x == 0)
			gnet_dev_add((uint64_t *)&a->dword[1], 1);
		if (threadIdx.x == 0)
			while (gnet_dev_load_acquire((uint64_t *)&a->dword[1]) < 2 * i)
				__nanosleep(1000);
		__syncthreads();
	}
	return 0;
}

/* ---- a listener with connections in it -------------------------------------------------------- */

/* Takes two of the host's connections and closes the listener while the others wait. */
GNET_DEV int leave_waiting(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int listener, fd;

	K_GET(r, listener, test_k_listen(a->net, a->want, a->where, 64));
	for (int i = 0; i < 2; i++) {
		K_GET(r, fd, gaccept(a->net, listener, NULL, NULL));
		K_EQ(r, gclose(a->net, fd), 0);
	}
	test_k_wait(&a->word[1], 1);
	K_EQ(r, gclose(a->net, listener), 0);
	return 0;
}

TEST_KERNEL(churn_kernel, churn)
TEST_KERNEL(wrap_kernel, wrap)
TEST_KERNEL(both_kernel, close_both)
TEST_KERNEL(waiting_kernel, leave_waiting)

static void nothing_left(gpunet_t *g, unsigned listeners)
{
	struct gpunet_stats s;

	memset(&s, 0, sizeof(s));
	s.size = sizeof(s);
	CHECK_EQ(gpunet_drain(g, 10000 * TEST_SLOW), 0);
	CHECK_EQ(gpunet_get_stats(g, &s), 0);
	CHECK_EQ(s.sockets, listeners);
	CHECK_EQ(s.slab_segments_used, 0);
}

static void run_churn(enum test_kind kind, unsigned threads)
{
	struct gpunet_options opt = GPUNET_OPTIONS_INIT;
	struct test_args a;
	gpunet_t *g;

	opt.max_sockets = 24;
	opt.proxy_threads = threads;
	opt.segment_bytes = 16 << 10;
	opt.slab_bytes = 128 << 10;
	g = test_open(&opt);
	CHECK_EQ(GPUNET_PREPARE(churn_kernel), 0);
	a = test_setup(g, kind, SERVERS + CLIENTS, 4096);
	a.n = test_rounds(400, 20000);
	TEST_LAUNCH(g, churn_kernel, a, SERVERS + CLIENTS, 32);
	test_sync(g, a.report, SERVERS + CLIENTS);
	nothing_left(g, 1);
	test_close(g);
	test_teardown(&a);
}

static void run_small(void)
{
	struct gpunet_options opt = GPUNET_OPTIONS_INIT;
	struct test_args a;
	gpunet_t *g;

	opt.max_sockets = 16;
	g = test_open(&opt);
	CHECK_EQ(GPUNET_PREPARE(wrap_kernel), 0);
	CHECK_EQ(GPUNET_PREPARE(both_kernel), 0);
	a = test_setup(g, TEST_TCP, 2, 4096);
	a.n = 34000; /* 16 slots of 2,047 generations are 32,752 descriptors */
	TEST_LAUNCH(g, wrap_kernel, a, 1, 1);
	test_sync(g, a.report, 1);
	a.n = test_rounds(500, 5000);
	TEST_LAUNCH(g, both_kernel, a, 2, 32);
	test_sync(g, a.report, 2);
	nothing_left(g, 0);
	test_close(g);
	test_teardown(&a);
}

static void run_waiting(enum test_kind kind)
{
	gpunet_t *g = test_open(NULL);
	struct test_args a;
	int fds[30];

	CHECK_EQ(GPUNET_PREPARE(waiting_kernel), 0);
	a = test_setup(g, kind, 1, 4096);
	TEST_LAUNCH(g, waiting_kernel, a, 1, 32);
	test_addr_wait(a.where, a.report);
	for (unsigned i = 0; i < 30; i++)
		fds[i] = test_connect(a.where);
	test_word_set(&a.word[1], 1);
	/* Each of them ends, by the stream's end or a reset. */
	for (unsigned i = 0; i < 30; i++) {
		char c;
		ssize_t n = test_read_some(fds[i], &c, 1);

		CHECK(n == 0 || n == -ECONNRESET);
		close(fds[i]);
	}
	test_sync(g, a.report, 1);
	nothing_left(g, 0);
	test_close(g);
	test_teardown(&a);
}

int main(void)
{
	test_begin(100);
	run_churn(TEST_TCP, 1);
	run_churn(TEST_UNIX, 1);
	run_churn(TEST_TCP, 4);
	run_churn(TEST_UNIX, 4);
	run_small();
	run_waiting(TEST_TCP);
	run_waiting(TEST_UNIX);
	return 0;
}
