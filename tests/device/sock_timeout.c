/* SPDX-License-Identifier: BSD-3-Clause */
/* SO_RCVTIMEO and SO_SNDTIMEO: a wait ends with -ETIMEDOUT, not early and not for ever; what was done by then counts. */
#include "opt.h"

#define LIMIT_MS 60

enum { STEP, AT, HELD };

/* The call took at least the limit. (How much longer is a matter of the machine's load: the alarm bounds it.) */
GNET_DEV int took(struct test_report *r, int64_t since)
{
	int64_t ms = opt_now_ms() - since;

	/* The clock's parts of a millisecond are cut off twice. */
	return ms >= LIMIT_MS - 1 ? 0 : test_k_bad(r, __LINE__, ms, LIMIT_MS);
}

GNET_DEV int accepting(struct test_args *a, struct test_report *r, int listener)
{
	int64_t t = opt_now_ms();

	K_EQ(r, opt_limit_ms(a->net, listener, GNET_SO_RCVTIMEO, LIMIT_MS), 0);
	K_EQ(r, gaccept(a->net, listener, NULL, NULL), -ETIMEDOUT);
	K_CALL(took(r, t));
	K_EQ(r, gaccept4(a->net, listener, NULL, NULL, GNET_MSG_DONTWAIT), -EAGAIN);
	K_EQ(r, opt_limit_ms(a->net, listener, GNET_SO_RCVTIMEO, 0), 0);
	return 0;
}

GNET_DEV int receiving(struct test_args *a, struct test_report *r, int fd, uint8_t *buf)
{
	gnet_t *net = a->net;
	int64_t t, n;

	/* An accepted socket has no limit: this waits until the host sends. */
	test_k_set(&a->word[AT], 2);
	K_EQ(r, grecv(net, fd, buf, 100, 0), 3);
	K_EQ(r, opt_limit_ms(net, fd, GNET_SO_RCVTIMEO, LIMIT_MS), 0);
	for (int i = 0; i < 3; i++) {
		t = opt_now_ms();
		K_EQ(r, grecv(net, fd, buf, 100, i == 1 ? GNET_MSG_PEEK : 0), -ETIMEDOUT);
		K_CALL(took(r, t));
	}
	K_EQ(r, grecv(net, fd, buf, 100, GNET_MSG_DONTWAIT), -EAGAIN);
	/* Five bytes of the ten that are waited for. */
	test_k_set(&a->word[AT], 3);
	test_k_wait(&a->word[STEP], 3);
	do /* until they are here, on however busy a machine */
		n = grecv(net, fd, buf, 10, GNET_MSG_PEEK);
	while (n == -ETIMEDOUT || (n > 0 && n < 5));
	t = opt_now_ms();
	K_EQ(r, grecv(net, fd, buf, 10, GNET_MSG_WAITALL), 5);
	K_CALL(took(r, t));
	/* What comes within the limit is no timeout. */
	K_EQ(r, opt_limit_ms(net, fd, GNET_SO_RCVTIMEO, 20000), 0);
	test_k_set(&a->word[AT], 4);
	K_EQ(r, grecv(net, fd, buf, 10, GNET_MSG_WAITALL), 10);
	return 0;
}

/* Nobody reads: calls are cut short, then time out; the bytes that counted, and no others, arrive afterwards. */
GNET_DEV int sending(struct test_args *a, struct test_report *r, int fd, uint8_t *buf)
{
	uint64_t pos = 0;
	int64_t n, t;

	K_EQ(r, opt_limit_ms(a->net, fd, GNET_SO_SNDTIMEO, LIMIT_MS), 0);
	do {
		test_k_pattern(buf, a->room, pos, 5);
		t = opt_now_ms();
		n = gsend(a->net, fd, buf, a->room, 0);
		pos += n > 0 ? (uint64_t)n : 0;
	} while (n > 0);
	K_EQ(r, n, -ETIMEDOUT);
	K_CALL(took(r, t));
	test_k_set(&a->word[AT], pos);
	K_EQ(r, opt_limit_ms(a->net, fd, GNET_SO_SNDTIMEO, 0), 0);
	test_k_pattern(buf, a->room, pos, 5);
	K_EQ(r, gsend(a->net, fd, buf, a->room, 0), a->room);
	K_EQ(r, gshutdown(a->net, fd, GNET_SHUT_WR), 0);
	return 0;
}

