/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One block is its own peer: it connects to its own listener, accepts, and moves bytes both ways
 * without help.
 */
#include "test.h"

GNET_DEV int pair(struct test_args *a, struct test_report *r, int listener, int *client,
		  int *server)
{
	K_GET(r, *client, test_k_connect(a->net, a->where));
	K_GET(r, *server, gaccept(a->net, listener, NULL, NULL));
	return 0;
}

/* A megabyte through one block: sends what fits, receives what came. */
GNET_DEV int pump(struct test_args *a, struct test_report *r, int from, int to, uint8_t *buf,
		  uint64_t total)
{
	uint64_t sent = 0, got = 0, piece = a->room / 2;
	int64_t n;

	while (got < total) {
		uint64_t k = total - sent < piece ? total - sent : piece;

		test_k_pattern(buf, k, sent, 3);
		n = k ? gsend(a->net, from, buf, k, GNET_MSG_DONTWAIT) : 0;
		if (n < 0 && n != -EAGAIN)
			return test_k_bad(r, __LINE__, n, 0);
		sent += n > 0 ? (uint64_t)n : 0;
		n = grecv(a->net, to, buf + piece, piece, GNET_MSG_DONTWAIT);
		if (n == -EAGAIN)
			continue;
		if (n <= 0)
			return test_k_bad(r, __LINE__, n, (int64_t)piece);
		K_EQ(r, test_k_wrong(buf + piece, (uint64_t)n, got, 3), 0);
		got += (uint64_t)n;
	}
	K_EQ(r, sent, total);
	return 0;
}

GNET_DEV int talk(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int listener, client, server;

	K_GET(r, listener, test_k_listen(a->net, a->want, a->where, 8));
	for (uint64_t i = 0; i < a->n; i++) {
		K_CALL(pair(a, r, listener, &client, &server));
		K_CALL(test_k_send_all(r, a->net, client, buf, a->room, 100 + i, 1));
		K_CALL(test_k_recv_all(r, a->net, server, buf, a->room, 100 + i, 0, 1));
		K_CALL(test_k_send_all(r, a->net, server, buf, a->room, 3000, 2));
		K_EQ(r, gclose(a->net, server), 0);
		K_CALL(test_k_recv_all(r, a->net, client, buf, a->room, 3000, 0, 2));
		K_EQ(r, grecv(a->net, client, buf, 1, 0), 0);
		K_EQ(r, gclose(a->net, client), 0);
	}
	K_CALL(pair(a, r, listener, &client, &server));
	K_CALL(pump(a, r, client, server, buf, 1 << 20));
	K_CALL(pump(a, r, server, client, buf, 1 << 20));
	K_EQ(r, gclose(a->net, client), 0);
	K_EQ(r, gclose(a->net, server), 0);
	K_EQ(r, gclose(a->net, listener), 0);
	return 0;
}

/*
 * The second warp talks with itself while the first is in the block's next call already: what the block has taken of the queue must not
 * hold up the warp, for whom the call waits.
 */
GNET_DEV int aside(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int listener, fd[4];

	K_GET(r, listener, test_k_listen(a->net, a->want, a->where, 8));
	K_CALL(pair(a, r, listener, &fd[0], &fd[1]));
	K_CALL(pair(a, r, listener, &fd[2], &fd[3]));
	for (uint64_t i = 0; i < a->n; i++) {
		if (threadIdx.x >= 32) {
			int64_t n = gsend_warp(a->net, fd[2], buf + 64, 1, 0);

			if (n == 1)
				n = grecv_warp(a->net, fd[3], buf + 128, 1, 0);
			if (threadIdx.x == 32)
				buf[256] = n == 1;
		}
		K_EQ(r, gsend(a->net, fd[0], buf, 1, 0), 1);
		K_EQ(r, buf[256], 1);
		K_EQ(r, grecv(a->net, fd[1], buf + 192, 1, 0), 1);
	}
	K_EQ(r, gclose(a->net, listener), 0);
	for (int i = 0; i < 4; i++)
		K_EQ(r, gclose(a->net, fd[i]), 0);
	return 0;
}

TEST_KERNEL(self_kernel, talk)
TEST_KERNEL(aside_kernel, aside)

static void run(gpunet_t *g, enum test_kind kind)
{
	struct test_args a = test_setup(g, kind, 1, 128 << 10);

	a.n = test_rounds(100, 2000);
	TEST_LAUNCH(g, self_kernel, a, 1, 64);
	test_sync(g, a.report, 1);
	test_teardown(&a);
	a = test_setup(g, kind, 1, 128 << 10);
	a.n = 20;
	TEST_LAUNCH(g, aside_kernel, a, 1, 64);
	test_sync(g, a.report, 1);
	test_teardown(&a);
}

int main(void)
{
	gpunet_t *g;

	test_begin(60);
	g = test_open(NULL);
	CHECK_EQ(GPUNET_PREPARE(self_kernel), 0);
	CHECK_EQ(GPUNET_PREPARE(aside_kernel), 0);
	run(g, TEST_TCP);
	run(g, TEST_UNIX);
	test_close(g);
	return 0;
}
