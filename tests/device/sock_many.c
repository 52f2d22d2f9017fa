/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Far more open connections than ring segments: 400 idle ones on a slab of eight segments; each
 * of them then moves bytes, one after the other and all at once.
 */
#include <sys/resource.h>

#include "test.h"

#define CLIENTS 400
#define BYTES 6000u

/* Each block keeps the connections that it accepted: descriptors in its buffer. */
GNET_DEV int keep_many(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int *fds = (int *)buf, listener, fd;
	uint8_t *data = buf + CLIENTS * sizeof(int);

	K_GET(r, listener, test_k_listen(a->net, a->want, a->where, CLIENTS));
	for (int i = 0; i < CLIENTS; i++) {
		K_GET(r, fd, gaccept(a->net, listener, NULL, NULL));
		if (threadIdx.x == 0)
			fds[i] = fd;
		__syncthreads();
	}
	for (int round = 0; round < 2; round++) {
		/* Small ones: a status line each. */
		for (int i = CLIENTS - 1; i >= 0; i--) {
			K_EQ(r, grecv(a->net, fds[i], data, 9, GNET_MSG_WAITALL), 9);
			K_EQ(r, gsend(a->net, fds[i], data, 9, 0), 9);
		}
		/* Larger ones: everybody wants a segment. */
		for (int i = 0; i < CLIENTS; i++) {
			K_EQ(r, grecv(a->net, fds[i], data, BYTES, GNET_MSG_WAITALL), BYTES);
			K_EQ(r, test_k_wrong(data, BYTES, 0, (uint32_t)round), 0);
			K_EQ(r, gsend(a->net, fds[i], data, BYTES, 0), BYTES);
		}
	}
	for (int i = 0; i < CLIENTS; i++)
		K_EQ(r, gclose(a->net, fds[i]), 0);
	K_EQ(r, gclose(a->net, listener), 0);
	return 0;
}

TEST_KERNEL(many_kernel, keep_many)

static void run(gpunet_t *g, enum test_kind kind)
{
	struct test_args a = test_setup(g, kind, 1, CLIENTS * sizeof(int) + BYTES);
	uint8_t data[BYTES];
	int fds[CLIENTS];

	TEST_LAUNCH(g, many_kernel, a, 1, 64);
	test_addr_wait(a.where, a.report);
	for (int i = 0; i < CLIENTS; i++)
		fds[i] = test_connect(a.where);
	for (uint32_t round = 0; round < 2; round++) {
		for (int i = 0; i < CLIENTS; i++) {
			snprintf((char *)data, sizeof(data), "%08d", i);
			test_write(fds[i], data, 9);
		}
		for (int i = 0; i < CLIENTS; i++) {
			test_read(fds[i], data, 9);
			CHECK_EQ(atoi((char *)data), i);
		}
		for (int i = 0; i < CLIENTS; i++) {
			test_pattern(data, BYTES, 0, round);
			test_write(fds[i], data, BYTES);
		}
		for (int i = 0; i < CLIENTS; i++) {
			test_read(fds[i], data, BYTES);
			test_pattern_check(data, BYTES, 0, round);
		}
	}
	for (int i = 0; i < CLIENTS; i++) {
		test_read_end(fds[i]);
		close(fds[i]);
	}
	test_sync(g, a.report, 1);
	test_teardown(&a);
}

int main(void)
{
	struct gpunet_options opt = GPUNET_OPTIONS_INIT;
	struct rlimit files;
	gpunet_t *g;

	test_begin(60);
	CHECK_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
	files.rlim_cur = files.rlim_max;
	CHECK_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
	if (files.rlim_cur < 2 * CLIENTS + 100)
		test_skip("too few descriptors: ulimit -n");
	opt.segment_bytes = 16 << 10;
	opt.slab_bytes = 8 * (16 << 10);
	g = test_open(&opt);
	CHECK_EQ(GPUNET_PREPARE(many_kernel), 0);
	run(g, TEST_UNIX);
	run(g, TEST_TCP);
	test_close(g);
	return 0;
}
