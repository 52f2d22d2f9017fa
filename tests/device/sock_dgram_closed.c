/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A UNIX socket of datagrams is closed whose queue is full of its own, with more to send to itself: nobody reads them any more, so it does not stay for
 * the time that it would linger, and who sends to it then is told that nobody is there.
 */
#include "opt.h"

#define RING (16u << 10)
#define BYTES 6000u

GNET_DEV int bound(struct test_args *a, struct test_report *r, int *fd)
{
	K_GET(r, *fd, gsocket(a->net, GNET_AF_UNIX, GNET_SOCK_DGRAM, 0));
	K_EQ(r, gbind(a->net, *fd, &a->want->a, a->want->len), 0);
	return 0;
}

GNET_DEV int closed(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int fd, other, quiet = 0;
	int64_t n;

	K_CALL(bound(a, r, &fd));
	K_GET(r, other, gsocket(a->net, GNET_AF_UNIX, GNET_SOCK_DGRAM, 0));
	do {
		n = gsendto(a->net, fd, buf, BYTES, GNET_MSG_DONTWAIT, &a->want->a, a->want->len);
		K_EQ(r, n == BYTES || n == -EAGAIN, 1);
	} while (!test_k_full(n, &quiet));
	K_EQ(r, gclose(a->net, fd), 0);
	/* It may still be there for the first ones. */
	K_EQ(r, opt_limit_ms(a->net, other, GNET_SO_RCVTIMEO, 100), 0);
	for (int i = 0; i < 100; i++) {
		n = gsendto(a->net, other, buf, 10, GNET_MSG_DONTWAIT, &a->want->a, a->want->len);
		K_EQ(r, n == 10 || n == -EAGAIN, 1);
		n = grecv(a->net, other, buf, 10, 0);
		if (n != -ETIMEDOUT)
			break;
	}
	K_EQ(r, n, -ECONNREFUSED);
	K_EQ(r, gclose(a->net, other), 0);
	return 0;
}

TEST_KERNEL(closed_kernel, closed)

int main(void)
{
	struct gpunet_options opt = GPUNET_OPTIONS_INIT;
	struct test_args a;
	gpunet_t *g;

	test_begin(60);
	opt.segment_bytes = RING;
	opt.linger_ms = 600000;
	g = test_open(&opt);
	CHECK_EQ(GPUNET_PREPARE(closed_kernel), 0);
	a = test_setup(g, TEST_UNIX, 1, BYTES);
	TEST_LAUNCH(g, closed_kernel, a, 1, 32);
	test_sync(g, a.report, 1);
	test_close(g);
	test_teardown(&a);
	return 0;
}
