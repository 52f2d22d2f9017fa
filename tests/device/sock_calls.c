/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What takes long holds no call (option `calls`): with more blocks in gconnect to somebody who does not answer, or in a gclose that
 * lingers, than there are calls, the others go on. Then those waits end as they should.
 */
#include "opt.h"

#define CALLS 64
#define WAITING (CALLS + 16)

enum { CHURNED };

/* Device memory: blocks that are about to wait. */
enum { ARRIVED };

GNET_DEV void arrived(struct test_args *a)
{
	__syncthreads();
	if (test_k_tid() == 0)
		gnet_dev_add((uint64_t *)&a->dword[ARRIVED], 1);
}

/* Block 0: opens and closes sockets while all the others wait. */
GNET_DEV int churn(struct test_args *a, struct test_report *r)
{
	int fd;

	if (test_k_tid() == 0)
		while (gnet_dev_load((uint64_t *)&a->dword[ARRIVED]) < WAITING)
			__nanosleep(20000);
	test_k_sleep(100000); /* by then all of them wait; if not, the test shows less */
	for (int i = 0; i < 100; i++) {
		K_GET(r, fd,
		      gsocket(a->net, a->where->a.sa.sa_family, GNET_SOCK_STREAM,
			      a->where->protocol));
		K_EQ(r, opt_set(a->net, fd, GNET_SOL_SOCKET, GNET_SO_KEEPALIVE, 1), 0);
		K_EQ(r, gclose(a->net, fd), 0);
	}
	test_k_set(&a->word[CHURNED], 1);
	return 0;
}

/* ---- gconnect ---------------------------------------------------------------------------------------------------------- */

GNET_DEV int connect_in_vain(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int fd;

	if (blockIdx.x == 0)
		return churn(a, r);
	K_GET(r, fd,
	      gsocket(a->net, a->where->a.sa.sa_family, GNET_SOCK_STREAM, a->where->protocol));
	arrived(a);
	K_EQ(r, gconnect(a->net, fd, &a->where->a, a->where->len), -ECANCELED);
	return 0;
}

TEST_KERNEL(connect_kernel, connect_in_vain)

/* A listener whose backlog is full: it answers nobody any more. */
static int full_listener(struct test_addr *at, int *fds, int n)
{
	int listener = test_listen(at, 0);

	for (int i = 0; i < n; i++) {
		fds[i] = socket(at->a.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		CHECK(fds[i] >= 0);
		if (connect(fds[i], &at->a.sa, at->len) != 0)
			CHECK(errno == EINPROGRESS || errno == EAGAIN);
	}
	return listener;
}

static struct gpunet_options few_calls(void)
{
	struct gpunet_options opt = GPUNET_OPTIONS_INIT;

	opt.calls = CALLS;
	opt.cpu_blocks = WAITING + 1;
	opt.segment_bytes = 16 << 10;
	opt.slab_bytes = 2 * WAITING * (16 << 10);
	return opt;
}

static void run_connect(enum test_kind kind, unsigned threads)
{
	struct gpunet_options opt = few_calls();
	gpunet_t *g = test_open(&opt);
	struct test_args a = test_setup(g, kind, WAITING + 1, 64);
	int fds[8], listener;

	*a.where = *a.want;
	listener = full_listener(a.where, fds, 8);
	test_sleep_ms(20);
	TEST_LAUNCH(g, connect_kernel, a, WAITING + 1, threads);
	test_word_wait(&a.word[CHURNED], 1, a.report);
	gpunet_abort(g);
	test_sync(g, a.report, WAITING + 1);
	for (int i = 0; i < 8; i++)
		close(fds[i]);
	close(listener);
	test_close(g);
	test_teardown(&a);
}

/* ---- gclose ------------------------------------------------------------------------------------------------------------ */

GNET_DEV int close_slowly(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	uint64_t pos = 0;
	int64_t n;
	int fd, quiet = 0;

	if (blockIdx.x == 0)
		return churn(a, r);
	K_GET(r, fd, test_k_connect(a->net, a->where));
	K_EQ(r, opt_set(a->net, fd, GNET_SOL_SOCKET, GNET_SO_SNDBUF, 4096), 0);
	do {
		test_k_pattern(buf, a->room, pos, 3);
		n = gsend(a->net, fd, buf, a->room, GNET_MSG_DONTWAIT);
		K_EQ(r, n > 0 || n == -EAGAIN, 1);
		pos += n > 0 ? (uint64_t)n : 0;
	} while (!test_k_full(n, &quiet));
	K_EQ(r, opt_linger(a->net, fd, 1, 60), 0);
	arrived(a);
	K_EQ(r, gclose(a->net, fd), 0);
	K_EQ(r, gnet_sys_load_acquire(&a->word[CHURNED]), 1);
	return 0;
}

TEST_KERNEL(close_kernel, close_slowly)

static void run_close(enum test_kind kind, unsigned threads)
{
	struct gpunet_options opt = few_calls();
	gpunet_t *g = test_open(&opt);
	struct test_args a = test_setup(g, kind, WAITING + 1, 8 << 10);
	int fd[WAITING], listener, small = 4096;
	static uint8_t data[64 << 10];

	*a.where = *a.want;
	listener = test_listen(a.where, WAITING);
	CHECK_EQ(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
	test_word_set(&a.where->ready, 1);
	TEST_LAUNCH(g, close_kernel, a, WAITING + 1, threads);
	for (int i = 0; i < WAITING; i++)
		fd[i] = test_accept(listener);
	test_word_wait(&a.word[CHURNED], 1, a.report);
	for (int i = 0; i < WAITING; i++) {
		uint64_t pos = 0;
		ssize_t n;

		while ((n = test_read_some(fd[i], data, sizeof(data))) > 0) {
			test_pattern_check(data, (size_t)n, pos, 3);
			pos += (uint64_t)n;
		}
		CHECK_EQ(n, 0);
		CHECK(pos >= 16 << 10);
		close(fd[i]);
	}
	test_sync(g, a.report, WAITING + 1);
	close(listener);
	test_close(g);
	test_teardown(&a);
}

int main(void)
{
	test_begin(60);
	test_need_device();
	CHECK_EQ(GPUNET_PREPARE(connect_kernel), 0);
	CHECK_EQ(GPUNET_PREPARE(close_kernel), 0);
	run_connect(TEST_TCP, 32);
	run_connect(TEST_UNIX, 2);
	run_close(TEST_TCP, 32);
	run_close(TEST_UNIX, 2);
	return 0;
}
