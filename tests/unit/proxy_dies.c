/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A proxy thread that cannot go on: kernels' waits end with -EIO, and the host is not kept waiting
 * for sockets that nobody serves any more. What does wait, waits longer than the test may take.
 */
#include "../device/test.h"

#include "base/log.h"
#include "base/sys.h"

#define LONGER 600000

static int broken;

static int breaking_epoll_wait(int epfd, struct epoll_event *ev, int max, int64_t timeout_ns)
{
	if (__atomic_load_n(&broken, __ATOMIC_ACQUIRE))
		return -EBADF;
	return sys_real.epoll_wait(epfd, ev, max, timeout_ns < 0 ? 1000000 : timeout_ns);
}

/* Leaves a listener and a connection open, with bytes that the peer does not take. */
GNET_DEV int stuck(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	__shared__ struct gnet_pollfd p;
	int listener, fd;
	int64_t n;

	K_GET(r, listener, test_k_listen(a->net, a->want, a->where, 1));
	K_GET(r, fd, gaccept(a->net, listener, NULL, NULL));
	if (threadIdx.x == 0) {
		p.fd = fd;
		p.events = GNET_POLLOUT;
	}
	do { /* what the socket takes a little later would leave nothing unsent */
		do
			n = gsend(a->net, fd, buf, a->room, GNET_MSG_DONTWAIT);
		while (n > 0);
		K_EQ(r, n, -EAGAIN);
		K_GET(r, n, gpoll(a->net, &p, 1, 300000000));
	} while (n > 0);
	test_k_set(&a->word[0], 1);
	K_EQ(r, gaccept(a->net, listener, NULL, NULL), -EIO);
	do
		n = gsend(a->net, fd, buf, a->room, 0);
	while (n > 0);
	K_EQ(r, n, -EIO);
	return 0;
}

TEST_KERNEL(stuck_kernel, stuck)

int main(void)
{
	struct gpunet_options opt = GPUNET_OPTIONS_INIT;
	struct test_args a;
	gpunet_t *g;
	int fd;

	test_begin(60);
	sys.epoll_wait = breaking_epoll_wait;
	opt.linger_ms = LONGER;
	g = test_open(&opt);
	a = test_setup(g, TEST_TCP, 1, 64 << 10);
	TEST_LAUNCH(g, stuck_kernel, a, 1, 32);
	test_addr_wait(a.where, a.report);
	fd = test_connect(a.where);
	test_word_wait(&a.word[0], 1, a.report);
	__atomic_store_n(&broken, 1, __ATOMIC_RELEASE);
	test_sync(g, a.report, 1);
	CHECK_EQ(gpunet_drain(g, LONGER), -EIO);
	CHECK_EQ(gpunet_close(g, LONGER), 0);
	close(fd);
	test_teardown(&a);
	return 0;
}
