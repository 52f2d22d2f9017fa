/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gclose ends the waits of other blocks on the descriptor with -EBADF: gaccept, grecv, gsend,
 * gconnect.
 */
#include "test.h"

#define WAITERS 3

/* Words: how many wait, the descriptor + 1, results are in the reports. */
enum { WAITING, FD };

enum what { ACCEPT, RECV, SEND, CONNECT, WHATS };

struct close_args {
	struct test_args t;
	struct test_addr *full; /* a listener whose backlog is full */
	int what;
};

GNET_DEV int prepare(struct close_args *a, struct test_report *r, int *fd)
{
	int listener;

	switch (a->what) {
	case ACCEPT:
		K_GET(r, *fd, test_k_listen(a->t.net, a->t.want, a->t.where, 5));
		break;
	case CONNECT:
		K_GET(r, *fd, gsocket(a->t.net, a->full->a.sa.sa_family, GNET_SOCK_STREAM, 0));
		break;
	default:
		K_GET(r, listener, test_k_listen(a->t.net, a->t.want, a->t.where, 5));
		K_GET(r, *fd, gaccept(a->t.net, listener, NULL, NULL));
		K_EQ(r, gclose(a->t.net, listener), 0);
	}
	test_k_set(&a->t.word[FD], (uint64_t)*fd + 1);
	return 0;
}

GNET_DEV int64_t wait_in(struct close_args *a, int fd, uint8_t *buf)
{
	int64_t n;

	switch (a->what) {
	case ACCEPT:
		return gaccept(a->t.net, fd, NULL, NULL);
	case RECV:
		return grecv(a->t.net, fd, buf, 100, 0);
	case CONNECT:
		return gconnect(a->t.net, fd, &a->full->a, a->full->len);
	default:
		do
			n = gsend(a->t.net, fd, buf, a->t.room, 0);
		while (n == (int64_t)a->t.room);
		return n;
	}
}

/* The last block closes when the others say that they are about to wait, and a while later. */
GNET_DEV int close_it(struct close_args *a, struct test_report *r, uint8_t *buf)
{
	int fd;
	int64_t n;

	if (blockIdx.x == WAITERS) {
		K_CALL(prepare(a, r, &fd));
		if (threadIdx.x == 0)
			while (gnet_dev_load_acquire((uint64_t *)&a->t.dword[0]) < WAITERS)
				__nanosleep(20000);
		test_k_sleep(30000);
		K_EQ(r, gclose(a->t.net, fd), 0);
		K_EQ(r, gclose(a->t.net, fd), -EBADF);
		return 0;
	}
	test_k_wait(&a->t.word[FD], 1);
	fd = (int)gnet_sys_load_acquire(&a->t.word[FD]) - 1;
	if (threadIdx.x == 0)
		gnet_dev_add((uint64_t *)&a->t.dword[0], 1);
	n = wait_in(a, fd, buf);
	/*
	 * A send that was cut short says how much of it was taken; one block's connect is under
	 * way, not three.
	 */
	if (a->what == SEND && n >= 0)
		n = gsend(a->t.net, fd, buf, 1, 0);
	if (a->what == CONNECT && n == -EALREADY)
		return 0;
	K_EQ(r, n, -EBADF);
	K_EQ(r, grecv(a->t.net, fd, buf, 1, 0), -EBADF);
	return 0;
}

GNET_KERNEL(close_kernel, struct close_args, a)
{
	struct test_report *r = &a.t.report[blockIdx.x];

	test_k_done(r, close_it(&a, r, a.t.buf + a.t.room * blockIdx.x));
}

static void run(gpunet_t *g, enum test_kind kind, enum what what)
{
	struct close_args a;
	struct test_full full;
	int fd = -1;

	a.t = test_setup(g, kind, WAITERS + 1, 64 << 10);
	a.what = what;
	memset(&full, 0, sizeof(full));
	if (what == CONNECT)
		test_full_open(&full, kind);
	a.full = full.addr;
	TEST_LAUNCH(g, close_kernel, a, WAITERS + 1, 32);
	if (what == RECV || what == SEND) {
		test_addr_wait(a.t.where, NULL);
		fd = test_connect(a.t.where);
	}
	test_sync(g, a.t.report, WAITERS + 1);
	if (fd >= 0)
		close(fd);
	if (what == CONNECT)
		test_full_close(&full);
	test_teardown(&a.t);
}

int main(void)
{
	gpunet_t *g;

	test_begin(60);
	g = test_open(NULL);
	CHECK_EQ(GPUNET_PREPARE(close_kernel), 0);
	for (int what = ACCEPT; what < WHATS; what++) {
		run(g, TEST_TCP, (enum what)what);
		run(g, TEST_UNIX, (enum what)what);
	}
	test_close(g);
	return 0;
}
