/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sockets that several blocks use: four blocks accept from one listener, a connection accepted in
 * one block is served by another, and one block receives from a socket on which another one
 * sends.
 */
#include "test.h"

#define BLOCKS 4
#define CLIENTS 60
#define DUPLEX_BYTES (512u << 10)

/* Words: the listener + 1, the descriptor handed over + 1, blocks that got a connection (bits). */
enum { LISTENER, HANDED, WHO };

GNET_DEV int listener_of(struct test_args *a, struct test_report *r, int *listener)
{
	if (blockIdx.x == 0) {
		K_GET(r, *listener, test_k_listen(a->net, a->want, a->where, CLIENTS));
		test_k_set(&a->word[LISTENER], (uint64_t)*listener + 1);
	} else {
		test_k_wait(&a->word[LISTENER], 1);
		*listener = (int)gnet_sys_load_acquire(&a->word[LISTENER]) - 1;
	}
	return 0;
}

/*
 * Every connection goes to one block; the client sends its number and wants it back with that
 * block's.
 */
GNET_DEV int accept_many(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	__shared__ unsigned long long ticket;
	int listener, fd;

	K_CALL(listener_of(a, r, &listener));
	for (;;) {
		__syncthreads();
		if (threadIdx.x == 0)
			ticket = atomicAdd(&a->dword[0], 1ull);
		__syncthreads();
		if (ticket >= CLIENTS)
			return 0;
		K_GET(r, fd, gaccept(a->net, listener, NULL, NULL));
		K_EQ(r, grecv(a->net, fd, buf, 4, GNET_MSG_WAITALL), 4);
		if (threadIdx.x == 0)
			buf[4] = (uint8_t)blockIdx.x;
		__syncthreads();
		K_EQ(r, gsend(a->net, fd, buf, 5, 0), 5);
		K_EQ(r, gclose(a->net, fd), 0);
	}
}

/* Block 0 accepts, block 1 receives and passes on what it reads, block 2 sends at the same time. */
GNET_DEV int hand_over(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int listener, fd;

	if (blockIdx.x == 0) {
		K_GET(r, listener, test_k_listen(a->net, a->want, a->where, 5));
		K_GET(r, fd, gaccept(a->net, listener, NULL, NULL));
		test_k_set(&a->word[HANDED], (uint64_t)fd + 1);
		K_EQ(r, gclose(a->net, listener), 0);
		return 0;
	}
	test_k_wait(&a->word[HANDED], 1);
	fd = (int)gnet_sys_load_acquire(&a->word[HANDED]) - 1;
	if (blockIdx.x == 1) {
		K_CALL(test_k_recv_all(r, a->net, fd, buf, a->room, DUPLEX_BYTES, 0, 1));
		K_EQ(r, grecv(a->net, fd, buf, 1, 0), 0);
	} else {
		K_CALL(test_k_send_all(r, a->net, fd, buf, a->room, DUPLEX_BYTES, 2));
		K_EQ(r, gshutdown(a->net, fd, GNET_SHUT_WR), 0);
	}
	__syncthreads();
	if (threadIdx.x == 0)
		gnet_dev_add((uint64_t *)&a->dword[1], 1);
	if (blockIdx.x == 1) {
		if (threadIdx.x == 0)
			while (gnet_dev_load_acquire((uint64_t *)&a->dword[1]) < 2)
				__nanosleep(20000);
		__syncthreads();
		K_EQ(r, gclose(a->net, fd), 0);
	}
	return 0;
}

TEST_KERNEL(accept_kernel, accept_many)
TEST_KERNEL(hand_kernel, hand_over)

static void run_accept(gpunet_t *g, enum test_kind kind)
{
	struct test_args a = test_setup(g, kind, BLOCKS, 4096);
	unsigned by_block[BLOCKS] = { 0 };
	int fds[CLIENTS];

	TEST_LAUNCH(g, accept_kernel, a, BLOCKS, 32);
	test_addr_wait(a.where, a.report);
	for (uint32_t i = 0; i < CLIENTS; i++)
		fds[i] = test_connect(a.where);
	for (uint32_t i = 0; i < CLIENTS; i++)
		test_write(fds[i], &i, 4);
	for (uint32_t i = 0; i < CLIENTS; i++) {
		uint8_t answer[5];

		test_read(fds[i], answer, 5);
		CHECK_EQ(memcmp(answer, &i, 4), 0);
		CHECK(answer[4] < BLOCKS);
		by_block[answer[4]]++;
		test_read_end(fds[i]);
		close(fds[i]);
	}
	test_sync(g, a.report, BLOCKS);
	CHECK_EQ(by_block[0] + by_block[1] + by_block[2] + by_block[3], CLIENTS);
	test_teardown(&a);
}

struct feeder {
	pthread_t thread;
	int fd;
};

static void *feed(void *arg)
{
	struct feeder *f = (struct feeder *)arg;
	uint8_t data[4096];

	for (size_t pos = 0; pos < DUPLEX_BYTES; pos += sizeof(data)) {
		test_pattern(data, sizeof(data), pos, 1);
		test_write(f->fd, data, sizeof(data));
	}
	CHECK_EQ(shutdown(f->fd, SHUT_WR), 0);
	return NULL;
}

static void run_hand_over(gpunet_t *g, enum test_kind kind)
{
	struct test_args a = test_setup(g, kind, 3, 16 << 10);
	struct feeder f;
	uint8_t data[4096];

	TEST_LAUNCH(g, hand_kernel, a, 3, 64);
	test_addr_wait(a.where, a.report);
	f.fd = test_connect(a.where);
	CHECK_EQ(pthread_create(&f.thread, NULL, feed, &f), 0);
	for (size_t pos = 0; pos < DUPLEX_BYTES; pos += sizeof(data)) {
		test_read(f.fd, data, sizeof(data));
		test_pattern_check(data, sizeof(data), pos, 2);
	}
	test_read_end(f.fd);
	pthread_join(f.thread, NULL);
	close(f.fd);
	test_sync(g, a.report, 3);
	test_teardown(&a);
}

int main(void)
{
	gpunet_t *g;

	test_begin(60);
	g = test_open(NULL);
	CHECK_EQ(GPUNET_PREPARE(accept_kernel), 0);
	CHECK_EQ(GPUNET_PREPARE(hand_kernel), 0);
	for (int kind = TEST_TCP; kind < TEST_KINDS; kind++) {
		if (kind == TEST_TCP6)
			continue;
		run_accept(g, (enum test_kind)kind);
		run_hand_over(g, (enum test_kind)kind);
	}
	test_close(g);
	return 0;
}
