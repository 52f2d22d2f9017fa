/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every allocation and every system call of gpunet_open fails in turn, and then all of them from
 * there on. The error is returned and said in words, the result is untouched, and nothing is left:
 * no memory, no mapping, no descriptor, no thread.
 */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <gpunet/gpunet.h>
#include <gpunet/stat.h>

#include "base/sys.h"

/* Calls are counted while armed; number `fail_at` fails, with `all_later` those after it, too. */
static _Atomic int armed;
static _Atomic unsigned count;
static unsigned fail_at;
static int all_later;
static _Atomic long blocks, mappings;

static int fails(void)
{
	unsigned n;

	if (!atomic_load(&armed))
		return 0;
	n = atomic_fetch_add(&count, 1) + 1;
	return n == fail_at || (all_later && n > fail_at);
}

static void *counted_alloc(size_t size)
{
	void *p = fails() ? NULL : sys_real.alloc(size);

	if (p)
		atomic_fetch_add(&blocks, 1);
	return p;
}

static void counted_free(void *p)
{
	if (p)
		atomic_fetch_sub(&blocks, 1);
	sys_real.free(p);
}

static void *counted_map(size_t size)
{
	void *p = fails() ? NULL : sys_real.map(size);

	if (p)
		atomic_fetch_add(&mappings, 1);
	return p;
}

static int no_stat;

static void *counted_map_fd(const char *name, size_t size, int *fd)
{
	/* Without its page a network opens all the same. */
	int fail = strcmp(name, GPUNET_STAT_NAME) == 0 ? no_stat : fails();
	void *p = fail ? NULL : sys_real.map_fd(name, size, fd);

	if (p)
		atomic_fetch_add(&mappings, 1);
	return p;
}

static void counted_unmap(void *p, size_t size)
{
	atomic_fetch_sub(&mappings, 1);
	sys_real.unmap(p, size);
}

static int failing_epoll_create(void)
{
	return fails() ? -EMFILE : sys_real.epoll_create();
}

static int failing_epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
	return fails() ? -ENOSPC : sys_real.epoll_ctl(epfd, op, fd, ev);
}

static int failing_eventfd(void)
{
	return fails() ? -ENFILE : sys_real.eventfd();
}

static int failing_thread_start(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *),
				void *arg)
{
	return fails() ? -EAGAIN : sys_real.thread_start(t, a, fn, arg);
}

static int entries(const char *folder)
{
	DIR *d = opendir(folder);
	int n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* A joined thread's entry may stay for a moment: until the system has cleaned up behind it. */
static int threads(int expected)
{
	const struct timespec ms = { 0, 1000000 };
	int n = entries("/proc/self/task");

	for (int i = 0; i < 20000 && n > expected; i++) {
		nanosleep(&ms, NULL);
		n = entries("/proc/self/task");
	}
	return n;
}

static struct gpunet_options options(void)
{
	struct gpunet_options o = GPUNET_OPTIONS_INIT;

	o.device = "cpu";
	o.proxy_threads = 3;
	o.max_sockets = 64;
	o.slab_bytes = 1 << 20;
	return o;
}

/* One gpunet_open with the n-th call failing: its result. */
static int open_with(unsigned n, int later, gpunet_t **g)
{
	const struct gpunet_options o = options();
	int rc;

	fail_at = n;
	all_later = later;
	atomic_store(&count, 0);
	atomic_store(&armed, 1);
	rc = gpunet_open(g, &o);
	atomic_store(&armed, 0);
	return rc;
}

static void each_call_fails(int later)
{
	gpunet_t *const untouched = (gpunet_t *)(uintptr_t)0x1234560;
	int fds = entries("/proc/self/fd"), tasks = entries("/proc/self/task"), rc = -1;
	gpunet_t *g = untouched;
	unsigned n;

	assert_int_equal(atomic_load(&blocks), 0);
	for (n = 1; n < 1000; n++) {
		rc = open_with(n, later, &g);
		if (rc == 0)
			break;
		assert_in_range(-rc, 1, 200);
		assert_ptr_equal(g, untouched);
		assert_true(gpunet_last_error()[0] != 0);
		assert_int_equal(atomic_load(&blocks), 0);
		assert_int_equal(atomic_load(&mappings), 0);
		assert_int_equal(entries("/proc/self/fd"), fds);
		assert_int_equal(threads(tasks), tasks);
	}
	/* Number n was one more than there are calls, so it is the first that succeeds. */
	assert_int_equal(rc, 0);
	assert_int_equal(n, atomic_load(&count) + 1);
	assert_true(n > 15);
	assert_int_equal(gpunet_close(g, 10000), 0);
	assert_int_equal(atomic_load(&blocks), 0);
	assert_int_equal(atomic_load(&mappings), 0);
	assert_int_equal(entries("/proc/self/fd"), fds);
	assert_int_equal(threads(tasks), tasks);
}

static void one_call_fails(void **state)
{
	(void)state;
	each_call_fails(0);
}

static void all_later_calls_fail(void **state)
{
	(void)state;
	each_call_fails(1);
}

static void opens_without_a_stat_page(void **state)
{
	int fds = entries("/proc/self/fd");
	gpunet_t *g;

	(void)state;
	no_stat = 1;
	assert_int_equal(open_with(0, 0, &g), 0);
	no_stat = 0;
	assert_int_equal(gpunet_close(g, 10000), 0);
	assert_int_equal(atomic_load(&mappings), 0);
	assert_int_equal(entries("/proc/self/fd"), fds);
}

static unsigned asked;

static int forbidden_ring(struct sys_ring **out)
{
	(void)out;
	asked++;
	return -EPERM;
}

/* Whether the option asks for it or not; one thread is told, and so says it, once. */
static void opens_without_a_ring(void **state)
{
	const char *const engines[] = { "auto", "io_uring", "epoll" };
	unsigned i;
	gpunet_t *g;

	(void)state;
	sys.ring_open = forbidden_ring;
	for (i = 0; i < 3; i++) {
		asked = 0;
		setenv("GPUNET_ENGINE", engines[i], 1);
		assert_int_equal(open_with(0, 0, &g), 0);
		assert_int_equal(gpunet_close(g, 10000), 0);
		assert_int_equal(asked, i < 2);
	}
	setenv("GPUNET_ENGINE", "uring", 1);
	assert_int_equal(open_with(0, 0, &g), -EINVAL);
	unsetenv("GPUNET_ENGINE");
	sys.ring_open = sys_real.ring_open;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_call_fails),
		cmocka_unit_test(all_later_calls_fail),
		cmocka_unit_test(opens_without_a_stat_page),
		cmocka_unit_test(opens_without_a_ring),
	};
	gpunet_t *g = NULL;

	sys.alloc = counted_alloc;
	sys.free = counted_free;
	sys.map = counted_map;
	sys.map_fd = counted_map_fd;
	sys.unmap = counted_unmap;
	sys.epoll_create = failing_epoll_create;
	sys.epoll_ctl = failing_epoll_ctl;
	sys.eventfd = failing_eventfd;
	sys.thread_start = failing_thread_start;
	/* What stays after a first time, as a sanitizer's own thread does, is no leak. */
	if (open_with(0, 0, &g) != 0 || gpunet_close(g, 10000) != 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
