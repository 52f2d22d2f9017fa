/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where the proxy's threads run: near the GPU, as far as the thread that opens the network may run there, which itself stays
 * as it was. The GPU is the stub's, on memory node 0, and /sys is a folder of the test's own.
 */
#include "cuda_stub.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include <gpunet/gpunet.h>

#include "platform/cuda/driver.h"
#include "platform/numa.h"

static char folder[] = "/tmp/gpn-sys-XXXXXX", list_file[300];
static cpu_set_t mine;
static struct cuda_stub stub;

static void say(const char *text)
{
	FILE *f = fopen(list_file, "w");

	assert_non_null(f);
	assert_int_equal(fputs(text, f) < 0, 0);
	assert_int_equal(fclose(f), 0);
}

static int make_sys(void **state)
{
	static const char *const parts[] = { "/devices", "/system", "/node", "/node0" };
	char path[200];
	unsigned i;

	(void)state;
	if (!mkdtemp(folder) || sched_getaffinity(0, sizeof(mine), &mine))
		return -1;
	snprintf(path, sizeof(path), "%s", folder);
	for (i = 0; i < 4; i++) {
		strcat(path, parts[i]);
		if (mkdir(path, 0700))
			return -1;
	}
	snprintf(list_file, sizeof(list_file), "%s/cpulist", path);
	numa_sys = folder;
	return 0;
}

static int remove_sys(void **state)
{
	char path[300];

	(void)state;
	unlink(list_file);
	for (snprintf(path, sizeof(path), "%s", list_file); strlen(path) > strlen(folder);) {
		*strrchr(path, '/') = '\0';
		rmdir(path);
	}
	return 0;
}

/* The n-th processor that the test may use, or -1. */
static int processor(int n)
{
	int cpu;

	for (cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (CPU_ISSET(cpu, &mine) && !n--)
			return cpu;
	}
	return -1;
}

static void lists_are_read(void **state)
{
	int first = processor(0), second = processor(1);
	char text[100];
	cpu_set_t got;

	(void)state;
	snprintf(text, sizeof(text), "%d\n", first);
	say(text);
	assert_int_equal(numa_cpus(0, &got), 0);
	assert_true(CPU_COUNT(&got) == 1 && CPU_ISSET(first, &got));
	/* All there are, and many that are not. */
	say("0-4095,5000,6000-6001\n");
	assert_int_equal(numa_cpus(0, &got), 0);
	assert_true(CPU_EQUAL(&got, &mine));
	if (second >= 0) {
		snprintf(text, sizeof(text), "%d-%d,%d\n", second, second, second);
		say(text);
		assert_int_equal(numa_cpus(0, &got), 0);
		assert_true(CPU_COUNT(&got) == 1 && CPU_ISSET(second, &got));
	}
}

static void what_is_no_list_is_no_node(void **state)
{
	static const char *const wrong[] = { "", "\n", "x", "1-", "3-1", "-", "1;2", "1023" };
	cpu_set_t got;
	unsigned i;

	(void)state;
	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		if (i == 7 && CPU_ISSET(1023, &mine))
			continue;
		say(wrong[i]);
		assert_int_equal(numa_cpus(0, &got), -ENOENT);
	}
	assert_int_equal(numa_cpus(1, &got), -ENOENT);
	assert_int_equal(numa_cpus(-1, &got), -ENOENT);
}

/* How many of the process's threads, the test's own left out, may run on exactly these. */
static int threads_on(const cpu_set_t *want)
{
	DIR *d = opendir("/proc/self/task");
	struct dirent *e;
	int n = 0;

	assert_non_null(d);
	while ((e = readdir(d))) {
		cpu_set_t is;
		int tid = atoi(e->d_name);

		if (tid > 0 && tid != getpid() && !sched_getaffinity(tid, sizeof(is), &is))
			n += CPU_EQUAL(&is, want) != 0;
	}
	closedir(d);
	return n;
}

/* Opens a network of two threads, which have a sentinel, and counts those that are on `want`. */
static int opened_on(const cpu_set_t *want)
{
	struct gpunet_options o = GPUNET_OPTIONS_INIT;
	gpunet_t *g = NULL;
	cpu_set_t now;
	int n;

	o.device = "cuda";
	o.proxy_threads = 2;
	assert_int_equal(gpunet_open(&g, &o), 0);
	n = threads_on(want);
	assert_int_equal(sched_getaffinity(0, sizeof(now), &now), 0);
	assert_true(CPU_EQUAL(&now, &mine));
	assert_int_equal(gpunet_close(g, 10000), 0);
	return n;
}

static void threads_run_near_the_gpu(void **state)
{
	cpu_set_t last;
	char text[32];
	int cpu = processor(CPU_COUNT(&mine) - 1);

	(void)state;
	if (CPU_COUNT(&mine) < 2)
		skip();
	snprintf(text, sizeof(text), "%d\n", cpu);
	say(text);
	CPU_ZERO(&last);
	CPU_SET(cpu, &last);
	assert_int_equal(opened_on(&last), 3);
	/* A node whose processors the program must not use: wherever the program may. */
	say("1022-1023\n");
	if (!CPU_ISSET(1022, &mine) && !CPU_ISSET(1023, &mine))
		assert_true(opened_on(&mine) >= 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lists_are_read),
		cmocka_unit_test(what_is_no_list_is_no_node),
		cmocka_unit_test(threads_run_near_the_gpu),
	};

	if (!cuda_stub_use(&stub, STUB))
		return 1;
	return cmocka_run_group_tests(tests, make_sys, remove_sys);
}
