/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A kernel serves host clients over every kind of address: random pieces, byte-exact, then the
 * end of the stream.
 */
#include "test.h"

#define BLOCKS 3
#define CLIENTS 8

/*
 * Block 0 makes the listener; word 0 is its descriptor + 1. Blocks share the n clients by a
 * counter.
 */
GNET_DEV int echo(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	__shared__ unsigned long long ticket;
	int listener, fd;

	if (blockIdx.x == 0) {
		K_GET(r, listener, test_k_listen(a->net, a->want, a->where, 64));
		test_k_set(&a->word[0], (uint64_t)listener + 1);
	} else {
		test_k_wait(&a->word[0], 1);
		listener = (int)gnet_sys_load_acquire(&a->word[0]) - 1;
	}
	for (;;) {
		__syncthreads();
		if (threadIdx.x == 0)
			ticket = atomicAdd(&a->dword[0], 1ull);
		__syncthreads();
		if (ticket >= a->n)
			return 0;
		K_GET(r, fd, gaccept(a->net, listener, NULL, NULL));
		K_CALL(test_k_echo(r, a->net, fd, buf, a->room));
	}
}

TEST_KERNEL(echo_kernel, echo)

struct client {
	pthread_t thread;
	const struct test_addr *addr;
	size_t size;
	uint32_t key;
	int fd;
};

static void *send_all(void *arg)
{
	struct client *c = (struct client *)arg;
	uint8_t piece[5000];
	size_t pos = 0;

	while (pos < c->size) {
		size_t n = (pos * 2654435761u + c->key) % sizeof(piece) + 1;

		if (n > c->size - pos)
			n = c->size - pos;
		test_pattern(piece, n, pos, c->key);
		test_write(c->fd, piece, n);
		pos += n;
	}
	CHECK_EQ(shutdown(c->fd, SHUT_WR), 0);
	return NULL;
}

static void *run_client(void *arg)
{
	struct client *c = (struct client *)arg;
	uint8_t piece[3000];
	pthread_t sender;
	size_t pos = 0;

	c->fd = test_connect(c->addr);
	CHECK_EQ(pthread_create(&sender, NULL, send_all, c), 0);
	while (pos < c->size) {
		ssize_t n = test_read_some(c->fd, piece, sizeof(piece));

		if (n <= 0)
			FAIL("read of client %u at %zu: %zd", c->key, pos, n);
		test_pattern_check(piece, (size_t)n, pos, c->key);
		pos += (size_t)n;
	}
	test_read_end(c->fd);
	pthread_join(sender, NULL);
	close(c->fd);
	return NULL;
}

static void run(gpunet_t *g, enum test_kind kind, unsigned threads, size_t size)
{
	struct test_args a = test_setup(g, kind, BLOCKS, 32 << 10);
	struct client clients[CLIENTS];

	a.n = CLIENTS;
	TEST_LAUNCH(g, echo_kernel, a, BLOCKS, threads);
	test_addr_wait(a.where, a.report);
	for (uint32_t i = 0; i < CLIENTS; i++) {
		clients[i].addr = a.where;
		clients[i].size = i == 3 ? 0 : size + i;
		clients[i].key = i;
		CHECK_EQ(pthread_create(&clients[i].thread, NULL, run_client, &clients[i]), 0);
	}
	for (uint32_t i = 0; i < CLIENTS; i++)
		pthread_join(clients[i].thread, NULL);
	test_sync(g, a.report, BLOCKS);
	test_teardown(&a);
}

int main(void)
{
	size_t size = (size_t)test_rounds(1 << 20, 16 << 20);
	gpunet_t *g;

	test_begin(60);
	g = test_open(NULL);
	CHECK_EQ(GPUNET_PREPARE(echo_kernel), 0);
	run(g, TEST_TCP, 128, size);
	if (test_has_ipv6())
		run(g, TEST_TCP6, 64, size);
	run(g, TEST_UNIX, 256, size);
	run(g, TEST_ABSTRACT, 32, size);
	test_close(g);
	return 0;
}
