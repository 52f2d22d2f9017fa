/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MSG_DONTWAIT, MSG_PEEK and MSG_WAITALL, partial counts and lengths of 0, against a host client.
 */
#include "test.h"

#define OOB 1 /* MSG_OOB, which gpunet does not have */

/*
 * Words: what the host has done so far (STEP), what the kernel has (AT), and a count for the
 * host.
 */
enum { STEP, AT, SENT };

GNET_DEV int peek_until(struct test_args *a, struct test_report *r, int fd, uint8_t *buf, int64_t n)
{
	int64_t k;

	do
		K_GET(r, k, grecv(a->net, fd, buf, (uint64_t)n + 100, GNET_MSG_PEEK));
	while (k < n);
	K_EQ(r, k, n);
	return 0;
}

GNET_DEV int receive(struct test_args *a, struct test_report *r, int fd, uint8_t *buf)
{
	gnet_t *net = a->net;

	K_EQ(r, grecv(net, fd, buf, 100, GNET_MSG_DONTWAIT), -EAGAIN);
	K_EQ(r, grecv(net, fd, buf, 100, GNET_MSG_DONTWAIT | GNET_MSG_PEEK), -EAGAIN);
	K_EQ(r, grecv(net, fd, buf, 0, GNET_MSG_DONTWAIT), 0);
	K_EQ(r, grecv(net, fd, buf, 100, OOB), -EOPNOTSUPP);
	test_k_set(&a->word[AT], 2);
	/*
	 * Ten bytes: looked at twice, then taken in two parts; a buffer that is too large is no
	 * reason to wait.
	 */
	K_CALL(peek_until(a, r, fd, buf, 10));
	K_EQ(r, test_k_wrong(buf, 10, 0, 1), 0);
	K_EQ(r, grecv(net, fd, buf, 3, GNET_MSG_PEEK), 3);
	K_EQ(r, grecv(net, fd, buf, 4, 0), 4);
	K_EQ(r, test_k_wrong(buf, 4, 0, 1), 0);
	K_EQ(r, grecv(net, fd, buf, 100, GNET_MSG_PEEK | GNET_MSG_DONTWAIT), 6);
	K_EQ(r, grecv(net, fd, buf, 100, GNET_MSG_PEEK | GNET_MSG_WAITALL), 6);
	K_EQ(r, test_k_wrong(buf, 6, 4, 1), 0);
	K_EQ(r, grecv(net, fd, buf, 100, 0), 6);
	K_EQ(r, test_k_wrong(buf, 6, 4, 1), 0);
	K_EQ(r, grecv(net, fd, buf, 100, GNET_MSG_DONTWAIT), -EAGAIN);
	test_k_set(&a->word[AT], 3);
	/* More than a line holds, looked at first. */
	K_CALL(peek_until(a, r, fd, buf, 5000));
	K_EQ(r, test_k_wrong(buf, 5000, 10, 1), 0);
	K_EQ(r, grecv(net, fd, buf, 5000, 0), 5000);
	K_EQ(r, test_k_wrong(buf, 5000, 10, 1), 0);
	/* A look that finds less than it wants does not stay behind: later bytes are seen, too. */
	test_k_set(&a->word[AT], 4);
	K_CALL(peek_until(a, r, fd, buf, 300));
	test_k_set(&a->word[AT], 5);
	K_CALL(peek_until(a, r, fd, buf, 900));
	K_EQ(r, test_k_wrong(buf, 900, 5010, 1), 0);
	K_EQ(r, grecv(net, fd, buf, 900, GNET_MSG_WAITALL), 900);
	K_EQ(r, test_k_wrong(buf, 900, 5010, 1), 0);
	test_k_set(&a->word[AT], 6);
	/* A thousand bytes in two parts, waited for; then 300, the end, and nothing more. */
	K_EQ(r, grecv(net, fd, buf, 1000, GNET_MSG_WAITALL), 1000);
	K_EQ(r, test_k_wrong(buf, 1000, 5910, 1), 0);
	test_k_set(&a->word[AT], 7);
	K_EQ(r, grecv(net, fd, buf, 1000, GNET_MSG_WAITALL), 300);
	K_EQ(r, test_k_wrong(buf, 300, 6910, 1), 0);
	K_EQ(r, grecv(net, fd, buf, 1000, GNET_MSG_WAITALL), 0);
	K_EQ(r, grecv(net, fd, buf, 1000, GNET_MSG_DONTWAIT), 0);
	K_EQ(r, grecv(net, fd, buf, 1000, GNET_MSG_PEEK), 0);
	return 0;
}

/*
 * Sends until nothing fits any more while nobody reads; what was accepted arrives, no more and no
 * less.
 */
