/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Many small messages with numbers in them, from kernel to kernel: none is lost, doubled or out
 * of order. First as fast as one block can send them, then one at a time there and back.
 * GPUNET_TEST_LONG=1: a million.
 */
#include "test.h"

#define SIZE(i) (8 + (i) % 98)

GNET_DEV int send_number(struct test_args *a, struct test_report *r, int fd, uint8_t *buf,
			 uint64_t i)
{
	test_k_pattern(buf + 8, SIZE(i) - 8, i, 5);
	if (threadIdx.x == 0)
		memcpy(buf, &i, 8);
	__syncthreads();
	K_EQ(r, gsend(a->net, fd, buf, SIZE(i), 0), SIZE(i));
	return 0;
}

GNET_DEV int recv_number(struct test_args *a, struct test_report *r, int fd, uint8_t *buf,
			 uint64_t i)
{
	uint64_t number;

	K_EQ(r, grecv(a->net, fd, buf, SIZE(i), GNET_MSG_WAITALL), SIZE(i));
	memcpy(&number, buf, 8);
	K_EQ(r, number, i);
	K_EQ(r, test_k_wrong(buf + 8, SIZE(i) - 8, i, 5), 0);
	return 0;
}

GNET_DEV int serve(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int listener, fd;
	uint64_t i;

	K_GET(r, listener, test_k_listen(a->net, a->want, a->where, 5));
	K_GET(r, fd, gaccept(a->net, listener, NULL, NULL));
	for (i = 0; i < a->n; i++)
		K_CALL(recv_number(a, r, fd, buf, i));
	for (i = 0; i < a->n / 8; i++) {
		K_CALL(recv_number(a, r, fd, buf, i));
		K_CALL(send_number(a, r, fd, buf, i));
	}
	K_EQ(r, gclose(a->net, fd), 0);
	K_EQ(r, gclose(a->net, listener), 0);
	return 0;
}

GNET_DEV int ask(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	uint64_t i;
	int fd;

	K_GET(r, fd, test_k_connect(a->net, a->where));
	for (i = 0; i < a->n; i++)
		K_CALL(send_number(a, r, fd, buf, i));
	for (i = 0; i < a->n / 8; i++) {
		K_CALL(send_number(a, r, fd, buf, i));
		K_CALL(recv_number(a, r, fd, buf, i));
	}
	K_EQ(r, grecv(a->net, fd, buf, 1, 0), 0);
	K_EQ(r, gclose(a->net, fd), 0);
	return 0;
}

GNET_DEV int both(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	return blockIdx.x == 0 ? serve(a, r, buf) : ask(a, r, buf);
}

TEST_KERNEL(messages_kernel, both)

static void run(gpunet_t *g, enum test_kind kind, unsigned n)
{
	struct test_args a = test_setup(g, kind, 2, 4096);

	a.n = n;
	TEST_LAUNCH(g, messages_kernel, a, 2, 32);
	test_sync(g, a.report, 2);
	test_teardown(&a);
}

int main(void)
{
	struct gpunet_options opt = GPUNET_OPTIONS_INIT;
	gpunet_t *g;

	test_begin(100);
	/* A small queue laps often. */
	opt.queue_entries = 64;
	g = test_open(&opt);
	CHECK_EQ(GPUNET_PREPARE(messages_kernel), 0);
	run(g, TEST_TCP, test_rounds(20000, 1000000));
	run(g, TEST_UNIX, test_rounds(20000, 1000000));
	test_close(g);
	return 0;
}
