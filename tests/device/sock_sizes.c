/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kernel to kernel in one network: block 0 listens, block 1 connects. Messages of the sizes at
 * which something changes (one cell, one line, one ring) go there and back, from and to odd
 * addresses.
 */
#include "test.h"

#define SEGMENT (64u << 10)
#define BIGGEST (1u << 20)

static const uint32_t sizes[] = {
	0,
	1,
	2,
	6,
	7,
	8,
	15,
	104,
	105,
	106,
	111,
	112,
	113,
	209,
	210,
	211,
	1000,
	4095,
	4096,
	4097,
	5000,
	SEGMENT - 1,
	SEGMENT,
	SEGMENT + 1,
	SEGMENT * 2,
	SEGMENT + 7,
	BIGGEST - 13,
	BIGGEST,
	1,
	105,
	SEGMENT - 105,
	3,
};

#define COUNT (sizeof(sizes) / sizeof(sizes[0]))

/* The sizes as kernels see them lie in the words that the host fills: word 0 is not one of them. */
GNET_DEV int serve(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int listener, fd;

	K_GET(r, listener, test_k_listen(a->net, a->want, a->where, 5));
	K_GET(r, fd, gaccept(a->net, listener, NULL, NULL));
	for (uint32_t i = 0; i < COUNT; i++) {
		uint8_t *p = buf + i % 37;
		uint64_t n = a->word[1 + i];

		K_EQ(r, grecv(a->net, fd, p, n, GNET_MSG_WAITALL), n);
		K_EQ(r, test_k_wrong(p, n, i, i), 0);
		test_k_pattern(p, n, i, i + 1000);
		K_EQ(r, gsend(a->net, fd, p, n, 0), n);
	}
	K_EQ(r, grecv(a->net, fd, buf, 1, 0), 0);
	K_EQ(r, gclose(a->net, fd), 0);
	K_EQ(r, gclose(a->net, listener), 0);
	return 0;
}

GNET_DEV int ask(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int fd;

	K_GET(r, fd, test_k_connect(a->net, a->where));
	for (uint32_t i = 0; i < COUNT; i++) {
		uint8_t *p = buf + i % 29;
		uint64_t n = a->word[1 + i];

		test_k_pattern(p, n, i, i);
		K_EQ(r, gsend(a->net, fd, p, n, 0), n);
		K_EQ(r, grecv(a->net, fd, p, n, GNET_MSG_WAITALL), n);
		K_EQ(r, test_k_wrong(p, n, i, i + 1000), 0);
	}
	K_EQ(r, gclose(a->net, fd), 0);
	return 0;
}

GNET_DEV int both(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	return blockIdx.x == 0 ? serve(a, r, buf) : ask(a, r, buf);
}

TEST_KERNEL(sizes_kernel, both)

static void run(gpunet_t *g, enum test_kind kind, unsigned threads)
{
	struct test_args a = test_setup(g, kind, 2, BIGGEST + 64);

	for (unsigned i = 0; i < COUNT; i++)
		a.word[1 + i] = sizes[i];
	TEST_LAUNCH(g, sizes_kernel, a, 2, threads);
	test_sync(g, a.report, 2);
	test_teardown(&a);
}

int main(void)
{
	struct gpunet_options opt = GPUNET_OPTIONS_INIT;
	gpunet_t *g;

	test_begin(60);
	opt.segment_bytes = SEGMENT;
	g = test_open(&opt);
	CHECK_EQ(GPUNET_PREPARE(sizes_kernel), 0);
	run(g, TEST_TCP, 128);
	if (test_has_ipv6())
		run(g, TEST_TCP6, 32);
	run(g, TEST_UNIX, 256);
	run(g, TEST_ABSTRACT, 1);
	test_close(g);
	return 0;
}