GNET_DEV int fill(struct test_args *a, struct test_report *r, int fd, uint8_t *buf)
{
	uint64_t pos = 0;
	int quiet = 0;
	int64_t n;

	K_EQ(r, gsend(a->net, fd, buf, 10, OOB), -EOPNOTSUPP);
	K_EQ(r, gsend(a->net, fd, buf, 0, 0), 0);
	K_EQ(r, gsend(a->net, fd, buf, 0, GNET_MSG_DONTWAIT), 0);
	do {
		test_k_pattern(buf, 50000, pos, 2);
		n = gsend(a->net, fd, buf, 50000, GNET_MSG_DONTWAIT | GNET_MSG_NOSIGNAL);
		K_EQ(r, n == -EAGAIN || (n > 0 && n <= 50000), 1);
		pos += n > 0 ? (uint64_t)n : 0;
	} while (!test_k_full(n, &quiet));
	/* A message of a line's size does not slip past a full ring. */
	n = gsend(a->net, fd, buf, 5, GNET_MSG_DONTWAIT);
	if (n != -EAGAIN)
		return test_k_bad(r, __LINE__, n, -EAGAIN);
	test_k_set(&a->word[SENT], pos);
	test_k_pattern(buf, 777, pos, 2);
	K_EQ(r, gsend(a->net, fd, buf, 777, 0), 777);
	K_EQ(r, gshutdown(a->net, fd, GNET_SHUT_WR), 0);
	test_k_wait(&a->word[STEP], 1);
	return 0;
}

GNET_DEV int flags(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int listener, fd;

	K_GET(r, listener, test_k_listen(a->net, a->want, a->where, 5));
	K_EQ(r, gaccept4(a->net, listener, NULL, NULL, GNET_MSG_DONTWAIT), -EAGAIN);
	test_k_set(&a->word[AT], 1);
	K_GET(r, fd, gaccept(a->net, listener, NULL, NULL));
	K_EQ(r, gaccept4(a->net, listener, NULL, NULL, GNET_MSG_DONTWAIT), -EAGAIN);
	K_CALL(receive(a, r, fd, buf));
	K_CALL(fill(a, r, fd, buf));
	K_EQ(r, gclose(a->net, fd), 0);
	K_EQ(r, gclose(a->net, listener), 0);
	return 0;
}

TEST_KERNEL(flags_kernel, flags)

static void send_part(int fd, size_t from, size_t n)
{
	uint8_t data[5000];

	test_pattern(data, n, from, 1);
	test_write(fd, data, n);
}

static void run(gpunet_t *g, enum test_kind kind, unsigned threads)
{
	struct test_args a = test_setup(g, kind, 1, 64 << 10);
	uint8_t data[4096];
	uint64_t pos = 0;
	ssize_t n;
	int fd;

	TEST_LAUNCH(g, flags_kernel, a, 1, threads);
	test_word_wait(&a.word[AT], 1, a.report);
	fd = test_connect(a.where);
	test_word_wait(&a.word[AT], 2, a.report);
	send_part(fd, 0, 10);
	test_word_wait(&a.word[AT], 3, a.report);
	send_part(fd, 10, 5000);
	test_word_wait(&a.word[AT], 4, a.report);
	send_part(fd, 5010, 300);
	test_word_wait(&a.word[AT], 5, a.report);
	send_part(fd, 5310, 600);
	test_word_wait(&a.word[AT], 6, a.report);
	send_part(fd, 5910, 400);
	test_sleep_ms(50);
	send_part(fd, 6310, 600);
	test_word_wait(&a.word[AT], 7, a.report);
	send_part(fd, 6910, 300);
	test_sleep_ms(20);
	CHECK_EQ(shutdown(fd, SHUT_WR), 0);
	test_word_wait(&a.word[SENT], 1, a.report);
	while ((n = test_read_some(fd, data, sizeof(data))) > 0) {
		test_pattern_check(data, (size_t)n, pos, 2);
		pos += (uint64_t)n;
	}
	CHECK_EQ(n, 0);
	CHECK_EQ(pos, __atomic_load_n(&a.word[SENT], __ATOMIC_ACQUIRE) + 777);
	test_word_set(&a.word[STEP], 1);
	test_sync(g, a.report, 1);
	close(fd);
	test_teardown(&a);
}

int main(void)
{
	gpunet_t *g;

	test_begin(60);
	g = test_open(NULL);
	CHECK_EQ(GPUNET_PREPARE(flags_kernel), 0);
	run(g, TEST_TCP, 64);
	run(g, TEST_UNIX, 32);
	test_close(g);
	return 0;
}
