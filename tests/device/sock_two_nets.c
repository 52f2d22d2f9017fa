/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two networks of different sizes in one process: kernels of one talk to kernels of the other;
 * each has its own limits; aborting and closing one leaves the other at work.
 */
#include "test.h"

/*
 * Counts how many sockets there can be: the option's number, then -EMFILE, also after some are
 * closed.
 */
GNET_DEV int count(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int *fds = (int *)buf, fd;

	for (int round = 0; round < 2; round++) {
		for (uint64_t i = 0; i < a->n; i++) {
			K_GET(r, fd, gsocket(a->net, GNET_AF_UNIX, GNET_SOCK_STREAM, 0));
			if (threadIdx.x == 0)
				fds[i] = fd;
		}
		__syncthreads();
		K_EQ(r, gsocket(a->net, GNET_AF_UNIX, GNET_SOCK_STREAM, 0), -EMFILE);
		for (uint64_t i = 0; i < a->n; i++)
			K_EQ(r, gclose(a->net, fds[i]), 0);
	}
	return 0;
}

GNET_DEV int echo(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int listener, fd;
	int64_t n;

	K_GET(r, listener, test_k_listen(a->net, a->want, a->where, 5));
	for (;;) {
		fd = gaccept(a->net, listener, NULL, NULL);
		if (fd == -ECANCELED)
			return 0;
		K_GET(r, fd, fd);
		do {
			n = grecv(a->net, fd, buf, a->room, 0);
			if (n > 0)
				n = gsend(a->net, fd, buf, (uint64_t)n, 0);
		} while (n > 0);
		if (n != 0 && n != -ECANCELED)
			return test_k_bad(r, __LINE__, n, 0);
		gclose(a->net, fd);
	}
}

GNET_DEV int ask(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int fd;

	K_GET(r, fd, test_k_connect(a->net, a->where));
	for (uint32_t i = 0; i < 50; i++) {
		K_CALL(test_k_send_all(r, a->net, fd, buf, a->room, 400 * i, i));
		K_CALL(test_k_recv_all(r, a->net, fd, buf, a->room, 400 * i, 0, i));
	}
	K_EQ(r, gclose(a->net, fd), 0);
	return 0;
}

TEST_KERNEL(count_kernel, count)
TEST_KERNEL(echo_kernel, echo)
TEST_KERNEL(ask_kernel, ask)

/* A host client of the echo kernel at `where`. */
static void serves(const struct test_addr *where)
{
	char c = 'x';
	int fd = test_connect(where);

	test_write(fd, &c, 1);
	test_read(fd, &c, 1);
	close(fd);
}

static void counts(gpunet_t *g, unsigned n)
{
	struct test_args a = test_setup(g, TEST_TCP, 1, 4096);

	a.n = n;
	TEST_LAUNCH(g, count_kernel, a, 1, 32);
	test_sync(g, a.report, 1);
	test_teardown(&a);
}

int main(void)
{
	struct gpunet_options small = GPUNET_OPTIONS_INIT, large = GPUNET_OPTIONS_INIT;
	struct test_args first, second, asks;
	gpunet_t *one, *two;

	test_begin(60);
	small.max_sockets = 16;
	small.segment_bytes = 16 << 10;
	small.slab_bytes = 128 << 10;
	large.max_sockets = 200;
	large.proxy_threads = 2;
	one = test_open(&small);
	two = test_open(&large);
	CHECK_EQ(GPUNET_PREPARE(count_kernel), 0);
	CHECK_EQ(GPUNET_PREPARE(echo_kernel), 0);
	CHECK_EQ(GPUNET_PREPARE(ask_kernel), 0);
	counts(one, 16);
	counts(two, 200);
	first = test_setup(one, TEST_TCP, 1, 4096);
	second = test_setup(two, TEST_UNIX, 1, 4096);
	asks = test_setup(two, TEST_TCP, 1, 4096);
	TEST_LAUNCH(one, echo_kernel, first, 1, 32);
	test_addr_wait(first.where, first.report);
	*asks.where = *first.where;
	TEST_LAUNCH(two, ask_kernel, asks, 1, 64);
	test_sync(two, asks.report, 1);
	TEST_LAUNCH(two, echo_kernel, second, 1, 32);
	test_addr_wait(second.where, second.report);
	serves(first.where);
	serves(second.where);
	gpunet_abort(one);
	test_sync(one, first.report, 1);
	serves(second.where);
	/* Freeing memory waits for all kernels of a GPU, the other network's too. */
	if (!TEST_ON_GPU) {
		test_close(one);
		serves(second.where);
	}
	gpunet_abort(two);
	test_sync(two, second.report, 1);
	if (TEST_ON_GPU)
		test_close(one);
	test_close(two);
	test_teardown(&first);
	test_teardown(&second);
	test_teardown(&asks);
	return 0;
}
