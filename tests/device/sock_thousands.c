/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ten thousand sockets open at once: none of them has a ring while it is idle, each costs at most 1 KiB of pinned memory, all of
 * them work, and all are gone in the end. UNIX sockets: of TCP's ports so many would take those that other tests bind again.
 */
#include "test.h"

#include <sys/resource.h>

#define SIDES 4 /* blocks that accept, and as many that connect */

enum { OPEN, GO_ON };

GNET_DEV int *kept(struct test_args *a)
{
	return (int *)(void *)(a->buf + a->room * blockIdx.x);
}

GNET_DEV void keep(struct test_args *a, uint64_t i, int fd)
{
	if (test_k_tid() == 0)
		kept(a)[i] = fd;
}

GNET_DEV int open_all(struct test_args *a, struct test_report *r)
{
	int fd, listener = -1;

	if (blockIdx.x == 0) {
		K_GET(r, listener, test_k_listen(a->net, a->want, a->where, 512));
		if (test_k_tid() == 0)
			gnet_dev_store_release((uint64_t *)a->dword, (uint64_t)listener + 1);
	}
	test_k_wait(&a->where->ready, 1);
	listener = (int)gnet_dev_load_acquire((uint64_t *)a->dword) - 1;
	for (uint64_t i = 0; i < a->n; i++) {
		if (blockIdx.x < SIDES)
			fd = gaccept(a->net, listener, NULL, NULL);
		else
			fd = test_k_connect(a->net, a->where);
		K_GET(r, fd, fd);
		keep(a, i, fd);
	}
	__syncthreads();
	return 0;
}

GNET_DEV int use_all(struct test_args *a, struct test_report *r, uint8_t *byte)
{
	for (uint64_t i = 0; i < a->n && blockIdx.x >= SIDES; i++) {
		test_k_pattern(byte, 20, i, blockIdx.x);
		K_EQ(r, gsend(a->net, kept(a)[i], byte, 20, 0), 20);
	}
	for (uint64_t i = 0; i < a->n; i++) {
		K_EQ(r, grecv(a->net, kept(a)[i], byte, 20, GNET_MSG_WAITALL), 20);
		if (blockIdx.x < SIDES)
			K_EQ(r, gsend(a->net, kept(a)[i], byte, 20, 0), 20);
		else
			K_EQ(r, test_k_wrong(byte, 20, i, blockIdx.x), 0);
	}
	return 0;
}

GNET_DEV int thousands(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	K_CALL(open_all(a, r));
	if (test_k_tid() == 0)
		gnet_dev_add((uint64_t *)&a->dword[1], 1);
	if (blockIdx.x == 0) {
		if (test_k_tid() == 0)
			while (gnet_dev_load((uint64_t *)&a->dword[1]) < 2 * SIDES)
				__nanosleep(20000);
		test_k_set(&a->word[OPEN], 1);
	}
	test_k_wait(&a->word[GO_ON], 1);
	K_CALL(use_all(a, r, buf + a->room - 64));
	for (uint64_t i = 0; i < a->n; i++)
		K_EQ(r, gclose(a->net, kept(a)[i]), 0);
	if (blockIdx.x == 0)
		K_EQ(r, gclose(a->net, (int)gnet_dev_load((uint64_t *)a->dword) - 1), 0);
	return 0;
}

TEST_KERNEL(thousands_kernel, thousands)

static struct gpunet_stats stats(gpunet_t *g)
{
	struct gpunet_stats s;

	memset(&s, 0, sizeof(s));
	s.size = sizeof(s);
	CHECK_EQ(gpunet_get_stats(g, &s), 0);
	return s;
}

static uint64_t pinned(unsigned max_sockets)
{
	struct gpunet_options opt = GPUNET_OPTIONS_INIT;
	gpunet_t *g;
	uint64_t n;

	opt.max_sockets = max_sockets;
	g = test_open(&opt);
	n = stats(g).pinned_bytes;
	test_close(g);
	return n;
}

static void run(unsigned each, unsigned proxy_threads)
{
	struct gpunet_options opt = GPUNET_OPTIONS_INIT;
	uint64_t all = (uint64_t)2 * SIDES * each;
	struct test_args a;
	gpunet_t *g;

	opt.max_sockets = (unsigned)all + 16;
	opt.proxy_threads = proxy_threads;
	g = test_open(&opt);
	a = test_setup(g, TEST_UNIX, 2 * SIDES, each * sizeof(int) + 64);
	a.n = each;
	TEST_LAUNCH(g, thousands_kernel, a, 2 * SIDES, 32);
	test_word_wait(&a.word[OPEN], 1, a.report);
	CHECK_EQ(stats(g).sockets, all + 1);
	CHECK_EQ(stats(g).slab_segments_used, 0);
	test_word_set(&a.word[GO_ON], 1);
	test_sync(g, a.report, 2 * SIDES);
	CHECK_EQ(gpunet_drain(g, 20000), 0);
	CHECK_EQ(stats(g).sockets, 0);
	test_close(g);
	test_teardown(&a);
}

int main(void)
{
	unsigned each = 10000 / 2 / SIDES / TEST_SLOW;
	rlim_t needed = 2 * SIDES * each + 200;
	struct rlimit l;
	uint64_t a_socket;

	test_begin(100);
	test_need_device();
	CHECK_EQ(GPUNET_PREPARE(thousands_kernel), 0);
	CHECK_EQ(getrlimit(RLIMIT_NOFILE, &l), 0);
	if (l.rlim_max < needed)
		test_skip("the hard limit of descriptors (ulimit -Hn) is below 10,200");
	l.rlim_cur = l.rlim_cur < needed ? needed : l.rlim_cur;
	CHECK_EQ(setrlimit(RLIMIT_NOFILE, &l), 0);
	a_socket = (pinned(1024 + 10240) - pinned(1024)) / 10240;
	fprintf(stderr, "%llu bytes of pinned memory a socket\n", (unsigned long long)a_socket);
	CHECK(a_socket > 0 && a_socket <= 1024);
	run(each, 1);
	run(each, 4);
	return 0;
}