/* Another block waits in grecv without a limit and holds the direction. */
GNET_DEV int beside_holder(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int64_t t;
	int fd;

	test_k_wait(&a->word[HELD], 1);
	fd = (int)gnet_sys_load_acquire(&a->word[HELD]) - 1;
	test_k_wait_held(a->net, fd);
	K_EQ(r, opt_limit_ms(a->net, fd, GNET_SO_RCVTIMEO, LIMIT_MS), 0);
	t = opt_now_ms();
	K_EQ(r, grecv(a->net, fd, buf, 1, 0), -ETIMEDOUT);
	K_CALL(took(r, t));
	test_k_set(&a->word[STEP], 10);
	return 0;
}

GNET_DEV int limits(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int listener, fd;

	if (blockIdx.x)
		return beside_holder(a, r, buf);
	K_GET(r, listener, test_k_listen(a->net, a->want, a->where, 5));
	K_CALL(accepting(a, r, listener));
	test_k_set(&a->word[AT], 1);
	K_GET(r, fd, gaccept(a->net, listener, NULL, NULL));
	K_CALL(receiving(a, r, fd, buf));
	K_EQ(r, opt_limit_ms(a->net, fd, GNET_SO_RCVTIMEO, 0), 0);
	test_k_set(&a->word[HELD], (uint64_t)fd + 1);
	K_EQ(r, grecv(a->net, fd, buf, 1, 0), 1);
	K_CALL(sending(a, r, fd, buf));
	test_k_wait(&a->word[STEP], 11);
	K_EQ(r, gclose(a->net, fd), 0);
	K_EQ(r, gclose(a->net, listener), 0);
	return 0;
}

TEST_KERNEL(limits_kernel, limits)

static void run(gpunet_t *g, enum test_kind kind, unsigned threads)
{
	struct test_args a = test_setup(g, kind, 2, 64 << 10);
	uint8_t data[4096];
	uint64_t pos = 0;
	ssize_t n;
	int fd;

	TEST_LAUNCH(g, limits_kernel, a, 2, threads);
	test_word_wait(&a.word[AT], 1, a.report);
	fd = test_connect(a.where);
	test_word_wait(&a.word[AT], 2, a.report);
	test_sleep_ms(3 * LIMIT_MS);
	test_write(fd, "abc", 3);
	test_word_wait(&a.word[AT], 3, a.report);
	test_write(fd, "defgh", 5);
	test_word_set(&a.word[STEP], 3);
	test_word_wait(&a.word[AT], 4, a.report);
	test_sleep_ms(LIMIT_MS);
	test_write(fd, "ijklm", 5);
	test_sleep_ms(LIMIT_MS);
	test_write(fd, "nopqr", 5);
	test_word_wait(&a.word[STEP], 10, a.report + 1);
	test_write(fd, "s", 1);
	test_word_wait(&a.word[AT], 5, a.report);
	while ((n = test_read_some(fd, data, sizeof(data))) > 0) {
		test_pattern_check(data, (size_t)n, pos, 5);
		pos += (uint64_t)n;
	}
	CHECK_EQ(n, 0);
	CHECK_EQ(pos, __atomic_load_n(&a.word[AT], __ATOMIC_ACQUIRE) + a.room);
	test_word_set(&a.word[STEP], 11);
	test_sync(g, a.report, 2);
	close(fd);
	test_teardown(&a);
}

int main(void)
{
	gpunet_t *g;

	test_begin(40);
	g = test_open(NULL);
	CHECK_EQ(GPUNET_PREPARE(limits_kernel), 0);
	run(g, TEST_TCP, 64);
	run(g, TEST_UNIX, 1);
	test_close(g);
	return 0;
}
