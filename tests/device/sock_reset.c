/* SPDX-License-Identifier: BSD-3-Clause */
/* A peer's reset: -ECONNRESET once, then the end of the stream, and -EPIPE for who sends. */
#include "test.h"

enum { AT };

GNET_DEV int after_reset(struct test_args *a, struct test_report *r, int fd, uint8_t *buf)
{
	K_EQ(r, grecv(a->net, fd, buf, 10, 0), 0);
	K_EQ(r, gsend(a->net, fd, buf, 10, 0), -EPIPE);
	K_EQ(r, grecv(a->net, fd, buf, 10, GNET_MSG_DONTWAIT), 0);
	return 0;
}

/* While the kernel waits for bytes. */
GNET_DEV int receiving(struct test_args *a, struct test_report *r, int fd, uint8_t *buf, uint64_t i)
{
	int64_t n;

	K_EQ(r, gsend(a->net, fd, buf, 1, 0), 1);
	test_k_set(&a->word[AT], i + 1);
	do
		n = grecv(a->net, fd, buf, a->room, 0);
	while (n > 0);
	K_EQ(r, n, -ECONNRESET);
	return after_reset(a, r, fd, buf);
}

/* While the kernel waits for room: the error is reported once, by whichever call is first. */
GNET_DEV int sending(struct test_args *a, struct test_report *r, int fd, uint8_t *buf, uint64_t i)
{
	int64_t n;

	test_k_set(&a->word[AT], i + 1);
	do
		n = gsend(a->net, fd, buf, a->room, 0);
	while (n > 0);
	if (n != -ECONNRESET && n != -EPIPE)
		return test_k_bad(r, __LINE__, n, -ECONNRESET);
	K_EQ(r, gsend(a->net, fd, buf, 10, 0), -EPIPE);
	n = grecv(a->net, fd, buf, 10, 0);
	if (n != 0 && n != -ECONNRESET)
		return test_k_bad(r, __LINE__, n, 0);
	K_EQ(r, grecv(a->net, fd, buf, 10, 0), 0);
	return 0;
}

GNET_DEV int scenes(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int listener, fd;

	K_GET(r, listener, test_k_listen(a->net, a->want, a->where, 5));
	for (uint64_t i = 0; i < a->n; i++) {
		K_GET(r, fd, gaccept(a->net, listener, NULL, NULL));
		if (i % 2)
			K_CALL(sending(a, r, fd, buf, i));
		else
			K_CALL(receiving(a, r, fd, buf, i));
		K_EQ(r, gclose(a->net, fd), 0);
	}
	K_EQ(r, gclose(a->net, listener), 0);
	return 0;
}

TEST_KERNEL(reset_kernel, scenes)

/*
 * TCP: by SO_LINGER 0. UNIX: by a close with bytes unread. Both with bytes on the way and
 * without.
 */
static void reset(struct test_args *a, uint64_t i)
{
	struct linger hard = { 1, 0 };
	uint8_t data[300];
	int fd = test_connect(a->where);
	struct pollfd p = { fd, POLLIN, 0 };

	memset(data, 0, sizeof(data));
	test_word_wait(&a->word[AT], i + 1, a->report);
	test_sleep_ms((unsigned)(i % 4 * 10));
	/* The kernel's bytes are here: without some a close over UNIX would be an orderly end. */
	CHECK_EQ(poll(&p, 1, 10000), 1);
	if (i % 2 == 0 && i % 3)
		test_write(fd, data, sizeof(data));
	CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard)), 0);
	close(fd);
}

static void run(gpunet_t *g, enum test_kind kind, unsigned threads)
{
	struct test_args a = test_setup(g, kind, 1, 32 << 10);

	a.n = 24;
	TEST_LAUNCH(g, reset_kernel, a, 1, threads);
	test_addr_wait(a.where, a.report);
	for (uint64_t i = 0; i < a.n; i++)
		reset(&a, i);
	test_sync(g, a.report, 1);
	test_teardown(&a);
}

int main(void)
{
	gpunet_t *g;

	test_begin(60);
	g = test_open(NULL);
	CHECK_EQ(GPUNET_PREPARE(reset_kernel), 0);
	run(g, TEST_TCP, 64);
	run(g, TEST_UNIX, 32);
	test_close(g);
	return 0;
}
