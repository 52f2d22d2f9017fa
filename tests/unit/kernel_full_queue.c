/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A submission queue that stays full, since the proxy's thread does not come back from a system call, and in the end dies there: a
 * kernel's call that needs an entry ends with an error, also where everything but the entry was done. The test's
 * thread is the kernel.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include <gpunet/dev/socket.h>
#include <gpunet/gpunet.h>

#include "base/sys.h"

#define ENTRIES 64
#define LARGE 2000

static int held, holds, dies;

static int held_epoll_wait(int epfd, struct epoll_event *ev, int max, int64_t timeout_ns)
{
	while (__atomic_load_n(&held, __ATOMIC_ACQUIRE)) {
		__atomic_store_n(&holds, 1, __ATOMIC_RELEASE);
		usleep(1000);
	}
	if (__atomic_load_n(&dies, __ATOMIC_ACQUIRE))
		return -EBADF;
	return sys_real.epoll_wait(epfd, ev, max, timeout_ns);
}

/* The proxy's thread stops between two passes, with nothing left to do. */
static void hold(gpunet_t *g, gnet_t *n, int fd)
{
	char c = 'x';

	assert_int_equal(gpunet_drain(g, 10000), 0);
	__atomic_store_n(&held, 1, __ATOMIC_RELEASE);
	assert_int_equal(gsend(n, fd, &c, 1, 0), 1); /* wakes it */
	while (!__atomic_load_n(&holds, __ATOMIC_ACQUIRE))
		usleep(1000);
}

static void *ends_the_proxy(void *arg)
{
	usleep(50000);
	__atomic_store_n(&dies, 1, __ATOMIC_RELEASE);
	__atomic_store_n(&held, 0, __ATOMIC_RELEASE);
	return arg;
}

/* A connected socket of a kernel; nobody reads at the other end. */
static int connected(gnet_t *n, int type, int *host)
{
	struct sockaddr_in a = { .sin_family = AF_INET };
	socklen_t len = sizeof(a);
	int fd;

	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	*host = socket(AF_INET, type, 0);
	assert_int_equal(bind(*host, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(getsockname(*host, (struct sockaddr *)&a, &len), 0);
	if (type == SOCK_STREAM)
		assert_int_equal(listen(*host, 1), 0);
	fd = gsocket(n, GNET_AF_INET, type, 0);
	assert_true(fd >= 0);
	assert_int_equal(gconnect(n, fd, &a, sizeof(a)), 0);
	return fd;
}

static void what_has_no_entry_is_not_sent(int type)
{
	struct gpunet_options o = GPUNET_OPTIONS_INIT;
	static uint8_t bytes[LARGE];
	gpunet_t *g = NULL;
	pthread_t t;
	gnet_t *n;
	int fd, host, i;

	held = holds = dies = 0;
	o.device = "cpu";
	o.queue_entries = ENTRIES;
	assert_int_equal(gpunet_open(&g, &o), 0);
	n = gpunet_device(g);
	fd = connected(n, type, &host);
	/* Its ring is there from now on, so that the next one needs nothing but an entry. */
	assert_int_equal(gsend(n, fd, bytes, LARGE, 0), LARGE);
	hold(g, n, fd);
	/* One entry more or less is the proxy's to take before it is held. */
	for (i = 0; i < ENTRIES &&
		    gnet_sys_load(&n->sq_head[0].pos) + ENTRIES > gnet_dev_load(&n->sqd[0].tail);
	     i++)
		assert_int_equal(gsend(n, fd, bytes, 1, 0), 1);
	assert_int_equal(pthread_create(&t, NULL, ends_the_proxy, NULL), 0);
	assert_int_equal(gsend(n, fd, bytes, LARGE, 0), -EIO);
	assert_int_equal(pthread_join(t, NULL), 0);
	close(host);
	assert_int_equal(gpunet_close(g, 5000), 0);
}

static void a_datagram_whose_entry_is_not_to_be_had_is_not_sent(void **state)
{
	(void)state;
	what_has_no_entry_is_not_sent(SOCK_DGRAM);
}

static void bytes_whose_entry_is_not_to_be_had_are_not_sent(void **state)
{
	(void)state;
	what_has_no_entry_is_not_sent(SOCK_STREAM);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_datagram_whose_entry_is_not_to_be_had_is_not_sent),
		cmocka_unit_test(bytes_whose_entry_is_not_to_be_had_are_not_sent),
	};

	sys.epoll_wait = held_epoll_wait;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
