/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpunet_close with a kernel that will not leave, gpunet_drain with a peer that does not read,
 * gpunet_sync's limit.
 */
#include "test.h"

enum { AT, GO };

/* A kernel that takes no notice of -ECANCELED. */
GNET_DEV int stubborn(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int listener;

	K_GET(r, listener, test_k_listen(a->net, a->want, a->where, 5));
	K_EQ(r, gaccept(a->net, listener, NULL, NULL), -ECANCELED);
	test_k_set(&a->word[AT], 1);
	test_k_wait(&a->word[GO], 1);
	/* The network is still there. */
	K_EQ(r, gaccept(a->net, listener, NULL, NULL), -ECANCELED);
	return 0;
}

/*
 * Fills the path to a peer that does not read, closes and leaves. Word AT: how many bytes are
 * under way.
 */
GNET_DEV int fill_and_leave(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	uint64_t pos = 0;
	int fd, quiet = 0;
	int64_t n;

	K_GET(r, fd, test_k_connect(a->net, a->where));
	do {
		test_k_pattern(buf, 30000, pos, 4);
		n = gsend(a->net, fd, buf, 30000, GNET_MSG_DONTWAIT);
		K_EQ(r, n > 0 || n == -EAGAIN, 1);
		pos += n > 0 ? (uint64_t)n : 0;
	} while (!test_k_full(n, &quiet));
	K_EQ(r, gclose(a->net, fd), 0);
	test_k_set(&a->word[AT], pos);
	return 0;
}

TEST_KERNEL(stubborn_kernel, stubborn)
TEST_KERNEL(leave_kernel, fill_and_leave)

static void busy_close(void)
{
	gpunet_t *g = test_open(NULL);
	struct test_args a;

	CHECK_EQ(GPUNET_PREPARE(stubborn_kernel), 0);
	a = test_setup(g, TEST_TCP, 1, 4096);
	CHECK_EQ(gpunet_sync(g, 0), 0);
	TEST_LAUNCH(g, stubborn_kernel, a, 1, 32);
	test_addr_wait(a.where, a.report);
	CHECK_EQ(gpunet_sync(g, 50), -ETIMEDOUT);
	CHECK_EQ(gpunet_close(g, 100), -EBUSY);
	CHECK(gpunet_last_error()[0] != 0);
	test_word_wait(&a.word[AT], 1, a.report);
	CHECK_EQ(gpunet_close(g, 0), -EBUSY);
	test_word_set(&a.word[GO], 1);
	test_close(g);
	test_reports(a.report, 1);
	test_teardown(&a);
}

static uint64_t take_all(int fd)
{
	uint8_t data[8192];
	uint64_t pos = 0;
	ssize_t n;

	while ((n = test_read_some(fd, data, sizeof(data))) > 0) {
		test_pattern_check(data, (size_t)n, pos, 4);
		pos += (uint64_t)n;
	}
	CHECK_EQ(n, 0);
	return pos;
}

static void drain(enum test_kind kind)
{
	struct gpunet_stats s;
	gpunet_t *g = test_open(NULL);
	struct test_args a;
	struct test_addr addr;
	int listener, fd;

	memset(&s, 0, sizeof(s));
	s.size = sizeof(s);
	CHECK_EQ(GPUNET_PREPARE(leave_kernel), 0);
	a = test_setup(g, kind, 1, 64 << 10);
	CHECK_EQ(gpunet_drain(g, 0), 0);
	addr = *a.want;
	listener = test_listen(&addr, 5);
	addr.ready = 1;
	*a.where = addr;
	TEST_LAUNCH(g, leave_kernel, a, 1, 64);
	fd = test_accept(listener);
	test_sync(g, a.report, 1);
	CHECK_EQ(gpunet_drain(g, 100), -ETIMEDOUT);
	CHECK_EQ(take_all(fd), a.word[AT]);
	CHECK_EQ(gpunet_drain(g, 10000 * TEST_SLOW), 0);
	CHECK_EQ(gpunet_get_stats(g, &s), 0);
	CHECK_EQ(s.sockets, 0);
	CHECK_EQ(s.bytes_sent, a.word[AT]);
	close(fd);
	close(listener);
	test_close(g);
	test_teardown(&a);
}

struct reader {
	pthread_t thread;
	int fd;
	uint64_t bytes;
};

static void *read_late(void *arg)
{
	struct reader *r = (struct reader *)arg;

	test_sleep_ms(200);
	r->bytes = take_all(r->fd);
	return NULL;
}

/*
 * The peer reads while gpunet_close goes on sending: nothing is lost. And one that never reads
 * ends it by linger_ms.
 */
static void close_sends_on(int reads)
{
	struct gpunet_options opt = GPUNET_OPTIONS_INIT;
	gpunet_t *g;
	struct test_args a;
	struct test_addr addr;
	int listener, fd;
	uint64_t start;

	opt.linger_ms = reads ? 30000 : 300;
	g = test_open(&opt);
	CHECK_EQ(GPUNET_PREPARE(leave_kernel), 0);
	a = test_setup(g, TEST_UNIX, 1, 64 << 10);
	addr = *a.want;
	listener = test_listen(&addr, 5);
	addr.ready = 1;
	*a.where = addr;
	TEST_LAUNCH(g, leave_kernel, a, 1, 64);
	fd = test_accept(listener);
	test_sync(g, a.report, 1);
	start = test_now_ms();
	if (reads) {
		struct reader reader = { 0, fd, 0 };

		CHECK_EQ(pthread_create(&reader.thread, NULL, read_late, &reader), 0);
		test_close(g);
		pthread_join(reader.thread, NULL);
		CHECK_EQ(reader.bytes, a.word[AT]);
	} else {
		test_close(g);
		if (test_now_ms() - start > 8000 * TEST_SLOW) /* linger_ms is 10 s by default */
			FAIL("close took %llu ms with a linger of 300",
			     (unsigned long long)(test_now_ms() - start));
	}
	close(fd);
	close(listener);
	test_teardown(&a);
}

int main(void)
{
	test_begin(60);
	busy_close();
	drain(TEST_UNIX);
	drain(TEST_TCP);
	close_sends_on(0);
	close_sends_on(1);
	return 0;
}
