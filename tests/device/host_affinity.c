/* SPDX-License-Identifier: BSD-3-Clause */
/* The processors that the caller's thread may run on are its own business: as they were, whatever the library does. */
#include "test.h"

#include <sched.h>

GNET_DEV int one(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int fd;

	K_GET(r, fd, gsocket(a->net, GNET_AF_UNIX, GNET_SOCK_STREAM, 0));
	K_EQ(r, gclose(a->net, fd), 0);
	return 0;
}

TEST_KERNEL(one_kernel, one)

static void same(const cpu_set_t *before)
{
	cpu_set_t now;

	CPU_ZERO(&now);
	CHECK_EQ(sched_getaffinity(0, sizeof(now), &now), 0);
	CHECK(CPU_EQUAL(before, &now));
}

static void use(void)
{
	struct gpunet_options opt = GPUNET_OPTIONS_INIT;
	struct test_args a;
	cpu_set_t before;
	gpunet_t *g;

	CPU_ZERO(&before);
	CHECK_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
	opt.proxy_threads = 2;
	g = test_open(&opt);
	same(&before);
	a = test_setup(g, TEST_UNIX, 1, 64);
	TEST_LAUNCH(g, one_kernel, a, 1, 32);
	same(&before);
	test_sync(g, a.report, 1);
	same(&before);
	test_close(g);
	same(&before);
	test_teardown(&a);
}

int main(void)
{
	cpu_set_t all, single;
	int cpu;

	test_begin(60);
	test_need_device();
	CHECK_EQ(GPUNET_PREPARE(one_kernel), 0);
	CPU_ZERO(&all);
	CHECK_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
	use();
	CPU_ZERO(&single);
	for (cpu = CPU_SETSIZE - 1; !CPU_ISSET(cpu, &all); cpu--)
		continue;
	CPU_SET(cpu, &single);
	CHECK_EQ(sched_setaffinity(0, sizeof(single), &single), 0);
	use();
	return 0;
}
