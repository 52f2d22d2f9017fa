/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Single calls of 2^31 + 5 bytes, three on one connection, so that its counters pass 2^32, too. On a GPU always; on the CPU
 * device, where it takes minutes and 4 GiB, only with GPUNET_TEST_LONG=1.
 */
#include "test.h"

#define HUGE_CALL (((uint64_t)1 << 31) + 5)
#define CALLS 3

GNET_DEV int huge(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int listener = -1, fd;

	if (blockIdx.x == 0) {
		K_GET(r, listener, test_k_listen(a->net, a->want, a->where, 1));
		K_GET(r, fd, gaccept(a->net, listener, NULL, NULL));
	} else {
		K_GET(r, fd, test_k_connect(a->net, a->where));
	}
	for (uint32_t i = 0; i < CALLS; i++) {
		if (blockIdx.x == 1) {
			test_k_pattern(buf, HUGE_CALL, 0, i);
			K_EQ(r, gsend(a->net, fd, buf, HUGE_CALL, 0), HUGE_CALL);
		} else {
			K_EQ(r, grecv(a->net, fd, buf, HUGE_CALL, GNET_MSG_WAITALL), HUGE_CALL);
			K_EQ(r, test_k_wrong(buf, HUGE_CALL, 0, i), 0);
		}
	}
	K_EQ(r, gclose(a->net, fd), 0);
	if (blockIdx.x == 0)
		K_EQ(r, gclose(a->net, listener), 0);
	return 0;
}

TEST_KERNEL(huge_kernel, huge)

int main(void)
{
	struct test_args a;
	gpunet_t *g;

	if (!TEST_ON_GPU && test_rounds(TEST_SLOW, 0))
		test_skip("on the CPU device only with GPUNET_TEST_LONG=1");
	test_begin(1500);
	g = test_open(NULL);
	CHECK_EQ(GPUNET_PREPARE(huge_kernel), 0);
	a = test_setup(g, TEST_UNIX, 2, HUGE_CALL + 123);
	TEST_LAUNCH(g, huge_kernel, a, 2, TEST_ON_GPU ? 1024 : 32);
	for (int i = 0; i < 20 && gpunet_sync(g, 60000) == -ETIMEDOUT; i++)
		fprintf(stderr, "%d minutes\n", i + 1);
	test_sync(g, a.report, 2);
	test_close(g);
	test_teardown(&a);
	return 0;
}
