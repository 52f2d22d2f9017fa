/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A long pause is legal: nothing in the library gives up because a peer, or a kernel, does nothing for a while. Every kind of wait
 * lasts 2 s here, 120 s with GPUNET_TEST_LONG=1, and then succeeds.
 */
#include "test.h"

enum { WAITS, GO_ON };
enum { RECEIVES, ACCEPTS, POLLS, SENDS, CONNECTS, IDLES, BLOCKS };

GNET_DEV int sends_late(struct test_args *a, struct test_report *r, int fd, uint8_t *buf)
{
	for (uint64_t pos = 0; pos < a->n; pos += a->room) {
		test_k_pattern(buf, a->room, pos, 5);
		K_EQ(r, gsend(a->net, fd, buf, a->room, 0), a->room);
	}
	return 0;
}

GNET_DEV int waits(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	__shared__ struct gnet_pollfd p;
	int fd, other = -1;

	K_GET(r, fd, test_k_connect(a->net, a->where));
	if (blockIdx.x == ACCEPTS)
		K_GET(r, other, test_k_listen(a->net, a->want, a->want + 2, 1));
	if (test_k_tid() == 0)
		buf[0] = (uint8_t)blockIdx.x;
	__syncthreads();
	K_EQ(r, gsend(a->net, fd, buf, 1, 0), 1); /* who I am */
	if (blockIdx.x == IDLES)
		test_k_wait(&a->word[GO_ON], 1);
	if (blockIdx.x == ACCEPTS)
		K_GET(r, other, gaccept(a->net, other, NULL, NULL));
	if (blockIdx.x == CONNECTS)
		K_GET(r, other, test_k_connect(a->net, a->want + 3));
	if (blockIdx.x == POLLS) {
		if (test_k_tid() == 0) {
			p.fd = fd;
			p.events = GNET_POLLIN;
		}
		__syncthreads();
		K_EQ(r, gpoll(a->net, &p, 1, -1), 1);
	}
	if (blockIdx.x == SENDS)
		K_CALL(sends_late(a, r, fd, buf));
	K_EQ(r, grecv(a->net, fd, buf, 1, 0), 1);
	K_EQ(r, buf[0], blockIdx.x + 100);
	K_EQ(r, gclose(a->net, fd), 0);
	return 0;
}

TEST_KERNEL(waits_kernel, waits)

/* A UNIX listener whose backlog is full: connect waits there. */
static int full_listener(struct test_addr *at, int *first)
{
	int listener = test_listen(at, 0);

	*first = test_connect(at);
	at->ready = 1;
	return listener;
}

/* want: the kernel's listener; where: ours; then where the kernel's is; then the full one. */
static struct test_addr *four_addresses(struct test_args *a)
{
	struct test_addr *all = (struct test_addr *)test_shared(4 * sizeof(*all));

	all[0] = *a->want;
	test_shared_free(a->want);
	a->want = all;
	a->where = all + 1;
	test_addr_make(all + 1, TEST_UNIX);
	test_addr_make(all + 3, TEST_UNIX);
	return all;
}

/* Blocks connect in any order; each says which it is. */
static void accept_all(int listener, int *fd)
{
	for (int i = 0; i < BLOCKS; i++) {
		int c = test_accept(listener);
		uint8_t who;

		test_read(c, &who, 1);
		CHECK(who < BLOCKS);
		fd[who] = c;
	}
}

/* What each kind waited for comes, and then its answer. */
static void end_the_waits(const struct test_args *a, const int *fd, int full)
{
	static uint8_t data[64 << 10];

	test_word_set(&a->word[GO_ON], 1);
	close(test_connect(a->want +
			   2)); /* the kernel's listener, which test_k_listen has published */
	close(test_accept(full));
	close(test_accept(full));
	for (uint64_t pos = 0; pos < a->n; pos += sizeof(data)) {
		test_read(fd[SENDS], data, sizeof(data));
		test_pattern_check(data, sizeof(data), pos, 5);
	}
	for (int i = 0; i < BLOCKS; i++) {
		uint8_t answer = (uint8_t)(i + 100);

		test_write(fd[i], &answer, 1);
		test_read_end(fd[i]);
		close(fd[i]);
	}
}

int main(void)
{
	unsigned seconds = test_rounds(1, 0) ? 2 : 120;
	int listener, full, first, fd[BLOCKS];
	struct test_addr *all;
	struct test_args a;
	gpunet_t *g;

	test_begin(60 + seconds);
	g = test_open(NULL);
	CHECK_EQ(GPUNET_PREPARE(waits_kernel), 0);
	a = test_setup(g, TEST_UNIX, BLOCKS, 64 << 10);
	all = four_addresses(&a);
	a.n = 4 << 20;
	listener = test_listen(a.where, BLOCKS);
	full = full_listener(all + 3, &first);
	a.where->ready = 1;
	TEST_LAUNCH(g, waits_kernel, a, BLOCKS, 32);
	accept_all(listener, fd);
	test_sleep_ms(seconds * 1000);
	for (int i = 0; i < BLOCKS; i++)
		CHECK_EQ(a.report[i].done | a.report[i].line, 0);
	end_the_waits(&a, fd, full);
	test_sync(g, a.report, BLOCKS);
	close(first);
	close(full);
	close(listener);
	for (int i = 0; i < 4; i++)
		test_addr_remove(&all[i]);
	test_close(g);
	test_teardown(&a);
	return 0;
}
