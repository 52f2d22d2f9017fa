/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Blocks of every size, also those that are no whole warps or several dimensions, serve a host
 * client.
 */
#include "test.h"

GNET_DEV int echo(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int listener, fd;

	K_GET(r, listener, test_k_listen(a->net, a->want, a->where, 5));
	K_GET(r, fd, gaccept(a->net, listener, NULL, NULL));
	K_CALL(test_k_echo(r, a->net, fd, buf, a->room));
	K_EQ(r, gclose(a->net, listener), 0);
	return 0;
}

TEST_KERNEL(block_kernel, echo)

static void run(gpunet_t *g, enum test_kind kind, unsigned x, unsigned y)
{
	static const size_t sizes[] = { 1, 6, 7, 8, 31, 105, 106, 300, 70000 };
	struct gpunet_grid grid = { 1, 1, 1, x, y, 1, 0 };
	struct test_args a = test_setup(g, kind, 1, 32 << 10);
	uint8_t *data = (uint8_t *)malloc(70000);
	int fd;

	CHECK(data != NULL);
	CHECK_EQ(GPUNET_LAUNCH(g, block_kernel, grid, a), 0);
	test_addr_wait(a.where, a.report);
	fd = test_connect(a.where);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		test_pattern(data, sizes[i], 0, i);
		test_write(fd, data, sizes[i]);
		memset(data, 0, sizes[i]);
		test_read(fd, data, sizes[i]);
		test_pattern_check(data, sizes[i], 0, i);
	}
	CHECK_EQ(shutdown(fd, SHUT_WR), 0);
	test_read_end(fd);
	close(fd);
	test_sync(g, a.report, 1);
	test_teardown(&a);
	free(data);
}

int main(void)
{
	static const unsigned sizes[] = { 1, 7, 16, 31, 32, 33, 64, 256, 1000, 1024 };
	gpunet_t *g;

	test_begin(60);
	g = test_open(NULL);
	CHECK_EQ(GPUNET_PREPARE(block_kernel), 0);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		run(g, TEST_TCP, sizes[i], 1);
		run(g, TEST_UNIX, sizes[i], 1);
	}
	run(g, TEST_TCP, 16, 6);
	run(g, TEST_TCP, 5, 9);
	test_close(g);
	return 0;
}
