/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Many blocks that have waited long, in grecv and in gpoll, each on a socket of its own: a byte wakes the one that it is for, in whatever
 * order they come, and on a GPU mostly by a hint (docs/bus.md, rules H), not because a wait looks for itself now and then. A gpoll that
 * naps sees a gclose of another block, and a time limit ends it.
 */
#include "test.h"

#define CROWD (TEST_ON_GPU ? 96 : 24)
#define ROUNDS 8

GNET_DEV int polls(struct test_args *a, struct test_report *r, int fd)
{
	__shared__ struct gnet_pollfd p[2];

	if (test_k_tid() == 0) {
		p[0].fd = -1;
		p[1].fd = fd;
		p[0].events = p[1].events = GNET_POLLIN;
	}
	__syncthreads();
	K_EQ(r, gpoll(a->net, p, 2, -1), 1);
	K_EQ(r, p[1].revents, GNET_POLLIN);
	__syncthreads();
	return 0;
}

GNET_DEV int waits(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	uint64_t before;
	int fd, i;

	K_GET(r, fd, test_k_connect(a->net, a->where));
	if (test_k_tid() == 0)
		buf[0] = (uint8_t)blockIdx.x;
	__syncthreads();
	K_EQ(r, gsend(a->net, fd, buf, 1, 0), 1); /* who I am */
	before = gnet__hints(a->net, fd);
	for (i = 0; i < ROUNDS; i++) {
		if (blockIdx.x % 2)
			K_CALL(polls(a, r, fd));
		K_EQ(r, grecv(a->net, fd, buf, 1, 0), 1);
		K_EQ(r, gsend(a->net, fd, buf, 1, 0), 1);
	}
	/* One may get lost now and then: the wait looks a millisecond later. */
	if (TEST_ON_GPU)
		K_EQ(r, gnet__hints(a->net, fd) - before >= ROUNDS / 2, 1);
	K_EQ(r, gclose(a->net, fd), 0);
	return 0;
}

TEST_KERNEL(waits_kernel, waits)

/* Two blocks: one polls a listener that the other one closes; before that its time limit ends a gpoll. */
GNET_DEV int closes(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	__shared__ struct gnet_pollfd p;
	int fd;

	(void)buf;
	if (blockIdx.x == 1) {
		test_k_wait(&a->word[0], 1);
		K_EQ(r, gclose(a->net, (int)gnet_sys_load(&a->word[1])), 0);
		return 0;
	}
	K_GET(r, fd, gsocket(a->net, GNET_AF_UNIX, GNET_SOCK_STREAM, 0));
	K_EQ(r, gbind(a->net, fd, a->want->a.bytes, a->want->len), 0);
	K_EQ(r, glisten(a->net, fd, 1), 0);
	if (test_k_tid() == 0) {
		p.fd = fd;
		p.events = GNET_POLLIN;
		gnet_sys_store(&a->word[1], (uint64_t)fd);
	}
	__syncthreads();
	K_EQ(r, gpoll(a->net, &p, 1, 30000000), 0);
	if (test_k_tid() == 0)
		gnet_sys_store_release(&a->word[2], 1);
	K_EQ(r, gpoll(a->net, &p, 1, -1), 1);
	K_EQ(r, p.revents, GNET_POLLNVAL);
	return 0;
}

TEST_KERNEL(closes_kernel, closes)

static void wake_each(const int *fd, unsigned round)
{
	for (unsigned k = 0; k < CROWD; k++) {
		uint8_t who = (uint8_t)((k * 7 + round * 5) % CROWD),
			answer = 0; /* 7: no divisor */

		test_write(fd[who], &who, 1);
		test_read(fd[who], &answer, 1);
		CHECK_EQ(answer, who);
	}
}

static void a_crowd_is_woken(gpunet_t *g)
{
	struct test_args a = test_setup(g, TEST_UNIX, CROWD, 16);
	int listener, fd[CROWD], c;

	test_addr_make(a.where, TEST_UNIX);
	listener = test_listen(a.where, CROWD);
	a.where->ready = 1;
	TEST_LAUNCH(g, waits_kernel, a, CROWD, 64);
	for (int i = 0; i < CROWD; i++) {
		uint8_t who;

		c = test_accept(listener);
		test_read(c, &who, 1);
		CHECK(who < CROWD);
		fd[who] = c;
	}
	for (unsigned round = 0; round < ROUNDS; round++) {
		test_sleep_ms(20);
		wake_each(fd, round);
	}
	for (int i = 0; i < CROWD; i++) {
		test_read_end(fd[i]);
		close(fd[i]);
	}
	test_sync(g, a.report, CROWD);
	close(listener);
	test_addr_remove(a.where);
	test_teardown(&a);
}

static void a_poll_sees_a_close(gpunet_t *g)
{
	struct test_args a = test_setup(g, TEST_ABSTRACT, 2, 16);

	TEST_LAUNCH(g, closes_kernel, a, 2, 32);
	test_word_wait(&a.word[2], 1, a.report);
	test_sleep_ms(20);
	test_word_set(&a.word[0], 1);
	test_sync(g, a.report, 2);
	test_teardown(&a);
}

int main(void)
{
	struct gpunet_options o = GPUNET_OPTIONS_INIT;
	gpunet_t *g;

	test_begin(60);
	o.cpu_blocks = CROWD;
	g = test_open(&o);
	CHECK_EQ(GPUNET_PREPARE(waits_kernel), 0);
	CHECK_EQ(GPUNET_PREPARE(closes_kernel), 0);
	a_crowd_is_woken(g);
	a_poll_sees_a_close(g);
	test_close(g);
	return 0;
}
