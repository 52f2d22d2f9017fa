/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * 10,000 sockets made and closed, 2,000 connections, and whole networks opened and closed: the
 * process has as many descriptors and threads afterwards as before, and no socket is left.
 */
#include <dirent.h>

#include "test.h"

enum { AT, GO };

static unsigned entries(const char *folder)
{
	DIR *d = opendir(folder);
	unsigned n = 0;

	CHECK(d != NULL);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

GNET_DEV int open_close(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int listener, client, server, fd;

	for (uint64_t i = 0; i < a->n; i++) {
		K_GET(r, fd,
		      gsocket(a->net, i % 3 == 0 ? GNET_AF_UNIX : GNET_AF_INET, GNET_SOCK_STREAM,
			      0));
		K_EQ(r, gclose(a->net, fd), 0);
	}
	K_GET(r, listener, test_k_listen(a->net, a->want, a->where, 5));
	for (uint64_t i = 0; i < a->n / 5; i++) {
		K_GET(r, client, test_k_connect(a->net, a->where));
		K_GET(r, server, gaccept(a->net, listener, NULL, NULL));
		if (i % 2)
			K_EQ(r, gsend(a->net, client, buf, 300, 0), 300);
		if (i % 4 == 1)
			K_EQ(r, grecv(a->net, server, buf, 300, GNET_MSG_WAITALL), 300);
		K_EQ(r, gclose(a->net, client), 0);
		K_EQ(r, gclose(a->net, server), 0);
	}
	K_EQ(r, gclose(a->net, listener), 0);
	return 0;
}

TEST_KERNEL(reopen_kernel, open_close)

static void run(gpunet_t *g, enum test_kind kind, unsigned n)
{
	struct test_args a = test_setup(g, kind, 1, 4096);
	unsigned before = entries("/proc/self/fd");
	struct gpunet_stats s;

	a.n = n;
	TEST_LAUNCH(g, reopen_kernel, a, 1, 32);
	test_sync(g, a.report, 1);
	CHECK_EQ(gpunet_drain(g, 10000 * TEST_SLOW), 0);
	CHECK_EQ(entries("/proc/self/fd"), before);
	memset(&s, 0, sizeof(s));
	s.size = sizeof(s);
	CHECK_EQ(gpunet_get_stats(g, &s), 0);
	CHECK_EQ(s.sockets, 0);
	CHECK_EQ(s.slab_segments_used, 0);
	test_teardown(&a);
}

int main(void)
{
	unsigned fds = 0, threads = 0, rounds = test_rounds(20, 200);
	gpunet_t *g;

	test_begin(100);
	g = test_open(NULL);
	CHECK_EQ(GPUNET_PREPARE(reopen_kernel), 0);
	run(g, TEST_UNIX, test_rounds(10000, 10000));
	run(g, TEST_TCP, test_rounds(10000, 10000));
	test_close(g);
	/* The device's own descriptors may stay after its first use; they must not grow. */
	for (unsigned i = 0; i < rounds; i++) {
		g = test_open(NULL);
		if (i % 2)
			run(g, TEST_UNIX, 5);
		test_close(g);
		if (i == 1) {
			fds = entries("/proc/self/fd");
			threads = entries("/proc/self/task");
		}
	}
	if (rounds > 2) {
		CHECK_EQ(entries("/proc/self/fd"), fds);
		/* A thread that has been joined may stand there for a moment yet. */
		for (unsigned ms = 0; ms < 10000 && entries("/proc/self/task") > threads; ms++)
			usleep(1000);
		CHECK(entries("/proc/self/task") <= threads);
	}
	return 0;
}
