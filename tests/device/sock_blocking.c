/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Under CUDA_LAUNCH_BLOCKING=1 a launch returns when its kernel has ended. Launched from a thread of its own the kernel serves as ever, host
 * calls from other threads go on meanwhile, and an abort ends it. On the CPU device the variable means nothing.
 */
#include "test.h"

struct server {
	gpunet_t *g;
	struct test_args a;
};

GNET_DEV int serve(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int listener, fd = 0, rc = 0;
	int64_t n;

	K_GET(r, listener, test_k_listen(a->net, a->want, a->where, 16));
	while (!rc && (fd = gaccept(a->net, listener, NULL, NULL)) >= 0) {
		while ((n = grecv(a->net, fd, buf, a->room, 0)) > 0)
			K_EQ(r, gsend(a->net, fd, buf, (uint64_t)n, 0), n);
		rc = gclose(a->net, fd); /* the abort may come before its answer */
	}
	K_EQ(r, rc ? rc : fd, -ECANCELED);
	return 0;
}

TEST_KERNEL(serve_kernel, serve)

static void *launches(void *arg)
{
	struct server *s = (struct server *)arg;

	TEST_LAUNCH(s->g, serve_kernel, s->a, 1, 64);
	return NULL;
}

static int seen(const struct gpunet_check *c, void *count)
{
	CHECK(c->name && c->detail && c->remedy);
	++*(int *)count;
	return 0;
}

int main(void)
{
	struct gpunet_stats stats;
	int checks = 0;
	struct server s;
	uint8_t data[3000];
	pthread_t t;

	setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
	test_begin(60);
	s.g = test_open(NULL);
	CHECK_EQ(GPUNET_PREPARE(serve_kernel), 0);
	s.a = test_setup(s.g, TEST_TCP, 1, 4096);
	CHECK_EQ(pthread_create(&t, NULL, launches, &s), 0);
	test_addr_wait(s.a.where, s.a.report);
	for (uint32_t i = 0; i < 20; i++) {
		int fd = test_connect(s.a.where);

		test_pattern(data, sizeof(data), i, 2);
		test_write(fd, data, sizeof(data));
		memset(data, 0, sizeof(data));
		test_read(fd, data, sizeof(data));
		test_pattern_check(data, sizeof(data), i, 2);
		close(fd);
		memset(&stats, 0, sizeof(stats));
		stats.size = sizeof(stats);
		CHECK_EQ(gpunet_get_stats(s.g, &stats), 0);
		CHECK_EQ(gpunet_sync(s.g, 1), -ETIMEDOUT);
		CHECK_EQ(gpunet_drain(s.g, 5000 * TEST_SLOW), 0);
	}
	CHECK_EQ(gpunet_doctor(seen, &checks), 0);
	CHECK(checks > 0);
	gpunet_abort(s.g);
	pthread_join(t, NULL);
	test_sync(s.g, s.a.report, 1);
	test_close(s.g);
	test_teardown(&s.a);
	return 0;
}
