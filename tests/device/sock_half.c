/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A UNIX peer that takes no more (SHUT_RD) and goes on sending: gsend fails with -EPIPE, while what
 * the peer sends arrives to its last byte and orderly end. gpoll tells no error, as Linux. It is so as well
 * where the peer's end is full by then, of which Linux tells nobody who does not try to send.
 */
#include "test.h"

#include <sys/ioctl.h>

/* All that gpoll tells of the socket, when there is something of `until` (else at once). */
GNET_DEV int events(gnet_t *net, int fd, short until)
{
	__shared__ struct gnet_pollfd p;
	int rc;

	__syncthreads();
	if (test_k_tid() == 0) {
		p.fd = fd;
		p.events = until;
	}
	__syncthreads();
	if (until && gpoll(net, &p, 1, -1) < 0)
		return -1;
	__syncthreads();
	if (test_k_tid() == 0)
		p.events = GNET_POLLIN | GNET_POLLOUT | GNET_POLLRDHUP;
	__syncthreads();
	rc = gpoll(net, &p, 1, 0);
	return rc < 0 ? rc : p.revents;
}

GNET_DEV int half(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int64_t n;
	int fd;

	K_GET(r, fd, test_k_connect(a->net, a->where));
	do
		n = gsend(a->net, fd, buf, 10, 0);
	while (n > 0);
	K_EQ(r, n, -EPIPE);
	K_EQ(r, events(a->net, fd, 0), GNET_POLLOUT);
	test_k_set(&a->word[0], 1);
	K_EQ(r, events(a->net, fd, GNET_POLLIN), GNET_POLLIN | GNET_POLLOUT);
	test_k_set(&a->word[2], 1);
	K_CALL(test_k_recv_all(r, a->net, fd, buf, a->room, a->n, 0, 1));
	K_EQ(r, grecv(a->net, fd, buf, 10, 0), 0);
	K_EQ(r, events(a->net, fd, 0), GNET_POLLIN | GNET_POLLOUT | GNET_POLLRDHUP | GNET_POLLHUP);
	K_EQ(r, gsend(a->net, fd, buf, 10, 0), -EPIPE);
	K_EQ(r, gclose(a->net, fd), 0);
	return 0;
}

TEST_KERNEL(k_half, half)

/* The sender does not look first: what its lost bytes met is not what the reader is told. */
GNET_DEV int only_reads(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int fd;

	K_GET(r, fd, test_k_connect(a->net, a->where));
	test_k_wait(&a->word[0], 1);
	K_EQ(r, gsend(a->net, fd, buf, 10, 0), 10);
	test_k_set(&a->word[1], 1);
	K_CALL(test_k_recv_all(r, a->net, fd, buf, a->room, a->n, 0, 1));
	K_EQ(r, grecv(a->net, fd, buf, 10, 0), 0);
	K_EQ(r, gclose(a->net, fd), 0);
	return 0;
}

TEST_KERNEL(k_only_reads, only_reads)

enum { FULL_SENDS, FULL_POLLS, FULL_BLOCKS };

/* Until sending fails: one block waits in gsend, the other in gpoll. */
GNET_DEV int full(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int flags = blockIdx.x == FULL_POLLS ? GNET_MSG_DONTWAIT : 0, fd;
	int64_t n;

	K_GET(r, fd, test_k_connect(a->net, a->where));
	for (;;) {
		n = gsend(a->net, fd, buf, 1000, flags);
		if (n == -EAGAIN)
			K_EQ(r, events(a->net, fd, GNET_POLLOUT), GNET_POLLOUT);
		else if (n < 0)
			break;
	}
	K_EQ(r, n, -EPIPE);
	K_EQ(r, gclose(a->net, fd), 0);
	return 0;
}

TEST_KERNEL(k_full, full)

static int unread(int fd)
{
	int n = 0;

	CHECK_EQ(ioctl(fd, FIONREAD, &n), 0);
	return n;
}

/* Waits until the sender has found no room: nothing more has come for a while. */
static void until_full(int fd)
{
	int n, same = 0;

	for (n = unread(fd); same < 50; same++) {
		int now = unread(fd);

		if (now != n || !n)
			same = 0;
		n = now;
		test_sleep_ms(2);
	}
}

static void run_full(gpunet_t *g)
{
	struct test_args a = test_setup(g, TEST_UNIX, FULL_BLOCKS, 1000);
	int l = test_listen(a.want, 5), fd[FULL_BLOCKS], i;

	*a.where = *a.want;
	test_word_set(&a.where->ready, 1);
	TEST_LAUNCH(g, k_full, a, FULL_BLOCKS, 32);
	for (i = 0; i < FULL_BLOCKS; i++)
		fd[i] = test_accept(l);
	for (i = 0; i < FULL_BLOCKS; i++) {
		until_full(fd[i]);
		CHECK_EQ(shutdown(fd[i], SHUT_RD), 0);
	}
	/* Nothing is read and nothing closed before they have seen it. */
	test_sync(g, a.report, FULL_BLOCKS);
	for (i = 0; i < FULL_BLOCKS; i++)
		close(fd[i]);
	close(l);
	test_teardown(&a);
}

static void serve(struct test_args *a, unsigned word, int listener, int first)
{
	uint8_t *data = (uint8_t *)malloc(a->n);
	int fd = test_accept(listener);

	CHECK(data != NULL);
	test_pattern(data, a->n, 0, 1);
	CHECK_EQ(shutdown(fd, SHUT_RD), 0);
	if (first)
		test_word_set(&a->word[0], 1);
	test_word_wait(&a->word[word], 1, a->report);
	test_sleep_ms(20);
	test_write(fd, data, a->n);
	/* The kernel looks while the end has not come. */
	if (!first)
		test_word_wait(&a->word[2], 1, a->report);
	/* With unread bytes the close would be a reset. */
	while (test_read_some(fd, data, a->n) > 0)
		continue;
	close(fd);
	free(data);
}

static void run(gpunet_t *g, enum test_kind kind)
{
	struct test_args a = test_setup(g, kind, 1, 16 << 10);
	int l;

	a.n = 300000;
	*a.where = *a.want;
	l = test_listen(a.where, 5);
	test_word_set(&a.where->ready, 1);
	TEST_LAUNCH(g, k_half, a, 1, 64);
	serve(&a, 0, l, 0);
	test_sync(g, a.report, 1);
	test_word_set(&a.word[0], 0);
	test_word_set(&a.word[2], 0);
	TEST_LAUNCH(g, k_only_reads, a, 1, 32);
	serve(&a, 1, l, 1);
	test_sync(g, a.report, 1);
	close(l);
	test_teardown(&a);
}

int main(void)
{
	gpunet_t *g;

	test_begin(60);
	g = test_open(NULL);
	CHECK_EQ(GPUNET_PREPARE(k_half), 0);
	CHECK_EQ(GPUNET_PREPARE(k_only_reads), 0);
	CHECK_EQ(GPUNET_PREPARE(k_full), 0);
	run(g, TEST_UNIX);
	run(g, TEST_ABSTRACT);
	run_full(g);
	test_close(g);
	return 0;
}
