/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bulk both ways at once on one connection, two kernels with two blocks each: every byte in its
 * place. The rings wrap many times, reader and writer take turns at being the slower one.
 */
#include "test.h"

#define SEGMENT (32u << 10)

enum { FD_A, FD_B };

/* Blocks 0 and 1 own one end, 2 and 3 the other; even ones send, odd ones receive. */
GNET_DEV int end_of(struct test_args *a, struct test_report *r, int *fd)
{
	int end = (int)blockIdx.x / 2, listener;

	if (blockIdx.x == 0) {
		K_GET(r, listener, test_k_listen(a->net, a->want, a->where, 5));
		K_GET(r, *fd, gaccept(a->net, listener, NULL, NULL));
		K_EQ(r, gclose(a->net, listener), 0);
		test_k_set(&a->word[FD_A], (uint64_t)*fd + 1);
	} else if (blockIdx.x == 2) {
		K_GET(r, *fd, test_k_connect(a->net, a->where));
		test_k_set(&a->word[FD_B], (uint64_t)*fd + 1);
	}
	test_k_wait(&a->word[end ? FD_B : FD_A], 1);
	*fd = (int)gnet_sys_load_acquire(&a->word[end ? FD_B : FD_A]) - 1;
	return 0;
}

GNET_DEV int send_side(struct test_args *a, struct test_report *r, int fd, uint8_t *buf,
		       uint32_t key)
{
	uint64_t pos = 0;

	for (uint32_t i = 0; pos < a->n; i++) {
		uint64_t n = 1 + (uint64_t)i * 7919 % a->room;

		n = n < a->n - pos ? n : a->n - pos;
		test_k_pattern(buf, n, pos, key);
		K_EQ(r, gsend(a->net, fd, buf, n, 0), n);
		pos += n;
		if (i % 64 == 63 && i / 64 % 4 == 1)
			test_k_sleep(300);
	}
	K_EQ(r, gshutdown(a->net, fd, GNET_SHUT_WR), 0);
	return 0;
}

GNET_DEV int recv_side(struct test_args *a, struct test_report *r, int fd, uint8_t *buf,
		       uint32_t key)
{
	uint64_t pos = 0;

	for (uint32_t i = 0; pos < a->n; i++) {
		uint64_t n = 1 + (uint64_t)i * 6007 % a->room;

		n = n < a->n - pos ? n : a->n - pos;
		K_CALL(test_k_recv_all(r, a->net, fd, buf, n, n, pos, key));
		pos += n;
		if (i % 64 == 63 && i / 64 % 4 == 3)
			test_k_sleep(300);
	}
	K_EQ(r, grecv(a->net, fd, buf, 1, 0), 0);
	return 0;
}

GNET_DEV int stream(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	uint32_t end = blockIdx.x / 2;
	int fd;

	K_CALL(end_of(a, r, &fd));
	if (blockIdx.x % 2 == 0)
		K_CALL(send_side(a, r, fd, buf, end));
	else
		K_CALL(recv_side(a, r, fd, buf, !end));
	/* Whoever is last at this end closes it. */
	__syncthreads();
	if (threadIdx.x == 0)
		*(uint64_t *)buf = gnet_dev_add((uint64_t *)&a->dword[end], 1);
	__syncthreads();
	if (*(uint64_t *)buf == 1)
		K_EQ(r, gclose(a->net, fd), 0);
	return 0;
}

TEST_KERNEL(stream_kernel, stream)

static void run(gpunet_t *g, enum test_kind kind, unsigned threads)
{
	struct test_args a = test_setup(g, kind, 4, 24 << 10);

	a.n = test_rounds(16 << 20, 256 << 20);
	TEST_LAUNCH(g, stream_kernel, a, 4, threads);
	test_sync(g, a.report, 4);
	test_teardown(&a);
}

int main(void)
{
	struct gpunet_options opt = GPUNET_OPTIONS_INIT;
	gpunet_t *g;

	test_begin(100);
	opt.segment_bytes = SEGMENT;
	g = test_open(&opt);
	CHECK_EQ(GPUNET_PREPARE(stream_kernel), 0);
	run(g, TEST_TCP, 128);
	run(g, TEST_UNIX, 64);
	test_close(g);
	return 0;
}
