/* SPDX-License-Identifier: BSD-3-Clause */
/* The sockets that one block makes are spread evenly over the proxy's threads. */
#include "test.h"

#define THREADS 4
#define EACH 16

GNET_DEV int spread(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	uint32_t *of = (uint32_t *)(void *)buf;
	int *fds = (int *)(void *)(buf + 64), fd;

	if (test_k_tid() == 0)
		for (int i = 0; i < THREADS; i++)
			of[i] = 0;
	for (int i = 0; i < THREADS * EACH; i++) {
		K_GET(r, fd, gsocket(a->net, GNET_AF_INET, GNET_SOCK_STREAM, 0));
		if (test_k_tid() == 0) {
			fds[i] = fd;
			of[GNET_FD_SLOT(fd) % a->net->n_queues]++;
		}
	}
	__syncthreads();
	K_EQ(r, a->net->n_queues, THREADS);
	for (int i = 0; i < THREADS; i++)
		K_EQ(r, of[i], EACH);
	for (int i = 0; i < THREADS * EACH; i++)
		K_EQ(r, gclose(a->net, fds[i]), 0);
	return 0;
}

TEST_KERNEL(spread_kernel, spread)

int main(void)
{
	struct gpunet_options opt = GPUNET_OPTIONS_INIT;
	struct test_args a;
	gpunet_t *g;

	test_begin(60);
	opt.proxy_threads = THREADS;
	g = test_open(&opt);
	CHECK_EQ(GPUNET_PREPARE(spread_kernel), 0);
	a = test_setup(g, TEST_TCP, 1, 1024);
	TEST_LAUNCH(g, spread_kernel, a, 1, 32);
	test_sync(g, a.report, 1);
	test_close(g);
	test_teardown(&a);
	return 0;
}
