/* SPDX-License-Identifier: BSD-3-Clause */
/* 50 listeners in one kernel, 100 host clients on them, then the same ports again at once. */
#include "test.h"

#define PORTS 50

enum { ROUND };

GNET_DEV int serve_once(struct test_args *a, struct test_report *r, uint8_t *buf, int again)
{
	int *listener = (int *)buf, fd;

	for (int i = 0; i < PORTS; i++) {
		if (again && threadIdx.x == 0)
			a->want->a.in.sin_port = a->where[i].a.in.sin_port;
		__syncthreads();
		K_GET(r, fd, test_k_listen(a->net, a->want, &a->where[i], 4));
		if (threadIdx.x == 0)
			listener[i] = fd;
		__syncthreads();
	}
	test_k_set(&a->word[ROUND], (uint64_t)again + 1);
	for (int i = 0; i < 2 * PORTS; i++) {
		K_GET(r, fd, gaccept(a->net, listener[i % PORTS], NULL, NULL));
		K_EQ(r, grecv(a->net, fd, buf + 1024, 1, 0), 1);
		K_EQ(r, gsend(a->net, fd, buf + 1024, 1, 0), 1);
		/* The kernel closes first, so TIME_WAIT is on its side. */
		K_EQ(r, gclose(a->net, fd), 0);
	}
	for (int i = 0; i < PORTS; i++)
		K_EQ(r, gclose(a->net, listener[i]), 0);
	return 0;
}

GNET_DEV int ports(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	for (int again = 0; again < 3; again++)
		K_CALL(serve_once(a, r, buf, again));
	return 0;
}

TEST_KERNEL(ports_kernel, ports)

int main(void)
{
	struct test_addr *addresses;
	struct test_args a;
	int fds[2 * PORTS];
	gpunet_t *g;

	test_begin(60);
	g = test_open(NULL);
	CHECK_EQ(GPUNET_PREPARE(ports_kernel), 0);
	a = test_setup(g, TEST_TCP, 1, 4096);
	addresses = (struct test_addr *)test_shared(PORTS * sizeof(*addresses));
	a.where = addresses;
	TEST_LAUNCH(g, ports_kernel, a, 1, 32);
	for (uint64_t round = 1; round <= 3; round++) {
		test_word_wait(&a.word[ROUND], round, a.report);
		for (int i = 0; i < 2 * PORTS; i++)
			fds[i] = test_connect(&addresses[i % PORTS]);
		for (int i = 2 * PORTS - 1; i >= 0; i--) {
			uint8_t c = (uint8_t)i;

			test_write(fds[i], &c, 1);
		}
		for (int i = 0; i < 2 * PORTS; i++) {
			uint8_t c;

			test_read(fds[i], &c, 1);
			CHECK_EQ(c, (uint8_t)i);
			test_read_end(fds[i]);
			close(fds[i]);
		}
	}
	test_sync(g, a.report, 1);
	test_teardown(&a);
	test_shared_free(addresses);
	test_close(g);
	return 0;
}
