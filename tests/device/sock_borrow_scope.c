/* SPDX-License-Identifier: BSD-3-Clause */
/* Working in place by warps and threads: two warps and a thread of one block, each with a connection of its own, echo from ring to ring. */
#include "test.h"

#define CONNECTIONS 3
#define SIZE (300u << 10)

/* What a warp or a thread of the block has: conn 1 is the thread's. */
struct place {
	struct gnet_borrow in, out;
	int64_t rc;
};

GNET_DEV int64_t borrow(gnet_t *net, int one, int fd, struct gnet_borrow *b, uint64_t most)
{
	return one ? grecv_borrow_thread(net, fd, b, most, 0)
		   : grecv_borrow_warp(net, fd, b, most, 0);
}

GNET_DEV int reserve(gnet_t *net, int one, int fd, struct gnet_borrow *b, uint64_t n)
{
	return one ? gsend_reserve_thread(net, fd, b, n, 0) : gsend_reserve_warp(net, fd, b, n, 0);
}

GNET_DEV int commit(gnet_t *net, int one, int fd, uint64_t n)
{
	return one ? gsend_commit_thread(net, fd, n) : gsend_commit_warp(net, fd, n);
}

GNET_DEV int give_back(gnet_t *net, int one, int fd, uint64_t n)
{
	return one ? grecv_return_thread(net, fd, n) : grecv_return_warp(net, fd, n);
}

GNET_DEV uint8_t *byte_of(const struct gnet_borrow *b, uint64_t i)
{
	return i < b->len[0] ? b->ptr[0] + i : b->ptr[1] + (i - b->len[0]);
}

/* 0 at the stream's end, else the step that went wrong. Every third time a part only. */
GNET_DEV int echo(gnet_t *net, int one, int fd, struct place *p)
{
	uint32_t lane = one ? 0 : threadIdx.x % 32, lanes = one ? 1 : 32;

	for (uint64_t round = 0;; round++) {
		int64_t got = borrow(net, one, fd, &p->in, 3000);
		uint64_t n = round % 3 == 2 ? ((uint64_t)got + 1) / 2 : (uint64_t)got;

		if (got <= 0)
			return got ? 1 : 0;
		if (p->in.len[0] + p->in.len[1] != (uint64_t)got)
			return 2;
		if (reserve(net, one, fd, &p->out, n + (round & 1)))
			return 3;
		for (uint64_t i = lane; i < n; i += lanes)
			*byte_of(&p->out, i) = *byte_of(&p->in, i);
		if (commit(net, one, fd, n) || give_back(net, one, fd, n))
			return 4;
		if (give_back(net, one, fd, 0) != -EINVAL || commit(net, one, fd, 0) != -EINVAL)
			return 5;
		if (borrow(net, one, fd, &p->in, 0) != -EINVAL ||
		    reserve(net, one, fd, &p->out, 9 << 20) != -EMSGSIZE)
			return 6;
	}
}

GNET_DEV int scopes(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	__shared__ struct place place[CONNECTIONS];
	__shared__ int wrong[CONNECTIONS];
	int listener, fd[CONNECTIONS], which = (int)threadIdx.x / 32;

	K_GET(r, listener, test_k_listen(a->net, a->want, a->where, CONNECTIONS));
	for (int i = 0; i < CONNECTIONS; i++)
		K_GET(r, fd[i], gaccept(a->net, listener, NULL, NULL));
	__syncthreads();
	if (which != 1 || threadIdx.x % 32 == 0) {
		int rc = echo(a->net, which == 1, fd[which], &place[which]);

		if (threadIdx.x % 32 == 0)
			wrong[which] = rc;
	}
	__syncthreads();
	for (int i = 0; i < CONNECTIONS; i++) {
		K_EQ(r, wrong[i], 0);
		K_EQ(r, gclose(a->net, fd[i]), 0);
	}
	K_EQ(r, gclose(a->net, listener), 0);
	return 0;
}

TEST_KERNEL(scopes_kernel, scopes)

struct peer {
	int fd;
	uint32_t key;
};

static void *sends(void *arg)
{
	struct peer *p = (struct peer *)arg;
	uint8_t piece[9000];
	size_t pos = 0, n;

	for (unsigned i = 0; pos < SIZE; i++) {
		n = i % 4 ? i * 37 % 120 + 1 : i * 2654435761u % sizeof(piece) + 1;
		n = n < SIZE - pos ? n : SIZE - pos;
		test_pattern(piece, n, pos, p->key);
		test_write(p->fd, piece, n);
		pos += n;
	}
	CHECK_EQ(shutdown(p->fd, SHUT_WR), 0);
	return NULL;
}

static void *receives(void *arg)
{
	struct peer *p = (struct peer *)arg;
	uint8_t piece[5000];
	size_t pos = 0;

	while (pos < SIZE) {
		ssize_t n = test_read_some(p->fd, piece, sizeof(piece));

		CHECK(n > 0);
		test_pattern_check(piece, (size_t)n, pos, p->key);
		pos += (size_t)n;
	}
	test_read_end(p->fd);
	return NULL;
}

static void run(enum test_kind kind)
{
	struct gpunet_options opt = GPUNET_OPTIONS_INIT;
	struct peer peer[CONNECTIONS];
	pthread_t t[2 * CONNECTIONS];
	struct test_args a;
	gpunet_t *g;

	opt.segment_bytes = 16 << 10;
	g = test_open(&opt);
	a = test_setup(g, kind, 1, 64);
	TEST_LAUNCH(g, scopes_kernel, a, 1, 32 * CONNECTIONS);
	test_addr_wait(a.where, a.report);
	for (unsigned i = 0; i < CONNECTIONS; i++) {
		peer[i].fd = test_connect(a.where);
		peer[i].key = i;
		CHECK_EQ(pthread_create(&t[2 * i], NULL, sends, &peer[i]), 0);
		CHECK_EQ(pthread_create(&t[2 * i + 1], NULL, receives, &peer[i]), 0);
	}
	for (unsigned i = 0; i < 2 * CONNECTIONS; i++)
		pthread_join(t[i], NULL);
	test_sync(g, a.report, 1);
	for (unsigned i = 0; i < CONNECTIONS; i++)
		close(peer[i].fd);
	test_close(g);
	test_teardown(&a);
}

int main(void)
{
	test_begin(60);
	test_need_device();
	CHECK_EQ(GPUNET_PREPARE(scopes_kernel), 0);
	run(TEST_TCP);
	run(TEST_UNIX);
	return 0;
}
