/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SO_LINGER: with 0 seconds gclose resets the connection; with more it waits until the host's socket has everything, and
 * gives up in the end; without, it returns at once. A listener's setting is its connections' too.
 */
#include "opt.h"

#define SECONDS 1

enum { STEP, AT, READY };

/* What the connections do, one after the other. */
enum { RESET, RESET_UNSENT, WAIT, GIVE_UP, PLAIN, SCENES };

/* Sends more than the host's sockets hold while nobody reads; how much was taken. */
GNET_DEV int fill(struct test_args *a, struct test_report *r, int fd, uint8_t *buf, uint64_t *pos)
{
	int64_t n;
	int quiet = 0;

	do {
		test_k_pattern(buf, a->room, *pos, 3);
		n = gsend(a->net, fd, buf, a->room, GNET_MSG_DONTWAIT);
		K_EQ(r, n > 0 || n == -EAGAIN, 1);
		*pos += n > 0 ? (uint64_t)n : 0;
	} while (!test_k_full(n, &quiet));
	return 0;
}

GNET_DEV int scene(struct test_args *a, struct test_report *r, int fd, uint8_t *buf, uint64_t i)
{
	uint64_t pos = 0;
	int64_t t, ms;

	if (i == RESET) {
		K_EQ(r, gsend(a->net, fd, buf, 1, 0), 1);
		K_EQ(r, grecv(a->net, fd, buf, 1, 0), 1);
	} else {
		/* Less than the ring holds: not all of that fits in the host's sockets, however late the proxy's thread comes. */
		K_EQ(r, opt_set(a->net, fd, GNET_SOL_SOCKET, GNET_SO_SNDBUF, 16 << 10), 0);
		K_CALL(fill(a, r, fd, buf, &pos));
	}
	if (i != RESET) /* the first has it from the listener */
		K_EQ(r,
		     opt_linger(a->net, fd, i != PLAIN,
				i == WAIT      ? 30
				: i == GIVE_UP ? SECONDS
					       : 0),
		     0);
	test_k_set(&a->word[AT], 2 * i + 1);
	t = opt_now_ms();
	K_EQ(r, gclose(a->net, fd), i == GIVE_UP ? -ETIMEDOUT : 0);
	ms = opt_now_ms() - t;
	if (i == GIVE_UP)
		K_EQ(r, ms >= SECONDS * 1000 - 1, 1);
	if (i == WAIT)
		K_EQ(r, gnet_sys_load_acquire(&a->word[STEP]), 1); /* the host had begun to read */
	test_k_set(&a->word[AT], 2 * i + 2);
	return 0;
}

GNET_DEV int scenes(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int listener, fd;

	K_GET(r, listener, test_k_listen(a->net, a->want, a->where, 5));
	K_EQ(r, opt_linger(a->net, listener, 1, 0), 0);
	test_k_set(&a->word[READY], 1);
	for (uint64_t i = 0; i < SCENES; i++) {
		K_GET(r, fd, gaccept(a->net, listener, NULL, NULL));
		K_CALL(scene(a, r, fd, buf, i));
	}
	K_EQ(r, gclose(a->net, listener), 0);
	return 0;
}

TEST_KERNEL(linger_kernel, scenes)

/* Reads to the end: the last result of read, and how much came before it. */
static ssize_t drain(int fd, uint64_t *pos)
{
	uint8_t data[8192];
	ssize_t n;

	for (*pos = 0; (n = test_read_some(fd, data, sizeof(data))) > 0; *pos += (uint64_t)n)
		test_pattern_check(data, (size_t)n, *pos, 3);
	return n;
}

static void talk(struct test_args *a, enum test_kind kind, int fd, uint64_t i)
{
	uint64_t n;
	char c;

	if (i == RESET) {
		test_read(fd, &c, 1);
		test_write(fd, &c, 1);
	}
	test_word_wait(&a->word[AT], 2 * i + (i == WAIT ? 1 : 2), a->report);
	if (i == WAIT) {
		test_sleep_ms(100);
		CHECK_EQ(__atomic_load_n(&a->word[AT], __ATOMIC_ACQUIRE), 2 * i + 1);
		test_word_set(&a->word[STEP], 1);
	}
	/* A UNIX socket has no reset of this kind: what its buffer holds is read, then the end. */
	if (i == RESET)
		CHECK_EQ(test_read_some(fd, &c, 1), kind == TEST_UNIX ? 0 : -ECONNRESET);
	else if (i == RESET_UNSENT || i == GIVE_UP)
		CHECK_EQ(drain(fd, &n), kind == TEST_UNIX ? 0 : -ECONNRESET);
	else
		CHECK_EQ(drain(fd, &n), 0);
}

static void run(gpunet_t *g, enum test_kind kind, unsigned threads)
{
	struct test_args a = test_setup(g, kind, 1, 64 << 10);
	int fd;

	TEST_LAUNCH(g, linger_kernel, a, 1, threads);
	test_word_wait(&a.word[READY], 1, a.report);
	for (uint64_t i = 0; i < SCENES; i++) {
		fd = test_connect(a.where);
		talk(&a, kind, fd, i);
		close(fd);
	}
	test_sync(g, a.report, 1);
	CHECK_EQ(gpunet_drain(g, 20000 * TEST_SLOW), 0);
	test_teardown(&a);
}

int main(void)
{
	gpunet_t *g;

	test_begin(60);
	g = test_open(NULL);
	CHECK_EQ(GPUNET_PREPARE(linger_kernel), 0);
	run(g, TEST_TCP, 64);
	run(g, TEST_UNIX, 3);
	test_close(g);
	return 0;
}
